"""The compiled machine gives what the NumPy machine gives: the same bytes, the same errors."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.machines import agreed, failed
from support.tiers import thinned

import cudakit as ck
from cudakit import emulator, system
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import parse
from cudakit.jit.cache.cache import Cache

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

SOURCE = Path(__file__).with_name("kernels.cuh")


def ran(name: str, config: Any, *arguments: Any, **more: Any) -> list[np.ndarray]:
    """The arrays after a kernel of the file beside this ran, on both machines."""
    return agreed(lambda: ck.Kernel.from_file(SOURCE, name, **more), config, *arguments)


def ints(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


def floats(count: int, seed: int = 0) -> np.ndarray:
    """Numbers of all sizes, the special ones among them."""
    drawn = np.random.default_rng(seed)
    special = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4e38, 1 + 2**-23]
    values = drawn.normal(size=count) * 10.0 ** drawn.integers(-12, 12, count)
    values[: len(special)] = special
    return values.astype(np.float32)


@pytest.mark.parametrize("count", thinned([1, 31, 32, 255, 256, 100_003], 3))
def test_guarded_elements(count: int) -> None:
    x, y = floats(max(count, 12))[:count], floats(max(count, 12), 1)[:count]
    ran("axpy", ck.cover(count), y, x, np.float32(2.5), np.int32(count))


@pytest.mark.parametrize("block", thinned([(16, 16), (32, 8), (8, 4), (7, 5), (64, 1), (1, 33), (4, 4, 4)], 3))
def test_blocks_of_any_shape(block: tuple[int, ...]) -> None:
    (found,) = ran("places", ck.config((2, 3), block), ints(6 * int(np.prod(block)), 4))
    assert (found[:, 3] == 1).all()


def test_tiles_in_shared_memory() -> None:
    a, b = (floats(48 * 48, seed).reshape(48, 48) for seed in (2, 3))
    ran("tiled_product", ck.config((3, 3), (16, 16)), np.zeros((48, 48), np.float32), a, b, np.int32(48))


@pytest.mark.parametrize("dtype", thinned([np.uint8, np.int16, np.int32, np.float32, np.int64, np.float64], 3))
@pytest.mark.parametrize("block", thinned([64, 96, 40], 3))
def test_loads_from_anywhere(dtype: Any, block: int) -> None:
    """By all lanes, and by some, whose neighbours' pointers lead nowhere."""
    rng, n = np.random.default_rng(block), 4 * block
    given, where = rng.integers(0, 99, n).astype(dtype), rng.integers(-n, n, n).astype(np.int32)
    (out, *_) = ran("fetched", ck.config(4, block), np.zeros(n, dtype), given, where, np.int32(n))
    i = np.arange(n)
    expected = given[n - 1 - i] + given[i * 37 % n] + np.where(where < 0, 0, given[where]).astype(dtype)
    expected += np.where(i % 3 != 1, given[i * 5 % n], 0).astype(dtype)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", thinned(["escapes", "collatz", "nested", "breaks", "short_circuit", "switched"], 3))
def test_lanes_that_part(name: str) -> None:
    ran(name, ck.config(5, 96), ints(480), np.int32(450))


@pytest.mark.parametrize(
    "name", thinned(["block_sum", "warp_scan", "ballots", "matched", "parted_shuffle", "reduced"], 3)
)
@pytest.mark.parametrize("threads", [32, 64, 160, 40])
def test_lanes_that_talk(name: str, threads: int) -> None:
    if name in ("block_sum", "matched", "parted_shuffle") and threads % 32:
        pytest.skip("of whole warps")
    ran(name, ck.config(3, threads), ints(3 * threads), np.arange(3 * threads, dtype=np.int32) * 7 % 23)


GUARDED = """
__global__ void together(int* o) {
    int l = threadIdx.x, r = -1;
    asm volatile("{ .reg .pred p; .reg .b32 t, m; and.b32 t, %1, 1; setp.ne.u32 p, t, 0;"
                 " selp.b32 m, 0xaaaaaaaa, 0x1, p; @p shfl.sync.idx.b32 %0, %1, 1, 31, m; }" : "+r"(r) : "r"(l));
    o[l] = r;
}
__global__ void apart(int* o) {
    int l = threadIdx.x, r = -1;
    if (l < 16) {
        for (int i = 0; i < l % 4 + 1; ++i) r -= o[l] + 1;
        asm volatile("{ .reg .pred p; .reg .b32 t, m; and.b32 t, %1, 1; setp.ne.u32 p, t, 0;"
                     " selp.b32 m, 0x0000aaaa, 0xffffffff, p; @p shfl.sync.idx.b32 %0, %1, 1, 31, m; }"
                     : "+r"(r) : "r"(l));
        o[l] = r;
    } else {
        o[l] = l;
    }
    __syncwarp();
    int other = o[l ^ 16];
    __syncwarp();
    o[l] += 100 * other;
}
__global__ void added(int* o) {
    int l = threadIdx.x, r = 0;
    asm volatile("{ .reg .pred p; .reg .b32 t; and.b32 t, %1, 3; setp.ne.u32 p, t, 0;"
                 " @!p redux.sync.add.s32 %0, %1, 0x11111111; }" : "+r"(r) : "r"(l));
    o[l] = r;
}
"""


@pytest.mark.parametrize("name", ["together", "apart", "added"])
def test_lanes_that_a_guard_leaves_out_wait_for_none(name: str) -> None:
    lane = np.arange(32)
    before = np.where(lane < 16, np.where(lane % 2, 1, -2 - lane % 4), lane)
    expected = {
        "together": np.where(lane % 2, 1, -1),
        "apart": before + 100 * before[lane ^ 16],
        "added": np.where(lane % 4, 0, sum(range(0, 32, 4))),
    }[name]
    (found,) = agreed(lambda: ck.Kernel(GUARDED, name), ck.config(1, 32), ints(32))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("count", [500, 512])
def test_indices_that_wrap_around(count: int) -> None:
    ran("wrapped", ck.config(2, 256), np.zeros(1024, np.uint64), ints(1024), np.arange(512, dtype=np.int32), count)


@pytest.mark.parametrize("count", thinned([63, 1, 400, 64], 2))
@pytest.mark.parametrize("block", thinned([32, 96, 256], 3))
def test_counters_of_loops(block: int, count: int) -> None:
    values = np.random.default_rng(9).integers(0, 40, 512).astype(np.int32)
    ran("strided", ck.config(-(-256 // block), block), ints(2048), values, np.int32(count))


@pytest.mark.parametrize("block", [128, (32, 4), 96, 40])
def test_numbers_of_warps_and_lanes(block: Any) -> None:
    threads = int(np.prod(block))
    ran("by_warp_and_lane", ck.config(2, block), ints(2 * threads), np.arange(100, dtype=np.int32) * 7)


@pytest.mark.parametrize("count", thinned([131, 100, 1, 500, 128], 3))
@pytest.mark.parametrize("block", thinned([32, 64, 48], 3))
def test_registers_that_are_several(block: int, count: int) -> None:
    values = np.random.default_rng(11).integers(0, 40, count).astype(np.int32)
    ran("begun_anew", ck.config(2, block), ints(4 * block + 2 * count + 8), values, np.int32(count))


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_addresses_by_their_last_bits(skip: int) -> None:
    for count in (256, 250, 40):
        held = np.zeros(264, np.int32)
        begin = -(held.ctypes.data // 4) % 4 + skip
        found = []
        for machine in ("compiled", "numpy"):
            held[begin : begin + 256] = np.arange(256)
            o = ints(128)
            stream = emulator.stream(machine=machine)  # type: ignore[arg-type]
            ck.Kernel.from_file(SOURCE, "by_alignment")(stream, ck.config(2, 32), o, held[begin : begin + 256], count)
            found.append(o)
        np.testing.assert_array_equal(*found)
        assert (found[0][:64] == -1).all() == (skip > 0)


@pytest.mark.parametrize("form", ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", "rsqrt.approx.f64"])
def test_float64_of_its_upper_bits(form: str) -> None:
    text = 'extern "C" __global__ void f(double* x) { double& y = x[threadIdx.x]; asm("FORM %0, %0;" : "+d"(y)); }'
    kept = [0.0, 5e-324, 2.2e-308, 2.3e-308, 1e-300, 1.0, np.pi, 4.0, 1e300, 1.7e308, np.inf]
    bits = np.array([0x7FF8_0000_0000_0000, 0x7FF8_1234_5678_9ABC, 0x7FF0_0000_0000_0001, 0x7FF4_0000_0000_0000], "u8")
    values = np.concatenate([kept, bits.view("f8"), np.random.default_rng(14).random(17)])
    (found,) = agreed(
        lambda: ck.Kernel(text.replace("FORM", form)), ck.config(1, 64), np.concatenate([values, -values])
    )
    want = 1 / found[7] if form.startswith("rcp") else found[7] ** -2
    assert want == 4


def test_lanes_that_leave_an_inner_loop_apart_meet_behind_it() -> None:
    values = np.random.default_rng(12).integers(0, 99, 61).astype(np.int32)
    ran("parted_within", ck.config(3, 64), ints(192), values, np.int32(61))


GENERIC = """
struct Table { int of[24]; short small[8]; double wide; };
__global__ void by_generic(int* o, const __grid_constant__ Table table, int first, int* x) {
    const int* of = table.of;
    asm volatile("" : "+l"(of));  // whose state space the compiler does not know now
    int v = x[threadIdx.x];
    o[threadIdx.x] = of[first + v % 24] + of[threadIdx.x % 3];
}
__global__ void written(int* o, const __grid_constant__ Table table) {
    int* of = (int*)table.of;
    asm volatile("" : "+l"(of));
    of[threadIdx.x] = o[0];
}
"""


def test_parameters_that_are_read_by_generic_addresses() -> None:
    table, x = np.zeros((), TABLE), np.random.default_rng(13).integers(0, 1000, 64).astype(np.int32)
    table["of"] = np.arange(24) * 3

    def kernel() -> ck.Kernel:
        return ck.Kernel(GENERIC, "by_generic")

    (found, _) = agreed(kernel, ck.config(1, 64), ints(64), table[()], 0, x)
    np.testing.assert_array_equal(found, table["of"][x % 24] + table["of"][np.arange(64) % 3])
    assert "the kernel's parameters: … is outside" in failed(kernel, ck.config(1, 64), ints(64), table[()], 4000, x)
    said = failed(lambda: ck.Kernel(GENERIC, "written"), ck.config(1, 32), ints(1), table[()])
    assert "a kernel's parameters are read-only" in said


TABLE = np.dtype([("of", "i4", 24), ("small", "i2", 8), ("wide", "f8")], align=True)


def test_parameters_that_are_read_by_address() -> None:
    table = np.zeros((), TABLE)
    table["of"], table["small"], table["wide"] = np.arange(24) * 3, np.arange(8) - 4, 0.7
    x = np.random.default_rng(13).integers(0, 1000, 96).astype(np.int32)
    (found, _) = agreed(lambda: ck.Kernel.from_file(SOURCE, "by_value"), ck.config(3, 32), ints(96), table[()], x)
    want = (
        table["of"][x % 24] + table["small"][x & 7] * 100 + (0.7 * x).astype(int) + table["of"][np.arange(96) % 32 % 3]
    )
    np.testing.assert_array_equal(found, want)
    said = failed(lambda: ck.Kernel.from_file(SOURCE, "beyond_its_value"), ck.config(3, 32), ints(96), table[()], x)
    assert "parameter" in said


def test_neighbours_before_the_beginning() -> None:
    ran("widening", ck.config(3, 128), ints(384), np.arange(384, dtype=np.int32))


@pytest.mark.parametrize("count", [1, 40, 64, 100])
def test_vectors_of_elements(count: int) -> None:
    values = np.arange(512, dtype=np.int32).reshape(128, 4)
    octets = np.random.default_rng(3).integers(0, 256, 512).astype(np.uint8)
    ran("by_fours", ck.config(2, 64), ints(128, 4), values, octets, np.int32(count))


@pytest.mark.parametrize("count", [1, 100, 192])
def test_asynchronous_copies(count: int) -> None:
    values = np.random.default_rng(6).integers(-(2**31), 2**31, (192, 4)).astype(np.int32)
    ran("copied", ck.config(3, 64, shared_bytes=6 * 64 * 16), ints(3 * 6 * 64, 4), values, np.int32(count))


MATRICES = [
    ("m16n8k16", "f32.f16.f16.f32"),
    ("m16n8k8", "f16.f16.f16.f16"),
    ("m16n8k16", "f32.bf16.bf16.f32"),
    ("m16n8k8", "f32.tf32.tf32.f32"),
    ("m8n8k4", "f64.f64.f64.f64"),
    ("m16n8k8", "f64.f64.f64.f64"),
    ("m16n8k32", "s32.s8.u8.s32"),
    ("m8n8k16", "s32.u8.u8.s32"),
]


@pytest.mark.parametrize(("shape", "types"), thinned(MATRICES, 2, several=True))
def test_products_of_matrices(shape: str, types: str) -> None:
    m, n, k = map(int, shape[1:].replace("n", "k").split("k"))
    to, kind, other, of_c = types.split(".")
    bits = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s8": 8, "u8": 8}
    drawn = np.random.default_rng(2)

    def counted(rows: int, columns: int, of: str) -> int:
        return rows * columns * bits[of] // (32 * max(32, bits[of]))

    def given(count: int, of: str) -> np.ndarray:
        if of[0] in "su":
            return drawn.integers(-(2**31), 2**31, (64, count)).astype(np.int32)
        values = drawn.normal(size=(64, 2 * count)).astype(np.float32)
        values[9, 1], values[40, 0], values[50, 1] = np.inf, np.nan, -0.0
        if of in ("f16", "bf16"):
            raw = values.view(np.uint32) >> 16 if of == "bf16" else values.astype(np.float16).view(np.uint16)
            return np.ascontiguousarray(raw.astype(np.uint16)).view(np.int32)
        return values[:, :count].astype(np.float64).view(np.int64) if of == "f64" else values[:, :count].view(np.int32)

    counts = [counted(m, n, to), counted(m, k, kind), counted(k, n, other), counted(m, n, of_c)]
    word, letter = ("long long", "l") if to == "f64" else ("int", "r")
    places = iter(range(99))
    registers = ", ".join("{" + ", ".join(f"%{next(places)}" for _ in range(count)) + "}" for count in counts)
    outs = ", ".join(f'"={letter}"(o[t * {counts[0]} + {at}])' for at in range(counts[0]))
    ins = ", ".join(
        f'"{letter}"({name}[t * {count} + {at}])'
        for name, count in zip("abc", counts[1:], strict=True)
        for at in range(count)
    )
    text = f"""
    __global__ void f({word}* o, const {word}* a, const {word}* b, const {word}* c) {{
        int t = threadIdx.x;
        asm("mma.sync.aligned.{shape}.row.col.{types} {registers};" : {outs} : {ins});
    }}"""
    arrays = [np.ascontiguousarray(given(count, of)) for count, of in zip(counts[1:], (kind, other, of_c), strict=True)]
    out = np.zeros((64, counts[0]), arrays[0].dtype)
    assert agreed(lambda: ck.Kernel(text), ck.config(1, 64), out, *arrays, arch="sm_90")[0].any()


@pytest.mark.parametrize("form", thinned(["x4", "x2", "x1", "x4.trans", "x2.trans", "x1.trans"], 3))
def test_matrices_from_shared_memory(form: str) -> None:
    count = int(form[1])
    registers = ", ".join(f"%{at}" for at in range(count))
    outs = ", ".join(f'"=r"(o[t * {count} + {at}])' for at in range(count))
    text = f"""
    __global__ void f(int* o, const int* x, int step) {{
        __shared__ alignas(16) int s[64 * 4];
        int t = threadIdx.x;
        for (int i = t; i < 256; i += 64) s[i] = x[i];
        __syncthreads();
        unsigned at = (unsigned)__cvta_generic_to_shared(s + 4 * (t * step % 64));
        asm("ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{{registers}}}, [%{count}];" : {outs} : "r"(at));
    }}"""
    words = np.random.default_rng(5).integers(-(2**31), 2**31, 256).astype(np.int32)
    for step in (1, 13, 0):
        agreed(lambda: ck.Kernel(text), ck.config(1, 64), ints(64, count), words, step, arch="sm_90")


@pytest.mark.parametrize("name", ["counted", "parted_barrier", "barrier_after_exit"])
def test_barriers(name: str) -> None:
    ran(name, ck.config(2, 128), ints(256))


@pytest.mark.parametrize("name", thinned(["histogram", "taken_in_turn", "largest", "added", "retried", "locked"], 3))
def test_atomics(name: str) -> None:
    values = np.random.default_rng(4).integers(0, 64, 2048).astype(np.int32)
    ran(name, ck.config(8, 64), ints(64), values, np.int32(2048))


def test_atomics_of_whole_vectors() -> None:
    values = np.random.default_rng(4).integers(0, 64, 2048).astype(np.int32)
    for count in (2048, 2000):
        ran("each_operation", ck.config(1, 32), ints(64), values, np.int32(count))


@pytest.mark.parametrize("name", ["in_order", "in_reverse", "by_warps", "all_at_once"])
def test_threads_that_wait_for_others(name: str) -> None:
    ran(name, ck.config(6, 128), ints(1), ints(6 * 128))


def test_called_functions() -> None:
    ran("calls", ck.config(2, 64), ints(128))


@pytest.mark.parametrize("options", [{}, {"fast_math": True}])
@pytest.mark.parametrize("name", ["mathematics", "half_precision", "converted", "bits"])
def test_computing(name: str, options: dict[str, bool]) -> None:
    more = {"options": ck.CompileOptions(**options)} if options else {}
    ran(name, ck.config(4, 256), np.zeros(1024, np.float32), floats(1024, 5), **more)


def test_rounding() -> None:
    a, b = floats(2048, 6), floats(2048, 7)
    with np.errstate(over="ignore", invalid="ignore"):
        c = (-(a.astype(np.float64) * b) * (1 + np.random.default_rng(8).integers(-2, 3, 2048) * 2.0**-24)).astype(
            np.float32
        )
    ran("rounded", ck.config(8, 256), np.zeros((16, 2048), np.float32), a, b, c)


@pytest.mark.parametrize(
    ("name", "arguments"),
    thinned(
        [
            ("outside", (ints(40),)),
            ("outside_shared", (ints(40),)),
            ("misaligned", (np.zeros(200, np.int8),)),
            ("trapped", (ints(4),)),
            ("added_outside", (ints(4),)),
            ("added_past", (ints(32), np.where(np.arange(32) == 20, 4000, 3).astype(np.int32))),
            ("null", (np.zeros(1, np.uint64),)),
            ("past_the_end", (ints(32), ints(73), np.int32(73))),
            ("asserted", (ints(64), np.int32(20))),
            ("copied_from_outside", (ints(100),)),
            ("copied_too_far", (ints(4),)),
            ("copied_beside", (ints(4),)),
            ("copied_from_beside", (ints(128).reshape(64, 2),)),
            ("copied_too_much", (ints(4),)),
            ("copied_in_part_from_outside", (ints(20),)),
        ],
        3,
        several=True,
    ),
)
def test_errors_say_the_same(name: str, arguments: tuple[Any, ...]) -> None:
    said = []
    for machine in ("compiled", "numpy"):
        kernel = ck.Kernel.from_file(SOURCE, name)
        given = [each.copy() if isinstance(each, np.ndarray) else each for each in arguments]
        with pytest.raises(ck.EmulationError) as error:
            kernel(emulator.stream(machine=machine), ck.config(2, 32), *given)
        said.append(str(error.value).partition(" at 0x")[0].partition("address 0x")[0].partition("byte ")[0])
    assert said[0] == said[1]


@pytest.mark.parametrize("first", [1, 9], ids=["first", "second"])
def test_each_of_two_equal_accesses_is_named_by_its_own_line(first: int) -> None:
    two = """__global__ void f(int* x) {
        x[x[threadIdx.x]] = 1;
        x[x[threadIdx.x + 8]] = 2;
    }"""
    x = ints(16)
    x[first] = 1 << 20
    with pytest.raises(ck.EmulationError, match=rf">.*\]\] = {1 + first // 8};"):
        ck.Kernel(two, "f")(emulator.stream(machine="compiled"), ck.config(1, 8), x)


@pytest.mark.parametrize("index", ["32 * k + t", "where[32 * k + t]"])
def test_a_generic_pointer_stays_in_the_shared_memory_that_it_led_to(index: str) -> None:
    """The last lane of the last turn leaves it, of a row that is checked before its block runs or of any places."""
    text = """
        __global__ void f(const int* x, const int* where, int* y, bool is_shared) {
            __shared__ int own[95];
            int t = threadIdx.x;
            own[t] = own[t + 32] = own[t + 63] = t;
            __syncthreads();
            const int* from = is_shared ? own : x;
            #pragma unroll 1
            for (int k = 0; k < 3; ++k) y[t] += from[INDEX];
        }"""
    arguments = ck.config(1, 32), ints(96), np.arange(96, dtype=np.int32), ints(32)
    assert "95 elements: element 95 is past" in failed(
        lambda: ck.Kernel(text.replace("INDEX", index), "f"), *arguments, True
    )
    agreed(lambda: ck.Kernel(text.replace("INDEX", index), "f"), *arguments, False)


def test_read_only_memory_stays() -> None:
    x = ints(32)
    x.flags.writeable = False
    kernel = ck.Kernel("__global__ void f(const int* x) { *(int*)x = 1; }", "f")
    with pytest.raises(ck.EmulationError, match="x is read-only"):
        kernel(emulator.stream(machine="compiled"), ck.config(1, 1), x)
    assert not x.any()


def test_print_in_the_order_of_threads() -> None:
    said: list[str] = []
    kernel = ck.Kernel.from_file(SOURCE, "told")
    kernel(emulator.stream(machine="compiled", output=said.append), ck.config(2, 32))
    assert "".join(said) == "".join(f"block {b} lane {t}: {t / 2:f}\n" for b in range(2) for t in range(0, 32, 7))


def test_races_between_streams_are_seen() -> None:
    x = ints(1024)
    kernel = ck.Kernel("__global__ void f(int* x) { x[blockIdx.x * 256 + threadIdx.x] += 1; }", "f")
    first, second = (emulator.stream(machine="compiled") for _ in range(2))
    with ck.hazards.manual():
        kernel(first, ck.config(4, 256), x)
        with pytest.raises(ck.EmulationError, match="race"):
            kernel(second, ck.config(4, 256), x)


@pytest.mark.parametrize("other", ["first", "second"])
def test_races_in_two_arrays_that_are_come_to_in_the_same_way(other: str) -> None:
    """Both addresses are made of `apart`: what one was checked against is not what holds for the other."""
    whole = np.zeros(3 << 16, np.int32)
    from_, first, second = (whole[k << 16 :][:32] for k in range(3))
    write = ck.Kernel(
        """__global__ void f(int* from, int* first, int* second, long long apart) {
            int i = threadIdx.x;
            (from + apart)[i] = 1;
            (from + 2 * apart)[i] = 2;
        }""",
        "f",
    )
    read = ck.Kernel("__global__ void g(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }", "g")
    one, two = (emulator.stream(machine="compiled") for _ in range(2))
    with ck.hazards.manual():
        write(one, ck.config(1, 32), from_, first, second, 1 << 16)
        assert (first == 1).all()
        assert (second == 2).all()
        with pytest.raises(ck.EmulationError, match="race"):
            read(two, ck.config(1, 32), {"first": first, "second": second}[other], np.zeros(32, np.int32))


def test_over_the_cores_the_first_block_that_fails_is_named() -> None:
    x = ints(64 * 1024)
    kernel = ck.Kernel.from_file(SOURCE, "from_block")
    for _ in range(3):
        with pytest.raises(ck.EmulationError, match=r"block 37, thread 0 trapped"):
            kernel(emulator.stream(machine="compiled"), ck.config(256, 256), x)


_EDGES = (0, 1, 20, 0x7FFF_FFF0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFEC, 0xFFFF_FFFF)


@pytest.mark.parametrize("first", thinned(_EDGES, 3))
def test_what_lies_in_a_row_beside_one_number(first: int) -> None:
    for other in _EDGES:
        (found,) = ran(
            "beside", ck.config(2, 64), ints(40, 128), np.uint32(first), np.uint32(other), np.int64(other - 99)
        )
        whole = np.arange(first, first + 128) % 2**32
        np.testing.assert_array_equal(found[0], whole < other)
        np.testing.assert_array_equal(found[33], other >= whole)


@pytest.mark.parametrize("block", thinned([(32, 8), (64, 2), (16, 4), (32, 2, 2), (96, 3)], 2))
@pytest.mark.parametrize("grid", thinned([(45, 3), (1, 5), (2, 1), (33, 2)], 3))
def test_rows_of_blocks(grid: tuple[int, int], block: tuple[int, ...]) -> None:
    w, h = grid[0] * block[0] - 5, grid[1] * block[1] - 1
    (found,) = ran("framed", ck.config(grid, block), ints(h, w), w, h)
    y, x = np.mgrid[:h, :w]
    want = y // block[1] * 10000 + x // block[0] * 100 + y % block[1] * 10 + (block[2] if len(block) > 2 else 1)
    inside = (x >= 1) & (y >= 1) & (x < w - 1) & (y < h - 1)
    np.testing.assert_array_equal(found, np.where(inside, want, 0))


@pytest.mark.parametrize("start", [0, 5, 31, 32, 77])
@pytest.mark.parametrize("cores", [1, 2])
def test_of_blocks_that_run_by_rows_the_first_that_fails_is_named(
    start: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "cores", lambda: cores)
    kernel, o = ck.Kernel.from_file(SOURCE, "fails_by_rows"), ints(200 * 256)
    with pytest.raises(ck.EmulationError, match=rf"block {start}, thread \(0, {7 - start % 8}, 0\)"):
        kernel(emulator.stream(machine="compiled"), ck.config(200, (32, 8)), o, start)
    rows = o.reshape(200, 8, 32)
    assert rows[:start].all()
    assert rows[start, : 7 - start % 8].all()


def test_what_it_does_not_take_is_told() -> None:
    kernel = ck.Kernel.from_file(SOURCE, "recursive")
    with pytest.warns(ck.EmulatorWarning, match="runs on the NumPy machine: it has a function that calls itself"):
        kernel(emulator.stream(machine="compiled"), ck.config(1, 32), ints(32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ck.Kernel.from_file(SOURCE, "recursive")(emulator.stream(machine="auto"), ck.config(1, 32), ints(32))


def test_a_machine_of_another_name() -> None:
    with pytest.raises(ck.ArgumentError, match="machine is 'auto', 'compiled' or 'numpy', got 'fast'"):
        emulator.stream(machine="fast")  # type: ignore[arg-type]


def test_the_variable_names_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDAKIT_MACHINE", raising=False)
    assert emulator.stream().machine == "auto"
    monkeypatch.setenv("CUDAKIT_MACHINE", "compiled")
    assert emulator.stream().machine == "compiled"
    monkeypatch.setenv("CUDAKIT_MACHINE", "fast")
    with pytest.raises(ck.ArgumentError, match="got 'fast'"):
        emulator.stream()


def test_attributes_say_which_machine_ran_it() -> None:
    kernel = ck.Kernel("__global__ void f(int* x, int n) { __shared__ volatile int s[8]; s[n] = 1; x[0] = s[n]; }")
    x = np.zeros(32, "i4")
    for machine, check, want in (
        ("numpy", "off", ("numpy", "", 32)),
        ("compiled", "off", ("compiled", "", 32)),
        ("auto", "off", ("compiled", "", 32)),
        ("auto", "raise", ("numpy", "a watched, ordered or bounded launch goes step by step", 32)),
    ):
        kernel(emulator.stream(machine=machine, check=check), ck.config(1, 1), x, 3)  # type: ignore[arg-type]
        assert kernel.attributes() == want, machine
    other = ck.Kernel("__global__ void g(int* x) { x[0] = 1; }")
    other(emulator.stream(machine="auto"), ck.config(1, 1), x)
    assert other.attributes().machine == "numpy"
    assert "compiling takes" in other.attributes().why


def test_sums_of_floats_stay_with_the_machine_that_began_them() -> None:
    """Else the same call would give other last bits once the kernel is compiled."""
    text = """
    __global__ void add(const float* x, float* sum, int rounds) {
        for (int k = 0; k < rounds; ++k) atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x] * k);
    }"""
    kernel, stream = ck.Kernel(text), emulator.stream(machine="auto")
    x = np.random.default_rng(0).random(4096, "f4")
    sums = []
    for _ in range(40):
        total = np.zeros(1, "f4")
        kernel(stream, ck.config(16, 256), x, total, 20)
        sums.append(float(total[0]))
    assert len(set(sums)) == 1


def test_large_kernels_are_optimised_once_they_have_run_long(
    monkeypatch: pytest.MonkeyPatch, fresh_cache: Cache, code: str
) -> None:
    from cudakit.emulator.compiled import machine, native
    from cudakit.emulator.compiled import native as loaded_kernels

    gc.collect()  # another test's stream: a launch beside it is watched, and compiled for that
    native._helpers()  # which are compiled once in a process
    made = list[bool]()
    real = native.compiled

    def noted(text: str, optimised: bool) -> bytes:
        if "define i64 @kernel" in text:  # not the functions of its accesses
            made.append(optimised)
        return real(text, optimised)

    monkeypatch.setattr(native, "compiled", noted)
    loaded, take = [], loaded_kernels.Compiled._take
    monkeypatch.setattr(
        loaded_kernels.Compiled, "_take", lambda self, tier: loaded.append(not tier.is_baseline) or take(self, tier)
    )
    monkeypatch.setattr(machine, "_SHORT", 0)
    monkeypatch.setattr(machine, "_OPTIMISING", 1e-9)
    more = len(code)  # none is in the cache
    text = (
        "__global__ void f(int* x, int n) { for (int k = 0; k < n; ++k) x[threadIdx.x] = x[threadIdx.x] * 3 + MORE; }"
    )
    stream, x, want = emulator.stream(machine="compiled"), np.arange(32, dtype="i4"), np.arange(32, dtype="i4")
    kernel = ck.Kernel(text.replace("MORE", str(more)))
    for _ in range(3):
        kernel(stream, ck.config(1, 32), x, 20_000)
    assert made == [False, True]
    # Another program takes what was optimised from the cache, at once.
    monkeypatch.setattr(machine, "_machine", machine.Machine())
    kernel(stream, ck.config(1, 32), x, 20_000)
    assert made == [False, True]
    assert loaded == [False, True, True]
    for _ in range(80_000):
        want = want * np.int32(3) + np.int32(more)
    np.testing.assert_array_equal(x, want)


@pytest.mark.skipif(sys.platform != "linux", reason="holes are made by Linux's mmap")
def test_code_is_loaded_where_addresses_are_in_pieces() -> None:
    """What reserves addresses, as CUDA does, may leave holes that lie far apart."""
    program = """
import ctypes, sys
import numpy as np
import cudakit as ck
from cudakit.emulator.compiled import native
x = np.zeros(64, "f4")
stream, config = ck.emulator.stream(machine="compiled"), ck.config(1, 64)
ck.Kernel("__global__ void f(float* x) { x[threadIdx.x] = 1; }")(stream, config, x)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
text = "__global__ void g(float* x) { float& own = x[threadIdx.x]; own = sinf(own) * 0.3f + powf(own, 1.7f); }"
kernel = ck.Kernel(text)
kernel.compile(arch="sm_90")
reserved = libc.mmap(None, 128 << 32, 0, 0x4022, -1, 0)  # private, anonymous, without memory
for k in range(1, 127):
    libc.munmap(reserved + (k << 32), 96 << 10)  # holes of less than a kernel's code with its constants
found = 0
while not reserved <= found < reserved + (128 << 32):
    found = libc.mmap(None, 32 << 10, 0, 0x22, -1, 0)  # all gaps above them
kernel(stream, config, x)
print(x[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(np.sin(1) * 0.3 + 1, rel=1e-6)


def summing() -> Context:
    """A kernel as the compiled machine takes it."""
    program = parse(
        ck.Kernel("__global__ void f(int* x) { x[threadIdx.x] += atomicAdd(x, 1); }", "f").ptx(arch="sm_80")
    )
    return Context(Module(program, Memory()).symbols, next(iter(program.functions.values())))


def test_a_register_that_is_written_first_does_not_live_before() -> None:
    """One that does has a place in memory, is set to zero there, and is saved where threads wait."""
    from cudakit.emulator.compiled.analysis import Analysis
    from cudakit.emulator.compiled.layout import Layout

    known = Analysis(summing(), Layout(8, True, True))
    assert known.shapes.live_in == [set() for _ in known.flow.blocks]


def test_nothing_is_registered_with_the_unwinder() -> None:
    """Newer versions of libgcc abort the process where code that is gone had told them of its frames."""
    from cudakit.emulator.compiled import kernel, native
    from cudakit.emulator.compiled.layout import Layout

    width = native.processor().native
    text = kernel.make(summing(), Layout(width, True, True)).text
    assert all(b".eh_frame" not in native.compiled(text, optimised) for optimised in (False, True))


def test_long_kernels_have_one_body_a_block_when_they_are_optimised_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.emulator.compiled import kernel
    from cudakit.emulator.compiled import layout as layouts
    from cudakit.emulator.compiled.layout import Layout

    context, layout = summing(), Layout(8, True, False)
    quick = kernel.make(context, layout, True).text
    assert kernel.make(context, layout).text.count("\nwhole.b") > quick.count("\nwhole.b") == 0
    monkeypatch.setattr(layouts, "_LONG", len(context.function.code) - 1)
    assert "\nwhole.b" not in kernel.make(context, layout).text


def test_quick_code_looks_at_all_lanes_at_once() -> None:
    """A helper looks at each lane only where one lies outside."""
    from cudakit.emulator.compiled import kernel
    from cudakit.emulator.compiled.layout import Layout

    scattered = """__global__ void f(int* x) {
        x[x[threadIdx.x]] = 1; x[x[threadIdx.x + 8]] = 2; atomicMax(x, int(threadIdx.x)); atomicMax(x, 9 - threadIdx.x);
    }"""
    program = parse(ck.Kernel(scattered, "f").ptx(arch="sm_80"))
    context = Context(Module(program, Memory()).symbols, next(iter(program.functions.values())))
    stores = "call void @llvm.masked.scatter"
    text, beside, _ = kernel.make(context, Layout(8, True, True), True)
    assert stores not in text
    assert beside.count(stores) == 1, "equal accesses are one function"
    assert beside.count("\nstraight.") == 1
    assert "\nstraight." not in text
    text, beside, _ = kernel.make(context, Layout(8, True, True))
    assert text.count(stores) > 1, "code that runs long has no such calls"
    assert text.count("\nstraight.") > 1
    assert beside == ""


@pytest.mark.parametrize("code", ["best"], indirect=True)  # the test decides
@pytest.mark.slow
def test_code_that_needs_more_stack_than_there_is() -> None:
    """Made quickly, a large kernel has a place on the stack for each value: some megabytes."""
    script = """
        import resource
        resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        import numpy as np, cudakit as ck
        from cudakit.emulator.compiled import machine
        machine._SHORT = 0
        numbers = range(700)
        kernel = ck.Kernel(
            "__global__ void f(double* x) { int i = threadIdx.x; "
            + "".join(f"double a{k} = x[i + {k}] * {k};" for k in numbers)
            + "__syncthreads(); x[i] = " + " + ".join(f"a{k}" for k in numbers) + "; }", "f"
        )
        x = np.ones(1024)
        kernel(ck.emulator.stream(machine="compiled"), ck.config(1, 64), x)
        assert (x[:64] == sum(numbers)).all()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)


@pytest.mark.parametrize("code", ["best"], indirect=True)  # the test decides
@pytest.mark.parametrize("quickly", thinned([False, True], 2))
def test_ctrl_c_stops_compiled_code(tmp_path: Path, quickly: bool) -> None:
    from cudakit.emulator.compiled import machine

    script = tmp_path / "endless.py"
    script.write_text(
        textwrap.dedent(f"""
        import signal, numpy as np, cudakit as ck
        from cudakit.emulator.compiled import machine
        machine._SHORT = {0 if quickly else machine._SHORT}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        text = "__global__ void f(volatile int* x, int n) {{ for (int i = 0; i != n; ++i) x[1] += 1; }}"
        kernel = ck.Kernel(text, "f")
        stream, x = ck.emulator.stream(machine="compiled"), np.zeros(2, "i4")
        kernel(stream, ck.config(1, 1), x, 1)
        print("running", flush=True)
        try:
            kernel(stream, ck.config(1, 32), x, -1)
        except KeyboardInterrupt:
            print("stopped", flush=True)
        kernel(stream, ck.config(1, 1), x, 3)
        """)
    )
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "stopped\n"
        assert child.wait(20) == 0


SHARED_PLACES = """
__global__ void shared_places(const unsigned *at, unsigned *out) {
    __shared__ unsigned words[128];
    unsigned base = __cvta_generic_to_shared(words), value;
    for (int k = threadIdx.x; k < 128; k += 32) words[k] = k;
    __syncthreads();
    unsigned place = base + at[threadIdx.x];
    if (at[threadIdx.x] == 8) return;  // with this place, or any other
    asm volatile("st.shared.u32 [%1 + 4], %2; ld.shared.u32 %0, [%1 + 4];"
                 : "=r"(value) : "r"(place), "r"(threadIdx.x) : "memory");
    out[threadIdx.x] = value;
}"""


def test_scattered_shared_addresses_are_checked_in_32_bits() -> None:
    """Lane 5 leaves the shared memory at its end, beside words, and near 2³¹ and 2³²; −4 wraps around to the begin."""

    def kernel() -> ck.Kernel:
        return ck.Kernel(SHARED_PLACES)

    at, config = (np.arange(32) * 12 % 500).astype(np.uint32), ck.config(1, 32)
    for place in (at[5], 0xFFFF_FFFC):
        at[5] = place
        agreed(kernel, config, at, np.zeros(32, np.uint32))
    for place in (0x1FC, 0x200, 3, 0x1_0000, 0x7FFF_FFFC, 0x8000_0000, 0xFFFF_0000, 0xFFFF_FFF8):
        at[5] = place
        assert "st.shared" in failed(kernel, config, at, np.zeros(32, np.uint32))
