"""Faults beside right twins: who is ordered by a mask, a fence or a barrier, and who is not."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

#: Wrong kernels name their kinds on the line of the fault, and of a race on the other line too. Those beside them, with
#: ``_right`` behind the name, are right. A block of 64 threads runs them, or what stands after the head: ``2 of 96``.
KERNELS = """
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cuda/semaphore>
#include <cuda_pipeline.h>
namespace cg = cooperative_groups;
using counter = cuda::atomic_ref<unsigned, cuda::thread_scope_device>;
using near_counter = cuda::atomic_ref<unsigned, cuda::thread_scope_block>;
using block_barrier = cuda::barrier<cuda::thread_scope_block>;
using semaphore = cuda::counting_semaphore<cuda::thread_scope_block, 2>;
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
    near_counter count(*(unsigned*)y);
    if ((t = threadIdx.x) == 0) last = count.fetch_add(1, cuda::memory_order_acq_rel) == 1;  // race
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
__global__ void one_buffer(float* y, int t) {
    __shared__ float s[64];
    t = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        s[t] = y[t] + k;  // race
        __syncthreads();
        y[t] += s[63 - t];  // race
    }
}
__global__ void one_buffer_right(float* y, int t) {
    __shared__ float s[2][64];
    t = threadIdx.x;
    for (int k = 0; k < 3; ++k) {
        s[k & 1][t] = y[t] + k;
        __syncthreads();
        y[t] += s[k & 1][63 - t];
    }
}
__global__ void two_buffers_of_three(float* y, int t) {
    __shared__ float s[2][64];
    s[1][t = threadIdx.x] = 0;
    for (int k = 0; k < 4; ++k) {
        s[k % 2][t] = y[t] + k;  // race
        __syncthreads();
        y[t] += s[k % 2][63 - t] + s[(k + 1) % 2][63 - t];  // race
    }
}
__global__ void two_buffers_of_three_right(float* y, int t) {
    __shared__ float s[3][64];
    s[2][t = threadIdx.x] = 0;
    for (int k = 0; k < 4; ++k) {
        s[k % 3][t] = y[t] + k;
        __syncthreads();
        y[t] += s[k % 3][63 - t] + s[(k + 2) % 3][63 - t];
    }
}
__global__ void syncwarp_of_two_warps(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];  // race
    __syncwarp();
    y[t] = s[t ^ 32];  // race
}
__global__ void syncwarp_of_two_warps_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncwarp();
    y[t] = s[t ^ 16];
}
__global__ void tile_turned_in_place(float* y, int t) {
    __shared__ float s[8][9];
    int r = threadIdx.x / 8, c = threadIdx.x % 8;
    s[r][c] = threadIdx.x;
    __syncthreads();
    if (r < c) {
        float a = s[r][c];
        s[r][c] = s[c][r];  // race
        s[c][r] = a;  // race
    }
    y[threadIdx.x] = s[c][r];  // race
}
__global__ void tile_turned_in_place_right(float* y, int t) {
    __shared__ float s[8][9];
    int r = threadIdx.x / 8, c = threadIdx.x % 8;
    s[r][c] = threadIdx.x;
    __syncthreads();
    if (r < c) {
        float a = s[r][c];
        s[r][c] = s[c][r];
        s[c][r] = a;
    }
    __syncthreads();
    y[threadIdx.x] = s[c][r];
}
__global__ void zeroed_beside_atomics(float* y, int t) {
    __shared__ int count;
    if (threadIdx.x == 40) count = 0;  // race
    atomicAdd(&count, 1);  // race
    __syncthreads();
    y[threadIdx.x] = count;
}
__global__ void counted_and_read(float* y, int t) {
    __shared__ int count[4];
    if (threadIdx.x < 4) count[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&count[threadIdx.x % 4], 1);  // race
    if (threadIdx.x < 4) y[threadIdx.x] = count[threadIdx.x];  // race
}
__global__ void counted_and_read_right(float* y, int t) {
    __shared__ int count[4];
    if (threadIdx.x < 4) count[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&count[threadIdx.x % 4], 1);
    __syncthreads();
    if (threadIdx.x < 4) y[threadIdx.x] = count[threadIdx.x];
}
__global__ void told_to_all(float* y, int t) {
    __shared__ float v;
    if (threadIdx.x == 0) v = y[5] + 3;  // race
    __syncwarp();
    y[threadIdx.x + 64] = v;  // race
}
__global__ void told_to_all_right(float* y, int t) {
    __shared__ float v;
    if (threadIdx.x == 0) v = y[5] + 3;
    __syncthreads();
    y[threadIdx.x + 64] = v;
}
__global__ void count_of_each_block(float* y, int t) {  // 2
    atomicAdd_block((unsigned*)y + 8, 1);  // race
}
__global__ void count_of_each_block_right(float* y, int t) {  // 2
    atomicAdd((unsigned*)y + 8, 1);
    atomicAdd_block((unsigned*)y + 9 + blockIdx.x, 1);
}
__global__ void lock_without_fences(float* y, int t) {  // 2
    if (threadIdx.x) return;
    while (atomicCAS((unsigned*)y, 0, 1)) {}
    y[9] += blockIdx.x + 1;  // race
    atomicExch((unsigned*)y, 0);
}
__global__ void lock_without_fences_right(float* y, int t) {  // 2
    if (threadIdx.x) return;
    while (atomicCAS((unsigned*)y, 0, 1)) {}
    __threadfence();
    y[9] += blockIdx.x + 1;
    __threadfence();
    atomicExch((unsigned*)y, 0);
}
__global__ void lock_released_by_store(float* y, int t) {  // 2
    if (threadIdx.x) return;
    while (atomicCAS((unsigned*)y, 0, 1)) {}  // race
    __threadfence();
    y[9] += blockIdx.x + 1;  // race
    __threadfence();
    *(unsigned*)y = 0;  // race
}
__global__ void lock_released_by_store_right(float* y, int t) {  // 2
    if (threadIdx.x) return;
    while (atomicCAS((unsigned*)y, 0, 1)) {}
    __threadfence();
    y[9] += blockIdx.x + 1;
    __threadfence();
    *(volatile unsigned*)y = 0;
}
__global__ void other_flag(float* y, int t) {  // 2
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        __threadfence();
        atomicExch((unsigned*)y, 1);
        y[9] = 3;  // race
        __threadfence();
        atomicExch((unsigned*)y + 1, 1);
    } else {
        while (atomicAdd((unsigned*)y, 0) == 0) {}
        __threadfence();
        y[10] = y[9];  // race
    }
}
__global__ void other_flag_right(float* y, int t) {  // 2
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        __threadfence();
        atomicExch((unsigned*)y, 1);
        y[9] = 3;
        __threadfence();
        atomicExch((unsigned*)y + 1, 1);
    } else {
        while (atomicAdd((unsigned*)y + 1, 0) == 0) {}
        __threadfence();
        y[10] = y[9];
    }
}
__global__ void group_copy(float* y, int t) {
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, y + 64, sizeof s);  // copy
    block.sync();
    y[threadIdx.x] = s[63 - threadIdx.x];  // copy
}
__global__ void group_copy_right(float* y, int t) {
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, y + 64, sizeof s);
    cg::wait(block);
    y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void pipeline_one_behind(float* y, int t) {
    __shared__ float s[3][64];
    t = threadIdx.x;
    for (int k = 0; k < 5; ++k) {
        if (k < 3) __pipeline_memcpy_async(&s[k][t], y + 64 * k + t, 4);  // copy
        __pipeline_commit();
        __pipeline_wait_prior(2);
        if (k) y[512 + t] += s[(k - 1) % 3][t];  // copy
    }
}
__global__ void pipeline_one_behind_right(float* y, int t) {
    __shared__ float s[3][64];
    t = threadIdx.x;
    for (int k = 0; k < 4; ++k) {
        if (k < 3) __pipeline_memcpy_async(&s[k][t], y + 64 * k + t, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        if (k) y[512 + t] += s[(k - 1) % 3][t];
    }
}
__global__ void arrives_too_early_right(float* y, int t) {
    __shared__ float s[64];
    __shared__ block_barrier full;
    if ((t = threadIdx.x) == 0) init(&full, 64);
    __syncthreads();
    s[t] = y[t];
    auto token = full.arrive();
    y[128 + t] = t;
    full.wait(std::move(token));
    y[t] = s[63 - t];
}
__global__ void token_never_waited_for(float* y, int t) {
    __shared__ float s[64];
    __shared__ block_barrier full;
    if ((t = threadIdx.x) == 0) init(&full, 64);
    __syncthreads();
    s[t] = y[t];  // race
    (void)full.arrive();
    y[t] = s[63 - t];  // race
}
__global__ void old_parity_right(float* y, int t) {
    __shared__ float s[64];
    __shared__ unsigned long long full;
    if ((t = threadIdx.x) == 0) cuda::ptx::mbarrier_init(&full, 64);
    __syncthreads();
    s[t] = y[t];
    (void)cuda::ptx::mbarrier_arrive(&full);
    while (!cuda::ptx::mbarrier_try_wait_parity(&full, 0)) {}
    y[t] = s[63 - t];
}
__global__ void uneven_rounds(float* y, int t) {
    for (int k = threadIdx.x; k < 70; k += 64) {
        __syncthreads();  // barrier
        y[k] += 1;
    }
}
__global__ void uneven_rounds_right(float* y, int t) {
    for (int k = threadIdx.x; k < 128; k += 64) {
        __syncthreads();
        y[k] += 1;
    }
}
__global__ void leaves_the_loop(float* y, int t) {
    for (int k = 0; k < 4; ++k) {
        if (k == threadIdx.x) break;
        y[threadIdx.x] += k;
        __syncthreads();  // barrier
    }
    __syncthreads();  // barrier
    y[threadIdx.x + 64] = 1;
}
__global__ void leaves_the_loop_right(float* y, int t) {
    for (int k = 0; k < 4; ++k) {
        if (k == 2) break;
        y[threadIdx.x] += k;
        __syncthreads();
    }
    __syncthreads();
    y[threadIdx.x + 64] = y[63 - threadIdx.x];
}
__global__ void tail_unwritten(float* y, int t) {
    __shared__ float s[64];
    if (threadIdx.x < 63) s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];  // uninitialised
}
__global__ void tail_unwritten_right(float* y, int t) {
    __shared__ float s[64];
    if (threadIdx.x < 63) s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    if (threadIdx.x) y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void member_unwritten(float* y, int t) {
    struct Pair { char a; float b; };
    __shared__ Pair s[64];
    s[threadIdx.x].a = threadIdx.x;
    if (threadIdx.x != 7) s[threadIdx.x].b = y[threadIdx.x];
    __syncthreads();
    Pair p = s[63 - threadIdx.x];  // uninitialised
    y[threadIdx.x] = p.a + p.b;  // uninitialised
}
__global__ void member_unwritten_right(float* y, int t) {
    struct Pair { char a; float b; };
    __shared__ Pair s[64];
    s[threadIdx.x].a = threadIdx.x;
    s[threadIdx.x].b = y[threadIdx.x];
    __syncthreads();
    Pair p = s[63 - threadIdx.x];
    y[threadIdx.x] = p.a + p.b;
}
__global__ void heap_after_free(float* y, int t) {
    float* p = (float*)malloc(16);
    p[1] = threadIdx.x;
    free(p);
    y[threadIdx.x] = p[1];  // error
}
__global__ void heap_after_free_right(float* y, int t) {
    float* p = (float*)malloc(16);
    p[1] = threadIdx.x;
    y[threadIdx.x] = p[1];
    free(p);
}
__global__ void heap_past_the_end(float* y, int t) {
    float* p = (float*)malloc(20);
    p[t + 5] = threadIdx.x;  // error
    y[threadIdx.x] = p[t + 5];
    free(p);
}
__global__ void heap_past_the_end_right(float* y, int t) {
    float* p = (float*)malloc(20);
    p[t + 4] = threadIdx.x;
    y[threadIdx.x] = p[t + 4];
    free(p);
}
__global__ void heap_unwritten(float* y, int t) {
    float* volatile held = (float*)malloc(16);
    float* p = held;
    p[t] = threadIdx.x;
    y[threadIdx.x] = p[t + 1];  // uninitialised
    free(p);
}
__global__ void heap_unwritten_right(float* y, int t) {
    float* volatile held = (float*)malloc(16);
    float* p = held;
    p[t + 1] = threadIdx.x;
    y[threadIdx.x] = p[t + 1];
    free(p);
}
__global__ void heap_freed_twice(float* y, int t) {
    float* p = (float*)malloc(16);
    p[t] = threadIdx.x;
    y[threadIdx.x] = p[t];
    free(p);
    if (y[64] == 0) free(p);  // error
}
__global__ void source_outside_the_mask_right(float* y, int t) {
    float v = y[threadIdx.x] + threadIdx.x;
    if (threadIdx.x < 16) v = __shfl_sync(0xffff, v, 10);
    y[threadIdx.x] = v;
}
__global__ void lanes_skip_the_shuffle(float* y, int t) {
    float v = y[threadIdx.x] + threadIdx.x;
    if (threadIdx.x % 32 < 16) v = __shfl_down_sync(0xffffffff, v, 1);  // error
    __syncthreads();
    y[threadIdx.x] = v;
}
__global__ void lanes_skip_the_shuffle_right(float* y, int t) {
    float v = y[threadIdx.x] + threadIdx.x;
    if (threadIdx.x % 32 < 16) v = __shfl_down_sync(0xffff, v, 1, 16);
    __syncthreads();
    y[threadIdx.x] = v;
}
__global__ void lanes_that_are_not_there_right(float* y, int t) {  // 1 of 48
    float v = y[threadIdx.x] + threadIdx.x;
    y[threadIdx.x] = __shfl_down_sync(threadIdx.x < 32 ? 0xffffffff : 0xffff, v, 8, 16);
}
__global__ void tree_of_48(float* y, int t) {  // 1 of 48
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    if (t < 32) s[t] += s[t + 32];  // uninitialised
    __syncthreads();
    if (t == 0) for (int k = 1; k < 32; ++k) y[0] += s[k];
}
__global__ void tree_of_48_right(float* y, int t) {  // 1 of 48
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    if (t + 32 < 48) s[t] += s[t + 32];
    __syncthreads();
    if (t == 0) for (int k = 1; k < 32; ++k) y[0] += s[k];
}
__global__ void odd_lanes_write(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = 0;
    __syncwarp();
    if (t % 2) s[t] = y[t] + 1;  // race
    y[t] = s[t ^ 1];  // race
}
__global__ void odd_lanes_write_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = 0;
    __syncwarp();
    if (t % 2) s[t] = y[t] + 1;
    __syncwarp();
    y[t] = s[t ^ 1];
}
__global__ void each_lane_for_the_warp(float* y, int t) {
    __shared__ float s[2];
    s[threadIdx.x / 32] = threadIdx.x;  // race
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x / 32];
}
__global__ void each_lane_for_the_warp_right(float* y, int t) {
    __shared__ float s[2];
    if (threadIdx.x % 32 == 3) s[threadIdx.x / 32] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x / 32];
}
__global__ void found_by_one(float* y, int t) {
    __shared__ bool found;
    if (threadIdx.x == 0) found = false;
    __syncthreads();
    if (threadIdx.x == 40) found = true;  // race
    if (found) y[threadIdx.x] = 1;  // race
}
__global__ void found_by_one_right(float* y, int t) {
    __shared__ bool found;
    if (threadIdx.x == 0) found = false;
    __syncthreads();
    if (threadIdx.x >= 40) found = true;
    __syncthreads();
    if (found) y[threadIdx.x] = 1;
}
__global__ void bits_of_a_word(float* y, int t) {
    struct Bits { unsigned a : 4, b : 4; };
    __shared__ Bits s;
    if (threadIdx.x == 0) *(unsigned*)&s = 0;
    __syncthreads();
    if (threadIdx.x == 0) s.a = y[0] + 1;  // race
    if (threadIdx.x == 33) s.b = y[1] + 2;  // race
    __syncthreads();
    y[threadIdx.x] = s.a + s.b;
}
__global__ void bits_of_a_word_right(float* y, int t) {
    struct Bits { unsigned char a, b; };
    __shared__ Bits s;
    __syncthreads();
    if (threadIdx.x == 0) s.a = y[0] + 1;
    if (threadIdx.x == 33) s.b = y[1] + 2;
    __syncthreads();
    y[threadIdx.x] = s.a + s.b;
}
__global__ void four_over_one(float* y, int t) {
    __shared__ float4 s[16];
    if (threadIdx.x % 4 == 0) s[threadIdx.x / 4] = make_float4(y[0], 1, 2, 3);  // race
    if (threadIdx.x == 7) ((float*)s)[7] = 5;  // race
    __syncthreads();
    y[threadIdx.x] = ((float*)s)[threadIdx.x];
}
__global__ void four_over_one_right(float* y, int t) {
    __shared__ float4 s[16];
    if (threadIdx.x % 4 == 0) s[threadIdx.x / 4] = make_float4(y[0], 1, 2, 3);
    if (threadIdx.x == 8) ((float*)s)[11] = 5;
    __syncthreads();
    y[threadIdx.x] = ((float*)s)[threadIdx.x];
}
__global__ void stencil_in_place(float* y, int t) {
    y[threadIdx.x] = y[threadIdx.x + 1] + threadIdx.x;  // race
}
__global__ void stencil_in_place_right(float* y, int t) {
    float v = y[threadIdx.x + 1] + threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = v;
}
__global__ void handed_on_in_global(float* y, int t) {
    if (threadIdx.x < 32) y[100 + threadIdx.x] = threadIdx.x + 1;  // race
    __threadfence();
    if (threadIdx.x >= 32) y[threadIdx.x] = y[68 + threadIdx.x];  // race
}
__global__ void handed_on_in_global_right(float* y, int t) {
    if (threadIdx.x < 32) y[100 + threadIdx.x] = threadIdx.x + 1;
    __syncthreads();
    if (threadIdx.x >= 32) y[threadIdx.x] = y[68 + threadIdx.x];
}
__global__ void scan_without_copy(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x] + 1;
    __syncthreads();
    for (int k = 1; k < 64; k *= 2) {
        float v = t >= k ? s[t - k] : 0;  // race
        s[t] += v;  // race
        __syncthreads();
    }
    y[t] = s[t];
}
__global__ void scan_without_copy_right(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x] + 1;
    __syncthreads();
    for (int k = 1; k < 64; k *= 2) {
        float v = t >= k ? s[t - k] : 0;
        __syncthreads();
        s[t] += v;
        __syncthreads();
    }
    y[t] = s[t];
}
__global__ void halo_of_the_other_block(float* y, int t) {  // 2
    t = blockIdx.x * 64 + threadIdx.x;
    float v = y[t + 1];  // race
    __syncthreads();
    y[t] = v + t;  // race
}
__global__ void halo_of_the_other_block_right(float* y, int t) {  // 2
    t = blockIdx.x * 64 + threadIdx.x;
    float v = y[t + 1 - (threadIdx.x == 63)];
    __syncthreads();
    y[t] = v + t;
}
__global__ void zeroed_by_the_first_block(float* y, int t) {  // 2
    if (blockIdx.x == 0 && threadIdx.x == 0) y[8] = -0.f;  // race
    __syncthreads();
    atomicAdd(y + 8, 1.f);  // race
}
__global__ void zeroed_by_the_first_block_right(float* y, int t) {  // 2
    if (threadIdx.x == 0) y[8 + blockIdx.x] = -0.f;
    __syncthreads();
    atomicAdd(y + 8 + blockIdx.x, 1.f);
}
__global__ void total_read_plainly(float* y, int t) {  // 2
    atomicAdd(y + 8, 1.f);  // race
    __syncthreads();
    if (threadIdx.x == 0) y[10 + blockIdx.x] = y[8];  // race
}
__global__ void total_read_plainly_right(float* y, int t) {  // 2
    atomicAdd(y + 8, 1.f);
    __syncthreads();
    if (threadIdx.x == 0) y[10 + blockIdx.x] = atomicAdd(y + 8, 0.f);
}
__global__ void near_fence_before_counting(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;  // race
    __threadfence_block();
    __syncthreads();
    if ((t = threadIdx.x) == 0) last = atomicAdd((unsigned*)y, 1) == 1;
    __syncthreads();
    if (last) y[256 + t] = y[128 + t] + y[192 + t];  // race
}
__global__ void last_read_too_early(float* y, int t) {  // 2
    __shared__ bool last;
    y[128 + blockIdx.x * 64 + threadIdx.x] = 1;
    __threadfence();
    __syncthreads();
    if ((t = threadIdx.x) == 0) last = atomicAdd((unsigned*)y, 1) == 1;  // race
    __syncwarp();
    if (last) y[256 + t] = 1;  // race
}
__global__ void cas_loop_right(float* y, int t) {  // 2
    unsigned* p = (unsigned*)y + 8;
    unsigned old = atomicAdd(p, 0), assumed;
    do {
        assumed = old;
        old = atomicCAS(p, assumed, __float_as_uint(__uint_as_float(assumed) + 1));
    } while (old != assumed);
}
__global__ void semaphore_of_two(float* y, int t) {
    __shared__ alignas(8) char room[sizeof(semaphore)];
    semaphore& free = *(semaphore*)room;
    if (threadIdx.x == 0) new (room) semaphore(2);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        free.acquire();
        y[9] += threadIdx.x + 1;  // race
        free.release();
    }
}
__global__ void semaphore_of_two_right(float* y, int t) {
    __shared__ alignas(8) char room[sizeof(semaphore)];
    semaphore& free = *(semaphore*)room;
    if (threadIdx.x == 0) new (room) semaphore(1);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        free.acquire();
        y[9] += threadIdx.x + 1;
        free.release();
    }
}
__global__ void no_proxy_fence_right(float* y, int t) {
    __shared__ alignas(128) float s[64];
    s[threadIdx.x] = threadIdx.x;
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, y + 64, s, sizeof s);
        cuda::ptx::cp_async_bulk_commit_group();
        cuda::ptx::cp_async_bulk_wait_group(cuda::ptx::n32_t<0>());
    }
}
__global__ void read_only_yet_written(float* y, int t) {
    y[threadIdx.x] = threadIdx.x;  // race
    __syncthreads();
    y[64 + threadIdx.x] = __ldg(y + 63 - threadIdx.x);  // race
}
__global__ void read_only_yet_written_right(float* y, int t) {
    y[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[64 + threadIdx.x] = __ldg(y + 363 - threadIdx.x) + y[63 - threadIdx.x];
}
__global__ void past_the_array(float* y, int t) {
    y[1024 - 63 + threadIdx.x] = 1;  // error
}
__global__ void past_the_array_right(float* y, int t) {
    y[1024 - 64 + threadIdx.x] = 1;
}
__global__ void four_at_odd(float* y, int t) {
    ((float4*)(y + 1))[threadIdx.x] = make_float4(1, 2, 3, 4);  // error
}
__global__ void four_at_odd_right(float* y, int t) {
    ((float4*)(y + 4))[threadIdx.x] = make_float4(1, 2, 3, 4);
}
__global__ void two_at_odd_shared(float* y, int t) {
    __shared__ float2 s[65];
    ((float*)s)[threadIdx.x] = ((float*)s)[threadIdx.x + 64] = 1;
    __syncthreads();
    float2 v = ((float2*)((float*)s + (t + 1) * 3))[threadIdx.x / 2 % 16];  // error
    y[threadIdx.x] = v.x + v.y;
}
__global__ void two_at_odd_shared_right(float* y, int t) {
    __shared__ float2 s[65];
    ((float*)s)[threadIdx.x] = ((float*)s)[threadIdx.x + 64] = 1;
    __syncthreads();
    y[threadIdx.x] = ((float2*)((float*)s + (t + 1) * 2))[threadIdx.x / 2].x;
}
__cluster_dims__(2) __global__ void cluster_counts_and_reads(float* y, int t) {  // 2
    __shared__ int count;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) count = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&count, 0), 1);  // race
    __syncthreads();
    if (cluster.block_rank() == 0) y[threadIdx.x] = count;  // race
    cluster.sync();
}
__cluster_dims__(2) __global__ void cluster_counts_and_reads_right(float* y, int t) {  // 2
    __shared__ int count;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) count = 0;
    cluster.sync();
    atomicAdd(cluster.map_shared_rank(&count, 0), 1);
    cluster.sync();
    if (cluster.block_rank() == 0) y[threadIdx.x] = count;
}
__cluster_dims__(2) __global__ void cluster_fence(float* y, int t) {  // 2
    __shared__ float s[64];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = 0;
    cluster.sync();
    s[threadIdx.x] = threadIdx.x + 1;  // race
    __threadfence();
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = cluster.map_shared_rank(s, 1 - blockIdx.x)[threadIdx.x];  // race
    cluster.sync();
}
__cluster_dims__(2) __global__ void cluster_fence_right(float* y, int t) {  // 2
    __shared__ float s[64];
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = 0;
    cluster.sync();
    s[threadIdx.x] = threadIdx.x + 1;
    cluster.sync();
    y[blockIdx.x * 64 + threadIdx.x] = cluster.map_shared_rank(s, 1 - blockIdx.x)[threadIdx.x];
    cluster.sync();
}
__global__ void reduced_then_next(float* y, int t) {
    __shared__ float s[2];
    for (int k = 0; k < 3; ++k) {
        float v = y[64 * k + (t = threadIdx.x)] + t + k;
        for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
        if (t % 32 == 0) s[t / 32] = v;  // race
        __syncthreads();
        y[512 + t] += s[0] + s[1];  // race
    }
}
__global__ void reduced_then_next_right(float* y, int t) {
    __shared__ float s[2];
    for (int k = 0; k < 3; ++k) {
        float v = y[64 * k + (t = threadIdx.x)] + t + k;
        for (int o = 16; o; o /= 2) v += __shfl_xor_sync(~0u, v, o);
        __syncthreads();
        if (t % 32 == 0) s[t / 32] = v;
        __syncthreads();
        y[512 + t] += s[0] + s[1];
    }
}
__global__ void barrier_only_for_long(float* y, int t) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x] + 1;  // race
    if (t > 3) __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];  // race
}
__global__ void barrier_only_for_long_right(float* y, int t) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x] + 1;
    if (t < 3) __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void local_rows_unwritten(float* y, int t) {
    float a[4][2];
    for (int k = 0; k < 4; ++k) a[k][(int)y[k + 400]] = k;
    y[threadIdx.x] = a[(int)y[200 + threadIdx.x]][(int)y[300] + 1];  // uninitialised
}
__global__ void local_rows_unwritten_right(float* y, int t) {
    float a[4][2];
    for (int k = 0; k < 4; ++k) a[k][(int)y[k + 400]] = k;
    y[threadIdx.x] = a[(int)y[200 + threadIdx.x]][(int)y[300]];
}
__global__ void compacted_plainly(float* y, int t) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (threadIdx.x % 3 == 0) y[64 + count++] = threadIdx.x;  // race
    __syncthreads();
    y[threadIdx.x] = count;
}
__global__ void compacted_plainly_right(float* y, int t) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    __syncthreads();
    if (threadIdx.x % 3 == 0) y[64 + atomicAdd(&count, 1)] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = count;
}
__global__ void producer_refills(float* y, int t) {
    __shared__ float s[32];
    for (int k = 0; k < 3; ++k) {
        if ((t = threadIdx.x) >= 32) {
            s[t - 32] = y[t] + k;  // race
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            y[t] += s[31 - t];  // race
        }
    }
}
__global__ void producer_refills_right(float* y, int t) {
    __shared__ float s[3][32];
    for (int k = 0; k < 3; ++k) {
        if ((t = threadIdx.x) >= 32) {
            s[k][t - 32] = y[t] + k;
            __threadfence_block();
            asm volatile("bar.arrive 1, 64;" ::: "memory");
            asm volatile("bar.sync 2, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            y[t] += s[k][31 - t];
            asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}
__global__ void barriers_crossed(float* y, int t) {
    __shared__ float s[64];
    s[t = threadIdx.x] = y[threadIdx.x];
    if (t < 32) asm volatile("bar.sync 1, 64;" ::: "memory");  // error
    else asm volatile("bar.sync 2, 64;" ::: "memory");  // error
    y[t] = s[63 - t];
}
__global__ void init_without_barrier(float* y, int t) {
    __shared__ float s[64];
    __shared__ block_barrier full;
    if ((t = threadIdx.x) == 0) init(&full, 64);  // race
    s[t] = y[t];
    full.arrive_and_wait();  // race
    y[t] = s[63 - t];
}
__global__ void init_without_barrier_right(float* y, int t) {
    __shared__ float s[64];
    __shared__ block_barrier full;
    if ((t = threadIdx.x) == 0) init(&full, 64);
    __syncthreads();
    s[t] = y[t];
    full.arrive_and_wait();
    y[t] = s[63 - t];
}
__global__ void heap_of_all(float* y, int t) {
    __shared__ float* held;
    if (threadIdx.x == 0) held = (float*)malloc(256);
    __syncthreads();
    held[threadIdx.x] = threadIdx.x + 1;  // race
    y[threadIdx.x] = held[63 - threadIdx.x];  // race
}
__global__ void heap_of_all_right(float* y, int t) {
    __shared__ float* held;
    for (int k = 0; k < 3; ++k) {
        if (threadIdx.x == 13 * k) held = (float*)malloc(256);
        __syncthreads();
        held[threadIdx.x] = threadIdx.x + 1;
        __syncthreads();
        y[threadIdx.x] = held[63 - threadIdx.x];
        __syncthreads();
        if (threadIdx.x == 5 * k) free(held);
        __syncthreads();
    }
}
__global__ void heap_taken_again_right(float* y, int t) {
    for (int k = 0; k < 3; ++k) {
        float* volatile held = (float*)malloc(16);
        held[1] = threadIdx.x;
        y[threadIdx.x] += held[1];
        free(held);
    }
}
}
"""
HEADS = re.findall(
    r"^(?:__cluster_dims__.2. )?__global__ void (\w+)\(.*?\) \{(?:  // (\d)(?: of (\d+))?)?", KERNELS, re.M
)
SHAPES = {name: (int(blocks or 1), int(threads or 64)) for name, blocks, threads in HEADS}
FIRST = Path(__file__).read_text("utf-8").splitlines().index('KERNELS = """') + 1


@functools.cache
def module() -> ck.Module:
    """Return all kernels, compiled and read together."""
    return ck.Module(KERNELS)


def run(name: str, schedule: int | None = None) -> list[tuple[str, set[int]]]:
    """Kinds of what is found, and its lines in the text."""
    stream = ck.emulator.stream(schedule=schedule, step_budget=100_000)
    with ck.check() as report:
        try:
            module()[name](stream, ck.config(*SHAPES[name]), np.zeros(1024, np.float32), np.int32(0))
        except ck.EmulationError as error:
            return [("error", {int(line) - FIRST for line in re.findall(rf"{Path(__file__).name}:(\d+)", str(error))})]
    return [
        (each.kind, {int(place) - FIRST for place in (each.line, each.other.rpartition(":")[2] or each.line)})
        for each in report.findings
    ]


@pytest.mark.parametrize("name", [name for name in SHAPES if not name.endswith("_right")])
def test_a_fault_is_found(name: str) -> None:
    text = KERNELS.splitlines()
    begin = next(k for k, line in enumerate(text) if f"void {name}(" in line)
    end = text.index("}", begin)
    marked = {k: match[1] for k in range(begin, end) if (match := re.search(r"  // ([a-z]+)$", text[k]))}
    found = run(name)
    assert found
    assert all(lines for _, lines in found)
    assert {kind for kind, _ in found} == set(marked.values())
    assert set.union(*(lines for _, lines in found)) <= set(marked)


@pytest.mark.parametrize("name", [name for name in SHAPES if name.endswith("_right")])
@pytest.mark.parametrize("schedule", [None, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2))])
def test_its_right_twin_passes_in_every_order(name: str, schedule: int | None) -> None:
    assert run(name, schedule) == []
