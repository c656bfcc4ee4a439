"""Blocks of compiled code that wait for later blocks: each of them runs, once."""

from __future__ import annotations

import numpy as np
import pytest
from support.machines import agreed

import cudakit as ck

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

NONE = -1
KERNEL = """__global__ void turns(const int* waits_for, int* runs, volatile int* done) {
    // So that a fault ends, too: a block that runs again is done, and one that waits for none that runs gives up.
    int block = blockIdx.x, other = waits_for[block];
    if (threadIdx.x || atomicAdd(runs + block, 1)) return;
    for (int looks = 0; other >= 0 && !done[other]; ++looks)
        if (looks == 100000) return;
    done[block] = 1;
}"""


@pytest.mark.parametrize(
    "waits_for",
    [
        [NONE, NONE, NONE],
        [NONE, 2, NONE],  # the first block that waits is not the first
        [1, 2, 3, 4, NONE],  # all wait at once
        [1, NONE, NONE, 4, NONE, NONE],  # one block waits after another has gone on
        [5, 2, NONE, 4, 5, NONE, 7, NONE],
        [3, 3, 3, NONE, NONE, 6, NONE],
    ],
    ids=str,
)
def test_each_block_runs_once(waits_for: list[int]) -> None:
    count = len(waits_for)
    runs, done = (np.zeros(count, np.int32) for _ in range(2))
    given = np.array(waits_for, np.int32), runs, done
    _, runs, done = agreed(lambda: ck.Kernel(KERNEL), ck.config(count, 32), *given)
    np.testing.assert_array_equal(runs, 1)
    np.testing.assert_array_equal(done, 1)
