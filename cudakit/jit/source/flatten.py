"""An nvcc program in one text: its own headers are written out in it, so that host code can be cut from them too.

Each header replaces its ``#include``, between ``#line`` directives. Headers of CUDA and of cudakit stay, for the
compiler to find. Host headers are removed. `MISSING` marks headers that are not found.

An nvcc program (``host_code="skip"``) becomes device code in three steps. First `flatten` writes out its headers, as
far as ``preprocessor.Conditions`` does not rule them out. Then ``host_code.device_part`` cuts the host's declarations.
Last, `cudakit.jit.signature.missing` refuses missing headers.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cudakit.errors import TemplateError
from cudakit.jit.source import headers, host_headers
from cudakit.jit.source.preprocessor import (
    DIRECTIVE,
    Conditions,
    blank,
    is_guard,
    without_comments,
    without_literals,
)
from cudakit.jit.source.source import escaped

_NAME: Final = re.compile(r"""\s*(?:"([^"\n]+)"|<([^>\n]+)>)""")
#: Replaces the ``#include`` of a missing header that device code may need; its name follows.
MISSING: Final = "#pragma cudakit_missing"
_ONCE: Final = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
_MOST_DEEP: Final = 64
_MOST_WRITTEN: Final = 5000


def flatten(text: str, name: str, folder: str | None, folders: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Remove comments from a source, and write out the headers that are found in `folder` and in `folders`.

    Parameters
    ----------
    text : str
        CUDA C++ source.
    name : str
        Name in diagnostics.
    folder : str or None
        Folder that quoted includes search first.
    folders : iterable of str
        The project's include folders, in order.

    Returns
    -------
    str, tuple of str
        The source, and the names of the headers that were removed or are missing, in order.
    """
    # A toolkit's folder may contain library headers that no list here names.
    places = dict.fromkeys((*map(os.path.abspath, folders), *map(str, headers.toolkit_folders())))
    flattener = _Flattener(tuple(places))
    return flattener.write(text, name, folder, ()), tuple(flattener.left_out)


@dataclass(slots=True)
class _Flattener:
    folders: tuple[str, ...]
    conditions: Conditions = field(default_factory=lambda: Conditions("__NVCC__"))
    left_out: dict[str, None] = field(default_factory=dict)
    written: int = 0

    def write(self, text: str, name: str, folder: str | None, within: tuple[str, ...]) -> str:
        """Return `text` with its headers written out; branches that are surely not compiled become spaces.

        `folder` is searched first for quoted includes. `within` has the paths of the headers around the text, outermost
        first.
        """
        text = without_comments(text).replace("\ufeff", " ")
        plain = without_literals(text)
        directives = list(DIRECTIVE.finditer(plain))
        conditions = self.conditions
        parts, behind = [], 0
        for match, following in itertools.zip_longest(directives, directives[1:]):
            word, was_dead = match[1], conditions.is_dead
            if word == "include" and not was_dead and (target := _NAME.match(text, match.start(2))):
                header = target[1] or target[2]
                path = self._project_header(header, folder if target[1] else None)
                if path or not host_headers.is_for_device(header):
                    parts.append(text[behind : match.start()])
                    behind = match.end()
                if path:
                    line = plain.count("\n", 0, match.end()) + 2
                    if new := self._written_out(path, within):
                        parts.append(f'{new}\n#line {line} "{escaped(name)}"')
                elif not host_headers.is_for_device(header):
                    self.left_out[header] = None
                    parts.append("" if host_headers.is_host_header(header) else f"{MISSING} {target[0].strip()}")
                continue
            # A text in quotes belongs to a pragma.
            conditions.read(word, text[match.start(2) : match.end(2)], is_guard(match, following))
            if was_dead and not conditions.is_dead:
                parts.append(blank(text[behind : match.start()]))
                behind = match.start()
            elif conditions.is_dead and not was_dead:
                parts.append(text[behind : match.end()])
                behind = match.end()
        return "".join([*parts, text[behind:]])

    def _project_header(self, header: str, folder: str | None) -> str | None:
        """Return the path of the project's own header of this name, or None."""
        if folder and os.path.isfile(path := os.path.normpath(os.path.join(folder, header))):
            return path
        for place in () if host_headers.is_host_library(header) else self.folders:
            path = os.path.normpath(os.path.join(place, header))
            is_cuda_header = host_headers.name_is_for_device(header) and headers.is_toolkit_folder(place)
            if not is_cuda_header and os.path.isfile(path):
                return path
        return None

    def _written_out(self, path: str, within: tuple[str, ...]) -> str:
        """Return the flattened source of the header at `path`, between ``#line`` directives.

        Return ``""`` if the header was written before and guards itself. `within` has the paths of the headers that
        include it.
        """
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        directives = list(DIRECTIVE.finditer(without_literals(text)))
        macro = f"CUDAKIT_ONCE_{hashlib.sha256(path.encode()).hexdigest()[:16]}"
        once = _ONCE.search(text)
        is_guarded = len(directives) > 2 and is_guard(*directives[:2]) and directives[-1][1] == "endif"
        opening = ("ifndef", macro) if once else directives[0].groups() if is_guarded else None
        if opening and self.conditions.verdict(*opening) is False:
            return ""
        self.written += 1
        if len(within) > _MOST_DEEP or self.written > _MOST_WRITTEN:
            raise TemplateError(
                f'"{within[-1]}" includes "{path}" in too many ways to write it out: give the headers guards, '
                "or compile without host_code='skip'"
            )
        if once:
            text = f"{text[: once.start()]}{' ' * len(once[0])}{text[once.end() :]}"
            self.conditions.read("ifndef", macro, True)
            self.conditions.read("define", macro)
        flat = self.write(text, path, os.path.dirname(path), (*within, path))
        if once:
            self.conditions.read("endif", "")
        before, behind = (f"#ifndef {macro}\n#define {macro}\n", "\n#endif") if once else ("", "")
        return f'{before}#line 1 "{escaped(path)}"\n{flat}{behind}'
