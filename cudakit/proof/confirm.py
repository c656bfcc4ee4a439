"""A counterexample, run on the emulator."""

from __future__ import annotations

import ctypes
import re
import warnings
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from cudakit.emulator.face import Finding, check
from cudakit.emulator.face import stream as emulated_stream
from cudakit.errors import CudakitError, EmulationError
from cudakit.jit.load.config import config
from cudakit.proof.problem import Problem, element_bytes
from cudakit.proof.terms import Formula, Polynomial, Symbol, at_least, everything, polynomial

_MOST_THREADS, _MOST_BYTES = 1 << 18, 1 << 28
_STEPS = 1 << 18
#: Beyond which an integer argument may mean more rounds of a loop than can be run.
_MOST_NUMBER = 4096
_ALIGN = 256
#: Bytes around an array that are no other's, so that what lies just outside is a fault.
_AROUND = 4096


@dataclass(frozen=True)
class Example:
    """A launch at which something is wrong.

    Attributes
    ----------
    arguments : dict
        Integer arguments, and the lengths of arrays by ``len(x)``.
    grid, block : tuple of int
    shared_bytes : int
    fault : str
        What the emulator says of it; empty where it finds nothing.
    was_run : bool
        Whether it was run: it may be too large.
    null : tuple of str
        Arguments that are None.
    contents : dict
        Of arrays of whose elements something is stated: elements, which are repeated over the array.
    """

    arguments: dict[str, int]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    fault: str = ""
    was_run: bool = False
    null: tuple[str, ...] = ()
    contents: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = [f"{name} = {value}" for name, value in self.arguments.items()] + [
            f"{name} = None" for name in self.null
        ]
        shown += [f"{name} with elements {', '.join(map(str, values))}" for name, values in self.contents.items()]
        return ", ".join([*shown, f"grid {self.grid}, block {self.block}"])


def small(problem: Problem) -> list[Formula]:
    """What keeps a launch small enough for the emulator, and smaller."""
    total = polynomial(0)
    for array in problem.arrays.values():
        if array.space == "global":
            total = total + array.bytes
    limits = []
    for threads, size in ((_MOST_THREADS, _MOST_BYTES), (4096, 1 << 16)):
        axes = [at_least(threads // 256, extent) for extent in problem.grid]
        numbers = [at_least(_MOST_NUMBER, symbol) for symbol in problem.scalars.values()]
        limits.append(everything([at_least(size, total), *axes, *numbers]))
    return limits


def value_of(given: Polynomial, values: dict[Symbol, int]) -> int:
    """A polynomial's value."""
    total = 0
    for product, factor in given.terms.items():
        for symbol in product:
            factor *= values.get(symbol, symbol.low or 0)
        total += factor
    return total


def example(problem: Problem, values: dict[Symbol, int]) -> Example:
    """The launch that a solver's values tell of."""
    arguments = {name: values.get(symbol, _least(symbol)) for name, symbol in problem.scalars.items()}
    arguments |= {symbol.name: values.get(symbol, 0) for symbol in problem.lengths.values()}
    sizes = [tuple(value_of(each, values) for each in extents) for extents in (problem.grid, problem.block)]
    null = tuple(name for name, symbol in problem.pointers.items() if values.get(symbol, 1) == 0)
    return Example(arguments, sizes[0], sizes[1], value_of(problem.shared_bytes, values), null=null)


def _least(symbol: Symbol) -> int:
    return max(0, symbol.low or 0)


@dataclass(frozen=True)
class Wanted:
    """What an example is to show: a fault of a kind, at one of some instructions.

    Attributes
    ----------
    kind : str
        As `Obligation` has it.
    lines : frozenset of int
        Of the PTX.
    places : frozenset of str
        Where they come from, as ``file:line``.
    """

    kind: str
    lines: frozenset[int]
    places: frozenset[str]

    def of_error(self, text: str) -> bool:
        """Whether an error is that fault; another one only stops the kernel before it."""
        if self.kind == "barrier":
            return "barrier" in text
        at = re.search(r"\(PTX line (\d+)[,)]", text)
        return self.kind in ("bounds", "alignment") and at is not None and int(at[1]) in self.lines

    def of_finding(self, finding: Finding) -> bool:
        """Whether what a check found is that fault."""
        return finding.kind == self.kind and not self.places.isdisjoint(
            (f"{finding.file}:{finding.line}", finding.other)
        )


def ran(found: Example, problem: Problem, kernel: Any, arch: str, wanted: Wanted | None = None) -> Example:
    """The example, with what the emulator says of what is wanted when it runs it; None: of any fault."""
    names = [problem.same.get(each.name, each.name) for each in problem.parameters]
    lengths = [found.arguments.get(f"len({name})", 0) for name in names]
    pairs = list(zip(problem.parameters, lengths, strict=True))
    if prod(found.grid) * prod(found.block) > _MOST_THREADS:
        return found
    if sum(length * element_bytes(parameter) for parameter, length in pairs) > _MOST_BYTES:
        return found
    given: list[Any] = []
    arrays: dict[str, np.ndarray] = {}
    held: list[np.ndarray] = []
    for name, (parameter, length) in zip(names, pairs, strict=True):
        if parameter.category == "pointer" and name in arrays:
            given.append(arrays[name])
        elif parameter.category == "pointer" and name in found.null:
            given.append(None)
        elif parameter.category == "pointer":
            arrays[name] = _array(length * parameter.count, parameter.dtype or np.dtype("u1"), held)
            if elements := found.contents.get(name):
                arrays[name][:] = np.resize(np.array(elements, arrays[name].dtype), len(arrays[name]))
            given.append(arrays[name])
        elif parameter.name in problem.scalars:
            dtype = parameter.dtype or np.dtype("i4")
            given.append(dtype.type(found.arguments[parameter.name]))
        else:
            given.append((parameter.dtype or np.dtype("f4")).type(1))
    where = emulated_stream(arch=arch, check="off", step_budget=_STEPS)
    fault = ""
    with warnings.catch_warnings(), check() as report:
        warnings.simplefilter("ignore")
        try:
            kernel(where, config(found.grid, found.block, shared_bytes=found.shared_bytes), *given)
        except EmulationError as error:
            fault = str(error) if wanted is None or wanted.of_error(str(error)) else ""
        except CudakitError:
            # The launch itself is refused, as one with too much shared memory is: nothing is shown.
            return found
    fault = fault or next((str(each) for each in report.findings if wanted is None or wanted.of_finding(each)), "")
    return replace(found, fault=fault, was_run=True)


def _array(length: int, dtype: np.dtype, held: list[np.ndarray]) -> np.ndarray:
    """An array of a few small numbers that begins where arrays of a GPU do, and is no part of another."""
    if length == 0:
        return np.zeros(0, dtype)
    size = length * dtype.itemsize
    held.append(np.zeros(_AROUND + _ALIGN + size + _AROUND, np.uint8))
    start = held[-1].ctypes.data + _AROUND
    start += -start % _ALIGN
    memory: Any = (ctypes.c_uint8 * size).from_address(start)
    made: np.ndarray = np.frombuffer(memory, dtype)
    if dtype.kind in "iufc":
        made[:] = np.random.default_rng(length).integers(1, 8, length).astype(dtype)
    return made
