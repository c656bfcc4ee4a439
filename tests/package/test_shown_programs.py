"""Programs of their own that docs/ shows: the library, its tests and its wheel, and the workers of scale-out.md."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from support.absent import ON_MACOS, run

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


def built(library: Path, *command: str) -> None:
    """Run a build of the library, with this checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], cwd=library, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def run_without_a_compiler(folder: Path) -> None:
    """Run rowkit where nothing of NVIDIA's, no parser and no CuPy can be imported, and no kernel is cached."""
    program = """
import numpy as np, cudakit as ck, rowkit
for dtype in (np.float32, np.float64):
    assert rowkit.rescale(np.array([[1, 2, 3]], dtype)).tolist() == [[0, 0.5, 1]]
"""
    path = f"{folder}{os.pathsep}{ROOT}"
    run(program, ON_MACOS, PYTHONPATH=path, PYTHONWARNINGS="ignore::UserWarning")


@pytest.mark.slow
def test_its_wheel_runs_without_a_compiler(library: Path) -> None:
    built(library, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check", ".")
    (path,) = (library / "dist").glob("*.whl")
    with ZipFile(path) as wheel:
        wheel.extractall(library / "installed")
        names = set(wheel.namelist())
    files = ("rows.cu", "rows.ckb", "include/rowkit/scale.cuh", "py.typed", "__main__.py")
    assert {f"rowkit/{name}" for name in files} <= names
    run_without_a_compiler(library / "installed")
    package = library / "installed" / "rowkit"
    for name in ("include/rowkit/scale.cuh", "rows.cu"):  # another header, then another source
        text = (package / name).read_text()
        (package / name).write_text(f"{text}// edited\n")
        # This machine's wheels of NVRTC are still seen on disk: after the parser, the compiler is reached.
        with pytest.raises(AssertionError, match=r"pip install 'cudakit|No module named 'cuda'"):
            run_without_a_compiler(library / "installed")
        (package / name).write_text(text)
    run_without_a_compiler(library / "installed")
    (package / "rows.ckb").unlink()
    with pytest.raises(AssertionError, match="pip install 'cudakit"):
        run_without_a_compiler(library / "installed")


@pytest.mark.slow
def test_its_build_by_setuptools_has_the_bundle(library: Path) -> None:
    pytest.importorskip("setuptools")
    shutil.copy(ROOT / "docs" / "setuptools_build.py", library / "setup.py")
    project = (library / "pyproject.toml").read_text()
    (library / "pyproject.toml").write_text(
        project.replace("hatchling.build", "setuptools.build_meta")
        + '\n[tool.setuptools.package-data]\nrowkit = ["*.cu", "*.ckb", "include/rowkit/*.cuh", "py.typed"]\n'
    )
    built(library, "setup.py", "-q", "build")
    run_without_a_compiler(library / "build" / "lib")


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
