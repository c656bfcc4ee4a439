"""Decoding of Tile IR: a table of makers, by operation name, whose steps run an operation over whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.tile.values import Box, dtype_of, shape_of, signed, unsigned
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Tile

#: Result of a step that ends its region: how, and with which values.
Ended: TypeAlias = tuple[str, Sequence[Any]] | None
Step: TypeAlias = Callable[["Block"], Ended]
Maker: TypeAlias = Callable[[Operation], Step]
Function: TypeAlias = Callable[..., Any]


class Block(Protocol):
    """A running tile block: its values by number, and the device around it."""

    values: list[Any]
    index: tuple[int, int, int]
    grid: tuple[int, int, int]
    memory: Memory
    output: Callable[[str], None]

    def address_of(self, symbol: str) -> int:
        """Return the address of a variable of the module."""

    def reserve(self, size: int) -> int:
        """Return the address of new memory for the block alone, freed when the block ends."""

    def released(self, addresses: np.ndarray) -> None:
        """Record that the block releases elements: its work so far is ordered before work after an acquire of them."""

    def acquired(self, addresses: np.ndarray) -> None:
        """Record that the block acquires elements: work that released them is ordered before its later work."""

    def accessed(self, box: Box, size: int, use: int) -> None:
        """Record an access to elements of `size` bytes; see `cudakit.emulator.machine.memory` for the uses."""


class Decoded(NamedTuple):
    """An operation with its step: the function that runs it for a block."""

    operation: Operation
    step: Step


MAKERS: Final[dict[str, Maker]] = {}


def operation(*names: str) -> Callable[[Maker], Maker]:
    """Return a decorator that registers a function for operations by their names.

    The function takes an operation and returns its step, which runs the operation for a block.
    """

    def enter(maker: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(names, maker))
        return maker

    return enter


class Form:
    """Static facts of an operation: its attributes, and the type of its first result."""

    def __init__(self, operation: Operation) -> None:
        attributes = operation.attributes
        self.name, self.types, self.attributes = operation.name, operation.types, attributes
        self._optional = operation.optional
        self.rounding: str = attributes.get("rounding", "nearest_even")
        self.is_signed: bool = attributes.get("signedness") == "signed"
        #: Conversion of a tile's bits to signed or unsigned numbers, as the operation says.
        self.number: Callable[[Any], Any] = signed if self.is_signed else unsigned
        #: Whether each dimension is promised to be inside; empty: none is.
        self.promised: Sequence[int] = attributes.get("inbounds") or ()
        #: Of accesses: whether they are strong, and whether they acquire and release.
        memory = attributes.get("memory", "weak")
        self.is_strong: bool = memory != "weak" and attributes.get("scope") != "tl_blk"
        self.acquires: bool = self.is_strong and memory in ("acquire", "acq_rel")
        self.releases: bool = self.is_strong and memory in ("release", "acq_rel")

    @cached_property
    def dtype(self) -> np.dtype:
        """Dtype of the result's elements on NumPy."""
        return dtype_of(self.types[0])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return shape_of(self.types[0])

    @cached_property
    def element(self) -> str:
        """Element type of the result; of pointers, the element type of the memory to which they point."""
        (result_type, *_) = self.types
        assert isinstance(result_type, Tile)
        return result_type.element

    def optional(self, block: Block, name: str, default: Any = None) -> Any:
        """Return the value of the optional operand `name` in a block, or the default if the operation lacks it."""
        return block.values[self._optional[name]] if name in self._optional else default


def computes(*names: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for the named operations, which have one result and need no block.

    The function takes the operation's `Form` and the values of the operands, and returns the result.
    """

    def enter(function: Function) -> Function:
        operation(*names)(lambda node: pure(node, partial(function, Form(node))))
        return function

    return enter


def acts(*names: str) -> Callable[[Function], Function]:
    """Return a decorator that registers a function for the named operations, which need their block.

    The function takes the operation's `Form`, the block and the values of the operands. It returns the first result, or
    a list of all results. Results left out are tokens, which nothing reads.
    """

    def enter(function: Function) -> Function:
        def maker(node: Operation) -> Step:
            form, operands, results = Form(node), node.operands, node.results

            def step(block: Block) -> Ended:
                values = block.values
                value = function(form, block, *[values[number] for number in operands])
                for result, item in zip(results, value if isinstance(value, list) else (value,), strict=False):
                    values[result] = item
                return None

            return step

        operation(*names)(maker)
        return function

    return enter


def decode(operations: Iterable[Operation]) -> list[Decoded]:
    """Return the operations of a function or region with their steps.

    An operation that is not emulated raises only when it runs.
    """
    return [Decoded(operation, _step_of(operation)) for operation in operations]


def _step_of(operation: Operation) -> Step:
    try:
        if operation.name not in MAKERS:
            raise EmulationError(f"the operation {operation.name} of Tile IR is not emulated")
        return MAKERS[operation.name](operation)
    except EmulationError as error:
        refusal = str(error)

    def step(block: Block) -> Ended:
        raise EmulationError(refusal)

    return step


def pure(operation: Operation, function: Function) -> Step:
    """Return the step that runs `function` on the values of an operation's operands, and stores its one result."""
    (result,) = operation.results
    operands = operation.operands
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
