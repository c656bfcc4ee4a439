"""A reader of a source's declarations: kernels' signatures, device symbols, classes, enumerations, type aliases."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from cudakit.jit.signature import outline
from cudakit.jit.signature.grammar import Grammar
from cudakit.jit.signature.signature import Declarations, Enumeration, Signature, Symbol, TensorHead
from cudakit.jit.source.preprocessor import blank
from cudakit.types.cpp import (
    CppType,
    Named,
    Reference,
    closing,
    closing_angle,
    is_tensor,
    names_in,
    split_at,
    with_const,
    without_const,
)

_KERNEL: Final = re.compile(r"__(tile_)?global__")
_NAME: Final = r"[A-Za-z_]\w*"
_QUALIFIED: Final = rf"(?:::\s*)?{_NAME}(?:\s*::\s*{_NAME})*"
_BRACKETED_NAME: Final = re.compile(rf"\bvoid\s*(\(\s*({_NAME})\s*\))\s*\(")
_HEAD_TOKEN: Final = re.compile(rf"{_QUALIFIED}|[(<]")
_NO_NAME: Final = frozenset({"requires", "decltype", "sizeof", "noexcept", "explicit"})
_TYPE_NAME: Final = re.compile(r"[A-Za-z_][\w:\s]*(?:<.*>)?")
_STORAGE: Final = re.compile(r"\b(__constant__|__device__|__managed__)\b")
_SPECIFIERS: Final = re.compile(
    r"\b(?:__constant__|__device__|__managed__|static|inline|constexpr|constinit|extern)\b|\"\s*\""
)
_FORWARD: Final = re.compile(rf"\s*(?:struct|class|union)\s+({_NAME})\s*$")
_ENUM: Final = re.compile(
    rf"\benum\b\s*(?P<scoped>class\b|struct\b)?\s*(?P<name>{_NAME})?\s*(?::(?P<underlying>[^{{]*))?\{{(?P<body>.*)\}}\s*(?P<alias>{_NAME})?",
    re.DOTALL,
)
_ANONYMOUS: Final = re.compile(rf"\s*typedef\s+(?:struct|class|union)\s*\{{\}}\s*({_NAME})")
_CONCEPT: Final = re.compile(rf"\bconcept\s+({_NAME})\s*=")
_MOST_VARIANTS: Final = 32


def parse(text: str) -> Declarations:
    """Parse the declarations at namespace scope of CUDA C++ source.

    No text is refused. If a kernel's signature cannot be parsed, its `Signature.parameters` is None. Other unreadable
    declarations are left out.
    """
    return _Reader(outline.outline(text)).declarations()


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A declaration of a kernel, before prototypes and alternatives of the preprocessor are merged."""

    signature: Signature
    offset: int
    is_definition: bool


def _constant(cpp: CppType) -> CppType:
    return cpp if isinstance(cpp, Reference) else with_const(cpp, True)


class _Reader:
    """Converts the pieces of an outline to declarations."""

    def __init__(self, source: outline.Outline) -> None:
        self._source = source
        self._enums = tuple(self._enumerations())
        self._expansions = {m.name: m.body for m in source.macros if _KERNEL.search(m.body)}
        self._heads = re.compile(rf"\b(?:{'|'.join(self._expansions)})\b") if self._expansions else None
        self._grammar = Grammar(frozenset(self._values()), frozenset(_CONCEPT.findall(source.text)))

    def declarations(self) -> Declarations:
        kernels: list[_Kernel] = []
        symbols: dict[str, Symbol] = {}
        structs: set[str] = set()
        aliases: list[tuple[str, CppType | None]] = []
        for piece in self._source.pieces:
            if piece.category == "record":
                if name := outline.record_name(piece.text):
                    structs.add(_qualify(piece, name))
            elif _KERNEL.search(piece.text) or (self._heads and self._heads.search(piece.text)):
                if not piece.in_class and (kernel := self._kernel(piece)):
                    kernels.append(kernel)
            elif piece.category == "declaration":
                if forward := _FORWARD.match(piece.text[outline.after_template(piece.text) :]):
                    structs.add(_qualify(piece, forward[1]))
                elif not piece.in_class:
                    if unnamed := _ANONYMOUS.match(outline.without_attributes(piece.text)):
                        structs.add(_qualify(piece, unnamed[1]))
                    else:
                        aliases += self._aliases(piece)
                    for symbol in self._symbols(piece):
                        symbols.setdefault(symbol.name, symbol)
        signatures = tuple(_join(kernels, self._source))
        variables = tuple(symbols.values())
        aliases += self._macro_aliases(signatures, variables, aliases)
        return Declarations(
            signatures, variables, tuple(sorted(structs)), self._enums, tuple(_settled(aliases)), self._source.unclosed
        )

    def _kernel(self, piece: outline.Piece) -> _Kernel | None:
        begin = piece.first
        variants = list(itertools.islice(self._variants(piece), _MOST_VARIANTS + 1))
        heads = [head for variant in variants if (head := _cut(outline.without_attributes(variant)))]
        if not heads:
            return None
        readings = [self._grammar.head(head.template, head.parameters) for head in heads]
        template_parameters, parameters = readings[0]
        # If the preprocessor decides between different signatures, none is certain.
        rivals = any(
            c.branch_at(begin) == 0 and _KERNEL.search("".join(c.texts[1:])) for c in self._source.conditionals
        )
        if rivals or len(variants) > _MOST_VARIANTS or any(reading != readings[0] for reading in readings):
            parameters = None
        line = self._source.line(piece.start) + heads[0].line
        name = heads[0].name
        name = name.removeprefix("::") if name.startswith("::") else _qualify(piece, name)
        defined = piece.category == "function"
        is_tile = heads[0].is_tile
        signature = Signature(name, template_parameters, parameters, line, defined, is_tile)
        if is_tile and not (self._heads and self._heads.search(piece.text)):
            positions = [k for k, parameter in enumerate(parameters or ()) if is_tensor(parameter.type)]
            signature = signature._replace(heads=_tensor_head(piece, heads[0], positions))
        return _Kernel(signature, begin, defined)

    def _variants(self, piece: outline.Piece) -> Iterator[str]:
        """Yield the text of `piece` for each combination of preprocessor branches, first branches first.

        Only conditionals with a branch that begins or ends inside `piece` count. Branches that are not chosen are
        blank.
        """
        begin, end = piece.first, piece.start + len(piece.text)
        # Inner conditionals stand before the outer ones, which must be chosen first.
        crossing = [c for c in reversed(self._source.conditionals) if c.end > begin and c.crosses(begin, end)]
        for choice in itertools.product(*(range(len(c.branches)) for c in crossing)):
            text = piece.text
            hidden: list[tuple[int, int]] = []
            for conditional, chosen in zip(crossing, choice, strict=True):
                if any(start <= conditional.branches[0][0] < stop for start, stop in hidden):
                    continue
                for i, (start, stop) in enumerate(conditional.branches):
                    low, high = max(0, start - piece.start), max(0, stop - piece.start)
                    if i != chosen:
                        hidden.append((start, stop))
                        text = text[:low] + blank(text[low:high]) + text[high:]
                    elif conditional.texts:
                        text = text[:low] + conditional.texts[i][: high - low] + text[high:]
            yield self._heads.sub(lambda match: self._expansions[match[0]], text) if self._heads else text

    def _symbols(self, piece: outline.Piece) -> Iterator[Symbol]:
        specifiers, equals, rest = outline.without_attributes(piece.text).partition("=")
        storage = set(_STORAGE.findall(specifiers))
        if not storage or outline.after_template(specifiers) or self._is_conditional(piece):
            return
        if re.search(r"\b__shared__\b", specifiers):  # shared variables have no address outside of kernels
            return
        if re.search(r"\bextern\b", specifiers) and not equals and "{" not in specifiers:
            return
        is_constant = re.search(r"\bconstexpr\b", specifiers) is not None
        for variable in self._grammar.declaration(_SPECIFIERS.sub(" ", specifiers) + equals + rest):
            if not variable.is_function and re.fullmatch(_NAME, variable.name):
                yield Symbol(
                    _qualify(piece, variable.name),
                    _constant(variable.type) if is_constant else variable.type,
                    variable.extents,
                    constant="__constant__" in storage,
                    managed="__managed__" in storage,
                )

    def _aliases(self, piece: outline.Piece) -> Iterator[tuple[str, CppType | None]]:
        text = outline.without_attributes(piece.text)
        if not re.match(rf"\s*(?:typedef\b|using\s+{_NAME}\s*=)", text):
            return
        undecided = self._is_conditional(piece)
        for variable in self._grammar.declaration(text):
            yield _qualify(piece, variable.name), None if undecided else variable.type

    def _macro_aliases(
        self, signatures: Iterable[Signature], symbols: Iterable[Symbol], aliases: Iterable[tuple[str, CppType | None]]
    ) -> list[tuple[str, CppType | None]]:
        used = {name for _, cpp in aliases if cpp is not None for name in names_in(cpp)}
        used.update(name for symbol in symbols for name in names_in(symbol.type))
        for signature in signatures:
            used.update(name for parameter in signature.parameters or () for name in names_in(parameter.type))
            values = (parameter.value_type for parameter in signature.template_parameters)
            used.update(name for value in values if value is not None for name in names_in(value))
        result: list[tuple[str, CppType | None]] = []
        # The last macro first: it may use an earlier macro, which then counts as used too.
        for macro in reversed(self._source.macros):
            if macro.name not in used or not _TYPE_NAME.fullmatch(macro.body):
                continue
            for variable in self._grammar.declaration(f"{macro.body} x"):
                if isinstance(variable.type, Named) and not variable.type.const:
                    result.append((macro.name, None if self._source.path(macro.offset) else variable.type))
                    used.update(names_in(variable.type))
        return result[::-1]

    def _enumerations(self) -> Iterator[Enumeration]:
        for piece in self._source.pieces:
            # Long runs of spaces from blanked comments would make the pattern's time cubic.
            text = " ".join(piece.text.split()) if piece.category == "declaration" and "enum" in piece.text else ""
            if match := _ENUM.search(text):
                name = match["name"] or (match["alias"] if "typedef" in text else None)
                if name:
                    body = re.sub(r"\([^()]*\)", "", match["body"])
                    enumerators = (re.match(rf"\s*({_NAME})", part) for part in body.split(","))
                    names, is_scoped = tuple(e[1] for e in enumerators if e), match["scoped"] is not None
                    underlying = (match["underlying"] or "int" * is_scoped).strip()
                    yield Enumeration(_qualify(piece, name), names, is_scoped, underlying)

    def _values(self) -> Iterator[str]:
        """Yield names that are values by their declaration: macros for numbers, constants and enumerators."""
        yield from (macro.name for macro in self._source.macros if re.match(r"[\d(]", macro.body))
        for piece in self._source.pieces:
            words = re.findall(r"\w+", re.split(r"[={(]", piece.text, maxsplit=1)[0])
            if piece.category == "declaration" and not {"const", "constexpr"}.isdisjoint(words):
                yield words[-1]
                yield _qualify(piece, words[-1])
        for enum in self._enums:
            scopes = enum.name.split("::")
            if not enum.scoped:
                yield from enum.enumerators
            for i in range(len(scopes)):
                yield from ("::".join((*scopes[i:], enumerator)) for enumerator in enum.enumerators)

    def _is_conditional(self, piece: outline.Piece) -> bool:
        begin, end = piece.first, piece.start + len(piece.text)
        return bool(self._source.path(begin)) or any(
            c.end > begin and c.crosses(begin, end) for c in self._source.conditionals
        )


@dataclass(frozen=True, slots=True)
class _Head:
    """The parts of a kernel's signature: its name and the lines above it, its template and parameter lists.

    `offset` is the offset of the parameter list in the signature.
    """

    name: str
    line: int
    template: str
    parameters: str
    is_tile: bool
    offset: int


def _cut(text: str) -> _Head | None:
    """Split a kernel's declaration into the parts of its signature.

    Return None for a text without a kernel, and for an explicit instantiation or specialization of a template.
    """
    keyword = _KERNEL.search(text)
    if keyword is None:
        return None
    marker = keyword.start()
    template, position = "", 0
    if opening := re.search(r"\btemplate\b", text[:marker]):
        angle = re.compile(r"\s*<").match(text, opening.end())
        if angle is None:
            return None
        end = closing_angle(text, angle.end() - 1)
        if not angle.end() <= end < marker:
            # A comparison in a default argument hides where the list ends.
            end = text.rfind(">", angle.end(), marker)
        template = text[angle.end() - 1 : end + 1]
        if not template[1:-1].strip():
            return None
    position = keyword.end()
    candidates: list[tuple[re.Match[str], int]] = []
    word: re.Match[str] | None = None
    if bracketed := _BRACKETED_NAME.search(text, position):
        start, end = bracketed.span(1)
        text = f"{text[:start]} {text[start + 1 : end - 1]} {text[end:]}"
    while token := _HEAD_TOKEN.search(text, position):
        position = token.end()
        if token[0] == "<":
            position = closing_angle(text, token.start()) + 1 or position
        elif token[0] == "(":
            end = closing(text, token.start())
            if word and word[0] not in _NO_NAME:
                candidates.append((word, token.start()))
            if end < 0:
                break
            position, word = end + 1, None
        else:
            word = token
    if not candidates:
        return None
    # An attribute macro with arguments looks like a name with parameters, but stands first or has no lower case.
    plain = [candidate for candidate in candidates if not re.fullmatch(r"[A-Z0-9_]+", candidate[0][0])]
    name, start = (plain or candidates)[-1]
    end = closing(text, start)
    parameters = text[start : end + 1] if end >= 0 else text[start:]
    is_tile = keyword[1] is not None
    return _Head("".join(name[0].split()), text.count("\n", 0, name.start()), template, parameters, is_tile, start)


def _tensor_head(piece: outline.Piece, head: _Head, positions: list[int]) -> tuple[TensorHead, ...]:
    """Return a record of one declaration's tensor parameters, as a tuple of one: their offsets, and the body's.

    `positions` are the positions of the tensor parameters; without any, the tuple is empty.
    """
    if not positions:
        return ()
    places, start = [], piece.start + head.offset + 1
    for position, part in enumerate(split_at(head.parameters[1:-1])):
        if position in positions:
            begin = start + len(part) - len(part.lstrip())
            places.append((position, begin, begin + len(part.strip())))
        start += len(part) + 1
    return (TensorHead(tuple(places), piece.start + len(piece.text) + 1 if piece.category == "function" else -1),)


def _qualify(piece: outline.Piece, name: str) -> str:
    return "::".join((*piece.scope, name))


def _settled(aliases: Iterable[tuple[str, CppType | None]]) -> Iterator[tuple[str, CppType]]:
    """Yield each alias once with its type. Aliases with several types, or with an unknown type, are left out."""
    meanings: dict[str, set[CppType | None]] = {}
    for name, cpp in aliases:
        meanings.setdefault(name, set()).add(cpp)
    for name, types in meanings.items():
        if len(types) == 1 and (only := types.pop()) is not None:
            yield name, only


def _join(kernels: Iterable[_Kernel], source: outline.Outline) -> Iterator[Signature]:
    """Merge the declarations of each kernel: prototypes with definitions, and mutually exclusive definitions."""
    joined: list[_Kernel] = []
    for kernel in kernels:
        for i, other in enumerate(joined):
            if (merged := _merged(other, kernel, source)) is not None:
                joined[i] = merged
                break
        else:
            joined.append(kernel)
    return (kernel.signature for kernel in joined)


def _merged(first: _Kernel, second: _Kernel, source: outline.Outline) -> _Kernel | None:
    """Merge two declarations of one kernel; return None if they declare two kernels."""
    main, other = (second, first) if second.is_definition and not first.is_definition else (first, second)
    signature, spare = main.signature, other.signature
    if signature.name != spare.name:
        return None
    path, spare_path = source.path(main.offset), source.path(other.offset)
    exclusive = any(spare_path.get(i, branch) != branch for i, branch in path.items())
    if main.is_definition and other.is_definition and not exclusive:
        return None
    shape, spare_shape = _shape(signature), _shape(spare)
    if exclusive and shape != spare_shape:
        return replace(main, signature=signature._replace(parameters=None))
    # Two declarations may spell one type in two ways (`uint`, `unsigned int`), which only the compiler can tell.
    if shape[0] != spare_shape[0] or (shape[1] and spare_shape[1] and len(shape[1]) != len(spare_shape[1])):
        return None
    pairs = zip(signature.template_parameters, spare.template_parameters, strict=True)
    merged = tuple(p if p.default is not None else p._replace(default=q.default) for p, q in pairs)
    parameters = signature.parameters
    if parameters is not None and spare.parameters is not None:
        both = zip(parameters, spare.parameters, strict=True)
        parameters = tuple(p if p.default is not None else p._replace(default=q.default) for p, q in both)
    heads = (*signature.heads, *spare.heads)
    return replace(main, signature=signature._replace(template_parameters=merged, parameters=parameters, heads=heads))


def _shape(signature: Signature) -> tuple[tuple[object, ...], tuple[object, ...] | None]:
    """Return the template parameters and the parameter types of a signature, in a form that all declarations share.

    The form has no parameter names, and no const of parameters passed by value. The types are None if the parameters
    cannot be parsed.
    """
    numbers = {p.name: f"${i}" for i, p in enumerate(signature.template_parameters) if p.name}

    def plain(cpp: CppType | None) -> str:
        return "" if cpp is None else re.sub(r"[A-Za-z_]\w*", lambda m: numbers.get(m[0], m[0]), str(cpp))

    template = tuple((p.category, plain(p.value_type), p.pack) for p in signature.template_parameters)
    if signature.parameters is None:
        return template, None
    return template, tuple(
        (plain(without_const(p.type)).replace(" __restrict__", ""), p.pack) for p in signature.parameters
    )
