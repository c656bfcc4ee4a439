"""Runs a tile kernel: its blocks one after the other, each operation over a whole tile.

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
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Function, Operation, Tile, TileModule, source_place


class TileProgram:
    """Tile kernels in memory: made once, launched many times.

    Parameters
    ----------
    module : TileModule
    memory : Memory
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
        """A kernel's operations, decoded at its first launch."""
        if function.name not in self._decoded:
            self._decoded[function.name] = decode(function.operations)
        return self._decoded[function.name]


@dataclass
class TileLaunch:
    """One launch of a tile kernel.

    Attributes
    ----------
    parameters : bytes
        Each at a multiple of its own size.
    block_order : int or None
        The seed of the order in which blocks run; None: by their numbers.
    placed : callable
        What messages call a file and line of the compiler.
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
    #: The error that says already where it happened.
    explained: EmulationError | None = None

    @property
    def memory(self) -> Memory:
        return self.program.memory

    #: Memory of the machine's own, which no stream races for: it has none.
    own_address = None

    def told(self, operation: Operation) -> str:
        """An operation's name and its place in the source."""
        place = source_place(operation.place)
        return operation.name if place is None else f"{operation.name}, {self.placed(place.file, place.line)}"

    def run(self) -> None:
        """Run it to its end, as `run` does."""
        run(self)


def run(launch: TileLaunch) -> None:
    """Run a launch to its end.

    Raises
    ------
    EmulationError
        For an access that memory does not have, a broken promise, a failed assertion, or a step budget that is used up.
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
    # One block alone races with none.
    races = Races(watcher, launch.told) if count > 1 else None
    memory.watcher = watcher if races is None else races
    try:
        with np.errstate(all="ignore"):
            for number in numbers:
                index = number % across, number // across % down, number // (across * down)
                _TileBlock(launch, index, arguments, races).run(decoded)
    finally:
        memory.watcher = watcher


def _values(function: Function, data: bytes) -> list[np.ndarray]:
    """A launch's parameters by their bytes, each at a multiple of its own size."""
    found, at = [], 0
    for given in function.parameters:
        assert isinstance(given, Tile)
        dtype = dtype_of(given)
        at += -at % dtype.itemsize
        found.append(np.frombuffer(data, dtype, int(np.prod(shape_of(given))), at).reshape(shape_of(given)))
        at += found[-1].nbytes
    return found


class _TileBlock:
    """See `cudakit.emulator.tile.decode.Block`."""

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

    def explain(self, operation: Operation, what: str) -> EmulationError:
        """An error with the kernel, the operation, its place in the source, and the block."""
        made = EmulationError(f"{self.launch.title}: {self.launch.told(operation)}, block {self.index}: {what}")
        self.launch.explained = made
        return made


def run_operations(block: Any, decoded: list[Decoded]) -> Ended:
    """Run operations until one ends them; how, and with which values.

    Raises
    ------
    EmulationError
        With the innermost operation that failed.
    """
    launch = block.launch
    launch.steps += len(decoded)
    if launch.step_budget is not None and launch.steps > launch.step_budget:
        what = f"the budget of {launch.step_budget} steps is used up; if the kernel is not endless, give more steps"
        raise block.explain(decoded[0].operation, what)
    races = block.races
    for node, step in decoded:
        if races is not None:
            races.operation = node
        try:
            ended = step(block)
        except (AccessError, EmulationError) as error:
            if error is launch.explained:
                raise
            raise block.explain(node, str(error)) from None
        if ended is not None:
            return ended
    return None


@operation("yield", "continue", "break", "return")
def _end(given: Operation) -> Step:
    name, operands = given.name, given.operands

    def step(block: Block) -> Ended:
        return name, [block.values[number] for number in operands]

    return step


@operation("if")
def _if(given: Operation) -> Step:
    (condition,), results = given.operands, given.results
    branches = [decode(region.operations) for region in given.regions]

    def step(block: Block) -> Ended:
        taken = 0 if block.values[condition] else 1
        if taken >= len(branches):
            return None
        ended = run_operations(block, branches[taken])
        if ended is None or ended[0] != "yield":
            return ended
        for number, value in zip(results, ended[1], strict=True):
            block.values[number] = value
        return None

    return step


def _loop_of(
    results: tuple[int, ...], arguments: tuple[int, ...], body: list[Decoded], starts: tuple[int, ...]
) -> Callable[[Block, Iterable[Any]], Ended]:
    """Runs a body once for each of the steps, its values going round."""

    def run(block: Block, steps: Iterable[Any]) -> Ended:
        values = block.values
        current = [values[number] for number in starts]
        carried = arguments[len(arguments) - len(current) :]
        counted = len(arguments) > len(carried)
        for each in steps:
            if counted:
                values[arguments[0]] = each
            for number, value in zip(carried, current, strict=True):
                values[number] = value
            ended = run_operations(block, body)
            if ended is None:
                raise EmulationError("a loop's body has no end")
            how, given = ended
            if how == "return":
                return ended
            current = list(given)
            if how == "break":
                break
        for number, value in zip(results, current, strict=True):
            values[number] = value
        return None

    return run


@operation("for")
def _for(given: Operation) -> Step:
    low, high, by, *starts = given.operands
    (region,) = given.regions
    run = _loop_of(given.results, region.arguments, decode(region.operations), tuple(starts))
    dtype, unsigned = dtype_of(region.types[0]), given.attributes.get("unsigned", False)
    bits = (1 << 8 * dtype.itemsize) - 1

    def step(block: Block) -> Ended:
        first, last, jump = (int(block.values[number]) for number in (low, high, by))
        if unsigned:
            first, last, jump = (number & bits for number in (first, last, jump))
        if jump <= 0:
            raise EmulationError(f"a loop with a step of {jump} does not end")
        held = np.dtype(f"u{dtype.itemsize}")
        numbers = (
            (np.asarray(number, held).view(dtype) if unsigned else np.asarray(number, dtype))
            for number in range(first, last, jump)
        )
        return run(block, numbers)

    return step


@operation("loop")
def _loop(given: Operation) -> Step:
    (region,) = given.regions
    run = _loop_of(given.results, region.arguments, decode(region.operations), given.operands)
    return lambda block: run(block, itertools.repeat(None))


def _combining(given: Operation) -> Callable[[Block, list[Any], list[Any]], list[Any]]:
    """What combines two rows of values, as the region says for two elements."""
    (region,) = given.regions
    body, numbers = decode(region.operations), region.arguments

    def combine(block: Block, first: list[Any], second: list[Any]) -> list[Any]:
        for place, pair in enumerate(zip(first, second, strict=True)):
            block.values[numbers[2 * place]], block.values[numbers[2 * place + 1]] = pair
        ended = run_operations(block, body)
        assert ended is not None
        return list(ended[1])

    return combine


@operation("reduce")
def _reduce(given: Operation) -> Step:
    combine, axis, results = _combining(given), given.attributes["dim"], given.results

    def step(block: Block) -> Ended:
        rows = [np.moveaxis(block.values[number], axis, 0) for number in given.operands]
        while (count := rows[0].shape[0]) > 1:
            half = count // 2
            rows = combine(block, [row[:half] for row in rows], [row[half:] for row in rows])
        for result, row in zip(results, rows, strict=True):
            block.values[result] = row[0]
        return None

    return step


@operation("scan")
def _scan(given: Operation) -> Step:
    combine, axis, backward = _combining(given), given.attributes["dim"], given.attributes["reverse"]

    def step(block: Block) -> Ended:
        rows = [np.array(np.moveaxis(block.values[number], axis, 0)) for number in given.operands]
        rows = [row[::-1] if backward else row for row in rows]
        # Each element takes the one before it, then the one two before it, and so on.
        distance = 1
        while distance < rows[0].shape[0]:
            later = combine(block, [row[:-distance] for row in rows], [row[distance:] for row in rows])
            rows = [np.concatenate((row[:distance], new)) for row, new in zip(rows, later, strict=True)]
            distance *= 2
        for result, row in zip(given.results, rows, strict=True):
            block.values[result] = np.moveaxis(row[::-1] if backward else row, 0, axis)
        return None

    return step
