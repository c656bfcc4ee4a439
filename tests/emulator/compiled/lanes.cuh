// Lanes of a warp that wait for each other in different branches, for tests/emulator/compiled/test_lanes.py.
typedef unsigned int u32;
constexpr u32 FULL = 0xffffffff;

// The stores in the arms of branches keep the compiler from merging the arms.
struct Ids { u32 i, lane, warp, r; };
__device__ inline Ids ids() { return {blockIdx.x * blockDim.x + threadIdx.x, threadIdx.x % 32, threadIdx.x / 32, 0}; }

// ── arms of a branch ──

__global__ void arms(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    u32 value = i * 3;
    if (lane >= 28) return;
    if (lane < 10) {
        for (int j = 0; j < 20; j++) value = value * 5 + out[j];
        __syncwarp(0xfffffff);
        value = i * 3;
        out[i] = __shfl_xor_sync(0xfffffff, value, 1);
    } else {
        __syncwarp(0xfffffff);
        out[i] = 1000 + __shfl_xor_sync(0xfffffff, value, 1);
    }
}

__global__ void three_votes(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 7) { out[i] = 1; r = __ballot_sync(FULL, lane % 3 == 0); }
    else if (lane < 20) { out[i] = 2; r = __ballot_sync(FULL, lane % 3 == 1) + 1; }
    else { out[i] = 3; r = __ballot_sync(FULL, lane % 3 == 2) + 2; }
    out[i] = r;
}

// Four places of one barrier, four of one shuffle.
__global__ void nested(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 20) {
        if (lane % 3 == 0) { out[i] = 1; __syncwarp(FULL); r = __shfl_sync(FULL, i * 3, (lane + 9) % 32); }
        else if (lane % 3 == 1) { out[i] = 2; __syncwarp(FULL); r = __shfl_sync(FULL, i * 5, (lane + 17) % 32) + 1; }
        else { for (u32 k = 0; k < lane; k++) out[i] = k; __syncwarp(FULL); r = __shfl_sync(FULL, i * 7, 31 - lane) + 2; }
    } else { __syncwarp(FULL); r = __shfl_sync(FULL, i * 9, lane - 20) + 3; }
    out[i] = r;
}

__global__ void matches(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    unsigned long long wide = (unsigned long long)(lane % 3) << 33;
    int same;
    if (lane & 4) {
        out[i] = 1;
        r = __match_any_sync(FULL, wide) + __match_all_sync(FULL, lane / 32, &same) * 3 + same;
        r += __match_all_sync(FULL, wide, &same) + same + __reduce_add_sync(FULL, lane);
    } else {
        out[i] = 2;
        r = __match_any_sync(FULL, wide + (lane == 8)) + __match_all_sync(FULL, lane >> 5, &same) * 5 + same;
        r += __match_all_sync(FULL, wide, &same) + same + __reduce_add_sync(FULL, i * i) * 3;
    }
    out[i] = r;
}

__global__ void elections(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    u32 chosen = 0;
    if (lane < 3) return;
    if (lane < 13) {
        out[i] = 1;
        asm volatile("{.reg .pred q; elect.sync %0|q, 0xfffffff8; selp.u32 %1, 1, 0, q;}" : "=r"(r), "=r"(chosen));
    } else {
        out[i] = 2;
        asm volatile("{.reg .pred q; elect.sync %0|q, 0xfffffff8; selp.u32 %1, 2, 0, q;}" : "=r"(r), "=r"(chosen));
    }
    out[i] = r + chosen * 100;
}

__device__ __noinline__ u32 swapped(u32 x, u32 mask) { __syncwarp(mask); return __shfl_xor_sync(mask, x, 1); }
__global__ void called(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane % 2) { out[i] = 1; r = swapped(i * 3, FULL); } else { out[i] = 2; r = swapped(i * 5, FULL) + 1; }
    out[i] = r;
}

// ── masks of a part of the warp ──

// Three groups with masks of their own at one place; two of them also stand in the other arm.
__global__ void own_masks(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    u32 mask = lane < 8 ? 0xffu : lane % 2 ? 0xaaaaaa00u : 0x55555500u;
    if (lane < 16) {
        out[i] = 1;
        __syncwarp(mask);
        r = __shfl_sync(mask, i * 3, 16 + lane % 2);
        r = r * 5 + __any_sync(mask, lane == 12);
    } else {
        for (u32 k = 0; k < lane; k++) out[i] = k;
        __syncwarp(mask);
        r = __shfl_sync(mask, i * 7, 8 + lane % 2);
        r = r * 5 + __any_sync(mask, lane == 19);
    }
    out[i] = r;
}

// ── loops ──

// One arm goes round a loop, the other has its turns one after the other.
__global__ void turns(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane & 8) {
        for (u32 k = 0; k < 3; k++) { out[i] = r; r = r * 3 + __shfl_xor_sync(FULL, i + k + r, 8); }
    } else {
        r = __shfl_xor_sync(FULL, i, 8);
        out[i] = r;
        r += 7 * __shfl_xor_sync(FULL, r + i, 8);
        out[i] = r;
        r += 11 * __shfl_xor_sync(FULL, r - i, 8);
    }
    out[i] = r;
}

// Lanes leave the loops of both arms after turns of their own; those that remain wait for no others.
__global__ void leaving(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane % 2) {
        for (u32 k = 0; k <= lane / 4; k++) { out[i] = k; r += __popc(__ballot_sync(FULL, lane > k)); }
    } else {
        for (u32 k = 0;; out[i] = k) { r += 3 * __popc(__ballot_sync(FULL, lane > k + 1)); if (k++ >= lane / 3) break; }
    }
    out[i] = r;
}

// Loops whose header is the collective: of each lane for itself, then for all lanes, in both arms.
__global__ void headers(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    u32 own = 1u << lane, k = 0;
    if (lane % 4 == 1) { while (__any_sync(own, k < lane)) out[i] = k++; } else { while (__any_sync(own, k < 2 * lane)) k++; }
    r = k;
    if (lane % 4 == 1) { while (__any_sync(FULL, k < lane + 9)) out[i] = k++; } else { while (__any_sync(FULL, k < 2 * lane)) k++; }
    out[i] = r * 100 + k;
}

// ── polls ──

// Three arms: the first polls shared memory for what the second writes, and that for what the third writes.
__global__ void in_a_row(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    __shared__ volatile u32 stage[32];
    if (lane == 0) stage[warp] = 0;
    __syncwarp();
    if (lane < 3) { while (stage[warp] != 2) {} __syncwarp(FULL); r = stage[warp]; }
    else if (lane < 6) { while (stage[warp] != 1) {} stage[warp] = 2; __syncwarp(FULL); r = 10; }
    else { if (lane == 7) stage[warp] = 1; __syncwarp(FULL); r = 20; }
    out[i] = r + __shfl_xor_sync(FULL, r, 5);
}

// A lock in one arm; the other polls global memory. Values cross behind both.
__global__ void locks(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 6) {
        for (bool done = false; !done;)
            if (atomicCAS((u32*)flags, 0u, 1u) == 0) {
                flags[1] = flags[1] * 3 + 1;
                __threadfence();
                atomicExch((u32*)flags, 0u);
                done = true;
            }
        r = __shfl_sync(FULL, i + 40, 8 + lane % 4);
    } else {
        while (flags[1] < 10) {}
        out[i] = 1;
        r = __shfl_sync(FULL, i + 70, lane % 6);
    }
    out[i] = r;
}

// A poll that adds nothing: by those who are first in the code, and by those who are last.
__global__ void adds_nothing(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    u32* counter = (u32*)flags + 2 * blockIdx.x;
    if (lane < 4) { while (atomicAdd(counter, 0u) < blockDim.x / 32 * 4) {} out[i] = 1; __syncwarp(0xff); r = 5; }
    else if (lane < 8) { atomicAdd(counter, 1u); __syncwarp(0xff); r = 6; }
    if (lane < 4) { atomicAdd(counter + 1, 1u); __syncwarp(0xff); }
    else if (lane < 8) { while (atomicAdd(counter + 1, 0u) < blockDim.x / 32 * 4) {} out[i] = 2; __syncwarp(0xff); }
    out[i] += r;
}

// What lanes poll comes from another warp, and from a later block, while the rest of their warp waits for them.
__global__ void from_others(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    __shared__ volatile u32 flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (warp == 0) {
        if (lane < 5) { while (flag != 1) {} out[i] = 1; __syncwarp(FULL); r = 1; }
        else { out[i] = 2; __syncwarp(FULL); r = 2; }
    } else if (warp == 1) {
        if (lane == 3) flag = 1;
        if (lane % 2) { while (flags[0] != 1) {} out[i] = 3; r = 3 + __shfl_xor_sync(FULL, i, 1); }
        else { if (lane == 6 && blockIdx.x == gridDim.x - 1) flags[0] = 1; out[i] = 4; r = 4 + __shfl_xor_sync(FULL, i, 1); }
    }
    out[i] = r;
}

// ── with barriers of the block ──

__global__ void block_barriers(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    __shared__ volatile u32 flag[2];
    __shared__ u32 values[128];
    if (threadIdx.x < 2) flag[threadIdx.x] = 0;
    __syncthreads();
    for (u32 k = 1; k <= 3; k++) {
        if (warp == 0) {
            if (lane < 11) { while (flag[0] != k) {} r = r * 3 + __shfl_xor_sync(FULL, i + k, 16); }
            else { out[i] = k; r = r * 5 + __shfl_xor_sync(FULL, i * k, 16); if (lane == 11) flag[1] = k; }
        } else {
            if (lane % 2) { if (lane == 1 && warp == 1) flag[0] = k; __syncwarp(FULL); r += 1; }
            else { while (flag[1] != k) {} __syncwarp(FULL); r += 2; }
        }
        values[threadIdx.x] = r;
        __syncthreads();
        r += values[blockDim.x - 1 - threadIdx.x];
        __syncthreads();
    }
    out[i] = r;
}

__global__ void barriers_in_arms(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 9) { out[i] = 1; __syncwarp(FULL); __syncthreads(); r = 1; }
    else { out[i] = 2; __syncwarp(FULL); out[i] = 3; __syncthreads(); r = out[blockIdx.x * blockDim.x + (threadIdx.x + 40) % blockDim.x]; }
    __syncthreads();
    out[i] = r;
}

// Barriers of a part of the block behind a branch whose arms wait for each other.
__global__ void named_barriers(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 9) { out[i] = 3; r = __ballot_sync(FULL, lane % 3); } else { out[i] = 4; r = 2 * __ballot_sync(FULL, lane % 4); }
    if (warp < 2) asm volatile("barrier.sync 1, 64;" ::: "memory"); else asm volatile("barrier.sync 2, 64;" ::: "memory");
    out[i] = r;
}

// ── deadlocks ──

__global__ void other_masks(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 16) { out[i] = 1; __syncwarp(FULL); } else { out[i] = 2; __syncwarp(0xffff8000); }
    out[i] = 1;
}

__global__ void other_names(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 16) { out[i] = 1; __syncwarp(FULL); } else { out[i] = 2; r = __ballot_sync(FULL, 1); }
    out[i] = r;
}

__global__ void other_barriers(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 16) { out[i] = 1; __syncwarp(FULL); } else { out[i] = 2; __syncthreads(); }
    out[i] = r;
}

__global__ void crossed(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 16) { out[i] = 1; __syncwarp(FULL); r = __ballot_sync(FULL, 1); }
    else { out[i] = 2; r = __ballot_sync(FULL, 1); __syncwarp(FULL); }
    out[i] = r;
}

__global__ void behind_a_poll(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 4) { while (flags[1] == 0) {} __syncwarp(FULL); }
    else if (lane < 8) { flags[1] = 1; r = __ballot_sync(FULL, 1); }
    else { out[i] = 2; __syncwarp(FULL); }
    out[i] = r;
}

__global__ void behind_a_loop(volatile u32* out, volatile u32* flags) {
    auto [i, lane, warp, r] = ids();
    if (lane < 4) { for (u32 k = 0; k < 3; k++) { out[i] = k; __syncwarp(FULL); } }
    else { for (u32 k = 0; k < 4; k++) { out[i] = 5; __syncwarp(FULL); } r = __ballot_sync(FULL, 1); }
    if (lane < 4) { out[i] = r; __syncwarp(FULL); __syncwarp(FULL); }
    out[i] = r;
}
