"""All that a source can include, down to CUDA's headers: more than the compiler reads, never less, or nothing is said.

Whatever may be an ``#include`` counts, in branches that are skipped and in comments too, and its name counts wherever
it is found. NVRTC could list what it reads (``--fdevice-time-trace``, from CUDA 13.0 on), but its profiler corrupts
memory when a process compiles more than once; so its list is only the judge of this one, in the tests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.watch import Unsure

_SPLICE: Final = re.compile(rb"\\\s*\n")
_SPACE: Final = rb"(?:\s|/\*.*?\*/)*"
_DIRECTIVE: Final = re.compile(
    rb"(?:#|%:|\?\?=)" + _SPACE + rb"(?:include(?:_next)?|import)\b" + _SPACE + rb'(?:"([^"\n]+)"|<([^>\n]+)>)?',
    re.DOTALL,
)


def all_included(text: bytes, folders: Iterable[str]) -> list[str]:
    """Every file that `text` may include by names that are written out, wherever the name is found.

    Raises
    ------
    Unsure
        If a macro makes a name.
    """
    found: dict[str, None] = {}
    pending: list[tuple[tuple[str, ...], Iterable[str]]] = [((), _included(text))]
    while pending:
        own, names = pending.pop()
        for name in names:
            for folder in dict.fromkeys((*own, *folders)):
                path = os.path.join(folder, name)
                if path not in found and os.path.isfile(path):
                    found[path] = None
                    pending.append(((os.path.dirname(path),), _names_in(path)))
    return list(found)


def names_included(text: bytes) -> list[str]:
    """Every name in what may be an ``#include`` of a text, in any spelling.

    Raises
    ------
    Unsure
        If a macro makes a name.
    """
    return list(_included(text))


def _names_in(path: str) -> Iterable[str]:
    if headers.is_cudas(path):
        return ()  # known by their version
    with open(path, "rb") as file:
        return list(_included(file.read()))


def _included(text: bytes) -> Iterator[str]:
    for match in _directives(text):
        if not (match[1] or match[2]):
            raise Unsure("a macro names a header")
        yield os.fsdecode(match[1] or match[2])


def _directives(text: bytes) -> Iterator[re.Match[bytes]]:
    return _DIRECTIVE.finditer(_SPLICE.sub(b"", text))
