"""mma, and matrices moved between registers and shared memory, on the emulator: instructions and whole products."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from support.emulated import place, run
from support.fragments import (
    BITS,
    RANDOM,
    A,
    B,
    by_lane,
    c_place,
    from_registers,
    hardware_bound,
    make,
    sizes,
    to_registers,
    value,
    width,
)

import cudakit as ck


def mma_kernel(text: str, kinds: tuple[str, ...], counts: tuple[int, ...]) -> str:
    """A kernel of one instruction, whose registers are rows of the arrays d, a, b, c."""
    letter = {"f32": "f", "f64": "d"}
    c_type = {"f32": "float", "f64": "double"}
    names = "dabc"
    number, groups, constraints = 0, [], []
    for name, kind, count in zip(names, kinds, counts, strict=True):
        groups.append("{" + ", ".join(f"%{number + i}" for i in range(count)) + "}")
        mark = '"=' if name == "d" else '"'
        pairs = [f'{mark}{letter.get(kind, "r")}"({name}[i * {count} + {j}])' for j in range(count)]
        constraints.append(", ".join(pairs))
        number += count
    parameters = ", ".join(f"{c_type.get(kind, 'unsigned')}* {name}" for name, kind in zip(names, kinds, strict=True))
    # f64 factors are doubles in registers too, and of all other types bits.
    return f"""extern "C" __global__ void k({parameters}) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        asm volatile("{text} {", ".join(groups)};" : {constraints[0]} : {", ".join(constraints[1:])});
    }}"""


FORMS = [
    *(("f16", "f16", c, d, s) for s in ("m16n8k8", "m16n8k16") for c, d in (("f16", "f16"), ("f32", "f32"))),
    *(("bf16", "bf16", "f32", "f32", s) for s in ("m16n8k8", "m16n8k16")),
    *(("tf32", "tf32", "f32", "f32", s) for s in ("m16n8k4", "m16n8k8")),
    *(("f64", "f64", "f64", "f64", s) for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")),
    *((a, b, "s32", "s32", s) for s in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8") for b in ("s8", "u8")),
    *((a, b, "s32", "s32", s) for s in ("m8n8k32", "m16n8k32", "m16n8k64") for a, b in (("s4", "s4"), ("u4", "s4"))),
    *((a, b, "f32", "f32", s) for s in ("m16n8k16", "m16n8k32") for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"))),
    ("e4m3", "e5m2", "f16", "f16", "m16n8k32"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b", "c", "d", "shape"), FORMS)
def test_mma(a: str, b: str, c: str, d: str, shape: str) -> None:
    m, n, k = sizes(shape)
    (x, x_bits), (y, y_bits), (z, z_bits) = make(a, (m, k)), make(b, (k, n)), make(c, (m, n))
    got = one_mma(f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{c}", (d, a, b, c), shape, x_bits, y_bits, z_bits)
    # Every sum is exact in float64; in D's type only those of small integers are.
    want = x @ y + z
    if place.is_gpu and a in ("e4m3", "e5m2"):
        # It may round parts of the sum to D's type, which overflow where the sum does not.
        finite, info = np.isfinite(got), np.finfo(np.float16 if d == "f16" else np.float32)
        terms = np.abs(x) @ np.abs(y) + np.abs(z)
        bound = hardware_bound(x, y, z) + float(info.eps) * np.minimum(terms, float(info.max))
        assert (np.abs(got - want) <= bound)[finite].all()
        assert (terms >= float(info.max))[~finite].all()
        return
    with np.errstate(over="ignore"):
        want = want.astype({"f16": np.float16, "f32": np.float32}.get(d, np.float64))
    np.testing.assert_array_equal(got, want)


def one_mma(
    text: str, kinds: tuple[str, ...], shape: str, x_bits: np.ndarray, y_bits: np.ndarray, z_bits: np.ndarray
) -> np.ndarray:
    """D of one instruction."""
    d, a, b, c = kinds
    m, n, k = sizes(shape)
    count_a, count_b = m * k * BITS[a] // width(a) // 32, k * n * BITS[b] // width(b) // 32
    count_c, count_d = m * n * BITS[c] // width(c) // 32, m * n * BITS[d] // width(d) // 32
    registers = [
        to_registers(x_bits, by_lane(A[str(BITS[a])][shape]), count_a, a),
        to_registers(y_bits, by_lane(B[str(BITS[b])][shape]), count_b, b),
        to_registers(z_bits, by_lane(c_place), count_c, c),
    ]
    out = np.zeros((32, count_d), f"u{width(d) // 8}")
    run(mma_kernel(text, kinds, (count_d, count_a, count_b, count_c)), out, *registers)
    return value(from_registers(out, by_lane(c_place), (m, n), d), d)


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_single_bits(shape: str, operation: str) -> None:
    m, n, k = sizes(shape)
    (_, x), (_, y), (z, z_bits) = make("b1", (m, k)), make("b1", (k, n)), make("s32", (m, n))
    text = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc"
    function = np.bitwise_xor if operation == "xor" else np.bitwise_and
    want = function(x[:, :, None], y[None]).sum(1) + z
    np.testing.assert_array_equal(one_mma(text, ("s32", "b1", "b1", "s32"), shape, x, y, z_bits), want)


@pytest.mark.parametrize("saturates", [False, True])
def test_integers_past_32_bits(saturates: bool) -> None:
    x, y = np.full((16, 32), 127, np.uint64), np.full((32, 8), 127, np.uint64)
    y[:, 4:] = 256 - 128
    z = np.full((16, 8), 2**31 - 10, np.int64)
    z[:, 4:] = -(2**31) + 10
    text = f"mma.sync.aligned.m16n8k32.row.col{'.satfinite' if saturates else ''}.s32.s8.s8.s32"
    got = one_mma(text, ("s32", "s8", "s8", "s32"), "m16n8k32", x, y, (z & 0xFFFFFFFF).astype(np.uint64))
    total = 32 * 127 * np.where(np.arange(8) < 4, 127, -128) + z
    np.testing.assert_array_equal(got, total.clip(-(2**31), 2**31 - 1) if saturates else total.astype(np.int32))


@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("b_layout", ["row", "col"])
@pytest.mark.parametrize(("c", "d"), [("f16", "f16"), ("f32", "f32"), ("f16", "f32")])
def test_four_products_of_quad_pairs(a_layout: str, b_layout: str, c: str, d: str) -> None:
    def a_place(lane: int, i: int) -> tuple[int, int, int]:
        if a_layout == "row":
            return lane // 4 % 4, lane % 4 + (0 if lane < 16 else 4), i
        return lane // 4 % 4, i % 4 + (0 if lane < 16 else 4), lane % 4

    def b_place(lane: int, i: int) -> tuple[int, int, int]:
        if b_layout == "row":
            return lane // 4 % 4, lane % 4, i if lane < 16 else i + 4
        return lane // 4 % 4, i, lane % 4 + (0 if lane < 16 else 4)

    def acc_place(kind: str) -> Callable[[int, int], tuple[int, int, int]]:
        def f16(lane: int, i: int) -> tuple[int, int, int]:
            return lane // 4 % 4, lane % 4 + (0 if lane < 16 else 4), i

        def f32(lane: int, i: int) -> tuple[int, int, int]:
            row = (lane & 0b1) + (i & 0b10)
            return lane // 4 % 4, row if lane < 16 else row + 4, (i & 0b100) + (lane & 0b10) + (i & 0b1)

        return f16 if kind == "f16" else f32

    (x, x_bits), (y, y_bits), (z, z_bits) = make("f16", (4, 8, 4)), make("f16", (4, 4, 8)), make(c, (4, 8, 8))
    counts = {"f16": 4, "f32": 8}
    out = np.zeros((32, counts[d]), np.uint32)
    text = f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d}.f16.f16.{c}"
    run(
        mma_kernel(text, (d, "f16", "f16", c), (counts[d], 2, 2, counts[c])),
        out,
        to_registers(x_bits, a_place, 2, "f16"),
        to_registers(y_bits, b_place, 2, "f16"),
        to_registers(z_bits, acc_place(c), counts[c], c),
    )
    np.testing.assert_array_equal(value(from_registers(out, acc_place(d), (4, 8, 8), d), d), x @ y + z)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_double_is_a_chain_of_fma(mode: str) -> None:
    x, y, z = RANDOM.standard_normal((8, 4)), RANDOM.standard_normal((4, 8)), RANDOM.standard_normal((8, 8))
    text = f"mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64{'' if mode == 'rn' else '.' + mode}"
    kinds = ("f64", "f64", "f64", "f64")
    got = one_mma(text, kinds, "m8n8k4", *(v.view(np.uint64) for v in (x, y, z)))
    for row, column in np.ndindex(8, 8):
        want = float(z[row, column])
        for k in range(4):
            want = rounded(Fraction(float(x[row, k])) * Fraction(float(y[k, column])) + Fraction(want), mode)
        assert got[row, column] == want


def test_nan_of_doubles_is_not_the_hosts() -> None:
    # One's processor keeps the first NaN, another's the second, and ∞ - ∞ has either sign.
    special = np.array([0x7FF0 << 48, 0xFFF0 << 48, 0x7FF0 << 48 | 5, 0xFFF8 << 48 | 7, 0x3FF0 << 48], np.uint64)
    x, y, z = (RANDOM.choice(special, shape) for shape in ((8, 4), (4, 8), (8, 8)))
    got = one_mma("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", ("f64",) * 4, "m8n8k4", x, y, z)
    for row, column in np.ndindex(8, 8):
        want = z[row, column]
        for k in range(4):
            sources = np.array([y[k, column], want, x[row, k]], np.uint64)
            b, c, a = sources.view(np.float64)
            nan = sources[np.isnan([b, c, a])]
            with np.errstate(all="ignore"):
                total = np.float64(a * b + c)
            want = nan[0] | np.uint64(1 << 51) if nan.size else total.view(np.uint64)
            want = np.uint64(0xFFF8 << 48) if np.isnan(total) and not nan.size else want
        assert got[row, column].view(np.uint64) == want


def rounded(exact: Fraction, mode: str) -> float:
    nearest = float(exact)
    if mode == "rn" or Fraction(nearest) == exact:
        return nearest
    toward = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    above = Fraction(nearest) > exact
    goes_down = mode == "rm" or (mode == "rz" and exact > 0)
    return nearest if above != goes_down else float(np.nextafter(nearest, toward))


@pytest.mark.parametrize(("a", "d"), [("f16", "f16"), ("f16", "f32"), ("bf16", "f32"), ("tf32", "f32")])
def test_sums_are_rounded_once(a: str, d: str) -> None:
    shape = "m16n8k8" if a == "tf32" else "m16n8k16"
    m, n, k = sizes(shape)
    x, y = (RANDOM.standard_normal(s).astype(np.float32).view(np.uint32) for s in ((m, k), (k, n)))
    if a == "f16":
        x, y = (v.view(np.float32).astype(np.float16).view(np.uint16) for v in (x, y))
        factors = [v.view(np.float16).astype(np.float64) for v in (x, y)]
    elif a == "bf16":
        factors = [(v & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64) for v in (x, y)]
        x, y = x >> np.uint32(16), y >> np.uint32(16)
    else:
        factors = [(v & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64) for v in (x, y)]
    dtype = np.float16 if d == "f16" else np.float32
    z = RANDOM.standard_normal((m, n)).astype(dtype)
    text = f"mma.sync.aligned.{shape}.row.col.{d}.{a}.{a}.{d}"
    got = one_mma(text, (d, a, a, d), shape, x, y, z.view(f"u{z.itemsize}"))
    exact = factors[0] @ factors[1] + z.astype(np.float64)
    terms = np.abs(factors[0]) @ np.abs(factors[1]) + np.abs(z.astype(np.float64))
    # Half a unit in the last place of D, and what two float64 sums may differ by; a GPU may cut off instead.
    bound = np.finfo(dtype).eps / 2 * np.abs(exact) + 2 * (k + 1) * 2.0**-53 * terms
    if place.is_gpu:
        bound = np.finfo(dtype).eps * np.abs(exact) + hardware_bound(factors[0], factors[1], z.astype(np.float64))
    assert (np.abs(got - exact) <= bound).all()


def test_not_a_number_and_infinity() -> None:
    x, y, z = np.zeros((16, 16), np.float16), np.zeros((16, 8), np.float16), np.zeros((16, 8), np.float32)
    x[0, 0], x[1, 1], x[2, 2], y[2, 0] = np.nan, np.inf, np.inf, 1
    out = np.zeros((32, 4), np.uint32)
    registers = [
        to_registers(x.view(np.uint16), by_lane(A["16"]["m16n8k16"]), 4, "f16"),
        to_registers(y.view(np.uint16), by_lane(B["16"]["m16n8k16"]), 2, "f16"),
        to_registers(z.view(np.uint32), by_lane(c_place), 4, "f32"),
    ]
    text = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    run(mma_kernel(text, ("f32", "f16", "f16", "f32"), (4, 4, 2, 4)), out, *registers)
    bits = from_registers(out, by_lane(c_place), (16, 8), "f32")
    want = np.zeros((16, 8), np.uint64)
    want[0], want[1], want[2], want[2, 0] = 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x7F800000
    np.testing.assert_array_equal(bits, want)


# ── matrices between shared memory and registers ──


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("space", [".shared", ".shared::cta", ""])
def test_load_and_store_matrices(count: int, trans: bool, space: str) -> None:
    blocks, warps = 2, 3
    # Rows lie 48 bytes apart, so that a wrong address is seen; each block and warp has its own.
    rows = RANDOM.integers(0, 2**16, (blocks, warps, 8 * count, 24)).astype(np.uint16)
    out = np.zeros((blocks, warps, 32, count), np.uint32)
    back = np.zeros_like(rows)
    registers = ", ".join(f"%{i}" for i in range(count))
    kind, suffix = f"m8n8.x{count}{'.trans' if trans else ''}{space}.b16", '"r"' if space else '"l"'
    word, convert = ("unsigned", "__cvta_generic_to_shared") if space else ("size_t", "(size_t)")
    text = f"""extern "C" __global__ void k(unsigned short* in, unsigned* out, unsigned short* back) {{
        __shared__ __align__(16) unsigned short tile[{warps * 8 * count * 24}], other[{warps * 8 * count * 24}];
        int n = {warps * 8 * count * 24}, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        for (int i = threadIdx.x; i < n; i += blockDim.x) {{ tile[i] = in[blockIdx.x * n + i]; other[i] = 0; }}
        __syncthreads();
        int row = warp * {8 * count} + lane % {8 * count};
        {word} from = {convert}(tile + row * 24), to = {convert}(other + row * 24);
        unsigned r[{count}];
        asm volatile("ldmatrix.sync.aligned.{kind} {{{registers}}}, [%{count}];"
            : {", ".join(f'"=r"(r[{i}])' for i in range(count))} : {suffix}(from) : "memory");
        for (int i = 0; i < {count}; i++) out[(blockIdx.x * blockDim.x + threadIdx.x) * {count} + i] = r[i];
        asm volatile("stmatrix.sync.aligned.{kind} [%0], {{{", ".join(f"%{i + 1}" for i in range(count))}}};"
            :: {suffix}(to), {", ".join(f'"r"(r[{i}])' for i in range(count))} : "memory");
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) back[blockIdx.x * n + i] = other[i];
    }}"""
    run(text, rows, out, back, grid=blocks, block=32 * warps)
    for block, warp, lane, matrix in np.ndindex(blocks, warps, 32, count):
        tile = rows[block, warp, 8 * matrix : 8 * matrix + 8, :8].astype(int)
        tile = tile.T if trans else tile
        row, t = lane // 4, lane % 4
        assert out[block, warp, lane, matrix] == tile[row, 2 * t] | tile[row, 2 * t + 1] << 16
    np.testing.assert_array_equal(back[..., :8], rows[..., :8])
    assert not back[..., 8:].any()


def test_transposed_registers() -> None:
    tile = RANDOM.integers(0, 2**16, (8, 8)).astype(np.uint16)
    out = np.zeros((8, 8), np.uint16)
    text = """extern "C" __global__ void k(unsigned* in, unsigned* out) { unsigned r;
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(in[threadIdx.x]));
        out[threadIdx.x] = r; }"""
    run(text, tile, out)
    np.testing.assert_array_equal(out, tile.T)


# ── whole products ──

# Tiles of 32 bytes along k, rows of A and columns of B: ldmatrix moves bytes, whatever type they are of.
TILED = """
template <typename T> struct of {{}};
extern "C" __global__ void product(const uint4* a, const uint4* b, {acc}* c, long long n, long long steps) {{
    __shared__ uint4 as[32][3], bs[16][3];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = blockIdx.x / (n / 16) * 32, column = blockIdx.x % (n / 16) * 16;
    {acc} d[2][4] = {{}};
    for (int step = 0; step < steps; step++) {{
        as[threadIdx.x / 2][threadIdx.x % 2] = a[(row + threadIdx.x / 2) * steps * 2 + step * 2 + threadIdx.x % 2];
        if (threadIdx.x < 32)
            bs[threadIdx.x / 2][threadIdx.x % 2] = b[((column + threadIdx.x / 2) * steps + step) * 2 + threadIdx.x % 2];
        __syncthreads();
        unsigned x[4], y[4];
        unsigned from = __cvta_generic_to_shared(&as[warp * 16 + lane % 16][lane / 16]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
        from = __cvta_generic_to_shared(&bs[lane / 16 * 8 + lane % 8][lane / 8 % 2]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
            : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3]) : "r"(from));
        for (int half = 0; half < 2; half++)
            asm volatile("mma.sync.aligned.{form} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}},"
                "{{%0, %1, %2, %3}};"
                : "+{mark}"(d[half][0]), "+{mark}"(d[half][1]), "+{mark}"(d[half][2]), "+{mark}"(d[half][3])
                : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * half]), "r"(y[2 * half + 1]));
        __syncthreads();
    }}
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < 4; i++)
            c[(row + warp * 16 + lane / 4 + i / 2 * 8) * n + column + half * 8 + lane % 4 * 2 + i % 2] = d[half][i];
}}"""


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        ("f16", "m16n8k16.row.col.f32.f16.f16.f32"),
        ("bf16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        ("tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        ("s8", "m16n8k32.row.col.s32.s8.s8.s32"),
        ("e4m3", "m16n8k32.row.col.f32.e4m3.e4m3.f32"),
    ],
)
def test_tiled_product(kind: str, form: str) -> None:
    m, n, steps = 64, 48, 5
    depth = steps * 256 // BITS[kind]
    (x, x_bits), (y, y_bits) = make(kind, (m, depth)), make(kind, (n, depth))
    integer = kind == "s8"
    text = TILED.format(form=form, acc="int" if integer else "float", mark="r" if integer else "f")
    out = np.zeros((m, n), np.int32 if integer else np.float32)
    dtype = f"u{BITS[kind] // 8}"
    run(text, x_bits.astype(dtype), y_bits.astype(dtype), out, n, steps, grid=m // 32 * (n // 16), block=64)
    exact = x @ y.T
    if kind == "e4m3":
        # The sum is rounded to float32 after each step.
        terms = np.abs(x) @ np.abs(y.T)
        assert (np.abs(out - exact) <= steps * 2.0**-24 * terms).all()
        return
    np.testing.assert_array_equal(out, exact)


def test_product_of_random_halves_with_transposed_load() -> None:
    # B is stored row by row here, and transposed as it is loaded.
    m, n, depth = 32, 16, 64
    x, y = RANDOM.standard_normal((m, depth)).astype(np.float16), RANDOM.standard_normal((depth, n)).astype(np.float16)
    out = np.zeros((m, n), np.float32)
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void product(const half* a, const half* b, float* c) {
        __shared__ __align__(16) half as[32][24], bs[16][24];
        int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        float d[2][4] = {};
        for (int k = 0; k < 64; k += 16) {
            for (int i = threadIdx.x; i < 512; i += 64) as[i / 16][i % 16] = a[i / 16 * 64 + k + i % 16];
            for (int i = threadIdx.x; i < 256; i += 64) bs[i / 16][i % 16] = b[(k + i / 16) * 16 + i % 16];
            __syncthreads();
            unsigned x[4], y[4];
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                : "r"((unsigned)__cvta_generic_to_shared(&as[warp * 16 + lane % 16][lane / 16 * 8])));
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                : "=r"(y[0]), "=r"(y[1]), "=r"(y[2]), "=r"(y[3])
                : "r"((unsigned)__cvta_generic_to_shared(&bs[lane % 16][lane / 16 * 8])));
            for (int h = 0; h < 2; h++)
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7},"
                    "{%8, %9}, {%0, %1, %2, %3};" : "+f"(d[h][0]), "+f"(d[h][1]), "+f"(d[h][2]), "+f"(d[h][3])
                    : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[2 * h]), "r"(y[2 * h + 1]));
            __syncthreads();
        }
        for (int h = 0; h < 2; h++) for (int i = 0; i < 4; i++)
            c[(warp * 16 + lane / 4 + i / 2 * 8) * 16 + h * 8 + lane % 4 * 2 + i % 2] = d[h][i];
    }"""
    run(text, x, y, out, block=64)
    wide = x.astype(np.float64), y.astype(np.float64)
    # Four roundings to float32 of partial sums.
    assert (np.abs(out - wide[0] @ wide[1]) <= 4 * 2.0**-24 * (np.abs(wide[0]) @ np.abs(wide[1]))).all()


def test_product_of_doubles() -> None:
    m, n, depth = 32, 16, 24
    x, y = RANDOM.integers(-1000, 1000, (m, depth)) / 64, RANDOM.integers(-1000, 1000, (depth, n)) / 64
    out = np.zeros((m, n))
    text = """extern "C" __global__ void k(const double* a, const double* b, double* c, long long n, long long depth) {
        int lane = threadIdx.x % 32, tile = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
        int row = tile / (n / 8) * 8, column = tile % (n / 8) * 8;
        double d0 = 0, d1 = 0;
        for (int k = 0; k < depth; k += 4)
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(d0), "+d"(d1) : "d"(a[(row + lane / 4) * depth + k + lane % 4]),
                  "d"(b[(k + lane % 4) * n + column + lane / 4]));
        c[(row + lane / 4) * n + column + lane % 4 * 2] = d0;
        c[(row + lane / 4) * n + column + lane % 4 * 2 + 1] = d1;
    }"""
    run(text, x, y, out, n, depth, grid=2, block=128)
    np.testing.assert_array_equal(out, x @ y)


# ── lanes that do not come ──

ONE_MMA = """asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%2}, {%0, %1};"
                          : "+d"(x), "+d"(y) : "d"(1.0));"""


def in_kernel(body: str) -> str:
    return f"""extern "C" __global__ void k(double* out, int n) {{
        int i = threadIdx.x; double x = 0, y = 0; {body} out[i] = x + y; }}"""


def test_warps_come_in_their_own_time() -> None:
    out = np.zeros(128)
    run(in_kernel(f"for (int j = 0; j <= (i / 32 + n) % 3; j++) {{ {ONE_MMA} }}"), out, 1, block=128)
    np.testing.assert_array_equal(out, np.repeat([16, 24, 8, 16], 32))


def test_lanes_of_a_warp_come_in_their_own_time() -> None:
    out = np.zeros(64)
    run(in_kernel(f"if (i % 2 == n) __nanosleep(9); {ONE_MMA} x *= 2;"), out, 1, block=64)
    np.testing.assert_array_equal(out, np.full(64, 12))


def test_a_part_of_a_warp_that_has_no_part_in_it() -> None:
    out = np.zeros(40)
    run(in_kernel(f"if (i < 32 * n) {{ {ONE_MMA} }} else x = 3;"), out, 1, block=40, grid=3)
    np.testing.assert_array_equal(out, np.repeat([8, 3], [32, 8]))


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("body", "block", "what"),
    [
        (ONE_MMA, 16, "only 16 are there"),
        (ONE_MMA, 40, "only 8 are there"),
        # Machine code names those that are there; NumPy's machine has not seen yet that the lane has left.
        (f"if (i == 5) return; {ONE_MMA}", 32, "(deadlock|only 31 are there)"),
        (f"if (i == 5) return; __syncthreads(); {ONE_MMA}", 32, "only 31 are there"),
        (f"if (i % 32 < 20) {{ {ONE_MMA} }} else {{ while (n == 0); {ONE_MMA} x += 1; }}", 64, "deadlock"),
        (f"if (i != 7) {{ {ONE_MMA} }} __syncwarp();", 32, "deadlock"),
    ],
)
def test_a_lane_does_not_come(body: str, block: int, what: str) -> None:
    with pytest.raises(ck.EmulationError, match=f"mma.*{what}|{what}.*"):
        run(in_kernel(body), np.zeros(64), 1, block=block)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("instruction", "what"),
    [
        ("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %0, %0, %0}, {%0, %0}, {%0}, {%0, %0, %0, %0};", ""),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.bf16.f32 {%0, %0, %0, %0}, {%0, %0}, {%0}, {%0, %0, %0, %0};", ""),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %0, %0, %0}, {%0}, {%0}, {%0, %0, %0, %0};", "1 reg"),
        ("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %0, %0, %0}, {%0, %0}, {%0, %0}, {%0, %0, %0, %0},"
         "%0, 0;", "mma.sp"),
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%0, %0}, [%0];", ""),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [8];", "not aligned to 16"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [4096];", "outside its"),
        ("ldmatrix.sync.aligned.m8n8.x1.b16 {%0}, [4096];", "not in shared memory"),
    ],
)  # fmt: skip
def test_forms_and_addresses_that_are_not(instruction: str, what: str) -> None:
    text = f"""extern "C" __global__ void k(unsigned* out) {{ unsigned x = 0;
        asm volatile("{instruction}" : "+r"(x)); out[threadIdx.x] = x; }}"""
    with pytest.raises(ck.EmulationError, match=what or "not emulated"):
        run(text, np.zeros(32, np.uint32))
