"""The outline of CUDA C++ source: its declarations at namespace scope, found without reading function bodies.

The outline uses only brackets and a few keywords, so that code in bodies cannot confuse it. `mend` and related
functions rewrite the parameters of a signature for the grammar of tree-sitter-cuda, which knows no macros.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from cudakit.jit.source.preprocessor import (
    CalledMacros,
    Conditional,
    Macro,
    blank,
    line_at,
    line_marks,
    without_directives,
)
from cudakit.types.cpp import closing, closing_angle

_ATTRIBUTE: Final = re.compile(
    r"\b(?:__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__|__declspec|__align__|alignas"
    r"|_Alignas|noexcept)\s*\(|\[\["
)
#: The attributes that CUDA's keywords expand to.
_GLOBAL_ATTRIBUTE: Final = re.compile(r"__attribute__\s*\(\(\s*(?:__)?(global|device|constant|shared)(?:__)?\s*\)\)")
_BRACKET: Final = re.compile(r"[{}();]")
_CLASS_KEY: Final = re.compile(r"\b(?:struct|class|union)\b")
_ENUM_KEY: Final = re.compile(r"\benum\b")
_SPECIFIERS: Final = re.compile(r"[\w\s:]*")
_WORD: Final = re.compile(r"\s*([A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)")
_NAMESPACE: Final = re.compile(r"\b(?P<inline>inline\s+)?namespace\b(?P<name>[\w:\s]*)$")
_LINKAGE: Final = re.compile(r'\bextern\s*"\s*"\s*$')
_MEMBER_INITIALISER: Final = re.compile(r"\(\)\s*(?:noexcept\s*)?:(?!:)[^;]*[\w>]\s*$")
#: A requires-expression, which something must stand before; a clause may end a function's head.
_REQUIREMENT: Final = re.compile(r"(?:\brequires|=|&&|\|\||!)\s*requires\s*(?:\(\)\s*)?$")
_CALL: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*")
_SEMICOLON: Final = re.compile(r"\s*;")
#: The end of text that is not the beginning of a declaration.
_COMPLETE: Final = re.compile(r"(?:^|[;}]|\bnamespace\b[\w\s:]*\{)\s*$")
#: Text after a line that is a complete declaration.
_DECLARATION: Final = re.compile(
    r"[ \t]*\r?\n\s*(?:struct|class|union|enum|template|typedef|using|namespace|__global__|__device__|__host__)\b"
)
_ASSIGNMENT: Final = re.compile(r"(?<![=!<>+\-*/%&|^])=(?!=)")


@dataclass(frozen=True, slots=True)
class Piece:
    """A declaration.

    Attributes
    ----------
    category : {"function", "declaration", "record"}
        A function's signature (its body left out), text up to a semicolon (initialisers and class bodies reduced to
        ``{}``), or the head of a class.
    text : str
        Source of the declaration, attributes included.
    start, end : int
        Offset of `text`, and the offset after its semicolon or body. Up to the first ``{}``, offsets in `text` are
        exact.
    scope : tuple of str
        Names of the enclosing namespaces and classes.
    in_class : bool
        Whether the innermost scope is a class.
    """

    category: Literal["function", "declaration", "record"]
    text: str
    start: int
    end: int
    scope: tuple[str, ...]
    in_class: bool

    @property
    def first(self) -> int:
        """Offset of the first character that is no space."""
        return self.start + len(self.text) - len(self.text.lstrip())


@dataclass(frozen=True, slots=True)
class Outline:
    """Source without comments and directives, its declarations at namespace scope, and the line of an unclosed brace.

    `lines` has for each ``#line`` the offset at which it takes effect, and its number.
    """

    text: str
    macros: tuple[Macro, ...]
    conditionals: tuple[Conditional, ...]
    pieces: tuple[Piece, ...]
    unclosed: int | None = None
    lines: tuple[tuple[int, int], ...] = ()

    def line(self, offset: int) -> int:
        """Return the line of `offset`, counted from 1 and numbered as ``#line`` says."""
        return line_at(self.text, self.lines, offset)

    def path(self, offset: int) -> dict[int, int]:
        """Return the conditionals around `offset`: index of the conditional → index of its branch."""
        branches = ((i, conditional.branch_at(offset)) for i, conditional in enumerate(self.conditionals))
        return {i: branch for i, branch in branches if branch is not None}


def without_attributes(text: str) -> str:
    """Blank every attribute with brackets (``__launch_bounds__(…)``, ``[[…]]``, …)."""
    match = _ATTRIBUTE.search(text)
    while match:
        opening = match.end() - 1
        end = closing(text, opening) + (text[opening] == "[")
        if end <= 0:
            break
        text = text[: match.start()] + blank(text[match.start() : end + 1]) + text[end + 1 :]
        match = _ATTRIBUTE.search(text, end)
    return text


def after_template(text: str) -> int:
    """Return the offset after the ``template <…>`` that introduces `text`, or 0."""
    match = re.search(r"\btemplate\s*<", text)
    return closing_angle(text, match.end() - 1) + 1 if match else 0


def record_name(head: str) -> str | None:
    """Return the name of the class that `head` defines: ``""`` if it is unnamed, None if there is no class."""
    head = without_attributes(head)
    head = head[after_template(head) :]
    key = _CLASS_KEY.search(head)
    if key is None or not _SPECIFIERS.fullmatch(head[: key.start()]):
        return None
    name, position = "", key.end()
    while word := _WORD.match(head, position):
        # The last word is the name; macros with attributes stand before it.
        name = name if word[1] == "final" else "".join(word[1].split())
        position = word.end()
    rest = head[position:].lstrip()
    if rest.startswith("<"):
        rest = rest[closing_angle(rest, 0) + 1 :].lstrip().removeprefix("final").lstrip()
    return name if not rest or re.match(r":(?!:)", rest) else None


def outline(text: str) -> Outline:
    """Find the declarations at namespace scope of CUDA C++ source."""
    lines = line_marks(text)
    called = CalledMacros(text)
    text, macros, conditionals = without_directives(_GLOBAL_ATTRIBUTE.sub(_keyword, text))
    renamed = {macro.name: macro.body for macro in macros if re.fullmatch(r"[A-Za-z_]\w*", macro.body)}
    pieces = tuple(_pieces(text, renamed, called))
    opening = next((start for start, end in sorted(_closers(text).items()) if end == len(text)), None)
    result = Outline(text, macros, conditionals, pieces, lines=lines)
    return result if opening is None else replace(result, unclosed=result.line(opening))


def _keyword(attribute: re.Match[str]) -> str:
    return f"__{attribute[1]}__".ljust(len(attribute[0])) if "\n" not in attribute[0] else attribute[0]


@dataclass(slots=True)
class _Scope:
    """An open namespace or class; for a class also the declaration that its body interrupts."""

    name: tuple[str, ...]
    in_class: bool
    start: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    opening: int = -1


def _pieces(text: str, renamed: dict[str, str], called: CalledMacros) -> list[Piece]:
    closers = _closers(text)
    pieces: list[Piece] = []
    scopes = [_Scope((), in_class=False)]
    holes: list[tuple[int, int]] = []
    start = position = depth = 0

    def whole(end: int) -> str:
        parts, behind = [], start
        for opening, hole_end in holes:
            parts.append(text[behind:opening] + "{}")
            behind = hole_end
        return "".join(parts) + text[behind:end]

    def add(category: Literal["function", "declaration", "record"], end: int, behind: int) -> None:
        pieces.append(Piece(category, whole(end), start, behind, scopes[-1].name, scopes[-1].in_class))

    while match := _BRACKET.search(text, position):
        offset, position = match.start(), match.end()
        if match[0] == "(":
            end = 0 if depth or holes else _end_of_call(text, start, offset, called)
            if end:
                add("declaration", end, end)
                start = position = end
            else:
                depth += 1
        elif match[0] == ")":
            depth = max(0, depth - 1)
        elif match[0] == ";":
            # No semicolon is inside parentheses here, or the brackets are unbalanced.
            depth = 0
            add("declaration", offset, position)
            start, holes = position, []
        elif match[0] == "}":
            depth, start, holes = 0, position, []
            if len(scopes) > 1:
                scope = scopes.pop()
                if scope.opening >= 0:
                    start, holes = scope.start, [*scope.holes, (scope.opening, position)]
        elif depth:
            position = closers[offset] + 1
        else:
            outer = scopes[-1].name
            match _opened(whole(offset)):
                case "namespace", name:
                    scopes.append(_Scope(outer + tuple(renamed.get(part, part) for part in name), in_class=False))
                    start, holes = position, []
                case "record", name:
                    add("record", offset, position)
                    scopes.append(_Scope(outer + name, True, start, holes, offset))
                    start, holes = position, []
                case "function", _:
                    position = closers[offset] + 1
                    add("function", offset, position)
                    start, holes = position, []
                case "enum", _:
                    position = closers[offset] + 1
                case _:
                    position = closers[offset] + 1
                    holes.append((offset, position))
    return pieces


def _end_of_call(text: str, start: int, opening: int, called: CalledMacros) -> int:
    """Return the offset after a macro call that is a complete declaration; 0 if the text is no such call.

    The call's text begins at `start`, and its bracket opens at `opening`. A complete call expands to text that needs no
    semicolon or opens a namespace. A call of an unknown macro counts if its name is upper-case and a declaration
    follows.
    """
    name = _CALL.fullmatch(text, start, opening)
    end = closing(text, opening) + 1 if name else 0
    if name is None or end == 0 or _SEMICOLON.match(text, end):
        return 0
    if name[1] in called:
        return end if _COMPLETE.search(called.expanded(text[name.start(1) : end], start)) else 0
    return end if name[1].isupper() and _DECLARATION.match(text, end) else 0


def _closers(text: str) -> dict[int, int]:
    """Map the offset of each opening brace to the offset of its closing brace, or to the end of `text` without one."""
    closers: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            waiting.append(match.start())
        elif waiting:
            closers[waiting.pop()] = match.start()
    return closers | dict.fromkeys(waiting, len(text))


def _opened(head: str) -> tuple[str, tuple[str, ...]]:
    """Return what a brace after the text `head` opens, and the names that it adds to the scope.

    The first is ``namespace``, ``enum``, ``record`` (a class), ``function``, or ``value`` for an initialiser.
    """
    head = without_attributes(head)
    if _LINKAGE.search(head):
        return "namespace", ()
    if match := _NAMESPACE.search(head):
        parts = () if match["inline"] else tuple(part.split() for part in match["name"].split("::"))
        return "namespace", tuple(part[-1] for part in parts if part and part[0] != "inline")
    head = head[after_template(head) :]
    key = _ENUM_KEY.search(head)
    if key and _SPECIFIERS.fullmatch(head[: key.start()]) and not re.search("[()=]", head[key.end() :]):
        return "enum", ()
    name = record_name(head)
    if name is not None:
        return "record", tuple(part for part in name.split("::") if part)
    if "(" not in head:
        return "value", ()
    flat = without_groups(head)
    is_initialised = _ASSIGNMENT.search(flat) and "operator" not in flat
    if is_initialised or _MEMBER_INITIALISER.search(flat) or _REQUIREMENT.search(flat):
        return "value", ()
    return "function", ()


def without_groups(head: str) -> str:
    """Return `head` on one line, each parenthesised group reduced to ``()``."""
    parts, position = [], 0
    while (opening := head.find("(", position)) >= 0:
        end = closing(head, opening)
        parts.append(head[position:opening] + "()")
        position = end + 1 if end >= 0 else len(head)
    return " ".join(("".join(parts) + head[position:]).split())


_PACK: Final = re.compile(r"\.\.\.(\s*\w*\s*)$")
_DEFAULT: Final = re.compile(r"(?<![=<>!])=(?!=)(.*)$", re.DOTALL)


def is_pack(parameter: str) -> bool:
    """Return whether `parameter`, the text of a function parameter, is a parameter pack (``...``)."""
    return _PACK.search(parameter) is not None


def default_of(parameter: str) -> str | None:
    """Return the default argument of `parameter` as written, or None."""
    match = _DEFAULT.search(parameter)
    return " ".join(match[1].split()) if match else None


def mend(parameter: str) -> str:
    """Remove what the grammar does not know from `parameter`.

    Removed are its default argument, the dots of a pack of pointers, and macros that stand in place of qualifiers.
    """
    parameter = _PACK.sub(r"\1", re.sub(r"=[^=].*$", "", parameter, flags=re.DOTALL))
    parameter = re.sub(r"\b[A-Z_][A-Z0-9_]*\s*\([^()]*\)(?=\s*\w)", " ", parameter)
    # Of two names after a star or an ampersand, the first is a macro.
    parameter = re.sub(
        r"(?<=[*&])(\s*(?:(?:const|volatile|__restrict__)\b\s*)*)([A-Za-z_]\w*)(?=\s+[A-Za-z_])",
        lambda match: match[1] + (" __restrict__ " if "restrict" in match[2].lower() else " "),
        parameter,
    )
    words = re.findall(r"(?<![\w<,:])\s*(?!const\b|volatile\b)([A-Za-z_]\w*)(?=\s+[A-Za-z_])", parameter)
    macros = [word for word in words if re.fullmatch(r"_*[A-Z][A-Z0-9_]*_[A-Z0-9_]+", word)]
    return re.sub(rf"\b(?:{'|'.join(macros)})\b", " ", parameter) if macros else parameter
