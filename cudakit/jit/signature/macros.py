"""Function-like macros of a text, and what their calls stand for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from cudakit.jit.source.lexical import DIRECTIVE, closing, split_at, without_comments, without_literals

_DEFINE: Final = re.compile(r"\s*([A-Za-z_]\w*)\(([^)]*)\)((?s:.*))")
_DEFINE_ANY: Final = re.compile(r"\s*([A-Za-z_]\w*)(?:\([^)]*\))?((?s:.*))")
_QUALIFIED_NAME: Final = re.compile(r"(?:\bstd\s*::\s*)?\b[A-Za-z_]\w*")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
#: What is replaced in the body of a macro: names, what is before a name, and what joins two.
_PART: Final = re.compile(
    r"(?P<comma>,\s*##\s*__VA_ARGS__)|\s*##\s*|#\s*(?P<quoted>[A-Za-z_]\w*)|(?P<name>[A-Za-z_]\w*)"
)
#: How often macros in what macros stand for are replaced, and how long a text that comes of it may be.
_MOST_DEEP: Final = 12
_MOST_LONG: Final = 500_000


def words_of_macros(text: str) -> dict[str, frozenset[str]]:
    """Each macro of a text, with the names in all its definitions; those of ``std`` are qualified."""
    words: dict[str, set[str]] = {}
    for match in DIRECTIVE.finditer(without_literals(text)):
        if match[1] == "define" and (macro := _DEFINE_ANY.match(match[2])):
            words.setdefault(macro[1], set()).update(qualified_names(macro[2]))
    return {name: frozenset(names) for name, names in words.items()}


def qualified_names(text: str) -> set[str]:
    """Names in `text`, those of ``std`` qualified."""
    return {"".join(name.split()) for name in _QUALIFIED_NAME.findall(text)}


class _Definition(NamedTuple):
    """A macro from an offset on; without a body where it is undefined there."""

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
        """Whether one definition of a macro alone can count at offset `at`."""
        before = [definition for definition in self._definitions.get(name, ()) if definition.offset < at]
        while before and before[0].body is None:
            del before[0]
        bodies = [definition[1:] for definition in before]
        behind = max((place for place, body in enumerate(bodies) if body[1] is None), default=-1)
        return len(set(bodies[behind + 1 :])) == 1 and "__VA_OPT__" not in str(bodies[-1])

    def expanded(self, text: str, at: int, wanted: Callable[[str], bool] = lambda call: True) -> str:
        """`text`, which stands at offset `at`, with its calls of macros replaced by what they stand for.

        Parameters
        ----------
        text : str
        at : int
        wanted : callable, optional
            Which calls are replaced, by their text.
        """
        for _ in range(_MOST_DEEP):
            new = self._replaced(text, at, wanted)
            if new == text or len(new) > _MOST_LONG:
                break
            text = new
        return text

    def _replaced(self, text: str, at: int, wanted: Callable[[str], bool]) -> str:
        parts, behind = [], 0
        for match in _CALL.finditer(text):
            if match.start() < behind or (definition := self._definition(match[1], at)) is None:
                continue
            end = closing(text, match.end() - 1)
            if end >= 0 and wanted(text[match.start() : end + 1]):
                parts += [text[behind : match.start()], _body(definition, split_at(text[match.end() : end], ","))]
                behind = end + 1
        return "".join([*parts, text[behind:]])

    def _definition(self, name: str, at: int) -> _Definition | None:
        """The definition that counts at offset `at`; the longest where conditionals choose, or all stand behind it."""
        known = [definition for definition in self._definitions.get(name, ()) if definition.body is not None]
        before = [definition for definition in known if definition.offset < at]
        if before and self.is_certain(name, at):
            return before[-1]
        return max(before or known, key=lambda definition: len(definition.body or ""), default=None)


def _body(definition: _Definition, arguments: list[str]) -> str:
    """What a call of a macro stands for."""
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
