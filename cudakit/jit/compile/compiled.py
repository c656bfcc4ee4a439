"""What the compiler made of one specialization: the record that compile, cache and load hand on."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.jit.specialise.options import Target


class Compiled(NamedTuple):
    """Machine code, PTX or LTO IR, and what is needed to find a kernel in it.

    Attributes
    ----------
    code : bytes
        A cubin, the text of a PTX module, or LTO IR.
    lowered : dict of str to str
        Name expression, such as ``saxpy<float>``, to the mangled name that stands for it in `code`.
    log : str
        The compiler's log; empty when it had nothing to say.
    target : {"cubin", "ptx", "object", "ltoir"}
        What `code` is.
    """

    code: bytes
    lowered: dict[str, str]
    log: str = ""
    target: Target = "cubin"

    def __repr__(self) -> str:
        first, *others = [*self.lowered, "no kernel"][: len(self.lowered) or 1]
        more = f" and {len(others)} more" if others else ""
        return f"<Compiled {first}{more}: {self.target}, {len(self.code):,} bytes{', with a log' * bool(self.log)}>"
