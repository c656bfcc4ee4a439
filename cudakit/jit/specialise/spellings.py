"""C++ types of the dtypes of a specialization, and the generated source that they need: structs, functors.

`Names` has the declarations of a source and its own headers, and finds names that may have another meaning.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from cudakit.errors import CompileError, TemplateError, shortened
from cudakit.jit.bundle.file import HEADERS, SIGNATURE
from cudakit.jit.bundle.used import in_use
from cudakit.jit.signature.signature import Declarations, declarations_key
from cudakit.records import NamedTuple
from cudakit.types import structs
from cudakit.types.cpp import CppType, is_fundamental, names_in, scalar, vector

if TYPE_CHECKING:
    from cudakit.jit.source.source import Source
    from cudakit.jit.specialise.options import CompileOptions

_DECLARING_WORDS: Final = ("using", "typedef", "struct", "class", "union", "enum", "define")
_DECLARING: Final = rf"\b(?:{'|'.join(_DECLARING_WORDS)})\b[^;{{{{}}}}()=]*?\b{{0}}\b|\}}}}\s*{{0}}\b"
_DEFINING: Final = r"#\s*define\s+{0}\b"


class Names(NamedTuple):
    """The names of a source under some options.

    Attributes
    ----------
    declarations : Declarations
        Declarations of the source.
    texts : tuple of str
        The source, and every header of the user's; CUDA's own headers are left out.
    macros : frozenset of str
        Names that the options define.
    complete : bool
        Whether all headers were found.
    bundle : str or None
        Bundle of the kernel's own, which may have the declarations of the headers.
    """

    declarations: Declarations
    texts: tuple[str, ...]
    macros: frozenset[str]
    complete: bool
    bundle: str | None = None

    def declares(self, name: str) -> bool:
        """Return whether the source or a header declares a type of this qualified name."""
        return name in self._like(name)

    def declares_anywhere(self, name: str) -> bool:
        """Return whether any namespace or class declares a type of this name, or may declare one."""
        return bool(self._like(name)) or not self.complete

    def _like(self, name: str) -> set[str]:
        """Return the qualified names of all declared types whose last part is that of `name`.

        Headers that do not contain the word are not parsed.
        """
        last = name.rpartition("::")[2]
        parsed = [self.declarations, *(_parsed(text, self.bundle) for text in self.texts[1:] if last in text)]
        names = {type_name for declarations in parsed for type_name in _types_of(declarations)}
        return {type_name for type_name in names if type_name.rpartition("::")[2] == last}

    def unsure(self, cpp: CppType, own: Container[str]) -> bool:
        """Return whether a name in a type, or in the type that it is an alias of, is ambiguous.

        A name is ambiguous if a macro or another declaration may change its meaning. Names in `own`, the template
        parameters, are not.
        """
        aliases: Mapping[str, CppType] = dict(self.declarations.aliases)
        pending, visited = list(names_in(cpp)), set[str]()
        while pending:
            name = pending.pop()
            if name in visited or name in own:
                continue
            visited.add(name)
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
    """Return the declarations of `source` and of the headers that it includes."""
    extra = dict(options.extra)
    defined = [*(name for name, _ in options.defines), *_listed(extra.get("define_macro"))]
    macros = frozenset(str(macro[0] if isinstance(macro, tuple) else macro).partition("=")[0] for macro in defined)
    paths = own_headers(source, options)
    if paths is None:
        return Names(declarations, (source.text,), macros, False)
    texts = [text_of(path) for path in paths] + (_absent_headers(source, options) if "include" in source.text else [])
    return Names(declarations, (source.text, *texts), macros, True, options.bundle)


def own_headers(source: Source, options: CompileOptions) -> list[str] | None:
    """Return the paths of the user's headers that a source may include; None if they are unknown."""
    extra = dict(options.extra)
    first = _listed(extra.get("pre_include"))
    if "include" not in source.text and not first and not extra.get("include_path"):
        return []
    from cudakit.jit.source.closure import Unsure, all_included  # for sources that include headers

    folders = [*([str(source.folder)] if source.folder else []), *map(os.path.abspath, options.include_paths)]
    folders += map(os.path.abspath, _listed(extra.get("include_path")))
    lines = "".join(f'#include "{path}"\n' for path in first)
    try:
        return all_included(f"{lines}{source.text}".encode(), folders)
    except (Unsure, OSError):
        return None


def text_of(path: str) -> str:
    """Return the text of a header."""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _absent_headers(source: Source, options: CompileOptions) -> list[str]:
    """Return the texts of the headers that are in a bundle in use and not here.

    Raises
    ------
    CompileError
        If a header here is another than the bundle's, and nothing may be compiled.
    """
    from cudakit.jit.source.roots import Roots  # as in `own_headers`

    bundles, roots = in_use(options.bundle), Roots(source.folder, options.include_paths)
    absent = dict[str, str]()
    for file, entry in bundles.entries(HEADERS, source.digest):
        for name, text in json.loads(entry.body).items():
            path = roots.path(name)
            if not os.path.isfile(path):
                absent[name] = text
            elif bundles.never and text_of(path) != text:
                raise CompileError(
                    f"{source.name}: {path} is another header than that of the bundle {file.path}, and compile='never' "
                    "forbids to compile with it: build the bundle again, or install the header that it was built with"
                )
    return list(absent.values())


def _listed(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []


@lru_cache(maxsize=256)
def _parsed(text: str, bundle: str | None) -> Declarations:
    key = declarations_key(hashlib.sha256(text.encode()).hexdigest())
    for _, entry in in_use(bundle).entries(SIGNATURE, key):
        return Declarations.from_json(entry.body.decode())
    from cudakit.jit.signature.reader import parse  # not needed where the cache has the result

    return parse(text)


def _types_of(declarations: Declarations) -> set[str]:
    aliases = {name for name, _ in declarations.aliases}
    return {*declarations.structs, *(enum.name for enum in declarations.enums), *aliases}


def _has_meaning(name: str) -> bool:
    """Return whether cudakit knows the type of this name, qualified or not, without a declaration in the source."""
    last = name.rpartition("::")[2]
    names = ("complex", "strided", "byte", "void", "CUtensorMap")
    return last in names or is_fundamental(name) or vector(name) is not None or scalar(name) is not None


@lru_cache(maxsize=1024)
def _count(pattern: str, word: str, text: str) -> int:
    # Most names are declared nowhere, and need no regular expression.
    if word not in text or (pattern is _DEFINING and "define" not in text):
        return 0
    if not any(part in text for part in _DECLARING_WORDS) and f"}}{word}" not in "".join(text.split()):
        return 0
    return len(re.findall(pattern.format(re.escape(word)), text))


#: Headers of libcu++ that the source of a template argument needs. A plain part before each pattern avoids the regular
#: expression for most sources.
_TEXT_HEADERS = (
    ("::std::complex", r"\bcuda::std::complex\b", "cuda/std/complex"),
    ("::std::",
     r"\bcuda::std::(plus|minus|multiplies|divides|modulus|negate|bit_|logical_|less|greater|equal_to|not_)",
     "cuda/std/functional"),
    ("imum", r"\bcuda::(maximum|minimum)\b", "cuda/functional"),
)  # fmt: skip


class TypeBook:
    """C++ types of the dtypes of a specialization, and the generated source that they need.

    Parameters
    ----------
    declarations : Declarations
        Declarations of the source.
    structs : dict, optional
        Names of the structs so far, by dtype.
    snippets : dict, optional
        Source of the function objects so far, by name.

    Attributes
    ----------
    written : dict of str to numpy.dtype
        Structs that the kernel's own parameters name, with the layouts that arguments have.
    """

    def __init__(
        self,
        declarations: Declarations,
        structs: dict[np.dtype, str] | None = None,
        snippets: dict[str, str] | None = None,
    ) -> None:
        self.declarations = declarations
        self.structs: dict[np.dtype, str] = {} if structs is None else structs
        self.snippets: dict[str, str] = {} if snippets is None else snippets
        self.written: dict[str, np.dtype] = {}

    def spell(self, dtype: np.dtype, where: str) -> str:
        """Return the C++ type of `dtype`; a structured dtype becomes a generated struct.

        `where` begins the error's message.
        """
        if dtype.names is None:
            return structs.spelling(dtype, where)
        return self.name_struct(dtype, structs.struct_name(dtype))

    def name_struct(self, dtype: np.dtype, name: str) -> str:
        return self.structs.setdefault(dtype, name)

    def functor(self, text: str, parameter: str) -> str:
        """Return the type name of a function object: `text` if it is a name, else the name of its struct or lambda.

        The source of a struct or lambda is kept in `snippets`. `parameter` is the template parameter's name, for
        messages.
        """
        text = text.strip()
        if "{" not in text:
            return text
        declared = re.match(r"(?:struct|class)\s+(\w+)", text)
        if declared:
            name, body = declared[1], text.rstrip(";") + ";"
        elif text.startswith("["):
            name = f"cudakit_functor_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
            if name in self.snippets:
                return name
            # The lambda stands inside a device function, so it needs no annotation of its own.
            body = (
                f"struct {name} {{ template <typename... Arguments> __device__ constexpr auto "
                f'operator()(Arguments... arguments) const {{ return (\n#line 1 "<template argument {parameter}>"\n'
                f"({text})\n)(arguments...); }} }};"
            )
        else:
            raise TemplateError(
                f"template argument {parameter}: {shortened(text)} is neither a type's name, a struct nor a lambda "
                "such as "
                "'[](auto a, auto b) { return a + b; }'"
            )
        self.snippets[name] = f'#line 1 "<template argument {parameter}>"\n{body}\n'
        return name

    def struct_named(self, name: str) -> np.dtype | None:
        """Return the layout of the struct `name` if an argument has shown it, or None."""
        dtypes = (dtype for dtype, struct in self.structs.items() if struct == name)
        return self.written.get(name) or next(dtypes, None)

    def prelude(self, texts: Iterable[str], names: Names) -> tuple[str, ...]:
        """Return C++ source, piece by piece: an ``#include`` for each header that `texts` need, then generated structs.

        Structs that the source declares are left out.
        """
        definitions = self._definitions(names) if self.structs or self.written else ""
        everything = "\n".join([*texts, definitions, *self.snippets.values()])
        included = [
            header for part, pattern, header in _TEXT_HEADERS if part in everything and re.search(pattern, everything)
        ]
        if "__half" in everything or "__nv_" in everything:
            from cudakit.jit.source.headers import headers_of  # has long tables

            included += headers_of(re.findall(r"\b__(?:half|nv_)\w*", everything))
        pieces = re.findall(r"struct [^}]*\};\n", definitions) if definitions else ()
        return (*(f"#include <{header}>\n" for header in included), *pieces)

    def _definitions(self, names: Names) -> str:
        from cudakit.types.struct_source import definition  # few kernels take structs

        names_by_dtype: dict[np.dtype, str] = {}
        definitions = "".join(
            definition(name, dtype, names_by_dtype)
            for dtype, name in self.structs.items()
            if dtype not in names_by_dtype and not names.declares(name)
        )
        return definitions + "".join(
            definition(name, dtype, names_by_dtype)
            for name, dtype in self.written.items()
            if name.isidentifier() and name not in self.structs.values() and not names.declares_anywhere(name)
        )

    def checks(self, checks: Iterable[str]) -> str:
        """Return C++ source with assertions about the layouts of the structs so far, and the assertions in `checks`.

        It is ``""`` if there are none.
        """
        checks = [*checks]
        if not (self.structs or checks):
            return ""
        from cudakit.types.struct_source import SUPPORT, struct_assertions  # as in `_definitions`

        own = [
            struct_assertions(f"struct_{number}", name, name, dtype)
            for number, (dtype, name) in enumerate(self.structs.items())
        ]
        return f'#line 1 "<generated by cudakit>"\n{SUPPORT}#line 1 "<struct layout>"\n{"".join([*own, *checks])}'
