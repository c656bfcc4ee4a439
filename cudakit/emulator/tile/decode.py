"""Operations of Tile IR become functions over whole tiles: a table of makers, by the operations' names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.tile.values import Box, dtype_of, shape_of, signed, unsigned
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Tile

#: What a step gives where it ends its block: how, and with which values.
Ended: TypeAlias = tuple[str, Sequence[Any]] | None
Step: TypeAlias = Callable[["Block"], Ended]
Maker: TypeAlias = Callable[[Operation], Step]
Function: TypeAlias = Callable[..., Any]


class Block(Protocol):
    """A tile block that runs: its values by their numbers, and the device around it."""

    values: list[Any]
    index: tuple[int, int, int]
    grid: tuple[int, int, int]
    memory: Memory
    output: Callable[[str], None]

    def address_of(self, symbol: str) -> int:
        """Where a variable of the module lies."""

    def reserve(self, size: int) -> int:
        """The address of memory for the block's own use, until it ends."""

    def released(self, addresses: np.ndarray) -> None:
        """Elements are released: what the block has done comes before whatever acquires them."""

    def acquired(self, addresses: np.ndarray) -> None:
        """Elements are acquired."""

    def accessed(self, box: Box, size: int, use: int) -> None:
        """Elements of `size` bytes are read or written; see `cudakit.emulator.machine.memory` for the uses."""


class Decoded(NamedTuple):
    """An operation and what it does."""

    operation: Operation
    step: Step


MAKERS: Final[dict[str, Maker]] = {}


def operation(*names: str) -> Callable[[Maker], Maker]:
    """Enter a maker under the names of operations."""

    def enter(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return enter


class Form:
    """What is known of an operation before it runs: its attributes, and the type of its first result."""

    def __init__(self, given: Operation) -> None:
        attributes = given.attributes
        self.name, self.types, self.attributes = given.name, given.types, attributes
        self._optional = given.optional
        self.rounding: str = attributes.get("rounding", "nearest_even")
        self.is_signed: bool = attributes.get("signedness") == "signed"
        #: Takes a tile's bits as signed or unsigned numbers, as the operation does.
        self.number: Callable[[Any], Any] = signed if self.is_signed else unsigned
        #: For each dimension whether it is promised to be inside; empty: of none.
        self.promised: Sequence[int] = attributes.get("inbounds") or ()
        #: Of accesses, whether other blocks may meet them, and whether they acquire and release.
        memory = attributes.get("memory", "weak")
        self.is_strong: bool = memory != "weak" and attributes.get("scope") != "tl_blk"
        self.acquires: bool = self.is_strong and memory in ("acquire", "acq_rel")
        self.releases: bool = self.is_strong and memory in ("release", "acq_rel")

    @cached_property
    def dtype(self) -> np.dtype:
        """Dtype in which the result's elements are held."""
        return dtype_of(self.types[0])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return shape_of(self.types[0])

    @cached_property
    def element(self) -> str:
        """Type of the result's elements, or of what these point to."""
        (made, *_) = self.types
        assert isinstance(made, Tile)
        return made.element

    def optional(self, block: Block, name: str, default: Any = None) -> Any:
        """The value of an operand that need not be there."""
        return block.values[self._optional[name]] if name in self._optional else default


def computes(*names: str) -> Callable[[Function], Function]:
    """Enter a function of a form and operands under the names of operations with one result."""

    def enter(function: Function) -> Function:
        operation(*names)(lambda given: pure(given, partial(function, Form(given))))
        return function

    return enter


def acts(*names: str) -> Callable[[Function], Function]:
    """The same of what needs more than operands: the function takes form, block and operands.

    It gives the first result, or a list of all of them. Others are tokens, which nothing reads.
    """

    def enter(function: Function) -> Function:
        def made(given: Operation) -> Step:
            form, operands, results = Form(given), given.operands, given.results

            def step(block: Block) -> Ended:
                values = block.values
                value = function(form, block, *[values[number] for number in operands])
                for result, each in zip(results, value if isinstance(value, list) else (value,), strict=False):
                    values[result] = each
                return None

            return step

        operation(*names)(made)
        return function

    return enter


def decode(operations: Iterable[Operation]) -> list[Decoded]:
    """The operations of a function or region, with their steps; what is not emulated is refused when it runs."""
    return [Decoded(each, _step_of(each)) for each in operations]


def _step_of(given: Operation) -> Step:
    try:
        if given.name not in MAKERS:
            raise EmulationError(f"the operation {given.name} of Tile IR is not emulated")
        return MAKERS[given.name](given)
    except EmulationError as error:
        refusal = str(error)

    def step(block: Block) -> Ended:
        raise EmulationError(refusal)

    return step


def pure(given: Operation, function: Function) -> Step:
    """The step of an operation with one result that comes of its operands alone."""
    (result,) = given.results
    operands = given.operands
    if len(operands) == 1:
        (only,) = operands

        def step(block: Block) -> Ended:
            values = block.values
            values[result] = function(values[only])
            return None

    elif len(operands) == 2:
        first, second = operands

        def step(block: Block) -> Ended:
            values = block.values
            values[result] = function(values[first], values[second])
            return None

    else:

        def step(block: Block) -> Ended:
            values = block.values
            values[result] = function(*[values[number] for number in operands])
            return None

    return step
