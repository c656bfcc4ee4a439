"""Parameters rewritten so that tree-sitter-cuda can parse them, whose grammar knows no macros."""

from __future__ import annotations

import re
from typing import Final

from cudakit.jit.signature.outline import closing_angle
from cudakit.jit.source.lexical import closing

_PACK: Final = re.compile(r"\.\.\.(\s*\w*\s*)$")
_DEFAULT: Final = re.compile(r"(?<![=<>!])=(?!=)(.*)$", re.DOTALL)


def is_pack(parameter: str) -> bool:
    """Whether `parameter` is a pack."""
    return _PACK.search(parameter) is not None


def default_of(parameter: str) -> str | None:
    """The default argument of `parameter`, as written."""
    found = _DEFAULT.search(parameter)
    return " ".join(found[1].split()) if found else None


def split(text: str) -> list[str]:
    """Parts of `text` between the commas that no bracket holds."""
    parts, start, position = [], 0, 0
    while position < len(text):
        end = -1
        if text[position] == ",":
            parts.append(text[start:position])
            start = position + 1
        elif text[position] == "(":
            end = closing(text, position)
        elif text[position] == "<":
            end = closing_angle(text, position)
        position = max(position, end) + 1
    return [*parts, text[start:]]


def mend(parameter: str) -> str:
    """`parameter` without what the grammar lacks or cannot know.

    That is its default argument, the dots of a pack of pointers, and the macros that stand where C++ has qualifiers.
    """
    parameter = _PACK.sub(r"\1", re.sub(r"=[^=].*$", "", parameter, flags=re.DOTALL))
    parameter = re.sub(r"\b[A-Z_][A-Z0-9_]*\s*\([^()]*\)(?=\s*\w)", " ", parameter)
    # Two names behind a star or an ampersand: the first one is a macro.
    parameter = re.sub(
        r"(?<=[*&])(\s*(?:(?:const|volatile|__restrict__)\b\s*)*)([A-Za-z_]\w*)(?=\s+[A-Za-z_])",
        lambda match: match[1] + (" __restrict__ " if "restrict" in match[2].lower() else " "),
        parameter,
    )
    words = re.findall(r"(?<![\w<,:])\s*(?!const\b|volatile\b)([A-Za-z_]\w*)(?=\s+[A-Za-z_])", parameter)
    macros = [word for word in words if re.fullmatch(r"_*[A-Z][A-Z0-9_]*_[A-Z0-9_]+", word)]
    return re.sub(rf"\b(?:{'|'.join(macros)})\b", " ", parameter) if macros else parameter
