"""Code that nvcc accepts and NVRTC, or the signature's parser, refuses, rewritten."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final

from cudakit.jit.signature import outline
from cudakit.jit.source import preprocessor
from cudakit.types.cpp import closing

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_COMPOUND: Final = re.compile(
    r"(\breturn\s*|[=,(?:]\s*|^[ \t]*#[ \t]*define[ \t]+\w+(?:\([^()]*\))?[ \t]+)"
    r"\(([ \t]*[A-Za-z_]\w*[ \t]*)\)(\s*\{)",
    re.MULTILINE,
)
_STATEMENTS: Final = re.compile(r"\(\s*\{")
_BRACKET: Final = re.compile(r"[\s\\]*\)")
_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
#: A macro whose body may define a kernel.
_KERNEL_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define\b(?:\\\r?\n|[^\n])*__global__", re.MULTILINE)
#: A constant of one value at namespace scope.
_CONSTANT: Final = re.compile(
    r"\s*(?:(?:static|inline)\s+)*(?:const\s+(?:static\s+)?\w+|\w+\s+const)\s+([A-Za-z_]\w*)\s*=(?!=)"
)


def writing(words: Set[str], macros: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return `words`, and the macros that expand to one of them, directly or by other macros.

    `macros` has for each macro the names in its body.
    """
    result = frozenset(words)
    while more := {name for name, names in macros.items() if name not in result and names & result}:
        result |= more
    return result


def with_written_kernels(text: str) -> str:
    """Return `text` with all macro calls expanded that write kernels."""
    if not _KERNEL_MACRO.search(text):
        return text
    called, macros = preprocessor.CalledMacros(text), preprocessor.words_of_macros(text)
    annotations = writing({"__global__"}, macros)
    whole = outline.outline(text)
    parts, behind = [], 0
    for piece in whole.pieces:
        head = piece.text.partition("{")[0]
        for match in () if piece.in_class else _CALL.finditer(head):
            start, opening = piece.start + match.start(), piece.start + match.end() - 1
            end = closing(whole.text, opening) + 1
            names = set(_WORD.findall(whole.text[start:end])) & annotations
            if start < behind or not end or match[1] not in called or not names - {"__global__"}:
                continue
            if not all(called.is_certain(name, start) for name in {match[1], *names} if name in called):
                continue
            call = text[start:end]
            new = called.expanded(call, start, lambda part: not annotations.isdisjoint(_WORD.findall(part)))
            # The call stays as a comment, for readers of messages.
            parts += [text[behind:start], f"/* {' '.join(call.split())} */ {new}", "\n" * call.count("\n")]
            behind = end
    return "".join([*parts, text[behind:]])


def with_computed_constants(source: outline.Outline, text: str) -> str:
    """Return `text` with ``constexpr`` for constants that other values name, as ``const float b = 2 * a;`` names ``a``.

    To NVRTC constants are variables of the device, whose values it computes from ``constexpr`` floats only. `source` is
    the outline of `text`.
    """
    variables = [piece for piece in source.pieces if piece.category == "declaration" and not piece.in_class]
    values = (source.text[piece.start : piece.end].partition("=")[2] for piece in variables)
    used = {word for value in values for word in _WORD.findall(value)}
    for piece in reversed(variables):
        match = _CONSTANT.match(source.text, piece.start, piece.end)
        if match is not None and match[1] in used:
            start = match.start() + re.search(r"\bconst\b", match[0]).start()  # type: ignore[union-attr]  # it has one
            text = f"{text[:start]}constexpr{text[start + len('const') :]}"
    return text


def without_gnu(text: str) -> str:
    """Return `text` with GNU's brace casts, ``(float2){1, 2}``, and statement expressions rewritten as C++."""
    # Without the parentheses, GNU's brace cast is C++.
    return _statements_called(_COMPOUND.sub(lambda match: f"{match[1]} {match[2]} {match[3]}", text))


def _statements_called(text: str) -> str:
    """Rewrite GNU's statement expressions, ``({ int a = f(); a; })``, as calls of lambdas."""
    position = 0
    while opening := _STATEMENTS.search(text, position):
        position = opening.end()
        end = closing(text, position - 1)
        behind = _BRACKET.match(text, end + 1) if end >= 0 else None
        body, semicolon, last = text[position:end].rstrip("; \t\n\\").rpartition(";")
        if behind and semicolon and "return" not in body:
            lead = len(last) - len(last.lstrip(" \t\n\\"))
            called = f"[&]{{{body};{last[:lead]} return {last[lead:]}; }}()"
            lines = "\\\n" * (text[opening.start() : behind.end()].count("\\\n") - called.count("\\\n"))
            text = f"{text[: opening.start()]}{called}{lines}{text[behind.end() :]}"
            position = opening.start() + 4
    return text
