"""Asynchronous copies that are not waited for, or not long enough."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

HEAD = """
#include <cuda/barrier>
#include <cuda_pipeline_primitives.h>
namespace bulk = cuda::device::experimental;
"""

#: The line of each fault has the comment "copy", of a race "race".
FAULTS = """
__global__ void not_waited_for(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];  // copy
    __pipeline_wait_prior(0);
}
__global__ void one_group_too_few(float* x, float* y) {
    __shared__ float s[2][64];
    for (int k = 0; k < 2; ++k) {
        __pipeline_memcpy_async(&s[k][threadIdx.x], &x[threadIdx.x], 4);
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    y[threadIdx.x] = s[0][threadIdx.x];
    y[threadIdx.x] += s[1][threadIdx.x];  // copy
    __pipeline_wait_prior(0);
}
__global__ void not_committed(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];  // copy
    __pipeline_commit();
    __pipeline_wait_prior(0);
}
__global__ void source_is_written(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    x[threadIdx.x] = 0;  // copy
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void target_is_written(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);
    __pipeline_commit();
    s[threadIdx.x] = 1;  // copy
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void leaked(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  // copy
    __pipeline_commit();
    y[threadIdx.x] = 1;
}
__global__ void leaked_by_one(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  // copy
    __pipeline_commit();
    if (threadIdx.x == 40) return;
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void leaked_prefetch(float* x, float* y) {
    __shared__ float s[2][32];
    unsigned i = threadIdx.x % 32;
    for (int k = 0; k < 2; ++k) {
        if (threadIdx.x < 32) __pipeline_memcpy_async(&s[k][i], &x[32 * k + i], 4);  // copy
        __pipeline_commit();
    }
    __pipeline_wait_prior(1);
    if (threadIdx.x < 32) y[i] = s[0][i];
}
__global__ void leaked_bulk(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    s[threadIdx.x] = threadIdx.x;
    bulk::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) bulk::cp_async_bulk_shared_to_global(y, s, sizeof s);  // copy
}
__global__ void leaked_prefetch_in_bulk(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) {
        init(&ready, 1);
        bulk::fence_proxy_async_shared_cta();
        bulk::cp_async_bulk_global_to_shared(s, x, sizeof s, ready);  // copy
        auto token = cuda::device::barrier_arrive_tx(ready, 1, sizeof s);
    }
}
__global__ void no_barrier_after_the_wait(float* x, float* y) {
    __shared__ float s[64];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  // race
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = s[63 - threadIdx.x];  // race
}
__global__ void no_barrier_before_the_next(float* x, float* y) {
    __shared__ float s[64];
    for (int k = 0; k < 2; ++k) {
        __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4);  // race
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        y[threadIdx.x] += s[63 - threadIdx.x];  // race
    }
}
__global__ void bulk_not_waited_for(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) { init(&ready, 1); bulk::fence_proxy_async_shared_cta(); }
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_global_to_shared(s, x, sizeof s, ready);
        auto token = cuda::device::barrier_arrive_tx(ready, 1, sizeof s);
    }
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];  // copy
    ready.wait_parity(false);
}
__global__ void bulk_source_is_written(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    s[threadIdx.x] = threadIdx.x;
    bulk::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_shared_to_global(y, s, sizeof s);
        bulk::cp_async_bulk_commit_group();
    }
    __syncthreads();
    s[threadIdx.x] = 1;  // copy
    if (threadIdx.x == 0) bulk::cp_async_bulk_wait_group_read<0>();
}
"""

CLEAN = """
__global__ void two_stages(float* x, float* y) {
    __shared__ float s[2][16];
    unsigned i = threadIdx.x;
    if (i >= 16) return;
    __pipeline_memcpy_async(&s[0][i], &x[i], 4);
    __pipeline_commit();
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        if (k < 3) __pipeline_memcpy_async(&s[(k + 1) % 2][i], &x[16 * (k + 1) + i], 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncwarp(0xffff);
        sum += s[k % 2][15 - i];
        __syncwarp(0xffff);
    }
    y[i] = sum;
}
__global__ void by_barrier(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) init(&ready, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 4, ready);
    ready.arrive_and_wait();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void by_bulk(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> ready;
    if (threadIdx.x == 0) { init(&ready, blockDim.x); bulk::fence_proxy_async_shared_cta(); }
    __syncthreads();
    auto token = threadIdx.x == 0 ? (bulk::cp_async_bulk_global_to_shared(s, x, sizeof s, ready),
        cuda::device::barrier_arrive_tx(ready, 1, sizeof s)) : ready.arrive();
    ready.wait(cuda::std::move(token));
    float got = s[63 - threadIdx.x];
    __syncthreads();
    s[threadIdx.x] = got;
    bulk::fence_proxy_async_shared_cta();
    __syncthreads();
    if (threadIdx.x == 0) {
        bulk::cp_async_bulk_shared_to_global(y, s, sizeof s);
        bulk::cp_async_bulk_commit_group();
        bulk::cp_async_bulk_wait_group_read<0>();
    }
    __syncthreads();
    s[threadIdx.x] = 0;
}
__global__ void in_part(float* x, float* y) {
    __shared__ alignas(16) float s[64];
    unsigned i = threadIdx.x;
    if (i < 16) __pipeline_memcpy_async(&s[4 * i], &x[4 * i], 16, i % 4 * 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    y[i] = s[i];
}
"""
NAMES = re.findall(r"void (\w+)\(", FAULTS)


def lines(name: str) -> dict[str, set[int]]:
    """Lines of a kernel by their comments."""
    text = FAULTS.splitlines()
    begin = next(k for k, line in enumerate(text) if f" {name}(" in line)
    end = next(k for k in range(begin, len(text)) if text[k] == "}")
    found: dict[str, set[int]] = {}
    for k in range(begin, end):
        if word := re.search(r"// (\w+)$", text[k]):
            found.setdefault(word[1], set()).add(k)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_fault_is_found_on_its_line(name: str, blocks: int) -> None:
    y = np.zeros(64, np.float32)
    with ck.check() as report:
        ck.Kernel(HEAD + FAULTS, name)(ck.emulator.stream(), ck.config(1, 64), np.zeros(64, np.float32), y)
    found = {(each.kind, each.line - HEAD.count("\n") - 1) for each in report.findings}
    assert found, name
    assert found <= {(kind, line) for kind, at in lines(name).items() for line in at}, report


@pytest.mark.parametrize("name", re.findall(r"void (\w+)\(", CLEAN))
@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_what_is_waited_for_is_no_fault(name: str, schedule: int | None) -> None:
    x, results = np.arange(64, dtype=np.float32), []
    for stream in (ck.emulator.stream(check="raise", schedule=schedule), ck.emulator.stream()):
        results.append(np.zeros(64, np.float32))
        ck.Kernel(HEAD + CLEAN, name)(stream, ck.config(1, 64), x, results[-1])
    np.testing.assert_array_equal(*results)


def test_a_copy_lands_when_it_is_waited_for() -> None:
    x, at_once, late = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), np.zeros(64, np.float32)
    kernel = ck.Kernel(HEAD + FAULTS, "not_waited_for")
    kernel(ck.emulator.stream(), ck.config(1, 64), x, at_once)
    kernel(ck.emulator.stream(schedule=1), ck.config(1, 64), x, late)
    np.testing.assert_array_equal(at_once, x)
    assert (late != x).all()


def test_what_is_stored_in_bulk_arrives_at_the_end_at_the_latest() -> None:
    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    ck.Kernel(HEAD + FAULTS, "leaked_bulk")(ck.emulator.stream(schedule=1), ck.config(1, 64), x, y)
    np.testing.assert_array_equal(y, np.arange(64, dtype=np.float32))
