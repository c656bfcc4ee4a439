"""Which files NVRTC read in a compile: its own list, or one that holds all that it can have read."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from types import TracebackType
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.watch import Unsure

_READ: Final = re.compile(rb'"detail":("(?:[^"\\]|\\.)*")\},"dur":\d+,"name":"Processing Header File"')
#: Read before anything else, in every compile.
_ITS_OWN: Final = "__nv_nvrtc_builtin_header.h"
_SPLICE: Final = re.compile(rb"\\\s*\n")
_COMMENT: Final = rb"(?:\s|/\*.*?\*/)*"
_DIRECTIVE: Final = re.compile(
    rb"(?:#|%:)" + _COMMENT + rb"include(?:_next)?\b" + _COMMENT + rb'(?:"([^"\n]+)"|<([^>\n]+)>)?', re.DOTALL
)


class Listing:
    """Has NVRTC list what it reads: from CUDA 13.0 on, its time trace has the path of each header that it processes."""

    def __enter__(self) -> Listing:
        self._folder = tempfile.TemporaryDirectory(prefix="cudakit-")
        self._trace: bytes | None = None
        return self

    @property
    def option(self) -> str:
        """The value of the option ``--fdevice-time-trace``."""
        return os.path.join(self._folder.name, "trace")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            with open(f"{self.option}.json", "rb") as file:
                self._trace = file.read()
        except OSError:
            pass  # an NVRTC that does not write it, or no room for it
        if kind is not None:
            _end_trace(self.option)
        self._folder.cleanup()

    def files(self, text: bytes, folders: Iterable[str], *, precompiled: bool = False) -> list[str]:
        """Paths of what was read or, where the compiler does not say it, of all that `text` can include.

        Of what is `precompiled` the compiler lists nothing.

        Raises
        ------
        Unsure
            If neither is to be had.
        """
        trace = self._trace or b""
        found = [json.loads(os.fsdecode(name)) for name in _READ.findall(trace)]
        if trace.rstrip().endswith(b"]}") and (precompiled or _ITS_OWN in found):
            return [name for name in dict.fromkeys(found) if name != _ITS_OWN]
        return all_included(text, tuple(folders))


def _end_trace(path: str) -> None:
    """End the trace of a compile that failed: NVRTC goes on with it, and the next compile would write ``./.json``."""
    from cuda.bindings import nvrtc

    status, program = nvrtc.nvrtcCreateProgram(b"", b"", 0, None, None)
    if int(status) == 0:
        nvrtc.nvrtcCompileProgram(program, 2, [b"--fdevice-syntax-only", f"--fdevice-time-trace={path}".encode()])
        nvrtc.nvrtcDestroyProgram(program)


def all_included(text: bytes, folders: tuple[str, ...]) -> list[str]:
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
            for folder in (*own, *folders):
                path = os.path.join(folder, name)
                if path not in found and os.path.isfile(path):
                    found[path] = None
                    pending.append(((os.path.dirname(path),), _names_in(path)))
    return list(found)


def _names_in(path: str) -> Iterable[str]:
    if headers.in_wheel(path):
        return _names_in_wheel(path)
    with open(path, "rb") as file:
        return list(_included(file.read()))


@cache
def _names_in_wheel(path: str) -> tuple[str, ...]:
    """Names that a header of CUDA's includes; those that a macro makes are its own."""
    with open(path, "rb") as file:
        return tuple(os.fsdecode(match[1] or match[2]) for match in _directives(file.read()) if match[1] or match[2])


def _included(text: bytes) -> Iterator[str]:
    for match in _directives(text):
        if not (match[1] or match[2]):
            raise Unsure("a macro names a header")
        yield os.fsdecode(match[1] or match[2])


def _directives(text: bytes) -> Iterator[re.Match[bytes]]:
    return _DIRECTIVE.finditer(_SPLICE.sub(b"", text))
