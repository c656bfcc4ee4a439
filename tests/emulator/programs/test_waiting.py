"""Threads that wait for each other: look-back, barriers, pipelines, locks, semaphores, latches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import capability
from support.programs import run

import cudakit as ck
from cudakit.emulator.machine.module import MOST_LANES

RANDOM = np.random.default_rng(10)

LOOK_BACK = """
// A single-pass inclusive scan. A word of `state` is 2 bits of kind (0 nothing, 1 own sum, 2 sum of all so far) over 62
// bits of sum. Blocks take their tiles by a ticket, so that what a block waits for has always begun.
template <int B> __global__ void scan(const int* x, long long* out, unsigned* ticket,
                                      volatile unsigned long long* state, int n) {
    __shared__ int sums[B];
    __shared__ unsigned tile;
    __shared__ long long before;
    int t = threadIdx.x;
    if (t == 0) tile = atomicAdd(ticket, 1u);
    __syncthreads();
    int i = tile * B + t;
    sums[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 1; d < B; d *= 2) {
        int more = t >= d ? sums[t - d] : 0;
        __syncthreads();
        sums[t] += more;
        __syncthreads();
    }
    if (t == B - 1) {
        unsigned long long own = sums[t], mask = (1ull << 62) - 1, sum = 0;
        if (tile > 0) {
            state[tile] = 1ull << 62 | own;
            __threadfence();
            for (int p = tile - 1;; p--) {
                unsigned long long word;
                do word = state[p]; while (word >> 62 == 0);
                sum += word & mask;
                if (word >> 62 == 2) break;
            }
        }
        state[tile] = 2ull << 62 | (sum + own);
        before = sum;
    }
    __syncthreads();
    if (i < n) out[i] = before + sums[t];
}
"""


def test_single_pass_scan_over_more_blocks_than_run_at_once(stream: Any) -> None:
    block, n = 64, 3 * MOST_LANES + 17
    tiles = -(-n // block)
    x, out = RANDOM.integers(0, 1000, n).astype(np.int32), np.zeros(n, np.int64)
    ticket, state = np.zeros(1, np.uint32), np.zeros(tiles, np.uint64)
    run(stream, ck.Kernel(LOOK_BACK)[block], ck.config(tiles, block), x, out, ticket, state, n)
    assert (out == np.cumsum(x, dtype=np.int64)).all()
    assert ticket[0] == tiles


PRODUCER = """
#include <cuda/barrier>
using barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int STEPS = 12, HALF = 64;
__global__ void kernel(const float* x, float* out) {
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full[2], empty[2];
    __shared__ float buffer[2][HALF];
    int t = threadIdx.x % HALF;
    if (threadIdx.x == 0) for (int i = 0; i < 2; i++) init(&full[i], 2 * HALF), init(&empty[i], 2 * HALF);
    __syncthreads();
    if (threadIdx.x < HALF) {
        for (int s = 0; s < STEPS; s++) {
            empty[s % 2].arrive_and_wait();
            buffer[s % 2][t] = x[s * HALF + t] * 2;
            (void)full[s % 2].arrive();
        }
    } else {
        float sum = 0;
        (void)empty[0].arrive();
        (void)empty[1].arrive();
        for (int s = 0; s < STEPS; s++) {
            full[s % 2].arrive_and_wait();
            sum += buffer[s % 2][HALF - 1 - t] * (s + 1);
            if (s + 2 < STEPS) (void)empty[s % 2].arrive();
        }
        out[t] = sum;
    }
}
"""


@pytest.mark.slow
def test_warps_that_produce_and_warps_that_consume(stream: Any) -> None:
    # Small whole numbers, so that every order of the sums gives the same floats.
    x, out = RANDOM.integers(-9, 9, (12, 64)).astype(np.float32), np.zeros(64, np.float32)
    run(stream, ck.Kernel(PRODUCER), ck.config(1, 128), x, out)
    assert (out == (2 * np.arange(1, 13)[:, None] * x[:, ::-1]).sum(0)).all()


MBARRIER = """
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using word = cuda::std::uint64_t;
__global__ void kernel(const int* x, int* out, int steps) {
    // One warp copies in bulk, three sum; the copy's bytes complete the barrier's phase.
    __shared__ alignas(16) int stage[2][96];
    __shared__ word full[2], empty[2];
    int t = threadIdx.x, sum = 0;
    if (t == 0) for (int i = 0; i < 2; i++) ptx::mbarrier_init(&full[i], 1), ptx::mbarrier_init(&empty[i], 96);
    __syncthreads();
    if (t < 32) {
        for (int s = 0; s < steps; s++) {
            int at = s % 2, phase = s / 2 % 2;
            while (!ptx::mbarrier_try_wait_parity(&empty[at], phase ^ 1));
            if (t == 0) {
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[at], 384);
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[at], x + s * 96, 384, &full[at]);
            }
            __syncwarp();
        }
    } else {
        for (int s = 0; s < steps; s++) {
            int at = s % 2, phase = s / 2 % 2;
            while (!ptx::mbarrier_try_wait_parity(&full[at], phase));
            sum = sum * 3 + stage[at][127 - t];
            ptx::mbarrier_arrive(&empty[at]);
        }
        out[t - 32] = sum;
    }
}
"""


def test_bulk_copies_complete_an_mbarrier(stream: Any) -> None:
    if capability(stream) < (9, 0):
        pytest.skip("bulk copies come with compute capability 9.0")
    x, out = RANDOM.integers(-9, 9, (7, 96)).astype(np.int32), np.zeros(96, np.int32)
    run(stream, ck.Kernel(MBARRIER), ck.config(1, 128), x.reshape(-1), out, 7)
    expected = np.zeros(96, np.int32)
    for row in x:
        expected = expected * 3 + row[::-1]
    assert (out == expected).all()


PIPELINE = """
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
using shared_state = cuda::pipeline_shared_state<cuda::thread_scope_block, 2>;
__global__ void kernel(const int* x, int* out, int batches) {
    __shared__ int stage[2][64];
    __shared__ shared_state all_state, roles_state;
    auto block = cg::this_thread_block();
    int t = threadIdx.x, sum = 0;
    auto all = cuda::make_pipeline(block, &all_state);
    for (int b = 0, f = 0; b < batches; b++) {
        for (; f < batches && f < b + 2; f++) {
            all.producer_acquire();
            cuda::memcpy_async(block, stage[f % 2], x + f * 64, cuda::aligned_size_t<16>(256), all);
            all.producer_commit();
        }
        all.consumer_wait();
        sum = sum * 3 + stage[b % 2][63 - t];
        all.consumer_release();
    }
    out[t] = sum;
    auto role = t < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto roles = cuda::make_pipeline(block, &roles_state, role);
    sum = 0;
    for (int b = 0; b < batches; b++) {
        if (t < 32) {
            roles.producer_acquire();
            cuda::memcpy_async(&stage[b % 2][t], x + b * 64 + t, 4, roles);
            stage[b % 2][32 + t] = b;
            roles.producer_commit();
        } else {
            roles.consumer_wait();
            sum += stage[b % 2][63 - t] * (stage[b % 2][t] + 1);
            roles.consumer_release();
        }
    }
    out[64 + t] = sum;
}
"""


@pytest.mark.slow
def test_pipelines(stream: Any) -> None:
    x, out = RANDOM.integers(0, 9, (7, 64)).astype(np.int32), np.zeros(128, np.int32)
    run(stream, ck.Kernel(PIPELINE), ck.config(1, 64), x.reshape(-1), out, 7)
    expected = np.zeros(64, np.int32)
    for row in x:
        expected = expected * 3 + row[::-1]
    assert (out[:64] == expected).all()
    assert not out[64:96].any()
    assert (out[96:] == (np.arange(1, 8)[:, None] * x[:, ::-1][:, 32:]).sum(0)).all()


LOCKS = """
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>
struct Node { int value, next; };
__device__ cuda::counting_semaphore<cuda::thread_scope_device, 3> semaphore(3);
__device__ cuda::latch<cuda::thread_scope_device> latch(256);
__global__ void kernel(int* counters, Node* nodes, int* head, long long* sums, int* words) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    volatile int* c = counters;
    // A lock that each lane takes by itself, around steps that are not atomic; then one that is waited for asleep.
    for (bool done = false; !done;) {
        if (atomicCAS(counters, 0, 1) == 0) {
            __threadfence();
            c[1] = c[1] * 3 % 1009 + 1;
            __threadfence();
            atomicExch(counters, 0);
            done = true;
        }
    }
    while (atomicCAS(counters + 2, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    c[3] = c[3] + i;
    __threadfence();
    atomicExch(counters + 2, 0);
    // A ticket lock.
    int ticket = atomicAdd(counters + 4, 1);
    while (c[5] != ticket);
    __threadfence();
    c[6] = c[6] + 1;
    c[7] = c[7] + (c[6] == ticket + 1);
    __threadfence();
    c[5] = ticket + 1;
    // At most three hold the semaphore; they stay a while, so that others come.
    semaphore.acquire();
    atomicMax(counters + 9, atomicAdd(counters + 8, 1) + 1);
    __nanosleep(100);
    atomicAdd(counters + 8, -1);
    semaphore.release();
    // A list, and sums of every type.
    cuda::atomic_ref<int> first(*head);
    nodes[i].value = i;
    nodes[i].next = first.load();
    while (!first.compare_exchange_weak(nodes[i].next, i));
    cuda::atomic_ref<long long>(sums[0]).fetch_add(i);
    cuda::atomic_ref<long long>(sums[1]).fetch_max(i * 7 % n);
    cuda::atomic_ref<float>(*(float*)(sums + 2)).fetch_add(0.5f);
    cuda::atomic_ref<double>(*(double*)(sums + 3)).fetch_add(0.25);
    cuda::atomic_ref<unsigned char>(((unsigned char*)(sums + 4))[i % 8]).fetch_add(1);
    cuda::atomic_ref<short>(((short*)(sums + 5))[i % 4]).fetch_xor(i * 5);
    // All blocks meet.
    words[i] = i * i;
    latch.arrive_and_wait();
    words[n + i] = words[n - 1 - i];
}
"""


@pytest.mark.slow
def test_locks(stream: Any) -> None:
    blocks, block = 4, 64
    n = blocks * block
    at = np.arange(n)
    counters, head, words = np.zeros(16, np.int32), np.full(1, -1, np.int32), np.zeros((2, n), np.int32)
    nodes, sums = np.zeros((n, 2), np.int32), np.zeros(8, np.int64)
    counters[1] = 5
    kernel = ck.Kernel(LOCKS)
    run(stream, kernel, ck.config(blocks, block), counters, nodes.view("u1").reshape(-1), head, sums, words)
    value = 5
    for _ in range(n):
        value = value * 3 % 1009 + 1
    assert counters[:8].tolist() == [0, value, 0, at.sum(), n, n, n, n]
    assert counters[8] == 0
    assert 1 <= counters[9] <= 3
    seen, place = [], int(head[0])
    while place >= 0:
        seen.append(int(nodes[place, 0]))
        place = int(nodes[place, 1])
    assert sorted(seen) == at.tolist()
    assert sums[:2].tolist() == [at.sum(), (at * 7 % n).max()]
    assert sums[2:3].view("f4")[0] == n / 2
    assert sums[3:4].view("f8")[0] == n / 4
    assert (sums[4:5].view("u1") == n // 8).all()
    assert sums[5:6].view("i2").tolist() == [np.bitwise_xor.reduce(5 * at[of::4]) for of in range(4)]
    assert (words == [at * at, (at * at)[::-1]]).all()


def test_a_wait_for_what_never_comes_ends_at_the_budget() -> None:
    text = "__global__ void spin(volatile int* flag) { while (flag[blockIdx.x] == 0); flag[0] = 2; }"
    with pytest.raises(ck.EmulationError, match="budget of 20000 steps"):
        ck.Kernel(text)(ck.emulator.stream(step_budget=20_000), ck.config(4, 32), np.array([1, 1, 0, 1], np.int32))
