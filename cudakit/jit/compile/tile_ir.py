"""CUDA Tile IR, as NVRTC makes it of tile kernels: types, operations, promises and places, as records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias


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
        By the names of `tile_forms`; flags are among them, as bools.
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
