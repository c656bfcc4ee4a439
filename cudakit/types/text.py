"""C++ types from text: template arguments as users write them, and the types in a demangled name."""

from __future__ import annotations

import re
from functools import cache

from cudakit.types.cpp import CppType, Named, Opaque, Pointer, Reference, Value, canonical_name, with_const

_QUALIFIERS = frozenset({"const", "volatile", "typename", "struct", "class", "enum", "union"})
_RESTRICT = frozenset({"__restrict__", "__restrict", "restrict"})


def parse_type(text: str) -> CppType:
    """The record of the C++ type `text`; what is not a plain name, pointer or template becomes `Opaque`.

    >>> str(parse_type("float const*"))
    'const float*'
    """
    if text.isidentifier() and text not in _QUALIFIERS and text not in _RESTRICT:
        return Named(canonical_name(text))
    parsed, rest = _parse(_token().findall(text))
    return Opaque(" ".join(text.split())) if parsed is None or rest else parsed


@cache
def _token() -> re.Pattern[str]:
    return re.compile(r"\s*(::|&&|[<>,*&()\[\]{}]|[^\s<>,*&()\[\]{}:]+|:)")


@cache
def _value() -> re.Pattern[str]:
    """What a template argument that is no type begins with."""
    return re.compile(r"[-+(]*[\d'\"]|true$|false$|sizeof\b|\(")


def split_arguments(text: str) -> list[str]:
    """`text` split at its top-level commas."""
    parts, depth, start = [], 0, 0
    for position, character in enumerate(text):
        if character in "<([{":
            depth += 1
        elif character in ">)]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    last = text[start:].strip()
    return [*parts, last] if last or parts else []


def _parse(tokens: list[str]) -> tuple[CppType | None, list[str]]:
    """A type from the start of `tokens`, and what is left."""
    const, dependent = False, False
    words: list[str] = []
    arguments: tuple[CppType | Value, ...] | None = None
    while tokens:
        token = tokens[0]
        if token in _QUALIFIERS:
            const, dependent = const or token == "const", dependent or token == "typename"
        elif token == "::":
            if arguments is not None:
                return None, tokens
            words.append("::")
        elif token == "<" and words and arguments is None:
            parsed, tokens = _parse_arguments(tokens[1:])
            if parsed is None:
                return None, tokens
            arguments = parsed
            continue
        elif (token[0].isalpha() or token[0] == "_") and token not in _RESTRICT and arguments is None:
            words.append(token)
        else:
            break
        tokens = tokens[1:]
    if not words or dependent:
        return None, tokens
    name = canonical_name(re.sub(r"\s*::\s*", "::", " ".join(words)).removeprefix("::"))
    result: CppType = Named(name, arguments, const)
    while tokens:
        token = tokens[0]
        if token == "*":
            result = Pointer(result)
        elif token in ("&", "&&"):
            result = Reference(result, rvalue=token == "&&")
        elif token == "const" and isinstance(result, Named | Pointer):
            result = with_const(result, True)
        elif token in _RESTRICT and isinstance(result, Pointer):
            result = result._replace(restrict=True)
        elif token != "volatile":
            break
        tokens = tokens[1:]
    return result, tokens


def _parse_arguments(tokens: list[str]) -> tuple[tuple[CppType | Value, ...] | None, list[str]]:
    """Template arguments up to the closing ``>``, and what follows it."""
    parts: list[list[str]] = [[]]
    depth = 0
    for position, token in enumerate(tokens):
        if token == ">" and depth == 0:
            made = [_argument(part) for part in parts if part]
            return tuple(made), tokens[position + 1 :]
        if token == "," and depth == 0:
            parts.append([])
            continue
        depth += (token in "<([{") - (token in ">)]}")
        parts[-1].append(token)
    return None, []


def _argument(tokens: list[str]) -> CppType | Value:
    text = " ".join(tokens).replace(" :: ", "::")
    if _value().match(text):
        return Value(text)
    parsed, rest = _parse(tokens)
    return parsed if parsed is not None and not rest else Opaque(text)
