"""Compiled back-end: which kernels become machine code, and when compiling pays."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from cudakit.emulator.compiled import Refusal, native
from cudakit.emulator.compiled.analysis import Traits, traits_of
from cudakit.emulator.compiled.layout import Layout, lanes_at_once, layout_of
from cudakit.emulator.compiled.native import Compiled
from cudakit.emulator.compiled.session import Session
from cudakit.emulator.compiled.source import Source
from cudakit.emulator.machine.former import Former
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.module import MOST_LANES, Module
from cudakit.errors import EmulatorWarning


@dataclass(slots=True)
class _ModuleCode:
    """Machine code of a program, dropped with the program."""

    kernels: dict[tuple[str, Layout], Compiled | Refusal] = field(default_factory=dict)
    traits: dict[str, Traits] = field(default_factory=dict)
    #: Kernel by name, shape of the block, and whether the launch is watched.
    by_launch: dict[tuple[Any, ...], Compiled] = field(default_factory=dict)


@dataclass(slots=True)
class _History:
    """History of a module's kernels, as long as the module lives: steps on the interpreter, compiles and warnings."""

    #: Cost of each kernel on the interpreter so far, in steps.
    spent: dict[str, float] = field(default_factory=dict)
    #: Kernels that were compiled; they are compiled again after their code was dropped.
    compiled: set[tuple[str, Layout]] = field(default_factory=set)
    #: Kernels for which a warning was given.
    warned: set[str] = field(default_factory=set)


class Machine:
    """Compiled kernels by module, and the reasons why others are not compiled."""

    def __init__(self) -> None:
        self._histories: WeakKeyDictionary[Module, _History] = WeakKeyDictionary()

    def find(self, launch: Launch, eager: bool) -> Compiled | Refusal:
        """Return a launch's kernel as machine code, or the reason why there is none.

        The kernel is compiled now if its compile will pay, or if `eager`.
        """
        module, entry, geometry = launch.module, launch.entry, launch.geometry
        if geometry.cluster != (1, 1, 1) or geometry.has_cluster:
            return Refusal("clusters of blocks")
        if geometry.threads > _MOST_THREADS:
            return Refusal(f"blocks of more than {_MOST_THREADS} threads")
        code: _ModuleCode | None = module.compiled.get(self)
        if code is None:
            code = module.compiled[self] = _ModuleCode()
        key = (entry.name, geometry.block, module.memory.watcher is not None)
        cached = code.by_launch.get(key)
        if cached is not None:
            return cached
        traits = code.traits.get(entry.name)
        if traits is None:
            contexts = [module.context(function) for function in module.reachable(entry)]
            traits = code.traits[entry.name] = traits_of(contexts)
        processor = native.processor()
        most = lanes_at_once(processor.native, traits.size)
        layout = layout_of(
            geometry, traits.uses_warps, most, key[2], traits.is_free, processor.masks, processor.gathers
        )
        kernel = code.kernels.get((entry.name, layout))
        if kernel is None:
            past = self.history(module)
            spent = past.spent.get(entry.name, 0)
            is_bound = bool(spent and traits.adds_floats)
            missing = _FIRST + _STEPS * len(entry.code) - spent
            if not (eager or (_least(launch) >= missing and not is_bound) or (entry.name, layout) in past.compiled):
                if traits.may_begin_anew and not is_bound:
                    launch.patience = launch.steps + max(missing, 0) / _step(launch)
                return Refusal("not run for as long as compiling takes, or begun elsewhere to add floats")
            kernel = code.kernels[entry.name, layout] = self._make(module, entry.name, layout)
            if isinstance(kernel, Compiled):
                past.compiled.add((entry.name, layout))
        if isinstance(kernel, Compiled):
            code.by_launch[key] = kernel
        return kernel

    def history(self, module: Module) -> _History:
        """Return the history of a module."""
        return self._histories.setdefault(module, _History())

    def note(self, launch: Launch, steps: int) -> None:
        """Note that a launch took steps on the NumPy interpreter."""
        spent, name = self.history(launch.module).spent, launch.entry.name
        spent[name] = spent.get(name, 0) + steps * _step(launch)

    def _make(self, module: Module, name: str, layout: Layout) -> Compiled | Refusal:
        """Compile a kernel, or return the reason why it cannot be."""
        try:
            compiled = Compiled(Source(module, name), layout, _SHORT)
        except Refusal as refusal:
            return refusal
        compiled.patience = compiled.facts.size * _OPTIMISING
        return compiled

    def run(self, launch: Launch, compiled: Compiled) -> None:
        """Run a launch to its end.

        Raises
        ------
        EmulationError
        """
        if compiled.is_baseline and compiled.patience <= 0:
            compiled.improve()
        begun = time.perf_counter()
        try:
            Session(launch, compiled).run()
        finally:
            compiled.patience -= time.perf_counter() - begun


#: Limit of threads in a block: the table of their coordinates has this size.
_MOST_THREADS = 1024
#: Limit of instructions for kernels that are optimized at once; and the seconds to optimize an instruction of longer
#: kernels.
_SHORT, _OPTIMISING = 80, 5e-3
#: Costs in interpreter steps. 4,096 lanes cost as much as a step's overhead. To compile an instruction costs sixty
#: steps, and each kernel a constant.
_LANES, _STEPS, _FIRST = 4096, 60, 2000


def _step(launch: Launch) -> float:
    """Return the cost of one step of the interpreter for a launch: 1 for the overhead, and more with more threads."""
    return 1 + min(launch.geometry.blocks * launch.geometry.threads, MOST_LANES) / _LANES


def _least(launch: Launch) -> float:
    """Return the cost of a launch on the interpreter if it runs each instruction once."""
    rounds = -(-launch.geometry.blocks * launch.geometry.threads // MOST_LANES)
    return len(launch.entry.code) * rounds * _step(launch)


_machine = Machine()


def run(launch: Launch, otherwise: Callable[[Launch], None], eager: bool) -> None:
    """Run a launch as machine code if that is possible and pays, or if possible with `eager`; else by `otherwise`.

    With `eager`, a kernel that cannot be compiled causes a warning, once for a module.
    """
    if launch.observers or launch.step_budget is not None or launch.schedule is not None:
        launch.why = "a watched, ordered or bounded launch goes step by step"
        otherwise(launch)
        return
    kernel = _machine.find(launch, eager)
    if isinstance(kernel, Refusal):
        warned = _machine.history(launch.module).warned
        if eager and launch.entry.name not in warned:
            warned.add(launch.entry.name)
            warnings.warn(f"{launch.title} runs on the NumPy machine: it has {kernel}", EmulatorWarning, stacklevel=2)
        before, launch.why = launch.steps, f"it has {kernel}"
        try:
            with _begun_anew(launch):
                otherwise(launch)
            _machine.note(launch, launch.steps - before)
            return
        except _Outlasted as outlasted:
            launch.steps, launch.why, kernel = before, "", outlasted.kernel
    launch.module.ran[launch.entry.name] = "compiled", ""
    _machine.run(launch, kernel)


class _Outlasted(Exception):
    """End of a launch that has run for longer than compiling takes, with the kernel as machine code."""

    def __init__(self, kernel: Compiled) -> None:
        super().__init__("the launch begins anew as machine code")
        self.kernel = kernel


@contextlib.contextmanager
def _begun_anew(launch: Launch) -> Iterator[None]:
    """End the launch by `_Outlasted` when its `patience` is used up, with memory as it was before the launch."""
    if launch.patience == math.inf:
        yield
        return
    memory = launch.module.memory
    former = memory.former = Former()

    def outlast() -> None:
        kernel = _machine.find(launch, True) if former.is_complete else None
        if isinstance(kernel, Compiled):
            former.restore()
            raise _Outlasted(kernel)
        memory.former = None

    launch.outlast = outlast
    try:
        yield
    finally:
        memory.former = None
