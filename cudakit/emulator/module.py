"""A decoded program with its variables in memory: what a specialization keeps between launches."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.capacity import recurses
from cudakit.emulator.context import Context
from cudakit.emulator.decode import Decoded, decode
from cudakit.emulator.memory import Memory
from cudakit.emulator.program import Function, Pointer, Program, Variable
from cudakit.errors import EmulationError


class Module:
    """A decoded program with its variables in memory; made once for a specialization, launched many times."""

    def __init__(self, program: Program, memory: Memory) -> None:
        self.program = program
        self.memory = memory
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.numbers = {name: number for number, name in enumerate(program.functions)}
        self.functions = list(program.functions.values())
        self._decoded: dict[str, list[Decoded]] = {}
        self._contexts: dict[str, Context] = {}
        self._recursive: dict[str, bool] = {}
        #: The driver's words for a grid that synchronises: size and barrier (cooperative_groups' driver_abi.h).
        self.grid_barrier = np.zeros(2, np.uint32)
        self.grid_barrier_address = memory.add(self.grid_barrier, "the grid's barrier")
        for variable in program.variables.values():
            self._place(variable)
        for variable in program.variables.values():
            self._fill(variable)

    def _place(self, variable: Variable) -> None:
        if variable.space in ("global", "const"):
            try:
                padded = np.zeros(variable.size + variable.align + 16, np.uint8)
            except MemoryError:
                raise EmulationError(f"no memory for the {variable.size} bytes of variable {variable.name}") from None
            skip = -int(padded.__array_interface__["data"][0]) % max(1, variable.align)
            data = padded[skip : skip + max(1, variable.size)]
            self.storage[variable.name] = data
            readonly = variable.space == "const"
            self.addresses[variable.name] = self.memory.add(data, f"variable {variable.name}", readonly)

    def _fill(self, variable: Variable) -> None:
        for offset, item in variable.data:
            if isinstance(item, Pointer):
                item = item.to_bytes(self.address_of(item.symbol.name, item.line))
            self.storage[variable.name][offset : offset + len(item)] = np.frombuffer(item, np.uint8)

    def address_of(self, name: str, line: int) -> int:
        """Address of a variable in global or constant memory, or of a function; `line` of the PTX names it."""
        if name in self.addresses:
            return self.addresses[name]
        if name in self.numbers:
            return self.function_address(name)
        raise EmulationError(f"PTX line {line}: no variable in memory and no function is named {name}")

    def function_address(self, name: str) -> int:
        """A number that stands for a function in a function pointer."""
        return 0x7300_0000_0000_0000 + self.numbers.get(name, 0)

    def context(self, function: Function) -> Context:
        """Layout of a function's registers, shared and local variables."""
        if function.name not in self._contexts:
            self._contexts[function.name] = Context(self, function)
        return self._contexts[function.name]

    def decoded(self, function: Function) -> list[Decoded]:
        """The function's instructions, decoded at its first use."""
        if function.name not in self._decoded:
            context = self.context(function)
            self._decoded[function.name] = [decode(instruction, context) for instruction in function.code]
        return self._decoded[function.name]

    def recurses(self, function: Function) -> bool:
        """Whether a function may come to call itself, looked into once."""
        if function.name not in self._recursive:
            self._recursive[function.name] = recurses(self.program, function)
        return self._recursive[function.name]

    def shared_layout(self) -> tuple[dict[str, int], int]:
        """Offset of every shared variable of the module, and where dynamic shared memory begins."""
        offsets, end = {}, 0
        variables = [v for v in self.program.variables.values() if v.space == "shared"]
        for function in self.functions:
            variables += [v for v in function.variables.values() if v.space == "shared"]
        for variable in variables:
            if variable.size:
                end = -(-end // variable.align) * variable.align
                offsets[variable.name] = end
                end += variable.size
        dynamic = [variable for variable in variables if not variable.size]
        start = -(-end // 16) * 16
        for variable in dynamic:
            align = max(16, variable.align)
            start = -(-start // align) * align
        return {**offsets, **{variable.name: start for variable in dynamic}}, start
