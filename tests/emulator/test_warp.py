"""Shuffles, votes, barriers and independent threads of the emulator, against plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.emulated import IS_COMPILED, run

import cudakit as ck

RANDOM = np.random.default_rng(11)


def source(mode: str, lane: int, b: int, clamp: int, segment: int) -> tuple[int, bool]:
    """The pseudo-code of the PTX ISA, for one lane."""
    most = (lane & segment) | (clamp & ~segment)
    least = lane & segment
    found, inside = {
        "up": (lane - b, lane - b >= most),
        "down": (lane + b, lane + b <= most),
        "bfly": (lane ^ b, (lane ^ b) <= most),
        "idx": (least | (b & ~segment), (least | (b & ~segment)) <= most),
    }[mode]
    return (found, True) if inside else (lane, False)


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8])
@pytest.mark.parametrize("threads", [32, 96, 72])
@pytest.mark.parametrize("own", [False, True])
def test_shuffle(mode: str, width: int, threads: int, own: bool) -> None:
    values = RANDOM.integers(0, 2**32, threads, np.uint32)
    b = RANDOM.integers(0, 32, threads, np.uint32) if own else np.full(threads, 5, np.uint32)
    c = (32 - width) << 8 | (0 if mode == "up" else 31)
    out, inside = np.zeros(threads, np.uint32), np.zeros(threads, np.uint32)
    text = f"""extern "C" __global__ void k(unsigned* x, unsigned* b, unsigned* out, unsigned* inside) {{
        unsigned d, p, i = threadIdx.x;
        asm volatile("{{.reg .pred q; shfl.sync.{mode}.b32 %0|q, %2, %3, {c}, -1; selp.u32 %1, 1, 0, q;}}"
                     : "=r"(d), "=r"(p) : "r"(x[i]), "r"(b[i]));
        out[i] = d; inside[i] = p; }}"""
    run(text, values, b, out, inside, block=threads)
    for i in range(threads):
        lane, within = source(mode, i % 32, int(b[i]), c & 31, c >> 8)
        there = i - i % 32 + lane
        assert inside[i] == within
        assert out[i] == (values[there] if there < threads else 0), (i, lane)


@pytest.mark.parametrize("threads", [32, 64, 40, 1])
def test_vote_match_redux(threads: int) -> None:
    values = RANDOM.integers(-3, 3, threads).astype(np.int32)
    out = np.zeros((12, threads), np.int32)
    text = """extern "C" __global__ void k(int* x, int* out) {
        int i = threadIdx.x, n = blockDim.x, v = x[i], same; unsigned full = ~0u;
        unsigned mask = (i & 1) ? 0xaaaaaaaa : 0x55555555;
        out[i] = __any_sync(full, v > 1); out[n + i] = __all_sync(full, v > -3);
        out[2 * n + i] = __ballot_sync(full, v > 0); out[3 * n + i] = __uni_sync(full, v < 3);
        out[4 * n + i] = __match_any_sync(full, v); out[5 * n + i] = __match_all_sync(mask, v >> 2, &same);
        out[6 * n + i] = same; out[7 * n + i] = __reduce_add_sync(mask, v);
        out[8 * n + i] = __reduce_max_sync(full, v); out[9 * n + i] = __reduce_xor_sync(full, (unsigned)v);
        out[10 * n + i] = __activemask(); out[11 * n + i] = __reduce_min_sync(mask, (unsigned)v);
    }"""
    run(text, values, out, block=threads)
    for i in range(threads):
        warp = range(i - i % 32, min(threads, i - i % 32 + 32))
        own = [j for j in warp if j % 2 == i % 2]
        assert out[0, i] == any(values[j] > 1 for j in warp)
        assert out[1, i] == all(values[j] > -3 for j in warp)
        assert out[2, i] == np.int64(sum(1 << j % 32 for j in warp if values[j] > 0)).astype(np.int32)
        assert out[3, i] == 1
        assert out[4, i] == np.int64(sum(1 << j % 32 for j in warp if values[j] == values[i])).astype(np.int32)
        same = len({values[j] >> 2 for j in own}) == 1
        assert out[5, i] == np.int64(sum(1 << j % 32 for j in own) if same else 0).astype(np.int32)
        assert out[6, i] == same
        assert out[7, i] == sum(values[j] for j in own)
        assert out[8, i] == max(values[j] for j in warp)
        assert out[9, i] == np.bitwise_xor.reduce(values[warp.start : warp.stop])
        assert out[10, i] == np.int64(sum(1 << j % 32 for j in warp)).astype(np.int32)
        assert out[11, i] == min((values[j] for j in own), key=lambda v: int(v) & 0xFFFFFFFF)


def test_lanes_wait_for_those_they_name() -> None:
    # Half of the lanes come later, from another branch, and some have exited.
    out = np.zeros(64, np.uint32)
    text = """extern "C" __global__ void k(unsigned* out) {
        unsigned i = threadIdx.x, lane = i % 32, value = i * 3;
        if (lane >= 28) return;
        if (lane < 10) { for (int j = 0; j < 20; j++) value = value * 5 + clock(); __syncwarp(0xfffffff);
                         value = i * 3; out[i] = __shfl_xor_sync(0xfffffff, value, 1); }
        else { __syncwarp(0xfffffff); out[i] = 1000 + __shfl_xor_sync(0xfffffff, value, 1); }
    }"""
    run(text, out, block=64)
    for i in range(64):
        expected = 0 if i % 32 >= 28 else (i ^ 1) * 3 + (0 if i % 32 < 10 else 1000)
        assert out[i] == expected, i


def test_elect() -> None:
    out = np.zeros(64, np.uint32)
    text = """extern "C" __global__ void k(unsigned* out) {
        unsigned leader, chosen, i = threadIdx.x;
        if (i % 32 < 5) return;
        asm volatile("{.reg .pred q; elect.sync %0|q, 0xffffffe0; selp.u32 %1, 1, 0, q;}" : "=r"(leader), "=r"(chosen));
        out[i] = leader + 100 * chosen; }"""
    run(text, out, block=64)
    assert out.tolist() == [0 if i % 32 < 5 else 105 if i % 32 == 5 else 5 for i in range(64)]


@pytest.mark.emulator
def test_deadlock_is_an_error() -> None:
    text = """extern "C" __global__ void k(unsigned* out) {
        if (threadIdx.x == 3) __syncthreads(); else __syncwarp(); out[0] = 1; }"""
    with pytest.raises(ck.EmulationError, match="deadlock" if IS_COMPILED else "deadlock.*1 at a barrier, 31 for"):
        run(text, np.zeros(1, np.uint32))
    with pytest.raises(ck.EmulationError, match="not in its own member mask 0x00000001"):
        run(
            'extern "C" __global__ void k(unsigned* out) { out[0] = __ballot_sync(1, out[0]); }', np.zeros(1, np.uint32)
        )


@pytest.mark.parametrize("threads", [64, 40, 256])
def test_block_barriers(threads: int) -> None:
    values = RANDOM.integers(0, 2, threads).astype(np.int32)
    out = np.zeros((4, threads * 3), np.int32)
    text = """extern "C" __global__ void k(int* x, int* out) {
        __shared__ int s[256]; int i = threadIdx.x, n = blockDim.x, all = n * gridDim.x, at = blockIdx.x * n + i;
        s[i] = x[i] + blockIdx.x; __syncthreads(); out[at] = s[n - 1 - i];
        if (i < 7) return;   // those who have exited are not waited for
        int v = x[i] * (blockIdx.x == 1);
        if (i / 32 % 2) out[all + at] = __syncthreads_count(v); else out[all + at] = __syncthreads_count(v) + 1000;
        out[2 * all + at] = __syncthreads_or(v); out[3 * all + at] = __syncthreads_and(v || blockIdx.x == 2);
    }"""
    run(text, values, out, grid=3, block=threads)
    for block in range(3):
        part = out[:, block * threads : (block + 1) * threads]
        assert part[0].tolist() == (values[::-1] + block).tolist()
        held = values[7:] * (block == 1)
        for i in range(7, threads):
            assert part[1, i] == held.sum() + (0 if i // 32 % 2 else 1000)
            assert bool(part[2, i]) == held.any()
            assert bool(part[3, i]) == (block == 2 or bool(held.all()))
        assert not part[1:, :7].any()


def test_named_barriers_hand_over() -> None:
    # Warps 0 and 1 produce, warps 2 and 3 consume: barrier 1 says full, barrier 2 says empty.
    out = np.zeros((10, 64), np.int32)
    text = """extern "C" __global__ void k(int* out) {
        __shared__ int s[64]; int i = threadIdx.x;
        for (int round = 0; round < 10; round++) {
            if (i < 64) { if (round) asm volatile("barrier.sync 2, 128;" ::: "memory");
                          s[i] = round * 100 + i; asm volatile("barrier.arrive 1, 128;" ::: "memory"); }
            else { asm volatile("barrier.sync 1, 128;" ::: "memory"); out[round * 64 + i - 64] = s[127 - i];
                   if (round < 9) asm volatile("barrier.arrive 2, 128;" ::: "memory"); } } }"""
    run(text, out, block=128)
    assert (out == np.arange(10)[:, None] * 100 + np.arange(63, -1, -1)).all()


def test_cluster_barrier() -> None:
    out = np.zeros((8, 3), np.uint32)
    text = """extern "C" __global__ void k(unsigned* flags, unsigned* out) {
        unsigned rank, id, size;
        asm volatile("mov.u32 %0, %%cluster_ctarank; mov.u32 %1, %%clusterid.x; mov.u32 %2, %%cluster_nctarank;"
                     : "=r"(rank), "=r"(id), "=r"(size));
        if (threadIdx.x == 0) { for (int j = 0; j < 10 * (4 - rank); j++) flags[blockIdx.x] = clock() * 0 + 1; }
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        unsigned seen = 0;
        for (unsigned j = 0; j < size; j++) seen += ((volatile unsigned*)flags)[id * size + j];
        unsigned* to = out + 3 * blockIdx.x;
        if (threadIdx.x == 7) { to[0] = rank; to[1] = id; to[2] = seen; }
    }"""
    run(text, np.zeros(8, np.uint32), out, grid=8, cluster=4)
    assert out.tolist() == [[b % 4, b // 4, 4] for b in range(8)]


MBARRIER = """
__device__ void arrive(unsigned b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory"); }
__device__ bool ready(unsigned b, unsigned parity) { unsigned ok; asm volatile(
    "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
    : "=r"(ok) : "r"(b), "r"(parity) : "memory"); return ok; }
"""


def test_mbarrier_pipeline_is_quick() -> None:
    # One warp produces into two slots, three warps consume; spinning must not eat up the steps.
    out = np.zeros((20, 96), np.uint32)
    text = (
        MBARRIER
        + """extern "C" __global__ void k(unsigned* out) {
        __shared__ unsigned long long full[2], empty[2]; __shared__ unsigned s[2][32]; unsigned i = threadIdx.x;
        unsigned f = __cvta_generic_to_shared(full), e = __cvta_generic_to_shared(empty);
        if (i == 0) for (int j = 0; j < 2; j++) {
            asm volatile("mbarrier.init.shared.b64 [%0], 32;" :: "r"(f + 8 * j) : "memory");
            asm volatile("mbarrier.init.shared.b64 [%0], 96;" :: "r"(e + 8 * j) : "memory"); }
        __syncthreads();
        for (unsigned r = 0; r < 20; r++) { unsigned slot = r % 2, parity = r / 2 % 2;
            if (i >= 96) { while (!ready(e + 8 * slot, parity ^ 1)) {} s[slot][i - 96] = 1000 * r + i;
                           arrive(f + 8 * slot); }
            else { while (!ready(f + 8 * slot, parity)) {} out[r * 96 + i] = s[slot][i % 32]; arrive(e + 8 * slot); } }
    }"""
    )
    steps = run(text, out, block=128)
    assert (out == np.arange(20)[:, None] * 1000 + 96 + np.arange(96) % 32).all()
    assert steps < 5000


def test_mbarrier_transactions_and_tokens() -> None:
    out = np.zeros(8, np.uint64)
    text = (
        MBARRIER
        + """extern "C" __global__ void k(unsigned long long* out) {
        __shared__ unsigned long long word;
        unsigned b = __cvta_generic_to_shared(&word), n; unsigned long long t;
        asm volatile("mbarrier.init.shared.b64 [%0], 3;" :: "r"(b) : "memory");
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(t) : "r"(b) : "memory");
        asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(t)); out[0] = n;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 %0, [%1], 64;" : "=l"(t) : "r"(b) : "memory");
        asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(t) : "r"(b) : "memory");
        out[1] = ready(b, 0);   // bytes are owed
        asm volatile("mbarrier.complete_tx.shared::cta.relaxed.cluster.b64 [%0], 64;" :: "r"(b) : "memory");
        out[2] = ready(b, 0); out[3] = ready(b, 1);
        asm volatile("{.reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                     : "=r"(n) : "r"(b), "l"(t) : "memory"); out[4] = n;
        arrive(b); out[5] = ready(b, 1); arrive(b); out[6] = ready(b, 1);   // one has dropped out: two are a phase
    }"""
    )
    # try_wait may wait: an H200 answers here as if the bytes that come next had come.
    run(text.replace("try_wait", "test_wait"), out, block=1)
    assert out.tolist() == [3, 0, 1, 0, 1, 0, 1, 0]


def test_async_copies() -> None:
    given = RANDOM.integers(0, 2**32, 128, np.uint32)
    out = np.full(128, 7, np.uint32)
    text = """extern "C" __global__ void k(unsigned* x, unsigned* out) {
        __shared__ __align__(16) unsigned s[128]; unsigned i = threadIdx.x;
        unsigned to = __cvta_generic_to_shared(s + 4 * i), bytes = i < 20 ? 16 : i - 20;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(x + 4 * i), "r"(bytes) : "memory");
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory"); __syncthreads();
        for (int j = 0; j < 4; j++) out[4 * i + j] = s[4 * i + j]; }"""
    run(text, given, out)
    expected = given.copy().view(np.uint8).reshape(32, 16)
    for lane in range(20, 32):
        expected[lane, lane - 20 :] = 0
    assert (out.view(np.uint8).reshape(32, 16) == expected).all()


LOCK = "while (atomicCAS(lock, 0, 1)) {} __threadfence();"
SPINS: dict[str, Any] = {
    # Blocks take turns by a ticket, so that most spin while one works.
    "turns between blocks": (
        "if (threadIdx.x == 0) { while (*(volatile int*)lock != gridDim.x - 1 - blockIdx.x) {} x[0] += 1;"
        "__threadfence(); atomicAdd(lock, 1); }", 32, 64, 32, 6000,
    ),
    "a lock between blocks": (
        f"if (threadIdx.x == 0) {{ {LOCK} x[0] = x[0] + 1; __threadfence(); atomicExch(lock, 0); }}", 32, 64, 32, 6000,
    ),
    # The holder stands behind the loop in which the others of its warp spin.
    "a lock within a warp": (
        f"{LOCK} *(volatile int*)x = *(volatile int*)x + 1; __threadfence(); atomicExch(lock, 0);", 1, 32, 32, 4000,
    ),
    "a counter that the whole grid waits for": (
        "__syncthreads(); if (threadIdx.x == 0) { atomicAdd(lock, 1); while (*(volatile int*)lock < gridDim.x) {} }"
        "__syncthreads(); atomicAdd(x, 1);", 64, 96, 64 * 96, 2000,
    ),
    "the last lane sets the first free": (
        "if (threadIdx.x == 0) { while (*(volatile int*)lock == 0) {} x[0] += 1; }"
        "if (threadIdx.x == 31) { x[0] = 0; __threadfence(); *(volatile int*)lock = 1; }", 1, 32, 1, 300,
    ),
    "an odd lane sleeps until the even one comes": (
        "if (threadIdx.x % 2) { while (((volatile int*)lock)[threadIdx.x] == 0) __nanosleep(50); atomicAdd(x, 1); }"
        "else ((volatile int*)lock)[threadIdx.x + 1] = 1;", 1, 32, 16, 300,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SPINS)
def test_spinning_lanes_let_others_run(name: str) -> None:
    body, grid, block, expected, most = SPINS[name]
    lock, x = np.zeros(64, np.int32), np.zeros(1, np.int32)
    steps = run(f'extern "C" __global__ void k(int* lock, int* x) {{ {body} }}', lock, x, grid=grid, block=block)
    assert x[0] == expected
    assert steps < most, steps


def test_look_back() -> None:
    # Each block waits for the prefix of the one before it, and blocks with higher numbers come first.
    blocks = 64
    flag, prefix, out = np.zeros(blocks, np.int32), np.zeros(blocks, np.int32), np.zeros(blocks, np.int32)
    text = """extern "C" __global__ void k(int* flag, int* prefix, int* out) {
        int b = gridDim.x - 1 - blockIdx.x;
        if (threadIdx.x == 0) { int before = 0;
            if (b) { int ok; do asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(ok) : "l"(flag + b - 1) : "memory");
                     while (!ok); before = prefix[b - 1]; }
            prefix[b] = before + b; __threadfence(); atomicExch(flag + b, 1); out[b] = before; } }"""
    steps = run(text, flag, prefix, out, grid=blocks, block=64)
    assert out.tolist() == [b * (b - 1) // 2 for b in range(blocks)]
    assert steps < 12_000
