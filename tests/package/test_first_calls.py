"""Every public call works first: in a process of its own, in the main thread or a fresh one, whatever was imported."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support import emulated, first_calls
from support.tiers import in_tiers

ROOT = Path(__file__).parents[2]


IMPORTED, FIRST = ["", "cupy", "torch"], ["main", "thread"]


@pytest.fixture(scope="module")
def went(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], dict[tuple[str, str], str]]:
    """What went wrong with each call, by the thread in which it came first; found out once for all workers."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    params = [
        item.callspec.params for item in request.session.items if item.path == Path(__file__) and "[" in item.name
    ]

    @functools.cache
    def found(place: str, imported: str) -> dict[tuple[str, str], str]:
        file = folder / f"first-calls-{place}-{imported}"
        calls = [(case["name"], case["first"]) for case in params if case.get("imported", "") == imported]
        with FileLock(f"{file}.lock"):
            if not file.exists():
                file.write_text(_outcomes(place, imported, calls))
        return {(name, first): wrong for name, first, wrong in map(json.loads, file.read_text().splitlines())}

    return found


def _outcomes(place: str, imported: str, calls: Sequence[tuple[str, str]]) -> str:
    program = ROOT / "tests" / "support" / "first_calls.py"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, program, place, imported, os.environ["CUDAKIT_CACHE_DIR"], json.dumps(calls)]
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


@in_tiers(
    "imported, first, name",
    IMPORTED,
    FIRST,
    list(first_calls.CALLS),
    strength=None,
    quick=lambda *_: False,
    # Each call comes first in the one thread where nothing is imported, and in the other beside CuPy.
    whole=lambda imported, first, name: (
        (IMPORTED.index(imported) + FIRST.index(first) + list(first_calls.CALLS).index(name)) % 2 == 0
    ),
)
def test_a_call_comes_first(went: Any, imported: str, first: str, name: str) -> None:
    if imported and importlib.util.find_spec(imported) is None:
        pytest.skip(f"{imported} is not here")
    wrong = went("gpu" if emulated.place.is_gpu else "emulator", imported)[name, first]
    assert not wrong, wrong


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize("name", first_calls.ON_A_GPU)
@pytest.mark.parametrize("first", ["main", "thread"])
def test_a_call_of_a_gpu_comes_first(went: Any, first: str, name: str) -> None:
    assert not went("gpu", "")[name, first]


def test_copies_take_the_current_stream() -> None:
    """The two that name no stream; the processes of the others take a while."""
    program = "import cudakit as ck, numpy as np; assert ck.to_host(ck.to_device(np.arange(4.0)))[3] == 3"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
