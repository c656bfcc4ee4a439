"""A launch that runs for longer than compiling takes begins anew as machine code, and changes memory once."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine.former import Former

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
from cudakit.emulator.compiled import machine

pytestmark = pytest.mark.emulator

PROGRAM = """
#include <cstdio>
__device__ int launches;
__global__ void counts(int *x, float *wide, int *total, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i == 0) total[1] = ++launches;
    x[i] += 1;
    wide[i * 1024] += 2;
    atomicAdd(total, 1);
    for (int k = 0; k < n; k++) x[i] = x[i] * 3 % 1001;
}
__global__ void prints(int *x, int n) {
    if (threadIdx.x == 0) printf("begun\\n");
    for (int k = 0; k < n; k++) x[threadIdx.x] += k & 1;
}
__global__ void reads(unsigned long long texture, float *x, int n) {
    for (int k = 0; k < n; k++) x[threadIdx.x] += tex1Dfetch<float>(texture, k & 7);
}"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a launch begin anew after about two steps for each instruction."""
    monkeypatch.setattr(machine, "_FIRST", 0)
    monkeypatch.setattr(machine, "_STEPS", 2)


def test_a_long_launch_changes_memory_once(impatient: None) -> None:
    counts, results = ck.Module(PROGRAM)["counts"], list[np.ndarray]()
    launches: list[int] = []
    for back_end in ("auto", "numpy"):
        x, total = np.arange(512, dtype=np.int32), np.zeros(2, np.int32)
        wide = np.zeros(512 * 1024, np.float32)  # above the bytes that are copied whole
        stream = emulator.stream(machine=back_end)
        counts(stream, ck.config(4, 128), x, wide, total, 300)
        stream.sync()
        assert counts.attributes().machine == {"auto": "compiled"}.get(back_end, back_end)
        assert total[0] == 512
        assert wide[::1024].min() == wide[::1024].max() == 2
        assert wide.sum() == 1024
        results.append(x)
        launches.append(int(total[1]))
    np.testing.assert_array_equal(*results)
    assert launches[1] == launches[0] + 1


def test_what_a_launch_prints_is_printed_once(impatient: None) -> None:
    printed: list[str] = []
    x, prints = np.zeros(32, np.int32), ck.Module(PROGRAM)["prints"]
    prints(emulator.stream(output=printed.append), ck.config(1, 32), x, 400)
    assert printed == ["begun\n"]
    assert prints.attributes().machine == "numpy"
    assert x[0] == 200


def test_a_kernel_that_cannot_be_compiled_goes_on(impatient: None) -> None:
    x, reads = np.zeros(32, np.float32), ck.Module(PROGRAM)["reads"]
    stream = emulator.stream()
    texture = ck.texture(np.arange(8, dtype=np.float32), memory="linear")
    for _ in range(2):
        reads(stream, ck.config(1, 32), texture, x, 400)
    assert reads.attributes().machine == "numpy"
    assert (x == 2 * 1400).all()


def test_contents_are_restored_the_latest_first() -> None:
    small, large = np.arange(8, dtype=np.uint8), np.zeros(2 << 20, np.uint8)
    former = Former()
    for value in (7, 9):
        former.keep(small, small[2:], np.array([0]))
        small[2] = value
        former.keep(large, large, np.array([5, 6]))
        large[[5, 6]] = value
    former.restore()
    assert small.tolist() == [*range(8)]
    assert not large.any()


def test_a_launch_that_writes_over_too_much_cannot_begin_anew() -> None:
    former, large = Former(most=3), np.zeros(2 << 20, np.uint8)
    former.keep(large, large, np.array([1, 2]))
    assert former.is_complete
    former.keep(large, large, np.array([3, 4]))
    assert not former.is_complete
