"""Faults beside right twins: who is ordered by a mask, a fence or a barrier, and who is not."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

#: Wrong kernels name their kind on the line of the fault, and of a race on the other line too. Those beside them, with
#: ``_right`` behind the name, are right. A block of 64 threads runs them, or what stands after the head: ``2 of 96``.
KERNELS = """
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
namespace cg = cooperative_groups;
using counter = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;
using near_counter = cuda::atomic_ref<unsigned, cuda::thread_scope_block>;
extern "C" {
__global__ void half_of_a_warp(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t < 16) {
        __syncwarp(0xffff);
        y[t] = s[t + 16];  // race
    }
}
__global__ void half_of_a_warp_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    if (t < 16) {
        __syncwarp(0xffff);
        y[t] = s[t ^ 15];
    }
}
__global__ void each_half(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    __syncwarp(t % 32 < 16 ? 0xffff : 0xffff0000);
    y[t] = s[t ^ 16];  // race
}
__global__ void each_half_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncwarp(t % 32 < 16 ? 0xffff : 0xffff0000);
    float a = s[t ^ 7];
    __syncwarp();
    y[t] = s[t ^ 16] + a;
}
__global__ void one_lane(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    __syncwarp(1u << t % 32);
    y[t] = s[t ^ 1];  // race
}
__global__ void shuffle_of_a_part(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t < 16) {
        float a = __shfl_xor_sync(0xffff, y[t], 1);
        y[t] = s[t + 16] + a;  // race
    }
}
__global__ void shuffles_of_halves(float* y, int t) {
    __shared__ float s[64];
    unsigned half = 0xffff << ((t = threadIdx.x) & 16);
    float a = __shfl_xor_sync(half, y[t], 1);
    s[t] = a;  // race
    a += __shfl_xor_sync(half, a, 2);
    y[t] = s[t ^ 16] + a;  // race
}
__global__ void shuffles_of_halves_right(float* y, int t) {
    __shared__ float s[64], other[64];
    unsigned half = 0xffff << ((t = threadIdx.x) & 16), quarter = 0xff << (t & 24);
    float a = __shfl_xor_sync(half, y[t], 1);
    s[t] = a;
    a += __shfl_xor_sync(half, a, 2) + s[t ^ 15];
    a += __shfl_xor_sync(quarter, a, 1);
    other[t] = a;
    y[t] = __shfl_xor_sync(quarter, a, 1) + other[t ^ 7];
}
__global__ void shuffles_of_quarters(float* y, int t) {
    __shared__ float s[64];
    unsigned half = 0xffff << ((t = threadIdx.x) & 16), quarter = 0xff << (t & 24);
    float a = __shfl_xor_sync(half, y[t], 1);
    s[t] = a;  // race
    a += __shfl_xor_sync(quarter, a, 1);
    a += __shfl_xor_sync(quarter, a, 1);
    y[t] = s[t ^ 15] + a;  // race
}
__global__ void tile_of_16(float* y, int t) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    tile.sync();
    y[t] = s[t ^ 16];  // race
}
__global__ void tile_of_16_right(float* y, int t) {
    __shared__ float s[64];
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[t = threadIdx.x] = y[threadIdx.x];
    tile.sync();
    y[t] = s[t ^ 15];
}
__global__ void some_lanes(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t % 2) {
        cg::coalesced_threads().sync();
        y[t] = s[t ^ 1];  // race
    }
}
__global__ void some_lanes_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    if (t % 2) {
        cg::coalesced_threads().sync();
        y[t] = s[t ^ 2];
    }
}
__global__ void written_after_a_part(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncwarp();
    float a = s[t ^ 16];  // race
    __syncwarp(0xffffu << (t & 16));
    s[t] = a;  // race
    __syncwarp();
    y[t] = s[t];
}
__global__ void chain(float* y, int t) {  // lanes 8 to 15 have not met the first ones when they meet the last
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t >= 8 && t < 24) __syncwarp(0xffff00);
    if (t < 16) __syncwarp(0xffff);
    if (t >= 16 && t < 24) y[t] = s[t - 16];  // race
}
__global__ void chain_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    if (t < 16) __syncwarp(0xffff);
    if (t >= 8 && t < 24) __syncwarp(0xffff00);
    if (t >= 16 && t < 24) y[t] = s[t - 16];
}
__global__ void lane_waits_for_all_right(float* y, int t) {
    __shared__ float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    if ((t = threadIdx.x) == 0) init(&full, 33);
    __syncthreads();
    if (t >= 32) {
        s[t] = y[t];
        (void)full.arrive();
    } else {
        if (t == 0) full.arrive_and_wait();
        __syncwarp();
        y[t] = s[t + 32];
    }
}
__global__ void lane_of_a_part_waits_right(float* y, int t) {
    __shared__ float s[64];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    if ((t = threadIdx.x) == 0) init(&full, 33);
    __syncthreads();
    if (t >= 32) {
        s[t] = y[t];
        (void)full.arrive();
    } else if (t < 16) {
        if (t == 0) full.arrive_and_wait();
        __syncwarp(0xffff);
        y[t] = s[t + 32];
    }
}
__global__ void volatile_tree(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    volatile float* v = s;
    if (t < 32) {
        v[t] += v[t + 32];  // race
        v[t] += v[t + 16];  // race
        v[t] += v[t + 8];  // race
        v[t] += v[t + 4];  // race
        if (t == 0) y[0] = v[0] + v[1] + v[2] + v[3];  // race
    }
}
__global__ void volatile_tree_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    volatile float* v = s;
    if (t < 32) {
        for (int half = 32; half > 2; half /= 2) {
            float a = v[t + half];
            __syncwarp();
            v[t] += a;
            __syncwarp();
        }
        if (t == 0) y[0] = v[0] + v[1] + v[2] + v[3];
    }
}
__global__ void volatile_flag_right(float* y, int t) {
    __shared__ volatile int flag;
    __shared__ float held;
    if ((t = threadIdx.x) == 0) flag = 0;
    __syncthreads();
    if (t == 0) {
        held = y[1];
        __threadfence_block();
        flag = 1;
    } else if (t == 1) {
        while (flag == 0) {}
        __threadfence_block();
        y[0] = held;
    }
}
__global__ void volatile_stop_right(float* y, int t) {
    __shared__ volatile bool stop;
    if ((t = threadIdx.x) == 0) stop = false;
    __syncthreads();
    for (int k = 0; k < 8 && !stop; ++k) {
        if (t == 3 * k) stop = true;
        y[t] = k;
    }
}
__global__ void flag_of_one_lane(float* y, int t) {
    __shared__ int flag;
    __shared__ float held[2];
    if ((t = threadIdx.x) == 0) flag = 0;
    __syncthreads();
    if (t == 5 || t == 7) held[t / 7] = y[1];  // race
    if (t == 5) {
        __threadfence_block();
        atomicExch(&flag, 1);
    } else if (t == 6) {
        while (atomicAdd(&flag, 0) == 0) {}
        y[0] = held[1];  // race
    }
}
__global__ void flag_of_one_lane_right(float* y, int t) {
    __shared__ int flag;
    __shared__ float held[2];
    if ((t = threadIdx.x) == 0) flag = 0;
    __syncthreads();
    if (t == 5 || t == 7) {
        held[t / 7] = y[1];
        __syncwarp(0xa0);
    }
    if (t == 5) {
        __threadfence_block();
        atomicExch(&flag, 1);
    } else if (t == 6) {
        while (atomicAdd(&flag, 0) == 0) {}
        y[0] = held[1];
    }
}
__global__ void one_fences(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) == 0) {
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void one_fences_right(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;
    __syncthreads();
    if ((t = threadIdx.x) == 0) {
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];
}
__global__ void one_stores_and_fences_right(float* y, int t) {  // 2
    __shared__ bool last;
    if ((t = threadIdx.x) == 0) {
        y[128 + blockIdx.x] = 1;
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    __syncthreads();
    if (last && t < 2) y[256 + t] = y[128 + t];
}
__global__ void all_fence_none_waits(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    __threadfence();
    if ((t = threadIdx.x) == 0) last = atomicAdd((unsigned*)y, 1) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void all_fence_right(float* y, int t) {  // 2
    __shared__ bool last;
    for (int k = 0; k < 3; ++k) {
        y[128 + (blockIdx.x + 2 * k) * 64 + threadIdx.x] = 1;
        __threadfence();
        __syncthreads();
        if ((t = threadIdx.x) == 63) last = atomicAdd((unsigned*)y + k, 1) == 1;
        __syncthreads();
        if (last) y[900 + t] += y[128 + 128 * k + t] + y[192 + 128 * k + (t ^ 5)];
    }
}
__global__ void one_fences_too_early(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) == 0) __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd((unsigned*)y, 1) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void counted_by_half_a_warp(float* y, int t) {  // 2
    if ((t = threadIdx.x) >= 32) return;
    y[128 + blockIdx.x * 32 + t] = 1;  // race
    if (t < 16) {
        __threadfence();
        __syncwarp(0xffff);
        unsigned count = t == 0 ? atomicAdd((unsigned*)y, 1) : 0;
        if (__shfl_sync(0xffff, count, 0)) y[256 + t] = y[160 + t - 32 * blockIdx.x + 16];  // race
    }
}
__global__ void counted_by_half_a_warp_right(float* y, int t) {  // 2
    if ((t = threadIdx.x) >= 16) return;
    y[128 + blockIdx.x * 32 + t] = 1;
    __threadfence();
    __syncwarp(0xffff);
    unsigned count = t == 0 ? atomicAdd((unsigned*)y, 1) : 0;
    if (__shfl_sync(0xffff, count, 0)) y[256 + t] = y[160 - 32 * blockIdx.x + (t ^ 9)];
}
__global__ void one_releases(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) == 0) last = counter(*(unsigned*)y).fetch_add(1, cuda::memory_order_acq_rel) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void one_releases_right(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;
    __syncthreads();
    if ((t = threadIdx.x) == 0) last = counter(*(unsigned*)y).fetch_add(1, cuda::memory_order_acq_rel) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];
}
__global__ void released_to_the_block(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    __syncthreads();
    if ((t = threadIdx.x) == 0) last = near_counter(*(unsigned*)y).fetch_add(1, cuda::memory_order_acq_rel) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void read_before_counting(float* y, int t) {  // 2
    __shared__ bool last;
    float a = y[128 + threadIdx.x];  // race
    if ((t = threadIdx.x) == 0) {
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    __syncthreads();
    if (last) y[128 + t] = a + 1;  // race
}
__global__ void told_by_another_right(float* y, int t) {  // 2
    __shared__ volatile int flag;
    __shared__ bool last;
    if ((t = threadIdx.x) == 0) flag = 0;
    __syncthreads();
    if (t == 32) {
        y[128 + blockIdx.x] = 7;
        __threadfence_block();
        flag = 1;
    } else if (t == 0) {
        while (flag == 0) {}
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    __syncthreads();
    if (last && t < 2) y[256 + t] = y[128 + t];
}
__global__ void grid_barrier(float* y, int t) {  // 2
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) == 0) {
        __threadfence();
        atomicAdd((unsigned*)y, 1);
        while (atomicAdd((unsigned*)y, 0) < 2) {}
    }
    __syncthreads();
    y[256 + blockIdx.x * 64 + t] = y[192 - blockIdx.x * 64 + t];  // race
}
__global__ void grid_barrier_right(float* y, int t) {  // 2
    for (unsigned k = 0; k < 3; ++k) {
        y[128 + 128 * k + blockIdx.x * 64 + threadIdx.x] = 1;
        __syncthreads();
        if ((t = threadIdx.x) == 0) {
            __threadfence();
            atomicAdd((unsigned*)y, 1);
            while (atomicAdd((unsigned*)y, 0) < 2 * (k + 1)) {}
        }
        __syncthreads();
        y[640 + blockIdx.x * 64 + t] += y[192 + 128 * k - blockIdx.x * 64 + t];
    }
}
__global__ void count_of_threads(float* y, int t) {  // 2
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) < 63) __threadfence();
    atomicAdd((unsigned*)y, 1);
    if (t == 0) while (atomicAdd((unsigned*)y, 0) < 128) {}
    __syncthreads();
    y[256 + blockIdx.x * 64 + t] = y[192 - blockIdx.x * 64 + t];  // race
}
__global__ void count_of_threads_right(float* y, int t) {  // 2
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;
    __threadfence();
    atomicAdd((unsigned*)y, 1);
    if ((t = threadIdx.x) == 0) while (atomicAdd((unsigned*)y, 0) < 128) {}
    __syncthreads();
    y[256 + blockIdx.x * 64 + t] = y[192 - blockIdx.x * 64 + t];
}
__global__ void same_value_right(float* y, int t) {  // 2
    __shared__ unsigned char last;
    y[128 + blockIdx.x] = 7;
    __threadfence();
    if ((t = threadIdx.x) == 0) last = atomicAdd((unsigned*)y, 1);
    __syncthreads();
    if (last && t < 2) y[256 + t] = y[128 + t];
}
__global__ void half_of_a_block(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t < 32) {
        asm volatile("bar.sync 1, 32;" ::: "memory");
        y[t] = s[t + 32];  // race
    }
}
__global__ void arrival_right(float* y, int t) {
    __shared__ float s[32];
    for (int k = 0; k < 3; ++k)
        if ((t = threadIdx.x) >= 32) {
            if (k) asm volatile("bar.sync 2, 64;" ::: "memory");
            s[t - 32] = y[t] + k;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            y[t] += s[31 - t];
            if (k < 2) asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
}
__global__ void written_after_arrival(float* y, int t) {
    __shared__ float s[32];
    s[(t = threadIdx.x) % 32] = 0;
    __syncthreads();
    if (t < 32) {
        asm volatile("bar.arrive 1, 64;" ::: "memory");
        s[t] = t + 1;  // race
    } else {
        for (int k = 0; k < 9; ++k) y[t] += k;
        asm volatile("bar.sync 1, 64;" ::: "memory");
        y[t] = s[t - 32];  // race
    }
}
__global__ void chain_of_barriers(float* y, int t) {  // 1 of 96
    __shared__ float s[96];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    if (t >= 32) asm volatile("bar.sync 2, 64;" ::: "memory");
    if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (t >= 64) y[t] = s[t - 64];  // race
}
__global__ void chain_of_barriers_right(float* y, int t) {  // 1 of 96
    __shared__ float s[96];
    s[t = threadIdx.x] = y[threadIdx.x];
    if (t < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
    if (t >= 32) asm volatile("bar.sync 2, 64;" ::: "memory");
    if (t >= 64) y[t] = s[t - 64];
}
__global__ void part_counts(float* y, int t) {  // 2 of 96
    __shared__ bool last;
    y[128 + blockIdx.x * 96 + threadIdx.x] = 1;  // race
    if ((t = threadIdx.x) >= 64) return;
    asm volatile("bar.sync 1, 64;" ::: "memory");
    if (t == 0) {
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    asm volatile("bar.sync 1, 64;" ::: "memory");
    if (last) y[512 + t] = y[320 - 96 * blockIdx.x - 1 - t];  // race
}
__global__ void part_counts_right(float* y, int t) {  // 2 of 96
    __shared__ bool last;
    y[128 + blockIdx.x * 96 + threadIdx.x] = 1;
    if ((t = threadIdx.x) >= 64) return;
    asm volatile("bar.sync 1, 64;" ::: "memory");
    if (t == 0) {
        __threadfence();
        last = atomicAdd((unsigned*)y, 1) == 1;
    }
    asm volatile("bar.sync 1, 64;" ::: "memory");
    if (last) y[512 + t] = y[224 - 96 * blockIdx.x + t];
}
__global__ void counter_without_zero(float* y, int t) {
    __shared__ int count;
    atomicAdd(&count, 1);  // uninitialised
    __syncthreads();
    y[threadIdx.x] = count;
}
__global__ void counter_right(float* y, int t) {
    __shared__ int count, other;
    if (threadIdx.x == 0) count = 0;
    if (threadIdx.x == 1) atomicExch(&other, 5);
    __syncthreads();
    atomicAdd(&count, 1);
    __syncthreads();
    y[threadIdx.x] = count + other;
}
__global__ void lock_without_zero(float* y, int t) {
    __shared__ int lock;
    if (atomicCAS(&lock, 0, 1) == 0) y[0] = 1;  // uninitialised
}
__global__ void pairs(float* y, int t) {
    *(float2*)(y + 8) = make_float2(threadIdx.x, 1);  // race
}
__global__ void pairs_right(float* y, int t) {
    *(float2*)(y + 8) = make_float2(y[0], 1);
}
__global__ void bytes(float* y, int t) {
    __shared__ unsigned char last;
    last = threadIdx.x;  // race
    __syncthreads();
    y[threadIdx.x] = last;
}
__global__ void zeros_of_two_signs(float* y, int t) {
    y[8] = threadIdx.x & 1 ? y[0] : -y[0];  // race
}
__global__ void nan_right(float* y, int t) {
    y[8] = y[0] / y[1];
}
}
"""
HEADS = re.findall(r"^__global__ void (\w+)\(.*?\) \{(?:  // (\d)(?: of (\d+))?)?", KERNELS, re.M)
SHAPES = {name: (int(blocks or 1), int(threads or 64)) for name, blocks, threads in HEADS}
FIRST = Path(__file__).read_text("utf-8").splitlines().index('KERNELS = """') + 1


def run(name: str, schedule: int | None = None) -> list[tuple[str, set[int]]]:
    """Kinds of what is found, and its lines in the text."""
    stream = ck.emulator.stream(schedule=schedule, step_budget=100_000)
    with ck.check() as report:
        ck.Kernel(KERNELS, name)(stream, ck.config(*SHAPES[name]), np.zeros(1024, np.float32), np.int32(0))
    return [
        (each.kind, {int(place) - FIRST for place in (each.line, each.other.rpartition(":")[2] or each.line)})
        for each in report.findings
    ]


@pytest.mark.parametrize("name", [name for name in SHAPES if not name.endswith("_right")])
def test_a_fault_is_found(name: str) -> None:
    text = KERNELS.splitlines()
    begin = next(k for k, line in enumerate(text) if f"void {name}(" in line)
    end = text.index("}", begin)
    marked = {k: match[1] for k in range(begin, end) if (match := re.search(r"// (race|uninitialised)$", text[k]))}
    found = run(name)
    assert found
    assert {kind for kind, _ in found} == set(marked.values())
    assert set.union(*(lines for _, lines in found)) <= set(marked)


@pytest.mark.parametrize("name", [name for name in SHAPES if name.endswith("_right")])
def test_its_right_twin_passes_in_every_order(name: str) -> None:
    for schedule in (None, 1, 2):
        assert run(name, schedule) == []
