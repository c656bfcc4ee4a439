"""The compiled machine: which kernels become machine code, and when that pays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from cudakit.emulator.compiled import Refusal, native
from cudakit.emulator.compiled.analysis import Traits, traits_of
from cudakit.emulator.compiled.layout import Layout, lanes_at_once, layout_of
from cudakit.emulator.compiled.native import Compiled
from cudakit.emulator.compiled.session import Session
from cudakit.emulator.compiled.source import Source
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.module import MOST_LANES, Module
from cudakit.errors import EmulatorWarning


@dataclass(slots=True)
class _ModuleCode:
    """What was made of a program, which goes with it."""

    kernels: dict[tuple[str, Layout], Compiled | Refusal] = field(default_factory=dict)
    traits: dict[str, Traits] = field(default_factory=dict)
    #: What was found for a launch with the same shape of a block, and watched or not.
    by_launch: dict[tuple[Any, ...], Compiled] = field(default_factory=dict)


@dataclass(slots=True)
class _History:
    """What is remembered of a module's kernels for as long as it lives."""

    #: What the other machine has done of each, in its steps.
    spent: dict[str, float] = field(default_factory=dict)
    #: What was compiled, and is so again where it is gone.
    compiled: set[tuple[str, Layout]] = field(default_factory=set)
    #: Kernels that a warning was given of.
    warned: set[str] = field(default_factory=set)


class Machine:
    """The kernels that are compiled, by module; and why others are not."""

    def __init__(self) -> None:
        self._histories: WeakKeyDictionary[Module, _History] = WeakKeyDictionary()

    def find(self, launch: Launch, eager: bool) -> Compiled | Refusal:
        """A launch's kernel as machine code, or why there is none; compiled now if it will pay, or where `eager`."""
        module, entry, geometry = launch.module, launch.entry, launch.geometry
        if geometry.cluster != (1, 1, 1) or geometry.has_cluster:
            return Refusal("clusters of blocks")
        if geometry.threads > _MOST_THREADS:
            return Refusal(f"blocks of more than {_MOST_THREADS} threads")
        code: _ModuleCode | None = module.compiled.get(self)
        if code is None:
            code = module.compiled[self] = _ModuleCode()
        key = (entry.name, geometry.block, module.memory.watcher is not None)
        again = code.by_launch.get(key)
        if again is not None:
            return again
        traits = code.traits.get(entry.name)
        if traits is None:
            contexts = [module.context(function) for function in module.reached(entry)]
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
            pays = spent + _least(launch) >= _FIRST + _STEPS * len(entry.code) and not (spent and traits.adds_floats)
            if not (eager or pays or (entry.name, layout) in past.compiled):
                return Refusal("not run for as long as compiling takes, or begun elsewhere to add floats")
            kernel = code.kernels[entry.name, layout] = self._make(module, entry.name, layout)
            if isinstance(kernel, Compiled):
                past.compiled.add((entry.name, layout))
        if isinstance(kernel, Compiled):
            code.by_launch[key] = kernel
        return kernel

    def history(self, module: Module) -> _History:
        """What is remembered of a module."""
        return self._histories.setdefault(module, _History())

    def note(self, launch: Launch, steps: int) -> None:
        """Note that a launch took steps of the other machine."""
        spent, name = self.history(launch.module).spent, launch.entry.name
        spent[name] = spent.get(name, 0) + steps * _step(launch)

    def _make(self, module: Module, name: str, layout: Layout) -> Compiled | Refusal:
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


#: Threads of a block, of whose places there is room.
_MOST_THREADS = 1024
#: Instructions of kernels that are optimised at once, and what it takes to optimise those with more, by the
#: instruction: seconds.
_SHORT, _OPTIMISING = 80, 5e-3
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


_machine = Machine()


def run(launch: Launch, otherwise: Callable[[Launch], None], eager: bool) -> None:
    """Run a launch as machine code where that can be done and pays, else `otherwise`."""
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
        otherwise(launch)
        _machine.note(launch, launch.steps - before)
    else:
        launch.module.ran[launch.entry.name] = "compiled", ""
        _machine.run(launch, kernel)
