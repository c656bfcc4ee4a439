"""Programs of their own that docs/ shows: the library, its tests and its wheel, and the workers of scale-out.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def library(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(ROOT / "docs" / "library", tmp_path / "library", ignore=ignored)


@pytest.mark.slow
def test_its_tests_pass(library: Path, request: pytest.FixtureRequest) -> None:
    switch = ["--gpu"] if request.config.getoption("--gpu") else ["-W", "ignore::cudakit.EmulatorWarning"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *switch],
        cwd=library,
        env={**os.environ, "PYTHONPATH": f"{library / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "14 passed" in done.stdout or "15 passed" in done.stdout


@pytest.mark.slow
def test_its_wheel_has_kernels_and_headers(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(library)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (library / "dist").glob("*.whl")
    names = set(ZipFile(wheel).namelist())
    assert {"rowkit/rows.cu", "rowkit/include/rowkit/scale.cuh", "rowkit/py.typed", "rowkit/__main__.py"} <= names


@pytest.mark.slow
def test_the_workers_of_scale_out() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "scale_out.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "right, in 4 bands\n", done.stderr
