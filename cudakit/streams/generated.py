"""Functions made of text, as `dataclasses` makes ``__init__``: what is known once is not looked up again."""

from __future__ import annotations

import linecache
import weakref
from itertools import count
from string import Template
from textwrap import indent
from types import FunctionType
from typing import Any

_numbers = count()


def fill(template: str, depth: int = 0, **parts: str) -> str:
    """A template's text with each part for its ``$name``, indented by `depth` times four spaces.

    Lines of a part are indented as the one that it stands in.
    """
    lines = []
    for line in template.splitlines(keepends=True):
        margin = line[: len(line) - len(line.lstrip())]
        lines.append(Template(line).substitute(parts).replace("\n", f"\n{margin}").removesuffix(margin))
    return indent("".join(lines), "    " * depth)


def make_function(text: str, title: str, names: dict[str, Any]) -> FunctionType:
    """The function that a text defines.

    Parameters
    ----------
    text : str
        One ``def``.
    title : str
        What tracebacks call its file, with a number that tells it from others; they show its lines.
    names : dict
        Its global names.
    """
    file = f"<{title} {next(_numbers)}>"
    code = compile(text, file, "exec")
    made: dict[str, Any] = {}
    exec(code, names, made)
    function: FunctionType
    (function,) = made.values()
    # An entry without a time is not compared with any file.
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    weakref.finalize(function.__code__, linecache.cache.pop, file, None).atexit = False
    return function
