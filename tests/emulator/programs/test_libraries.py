"""CUDA's C++ libraries: cuda::std, and cuRAND's Philox on the device."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.programs import run

import cudakit as ck

RANDOM = np.random.default_rng(14)
N = 64

STANDARD = """
#include <cuda/std/array>
#include <cuda/std/span>
#include <cuda/std/mdspan>
#include <cuda/std/optional>
#include <cuda/std/expected>
#include <cuda/std/tuple>
#include <cuda/std/variant>
#include <cuda/std/complex>
#include <cuda/std/bit>
#include <cuda/std/bitset>
#include <cuda/std/charconv>
#include <cuda/std/numeric>
#include <cuda/std/algorithm>
#include <cuda/std/functional>
#include <cuda/std/string_view>
#include <cuda/std/inplace_vector>
namespace cs = cuda::std;
// No generic lambda: NVRTC before 13.4 takes it for a function of the host.
struct told {
    template <typename T> __device__ int operator()(T held) const { return (int)sizeof(held) * 1000 + (int)held; }
};
__global__ void kernel(const int* x, const float* f, int* out, float* g, double* h, char* text, int n) {
    int t = threadIdx.x, *to = out + t;
    auto put = [&](int value) { *to = value; to += n; };
    cs::array<int, 8> a;
    for (int i = 0; i < 8; i++) a[i] = x[t * 8 + i];
    cs::span<int> s(a);
    put(cs::accumulate(s.begin(), s.end(), 0));
    put(cs::reduce(a.begin(), a.end(), 1, cs::bit_xor<>{}));
    put(cs::inner_product(a.begin(), a.end(), s.begin(), 0));
    cs::make_heap(a.begin(), a.end());
    cs::sort_heap(a.begin(), a.end());
    put(a[3]);
    put(*cs::lower_bound(a.begin(), a.end() - 1, x[t * 8]));
    cs::rotate(a.begin(), a.begin() + 3, a.end());
    put(a.back());
    put(cs::gcd(x[t * 8], x[t * 8 + 1]));
    put(cs::midpoint(x[t * 8], x[t * 8 + 1]));
    put(cs::count_if(a.begin(), a.end(), [](int v) { return v % 3 == 0; }));
    cs::mdspan<const int, cs::extents<int, cs::dynamic_extent, 8>> rows(x, n);
    put(rows((t + 1) % n, 7) + rows.extent(0));
    cs::mdspan<const int, cs::dextents<int, 2>, cs::layout_left> columns(x, 8, n);
    put(columns(3, t));
    put([](int v) -> cs::optional<int> { if (v > 0) return v * 2; return cs::nullopt; }(x[t]).value_or(-1));
    auto [first, second, third] = cs::make_tuple(t, 2.5f, (char)t);
    put(first + (int)(second * 2) + third);
    cs::variant<int, float, double> v;
    if (t % 3 == 1) v = 1.5f * t;
    if (t % 3 == 2) v = 0.25 * t;
    put(v.index());
    put(cs::visit(told(), v));
    cs::expected<int, char> e = t % 2 ? cs::expected<int, char>(t) : cs::unexpected<char>('x');
    put(e.has_value() ? e.value() : e.error());
    unsigned u = x[t];
    put(cs::popcount(u)); put(cs::countl_zero(u)); put(cs::countr_one(u)); put(cs::bit_width(u & 0xffff));
    put(cs::bit_ceil((u & 0xfff) + 1)); put(cs::rotl(u, 7)); put(cs::byteswap(u)); put(cs::bit_cast<int>(f[t]));
    cs::bitset<70> bits;
    bits.set(t);
    bits.set(69);
    bits <<= 1;
    put(bits.count() * 100 + bits.test(t + 1));
    cs::string_view words = "hello emulator";
    put(words.find("mul") * 10 + (words.substr(2, 3) == "llo"));
    auto written = cs::to_chars(text + 16 * t, text + 16 * t + 15, x[t] * 37);
    put(written.ptr - (text + 16 * t));
    int parsed = 0;
    cs::from_chars(text + 16 * t, written.ptr, parsed);
    put(parsed);
    put(cs::clamp(x[t], -5, 5));
    cs::inplace_vector<int, 5> list;
    list.push_back(t);
    list.push_back(7);
    list.insert(list.begin(), x[t]);
    put(list.size() * 1000 + list[1]);
    cs::complex<float> c(f[t], f[t + 1]), d = c * c / cs::complex<float>(1, 2);
    g[t] = d.real(); g[n + t] = d.imag(); g[2 * n + t] = abs(c);
    cs::complex<double> w(f[t], f[t + 1]), p = cs::exp(w), q = cs::sqrt(w);
    h[t] = p.real(); h[n + t] = p.imag(); h[2 * n + t] = q.real(); h[3 * n + t] = q.imag();
}
"""


@pytest.mark.slow
def test_cuda_std(stream: Any) -> None:
    x, f = RANDOM.integers(-1000, 1000, (N, 8)).astype(np.int32), RANDOM.standard_normal(N + 1).astype(np.float32)
    out, g, h = np.zeros((30, N), np.int32), np.zeros((3, N), np.float32), np.zeros((4, N))
    text = np.zeros((N, 16), np.int8)
    run(stream, ck.Kernel(STANDARD), ck.config(1, N), x.reshape(-1), f, out, g, h, text.reshape(-1), N)
    own, u = x.reshape(-1)[:N].astype(int), x.reshape(-1)[:N].view(np.uint32)
    rows, at, order = x.astype(int), np.arange(N), np.sort(x, 1)
    middle = [a + int((b - a) / 2) for a, b in rows[:, :2]]
    held = [int([0, 1.5 * t, 0.25 * t][t % 3]) + 1000 * [4, 4, 8][t % 3] for t in range(N)]
    expected = [
        rows.sum(1), np.bitwise_xor.reduce(rows, 1) ^ 1, (rows * rows).sum(1), order[:, 3], rows[:, 0], order[:, 2],
        [math.gcd(*row[:2]) for row in rows.tolist()], middle, (rows % 3 == 0).sum(1), np.roll(rows[:, 7], -1) + N,
        rows[:, 3], np.where(own > 0, 2 * own, -1), 2 * at + 5, at % 3, held, np.where(at % 2, at, ord("x")),
        np.bitwise_count(u), [32 - int(v).bit_length() for v in u], [int(v ^ v + 1).bit_length() - 1 for v in u],
        [int(v & 0xFFFF).bit_length() for v in u], [1 << int(v & 0xFFF).bit_length() for v in u],
        (u << np.uint32(7) | u >> np.uint32(25)).view("i4"), u.byteswap().view("i4"), f[:N].view("i4"),
        np.full(N, 101), np.full(N, 71), [len(str(37 * v)) for v in own], 37 * own, np.clip(own, -5, 5), 3000 + at,
    ]  # fmt: skip
    for number, (got, wanted) in enumerate(zip(out, expected, strict=True)):
        assert (got == wanted).all(), number
    assert [bytes(row).rstrip(b"\0") for row in text] == [str(37 * v).encode() for v in own]
    c = f[:N] + 1j * f[1:].astype(np.float64)
    product = c * c / (1 + 2j)
    # Each is a few operations of its type.
    np.testing.assert_allclose(g, [product.real, product.imag, abs(c)], atol=8 * 2.0**-24 * abs(c).max() ** 2)
    power, root = np.exp(c), np.sqrt(c)
    np.testing.assert_allclose(h, [power.real, power.imag, root.real, root.imag], atol=8 * 2.0**-53 * abs(power).max())


RANDOM_NUMBERS = """
#include <curand_kernel.h>
__global__ void kernel(unsigned* bits, float* uniform, double* wide, float4* normal, unsigned* poisson,
                       unsigned long long seed) {
    int t = threadIdx.x + blockIdx.x * blockDim.x;
    curandStatePhilox4_32_10_t state;
    curand_init(seed, t, 3, &state);
    for (int i = 0; i < 6; i++) bits[t * 10 + i] = curand(&state);
    uint4 four = curand4(&state);
    bits[t * 10 + 6] = four.x; bits[t * 10 + 7] = four.y; bits[t * 10 + 8] = four.z; bits[t * 10 + 9] = four.w;
    uniform[t] = curand_uniform(&state);
    wide[t] = curand_uniform_double(&state);
    normal[t] = curand_normal4(&state);
    poisson[t] = curand_poisson(&state, 4.5);
}
"""


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10: Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2, 3 (2011)."""
    for number in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        keys = [(start + number * step) % 2**32 for start, step in zip(key, (0x9E3779B9, 0xBB67AE85), strict=True)]
        low, high = first % 2**32, second % 2**32
        counter = [second >> 32 ^ counter[1] ^ keys[0], high, first >> 32 ^ counter[3] ^ keys[1], low]
    return counter


def test_curand_philox(stream: Any) -> None:
    # The paper's known answers.
    assert philox([0] * 4, [0, 0]) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    n, seed = 256, 0x123456789ABCDEF
    bits, uniform, wide = np.zeros((n, 10), np.uint32), np.zeros(n, np.float32), np.zeros(n)
    normal, poisson = np.zeros((n, 4), np.float32), np.zeros(n, np.uint32)
    run(
        stream, ck.Kernel(RANDOM_NUMBERS), ck.config(2, 128),
        bits.reshape(-1), uniform, wide, normal.reshape(-1), poisson, seed,
    )  # fmt: skip
    draw = partial(philox, key=[seed % 2**32, seed >> 32])
    for t in range(n):
        expected = [word for block in range(4) for word in draw([block, 0, t, 0])]
        assert bits[t].tolist() == expected[3:13]
        # (0, 1] in steps of 2⁻³², rounded to float32.
        assert abs(uniform[t] - (expected[13] + 0.5) * 2.0**-32) < 2.0**-24
    assert ((wide > 0) & (wide <= 1)).all()
    # Four standard deviations of the mean of so many.
    assert abs(normal.mean()) < 4 / math.sqrt(normal.size)
    assert abs(normal.std() - 1) < 4 / math.sqrt(2 * normal.size)
    assert abs(poisson.mean() - 4.5) < 4 * math.sqrt(4.5 / n)
