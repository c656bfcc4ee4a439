"""What the compiler made of one specialization: the record that compile, cache and load hand on."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.jit.specialise.options import Target


class Promise(NamedTuple):
    """What tile code takes for granted of an argument, and a launch checks.

    Attributes
    ----------
    symbol : str
        The kernel, by its name in the code.
    position : int
        The parameter.
    divisor : int
        What a number is a multiple of, or an address, in bytes.
    low, high : int or None
        What a number is not under, and not over.
    """

    symbol: str
    position: int
    divisor: int = 1
    low: int | None = None
    high: int | None = None


class Compiled(NamedTuple):
    """Machine code, PTX or LTO IR, and what is needed to find a kernel in it.

    Attributes
    ----------
    code : bytes
        A cubin, the text of a PTX module, LTO IR, or Tile IR.
    lowered : dict of str to str
        Name expression, such as ``saxpy<float>``, to the mangled name that stands for it in `code`.
    log : str
        The compiler's log; empty when it had nothing to say.
    target : {"cubin", "ptx", "object", "ltoir", "tileir"}
        What `code` is.
    promises : tuple of Promise
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
