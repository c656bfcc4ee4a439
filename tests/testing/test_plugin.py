"""The plugin in test suites of others, each run by a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import emulated
from support.forks import completed_in_a_fork
from support.tiers import thinned

ROOT = Path(__file__).parents[2]
KERNEL = """
import numpy as np
import cudakit as ck

scale = ck.Kernel("__global__ void scale(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }")

def test_runs(cuda_stream):
    x = ck.to_device(np.ones(64, "f4"), cuda_stream)
    scale(cuda_stream, ck.config(1, 64), x)
    assert x.sum() == 128
    assert isinstance(ck.ops.sum(x, keepdims=True), np.ndarray)

def test_counts(cuda_stream, cuda_counters):
    scale(cuda_stream, ck.config(1, 64), ck.to_device(np.ones(64, "f4"), cuda_stream))
    assert cuda_counters.global_.coalescing == 1
    assert cuda_counters.shared.bank_conflicts == 0
    assert cuda_counters.global_.requests == 4

def test_counts_only_its_own(cuda_counters):
    assert cuda_counters.instructions == 0
"""


def outcome(
    folder: Path, tests: str, *options: str, conftest: str = "", alone: bool = True, fresh: bool = False
) -> tuple[str, int]:
    """What pytest prints of a suite, and its exit status.

    `alone` is without the plugins of other packages; `fresh` is in a process that has imported nothing.
    """
    (folder / "test_it.py").write_text(tests)
    (folder / "conftest.py").write_text(conftest)
    (folder / "pytest.ini").write_text("[pytest]\n")
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    arguments = ["-p", "no:cacheprovider", "-q", "-rs", *options]
    if alone:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    if alone or "cudakit" not in installed():
        arguments += ["-p", "pytest_cudakit"]

    def act() -> int:
        os.environ.update(environment)
        return int(pytest.main(arguments))

    if fresh or emulated.place.is_gpu:  # a fork of a process that has used the GPU has none
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments],
            cwd=folder, capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
    else:
        done = completed_in_a_fork(act, 120, folder)
    return done.stdout + done.stderr, done.returncode


def installed() -> list[str]:
    """Plugins that pytest finds by itself here."""
    from importlib.metadata import entry_points

    return [each.name for each in entry_points(group="pytest11")]


def test_kernels_run_on_the_emulator_and_are_counted(tmp_path: Path) -> None:
    printed, status = outcome(tmp_path, KERNEL, alone=False, fresh=True)
    assert "3 passed" in printed
    assert status == 0


def test_a_gpu_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    printed, status = outcome(tmp_path, KERNEL, "--gpu")
    assert "--gpu was given, but there is no CUDA driver or no GPU here" in printed
    assert status == 1


def test_an_option_of_that_name_stays_the_projects(tmp_path: Path) -> None:
    conftest = "def pytest_addoption(parser): parser.addoption('--gpu', default='none', choices=['none', 'a100'])"
    tests = "def test_it(request): assert request.config.getoption('--gpu') == 'a100'"
    printed, status = outcome(tmp_path, tests, "--gpu", "a100", conftest=conftest, alone=False)
    assert "1 passed" in printed
    assert status == 0


def test_a_switch_of_that_name_stays_the_projects(tmp_path: Path) -> None:
    conftest = "def pytest_addoption(parser): parser.addoption('--gpu', action='store_true', help='my own')"
    tests = "def test_it(request): assert request.config.getoption('--gpu') is False"
    assert "1 passed" in outcome(tmp_path, tests, conftest=conftest, alone=False)[0]


def test_it_costs_suites_that_do_not_use_it_nothing(tmp_path: Path) -> None:
    tests = "import sys\ndef test_it(): assert not {'cudakit', 'numpy', 'cuda'} & set(sys.modules)"
    printed, status = outcome(tmp_path, tests, fresh=True)
    assert "1 passed" in printed, printed
    assert status == 0


ASKED = """
import cudakit as ck
import pytest

made, asked = ck.emulator.stream, []

@pytest.fixture(autouse=True)
def noted(monkeypatch):
    def stream(**named):
        asked.append((named["check"], named["schedule"], named["strict"]))
        return made()

    monkeypatch.setattr(ck.emulator, "stream", stream)

def pytest_sessionfinish():
    print("asked for", asked)
"""
TAKES_A_STREAM = "def test_it(cuda_stream): pass\ndef test_counts(cuda_counters): pass\ndef test_other(): pass"


@pytest.mark.slow
def test_what_is_checked(tmp_path: Path) -> None:
    printed, _ = outcome(tmp_path, TAKES_A_STREAM, conftest=ASKED)
    assert "asked for [('raise', None, True), ('raise', None, True)]" in printed
    printed, _ = outcome(tmp_path, TAKES_A_STREAM, "--cudakit-check=warn", "--cudakit-strict=off", conftest=ASKED)
    assert "asked for [('warn', None, False), ('warn', None, False)]" in printed
    assert outcome(tmp_path, TAKES_A_STREAM, "--cudakit-check=maybe")[1] == 4


RACY = """
import numpy as np
import cudakit as ck

turned = ck.Kernel(\'\'\'__global__ void turned(float* x) {
    __shared__ float held[128];
    held[threadIdx.x] = x[threadIdx.x];
    x[threadIdx.x] = held[127 - threadIdx.x];
}\'\'\')

def test_turned(cuda_stream):
    turned(cuda_stream, ck.config(1, 128), ck.to_device(np.ones(128, "f4"), cuda_stream))
"""


def test_kernels_are_checked(tmp_path: Path) -> None:
    assert "race" in outcome(tmp_path, RACY)[0]
    assert "1 passed" in outcome(tmp_path, RACY, "--cudakit-check=off")[0]
    assert "race" in outcome(tmp_path, RACY, "--cudakit-check=warn")[0]


LATE = """
import numpy as np
import cudakit as ck

late = ck.Kernel('''__global__ void late(int* y, int* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicExch(flag, 1);
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0 && !atomicAdd(flag, 0)) y[999999] = 1;
}''')

def test_late(cuda_stream):
    y, flag = (ck.to_device(np.zeros(n, "i4"), cuda_stream) for n in (64, 1))
    late(cuda_stream, ck.config(2, 64), y, flag)

def test_other(cuda_stream):
    pass
"""


@pytest.mark.slow
def test_a_schedule_is_looked_for_and_run_again(tmp_path: Path) -> None:
    assert "2 passed" in outcome(tmp_path, LATE)[0]
    printed, status = outcome(tmp_path, LATE, "--cudakit-schedules=20")
    assert "1 failed, 1 passed" in printed
    assert status == 1
    assert "outside every array" in printed
    told = re.search(r"so with schedule=\((\d+), (\d+)\), of which 1 switch is enough", printed)
    assert told is not None
    again = f"--cudakit-schedule={told[1]},{told[2]}"
    assert f"pytest {again} 'test_it.py::test_late'" in printed
    printed, status = outcome(tmp_path, LATE, again, "--cudakit-check=off", "test_it.py::test_late")
    assert "1 failed" in printed
    assert "outside every array" in printed
    assert "the same order of threads again" not in printed


@pytest.mark.slow
def test_a_search_that_only_warns(tmp_path: Path) -> None:
    printed, status = outcome(tmp_path, LATE, "--cudakit-schedules=20", "--cudakit-check=warn")
    assert "2 passed" in printed
    assert status == 0
    assert re.search(rf"CheckWarning: late: st.global.u32 .*{re.escape(str(tmp_path / 'test_it.py'))}:8", printed)


@pytest.mark.parametrize(
    ("option", "expected"),
    thinned([("3,0,12", "(3, 0, 12)"), ("7", "7"), ("(3, 0)", "(3, 0)"), ("3,", "(3,)")], 4, several=True),
)
def test_an_order_as_it_is_written(tmp_path: Path, option: str, expected: str) -> None:
    printed, _ = outcome(tmp_path, TAKES_A_STREAM, f"--cudakit-schedule={option}", conftest=ASKED)
    assert f"asked for [('raise', {expected}, True), ('raise', {expected}, True)]" in printed


def test_options_that_mean_nothing(tmp_path: Path) -> None:
    for options in (
        ["--cudakit-schedule=later"],
        ["--cudakit-schedules=-1"],
        ["--cudakit-schedules=2", "--cudakit-check=off"],
    ):
        printed, status = outcome(tmp_path, TAKES_A_STREAM, *options)
        assert status == 4, printed


@pytest.mark.slow
def test_the_tests_of_the_page_about_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing-in-ci.md").read_text()
    files = re.findall(r"```python\n(?:# with \w+\n)?# tests/(\w+\.py)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in files] == ["test_scale.py", "test_any_launch.py"]
    for name, text in files:
        (tmp_path / name).write_text(text)
    printed, status = outcome(tmp_path, "")
    assert "3 passed" in printed
    assert status == 0


def test_its_help_is_shown(tmp_path: Path) -> None:
    printed, status = outcome(tmp_path, "", "--help")
    assert "run kernels of cuda_stream on a GPU" in printed
    assert status == 0


def test_it_is_installed_with_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert '[project.entry-points.pytest11]\ncudakit = "pytest_cudakit"' in text
    assert '"pytest_cudakit.py" = "pytest_cudakit.py"' in text


@pytest.fixture(autouse=True)
def _no_options_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
