"""wmma on the emulator, as nvcuda::wmma makes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.emulated import run
from support.fragments import BITS, RANDOM, make

WMMA = """#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void product(const {a_type}* a, const {a_type}* b, const {c_type}* c, {c_type}* d,
                                   long long n, long long depth, long long lda, long long ldb, long long ldc) {{
    int warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int row = warp / (n / {N}) * {M}, column = warp % (n / {N}) * {N};
    wmma::fragment<wmma::matrix_a, {M}, {N}, {K}, {a_kind}, wmma::{a_layout}_major> x;
    wmma::fragment<wmma::matrix_b, {M}, {N}, {K}, {a_kind}, wmma::{b_layout}_major> y;
    wmma::fragment<wmma::accumulator, {M}, {N}, {K}, {c_type}> z;
    wmma::load_matrix_sync(z, c + (c_rows ? row * ldc + column : column * ldc + row), ldc, c_layout);
    for (int k = 0; k < depth; k += {K}) {{
        wmma::load_matrix_sync(x, a + ({a_rows} ? row * lda + k : k * lda + row), lda);
        wmma::load_matrix_sync(y, b + ({b_rows} ? k * ldb + column : column * ldb + k), ldb);
        for (int i = 0; i < x.num_elements; i++) x.x[i] = {convert};
        wmma::mma_sync(z, x, y, z);
    }}
    for (int i = 0; i < z.num_elements; i++) z.x[i] = z.x[i] + z.x[i];
    wmma::store_matrix_sync(d + (c_rows ? row * ldc + column : column * ldc + row), z, ldc, c_layout);
}}"""

WMMA_KINDS = {
    "f16": ("half", "half", "x.x[i] * (half)2.0f", np.float16),
    "bf16": ("__nv_bfloat16", "__nv_bfloat16", "x.x[i] * (__nv_bfloat16)2.0f", None),
    "tf32": ("float", "wmma::precision::tf32", "wmma::__float_to_tf32(2 * x.x[i])", np.float32),
    "f64": ("double", "double", "2 * x.x[i]", np.float64),
    "s8": ("signed char", "signed char", "2 * x.x[i]", np.int8),
    "u8": ("unsigned char", "unsigned char", "2 * x.x[i]", np.uint8),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "tile", "acc"),
    [
        *(("f16", tile, acc) for tile in ((16, 16, 16), (32, 8, 16), (8, 32, 16)) for acc in ("float", "half")),
        *(("bf16", tile, "float") for tile in ((16, 16, 16), (32, 8, 16), (8, 32, 16))),
        *(("s8", tile, "int") for tile in ((16, 16, 16), (32, 8, 16), (8, 32, 16))),
        ("u8", (16, 16, 16), "int"),
        ("tf32", (16, 16, 8), "float"),
        ("f64", (8, 8, 4), "double"),
    ],
)
@pytest.mark.parametrize("layouts", ["row col row", "col row col"])
def test_wmma(kind: str, tile: tuple[int, int, int], acc: str, layouts: str) -> None:
    a_layout, b_layout, c_layout = layouts.split()
    m, n, depth = 2 * tile[0], 2 * tile[1], 3 * tile[2]
    scalar, precision, convert, dtype = WMMA_KINDS[kind]
    acc_dtype = {"float": np.float32, "half": np.float16, "double": np.float64, "int": np.int32}[acc]
    low = 0 if kind == "u8" else -8
    x, y = RANDOM.integers(low, 9, (m, depth)), RANDOM.integers(low, 9, (depth, n))
    z = RANDOM.integers(-8, 9, (m, n))

    def stored(matrix: np.ndarray, layout: str, kept: Any) -> np.ndarray:
        """The matrix in memory, its rows (or columns) 16 elements further apart than they are long."""
        lines = matrix if layout == "row" else matrix.T
        padded = np.full((lines.shape[0], lines.shape[1] + 16), 77)
        padded[:, : lines.shape[1]] = lines
        if kept is None:
            return (padded.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return padded.astype(kept)

    a, b = stored(x, a_layout, dtype), stored(y, b_layout, dtype)
    c, out = stored(z, c_layout, acc_dtype), stored(np.zeros((m, n)), c_layout, acc_dtype)
    text = WMMA.format(
        a_type=scalar, a_kind=precision, c_type=acc, M=tile[0], N=tile[1], K=tile[2], a_layout=a_layout,
        b_layout=b_layout, a_rows=int(a_layout == "row"), b_rows=int(b_layout == "row"), convert=convert,
    )  # fmt: skip
    rows = c_layout == "row"
    text = text.replace("c_rows", str(int(rows))).replace("c_layout", f"wmma::mem_{c_layout}_major")
    run(text, a, b, c, out, n, depth, a.shape[1], b.shape[1], c.shape[1], grid=2, block=64)
    got = out[:, : (n if rows else m)]
    np.testing.assert_array_equal(got if rows else got.T, 2 * (2 * x @ y + z))
    assert (out[:, (n if rows else m) :] == 77).all()


@pytest.mark.parametrize(("kind", "tile"), [("s4", (8, 8, 32)), ("u4", (8, 8, 32)), ("b1", (8, 8, 128))])
def test_wmma_below_a_byte(kind: str, tile: tuple[int, int, int]) -> None:
    m, n, k = tile
    (x, x_bits), (y, y_bits) = make(kind, (m, k)), make(kind, (n, k))

    def lines(bits: np.ndarray) -> np.ndarray:
        each = 32 // BITS[kind]
        words = bits.reshape(bits.shape[0], -1, each) << (np.arange(each, dtype=np.uint64) * np.uint64(BITS[kind]))
        return np.concatenate([words.sum(-1), words.sum(-1)], axis=1).astype(np.uint32)

    out = np.zeros((m, n), np.int32)
    shape, operation = f"m{m}n{n}k{k}", "xor.popc." if kind == "b1" else ""
    text = f"""extern "C" __global__ void product(const unsigned* a, const unsigned* b, int* d) {{
        unsigned x, y; int z0, z1, pitch = {2 * k};
        asm volatile("wmma.load.a.sync.aligned.row.{shape}.{kind} {{%0}}, [%1], %2;" : "=r"(x) : "l"(a), "r"(pitch));
        asm volatile("wmma.load.b.sync.aligned.col.{shape}.{kind} {{%0}}, [%1], %2;" : "=r"(y) : "l"(b), "r"(pitch));
        asm volatile("wmma.mma.{operation}sync.aligned.row.col.{shape}.s32.{kind}.{kind}.s32 {{%0, %1}}, {{%2}},"
            "{{%3}}, {{%4, %4}};" : "=r"(z0), "=r"(z1) : "r"(x), "r"(y), "r"(0));
        asm volatile("wmma.store.d.sync.aligned.row.{shape}.s32 [%0], {{%1, %2}};" :: "l"(d), "r"(z0), "r"(z1));
    }}"""
    run(text, lines(x_bits), lines(y_bits), out)
    want = (x[:, None] != y[None]).sum(-1) if kind == "b1" else x @ y.T
    np.testing.assert_array_equal(out, want)
