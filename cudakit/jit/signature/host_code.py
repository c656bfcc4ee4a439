"""The device code of an nvcc program: code that kernels use stays, host code becomes spaces.

A function stays if it is annotated for the device, or ``constexpr``, and if code that stays uses its name. Types,
aliases, enumerations and constants stay if their names are used. Kernels and variables in device memory always stay.
Headers that nvcc includes implicitly are included if their names are used. Code that nvcc accepts and NVRTC, or the
signature's parser, refuses is rewritten (`cudakit.jit.signature.nvcc_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Final

from cudakit.jit.signature import nvcc_forms, outline
from cudakit.jit.signature.missing import Conditionals, undeclared
from cudakit.jit.source import preprocessor
from cudakit.jit.source.flatten import MISSING, flatten
from cudakit.jit.source.headers import headers_of
from cudakit.jit.source.source import Source, escaped
from cudakit.types.cpp import closing_angle, split_arguments

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_ANNOTATIONS: Final = frozenset({"__global__", "__device__", "__constant__", "__shared__", "__managed__"})
_LABELS: Final = re.compile(r"\s*(?:(?:public|private|protected)\s*:(?!:)\s*)*")
_DEFINE: Final = re.compile(r"\s*([A-Za-z_]\w*)(\([^)]*\))?((?s:.*))")
#: The begin of a declaration that is neither a variable nor a function.
_NEUTRAL: Final = re.compile(
    r"\s*(?:template\s*)?(?:inline\s+|static\s+|extern\s+)*(?:typedef|using|enum|concept|namespace|struct|class|union)\b"
)
_CONSTANT: Final = re.compile(r"\bconst(?:expr)?\b")
_DECLARED: Final = re.compile(r"([A-Za-z_~]\w*)\s*(?=\(\)(?!\s*[(\[])|\[|=(?!=)|\{\}|,|:(?!:)|$)")
_POINTER_TO_FUNCTION: Final = re.compile(r"\(\s*(?:\w+\s*::\s*)?[*&]\s*([A-Za-z_]\w*)")
_MEMBER_FUNCTION: Final = re.compile(r"[^\s()]\s*\(\)\s*(?:const|volatile|noexcept|override|final|[&\s]|->.*)*$")
_ERROR: Final = re.compile(r"^[ \t]*#[ \t]*(?:error|warning)\b(?:\\\r?\n|[^\n])*", re.MULTILINE)
_MISSING: Final = re.compile(rf"^[ \t]*{MISSING} (.*)", re.MULTILINE)
_REFERENCE: Final = re.compile(r"\s*(?:(?:static|extern)\s+)*(?:texture|surface)\s*<")
_LEADING_WORD: Final = re.compile(r"\s*([A-Za-z_]\w*)")
_MACRO_CALL: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*\(")
_INSTANTIATION: Final = re.compile(r"\s*(?:extern\s+)?template\b\s*(?!<|class\b|struct\b|union\b)")
#: Words of GCC's that `cudakit/gnu.cuh` defines.
_GNU_WORDS: Final = frozenset({"register", "__const__", "__const", "typeof", "__typeof", "__typeof__"})
_STATIC_ASSERT: Final = re.compile(r"\s*(?:static_assert|_Static_assert)\b")
_INCLUDE: Final = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>\n]+)>", re.MULTILINE)
_ANGLES: Final = re.compile(r"(?<=\w)\s*<[^<>;{}]*>")
#: Names that device code surely does not use.
_OF_HOST: Final = re.compile(
    r"\bstd\s*::\s*(?:(?:basic_)?string|vector|(?:unordered_)?(?:multi)?(?:map|set)|list|deque|queue|stack|(?:unique|shared|weak)_ptr"
    r"|function|[io]?f?stream|basic_[io]?f?stream|[io]?stringstream|thread|mutex|exception|\w+_error|any|future)\b"
    r"|\bthrust\s*::\s*(?!complex\b)\w|\b(?:at|torch|c10)\s*::"
)
_USING_NAMESPACE: Final = re.compile(r"\busing\s+namespace\s+([\w:\s]+)$")
#: Namespaces that are declared without any header, or with the headers that stay.
_KNOWN_NAMESPACES: Final = frozenset({"std", "cooperative_groups", "nvcuda", "cuda", "cg"})


def device_part(source: Source, folders: Iterable[str], defined: Iterable[str] = ()) -> Source:
    """Return `source` without its host code, with its own headers written out.

    Parameters
    ----------
    source : Source
        The nvcc program.
    folders : iterable of str
        Further folders of the project's headers.
    defined : iterable of str
        Macros of the command line.
    """
    flat, left_out = flatten(source.text, source.name, str(source.folder) if source.folder else None, folders)
    # The program may test for nvcc; CUDA's headers must not take NVRTC for nvcc.
    text = re.sub(r"\b__NVCC__\b", "__CUDACC__", re.sub(r"\b__extension__\b", " " * 13, flat))
    text = nvcc_forms.with_written_kernels(text)
    whole = outline.outline(text)
    if (computed := nvcc_forms.with_computed_constants(whole, text)) != text:
        text, whole = computed, outline.outline(computed)
    cutter = _Cutter(text, whole, frozenset(defined))
    device_text = cutter.device_text()
    headers = dict.fromkeys([*cutter.bracketed_headers(), *cutter.implicit_headers()])
    includes = "".join(f"#include <{header}>\n" for header in headers)
    if not cutter.used.isdisjoint(_GNU_WORDS):
        includes += "#include <cudakit/gnu.cuh>\n"
    namespaces = "".join(f"{namespace}\n" for namespace in cutter.namespaces())
    text = f'{includes}{namespaces}#line 1 "{escaped(source.name)}"\n{device_text}'
    return replace(source, text=text, host_code="skip", left_out=left_out, whole=source, origin=None)


@dataclass(slots=True, eq=False)
class _Item:
    """A declaration at namespace scope: the names that it declares, and whether it always stays (`is_root`).

    `members` are the declarations in the body of a class.
    """

    piece: outline.Piece
    names: frozenset[str]
    is_root: bool
    members: list[outline.Piece] = field(default_factory=list)


class _Cutter:
    """The device code of a source.

    Parameters
    ----------
    text : str
        Source without comments.
    whole : Outline
        Its outline.
    defined : frozenset of str
        Macros of the command line.
    """

    def __init__(self, text: str, whole: outline.Outline, defined: frozenset[str]) -> None:
        self._text = text
        self._defined = defined
        self._outline = whole
        self._macros = preprocessor.words_of_macros(text)
        self._called = preprocessor.CalledMacros(text)
        self._braces = {macro.name for macro in self._outline.macros if macro.body.count("{") != macro.body.count("}")}
        self._annotations = nvcc_forms.writing(_ANNOTATIONS, self._macros)
        self._launching = frozenset(self._names_at_launches())
        self._arguments, self._launched = written_by_host(self._outline, self._annotations)
        self._cut: list[tuple[int, int]] = []
        self._of_host: set[str] = set()
        self._parameter_kinds: set[str] | None = None
        self._assertions: list[_Item] = []
        self._items = list(self._read())
        self.used: set[str] = set()
        self._reached = self._reach()

    def device_text(self) -> str:
        """Return the source with host code blanked; directives stay."""
        staying = {id(item) for item in self._reached}
        cut = [*self._cut, *((self._first(i.piece), i.piece.end) for i in self._items if id(i) not in staying)]
        text = _without(self._text, cut)
        bodies = [(item.piece.first, item.piece.end) for item in self._reached]
        conditionals = Conditionals(text, _only(text, bodies), self.used)

        def is_inside(offset: int) -> bool:
            return any(start < offset < end for start, end in bodies) and not any(
                start <= offset < end for start, end in self._cut
            )

        # The program compiles with nvcc: its other errors are for other hosts.
        text = _ERROR.sub(
            lambda match: (
                match[0]
                if is_inside(match.start()) or conditionals.matters(match.start())
                else preprocessor.blank(match[0])
            ),
            text,
        )
        if _MISSING.search(text):
            names = self._undeclared(text)
            text = _MISSING.sub(
                lambda match: self._refusal(match, is_inside(match.start()), conditionals, bool(names)), text
            )
        text = preprocessor.DIRECTIVE.sub(self._without_instantiations, text)
        return nvcc_forms.without_gnu(text)

    def _first(self, piece: outline.Piece) -> int:
        """Return the offset at which `piece` itself begins.

        Labels such as ``public:`` before it are passed over, and so are macros that open or close a namespace.
        """
        labels = _LABELS.match(piece.text)
        first = piece.start + (labels.end() if labels else 0)
        while (word := _LEADING_WORD.match(self._outline.text, first, piece.end)) and word[1] in self._braces:
            first = word.end()
        return first

    def _refusal(self, match: re.Match[str], is_inside: bool, conditionals: Conditionals, host_needs: bool) -> str:
        """Return the text that replaces a missing ``#include``: an ``#error``, or spaces if only host code needs it.

        Parameters
        ----------
        match : re.Match
            Mark of the missing header; group 1 is its name in quotes or angle brackets.
        is_inside : bool
            Whether it stands in device code.
        conditionals : Conditionals
            Conditionals of the source.
        host_needs : bool
            Whether host code uses names that nothing else declares.
        """
        # A library's header affects a project's code by defaults only.
        only_defaults = match[1].startswith("<") and host_needs
        macros = conditionals.macros_tested_after(match.start(), only_defaults)
        macros = [(offset, name) for offset, name in macros if name not in self._defined]
        if is_inside:
            reason = "it stands in device code"
        elif macros:
            names = " and ".join(f"{name} (line {self._outline.line(offset)})" for offset, name in macros[:3])
            reason = f"it may define {names}, on which device code depends"
        elif match[1].startswith('"') and not host_needs:
            reason = "no host code uses it"
        else:
            return preprocessor.blank(match[0])
        return (
            f"#error {match[1]} is not found, and {reason}: give its folder with CompileOptions(include_paths=[...]), "
            "or an empty file of that name if only the host needs it"
        )

    def _undeclared(self, device_text: str) -> set[str]:
        """Return the names in host code that only a missing header can declare.

        Host code is everything that is blank in `device_text`, the source with host code blanked.
        """
        host = "".join(
            letter if letter == "\n" or left == " " else " "
            for letter, left in zip(
                preprocessor.DIRECTIVE.sub(lambda match: preprocessor.blank(match[0]), self._text),
                device_text,
                strict=True,
            )
        )
        names = {name for item in self._items for name in item.names}
        return undeclared(host, names | self._macros.keys())

    def namespaces(self) -> Iterator[str]:
        """Yield C++ definitions of empty namespaces, ``namespace a { }``, for each ``using namespace`` that stays.

        Their headers may have been removed. Namespaces that are surely declared are left out.
        """
        aliases = {name for i in self._items if re.match(r"\s*namespace\b", i.piece.text) for name in i.names}
        for item in self._reached:
            match = _USING_NAMESPACE.search(item.piece.text)
            parts = [part.strip() for part in match[1].split("::") if part.strip()] if match else []
            if parts == ["chrono"] and "std" in self.used:
                parts = ["std", "chrono"]
            if (len(parts) == 1 and parts[0] in _KNOWN_NAMESPACES) or parts[:1] in (["cuda"], ["nvcuda"]):
                continue
            if parts and parts[0] not in aliases:
                yield "".join(f"namespace {part} {{ " for part in parts) + "}" * len(parts)

    def implicit_headers(self) -> list[str]:
        """Return the headers that nvcc includes implicitly, and whose names are used and not the program's own."""
        own = {name for item in self._reached for name in item.names}
        used = self.used - own
        wide = any(re.search(r"\busing\s+(?:namespace\s+)?std\b", item.piece.text) for item in self._reached)
        return headers_of(used | ({f"std::{name}" for name in used} if wide else set()))

    def bracketed_headers(self) -> Iterator[str]:
        """Yield headers that are included inside braces, as in ``extern "C" {``; C++ headers cannot stand there."""
        braces = [(match.start(), 1 if match[0] == "{" else -1) for match in re.finditer("[{}]", self._outline.text)]
        depth, position = 0, 0
        for match in _INCLUDE.finditer(self._text):
            while position < len(braces) and braces[position][0] < match.start():
                depth += braces[position][1]
                position += 1
            if depth > 0:
                yield match[1]

    def _without_instantiations(self, directive: re.Match[str]) -> str:
        """Return a directive with its macro's body blanked, if the macro only instantiates host functions.

        Any other directive is returned unchanged.
        """
        macro = _DEFINE.match(directive[2]) if directive[1] == "define" else None
        if macro is None or not self._annotations.isdisjoint(_WORD.findall(macro[3])):
            return directive[0]
        statements = macro[3].replace("\\", " ").split(";")
        if not all(_INSTANTIATION.match(statement) for statement in statements if statement.strip()):
            return directive[0]
        start = directive.start(2) + macro.start(3) - directive.start()
        return directive[0][:start] + preprocessor.blank(directive[0][start:])

    def _names_at_launches(self) -> Iterator[str]:
        """Yield the names in the bodies of functions that launch kernels."""
        for piece in self._outline.pieces:
            body = self._outline.text[piece.start : piece.end] if piece.category == "function" else ""
            if "<<<" in body:
                yield from _WORD.findall(body)

    def _may_be_template_argument(self, item: _Item) -> bool:
        """Return whether a declaration may be a kernel's template argument although the source does not name it as one.

        Possible are device functions, if a template parameter is a function, and constants with a plain value, if one
        is a value.
        """
        text = item.piece.text
        words = set(_WORD.findall(self._outline.text[item.piece.start : item.piece.end]))
        if words & self._of_host or _OF_HOST.search(self._outline.text, item.piece.start, item.piece.end):
            return False
        if item.piece.category == "function":
            return "__device__" in words and "__host__" not in words and "functions" in self._parameters()
        before, _, value = text.partition("=")
        is_plain = _CONSTANT.search(before) and value and not re.search(r"[({]", text)
        others = {word for word in _WORD.findall(value) if word not in self._macros and word not in self._declared}
        return bool(is_plain) and not others and "values" in self._parameters()

    def _parameters(self) -> set[str]:
        """Return the categories of the kernels' template parameters: ``values``, ``functions``."""
        if self._parameter_kinds is None:
            heads = [
                item.piece.text[: outline.after_template(item.piece.text)]
                for item in self._items
                if "__global__" in self._with_macros(set(_WORD.findall(item.piece.text)))
            ]
            parts = [part for head in heads for part in split_arguments(head[head.find("<") + 1 : -1]) if head]
            values = [part for part in parts if not re.match(r"(?:typename|class|template)\b", part)]
            aliases = {word for part in values for word in _WORD.findall(part)}
            pointed = any(item.names & aliases and _POINTER_TO_FUNCTION.search(item.piece.text) for item in self._items)
            is_function = pointed or any(re.search(r"\(\s*[*&]|\bauto\b", part) for part in values)
            self._parameter_kinds = {word for word, holds in (("values", values), ("functions", is_function)) if holds}
        return self._parameter_kinds

    def _read(self) -> Iterator[_Item]:
        members: list[outline.Piece] = []
        for piece in self._outline.pieces:
            if piece.in_class:
                members.append(piece)
            elif piece.category != "record":
                inner = [member for member in members if member.start >= piece.start]
                members = []
                if _STATIC_ASSERT.match(piece.text):
                    self._assertions.append(_Item(piece, frozenset(), False))
                elif item := self._item(piece, inner):
                    yield item
                elif piece.text.strip():
                    self._cut.append((self._first(piece), piece.end))
                    self._of_host.update(_DECLARED.findall(outline.without_groups(piece.text)))

    def _item(self, piece: outline.Piece, members: list[outline.Piece]) -> _Item | None:
        """Return the declaration `piece` as an item that may stay, or None if it is host code.

        `members` are the declarations in its body, if it is a class.
        """
        text = outline.without_attributes(piece.text)
        words = set(_WORD.findall(text))
        flat = _without_angles(outline.without_groups(re.sub(r"\[[^\[\]]*\]", "[]", text)))
        names = frozenset(_DECLARED.findall(flat)) | frozenset(_POINTER_TO_FUNCTION.findall(text))
        if words & self._annotations:
            operator = re.search(r"\boperator\b", flat) is not None
            expanded = words | {word for name in words & self._macros.keys() for word in self._macros[name]}
            function = piece.category == "function" or "()" in flat.partition("=")[0]
            is_kernel = "__global__" in expanded
            if not is_kernel and piece.category == "function" and _OF_HOST.search(text):
                return None  # an overload for the host's types
            # The expansion of a macro has further names.
            written = any(word in self._called for word in words & self._annotations)
            is_root = is_kernel or operator or written or not function or bool(names & self._arguments)
            return _Item(piece, names, is_root, members)
        head = text[outline.after_template(text) :]
        if _USING_NAMESPACE.search(text):
            return _Item(piece, frozenset(), True)
        if _NEUTRAL.match(head) and (piece.category == "declaration"):
            if (record := outline.record_name(text.partition("{")[0])) is not None:
                # The text after the name has the base classes.
                tail = flat.rpartition("}")[2] if "{}" in flat else ""
                names = frozenset({record.rpartition("::")[2], *_WORD.findall(tail)})
                # No kernel can use a specialization for a host type.
                if _OF_HOST.search(text.partition("{")[0]):
                    return None
                is_root = bool(names & self._launched) or self._may_be_argument(piece, members)
                is_root = is_root and not _OF_HOST.search(self._outline.text, piece.start, piece.end)
                return _Item(piece, names, is_root, members)
            if re.match(r"\s*(?:static\s+|extern\s+)*(?:struct|class|union)\b", head) and "{}" not in flat:
                return None
            if re.search(r"\benum\b", head) and "{" in head:
                # A list of macros may write its enumerators.
                names = frozenset(self._with_macros(words))
            elif using := re.match(r"\s*using\s+(?:typename\s+)?([\w:\s]*?)(\w+)\s*(=|$)", flat[flat.find("using") :]):
                names = frozenset({using[2]})
            is_root = bool(names & self._launched) and not _OF_HOST.search(text)
            return _Item(piece, names, is_root, members)
        if _REFERENCE.match(text):  # removed from CUDA; the compiler reports it
            return _Item(piece, names, False)
        is_constant = _CONSTANT.search(flat.partition("=")[0]) is not None
        if "constexpr" in words or (
            is_constant and piece.category == "declaration" and "()" not in flat.partition("=")[0]
        ):
            return _Item(piece, names, bool(names & self._launched), members)
        if (call := _MACRO_CALL.match(text)) and call[1] in self._called:
            return self._written(piece, self._called.expanded(text, piece.start))
        return None

    def _written(self, piece: outline.Piece, text: str) -> _Item | None:
        """Return a macro call as one declaration of everything in its expansion `text`; None if it is host code."""
        if text.count("{") != text.count("}"):  # one of a namespace's two braces
            return _Item(piece, frozenset(), True)
        pieces = outline.outline(text if text.rstrip().endswith(("}", ";")) else f"{text};").pieces
        parts = [part for part in pieces if not part.in_class and part.category != "record" and part.text.strip()]
        items = [item for part in parts if (item := self._item(part, []))]
        if not items or _OF_HOST.search(text):
            return None
        return _Item(piece, frozenset().union(*(item.names for item in items)), any(item.is_root for item in items))

    def _with_macros(self, words: set[str]) -> set[str]:
        """Return `words`, and the names in the expansions of the macros among them."""
        reached, pending = set(words), list(words)
        while pending:
            more = {word.rpartition("::")[2] for word in self._macros.get(pending.pop(), ())} - reached
            reached |= more
            pending += more
        return reached

    def _may_be_argument(self, piece: outline.Piece, members: list[outline.Piece]) -> bool:
        """Return whether a class may be a template argument although no kernel names it, like functors and traits.

        A functor has device functions. Traits are a template without functions that a launching function names.
        """
        functor = any(self._annotations & set(_WORD.findall(member.text)) for member in members)
        traits = (
            outline.after_template(piece.text)
            and outline.record_name(piece.text.partition("{")[0]) in self._launching
            and not any(member.category == "function" for member in members)
        )
        return bool(functor or traits)

    def _reach(self) -> list[_Item]:
        """Return the declarations that stay.

        These are kernels, other declarations that always stay, and all declarations that those use by name, directly or
        not.

        Host members of classes that stay are noted to be cut.
        """
        by_name: dict[str, list[_Item]] = {}
        for item in self._items:
            for name in item.names:
                by_name.setdefault(name, []).append(item)
        reached: dict[int, _Item] = {}

        def keep(item: _Item) -> None:
            pending = [item]
            reached[id(item)] = item
            while pending:
                words = self._words(pending.pop())
                while words:
                    word = words.pop()
                    if word in self.used:
                        continue
                    self.used.add(word)
                    last = word.rpartition("::")[2].strip()
                    words |= self._macros.get(last, frozenset()) - self.used
                    for used in by_name.get(last, ()):
                        if id(used) not in reached:
                            reached[id(used)] = used
                            pending.append(used)

        for item in self._items:
            if item.is_root:
                keep(item)
        self._declared = frozenset(by_name)
        for item in self._items:
            if id(item) not in reached and self._may_be_template_argument(item):
                keep(item)
        declared = by_name.keys() | self._macros.keys()
        for item in self._assertions:
            words = self._words(item)
            others = [used for word in words for used in by_name.get(word, ()) if id(used) not in reached]
            if not words & declared & self.used or words & self._of_host:
                continue
            if not any(_OF_HOST.search(self._outline.text, i.piece.start, i.piece.end) for i in (item, *others)):
                keep(item)
        self._items += self._assertions
        return [item for item in self._items if id(item) in reached]

    def _words(self, item: _Item) -> set[str]:
        """Return the names that a declaration uses. Its host members do not count, and are noted to be cut."""
        cut = [(self._first(member), member.end) for member in item.members if self._is_host(member)]
        self._cut += cut
        text = self._outline.text[item.piece.start : item.piece.end]
        for start, end in cut:
            low, high = start - item.piece.start, end - item.piece.start
            text = text[:low] + preprocessor.blank(text[low:high]) + text[high:]
        return preprocessor.qualified_names(text)

    def _is_host(self, member: outline.Piece) -> bool:
        """Return whether a member of a class is a host function."""
        text = outline.without_attributes(member.text)
        words = set(_WORD.findall(text))
        if member.category == "record" or words & (
            self._annotations | {"constexpr", "virtual", "override", "using", "static_assert"}
        ):
            return False
        flat = outline.without_groups(text)
        if re.search(r"=\s*(?:default|delete|0)\s*$", flat):
            return False
        return member.category == "function" or ("typedef" not in words and _MEMBER_FUNCTION.search(flat) is not None)


def _without_angles(text: str) -> str:
    """Return `text` without the template arguments after names."""
    while (shorter := _ANGLES.sub("", text)) != text:
        text = shorter
    return text


def _only(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return `text` with spaces in place of everything outside of `spans`, which are pairs of start and end offset."""
    parts, behind = [], 0
    for start, end in sorted(spans):
        start = max(start, behind)
        if start < end:
            parts += [preprocessor.blank(text[behind:start]), text[start:end]]
            behind = end
    return "".join([*parts, preprocessor.blank(text[behind:])])


def _without(text: str, cut: Iterable[tuple[int, int]]) -> str:
    """Return `text` with spaces in place of everything in `cut` except directives.

    `cut` has pairs of start and end offset.
    """
    directives = [match.span() for match in preprocessor.DIRECTIVE.finditer(preprocessor.without_literals(text))]
    parts, behind, following = [], 0, 0
    for start, end in sorted(cut):
        position = max(start, behind)
        while position < end:
            while following < len(directives) and directives[following][1] <= position:
                following += 1
            low, high = directives[following] if following < len(directives) else (end, end)
            stop = min(max(low, position), end)
            parts += [text[behind:position], preprocessor.blank(text[position:stop])]
            behind, position = stop, max(high, stop) if low < end else end
    return "".join([*parts, text[behind:]])


_OPENING: Final = re.compile(r"\w\s*<(?!<)")
#: Maximum length of a list of template arguments.
_MOST_LONG: Final = 400


def written_by_host(source: outline.Outline, annotations: Set[str]) -> tuple[set[str], set[str]]:
    """Return the names in template arguments in host functions, and the subset in arguments of kernel launches.

    Parameters
    ----------
    source : Outline
        Outline of the program.
    annotations : set of str
        Words and macros that mark a device function.
    """
    template_arguments: set[str] = set()
    launched: set[str] = set()
    for piece in source.pieces:
        if piece.category != "function" or annotations & set(_WORD.findall(piece.text)):
            continue
        body = source.text[piece.start : piece.end]
        for match in _OPENING.finditer(body):
            part = body[match.end() - 1 : match.end() + _MOST_LONG]
            end = closing_angle(part, 0)
            if end > 0 and "{" not in part[:end] and ";" not in part[:end]:
                words = _WORD.findall(part[:end])
                template_arguments.update(words)
                launched.update(words if part[end + 1 :].lstrip().startswith("<<<") else ())
    return template_arguments, launched
