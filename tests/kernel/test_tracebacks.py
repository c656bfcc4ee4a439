"""Errors are raised from the caller's line: no frame of cudakit, and the kernel's lines where a launch fails."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support import costs

import cudakit as ck
from cudakit.jit.launch.tracebacks import cut, raised_from_call

FAULTY = """
template <typename T>
__global__ void scale(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i + n] *= T(2);
}
"""
FIRST_LINE = Path(__file__).read_text(encoding="utf-8").splitlines().index('FAULTY = """') + 1
#: Lines that Python shows of an error that a script does not catch, at most.
MOST_LINES = 15


def frames_of(call: Callable[[], object], error: type[Exception] = ck.CudakitError) -> list[str]:
    """The functions in the traceback of an error, after this one."""
    with pytest.raises(error) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    counting = [frame for frame in frames if frame.filename == costs.__file__]  # of a run with --budget
    lines, extra = traceback.format_exception(caught.value), traceback.format_list(counting)
    assert len("".join(lines).splitlines()) - len("".join(extra).splitlines()) <= MOST_LINES
    return [frame.name for frame in frames if frame not in counting][1:]


@pytest.fixture
def faulty() -> Any:
    return ck.Kernel(FAULTY)


@pytest.mark.emulator
@pytest.mark.parametrize("machine", ["numpy", "compiled"])
def test_a_fault_shows_the_lines_of_the_kernel(machine: Any, faulty: Any) -> None:
    stream = ck.emulator.stream(machine=machine)
    x = np.ones(32, np.float32)

    def launch() -> None:
        faulty(stream, ck.config(1, 32), x, n)

    for n in (0, 4):  # the second call goes through generated code
        if n:
            assert frames_of(launch, ck.EmulationError) == ["launch"]
        else:
            launch()
    with pytest.raises(ck.EmulationError) as caught:
        launch()
    (note,) = caught.value.__notes__
    lines = note.splitlines()
    assert [line[0] for line in lines] == [" ", ">", " "]
    assert [int(line[1:].partition("|")[0]) for line in lines] == [FIRST_LINE + 3, FIRST_LINE + 4, FIRST_LINE + 5]
    assert [line.partition("| ")[2] for line in lines] == FAULTY.splitlines()[3:6]


@pytest.mark.emulator
def test_a_fault_of_a_plan_and_of_a_graph(faulty: Any) -> None:
    stream, x = ck.emulator.stream(), np.ones(32, np.float32)
    plan = faulty.plan(stream, ck.cover(32), x, 4)
    assert frames_of(lambda: plan(), ck.EmulationError) == ["<lambda>"]
    with ck.capture(stream, x=x) as graph:
        faulty(stream, ck.cover(32), x, 4)
    assert frames_of(lambda: graph(), ck.EmulationError) == ["<lambda>"]
    assert frames_of(lambda: graph(y=3), ck.ArgumentError) == ["<lambda>"]


def test_wrong_calls(stream: Any, xp: Any, faulty: Any) -> None:
    x = xp.ones(32, np.float32)
    broken = ck.Kernel("__global__ void broken(int* x) { *x = nothing; }")
    calls: dict[str, Callable[[], object]] = {
        "dtype": lambda: faulty[np.float64](stream, ck.cover(32), x, 0),
        "count": lambda: faulty(stream, ck.cover(32), x),
        "template argument": lambda: faulty._specialized((3.5,)),
        "op": lambda: ck.ops.sum(x, axis=3, stream=stream),
        "universal function": lambda: ck.math.add(x, x[:3], stream=stream),
        "source": lambda: ck.Kernel("__global__ void k("),
        "module": lambda: ck.Module("__global__ void k() {}", options=3),  # type: ignore[arg-type]
        "plan": lambda: faulty.plan(stream, ck.cover(3), x),
        "compiler": lambda: broken.compile(arch="sm_90"),
        "prepare": lambda: broken.prepare(arch="sm_90"),
        "expression": lambda: ck.elementwise("flo x", "float32 y", "y = x"),
    }
    assert {name: frames_of(call) for name, call in calls.items()} == {name: ["<lambda>"] for name in calls}


def test_all_frames_for_those_who_change_cudakit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_TRACEBACK", "full")
    with pytest.raises(ck.TemplateError) as caught:
        ck.Kernel("__global__ void k(")
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert len(names) > 3
    assert names[1] == "__new__"


def test_frames_of_the_caller_stay() -> None:
    def own() -> None:
        raise ck.ArgumentError("mine")

    @raised_from_call
    def public() -> None:
        own()

    assert frames_of(public) == ["public", "own"]
    assert public.__name__ == "public"


def test_causes_are_cut_too() -> None:
    @raised_from_call
    def public() -> None:
        try:
            ck.CompileOptions(defines=3)  # type: ignore[arg-type]
        except ck.ArgumentError as error:
            raise ck.TemplateError("because") from error

    with pytest.raises(ck.TemplateError) as caught:
        public()
    cause = caught.value.__cause__
    assert cause is not None
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["public"]


def test_a_circle_of_causes_ends() -> None:
    one, other = ck.CudakitError("one"), ck.CudakitError("other")
    one.__cause__, other.__cause__ = other, one
    cut(one)


def test_parameters_may_have_the_names_of_generated_code(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(int* cut, int CudakitError) { *cut = CudakitError; }")
    x = xp.zeros(1, np.int32)
    for value in (3, 4):
        kernel(stream, ck.config(1, 1), x, value)
    assert int(x[0]) == 4
    assert frames_of(lambda: kernel(stream, ck.config(1, 1), x, "no")) == ["<lambda>"]


def test_an_excerpt_begins_with_the_users_first_line() -> None:
    from cudakit.emulator.machine.machine import Launch
    from cudakit.emulator.ptx.program import Source

    def excerpt(line: int, shift: int) -> str:
        launch = SimpleNamespace(
            source=("k.cu", "one\ntwo\nthree\n"), placed=lambda file, line: f"{file}:{line + shift}"
        )
        return Launch._excerpt(launch, Source("k.cu", line))  # type: ignore[arg-type]

    assert excerpt(1, 0) == ">     1 | one\n      2 | two"
    assert excerpt(2, 0) == "      1 | one\n>     2 | two\n      3 | three"
    assert excerpt(2, -1) == ">     1 | two\n      2 | three"
    assert excerpt(3, 0) == "      2 | two\n>     3 | three"
    assert excerpt(9, 0) == ""


def test_an_array_that_is_not_contiguous_is_copied_by_its_own_library(stream: Any, xp: Any, faulty: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=rf"copy it with {xp.__name__}\.ascontiguousarray\(x\)"):
        faulty(stream, ck.config(1, 32), xp.ones(64, np.float32)[::2], 0)
