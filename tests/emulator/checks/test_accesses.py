"""Accesses that memory does not have: errors of the emulator at any time, here as the faults that they are on a GPU."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

#: The line of each fault has the comment "memory".
FAULTS = """
__global__ void past_the_end(float* x, float* y) {
    y[threadIdx.x] = x[960 + 2 * threadIdx.x];  // memory
}
__global__ void before_the_first(float* x, float* y) {
    y[(int)threadIdx.x - 63 - (int)x[0]] = 1;  // memory
}
__global__ void misaligned(float* x, float* y) {
    y[threadIdx.x] = *(float*)((char*)x + threadIdx.x);  // memory
}
__global__ void past_shared(float* x, float* y) {
    __shared__ float s[64];
    s[threadIdx.x * 512 + (int)x[0]] = 1;  // memory
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void null(float* x, float* y) {
    float** held = (float**)x;
    *held[threadIdx.x] = 1;  // memory
}
"""


@pytest.mark.parametrize("name", re.findall(r"void (\w+)\(", FAULTS))
def test_an_access_that_memory_does_not_have_is_an_error_on_its_line(name: str) -> None:
    with open(__file__, encoding="utf-8") as file:
        first = file.read().splitlines().index('FAULTS = """') + 1
    text = FAULTS.splitlines()
    begin = next(k for k, line in enumerate(text) if f" {name}(" in line)
    line = first + next(k for k in range(begin, len(text)) if "// memory" in text[k])
    x, y = np.zeros(1024, np.float32), np.zeros(1024, np.float32)
    with pytest.raises(ck.EmulationError, match=rf"test_accesses\.py:{line}\b"):
        ck.Kernel(FAULTS, name)(ck.emulator.stream(), ck.config(1, 64), x, y)
