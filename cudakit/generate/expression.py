"""The user's C++ in generated text: placed so that the compiler's messages point into it, and looked into for names."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from cudakit.errors import CompileError, TemplateError, shortened

#: Comments, then literals: what holds no names.
_NO_CODE = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL)
_BACK = "#line back"


def placed(text: str, file: str) -> str:
    """Lines that hold `text`, in which the compiler finds line 1 of `file`; `numbered` ends the text they stand in."""
    return f'#line 1 "{file}"\n{text}\n{_BACK}\n'


def numbered(text: str, file: str) -> str:
    """Generated text in which the lines after each `placed` one are told by their own numbers, of `file`."""
    lines = text.split("\n")
    return "\n".join(f'#line {k + 2} "{file}"' if line == _BACK else line for k, line in enumerate(lines))


@functools.lru_cache(1024)
def code_of(text: str) -> str:
    """`text` without comments and literals."""
    return _NO_CODE.sub(" ", text)


@functools.lru_cache(1024)
def names_in(text: str) -> frozenset[str]:
    """The identifiers that C++ text has."""
    return frozenset(re.findall(r"(?<![\w.])[A-Za-z_]\w*", code_of(text)))


def complex_header(texts: Iterable[str | None], preamble: str) -> str:
    """What makes ``complex<float>`` a name of C++ texts that have it, as CuPy does; nothing where they do not."""
    shown = " ".join([*(text for text in texts if text), preamble])
    unqualified = re.search(r"(?<![\w:])complex\s*<", code_of(shown)) is not None
    own = re.search(r"\b(?:struct|class)\s+complex\b|\busing\s+[\w:\s]*complex\b", preamble) is not None
    return "#include <cuda/std/complex>\nusing cuda::std::complex;\n" if unqualified and not own else ""


def statement(op: str, what: str, text: str) -> str:
    """`text` as statements: ended by ``;`` where that was left out.

    Raises
    ------
    TemplateError
        For something that is no text, or none.
    """
    if not isinstance(text, str) or not text.strip():
        raise TemplateError(f"{op}: the {what} must be C++ text, got {shortened(text)}")
    return text if code_of(text).rstrip().endswith(";") else f"{text}\n;"


def check_set(op: str, what: str, text: str, names: Iterable[str], preamble: str = "") -> None:
    """Raise where statements leave out an output, which would stay as it was.

    Raises
    ------
    TemplateError
    """
    macros = names_in(preamble) if "#define" in preamble else frozenset()
    missing = [name for name in names if name not in names_in(text) | macros]
    if missing:
        raise TemplateError(f"{op}: the {what} {shortened(text)} never sets {missing[0]}; write '{missing[0]} = …'")


@functools.lru_cache(1024)
def is_set_first(body: str, name: str) -> bool:
    """Whether `body` surely assigns to a variable before it reads it: a statement ``name = …`` that always runs.

    Where in doubt the answer is no.
    """
    depth, current = 0, ""
    for character in code_of(body) + ";":
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if character == ";" and depth == 0:
            if set(re.findall(r"\w+", current)) & {name, "return", "if", "for", "while", "switch", "do", "goto"}:
                assigned = re.match(rf"\s*{name}\s*=(?!=)(.*)", current, re.DOTALL)
                return assigned is not None and re.search(rf"\b{name}\b", assigned[1]) is None
            current = ""
        else:
            current += character
    return False


def explained(error: CompileError, names: tuple[str, ...]) -> CompileError:
    """The error, with the names that an expression has where it used one that is not there.

    Without the compiler's notes on templates of cudakit's own, each hundreds of characters long; they are in the log.
    """
    text = re.sub(r"\n +(?:detected during )?instantiation of [^\n]*cudakit[^\n]*", "", str(error))
    text = re.sub(r"\n +detected during:(?!\n +instantiation of )", "", text)
    if names and re.search(r'identifier "\w+" is undefined', text):
        text += f"\nthe expression has the names {', '.join(names)}"
    made = CompileError(text)
    made.__dict__.update(error.__dict__)
    return made
