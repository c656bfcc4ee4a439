"""What the names of a program stand for: addresses of its variables, which are in memory, and numbers of functions.

Programs that were compiled from one text share what they all have: `Linked`.
"""

from __future__ import annotations

import numpy as np

from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.ptx.program import Pointer, Program, Variable
from cudakit.errors import EmulationError
from cudakit.jit.compile.symbol_names import common_name, is_shared

#: The pointer to a program's first function.
_FUNCTIONS = 0x7300_0000_0000_0000


class Linked:
    """What the programs of one text share, by the names that are the same in all of them.

    Attributes
    ----------
    variables : dict of str to (numpy.ndarray, int)
        Bytes and address of each variable in global or constant memory.
    functions : dict of str to int
        What a pointer to each function says.
    """

    def __init__(self) -> None:
        self.variables: dict[str, tuple[np.ndarray, int]] = {}
        self.functions: dict[str, int] = {}


class Symbols:
    """The variables and functions of a program, for as long as its module lives.

    Attributes
    ----------
    storage : dict of str to numpy.ndarray
        Bytes of each variable in global or constant memory.
    addresses : dict of str to int
        Addresses of these.
    constants : list of (int, int)
        Address and bytes of each variable in constant memory.
    numbers : dict of str to int
        Number of each function.
    shared : frozenset of str
        Names of the variables in shared memory; where they lie is each kernel's own.
    linked : Linked
        What other programs of the text have too.
    """

    shared: frozenset[str]

    def __init__(self, program: Program, memory: Memory, linked: Linked) -> None:
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.constants: list[tuple[int, int]] = []
        self.numbers: dict[str, int] = {name: number for number, name in enumerate(program.functions)}
        self.linked = linked
        self._pointers = {
            name: linked.functions.setdefault(common_name(name), _FUNCTIONS + len(linked.functions))
            for name in program.functions
        }
        self._functions = {pointer: name for name, pointer in self._pointers.items()}
        scopes = (program.variables, *(function.variables for function in program.functions.values()))
        self.shared = frozenset(v.name for scope in scopes for v in scope.values() if v.space == "shared")
        new = [
            variable
            for variable in program.variables.values()
            if variable.space in ("global", "const") and self._place(variable, memory)
        ]
        for variable in new:
            self._fill(variable)

    def _place(self, variable: Variable, memory: Memory) -> bool:
        """Give a variable its memory; whether that is new."""
        common = common_name(variable.name) if is_shared(variable.name) else None
        data, address = self.linked.variables.get(common or "", (None, 0))
        is_new = data is None or data.size != max(1, variable.size)
        if data is None or is_new:
            data, address = self._made(variable, memory)
            if common is not None:
                self.linked.variables[common] = data, address
        self.storage[variable.name], self.addresses[variable.name] = data, address
        if variable.space == "const":
            self.constants.append((address, variable.size))
        return is_new

    def _made(self, variable: Variable, memory: Memory) -> tuple[np.ndarray, int]:
        try:
            padded = bytearray(max(1, variable.size) + variable.align)
        except MemoryError:
            raise EmulationError(f"no memory for the {variable.size} bytes of variable {variable.name}") from None
        skip = -int(np.frombuffer(padded, np.uint8).__array_interface__["data"][0]) % max(1, variable.align)
        # No part of another array, which would be in reach too.
        data = np.frombuffer(padded, np.uint8, max(1, variable.size), skip)
        return data, memory.add(data, f"variable {variable.name}", variable.space == "const")

    def _fill(self, variable: Variable) -> None:
        for offset, item in variable.data:
            if isinstance(item, Pointer):
                address = self.address_of(item.symbol.name)
                if address is None:
                    raise EmulationError(
                        f"PTX line {item.line}: no variable in memory and no function is named {item.symbol.name}"
                    )
                item = item.to_bytes(address)
            self.storage[variable.name][offset : offset + len(item)] = np.frombuffer(item, np.uint8)

    def address_of(self, name: str) -> int | None:
        """Address of a variable in global or constant memory, or the number that stands for a function in a pointer."""
        if name in self.addresses:
            return self.addresses[name]
        return self._pointers.get(name)

    def function_at(self, pointer: int) -> str:
        """Name of the function that a pointer stands for.

        Raises
        ------
        EmulationError
        """
        if pointer in self._functions:
            return self._functions[pointer]
        known = next((name for name, number in self.linked.functions.items() if number == pointer), None)
        if known is None:
            raise EmulationError(f"a call to {pointer:#x}, which is no function")
        raise EmulationError(
            f"a call through a pointer to {known}, which another kernel's code has and this one's has not; let them be "
            "compiled together: module.prepare(…) with both, before the first launch"
        )
