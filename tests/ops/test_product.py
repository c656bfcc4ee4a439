"""Products of matrices by kernels of threads, against NumPy; and which way a product takes."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers, slow
from support.tiles import why_no_tiles
from support.tolerance import bound

import cudakit as ck
from cudakit.arrays.place import device_limits
from cudakit.ops.epilogue import activation_of

F4 = np.dtype("f4")
matmul = import_module("cudakit.ops.matmul")
#: One element, less than a tile, just above, rows of odd lengths, one row, one column.
SHAPES = [(1, 1, 1), (64, 64, 64), (65, 72, 130), (33, 17, 9), (1, 128, 64), (90, 1, 70), (130, 70, 131)]
REAL = ["f2", "f4", "f8"]
NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]


def numbers(*shape: int, dtype: Any = F4, seed: int = 0) -> np.ndarray:
    dtype, made = np.dtype(dtype), np.random.default_rng(seed)
    if dtype.kind in "biu":
        least = 0 if dtype.kind in "bu" else -9
        return made.integers(least, 10, shape).astype(dtype)
    if dtype.kind == "c":
        return (made.standard_normal(shape) + 1j * made.standard_normal(shape)).astype(dtype)
    return made.standard_normal(shape).astype(dtype)


def multiply(a: Any, b: Any, **named: Any) -> Any:
    return ck.ops.matmul(a, b, by="threads", **named)


def check(got: Any, want: np.ndarray, a: np.ndarray, b: np.ndarray, eps: Any = None) -> None:
    found = to_host(got)
    assert found.shape == want.shape
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, want)
        return
    wide = complex if found.dtype.kind == "c" else float
    scale = np.abs(a.astype(wide)) @ np.abs(b.astype(wide))
    sums = np.dtype("f8") if found.dtype.name in ("float64", "complex128") else F4
    off = np.abs(found.astype(wide) - want)
    rounded = {"complex64": F4, "complex128": np.dtype("f8")}.get(found.dtype.name, found.dtype)
    allowed = 2 * bound(sums, a.shape[-1], scale) + bound(eps or rounded, 1, np.abs(want) + scale / 4)
    assert (off <= allowed).all(), float((off - allowed).max())


def exact(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "biu":
        return a.astype("i4") @ b.astype("i4") if a.dtype == np.int8 else a @ b
    wide = complex if a.dtype.kind == "c" else float
    return a.astype(wide) @ b.astype(wide)


@in_tiers(
    "dtype, shape",
    REAL,
    SHAPES,
    strength=1,
    also=lambda dtype, shape: (
        dtype == "f4"
        or shape == (33, 17, 9)
        or (dtype, shape) in [("f2", (64, 64, 64)), ("f2", (130, 70, 131)), ("f8", (65, 72, 130))]
    ),
    quick=lambda dtype, shape: (dtype, shape) in [("f4", (1, 1, 1)), ("f4", (65, 72, 130))],
)
def test_shapes(stream: Any, xp: Any, shape: tuple[int, int, int], dtype: str) -> None:
    m, n, k = shape
    a, b = numbers(m, k, dtype=dtype), numbers(k, n, dtype=dtype, seed=1)
    for _ in range(2):
        got = multiply(xp.asarray(a), xp.asarray(b), stream=stream)
    assert got.dtype == dtype
    check(got, exact(a, b), a, b)


@pytest.mark.parametrize(
    "dtype",
    [
        "i1",
        *slow("?", "i2", "c8", "i4", "u1", "u2", "u4", "i8", "u8", "c16"),
    ],
)
def test_exact_types(stream: Any, xp: Any, dtype: str) -> None:
    a, b = numbers(70, 45, dtype=dtype), numbers(45, 66, dtype=dtype, seed=1)
    got = multiply(xp.asarray(a), xp.asarray(b), stream=stream)
    assert got.dtype == (np.int32 if dtype == "i1" else np.dtype(dtype))
    check(got, exact(a, b), a, b)


@pytest.mark.parametrize("dtype", slow("i4", "i1", "u1", "u8"))
def test_integers_wrap_around(stream: Any, xp: Any, dtype: str) -> None:
    limits = np.iinfo(dtype)
    a, b = (np.random.default_rng(k).integers(limits.min, limits.max, (20, 20), dtype, True) for k in (0, 1))
    got = multiply(xp.asarray(a), xp.asarray(b), dtype=dtype, stream=stream)
    np.testing.assert_array_equal(to_host(got), a @ b)


@pytest.mark.parametrize("name", [NARROW[0], *slow(*NARROW[1:])])
def test_narrow_types(stream: Any, xp: Any, name: str) -> None:
    if xp is not np:
        pytest.skip("CuPy has no such arrays")
    dtype = np.dtype(getattr(ml_dtypes, name))
    a, b = numbers(70, 96, dtype=dtype), numbers(96, 48, dtype=dtype)
    got = multiply(a, b, stream=stream)
    assert got.dtype == (dtype if name == "bfloat16" else F4)
    check(got, exact(a, b), a, b)


#: Of each multiplier both ways of both sides; of one all four pairs of ways; of each some steps that are not 1.
VIEWS = [
    *(("f2", turned, False) for turned in ("nn", "nt", "tn", "tt")),
    *(("f2", "nn", True), ("f4", "nn", False), ("f4", "tt", False), ("f4", "tn", True)),
    *(("f8", "nt", False), ("f8", "tn", False), ("f8", "tt", True)),
    *(("i1", "nn", False), ("i1", "tt", False), ("i1", "nt", True)),
    *(("tf32", "nt", False), ("tf32", "tn", False), ("tf32", "nn", True)),
]


@in_tiers(
    "dtype, turned, apart",
    ["f2", "f4", "f8", "i1", "tf32"],
    ["nn", "nt", "tn", "tt"],
    [False, True],
    strength=1,
    also=lambda *case: case in VIEWS,
    quick=lambda *case: case in [("f2", "nn", False), ("f4", "tn", True), ("i1", "tt", False)],
)
def test_views_are_read_as_they_lie(stream: Any, xp: Any, dtype: str, turned: str, apart: bool) -> None:
    named = {"precision": "tf32"} if dtype == "tf32" else {}
    dtype = "f4" if dtype == "tf32" else dtype
    a, b = numbers(80, 96, dtype=dtype), numbers(96, 112, dtype=dtype, seed=1)
    left = xp.asarray(a.T.copy()).T if turned[0] == "t" else xp.asarray(np.pad(a, ((0, 0), (16, 16))))[:, 16:-16]
    right = xp.asarray(b.T.copy()).T if turned[1] == "t" else xp.asarray(np.pad(b, ((0, 0), (0, 3))))[:, :-3]
    told = vars(ck.ops.matmul)["explain"](left, right, by="threads", stream=stream, **named)
    assert "copied" not in told
    eps = np.dtype("f2") if named else None
    if apart:
        left, right, a, b = left[::-1, ::2], right[::2, ::-1], a[::-1, ::2], b[::2, ::-1]
    check(multiply(left, right, stream=stream, **named), exact(a, b), a, b, eps)


def test_vectors_and_broadcasting(stream: Any, xp: Any) -> None:
    for of_a, of_b in (
        ((30,), (30,)),
        ((30,), (30, 20)),
        ((20, 30), (30,)),
        ((3, 20, 30), (30,)),
        ((30,), (3, 30, 20)),
        ((3, 20, 30), (30, 10)),
        ((2, 1, 20, 30), (3, 30, 10)),
        ((3, 1, 4, 1, 5, 6), (2, 1, 3, 6, 5)),
        ((2, 3, 1, 2, 1, 4, 5), (1, 3, 2, 1, 2, 5, 3)),
    ):
        a, b = numbers(*of_a), numbers(*of_b, seed=1)
        got = multiply(xp.asarray(a), xp.asarray(b), stream=stream)
        np.testing.assert_allclose(to_host(got), a.astype(float) @ b.astype(float), rtol=1e-4, atol=1e-4)
    a, b = numbers(2, 3, 40, 72), numbers(2, 3, 72, 24, seed=1)
    left, right = xp.asarray(a)[:, ::2, ::-1], xp.asarray(b)[:, ::2]
    check(multiply(left, right, stream=stream), exact(a[:, ::2, ::-1], b[:, ::2]), a[:, ::2, ::-1], b[:, ::2])


def curve(name: str | None, x: np.ndarray) -> np.ndarray:
    if name == "gelu":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return {None: lambda: x, "relu": lambda: np.maximum(x, 0), "silu": lambda: x / (1 + np.exp(-x))}[name]()


@in_tiers(
    "dtype, activation",
    ["f2", "f4", "f8"],
    [None, "relu", "gelu", "silu"],
    strength=1,
    also=lambda dtype, activation: (
        dtype == "f4" or (dtype, activation) in [("f2", "relu"), ("f8", "gelu"), ("f8", "silu")]
    ),
    quick=lambda *case: case in [("f4", "gelu"), ("f4", "silu"), ("f2", "relu")],
)
def test_epilogues(stream: Any, xp: Any, dtype: str, activation: str | None) -> None:
    a, b = numbers(70, 64, dtype=dtype), numbers(64, 80, dtype=dtype, seed=1)
    made = "f8" if dtype == "f8" else "f4"
    bias, residual = numbers(80, dtype=made, seed=2), numbers(70, 80, dtype=made, seed=3)
    got = multiply(
        *(xp.asarray(each) for each in (a, b)),
        bias=xp.asarray(bias),
        activation=activation,
        scale=0.25,
        residual=xp.asarray(residual),
        dtype=made,
        stream=stream,
    )
    assert got.dtype == made
    check(got, curve(activation, 0.25 * exact(a, b) + bias) + residual, a, b)


def leaky(x: Any) -> Any:
    return np.maximum(x, 0.1 * x)


def mish(x: Any) -> Any:
    return x * np.tanh(np.log(1 + np.exp(x)))


@in_tiers(
    "by, function",
    ["threads", "tiles"],
    [leaky, mish],
    quick=lambda by, function: (by == "tiles") == (function is mish),
)
def test_traced_activations(stream: Any, xp: Any, function: Any, by: Any) -> None:
    if by == "tiles" and why_no_tiles():
        pytest.skip(why_no_tiles())
    a, b = numbers(70, 64, dtype="f2"), numbers(64, 80, dtype="f2", seed=1)
    got = ck.ops.matmul(xp.asarray(a), xp.asarray(b), activation=function, scale=0.25, dtype="f4", by=by, stream=stream)
    check(got, function(0.25 * exact(a, b)), a, b)


@pytest.mark.parametrize("text", ["x / (1 + fabsf(x))", *slow("const V y = x * x; return y / (1 + y);")])
def test_written_activations(stream: Any, xp: Any, text: str) -> None:
    a, b = numbers(40, 64), numbers(64, 30, seed=1)
    got = ck.ops.matmul(xp.asarray(a), xp.asarray(b), activation=text, stream=stream)
    x = exact(a, b)
    check(got, x / (1 + np.abs(x)) if "fabsf" in text else x * x / (1 + x * x), a, b)


def test_activations_written_for_tiles(stream: Any, xp: Any) -> None:
    if why_no_tiles():
        pytest.skip(why_no_tiles())
    a, b = numbers(40, 64), numbers(64, 30, seed=1)
    halves = (xp.asarray(each.astype("f2")) for each in (a, b))
    got = ck.ops.matmul(*halves, activation="x / (ct::abs(x) + 1.0f)", by="tiles", dtype="f4", stream=stream)
    x = exact(a, b)
    check(got, x / (1 + np.abs(x)), a, b, np.dtype("f2"))


def test_a_function_that_tiles_lack_is_made_by_threads(stream: Any, xp: Any) -> None:
    a, b = xp.asarray(numbers(40, 64, dtype="f2")), xp.asarray(numbers(64, 30, dtype="f2"))

    def stepped(x: Any) -> Any:
        return np.where(x > 0, x, 0)

    told = vars(ck.ops.matmul)["explain"](a, b, activation=stepped, stream=stream)
    assert "by threads: the activation stepped has operations that tile kernels lack" in told
    with pytest.raises(ck.ArgumentError, match="operations that tile kernels lack"):
        ck.ops.matmul(a, b, activation=stepped, by="tiles", stream=stream)
    host = [to_host(each) for each in (a, b)]
    got = ck.ops.matmul(a, b, activation=stepped, stream=stream)
    check(got, np.maximum(exact(*host), 0), *host)


@pytest.mark.slow
def test_int8_as_numbers(stream: Any, xp: Any) -> None:
    a, b, bias = numbers(40, 64, dtype="i1"), numbers(64, 30, dtype="i1", seed=1), numbers(30)
    got = multiply(xp.asarray(a), xp.asarray(b), scale=0.125, bias=xp.asarray(bias), dtype="f4", stream=stream)
    np.testing.assert_allclose(to_host(got), exact(a, b) * 0.125 + bias, rtol=1e-6, atol=1e-6)
    plain = multiply(xp.asarray(a), xp.asarray(b), activation="relu", bias=xp.asarray(bias.astype("i4")), stream=stream)
    np.testing.assert_array_equal(to_host(plain), np.maximum(exact(a, b) + bias.astype("i4"), 0))


def test_outputs(stream: Any, xp: Any) -> None:
    a, b = numbers(16, 24), numbers(24, 32)
    wide = xp.zeros((16, 64), F4)
    multiply(xp.asarray(a), xp.asarray(b), out=wide[:, ::2], stream=stream)
    check(wide[:, ::2].copy(), exact(a, b), a, b)
    square = xp.asarray(numbers(24, 24))
    host = to_host(square).copy()
    check(multiply(square, square, out=square, stream=stream), exact(host, host), host, host)
    for m, n, k in ((0, 4, 4), (4, 0, 4), (4, 4, 0)):
        empty = multiply(xp.zeros((m, k), F4), xp.zeros((k, n), F4), stream=stream)
        assert (to_host(empty) == np.zeros((m, n))).all()
    bias = xp.asarray(numbers(4))
    got = multiply(xp.zeros((3, 0), F4), xp.zeros((0, 4), F4), bias=bias, stream=stream)
    np.testing.assert_array_equal(to_host(got), np.broadcast_to(to_host(bias), (3, 4)))


TILES = [(row, k) for row, tiles in matmul.TABLE.items() for k in range(len(tiles))]


@pytest.mark.slow
@in_tiers(
    "which, turned", TILES, ["nn", "tt"], strength=1, also=lambda which, turned: turned == ("nn", "tt")[which[1] % 2]
)
def test_all_tiles_of_the_table(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, which: tuple[str, int], turned: str
) -> None:
    row, k = which
    dtype = {"float32": "f4", "wide": "c8", "narrow": "i2", "tensor8": "i1", "tensor2": "f2", "float64": "f8"}
    kind, tile = dtype.get(row, "f4"), matmul.TABLE[row][k]
    a, b = numbers(150, 144, dtype=kind), numbers(144, 136, dtype=kind, seed=1)
    named = {"precision": "tf32"} if row == "tensor4" else {}
    monkeypatch.setattr(matmul, "choose", lambda *_: matmul.Choice(tile, ""))
    left, right = (
        xp.asarray(each.T.copy()).T if turn == "t" else xp.asarray(each)
        for each, turn in zip((a, b), turned, strict=True)
    )
    got = multiply(left, right, stream=stream, **named)
    check(got, exact(a, b), a, b, np.dtype("f2") if named else None)


@pytest.mark.emulator
@pytest.mark.parametrize(("capability", "is_mma"), [((7, 5), False), ((8, 0), True), ((8, 6), True)])
def test_older_devices_multiply_by_threads(capability: tuple[int, int], is_mma: bool) -> None:
    for name in ("f2", "i1", "f8"):
        dtype = np.dtype(name)
        assert matmul.multiplier_of(dtype, dtype, None, capability).is_mma == is_mma
    fp8 = np.dtype(ml_dtypes.float8_e4m3fn)
    assert not matmul.multiplier_of(fp8, F4, None, capability).is_mma


@pytest.mark.emulator
@pytest.mark.parametrize("dtype", ["i1", *slow("f2", "f4", "f8")])
def test_on_an_older_device(dtype: str) -> None:
    a, b = numbers(40, 50, dtype=dtype), numbers(50, 30, dtype=dtype, seed=1)
    got = ck.ops.matmul(a, b, stream=ck.emulator.stream(arch="sm_75"))
    check(got, exact(a, b), a, b)


@pytest.mark.emulator
def test_which_tiles_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    card = device_limits("sm_90")._replace(multiprocessors=132)
    monkeypatch.setattr(matmul, "busy_blocks", lambda _: card.multiprocessors)
    monkeypatch.setenv("CUDAKIT_TUNE", "off")
    largest = matmul.choose.__wrapped__("float32", 1, 8192, 8192, 8192, 0).tile
    assert largest == max(matmul.TABLE["float32"], key=lambda each: each.rate)
    assert matmul.choose.__wrapped__("float32", 1, 256, 256, 256, 0).tile.m == 64


def test_which_way_is_taken(stream: Any, xp: Any) -> None:
    explain = vars(ck.ops.matmul)["explain"]
    exact, halves = (xp.zeros((64, 64), dtype) for dtype in ("f4", "f2"))
    assert "by threads: float32 is multiplied" in explain(exact, exact, stream=stream)
    assert "by threads: they are asked for" in explain(halves, halves, by="threads", stream=stream)
    if not why_no_tiles():
        assert explain(halves, halves, stream=stream).endswith("by tile kernels")
    assert explain(exact[:0], exact) == "nothing to multiply"


def test_tf32_of_whole_numbers_is_exact(stream: Any, xp: Any) -> None:
    a, b = (
        np.random.default_rng(seed).integers(-9, 9, shape).astype(F4) for seed, shape in ((0, (20, 44)), (1, (44, 9)))
    )
    for left, right in ((xp.asarray(a), xp.asarray(b)), (xp.asarray(a.T.copy()).T, xp.asarray(b.T.copy()).T)):
        got = ck.ops.matmul(left, right, precision="tf32", by="threads", stream=stream)
        np.testing.assert_array_equal(to_host(got), a @ b)


def test_strided_bias_and_residual(stream: Any, xp: Any) -> None:
    a, b = numbers(4, 6), numbers(6, 5, seed=1)
    bias, residual = numbers(10, seed=2), numbers(5, 4, seed=3)
    got = ck.ops.matmul(
        *(xp.asarray(a), xp.asarray(b)), bias=xp.asarray(bias)[::2], residual=xp.asarray(residual).T, stream=stream
    )
    np.testing.assert_allclose(to_host(got), a @ b + bias[::2] + residual.T, rtol=1e-5, atol=1e-5)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("dtype", "named", "message"),
    [
        ("f4", {"by": "warps"}, "expected 'tiles' or 'threads'"),
        ("f4", {"by": "tiles"}, "precision='tf32'"),
        ("f8", {"by": "tiles"}, "is none of float16"),
        ("i4", {"scale": 0.5}, "scale 0.5 of int32"),
        ("i4", {"activation": "gelu"}, "activation gelu of int32"),
        ("i4", {"activation": "x * x"}, "of int32"),
        ("c8", {"activation": "relu"}, "activation relu of complex64"),
        ("i2", {"dtype": "f4"}, "can have int16"),
        ("f4", {"activation": "tanh"}, "none of"),
        ("M8[s]", {}, "is none of bool"),
    ],
)
def test_misuse(dtype: str, named: dict[str, Any], message: str) -> None:
    x = np.zeros((4, 4), dtype)
    with pytest.raises(ck.ArgumentError, match=message):
        ck.ops.matmul(x, x, **named)


@pytest.mark.emulator
def test_why_threads_multiply() -> None:
    half, own = np.dtype("f2"), activation_of("matmul", "x * x", F4)
    tiles = activation_of("matmul", "ct::abs(x)", F4)._replace(tile_source="#include <cuda_tile.h>")
    plain = activation_of("matmul", None, F4)
    for dtype, precision, activation, by, want in (
        (half, None, plain, None, None),
        (F4, "tf32", plain, None, None),
        (F4, None, plain, None, "float32 is multiplied on tensor cores as TF32"),
        (np.dtype("i4"), None, plain, None, "int32 is none of float16, bfloat16, "),
        (
            half,
            None,
            own._replace(tile_source=None),
            "tiles",
            "the activation x \\* x has operations that tile kernels lack",
        ),
        (half, None, own, None, r"the activation is C\+\+ of an element"),
        (half, None, own, "tiles", None),
        (half, None, tiles, None, None),
        (half, None, own._replace(tile_source="cudakit/product/tile_functions.cuh"), None, None),
    ):
        why = matmul._why_no_tiles(dtype, precision, activation, by)
        assert why is None if want is None else re.match(want, str(why))


@pytest.mark.emulator
def test_misuse_of_functions() -> None:
    x = np.zeros((4, 4), F4)
    for function in (lambda x: 1.0, lambda x: x if x > 0 else 0 * x, lambda x: np.sort(x)):
        with pytest.raises(ck.TemplateError):
            ck.ops.matmul(x, x, activation=function)
