"""Reductions from expressions against NumPy, in both places."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.places import another, to_host
from support.tiers import in_tiers
from support.tolerance import bound

import cudakit as ck
from cudakit.arrays.place import _workspaces
from cudakit.generate.reduction import Reduction

BEST = "struct best { float x; long long i; };"
BETTER = "a.x > b.x || (a.x == b.x && a.i < b.i) ? a : b"

dot = ck.reduction("T x, T y", "T out", map="x * y", reduce="a + b", identity="0", post="out = a", name="dot")
total = ck.reduction("T x", "T out", "x", "a + b", "0", name="total")
largest = ck.reduction("T x", "T out", "x", "max(a, b)", name="largest")
where_largest = ck.reduction(
    "float x", "float value, int64 where", "{x, i}", BETTER, post="value = a.x; where = a.i", name="where_largest",
    preamble=BEST, acc="best",
)  # fmt: skip


def whole_numbers(shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    """Numbers from −8 to 8, whose sums and products are exact in every type."""
    drawn = np.random.default_rng(seed).integers(-8, 9, shape)
    if np.dtype(dtype).kind == "c":
        return (drawn + 1j * drawn[..., ::-1]).astype(dtype)
    return np.abs(drawn).astype(dtype) if np.dtype(dtype).kind in "bu" else drawn.astype(dtype)


def check(got: Any, want: Any, dtype: Any = None) -> None:
    got = to_host(got)
    assert got.shape == np.shape(want)
    assert dtype is None or got.dtype == dtype
    np.testing.assert_array_equal(got.astype(np.complex128), np.asarray(want, np.complex128))


# --- any shape, strides and axes --------------------------------------------------------------------------------------


@st.composite
def calls(draw: st.DrawFn) -> tuple[Any, ...]:
    """A dtype, a shape, what is done to an array of it, which dimensions the other array repeats, axes, keepdims."""
    shape = draw(st.sampled_from([(), (1,), (5,), (300,), (4, 33), (33, 4), (3, 0), (40, 70), (5, 6, 7), (2, 3, 4, 5)]))
    ndim = len(shape)
    steps = tuple(draw(st.sampled_from([1, 1, 1, 2, -1])) for _ in shape)
    order = tuple(draw(st.permutations(range(ndim))))
    repeated = tuple(draw(st.booleans()) for _ in shape)
    some = st.lists(st.integers(-ndim, max(0, ndim - 1)), max_size=ndim, unique_by=lambda d: d % ndim)
    axes = draw(st.none() | (some if ndim else st.just([])))
    dtype = draw(st.sampled_from(["f4", "f4", "i4", "f8"]))
    return dtype, shape, steps, order, repeated, None if axes is None else tuple(axes), draw(st.booleans())


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls())
def test_any_call(xp: Any, call: tuple[Any, ...]) -> None:
    dtype, shape, steps, order, repeated, axes, keepdims = call
    base = whole_numbers(shape, dtype)
    index = (*(slice(None, None, step) for step in steps), ...)
    host = base[index].transpose(order)
    other = whole_numbers([1 if each else n for each, n in zip(repeated, host.shape, strict=True)], dtype, seed=1)
    got = dot(xp.asarray(base)[index].transpose(order), xp.asarray(other), axis=axes, keepdims=keepdims)
    check(got, (host.astype("f8") * other).sum(axis=axes, keepdims=keepdims), dtype)


@in_tiers("dtype", ["?", "i1", "u8", "bfloat16", "c8"], quick=lambda dtype: dtype == "?", strength=None)
def test_every_kind_of_number(xp: Any, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    host = whole_numbers((3, 50), kind)
    if kind.kind == "?":
        want = (host.astype("i8").sum(1) != 0).astype("i8")
    else:
        want = host.astype("c16").sum(1) if kind.kind == "c" else host.astype("f8").sum(1)
    check(total(xp.asarray(host), axis=1), want.astype(kind).astype("c16"), kind)


def test_halves_add_up_in_float(xp: Any) -> None:
    host = np.full(5000, 1.0, "f2")
    assert to_host(total(xp.asarray(host))) == 5000 - 5000 % 4
    got = ck.reduction("float16 x", "float out", "x", "a + b", "0", name="halves")(xp.asarray(host))
    assert to_host(got) == 5000  # in half it would stop at 2048


@pytest.mark.slow
def test_mixed_types_are_promoted(xp: Any) -> None:
    x, y = whole_numbers(100, "f4"), whole_numbers(100, "i8")
    check(dot(xp.asarray(x), xp.asarray(y)), (x.astype("f8") * y).sum(), "f8")
    check(dot(xp.asarray(x), 3), 3 * x.sum(dtype="f8"), "f4")
    check(dot(xp.asarray(x), np.float64(3)), 3 * x.sum(dtype="f8"), "f8")


def test_arrays_that_lie_unlike_each_other(xp: Any) -> None:
    host = whole_numbers(5001, "f4")
    x = xp.asarray(host)
    for first, second in ((1, 0), (1, 1), (3, 2)):
        n = 5001 - max(first, second)
        got = dot(x[first : first + n], x[second : second + n])
        check(got, (host[first : first + n].astype("f8") * host[second : second + n]).sum())


def test_long_rows_beside_one_that_all_share(xp: Any) -> None:
    host, row = whole_numbers((7, 1001), "f4"), whole_numbers(1001, "f4", 1)
    check(dot(xp.asarray(host), xp.asarray(row), axis=1), host.astype("f8") @ row)


def test_elements_are_numbered_in_row_major_order(xp: Any) -> None:
    host = np.arange(600, dtype="f4").reshape(20, 30)
    host[3, 7] = host[7, 3] = 1000
    x = xp.asarray(np.asfortranarray(host))
    check(where_largest(x)[1], host.argmax())
    check(where_largest(xp.asarray(host).T)[1], host.T.argmax())


@pytest.mark.slow
def test_more_parts_than_one(xp: Any) -> None:
    host = whole_numbers((2, 40000), "f4")
    x = xp.asarray(host)
    check(total(x, axis=1), host.sum(1, dtype="f8"))
    check(total(x.T, axis=0), host.sum(1, dtype="f8"))
    check(total(xp.asarray(np.ascontiguousarray(host.T)), axis=0), host.sum(1, dtype="f8"))
    check(where_largest(x[0])[1], host[0].argmax())


# --- what expressions say ---------------------------------------------------------------------------------------------


@in_tiers(
    "call",
    [((700,), None), ((7, 40), 0), ((7, 40), 1), ((40, 300), 0), ((3, 4, 5), (0, 2))],
    quick=lambda call: call[1] == (0, 2),
    strength=None,
)
def test_argmax_by_a_struct(xp: Any, call: tuple[Any, Any]) -> None:
    shape, axis = call
    host = whole_numbers(shape, "f4")
    value, where = where_largest(xp.asarray(host), axis=axis)
    flat = host.transpose(1, 0, 2).reshape(4, -1) if axis == (0, 2) else host
    last = 1 if axis == (0, 2) else axis
    check(value, flat.max(last), "f4")
    check(where, flat.argmax(last), "i8")


def test_several_outputs_in_one_pass(xp: Any) -> None:
    moments = ck.reduction(
        "T x", "T mean, T var", "{x, x * x}", "{a.s + b.s, a.q + b.q}", "{0, 0}",
        "mean = a.s / n; var = a.q / n - mean * mean", "moments", preamble="struct two { double s, q; };", acc="two",
    )  # fmt: skip
    host = np.random.default_rng(0).random((4, 1000)).astype("f4")
    mean, var = moments(xp.asarray(host), axis=1, keepdims=True)
    tolerance = bound("f4", 4, 1.0)
    np.testing.assert_allclose(to_host(mean), host.astype("f8").mean(1, keepdims=True), atol=tolerance)
    np.testing.assert_allclose(to_host(var), host.astype("f8").var(1, keepdims=True), atol=tolerance)


@pytest.mark.slow
def test_a_sum_of_a_subset_and_raw_inputs(xp: Any) -> None:
    host = whole_numbers(400, "f4")
    x, indices = xp.asarray(host), np.array([3, 5, 7, 5], "i4")
    picked = ck.reduction("raw float x, int32 j", "float out", "x[j]", "a + b", "0", name="picked")
    check(picked(x, xp.asarray(indices)), host[indices].sum())
    neighbours = ck.reduction("raw float x", "float out", "x[i] * x[i + 1]", "a + b", "0", name="neighbours")
    check(neighbours(x, size=399), (host[1:].astype("f8") * host[:-1]).sum())
    assert to_host(largest(x[10:20])) == host[10:20].max()


@pytest.mark.emulator  # CuPy has no arrays of structs
def test_structs_as_elements(xp: Any) -> None:
    pair = np.dtype([("x", "f4"), ("y", "f4"), ("k", "i4")])
    host = np.zeros(777, pair)
    host["x"], host["y"], host["k"] = whole_numbers(777, "f4"), whole_numbers(777, "f4", 1), np.arange(777)
    crossed = ck.reduction(
        "point p", "float out", "p.x * p.y + p.k", "a + b", "0", name="crossed",
        preamble="struct point { float x, y; int k; };",
    )  # fmt: skip
    check(crossed(host), (host["x"].astype("f8") * host["y"] + host["k"]).sum())


def test_no_identity_takes_the_first_element(xp: Any) -> None:
    host = -1 - np.abs(whole_numbers((5, 33), "f4"))
    check(largest(xp.asarray(host)), host.max())
    check(largest(xp.asarray(host), axis=0), host.max(0))
    check(largest(xp.asarray(host).T, axis=0), host.max(1))


def test_names_of_generated_code_are_the_users_too(xp: Any) -> None:
    taken = ck.reduction(
        "float map, float state", "float post", "twice(map) + state", "a + b", "0", "post = reduce(a)", name="max",
        preamble="__device__ float twice(float a) { return 2 * a; }\n__device__ float reduce(float a) { return a; }",
    )  # fmt: skip
    host = whole_numbers(100, "f4")
    check(taken(xp.asarray(host), 1), 2 * host.sum() + 100)


def test_empty(xp: Any) -> None:
    check(total(xp.zeros((0,), "f4")), 0, "f4")
    check(total(xp.zeros((3, 0), "f4"), axis=1), np.zeros(3), "f4")
    assert total(xp.zeros((3, 0), "f4"), axis=0).shape == (0,)
    assert largest(xp.zeros((3, 0), "f4"), axis=0).shape == (0,)
    with pytest.raises(ck.ArgumentError, match="no elements along axis 1, and it has no identity"):
        largest(xp.zeros((3, 0), "f4"), axis=1)


# --- segments ---------------------------------------------------------------------------------------------------------


@in_tiers("dtype", ["i4", "u8"], quick=lambda dtype: dtype == "i4", strength=None)
def test_segments(xp: Any, dtype: str) -> None:
    host = whole_numbers(3001, "f4")
    offsets = np.sort(np.random.default_rng(1).integers(0, 3002, 90)).astype(dtype)
    offsets[40:44] = offsets[40]  # empty ones
    got = dot(xp.asarray(host), xp.asarray(host[::-1].copy()), segments=xp.asarray(offsets))
    both = host.astype("f8") * host[::-1]
    check(got, [both[int(a) : int(b)].sum() for a, b in itertools.pairwise(offsets)], "f4")


@pytest.mark.slow
def test_few_long_segments_and_their_numbers(xp: Any) -> None:
    host = whole_numbers(60000, "f4")
    offsets = np.array([0, 50000, 50000, 60000])
    check(total(xp.asarray(host), segments=xp.asarray(offsets)), [host[:50000].sum(), 0, host[50000:].sum()])
    where = ck.reduction(
        "float x", "int64 where, int64 count", "{x, i}", BETTER, "{-9, -1}", "where = a.i; count = n", "whereabouts",
        preamble=BEST, acc="best",
    )  # fmt: skip
    found, count = where(xp.asarray(host)[::2], segments=xp.asarray(offsets // 2))
    check(found, [host[:50000:2].argmax(), -1, host[50000::2].argmax()])
    check(count, [25000, 0, 5000])


def test_offsets_past_the_end_are_cut(xp: Any) -> None:
    host = whole_numbers(100, "f4")
    counted = ck.reduction("float x", "float y, int64 count", "x", "a + b", "0", "y = a; count = n", "counted")
    got, count = counted(xp.asarray(host), segments=xp.asarray(np.array([-5, 50, 40, 1000])))
    check(got, [host[:50].sum(), 0, host[40:].sum()])
    check(count, [50, 0, 60])


@pytest.mark.parametrize(
    ("segments", "more", "message"),
    [
        (np.zeros(3), {}, "segments must be offsets: integers of shape"),
        (np.zeros((2, 2), int), {}, "segments must be offsets"),
        (np.zeros(0, int), {}, "segments must be offsets"),
        (np.zeros(3, int), {"axis": 0}, "leave axis and keepdims out"),
    ],
)
def test_bad_segments(xp: Any, segments: Any, more: Any, message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        total(xp.zeros(5, "f4"), segments=xp.asarray(segments), **more)
    with pytest.raises(ck.ArgumentError, match="one dimension, they have shape"):
        total(xp.zeros((5, 5), "f4"), segments=xp.zeros(3, int))
    with pytest.raises(ck.ArgumentError, match="has no identity"):
        largest(xp.zeros(5, "f4"), segments=xp.zeros(3, int))


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_out(xp: Any) -> None:
    host = whole_numbers((6, 100), "f4")
    x = xp.asarray(host)
    out = xp.zeros(6, "f4")
    assert total(x, axis=1, out=out) is out
    check(out, host.sum(1))
    wide = xp.zeros((6, 3), "f8")
    total(x, axis=1, out=wide[:, 1])
    check(wide, np.stack([np.zeros(6), host.sum(1), np.zeros(6)], 1))
    value, where = where_largest(x, axis=1, out=(None, xp.zeros(6, "i8")))
    check(where, host.argmax(1))
    assert value.shape == (6,)


def test_bad_out(xp: Any) -> None:
    x = xp.zeros((6, 100), "f4")
    for out, message in (
        (xp.zeros(6, "i4"), "dot, output out: out has dtype int32, the result has float32"),
        (xp.zeros(5, "f4"), "out has shape"),
        ((xp.zeros(6, "f4"), None), "has 1 outputs"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            dot(x, x, axis=1, out=out)


def test_the_type_of_out_decides(xp: Any) -> None:
    widened = ck.reduction("T x", "R out", "x", "a + b", "0", name="widened")
    x = xp.asarray(whole_numbers(50, "f4"))
    with pytest.raises(ck.ArgumentError, match="type R of out cannot be deduced"):
        widened(x)
    out = xp.zeros((), "f8")
    check(widened(x, out=out), whole_numbers(50, "f4").sum(), "f8")


# --- every run the same -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_bits_on_every_run(xp: Any, stream: Any) -> None:
    host = np.random.default_rng(3).standard_normal(50001).astype("f4")
    x = xp.asarray(host)
    first = to_host(dot(x, x))
    np.testing.assert_allclose(first, (host.astype("f8") ** 2).sum(), rtol=bound("f4", 64, 1.0))
    for place in (stream, another(stream)):
        stream.sync()
        again = dot(x, x, stream=place)
        place.sync()
        assert to_host(again).tobytes() == first.tobytes()


def test_pickled(xp: Any) -> None:
    copy = pickle.loads(pickle.dumps(dot))
    assert isinstance(copy, Reduction)
    check(copy(xp.ones(5, "f4"), 2), 10)
    assert repr(copy) == "<cudakit.reduction dot: T x, T y → T out>"


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "changes"),
    [("map", {"map": "x + 1 +\n  x * zz"}), ("reduce", {"reduce": "a + zz"}), ("post", {"post": "out = a;\nout += zz"}),
     ("identity", {"identity": "zz"})],
)  # fmt: skip
def test_compile_errors_point_into_the_expression(xp: Any, what: str, changes: dict[str, str]) -> None:
    parts = {"map": "x", "reduce": "a + b", "identity": "0", "post": "out = a"} | changes
    bad = ck.reduction("T x", "T out", name="bad", **parts)
    line = 2 if "\n" in changes[what] else 1
    with pytest.raises(ck.CompileError, match=rf'<bad {what}>:{line}: error: identifier "zz" is undefined') as caught:
        bad(xp.zeros(5, "f4"))
    names = {"map": "x, i, T", "reduce": "a, b, T", "post": "out, a, n, T"}
    assert what not in names or f"the expression has the names {names[what]}" in str(caught.value)


def test_bad_arguments(xp: Any) -> None:
    x = xp.zeros((4, 5), "f4")
    for call, message in (
        (lambda: dot(x, xp.zeros(4, "f4")), r"x has shape \(4, 5\), y has shape \(4,\), which cannot be broadcast"),
        (lambda: dot(x, x, axis=2), "axis 2 of an array of 2 dimensions"),
        (lambda: dot(x, x, axis=(0, 0)), "axis"),
        (lambda: dot(x, x, axis="a"), "axis must be an int"),
        (lambda: dot(x), "dot takes 2 inputs: x, y; got 1"),
        (lambda: dot(2, 3), "none of its inputs is an array"),
        (lambda: dot(x, "text"), "y is str, not an array"),
        (lambda: dot(x, x, size=3), "size= is for calls whose arrays are all raw"),
        (lambda: where_largest(x.astype("f8")), "x is of float64 and would lose as float"),
        (lambda: dot(x, x, keepdims=2), "dot: keepdims is True or False, got 2"),
        (lambda: dot(x, x, out=(None, None)), r"dot has 1 outputs \(.*\); out has 2"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("T x", "T a", "x", "a + b"), "an argument cannot be called 'a'"),
        (("T i", "T out", "i", "a + b"), "an argument cannot be called 'i'"),
        (("T x", "T x", "x", "a + b"), "x is an input and an output"),
        (("T x", "T y, T z", "x", "a + b"), "say how they come of a, in post="),
        (("T x", "raw T y", "x", "a + b"), "leave raw out"),
        (("T x", "", "x", "a + b"), "no output"),
        (("", "T y", "1", "a + b"), "no input"),
        (("T x", "T y", " ", "a + b"), "the map must be C"),
        (("T x", "T y", "x", 3), "the reduce must be C"),
        (("T x", "T y", "x", "a + b", "0", "y = a", "no name"), "must be a C.. identifier"),
        (("flaot x", "T y", "x", "a + b"), "no type is called 'flaot'"),
        ((3, "T y", "x", "a + b"), "arguments are declared by a str such as 'T x, float32 y', got 3"),
        (
            (", ".join(f"T x{k}" for k in range(16)), "T y", "x0", "a + b"),
            "more than 15 inputs or outputs; put several",
        ),
        (
            ("T x", ", ".join(f"T y{k}" for k in range(16)), "x", "a + b", "0", "y0 = a"),
            "more than 15 inputs or outputs; put several",
        ),
        (("T x", "T y", "x", "a + b", "0", "sqrt(a)"), "the post 'sqrt.a.' never sets y; write 'y = …'"),
    ],
)
def test_bad_declarations(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ck.TemplateError, match=message):
        ck.reduction(*arguments)


def test_an_error_in_an_expression_is_short(xp: Any) -> None:
    broken = ck.reduction("T x", "T y", "x", "c + b", "0", name="broken")
    with pytest.raises(ck.CompileError, match=r'<broken reduce>:1: error: identifier "c" is undefined') as caught:
        broken(xp.ones(5))
    assert "instantiation" in caught.value.log
    assert "detected during" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 6
    assert str(caught.value).endswith("the expression has the names a, b, T")


def test_headers_of_declared_types() -> None:
    for name, header in (("half", "cuda_fp16.h"), ("bfloat16", "cuda_bf16.h"), ("complex<float>", "cuda/std/complex")):
        for inputs, outputs, text in ((f"{name} x, T z", "T y", "z"), ("T x", f"{name} y", "x")):
            assert f"#include <{header}>" in ck.reduction(inputs, outputs, text, "a + b", "0").source
    assert "#include <cuda" not in dot.source.partition("cudakit/")[0]


def test_the_source_is_readable() -> None:
    assert '#line 1 "<dot map>"\nx * y\n' in dot.source
    assert len(dot.source.splitlines()) < 60


@pytest.mark.gpu
@pytest.mark.large
def test_more_than_two_to_the_31_elements(xp: Any) -> None:
    x = xp.zeros(2**31 + 11, "i1")
    x[-1] = x[2**31] = 3
    check(ck.reduction("int8 x", "int64 out", "x", "a + b", "0", name="bytes_sum")(x), 6, "i8")
    where = ck.reduction(
        "int8 x", "int64 where", "{(float)x, i}", BETTER, "{-200, -1}", "where = a.i", name="where_byte", preamble=BEST,
        acc="best",
    )  # fmt: skip
    check(where(x), 2**31)


@pytest.mark.gpu
def test_repeated_calls_on_other_arrays(xp: Any) -> None:
    """Calls of a known kind take a short way, which must still see another array, and an overlap."""
    large, last = xp.zeros((4, 1 << 18), "f4"), xp.zeros((), "f4")
    for k in range(12):
        x = xp.full(1000, k, "f4")
        out = xp.zeros((), "f4")
        assert total(x, out=out) is out
        check(out, 1000 * k)
        check(total(x), 1000 * k)
        large += 1
        check(total(large, out=last), (k + 1) << 20)
        check(total(large.T, axis=1)[:3], 4 * np.full(3, k + 1))
        if k == 8:
            _workspaces._by_stream.clear()  # as where a launch needs more
    check(total(x, out=x[3]), 1000 * k)
    x[3] = k
    check(total(x.reshape(10, 100), axis=[0]), np.full(100, 10 * k))


# --- sums, which have ways of their own -------------------------------------------------------------------------------


@in_tiers(
    "of, way",
    [("i1", None), ("i1", "uint32"), ("u1", "float32"), ("?", None), ("i2", None), ("f2", None)],
    [0, 1, 2, 3],
    quick=lambda of, way: (of, way) == (("i1", None), 2),
    # Bytes are added in ways of their own; of the others each is met in two, and each way by two of them.
    whole=lambda of, way: (
        of in (("i1", None), ("u1", "float32"))
        or way in {("i1", "uint32"): (0, 2), ("?", None): (1, 3), ("i2", None): (1, 2), ("f2", None): (0, 3)}[of]
    ),
    strength=None,
)
def test_sums_are_as_other_combinations_are(xp: Any, of: tuple[str, str | None], way: int) -> None:
    """By bytes, with fewer bits for a few of them, and wherever the array begins."""
    dtype, acc = of
    result = acc or {"b": "int64", "i": "int64"}.get(np.dtype(dtype).kind, "T")
    host = whole_numbers((3, 1000), dtype)
    known, other = (
        ck.reduction("T x", f"{result} out", "x", combined, "0", acc=acc) for combined in (" b +a ", "(a + b)")
    )
    x, axis = ((host, None), (host[:, 5:], 1), (host, 0), (host[:, 1:], 0))[way]
    got, want = to_host(known(xp.asarray(x), axis=axis)), to_host(other(xp.asarray(x), axis=axis))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


def test_a_sum_is_taken_as_such_only_where_it_is_one(xp: Any) -> None:
    x = xp.asarray(np.arange(100, dtype="i1"))
    assert to_host(ck.reduction("T x", "int64 out", "2 * x", "a + b", "0")(x)) == 9900
    assert to_host(ck.reduction("T x", "int64 out", "x", "a - b * -1", "0")(x)) == 4950
    assert to_host(ck.reduction("T x", "int8 out", "x", "a + b", "0", acc="int8")(x)) == np.int64(4950).astype("i1")


def test_a_post_that_ends_with_a_brace_initialiser(xp: Any) -> None:
    total = ck.reduction("T x", "T s", map="x", reduce="a + b", identity="0", post="s = T{a}", name="total")
    assert float(total(xp.arange(4, dtype=xp.float32))) == 6


@pytest.mark.slow
def test_structs_are_results_without_dimensions(xp: Any) -> None:
    if xp is not np:
        pytest.skip("CuPy's arrays have no structs")
    pair = np.dtype([("low", "f4"), ("high", "f4")])
    extremes = ck.reduction(
        "float x", "P r", map="{x, x}", reduce="P{fminf(a.low, b.low), fmaxf(a.high, b.high)}", post="r = a;", acc="P",
        preamble="struct P { float low; float high; };", name="extremes",
    )  # fmt: skip
    x = np.array([3, 1, 2], "f4")
    for _ in range(4):
        out = np.zeros((), pair)
        assert extremes(x, out=out) is out
        assert out[()].item() == (1, 3)
    assert extremes(x, keepdims=True, out=np.zeros(1, pair))[0].item() == (1, 3)


def test_how_many_elements_there_are(xp: Any, stream: Any) -> None:
    numbers = ck.reduction("int64 s", "int64 z", map="s + i", reduce="a + b", identity="0", name="numbers")
    assert int(numbers(3, size=5, stream=stream)) == 25
    with pytest.raises(
        ck.ArgumentError, match="none of its inputs is an array; say how many elements there are: size="
    ):
        numbers(3)
    indexed = ck.reduction("raw T x, raw T y", "T z", map="x[i] * y[i]", reduce="a + b", identity="0", name="indexed")
    x = xp.arange(6, dtype=xp.float32).reshape(2, 3)
    assert float(indexed(x, x)) == 55
    assert float(indexed(x, x, size=3)) == 5
    with pytest.raises(ck.ArgumentError, match=r"all its arrays are raw, and x has shape \(2, 3\), y has shape \(3,\)"):
        indexed(x, x[0])


_TOTAL = ck.reduction("T x", "T s", map="x", reduce="a + b", identity="0", name="total")
_MOST = ck.reduction("T x", "T s, int64 c", map="x", reduce="b", post="s = a; c = n", name="most")
_INITIAL = {"int": 42, "negative": -3, "float": 2.5, "float32": np.float32(1.5), "int8": np.int8(3)}


def _of_initial(dtype: str) -> np.ndarray:
    return (np.arange(120) % 7).astype(dtype).reshape(4, 30)


@in_tiers(
    "dtype, initial, axis",
    ["f4", "i2", "f2", "c16"],
    list(_INITIAL),
    [None, 0, 1],
    where=lambda dtype, initial, axis: dtype != "i2" or "float" not in initial,
    quick=lambda dtype, initial, axis: dtype == "f4",
)
def test_an_initial_value_at_run_time(xp: Any, dtype: str, initial: str, axis: int | None) -> None:
    host, value = _of_initial(dtype), _INITIAL[initial]
    want = (host.sum(axis) + value).astype(dtype)
    np.testing.assert_allclose(to_host(_TOTAL(xp.asarray(host), axis=axis, initial=value)), want, rtol=1e-3)


@in_tiers("dtype", ["f4", "i2", "f2", "c16"], quick=lambda _: False, strength=None)
def test_an_initial_value_of_few_elements(xp: Any, dtype: str) -> None:
    host = _of_initial(dtype)
    x = xp.asarray(host)
    np.testing.assert_array_equal(to_host(_TOTAL(x[:0], axis=0, initial=7)), np.full(30, 7))
    values, counts = _MOST(x[:, :0], axis=1, initial=5)
    np.testing.assert_array_equal(to_host(values), np.full(4, 5))
    np.testing.assert_array_equal(to_host(counts), np.zeros(4))
    offsets = xp.asarray(np.array([0, 0, 3, 30]))
    got = _TOTAL(x[1], segments=offsets, initial=10)
    np.testing.assert_array_equal(to_host(got), [10, 10 + host[1, :3].sum(), 10 + host[1, 3:].sum()])
    for wrong in ("text", [1], xp.ones(3)):
        with pytest.raises(ck.ArgumentError, match="initial"):
            _TOTAL(x, initial=wrong)


@pytest.mark.slow
def test_an_initial_struct(xp: Any) -> None:
    best = ck.reduction(
        "float x", "float value, int64 where", map="{x, i}", reduce="a.x >= b.x ? a : b",
        post="value = a.x; where = a.i", acc="best", preamble="struct best { float x; long long i; };", name="largest",
    )  # fmt: skip
    pair = np.dtype([("x", "f4"), ("i", "i8")], align=True)
    for limit, wanted in ((2.0, (3.0, 1)), (9.0, (9.0, -1))):
        value, where = best(xp.asarray(np.array([1, 3, 2], "f4")), initial=np.array((limit, -1), pair)[()])
        assert (float(value), int(where)) == wanted


threads = ck.reduction("T x", "int32 c, T s", "x", "a + b", "0", "c = blockDim.x; s = a", "threads")
SHAPES = [((20000,), None), ((3, 7), 1), ((40, 9), 1), ((40, 9), 0), ((3, 700), 1), ((90, 50), 0), ((6, 5, 4), (0, 2)),
          ((0, 4), 0), ((0, 4), 1), ((), None)]  # fmt: skip


@in_tiers(
    "size, at",
    [32, 96, 480, 1024],
    list(range(len(SHAPES))),
    quick=lambda size, at: size == 96 and at in (0, 2, 3),
    # The kernels of a block size are those of another with another constant: all of one, of each other each third.
    whole=lambda size, at: size == 96 or at % 3 == [32, 480, 1024].index(size),
    strength=None,
)
def test_a_block_size(xp: Any, size: int, at: int) -> None:
    shape, axis = SHAPES[at]
    x = whole_numbers(shape, "f4")
    count, found = threads(xp.asarray(x), axis=axis, block_size=size)
    np.testing.assert_array_equal(to_host(count), np.full(x.sum(axis).shape, size))
    np.testing.assert_array_equal(to_host(found), x.sum(axis, dtype="f8"))


@in_tiers("size", [32, 96, 480, 1024], quick=lambda size: size == 480, strength=None)
def test_a_block_size_of_strides(xp: Any, size: int) -> None:
    x = whole_numbers((70, 90), "f8")[::2, ::-3]
    count, found = threads(xp.asarray(x), axis=0, keepdims=True, block_size=size)
    np.testing.assert_array_equal(to_host(count), np.full((1, 30), size))
    np.testing.assert_array_equal(to_host(found), x.sum(0, keepdims=True))


@pytest.mark.slow
def test_each_call_has_its_own_block_size(xp: Any) -> None:
    x = xp.asarray(whole_numbers((6, 40), "f4"))
    for size in (64, 96, np.int64(64), None, 96, None) * 3:
        np.testing.assert_array_equal(to_host(threads(x, axis=1, block_size=size)[0]), np.full(6, size or 256))
    out = xp.zeros(2, "i4"), xp.zeros(2, "f8")
    assert threads(x[0], segments=xp.asarray([0, 0, 40]), out=out, block_size=32, initial=2.5)[0] is out[0]
    np.testing.assert_array_equal(to_host(out[0]), [32, 32])
    np.testing.assert_array_equal(to_host(out[1]), [2.5, to_host(x)[0].sum() + 2.5])


@pytest.mark.slow
def test_a_block_size_of_large_states(xp: Any) -> None:
    """Columns whose states do not fit the block's shared memory go another way."""
    wide = ck.reduction(
        "float x", "int32 c, float y", "{x}", "{a.v[0] + b.v[0]}", "{0}", "c = blockDim.x; y = a.v[0]", "wide",
        preamble="struct many { float v[16]; };", acc="many",
    )  # fmt: skip
    x = whole_numbers((300, 40), "f4")
    for size in (224, 1024):
        count, found = wide(xp.asarray(x), axis=0, block_size=size)
        np.testing.assert_array_equal(to_host(count), np.full(40, size))
        np.testing.assert_array_equal(to_host(found), x.sum(0))


def test_an_initial_value_that_loses(xp: Any) -> None:
    for kind, wrong in (("i4", 2.5), ("?", np.float16(1)), ("f4", 2j)):
        with pytest.raises(ck.ArgumentError, match=r"total: initial .* would lose as"):
            total(xp.ones(5, kind), initial=wrong)
