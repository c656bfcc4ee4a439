"""Names in the template arguments that host code writes, which the device may need though no device code names them."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Final

from cudakit.jit.signature.outline import Outline, closing_angle

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_OPENING: Final = re.compile(r"\w\s*<(?!<)")
#: How long a list of template arguments may be.
_MOST_LONG: Final = 400


def written_by_host(outline: Outline, annotations: Set[str]) -> tuple[set[str], set[str]]:
    """Names in the template arguments in host functions; of these, the names in arguments of kernels' launches.

    Parameters
    ----------
    outline : Outline
    annotations : set of str
        Words and macros that make a function the device's.
    """
    named: set[str] = set()
    launched: set[str] = set()
    for piece in outline.pieces:
        if piece.kind != "function" or annotations & set(_WORD.findall(piece.text)):
            continue
        body = outline.text[piece.start : piece.end]
        for match in _OPENING.finditer(body):
            part = body[match.end() - 1 : match.end() + _MOST_LONG]
            end = closing_angle(part, 0)
            if end > 0 and "{" not in part[:end] and ";" not in part[:end]:
                words = _WORD.findall(part[:end])
                named.update(words)
                launched.update(words if part[end + 1 :].lstrip().startswith("<<<") else ())
    return named, launched
