"""A source with its own headers written out in it, so that what is cut from it can be cut from those too.

Each is set apart by ``#line``, and stands where its ``#include`` was. Headers of CUDA and of cudakit stay for the
compiler to find; those that are for the host, or nowhere, are taken out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.lexical import DIRECTIVE, without_comments, without_literals

_NAME: Final = re.compile(r"""\s*(?:"([^"\n]+)"|<([^>\n]+)>)""")
_ONCE: Final = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b", re.MULTILINE)
_MOST_DEEP: Final = 64


@dataclass(slots=True)
class Flattened:
    """A text with its headers in it.

    Attributes
    ----------
    text : str
    left_out : dict of str to None
        Names of the headers that were taken out, in their order.
    """

    text: str
    left_out: dict[str, None] = field(default_factory=dict)


def flatten(text: str, name: str, folder: str | None, folders: Iterable[str]) -> Flattened:
    """`text`, without its comments, with the headers that are found in `folder` and in `folders`.

    Parameters
    ----------
    text : str
    name : str
        What diagnostics call it.
    folder : str or None
        Where quoted headers are looked for first.
    folders : iterable of str
        The project's, in order.
    """
    found = Flattened("")
    # A toolkit's folder may have a library's headers that no list here names.
    places = dict.fromkeys((*map(os.path.abspath, folders), *map(str, headers.toolkit_folders())))
    found.text = _Flattener(tuple(places), found, {}).written(text, name, folder, (), True)
    return found


@dataclass(slots=True)
class _Flattener:
    folders: tuple[str, ...]
    found: Flattened
    whole: dict[str, None]

    def written(self, text: str, name: str, folder: str | None, within: tuple[str, ...], surely: bool) -> str:
        """`text` with its headers; `surely` where no conditional decides whether it is compiled."""
        text = without_comments(text).replace("\ufeff", " ")
        plain = without_literals(text)
        directives = list(DIRECTIVE.finditer(plain))
        depth = -1 if _is_guarded(directives) else 0
        parts, behind = [], 0
        for match in directives:
            word = match[1]
            depth += (word in ("if", "ifdef", "ifndef")) - (word == "endif")
            if word != "include" or not (target := _NAME.match(text, match.start(2))):
                continue
            quoted, header = target[1] is not None, target[1] or target[2]
            always = surely and depth <= 0
            new = self._header(header, folder if quoted else None, within, always)
            if new is None:
                continue
            line = plain.count("\n", 0, match.end()) + 2
            parts.append(text[behind : match.start()])
            parts.append(f'{new}\n#line {line} "{_escaped(name)}"' if new else "")
            behind = match.end()
        return "".join([*parts, text[behind:]])

    def _header(self, header: str, folder: str | None, within: tuple[str, ...], surely: bool) -> str | None:
        """What stands for an ``#include``: the header's text, nothing, or None where it stays."""
        if folder and os.path.isfile(path := os.path.normpath(os.path.join(folder, header))):
            return self._own(path, within, surely)
        for place in () if headers.is_host_library(header) else self.folders:
            path = os.path.normpath(os.path.join(place, header))
            is_cudas = headers.name_is_for_device(header) and headers.is_toolkit_folder(place)
            if not is_cudas and os.path.isfile(path):
                return self._own(path, within, surely)
        if headers.is_for_device(header):
            return None
        self.found.left_out[header] = None
        return ""

    def _own(self, path: str, within: tuple[str, ...], surely: bool) -> str:
        if path in self.whole or len(within) > _MOST_DEEP:
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        directives = list(DIRECTIVE.finditer(without_literals(text)))
        once = _ONCE.search(text)
        guarded = once is not None or _is_guarded(directives)
        if guarded and path in within:
            return ""
        if guarded and surely:
            self.whole[path] = None
        if once:
            text = f"{text[: once.start()]}{' ' * len(once[0])}{text[once.end() :]}"
        made = self.written(text, path, os.path.dirname(path), (*within, path), surely)
        macro = f"CUDAKIT_ONCE_{hashlib.sha256(path.encode()).hexdigest()[:16]}"
        before, behind = (f"#ifndef {macro}\n#define {macro}\n", "\n#endif") if once else ("", "")
        return f'{before}#line 1 "{_escaped(path)}"\n{made}{behind}'


def _is_guarded(directives: list[re.Match[str]]) -> bool:
    """Whether all is inside an include guard."""
    if len(directives) < 3:
        return False
    first, second, last = directives[0], directives[1], directives[-1]
    name = re.search(r"\w+\s*\)?\s*$", first[2])
    opens = first[1] == "ifndef" or (first[1] == "if" and "!" in first[2] and "defined" in first[2])
    return bool(
        opens
        and name
        and second[1] == "define"
        and re.findall(r"\w+", second[2])[:1] == re.findall(r"\w+", name[0])
        and last[1] == "endif"
    )


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')
