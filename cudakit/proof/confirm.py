"""Counterexamples of proofs, and their runs on the emulator."""

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
#: Largest integer argument of an example: a larger one may mean more rounds of a loop than can run.
_MOST_NUMBER = 4096
_ALIGN = 256
#: Unused bytes around an array, so that an access just outside is a fault.
_AROUND = 4096


@dataclass(frozen=True)
class Example:
    """A launch with a fault.

    Attributes
    ----------
    arguments : dict
        Integer arguments, and the lengths of arrays as ``len(x)``.
    grid, block : tuple of int
    shared_bytes : int
    fault : str
        Fault that the emulator reports; empty if it reports none.
    was_run : bool
        Whether the launch was run: it may be too large.
    null : tuple of str
        Names of arguments that are None.
    contents : dict
        Elements of arrays that have statements about their elements. They are repeated over the array.
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
    """Return two conditions on a launch: one that keeps it small enough for the emulator, and a tighter one."""
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


def value_of(expression: Polynomial, values: dict[Symbol, int]) -> int:
    """Return the value of a polynomial at the values of its symbols.

    A symbol without a value has its lower bound, or 0.
    """
    total = 0
    for product, factor in expression.terms.items():
        for symbol in product:
            factor *= values.get(symbol, symbol.low or 0)
        total += factor
    return total


def example(problem: Problem, values: dict[Symbol, int]) -> Example:
    """Return the launch described by a solver's values."""
    arguments = {name: values.get(symbol, _least(symbol)) for name, symbol in problem.scalars.items()}
    arguments |= {symbol.name: values.get(symbol, 0) for symbol in problem.lengths.values()}
    sizes = [tuple(value_of(extent, values) for extent in extents) for extents in (problem.grid, problem.block)]
    null = tuple(name for name, symbol in problem.pointers.items() if values.get(symbol, 1) == 0)
    return Example(arguments, sizes[0], sizes[1], value_of(problem.shared_bytes, values), null=null)


def _least(symbol: Symbol) -> int:
    return max(0, symbol.low or 0)


@dataclass(frozen=True)
class ExpectedFault:
    """The fault that an example must show: its category, and the instructions where it may be.

    Attributes
    ----------
    category : str
        Category of the `Obligation`.
    lines : frozenset of int
        Lines of the instructions in the PTX.
    places : frozenset of str
        Source lines of the instructions, as ``file:line``.
    """

    category: str
    lines: frozenset[int]
    places: frozenset[str]

    def of_error(self, text: str) -> bool:
        """Return whether the text of an emulator's error describes the expected fault; False for a race."""
        if self.category == "barrier":
            return "barrier" in text
        at = re.search(r"\(PTX line (\d+)[,)]", text)
        return self.category in ("bounds", "alignment") and at is not None and int(at[1]) in self.lines

    def of_finding(self, finding: Finding) -> bool:
        """Return whether a finding of the checks is the expected fault."""
        return finding.kind == self.category and not self.places.isdisjoint(
            (f"{finding.file}:{finding.line}", finding.other)
        )


def run_example(
    launch: Example, problem: Problem, kernel: Any, arch: str, expected: ExpectedFault | None = None
) -> Example:
    """Run an example on the emulator; return a copy with `was_run` set, and with the fault that the run shows.

    `fault` is empty if the run shows no fault, or not the expected one. Without `expected`, any fault counts. A launch
    that is too large or that is refused is returned unchanged.
    """
    names = [problem.same.get(parameter.name, parameter.name) for parameter in problem.parameters]
    lengths = [launch.arguments.get(f"len({name})", 0) for name in names]
    pairs = list(zip(problem.parameters, lengths, strict=True))
    if prod(launch.grid) * prod(launch.block) > _MOST_THREADS:
        return launch
    if sum(length * element_bytes(parameter) for parameter, length in pairs) > _MOST_BYTES:
        return launch
    arguments: list[Any] = []
    arrays: dict[str, np.ndarray] = {}
    buffers: list[np.ndarray] = []
    for name, (parameter, length) in zip(names, pairs, strict=True):
        if parameter.category == "pointer" and name in arrays:
            arguments.append(arrays[name])
        elif parameter.category == "pointer" and name in launch.null:
            arguments.append(None)
        elif parameter.category == "pointer":
            arrays[name] = _array(length * parameter.count, parameter.dtype or np.dtype("u1"), buffers)
            if elements := launch.contents.get(name):
                arrays[name][:] = np.resize(np.array(elements, arrays[name].dtype), len(arrays[name]))
            arguments.append(arrays[name])
        elif parameter.name in problem.scalars:
            dtype = parameter.dtype or np.dtype("i4")
            arguments.append(dtype.type(launch.arguments[parameter.name]))
        else:
            arguments.append((parameter.dtype or np.dtype("f4")).type(1))
    where = emulated_stream(arch=arch, check="off", step_budget=_STEPS)
    fault = ""
    with warnings.catch_warnings(), check() as report:
        warnings.simplefilter("ignore")
        try:
            kernel(where, config(launch.grid, launch.block, shared_bytes=launch.shared_bytes), *arguments)
        except EmulationError as error:
            fault = str(error) if expected is None or expected.of_error(str(error)) else ""
        except CudakitError:
            # The launch itself is refused, as one with too much shared memory is: nothing is shown.
            return launch
    fault = fault or next(
        (str(finding) for finding in report.findings if expected is None or expected.of_finding(finding)), ""
    )
    return replace(launch, fault=fault, was_run=True)


def _array(length: int, dtype: np.dtype, buffers: list[np.ndarray]) -> np.ndarray:
    """Return an array of small random numbers, aligned as on a GPU, with unused memory around it.

    The memory is added to `buffers`, which the caller must keep as long as the array is used.
    """
    if length == 0:
        return np.zeros(0, dtype)
    size = length * dtype.itemsize
    buffers.append(np.zeros(_AROUND + _ALIGN + size + _AROUND, np.uint8))
    start = buffers[-1].ctypes.data + _AROUND
    start += -start % _ALIGN
    memory: Any = (ctypes.c_uint8 * size).from_address(start)
    array: np.ndarray = np.frombuffer(memory, dtype)
    if dtype.kind in "iufc":
        array[:] = np.random.default_rng(length).integers(1, 8, length).astype(dtype)
    return array
