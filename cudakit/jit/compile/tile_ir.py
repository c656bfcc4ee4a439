"""CUDA Tile IR, as NVRTC makes it of tile kernels: types, operations, promises and places, as records.

It says of a kernel what the compiler does not: promises about its arguments, and calls that would trap.

A ``__tile_global__`` kernel takes the same stages as any kernel:

- `Signature.is_tile` marks it, and `Specialization.is_tile` keeps it apart from the thread kernels of its source.
- `cudakit.jit.compile.worker` compiles it to Tile IR, in a process of its own: NVRTC prints some errors of tile code
  past its log.
- `cudakit.jit.compile.tile_bytecode` reads the bytecode. `promises` finds in it what the code assumes of its
  arguments. ``stages.promised`` gives each `Promise` to a `BoundParameter`, and ``bind.bind`` checks it at the call.
- For a GPU `cudakit.jit.compile.assemble` has ``tileiras`` make machine code, under a key of its own. Where no
  assembler is installed, ``load.loadable`` gives the Tile IR to a driver that is new enough.
- On the emulator `cudakit.emulator.ready` prepares kernels of both sorts, and `cudakit.emulator.tile.machine` runs
  Tile IR, each operation over a whole tile.
- A grid counts tiles (``config.tiled``), and there is no block.

`cudakit.types.tensors` says how whole arrays (``cudakit::tensor``) are passed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cudakit.jit.compile.compiled import Promise


class Tile(NamedTuple):
    """A tile: its shape, and the type of its elements, or of what these point to."""

    shape: tuple[int, ...]
    element: str
    is_pointer: bool = False


class TensorView(NamedTuple):
    """An array in memory; extents and strides (in elements) that are known only at run time are None."""

    shape: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    element: str


class View(NamedTuple):
    """How an array is taken as tiles.

    Attributes
    ----------
    tile : tuple of int
    tensor : TensorView
    steps : tuple of int
        Elements from one tile to the next, in each dimension of the tile.
    dimensions : tuple of int
        Which dimension of the array each of the tile's is.
    padding : str or None
        One of `PADDINGS`, where the tile may reach over the end.
    sparse : int or None
        The dimension of which the indices are a tile.
    """

    tile: tuple[int, ...]
    tensor: TensorView
    steps: tuple[int, ...]
    dimensions: tuple[int, ...]
    padding: str | None = None
    sparse: int | None = None


class Token(NamedTuple):
    """What orders accesses to memory."""


Type: TypeAlias = Tile | TensorView | View | Token


class Place(NamedTuple):
    """A position in a source; `caller` is where the function that it is in was called from."""

    file: str
    line: int
    column: int
    caller: Place | None = None


class DivisibleBy(NamedTuple):
    """A promise: each value is a multiple; with `every`, only each so-manieth along the dimension `along`."""

    divisor: int
    every: int | None = None
    along: int | None = None


class Bounded(NamedTuple):
    """A promise: values are not under `low` and not over `high`."""

    low: int | None
    high: int | None


class SameElements(NamedTuple):
    """A promise: within groups of that many elements, in each dimension, all are the same."""

    groups: tuple[int, ...]


@dataclass(slots=True)
class Region:
    """Operations inside an operation, and the numbers and types of their arguments."""

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    operations: list[Operation]


@dataclass(slots=True)
class Operation:
    """An operation; values are numbers, and inner regions use numbers again that they have left.

    Attributes
    ----------
    attributes : dict
        By the names of the table in `tile_bytecode`; flags are among them, as bools.
    optional : dict
        Operands that need not be there, by name.
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
        """It and all operations inside it."""
        yield self
        for region in self.regions:
            for inner in region.operations:
                yield from inner.walk()


@dataclass(slots=True)
class Function:
    """A tile kernel: `values` is how many numbers of values it uses at a time."""

    name: str
    parameters: tuple[Type, ...]
    hints: Mapping[str, Any]
    operations: list[Operation]
    values: int

    def walk(self) -> Iterator[Operation]:
        """All operations."""
        for operation in self.operations:
            yield from operation.walk()


class Global(NamedTuple):
    """A variable of a module: its type, the bytes of its first value, and its alignment."""

    type: Type
    data: bytes
    alignment: int
    is_constant: bool


@dataclass(slots=True)
class TileModule:
    """What a piece of bytecode holds."""

    version: tuple[int, int]
    functions: dict[str, Function] = field(default_factory=dict)
    globals: dict[str, Global] = field(default_factory=dict)


_TRAP = "Cannot invoke non-tile function"
#: Where the compiler's own headers lie, in which no user's line is.
_HEADERS = ("cuda_tile.h", "/cuda/std/")


def promises(module: TileModule) -> tuple[Promise, ...]:
    """What the kernels take for granted of their arguments, before anything is decided."""
    return tuple(promise for function in module.functions.values() for promise in _of(function))


def _of(function: Function) -> Iterator[Promise]:
    origin = {number: number for number in range(len(function.parameters))}
    found: dict[int, Promise] = {}
    for operation in function.operations:
        if operation.regions:
            break  # what is promised behind a decision need not hold for every call
        if operation.name != "assume" or (position := origin.get(operation.operands[0])) is None:
            continue
        origin[operation.results[0]] = position
        is_pointer = isinstance(given := function.parameters[position], Tile) and given.is_pointer
        known = found.get(position, Promise(function.name, position))
        match operation.attributes["predicate"]:
            case DivisibleBy(divisor, None, None):
                found[position] = known._replace(divisor=math.lcm(known.divisor, divisor))
            case Bounded(low, high) if not is_pointer:
                lows, highs = (
                    [each for each in pair if each is not None] for pair in ((known.low, low), (known.high, high))
                )
                found[position] = known._replace(low=max(lows, default=None), high=min(highs, default=None))
    yield from (promise for promise in found.values() if promise[2:] != (1, None, None))


def traps(module: TileModule) -> Iterator[tuple[Operation, Place | None]]:
    """Calls of functions that tile code cannot call: they compile, and end the kernel when it comes to them."""
    for function in module.functions.values():
        for operation in function.walk():
            if operation.name == "assert" and operation.attributes["message"].startswith(_TRAP):
                yield operation, source_place(operation.place)


def source_place(place: Place | None) -> Place | None:
    """The user's own line: the innermost call that is not in the compiler's headers."""
    found = place
    while place is not None and any(header in place.file for header in _HEADERS):
        place = place.caller
    return place or found
