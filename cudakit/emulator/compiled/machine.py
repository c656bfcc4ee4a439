"""The compiled machine: which kernels become machine code, and when that pays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from cudakit.emulator.compiled import kernel, native
from cudakit.emulator.compiled.inline import Inlined, reached
from cudakit.emulator.compiled.layout import Layout, layout_of
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.session import Compiled, Session
from cudakit.emulator.machine.capacity import MOST_LANES
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import decode
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.module import Module
from cudakit.errors import EmulatorWarning


class _Traits(NamedTuple):
    """What of a kernel decides how it is compiled, and when."""

    uses_warps: bool
    #: Whether the order of its lanes is seen in sums: it stays on the machine that has begun it.
    adds_floats: bool
    #: Whether its vectors may run in any order, those of a block too.
    is_free: bool
    #: Instructions.
    size: int


class Machine:
    """The kernels that are compiled, by module; and why others are not."""

    def __init__(self) -> None:
        self._kernels: WeakKeyDictionary[Module, dict[tuple[str, Layout], Compiled | Refusal]] = WeakKeyDictionary()
        self._traits: WeakKeyDictionary[Module, dict[str, _Traits]] = WeakKeyDictionary()
        #: What was found for a launch with the same shape of a block, and watched or not.
        self._found: WeakKeyDictionary[Module, dict[tuple[Any, ...], Compiled]] = WeakKeyDictionary()
        self._spent: WeakKeyDictionary[Module, dict[str, float]] = WeakKeyDictionary()

    def find(self, launch: Launch, eager: bool) -> Compiled | Refusal:
        """A launch's kernel as machine code, or why there is none; compiled now if it will pay, or where `eager`."""
        module, entry, geometry = launch.module, launch.entry, launch.geometry
        if geometry.cluster != (1, 1, 1):
            return Refusal("clusters of blocks")
        if geometry.threads > _MOST_THREADS:
            return Refusal(f"blocks of more than {_MOST_THREADS} threads")
        again = self._found.setdefault(module, {})
        key = (entry.name, geometry.block, module.memory.watcher is not None)
        made = again.get(key)
        if made is not None:
            return made
        kernels = self._kernels.setdefault(module, {})
        traits = self._traits.setdefault(module, {})
        known = traits.get(entry.name)
        if known is None:
            contexts = [module.context(each) for each in reached(module.program, entry)]
            known = traits[entry.name] = _Traits(
                any(map(kernel.uses_warps, contexts)),
                any(map(kernel.adds_floats, contexts)),
                all(map(kernel.is_free, contexts)),
                sum(len(each.function.code) for each in contexts),
            )
        watched = module.memory.watcher is not None
        processor = native.processor()
        most = processor.native * (4 if known.size <= _SMALL else 2)
        layout = layout_of(geometry, known.uses_warps, most, watched, known.is_free, processor.masks)
        found = kernels.get((entry.name, layout))
        if found is None:
            spent = self._spent.get(module, {}).get(entry.name, 0)
            if not eager and (spent + _least(launch) < _cost(launch) or (spent and known.adds_floats)):
                return Refusal("not run for as long as compiling takes, or begun elsewhere to add floats")
            found = kernels[entry.name, layout] = self._make(module, entry.name, layout)
        if isinstance(found, Compiled):
            again[key] = found
        return found

    def note(self, launch: Launch, steps: int) -> None:
        """Note that a launch took steps of the other machine."""
        spent = self._spent.setdefault(launch.module, {})
        spent[launch.entry.name] = spent.get(launch.entry.name, 0) + steps * _step(launch)

    def _make(self, module: Module, name: str, layout: Layout) -> Compiled | Refusal:
        try:
            inlined = Inlined(module.program, module.program.functions[name])
            context = Context(module.symbols, inlined.function)
            # What NumPy's machine does not know, in this form, is not known here: its error comes where it is run.
            for given in inlined.function.code:
                if decode(given, context).missing:
                    raise Refusal(f"instruction {given}")
            brief = kernel.make(context, layout, True)
            lines = brief.text.count("\n")
            if lines <= _SHORT or native.was_improved(brief.text):
                made = kernel.make(context, layout)
                return Compiled(made, native.Code(made.text, True), context, inlined.origins, layout)
        except Refusal as refusal:
            return refusal
        patience = lines * _OPTIMISING
        return Compiled(brief, native.Code(brief.text, False), context, inlined.origins, layout, True, patience)

    def run(self, launch: Launch, compiled: Compiled) -> None:
        """Run a launch to its end.

        Raises
        ------
        EmulationError
        """
        if compiled.is_quick and compiled.patience <= 0:
            compiled.improve()
        begun = time.perf_counter()
        try:
            Session(launch, compiled).run()
        finally:
            compiled.patience -= time.perf_counter() - begun


#: Threads of a block, of whose places there is room.
_MOST_THREADS = 1024
#: Instructions of a kernel whose vectors take four registers each rather than two: what is done once for a vector
#: counts for more than what no longer fits into the registers.
_SMALL = 80
#: Lines of the brief IR of kernels that are optimised at once, and what it takes to optimise those with more, by the
#: line: seconds.
_SHORT, _OPTIMISING = 1500, 400e-6
#: A step of the NumPy machine takes about as long as 4,096 of its lanes more; to compile an instruction takes as long
#: as sixty such steps, and there is something to do for each kernel.
_LANES, _STEPS, _FIRST = 4096, 60, 2000


def _step(launch: Launch) -> float:
    """What a step of the NumPy machine costs for a launch."""
    return 1 + min(launch.geometry.blocks * launch.geometry.threads, MOST_LANES) / _LANES


def _least(launch: Launch) -> float:
    """What a launch costs the NumPy machine if it goes through the code once."""
    rounds = -(-launch.geometry.blocks * launch.geometry.threads // MOST_LANES)
    return len(launch.entry.code) * rounds * _step(launch)


def _cost(launch: Launch) -> float:
    """What it costs to compile a kernel."""
    return _FIRST + _STEPS * len(launch.entry.code)


_machine = Machine()
#: Kernels that a warning was given of.
_told: set[tuple[Module, str]] = set()


def run(launch: Launch, otherwise: Callable[[Launch], None], eager: bool) -> None:
    """Run a launch as machine code where that can be done and pays, else `otherwise`."""
    if launch.observers or launch.step_budget is not None or launch.schedule is not None:
        launch.why = "a watched, ordered or bounded launch goes step by step"
        otherwise(launch)
        return
    found = _machine.find(launch, eager)
    if isinstance(found, Refusal):
        if eager and (launch.module, launch.entry.name) not in _told:
            _told.add((launch.module, launch.entry.name))
            warnings.warn(f"{launch.title} runs on the NumPy machine: it has {found}", EmulatorWarning, stacklevel=2)
        before, launch.why = launch.steps, f"it has {found}"
        otherwise(launch)
        _machine.note(launch, launch.steps - before)
    else:
        launch.module.ran[launch.entry.name] = "compiled", ""
        _machine.run(launch, found)
