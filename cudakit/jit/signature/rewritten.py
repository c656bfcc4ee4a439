"""What nvcc takes and NVRTC, or the reading of signatures, does not: written as both take it."""

from __future__ import annotations

import re
from typing import Final

from cudakit.jit.signature.macros import CalledMacros, words_of_macros
from cudakit.jit.signature.outline import outline
from cudakit.jit.source.lexical import closing

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_COMPOUND: Final = re.compile(
    r"(\breturn\s*|[=,(?:]\s*|^[ \t]*#[ \t]*define[ \t]+\w+(?:\([^()]*\))?[ \t]+)"
    r"\(([ \t]*[A-Za-z_]\w*[ \t]*)\)(\s*\{)",
    re.MULTILINE,
)
_STATEMENTS: Final = re.compile(r"\(\s*\{")
_BRACKET: Final = re.compile(r"[\s\\]*\)")
_CALL: Final = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
#: Whether a macro's body may have a kernel.
_KERNEL_MACRO: Final = re.compile(r"^[ \t]*#[ \t]*define\b(?:\\\r?\n|[^\n])*__global__", re.MULTILINE)


def with_written_kernels(text: str) -> str:
    """`text` with what macros write in the place of their calls, where that is kernels."""
    if not _KERNEL_MACRO.search(text):
        return text
    called, macros = CalledMacros(text), words_of_macros(text)
    writing = {"__global__"}
    while more := {name for name, words in macros.items() if name not in writing and words & writing}:
        writing |= more
    whole = outline(text)
    parts, behind = [], 0
    for piece in whole.pieces:
        head = piece.text.partition("{")[0]
        for match in () if piece.in_class else _CALL.finditer(head):
            start, opening = piece.start + match.start(), piece.start + match.end() - 1
            end = closing(whole.text, opening) + 1
            names = set(_WORD.findall(whole.text[start:end])) & writing
            if start < behind or not end or match[1] not in called or not names - {"__global__"}:
                continue
            if not all(called.is_certain(name, start) for name in {match[1], *names} if name in called):
                continue
            call = text[start:end]
            new = called.expanded(call, start, lambda part: not writing.isdisjoint(_WORD.findall(part)))
            # The call stays as a comment, for who reads the line in a message.
            parts += [text[behind:start], f"/* {' '.join(call.split())} */ {new}", "\n" * call.count("\n")]
            behind = end
    return "".join([*parts, text[behind:]])


def without_gnu(text: str) -> str:
    """`text` with C++ for GNU's casts of braces, ``(float2){1, 2}``, and statements in brackets."""
    # Without the brackets a cast of braces is C++.
    return _statements_called(_COMPOUND.sub(lambda match: f"{match[1]} {match[2]} {match[3]}", text))


def _statements_called(text: str) -> str:
    """`text` with GNU's statements in brackets, ``({ int a = f(); a; })``, as calls of lambdas."""
    position = 0
    while opening := _STATEMENTS.search(text, position):
        position = opening.end()
        end = closing(text, position - 1, "{}")
        behind = _BRACKET.match(text, end + 1) if end >= 0 else None
        body, semicolon, last = text[position:end].rstrip("; \t\n\\").rpartition(";")
        if behind and semicolon and "return" not in body:
            lead = len(last) - len(last.lstrip(" \t\n\\"))
            called = f"[&]{{{body};{last[:lead]} return {last[lead:]}; }}()"
            lines = "\\\n" * (text[opening.start() : behind.end()].count("\\\n") - called.count("\\\n"))
            text = f"{text[: opening.start()]}{called}{lines}{text[behind.end() :]}"
            position = opening.start() + 4
    return text
