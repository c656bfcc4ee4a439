"""The tables of docs/, made from the code or about its errors, and the drawings: whole, and in step with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.scripts import loaded

import cudakit as ck
from cudakit import cli
from cudakit.jit.source.headers import templates_folder
from cudakit.types import cpp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def fragments() -> dict[str, str]:
    made: dict[str, str] = loaded(DOCS / "tables_of_code.py").fragments()
    return made


def test_every_table_is_on_a_page(fragments: dict[str, str]) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert sorted(set(fragments) - set(re.findall(r"^```\{include\} made/(\S+)$", pages, re.MULTILINE))) == []


def test_every_type_has_a_row(fragments: dict[str, str]) -> None:
    scalars = set(re.findall(r"`([^`]+)`", fragments["scalars.md"]))
    vectors = set(re.findall(r"`([^`]+)`", fragments["vectors.md"]))
    namespaces = ("std::", "cuda::std::", "thrust::")  # the page says so above the table
    assert [
        name for name in (*cpp.SCALARS, *cpp.ML_SCALARS) if name not in scalars and not name.startswith(namespaces)
    ] == []
    assert [name for name in cpp.VECTORS if name not in vectors] == []


def test_every_template_and_header_is_there(fragments: dict[str, str]) -> None:
    for path in templates_folder().glob("*.cuh"):
        kernels = re.findall(r"^__global__[^{;]*?(\w+)\((?=[^()]*\w+[^()]*\)\s*\{)", path.read_text(), re.MULTILINE)
        assert [name for name in kernels if f"`{path.stem}/{name}`" not in fragments["templates.md"]] == []
    headers = [path.name for path in (templates_folder() / "include" / "cudakit").glob("*.cuh")]
    assert [name for name in headers if f"### `<cudakit/{name}>`" not in fragments["headers.md"]] == []


def test_every_command_is_there(fragments: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for heading in re.findall(r"^### cudakit (.*)$", fragments["commands.md"], re.MULTILINE):
        with pytest.raises(SystemExit):
            cli.main([*heading.split(), "--help"])
        for option in re.findall(r"--\w[\w-]*", capsys.readouterr().out):
            assert option == "--help" or option in fragments["commands.md"]


def is_of_environ(node: ast.AST) -> bool:
    return isinstance(node, ast.Call | ast.Subscript) and "environ" in ast.unparse(node)


def test_every_environment_variable_has_a_row(fragments: dict[str, str]) -> None:
    used = set()
    for path in (ROOT / "cudakit").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "environ" not in text:
            continue
        tree = ast.parse(text)
        reads = [tree] if path.name == "settings.py" else [node for node in ast.walk(tree) if is_of_environ(node)]
        words = [node.value for read in reads for node in ast.walk(read) if isinstance(node, ast.Constant)]
        used |= {word for word in words if isinstance(word, str) and re.fullmatch("CUDAKIT_[A-Z_]+|CUDA_DEVICE", word)}
    listed = re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", fragments["variables.md"], re.MULTILINE)
    assert {name for name, _, _ in listed} == used
    assert len(listed) == len(used) > 0


SCALE = """
template <typename T>
__global__ void scale(const T* x, T* y, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}"""
X, Y, N = np.zeros(100, np.float32), np.zeros(100, np.float32), ck.cover(100)
MISTAKES: dict[str, Callable[[Any, Any], object]] = {
    "name one of them": lambda k, s: ck.Kernel("__global__ void f() {} __global__ void g() {}"),
    "has no kernel": lambda k, s: ck.Kernel("__global__ void f() {}", "h"),
    "no __global__ function": lambda k, s: ck.Kernel("void f() {}"),
    "is missing": lambda k, s: k(s, N, X, Y, 2.0),
    "but double from": lambda k, s: k(s, N, X, Y.astype(float), 2.0, 100),
    "cannot be deduced": lambda k, s: ck.Kernel("template <int N> __global__ void f(int* x) {}")(s, N, None),
    "takes elements of": lambda k, s: k[np.float32](s, N, X, Y.astype(float), 2.0, 100),
    "takes contiguous": lambda k, s: k(s, N, X[::2], Y, 2.0, 100),
    "takes an array": lambda k, s: k(s, N, [1, 2], Y, 2.0, 100),
    "not an integer": lambda k, s: k(s, N, X, Y, 2.0, 2.5),
    "outside -2147483648": lambda k, s: k(s, N, X, Y, 2.0, 2**40),
    "expected a stream": lambda k, s: k(None, N, X, Y, 2.0, 100),
    "expected a launch configuration": lambda k, s: k(s, 256, X, Y, 2.0, 100),
    "over the limit": lambda k, s: k(s, ck.config(1, 2048), X, Y, 2.0, 100),
    "found 1 error": lambda k, s: ck.Kernel("__global__ void f(float* x) { x[0] = z; }")(s, N, X),
    "cannot open source file": lambda k, s: ck.Kernel('#include "no.h"\n__global__ void f(float* x) {}')(s, N, X),
    "copies nothing": lambda k, s: k.plan(s, N, ck.In(X), Y, 2.0, 100),
    "no CUDA driver or no GPU": lambda k, s: k.attributes(),
    "outside every array": lambda k, s: k(s, ck.cover(200), X, Y, 2.0, 200),
}


@pytest.mark.emulator
@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes_are_told_as_the_page_says(said: str) -> None:
    if "no GPU" in said and ck.has_gpu():
        pytest.skip("there is a GPU")
    with pytest.raises(ck.CudakitError) as raised:
        MISTAKES[said](ck.Kernel(SCALE), ck.emulator.stream())
    assert said in str(raised.value)
    page = (DOCS / "errors.md").read_text(encoding="utf-8")
    assert f"| `{said}` | `ck.{type(raised.value).__name__}` |" in page


def test_every_mistake_on_the_page_is_made() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    page = text.split("## Messages and remedies")[1].split("## Warnings")[0]
    assert re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE) == list(MISTAKES)


@pytest.mark.parametrize("script", ["tour_pictures", "guide_pictures"])
def test_the_drawings_are_those_of_the_script(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    for name, drawing in loaded(DOCS / f"{script}.py").drawings().items():
        assert (DOCS / "pictures" / name).read_text(encoding="utf-8") == drawing, f"run python docs/{script}.py"


def test_pictures_are_there_and_small() -> None:
    for page in DOCS.glob("*.md"):
        for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (DOCS / picture).stat().st_size <= 100_000, picture
