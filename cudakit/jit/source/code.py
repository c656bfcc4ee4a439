"""What a file holds: CUDA C++, or which kind of compiled code."""

from __future__ import annotations

import re
from typing import Final

_MAGIC: Final = ((b"\xed\x43\x4e\x7f", "ltoir"), (b"\x50\xed\x55\xba", "fatbin"), (b"!<arch>\n", "library"))
# A comment ends in one way only, or a text with many would be tried in every way.
_PTX: Final = re.compile(rb"(?:\s|//[^\n]*\n|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)*\.version\s")


def kind_of(code: bytes) -> str | None:
    """Which kind of compiled code: ``cubin``, ``ptx``, ``ltoir``, ``fatbin``, ``object`` or ``library``; None: none."""
    if code[:4] == b"\x7fELF":
        # e_machine of an ELF file: 190 is CUDA.
        return "cubin" if code[18:20] == b"\xbe\0" else "object"
    found = next((kind for magic, kind in _MAGIC if code.startswith(magic)), None)
    return found or ("ptx" if _PTX.match(code[:65536]) else None)
