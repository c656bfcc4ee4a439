"""Tensor copies (TMA) on the emulator: boxes of one to five dimensions, swizzles, edges, stores, reductions, maps."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.emulated import call

import cudakit as ck
from cudakit.streams import devices
from cudakit.types.arguments import describe

PRELUDE = r"""
typedef unsigned long long u64;
struct alignas(64) CUtensorMap { u64 opaque[16]; };
__device__ unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(u64* bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared(bar)), "r"(count) : "memory");
}
__device__ void expect(u64* bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(shared(bar)), "r"(bytes) : "memory");
}
__device__ void wait(u64* bar, int phase) {
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra AGAIN; }"
        :: "r"(shared(bar)), "r"(phase) : "memory");
}
#define TO_SHARED "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
#define TO_GLOBAL ".global.shared::cta"
__device__ void load(void* tile, const CUtensorMap* map, int x, int y, u64* bar) {
    asm volatile(TO_SHARED " [%0], [%1, {%2, %3}], [%4];"
        :: "r"(shared(tile)), "l"(map), "r"(x), "r"(y), "r"(shared(bar)) : "memory");
}
__device__ void store(const CUtensorMap* map, int x, int y, const void* tile) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
        :: "l"(map), "r"(x), "r"(y), "r"(shared(tile)) : "memory");
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
}
"""
#: One block that loads one box and gives the bytes of shared memory that it fills; -1 elsewhere.
LOAD = """
__global__ void f(const __grid_constant__ CUtensorMap map, const int* at, int bytes, int words, unsigned* out) {{
    extern __shared__ __align__(1024) unsigned tile[];
    __shared__ u64 bar;
    for (int i = threadIdx.x; i < words; i += blockDim.x) tile[i] = ~0u;
    if (threadIdx.x == 0) {{ init(&bar, 1); expect(&bar, bytes); }}
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.tensor.{rank}d.shared::{space}.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {{{coordinates}}}], [%2];"
            :: "r"(shared(tile)), "l"(&map), "r"(shared(&bar)), {values} : "memory");
    wait(&bar, 0);
    for (int i = threadIdx.x; i < words; i += blockDim.x) out[i] = tile[i];
}}"""


def launch(text: str, config: ck.Config, *arguments: Any) -> None:
    """Run the kernel in `text`."""
    call(PRELUDE + text, config, *arguments)


def load(
    array: np.ndarray, at: Sequence[int], box: Sequence[int], space: str = "cluster", spare: int = 16, **options: Any
) -> np.ndarray:
    """Bytes of shared memory after a copy of the box that begins at element `at`, in the array's order."""
    steps = options.get("element_strides", [1] * array.ndim)
    size = int(np.prod([-(-b // s) for b, s in zip(box, steps, strict=True)])) * array.dtype.itemsize
    names = ", ".join(f"%{n + 3}" for n in range(array.ndim))
    values = ", ".join(f'"r"(at[{n}])' for n in range(array.ndim))
    text = LOAD.format(rank=array.ndim, space=space, coordinates=names, values=values)
    out = np.zeros(size // 4 + spare, "u4")
    fastest_first = np.array(at[::-1], "i4")
    tensor = ck.tensor_map(array, box, **options)
    launch(text, ck.config(1, 32, out.nbytes), tensor, fastest_first, size, out.size, out)
    assert (out[size // 4 :] == 2**32 - 1).all()
    return out.view("u1")[:size]


def box_of(
    array: np.ndarray, at: Sequence[int], box: Sequence[int], steps: Sequence[int] | None = None, fill: Any = 0
) -> np.ndarray:
    """The box, element by element."""
    steps = steps or [1] * array.ndim
    found = np.full([-(-b // s) for b, s in zip(box, steps, strict=True)], fill, array.dtype)
    for place in np.ndindex(found.shape):
        source = tuple(a + p * s for a, p, s in zip(at, place, steps, strict=True))
        if all(0 <= x < extent for x, extent in zip(source, array.shape, strict=True)):
            found[place] = array[source]
    return found


def aligned(shape: Sequence[int], dtype: Any, to: int = 128) -> np.ndarray:
    """An array of zeros at a multiple of `to` bytes."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.zeros(count + to, "u1")
    skip = -int(room.__array_interface__["data"][0]) % to
    return room[skip : skip + count].view(dtype).reshape(shape)


def numbered(shape: Sequence[int], dtype: Any) -> np.ndarray:
    array = aligned(shape, dtype)
    array[...] = (np.arange(array.size) % 251 + 1).reshape(shape).astype(dtype)
    return array


DTYPES = ["u1", "u2", "u4", "i4", "u8", "i8", np.float16, "f4", "f8", ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_box_of_every_dtype(dtype: Any) -> None:
    array = numbered((40, 64), dtype)
    found = load(array, (3, 16), (8, 32))
    np.testing.assert_array_equal(found.view(dtype).reshape(8, 32), array[3:11, 16:48])


@pytest.mark.slow
@pytest.mark.parametrize("space", ["cluster", "cta"])
@pytest.mark.parametrize(
    ("shape", "at", "box"),
    [
        ((100,), (20,), (64,)),
        ((20, 36), (3, 4), (7, 8)),
        ((5, 6, 12), (1, 2, 4), (3, 2, 8)),
        ((3, 4, 5, 8), (1, 1, 2, 0), (2, 3, 2, 4)),
        ((3, 2, 4, 3, 8), (0, 1, 1, 0, 4), (2, 1, 3, 3, 4)),
    ],
)
def test_boxes_of_one_to_five_dimensions(
    shape: Sequence[int], at: Sequence[int], box: Sequence[int], space: str
) -> None:
    array = numbered(shape, "f4")
    expected = array[tuple(slice(a, a + b) for a, b in zip(at, box, strict=True))]
    np.testing.assert_array_equal(load(array, at, box, space).view("f4").reshape(box), expected)


@pytest.mark.parametrize(
    ("at", "box"),
    [((-2, -8), (8, 16)), ((17, 32), (8, 12)), ((-20, 0), (8, 8)), ((0, 40), (4, 4)), ((-1, -8), (32, 64))],
)
@pytest.mark.parametrize(
    ("fill", "dtype"), [("zero", "i4"), ("zero", "f4"), ("nan", "f4"), ("nan", np.float16), ("nan", "f8")]
)
def test_what_is_outside_the_tensor_is_filled(at: Sequence[int], box: Sequence[int], fill: Any, dtype: Any) -> None:
    array = numbered((20, 40), dtype)
    box = (box[0], box[1] * 4 // array.dtype.itemsize)
    filled = np.full(4, 0x7FF7 if fill == "nan" else 0, np.uint16).view(dtype)[0]
    expected = box_of(array, at, box, fill=filled)
    np.testing.assert_array_equal(load(array, at, box, fill=fill), expected.view("u1").reshape(-1))


#: Bits of float32, and what a copy makes of them that rounds to tf32: those that an H200 made.
TF32 = {
    0x3F800000: 0x3F800000, 0x3F800FFF: 0x3F800000, 0x3F801000: 0x3F800000, 0x3F801001: 0x3F802000,
    0x3F802FFF: 0x3F802000, 0x3F803000: 0x3F804000, 0x3F803001: 0x3F804000, 0xBF801000: 0xBF800000,
    0xBF803000: 0xBF804000, 0x7F7FFFFF: 0x7F800000, 0x7F7FE000: 0x7F7FE000, 0x7F7FF000: 0x7F800000,
    0x7F7FEFFF: 0x7F7FE000, 0xFF7FFFFF: 0xFF800000, 0x7F800000: 0x7F800000, 0xFF800000: 0xFF800000,
    0x7F800001: 0x7FFFE000, 0x7FC00000: 0x7FFFE000, 0x7FFFFFFF: 0x7FFFE000, 0xFFC01234: 0x7FFFE000,
    0x00000001: 0x00000000, 0x00000FFF: 0x00000000, 0x00001000: 0x00000000, 0x00003000: 0x00004000,
    0x007FFFFF: 0x00800000, 0x80001000: 0x80000000, 0x80000FFF: 0x80000000, 0x00801000: 0x00800000,
    0x7FBFFFFF: 0x7FFFE000, 0x7F801000: 0x7FFFE000, 0x3F800001: 0x3F800000, 0x00803000: 0x00804000,
}  # fmt: skip


def test_copies_that_round_to_tf32() -> None:
    x = aligned((1, len(TF32)), "u4")
    x[...] = list(TF32)
    got = load(x.view("f4"), (0, 0), x.shape, precision="tf32").view("u4")
    assert [hex(bits) for bits in got] == [hex(bits) for bits in TF32.values()]


@pytest.mark.parametrize("steps", [(2, 1), (3, 1), (8, 1)])
def test_element_strides(steps: Sequence[int]) -> None:
    array = numbered((50, 16), "f4")
    found = load(array, (5, 4), (19, 8), element_strides=steps)
    np.testing.assert_array_equal(found.view("f4").reshape(-1, 8), box_of(array, (5, 4), (19, 8), steps))
    cube = numbered((9, 20, 16), "u2")
    found = load(cube, (1, 15, 0), (5, 9, 8), element_strides=(2, 4, 1))
    np.testing.assert_array_equal(found.view("u2").reshape(3, 3, 8), box_of(cube, (1, 15, 0), (5, 9, 8), (2, 4, 1)))


def test_rows_of_the_tensor_may_be_padded() -> None:
    array = numbered((20, 64), "f4")[:, :50]
    found = load(array, (2, 40), (4, 16)).view("f4").reshape(4, 16)
    np.testing.assert_array_equal(found, box_of(array, (2, 40), (4, 16)))


@pytest.mark.parametrize(("swizzle", "span", "rows_a_line"), [("32B", 32, 4), ("64B", 64, 2), ("128B", 128, 1)])
@pytest.mark.parametrize("dtype", ["u1", "u2", "f4", "f8"])
def test_swizzles(swizzle: Any, span: int, rows_a_line: int, dtype: str) -> None:
    """Chunk c of a row lies where chunk c ⊕ (line modulo the chunks of a span) would; a line is 128 bytes."""
    width = span // np.dtype(dtype).itemsize
    array = numbered((64, 3 * width), dtype)
    found = load(array, (7, width), (32, width), swizzle=swizzle).reshape(32, span // 16, 16)
    plain = array[7:39, width : 2 * width].copy().view("u1").reshape(32, span // 16, 16)
    for row in range(32):
        for chunk in range(span // 16):
            other = chunk ^ (row // rows_a_line) % (span // 16)
            np.testing.assert_array_equal(found[row, other], plain[row, chunk])


@pytest.mark.parametrize(("span", "row"), [(span, row) for span in (32, 64, 128) for row in range(16, span, 16)])
def test_rows_shorter_than_the_swizzle(span: int, row: int) -> None:
    """Each takes the bytes of a whole one, and an mbarrier counts those that are copied."""
    array = numbered((40, 128), "u1")
    text = LOAD.format(rank=2, space="cluster", coordinates="%3, %4", values='"r"(at[0]), "r"(at[1])')
    out = np.zeros(16 * span // 4, "u4")
    tensor = ck.tensor_map(array, (16, row), swizzle=f"{span}B")  # type: ignore[arg-type]
    launch(text, ck.config(1, 32, out.nbytes), tensor, np.array([16, 5], "i4"), 16 * row, out.size, out)
    chunks = np.full((16, span // 16, 16), 255, "u1")
    for line in range(16):
        for chunk in range(row // 16):
            other = chunk ^ (line * span // 128) % (span // 16)
            chunks[line, other] = array[5 + line, 16 + 16 * chunk : 32 + 16 * chunk]
    np.testing.assert_array_equal(out.view("u1"), chunks.reshape(-1))


@pytest.mark.parametrize(
    ("swizzle", "box"),
    [("none", (8, 12)), ("128B", (16, 8)), ("64B", (8, 12)), ("32B", (8, 8)), ("64B", (12, 16)), ("128B", (16, 32))],
)
def test_boxes_are_stored_where_they_are_loaded_from(swizzle: Any, box: Any) -> None:
    text = """
    __global__ void copy(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int bytes,
                         int rows, int columns) {
        extern __shared__ __align__(1024) unsigned tile[];
        __shared__ u64 bar;
        if (threadIdx.x == 0) {
            init(&bar, 1);
            expect(&bar, bytes);
            load(tile, &from, blockIdx.x * columns, blockIdx.y * rows, &bar);
            wait(&bar, 0);
            store(&to, blockIdx.x * columns, blockIdx.y * rows, tile);
        }
    }"""
    array = numbered((45, 68), "f4")
    out = aligned(array.shape, "f4")
    grid = (-(-68 // box[1]), -(-45 // box[0]))
    maps = [ck.tensor_map(x, box, swizzle=swizzle) for x in (array, out)]
    # Rows of a swizzled box have 128 bytes at most.
    size, room = 4 * box[0] * box[1], 128 * box[0]
    for factor in (1, 2):
        # The maps look at the arrays as they are when the kernel runs.
        array *= factor
        launch(text, ck.config(grid, 32, room), *maps, size, *box)
        np.testing.assert_array_equal(out, array)


STORE = """
    __global__ void f(const __grid_constant__ CUtensorMap map, int x, int y) {
        __shared__ alignas(128) float tile[8 * 8];
        tile[threadIdx.x] = threadIdx.x + 1;
        __syncthreads();
        if (threadIdx.x == 0) store(&map, x, y, tile);
    }"""


def test_stores_leave_out_what_is_outside() -> None:
    tile = np.arange(1, 65, dtype="f4").reshape(8, 8)
    for y, x in ((14, 0), (14, 12), (5, 8), (20, 4)):
        out = aligned((18, 16), "f4")
        launch(STORE, ck.config(1, 64), ck.tensor_map(out, (8, 8)), x, y)
        room = np.zeros((60, 60), "f4")
        room[20 + y : 28 + y, 20 + x : 28 + x] = tile
        np.testing.assert_array_equal(out, room[20:38, 20:36])


@pytest.mark.emulator
def test_checks_find_nothing_in_stores_that_are_wholly_outside() -> None:
    out = aligned((18, 16), "f4")
    with ck.check() as report:
        launch(STORE, ck.config(1, 64), ck.tensor_map(out, (8, 8)), 4, 20)
    assert not out.any()
    assert not report, report


@pytest.mark.emulator
@pytest.mark.parametrize(("x", "y"), [(-4, 0), (0, -1)])
def test_stores_before_the_tensor_are_refused(x: int, y: int) -> None:
    with pytest.raises(ck.EmulationError, match=f"cp.async.bulk.tensor.*written at {x + y}, before the tensor"):
        launch(STORE, ck.config(1, 64), ck.tensor_map(aligned((18, 16), "f4"), (8, 8)), x, y)


REDUCTIONS = [
    ("add", "u4"), ("add", "i4"), ("add", "u8"), ("add", "f4"), ("add", np.float16), ("add", ml_dtypes.bfloat16),
    ("min", "i4"), ("max", "u4"), ("min", "i8"), ("max", np.float16), ("inc", "u4"), ("dec", "u4"), ("and", "u4"),
    ("or", "u8"), ("xor", "u4"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("op", "dtype"), REDUCTIONS, ids=str)
def test_boxes_are_reduced_into_a_tensor(op: str, dtype: Any) -> None:
    text = f"""
    __global__ void f(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, int bytes,
                      int row) {{
        extern __shared__ __align__(1024) unsigned tile[];
        __shared__ u64 bar;
        if (threadIdx.x) return;
        init(&bar, 1);
        expect(&bar, bytes);
        load(tile, &from, 0, row, &bar);
        wait(&bar, 0);
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}.tile.bulk_group [%0, {{%1, %2}}], [%3];"
            :: "l"(&to), "r"(16), "r"(5), "r"(shared(tile)) : "memory");
        asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }}"""
    values = (np.random.default_rng(7).integers(0, 100, (24, 16)) * 3).astype(dtype)
    given = aligned((24, 16), dtype)
    given[...] = values
    out = aligned((10, 24), dtype)
    out[...] = 50
    maps = [ck.tensor_map(x, (8, 16)) for x in (given, out)]
    # One after the other, for the order matters to some.
    for row in (0, 8, 16):
        launch(text, ck.config(1, 32, 8 * 16 * given.itemsize), *maps, 8 * 16 * given.itemsize, row)
    functions: dict[str, Any] = {
        "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
        "xor": np.bitwise_xor, "inc": lambda a, b: np.where(a >= b, 0, a + 1),
        "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    }  # fmt: skip
    expected = np.full((10, 24), 50, dtype)
    for block in range(3):
        part = expected[5:, 16:]
        part[...] = functions[op](part, values[8 * block : 8 * block + 5, :8]).astype(dtype)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("swizzle", ["none", "64B"])
def test_each_block_of_a_cluster_loads_a_part_for_all(swizzle: Any) -> None:
    text = """
    __global__ void f(const __grid_constant__ CUtensorMap map, float* out) {
        __shared__ alignas(1024) float tile[4][8 * 16];
        __shared__ u64 bar;
        unsigned rank;
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        if (threadIdx.x == 0) { init(&bar, 1); expect(&bar, sizeof(tile)); }
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
        if (threadIdx.x == 0)
            asm volatile(TO_SHARED ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;"
                :: "r"(shared(tile[rank])), "l"(&map), "r"(16 * (blockIdx.x / 4)), "r"(8 * rank), "r"(shared(&bar)),
                "h"((short)15), "l"(0ull) : "memory");
        wait(&bar, 0);
        for (int i = threadIdx.x; i < 512; i += 64) out[blockIdx.x * 512 + i] = tile[0][i];
        asm volatile("barrier.cluster.arrive; barrier.cluster.wait;" ::: "memory");
    }"""
    array = numbered((32, 32), "f4")
    out = np.zeros((2, 4, 512), "f4")
    launch(text, ck.config(8, 64, cluster=4), ck.tensor_map(array, (8, 16), swizzle=swizzle), out.reshape(-1))
    for cluster in range(2):
        columns = array[:, 16 * cluster : 16 * cluster + 16].copy()
        if swizzle == "64B":
            chunks = columns.reshape(32, 4, 4)
            moved = np.arange(4) ^ (np.arange(32)[:, None] // 2 % 4)
            columns = np.take_along_axis(chunks, moved[:, :, None], axis=1)
        for block in range(4):
            np.testing.assert_array_equal(out[cluster, block], columns.reshape(-1))


MAPS = """
__global__ void f(const CUtensorMap* maps, const float* x, float* out) {
    __shared__ alignas(128) float tile[16];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        expect(&bar, 64);
        asm volatile("prefetch.tensormap [%0];" :: "l"(maps + blockIdx.x));
        asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" :: "l"(maps), "r"(0), "r"(0));
        load(tile, maps + blockIdx.x, 4, 2, &bar);
    }
    __syncthreads();
    wait(&bar, 0);
    out[blockIdx.x * 16 + threadIdx.x] = tile[threadIdx.x];
}"""


@pytest.mark.emulator
def test_maps_in_global_memory() -> None:
    array = numbered((2, 8, 8), "f4")
    maps = aligned((2, 128), "u1")
    for number in range(2):
        maps[number] = np.frombuffer(ck.tensor_map(array[number], (4, 4)).data, "u1")
    out = np.zeros((2, 4, 4), "f4")
    launch(MAPS, ck.config(2, 16), maps, array, out)
    np.testing.assert_array_equal(out, array[:, 2:6, 4:8])
    with pytest.raises(ck.EmulationError, match=r"no tensor map that ck\.tensor_map made"):
        launch(MAPS, ck.config(2, 16), aligned((2, 128), "u1"), array, out)
    with pytest.raises(ck.EmulationError, match="not aligned to 64 bytes"):
        launch(MAPS, ck.config(1, 16), aligned((2, 128), "u1").reshape(-1)[32:], array, out)
    with pytest.raises(ck.EmulationError, match="outside every array"):
        # A module of its own has met no array.
        launch(f"{MAPS} ", ck.config(2, 16), maps, np.zeros(1, "f4"), out)


@pytest.mark.emulator
def test_a_kernel_changes_a_map() -> None:
    text = """
    #define REPLACE(field, type, constraint, value) asm volatile( \\
        "tensormap.replace.tile." field ".shared::cta.b1024." type ";" \\
        :: "r"(shared(copy)), constraint(value) : "memory")
    __global__ void f(const __grid_constant__ CUtensorMap map, CUtensorMap* made, const short* x, short* out) {
        __shared__ CUtensorMap copy[1];
        __shared__ alignas(256) short tile[64];
        __shared__ u64 bar;
        if (threadIdx.x == 0) {
            *copy = map;
            init(&bar, 1);
            REPLACE("global_address", "b64 [%0], %1", "l", x);
            REPLACE("rank", "b32 [%0], %1", "r", 1);
            REPLACE("box_dim", "b32 [%0], 0, %1", "r", 16);
            REPLACE("box_dim", "b32 [%0], 1, %1", "r", 8);
            REPLACE("global_dim", "b32 [%0], 0, %1", "r", 28);
            REPLACE("global_dim", "b32 [%0], 1, %1", "r", 11);
            REPLACE("global_stride", "b64 [%0], 0, %1", "l", 64ll);
            REPLACE("element_stride", "b32 [%0], 0, %1", "r", 1);
            REPLACE("element_stride", "b32 [%0], 1, %1", "r", 2);
            REPLACE("elemtype", "b32 [%0], %1", "n", 6);
            REPLACE("interleave_layout", "b32 [%0], %1", "n", 0);
            REPLACE("swizzle_mode", "b32 [%0], %1", "n", 1);
            REPLACE("fill_mode", "b32 [%0], %1", "n", 1);
        }
        __syncwarp();
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
            " [%0], [%1], 128;" :: "l"(made), "r"(shared(copy)) : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(made) : "memory");
        if (threadIdx.x == 0) { expect(&bar, sizeof(tile)); load(tile, made, 16, 5, &bar); }
        wait(&bar, 0);
        out[threadIdx.x] = tile[threadIdx.x];
        out[threadIdx.x + 32] = tile[threadIdx.x + 32];
    }"""
    array, made, out = numbered((11, 32), np.float16), aligned((128,), "u1"), np.zeros(64, np.float16)
    other = ck.tensor_map(np.zeros(64, "u1"), (16,))
    expected = box_of(array[:, :28], (5, 16), (8, 16), (2, 1), np.nan)
    same = ck.tensor_map(array[:, :28], (8, 16), element_strides=(2, 1), swizzle="32B", fill="nan")
    # A map begins as another map, or as zeros: so does one of Triton's.
    for start in ("*copy = map;", "for (int i = 0; i < 16; ++i) ((u64*)copy)[i] = 0;"):
        launch(text.replace("*copy = map;", start), ck.config(1, 32), other, made, array.view("i2"), out.view("i2"))
        # Four rows of 32 bytes are one line, the first of its 256 bytes: the swizzle leaves it as it is.
        np.testing.assert_array_equal(out.reshape(4, 16), expected)
        assert made.tobytes() == same.data


@pytest.mark.slow
def test_copies_by_libcudacxx_and_cooperative_groups() -> None:
    text = """
    #include <cuda/barrier>
    #include <cooperative_groups.h>
    #include <cooperative_groups/memcpy_async.h>
    using barrier = cuda::barrier<cuda::thread_scope_block>;
    namespace cde = cuda::device::experimental;
    namespace cg = cooperative_groups;
    struct CUtensorMap_st { alignas(64) unsigned long long opaque[16]; };
    #pragma nv_diag_suppress static_var_with_dynamic_init
    __global__ void f(const __grid_constant__ CUtensorMap map, int x, int y, const int* added, int* out) {
        __shared__ alignas(128) int tile[64];
        __shared__ alignas(16) int more[64];
        __shared__ barrier bar;
        if (threadIdx.x == 0) { init(&bar, blockDim.x); cde::fence_proxy_async_shared_cta(); }
        __syncthreads();
        barrier::arrival_token token;
        if (threadIdx.x == 0) {
            cde::cp_async_bulk_tensor_2d_global_to_shared(tile, &map, x, y, bar);
            cuda::memcpy_async(more, added, cuda::aligned_size_t<16>(sizeof(more)), bar);
            token = cuda::device::barrier_arrive_tx(bar, 1, sizeof(tile));
        } else token = bar.arrive();
        bar.wait(cuda::std::move(token));
        tile[threadIdx.x] += more[threadIdx.x];
        cde::fence_proxy_async_shared_cta();
        __syncthreads();
        if (threadIdx.x == 0) {
            cde::cp_async_bulk_tensor_2d_shared_to_global(&map, x, y, tile);
            cde::cp_async_bulk_commit_group();
            cde::cp_async_bulk_wait_group_read<0>();
            bar.~barrier();
        }
        auto block = cg::this_thread_block();
        cg::memcpy_async(block, more, added + 64, sizeof(more));
        cg::wait(block);
        out[threadIdx.x] = more[threadIdx.x];
    }"""
    array, added, out = numbered((32, 32), "i4"), numbered((128,), "i4") * 1000, np.zeros(64, "i4")
    expected = array.copy()
    expected[16:24, 8:16] += added[:64].reshape(8, 8)
    tensor = ck.tensor_map(array, (8, 8))
    call(text, ck.config(1, 64), tensor, 8, 16, added, out)
    np.testing.assert_array_equal(array, expected)
    np.testing.assert_array_equal(out, added[64:])


def test_the_address_of_a_parameter_is_an_address() -> None:
    text = """
    struct Table { int n[6]; };
    __device__ __noinline__ int sum(const int* values, int count) {
        int total = 0;
        for (int i = 0; i < count; ++i) total += values[i];
        return total;
    }
    __global__ void f(short before, const __grid_constant__ Table table, int* out) {
        out[threadIdx.x] = sum(table.n, threadIdx.x) + table.n[(threadIdx.x + before) % 6];
    }"""
    table = np.zeros((), [("n", "i4", 6)])
    table["n"] = [1, 10, 100, 1000, 10000, 100000]
    out = np.zeros(6, "i4")
    launch(text, ck.config(1, 6), np.int16(2), table, out)
    assert out.tolist() == [100, 1001, 10011, 100111, 1112, 11121]


WRONG = """
__global__ void f(const __grid_constant__ CUtensorMap map, int skip, int x) {
    extern __shared__ __align__(1024) unsigned tile[];
    __shared__ u64 bar;
    init(&bar, 1);
    load(tile + skip, &map, x, 0, &bar);
}"""


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("shape", "box", "skip", "x", "why"),
    [
        ((8, 8), (4, 4), 4, 0, "destination .* multiple of 128 bytes"),
        ((8, 8, 8), (1, 4, 4), 0, 0, "3 dimensions"),
        ((64, 64), (64, 64), 0, 0, "outside its"),
        ((8, 8), (4, 4), 0, -3, "first coordinate is -3 elements of 4 bytes"),
    ],
)
def test_wrong_copies_are_named(shape: Sequence[int], box: Sequence[int], skip: int, x: int, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=f"cp.async.bulk.tensor.2d.*{why}"):
        launch(WRONG, ck.config(1, 1, 1024), ck.tensor_map(numbered(shape, "f4"), box), skip, x)


@pytest.mark.parametrize(
    ("array", "box", "options", "why"),
    [
        (np.zeros((8, 8), "f4"), (4,), {}, "box is 2 numbers of 1 to 256"),
        (np.zeros((8, 512), "f4"), (4, 260), {}, "box is 2 numbers of 1 to 256"),
        (np.zeros((8, 8), "f4"), (4, 0), {}, "box is 2 numbers of 1 to 256"),
        (np.zeros((8, 8), "f4"), (4, 3), {}, "a row of the box is a multiple of 16 bytes"),
        (np.zeros((8, 6), "f4"), (4, 4), {}, "the others multiples of 16"),
        (np.zeros((8, 8), "f4").T, (4, 4), {}, "the last stride"),
        (aligned((9,), "f4")[1:], (4,), {}, "begins at"),
        (np.zeros((4,) * 6, "f4"), (4,) * 6, {}, "1 to 5 dimensions"),
        (np.zeros((0, 4), "f4"), (4, 4), {}, "none empty"),
        (np.zeros((8, 8), "c8"), (4, 4), {}, "dtype complex64"),
        (np.zeros((8, 8), "f4"), (4, 4), {"element_strides": (9, 1)}, "element_strides is 2 numbers of 1 to 8"),
        (np.zeros((8, 8), "f4"), (4, 4), {"element_strides": (1, 2)}, "the last of element_strides"),
        (np.zeros((8, 64), "f4"), (4, 16), {"swizzle": "32B"}, "longer than the swizzle"),
        (np.zeros((8, 64), "f4"), (4, 16), {"swizzle": "256B"}, "swizzle is one of"),
        (np.zeros((8, 8), "i4"), (4, 4), {"fill": "nan"}, "int32 has no NaN"),
        (np.zeros((8, 8), "i4"), (4, 4), {"interleave": "16B"}, "no interleaved tensors"),
    ],
)
def test_wrong_maps_are_named(array: Any, box: Any, options: Any, why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=f"tensor_map: .*{why}"):
        ck.tensor_map(array, box, **options)


@pytest.mark.emulator
def test_maps_of_host_arrays_are_for_the_emulator() -> None:
    with pytest.raises(ck.ArgumentError, match="of a NumPy array and this stream is a GPU's"):
        describe(ck.tensor_map(np.zeros((8, 8), "f4"), (4, 4)))
    with pytest.raises(ck.ArgumentError, match="TensorMapDescriptor"):
        launch(WRONG, ck.config(1, 1, 1024), np.zeros((8, 8), "f4"), 0, 0)


class _OnDevice:
    """An array in device memory, as far as can be told from outside."""

    __cuda_array_interface__ = None


@pytest.mark.parametrize("refused", [False, True])
def test_maps_of_device_arrays_are_made_by_cuda_core(monkeypatch: pytest.MonkeyPatch, refused: bool) -> None:
    from cuda.core import _tensor_map, utils

    asked: list[Any] = []

    class View:
        device_id = 0

        @classmethod
        def from_any_interface(cls, array: Any, stream_ptr: int) -> View:
            asked.extend((array, stream_ptr))
            return cls()

        def as_tensor_map(self, box_dim: tuple[int, ...], **options: Any) -> str:
            if refused:
                raise ValueError("the driver does not like it")
            asked.append(_tensor_map.TensorMapDescriptorOptions(box_dim, **options))
            return "descriptor"

    monkeypatch.setattr(utils, "StridedMemoryView", View)
    monkeypatch.setattr(devices, "on_device", contextlib.nullcontext)
    array = _OnDevice()
    if refused:
        with pytest.raises(ck.ArgumentError, match="tensor_map of _OnDevice: the driver does not like it"):
            ck.tensor_map(array, (8, 8))
        return
    made = ck.tensor_map(array, [8, 16], element_strides=[2, 1], swizzle="64B", fill="nan", l2_promotion="256B")
    assert made == "descriptor"
    assert asked[:2] == [array, -1]
    assert asked[2] == _tensor_map.TensorMapDescriptorOptions(
        box_dim=(8, 16),
        element_strides=(2, 1),
        swizzle=_tensor_map.TensorMapSwizzle.SWIZZLE_64B,
        oob_fill=_tensor_map.TensorMapOOBFill.NAN_REQUEST_ZERO_FMA,
        l2_promotion=_tensor_map.TensorMapL2Promotion.L2_256B,
        interleave=_tensor_map.TensorMapInterleave.NONE,
    )
    assert ck.tensor_map(array, (8, 8), interleave="32B") == "descriptor"
    assert asked[5].interleave == _tensor_map.TensorMapInterleave.INTERLEAVE_32B
