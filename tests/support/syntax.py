"""The package's modules and their syntax trees, parsed once a process."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import cudakit

PACKAGE = Path(cudakit.__file__).resolve().parent
MODULES = sorted(PACKAGE.rglob("*.py"))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of a module's syntax tree, the module first."""
    return tuple(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def calls(path: Path, names: str) -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls in a module whose function, as written, matches `names` in full, each with that text."""
    if re.search(names, path.read_text(encoding="utf-8")) is None:
        return
    for node in nodes_of(path):
        if isinstance(node, ast.Call) and re.fullmatch(names, name := ast.unparse(node.func)):
            yield name, node
