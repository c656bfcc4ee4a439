"""Programs that are run, checked and debugged in this process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import cudakit as ck
from cudakit import reports
from cudakit.adapters import program
from cudakit.adapters.program import Program, Ran, debug, examine, fault_of
from cudakit.emulator.checks.findings import Finding

pytestmark = pytest.mark.emulator
SCALE = '''
import sys
import numpy as np
import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= 2;
}""")
x = ck.to_device(np.ones(100, "f4"))
scale(ck.stream(), ck.config(1, 128), x, int(sys.argv[1]))
SEEN.append((list(sys.argv), sys.path[0], __name__, x.sum()))
'''


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What programs append to."""
    found: list[Any] = []
    monkeypatch.setattr("builtins.SEEN", found, raising=False)
    return found


def is_ok(ran: Ran) -> bool:
    return bool(reports.document(ran.problems, ran.status)["ok"])


def written(folder: Path, text: str) -> Path:
    path = folder / "app.py"
    path.write_text(text)
    return path


def test_a_program_has_its_arguments_and_its_folder(tmp_path: Path, seen: list[Any]) -> None:
    before = list(sys.argv), list(sys.path)
    ran = examine(Program(written(tmp_path, SCALE), ("100",)))
    assert seen == [([str(tmp_path / "app.py"), "100"], str(tmp_path), "__main__", 200)]
    assert (list(sys.argv), list(sys.path)) == before
    assert (ran.faults, ran.status, [*ran.report.kernels]) == ((), 0, ["scale"])
    assert is_ok(ran)


def test_threads_of_a_program_are_waited_for(tmp_path: Path, seen: list[Any]) -> None:
    text = SCALE.replace("scale(ck.stream()", "def late():\n    import time; time.sleep(0.1)\n    scale(ck.stream()")
    text = text.replace("SEEN.append", "import threading; threading.Thread(target=late).start()\nSEEN.append")
    assert [*examine(Program(written(tmp_path, text), ("100",))).report.kernels] == ["scale"]


def test_what_ends_a_program_is_a_fault(tmp_path: Path, seen: list[Any]) -> None:
    ran = examine(Program(written(tmp_path, SCALE), ("101",)))
    (fault,) = ran.faults
    assert (fault.kind, fault.kernel, Path(fault.file).name, fault.line) == ("error", "scale", "app.py", 9)
    assert str(fault) == fault.text
    assert (seen, ran.status) == ([], 0)
    (problem,) = ran.problems
    assert (is_ok(ran), problem["kind"], problem["line"]) == (False, "access", 9)


def test_races_are_looked_for_where_it_is_checked(tmp_path: Path, seen: list[Any]) -> None:
    text = SCALE.replace("x[i] *= 2", "x[i / 2] = i").replace("ones(100", "ones(128")
    assert examine(Program(written(tmp_path, text), ("128",))).faults == ()
    (fault, *_) = examine(Program(written(tmp_path, text), ("128",)), True).faults
    assert (fault.kind, fault.kernel, fault.line) == ("race", "scale", 9)
    assert str(fault) == f"scale: {fault.file}:9: {fault.text}"
    with pytest.raises(ZeroDivisionError) as raised:
        examine(Program(written(tmp_path, f"{text}\n1 / 0"), ("128",)), True)
    assert raised.value.__notes__[0] == f"cudakit check: {fault}"


@pytest.mark.parametrize(("code", "status"), [("0", 0), ("3", 3), ("None", 0), ("'said'", 1), ("", 0), ("True", 1)])
def test_the_programs_own_status(tmp_path: Path, code: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    ran = examine(Program(written(tmp_path, f"raise SystemExit({code})")))
    assert (ran.status, ran.faults) == (status, ())
    assert capsys.readouterr().err == ("said\n" if status == 1 and code != "True" else "")
    assert is_ok(ran) == (status == 0)


@pytest.mark.parametrize(
    ("change", "category", "words", "line"),
    [
        (('np.ones(100, "f4")', "np.ones(100)"), "argument", "parameter x (float*) takes elements of float32, got", 12),
        (("*= 2;", "*= two;"), "compile", 'identifier "two" is undefined', 9),
        (("ck.config(1, 128)", "ck.config(1, 2048)"), "launch", "1024", 12),
    ],
)
def test_an_error_of_cudakits_is_a_fault(
    tmp_path: Path, seen: list[Any], change: Any, category: str, words: str, line: int
) -> None:
    path = written(tmp_path, SCALE.replace(*change))
    ran = examine(Program(path, ("100",)), True)
    (problem,) = ran.problems
    assert (problem["kind"], problem["file"], problem["line"]) == (category, str(path), line)
    assert words in problem["text"]
    # The printed line has the place, once.
    assert str(ran.faults[0]).count(f"app.py:{line}: ") == 1


def test_a_program_that_calls_the_driver_itself(tmp_path: Path) -> None:
    """A traceback of another package's was all."""
    missing = "class DynamicLibNotFoundError(RuntimeError): pass\nraise DynamicLibNotFoundError('cuda')"
    (fault,) = examine(Program(written(tmp_path, missing))).faults
    assert "the program calls the CUDA driver itself" in fault.text
    assert fault.line == 2


def test_what_else_a_program_raises_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        examine(Program(written(tmp_path, "1 / 0")))


@pytest.mark.parametrize("before", [None, "0,1"])
def test_there_is_no_gpu_and_cupy_is_numpy_meanwhile(
    tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    if before is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    former, inner = ModuleType("cupy"), ModuleType("cupy.inner")
    monkeypatch.setitem(sys.modules, "cupy", former)
    monkeypatch.setitem(sys.modules, "cupy.inner", inner)
    monkeypatch.delitem(sys.modules, "cupy.cuda", raising=False)
    monkeypatch.delitem(sys.modules, "cupy.cuda.runtime", raising=False)
    text = """
import os, warnings
import cupy
import cupy.cuda
import numpy
SEEN.append((os.environ["CUDA_VISIBLE_DEVICES"], isinstance(cupy.zeros(2), numpy.ndarray)))
warnings.warn("said", __import__("cudakit").errors.EmulatorWarning)
"""
    examine(Program(written(tmp_path, text)))
    assert seen == [("", True)]
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
    assert sys.modules["cupy"] is former
    assert sys.modules["cupy.inner"] is inner
    assert "cupy.cuda" not in sys.modules


def test_a_process_that_has_used_a_gpu_runs_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "has_gpu", lambda: True)
    with pytest.raises(ck.LaunchError, match="has used the GPU already; a program is checked in a process of its own"):
        examine(Program(written(tmp_path, "")))
    with pytest.raises(ck.LaunchError, match="has used the GPU already; a program is debugged in a process of its own"):
        debug(Program(written(tmp_path, "")))


@pytest.mark.parametrize(
    ("details", "kernel", "file", "line"),
    [
        ({"kernel": "scale", "file": "app.py", "line": 9}, "scale", "app.py", 9),
        ({"kernel": "scale"}, "scale", "", 0),
        ({}, "", "", 0),
    ],
)
def test_the_place_that_an_error_tells_of(details: dict[str, Any], kernel: str, file: str, line: int) -> None:
    error = ck.EmulationError("scale: it reads").detailed(**details)
    assert fault_of(error) == Finding("error", kernel, file, line, "", "scale: it reads")


class Session:
    """A session that is stepped through without anybody who types."""

    done: list[Any]
    is_over, error = False, ""

    def __init__(self, *given: Any) -> None:
        self.done.append(("begin", given[1], given[4]))

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *raised: object) -> None:
        self.done.append("left")

    def break_at(self, line: str) -> None:
        self.done.append(line)
        if line.endswith(":900"):
            raise ck.ArgumentError("no such line")

    def run(self) -> None:
        self.done.append("run")

    def interact(self) -> None:
        self.done.append("interact")

    def rewind(self) -> None:
        self.done.append("rewind")


def test_the_first_launch_with_the_line_is_stepped_through(
    tmp_path: Path, seen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "begin", Session)
    path = written(tmp_path, SCALE + "scale(ck.stream(), ck.config(1, 128), x, 3)\nraise SystemExit(3)\n")
    begun = ("begin", ck.config(1, 128), True)
    Session.done = []
    assert debug(Program(path, ("100",)))
    assert Session.done == [begun, "interact", "rewind", "left"]
    Session.done = []
    assert debug(Program(path, ("100",)), 9)
    assert Session.done == [begun, f"{path}:9", "run", "interact", "rewind", "left"]
    Session.done = []
    assert not debug(Program(path, ("100",)), 900)
    assert Session.done == [begun, f"{path}:900", "left"] * 2
    assert [each[3] for each in seen] == [200] * 3


def test_work_that_is_no_kernel_of_threads_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "begin", Session)
    Session.done = []
    witness = program._Stepping("")
    witness.begin(SimpleNamespace(kind="copy", detail=SimpleNamespace(target=None)))  # type: ignore[arg-type]
    witness.begin(SimpleNamespace(kind="kernel", detail=SimpleNamespace(target=None)))  # type: ignore[arg-type]
    assert Session.done == []
    assert not witness.has_stopped
