"""What a source's own headers declare, and which names its text or they could have given another meaning."""

from __future__ import annotations

import os
import re
from collections.abc import Container, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from cudakit.jit.signature.signature import Declarations, parse
from cudakit.jit.source.closure import Unsure, all_included
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions
from cudakit.types.cpp import CppType, is_fundamental, names_in, scalar, vector

_DECLARING: Final = r"\b(?:using|typedef|struct|class|union|enum|define)\b[^;{{}}()=]*?\b{0}\b|\}}\s*{0}\b"
_DEFINING: Final = r"#\s*define\s+{0}\b"


class Names(NamedTuple):
    """The names of one source under some options.

    Attributes
    ----------
    declarations : Declarations
        What the text declares.
    texts : tuple of str
        The text and that of every header of the user's; CUDA's own are left out.
    macros : frozenset of str
        Names that the options define.
    complete : bool
        Whether all headers could be found.
    """

    declarations: Declarations
    texts: tuple[str, ...]
    macros: frozenset[str]
    complete: bool

    def declares(self, name: str) -> bool:
        """Whether the text or a header declares a type of that qualified name."""
        return name in self._like(name)

    def declares_anywhere(self, name: str) -> bool:
        """The same, in whatever namespace or class; more than the compiler finds by it, never less."""
        return bool(self._like(name)) or not self.complete

    def _like(self, name: str) -> set[str]:
        """Qualified names of the types that are called like `name`; headers without the word are not parsed."""
        last = name.rpartition("::")[2]
        parsed = [self.declarations, *(_parsed(text) for text in self.texts[1:] if last in text)]
        return {known for one in parsed for known in _types_of(one) if known.rpartition("::")[2] == last}

    def unsure(self, cpp: CppType, own: Container[str]) -> bool:
        """Whether a name in a type, or in what it is an alias of, could mean something else than it seems to.

        Names in `own`, those of template parameters, mean themselves.
        """
        aliases: Mapping[str, CppType] = dict(self.declarations.aliases)
        pending, seen = list(names_in(cpp)), set[str]()
        while pending:
            name = pending.pop()
            if name in seen or name in own:
                continue
            seen.add(name)
            last, alias = name.rpartition("::")[2], aliases.get(name)
            if alias is not None:
                pending += names_in(alias)
            elif not _has_meaning(name):
                continue
            fundamental = is_fundamental(last)
            words = last.split() if fundamental else [last]
            if not self.macros.isdisjoint(words) or not (self.complete or fundamental):
                return True
            pattern = _DEFINING if fundamental else _DECLARING
            count = sum(_count(pattern, word, text) for word in words for text in self.texts)
            if count > (alias is not None):
                return True
        return False


def names_of(source: Source, declarations: Declarations, options: CompileOptions) -> Names:
    """What `source` and the headers that it names declare."""
    extra = dict(options.extra)
    listed = [*_listed(extra.get("pre_include")), *_listed(extra.get("include_path"))]
    defined = [*(name for name, _ in options.defines), *_listed(extra.get("define_macro"))]
    macros = frozenset(str(each[0] if isinstance(each, tuple) else each).partition("=")[0] for each in defined)
    if "include" not in source.text and not listed:
        return Names(declarations, (source.text,), macros, True)
    folders = [*([str(source.folder)] if source.folder else []), *map(os.path.abspath, options.include_paths)]
    folders += map(os.path.abspath, _listed(extra.get("include_path")))
    first = "".join(f'#include "{path}"\n' for path in _listed(extra.get("pre_include")))
    try:
        paths = all_included(f"{first}{source.text}".encode(), folders)
    except (Unsure, OSError):
        return Names(declarations, (source.text,), macros, False)
    texts = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return Names(declarations, (source.text, *texts), macros, True)


def _listed(given: object) -> list[str]:
    return [given] if isinstance(given, str) else list(given) if isinstance(given, list | tuple) else []


@lru_cache(maxsize=256)
def _parsed(text: str) -> Declarations:
    return parse(text)


def _types_of(declarations: Declarations) -> set[str]:
    aliases = {name for name, _ in declarations.aliases}
    return {*declarations.structs, *(enum.name for enum in declarations.enums), *aliases}


def _has_meaning(name: str) -> bool:
    """Whether a name means something here without having been declared; of all others the compiler is asked anyway."""
    last = name.rpartition("::")[2]
    known = ("complex", "strided", "byte", "void", "CUtensorMap")
    return last in known or is_fundamental(name) or vector(name) is not None or scalar(name) is not None


@lru_cache(maxsize=1024)
def _count(pattern: str, word: str, text: str) -> int:
    # Most names are nowhere declared: those need no regular expression.
    if word not in text or (pattern is _DEFINING and "define" not in text):
        return 0
    return len(re.findall(pattern.format(re.escape(word)), text))
