"""Namespace-scope declarations of CUDA C++ text, cut out of it without reading the bodies of functions.

Everything here keeps offsets: what is taken out becomes spaces, so that a position still tells the line. Knowing
only comments, literals, preprocessor conditionals and brackets, it does not stumble over what a body holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

#: Macros whose being defined NVRTC decides, so that the conditionals on them are no question.
_DEFINED: Final = frozenset({"__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus"})

_LITERAL: Final = re.compile(
    r"""//(?:\\\r?\n|[^\n])*
    | /\*.*?(?:\*/|\Z)
    | \bR"(?P<delimiter>[^\s()\\]{0,16})\(.*?\)(?P=delimiter)"
    | "(?:\\.|[^"\\\n])*"
    | \b\d\w*(?:'\w+)+
    | '(?:\\.|[^'\\\n])+'
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_MACRO: Final = re.compile(r"\s+([A-Za-z_]\w*)(?![\w(])((?s:.*))$")
_DEFINED_TEST: Final = re.compile(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?")
_ATTRIBUTE: Final = re.compile(
    r"\b(?:__launch_bounds__|__cluster_dims__|__block_size__|__maxnreg__|__attribute__|__declspec|__align__|alignas"
    r"|_Alignas|noexcept)\s*\(|\[\["
)
_BRACKET: Final = re.compile(r"[{}();]")
_PREFIX: Final = r"^(?:[\w\s]|::|:(?!:))*?"
_RECORD: Final = re.compile(
    _PREFIX + r"\b(?:struct|class|union)\b\s*(?:[A-Za-z_]\w*\s+)*?(?!final\b)"
    r"(?P<name>[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*)?\s*(?P<arguments><.*>)?\s*(?:\bfinal\s*)?(?::(?!:).*)?$",
    re.DOTALL,
)
_ENUM: Final = re.compile(_PREFIX + r"\benum\b[^()=]*$", re.DOTALL)
_NAMESPACE: Final = re.compile(r"\b(?P<inline>inline\s+)?namespace\b(?P<name>[\w:\s]*)$")
_LINKAGE: Final = re.compile(r'\bextern\s*"\s*"\s*$')
_MEMBER_INITIALISER: Final = re.compile(r"\(\)\s*(?:noexcept\s*)?:(?!:)[^;]*[\w>]\s*$")
_ASSIGNMENT: Final = re.compile(r"(?<![=!<>+\-*/%&|^])=(?!=)")


@dataclass(frozen=True, slots=True)
class Macro:
    """An object-like macro and its one-line body."""

    name: str
    body: str
    offset: int


@dataclass(frozen=True, slots=True)
class Conditional:
    """A preprocessor conditional that only the compiler can decide.

    Attributes
    ----------
    branches : tuple of (int, int)
        Offsets of each branch's text; one without ``#else`` ends with an empty branch.
    end : int
        Offset behind its ``#endif``.
    texts : tuple of str
        The text of each branch, where only the first was kept since the branches share brackets with what is around.
    """

    branches: tuple[tuple[int, int], ...]
    end: int
    texts: tuple[str, ...] = ()

    def crosses(self, begin: int, end: int) -> bool:
        """Whether a branch begins or ends between `begin` and `end`."""
        return any(begin < boundary < end for branch in self.branches for boundary in branch)

    def branch_at(self, offset: int) -> int | None:
        """Index of the branch that holds `offset`, or None."""
        return next((i for i, (start, end) in enumerate(self.branches) if start <= offset < end), None)


@dataclass(frozen=True, slots=True)
class Piece:
    """One declaration.

    Attributes
    ----------
    kind : {"function", "declaration", "record"}
        A function's head (its body left out), what ends with a semicolon (initialisers and class bodies reduced to
        ``{}``), or the head of a class.
    text : str
        Its text, attributes included.
    start : int
        Offset of `text`; up to the first ``{}``, text keeps its place.
    scope : tuple of str
        Names of the namespaces and classes around it.
    in_class : bool
        Whether the innermost scope is a class.
    """

    kind: Literal["function", "declaration", "record"]
    text: str
    start: int
    scope: tuple[str, ...]
    in_class: bool


@dataclass(frozen=True, slots=True)
class Outline:
    """Text without comments and directives, and what stands at its namespace scope."""

    text: str
    macros: tuple[Macro, ...]
    conditionals: tuple[Conditional, ...]
    pieces: tuple[Piece, ...]

    def path(self, offset: int) -> dict[int, int]:
        """Conditionals around `offset`: index of each → index of the branch."""
        found = ((i, conditional.branch_at(offset)) for i, conditional in enumerate(self.conditionals))
        return {i: branch for i, branch in found if branch is not None}


def blank(text: str) -> str:
    """Spaces in place of `text`, newlines kept."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def closing(text: str, start: int, pair: str = "()") -> int:
    """Offset of the bracket that closes the one at `start`, or -1."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(text, start):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.start()
    return -1


def closing_angle(text: str, start: int) -> int:
    """Offset of the ``>`` that closes the ``<`` at `start`, or -1; parentheses hide what they hold."""
    depth, position = 0, start
    for match in re.compile(r"->|[<>]=|<<|[<>()]").finditer(text, start):
        if match.start() < position or len(match[0]) == 2:
            continue
        if match[0] == "(":
            position = closing(text, match.start())
            if position < 0:
                return -1
        elif match[0] != ")":
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.start()
    return -1


def without_attributes(text: str) -> str:
    """`text` with every attribute that has brackets (``__launch_bounds__(…)``, ``[[…]]``, …) blanked."""
    match = _ATTRIBUTE.search(text)
    while match:
        opening = match.end() - 1
        end = closing(text, opening, "[]") + 1 if text[opening] == "[" else closing(text, opening)
        if end <= 0:
            break
        text = text[: match.start()] + blank(text[match.start() : end + 1]) + text[end + 1 :]
        match = _ATTRIBUTE.search(text, end)
    return text


def after_template(text: str) -> int:
    """Offset behind the ``template <…>`` that introduces `text`, or 0."""
    match = re.search(r"\btemplate\s*<", text)
    return closing_angle(text, match.end() - 1) + 1 if match else 0


def record_name(head: str) -> str:
    """Name of the class whose `head` this is, ``""`` where it has none."""
    head = without_attributes(head)
    found = _RECORD.match(head[after_template(head) :])
    return "".join((found["name"] or "").split()) if found else ""


def outline(text: str) -> Outline:
    """Namespace-scope declarations of CUDA C++ `text`."""
    text = _LITERAL.sub(_blank_literal, text)
    reader = _Directives(text)
    text = reader.text
    macros = tuple(reader.macros)
    renamed = {macro.name: macro.body for macro in macros if re.fullmatch(r"[A-Za-z_]\w*", macro.body)}
    return Outline(text, macros, tuple(reader.conditionals), tuple(_pieces(text, renamed)))


def _blank_literal(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] in "/R":
        return blank(found)
    if found[0] in "\"'":
        return found[0] + " " * (len(found) - 2) + found[0]
    return found


@dataclass(slots=True)
class _Directives:
    """Takes the directives out of `text`, and what their conditionals surely leave out."""

    text: str
    macros: list[Macro] = field(default_factory=list)
    conditionals: list[Conditional] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = list(_DIRECTIVE.finditer(self.text))
        self.text = _DIRECTIVE.sub(lambda match: blank(match[0]), self.text)
        groups: list[list[re.Match[str]]] = []
        for match, following in zip(found, [*found[1:], None], strict=False):
            word = match[1]
            if word in ("if", "ifdef", "ifndef"):
                groups.append([] if following and _is_guard(match, following) else [match])
            elif word in ("elif", "elifdef", "elifndef", "else") and groups and groups[-1]:
                groups[-1].append(match)
            elif word == "endif" and groups:
                if group := groups.pop():
                    self._settle(group, match)
            elif word == "define" and (macro := _MACRO.match(match[2])):
                self.macros.append(Macro(macro[1], " ".join(macro[2].replace("\\\n", " ").split()), match.start()))
        self.macros = [m for m in self.macros if not any(start <= m.offset < end for start, end in self.dropped)]

    def _drop(self, start: int, end: int) -> None:
        self.dropped.append((start, end))
        self.text = self.text[:start] + blank(self.text[start:end]) + self.text[end:]

    def _settle(self, group: list[re.Match[str]], endif: re.Match[str]) -> None:
        possible: list[tuple[int, int]] = []
        certain = False
        for match, following in zip(group, [*group[1:], endif], strict=True):
            verdict = False if certain else _verdict(match)
            if verdict is False:
                self._drop(match.end(), following.start())
            else:
                certain = verdict is True
                possible.append((match.end(), following.start()))
        if not possible or (certain and len(possible) == 1):
            return
        texts = [self.text[start:end] for start, end in possible]
        cut = not all(text.count("{") == text.count("}") and text.count("(") == text.count(")") for text in texts)
        for start, end in possible[1:] if cut else ():
            self._drop(start, end)
        if not certain:
            possible.append((endif.start(), endif.start()))
            texts.append("")
        self.conditionals.append(Conditional(tuple(possible), endif.end(), tuple(texts) if cut else ()))


def _is_guard(match: re.Match[str], following: re.Match[str]) -> bool:
    """Whether a conditional is an include guard, which the text that it guards need not heed."""
    test = _DEFINED_TEST.match(match[2].strip()) if match[1] == "if" else None
    name = match[2].strip() if match[1] == "ifndef" else test[2] if test and test[1] else None
    return name is not None and following[1] == "define" and following[2].strip() == name


def _verdict(match: re.Match[str]) -> bool | None:
    """Whether a branch is compiled: True, False, or None where only the compiler knows."""
    word, condition = match[1], match[2].strip()
    if word == "else":
        return True
    if word in ("if", "elif"):
        if condition in ("0", "false", "1", "true"):
            return condition in ("1", "true")
        test = _DEFINED_TEST.fullmatch(condition)
        return not test[1] if test and test[2] in _DEFINED else None
    return word in ("ifdef", "elifdef") if condition in _DEFINED else None


@dataclass(slots=True)
class _Scope:
    """A namespace or class that is open, and for a class the declaration that its body interrupts."""

    name: tuple[str, ...]
    in_class: bool
    start: int = 0
    holes: list[tuple[int, int]] = field(default_factory=list)
    opening: int = -1


def _pieces(text: str, renamed: dict[str, str]) -> list[Piece]:
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

    def add(kind: Literal["function", "declaration", "record"], end: int) -> None:
        pieces.append(Piece(kind, whole(end), start, scopes[-1].name, scopes[-1].in_class))

    while match := _BRACKET.search(text, position):
        offset, position = match.start(), match.end()
        if match[0] == "(":
            depth += 1
        elif match[0] == ")":
            depth = max(0, depth - 1)
        elif match[0] == ";":
            # No semicolon stands in parentheses out here: if one does, the brackets are not what they seem.
            depth = 0
            add("declaration", offset)
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
                    add("record", offset)
                    scopes.append(_Scope(outer + name, True, start, holes, offset))
                    start, holes = position, []
                case "function", _:
                    add("function", offset)
                    position = closers[offset] + 1
                    start, holes = position, []
                case "enum", _:
                    position = closers[offset] + 1
                case _:
                    position = closers[offset] + 1
                    holes.append((offset, position))
    return pieces


def _closers(text: str) -> dict[int, int]:
    """Offset of each opening brace → offset of the one that closes it (the end of `text` where none does)."""
    closers: dict[int, int] = {}
    waiting: list[int] = []
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            waiting.append(match.start())
        elif waiting:
            closers[waiting.pop()] = match.start()
    return closers | dict.fromkeys(waiting, len(text))


def _opened(head: str) -> tuple[str, tuple[str, ...]]:
    """What an opening brace behind `head` opens, and the names that it adds to the scope."""
    head = without_attributes(head)
    if _LINKAGE.search(head):
        return "namespace", ()
    if found := _NAMESPACE.search(head):
        parts = () if found["inline"] else tuple(part.split() for part in found["name"].split("::"))
        return "namespace", tuple(part[-1] for part in parts if part and part[0] != "inline")
    head = head[after_template(head) :]
    if _ENUM.match(head):
        return "enum", ()
    if found := _RECORD.match(head):
        return "record", tuple(part for part in "".join((found["name"] or "").split()).split("::") if part)
    if "(" not in head or re.search(r"\brequires\s*(?:\(.*\)\s*)?$", head, re.DOTALL):
        return "value", ()
    flat = _without_groups(head)
    if (_ASSIGNMENT.search(flat) and "operator" not in flat) or _MEMBER_INITIALISER.search(flat):
        return "value", ()
    return "function", ()


def _without_groups(head: str) -> str:
    """`head` with each parenthesised group reduced to ``()``."""
    parts, position = [], 0
    while (opening := head.find("(", position)) >= 0:
        end = closing(head, opening)
        parts.append(head[position:opening] + "()")
        position = end + 1 if end >= 0 else len(head)
    return "".join(parts) + head[position:]
