"""Faults that checks find, each on its line, and what looks like one and is none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.checks.findings import CheckWarning, Kind

pytestmark = pytest.mark.emulator

#: The line of each fault has a comment that names its kind, and of a race the other line the word "other".
FAULTS = """
__global__ void no_barrier(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];  // other
    y[threadIdx.x] = s[255 - threadIdx.x];  // race
}
__global__ void no_second_barrier(float* y) {
    __shared__ float s[256];
    for (int k = 0; k < 3; ++k) {
        s[threadIdx.x] = y[threadIdx.x];  // race
        __syncthreads();
        y[threadIdx.x] = s[(threadIdx.x + 64) % 256];  // other
    }
}
__global__ void barrier_of_half(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];  // other
    __syncwarp();
    y[threadIdx.x] = s[(threadIdx.x + 32) % 256];  // race
}
__global__ void weak_and_atomic(float* y) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;  // other
    atomicAdd(&count, 1);  // race
    __syncthreads();
    y[threadIdx.x] = count;
}
__global__ void no_syncwarp(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];  // other
    y[threadIdx.x] = s[threadIdx.x ^ 1];  // race
}
__global__ void after_a_branch(float* y) {
    __shared__ float s[8];
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = y[threadIdx.x];  // other
    y[threadIdx.x] = s[threadIdx.x / 32];  // race
}
__global__ void half_of_a_warp(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];
    __syncwarp();
    float got = s[threadIdx.x ^ 3];  // other
    s[threadIdx.x] = got + 1;  // race
    __syncwarp();
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void one_place(float* y) {
    __shared__ int s[1];
    s[0] = threadIdx.x;  // race, other
    __syncthreads();
    y[threadIdx.x] = s[0];
}
__global__ void between_blocks(float* y) {
    y[threadIdx.x] += blockIdx.x;  // race, other
}
__global__ void neighbours(float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float left = i ? y[i - 1] : 0;  // other
    y[i] = left;  // race
}
__global__ void total(float* y) {
    atomicAdd(y, 1.0f);  // other
    if (threadIdx.x == 0) y[blockIdx.x + 100] = *y;  // race
}
__global__ void flag_without_fence(float* y) {
    volatile int* flag = (int*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        *flag = 1;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (*flag != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void half_written(float* y) {
    __shared__ float s[256];
    if (threadIdx.x < 64) s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];  // uninitialised
}
__global__ void never_written(float* y) {
    __shared__ float s[256];
    y[threadIdx.x] = s[threadIdx.x];  // uninitialised
}
__global__ void no_zeros(float* y) {
    __shared__ int bins[16];
    atomicAdd(&bins[threadIdx.x % 8], 1);  // uninitialised
    __syncthreads();
    y[threadIdx.x] = bins[threadIdx.x % 16];  // uninitialised
}
__global__ void local_array(float* y, int n) {
    float held[8];
    for (int k = 0; k < n; ++k) held[k] = k;
    y[threadIdx.x] = held[threadIdx.x % 8];  // uninitialised
}
__global__ void early_exit(float* y) {
    if (threadIdx.x > 40) return;
    __syncthreads();  // barrier
    y[threadIdx.x] = 1;
}
__global__ void exit_in_a_loop(float* y) {
    for (int k = 0; k < 3; ++k) {
        if (threadIdx.x == 7 && y[k] == 0) return;
        __syncthreads();  // barrier
    }
}
__global__ void block_of_exits(float* y) {
    if (blockIdx.x == 1 && threadIdx.x == 0) return;
    y[blockIdx.x * blockDim.x + threadIdx.x] = 1;
    __syncthreads();  // barrier
}
__global__ void counted_by_barrier(float* y) {
    if (threadIdx.x == 255) return;
    y[threadIdx.x] = __syncthreads_count(threadIdx.x & 1);  // barrier
}
__global__ void exit_while_the_block_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x >= 32) {
        for (int k = 0; k < threadIdx.x / 32; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        return;
    }
    __syncthreads();  // barrier
    y[threadIdx.x] = s[threadIdx.x + 224];
}
__global__ void exit_while_the_warp_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x % 32 >= 16) {
        s[threadIdx.x] = y[threadIdx.x];
        for (int k = 0; k < threadIdx.x % 16; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        return;
    }
    __syncwarp();  // mask
    y[threadIdx.x] = s[threadIdx.x ^ 16];
}
__global__ void shuffle_after_exit(float* y) {
    if (threadIdx.x % 32 >= 16) return;
    y[threadIdx.x] = __shfl_xor_sync(0xffffffff, y[threadIdx.x], 1);  // mask
}
__global__ void vote_after_exit(float* y) {
    if (threadIdx.x % 32 == 5) return;
    y[threadIdx.x] = __ballot_sync(0xffffffff, y[threadIdx.x] > 0);  // mask
}
__global__ void meeting_after_exit(float* y) {
    if (threadIdx.x == 40) return;
    y[threadIdx.x] = 1;
    __syncwarp();  // mask
    y[threadIdx.x ^ 1] = 2;
}
__global__ void sum_after_exit(float* y) {
    if (threadIdx.x % 32 == 1) return;
    if (threadIdx.x % 32 < 8) y[threadIdx.x] = __reduce_add_sync(0xff, threadIdx.x);  // mask
}
__global__ void lanes_at_two_barriers(float* y) {
    if (threadIdx.x % 2) {
        y[threadIdx.x] = 1;
        __syncthreads();  // barrier
    } else {
        y[threadIdx.x] = sinf(y[threadIdx.x]);
        __syncthreads();  // barrier
        y[threadIdx.x] += 1;
    }
}
__global__ void odd_lanes_before(float* y) {
    if (threadIdx.x % 2) __syncthreads();  // barrier
    y[threadIdx.x] += 1;
    __syncthreads();  // barrier
}
__global__ void first_lane_loops(float* y) {
    for (int k = 0; k < 1 + (threadIdx.x % 32 == 0); ++k) {
        y[threadIdx.x] += k;
        __syncthreads();  // barrier
    }
    y[threadIdx.x] *= 2;
    __syncthreads();  // barrier
}
__global__ void counted_by_half_warps(float* y) {
    if (threadIdx.x % 32 < 16) {
        asm volatile("bar.sync 1, 256;" ::: "memory");  // barrier
        y[threadIdx.x] = 1;
    } else {
        y[threadIdx.x] = 2;
        asm volatile("bar.sync 1, 256;" ::: "memory");  // barrier
    }
}
__global__ void cast_away(float* y, const float* x) {
    y[threadIdx.x] = 1;
    const_cast<float*>(x)[threadIdx.x] = 1;  // const
}
__global__ void c_cast(float* y, const float* __restrict__ x) {
    float* held = (float*)x + 2 * threadIdx.x;
    for (int k = 0; k < 3; ++k) held[k % 2] = y[k];  // const
}
__global__ void atomic_on_const(float* y, const float* x) {
    atomicAdd((float*)&x[threadIdx.x / 2], y[0]);  // const
}
__global__ void vector_to_const(float* y, const float* x) {
    if (threadIdx.x < 64) ((float4*)x)[threadIdx.x] = float4{y[0], 1, 2, 3};  // const
}
__global__ void relaxed_flag(float* y) {
    unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        atomicExch(flag, 1);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void fence_of_the_block(float* y) {
    unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        __threadfence_block();
        atomicExch(flag, 1);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void release_of_the_block(float* y) {
    unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        asm volatile("st.release.cta.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void fence_too_early(float* y) {
    unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        __threadfence();
        y[1] = 3;  // other
        atomicExch(flag, 1);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void chain_without_acquire(float* y) {
    volatile int* flag = (int*)(y + 200);
    if (threadIdx.x) return;
    if (blockIdx.x) while (flag[blockIdx.x - 1] != 1) {}
    y[blockIdx.x] = blockIdx.x ? y[blockIdx.x - 1] + 1 : 1;  // race, other
    __threadfence();
    flag[blockIdx.x] = 1;
}
__global__ void relaxed_read(float* y) {
    unsigned *flag = (unsigned*)y, seen = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        __threadfence();
        atomicExch(flag, 1);
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (seen != 1) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        y[2] = y[1];  // race
    }
}
__global__ void barrier_after_the_flag(float* y) {
    volatile unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1) {
        if (threadIdx.x == 0) while (*flag != 1) {}
        __syncthreads();
        y[2 + threadIdx.x] = y[1];  // race
    }
}
__global__ void readers_fence_of_the_block(float* y) {
    volatile unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (*flag != 1) {}
        __threadfence_block();
        y[2] = y[1];  // race
    }
}
__global__ void acquire_of_the_block(float* y) {
    unsigned *flag = (unsigned*)y, seen = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (seen != 1) asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        y[2] = y[1];  // race
    }
}
__global__ void fence_before_the_flag(float* y) {
    volatile unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;  // other
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        __threadfence();
        while (*flag != 1) {}
        y[2] = y[1];  // race
    }
}
__global__ void flag_in_shared_memory(float* y) {
    __shared__ volatile int flag;
    __shared__ float held;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        held = y[0];  // other
        __threadfence_block();
        flag = 1;
    }
    if (threadIdx.x == 32) {
        while (flag != 1) {}
        y[1] = held;  // race
    }
}
"""

CLEAN = """
#include <cudakit/mbarrier.cuh>
__global__ void one_lane_arrives(float* y) {  // which compute-sanitizer takes for a race
    __shared__ cudakit::mbarrier full;
    __shared__ float s[32];
    if (threadIdx.x == 0) full.init(1);
    __syncthreads();
    if (threadIdx.x < 32) {
        s[threadIdx.x] = y[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0) full.arrive();
    } else if (threadIdx.x < 64) {
        full.wait(0);
        y[threadIdx.x] = s[63 - threadIdx.x];
    }
}
__global__ void reversed(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[255 - threadIdx.x];
}
__global__ void tree(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    for (int half = 128; half; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[0] = s[0];
}
__global__ void warp_tree(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];
    __syncwarp();
    for (int half = 16; half; half /= 2) {
        float other = s[threadIdx.x ^ half];
        __syncwarp();
        s[threadIdx.x] += other;
        __syncwarp();
    }
    y[threadIdx.x] = s[threadIdx.x];
}
__global__ void half_warps(float* y) {
    __shared__ float s[256];
    unsigned mask = threadIdx.x % 32 < 16 ? 0xffff : 0xffff0000;
    s[threadIdx.x] = y[threadIdx.x];
    if (threadIdx.x % 32 < 16) __syncwarp(mask); else __syncwarp(mask);
    y[threadIdx.x] = s[threadIdx.x ^ 7];
}
__global__ void histogram(float* y) {
    __shared__ int bins[16];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x % 16], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
}
__global__ void named_barrier(float* y) {
    __shared__ float s[256];
    s[threadIdx.x] = y[threadIdx.x];
    if (threadIdx.x < 128) {
        asm volatile("bar.sync 1, 128;" ::: "memory");
        y[threadIdx.x] = s[127 - threadIdx.x];
    }
}
__global__ void last_block(float* y) {
    __shared__ bool last;
    unsigned* count = (unsigned*)y;
    y[1 + blockIdx.x] = 2;
    __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(count, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0)
        for (int k = 0; k < gridDim.x; ++k) y[100] += y[1 + k];
}
__global__ void look_back(float* y) {
    volatile int* flag = (int*)(y + 200);
    if (threadIdx.x) return;
    if (blockIdx.x) while (flag[blockIdx.x - 1] != 1) {}
    __threadfence();
    y[blockIdx.x] = blockIdx.x ? y[blockIdx.x - 1] + 1 : 1;
    __threadfence();
    flag[blockIdx.x] = 1;
}
__global__ void by_fences_of_the_block(float* y) {
    unsigned* flag = (unsigned*)y + 512 + blockIdx.x;
    float* own = y + 2 * blockIdx.x;
    if (threadIdx.x == 0) {
        own[0] = 3;
        __threadfence_block();
        atomicExch(flag, 1);
    }
    if (threadIdx.x == 32) {
        while (atomicAdd(flag, 0) != 1) {}
        own[1] = own[0];
    }
}
__global__ void released(float* y) {
    unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (atomicAdd(flag, 0) != 1) {}
        y[2] = y[1];
    }
}
__global__ void acquired(float* y) {
    unsigned *flag = (unsigned*)y, seen = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;
        asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(flag) : "memory");
    }
    if (blockIdx.x == 1) {
        if (threadIdx.x == 0)
            while (seen != 1) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        __syncthreads();
        y[2 + threadIdx.x] = y[1];
    }
}
__global__ void fence_of_the_polling_thread(float* y) {
    volatile unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[1] = 3;
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1) {
        if (threadIdx.x == 0) {
            while (*flag != 1) {}
            __threadfence();
        }
        __syncthreads();
        y[2 + threadIdx.x] = y[1];
    }
}
__global__ void wide_release_near_acquire(float* y) {
    volatile unsigned* flag = (unsigned*)y + 512 + blockIdx.x;
    float* own = y + 2 * blockIdx.x;
    if (threadIdx.x == 0) {
        own[0] = 3;
        __threadfence();
        *flag = 1;
    }
    if (threadIdx.x == 32) {
        while (*flag != 1) {}
        __threadfence_block();
        own[1] = own[0];
    }
}
__global__ void space_is_free(float* y) {
    volatile unsigned* flag = (unsigned*)y;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        y[2] = y[1];
        __threadfence();
        *flag = 1;
    }
    if (blockIdx.x == 1 && threadIdx.x == 0) {
        while (*flag != 1) {}
        y[1] = 3;
    }
}
__global__ void flag_in_shared_memory_with_fences(float* y) {
    __shared__ volatile int flag;
    __shared__ float held;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        held = y[0];
        __threadfence_block();
        flag = 1;
    }
    if (threadIdx.x == 32) {
        while (flag != 1) {}
        __threadfence_block();
        y[1] = held;
    }
}
__global__ void flag_before_blocks_part(float* y) {
    __shared__ volatile int flag, other;
    __shared__ float held;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        held = y[0];
        __threadfence_block();
        flag = 1;
    }
    if (threadIdx.x == 64 && blockIdx.x == 1) other = 2;
    if (threadIdx.x == 32) {
        while (flag != 1) {}
        __threadfence_block();
        y[1 + blockIdx.x] = held;
    }
    if (threadIdx.x == 64 && blockIdx.x == 1) y[4] = other;
}
__global__ void all_at_one_barrier(float* y) {
    for (int k = 0; k < 1 + threadIdx.x / 128; ++k) y[threadIdx.x] += k;
    if (threadIdx.x % 2) y[threadIdx.x] += 1;
    __syncthreads();
    if (threadIdx.x < 64) asm volatile("bar.sync 1, 64;" ::: "memory");
    else asm volatile("bar.sync 2, 192;" ::: "memory");
}
__global__ void first_warp_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x < 32) {
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x + 224];
    } else {
        for (int k = 0; k < threadIdx.x / 32; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        __syncthreads();
    }
}
__global__ void last_warp_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x < 224) {
        for (int k = 0; k < 8 - threadIdx.x / 32; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        __syncthreads();
    } else {
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x - 224];
    }
}
__global__ void half_of_the_warp_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x % 32 < 16) {
        __syncwarp();
        y[threadIdx.x] = s[threadIdx.x ^ 16];
    } else {
        for (int k = 0; k < threadIdx.x % 16; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        s[threadIdx.x] = y[threadIdx.x];
        __syncwarp();
    }
}
__global__ void other_half_of_the_warp_waits(float* y) {
    __shared__ float s[256];
    if (threadIdx.x % 32 < 16) {
        for (int k = 0; k < threadIdx.x % 16; ++k) s[threadIdx.x] = y[threadIdx.x] + k;
        s[threadIdx.x] = y[threadIdx.x];
        __syncwarp();
    } else {
        __syncwarp();
        y[threadIdx.x] = s[threadIdx.x ^ 16];
    }
}
__global__ void meant(float* y) {
    if (threadIdx.x == 0) y[0] = blockIdx.x;  // cudakit: benign race
}
__global__ void same_array_twice(float* y, const float* x) { y[threadIdx.x] = x[threadIdx.x] + 1; }
__global__ void same_flag(float* y) { if (y[threadIdx.x + 1] >= 0) y[0] = 1; }
"""


def lines(kernel: str, word: str) -> set[int]:
    """Lines of a kernel's text whose comment has a word."""
    text = FAULTS.splitlines()
    begin = next(k for k, line in enumerate(text) if re.search(rf"\b{kernel}\(", line))
    end = next(k for k in range(begin, len(text)) if text[k] == "}")
    return {k for k in range(begin, end) if re.search(rf"//.*\b{word}\b", text[k])}


#: What several blocks run.
SEVERAL = {
    "between_blocks", "neighbours", "total", "flag_without_fence", "block_of_exits", "histogram", "last_block",
    "look_back", "same_flag", "relaxed_flag", "fence_of_the_block", "release_of_the_block", "fence_too_early",
    "by_fences_of_the_block", "released", "meant", "chain_without_acquire", "relaxed_read", "barrier_after_the_flag",
    "readers_fence_of_the_block", "acquire_of_the_block", "fence_before_the_flag", "acquired",
    "fence_of_the_polling_thread", "wide_release_near_acquire", "space_is_free", "flag_before_blocks_part",
}  # fmt: skip


#: What has a parameter that is const.
WITH_CONST = {"cast_away", "c_cast", "atomic_on_const", "vector_to_const"}


def launch(text: str, name: str, stream: Any) -> None:
    y = np.zeros(1024, np.float32)
    extra = (4,) if name == "local_array" else (np.zeros(1024, np.float32),) if name in WITH_CONST else ()
    if name == "same_array_twice":
        extra = (y,)
    blocks = 2 if name in SEVERAL else 1
    ck.Kernel(text, name)(stream, ck.config(blocks, 256), y, *extra)


#: The line of this file on which the text of the faults begins, as messages count.
FIRST = Path(__file__).read_text("utf-8").splitlines().index('FAULTS = """') + 1
NAMES = re.findall(r"void (\w+)\(", FAULTS)


@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_found_on_its_line(name: str) -> None:
    with ck.check() as report:
        launch(FAULTS, name, ck.emulator.stream(step_budget=100_000))
    kinds = {kind for kind in get_args(Kind) if lines(name, kind)}
    assert {each.kind for each in report.findings} == kinds, report
    (kind,) = kinds
    found = report.findings[0]
    assert {found.line - FIRST} <= lines(name, kind) | lines(name, "other"), report
    if kind == "race":
        assert int(found.other.rpartition(":")[2]) - FIRST in lines(name, "other") | lines(name, kind)


@pytest.mark.parametrize("name", re.findall(r"void (\w+)\(", CLEAN))
@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_what_is_ordered_is_no_race(name: str, schedule: int | None) -> None:
    launch(CLEAN, name, ck.emulator.stream(check="raise", schedule=schedule))


def test_a_finding_stops_the_kernel_or_warns() -> None:
    with pytest.raises(ck.EmulationError, match=r"no_barrier.*race: block 0, thread 0 reads"):
        launch(FAULTS, "no_barrier", ck.emulator.stream(check="raise"))
    with pytest.warns(CheckWarning, match=r"race"):
        launch(FAULTS, "no_barrier", ck.emulator.stream(check="warn"))
    launch(FAULTS, "no_barrier", ck.emulator.stream())


def test_a_finding_names_array_element_and_both_lines() -> None:
    with ck.check() as report:
        launch(FAULTS, "between_blocks", ck.emulator.stream())
    assert "y[0], which has 1024 elements" in str(report)
    assert "block 1, thread 0" in str(report)


def test_a_finding_names_the_flag_that_is_not_acquired() -> None:
    with ck.check() as report:
        launch(FAULTS, "relaxed_read", ck.emulator.stream())
    (line,) = (k for k in lines("relaxed_read", "race"))
    told = re.search(
        r"and no fence follows the read at .*:(\d+), which tells that it is there$", report.findings[0].text
    )
    assert told is not None
    assert int(told[1]) - FIRST == line - 1


def test_settings_are_checked() -> None:
    with pytest.raises(ck.ArgumentError, match="check is 'raise', 'warn' or 'off'"):
        ck.emulator.stream(check="loud")  # type: ignore[arg-type]
    with pytest.raises(ck.ArgumentError, match="schedule"):
        ck.emulator.stream(schedule=-1)


def test_a_schedule_shows_a_race_and_repeats() -> None:
    def run(seed: int) -> np.ndarray:
        y = np.arange(256, dtype=np.float32)
        ck.Kernel(FAULTS, "no_barrier")(ck.emulator.stream(schedule=seed), ck.config(1, 256), y)
        return y

    results = [run(seed) for seed in range(8)]
    assert any((each != results[0]).any() for each in results)
    for seed, before in enumerate(results):
        np.testing.assert_array_equal(run(seed), before)


def test_the_page_explains_every_kind() -> None:
    page = (Path(__file__).parents[3] / "docs" / "checks.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page.partition("## Faults that are found")[2].partition("##")[0], re.MULTILINE)
    assert {*rows, "error", "order"} == set(get_args(Kind))


def test_the_device_runtime_writes_the_handles_of_streams() -> None:
    kernel = ck.Kernel("""
        __global__ void child(int* x) { x[threadIdx.x] += 1; }
        __global__ void parent(int* x) {
            cudaStream_t stream;
            cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
            child<<<1, 32, 0, stream>>>(x);
            cudaStreamDestroy(stream);
        }""", "parent")  # fmt: skip
    with ck.check() as report:
        kernel(ck.emulator.stream(), ck.config(1, 1), np.zeros(32, np.int32))
    assert not report.findings
