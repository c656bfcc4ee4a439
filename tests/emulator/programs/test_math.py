"""CUDA's math library, its half and fp8 headers, and its integer intrinsics, against NumPy and Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.programs import run

import cudakit as ck

RANDOM = np.random.default_rng(13)


def _of(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    """Over arrays; NaN where Python's function raises."""

    def one(*values: float) -> float:
        try:
            return function(*map(float, values))
        except (ValueError, OverflowError):
            return math.nan

    return np.vectorize(one, otypes=[np.float64])


def _cbrt(x: np.ndarray) -> np.ndarray:
    """The cube root, by a step of Newton in extended precision: that of a host's library may be units off."""
    root = np.cbrt(x).astype(np.longdouble)
    return np.where(np.isfinite(x) & (x != 0), root - (root**3 - x) / (3 * root**2), root).astype(np.float64)


#: Function → (reference, largest error in ulp of float32 and float64: the CUDA programming guide's tables). A float64
#: reference is itself wrong by up to an ulp, which is added there.
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "sin": (np.sin, 2, 2), "cos": (np.cos, 2, 2), "tan": (np.tan, 4, 2), "asin": (np.arcsin, 2, 2),
    "acos": (np.arccos, 2, 2), "atan": (np.arctan, 2, 2), "sinh": (np.sinh, 3, 2), "cosh": (np.cosh, 2, 1),
    "tanh": (np.tanh, 2, 1), "asinh": (np.arcsinh, 3, 3), "acosh": (np.arccosh, 4, 3), "atanh": (np.arctanh, 3, 2),
    "exp": (np.exp, 2, 1), "exp2": (np.exp2, 2, 1), "expm1": (np.expm1, 1, 1), "log": (np.log, 1, 1),
    "log2": (np.log2, 1, 1), "log10": (np.log10, 2, 1), "log1p": (np.log1p, 1, 1), "sqrt": (np.sqrt, 0, 0),
    "cbrt": (_cbrt, 1, 1), "erf": (_of(math.erf), 2, 2), "erfc": (_of(math.erfc), 4, 5),
    "tgamma": (_of(math.gamma), 5, 10), "ceil": (np.ceil, 0, 0), "floor": (np.floor, 0, 0), "trunc": (np.trunc, 0, 0),
    "rint": (np.rint, 0, 0), "fabs": (np.abs, 0, 0), "logb": (lambda x: np.frexp(x)[1] - 1.0, 0, 0),
    "pow": (np.power, 4, 2), "atan2": (np.arctan2, 3, 2), "hypot": (np.hypot, 3, 2), "fmod": (np.fmod, 0, 0),
    "remainder": (_of(math.remainder), 0, 0), "fmax": (np.fmax, 0, 0), "fmin": (np.fmin, 0, 0),
    "copysign": (np.copysign, 0, 0), "fdim": (lambda x, y: np.where(x <= y, 0.0, x - y), 0, 0),
}  # fmt: skip
PAIRS = {"pow", "atan2", "hypot", "fmod", "remainder", "fmax", "fmin", "copysign", "fdim"}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_math_library(stream: Any, dtype: Any) -> None:
    n, single = 1024, dtype is np.float32
    x = np.concatenate([
        RANDOM.standard_normal(n // 2) * 3, RANDOM.uniform(-1, 1, n // 4),
        10 ** RANDOM.uniform(-10, 30, n // 4) * RANDOM.choice([-1, 1], n // 4),
    ]).astype(dtype)  # fmt: skip
    x[:9] = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, np.inf, -np.inf, np.nan]
    y = np.roll(x, 3)
    suffix = "f" if single else ""
    body = "".join(
        f"    out[{row} * n + t] = {name}{suffix}({'x[t], y[t]' if name in PAIRS else 'x[t]'});\n"
        for row, name in enumerate(FUNCTIONS)
    )
    kind = "float" if single else "double"
    text = (
        f"__global__ void kernel(const {kind}* x, const {kind}* y, {kind}* out, int n) {{\n"
        f"    int t = threadIdx.x + blockIdx.x * blockDim.x;\n{body}}}"
    )
    out = np.zeros((len(FUNCTIONS), n), dtype)
    run(stream, ck.Kernel(text), ck.config(n // 128, 128), x, y, out, n)
    for got, (name, (reference, most_single, most_double)) in zip(out, FUNCTIONS.items(), strict=True):
        with np.errstate(all="ignore"):
            arguments = [v.astype(np.float64) for v in ((x, y) if name in PAIRS else (x,))]
            exact = np.asarray(reference(*arguments), np.float64)
            rounded = exact.astype(dtype)
        finite = np.isfinite(rounded)
        if name in ("logb", "tgamma"):
            # Python has no infinity where these do.
            finite &= np.isfinite(x) & (x != 0)
        else:
            np.testing.assert_array_equal(got[~finite], rounded[~finite], name)
        assert np.isfinite(got[finite]).all(), name
        unit = np.spacing(np.maximum(np.abs(rounded[finite]), np.finfo(dtype).tiny)).astype(np.float64)
        error = np.abs(got[finite].astype(np.float64) - exact[finite]) / unit
        most = most_single + 0.5 if single else most_double + (1 if most_double else 0)
        assert error.max() <= most, (name, x[finite][error.argmax()], error.max())


def log_gamma(x: np.ndarray) -> np.ndarray:
    """log Γ(x) for x ≥ 1: Stirling's series at x + 60, in extended precision (Python's is 60 ulp off near 1)."""
    z = x.astype(np.longdouble)
    product = np.zeros_like(z)
    for _ in range(60):
        product += np.log(z)
        z = z + 1
    series = 1 / (12 * z) - 1 / (360 * z**3) + 1 / (1260 * z**5) - 1 / (1680 * z**7)
    pi = np.longdouble("3.14159265358979323846264338327950288")
    return np.asarray((z - 0.5) * np.log(z) - z + np.log(2 * pi) / 2 + series - product).astype(np.float64)


SPECIAL = """
__global__ void kernel(const float* x, float* out, double* wide, int n) {
    int t = threadIdx.x;
    out[t] = j0f(x[t]); out[n + t] = j1f(x[t]); out[2 * n + t] = erfinvf(erff(x[t] / 8));
    out[3 * n + t] = normcdff(x[t] / 4); out[4 * n + t] = lgammaf(fabsf(x[t]) + 1);
    out[5 * n + t] = rsqrtf(fabsf(x[t]));
    float sine, cosine;
    sincosf(x[t], &sine, &cosine);
    out[6 * n + t] = sine * sine + cosine * cosine;
    int exponent, quotient;
    out[7 * n + t] = frexpf(x[t], &exponent);
    out[8 * n + t] = ldexpf(x[t], exponent);
    out[9 * n + t] = remquof(x[t], 0.7f, &quotient);
    out[10 * n + t] = quotient & 7;
    out[11 * n + t] = __sinf(x[t]); out[12 * n + t] = __expf(x[t]); out[13 * n + t] = __fdividef(x[t], 3.0f);
    wide[t] = j0((double)x[t]); wide[n + t] = lgamma(fabs((double)x[t]) + 1);
    wide[2 * n + t] = sinpi((double)x[t]); wide[3 * n + t] = fma((double)x[t], (double)x[t], -1e-30);
}
"""


def test_special_functions(stream: Any) -> None:
    n = 256
    x = RANDOM.uniform(-7, 7, n).astype(np.float32)
    out, wide = np.zeros((14, n), np.float32), np.zeros((4, n))
    run(stream, ck.Kernel(SPECIAL), ck.config(1, n), x, out, wide, n)
    v = x.astype(np.float64)
    # Bessel's integrals; the trapezoidal rule is exact to rounding for periodic functions.
    angle = (np.arange(256) + 0.5) * np.pi / 256
    j0 = np.cos(v[:, None] * np.sin(angle)).mean(1)
    j1 = np.cos(angle - v[:, None] * np.sin(angle)).mean(1)
    gamma = log_gamma(abs(v) + 1)
    fraction, exponent = np.frexp(v)
    # The guide's bounds: 9 ulp for Bessel functions within |x| < 8, or 2.2e-6; 3, 5, 6, 2 ulp for the next ones.
    np.testing.assert_allclose(out[:2], [j0, j1], rtol=0, atol=2.2e-6)
    np.testing.assert_allclose(out[2], v / 8, rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(out[3], _of(math.erfc)(-v / 4 / math.sqrt(2)) / 2, rtol=6 * 2.0**-23)
    np.testing.assert_allclose(out[4], gamma, rtol=7 * 2.0**-23, atol=2.0**-23)
    np.testing.assert_allclose(out[5], 1 / np.sqrt(abs(v)), rtol=2.5 * 2.0**-23)
    np.testing.assert_allclose(out[6], 1, rtol=8 * 2.0**-23)
    assert (out[7] == fraction).all()
    assert (out[8] == np.ldexp(v, exponent)).all()
    step = np.rint(v / np.float64(np.float32(0.7)))
    assert (out[9] == (v - step * np.float64(np.float32(0.7))).astype(np.float32)).all()
    assert (out[10] == np.where(step < 0, -(abs(step) % 8) % 8, step % 8)).all()
    # Within [−π, π] 2⁻²¹·⁴¹ absolute, and 2 + ⌊|1.173 x|⌋ ulp; 2 ulp.
    inside = abs(v) < np.pi
    np.testing.assert_allclose(out[11][inside], np.sin(v)[inside], rtol=0, atol=2.0**-21.4)
    np.testing.assert_allclose(out[12], np.exp(v), rtol=(2 + 9) * 2.0**-23)
    np.testing.assert_allclose(out[13], v / 3, rtol=2.5 * 2.0**-23)
    np.testing.assert_allclose(wide[0], j0, rtol=0, atol=5e-12)
    # 4 ulp, and what the reference loses where log Γ is near 0.
    np.testing.assert_allclose(wide[1], gamma, rtol=5 * 2.0**-52, atol=1e-16)
    np.testing.assert_allclose(wide[2], np.sin(np.pi * np.remainder(v, 2)), rtol=0, atol=1e-15)
    assert (wide[3] == v * v).all()


HALVES = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
template <class H, class H2> __device__ void halves_of(const float* x, const float* y, float* out, int n) {
    int t = threadIdx.x;
    H a = H(x[t]), b = H(y[t]), c = H(x[n - 1 - t]), m = __habs(a);
    float* to = out + t;
    auto put = [&](float v) { *to = v; to += n; };
    auto keep = [&](H v) { put(static_cast<float>(v)); };
    keep(a + b); keep(a * b); keep(a - b); keep(a / b); keep(__hfma(a, b, c)); keep(-a); keep(m);
    keep(hexp(a)); keep(hlog(m)); keep(hsqrt(m)); keep(hrcp(a)); keep(hrsqrt(m)); keep(hsin(a)); keep(hcos(a));
    keep(hfloor(a)); keep(hrint(a)); keep(htrunc(a)); keep(__hmax(a, b)); keep(__hmin(a, b)); keep(__hadd_sat(a, b));
    keep(hexp2(a)); keep(hlog2(m)); keep((H)(t * 37));
    put(a < b); put(__hisnan(a)); put((int)a);
    H2 v = H2(a, b), w = H2(c, a), r = __hfma2(v, w, v);
    keep(r.x); keep(r.y); keep((v + w).x); keep(__hmax2(v, w).y); put(__hbeq2(v, v));
}
__global__ void kernel(const float* x, const float* y, float* halves, float* bfloats, float* eights,
                       unsigned char* raw, int n) {
    halves_of<__half, __half2>(x, y, halves, n);
    halves_of<__nv_bfloat16, __nv_bfloat162>(x, y, bfloats, n);
    int t = threadIdx.x;
    __nv_fp8_e4m3 p(x[t]);
    __nv_fp8_e5m2 q(x[t]);
    raw[t] = p.__x; raw[n + t] = q.__x;
    eights[t] = float(p); eights[n + t] = float(q); eights[2 * n + t] = float(__half(p));
    float4 four = float4(__nv_fp8x4_e4m3(make_float4(x[t], y[t], -x[t], 1)));
    eights[3 * n + t] = four.y; eights[4 * n + t] = four.z;
}
"""


@pytest.mark.slow
def test_half_and_fp8_headers(stream: Any) -> None:
    n = 512
    # Its own numbers, whatever tests ran before: some others are so near to a tie that a function computed in float32
    # is rounded to the other side, and the reference of bfloat16, which NumPy's types round by way of float32, too.
    random = np.random.default_rng(13)
    x = (random.standard_normal(n) * 10 ** random.uniform(-4, 2.5, n)).astype(np.float32)
    y = np.roll(x, 7)
    halves, bfloats = np.zeros((31, n), np.float32), np.zeros((31, n), np.float32)
    eights, raw = np.zeros((5, n), np.float32), np.zeros((2, n), np.uint8)
    run(stream, ck.Kernel(HALVES), ck.config(1, n), x, y, halves, bfloats, eights, raw, n)
    for got, dtype in ((halves, np.float16), (bfloats, ml_dtypes.bfloat16)):
        a, b, c = (v.astype(dtype).astype(np.float64) for v in (x, y, x[::-1]))
        m, whole = abs(a), np.arange(n) * 37.0
        with np.errstate(all="ignore"):
            expected = [
                a + b, a * b, a - b, a / b, a * b + c, -a, m, np.exp(a), np.log(m), np.sqrt(m), 1 / a, 1 / np.sqrt(m),
                np.sin(a), np.cos(a), np.floor(a), np.rint(a), np.trunc(a), np.maximum(a, b), np.minimum(a, b),
                np.clip(a + b, 0, 1), np.exp2(a), np.log2(m), whole, a < b, 0 * a, np.trunc(a), a * c + a, b * a + b,
                a + c, np.maximum(b, a), 0 * a + 1,
            ]  # fmt: skip
            for number, (row, exact) in enumerate(zip(got, expected, strict=True)):
                # Every operation rounds its exact result once; functions are computed in float32 before.
                wanted = exact if number == 25 else np.asarray(exact, np.float64).astype(dtype).astype(np.float64)
                assert (row == wanted).all(), (dtype, number)
    for row, values, kind in zip(raw, eights, (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2), strict=False):
        most = float(ml_dtypes.finfo(kind).max)
        wanted = np.clip(x, -most, most).astype(kind)
        assert (row == wanted.view(np.uint8)).all()
        assert (values == wanted.astype(np.float32)).all()
    assert (eights[2] == eights[0]).all()
    assert (eights[3] == np.roll(eights[0], 7)).all()
    assert (eights[4] == -eights[0]).all()


def signed(value: int, bits: int = 32) -> int:
    value %= 1 << bits
    return value - (value >> bits - 1 << bits)


def parts(value: int, bits: int, sign: bool = False) -> list[int]:
    """Pieces of a 32-bit word, the lowest first."""
    pieces = [value >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)]
    return [signed(piece, bits) for piece in pieces] if sign else pieces


def each(function: Callable[..., int], bits: int, sign: bool, *words: int) -> int:
    """`function` of each piece of some words, in its place."""
    pieces = zip(*(parts(word, bits, sign) for word in words), strict=True)
    return sum((int(function(*piece)) & (1 << bits) - 1) << bits * at for at, piece in enumerate(pieces))


def clip(value: int, bits: int, sign: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def permuted(a: int, b: int, c: int) -> int:
    octets = [*parts(a, 8), *parts(b, 8)]
    return sum(octets[c >> 4 * at & 7] << 8 * at for at in range(4))


WHOLE = 2**32 - 1
#: CUDA expression of unsigned a, b, c → the same in Python.
INTRINSICS: dict[str, Callable[[int, int, int], int]] = {
    "__byte_perm(a, b, c)": permuted,
    "__funnelshift_l(a, b, c)": lambda a, b, c: (b << 32 | a) << (c & 31) >> 32,
    "__funnelshift_lc(a, b, c)": lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32,
    "__funnelshift_r(a, b, c)": lambda a, b, c: (b << 32 | a) >> (c & 31),
    "__funnelshift_rc(a, b, c)": lambda a, b, c: (b << 32 | a) >> min(c, 32),
    "__brev(a)": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "__clz(a)": lambda a, b, c: 32 - a.bit_length(),
    "__ffs(a)": lambda a, b, c: (a & -a).bit_length(),
    "__popc(a)": lambda a, b, c: a.bit_count(),
    "__ffsll((unsigned long long)a << 32)": lambda a, b, c: (a << 32 & -(a << 32)).bit_length(),
    "__mulhi((int)a, (int)b)": lambda a, b, c: signed(a) * signed(b) >> 32,
    "__umulhi(a, b)": lambda a, b, c: a * b >> 32,
    "__umul64hi((unsigned long long)a << 32 | b, (unsigned long long)c << 32 | a) >> 32": (
        lambda a, b, c: (a << 32 | b) * (c << 32 | a) >> 96
    ),
    "__mul24((int)a, (int)b)": lambda a, b, c: signed(a, 24) * signed(b, 24),
    "__sad((int)a, (int)b, c)": lambda a, b, c: abs(signed(a) - signed(b)) + c,
    "__usad(a, b, c)": lambda a, b, c: abs(a - b) + c,
    "__hadd((int)a, (int)b)": lambda a, b, c: signed(a) + signed(b) >> 1,
    "__urhadd(a, b)": lambda a, b, c: a + b + 1 >> 1,
    "__dp4a((int)a, (int)b, (int)c)": (
        lambda a, b, c: c + sum(x * y for x, y in zip(parts(a, 8, True), parts(b, 8, True), strict=True))
    ),
    "__dp4a(a, b, c)": lambda a, b, c: c + sum(x * y for x, y in zip(parts(a, 8), parts(b, 8), strict=True)),
    "__dp2a_lo((int)a, (int)b, (int)c)": (
        lambda a, b, c: c + sum(x * y for x, y in zip(parts(a, 16, True), parts(b, 8, True)[:2], strict=True))
    ),
    "__dp2a_hi(a, b, c)": lambda a, b, c: c + sum(x * y for x, y in zip(parts(a, 16), parts(b, 8)[2:], strict=True)),
    "__vadd4(a, b)": lambda a, b, c: each(lambda x, y: x + y, 8, False, a, b),
    "__vsub2(a, b)": lambda a, b, c: each(lambda x, y: x - y, 16, False, a, b),
    "__vaddss2(a, b)": lambda a, b, c: each(lambda x, y: clip(x + y, 16, True), 16, True, a, b),
    "__vaddus4(a, b)": lambda a, b, c: each(lambda x, y: clip(x + y, 8, False), 8, False, a, b),
    "__vsubss4(a, b)": lambda a, b, c: each(lambda x, y: clip(x - y, 8, True), 8, True, a, b),
    "__vabsdiffu4(a, b)": lambda a, b, c: each(lambda x, y: abs(x - y), 8, False, a, b),
    "__vmaxs2(a, b)": lambda a, b, c: each(max, 16, True, a, b),
    "__vminu4(a, b)": lambda a, b, c: each(min, 8, False, a, b),
    "__vavgu4(a, b)": lambda a, b, c: each(lambda x, y: x + y + 1 >> 1, 8, False, a, b),
    "__vhaddu4(a, b)": lambda a, b, c: each(lambda x, y: x + y >> 1, 8, False, a, b),
    "__vcmpgtu4(a, b)": lambda a, b, c: each(lambda x, y: 255 * (x > y), 8, False, a, b),
    "__vseteq2(a, b & 0xffff | a & 0xffff0000)": (
        lambda a, b, c: each(lambda x, y: x == y, 16, False, a, b & 0xFFFF | a & 0xFFFF0000)
    ),
    "__vneg2(a)": lambda a, b, c: each(lambda x: -x, 16, True, a),
    "__vsads4(a, b)": lambda a, b, c: sum(
        abs(x - y) for x, y in zip(parts(a, 8, True), parts(b, 8, True), strict=True)
    ),
    "__viaddmax_s32((int)a, (int)b, (int)c)": lambda a, b, c: max(signed(a + b), signed(c)),
    "__vimax3_u16x2(a, b, c)": lambda a, b, c: each(max, 16, False, a, b, c),
    "__vimin_s32_relu((int)a, (int)b)": lambda a, b, c: max(0, min(signed(a), signed(b))),
    "__fns(a, 0, c % 7 + 1)": lambda a, b, c: (
        [bit for bit in range(32) if a >> bit & 1][c % 7] if a.bit_count() > c % 7 else WHOLE
    ),
    "__float2int_rz((int)a * 0.5f)": lambda a, b, c: int(np.float32(signed(a)) * np.float32(0.5)),
    "__double2hiint((double)(int)a)": lambda a, b, c: int(np.float64(signed(a)).view("u8")) >> 32,
    "__float_as_uint(__uint2float_rz(a >> 4))": lambda a, b, c: int(
        np.float32((a >> 4) & ~((1 << max(0, (a >> 4).bit_length() - 24)) - 1)).view("u4")
    ),
    "a / (b | 1)": lambda a, b, c: a // (b | 1),
    "(int)a % (int)(b >> 20 | 1)": lambda a, b, c: int(math.fmod(signed(a), b >> 20 | 1)),
}


def test_integer_intrinsics(stream: Any) -> None:
    n = 256
    a, b, c = RANDOM.integers(0, 2**32, (3, n), np.uint32)
    edges = np.array([0, 1, 2**31, 2**32 - 1, 0x80, 0x7FFFFFFF, 0x80808080], np.uint32)
    a[: edges.size], b[3 : 3 + edges.size], c[::2] = edges, edges, c[::2] % 40
    rows = "".join(f"    out[{row} * n + t] = {expression};\n" for row, expression in enumerate(INTRINSICS))
    text = (
        "__global__ void kernel(const unsigned* x, const unsigned* y, const unsigned* z, unsigned* out, int n) {\n"
        f"    int t = threadIdx.x;\n    unsigned a = x[t], b = y[t], c = z[t];\n{rows}}}"
    )
    out = np.zeros((len(INTRINSICS), n), np.uint32)
    run(stream, ck.Kernel(text), ck.config(1, n), a, b, c, out, n)
    for row, (expression, reference) in zip(out, INTRINSICS.items(), strict=True):
        for at in range(n):
            expected = reference(int(a[at]), int(b[at]), int(c[at])) & WHOLE
            assert row[at] == expected, (expression, hex(a[at]), hex(b[at]), hex(c[at]))
