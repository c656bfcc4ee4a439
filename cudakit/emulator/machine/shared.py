"""Where the shared variables of a kernel lie in a block's shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cudakit.emulator.machine.calls import names_in, reached
from cudakit.emulator.ptx.program import Function, Program, Variable

#: What dynamic shared memory begins at a multiple of, at least.
_DYNAMIC_ALIGN = 16


class SharedLayout(NamedTuple):
    """Shared memory of a kernel's blocks, as ptxas lays it out.

    Attributes
    ----------
    offsets : dict of str to int
        Where each variable begins, by its name in the PTX; dynamic ones where dynamic shared memory does.
    end : int
        Where the variables that have a size end.
    static_bytes : int
        Static shared memory in bytes, which dynamic shared memory begins after.
    """

    offsets: dict[str, int]
    end: int
    static_bytes: int

    def total_bytes(self, dynamic: int) -> int:
        """Bytes of shared memory that a block has with `dynamic` bytes from its launch."""
        return self.static_bytes + dynamic if dynamic else self.end


def shared_layout(program: Program, kernel: Function) -> SharedLayout:
    """The layout of a kernel: of its own variables, then the program's, then those of functions that it may come to.

    A variable of the program counts where code that the kernel may come to names it. Those that these functions declare
    always count, and lie at the end where no code names them. Compilers leave such variables out; ptxas may order
    several of them in another way.
    """
    offsets, end = dict[str, int](), 0
    dynamic: list[str] = []
    for variable in _used(program, kernel):
        if variable.size:
            end = -(-end // variable.align) * variable.align
            offsets[variable.name] = end
            end += variable.size
        else:
            dynamic.append(variable.name)
    start = end
    # ptxas rounds up for any dynamic variable of the program, whichever kernel has it.
    for variable in _shared(program.variables) if end else ():
        if not variable.size:
            align = max(_DYNAMIC_ALIGN, variable.align)
            start = -(-start // align) * align
    return SharedLayout(offsets | dict.fromkeys(dynamic, start), end, start)


def _used(program: Program, kernel: Function) -> Iterator[Variable]:
    """The kernel's shared variables, in the order in which they lie."""
    functions = reached(program, kernel)
    names = {name for function in functions for name in names_in(function)}
    called = {function.name for function in functions} - {kernel.name}
    own, others = [*_shared(kernel.variables)], list[Variable]()
    for name, function in program.functions.items():
        # An alias is a further name of a function, which has its variables once.
        if name in called and name == function.name:
            others += _shared(function.variables)
    yield from (v for v in (*own, *_shared(program.variables), *others) if v.name in names)
    yield from (v for v in (*own, *others) if v.name not in names)


def _shared(variables: dict[str, Variable]) -> Iterator[Variable]:
    return (variable for variable in variables.values() if variable.space == "shared")
