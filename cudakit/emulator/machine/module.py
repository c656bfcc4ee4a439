"""A program with its variables in memory: what a specialization keeps between launches.

The variables stay as long as the module. What is decoded is large, and made again from the text where it is gone:
`PROGRAMS` lets go of what was used least recently.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from cudakit.emulator.machine.capacity import recurses
from cudakit.emulator.machine.context import Context
from cudakit.emulator.machine.decode import Decoded, decode
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.ptx.program import Function, Pointer, Program, Variable
from cudakit.errors import EmulationError


class Module:
    """A program with its variables in memory; made once for a specialization, launched many times.

    Parameters
    ----------
    program : Program
    memory : Memory
    read : callable, optional
        Gives the program again, after `release`.
    """

    def __init__(self, program: Program, memory: Memory, read: Callable[[], Program] | None = None) -> None:
        self.program = program
        self.memory = memory
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.numbers = {name: number for number, name in enumerate(program.functions)}
        self._read = read
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

    @cached_property
    def program(self) -> Program:
        """The program, read again where it was let go of."""
        assert self._read is not None
        return self._read()

    @cached_property
    def functions(self) -> list[Function]:
        """The program's functions by their numbers."""
        return list(self.program.functions.values())

    def release(self) -> None:
        """Let go of the program and what was decoded of it; the variables, and pointers to functions, stay valid."""
        if self._read is not None:
            self._decoded.clear()
            # They refer to the module: what is dropped here is gone without a garbage collection.
            self._contexts.clear()
            for name in ("program", "functions"):
                self.__dict__.pop(name, None)

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


class Programs:
    """The modules whose programs are held, the most recently used last.

    Parameters
    ----------
    most : int
        Instructions that they may have together; the module that is used is held whatever it has.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._sizes: WeakKeyDictionary[Module, int] = WeakKeyDictionary()

    @property
    def instructions(self) -> int:
        """Of all programs that are held."""
        return sum(self._sizes.values())

    def use(self, module: Module) -> None:
        """A module is launched now: others may have to go."""
        size = self._sizes.pop(module, None)
        self._sizes[module] = size or sum(len(function.code) for function in module.functions)
        while size is None and self.instructions > self.most and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest]
            oldest.release()


#: An instruction takes about 3 KB once it is decoded, and 0.2 ms to be decoded again.
PROGRAMS = Programs(1 << 17)
