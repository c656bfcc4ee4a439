"""Operations of Tile IR become functions over whole tiles: a table of makers, by the operations' names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.tile.values import Box
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Region

#: What a step gives where it ends its block: how, and with which values.
Ended: TypeAlias = tuple[str, Sequence[Any]] | None
Step: TypeAlias = Callable[["Block"], Ended]
Maker: TypeAlias = Callable[[Operation, "Decoder"], Step]


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
        for name in names:
            MAKERS[name] = maker
        return maker

    return enter


class Decoder:
    """Makes the steps of a function, each operation's when its block is decoded."""

    def region(self, region: Region) -> list[Decoded]:
        """A region's operations."""
        return [self.decoded(each) for each in region.operations]

    def decoded(self, given: Operation) -> Decoded:
        maker = MAKERS.get(given.name)
        if maker is None:
            return Decoded(given, _unknown(given.name))
        try:
            return Decoded(given, maker(given, self))
        except EmulationError as error:
            return Decoded(given, _refused(str(error)))


def _unknown(name: str) -> Step:
    return _refused(f"the operation {name} of Tile IR is not emulated")


def _refused(what: str) -> Step:
    def step(block: Block) -> Ended:
        raise EmulationError(what)

    return step


def pure(given: Operation, function: Callable[..., Any]) -> Step:
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
