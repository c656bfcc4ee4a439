"""Records of CUDA Tile IR, which NVRTC makes of tile kernels: types, operations, promises and source places.

Tile IR contains what the compiler does not report: promises about a kernel's arguments, and calls that would trap.

A ``__tile_global__`` kernel goes through the same stages as any kernel:

- `Signature.is_tile` marks it, and `Specialization.is_tile` separates it from the thread kernels of its source.
- `cudakit.jit.compile.worker` compiles it to Tile IR, in a process of its own: NVRTC prints some errors of tile code
  past its log.
- `cudakit.jit.compile.tile_bytecode` reads the bytecode. `promises` finds the code's assumptions about its arguments.
  ``stages.promised`` gives each `Promise` to a `BoundParameter`, and ``bind.bind`` checks it at the call.
- For a GPU, `cudakit.jit.compile.assemble` has ``tileiras`` make machine code, under a key of its own. If no assembler
  is installed, ``load.loadable`` passes the Tile IR to a driver that is new enough.
- On the emulator `cudakit.emulator.ready` prepares thread kernels and tile kernels, and
  `cudakit.emulator.tile.machine` runs Tile IR, each operation over a whole tile.
- A grid counts tiles (``config.tiled``), and there is no block.

`cudakit.types.tensors` says how tensors (``cudakit::tensor``) are passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cudakit.jit.compile.compiled import Promise


class Tile(NamedTuple):
    """A tile: its shape, and the type of its elements, or of their targets if they are pointers."""

    shape: tuple[int, ...]
    element: str
    is_pointer: bool = False


class TensorView(NamedTuple):
    """An array in memory; extents and strides (in elements) that are known only at run time are None."""

    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    element: str


class View(NamedTuple):
    """The division of an array into tiles.

    Attributes
    ----------
    tile : tuple of int
        Shape of a tile.
    tensor : TensorView
        Array that is divided.
    steps : tuple of int
        Elements from one tile to the next, in each dimension of the tile.
    dimensions : tuple of int
        For each dimension of the tile, the dimension of the array.
    padding : str or None
        Padding of tiles that may extend past the end, a name in `PADDINGS`, or None.
    sparse : int or None
        Dimension whose indices are a tile.
    """

    tile: tuple[int, ...]
    tensor: TensorView
    steps: tuple[int, ...]
    dimensions: tuple[int, ...]
    padding: str | None = None
    sparse: int | None = None


class Token(NamedTuple):
    """A token that orders memory accesses."""


Type: TypeAlias = Tile | TensorView | View | Token


class Place(NamedTuple):
    """A position in a source; `caller` is the position of the call, if the function is inlined."""

    file: str
    line: int
    column: int
    caller: Place | None = None


class DivisibleBy(NamedTuple):
    """A promise: each value is a multiple of `divisor`; with `every`, only each `every`-th along dimension `along`."""

    divisor: int
    every: int | None = None
    along: int | None = None


class Bounded(NamedTuple):
    """A promise: no value is below `low` or above `high`."""

    low: int | None
    high: int | None


class SameElements(NamedTuple):
    """A promise: all elements of a group are equal; `groups` is the size of a group in each dimension."""

    groups: tuple[int, ...]


@dataclass(slots=True)
class Region:
    """Operations inside an operation, and the numbers and types of their arguments."""

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    operations: list[Operation]


@dataclass(slots=True)
class Operation:
    """An operation. Values are numbers; regions reuse the numbers of regions that have ended.

    Attributes
    ----------
    attributes : dict
        Attributes by the names of the table in `tile_bytecode`; flags are bools.
    optional : dict
        Optional operands, by name.
    """

    name: str
    results: tuple[int, ...]
    types: tuple[Type, ...]
    operands: tuple[int, ...]
    optional: dict[str, int]
    attributes: dict[str, Any]
    regions: tuple[Region, ...]
    place: Place | None

    def walk(self) -> Iterator[Operation]:
        """Yield this operation and all operations inside it."""
        yield self
        for region in self.regions:
            for inner in region.operations:
                yield from inner.walk()


@dataclass(slots=True)
class Function:
    """A tile kernel; `values` is the number of values that it needs at a time."""

    name: str
    parameters: tuple[Type, ...]
    hints: Mapping[str, Any]
    operations: list[Operation]
    values: int

    def walk(self) -> Iterator[Operation]:
        """Yield all operations."""
        for operation in self.operations:
            yield from operation.walk()


class Global(NamedTuple):
    """A variable of a module: its type, the bytes of its initial value, and its alignment."""

    type: Type
    data: bytes
    alignment: int
    is_constant: bool


@dataclass(slots=True)
class TileModule:
    """The contents of a piece of bytecode."""

    version: tuple[int, int]
    functions: dict[str, Function] = field(default_factory=dict)
    globals: dict[str, Global] = field(default_factory=dict)


_TRAP = "Cannot invoke non-tile function"
#: Paths of the compiler's own headers, which contain no user's line.
_HEADERS = ("cuda_tile.h", "/cuda/std/")


def promises(module: TileModule) -> tuple[Promise, ...]:
    """Return the kernels' assumptions about their arguments, before the first branch."""
    return tuple(promise for function in module.functions.values() for promise in _promises_of(function))


def _promises_of(function: Function) -> Iterator[Promise]:
    origin = {number: number for number in range(len(function.parameters))}
    promises: dict[int, Promise] = {}
    for operation in function.operations:
        if operation.regions:
            break  # a promise after a branch need not hold for every call
        if operation.name != "assume" or (position := origin.get(operation.operands[0])) is None:
            continue
        origin[operation.results[0]] = position
        is_pointer = isinstance(parameter := function.parameters[position], Tile) and parameter.is_pointer
        promise = promises.get(position, Promise(function.name, position))
        match operation.attributes["predicate"]:
            case DivisibleBy(divisor, None, None):
                promises[position] = promise._replace(divisor=math.lcm(promise.divisor, divisor))
            case Bounded(low, high) if not is_pointer:
                lows, highs = (
                    [bound for bound in pair if bound is not None]
                    for pair in ((promise.low, low), (promise.high, high))
                )
                promises[position] = promise._replace(low=max(lows, default=None), high=min(highs, default=None))
    yield from (promise for promise in promises.values() if promise[2:] != (1, None, None))


def traps(module: TileModule) -> Iterator[tuple[Operation, Place | None]]:
    """Yield calls of functions that tile code cannot call: they compile, and end the kernel when they are reached."""
    for function in module.functions.values():
        for operation in function.walk():
            if operation.name == "assert" and operation.attributes["message"].startswith(_TRAP):
                yield operation, source_place(operation.place)


def source_place(place: Place | None) -> Place | None:
    """Return the user's own line: the innermost call outside of the compiler's headers.

    If all calls are in headers, return `place`. Return None for no place.
    """
    outermost = place
    while place is not None and any(header in place.file for header in _HEADERS):
        place = place.caller
    return place or outermost
