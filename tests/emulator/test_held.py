"""Which decoded programs the emulator holds: the most recently used, up to a bound, and the variables of all."""

from __future__ import annotations

import gc
import itertools
import re
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator import launch, ready
from cudakit.emulator.machine import module
from cudakit.emulator.machine.decode import Decoded
from cudakit.emulator.ptx.program import Instruction

ADDING = "template <int N> __global__ void adding(int* x) { x[0] += N; }"
ONCE = ck.config(1, 1)
NUMBERS = itertools.count()


class Adding:
    """A kernel that no other test has used: one specialization, and one program, for each number."""

    def __init__(self) -> None:
        self.kernel = ck.Kernel(f"// {next(NUMBERS)}\n{ADDING}")

    def __call__(self, number: int) -> int:
        """What the kernel for `number` makes of 1000."""
        x = np.array([1000], np.int32)
        self.kernel[number](emulator.stream(), ONCE, x)
        return int(x[0])


@pytest.fixture
def adding() -> Adding:
    return Adding()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> module.Programs:
    """There is room for three of the kernels."""
    one, made = Adding(), module.Programs(0)
    monkeypatch.setattr(ready, "PROGRAMS", made)
    one(9)
    made.most = 3 * made.instructions
    return made


def count_parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kernels that are parsed from now on."""
    parsed: list[str] = []
    parse = launch.parse

    def counting(text: str) -> Any:
        entry = re.search(r"\.entry (\w+)", text)
        assert entry
        parsed.append(entry[1])
        return parse(text)

    monkeypatch.setattr(launch, "parse", counting)
    return parsed


def objects() -> int:
    """Instructions that are alive, garbage included."""
    return sum(isinstance(thing, Instruction | Decoded) for thing in gc.get_objects())


def test_the_least_recently_used_goes_first(
    held: module.Programs, adding: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = count_parsed(monkeypatch)
    for number in (1, 2, 3, 1, 4, 1, 3, 4):
        assert adding(number) == 1000 + number
    assert len(parsed) == 4
    assert adding(2) == 1002
    assert adding(3) == 1003
    assert adding(4) == 1004
    assert len(parsed) == 5
    assert adding(1) == 1001
    assert len(parsed) == 6
    assert 0 < held.instructions <= held.most


@pytest.mark.slow
def test_what_goes_is_gone_at_once(held: module.Programs, adding: Adding) -> None:
    """Without a garbage collection: what one has frozen it never looks at again."""
    for number in range(1, 4):
        adding(number)
    gc.collect()
    gc.disable()
    try:
        before = objects()
        for number in range(4, 30):
            assert adding(number) == 1000 + number
        after = objects()
    finally:
        gc.enable()
    assert after <= before, (before, after)


def test_one_that_is_larger_than_the_bound_is_held_alone(
    held: module.Programs, adding: Adding, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = count_parsed(monkeypatch)
    adding(1)
    large = ck.Kernel("__global__ void large(int* x) {" + "atomicAdd(x, x[1]); " * 40 + "}")
    x = np.array([0, 3], np.int32)
    for _ in range(3):
        large(emulator.stream(), ONCE, x)
    assert x[0] == 360
    assert len(parsed) == 2
    assert held.instructions > held.most
    adding(1)
    assert len(parsed) == 3
    assert held.instructions < held.most


def test_variables_keep_their_state(held: module.Programs, adding: Adding, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel("""
        __constant__ int table[4] = {1, 2, 3, 4};
        __device__ int count = 5;
        __device__ int* where = &count;
        __device__ int tripled(int x) { return 3 * x; }
        __device__ int plus_one(int x) { return x + 1; }
        __device__ int (*chosen)(int) = plus_one;
        __global__ void f(int* out, int change) {
            if (change) { chosen = tripled; count = 50; }
            out[0] = ++*where; out[1] = chosen(10); out[2] = table[2];
        }""")
    parsed = count_parsed(monkeypatch)
    stream, out = emulator.stream(), np.zeros(3, np.int32)

    def call_it(change: int) -> list[int]:
        kernel(stream, ONCE, out, change)
        return [int(value) for value in out]

    def evict() -> None:
        for number in range(1, 6):
            adding(number)

    assert call_it(0) == [6, 11, 3]
    kernel.globals["table"] = np.array([7, 8, 9, 10], np.int32)
    evict()
    assert call_it(1) == [51, 30, 9]
    address = kernel.globals.address("count")
    evict()
    kernel.globals["count"] = 70
    assert call_it(0) == [71, 30, 9]
    evict()
    assert int(kernel.globals["count"]) == 71
    assert kernel.globals.address("count") == address
    assert sum("f" in entry and "adding" not in entry for entry in parsed) == 3


def test_plans_and_graphs_outlive_their_decoded_programs(held: module.Programs, adding: Adding) -> None:
    stream, x = emulator.stream(), np.array([0], np.int32)
    plan = adding.kernel[100].plan(stream, ONCE, x)
    with ck.capture(stream) as graph:
        adding.kernel[1000](stream, ONCE, x)
    for _ in range(2):
        for number in range(1, 6):
            adding(number)
        plan()
        graph.launch()
    assert x[0] == 2200


def test_a_kernel_that_runs_goes_on_when_it_has_to_go(held: module.Programs, adding: Adding) -> None:
    """What takes a kernel's output may launch others."""
    seen: list[int] = []

    def take(text: str) -> None:
        seen.extend(adding(number) for number in range(1, 6))

    printing = ck.Kernel("""
        __device__ __noinline__ int twice(int x) { return 2 * x; }
        __global__ void f(int* x) {
            printf("now");
            for (int i = 0; i < 3; ++i) x[0] = twice(x[0]);
            printf("and then");
            x[1] = twice(x[x[2]]);
        }""")
    x = np.array([1, 0, 0], np.int32)
    printing(emulator.stream(output=take), ONCE, x)
    assert (x.tolist(), seen) == ([8, 16, 0], [*range(1001, 1006)] * 2)
    x[2] = 100
    with pytest.raises(ck.EmulationError, match=r"^f: ld.*x with 3 elements: element 100 is past the end"):
        printing(emulator.stream(output=take), ONCE, x)


def test_errors_after_it_is_read_again_are_the_same(held: module.Programs, adding: Adding) -> None:
    kernel = ck.Kernel("__global__ void past(int* x) { x[4] = 1; }")
    words = []
    for _ in range(2):
        with pytest.raises(ck.EmulationError) as caught:
            kernel(emulator.stream(), ONCE, np.zeros(4, np.int32))
        words.append(re.sub("0x[0-9a-f]+", "", str(caught.value)))
        for number in range(1, 6):
            adding(number)
    assert words[0] == words[1]
