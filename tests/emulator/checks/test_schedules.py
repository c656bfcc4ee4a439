"""Orders of threads in which a fault shows: looked for, shrunk, and run again."""

from __future__ import annotations

import re
from typing import Any, Literal

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.checks.findings import Finding, Report

pytestmark = pytest.mark.emulator

#: Of two threads, in blocks or warps of their own, each has an order of its own in which something goes wrong.
TEXT = """
__global__ void out_of_bounds(int* y, int* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicExch(flag, 1);
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0 && !atomicAdd(flag, 0)) y[999999] = 1;
}
__global__ void race_when_late(int* y, int* flag) {
    if (blockIdx.x == 0 && threadIdx.x == 0) { y[0] = 1; atomicExch(flag, 1); }
    __syncthreads();
    if (blockIdx.x == 1 && threadIdx.x == 0 && !atomicAdd(flag, 0)) y[0] = 2;
}
__global__ void last_wins(volatile int* y, int* flag) {
    if (threadIdx.x == 0) y[0] = blockIdx.x;
}
__global__ void meant(volatile int* y, int* flag) {
    if (threadIdx.x == 0) y[0] = blockIdx.x;  // cudakit: benign race
}
__global__ void numbered(int* y, int* flag) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(flag, 1);
}
__global__ void summed(int* y, int* flag) {
    for (int k = 0; k < 3; ++k) y[blockIdx.x * blockDim.x + threadIdx.x] += k;
}
__global__ void taken(int* y, int* flag) {
    int* mine = (int*)malloc(4);
    *mine = threadIdx.x;
    y[threadIdx.x] = *mine;
    free(mine);
}
"""


def run(name: str, schedule: int | tuple[int, ...] | None = None) -> np.ndarray:
    y, flag = np.zeros(128, np.int32), np.zeros(1, np.int32)
    stream = ck.emulator.stream(schedule=schedule, output=lambda text: None)
    ck.Kernel(TEXT, name)(stream, ck.config(2, 64), y, flag)
    return np.concatenate([y, flag])


def found(name: str, schedules: int = 40) -> tuple[Report, np.ndarray]:
    with ck.check(schedules=schedules) as report:
        after = run(name)
    if name != "taken":  # whose memory another stream would have to wait for
        np.testing.assert_array_equal(after, run(name))
    return report, after


def order(finding: Finding) -> tuple[int, ...]:
    named = re.search(r"; so with schedule=\(([\d, ]+)\), of which (\d+) switch(?:es are| is) enough$", finding.text)
    assert named is not None, finding
    first, *rest = map(int, named[1].split(","))
    assert len(rest) == int(named[2]) <= 4
    return first, *rest


def test_an_error_of_some_orders_is_found_and_happens_again() -> None:
    (finding,) = found("out_of_bounds")[0].findings
    assert finding.kind == "error"
    assert "outside every array" in finding.text
    with pytest.raises(ck.EmulationError, match="outside every array"):
        run("out_of_bounds", order(finding))


def test_a_race_of_some_orders_is_found_and_happens_again() -> None:
    assert not found("race_when_late", 0)[0]
    (finding,) = found("race_when_late")[0].findings
    assert finding.kind == "race"
    stream = ck.emulator.stream(schedule=order(finding), check="raise")
    with pytest.raises(ck.EmulationError, match="race"):
        ck.Kernel(TEXT, "race_when_late")(stream, ck.config(2, 64), np.zeros(1, "i4"), np.zeros(1, "i4"))


@pytest.mark.parametrize("check", ["raise", "warn"])
def test_a_stream_that_checks_is_told(check: Literal["raise", "warn"]) -> None:
    stream, y = ck.emulator.stream(check=check), np.zeros(64, "i4")
    told: Any = pytest.raises(ck.EmulationError, match=r"^last_wins: .*; so with schedule=")
    if check == "warn":
        told = pytest.warns(UserWarning, match=r"^last_wins: .*; so with schedule=")
    with ck.check(schedules=20) as report, told:
        ck.Kernel(TEXT, "last_wins")(stream, ck.config(2, 64), y, np.zeros(1, "i4"))
    assert y[0] == 1, "as the first run leaves it"
    (finding,) = report.findings
    assert finding.schedule == order(finding)


def test_another_result_is_found() -> None:
    report, after = found("last_wins")
    (finding,) = report.findings
    assert (finding.kind, finding.kernel) == ("order", "last_wins")
    assert (run("last_wins", order(finding)) != after).any()


@pytest.mark.parametrize("name", ["meant", "numbered", "summed", "taken"])
def test_what_may_depend_on_the_order_is_no_fault(name: str) -> None:
    assert not found(name, 8)[0]


def test_memory_of_the_device_is_as_the_first_run_leaves_it() -> None:
    stream = ck.emulator.stream()
    y = ck.to_device(np.ones(64, np.int32), stream)
    whole = np.zeros((4, 64), np.int32)
    add = ck.Kernel("__global__ void add(int* y, int* z) { z[threadIdx.x] = ++y[threadIdx.x]; }")
    with ck.check(schedules=5) as report:
        add(stream, ck.config(1, 64), y, whole[1])
    assert not report
    np.testing.assert_array_equal(ck.to_host(y, stream), 2)
    np.testing.assert_array_equal(whole.sum(axis=1), [0, 128, 0, 0])


def test_settings_are_checked() -> None:
    with pytest.raises(ck.ArgumentError, match="schedules"), ck.check(schedules=-1):
        pass
    with pytest.raises(ck.ArgumentError, match="schedule"):
        ck.emulator.stream(schedule=(1, -2))
    with pytest.raises(ck.ArgumentError, match="schedule"):
        ck.emulator.stream(schedule=())


def test_what_is_watched_runs_on_the_numpy_machine() -> None:
    kernel = ck.Kernel("__global__ void add(int* y) { y[threadIdx.x] += threadIdx.x; }")
    seen = []
    for machine in ("numpy", "auto"):
        stream, y = ck.emulator.stream(machine=machine), np.zeros(64, np.int32)  # type: ignore[arg-type]
        # Often enough to be machine code where nobody watches.
        for _ in range(100):
            kernel(stream, ck.config(1, 64), y)
        with ck.emulator.counters(stream) as report, ck.check(schedules=1) as found:
            kernel(stream, ck.config(1, 64), y)
        assert not found
        np.testing.assert_array_equal(y, 101 * np.arange(64))
        seen.append((report.global_.requests, report.kernels["add"].launches))
    assert seen[0] == seen[1] == (4, 1)
