"""What tile kernels do with memory, shapes and control, beside NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.tiers import thinned
from support.tiles import Together, needs_tiles

import cudakit as ck

TWO = """
template <int R, int C, typename T> __tile__ auto rows_of(T* p, int m, int n) {
    return ct::partition_view{ct::tensor_span{p, ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>{m, n}},
                              ct::shape<R, C>{}};
}
"""
HEAD = "const float* __restrict__ x, float* __restrict__ y, int m, int n"
Parts = tuple[str, str]
BEFORE = (
    "#include <cuda_fp16.h>\n#include <cuda_fp8.h>\n#include <cuda_fp4.h>\n#include <cuda_tf32.h>\n"
    f"{TWO}__tile__ int table[4] = {{5, 6, 7, 8}};"
)
together = Together(BEFORE)
newer = Together(BEFORE)  # for sm_100


def declared(body: str, head: str = HEAD, program: Together = together) -> Parts:
    """Declare the kernel of a body, which `run` and `together` take."""
    program.declare(body, head)
    return body, head


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


def run(parts: Parts, x: np.ndarray, shape: Any, m: int, n: int, grid: Any = 1) -> np.ndarray:
    y = np.full(shape, -1, x.dtype)
    together(*parts)(ck.emulator.stream(), ck.config(grid), x, y, m, n)
    return y


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype("f4")


def _inserted(t: np.ndarray) -> np.ndarray:
    made = t.copy()
    made[4:, 12:] = t[:4, :4]
    return made


SHAPES: list[tuple[str, Any]] = [
    ("t", lambda t: t),
    ("ct::transpose(t)", lambda t: t.T),
    ("ct::permute(t, ct::dimension_map<1, 0>{})", lambda t: t.T),
    ("ct::reshape(t, ct::shape<16, 8>{})", lambda t: t.reshape(16, 8)),
    ("ct::cat(t, t + 1.f, 0_ic)", lambda t: np.concatenate((t, t + 1))),
    ("ct::cat(t, t + 1.f, 1_ic)", lambda t: np.concatenate((t, t + 1), 1)),
    ("ct::extract(t, ct::shape<4, 4>{}, 1, n - 15)", lambda t: t[4:, 4:8]),
    ("ct::insert(t, ct::extract(t, ct::shape<4, 4>{}, 0, 0), 1, 3)", lambda t: _inserted(t)),
    ("ct::sum(t, 0_ic)", lambda t: t.sum(0, keepdims=True)),
    ("ct::sum(t, 1_ic)", lambda t: t.sum(1, keepdims=True)),
    ("ct::prod(ct::extract(t, ct::shape<4, 4>{}, 0, 0), 1_ic)", lambda t: t[:4, :4].prod(1, keepdims=True)),
    ("ct::reduce_max(t, 1_ic)", lambda t: t.max(1, keepdims=True)),
    ("ct::reduce_min(t, 0_ic)", lambda t: t.min(0, keepdims=True)),
    ("ct::element_cast<float>(ct::max_element(t, 1_ic))", lambda t: t.argmax(1)[:, None]),
    ("ct::element_cast<float>(ct::min_element(t, 0_ic))", lambda t: t.argmin(0)[None]),
    ("ct::element_cast<float>(ct::all_of(t > -9.f, 1_ic))", lambda t: (t > -9).all(1, keepdims=True)),
    ("ct::element_cast<float>(ct::any_of(t > 7.f, 0_ic))", lambda t: (t > 7).any(0, keepdims=True)),
    ("ct::partial_sum(t, 0_ic)", lambda t: t.cumsum(0)),
    ("ct::partial_sum(t, 1_ic)", lambda t: t.cumsum(1)),
    ("ct::partial_sum(t, 1_ic, ct::scan_backward_t{})", lambda t: t[:, ::-1].cumsum(1)[:, ::-1]),
    ("t + ct::sum(t, 0_ic)", lambda t: t + t.sum(0)),
    ("ct::select(t > 0.f, t, -t)", np.abs),
    ("ct::broadcast(ct::sum(t, 1_ic), ct::shape<8, 4>{})", lambda t: np.repeat(t.sum(1, keepdims=True), 4, 1)),
]


def shaped(text: str, want: Any) -> Parts:
    rows, columns = want(numbers(8, 16)).shape
    return declared(
        "auto t = rows_of<8, 16>(x, 8, 16).load_masked(0, 0);"
        f"rows_of<{rows}, {columns}>(y, {rows}, {columns}).store_masked({text}, 0, 0);"
    )


for shape in SHAPES:
    shaped(*shape)


@pytest.mark.parametrize(("text", "want"), thinned(SHAPES, 3, several=True))
def test_shapes(text: str, want: Any) -> None:
    x = numbers(8, 16)
    wanted = want(x).astype("f4")
    np.testing.assert_array_equal(run(shaped(text, want), x, wanted.shape, 8, 16), wanted)


OVER_THE_EDGE = declared("""
    int i = ct::bid().y, j = ct::bid().x;
    auto in = rows_of<8, 16>(x, m, n);
    auto out = rows_of<8, 16>(y, m, n);
    out.store_masked(in.load_masked(i, j) * 2.f, i, j);""")


@pytest.mark.parametrize("shape", thinned([(8, 16), (5, 16), (8, 11), (3, 7), (20, 40), (1, 1)], 3))
def test_tiles_over_the_edge_are_padded_and_not_stored(shape: tuple[int, int]) -> None:
    m, n = shape
    x, grid = numbers(m, n), (-(-n // 16), -(-m // 8))
    np.testing.assert_array_equal(run(OVER_THE_EDGE, x, shape, m, n, grid), 2 * x)


PADDINGS = [
    ("zero", 0.0), ("negative_zero", -0.0), ("positive_inf", np.inf), ("negative_inf", -np.inf), ("nan", np.nan),
]  # fmt: skip
PADDED = {
    tag: declared(f"""
    auto t = rows_of<8, 16>(x, m, n).load_masked(ct::view_padding_{tag}_t{{}}, 0, 0);
    rows_of<8, 16>(y, 8, 16).store(t, 0, 0);""")
    for tag, _ in PADDINGS
}


@pytest.mark.parametrize(("tag", "value"), thinned(PADDINGS, 2, several=True))
def test_padding(tag: str, value: float) -> None:
    x = numbers(3, 11)
    want = np.full((8, 16), value, "f4")
    want[:3, :11] = x
    got = run(PADDED[tag], x, (8, 16), 3, 11)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


STRIDED = {
    strides: declared(f"""
    auto extents = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>{{m, n}};
    auto steps = ct::strides<int, ct::dynamic_stride, ct::dynamic_stride>{{{strides[0]}, {strides[1]}}};
    auto span = ct::tensor_span{{x, ct::layout_strided_mapping{{extents, steps}}}};
    auto in = ct::partition_view{{span, ct::shape<8, 16>{{}}}};
    int i = ct::bid().y, j = ct::bid().x;
    rows_of<8, 16>(y, m, n).store_masked(in.load_masked(i, j), i, j);""")
    for strides in [(40, 1), (1, 20), (80, 2)]
}


@pytest.mark.parametrize("strides", thinned(STRIDED, 2))
def test_strided_arrays(strides: tuple[int, int]) -> None:
    x = numbers(20 * 80)
    want = np.lib.stride_tricks.as_strided(x, (20, 40), tuple(4 * each for each in strides))
    np.testing.assert_array_equal(run(STRIDED[strides], x, (20, 40), 20, 40, (3, 3)), want)


POINTERS = declared("""
    auto k = ct::iota<ct::tile<int, ct::shape<64>>>();
    auto t = ct::load_masked(x + (63 - k), k < n, 5.f);
    ct::store_masked(y + k, t, k != 3);""")


def test_pointer_tiles() -> None:
    x = numbers(64)
    want = np.where(np.arange(64) < 40, x[::-1], 5)
    want[3] = -1
    np.testing.assert_array_equal(run(POINTERS, x, 64, 64, 40), want)


ATOMICS = {
    "add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
ATOMIC = {
    name: declared(
        f"""
    auto k = ct::iota<ct::tile<int, ct::shape<64>>>();
    auto old = ct::atomic_{name}(y + (k & 1), ct::load(x + k), ct::memory_order_relaxed_t{{}},
                                 ct::thread_scope_device_t{{}});
    ct::store(z + k, old);""",
        "const int* x, int* y, int* z",
    )
    for name in ATOMICS
}


@pytest.mark.parametrize(("name", "function"), thinned(list(ATOMICS.items()), 3, several=True))
def test_atomics_on_one_address_come_one_after_the_other(name: str, function: Any) -> None:
    y, given = np.array([100, 7], "i4"), np.random.default_rng(1).integers(-99, 99, 64).astype("i4")
    z, want, before = np.zeros(64, "i4"), y.copy(), np.zeros(64, "i4")
    for k, value in enumerate(given):
        before[k] = want[k & 1]
        want[k & 1] = function(want[k & 1], value)
    together(*ATOMIC[name])(ck.emulator.stream(), ck.config(1), given, y, z)
    assert (y == want).all()
    assert (z == before).all()


CONTROL = {
    "for": ("int s = 0; for (auto i : ct::irange(0, n)) s = s + x[i]; y[0] = s;", lambda x, n: sum(x[:n])),
    "break": ("int s = 0; for (auto i : ct::irange(0, n)) { if (x[i] > 6) break; s = s + 1; } y[0] = s;", None),
    "continue": (
        "int s = 0; for (int i = 0; i < n; ++i) { if (x[i] & 1) continue; s = s + 1; } y[0] = s;",
        lambda x, n: sum(each % 2 == 0 for each in x[:n]),
    ),
    "while": (
        "int v = 27, c = 0; while (v != 1) { v = v & 1 ? 3 * v + 1 : v / 2; ++c; } y[0] = c;",
        lambda x, n: 111,
    ),
    "return": (
        "for (int i = 0; i < n; ++i) { if (x[i] > 6) { y[0] = i; return; } } y[0] = -5;",
        lambda x, n: next(k for k, each in enumerate(x) if each > 6),
    ),
    "nested": (
        "if (n > 3) { if (x[0] > 100) y[0] = 1; else if (x[0] > -100) { y[0] = 2; } else y[0] = 3; }",
        lambda x, n: 2,
    ),
    "two loops": (
        "int s = 0; for (int i = 0; i < n; ++i) for (int j = i; j < n; ++j) { if (j == 5) break; s += i * j; }"
        " y[0] = s;",
        lambda x, n: sum(i * j for i in range(n) for j in range(i, n) if j < 5 or i > 5),
    ),
    "unsigned": (
        "unsigned s = 0; for (unsigned i = 0xFFFFFFF0u; i != 0; ++i) s += 1; y[0] = s;",
        lambda x, n: 16,
    ),
}  # fmt: skip


CONTROLLED = {name: declared(body, "const int* x, int* y, int n") for name, (body, _) in CONTROL.items()}


@pytest.mark.parametrize("name", thinned(CONTROL, 2))
def test_control(name: str) -> None:
    _, want = CONTROL[name]
    x = np.random.default_rng(3).integers(-9, 9, 32).astype("i4")
    x[20] = 8
    y = np.zeros(1, "i4")
    together(*CONTROLLED[name])(ck.emulator.stream(step_budget=100_000), ck.config(1), x, y, 32)
    first = next(k for k, each in enumerate(x) if each > 6)
    assert y[0] == (first if want is None else want(x.tolist(), 32))


BYTES = {
    kind: declared(
        """
    auto l = rows_of<16, 32>(a, 16, 32).load(0, 0);
    auto c = rows_of<16, 16>(out, 16, 16);
    c.store(ct::mma(l, ct::transpose(l), c.load(0, 0)), 0, 0);""",
        f"const {kind}* a, int* out",
    )
    for kind in ("signed char", "unsigned char")
}


@pytest.mark.parametrize("kind", BYTES)
def test_products_of_bytes(kind: str) -> None:
    dtype = "i1" if kind == "signed char" else "u1"
    info = np.iinfo(dtype)
    a = np.random.default_rng(0).integers(info.min, info.max, (16, 32), dtype, endpoint=True)
    out = np.zeros((16, 16), "i4")
    together(*BYTES[kind])(ck.emulator.stream(), ck.config(1), a, out)
    assert (out == a.astype("i4") @ a.astype("i4").T).all()


PRODUCTS = {
    (name, dtype, cast): declared(
        f"""
    auto l = rows_of<16, 32>(a, 16, 32).load(0, 0);
    auto o = rows_of<16, 16>(out, 16, 16);
    o.store(ct::mma({cast}, ct::transpose({cast}), o.load(0, 0)), 0, 0);""",
        f"const {name}* a, {'double' if name == 'double' else 'float'}* out",
    )
    for name, dtype, cast in (
        ("__nv_fp8_e4m3", ml_dtypes.float8_e4m3fn, "l"),
        ("__nv_fp8_e5m2", ml_dtypes.float8_e5m2, "l"),
        ("__nv_bfloat16", ml_dtypes.bfloat16, "l"),
        ("__half", np.float16, "l"),
        ("float", np.float32, "l"),
        ("float", np.float32, "ct::element_cast<__nv_tf32>(l)"),
        ("double", np.float64, "l"),
    )
}


def test_products_of_floats() -> None:
    a = np.random.default_rng(0).integers(-4, 4, (16, 32)).astype("f4")
    for (name, dtype, _), parts in PRODUCTS.items():
        if name == "double":
            wide = np.ones((16, 16))
            run_text(parts, a.astype("f8") / 3, wide)
            np.testing.assert_allclose(wide, a.astype("f8") @ a.T / 9 + 1, atol=1e-13)
        else:
            out = np.ones((16, 16), "f4")
            run_text(parts, a.astype(dtype), out)
            np.testing.assert_array_equal(out, a @ a.T + 1)


def run_text(parts: Parts, *arguments: Any, arch: str = "sm_90") -> None:
    (newer if arch == "sm_100" else together)(*parts)(ck.emulator.stream(arch), ck.config(1), *arguments)


SCALED_PRODUCTS = declared(
    """
    auto l = rows_of<16, 32>(a, 16, 32).load(0, 0);
    auto s = ct::element_cast<__nv_fp8_e8m0>(ct::load(scale + ct::iota<ct::tile<int, ct::shape<16>>>()));
    auto o = rows_of<16, 16>(out, 16, 16);
    o.store(ct::scaled_mma(l, ct::reshape(s, ct::shape<16, 1>{}), ct::transpose(l), ct::reshape(s, ct::shape<1, 16>{}),
                           o.load(0, 0)), 0, 0);""",
    "const __nv_fp8_e4m3* a, const float* scale, float* out",
    newer,
)


def test_scaled_products() -> None:
    a = np.random.default_rng(0).integers(-4, 4, (16, 32)).astype("f4")
    out = np.zeros((16, 16), "f4")
    scale = np.exp2(np.arange(16) % 5 - 2).astype("f4")
    run_text(SCALED_PRODUCTS, a.astype(ml_dtypes.float8_e4m3fn), scale, out, arch="sm_100")
    np.testing.assert_array_equal(out, a @ a.T * scale[:, None] * scale)


BATCHES_OF_PRODUCTS = declared(
    """
    using E = ct::extents<int, 2, 16, 16>;
    auto l = ct::partition_view{ct::tensor_span{a, E{}}, ct::shape<2, 16, 16>{}}.load(0, 0, 0);
    auto o = ct::partition_view{ct::tensor_span{out, E{}}, ct::shape<2, 16, 16>{}};
    o.store(ct::mma(l, l, o.load(0, 0, 0)), 0, 0, 0);""",
    "const __nv_bfloat16* a, float* out",
)


def test_batches_of_products() -> None:
    a, out = np.random.default_rng(0).integers(-4, 4, (2, 16, 16)).astype("f4"), np.zeros((2, 16, 16), "f4")
    run_text(BATCHES_OF_PRODUCTS, a.astype(ml_dtypes.bfloat16), out)
    np.testing.assert_array_equal(out, a @ a)


TYPES_OF_FOUR_BITS = declared(
    """
    auto k = ct::iota<ct::tile<int, ct::shape<8>>>();
    auto v = ct::partition_view{ct::tensor_span{y, ct::extents<int, 8>{}}, ct::shape<8>{}};
    v.store(ct::element_cast<__nv_fp4_e2m1>(ct::load(x + k)), 0);
    ct::store(x + k, 1.f + ct::element_cast<float>(v.load(0)));""",
    "float* x, __nv_fp4_e2m1* y",
    newer,
)


def test_types_of_four_bits() -> None:
    x = np.array([0.5, 3, 448, 1e9, -2.6, 0.25, 0.75, 5], "f4")
    y = np.zeros(8, ml_dtypes.float4_e2m1fn)
    run_text(TYPES_OF_FOUR_BITS, x, y, arch="sm_100")
    want = np.array([0.5, 3, 6, 6, -3, 0, 1, 4], "f4")
    np.testing.assert_array_equal(y.astype("f4"), want)
    np.testing.assert_array_equal(x, want + 1)


SPAN = "ct::tensor_span{x, ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>{8, 16}}"


GATHERED_AND_OVERLAPPING_TILES = declared(
    f"""
    auto v = ct::gather_scatter_view{{{SPAN}, ct::shape<4, 16>{{}}, 0_ic}};
    auto i = 7 - ct::iota<ct::tile<int, ct::shape<4>>>() * 2;
    rows_of<4, 16>(y, 4, 16).store(v.load(i, 0), 0, 0);
    v.store(v.load(i, 0) + 1000.f, i - 1, 0);""",
    "float* x, float* y",
)
GATHERED_AND_OVERLAPPING_TILES_2 = declared(
    f"""
    auto v = ct::strided_view{{{SPAN}, ct::shape<4, 4>{{}}, ct::strides<int, 2, 3>{{}}}};
    rows_of<4, 4>(y, 4, 4).store(v.load(1, 2), 0, 0);""",
    "float* x, float* y",
)


def test_gathered_and_overlapping_tiles() -> None:
    x, y = np.arange(128, dtype="f4").reshape(8, 16), np.zeros((4, 16), "f4")
    before = x.copy()
    run_text(GATHERED_AND_OVERLAPPING_TILES, x, y)
    np.testing.assert_array_equal(y, before[7::-2])
    before[::2] = before[1::2] + 1000
    np.testing.assert_array_equal(x, before)
    y = np.zeros((4, 4), "f4")
    run_text(GATHERED_AND_OVERLAPPING_TILES_2, x, y)
    np.testing.assert_array_equal(y, x[2:6, 6:10])


HOW = "ct::memory_order_relaxed_t{}, ct::thread_scope_device_t{}"
ATOMICS_OF_VIEWS_AND_SWAPS = declared(
    f"auto v = ct::partition_view{{{SPAN}, ct::shape<4, 8>{{}}}};"
    f"v.atomic_add(ct::full<ct::tile<float, ct::shape<4, 8>>>(2.f), {HOW}, 1, 0);",
    "float* x",
)
ATOMICS_OF_VIEWS_AND_SWAPS_2 = declared(
    f"y[1] = ct::atomic_compare_exchange(y, 1, 9, {HOW}); y[2] = ct::atomic_xchg(y + 3, 4, {HOW});"
    f"y[5] = ct::atomic_compare_exchange(y + 4, 1, 9, {HOW});",
    "int* y",
)


def test_atomics_of_views_and_swaps() -> None:
    x = np.arange(128, dtype="f4").reshape(8, 16)
    want = x.copy()
    want[4:, :8] += 2
    run_text(ATOMICS_OF_VIEWS_AND_SWAPS, x)
    np.testing.assert_array_equal(x, want)
    y = np.array([1, 0, 0, 3, 5, 0], "i4")
    run_text(ATOMICS_OF_VIEWS_AND_SWAPS_2, y)
    assert y.tolist() == [9, 1, 3, 4, 5, 5]


VARIABLES_BITS_AND_POWERS = declared("x[0] = table[2]; table[2] += 1; x[1] = table[2];", "int* x")
VARIABLES_BITS_AND_POWERS_2 = declared(
    "auto t = ct::repack<int>(ct::load(x + ct::iota<ct::tile<int, ct::shape<16>>>()), 0_ic);"
    "ct::store(y + ct::iota<ct::tile<int, ct::shape<8>>>(), t);",
    "const short* x, int* y",
)
VARIABLES_BITS_AND_POWERS_3 = declared(
    "y[0] = ct::pow(y[1], y[2]); y[3] = ct::atan2(y[1], y[2]); y[4] = ct::powi(y[1], 3);", "float* y"
)


def test_variables_bits_and_powers() -> None:
    x = np.zeros(2, "i4")
    run_text(VARIABLES_BITS_AND_POWERS, x)
    assert x.tolist() == [7, 8]
    shorts, ints = np.arange(-8, 8, dtype="i2"), np.zeros(8, "i4")
    run_text(VARIABLES_BITS_AND_POWERS_2, shorts, ints)
    assert (ints == shorts.view("i4")).all()
    y = np.array([0, 2, 3, 0, 0], "f4")
    run_text(VARIABLES_BITS_AND_POWERS_3, y)
    np.testing.assert_allclose(y, [8, 2, 3, np.arctan2(2, 3), 8], rtol=1e-6)


OUTSIDE = [
    ("v.load_masked(4);", "tile 4 has elements 256 to 319 of dimension 0, which has 250"),
    ("v.store_masked(v.load_masked(0), -1);", "wholly outside"),
    ("v.load(3);", "elements 192 to 255 of dimension 0, which has 250, are not all inside"),
    (
        "ct::load(y + 250 + ct::iota<ct::tile<int, ct::shape<8>>>());",
        "y with 250 elements: element 250 is past the end",
    ),
    (
        "auto t = ct::extract(v.load(0), ct::shape<8>{}, n);"
        "ct::store(y + ct::zeros<ct::tile<int, ct::shape<1>>>(), ct::sum(t, 0_ic));",
        "subtile 250 of 8",
    ),
]
for one in OUTSIDE:
    declared(f"auto v = tiles_of<64>(y, n);{one[0]}", "float* y, int n")


@pytest.mark.parametrize(("body", "message"), thinned(OUTSIDE, 2, several=True))
def test_what_lies_outside_is_an_error(body: str, message: str) -> None:
    y = np.zeros(250, "f4")
    for order in (None, 1):
        with pytest.raises(ck.EmulationError, match=message):
            together("auto v = tiles_of<64>(y, n);" + body, "float* y, int n")(
                ck.emulator.stream(block_order=order), ck.config(1), y, 250
            )
