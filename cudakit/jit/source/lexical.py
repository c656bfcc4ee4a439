"""C++ text without its comments, or without what its literals hold; offsets stay, what is taken out becomes spaces."""

from __future__ import annotations

import re
from typing import Final

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
    """Spaces in place of `text`, newlines kept."""
    return "\n".join(" " * len(line) for line in text.split("\n"))


def without_comments(text: str) -> str:
    """`text` with its comments blanked."""
    return _LITERAL.sub(lambda match: blank(match[0]) if match[0][0] == "/" else match[0], text)


def without_literals(text: str) -> str:
    """`text` with its comments, and what is between its quotes, blanked; most single characters stay."""
    return _LITERAL.sub(_blank_literal, text)


def _blank_literal(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] in "/R":
        return blank(found)
    if found[0] in "\"'" and not re.fullmatch(r"'[A-Za-z0-9_+\-.!?@$%^&|~]'", found):
        return found[0] + " " * (len(found) - 2) + found[0]
    return found


def closing(text: str, start: int, pair: str = "()") -> int:
    """Offset of the bracket that closes the one at `start`, or -1."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(text, start):
        depth += 1 if match[0] == pair[0] else -1
        if depth == 0:
            return match.start()
    return -1


def split_at(text: str, operator: str) -> list[str]:
    """Parts of `text`, without spaces around them, between an operator that stands in no parentheses."""
    parts, depth, start = [], 0, 0
    for match in re.finditer(rf"[()]|{re.escape(operator)}", text):
        depth += (match[0] == "(") - (match[0] == ")")
        if depth == 0 and match[0] == operator:
            parts.append(text[start : match.start()].strip())
            start = match.end()
    return [*parts, text[start:].strip()]
