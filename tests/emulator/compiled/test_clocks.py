"""Clocks of machine code: they grow with each read, and are the same in each run."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")

pytestmark = pytest.mark.emulator

READS = ck.Kernel("""
__device__ unsigned long long timer() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}
__global__ void reads(unsigned long long *out) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    unsigned before = clock();
    long long start = clock64();
    unsigned long long time = timer();
    if (i % 3) time = timer();
    while (clock64() - start < 10000) {}
    bool grows = clock64() > start && timer() > time && clock() - before < 1u << 31;
    out[i] = grows ? start : 0;
}""")


def test_clocks_grow_and_are_the_same_in_each_run() -> None:
    runs = [np.zeros(20_000, np.uint64) for _ in range(2)]
    for out in runs:
        READS(emulator.stream(machine="compiled"), ck.config(200, 100), out)
    assert READS.attributes().machine == "compiled"
    assert runs[0].min() > 0
    np.testing.assert_array_equal(*runs)


def test_a_launch_has_as_many_steps_as_its_clock() -> None:
    waits = ck.Kernel("__global__ void waits(long long n) { long long t = clock64(); while (clock64() - t < n) {} }")
    stream = emulator.stream(machine="compiled")
    for cycles in (10_000, 100_000):
        before = stream.clock
        waits(stream, ck.config(3, 40), cycles)
        assert cycles <= stream.clock - before < 7 * cycles  # one core runs six warps, one after the other
