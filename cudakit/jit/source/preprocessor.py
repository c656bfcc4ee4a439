"""CUDA C++ source as the preprocessor sees it: comments and literals, directives, conditions, macros.

Removed text becomes spaces, so that offsets and line numbers stay. `Conditions` decides which branches are compiled, by
the text's own macros. Macros of the command line and of CUDA's headers are unknown: conditions with them are undecided.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from cudakit.types.cpp import closing, split_at

#: A comment, a literal, or a number with separators.
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
#: A directive: its word, and the rest of its line.
DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(\w*)((?:\\\r?\n|[^\n])*)", re.MULTILINE)


def blank(text: str) -> str:
    """Return `text` with spaces in place of all characters but newlines."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def without_comments(text: str) -> str:
    """Return `text` with spaces in place of its comments."""
    return _LITERAL.sub(lambda match: blank(match[0]) if match[0][0] == "/" else match[0], text)


def without_literals(text: str) -> str:
    """Blank the comments of `text` and its literals between the quotes; most single characters stay."""
    return _LITERAL.sub(_blank_literal, text)


def _blank_literal(match: re.Match[str]) -> str:
    literal = match[0]
    if literal[0] in "/R":
        return blank(literal)
    if literal[0] in "\"'" and not re.fullmatch(r"'[A-Za-z0-9_+\-.!?@$%^&|~]'", literal):
        return literal[0] + " " * (len(literal) - 2) + literal[0]
    return literal


_DEFINED: Final = re.compile(r"defined\s*(?:\(\s*(\w+)\s*\)|(\w+))")
_GUARD: Final = re.compile(rf"!\s*{_DEFINED.pattern}")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CONSTANTS: Final = {"0": False, "false": False, "1": True, "true": True}
#: Macros that NVRTC defines.
_PREDEFINED: Final = ("__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus")


@dataclass(slots=True)
class _Conditional:
    """An open conditional.

    Attributes
    ----------
    verdict : bool or None
        Whether the current branch is compiled; None if undecided.
    tests : list of str
        Conditions of the branches so far.
    is_settled, is_unsure : bool
        Whether an earlier condition is surely true, so that no other branch is compiled; whether one is undecided.
    """

    verdict: bool | None
    tests: list[str]
    is_settled: bool
    is_unsure: bool


@dataclass(slots=True)
class _Layer:
    """Macros that an undecided branch defines (True) or undefines (False; None: undecided), and its assumptions.

    `assumed` has the conditions that are true or false inside the branch.
    """

    macros: dict[str, bool | None] = field(default_factory=dict)
    assumed: dict[str, bool] = field(default_factory=dict)


class Conditions:
    """The open conditionals at a point of a text, and the macros defined there.

    Parameters
    ----------
    *others : str
        Macros that are defined besides NVRTC's own.
    """

    def __init__(self, *others: str) -> None:
        self._open: list[_Conditional] = []
        self._layers = [_Layer(dict.fromkeys((*_PREDEFINED, *others), True))]

    @property
    def is_dead(self) -> bool:
        """True if the text at this point is surely not compiled."""
        return any(conditional.verdict is False for conditional in self._open)

    def verdict(self, word: str, rest: str) -> bool | None:
        """Return whether the condition of a directive is true; None if undecided.

        `word` is ``if``, ``ifdef`` or ``ifndef``, and `rest` the text after it.
        """
        return self._value(_test(word, rest))

    def read(self, word: str, rest: str, is_guard: bool = False) -> None:
        """Process a directive: `word` is its name, such as ``if`` or ``define``, and `rest` the text after it.

        `is_guard` is for the ``#ifndef`` around a whole header. A guard that is not surely defined counts as undefined:
        if it is defined, the header was read before, with all its includes.
        """
        if word in ("if", "ifdef", "ifndef"):
            test = _test(word, rest)
            verdict = self._value(test)
            self._enter(_Conditional(None, [], False, False), test, True if is_guard and verdict is None else verdict)
        elif word in ("elif", "elifdef", "elifndef", "else", "endif"):
            if not self._open:
                return
            conditional = self._open[-1]
            self._leave()
            if word == "else":
                self._enter(conditional, "1", True)
            elif word != "endif":
                test = _test(word.removeprefix("el"), rest)
                self._enter(conditional, test, self._value(test))
        elif word in ("define", "undef") and not self.is_dead and (name := _NAME.match(rest.lstrip())):
            self._set(name[0], word == "define")
        elif word == "pragma" and "pop_macro" in rest and (names := re.findall(r'"(\w+)"', rest)):
            self._set(names[0], None)

    def _enter(self, conditional: _Conditional, test: str, verdict: bool | None) -> None:
        """Begin a branch of `conditional` whose condition is `test`.

        `verdict` says whether `test` is true; None if undecided.
        """
        layer = _Layer()
        was_settled = conditional.is_settled
        conditional.is_settled |= verdict is True
        if was_settled:
            verdict = False
        elif conditional.is_unsure and verdict:
            verdict = None
        if verdict is None:
            for other in conditional.tests:
                layer.assumed |= _implied(other, False)
            layer.assumed |= _implied(test, True)
        conditional.verdict = verdict
        conditional.tests.append(test)
        conditional.is_unsure |= verdict is None
        self._open.append(conditional)
        if verdict is None:
            self._layers.append(layer)

    def _leave(self) -> None:
        """End the current branch. Macros defined in an undecided branch are undecided from then on."""
        if self._open.pop().verdict is not None:
            return
        layer = self._layers.pop()
        for name, value in layer.macros.items():
            # After `#ifndef X`, `#define X` the macro is defined in any case.
            is_certain = value is True and (layer.assumed.get(name) is False or self._lookup(name) is True)
            self._layers[-1].macros[name] = True if is_certain else None

    def _set(self, name: str, value: bool | None) -> None:
        self._layers[-1].macros[name] = value
        for layer in self._layers:
            for test in [test for test in layer.assumed if test != name and name in _NAME.findall(test)]:
                del layer.assumed[test]

    def _lookup(self, name: str) -> bool | None:
        """Return whether a macro is defined, or whether a condition was assumed true or false; None if undecided.

        `name` is the macro, or ``#if`` and the condition.
        """
        for layer in reversed(self._layers):
            if name in layer.macros:
                return layer.macros[name]
            if name in layer.assumed:
                return layer.assumed[name]
        return None

    def _value(self, test: str) -> bool | None:
        """Return whether a condition is true; None if undecided."""
        if (assumed := self._lookup(f"#if {test}")) is not None:
            return assumed
        for operator, decisive in (("||", True), ("&&", False)):
            parts = split_at(test, operator, "(")
            if len(parts) > 1:
                values = [self._value(part.strip()) for part in parts]
                return decisive if decisive in values else None if None in values else not decisive
        if test.startswith("!"):
            value = self._value(test[1:].strip())
            return None if value is None else not value
        if test.startswith("(") and closing(test, 0) == len(test) - 1:
            return self._value(test[1:-1].strip())
        if name := _DEFINED.fullmatch(test):
            return self._lookup(name[1] or name[2])
        return _CONSTANTS.get(test)


def is_guard(match: re.Match[str], following: re.Match[str] | None) -> bool:
    """Return whether a directive is the ``#ifndef`` of a macro that the next directive defines."""
    if following is None or following[1] != "define" or match[1] not in ("if", "ifndef"):
        return False
    name = _GUARD.match(_test(match[1], match[2]))
    return name is not None and _NAME.findall(following[2])[:1] == [name[1] or name[2]]


@dataclass(slots=True)
class Branching:
    """An ``#if`` with its branches.

    Attributes
    ----------
    branches : list of re.Match
        The directive that begins each branch.
    guard : re.Match or None
        The definition after the ``#ifndef``, if it defines the same macro.
    end : re.Match or None
        The ``#endif``; None if missing.
    """

    branches: list[re.Match[str]]
    guard: re.Match[str] | None
    end: re.Match[str] | None = None

    @property
    def is_guard(self) -> bool:
        """True if this is an include guard, which the guarded text can ignore."""
        return self.guard is not None and len(self.guard[2].split()) == 1


def branchings(directives: Iterable[re.Match[str]]) -> list[Branching]:
    """Return the conditionals among directives, in the order in which they begin."""
    directives_with_names = [match for match in directives if match[1]]
    result: list[Branching] = []
    open_ones: list[Branching] = []
    for match, following in itertools.zip_longest(directives_with_names, directives_with_names[1:]):
        if match[1] in ("if", "ifdef", "ifndef"):
            open_ones.append(Branching([match], following if is_guard(match, following) else None))
            result.append(open_ones[-1])
        elif match[1] in ("elif", "elifdef", "elifndef", "else") and open_ones:
            open_ones[-1].branches.append(match)
        elif match[1] == "endif" and open_ones:
            open_ones.pop().end = match
    return result


def _test(word: str, rest: str) -> str:
    """Return the condition of a directive as an expression on one line: ``#ifdef X`` is ``defined(X)``.

    `word` is ``if``, ``ifdef`` or ``ifndef``, and `rest` the text after it.
    """
    text = " ".join(rest.replace("\\\n", " ").split())
    if word == "if":
        return text
    name = _NAME.match(text)
    return f"{'!' if word == 'ifndef' else ''}defined({name[0] if name else text})"


def _implied(test: str, value: bool) -> dict[str, bool]:
    """Return the assumption that follows from `test` being `value`, as a dict of one entry.

    The key is the macro if the test is only a ``defined`` of it, and otherwise ``#if`` and the test.
    """
    while test.startswith("!"):
        test, value = test[1:].strip(), not value
    name = _DEFINED.fullmatch(test)
    return {name[1] or name[2]: value} if name else {f"#if {test}": value}


_DEFINE: Final = re.compile(r"\s*([A-Za-z_]\w*)\(([^)]*)\)((?s:.*))")
_DEFINE_ANY: Final = re.compile(r"\s*([A-Za-z_]\w*)(?:\([^)]*\))?((?s:.*))")
_QUALIFIED_NAME: Final = re.compile(r"(?:\bstd\s*::\s*)?\b[A-Za-z_]\w*")
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
#: Parts of a macro's body that are replaced: names, `#` before a name, and `##` between names.
_PART: Final = re.compile(
    r"(?P<comma>,\s*##\s*__VA_ARGS__)|\s*##\s*|#\s*(?P<quoted>[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)"
)
#: Maximum depth of macro expansion, and maximum length of the result.
_MOST_DEEP: Final = 12
_MOST_LONG: Final = 500_000


def words_of_macros(text: str) -> dict[str, frozenset[str]]:
    """Return each macro of a text with the names in all its definitions; names of ``std`` are qualified."""
    words: dict[str, set[str]] = {}
    for match in DIRECTIVE.finditer(without_literals(text)):
        if match[1] == "define" and (macro := _DEFINE_ANY.match(match[2])):
            words.setdefault(macro[1], set()).update(qualified_names(macro[2]))
    return {name: frozenset(names) for name, names in words.items()}


def qualified_names(text: str) -> set[str]:
    """Return the names in `text`; names of ``std`` are qualified."""
    return {"".join(name.split()) for name in _QUALIFIED_NAME.findall(text)}


class _Definition(NamedTuple):
    """A definition of a macro, valid from an offset on; the body is None for ``#undef``."""

    offset: int
    parameters: tuple[str, ...]
    body: str | None


class CalledMacros:
    """The function-like macros of a text."""

    def __init__(self, text: str) -> None:
        self._definitions: dict[str, list[_Definition]] = {}
        if "define" not in text:
            return
        whole = without_comments(text)
        for match in DIRECTIVE.finditer(without_literals(text)):
            written = whole[match.start(2) : match.end(2)]
            if match[1] == "define" and (macro := _DEFINE.match(written)):
                parameters = tuple(name.strip().replace("...", "__VA_ARGS__") for name in macro[2].split(","))
                body = " ".join(re.sub(r"\\\r?\n", " ", macro[3]).split())
                self._definitions.setdefault(macro[1], []).append(_Definition(match.start(), parameters, body))
            elif match[1] == "undef" and (name := written.strip()) in self._definitions:
                self._definitions[name].append(_Definition(match.start(), (), None))

    def __contains__(self, name: object) -> bool:
        return name in self._definitions

    def is_certain(self, name: str, at: int) -> bool:
        """Return whether only one definition of a macro is possible at offset `at`."""
        before = [definition for definition in self._definitions.get(name, ()) if definition.offset < at]
        while before and before[0].body is None:
            del before[0]
        bodies = [definition[1:] for definition in before]
        behind = max((place for place, body in enumerate(bodies) if body[1] is None), default=-1)
        return len(set(bodies[behind + 1 :])) == 1 and "__VA_OPT__" not in str(bodies[-1])

    def expanded(self, text: str, at: int, is_replaced: Callable[[str], bool] = lambda call: True) -> str:
        """Expand the macro calls in `text`, which stands at offset `at`.

        Parameters
        ----------
        text : str
            Text with calls.
        at : int
            Offset of the text in the source.
        is_replaced : callable, optional
            Function that returns whether a call, passed as text, is expanded.
        """
        for _ in range(_MOST_DEEP):
            new = self._replaced(text, at, is_replaced)
            if new == text or len(new) > _MOST_LONG:
                break
            text = new
        return text

    def _replaced(self, text: str, at: int, is_replaced: Callable[[str], bool]) -> str:
        parts, behind = [], 0
        for match in _CALL.finditer(text):
            if match.start() < behind or (definition := self._definition(match[1], at)) is None:
                continue
            end = closing(text, match.end() - 1)
            if end >= 0 and is_replaced(text[match.start() : end + 1]):
                arguments = [part.strip() for part in split_at(text[match.end() : end], brackets="(")]
                parts += [text[behind : match.start()], _body(definition, arguments)]
                behind = end + 1
        return "".join([*parts, text[behind:]])

    def _definition(self, name: str, at: int) -> _Definition | None:
        """Return a macro's definition at offset `at`, or None for an unknown macro.

        If conditionals choose among several definitions, or all follow `at`, return the longest.
        """
        definitions = [definition for definition in self._definitions.get(name, ()) if definition.body is not None]
        before = [definition for definition in definitions if definition.offset < at]
        if before and self.is_certain(name, at):
            return before[-1]
        return max(before or definitions, key=lambda definition: len(definition.body or ""), default=None)


def _body(definition: _Definition, arguments: list[str]) -> str:
    """Return the expansion of a call of a macro with these arguments."""
    parameters = definition.parameters
    last = len(parameters) - 1
    values = dict(zip(parameters, [*arguments[:last], ", ".join(arguments[last:])], strict=False))

    def value(part: re.Match[str]) -> str:
        if part["comma"]:
            return f", {values['__VA_ARGS__']}" if values.get("__VA_ARGS__") else ""
        if part["quoted"]:
            argument = values.get(part["quoted"])
            return part[0] if argument is None else json.dumps(argument, ensure_ascii=False)
        return values.get(part["name"], part["name"]) if part["name"] else ""

    return _PART.sub(value, definition.body or "")


#: The conditions with NVRTC's macros alone.
_OF_NVRTC: Final = Conditions()
_LINE: Final = re.compile(r"^#line (\d+).*\n", re.MULTILINE)
_MACRO: Final = re.compile(r"\s+([A-Za-z_]\w*)(?![\w(])((?s:.*))$")


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
        Offsets of each branch's text; without ``#else`` the last branch is empty.
    end : int
        Offset after its ``#endif``.
    texts : tuple of str
        The text of each branch, if only the first was kept because the branches share brackets with the text around
        them.
    """

    branches: tuple[tuple[int, int], ...]
    end: int
    texts: tuple[str, ...] = ()

    def crosses(self, begin: int, end: int) -> bool:
        """Return whether a branch begins or ends between `begin` and `end`."""
        return any(begin < boundary < end for branch in self.branches for boundary in branch)

    def branch_at(self, offset: int) -> int | None:
        """Return the index of the branch that contains `offset`, or None."""
        return next((i for i, (start, end) in enumerate(self.branches) if start <= offset < end), None)


def without_directives(text: str) -> tuple[str, tuple[Macro, ...], tuple[Conditional, ...]]:
    """Return `text` without comments, literals and directives, then its object-like macros and undecided conditionals.

    If NVRTC's macros decide a conditional, only the branch that is compiled stays. Inner conditionals come before outer
    ones.
    """
    reader = _Directives(without_literals(text))
    # The remaining backslashes continue lines.
    return re.sub(r"\\(?=\r?\n)", " ", reader.text), tuple(reader.macros), tuple(reader.conditionals)


def line_marks(text: str) -> tuple[tuple[int, int], ...]:
    """Return for each ``#line`` of `text` the offset after the directive, and the line number that it sets."""
    return tuple((match.end(), int(match[1])) for match in _LINE.finditer(text)) if "#line" in text else ()


def line_at(text: str, marks: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the line, counted from 1, of `offset`, as the ``#line`` before it numbers lines."""
    behind, number = next(((at, line) for at, line in reversed(marks) if at <= offset), (0, 1))
    return number + text.count("\n", behind, offset)


def conditions_around(text: str, offset: int) -> list[tuple[int, str]]:
    """Return pairs (line, text) for each preprocessor conditional around `offset`, outermost first.

    The text is the directive that begins the branch at `offset`, such as ``#else of #if X``. Include guards are left
    out.
    """
    result: list[tuple[int, str]] = []
    marks = line_marks(text)
    for group in branchings(DIRECTIVE.finditer(without_literals(text))):
        before = [match for match in group.branches if match.start() <= offset]
        if not before or (group.end is not None and group.end.start() <= offset):
            continue
        first, *_ = shown = [" ".join(f"#{match[1]}{match[2]}".split()) for match in before]
        if len(before) > 1 or not group.is_guard:
            line = line_at(text, marks, before[-1].start())
            result.append((line, f"{shown[-1]} of {first}" if len(before) > 1 else first))
    return result


@dataclass(slots=True)
class _Directives:
    """Removes the directives from `text`, and all branches that are surely not compiled."""

    text: str
    macros: list[Macro] = field(default_factory=list)
    conditionals: list[Conditional] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        directives = list(DIRECTIVE.finditer(self.text))
        self.text = DIRECTIVE.sub(lambda match: blank(match[0]), self.text)
        groups = [(g.branches, g.end) for g in branchings(directives) if g.end is not None and not g.is_guard]
        for branches, endif in sorted(groups, key=lambda group: group[1].start()):
            self._settle(branches, endif)
        for match in directives:
            if match[1] == "define" and (macro := _MACRO.match(match[2])):
                self.macros.append(Macro(macro[1], " ".join(macro[2].replace("\\\n", " ").split()), match.start()))
        self.macros = [m for m in self.macros if not any(start <= m.offset < end for start, end in self.dropped)]

    def _drop(self, start: int, end: int) -> None:
        self.dropped.append((start, end))
        self.text = self.text[:start] + blank(self.text[start:end]) + self.text[end:]

    def _settle(self, group: list[re.Match[str]], endif: re.Match[str]) -> None:
        possible: list[tuple[int, int]] = []
        certain = False
        for match, following in zip(group, [*group[1:], endif], strict=True):
            word = match[1].removeprefix("el")
            verdict = not certain and (True if word == "se" else _OF_NVRTC.verdict(word, match[2]))
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
