"""ck.tune: variants of a kernel, right results first, and the table of candidates."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.face import EmulatorPlace
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.cache.compiling import first_request
from cudakit.jit.cache.prewarm import Workers
from cudakit.jit.compile.elf import LaunchBounds, Resources
from cudakit.jit.load import image
from cudakit.jit.load.limits import check_code
from cudakit.tuning import views
from cudakit.tuning.candidate import Candidate, front
from cudakit.tuning.objectives import Time, interval, is_slower
from cudakit.tuning.space import Space
from cudakit.tuning.trials import Trials

SCALE = ck.Kernel(
    """
template <typename T, int ITEMS> __global__ void scale(const T* x, T* y, T by, int n) {
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * ITEMS;
    for (int i = first; i < first + ITEMS; i++)
        if (i < n) y[i] = by * x[i];
}"""
)
N = 1000
SPACE = {"ITEMS": [1, 2, 4], "BLOCK": [32, 128, 2048]}


def blocks(BLOCK: int, ITEMS: int) -> ck.Config:
    return ck.config(-(-N // (BLOCK * ITEMS)), BLOCK)


def arguments(stream: Any) -> tuple[Any, ...]:
    x = ck.to_device(np.arange(N, dtype=np.float32), stream)
    return x, ck.to_device(np.full(N, 5, np.float32), stream), 2.0, N


@pytest.mark.emulator
def test_the_least_counter_wins_and_arguments_stay() -> None:
    stream = ck.emulator.stream()
    x, y, *numbers = arguments(stream)
    tuned = ck.tune(
        SCALE, (x, y, *numbers), SPACE, config=blocks, stream=stream, objective="sectors", strategy="exhaustive"
    )
    assert tuned.best["ITEMS"] == 1
    assert tuned.table[0].value == 2 * N * 4 / 32
    assert [row.point for row in tuned.table if row.tied] == [{"ITEMS": 1, "BLOCK": block} for block in (32, 128)]
    states = [(row.point["BLOCK"], row.state) for row in tuned.table]
    assert {state for block, state in states if block == 2048} == {"invalid"}
    assert np.all(ck.to_host(y, stream) == 5)
    tuned(stream, x, y, *numbers)
    stream.sync()
    assert np.array_equal(ck.to_host(y, stream), 2 * np.arange(N, dtype=np.float32))


@pytest.mark.emulator
def test_a_candidate_with_a_wrong_element_loses_and_is_told() -> None:
    wrong = ck.Kernel(
        """
template <int ITEMS> __global__ void fill(int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (ITEMS == 1 || i != 7)) y[i] = i;
    for (int j = 0; ITEMS == 1 && j < 40; j++) __syncthreads();
}"""
    )
    stream = ck.emulator.stream()
    tuned = ck.tune(
        wrong, (ck.to_device(np.zeros(64, np.int32), stream), 64), {"ITEMS": [1, 2]}, config=ck.config(2, 32),
        stream=stream, objective="instructions", strategy="exhaustive",
    )  # fmt: skip
    assert tuned.best == {"ITEMS": 1}
    assert tuned.table[1].state == "wrong"
    assert "y[7]: expected 7, got 0" in tuned.table[1].why


@pytest.mark.emulator
def test_what_cannot_be_tuned_is_told() -> None:
    stream = ck.emulator.stream()
    common = {"stream": stream, "objective": "sectors"}
    with pytest.raises(ck.ArgumentError, match="'WIDTH' of the space changes nothing of scale"):
        ck.tune(SCALE, arguments(stream), {"WIDTH": [1]}, config=ck.config(1, 32), **common)
    with pytest.raises(ck.ArgumentError, match="there is no launch configuration"):
        ck.tune(SCALE, arguments(stream), {"ITEMS": [1]}, **common)
    with pytest.raises(ck.ArgumentError, match=r"no candidate of the space is right\n.*1 × invalid.*block.x is 4096"):
        ck.tune(SCALE, arguments(stream), {"ITEMS": [1]}, config=ck.config(1, 4096), **common)
    with pytest.raises(ck.UnknownNameError, match=r"the emulator counts, and measures no time; pass objective= one of"):
        ck.tune(SCALE, arguments(stream), {"ITEMS": [1]}, config=ck.config(1, 32), stream=stream, objective="time")
    silent = ck.Kernel("template <int N> __global__ void read(const float* x) { if (x[0] == N) __trap(); }")
    with pytest.raises(ck.ArgumentError, match="writes no array"):
        ck.tune(silent, arguments(stream)[:1], {"N": [1]}, config=ck.config(1, 1), **common)


@pytest.mark.emulator
def test_workers_compile_each_point_once_and_before_it_is_wanted(tmp_path: Any) -> None:
    kernel = SCALE.with_options(cache=tmp_path)
    stream = ck.emulator.stream()
    cache = cache_at(tmp_path)
    misses = cache.info().misses
    tuned = ck.tune(kernel, arguments(stream), SPACE, config=blocks, stream=stream, objective="sectors", workers=2)
    assert tuned.best["ITEMS"] == 1
    assert cache.info().misses == misses
    assert len(cache.entries()) == 3


@pytest.mark.emulator
def test_a_killed_worker_costs_its_compile_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    kernel = SCALE.with_options(cache=tmp_path)
    requests = [first_request(kernel[np.float32, n].specialization(arch="sm_90")) for n in (1, 2, 3)]
    with Workers(1) as workers:
        (ready,) = workers.want(requests[:1])
        ready.result(60)
        workers.processes[0].process.kill()
        died, lives = workers.want(requests[1:])
        with pytest.raises(ck.CompileError, match=r"the worker compiling .* died"):
            died.result(60)
        lives.result(60)


@pytest.mark.emulator
@pytest.mark.parametrize("isolated", [False, True])
def test_a_compile_that_takes_too_long_costs_its_candidate(isolated: bool, tmp_path: Any) -> None:
    """No compiler starts in a millisecond."""
    kernel, stream = SCALE.with_options(cache=tmp_path), ck.emulator.stream()
    with pytest.raises(ck.ArgumentError, match=r"1 × failed: scale<float, 4>: the compile was ended after 0.001 s"):
        ck.tune(
            kernel, arguments(stream), {"ITEMS": [1, 4]}, config=ck.config(32, 32), stream=stream, workers=1,
            time_limit_s=1e-3, isolated=isolated,
        )  # fmt: skip


BOUNDED = ck.Kernel(
    """
template <int BOUND> __global__ void __launch_bounds__(BOUND) fill(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = threadIdx.x;
    y[threadIdx.x] = s[threadIdx.x];
}"""
)


def of_code(stream: Any, **more: Any) -> Any:
    return ck.tune(
        BOUNDED, (ck.empty(128, np.float32, stream=stream),), {"BOUND": [64, 128], "BYTES": [512, 1 << 20]},
        config=lambda BYTES: ck.config(1, 128, BYTES), stream=stream, strategy="exhaustive", workers=0, **more,
    )  # fmt: skip


def check_of_code(tuned: Any, launched: list[int]) -> None:
    assert set(launched) == {128}
    assert tuned.best == {"BOUND": 128, "BYTES": 512}
    reasons = {tuple(row.point.values()): row.why for row in tuned.table if row.state == "invalid"}
    assert "over this kernel's own limit 64, set by its __launch_bounds__" in reasons[64, 512]
    assert "shared memory a block is 1048576 bytes" in reasons[128, 1 << 20]
    assert all(row.registers and row.spill_bytes == 0 for row in tuned.table)


@pytest.mark.emulator
def test_a_candidate_over_a_limit_is_known_from_its_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[int] = []

    def plan(self: ck.Kernel, *call: Any) -> Any:
        launched.append(int(str(self.specialization_of(*call[:1], *call[2:]).name_expression).strip("fil<>")))
        return original(self, *call)

    original = ck.Kernel.plan
    monkeypatch.setattr(ck.Kernel, "plan", plan)
    cubin = lambda self, point: [self.variants.kernel(point).specialization(arch="sm_90")]  # noqa: E731
    monkeypatch.setattr(Trials, "specializations", cubin)
    check_of_code(of_code(ck.emulator.stream()), launched)


@pytest.mark.gpu
def test_a_candidate_over_a_limit_is_not_loaded(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    launched: list[int] = []

    def load(specialization: Any, *parts: Any) -> Any:
        if specialization.name_expression.startswith("fill<"):
            launched.append(int(specialization.name_expression.strip("fil<>")))
        return original(specialization, *parts)

    original = image.load
    monkeypatch.setattr(image, "load", load)
    check_of_code(of_code(stream), launched)


def test_the_registers_of_a_block_are_limited() -> None:
    limits = EmulatorPlace().limits()
    check = functools.partial(check_code, "k", limits=limits, bounds=LaunchBounds())
    check(ck.config(1, 512), resources=Resources(128, 0, 0))
    check(ck.config(1, 1024), resources=Resources(64, 0, 0))
    check(ck.config(1, 1024), resources=Resources(0, 0, 0))
    with pytest.raises(ck.LaunchError, match="own limit 512, set by its 128 registers a thread"):
        check(ck.config(1, 1024), resources=Resources(128, 0, 0))
    with pytest.raises(ck.LaunchError, match="own limit 896, set by its 66 registers a thread"):
        check(ck.config(1, 1024), resources=Resources(66, 0, 0))


VARIANTS = """
template <int FAULT> __global__ void add(const float* x, float* y, int n) {
    __shared__ float s[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (FAULT == 1) return;                                     // writes nothing
    if (i >= n || (FAULT == 2 && i == n - 1)) return;           // leaves the last element
    if (FAULT == 3) { y[i] = y[i] == y[i] ? y[i] : x[i] + 1; return; }  // believes what it finds
    if (FAULT == 4) { y[i] = i + 1; return; }                   // right for the tuned data only
    if (FAULT == 5) {                                           // races: right by chance
        s[threadIdx.x] = x[i];
        y[i] = s[threadIdx.x ^ 1] - s[threadIdx.x ^ 1] + x[i] + 1;
        return;
    }
    y[i] = x[i] + 1;
    if (FAULT == 0) for (int k = 0; k < 20; k++) y[i] = x[i] + 1 + 0 * y[i];
}"""


def tuned_of(faults: list[int], check: Any = None, **more: Any) -> Any:
    stream = ck.emulator.stream()
    x = ck.to_device(np.arange(64, dtype=np.float32), stream)
    y = ck.to_device(np.arange(64, dtype=np.float32) + 1, stream)  # the right results, of a run before
    return ck.tune(
        ck.Kernel(VARIANTS), (x, y, 64), {"FAULT": faults}, config=ck.config(2, 32), stream=stream, check=check,
        objective="instructions", strategy="exhaustive", workers=0, **more,
    )  # fmt: skip


@pytest.mark.emulator
@pytest.mark.parametrize("fault", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("check", ["first", "function", "kernel"])
def test_a_faulty_candidate_with_less_work_does_not_win(fault: int, check: str) -> None:
    expected = {
        "first": None,
        "function": lambda x, y, n: x + 1,
        "kernel": ck.Kernel(VARIANTS)["FAULT":0],
    }[check]
    tuned = tuned_of([0, fault], expected)
    assert tuned.best == {"FAULT": 0}
    assert not any(row.tied for row in tuned.table)
    (loser,) = (row for row in tuned.table if row.point["FAULT"] == fault)
    assert loser.state == "wrong"
    assert tuned.confirmed == {"fresh data": "right", "emulator": "right"}


@pytest.mark.emulator
def test_expected_arrays_may_be_passed_and_are_checked() -> None:
    right = np.arange(64, dtype=np.float32) + 1
    tuned = tuned_of([0, 2], right)
    assert tuned.best == {"FAULT": 0}
    assert "only" in tuned.confirmed["fresh data"]
    with pytest.raises(ck.ArgumentError, match=r"check: y has shape \(64,\), the expected array \(63,\)"):
        tuned_of([0], right[1:])
    with pytest.raises(ck.ArgumentError, match="check: expected 1 arrays, for y; got 2"):
        tuned_of([0], [right, right])
    with pytest.raises(ck.ArgumentError, match="a kernel that writes nothing would be right"):
        tuned_of([1, 0], right)


@pytest.mark.emulator
def test_an_array_that_a_kernel_reads_and_writes_keeps_its_contents() -> None:
    double = ck.Kernel(
        "template <int BLOCK> __global__ void twice(int* x, int n) { const int i = blockIdx.x * BLOCK + threadIdx.x;"
        "if (i < n) x[i] += x[i] & 1023; }"
    )
    stream, x = ck.emulator.stream(), np.arange(100, dtype=np.int32)
    tuned = ck.tune(
        double, (ck.InOut(x), 100), {"BLOCK": [32, 64]}, config=lambda BLOCK, n: ck.config(-(-n // BLOCK), BLOCK),
        check=lambda x, n: 2 * x, stream=stream, objective="instructions",
    )  # fmt: skip
    assert np.array_equal(x, np.arange(100))
    tuned(stream, ck.InOut(x), 100)
    stream.sync()
    assert np.array_equal(x, 2 * np.arange(100))


@pytest.mark.emulator
def test_the_default_objective_on_the_emulator_is_instructions() -> None:
    stream = ck.emulator.stream()
    tuned = ck.tune(SCALE, arguments(stream), {"ITEMS": [1]}, config=ck.config(32, 32), stream=stream)
    assert tuned.objectives == {"instructions": "instructions"}
    assert not tuned.table[0].tied  # alone


@pytest.mark.emulator
def test_the_winner_must_be_right_with_other_arguments() -> None:
    stream = ck.emulator.stream()
    x = ck.to_device(np.arange(64, dtype=np.float32), stream)
    y = ck.to_device(np.zeros(64, np.float32), stream)
    tuned = tuned_of([0], others={"half": lambda: (x, y, 32)})
    assert tuned.confirmed == {"fresh data": "right", "half": "right", "emulator": "right"}
    with pytest.raises(ck.ArgumentError, match=r"1 × wrong: half: y\[0\]"):
        tuned_of([0], lambda x, y, n: x + 1 + (n < 64), others={"half": lambda: (x, y, 32)})


def odd(stream: Any, n: int) -> Any:
    x = ck.to_device(np.arange(64, dtype=np.float32), stream)
    return x, ck.to_device(np.zeros(64, np.float32), stream), n


ODD = """
template <int FAULT> __global__ void add(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + 1 + (FAULT && n % 2);
    if (!FAULT) for (int k = 0; k < 20; k++) if (i < n) y[i] = x[i] + 1 + 0 * y[i];
}"""


@pytest.mark.slow
@pytest.mark.emulator
def test_a_winner_in_a_process_of_its_own_is_right_beside_its_size() -> None:
    results = ck.tune(
        ck.Kernel(ODD), odd, {"FAULT": [0, 1]}, sizes=[40], config=ck.config(2, 32), stream=ck.emulator.stream(),
        strategy="exhaustive", isolated=True,
    )  # fmt: skip
    tuned = results[40]
    assert tuned.best == {"FAULT": 0}
    assert tuned.table[-1].why.startswith("size 39: ")
    assert tuned.confirmed == {"fresh data": "right", "emulator": "right", "size 39": "right", "size 41": "right"}


@pytest.mark.emulator
def test_what_is_known_stays_after_an_interrupt() -> None:
    class Interrupted:
        name, unit, repeats = "calls", "calls", False

        def __init__(self) -> None:
            self.count = 0

        def measure(self, launch: Any, stop_above: float) -> list[float]:
            self.count += 1
            if self.count > 1:
                raise KeyboardInterrupt
            return [1.0]

    stream = ck.emulator.stream()
    tuned = ck.tune(
        SCALE, arguments(stream), {"ITEMS": [1, 2, 4]}, config=ck.config(32, 32), stream=stream,
        objective=Interrupted(), strategy="exhaustive",
    )  # fmt: skip
    assert (tuned.ended, tuned.best) == ("interrupted", {"ITEMS": 1})
    assert "ended: interrupted" in str(tuned)


def test_welch_tells_what_is_slower_and_what_is_a_tie() -> None:
    rng = np.random.default_rng(0)
    fast, same, slow = (rng.normal(mean, 1, 100) for mean in (100, 100, 102))
    assert is_slower(slow, fast)
    assert not is_slower(same, fast)
    assert not is_slower(fast, slow)
    low, high = interval(fast)
    assert low < 100 < high
    assert high - low < 1


class Card:
    """A card whose kernel takes some µs, and each pair of events 2 µs more."""

    def __init__(self, kernel: float, can_capture: bool = True) -> None:
        self.kernel, self.can_capture = kernel, can_capture
        self.now, self.marks, self.captured, self.launches, self.graphs = 0.0, 0, -1, 0, 0

    def launch(self) -> None:
        if self.captured >= 0:
            if not self.can_capture:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.captured += 1
        else:
            self.launches += 1
            self.now += self.kernel

    def using(self, stream: Any) -> Any:
        return contextlib.nullcontext()

    def check(self, stream: Any) -> Any:
        return self

    def sync(self) -> None:
        assert self.captured < 0

    def mark(self, stream: Any, spent: Any = None) -> float:
        self.now += 1
        return self.now

    def elapsed_ms(self, begun: float, ended: float) -> float:
        return (ended - begun + 1) / 1000

    def create_graph_builder(self) -> Any:
        return self

    def begin_building(self) -> Any:
        self.captured = 0
        return self

    def end_building(self) -> None:
        self.size, self.captured = self.captured, -1

    def complete(self) -> Any:
        def launch(stream: Any) -> None:
            self.graphs += 1
            self.now += self.size * self.kernel

        return SimpleNamespace(launch=launch)


@pytest.mark.parametrize(
    ("card", "l2", "expected"),
    [
        (Card(5), "warm", 5.1),
        (Card(5, can_capture=False), "warm", 7),
        (Card(5), "flushed", 7),
        (Card(998), "warm", 998.5),
        (Card(3000), "warm", 3002),
    ],
)
def test_short_launches_are_timed_in_a_graph_where_they_can_be(card: Card, l2: str, expected: float) -> None:
    times = Time(ck.emulator.stream(), "warm")
    times._place, times._stream = card, card  # type: ignore[assignment]
    if l2 == "flushed":
        times._flush = lambda: None
    values = times.measure(card.launch, float("inf"))
    assert values == pytest.approx([expected] * len(values))
    assert (card.graphs > 0) == (expected in (5.1, 998.5))
    assert times.measure(card.launch, 1.0) == pytest.approx([card.kernel + 2] * 3)  # hopeless: three launches


@pytest.mark.emulator
def test_sizes_are_tuned_each_and_the_winner_is_right_beside_them() -> None:
    add = ck.Kernel(
        """
template <int FAULT> __global__ void add(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || (FAULT && n % 2 && i == n - 1)) return;
    y[i] = x[i] + 1;
    if (!FAULT) for (int k = 0; k < 20; k++) y[i] = x[i] + 1 + 0 * y[i];
}"""
    )

    def arguments(stream: Any, n: int) -> tuple[Any, ...]:
        return ck.to_device(np.arange(n, dtype=np.float32), stream), ck.to_device(np.zeros(n, np.float32), stream), n

    results = ck.tune(
        add, arguments, {"FAULT": [0, 1]}, sizes=[64, 100], config=lambda n: ck.config(-(-n // 32), 32),
        stream=ck.emulator.stream(), objective="instructions", strategy="exhaustive", workers=0,
    )  # fmt: skip
    assert [*results] == [64, 100]
    for tuned in results.values():
        assert tuned.best == {"FAULT": 0}
        assert "size" in tuned.table[1].why
        assert [name.split()[0] for name in tuned.confirmed] == ["fresh", "size", "size", "emulator"]
    with pytest.raises(ck.ArgumentError, match=r"arguments\(stream, -5\): ValueError.*negative"):
        ck.tune(
            add, arguments, {"FAULT": [0]}, sizes=[-5], config=lambda n: ck.config(1, 32), stream=ck.emulator.stream()
        )
    with pytest.raises(ck.ArgumentError, match="with sizes, arguments is a function"):
        ck.tune(add, (1, 2, 3), {"FAULT": [0]}, sizes=[4], stream=ck.emulator.stream())


def of_two(**more: Any) -> Any:
    """The result of a search by wavefronts and instructions: what saves the one costs the other."""
    trade = ck.Kernel(
        """
template <int KIND> __global__ void copy(const int* x, int* y) {
    __shared__ int s[32][32];
    const int k = threadIdx.x;
    int value = x[k];
    if (KIND > 0) { s[k][0] = value; __syncwarp(); value = s[k][0]; }           // conflicts
    for (int i = 0; i < (KIND == 0 ? 200 : KIND == 2 ? 100 : 0); i++) __syncwarp();
    y[k] = value;
}"""
    )
    stream = ck.emulator.stream()
    x = ck.to_device(np.arange(32, dtype=np.int32), stream)
    return ck.tune(
        trade, (x, ck.to_device(np.zeros(32, np.int32), stream)), {"KIND": [0, 1, 2]}, config=ck.config(1, 32),
        stream=stream, objective=["wavefronts", "instructions"], strategy="exhaustive", workers=0, **more,
    )  # fmt: skip


@pytest.mark.emulator
def test_several_objectives_have_a_front() -> None:
    tuned = of_two()
    assert tuned.best == {"KIND": 0}
    assert tuned.objectives == {"wavefronts": "wavefronts", "instructions": "instructions"}
    assert [row.state for row in tuned.table] == ["right"] * 3  # none is slow
    assert [row.point["KIND"] for row in tuned.front] == [0, 1]
    fewest, fewer = tuned.front
    assert fewest.values["wavefronts"] < fewer.values["wavefronts"]
    assert fewest.values["instructions"] > fewer.values["instructions"]
    assert fewest.value == fewest.values["wavefronts"]
    document = json.loads(tuned.to_json())
    assert document["front"] == [{"KIND": 0}, {"KIND": 1}]
    assert document["table"][0]["values"] == fewest.values
    lines = [line for line in tuned.explain().splitlines() if line.startswith("front: ")]
    assert lines[0].startswith("front: KIND=0: wavefronts 0, instructions ")
    assert len(lines) == 2
    assert "front" in str(tuned)


def test_a_front_leaves_out_what_another_beats() -> None:
    values = {"a": (1, 3), "b": (2, 2), "c": (2, 3), "d": (3, 1), "e": (1, 3)}
    rows = [Candidate({"name": name}, "right", values={"x": x, "y": y}) for name, (x, y) in values.items()]
    rows += [Candidate({"name": "f"}, "wrong", values={"x": 0, "y": 0}), Candidate({"name": "g"}, "right")]
    assert [row.point["name"] for row in front(rows, ["x", "y"])] == ["a", "b", "d", "e"]


@pytest.mark.emulator
def test_what_was_slow_beside_a_wrong_candidate_is_right_without_it() -> None:
    rows = [
        Candidate({}, state, value=value, low=value) for state, value in (("wrong", 1.0), ("slow", 4.0), ("slow", 5.0))
    ]
    rows += [Candidate({}, "slow", value=7.0, low=6.5), Candidate({}, "right", value=8.0, low=8.0)]
    Trials.reconsider(SimpleNamespace(candidates=rows))  # type: ignore[arg-type]
    assert [row.state for row in rows] == ["wrong", "right", "right", "slow", "right"]
    Trials.reconsider(SimpleNamespace(candidates=rows[:1]))  # type: ignore[arg-type]
    assert rows[0].state == "wrong"


def test_objectives_differ() -> None:
    stream = ck.emulator.stream()
    for objective in ([], ["sectors", "sectors"]):
        with pytest.raises(ck.ArgumentError, match="expected different objectives, at least one"):
            ck.tune(SCALE, arguments(stream), SPACE, config=blocks, stream=stream, objective=objective)


DEADLY = """
template <int FAULT> __global__ void add(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    while (FAULT == 1 && ((volatile const float*)x)[0] == 0) {}      // hangs
    if (FAULT == 2) y[i + (1 << 30)] = 1;                            // out of bounds
    if (i < n) y[i] = x[i] + 1;
    if (FAULT == 0) for (int k = 0; k < 20; k++) if (i < n) y[i] = x[i] + 1 + 0 * y[i];
}"""


@pytest.mark.slow
def test_a_launch_that_hangs_or_faults_costs_its_candidate(stream: Any) -> None:
    x = ck.to_device(np.arange(64, dtype=np.float32), stream)
    y = ck.to_device(np.zeros(64, np.float32), stream)
    objective = "instructions" if isinstance(stream, ck.emulator.EmulatedStream) else "time"
    tuned = ck.tune(
        ck.Kernel(DEADLY), (x, y, 64), {"FAULT": [0, 1, 2, 3]}, config=ck.config(2, 32), stream=stream,
        check=lambda x, y, n: x + 1, objective=objective, strategy="exhaustive", isolated=True, time_limit_s=5,
    )  # fmt: skip
    why = {row.point["FAULT"]: (row.state, row.why) for row in tuned.table}
    assert why[1] == ("failed", "no result after 5 s; its process was ended")
    assert why[2][0] == "failed"
    assert why[3][0] in ("right", "slow")
    assert why[0][0] in ("right", "slow")
    assert tuned.ended == "exhausted"


@pytest.mark.emulator
def test_a_result_is_explained_saved_and_drawn(tmp_path: Any) -> None:
    stream = ck.emulator.stream()
    tuned = ck.tune(
        SCALE, arguments(stream), SPACE, config=blocks, stream=stream, objective="sectors", strategy="exhaustive",
        workers=0,
    )  # fmt: skip
    lines = tuned.explain().splitlines()
    assert lines[0] == "best: ITEMS=1, BLOCK=32: 250"
    assert lines[1] == "ITEMS: 1 here; 2 +100.0%, 4 +300.0%"
    assert lines[2] == "BLOCK: 32 here; 128 +0.0%"
    assert lines[3] == "ties: ITEMS=1, BLOCK=128: 250"
    assert lines[4].startswith("1 × invalid: scale<float, 1>: block.x is 2048")
    tuned.save(tmp_path / "tuned.json")
    document = json.loads((tmp_path / "tuned.json").read_text())
    assert document["best"] == tuned.best
    assert len(document["table"]) == 9
    assert "ITEMS" in tuned._repr_html_()
    pytest.importorskip("matplotlib")
    figure = tuned.plot(tmp_path / "tuned.png")
    assert [axes.get_xlabel() for axes in figure.axes] == ["ITEMS", "BLOCK"]
    assert (tmp_path / "tuned.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.emulator
def test_a_check_that_returns_nothing_is_said() -> None:
    stream = ck.emulator.stream()
    with pytest.raises(ck.ArgumentError, match="check returned None: return the expected contents of y"):
        ck.tune(
            SCALE,
            arguments(stream),
            SPACE,
            config=blocks,
            stream=stream,
            objective="sectors",
            check=lambda x, y, by, n: None,
        )


@pytest.mark.emulator
def test_a_space_with_restrictions_is_searched_and_a_counter_is_shown_once() -> None:
    stream = ck.emulator.stream()
    space = Space({"ITEMS": [1, 2], "BLOCK": [32, 64]}, "ITEMS * BLOCK <= 64")
    lines: list[str] = []
    tuned = ck.tune(
        SCALE,
        arguments(stream),
        space,
        where="BLOCK > 32",
        config=blocks,
        stream=stream,
        objective="sectors",
        progress=lambda state: lines.append(str(state)),
    )
    assert [row.point for row in tuned.table] == [{"ITEMS": 1, "BLOCK": 64}]
    assert lines[0].startswith("1/1  right 250: ITEMS=1, BLOCK=64  best 250")
    assert "sectors in" not in str(tuned)
    assert "–" not in str(tuned)


@pytest.mark.emulator
def test_a_counter_counts_the_callers_contents() -> None:
    """The count of this kernel depends on what it overwrites."""
    kernel = ck.Kernel(
        "template <int A> __global__ void mark(float* y, int* launches, int n) {\n"
        "    if (threadIdx.x == 0) atomicAdd(launches, 1);\n"
        "    if (y[threadIdx.x] > 0) for (int i = 0; i < 100; i++) atomicAdd(launches + 1, 1);\n"
        "    y[threadIdx.x] = -1;\n}"
    )
    stream = ck.emulator.stream()
    few, many = (
        ck.tune(
            kernel,
            (np.full(32, start, np.float32), np.zeros(2, np.int32), 32),
            {"A": [1]},
            config=ck.config(1, 32),
            stream=stream,
            objective="instructions",
        )
        for start in (0, 1)
    )
    assert (many.table[0].value or 0) > 100 > (few.table[0].value or 0)


@pytest.mark.emulator
def test_explain_says_differences_from_a_best_value_of_zero() -> None:
    kernel = ck.Kernel(
        "template <int STEP> __global__ void turn(float* y) {\n"
        "    __shared__ float s[32 * STEP];\n    s[threadIdx.x * STEP] = threadIdx.x;\n    __syncthreads();\n"
        "    y[threadIdx.x] = s[(31 - threadIdx.x) * STEP];\n}"
    )
    stream = ck.emulator.stream()
    y = ck.empty(32, np.float32, stream=stream)
    tuned = ck.tune(kernel, (y,), {"STEP": [1, 2]}, config=ck.config(1, 32), stream=stream, objective="bank_conflicts")
    assert "STEP: 1 here; 2 +2" in tuned.explain().splitlines()


def test_without_matplotlib_a_plot_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ck.CudakitError, match=r"a search is drawn with matplotlib .*install it with: pip install"):
        views.plot(None)
