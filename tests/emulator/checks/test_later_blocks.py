"""Checks of blocks that run after others, because not all blocks of a launch fit at once."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.machine import module

pytestmark = pytest.mark.emulator

THREADS, BLOCKS = 64, 3


@pytest.fixture(autouse=True)
def _one_block_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LANES", THREADS)


def findings(body: str) -> list[str]:
    """What the checks find in a kernel, as text up to the place."""
    kernel = ck.Kernel(f"__global__ void k(int* y) {{ int t = threadIdx.x, b = blockIdx.x; {body} }}", "k")
    with ck.check() as report:
        kernel(ck.emulator.stream(step_budget=100_000), ck.config(BLOCKS, THREADS), np.zeros(256, np.int32))
    return [each.text for each in report.findings]


@pytest.mark.parametrize(
    "body",
    [
        # Two lanes store to each place, with one instruction, what is the same.
        "__shared__ int s[32]; s[t % 32] = t % 32; __syncthreads(); y[64 * b + t] = s[t % 32];",
        "y[32 * b + t % 32] = t % 32;",
        # Each lane alone has its place.
        "y[64 * b + t] = t; y[64 * b + t] += 1;",
        # The second warp waits for the first warp's flag.
        """volatile int* flag = y + 200 + b;
        if (t == 0) { y[b] = 3; __threadfence_block(); *flag = 1; }
        if (t == 32) { while (*flag != 1) {} __threadfence_block(); y[32 + b] = y[b]; }""",
        # A block waits for the flag of the block before it.
        """volatile int* flag = y + 200;
        if (t == 0) {
            if (b) while (flag[b - 1] != 1) {}
            __threadfence(); y[b] = b ? y[b - 1] + 1 : 1; __threadfence(); flag[b] = 1;
        }""",
    ],
)
def test_a_block_that_runs_later_has_no_race_of_its_own(body: str) -> None:
    assert not findings(body)


def test_the_thread_whose_value_stays_is_named() -> None:
    (text,) = findings("__shared__ int s[1]; if (b == 2) s[0] = t; __syncthreads(); if (b == 2) y[t] = s[0];")
    assert text.startswith("race: block 2, thread 0 writes")
    assert "which block 2, thread 63 writes at" in text


def test_the_thread_before_in_the_same_block_is_named() -> None:
    (text,) = findings("if (b == 2) { y[t] = t; y[64 + t] = y[(t + 32) % 64]; }")
    assert text.startswith("race: block 2, thread 0 reads y[32]")
    assert "which block 2, thread 32 writes at" in text
    (text,) = findings("if (b == 2) { if (t == 0) y[0] = 1; if (t >= 32) y[t] = y[0]; }")
    assert "which block 2, thread 0 writes at" in text


def test_a_race_with_a_block_that_is_done_is_found() -> None:
    (text,) = findings("if (b != 1) y[t] = b;")
    assert text.startswith("race: block 2, thread 0 writes y[0]")
    assert "which a thread of an earlier block writes at" in text
    (text,) = findings("if (b == 1 && t == 63) y[0] = b; if (b == 2 && t == 0) y[1] = y[0];")
    assert "which a thread of an earlier block writes at" in text
    (text,) = findings("if (b == 0) y[t] = 1; if (b == 2) y[100 + t] = y[t];")
    assert text.startswith("race: block 2, thread 0 reads y[0]")


def test_a_flag_without_a_fence_orders_nothing_of_an_earlier_block() -> None:
    (text,) = findings(
        """volatile int* flag = y + 200;
        if (t == 0 && b == 0) { y[0] = 3; *flag = 1; }
        if (t == 0 && b == 1) { while (*flag != 1) {} __threadfence(); y[1] = y[0]; }"""
    )
    assert text.startswith("race: block 1, thread 0 reads y[0]")


def test_a_fence_of_the_block_orders_nothing_for_a_later_block() -> None:
    (text,) = findings(
        """volatile int* flag = y + 200;
        if (t == 0 && b == 0) { y[0] = 3; __threadfence_block(); *flag = 1; }
        if (t == 0 && b == 1) { while (*flag != 1) {} __threadfence_block(); y[1] = y[0]; }"""
    )
    assert text.startswith("race: block 1, thread 0 reads y[0]")
