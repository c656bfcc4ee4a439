"""Functions made from expressions: types, shapes, strides, outputs, masks and errors against NumPy."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.places import to_host
from support.tiers import in_tiers
from support.views import few

import cudakit as ck
from cudakit.generate import elementwise_code
from cudakit.generate.declarations import is_set_first, parse
from cudakit.generate.elementwise import elementwise

axpby = elementwise("T a, T x, T b, T y", "T z", "z = a * x + b * y", name="axpby")
mix = elementwise("T x, S y", "T z", "z = x - T(2) * T(y)", name="mix")
numbered = elementwise("T x", "int64 k", "k = i * 1000 + n + _ind[_ind[0] * 0]", name="numbered")
clip = elementwise("T x", "T z", "if (x > 3) z = x;", name="clip")


def check(got: Any, want: Any) -> None:
    """Bit for bit, and of the same dtype."""
    host, want = to_host(got), np.asarray(want)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    np.testing.assert_array_equal(host, want)


# ── shapes and strides ───────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Laid:
    """An array of a shape, with some dimensions of 1, in any order in memory, with gaps and reversed."""

    shape: tuple[int, ...]
    ones: tuple[bool, ...]
    order: tuple[int, ...]
    steps: tuple[int, ...]
    drop: int
    seed: int

    def on(self, xp: Any, dtype: str) -> Any:
        extents = [1 if one else n for n, one in zip(self.shape, self.ones, strict=True)]
        base = [extents[d] * abs(self.steps[d]) for d in self.order]
        values = np.asarray(np.random.default_rng(self.seed).integers(-50, 50, base)).astype(dtype)
        index = tuple(slice(None, None, self.steps[d]) for d in self.order)
        view = xp.asarray(values)[(*index, ...)].transpose(tuple(np.argsort(self.order)))
        dropped = min(self.drop, len(self.shape))
        return view[(*(0,) * dropped, ...)] if all(self.ones[:dropped]) and 0 not in self.shape[:dropped] else view


@st.composite
def laids(draw: st.DrawFn, shape: tuple[int, ...], full: bool = False) -> Laid:
    return Laid(
        shape,
        tuple(not full and draw(st.integers(0, 3)) == 0 for _ in shape),
        tuple(draw(st.permutations(range(len(shape))))),
        tuple(draw(st.sampled_from([1, 1, 1, 2, -1, -2])) for _ in shape),
        0 if full else draw(st.integers(0, 2)),
        draw(st.integers(0, 99)),
    )


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Laid, Laid, Laid]:
    """Two inputs that broadcast, and an output of their full shape."""
    extent = st.one_of(st.integers(1, 6), st.sampled_from([0, 9, 33, 40]))
    shape = tuple(draw(extent) for _ in range(draw(st.integers(0, 4))))
    return draw(laids(shape)), draw(laids(shape)), draw(laids(shape, full=True))


@pytest.mark.slow
@few
@given(case=pairs(), types=st.sampled_from([("i4", "i4"), ("f8", "i2"), ("i1", "i1"), ("f2", "f2")]))
def test_any_two_arrays_broadcast_as_numpy_does(xp: Any, case: tuple[Laid, ...], types: tuple[str, str]) -> None:
    x, y = case[0].on(xp, types[0]), case[1].on(xp, types[1])
    want = (to_host(x) - 2 * to_host(y).astype(types[0])).astype(types[0])
    got = mix(x, y)
    assert got.flags.c_contiguous
    check(got, want)


@few
@given(case=pairs())
def test_out_of_any_strides_and_nothing_beside_it(xp: Any, case: tuple[Laid, ...]) -> None:
    x, y, out = case[0].on(xp, "i4"), case[1].on(xp, "i4"), case[2].on(xp, "i4")
    want = np.broadcast_to(to_host(x) - 2 * to_host(y), out.shape)
    base = out if out.base is None else out.base
    before = to_host(base)
    assert mix(x, y, out=out) is out
    check(out, want)
    changed = (to_host(base) != before).sum()
    assert changed <= out.size


@pytest.mark.slow
@few
@given(case=pairs())
def test_index_and_coordinates_are_the_results_own(xp: Any, case: tuple[Laid, ...]) -> None:
    x = case[2].on(xp, "f4")
    if x.ndim == 0:
        return
    want = np.arange(x.size).reshape(x.shape) * 1000 + x.size + np.indices(x.shape)[0]
    check(numbered(x), want)
    out = case[2].on(xp, "i8")
    check(numbered(x, out=out), want)


@in_tiers(
    "dtype, size",
    ["f4", "i1", "c16"],
    [0, 1, 3, 4, 127, 511, 512, 513, 4099],
    quick=lambda dtype, size: dtype == "f4" or (dtype == "i1" and size == 513),
    strength=None,
)
def test_contiguous_sizes(xp: Any, dtype: str, size: int) -> None:
    x = np.arange(size).astype(dtype)
    check(mix(xp.asarray(x), xp.asarray(x[::-1].copy())), x - 2 * x[::-1])
    if size > 1:
        check(mix(xp.asarray(x)[1:], xp.asarray(x)[:-1]), x[1:] - 2 * x[:-1])


def test_layouts_have_the_kernels_that_they_should(xp: Any) -> None:
    x, y = xp.zeros((40, 64), np.float32), xp.zeros((40, 64), np.float32)
    for left, right, out, kind in [
        (x, y, None, "flat_run"),
        (x.T, y.T, y.T.copy().T, "flat_run"),
        (x, y[0, 0], None, "flat_run"),
        (x, y[0], None, "strided_run"),
        (x[:, ::2], y[:, ::2], None, "strided_run"),
        (x.T, y.T, None, "tiled_run"),
        (x.T, y[:, :1].T[:, :1], None, "tiled_run"),
    ]:
        out = None if out is None else xp.zeros((40, 64), np.float32).T
        mix(left, right, out=out)
        assert kind in mix.source
    # 16 bytes a thread, and the read-only way where nothing is written in place.
    mix(x, y)
    assert "flat_run<COUNT, true>" in mix.source
    mix(x, y, out=x)
    assert "flat_run<COUNT, false>" in mix.source


#: Tiles of one and of four bytes depend on whether there are many elements, those of other sizes do not.
_FEW_OF = {("i1", (70, 67)), ("f4", (135, 140)), ("i1", (3, 40, 72)), ("f4", (3, 40, 72))}


@in_tiers(
    "dtype, shape, many",
    ["i1", "f2", "f4", "f8", "c16"],
    [(64, 128), (70, 67), (130, 33), (135, 140), (3, 40, 72)],
    [0, 1 << 30],
    quick=lambda dtype, shape, many: (
        (dtype, shape, many)
        in {
            ("f2", (130, 33), 1 << 30),
            ("f4", (3, 40, 72), 1 << 30),
        }
    ),
    whole=lambda dtype, shape, many: (
        (many == 0) == (dtype == "f8") if dtype in ("f2", "f8", "c16") else many == 0 or (dtype, shape) in _FEW_OF
    ),
    strength=None,
)
def test_tiles_of_every_size(
    xp: Any, dtype: str, shape: tuple[int, ...], many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elementwise_code, "_MANY", many)
    narrow = elementwise("T x, T y, int32 k", "T z, int64 j", "z = x - T(2) * y; j = i + k", name="narrow")
    host = (np.arange(np.prod(shape)) % 61).reshape(shape).astype(dtype)
    x, y = xp.asarray(np.ascontiguousarray(host.swapaxes(-1, -2))).swapaxes(-1, -2), xp.asarray(host)
    k = np.arange(shape[-2], dtype="i4")[:, None]
    z, j = narrow(x, y, xp.asarray(k))
    check(z, host - host.dtype.type(2) * host)
    check(j, np.arange(host.size).reshape(shape) + k)
    same = mix(x, y[..., :1, 1:2])
    check(same, host - host.dtype.type(2) * host[..., :1, 1:2])
    # Tiles whose lines do not begin at 16 bytes; and those that do not take all threads.
    check(mix(x[..., 1:, 1:], y[..., 1:, 1:]), -host[..., 1:, 1:])
    check(mix(x, xp.asarray(np.full((), 1, "f8"))), host - host.dtype.type(2))


@in_tiers("dtype", ["i1", "f2", "u2"], quick=lambda dtype: dtype == "u2", strength=None)
def test_every_second_of_small_elements(xp: Any, dtype: str) -> None:
    host = (np.arange(6 * 301) % 61).reshape(6, 301).astype(dtype)
    for start in range(5):
        # Copies, so that what lies beyond the last element is not there.
        x = xp.asarray(host[:, : 296 + start].copy())
        part = host[:, start : 296 + start : 2]
        check(mix(x[:, start::2], x[:, start::2]), part - host.dtype.type(2) * part)
        assert "load_second" in mix.source


def test_in_place_and_slices(xp: Any) -> None:
    host = np.arange(60, dtype="f4").reshape(6, 10)
    x = xp.asarray(host.copy())
    assert axpby(2, x, 1, x, out=x) is x
    check(x, 3 * host)
    axpby(1, x[1:3], 0, x[1:3], out=x[1:3])
    part = x[::2, 3:9:2]
    axpby(2, part, 0, part, out=part)
    want = 3 * host
    want[::2, 3:9:2] *= 2
    check(x, want)


def test_outputs_may_be_read_where_they_were_given(xp: Any) -> None:
    total = elementwise("T x", "T z", "z += x", name="total")
    z = xp.asarray(np.arange(5.0))
    total(xp.asarray(np.ones(5)), out=z)
    check(z, np.arange(5.0) + 1)
    check(total(xp.asarray(np.ones(5))), np.ones(5))
    host = np.arange(6, dtype="i4")
    check(clip(xp.asarray(host)), np.where(host > 3, host, 0))
    kept = xp.asarray(np.full(6, 9, "i4"))
    check(clip(xp.asarray(host), out=kept), np.where(host > 3, host, 9))


def test_which_outputs_are_set_first() -> None:
    assert is_set_first("z = x", "z")
    assert is_set_first("float k = 2; /* z */ z = k; w = z", "z")
    for body in (
        "z = z + x",
        "if (x) z = 1;",
        "z == x",
        "z += 1",
        "for (;;) {} z = 3;",
        "f(z)",
        "return; z = 1",
        "w = 1",
    ):
        assert not is_set_first(body, "z")


# ── types ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_tiers(
    "right, left",
    ["i2", "f4"],
    ["?", "i1", "u4", "i8", "f2", "f4", "f8", "c8"],
    quick=lambda right, left: right == "i2" and left in ("?", "u4", "f2"),
    # With a number of another kind, and of its own kind, in turn: what is promoted to is NumPy's own answer.
    whole=lambda right, left: (right == "i2") == (left in ("?", "u4", "f2", "f8")) or left in ("i8", "f4"),
    strength=None,
)
def test_type_variables_are_promoted_as_numpy_does(xp: Any, right: str, left: str) -> None:
    same = elementwise("T x, T y", "T z", "z = x", name="same")
    x, y = np.arange(6).astype(left), np.arange(6).astype(right)
    check(same(xp.asarray(x), xp.asarray(y)), x.astype(np.result_type(x, y)))


def test_python_numbers_are_weak_and_numpys_are_not(xp: Any) -> None:
    x = xp.asarray(np.arange(3, dtype="f4"))
    assert axpby(2, x, True, 1.5).dtype == np.float32
    assert axpby(np.float64(2), x, 1, 1).dtype == np.float64
    assert axpby(2, xp.asarray(np.arange(3, dtype="i1")), 1, 1).dtype == np.int8
    assert axpby(2.0, xp.asarray(np.arange(3, dtype="i1")), 1, 1).dtype == np.float64
    check(axpby(2, xp.asarray(np.float32(3)), 1, 1), np.float32(7))


def test_two_outputs_of_their_own_types(xp: Any) -> None:
    split = elementwise("T x", "int32 whole, T rest", "whole = floor(x); rest = x - whole", name="split")
    x = np.array([1.5, -2.25, 3.0])
    whole, rest = split(xp.asarray(x))
    check(whole, np.floor(x).astype("i4"))
    check(rest, x - np.floor(x))
    out = xp.zeros(3, np.int64), xp.zeros(3)
    assert split(xp.asarray(x), out=out)[0] is out[0]
    check(out[0], np.floor(x).astype("i8"))
    given = xp.zeros(3, np.int32)
    assert split(xp.asarray(x), out=(given, None))[0] is given
    split(xp.asarray(x), *out)


def test_half_and_bfloat16(xp: Any) -> None:
    x = np.arange(9).astype("f2")
    check(axpby(2, xp.asarray(x), 1, xp.asarray(x)), (3 * x).astype("f2"))
    root = elementwise("T x", "T z", "T twice = 2 * x; twice += 1; z = sqrt(twice) > 2 ? x : T(0)", name="root")
    check(root(xp.asarray(x)), np.where(np.sqrt(2 * x + 1) > 2, x, 0).astype("f2"))
    raw = elementwise("raw float16 x, half by", "half z", "z = x[n - 1 - i] * by", name="raw_half")
    check(raw(xp.asarray(x)[::2], 2.0), 2 * x[::2][::-1])
    if xp is np:  # CuPy has no bfloat16 arrays of ml_dtypes
        b = np.arange(9).astype(ml_dtypes.bfloat16)
        got = axpby(2.0, b, 1, b)
        assert got.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(got.astype("f4"), 3 * b.astype("f4"))


@pytest.mark.slow
def test_complex_in_every_form(xp: Any) -> None:
    x = np.arange(40 * 33).reshape(40, 33) * (1 + 2j)
    y = np.arange(33 * 40).reshape(33, 40).astype("c8")
    norm = elementwise("T x, S y", "T z", "z = x * T(y.real(), y.imag())", name="times")
    check(norm(xp.asarray(x), xp.asarray(y).T), x * y.T.astype("c16"))
    check(mix(xp.asarray(x), xp.asarray(x)), x - 2 * x)


@dataclass
class Point:
    x: np.float32
    y: np.float32
    weight: np.float64


def test_structs_as_elements_and_numbers(xp: Any) -> None:
    dtype = np.dtype([("x", "f4"), ("y", "f4"), ("weight", "f8")])
    if xp is not np:
        pytest.skip("CuPy has no arrays of structs")
    points = np.zeros(40, dtype)
    points["x"], points["weight"] = np.arange(40), 2
    moved = elementwise("P p, P by", "P q, float64 far", "q = p; q.x += by.x; far = p.weight * q.x", name="moved")
    q, far = moved(points, Point(np.float32(3), np.float32(0), 1.0))
    np.testing.assert_array_equal(q["x"], np.arange(40) + 3)
    np.testing.assert_array_equal(q["weight"], 2)
    np.testing.assert_array_equal(far, 2.0 * (np.arange(40) + 3))
    np.testing.assert_array_equal(moved(points[::2], points[::2])[1], 2.0 * 2 * np.arange(0, 40, 2))
    named = elementwise(
        "Point p",
        "double d",
        "d = p.x * p.weight",
        name="named",
        preamble="struct Point { float x, y; double weight; };",
    )
    np.testing.assert_array_equal(named(points), 2.0 * np.arange(40))


# ── raw arguments, loops, preambles ──────────────────────────────────────────────────────────────────────────────────


def test_raw_arguments_by_number_and_by_coordinates(xp: Any) -> None:
    reverse = elementwise("raw T x", "T z", "z = x[n - 1 - i]", name="reverse")
    host = np.arange(24.0).reshape(4, 6)
    x = xp.asarray(host)
    check(reverse(x[:, ::2]), host[:, ::2].reshape(-1)[::-1].reshape(4, 3))
    check(reverse(x, size=24), host.reshape(-1)[::-1])
    check(reverse(x.T, out=xp.zeros(24)), host.T.reshape(-1)[::-1])
    swapped = elementwise("raw T x", "T z", "z = x(_ind[1], _ind[0]) + x.shape(0) + x.size()", name="swapped")
    check(swapped(x, out=xp.zeros((6, 4))), host.T + 4 + 24)
    check(swapped(x.T, out=xp.zeros((4, 6))), host + 6 + 24)


def test_what_cupys_guide_shows(xp: Any) -> None:
    x, y = np.arange(10, dtype="f4").reshape(2, 5), np.arange(5, dtype="f4")
    squared = elementwise("float32 x, float32 y", "float32 z", "z = (x - y) * (x - y)", "squared_diff")
    check(squared(xp.asarray(x), xp.asarray(y)), (x - y) ** 2)
    check(squared(xp.asarray(x), 5), (x - 5) ** 2)
    z = xp.empty((2, 5), np.float32)
    squared(xp.asarray(x), xp.asarray(y), z)
    check(z, (x - y) ** 2)
    generic = elementwise("X x, Y y", "Z z", "Z d = x - y; z = d * d", "super_generic")
    check(generic(xp.asarray(x), xp.arange(5), out=xp.empty((2, 5))), (x - y).astype("f8") ** 2)
    with pytest.raises(ck.ArgumentError, match="the type Z of z cannot be deduced"):
        generic(xp.asarray(x), xp.asarray(y))
    backward = elementwise("T x, raw T y", "T z", "z = x + y[_ind.size() - i - 1]", "add_reverse")
    check(backward(xp.asarray(y), xp.asarray(2 * y)), y + 2 * y[::-1])


def test_pointers_as_pycuda_has_them(xp: Any) -> None:
    linear = elementwise(
        "float a, const float* x, float b, const float *y", "float *z", "z[i] = a * x[i] + b * y[i]", name="linear"
    )
    x, y = np.arange(300, dtype="f4"), np.ones(300, "f4")
    z = xp.zeros(300, np.float32)
    linear(5, xp.asarray(x), 6, xp.asarray(y), z)
    check(z, 5 * x + 6 * y)
    with pytest.raises(ck.ArgumentError, match="output z: it is raw"):
        linear(5, xp.asarray(x), 6, xp.asarray(y))


def test_statements_loops_and_a_preamble(xp: Any) -> None:
    collatz = elementwise(
        "T x",
        "int32 steps",
        "T at = x; int count = 0;\nwhile (at != 1) { at = next(at); ++count; }\nsteps = count;",
        name="collatz",
        preamble="template <typename T> __device__ T next(T x) { return x % 2 ? 3 * x + 1 : x / 2; }",
    )

    def steps(x: int) -> int:
        return 0 if x == 1 else 1 + steps(3 * x + 1 if x % 2 else x // 2)

    check(collatz(xp.arange(1, 40)), np.array([steps(x) for x in range(1, 40)], "i4"))


def test_coordinates_and_shape(xp: Any) -> None:
    where = elementwise("raw T x", "int64 k", "k = _ind[0] * 100 + _ind.get()[1] * 10 + _shape[1]", name="where_it_is")
    got = where(xp.zeros((3, 4)))
    check(got, np.indices((3, 4))[0] * 100 + np.indices((3, 4))[1] * 10 + 4)


# ── masks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@in_tiers("layout", ["flat", "row", "transposed"], quick=lambda layout: layout != "flat", strength=None)
def test_where_leaves_the_others(xp: Any, layout: str) -> None:
    x = np.arange(40 * 50, dtype="f4").reshape(40, 50)
    mask = x % 3 == 1
    if layout == "row":
        mask = mask[0]
    given = xp.asarray(mask.T.copy()).T if layout == "transposed" else xp.asarray(mask)
    full = np.broadcast_to(mask, x.shape)
    check(axpby(2, xp.asarray(x), 1, 1, where=given), np.where(full, 2 * x + 1, 0).astype("f4"))
    out = xp.asarray(np.full(x.shape, -1, "f4"))
    check(axpby(2, xp.asarray(x), 1, 1, where=given, out=out), np.where(full, 2 * x + 1, -1).astype("f4"))
    out = xp.asarray(np.full(x.shape[::-1], -1, "f4")).T
    check(axpby(2, xp.asarray(x), 1, 1, where=given, out=out), np.where(full, 2 * x + 1, -1).astype("f4"))


def test_where_of_two_outputs_one_of_them_new(xp: Any) -> None:
    pair = elementwise("T x", "T z, T w", "z = x; w = 2 * x", name="pair")
    x = np.arange(1, 9.0)
    out = xp.full(8, -1.0)
    _, new = pair(xp.asarray(x), out=(out, None), where=xp.asarray(x > 4))
    check(out, np.where(x > 4, x, -1))
    check(new, np.where(x > 4, 2 * x, 0))


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_compile_error_points_into_the_expression(xp: Any) -> None:
    wrong = elementwise("T x", "T z", "T twice = 2 * x;\nz = twise", name="wrong", preamble="// nothing\n")
    with pytest.raises(ck.CompileError) as raised:
        wrong(xp.zeros(3))
    assert '<wrong expression>:2: error: identifier "twise" is undefined' in str(raised.value)
    assert "the expression has the names x, z, i, n, _ind, _shape, T" in str(raised.value)
    endless = elementwise("T x", "T z", "z = x > 0 ? x : -INFINITY", name="endless")
    with pytest.raises(ck.CompileError, match="hint: INFINITY needs preamble='#include <cmath>' beside the expression"):
        endless(xp.zeros(3))
    broken = elementwise(
        "T x", "T z", "z = f(x)", name="broken", preamble="\n__device__ float f(float x) { return y; }"
    )
    with pytest.raises(ck.CompileError, match="<broken preamble>:2: error"):
        broken(xp.zeros(3))


def test_a_body_that_ends_with_a_brace_initialiser(xp: Any) -> None:
    x = xp.arange(4, dtype=xp.float32)
    zero = ck.elementwise("T x", "T z", "z = T{0}", name="zero")
    check(zero(x), np.zeros(4, "f4"))
    branch = ck.elementwise("T x", "T z", "if (x > 1) { z = x; } else { z = T{9} ; }", name="branch")
    check(branch(x), np.array([9, 9, 2, 3], "f4"))


def test_a_body_without_statements_leaves_its_outputs(xp: Any) -> None:
    nothing = ck.elementwise("T x", "T z", "", name="nothing")
    x = xp.arange(3)
    check(nothing(x), np.zeros(3, int))
    out = xp.arange(3) + 5
    check(nothing(x, out=out), np.arange(3) + 5)
    with pytest.raises(ck.TemplateError, match="must be C"):
        ck.elementwise("T x", "T z", None, name="f")  # type: ignore[arg-type]


def test_a_raw_output_is_made_where_none_is_given(xp: Any) -> None:
    x = xp.arange(5, dtype=xp.float32)
    mirror = ck.elementwise("raw T x", "raw T z", "if (i % 2) z[n - 1 - i] = x[i]", name="mirror")
    for _ in range(4):  # as calls are frozen
        check(mirror(x, size=5), np.array([0, 3, 0, 1, 0], "f4"))
    check(mirror(x, size=4), np.array([3, 0, 1, 0], "f4"))
    check(mirror(xp.zeros((0, 3), "i4"), size=(0, 3)), np.zeros((0, 3), "i4"))
    like = ck.elementwise("raw T x, T y", "raw T z", "z[n - 1 - i] = x[i] + y", name="like")
    for _ in range(4):
        check(like(x, x), 2 * np.arange(5, dtype="f4")[::-1])


def test_structs_without_dimensions(xp: Any) -> None:
    if xp is not np:
        pytest.skip("CuPy's arrays have no structs")
    pair = np.dtype([("low", "f4"), ("high", "f4")])
    struct = "struct P { float low; float high; };"
    same = ck.elementwise("P a", "P z", "z = a;", preamble=struct, name="same")
    check(same(np.array((1, 2), pair)), np.array((1, 2), pair))
    check(same(np.array((1, 2), pair), out=np.zeros((), pair)), np.array((1, 2), pair))


@in_tiers("shape", [(2, 3, 4), (24,), (1, 1), (3, 0)], quick=lambda shape: shape == (2, 3, 4), strength=None)
def test_raw_arguments_as_cupy_has_them(xp: Any, shape: tuple[int, ...]) -> None:
    host = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    x = xp.asarray(host)
    turned = ck.elementwise("raw T x, T like", "T y", "y = x[_ind.size() - i - 1]", name="turned")
    check(turned(x, x), host.ravel()[::-1].reshape(shape))
    coordinates = ck.elementwise("raw T x, T like", "T y", "y = x[_ind.get()]", name="coordinates")
    for view, like in ((x, x), (x.T, x.T), (x[::-1], x)):
        check(coordinates(view, like), to_host(view))
    rank = len(shape)
    told = ck.elementwise(
        "raw T x",
        "int64 y",
        "y = x.shape()[i] * 1000000 + x.strides()[i] * 1000 + x.ndim * 100 + x.size()",
        name="told",
    )
    want = [n * 1000000 + s * 1000 + rank * 100 + host.size for n, s in zip(shape, x.strides, strict=True)]
    check(told(x, size=rank), np.array(want))


def test_an_array_as_an_index(xp: Any) -> None:
    host = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    x = xp.asarray(host)
    for k in ("ptrdiff_t k[] = {i / 12, i / 4 % 3, i % 4};", "int j[] = {1, 2, 3}; const int* k = j;"):
        picked = ck.elementwise("raw T x, T like", "int32 y", f"{k} y = x[k]", name="picked")
        check(picked(x, x), host if "12" in k else np.full_like(host, 23))
    written = ck.elementwise("T x", "raw T y", "y[_ind.get()] = x", name="written")
    check(written(x), host)


@pytest.mark.slow
def test_complex_as_cupy_names_it(xp: Any) -> None:
    x = xp.asarray(np.array([1 + 2j, 3], np.complex64))
    turned = ck.elementwise("complex64 x", "complex64 y", "y = x * complex<float>(0, 1)", name="turned")
    check(turned(x), to_host(x) * np.complex64(1j))
    declared = ck.elementwise(
        "complex<float> x", "complex<double> y", "y = halved(x)", name="declared",
        preamble="__device__ complex<double> halved(complex<float> x) { return complex<double>(x) * 0.5; }",
    )  # fmt: skip
    check(declared(x), to_host(x).astype("c16") * 0.5)
    own = ck.elementwise(
        "T x", "T y", "y = complex<T>{x}.twice()", name="own",
        preamble="template <typename T> struct complex { T x; __device__ T twice() { return x + x; } };",
    )  # fmt: skip
    check(own(xp.arange(3)), np.arange(3) * 2)


@pytest.mark.slow
def test_complex_of_reductions_as_cupy_names_it(xp: Any) -> None:
    x = xp.asarray(np.array([1 + 2j, 3], np.complex64))
    total = ck.reduction(
        "complex64 x", "complex64 y", "x * complex<float>(0, 1)", "a + b", "complex<float>(0)", name="t"
    )
    check(total(x), (to_host(x) * np.complex64(1j)).sum())


@in_tiers("kind", ["U", "uint64", "cudaTextureObject_t"], quick=lambda kind: kind == "U", strength=None)
def test_textures(xp: Any, stream: Any, kind: str) -> None:
    data = xp.arange(8, dtype=xp.float32)
    texture = ck.texture(data)
    fetched = ck.elementwise(f"T x, {kind} tex", "T y", "y = x + tex1D<float>(tex, float(i))", name="fetched")
    for _ in range(4):
        check(fetched(data, texture), 2 * np.arange(8, dtype="f4"))
    total = ck.reduction(f"T x, {kind} tex", "T y", "x + tex1D<float>(tex, float(i))", "a + b", "0", name="total")
    assert float(total(data, texture)) == 56
    with pytest.raises(ck.ArgumentError, match="tex is raw and takes an array, got TextureObject"):
        ck.elementwise("T x, raw T tex", "T y", "y = x + tex[i]", name="f")(data, texture)


def test_a_block_size(xp: Any) -> None:
    threads = ck.elementwise("T x", "int32 y", "y = blockDim.x", name="threads")
    x = xp.zeros((70, 90), "f8")
    for size in (32, 100, 1024):
        for _ in range(3):
            check(threads(x, block_size=size), np.full(x.shape, size, "i4"))
        check(threads(x[::2, ::3], block_size=size), np.full((35, 30), size, "i4"))
    check(threads(x), np.full(x.shape, 128, "i4"))
    check(axpby(1.0, x.T, 2.0, x.T, block_size=64), np.zeros((90, 70)))
    for wrong in (0, 1025, 2.5, "64"):
        with pytest.raises(ck.ArgumentError, match="block_size must be an int, 1 to 1024 threads"):
            threads(x, block_size=wrong)


def test_an_output_that_is_never_set(xp: Any) -> None:
    with pytest.raises(ck.TemplateError, match=r"the expression 'x \* 2 // z' never sets z; write 'z = …'"):
        ck.elementwise("T x", "T z", "x * 2 // z", name="f")
    by_macro = ck.elementwise("T x", "T z", "GIVE(x)", name="f", preamble="#define GIVE(v) z = v")
    assert to_host(by_macro(xp.ones(2))).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flaot x", "no type is called 'flaot'; did you mean float"),
        ("T", "a type and a name"),
        ("T x, S x", "two arguments are called 'x'"),
        ("T i", "cannot be called 'i'"),
        ("T for", "a word of C"),
        ("T& x", "leave the & out"),
        ("T** x", "no pointers to pointers"),
        ("T x_", "generated code"),
        ("raw x", "it has no type"),
    ],
)
def test_declarations_that_cannot_be_read(text: str, message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        elementwise(text, "T z", "z = 1")


def test_columns_of_every_second_element(xp: Any) -> None:
    """Neighbours of a tile's columns that are two elements apart."""
    host, other = np.arange(70 * 180, dtype="f4").reshape(90, 140), np.ones((70, 90), "f4")
    check(mix(xp.asarray(host)[:, ::2].T, xp.asarray(other)), host[:, ::2].T - 2 * other)


def test_declarations_of_every_kind() -> None:
    text = "T a, raw T x, const float* y, unsigned long long q, bfloat16 z, cuda::std::complex<double> e, half h"
    assert [(p.type, p.raw) for p in parse("f", text)] == [
        ("T", False),
        ("T", True),
        ("float", True),
        ("unsigned long long", False),
        ("__nv_bfloat16", False),
        ("cuda::std::complex<double>", False),
        ("__half", False),
    ]


def test_bad_functions() -> None:
    for arguments, message in [
        (("T x", "", "z = x"), "no output"),
        (("T x", "T x", "x = x"), "an input and an output"),
        (("T x", "T z", " "), "must be C"),
        (("T x", "T z", "z = x", "a-b"), "C.. identifier"),
    ]:
        with pytest.raises(ck.TemplateError, match=message):
            elementwise(*arguments)


def test_bad_arguments_are_named(xp: Any) -> None:
    x = xp.zeros((4, 3), np.float32)
    fixed = elementwise("float32 x, raw float32 r, T k", "T z, float32 w", "z = k; w = x", name="fixed")
    made = elementwise("float32 x", "S z", "z = x", name="made")
    two = elementwise("T x", "T z, T w", "z = x; w = x", name="two")
    for call, message in [
        (lambda: axpby(1, x, 1, xp.zeros((4, 2), np.float32)), r"axpby: x has shape \(4, 3\), y has shape \(4, 2\)"),
        (lambda: axpby(1, x, 1), "takes 4 inputs .*a, x, b, y; got 3"),
        (lambda: axpby(1, "text", 1, x), "x is str"),
        (lambda: made(x), "the type S of z cannot be deduced"),
        (lambda: fixed(xp.zeros(3), x, 1), "fixed: x is of float64 and would lose as float32"),
        (lambda: fixed(x, xp.zeros(3), 1), "r is of float64 and float is float32: a raw argument is not converted"),
        (lambda: fixed(x, 3.0, 1), "r is raw and takes an array"),
        (
            lambda: axpby(1, x, 1, x, out=xp.zeros((4, 3), np.int32)),
            "axpby, output z: out has dtype int32, the result has float32",
        ),
        (lambda: axpby(1, x, 1, x, out=xp.zeros(3, np.float32)), "cannot be broadcast|out has shape"),
        (lambda: axpby(1, x, 1, x, out=(x, x)), "has 1 outputs .z.; out has 2"),
        (lambda: two(x, out=(x, x)), "for two outputs"),
        (lambda: axpby(1, x, 1, x, where=x), "where is of float32"),
        (lambda: axpby(1, x, 1, x, size=3), "size= is for calls whose arrays are all raw"),
        (lambda: axpby(1, x, 1, x, out=xp.broadcast_to(x[0], (4, 3))), "read-only|repeats"),
    ]:
        with pytest.raises(ck.ArgumentError, match=message):
            call()


def test_numbers_that_do_not_fit_are_refused(xp: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"parameter a .*300"):
        axpby(300, xp.zeros(3, np.int8), 1, 1)


@pytest.mark.emulator
def test_types_without_a_common_one() -> None:
    with pytest.raises(ck.ArgumentError, match=r"T has no common type: .*x is of datetime64.*y is of"):
        axpby(1, np.zeros(3, "M8[D]"), 1, np.zeros(3, [("a", "f4")]))
    with pytest.raises(ck.ArgumentError, match=r"is of datetime64.*no C.. equivalent"):
        mix(np.zeros(3, "M8[D]"), 1)


@pytest.mark.emulator
def test_arrays_that_must_not_be_written() -> None:
    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(ck.ArgumentError, match="read-only"):
        mix(x, x, out=x)
    with pytest.raises(ck.ArgumentError, match="native byte order"):
        mix(np.zeros(3, ">f4"), np.zeros(3))


class Foreign:
    """Another library's array in host memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **named: Any) -> Any:
        return self.array.__dlpack__(**named)


@pytest.mark.emulator
@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="NumPy's DLPack is read-only before 2.3")
def test_arrays_of_other_libraries() -> None:
    x, out = np.arange(12.0).reshape(3, 4), Foreign(np.zeros((4, 3)))
    assert mix(Foreign(x.T), Foreign(x.T), out=out) is out
    check(out.array, -x.T)


# ── the function as an object ────────────────────────────────────────────────────────────────────────────────────────


def test_source_repr_and_pickle(xp: Any) -> None:
    fresh = elementwise("T x, float32 y", "T z", "z = x + y", name="fresh")
    assert "z = x + y" in fresh.source
    assert "flat_run" in fresh.source
    fresh(xp.zeros((3, 40)), xp.zeros((3, 1), np.float32))
    assert "strided_run" in fresh.source
    assert repr(fresh) == "<cudakit.elementwise fresh: T x, float y → T z>"
    again = pickle.loads(pickle.dumps(fresh))
    check(again(xp.ones(3), 1.0), np.full(3, 2.0))


def test_no_arrays_at_all(stream: Any) -> None:
    check(axpby(1, 2, 3, 4, stream=stream), np.int64(14))


def test_a_given_stream(stream: Any, xp: Any) -> None:
    with ck.using(stream):
        x = xp.arange(5.0)
    got = axpby(1, x, 1, x, stream=stream)
    stream.sync()
    check(got, 2 * np.arange(5.0))


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # as old programs do
@pytest.mark.gpu
def test_repeated_calls_take_the_short_way_and_see_every_change(stream: Any, xp: Any) -> None:
    f = elementwise("T a, T x, T y", "T z", "z = a * x + y", name="repeated")
    x, y, z = xp.arange(6, dtype=np.float32), xp.ones(6, np.float32), xp.zeros(6, np.float32)
    ordinary = []
    f.__dict__["_call"] = lambda *call: ordinary.append(call) or type(f)._call(f, *call)
    for k in range(16):
        f(2.0, x, y, out=z)
        check(z, 2 * np.arange(6, dtype="f4") + 1)
        check(f(float(k), x, y), k * np.arange(6, dtype="f4") + 1)
        check(f(float(k), x + 1, y), k * np.arange(1, 7, dtype="f4") + 1)
    # Where there are several streams, new arrays are ordered each time. Of the calls with the same arrays the first
    # three or four are ordinary (36 of all 48 on an H200), and some more where another call unsettles them.
    assert len(ordinary) <= 8 + 16 + 16
    x.shape = (2, 3)
    with pytest.raises(ck.ArgumentError, match="broadcast"):
        f(2.0, x, y, out=z)
    y.shape = z.shape = (2, 3)
    check(f(2.0, x, y, out=z), (2 * np.arange(6, dtype="f4") + 1).reshape(2, 3))
    assert f(2.0, x.astype(np.float64), y).dtype == np.float64
    two = elementwise("T x", "T z, int32 k", "z = 2 * x; k = x", name="two")
    outs = xp.zeros(6, np.float32), xp.zeros(6, np.int32)
    x.shape = (6,)
    for _ in range(6):
        for z, k in (two(x), two(x, out=outs), two(x, *outs)):
            check(z, 2 * np.arange(6, dtype="f4"))
            check(k, np.arange(6, dtype="i4"))
    x.shape = (2, 3)
    other = ck.stream()
    with ck.using(other):
        check(f(3.0, x, y), (3 * np.arange(6, dtype="f4") + 1).reshape(2, 3))


@pytest.mark.gpu
def test_torch_tensors(stream: Any) -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
    out = torch.zeros(4, 3, device="cuda")
    torch.cuda.synchronize()
    assert axpby(2.0, x.T, 1, x.T, out=out) is out
    stream.sync()
    assert torch.equal(out.cpu(), 3 * x.T.cpu())
    check(axpby(2.0, x, 1, x), 3 * np.arange(12, dtype="f4").reshape(3, 4))


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_31_bits_of_elements(stream: Any, xp: Any) -> None:
    size = 2**31 + 65
    x = xp.zeros(size, np.int8)
    x[-3:] = 5
    got = mix(x, x[:1])
    assert to_host(got[-4:]).tolist() == [0, 5, 5, 5]
    del got
    last = elementwise("raw int8 x", "int8 z", "z = x[i] + (i == n - 1)", name="last")
    got = last(x)
    assert to_host(got[-4:]).tolist() == [0, 5, 5, 6]
    del got
    got = mix(x.reshape(-1, 1)[:, [0]], x[:1].reshape(1, 1))
    assert to_host(got[-2:]).ravel().tolist() == [5, 5]


def test_records_are_values() -> None:
    assert dataclasses.is_dataclass(Point)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ck.elementwise("T x", "T z", "z = 2 * x", name="double"),
        lambda: ck.reduction("T x", "T z", map="x", reduce="a + b", identity="0", name="int"),
        lambda: ck.scan("T x", "T z", map="x", reduce="a + b", name="float"),
        lambda: ck.stencil("float out", "out = x(0)", name="while"),
    ],
)
def test_no_kernel_is_called_a_word_of_cpp(make: Any) -> None:
    with pytest.raises(ck.TemplateError, match=r"cannot be '\w+', a word of C\+\+; take another"):
        make()


def test_functions_may_be_called_words_of_cpp(xp: Any) -> None:
    @ck.fuse
    def double(x: Any) -> Any:
        return 2 * x

    assert double(xp.ones(3, "f4")).tolist() == [2] * 3
