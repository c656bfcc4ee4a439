"""What tile kernels do with memory, shapes and control, beside NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.tiles import kernel, needs_tiles

import cudakit as ck

TWO = """
template <int R, int C, typename T> __tile__ auto rows_of(T* p, int m, int n) {
    return ct::partition_view{ct::tensor_span{p, ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>{m, n}},
                              ct::shape<R, C>{}};
}
"""
HEAD = "const float* __restrict__ x, float* __restrict__ y, int m, int n"


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


def run(body: str, x: np.ndarray, shape: Any, m: int, n: int, grid: Any = 1, head: str = HEAD) -> np.ndarray:
    y = np.full(shape, -1, x.dtype)
    kernel(body, head, TWO)(ck.emulator.stream(), ck.config(grid), x, y, m, n)
    return y


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype("f4")


@pytest.mark.parametrize(
    ("text", "want"),
    [
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
    ],
)
def test_shapes(text: str, want: Any) -> None:
    x = numbers(8, 16)
    wanted = want(x).astype("f4")
    rows, columns = wanted.shape
    body = "auto t = rows_of<8, 16>(x, 8, 16).load_masked(0, 0);"
    body += f"rows_of<{rows}, {columns}>(y, {rows}, {columns}).store_masked({text}, 0, 0);"
    np.testing.assert_array_equal(run(body, x, wanted.shape, 8, 16), wanted)


def _inserted(t: np.ndarray) -> np.ndarray:
    made = t.copy()
    made[4:, 12:] = t[:4, :4]
    return made


@pytest.mark.parametrize("shape", [(8, 16), (5, 16), (8, 11), (3, 7), (20, 40), (1, 1)])
def test_tiles_over_the_edge_are_padded_and_not_stored(shape: tuple[int, int]) -> None:
    m, n = shape
    x, grid = numbers(m, n), (-(-n // 16), -(-m // 8))
    body = """
    int i = ct::bid().y, j = ct::bid().x;
    auto in = rows_of<8, 16>(x, m, n);
    auto out = rows_of<8, 16>(y, m, n);
    out.store_masked(in.load_masked(i, j) * 2.f, i, j);"""
    np.testing.assert_array_equal(run(body, x, shape, m, n, grid), 2 * x)


@pytest.mark.parametrize(
    ("tag", "value"),
    [("zero", 0.0), ("negative_zero", -0.0), ("positive_inf", np.inf), ("negative_inf", -np.inf), ("nan", np.nan)],
)
def test_padding(tag: str, value: float) -> None:
    x = numbers(3, 11)
    body = f"""
    auto t = rows_of<8, 16>(x, m, n).load_masked(ct::view_padding_{tag}_t{{}}, 0, 0);
    rows_of<8, 16>(y, 8, 16).store(t, 0, 0);"""
    want = np.full((8, 16), value, "f4")
    want[:3, :11] = x
    got = run(body, x, (8, 16), 3, 11)
    np.testing.assert_array_equal(got, want)
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("strides", [(40, 1), (1, 20), (80, 2)])
def test_strided_arrays(strides: tuple[int, int]) -> None:
    x = numbers(20 * 80)
    body = f"""
    auto extents = ct::extents<int, ct::dynamic_extent, ct::dynamic_extent>{{m, n}};
    auto steps = ct::strides<int, ct::dynamic_stride, ct::dynamic_stride>{{{strides[0]}, {strides[1]}}};
    auto span = ct::tensor_span{{x, ct::layout_strided_mapping{{extents, steps}}}};
    auto in = ct::partition_view{{span, ct::shape<8, 16>{{}}}};
    int i = ct::bid().y, j = ct::bid().x;
    rows_of<8, 16>(y, m, n).store_masked(in.load_masked(i, j), i, j);"""
    want = np.lib.stride_tricks.as_strided(x, (20, 40), tuple(4 * each for each in strides))
    np.testing.assert_array_equal(run(body, x, (20, 40), 20, 40, (3, 3)), want)


def test_pointer_tiles() -> None:
    x = numbers(64)
    body = """
    auto k = ct::iota<ct::tile<int, ct::shape<64>>>();
    auto t = ct::load_masked(x + (63 - k), k < n, 5.f);
    ct::store_masked(y + k, t, k != 3);"""
    want = np.where(np.arange(64) < 40, x[::-1], 5)
    want[3] = -1
    np.testing.assert_array_equal(run(body, x, 64, 64, 40), want)


@pytest.mark.parametrize(
    ("name", "function"), [("add", np.add), ("sub", np.subtract), ("max", np.maximum), ("min", np.minimum),
        ("and", np.bitwise_and), ("or", np.bitwise_or), ("xor", np.bitwise_xor)]
)  # fmt: skip
def test_atomics_on_one_address_come_one_after_the_other(name: str, function: Any) -> None:
    y, given = np.array([100, 7], "i4"), np.random.default_rng(1).integers(-99, 99, 64).astype("i4")
    body = f"""
    auto k = ct::iota<ct::tile<int, ct::shape<64>>>();
    auto old = ct::atomic_{name}(y + (k & 1), ct::load(x + k), ct::memory_order_relaxed_t{{}},
                                 ct::thread_scope_device_t{{}});
    ct::store(z + k, old);"""
    z, want, before = np.zeros(64, "i4"), y.copy(), np.zeros(64, "i4")
    for k, value in enumerate(given):
        before[k] = want[k & 1]
        want[k & 1] = function(want[k & 1], value)
    kernel(body, "const int* x, int* y, int* z")(ck.emulator.stream(), ck.config(1), given, y, z)
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


@pytest.mark.parametrize("name", CONTROL)
def test_control(name: str) -> None:
    body, want = CONTROL[name]
    x = np.random.default_rng(3).integers(-9, 9, 32).astype("i4")
    x[20] = 8
    y = np.zeros(1, "i4")
    kernel(body, "const int* x, int* y, int n")(ck.emulator.stream(step_budget=100_000), ck.config(1), x, y, 32)
    first = next(k for k, each in enumerate(x) if each > 6)
    assert y[0] == (first if want is None else want(x.tolist(), 32))


@pytest.mark.parametrize("kind", ["signed char", "unsigned char"])
def test_products_of_bytes(kind: str) -> None:
    dtype = "i1" if kind == "signed char" else "u1"
    info = np.iinfo(dtype)
    a = np.random.default_rng(0).integers(info.min, info.max, (16, 32), dtype, endpoint=True)
    out = np.zeros((16, 16), "i4")
    body = """
    auto l = rows_of<16, 32>(a, 16, 32).load(0, 0);
    auto c = rows_of<16, 16>(out, 16, 16);
    c.store(ct::mma(l, ct::transpose(l), c.load(0, 0)), 0, 0);"""
    kernel(body, f"const {kind}* a, int* out", TWO)(ck.emulator.stream(), ck.config(1), a, out)
    assert (out == a.astype("i4") @ a.astype("i4").T).all()
