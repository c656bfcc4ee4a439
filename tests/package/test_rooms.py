"""The house rules that a linter has no word for: private names stay in their module, each module has its own name."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from support.syntax import MODULES, PACKAGE, nodes_of

#: What Python, NumPy, CuPy, torch and cuda.core begin with an underscore, and have no other word for.
FOREIGN = {
    "__cxa_demangle",
    "_asdict",
    "_C",
    "_c_contiguous",
    "_cuda_getCurrentRawStream",
    "_fields_",
    "_getframe",
    "_init",
    "_make",
    "_replace",
    "_setup_context_fn",
    "_SimpleCData",
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def own_names(nodes: Iterable[ast.AST]) -> set[str]:
    """What a module itself calls something: its definitions, its variables, and attributes that it sets on `self`."""
    found = set()
    for node in nodes:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Attribute(value=ast.Name(id="self" | "cls" | "made"), ctx=ast.Store()):
                found.add(node.attr)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple() as slots):
                found.update(element.value for element in slots.elts if isinstance(element, ast.Constant))
    return {str(name) for name in found}


def borrowed(path: Path) -> Iterator[str]:
    """Private names of other modules that a module uses."""
    own = own_names(nodes_of(path)) | FOREIGN
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom):
            yield from (f"line {node.lineno}: {alias.name}" for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if base not in ("self", "cls"):
                yield f"line {node.lineno}: {ast.unparse(node)}"


def test_no_module_uses_anothers_private_names() -> None:
    assert [f"{name_of(path)}: {use}" for path in MODULES for use in borrowed(path)] == []


def test_the_rule_sees_what_it_forbids(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from cudakit.x import _y\ndef f(a, b):\n    a._z = 1\n    return a._replace(b=b._w)\n")
    assert list(borrowed(bad)) == ["line 1: _y", "line 3: a._z", "line 4: b._w"]


def renamed(path: Path) -> Iterator[str]:
    """Modules of the package that a module imports by another name than their own."""
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("cudakit"):
            folder = PACKAGE.parent.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                is_module = (folder / f"{alias.name}.py").exists() or (folder / alias.name / "__init__.py").exists()
                if is_module and alias.asname not in (None, alias.name):
                    yield f"line {node.lineno}: {alias.name} as {alias.asname}"


def test_a_module_is_called_by_its_own_name() -> None:
    """``from cudakit.memory import accounting``, not ``… as holdings``: one word for one thing."""
    assert [f"{name_of(path)}: {use}" for path in MODULES for use in renamed(path)] == []


def test_another_name_is_seen(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("from cudakit.memory import accounting as holdings, boxes\nfrom cudakit import ops as ops\n")
    assert list(renamed(bad)) == ["line 1: accounting as holdings"]


def test_where_work_runs_is_asked_of_places_only() -> None:
    texts = {path: path.read_text(encoding="utf-8").replace("is_emulated(self)", "") for path in MODULES}
    assert not [name_of(path) for path, text in texts.items() if "is_emulated(" in text]
