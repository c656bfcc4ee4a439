"""What the pages for contributors name exists: files, folders, and the package's functions by module or class."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import cast

import pytest
from support.syntax import MODULES, nodes_of

import cudakit as ck

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cudakit"
PAGES = ("ARCHITECTURE.md", "AGENTS.md", "CONTRIBUTING.md", "cudakit/emulator/AGENTS.md", "templates/AGENTS.md")
#: Where a path may begin, beside the page's own folder.
FOLDERS = (ROOT, PACKAGE, PACKAGE / "jit", ROOT / "templates/include", ROOT / "templates/include/cudakit")
#: What is made, and not committed.
MADE = {line.strip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()}
#: Names with dots that are PTX.
PTX = {"cp.async.bulk"}
FILE = re.compile(r"[\w./-]*\w/[\w./-]*|[\w.-]+\.(py|cuh?|md|cff|toml|txt|ya?ml|xz)")
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


def members(node: ast.Module | ast.ClassDef) -> set[str]:
    """Names that a module or class defines; of a class also what its methods set on `self`."""
    found: set[str] = set()
    for part in node.body:
        match part:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(part.name)
            case ast.AnnAssign(target=ast.Name() as target):
                found.add(target.id)
            case ast.Assign():
                found.update(target.id for target in part.targets if isinstance(target, ast.Name))
    if isinstance(node, ast.ClassDef):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
                found.add(inner.attr)
    return found


@functools.cache
def defined() -> dict[str, set[str]]:
    """Module or class → what it defines, without an import; modules and classes of one name are put together."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in MODULES:
        tree = cast(ast.Module, nodes_of(path)[0])
        found[path.parent.name if path.stem == "__init__" else path.stem] |= members(tree)
        for part in tree.body:
            if isinstance(part, ast.ClassDef):
                found[part.name] |= members(part)
    return found


@functools.cache
def names() -> set[str]:
    """Names of all files, but for what tools keep in hidden folders."""
    shown = [path for path in ROOT.iterdir() if not path.name.startswith(".") or path.name == ".ci"]
    below = [file for path in shown if path.is_dir() for file in path.rglob("*.*")]
    return {path.name for path in (*ROOT.iterdir(), *below)}


def words(page: str) -> Iterator[str]:
    """What a page has between backticks and in blocks of commands, by words, and what its links lead to."""
    text = (ROOT / page).read_text(encoding="utf-8")
    yield from re.findall(r"\]\((?!https?:)([^)#]+)", text)
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
        yield from re.sub(r"#.*", "", block).split()
    for span in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        yield from span.split()


def in_docstrings(path: Path) -> Iterator[str]:
    """Modules of cudakit, and attributes of classes, that a module's text names, as ``launch.CallShape.fixed``."""
    text = path.read_text(encoding="utf-8")
    for module, rest in re.findall(r"`cudakit((?:\.[a-z_0-9]+)+)((?:\.[A-Z_a-z]\w*)*)[`(]", text):
        folder, *names = PACKAGE, *f"{module}{rest}".split(".")[1:]
        while names and (folder / names[0]).is_dir():
            folder /= names.pop(0)
        stem = names.pop(0) if names and (folder / f"{names[0]}.py").exists() else folder.name
        yield ".".join((stem, *names))
    yield from re.findall(r"`([A-Z][a-z]\w+(?:\.\w+)+)[`(]", text)


def is_there(word: str, page: str) -> bool:
    """Whether a word names no file or function, or one that exists."""
    word = word.strip("'\",;:")
    if any(letter in word for letter in "<>*[") or word in PTX:
        return True  # a placeholder or a pattern
    if FILE.fullmatch(word):
        if "/" not in word:
            return word in names()
        return word.strip("/") in MADE or any((folder / word).exists() for folder in (*FOLDERS, (ROOT / page).parent))
    dotted = DOTTED.match(word)
    if dotted is None or word[dotted.end() :][:1] not in ("", "("):
        return True
    head, *rest = dotted[0].split(".")
    if head == "ck":
        found: object = ck
        for name in rest:
            found = getattr(found, name, None)
        return found is not None
    while rest and head in defined():
        if rest[0] not in defined()[head]:
            return False
        head, *rest = rest
        if not rest:
            return True
    if not rest:
        return True
    try:
        return resolve_name(dotted[0]) is not None
    except (ImportError, AttributeError):
        return False


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_exists(page: str) -> None:
    found = list(words(page))
    assert len(found) > 5
    assert [word for word in found if not is_there(word, page)] == []


def test_what_a_module_names_of_others_exists() -> None:
    named = [(path, word) for path in sorted(PACKAGE.rglob("*.py")) for word in in_docstrings(path)]
    assert len(named) > 20
    assert [f"{path.relative_to(PACKAGE)}: {word}" for path, word in named if not is_there(word, "AGENTS.md")] == []


ABSENT = "cudakit/no.py jit/lunch/ no.py dispatch.No Dispatcher.no dispatch.Dispatcher.no ck.no ck.ops.no(x)"
PRESENT = "cudakit/errors.py jit/launch/ dispatch.py dispatch.Dispatcher Dispatcher.add(shape) ck.ops.sum(x) Order.lock"


@pytest.mark.parametrize("word", [*ABSENT.split(), "cuda.nothing", "no.such"])
def test_what_does_not_exist_is_seen(word: str) -> None:
    assert not is_there(word, "AGENTS.md")


@pytest.mark.parametrize("word", [*PRESENT.split(), "cuda.core.launch", "templates/<concept>.cuh", "saxpy<float>", "T"])
def test_what_exists_is_found(word: str) -> None:
    assert is_there(word, "AGENTS.md")


def test_the_architecture_is_read_in_ten_minutes() -> None:
    words = re.findall(r"[^\s|]*\w[^\s|]*", (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"))
    assert len(words) < 2100  # 210 a minute


def test_every_room_is_described() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = [path.parent.name for pattern in ("*", "jit/*") for path in PACKAGE.glob(f"{pattern}/__init__.py")]
    rooms += [path.name for path in PACKAGE.glob("[a-z]*.py")]
    assert [room for room in rooms if f"`{room}/`" not in text and f"`{room}`" not in text] == []


def test_the_rooms_are_in_the_contracts_order() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (layers,) = [contract["layers"] for contract in settings["contracts"] if contract.get("containers") == ["cudakit"]]
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", text.partition("In `jit/`")[0], re.MULTILINE)
    heights = [[room in layer.split(" | ") for layer in layers].index(True) for room in table]
    assert heights == sorted(heights)
    assert set(table) | {"hazards", "installation", "jax", "math", "reports", "start", "torch"} == {
        room for layer in layers for room in layer.split(" | ")
    }
