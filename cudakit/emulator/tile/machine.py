"""Interpreter of tile kernels: blocks run one after the other, each operation over a whole tile.

The bodies of reductions and scans run on whole slices of their tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import AccessError, Memory
from cudakit.emulator.tile.decode import Block, Decoded, Ended, Step, decode, operation
from cudakit.emulator.tile.races import Races
from cudakit.emulator.tile.values import Box, dtype_of, shape_of
from cudakit.errors import Access, EmulationError, named
from cudakit.jit.compile.tile_ir import Function, Operation, Tile, TileModule, source_place


class TileProgram:
    """The tile kernels of a module in memory, decoded once and launched many times.

    Parameters
    ----------
    module : TileModule
        Parsed module.
    memory : Memory
        Memory in which its variables are placed.
    """

    module: TileModule
    memory: Memory

    def __init__(self, module: TileModule, memory: Memory) -> None:
        self.module, self.memory = module, memory
        self._decoded: dict[str, list[Decoded]] = {}
        self._variables: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        for name, variable in module.globals.items():
            data = np.frombuffer(bytearray(variable.data), np.uint8)
            self._variables[name] = data
            self.addresses[name] = memory.add(data, name, variable.is_constant)

    def decoded(self, function: Function) -> list[Decoded]:
        """Return a kernel's decoded operations, which are cached from its first launch on."""
        if function.name not in self._decoded:
            self._decoded[function.name] = decode(function.operations)
        return self._decoded[function.name]


@dataclass
class TileLaunch:
    """A launch of a tile kernel.

    Attributes
    ----------
    parameters : bytes
        Arguments, each at a multiple of its own size.
    block_order : int or None
        Seed of the order in which blocks run; None: by their numbers.
    placed : callable
        Function that returns a file and line of the compiler as messages name them.
    """

    program: TileProgram
    function: Function
    grid: tuple[int, int, int]
    parameters: bytes
    output: Callable[[str], None]
    step_budget: int | None
    block_order: int | None
    title: str
    placed: Callable[[str, int], str]
    steps: int = 0
    #: The error that names its place already.
    explained: EmulationError | None = None

    @property
    def memory(self) -> Memory:
        return self.program.memory

    #: Memory of the interpreter's own, for which no stream races: there is none.
    own_address = None

    def describe(self, operation: Operation) -> str:
        """Return an operation's name and its place in the source."""
        place = source_place(operation.place)
        return operation.name if place is None else f"{operation.name}, {self.placed(place.file, place.line)}"

    def run(self) -> None:
        """Run the launch to its end, as `run` does."""
        run(self)


def run(launch: TileLaunch) -> None:
    """Run a launch to its end.

    Raises
    ------
    EmulationError
        For an access outside memory, a broken promise, a failed assertion, or an exhausted step budget.
    """
    function, program = launch.function, launch.program
    decoded = program.decoded(function)
    arguments = _values(function, launch.parameters)
    across, down, deep = launch.grid
    count, memory = across * down * deep, launch.memory
    numbers: Iterable[int] = range(count)
    if launch.block_order is not None:
        numbers = np.random.default_rng(launch.block_order).permutation(count).tolist()
    watcher = memory.watcher
    # A single block has no races.
    races = Races(watcher, launch.describe) if count > 1 else None
    memory.watcher = watcher if races is None else races
    try:
        with np.errstate(all="ignore"):
            for number in numbers:
                index = number % across, number // across % down, number // (across * down)
                _TileBlock(launch, index, arguments, races).run(decoded)
    finally:
        memory.watcher = watcher


def _values(function: Function, data: bytes) -> list[np.ndarray]:
    """Return a launch's arguments as arrays, from bytes: each begins at a multiple of its element's size."""
    arguments, at = [], 0
    for parameter in function.parameters:
        assert isinstance(parameter, Tile)
        dtype = dtype_of(parameter)
        at += -at % dtype.itemsize
        arguments.append(np.frombuffer(data, dtype, int(np.prod(shape_of(parameter))), at).reshape(shape_of(parameter)))
        at += arguments[-1].nbytes
    return arguments


class _TileBlock:
    """A running tile block: see `cudakit.emulator.tile.decode.Block`."""

    def __init__(
        self, launch: TileLaunch, index: tuple[int, int, int], arguments: list[np.ndarray], races: Races | None
    ) -> None:
        self.launch, self.index, self.grid = launch, index, launch.grid
        self.memory, self.output = launch.program.memory, launch.output
        self.values: list[Any] = [*arguments, *[None] * (launch.function.values - len(arguments))]
        self._reserved: list[tuple[int, np.ndarray]] = []
        self.races = races

    def run(self, decoded: list[Decoded]) -> None:
        if self.races is not None:
            self.races.enter(self.index)
        try:
            run_operations(self, decoded)
        finally:
            for address, _ in self._reserved:
                self.memory.remove(address)
                if self.races is not None:
                    self.races.forget(address)

    def address_of(self, symbol: str) -> int:
        return self.launch.program.addresses[symbol]

    def reserve(self, size: int) -> int:
        data = np.zeros(max(1, size), np.uint8)
        address = self.memory.add(data, "an array of the block's own")
        self._reserved.append((address, data))
        return address

    def released(self, addresses: np.ndarray) -> None:
        if self.races is not None:
            self.races.release(addresses)

    def acquired(self, addresses: np.ndarray) -> None:
        if self.races is not None:
            self.races.acquire(addresses)

    def accessed(self, box: Box, size: int, use: int) -> None:
        if self.races is not None:
            self.races.note_box(box, size, use)
        elif self.memory.watcher is not None:
            self.memory.watcher.note(box.piece, box.elements(size), size, use)

    def explain(self, operation: Operation, message: str, category: str = "") -> EmulationError:
        """Return an error that names the kernel, the operation, its place in the source, and the block."""
        error = EmulationError(f"{self.launch.title}: {self.launch.describe(operation)}, block {self.index}: {message}")
        self.launch.explained = error
        if (place := source_place(operation.place)) is None:
            return error.detailed(kind=category, **named(self.launch.title))
        file, _, line = self.launch.placed(place.file, place.line).rpartition(":")
        access = Access("", file, int(line), self.index)
        return error.detailed(kind=category, **named(self.launch.title), file=file, line=int(line), accesses=(access,))


def run_operations(block: Any, decoded: list[Decoded]) -> Ended:
    """Run operations until one ends the region; return how it ended, and the values that it passes on.

    The end is named by a text such as ``return`` or ``break``. The result is None if no operation ends the region.

    Raises
    ------
    EmulationError
        For an operation that failed, named in the error, or for a step budget that is used up.
    """
    launch = block.launch
    launch.steps += len(decoded)
    if launch.step_budget is not None and launch.steps > launch.step_budget:
        message = f"the budget of {launch.step_budget} steps is used up; if the kernel is not endless, give more steps"
        raise block.explain(decoded[0].operation, message, "steps")
    races = block.races
    for node, step in decoded:
        if races is not None:
            races.operation = node
        try:
            ended = step(block)
        except (AccessError, EmulationError) as error:
            if error is launch.explained:
                raise
            category = "access" if isinstance(error, AccessError) else error.details.kind
            raise block.explain(node, str(error), category) from None
        if ended is not None:
            return ended
    return None


@operation("yield", "continue", "break", "return")
def _end(operation: Operation) -> Step:
    name, operands = operation.name, operation.operands

    def step(block: Block) -> Ended:
        return name, [block.values[number] for number in operands]

    return step


@operation("if")
def _if(operation: Operation) -> Step:
    (condition,), results = operation.operands, operation.results
    branches = [decode(region.operations) for region in operation.regions]

    def step(block: Block) -> Ended:
        branch = 0 if block.values[condition] else 1
        if branch >= len(branches):
            return None
        ended = run_operations(block, branches[branch])
        if ended is None or ended[0] != "yield":
            return ended
        for number, value in zip(results, ended[1], strict=True):
            block.values[number] = value
        return None

    return step


def _loop_of(
    results: tuple[int, ...], arguments: tuple[int, ...], body: list[Decoded], starts: tuple[int, ...]
) -> Callable[[Block, Iterable[Any]], Ended]:
    """Return a function that runs a loop's body once for each value of the loop's counter.

    `results`, `arguments` and `starts` are numbers of values in the block: the loop's results, the body's arguments,
    and the values before the first round. The values at the end of a round are arguments of the next, and at last the
    results. The function returns the end of the kernel if the body returns, else None.
    """

    def run(block: Block, steps: Iterable[Any]) -> Ended:
        values = block.values
        current = [values[number] for number in starts]
        carried = arguments[len(arguments) - len(current) :]
        counted = len(arguments) > len(carried)
        for counter in steps:
            if counted:
                values[arguments[0]] = counter
            for number, value in zip(carried, current, strict=True):
                values[number] = value
            ended = run_operations(block, body)
            if ended is None:
                raise EmulationError("a loop's body has no end")
            how, next_values = ended
            if how == "return":
                return ended
            current = list(next_values)
            if how == "break":
                break
        for number, value in zip(results, current, strict=True):
            values[number] = value
        return None

    return run


@operation("for")
def _for(operation: Operation) -> Step:
    low, high, by, *starts = operation.operands
    (region,) = operation.regions
    run = _loop_of(operation.results, region.arguments, decode(region.operations), tuple(starts))
    dtype, unsigned = dtype_of(region.types[0]), operation.attributes.get("unsigned", False)
    bits = (1 << 8 * dtype.itemsize) - 1

    def step(block: Block) -> Ended:
        first, last, jump = (int(block.values[number]) for number in (low, high, by))
        if unsigned:
            first, last, jump = (number & bits for number in (first, last, jump))
        if jump <= 0:
            raise EmulationError(f"a loop with a step of {jump} does not end")
        unsigned_dtype = np.dtype(f"u{dtype.itemsize}")
        numbers = (
            (np.asarray(number, unsigned_dtype).view(dtype) if unsigned else np.asarray(number, dtype))
            for number in range(first, last, jump)
        )
        return run(block, numbers)

    return step


@operation("loop")
def _loop(operation: Operation) -> Step:
    (region,) = operation.regions
    run = _loop_of(operation.results, region.arguments, decode(region.operations), operation.operands)
    return lambda block: run(block, itertools.repeat(None))


def _combining(operation: Operation) -> Callable[[Block, list[Any], list[Any]], list[Any]]:
    """Return a function that combines two lists of values by the code in a reduction's or scan's region."""
    (region,) = operation.regions
    body, numbers = decode(region.operations), region.arguments

    def combine(block: Block, first: list[Any], second: list[Any]) -> list[Any]:
        for place, pair in enumerate(zip(first, second, strict=True)):
            block.values[numbers[2 * place]], block.values[numbers[2 * place + 1]] = pair
        ended = run_operations(block, body)
        assert ended is not None
        return list(ended[1])

    return combine


@operation("reduce")
def _reduce(operation: Operation) -> Step:
    combine, axis, results = _combining(operation), operation.attributes["dim"], operation.results

    def step(block: Block) -> Ended:
        rows = [np.moveaxis(block.values[number], axis, 0) for number in operation.operands]
        while (count := rows[0].shape[0]) > 1:
            half = count // 2
            rows = combine(block, [row[:half] for row in rows], [row[half:] for row in rows])
        for result, row in zip(results, rows, strict=True):
            block.values[result] = row[0]
        return None

    return step


@operation("scan")
def _scan(operation: Operation) -> Step:
    combine, axis, backward = _combining(operation), operation.attributes["dim"], operation.attributes["reverse"]

    def step(block: Block) -> Ended:
        rows = [np.array(np.moveaxis(block.values[number], axis, 0)) for number in operation.operands]
        rows = [row[::-1] if backward else row for row in rows]
        # Each element takes the one before it, then the one two before it, and so on.
        distance = 1
        while distance < rows[0].shape[0]:
            later = combine(block, [row[:-distance] for row in rows], [row[distance:] for row in rows])
            rows = [np.concatenate((row[:distance], new)) for row, new in zip(rows, later, strict=True)]
            distance *= 2
        for result, row in zip(operation.results, rows, strict=True):
            block.values[result] = np.moveaxis(row[::-1] if backward else row, 0, axis)
        return None

    return step
