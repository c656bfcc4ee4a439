"""What pyright knows of the package, as a user's editor asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KNOWN = 0.95
PROGRAM = """
from typing import Any, assert_type

import numpy as np

import cudakit as ck


@ck.fuse
def scaled(x: np.ndarray, by: float = 2.0) -> np.ndarray:
    return x * by


@ck.fuse(static=("n",))
def both(x: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    return x * n, x


x = np.ones(3)
assert_type(scaled(x, by=3.0), np.ndarray)
assert_type(both(x, 2), tuple[np.ndarray, np.ndarray])
assert_type(scaled(x, out=x, stream=None), np.ndarray)
assert_type(scaled.source, str)
assert_type(ck.config(1, 32), ck.Config)
assert_type(ck.cover(x.size), ck.Cover)
with ck.capture(ck.emulator.stream()) as graph:
    assert_type(graph, ck.Graph)
kernel = ck.Kernel("__global__ void f() {}")
assert_type(kernel[np.float32], ck.Kernel)
assert_type(kernel.ptx(), str)
assert_type(kernel.plan(None, ck.config(1, 32)), ck.Plan)
scaled()  # wrong
scaled("x")  # wrong
scaled(x, of=1)  # wrong
both(x)  # wrong
ck.cover(x.size, blok=3)  # wrong
ck.stream("emulator", 3)  # wrong
"""


def run_pyright(*arguments: str) -> dict[str, Any]:
    pytest.importorskip("pyright", reason="pyright is not installed; pip install -e . --group dev")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *arguments], capture_output=True, text=True, env=environment
    )
    assert found.stdout, found.stderr
    result: dict[str, Any] = json.loads(found.stdout)
    return result


@pytest.mark.slow
def test_the_types_of_the_package_are_known() -> None:
    completeness = run_pyright("--verifytypes", "cudakit", "--ignoreexternal")["typeCompleteness"]
    unknown = [symbol["name"] for symbol in completeness["symbols"] if not symbol["isTypeKnown"]]
    assert completeness["completenessScore"] >= KNOWN, unknown


@pytest.mark.slow
def test_a_user_s_program_is_checked(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    found = run_pyright("--pythonpath", sys.executable, str(program))["generalDiagnostics"]
    wrong = {each["range"]["start"]["line"] for each in found}
    assert wrong == {k for k, line in enumerate(PROGRAM.splitlines()) if line.endswith("# wrong")}, found
