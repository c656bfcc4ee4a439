"""Programs as strangers write them, beside NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.tiers import thinned
from support.tiles import Together, needs_tiles

import cudakit as ck

together = Together(
    """#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_tf32.h>
template <int R, int C, typename T> __tile__ auto rows(T* p, int m, int n) {
    using E = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>;
    return ct::partition_view{ct::tensor_span{p, E{m, n}}, ct::shape<R, C>{}};
}
template <int N, typename T> __tile__ auto flat(T* p, int n) {
    return ct::partition_view{ct::tensor_span{p, ct::extents<int, ct::dynamic_extent>{n}}, ct::shape<N>{}};
}
template <int N> __tile__ auto numbers() { return ct::iota<ct::tile<int, ct::shape<N>>>(); }
template <typename S, typename T> __tile__ S one(T t) { return static_cast<S>(ct::reshape(t, ct::shape<>{})); }
#define ANYWHERE ct::memory_order_relaxed_t{}, ct::thread_scope_device_t{}
"""
)


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


def declared(head: str, body: str) -> tuple[str, str]:
    """Declare the kernel of a head and a body, which has the block's numbers i and j; `run` takes the result."""
    parts = f"int i = ct::bid().x, j = ct::bid().y; {body}", head
    together.declare(*parts)
    return parts


def run(parts: tuple[str, str], grid: Any, *arguments: Any, **stream: Any) -> None:
    together(*parts)(ck.emulator.stream(**stream), ck.config(grid), *arguments)


def close(got: Any, want: Any, bound: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(got, "f8"), want, rtol=bound, atol=bound)


RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


SOFTMAX_OVER_RAGGED_ROWS = declared(
    "const float* x, float* y",
    """
    auto k = numbers<128>();
    auto inside = k < 100;
    auto p = x + (i * 100 + k);
    auto t = ct::load_masked(p, inside, -1e38f);
    auto e = ct::exp(t - ct::reduce_max(t, 0_ic));
    ct::store_masked(y + (i * 100 + k), e / ct::sum(e, 0_ic), inside);""",
)


def test_softmax_over_ragged_rows() -> None:
    x, y = normal(5, 100), np.zeros((5, 100), "f4")
    run(SOFTMAX_OVER_RAGGED_ROWS, 5, x, y)
    e = np.exp(x - x.max(1, keepdims=True))
    close(y, e / e.sum(1, keepdims=True))


LAYER_NORM_IN_TWO_PASSES = declared(
    "const float* x, const float* w, const float* b, float* y",
    """
    auto v = rows<1, 64>(x, 4, 256); auto o = rows<1, 64>(y, 4, 256);
    auto sum = ct::zeros<ct::tile<float, ct::shape<1, 64>>>(), squares = sum;
    for (auto k : ct::irange(0, 4)) { auto t = v.load(i, k); sum = sum + t; squares = squares + t * t; }
    auto mean = ct::sum(sum, 1_ic) / 256.f;
    auto scale = ct::rsqrt(ct::sum(squares, 1_ic) / 256.f - mean * mean + 1e-5f);
    for (auto k : ct::irange(0, 4)) {
        auto weight = rows<1, 64>(w, 1, 256).load(0, k), bias = rows<1, 64>(b, 1, 256).load(0, k);
        o.store((v.load(i, k) - mean) * scale * weight + bias, i, k);
    }""",
)


def test_layer_norm_in_two_passes() -> None:
    x, w, b, y = normal(4, 256), normal(256), normal(256), np.zeros((4, 256), "f4")
    run(LAYER_NORM_IN_TWO_PASSES, 4, x, w, b, y)
    wide = x.astype("f8")
    close(y, (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5) * w + b, 1e-4)


RMS_NORM_OF_BFLOAT16 = declared(
    "const __nv_bfloat16* x, __nv_bfloat16* y",
    """
    auto t = ct::element_cast<float>(rows<1, 128>(x, 3, 128).load(i, 0));
    auto r = ct::rsqrt(ct::sum(t * t, 1_ic) / 128.f + 1e-6f);
    rows<1, 128>(y, 3, 128).store(ct::element_cast<__nv_bfloat16>(t * r), i, 0);""",
)


def test_rms_norm_of_bfloat16() -> None:
    x = normal(3, 128).astype(ml_dtypes.bfloat16)
    y = np.zeros_like(x)
    run(RMS_NORM_OF_BFLOAT16, 3, x, y)
    wide = x.astype("f8")
    close(y, wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6), 2**-8)


BACKWARD_OF_ATTENTION = declared(
    "const float* q, const float* k, const float* v, const float* dout, const float* lse, const float* delta,"
    "float* dq, float* dk, float* dv",
    """
    auto kt = rows<32, 32>(k, 64, 32).load(i, 0), vt = rows<32, 32>(v, 64, 32).load(i, 0);
    auto dkt = ct::zeros<ct::tile<float, ct::shape<32, 32>>>(), dvt = dkt;
    auto at = numbers<32>();
    for (auto b : ct::irange(0, 2)) {
        auto qt = rows<32, 32>(q, 64, 32).load(b, 0), dot = rows<32, 32>(dout, 64, 32).load(b, 0);
        auto l = ct::reshape(ct::load(lse + (b * 32 + at)), ct::shape<32, 1>{});
        auto de = ct::reshape(ct::load(delta + (b * 32 + at)), ct::shape<32, 1>{});
        auto zero = ct::zeros<ct::tile<float, ct::shape<32, 32>>>();
        auto s = ct::mma(qt, ct::transpose(kt), zero);
        auto causal = ct::reshape(b * 32 + at, ct::shape<32, 1>{}) >= ct::reshape(i * 32 + at, ct::shape<1, 32>{});
        auto p = ct::select(causal, ct::exp(s - l), zero);
        dvt = ct::mma(ct::transpose(p), dot, dvt);
        auto ds = p * (ct::mma(dot, ct::transpose(vt), zero) - de);
        dkt = ct::mma(ct::transpose(ds), qt, dkt);
        auto part = ct::mma(ds, kt, zero);
        rows<32, 32>(dq, 64, 32).atomic_add(part, ANYWHERE, b, 0);
    }
    rows<32, 32>(dk, 64, 32).store(dkt, i, 0); rows<32, 32>(dv, 64, 32).store(dvt, i, 0);""",
)


def test_backward_of_attention() -> None:
    n, d = 64, 32
    q, k, v, do = (normal(n, d) / 2 for _ in range(4))
    dq, dk, dv = (np.zeros((n, d), "f4") for _ in range(3))
    s = q.astype("f8") @ k.T
    s[~np.tri(n, dtype=bool)] = -np.inf
    lse = np.log(np.exp(s).sum(1))
    p = np.exp(s - lse[:, None])
    delta = (do * (p @ v)).sum(1)
    run(BACKWARD_OF_ATTENTION, 2, q, k, v, do, lse.astype("f4"), delta.astype("f4"), dq, dk, dv)
    ds = p * (do @ v.T - delta[:, None])
    for got, want in ((dq, ds @ k), (dk, ds.T @ q), (dv, p.T @ do)):
        close(got, want, 1e-4)


PRODUCTS_SPLIT_OVER_THE_DEPTH = declared(
    "const __half* a, const __half* b, float* c",
    """
    auto sum = ct::zeros<ct::tile<float, ct::shape<32, 32>>>();
    for (auto k : ct::irange(int(ct::bid().z) * 4, int(ct::bid().z) * 4 + 4))
        sum = ct::mma(rows<32, 16>(a, 64, 256).load(i, k), rows<16, 32>(b, 256, 64).load(k, j), sum);
    rows<32, 32>(c, 64, 64).atomic_add(sum, ANYWHERE, i, j);""",
)


@pytest.mark.parametrize("order", [None, 3])
def test_products_split_over_the_depth(order: int | None) -> None:
    a, b, c = normal(64, 256).astype("f2"), normal(256, 64).astype("f2"), np.zeros((64, 64), "f4")
    run(PRODUCTS_SPLIT_OVER_THE_DEPTH, (2, 2, 4), a, b, c, block_order=order)
    close(c, a.astype("f8") @ b.astype("f8"), 1e-4)


HISTOGRAM = declared(
    "const int* x, int* bins",
    """
    auto at = i * 256 + numbers<256>();
    auto inside = at < 1000;
    auto t = ct::load_masked(x + at, inside);
    ct::atomic_add_masked(bins + t, ct::full<ct::tile<int, ct::shape<256>>>(1), inside, ANYWHERE);""",
)


def test_histogram() -> None:
    x, bins = RNG.integers(0, 16, 1000).astype("i4"), np.zeros(16, "i4")
    run(HISTOGRAM, 4, x, bins)
    assert (bins == np.bincount(x, minlength=16)).all()


THE_LARGEST_BY_REPEATED_SEARCH = declared(
    "const float* x, float* best, int* which",
    """
    auto k = numbers<128>();
    auto t = ct::load(x + (i * 128 + k));
    for (auto r : ct::irange(0, 4)) {
        int at = one<int>(ct::max_element(t, 0_ic));
        float most = one<float>(ct::reduce_max(t, 0_ic));
        best[i * 4 + r] = most; which[i * 4 + r] = at;
        t = ct::select(k == at, ct::full<ct::tile<float, ct::shape<128>>>(-1.f), t);
    }""",
)


def test_the_largest_by_repeated_search() -> None:
    x, best, which = RNG.permutation(256).astype("f4").reshape(2, 128), np.zeros((2, 4), "f4"), np.zeros((2, 4), "i4")
    run(THE_LARGEST_BY_REPEATED_SEARCH, 2, x, best, which)
    order = np.argsort(-x, 1)[:, :4]
    assert (which == order).all()
    assert (best == np.take_along_axis(x, order, 1)).all()


SUMS_ALONG_ROWS_AND_BACK = declared(
    "const int* x, int* y, int* z",
    """
    auto t = rows<8, 32>(x, 8, 32).load(0, 0);
    rows<8, 32>(y, 8, 32).store(ct::partial_sum(t, 1_ic), 0, 0);
    rows<8, 32>(z, 8, 32).store(ct::partial_sum(t, 0_ic, ct::scan_backward_t{}), 0, 0);""",
)


def test_sums_along_rows_and_back() -> None:
    x, y, z = RNG.integers(-9, 9, (8, 32)).astype("i4"), np.zeros((8, 32), "i4"), np.zeros((8, 32), "i4")
    run(SUMS_ALONG_ROWS_AND_BACK, 1, x, y, z)
    assert (y == x.cumsum(1)).all()
    assert (z == x[::-1].cumsum(0)[::-1]).all()


TRANSPOSES_OF_MORE_DIMENSIONS = declared(
    "const float* x, float* y",
    """
    auto v = ct::partition_view{ct::tensor_span{x, ct::extents<int, 4, 8, 16>{}}, ct::shape<4, 8, 16>{}};
    auto o = ct::partition_view{ct::tensor_span{y, ct::extents<int, 16, 4, 8>{}}, ct::shape<16, 4, 8>{}};
    o.store(ct::permute(v.load(0, 0, 0), ct::dimension_map<2, 0, 1>{}), 0, 0, 0);""",
)


def test_transposes_of_more_dimensions() -> None:
    x, y = normal(4, 8, 16), np.zeros((16, 4, 8), "f4")
    run(TRANSPOSES_OF_MORE_DIMENSIONS, 1, x, y)
    assert (y == x.transpose(2, 0, 1)).all()


CONVOLUTION_BY_GATHERING = declared(
    "const float* x, const float* w, float* y",
    """
    auto at = i * 128 + numbers<128>();
    auto inside = at < 324;
    auto r = at / 18, c = at % 18;
    auto sum = ct::zeros<ct::tile<float, ct::shape<128>>>();
    for (auto a : ct::irange(0, 3)) for (auto b : ct::irange(0, 3))
        sum = ct::fma(ct::load_masked(x + ((r + a) * 20 + c + b), inside), sum * 0.f + w[a * 3 + b], sum);
    ct::store_masked(y + at, sum, inside);""",
)


def test_convolution_by_gathering() -> None:
    x, w, y = normal(20, 20), normal(3, 3), np.zeros((18, 18), "f4")
    run(CONVOLUTION_BY_GATHERING, 3, x, w, y)
    close(y, sum(w[a, b] * x[a : a + 18, b : b + 18].astype("f8") for a in range(3) for b in range(3)))


def philox(counter: Any, key: int) -> Any:
    """Philox 4x32-10 of counters (n, 0, 0, 0): its first word."""
    c = [counter.astype("u8"), *[np.zeros(counter.size, "u8")] * 3]
    k0, k1 = key, 0
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [p1 >> 32 ^ c[1] ^ k0, p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
    return c[0].astype("u4")


DROPOUT_BY_PHILOX = declared(
    "const float* x, float* y, unsigned seed",
    """
    auto at = i * 256 + numbers<256>();
    auto inside = at < 500;
    auto c0 = ct::element_cast<unsigned>(at), c1 = c0 * 0u, c2 = c1, c3 = c1;
    unsigned k0 = seed, k1 = 0;
    for (auto r : ct::irange(0, 10)) {
        auto h0 = ct::mulhi(c0, c0 * 0u + 0xD2511F53u), l0 = c0 * 0xD2511F53u;
        auto h1 = ct::mulhi(c2, c0 * 0u + 0xCD9E8D57u), l1 = c2 * 0xCD9E8D57u;
        c0 = h1 ^ c1 ^ k0; c1 = l1; c2 = h0 ^ c3 ^ k1; c3 = l0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    auto keep = c0 >= 0x40000000u;
    auto t = ct::load_masked(x + at, inside);
    ct::store_masked(y + at, ct::select(keep, t / 0.75f, t * 0.f), inside);""",
)


def test_dropout_by_philox() -> None:
    x, y = normal(500), np.zeros(500, "f4")
    run(DROPOUT_BY_PHILOX, 2, x, y, 1234)
    close(y, np.where(philox(np.arange(500), 1234) >= 0x40000000, x / 0.75, 0), 1e-6)


MANDELBROT = declared(
    "int* out",
    """
    auto k = numbers<32>();
    auto cr = ct::reshape(ct::element_cast<float>(k), ct::shape<1, 32>{}) / 12.f - 2.f;
    auto ci = ct::reshape(ct::element_cast<float>(k), ct::shape<32, 1>{}) / 12.f - 1.25f;
    auto zr = ct::zeros<ct::tile<float, ct::shape<32, 32>>>(), zi = zr;
    auto count = ct::zeros<ct::tile<int, ct::shape<32, 32>>>();
    int step = 0;
    bool more = true;
    while (more) {
        auto inside = zr * zr + zi * zi <= 4.f;
        auto next = zr * zr - zi * zi + cr;
        zi = ct::select(inside, 2.f * zr * zi + ci, zi); zr = ct::select(inside, next, zr);
        count = count + ct::element_cast<int>(inside);
        int left = one<int>(ct::sum(ct::reshape(ct::element_cast<int>(inside), ct::shape<1024>{}), 0_ic));
        more = left > 0 && ++step < 20;
    }
    rows<32, 32>(out, 32, 32).store(count, 0, 0);""",
)


def test_mandelbrot() -> None:
    out = np.zeros((32, 32), "i4")
    run(MANDELBROT, 1, out)
    f = np.arange(32, dtype="f4")
    c = (f / np.float32(12) - np.float32(2))[None] + 1j * (f / np.float32(12) - np.float32(1.25))[:, None]
    z, want = np.zeros((32, 32), "c16"), np.zeros((32, 32), int)
    for _ in range(20):
        inside = abs(z) ** 2 <= 4
        want += inside
        z = np.where(inside, z * z + c, z)
    assert (out != want).sum() <= 2


SUMS_OF_SEGMENTS = declared(
    "const int* keys, const float* x, float* sums",
    """
    auto at = i * 128 + numbers<128>();
    auto inside = at < 300;
    auto key = ct::load_masked(keys + at, inside, -1);
    ct::atomic_add_masked(sums + key, ct::load_masked(x + at, inside), inside, ANYWHERE);""",
)


def test_sums_of_segments() -> None:
    keys, x, sums = np.sort(RNG.integers(0, 10, 300)).astype("i4"), normal(300), np.zeros(10, "f4")
    run(SUMS_OF_SEGMENTS, 3, keys, x, sums)
    close(sums, [x[keys == each].sum() for each in range(10)], 1e-4)


QUANTISATION_TO_EIGHT_BITS = declared(
    "const float* x, __nv_fp8_e4m3* q, float* scale, float* back",
    """
    auto t = rows<1, 128>(x, 4, 128).load(i, 0);
    auto s = ct::reduce_max(ct::abs(t), 1_ic) / 448.f;
    auto small = ct::element_cast<__nv_fp8_e4m3>(t / s);
    rows<1, 128>(q, 4, 128).store(small, i, 0);
    flat<1>(scale, 4).store(ct::reshape(s, ct::shape<1>{}), i);
    rows<1, 128>(back, 4, 128).store(ct::element_cast<float>(small) * s, i, 0);""",
)


def test_quantisation_to_eight_bits() -> None:
    x = normal(4, 128) * 100
    q, scale, back = np.zeros((4, 128), ml_dtypes.float8_e4m3fn), np.zeros(4, "f4"), np.zeros((4, 128), "f4")
    run(QUANTISATION_TO_EIGHT_BITS, 4, x, q, scale, back)
    want = np.abs(x).max(1) / np.float32(448)
    assert (scale == want).all()
    assert (q.view("u1") == (x / want[:, None]).astype(q.dtype).view("u1")).all()
    assert (back == q.astype("f4") * want[:, None]).all()


MANY_SMALL_PRODUCTS = declared(
    "const float* a, const float* b, float* c",
    """
    using E = ct::extents<int, 6, 16, 16>;
    auto l = ct::partition_view{ct::tensor_span{a, E{}}, ct::shape<2, 16, 16>{}}.load(i, 0, 0);
    auto r = ct::partition_view{ct::tensor_span{b, E{}}, ct::shape<2, 16, 16>{}}.load(i, 0, 0);
    auto o = ct::partition_view{ct::tensor_span{c, E{}}, ct::shape<2, 16, 16>{}};
    o.store(ct::mma(l, r, ct::zeros<ct::tile<float, ct::shape<2, 16, 16>>>()), i, 0, 0);""",
)


def test_many_small_products() -> None:
    a, b, c = normal(6, 16, 16), normal(6, 16, 16), np.zeros((6, 16, 16), "f4")
    run(MANY_SMALL_PRODUCTS, 3, a, b, c)
    close(c, a.astype("f8") @ b, 1e-4)


STENCIL_BY_OVERLAPPING_TILES = declared(
    "const float* x, float* y",
    """
    auto span = ct::tensor_span{x, ct::extents<int, ct::dynamic_extent>{66}};
    auto v = ct::strided_view{span, ct::shape<16>{}, ct::strides<int, 1>{}};
    auto o = flat<16>(y, 64);
    o.store(v.load(i * 16) + v.load(i * 16 + 1) * -2.f + v.load(i * 16 + 2), i);""",
)


def test_stencil_by_overlapping_tiles() -> None:
    x, y = normal(66), np.zeros(64, "f4")
    run(STENCIL_BY_OVERLAPPING_TILES, 4, x, y)
    close(y, x[:-2] - 2 * x[1:-1] + x[2:])


ROWS_OF_A_TABLE = declared(
    "const float* table, const int* ids, float* y",
    """
    using E = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>;
    auto v = ct::gather_scatter_view{ct::tensor_span{table, E{50, 32}}, ct::shape<8, 32>{}, 0_ic};
    rows<8, 32>(y, 16, 32).store(v.load(flat<8>(ids, 16).load(i), 0), i, 0);""",
)


def test_rows_of_a_table() -> None:
    table, ids, y = normal(50, 32), RNG.integers(0, 50, 16).astype("i4"), np.zeros((16, 32), "f4")
    run(ROWS_OF_A_TABLE, 2, table, ids, y)
    assert (y == table[ids]).all()


CROSS_ENTROPY = declared(
    "const float* x, const int* labels, float* loss, float* grad",
    """
    auto k = numbers<64>();
    auto inside = k < 50;
    auto t = ct::load_masked(x + (i * 50 + k), inside, -1e30f);
    auto most = ct::reduce_max(t, 0_ic);
    auto e = ct::exp(t - most);
    auto sum = ct::sum(e, 0_ic);
    int label = labels[i];
    float l = one<float>(most + ct::log(sum));
    loss[i] = l - x[i * 50 + label];
    auto hot = ct::element_cast<float>(k == label);
    ct::store_masked(grad + (i * 50 + k), e / sum - hot, inside);""",
)


def test_cross_entropy() -> None:
    logits, labels, loss, grad = (
        normal(4, 50),
        RNG.integers(0, 50, 4).astype("i4"),
        np.zeros(4, "f4"),
        np.zeros((4, 50), "f4"),
    )
    run(CROSS_ENTROPY, 4, logits, labels, loss, grad)
    wide = logits.astype("f8")
    p = np.exp(wide) / np.exp(wide).sum(1, keepdims=True)
    close(loss, -np.log(p[np.arange(4), labels]))
    close(grad, p - np.eye(50)[labels])


ONE_PASS_OF_A_CHAINED_SCAN = declared(
    "const int* x, int* y, int* sums, int* ready",
    """
    auto t = flat<64>(x, 256).load(i);
    while (ct::atomic_add(ready + i, 0, ct::memory_order_acq_rel_t{}, ct::thread_scope_device_t{}) == 0) {}
    int before = sums[i];
    auto scanned = ct::partial_sum(t, 0_ic) + before;
    flat<64>(y, 256).store(scanned, i);
    int whole = one<int>(ct::sum(t, 0_ic));
    sums[i + 1] = before + whole;
    ct::atomic_xchg(ready + i + 1, 1, ct::memory_order_acq_rel_t{}, ct::thread_scope_device_t{});""",
)


def test_one_pass_of_a_chained_scan() -> None:
    """Each block waits for the sum of those before it, as it is released."""
    x, y, sums, ready = RNG.integers(0, 9, 256).astype("i4"), np.zeros(256, "i4"), np.zeros(5, "i4"), np.zeros(5, "i4")
    ready[0] = 1
    run(ONE_PASS_OF_A_CHAINED_SCAN, 4, x, y, sums, ready)
    assert (y == x.cumsum()).all()


OF_BOTH = "const float* x, float* y"
WRONG = [
    (declared(OF_BOTH, "assert(i < 2);"), "assertion failed"),
    (declared(OF_BOTH, "flat<16>(y, 64).store(flat<16>(x, 64).load(i + 1), i);"), "which has 64, are not all inside"),
    (declared(OF_BOTH, "flat<16>(y, 64).store(flat<16>(x, 64).load(i), i / 2);"), "a race between blocks"),
    (declared(OF_BOTH, "ct::store(y + numbers<16>(), ct::load(x + numbers<16>()));"), "a race between blocks"),
    (declared(OF_BOTH, "y[63 - i * 16] = y[47 - i * 16];"), "a race between blocks"),
    (declared(OF_BOTH, "int n = ct::assume_divisible(i + 3, 4_ic); y[i] = n;"), "a promise is broken: a multiple of 4"),
    (declared(OF_BOTH, "y[x[i] > 100.f ? 0 : 64 + i] = 1;"), "outside every array"),
    (declared(OF_BOTH, "int z = i - i; y[i] = 7 / z;"), "divided by 0"),
]
UNKNOWN = Together(together.head)
UNKNOWN.declare("y[ct::bid().x] = expf(x[ct::bid().x]);", OF_BOTH)


@pytest.mark.parametrize(("parts", "message"), thinned(WRONG, 3, several=True))
def test_what_goes_wrong_is_an_error(parts: tuple[str, str], message: str) -> None:
    x, y = np.zeros(64, "f4"), np.zeros(64, "f4")
    with pytest.raises(ck.CudakitError, match=message):
        run(parts, 4, x, y)


def test_a_function_of_threads_is_an_error() -> None:
    x, y = np.zeros(64, "f4"), np.zeros(64, "f4")
    with pytest.raises(ck.CudakitError, match="Cannot invoke non-tile function"):
        UNKNOWN(*next(iter(UNKNOWN.texts)))(ck.emulator.stream(), ck.config(4), x, y)


WORDS_IN_THE_MIDDLE = declared(
    "float* x", 'for (auto k : ct::irange(0, 2)) { float v = x[k]; printf("%d: %.1f|", k, v); x[k] = 9; }'
)


def test_words_in_the_middle(capfd: pytest.CaptureFixture[str]) -> None:
    x = np.arange(4, dtype="f4")
    run(WORDS_IN_THE_MIDDLE, 1, x)
    assert capfd.readouterr().out == "0: 0.0|1: 1.0|"
    assert x.tolist() == [9, 9, 2, 3]


WHAT_IS_PRINTED_IS_AS_C_HAS_IT = declared(
    "float* x",
    """
    auto t = ct::load(x + numbers<4>());
    printf("%5.2f|%d|%s|%x %u %lld %c%%|", t, numbers<4>(), "hi", 255, 4000000000u, 1ll << 40, 65);
    printf("%8s|%-4d|%hd|%g|%e", "right", i, short(i), x[1], x[2]);""",
)


def test_what_is_printed_is_as_c_has_it(capfd: pytest.CaptureFixture[str]) -> None:
    run(WHAT_IS_PRINTED_IS_AS_C_HAS_IT, 1, np.arange(4, dtype="f4"))
    assert capfd.readouterr().out == (
        "[ 0.00,  1.00,  2.00,  3.00]|[0, 1, 2, 3]|hi|ff 4000000000 1099511627776 A%|   right|0   |0|1|2.000000e+00"
    )


NARROW = {
    name: declared(
        f"{name}* x",
        f"using T = {name}; auto t = ct::full<ct::tile<T, ct::shape<16>>>(T(1.5f));"
        "ct::atomic_add(x + (numbers<16>() & 3), t, ANYWHERE);",
    )
    for name in ("__half", "__nv_bfloat16", "double")
}
ATOMICS_OF_NARROW_AND_UNSIGNED_NUMBERS = declared(
    "unsigned* x", "ct::atomic_max(x + 1, 7u, ANYWHERE); ct::atomic_max(x, 0xF0000000u, ANYWHERE);"
)


@pytest.mark.slow
def test_atomics_of_narrow_and_unsigned_numbers() -> None:
    for name, dtype in (("__half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16), ("double", np.float64)):
        x: Any = np.zeros(4, dtype)
        run(NARROW[name], 3, x)
        assert (x.astype("f8") == 18).all()
    x = np.array([5, 0xFFFFFFF0], "u4")
    run(ATOMICS_OF_NARROW_AND_UNSIGNED_NUMBERS, 1, x)
    assert x.tolist() == [0xF0000000, 0xFFFFFFF0]


TILES_THAT_BEGIN_BEFORE_AN_ARRAY = declared(
    "float* x, float* y",
    """
    auto span = ct::tensor_span{x, ct::extents<int, ct::dynamic_extent>{16}};
    auto v = ct::strided_view{span, ct::shape<8>{}, ct::strides<int, 4>{}};
    rows<1, 8>(y, 4, 8).store(ct::reshape(v.load_masked(i - 1), ct::shape<1, 8>{}), i, 0);""",
)
TILES_THAT_BEGIN_BEFORE_AN_ARRAY_2 = declared(
    "float* x",
    """
    using E = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>;
    auto v = ct::gather_scatter_view{ct::tensor_span{x, E{6, 4}}, ct::shape<4, 4>{}, 0_ic};
    v.store_masked(ct::full<ct::tile<float, ct::shape<4, 4>>>(2.f), numbers<4>() * 3 - 1, 0);""",
)


def test_tiles_that_begin_before_an_array() -> None:
    x, y = np.arange(1, 17, dtype="f4"), np.zeros((4, 8), "f4")
    run(TILES_THAT_BEGIN_BEFORE_AN_ARRAY, 4, x, y)
    padded = np.concatenate([np.zeros(4), x, np.zeros(8)])
    assert (y == [padded[4 * k : 4 * k + 8] for k in range(4)]).all()
    x = np.zeros((6, 4), "f4")
    run(TILES_THAT_BEGIN_BEFORE_AN_ARRAY_2, 1, x)
    assert x.sum(1).tolist() == [0, 0, 8, 0, 0, 8]


CONTROL_OF_ALL_KINDS = declared(
    "int* x",
    """
    int a = 0, b = 1, c = 0;
    for (auto k : ct::irange(0, 10)) {
        if (k % 3 == 1) continue;
        for (int m = 0; m < k; ++m) { if (m * m > k) break; a += m; }
        int t = a; a = b; b = t; c += k;
        if (c > 20) break;
    }
    switch (i) {
        case 0: x[0] = a; return;
        case 1: case 2: x[i] = i * 10; break;
        case 3: x[3] = b;
        default: x[i] += 100;
    }
    if (i == 5) return;
    unsigned n = 0;
    for (auto k : ct::irange(0x7FFFFFFEu, 0x80000003u)) n += k & 15u;
    x[i] += n + c;""",
)


def test_control_of_all_kinds() -> None:
    x = np.zeros(8, "i4")
    run(CONTROL_OF_ALL_KINDS, 6, x)
    a, b, c = 0, 1, 0
    for k in range(10):
        if k % 3 == 1:
            continue
        for m in range(k):
            if m * m > k:
                break
            a += m
        a, b, c = b, a, c + k
        if c > 20:
            break
    n = sum(k & 15 for k in range(0x7FFFFFFE, 0x80000003)) + c
    assert x[:6].tolist() == [a, 10 + n, 20 + n, b + 100 + n, 100 + n, 100]


CONSTANTS_OF_TF32 = declared(
    "const float* a, float* c",
    """
    auto t = ct::element_cast<__nv_tf32>(rows<16, 16>(a, 16, 16).load(0, 0));
    auto w = ct::full<ct::tile<__nv_tf32, ct::shape<16, 16>>>(__nv_tf32(1.5f));
    rows<16, 16>(c, 16, 16).store(ct::mma(t, w, ct::zeros<ct::tile<float, ct::shape<16, 16>>>()), 0, 0);""",
)


def test_constants_of_tf32() -> None:
    a, c = normal(16, 16), np.zeros((16, 16), "f4")
    run(CONSTANTS_OF_TF32, 1, a, c)
    close(c, np.repeat(a.astype("f8").sum(1, keepdims=True) * 1.5, 16, 1), 2e-2)
