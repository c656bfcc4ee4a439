"""The compiled code of a specialization: the record that compile, cache and load share."""

from __future__ import annotations

from cudakit.jit.specialise.options import Target
from cudakit.records import NamedTuple


class Promise(NamedTuple):
    """An assumption of tile code about an argument, which a launch checks.

    Attributes
    ----------
    symbol : str
        Name of the kernel in the code.
    position : int
        Position of the parameter.
    divisor : int
        Number that divides the argument, or an address in bytes.
    low, high : int or None
        Bounds of a number.
    """

    symbol: str
    position: int
    divisor: int = 1
    low: int | None = None
    high: int | None = None


class Compiled(NamedTuple):
    """Machine code, PTX, LTO IR or Tile IR, with the names of its kernels.

    Attributes
    ----------
    code : bytes
        A cubin, a PTX module, LTO IR, or Tile IR.
    lowered : dict of str to str
        Name expression, such as ``saxpy<float>``, to the mangled name in `code`.
    log : str
        The compiler's log; empty if there are no messages.
    target : {"cubin", "ptx", "object", "ltoir", "tileir"}
        Format of `code`.
    promises : tuple of Promise
        Assumptions of tile code.
    """

    code: bytes
    lowered: dict[str, str]
    log: str = ""
    target: Target = "cubin"
    promises: tuple[Promise, ...] = ()

    def __repr__(self) -> str:
        first, *others = [*self.lowered, "no kernel"][: len(self.lowered) or 1]
        more = f" and {len(others)} more" if others else ""
        return f"<Compiled {first}{more}: {self.target}, {len(self.code):,} bytes{', with a log' * bool(self.log)}>"


#: Kernel template whose mangled name contains the type of its argument, which only the compiler knows.
TYPES_PROBE = "cudakit_type"


def type_of(expression: str) -> str:
    """Return the name expression of a probe, whose lowered name has the type of the kernel or variable `expression`."""
    # A cast, which chooses an overload, is already a pointer.
    return f"{TYPES_PROBE}<decltype({'' if expression.startswith('(') else '&'}{expression})>"
