"""Function-like macros of a text, and what their calls stand for."""

from __future__ import annotations

import re
from typing import Final

from cudakit.jit.source.lexical import DIRECTIVE, closing, split_at, without_literals

_DEFINE: Final = re.compile(r"\s*([A-Za-z_]\w*)\(([^)]*)\)((?s:.*))")
_CALL: Final = re.compile(r"([A-Za-z_]\w*)\s*\(")
_NAME: Final = re.compile(r"[A-Za-z_]\w*")
#: How often macros in what macros stand for are replaced, and how long a text that comes of it may be.
_MOST_DEEP: Final = 12
_MOST_LONG: Final = 200_000


class CalledMacros:
    """The function-like macros of a text; of several definitions the longest counts."""

    def __init__(self, text: str) -> None:
        self._bodies: dict[str, tuple[list[str], str]] = {}
        for match in DIRECTIVE.finditer(without_literals(text)) if "define" in text else ():
            if match[1] == "define" and (macro := _DEFINE.match(match[2])):
                names = [name.strip() for name in macro[2].split(",")]
                body = " ".join(macro[3].replace("\\\n", " ").split())
                if macro[1] not in self._bodies or len(body) > len(self._bodies[macro[1]][1]):
                    self._bodies[macro[1]] = names, body

    def __contains__(self, name: object) -> bool:
        return name in self._bodies

    def expanded(self, text: str) -> str:
        """`text` with its calls of macros replaced by what they stand for."""
        for _ in range(_MOST_DEEP):
            new = self._replaced(text)
            if new == text or len(new) > _MOST_LONG:
                break
            text = new
        return text

    def _replaced(self, text: str) -> str:
        parts, behind = [], 0
        for match in _CALL.finditer(text):
            end = closing(text, match.end() - 1)
            if match.start() < behind or match[1] not in self._bodies or end < 0:
                continue
            names, body = self._bodies[match[1]]
            given = split_at(text[match.end() : end], ",")
            if names[-1] == "...":
                names = [*names[:-1], "__VA_ARGS__"]
            values = dict(zip(names, [*given[: len(names) - 1], ", ".join(given[len(names) - 1 :])], strict=False))
            body = _NAME.sub(lambda name: values.get(name[0], name[0]), body)  # noqa: B023 - used at once
            parts += [text[behind : match.start()], re.sub(r"\s*##\s*", "", body)]
            behind = end + 1
        return "".join([*parts, text[behind:]])
