"""What the names of a program stand for: addresses of its variables, which are in memory, and numbers of functions."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.ptx.program import Pointer, Program, Variable
from cudakit.errors import EmulationError

#: The pointer to a program's first function.
_FUNCTIONS = 0x7300_0000_0000_0000


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
    shared : dict of str to int
        Offset of each variable in a block's shared memory.
    shared_end : int
        Where the variables in it end.
    static_bytes : int
        Where dynamic shared memory begins.
    """

    def __init__(self, program: Program, memory: Memory) -> None:
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.constants: list[tuple[int, int]] = []
        self._functions = list(program.functions)
        self.numbers = {name: number for number, name in enumerate(self._functions)}
        self.shared, self.shared_end, self.static_bytes = _shared_layout(program)
        for variable in program.variables.values():
            if variable.space in ("global", "const"):
                self._place(variable, memory)
        for variable in program.variables.values():
            self._fill(variable)

    def _place(self, variable: Variable, memory: Memory) -> None:
        try:
            padded = np.zeros(variable.size + variable.align + 16, np.uint8)
        except MemoryError:
            raise EmulationError(f"no memory for the {variable.size} bytes of variable {variable.name}") from None
        skip = -int(padded.__array_interface__["data"][0]) % max(1, variable.align)
        data = padded[skip : skip + max(1, variable.size)]
        readonly = variable.space == "const"
        address = memory.add(data, f"variable {variable.name}", readonly)
        self.storage[variable.name], self.addresses[variable.name] = data, address
        if readonly:
            self.constants.append((address, variable.size))

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

    def shared_bytes(self, dynamic: int) -> int:
        """Bytes of shared memory that a block has with `dynamic` bytes from its launch."""
        return self.static_bytes + dynamic if dynamic else self.shared_end

    def address_of(self, name: str) -> int | None:
        """Address of a variable in global or constant memory, or the number that stands for a function in a pointer."""
        if name in self.addresses:
            return self.addresses[name]
        return _FUNCTIONS + self.numbers[name] if name in self.numbers else None

    def function_at(self, pointer: int) -> str:
        """Name of the function that a pointer stands for.

        Raises
        ------
        EmulationError
        """
        if not 0 <= pointer - _FUNCTIONS < len(self._functions):
            raise EmulationError(f"a call to {pointer:#x}, which is no function")
        return self._functions[pointer - _FUNCTIONS]


def _shared_layout(program: Program) -> tuple[dict[str, int], int, int]:
    """Offset of every shared variable of the module, where those of a size end, and where dynamic ones begin."""
    offsets, end = {}, 0
    scopes = (program.variables, *(function.variables for function in program.functions.values()))
    variables = [v for scope in scopes for v in scope.values() if v.space == "shared"]
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
    return {**offsets, **{variable.name: start for variable in dynamic}}, end, start
