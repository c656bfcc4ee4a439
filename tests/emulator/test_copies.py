"""Clusters and asynchronous copies on the emulator: distributed shared memory, mbarriers, cp.async, bulk copies."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.emulated import call

import cudakit as ck

#: mbarriers and bulk copies as functions; `shared` gives the 32-bit address that PTX takes.
PRELUDE = r"""
typedef unsigned long long u64;
struct Cluster {
    __device__ unsigned block_rank() const { unsigned r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
    __device__ void sync() const { asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory"); }
};
__device__ unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ unsigned remote(const void* p, unsigned rank) {
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared(p)), "r"(rank));
    return there;
}
__device__ void init(u64* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(u64* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ void wait(u64* bar, int phase) {
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1, 1000;"
                 " @!p bra AGAIN; }" :: "r"(shared(bar)), "r"(phase) : "memory");
}
"""


#: For kernels that use cooperative groups, whose headers take long to compile.
GROUPS = "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;\n"


def launch(text: str, config: ck.Config, *arguments: Any) -> None:
    """Run the kernel in `text`."""
    call((GROUPS if "cg::" in text else "") + PRELUDE + text, config, *arguments)


def clusters(grid: Any, block: int, cluster: Any, shared_bytes: int = 0) -> ck.Config:
    return ck.config(grid, block, shared_bytes, cluster=cluster)


# ── distributed shared memory ──


@pytest.mark.slow
@pytest.mark.parametrize(("grid", "cluster"), [(8, 4), (6, 1), (16, 16), ((4, 6), (2, 3))])
def test_a_cluster_sums_in_its_first_block(grid: Any, cluster: Any) -> None:
    text = """
    __global__ void sum(const int* x, int* out) {
        __shared__ int total;
        auto cluster = cg::this_cluster();
        if (threadIdx.x == 0) total = 0;
        cluster.sync();
        int block = blockIdx.y * gridDim.x + blockIdx.x;
        int* first = cluster.map_shared_rank(&total, 0);
        atomicAdd(first, x[block * blockDim.x + threadIdx.x]);
        cluster.sync();
        if (threadIdx.x == 0) {
            out[3 * block] = *first;
            out[3 * block + 1] = cluster.block_rank();
            out[3 * block + 2] = cluster.query_shared_rank(first);
        }
        cluster.sync();
    }"""
    blocks = int(np.prod(grid))
    x = np.arange(blocks * 64, dtype="i4") ** 2 % 1009
    out = np.zeros((blocks, 3), "i4")
    launch(text, clusters(grid, 64, cluster), x, out)
    gx, cx = (grid, cluster) if isinstance(grid, int) else (grid[0], cluster[0])
    cy = 1 if isinstance(grid, int) else cluster[1]
    block_y, block_x = np.divmod(np.arange(blocks), gx)
    which = (block_y // cy) * (gx // cx) + block_x // cx
    sums = np.bincount(which, x.reshape(blocks, 64).sum(axis=1))
    np.testing.assert_array_equal(out[:, 0], sums[which])
    np.testing.assert_array_equal(out[:, 1], block_y % cy * cx + block_x % cx)
    np.testing.assert_array_equal(out[:, 2], 0)


def test_blocks_pass_data_round_a_ring() -> None:
    text = """
    __global__ void ring(const float4* x, float4* out) {
        extern __shared__ float4 tile[];
        auto cluster = cg::this_cluster();
        unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
        cluster.sync();
        float4 v = x[blockIdx.x * blockDim.x + threadIdx.x];
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
            :: "r"(remote(tile + threadIdx.x, next)), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory");
        cluster.sync();
        out[blockIdx.x * blockDim.x + threadIdx.x] = tile[threadIdx.x];
    }"""
    x = np.arange(8 * 32 * 4, dtype="f4")
    out = np.zeros_like(x)
    launch(text, clusters(8, 32, 4, 512), x.reshape(-1, 4), out.reshape(-1, 4))
    expected = np.roll(x.reshape(2, 4, 128), 1, axis=1)
    np.testing.assert_array_equal(out.reshape(2, 4, 128), expected)


def test_a_histogram_spread_over_a_cluster() -> None:
    text = """
    __global__ void histogram(const unsigned char* x, int n, int* out) {
        __shared__ int bins[64];
        auto cluster = cg::this_cluster();
        bins[threadIdx.x] = 0;
        cluster.sync();
        for (int i = cluster.thread_rank(); i < n; i += cluster.num_threads())
            atomicAdd(cluster.map_shared_rank(bins, x[i] / 64) + x[i] % 64, 1);
        cluster.sync();
        out[cluster.block_rank() * 64 + threadIdx.x] = bins[threadIdx.x];
    }"""
    x = np.random.default_rng(1).integers(0, 256, 10_000).astype("u1")
    out = np.zeros(256, "i4")
    launch(text, clusters(4, 64, 4), x, x.size, out)
    np.testing.assert_array_equal(out, np.bincount(x, minlength=256))


def test_addresses_of_shared_memory_tell_whose_it_is() -> None:
    text = """
    __global__ void f(unsigned* out) {
        __shared__ int here;
        int local = threadIdx.x;
        auto cluster = cg::this_cluster();
        unsigned own = cluster.block_rank(), other = own ^ 1, rank;
        int* there = cluster.map_shared_rank(&here, other);
        unsigned* o = out + own * 12;
        #define IS(space, p) [&] { int held; asm("{ .reg .pred p; isspacep." space " p, %1; selp.s32 %0, 1, 0, p; }" \\
            : "=r"(held) : "l"(p)); return held; }()
        o[0] = IS("shared::cta", &here), o[1] = IS("shared::cta", there);
        o[2] = IS("shared::cluster", &here), o[3] = IS("shared::cluster", there);
        o[4] = IS("global", there), o[5] = IS("local", &local), o[6] = IS("global", out);
        o[7] = IS("shared", cluster.map_shared_rank(&here, own));
        asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(remote(&here, other)));
        o[8] = rank;
        asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(rank) : "r"(shared(&here)));
        o[9] = rank;
        asm("getctarank.u64 %0, %1;" : "=r"(rank) : "l"(there));
        o[10] = rank;
        u64 wide, generic;
        asm("mapa.shared::cluster.u64 %0, %1, %2;" : "=l"(wide) : "l"((u64)shared(&here)), "r"(other));
        asm("cvta.shared::cluster.u64 %0, %1;" : "=l"(generic) : "l"(wide));
        o[11] = generic == (u64)there && cluster.map_shared_rank(cluster.map_shared_rank(&here, own), other) == there;
        cluster.sync();
    }"""
    out = np.zeros((2, 12), "u4")
    launch(text, clusters(2, 1, 2), out)
    assert out[0].tolist() == [1, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 1]
    assert out[1].tolist() == [1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("if (rank == 1) return; for (int i = 0; i < 9; ++i) __nanosleep(9); *map(&here, 1) = 1;", "block 1 .*exited"),
        ("*map(&here, 5) = 1;", "block 5 of a cluster, which has 2 blocks"),
        ("map(&here, rank ^ 1)[40000] = 1; cluster.sync();", "outside its"),
        ('asm volatile("st.shared::cta.u32 [%0], 1;" :: "r"(remote(&here, 1)));', "another block"),
    ],
)
def test_shared_memory_that_is_not_there_is_named(body: str, why: str) -> None:
    text = f"""
    __global__ void f() {{
        __shared__ int here;
        auto cluster = cg::this_cluster();
        unsigned rank = cluster.block_rank();
        auto map = [&](int* p, int to) {{ return (volatile int*)cluster.map_shared_rank(p, to); }};
        cluster.sync();
        {body}
    }}"""
    with pytest.raises(ck.EmulationError, match=why):
        launch(text, clusters(2, 1, 2))


# ── mbarriers of other blocks ──


def test_blocks_arrive_at_the_mbarrier_of_another() -> None:
    text = """
    __global__ void f(const int* x, int* out) {
        __shared__ u64 bar;
        __shared__ int slots[4];
        Cluster cluster;
        if (cluster.block_rank() == 0 && threadIdx.x == 0) init(&bar, 8 * 32);
        cluster.sync();
        if (threadIdx.x == 0)
            asm volatile("st.shared::cluster.s32 [%0], %1;"
                :: "r"(remote(slots + cluster.block_rank(), 0)), "r"(x[blockIdx.x]) : "memory");
        unsigned there = remote(&bar, 0);
        if (threadIdx.x < 32) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0], 2;"
            :: "r"(there) : "memory");
        if (cluster.block_rank() == 0) { wait(&bar, 0); out[threadIdx.x] = slots[threadIdx.x % 4]; }
        cluster.sync();
    }"""
    x, out = np.array([5, 7, 11, 13], "i4"), np.zeros(64, "i4")
    launch(text, clusters(4, 64, 4), x, out)
    np.testing.assert_array_equal(out, np.tile(x, 16))


def test_stores_that_complete_on_a_remote_mbarrier() -> None:
    text = """
    __global__ void f(const int* x, int* out) {
        __shared__ u64 bar;
        __shared__ alignas(16) int slots[7 * 32];
        Cluster cluster;
        unsigned to = cluster.block_rank() ^ 1, lane = threadIdx.x;
        if (lane == 0) { init(&bar, 1); expect(&bar, 7 * 32 * 4); }
        cluster.sync();
        const int* v = x + blockIdx.x * 7 * 32 + lane * 7;
        #define STORE "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
        asm volatile(STORE ".v4.s32 [%0], {%1, %2, %3, %4}, [%5];" :: "r"(remote(slots + 4 * lane, to)),
            "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(remote(&bar, to)) : "memory");
        asm volatile(STORE ".b64 [%0], %1, [%2];" :: "r"(remote(slots + 128 + 2 * lane, to)),
            "l"((u64)(unsigned)v[4] | (u64)v[5] << 32), "r"(remote(&bar, to)) : "memory");
        asm volatile(STORE ".u32 [%0], %1, [%2];" :: "r"(remote(slots + 192 + lane, to)), "r"(v[6]),
            "r"(remote(&bar, to)) : "memory");
        wait(&bar, 0);
        for (int i = lane; i < 7 * 32; i += 32) out[blockIdx.x * 7 * 32 + i] = slots[i];
        cluster.sync();
    }"""
    x = np.arange(2 * 32 * 7, dtype="i4").reshape(2, 32, 7)
    out = np.zeros((2, 224), "i4")
    launch(text, clusters(2, 32, 2), x.reshape(-1), out)
    for block in range(2):
        parts = [x[1 - block, :, :4].reshape(-1), x[1 - block, :, 4:6].reshape(-1), x[1 - block, :, 6]]
        np.testing.assert_array_equal(out[block], np.concatenate(parts))


RED_ASYNC = [
    ("inc", "u32"), ("dec", "u32"), ("min", "u32"), ("max", "u32"), ("add", "u32"),
    ("min", "s32"), ("max", "s32"), ("add", "s32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"), ("add", "u64"),
]  # fmt: skip


#: What is not reduced with the random values: `inc` and `dec` with one number, for else their order would matter.
TERMS = {"inc": "5", "dec": "1000", "u64": "(u64)value << 20"}


def test_reductions_that_complete_on_a_remote_mbarrier() -> None:
    calls = "".join(
        f'asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{kind} [%0], %1, '
        f'[%2];" :: "r"(remote(cells + {n}, 0)), "{"l" if kind == "u64" else "r"}"'
        f'({TERMS.get(op if op in TERMS else kind, "value")}), "r"(remote(&bar, 0)) : "memory");\n'
        for n, (op, kind) in enumerate(RED_ASYNC)
    )
    text = f"""
    __global__ void f(const unsigned* x, u64* out) {{
        __shared__ u64 bar, cells[{len(RED_ASYNC)}];
        Cluster cluster;
        if (threadIdx.x == 0) {{
            for (int i = 0; i < {len(RED_ASYNC)}; ++i) cells[i] = 3;
            init(&bar, 1);
            if (blockIdx.x == 0) expect(&bar, 2 * 32 * (4 * {len(RED_ASYNC)} + 4));
        }}
        cluster.sync();
        unsigned value = x[blockIdx.x * 32 + threadIdx.x];
        {calls}
        if (blockIdx.x == 0) {{
            wait(&bar, 0);
            if (threadIdx.x < {len(RED_ASYNC)}) out[threadIdx.x] = cells[threadIdx.x];
        }}
        cluster.sync();
    }}"""
    x = np.random.default_rng(2).integers(0, 2**32, 64).astype("u4")
    out = np.zeros(len(RED_ASYNC), "u8")
    launch(text, clusters(2, 32, 2), x, out)
    signed = x.view("i4").astype(int).tolist()
    whole = x.astype(object).tolist()
    terms = {"inc": [5] * 64, "dec": [1000] * 64, "s32": signed, "u64": [value << 20 for value in whole]}
    operations: dict[str, Callable[[int, int], int]] = {
        "inc": lambda a, b: 0 if a >= b else a + 1, "dec": lambda a, b: b if a == 0 or a > b else a - 1,
        "min": min, "max": max, "add": operator.add, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    }  # fmt: skip
    expected = []
    for op, kind in RED_ASYNC:
        held = 3
        for value in terms.get(op if op in terms else kind, whole):
            held = operations[op](held, value)
        expected.append(held % 2 ** (64 if kind == "u64" else 32))
    assert out.tolist() == expected


AGAIN = """
    __global__ void f(int* out, int again) {
        __shared__ u64 bar;
        init(&bar, 1);
        asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(shared(&bar)) : "memory");
        if (again) init(&bar, 1);
        expect(&bar, 0);
        wait(&bar, 0);
        *out = 1;
    }"""


def test_an_invalid_mbarrier_can_be_made_again() -> None:
    out = np.zeros(1, "i4")
    launch(AGAIN, ck.config(1, 1), out, 1)
    assert out[0] == 1


@pytest.mark.emulator
def test_an_invalid_mbarrier_cannot_be_used() -> None:
    with pytest.raises(ck.EmulationError, match="made invalid"):
        launch(AGAIN, ck.config(1, 1), np.zeros(1, "i4"), 0)


@pytest.mark.emulator
def test_bytes_of_two_phases_come_in_one_instruction() -> None:
    """A GPU completes the bytes of several lanes together, passes by the end of the first phase and waits for ever."""
    text = """
    __global__ void f(int* out) {
        __shared__ u64 bar;
        __shared__ int slots[64];
        Cluster cluster;
        if (threadIdx.x == 0) init(&bar, 1);
        cluster.sync();
        if (cluster.block_rank() == 0 && threadIdx.x == 0) expect(&bar, 40);
        cluster.sync();
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];"
            :: "r"(remote(slots + blockIdx.x * 32 + threadIdx.x, 0)), "r"(1), "r"(remote(&bar, 0)) : "memory");
        cluster.sync();
        if (cluster.block_rank() == 0 && threadIdx.x == 0) {
            wait(&bar, 0);
            expect(&bar, 2 * 32 * 4 - 40);
            wait(&bar, 1);
            *out = 1;
        }
        cluster.sync();
    }"""
    out = np.zeros(1, "i4")
    launch(text, clusters(2, 32, 2), out)
    assert out[0] == 1


@pytest.mark.emulator
def test_an_mbarrier_counts_a_limited_number_of_bytes() -> None:
    text = "__global__ void f(int bytes) { __shared__ u64 bar; init(&bar, 2); expect(&bar, bytes); }"
    launch(text, ck.config(1, 1), 2**20 - 1)
    with pytest.raises(ck.EmulationError, match="copies of 1048576 bytes at an mbarrier"):
        launch(text, ck.config(1, 1), 2**20)


# ── cp.async ──


def test_cp_async_ignores_and_shortens_its_source() -> None:
    text = """
    __global__ void f(const int4* x, int4* out) {
        __shared__ int4 tile[3][32];
        int lane = threadIdx.x;
        tile[0][lane] = tile[1][lane] = tile[2][lane] = make_int4(-1, -1, -1, -1);
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0; cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p; }"
            :: "r"(shared(&tile[0][lane])), "l"(x + lane), "r"(lane % 2) : "memory");
        asm volatile("cp.async.ca.shared.global.L2::64B [%0], [%1], 16, %2;"
            :: "r"(shared(&tile[1][lane])), "l"(x + lane), "r"(lane % 17) : "memory");
        asm volatile("cp.async.ca.shared::cta.global.L2::256B [%0], [%1], 8, %2;"
            :: "r"(shared(&tile[2][lane])), "l"(x + lane), "n"(8) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        for (int i = 0; i < 3; ++i) out[32 * i + lane] = tile[i][lane];
    }"""
    x = np.arange(1, 129, dtype="i4")
    out = np.zeros((3, 32, 4), "i4")
    launch(text, ck.config(1, 32), x.reshape(-1, 4), out.reshape(-1, 4))
    rows = x.reshape(32, 4)
    lane = np.arange(32)[:, None]
    np.testing.assert_array_equal(out[0], np.where(lane % 2, 0, rows))
    as_bytes = np.where(np.arange(16) < lane % 17, rows.view("u1"), 0).astype("u1")
    np.testing.assert_array_equal(out[1].view("u1"), as_bytes)
    np.testing.assert_array_equal(out[2], np.where(np.arange(4) < 2, rows, -1))


@pytest.mark.parametrize(("form", "count"), [(".noinc", 64), ("", 32)])
def test_cp_async_arrives_at_an_mbarrier(form: str, count: int) -> None:
    text = f"""
    __global__ void f(const int* x, int* out) {{
        __shared__ int tile[32];
        __shared__ u64 bar;
        int lane = threadIdx.x;
        if (lane == 0) init(&bar, {count});
        __syncthreads();
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(shared(tile + lane)), "l"(x + lane) : "memory");
        asm volatile("cp.async.mbarrier.arrive{form}.shared::cta.b64 [%0];" :: "r"(shared(&bar)) : "memory");
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(shared(&bar)) : "memory");
        wait(&bar, 0);
        out[lane] = tile[31 - lane];
    }}"""
    x, out = np.arange(32, dtype="i4") + 5, np.zeros(32, "i4")
    launch(text, ck.config(1, 32), x, out)
    np.testing.assert_array_equal(out, x[::-1])


# ── bulk copies ──


def test_a_producer_and_a_consumer_with_bulk_copies() -> None:
    """Two stages, a full and an empty mbarrier each; written with libcu++'s names for the instructions."""
    text = """
    #include <cuda/ptx>
    namespace ptx = cuda::ptx;
    constexpr int STAGES = 2, ITEMS = 128;
    __global__ void scale(const float* x, float* out, int tiles) {
        __shared__ alignas(16) float in[STAGES][ITEMS];
        __shared__ alignas(16) float result[ITEMS];
        __shared__ u64 full[STAGES], empty[STAGES];
        if (threadIdx.x == 0)
            for (int s = 0; s < STAGES; ++s) { ptx::mbarrier_init(full + s, 1); ptx::mbarrier_init(empty + s, ITEMS); }
        __syncthreads();
        if (threadIdx.x == ITEMS) {
            for (int t = blockIdx.x, n = 0; t < tiles; t += gridDim.x, ++n) {
                int s = n % STAGES;
                if (n >= STAGES) while (!ptx::mbarrier_try_wait_parity(empty + s, (n / STAGES - 1) & 1)) {}
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, full + s,
                                               sizeof(in[s]));
                ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, in[s], x + t * ITEMS, sizeof(in[s]),
                                   full + s);
            }
        } else if (threadIdx.x < ITEMS) {
            for (int t = blockIdx.x, n = 0; t < tiles; t += gridDim.x, ++n) {
                int s = n % STAGES;
                while (!ptx::mbarrier_try_wait_parity(full + s, (n / STAGES) & 1)) {}
                float v = in[s][threadIdx.x];
                ptx::mbarrier_arrive(empty + s);
                asm volatile("bar.sync 1, 128;");
                result[threadIdx.x] = 2 * v;
                ptx::fence_proxy_async(ptx::space_shared);
                asm volatile("bar.sync 1, 128;");
                if (threadIdx.x == 0) {
                    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + t * ITEMS, result, sizeof(result));
                    ptx::cp_async_bulk_commit_group();
                    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
                }
            }
        }
    }"""
    x = np.random.default_rng(3).random(37 * 128, "f4")
    out = np.zeros_like(x)
    launch(text, ck.config(5, 160), x, out, 37)
    np.testing.assert_array_equal(out, 2 * x)


def test_a_multicast_reaches_the_blocks_of_its_mask() -> None:
    text = """
    __global__ void f(const int* x, int* out) {
        __shared__ alignas(16) int tile[64];
        __shared__ u64 bar;
        Cluster cluster;
        unsigned rank = cluster.block_rank();
        tile[threadIdx.x] = -1;
        if (threadIdx.x == 0) { init(&bar, 1); if (rank != 2) expect(&bar, 256); }
        cluster.sync();
        if (rank == 1 && threadIdx.x == 0)
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                ".L2::cache_hint [%0], [%1], 256, [%2], %3, %4;"
                :: "r"(remote(tile, 1)), "l"(x + blockIdx.x / 4 * 64), "r"(shared(&bar)), "h"((short)0b1011), "l"(0ull)
                : "memory");
        if (rank != 2) wait(&bar, 0);
        cluster.sync();
        out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
    }"""
    x, out = np.arange(128, dtype="i4"), np.zeros((2, 4, 64), "i4")
    launch(text, clusters(8, 64, 4), x, out.reshape(-1))
    expected = np.broadcast_to(x.reshape(2, 1, 64), out.shape).copy()
    expected[:, 2] = -1
    np.testing.assert_array_equal(out, expected)


def test_copies_of_many_sizes_to_another_block() -> None:
    """Every lane copies another number of bytes, from its own block's shared memory."""
    text = """
    __global__ void f(int* out, int bytes) {
        __shared__ alignas(16) int from[32 * 32], to[32 * 32];
        __shared__ u64 bar;
        Cluster cluster;
        int lane = threadIdx.x, other = cluster.block_rank() ^ 1;
        for (int i = lane; i < 1024; i += 32) { from[i] = 10000 * blockIdx.x + i; to[i] = -1; }
        if (lane == 0) { init(&bar, 1); expect(&bar, bytes); }
        asm volatile("fence.proxy.async;" ::: "memory");
        cluster.sync();
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
            :: "r"(remote(to + 32 * lane, other)), "r"(shared(from + 32 * lane)), "r"(lane % 9 * 16),
            "r"(remote(&bar, other)) : "memory");
        wait(&bar, 0);
        for (int i = lane; i < 1024; i += 32) out[blockIdx.x * 1024 + i] = to[i];
        cluster.sync();
    }"""
    sizes = np.arange(32) % 9 * 4
    out = np.zeros((2, 32, 32), "i4")
    launch(text, clusters(2, 32, 2), out.reshape(-1), 4 * int(sizes.sum()))
    values = np.arange(1024).reshape(32, 32)
    for block in range(2):
        expected = np.where(np.arange(32) < sizes[:, None], values + 10000 * (1 - block), -1)
        np.testing.assert_array_equal(out[block], expected)


BULK_REDUCE: list[tuple[str, str, Any]] = [
    *[(op, kind, np.dtype(d)) for op in ("add", "min", "max") for kind, d in
      (("u32", "u4"), ("s32", "i4"), ("u64", "u8"))],
    *[(op, "s64", np.dtype("i8")) for op in ("min", "max")],
    ("add", "f32", np.dtype("f4")), ("add", "f64", np.dtype("f8")),
    *[(op, kind, np.dtype(d)) for op in ("add.noftz", "min", "max") for kind, d in
      (("f16", np.float16), ("bf16", ml_dtypes.bfloat16))],
    *[(op, kind, np.dtype(d)) for op in ("and", "or", "xor") for kind, d in (("b32", "u4"), ("b64", "u8"))],
    *[(op, "u32", np.dtype("u4")) for op in ("inc", "dec")],
]  # fmt: skip


def _reduced(op: str, held: np.ndarray, value: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.asarray({
            "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
            "xor": np.bitwise_xor, "inc": lambda a, b: np.where(a >= b, 0, a + 1),
            "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
        }[op.partition(".")[0]](held, value), held.dtype)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("op", "kind", "dtype"), BULK_REDUCE, ids=lambda x: str(x))
def test_bulk_reductions_to_global_memory(op: str, kind: str, dtype: np.dtype) -> None:
    text = f"""
    __global__ void f(const int4* x, int4* out) {{
        __shared__ int4 tile[32];
        tile[threadIdx.x] = x[threadIdx.x];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {{
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{kind} [%0], [%1], 512;"
                :: "l"(out), "r"(shared(tile)) : "memory");
            asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
        }}
    }}"""
    raw = np.random.default_rng(4).integers(0, 256, (3, 512)).astype("u1")
    values = raw.view(dtype).copy()
    if dtype.kind not in "iu":
        values = np.random.default_rng(5).normal(size=values.shape).astype(dtype)
    elif op in ("inc", "dec"):
        values %= dtype.type(4)
    out = values[2].copy()
    # One after the other, for the order matters to most.
    for given in values[:2]:
        launch(text, ck.config(1, 32), given.view("i4").reshape(-1, 4), out.view("i4").reshape(-1, 4))
    expected = _reduced(op, _reduced(op, values[2], values[0]), values[1])
    np.testing.assert_array_equal(out.view("u1"), expected.view("u1"))


@pytest.mark.parametrize(
    ("op", "kind"), [("add", "s32"), ("add", "u64"), ("max", "u32"), ("xor", "b32"), ("inc", "u32")]
)
def test_bulk_reductions_to_another_block(op: str, kind: str) -> None:
    text = f"""
    __global__ void f(const int4* x, int4* out) {{
        __shared__ int4 tile[32], sum[32];
        __shared__ u64 bar;
        Cluster cluster;
        tile[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
        sum[threadIdx.x] = x[threadIdx.x];
        if (threadIdx.x == 0) {{ init(&bar, 1); expect(&bar, 512 * 3); }}
        asm volatile("fence.proxy.async;" ::: "memory");
        cluster.sync();
        if (threadIdx.x == 0 && cluster.block_rank())
            asm volatile("cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{kind} "
                "[%0], [%1], 512, [%2];" :: "r"(remote(sum, 0)), "r"(shared(tile)), "r"(remote(&bar, 0)) : "memory");
        if (cluster.block_rank() == 0) {{ wait(&bar, 0); out[threadIdx.x] = sum[threadIdx.x]; }}
        cluster.sync();
    }}"""
    dtype = np.dtype({"s32": "i4", "u64": "u8"}.get(kind, "u4"))
    values = np.random.default_rng(6).integers(0, 256, (4, 512)).astype("u1").view(dtype)
    if op == "inc":
        # Of different numbers the order would matter.
        values[2:] = values[1]
    out = np.zeros((32, 4), "i4")
    launch(text, clusters(4, 32, 4), values.view("i4").reshape(-1, 4), out)
    expected = values[0]
    for block in range(1, 4):
        expected = _reduced(op, expected, values[block])
    np.testing.assert_array_equal(out.reshape(-1).view(dtype), expected)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("target", "source", "size", "barrier", "why"),
    [
        ("shared(tile) + 8", "x", 16, "shared(&bar)", "destination .* multiple of 16"),
        ("shared(tile)", "x + 1", 16, "shared(&bar)", "source .* multiple of 16"),
        ("shared(tile)", "x", 20, "shared(&bar)", "size 0x14 .* multiple of 16"),
        ("shared(tile)", "x", 512, "shared(&bar)", "outside"),
        ("remote(tile, 1)", "x", 16, "shared(&bar)", "mbarrier is not in the shared memory of the block"),
        ("shared(tile)", "x", 16, "shared(tile)", "mbarrier.init"),
    ],
)
def test_wrong_bulk_copies_are_named(target: str, source: str, size: int, barrier: str, why: str) -> None:
    text = f"""
    __global__ void f(const int* x) {{
        __shared__ alignas(16) int tile[32];
        __shared__ u64 bar;
        tile[0] = 0;
        init(&bar, 1);
        Cluster().sync();
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], {size}, [%2];"
            :: "r"({target}), "l"({source}), "r"({barrier}) : "memory");
        Cluster().sync();
    }}"""
    with pytest.raises(ck.EmulationError, match=f"cp.async.bulk.*{why}"):
        launch(text, clusters(2, 1, 2), np.zeros(64, "i4"))


@pytest.mark.emulator
@pytest.mark.parametrize("form", ["add.s64", "inc.u64", "and.u32", "min.f32"])
def test_bulk_reductions_that_there_are_not_are_refused(form: str) -> None:
    text = f"""
    __global__ void f(int4* out) {{
        __shared__ int4 tile[1];
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.{form} [%0], [%1], 16;"
            :: "l"(out), "r"(shared(tile)) : "memory");
    }}"""
    with pytest.raises(ck.EmulationError, match=f"not emulated .*{form.partition('.')[2]}"):
        launch(text, ck.config(1, 1), np.zeros((1, 4), "i4"))


def test_prefetches_and_cache_policies_change_nothing() -> None:
    text = """
    __global__ void f(int* x) {
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.prefetch.L2.global.L2::cache_hint [%0], 64, %1;" :: "l"(x), "l"(policy));
        asm volatile("fence.proxy.async; fence.proxy.async.shared::cta; fence.proxy.alias;" ::: "memory");
        x[threadIdx.x] += 1;
    }"""
    x = np.zeros(32, "i4")
    launch(text, ck.config(1, 32), x)
    assert (x == 1).all()
