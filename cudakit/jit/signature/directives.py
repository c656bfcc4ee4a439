"""CUDA C++ text without comments, literals and preprocessor directives, and what the directives said.

Offsets stay: what is taken out becomes spaces, so that a position still tells the line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cudakit.jit.source.conditions import is_guard
from cudakit.jit.source.lexical import DIRECTIVE, blank, without_literals

#: Macros whose being defined NVRTC decides, so that the conditionals on them are no question.
_DEFINED: Final = frozenset({"__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus"})

_LINE: Final = re.compile(r"^#line (\d+).*\n", re.MULTILINE)
_MACRO: Final = re.compile(r"\s+([A-Za-z_]\w*)(?![\w(])((?s:.*))$")
_DEFINED_TEST: Final = re.compile(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?")


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


def without_directives(text: str) -> tuple[str, tuple[Macro, ...], tuple[Conditional, ...]]:
    """`text` without comments, literals and directives; its object-like macros; the conditionals left undecided.

    Of a conditional that NVRTC surely decides, only the branch that it compiles stays. Conditionals inside others
    come before them.
    """
    reader = _Directives(without_literals(text))
    # What is left are lines that go on in the next one.
    return re.sub(r"\\(?=\r?\n)", " ", reader.text), tuple(reader.macros), tuple(reader.conditionals)


def line_marks(text: str) -> tuple[tuple[int, int], ...]:
    """Offset behind each ``#line`` of `text`, and the number of the line that begins there."""
    return tuple((match.end(), int(match[1])) for match in _LINE.finditer(text)) if "#line" in text else ()


def line_at(text: str, marks: Sequence[tuple[int, int]], offset: int) -> int:
    """The line, counted from 1, of what is at `offset`, as the ``#line`` before it has it."""
    behind, number = next(((at, line) for at, line in reversed(marks) if at <= offset), (0, 1))
    return number + text.count("\n", behind, offset)


def conditions_around(text: str, offset: int) -> list[tuple[int, str]]:
    """Line and text of each ``#if`` and its kin whose branch holds `offset`, outermost first."""
    found: list[tuple[int, str]] = []
    marks = line_marks(text)
    directives = [match for match in DIRECTIVE.finditer(without_literals(text)) if match[1]]
    for match, following in itertools.zip_longest(directives, directives[1:]):
        if match.start() > offset:
            break
        line, written = line_at(text, marks, match.start()), " ".join(f"#{match[1]}{match[2]}".split())
        if match[1] in ("if", "ifdef", "ifndef"):
            found.append((0, "") if following and _is_guard(match, following) else (line, written))
        elif match[1] == "endif" and found:
            found.pop()
        elif match[1] in ("elif", "elifdef", "elifndef", "else") and found:
            opened = found[-1][1].partition(" of ")[2] or found[-1][1]
            found[-1] = line, f"{written} of {opened}"
    return [condition for condition in found if condition[0]]


@dataclass(slots=True)
class _Directives:
    """Takes the directives out of `text`, and what their conditionals surely leave out."""

    text: str
    macros: list[Macro] = field(default_factory=list)
    conditionals: list[Conditional] = field(default_factory=list)
    dropped: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        found = list(DIRECTIVE.finditer(self.text))
        self.text = DIRECTIVE.sub(lambda match: blank(match[0]), self.text)
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
    return is_guard(match, following) and len(following[2].split()) == 1


def _verdict(match: re.Match[str]) -> bool | None:
    """Whether a branch is compiled: True, False, or None where only the compiler knows."""
    word, condition = match[1], " ".join(match[2].split())
    if word == "else":
        return True
    if word in ("if", "elif"):
        if condition in ("0", "false", "1", "true"):
            return condition in ("1", "true")
        test = _DEFINED_TEST.fullmatch(condition)
        return not test[1] if test and test[2] in _DEFINED else None
    return word in ("ifdef", "elifdef") if condition in _DEFINED else None
