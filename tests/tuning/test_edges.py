"""Edges of ck.tune: what does not fit is said, interrupts and full memory lose nothing, arguments of all kinds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.tuning import isolated
from cudakit.tuning.arrays import Outputs, close
from cudakit.tuning.candidate import Candidate

SCALE = ck.Kernel(
    """
template <typename T, int ITEMS> __global__ void scale(const T* x, T* y, T by, int n) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; i++)
        if (i < n) y[i] = by * x[i];
}"""
)
N = 100


def arguments(stream: Any, n: int = N) -> tuple[Any, ...]:
    x = ck.to_device(np.arange(n, dtype=np.float32), stream)
    return x, ck.to_device(np.full(n, 5, np.float32), stream), 2.0, n


def tune(*, kernel: Any = SCALE, passed: Any = None, **more: Any) -> Any:
    stream = ck.emulator.stream()
    search = {"objective": "sectors", "strategy": "exhaustive", "workers": 0, "config": ck.config(4, 32)}
    search |= {"space": {"ITEMS": [1, 2]}, **more}
    return ck.tune(kernel, arguments(stream) if passed is None else passed, stream=stream, **search)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "budget is a number of candidates from 1 up, or a timedelta above 0; got 0"),
        ({"budget": 2.5}, "budget is .*got 2.5"),
        ({"budget": True}, "budget is .*got True"),
        ({"budget": timedelta(0)}, "budget is .*got datetime"),
        ({"workers": -1}, "workers is a number from 0 up; got -1"),
        ({"workers": "2"}, "workers is .*got '2'"),
        ({"seed": -1}, "seed is a whole number from 0 up; got -1"),
        ({"tolerance": float("nan")}, "tolerance is a number from 0 up; got nan"),
        ({"l2": "cold"}, "l2 is 'flushed' or 'warm'; got 'cold'"),
        ({"time_limit_s": 0}, "time_limit_s is a number of seconds above 0; got 0"),
        ({"space": {}}, "the space has no parameters"),
        ({"space": [("ITEMS", [1])]}, "the space is a dict of parameter → list of values"),
        ({"space": {"ITEMS": []}}, "parameter 'ITEMS' of the space has no values"),
        ({"where": lambda ITEMS: ITEMS > 2}, "the restrictions leave no point of 2"),
        ({"where": 5}, "a restriction of the space is a function or an expression as text; got 5"),
        ({"kernel": "scale"}, "expected a ck.Kernel to tune, got 'scale'"),
        ({"passed": arguments}, r"arguments are a sequence, as in a call, or with sizes= a function"),
        ({"passed": 5}, "arguments are a sequence"),
        ({"passed": arguments, "sizes": 5}, "sizes is a list of numbers, or of tuples of them; got 5"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        tune(**options)


@pytest.mark.emulator
def test_a_captured_stream_is_refused() -> None:
    stream = ck.emulator.stream()
    passed = arguments(stream)
    with ck.capture(stream), pytest.raises(ck.ArgumentError, match="the stream is being captured"):
        ck.tune(SCALE, passed, {"ITEMS": [1]}, config=ck.config(4, 32), stream=stream, objective="sectors")


def failing(**parameters: Any) -> Any:
    raise ZeroDivisionError("of the caller")


@pytest.mark.emulator
def test_errors_of_the_callers_functions_say_where_they_come_from() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        tune(where=failing)
    assert caught.value.__notes__ == ["This comes from a restriction of the space, at {'ITEMS': 1}."]
    with pytest.raises(ZeroDivisionError) as caught:
        tune(check=lambda *values: failing())
    assert caught.value.__notes__ == ["This comes from check=, called with host copies of all arguments."]


@pytest.mark.emulator
@pytest.mark.parametrize("isolated", [False, True])
def test_each_reason_is_told_with_the_number_of_its_candidates(isolated: bool) -> None:
    config = lambda ITEMS: ck.config(4, 0) if ITEMS == 1 else failing()  # noqa: E731
    with pytest.raises(ck.ArgumentError) as caught:
        tune(config=config, space={"ITEMS": [1, 2, 4]}, isolated=isolated)
    assert str(caught.value).splitlines() == [
        "scale: no candidate of the space is right",
        "  1 × invalid: block must be 1 or more in each direction, got 0 (as ITEMS=1)",
        "  2 × invalid: config raises ZeroDivisionError: of the caller (as ITEMS=2)",
    ]


@pytest.mark.emulator
def test_values_of_types_and_bools_are_points() -> None:
    tuned = tune(space={"T": [np.float32, "float", np.float64], "ITEMS": [1], "fast_math": [False, True]})
    states = {(str(row.point["T"]), row.point["fast_math"]): row.state for row in tuned.table}
    assert [state for (name, _), state in states.items() if "64" in name] == ["invalid"] * 2
    assert len([state for state in states.values() if state == "right"]) == 4


@pytest.mark.emulator
def test_a_space_of_one_and_arrays_of_no_elements() -> None:
    stream = ck.emulator.stream()
    tuned = tune(space={"ITEMS": [1]}, passed=arguments(stream, 0))
    assert (tuned.best, tuned.ended) == ({"ITEMS": 1}, "exhausted")
    with pytest.raises(ck.ArgumentError, match="scale is launched with no thread: pass arrays with elements"):
        tune(passed=arguments(stream, 0), config=ck.cover(0))


@pytest.mark.emulator
def test_arguments_with_defaults_may_be_left_out() -> None:
    kernel = ck.Kernel(
        "template <int STEP> __global__ void fill(float* y, int n = 8) {"
        " for (int i = threadIdx.x; i < n; i += STEP) y[i] = i; }"
    )
    y = ck.to_device(np.zeros(8, np.float32), ck.emulator.stream())
    assert tune(kernel=kernel, passed=(y,), space={"STEP": [1]}, config=ck.config(1, 1)).best == {"STEP": 1}
    with pytest.raises(ck.ArgumentError, match="config takes 'n', which the call leaves out"):
        tune(kernel=kernel, passed=(y,), space={"STEP": [1]}, config=lambda n: ck.config(1, n))


def test_an_array_that_is_passed_twice_stays_one_array() -> None:
    stream = ck.emulator.stream()
    x, other = (ck.to_device(np.arange(4, dtype=np.float32), stream) for _ in range(2))
    parameters: Any = [
        SimpleNamespace(name=name, category="pointer", const=const)
        for name, const in (("x", True), ("y", False), ("other", True))
    ]
    outputs = Outputs(stream, [x, x, other], parameters, {}, None)
    assert outputs.names == {1: "y"}
    for prepare in (outputs.restore, outputs.poison, lambda: outputs.refill(1), outputs.restore):
        prepare()
        assert outputs.arguments[0] is outputs.arguments[1]
        assert outputs.arguments[0] is not x
    first, second, _ = outputs.host_arguments()
    assert first is second
    assert sorted(first) == [0, 1, 2, 3]
    assert np.array_equal(ck.to_host(outputs.arguments[0], stream), first)
    assert np.array_equal(ck.to_host(x, stream), [0, 1, 2, 3])


def test_an_array_that_is_passed_twice_is_one_array_of_the_process_too() -> None:
    stream = ck.emulator.stream()
    x, y, *numbers = isolated.on_device([*[np.zeros(4)] * 2, 3], stream)
    assert x is y
    assert numbers == [3]


def test_structs_with_nan_in_a_field_agree() -> None:
    pair = np.array([(np.nan, 1), (2, 3), (np.nan, 4)], [("a", "f4"), ("b", "i4")])
    other = pair.copy()
    other["b"][2] = 5
    assert close(pair, other).tolist() == [True, True, False]


class Steps:
    """An objective that is interrupted at one of its calls."""

    name, unit, repeats = "steps", "steps", True

    def __init__(self, interrupted_at: int) -> None:
        self.left = interrupted_at

    def measure(self, launch: Any, stop_above: float) -> list[float]:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt
        launch()
        return [1.0, 1.0 + self.left / 1000]


@pytest.mark.emulator
def test_an_interrupt_before_any_right_candidate_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        tune(objective=Steps(1))


@pytest.mark.emulator
def test_an_interrupt_of_the_comparison_or_confirmation_keeps_the_best() -> None:
    tuned = tune(objective=Steps(3))
    assert (tuned.ended, tuned.confirmed, len(tuned.table)) == ("interrupted", {}, 2)
    calls: list[int] = []

    def check(x: Any, y: Any, by: float, n: int) -> Any:
        calls.append(n)
        if len(calls) == 2:  # on fresh data
            raise KeyboardInterrupt
        return by * x

    tuned = tune(check=check)
    assert (tuned.ended, tuned.confirmed, tuned.best) == ("interrupted", {}, {"ITEMS": 1})


@pytest.mark.emulator
def test_full_memory_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*values: Any) -> Any:
        raise MemoryError("1 GiB")

    with monkeypatch.context() as patch:
        patch.setattr(Outputs, "refill", full)
        tuned = tune()
    assert tuned.confirmed["fresh data"] == "left out: memory is full (1 GiB)"
    assert tuned.best == {"ITEMS": 1}
    monkeypatch.setattr(Outputs, "results", full)
    with pytest.raises(MemoryError, match=r"scale: memory is full \(1 GiB\).*tune with smaller arrays"):
        tune()


class Child:
    """A process whose second request is interrupted."""

    all: list[Child] = []  # noqa: RUF012

    def __init__(self, message: Any) -> None:
        self.requests: list[str] = []
        self.is_ended = False
        self.all.append(self)

    def answer(self, limit_s: float) -> str:
        return "ready"

    def ask(self, request: Any, limit_s: float) -> Any:
        self.requests.append(request[0])
        if self is self.all[0] and len(self.requests) == 2:
            raise KeyboardInterrupt
        candidate = Candidate({"ITEMS": 1}, "right", 1.0)
        return (candidate, {"fresh data": "right"}) if request[0] == "confirm" else candidate, True

    def end(self) -> None:
        self.is_ended = True


@pytest.mark.emulator
def test_an_interrupted_process_is_replaced_since_its_answer_may_still_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "_Child", Child)
    Child.all.clear()
    tuned = tune(isolated=True)
    assert (tuned.ended, tuned.confirmed) == ("interrupted", {"fresh data": "right"})
    assert [child.requests for child in Child.all] == [["evaluate", "evaluate"], ["evaluate", "confirm"]]
    assert all(child.is_ended for child in Child.all)


@pytest.mark.emulator
def test_a_texture_stays_in_its_process() -> None:
    stream = ck.emulator.stream()
    x = ck.to_device(np.zeros(32, np.float32), stream)
    kernel = ck.Kernel("template <int K> __global__ void f(cudaTextureObject_t t, float* y) {}")
    with pytest.raises(ck.ArgumentError, match="with isolated=True no argument is a texture"):
        tune(kernel=kernel, passed=(ck.texture(x), x), space={"K": [1]}, isolated=True)


def test_a_process_measures_each_point_once() -> None:
    """It answers with a former candidate if it has one, and compares and confirms those that are named."""
    former: Any = SimpleNamespace(point={"A": 1})
    compared: list[Any] = []
    trials: Any = SimpleNamespace(
        candidates=[former], specializations=lambda point: [], evaluate=lambda point, ahead: ("measured", point),
        compare_in_turns=compared.append, confirm=lambda candidate, *more: ("confirmed", candidate, *more),
    )  # fmt: skip
    assert isolated._result(trials, "evaluate", [{"A": 1}]) is former
    assert isolated._result(trials, "evaluate", [{"A": 2}]) == ("measured", {"A": 2})
    assert compared == []
    both = [("measured", {"A": 2}), former]
    assert isolated._result(trials, "compare", [{"A": 2}, {"A": 1}]) == both
    assert compared == [both]
    assert isolated._result(trials, "confirm", [{"A": 1}], 7) == (former, ("confirmed", former, 7))


def test_errors_of_a_process_that_cannot_be_sent_become_texts() -> None:
    class Own(MemoryError):
        def __init__(self, size: int, limit: int) -> None:
            super().__init__(f"{size} of {limit}")

    assert isinstance(isolated._sendable(ValueError("x")), ValueError)
    sent = isolated._sendable(Own(3, 2))
    assert type(sent) is MemoryError
    assert str(sent) == "Own: 3 of 2"


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, cudakit as ck
from test_edges import HANGS
stream = ck.emulator.stream()
x, y = (ck.to_device(np.zeros(32, np.float32), stream) for _ in range(2))
tuned = ck.tune(ck.Kernel(HANGS), (x, y), {"K": [0, 1]}, config=ck.config(1, 32), stream=stream, workers=0,
                objective="sectors", strategy="exhaustive", isolated=True, time_limit_s=60,
                progress=lambda state: print("tried", flush=True))
print(tuned.ended, tuned.best, tuned.confirmed)
"""
HANGS = """
template <int K> __global__ void f(const float* x, float* y) {
    while (K && ((volatile const float*)x)[0] == 0) {}
    y[threadIdx.x] = x[threadIdx.x];
}"""


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.skipif(sys.platform == "win32", reason="process groups are POSIX")
def test_ctrl_c_in_a_terminal_keeps_what_an_isolated_search_knows() -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(Path(__file__).parent)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "tried\n"
    os.killpg(program.pid, signal.SIGINT)
    output, errors = program.communicate(timeout=120)
    assert output == "interrupted {'K': 0} {'fresh data': 'right', 'emulator': 'right'}\n"
    assert errors == ""
