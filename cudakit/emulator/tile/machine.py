"""Runs a tile kernel: its blocks one after the other, each operation over a whole tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudakit.emulator.machine.memory import AccessError, Memory
from cudakit.emulator.tile.boxes import Box
from cudakit.emulator.tile.decode import Decoded, Decoder, Ended
from cudakit.emulator.tile.races import Races
from cudakit.emulator.tile.values import dtype_of, shape_of
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
            decoder = Decoder()
            self._decoded[function.name] = [decoder.decoded(each) for each in function.operations]
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
    for operation, step in decoded:
        if races is not None:
            races.operation = operation
        try:
            ended = step(block)
        except (AccessError, EmulationError) as error:
            if error is launch.explained:
                raise
            raise block.explain(operation, str(error)) from None
        if ended is not None:
            return ended
    return None
