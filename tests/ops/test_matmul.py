"""Products of matrices by tile kernels, against NumPy in float64."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers, slow
from support.tiles import needs_tiles
from support.tolerance import bound

import cudakit as ck
from cudakit.arrays.place import array_place, device_limits
from cudakit.ops import matmul_tiles
from cudakit.ops.matmul_tiles import TABLE, Choice, MatrixLayout, choose, table_row

F2, F4 = np.dtype("f2"), np.dtype("f4")
#: Below a tile, one, just above, rows that TMA cannot read, one row, one column, and several of the greatest tiles.
SHAPES = [
    (64, 64, 64),
    (1, 1, 1),
    (65, 72, 130),
    (33, 17, 9),
    (1, 128, 64),
    (200, 1, 70),
    (300, 520, 100),
    (130, 150, 131),
]


@pytest.fixture(autouse=True)
def _tiles(request: pytest.FixtureRequest) -> None:
    if "misuse" not in request.node.name:
        needs_tiles()


def numbers(*shape: int, dtype: Any = F2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def check(got: Any, want: np.ndarray, a: np.ndarray, b: np.ndarray, eps: Any = None) -> None:
    scale = np.abs(a.astype(float)) @ np.abs(b.astype(float))
    found = to_host(got)
    assert found.shape == want.shape
    off = np.abs(found.astype(float) - want)
    allowed = bound(F4, a.shape[-1], scale) + bound(eps or found.dtype, 1, np.abs(want) + scale / 4)
    assert (off <= allowed).all(), float((off - allowed).max())


@pytest.mark.parametrize("shape", [SHAPES[3], *slow(*SHAPES[:3], *SHAPES[4:])])
def test_shapes(stream: Any, xp: Any, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = numbers(m, k), numbers(k, n, seed=1)
    for _ in range(2):
        got = ck.ops.matmul(xp.asarray(a), xp.asarray(b), stream=stream)
    assert got.dtype == F2
    check(got, a.astype(float) @ b.astype(float), a, b)


@pytest.mark.parametrize("turned", ["nn", *slow("nt", "tn", "tt")])
def test_views_are_read_as_they_lie(stream: Any, xp: Any, turned: str) -> None:
    a, b = numbers(80, 200), numbers(200, 96, seed=1)
    left = xp.asarray(a.T.copy()).T if turned[0] == "t" else xp.asarray(np.pad(a, ((0, 0), (8, 8))))[:, 8:-8]
    right = xp.asarray(b.T.copy()).T if turned[1] == "t" else xp.asarray(np.pad(b, ((0, 0), (0, 3))))[:, :-3]
    check(ck.ops.matmul(left, right, stream=stream), a.astype(float) @ b.astype(float), a, b)
    check(
        ck.ops.matmul(left[::-1, ::2], right[::2], stream=stream),
        a[::-1, ::2].astype(float) @ b[::2],
        a[::-1, ::2],
        b[::2],
    )


@pytest.mark.slow
def test_batches(stream: Any, xp: Any) -> None:
    a, b = numbers(2, 3, 40, 72), numbers(2, 3, 72, 24, seed=1)
    want = a.astype(float) @ b.astype(float)
    left, right = xp.asarray(a), xp.asarray(b)
    check(ck.ops.matmul(left, right, stream=stream), want, a, b)
    check(ck.ops.matmul(left[:, 1], right[:, 1], stream=stream), want[:, 1], a[:, 1], b[:, 1])
    turned = xp.asarray(b.swapaxes(-1, -2).copy()).swapaxes(-1, -2)
    check(ck.ops.matmul(left, turned, residual=left[..., :24], stream=stream), want + a[..., :24], a, b)
    check(ck.ops.matmul(left, right[0, 0], stream=stream), a.astype(float) @ b[0, 0], a, b[0, 0])


@pytest.mark.parametrize("activation", ["gelu", *slow(None, "relu", "silu")])
def test_epilogues(stream: Any, xp: Any, activation: str | None) -> None:
    a, b, bias, residual = numbers(70, 64), numbers(64, 80), numbers(80, dtype=F4), numbers(70, 80, dtype=F4)
    got = ck.ops.matmul(
        *(xp.asarray(each) for each in (a, b)),
        bias=xp.asarray(bias),
        activation=activation,
        scale=0.25,
        residual=xp.asarray(residual),
        dtype="f4",
        stream=stream,
    )
    x = 0.25 * (a.astype(float) @ b.astype(float)) + bias
    curve = {
        None: x,
        "relu": np.maximum(x, 0),
        "gelu": x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "silu": x / (1 + np.exp(-x)),
    }[activation]
    assert got.dtype == F4
    check(got, curve + residual, a, b)


@pytest.mark.parametrize("name", slow("bfloat16", "float8_e4m3fn", "float8_e5m2"))
def test_narrow_types(stream: Any, xp: Any, name: str) -> None:
    if xp is not np:
        pytest.skip("CuPy has no such arrays")
    dtype = np.dtype(getattr(ml_dtypes, name))
    a, b = numbers(70, 96, dtype=dtype), numbers(96, 48, dtype=dtype)
    got = ck.ops.matmul(a, b, stream=stream)
    assert got.dtype == (dtype if name == "bfloat16" else F4)
    check(got, a.astype(float) @ b.astype(float), a, b)


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_activations_of_bfloat16(stream: Any, xp: Any, activation: str) -> None:
    if xp is not np:
        pytest.skip("CuPy has no such arrays")
    a, b = (numbers(*shape, dtype=ml_dtypes.bfloat16) for shape in ((70, 64), (64, 80)))
    got = ck.ops.matmul(a, b, activation=activation, scale=0.25, stream=stream)
    x = 0.25 * (a.astype(float) @ b.astype(float))
    tanh = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3) if activation == "gelu" else x / 2)
    check(got, x / 2 * (1 + tanh), a, b)


WAYS = {
    **dict.fromkeys(("half", "fp8"), ("nn", "nt", "tn", "tt")),
    "TF32": ("nt",),
    "TF32, rows of B": ("nn", "tn"),
    "TF32, columns of A": ("tt",),
}
TILES = [(row, k) for row in WAYS for k in range(len(TABLE[row]))]


def is_whole(which: tuple[str, int], turned: str) -> bool:
    """Whether this way is in the whole suite: one of each tile, all of one swapped and of one with more columns."""
    row, k = which
    return turned == WAYS[row][k % len(WAYS[row])] or (row == "half" and k in (2, 8))


@pytest.mark.slow
@in_tiers(
    "which, turned",
    TILES,
    WAYS["half"],
    strength=1,
    where=lambda which, turned: turned in WAYS[which[0]],
    also=is_whole,
)
def test_all_tiles_of_the_table(
    stream: Any, xp: Any, monkeypatch: pytest.MonkeyPatch, which: tuple[str, int], turned: str
) -> None:
    row, k = which
    assert table_row({"half": 2, "fp8": 1}.get(row, 4), turned[0] == "t", turned[1] == "t") == row
    if row == "fp8" and xp is not np:
        pytest.skip("CuPy has no such arrays")
    dtype = {"fp8": np.dtype(ml_dtypes.float8_e4m3fn), "half": F2}.get(row, F4)
    a, b = numbers(2, 40, 144, dtype=dtype), numbers(2, 144, 72, dtype=dtype, seed=1)
    left = xp.asarray(a.swapaxes(1, 2).copy()).swapaxes(1, 2) if turned[0] == "t" else xp.asarray(a)
    right = xp.asarray(b.swapaxes(1, 2).copy()).swapaxes(1, 2) if turned[1] == "t" else xp.asarray(b)
    tiles = TABLE[row][k]
    monkeypatch.setattr(import_module("cudakit.ops.matmul_tiles"), "choose", lambda *_: Choice(tiles, ""))
    got = ck.ops.matmul(left, right, precision="tf32" if dtype == F4 else None, dtype="f4", stream=stream)
    check(got, a.astype(float) @ b.astype(float), a, b, F2 if dtype == F4 else None)


@pytest.mark.slow
def test_columns_of_a_are_turned_for_tf32(stream: Any, xp: Any) -> None:
    a, b = numbers(32, 40, dtype=F4), numbers(40, 1040, dtype=F4, seed=1)
    left, right = xp.asarray(a.T.copy()).T, xp.asarray(b)
    assert "a: copied first, for TF32" in vars(ck.ops.matmul)["explain"](left, right, precision="tf32", stream=stream)
    got = ck.ops.matmul(left, right, precision="tf32", stream=stream)
    check(got, a.astype(float) @ b.astype(float), a, b, F2)


def test_which_tiles_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    card = device_limits("sm_90")._replace(multiprocessors=132)
    monkeypatch.setattr("cudakit.ops.matmul_tiles.device_limits", lambda _: card)
    monkeypatch.setattr("cudakit.arrays.place.busy_blocks", lambda _: card.multiprocessors)

    def chosen(row: str, *sizes: int, batches: int = 1) -> tuple[int, ...]:
        return choose.__wrapped__(row, batches, *sizes, 0).tiles[:3]

    # No power of two of columns fills so many multiprocessors.
    more = [choose.__wrapped__("half", 1, size, size, size, 0).tiles.more for size in (1024, 1536, 2048, 3072, 4096)]
    assert more == [0, 32, 0, 64, 0]
    # What was fastest, or within some hundredths of it, of all that were measured on an H200.
    for size, want in ((512, (64, 32)), (1024, (64, 128)), (2048, (128, 128)), (3072, (128, 128)), (8192, (256, 256))):
        assert chosen("half", size, size, size)[:2] == want
    assert chosen("half", 1024, 1024, 1024, batches=64) == (128, 256, 64)
    for rows, want in (
        (1, (16, 64)),
        (16, (16, 64)),
        (32, (32, 64)),
        (64, (64, 64)),
        (128, (64, 128)),
        (256, (128, 128)),
    ):
        assert chosen("half", rows, 8192, 8192)[:2] == want
    assert chosen("half", 8192, 8192, 512) == (128, 256, 64)
    assert chosen("half", 8192, 64, 8192) == (64, 64, 128)
    for row, want in (
        ("TF32", ((64, 64), (64, 128), (128, 128), (128, 128))),
        ("TF32, rows of B", ((64, 64), (64, 128), (256, 128), (256, 128))),
        ("fp8", ((64, 64), (64, 128), (128, 128), (128, 128))),
    ):
        assert tuple(chosen(row, size, size, size)[:2] for size in (512, 1024, 2048, 8192)) == want


@pytest.mark.slow
def test_rows_that_tma_cannot_read_are_copied(stream: Any, xp: Any) -> None:
    a, b = numbers(2, 131, 135), numbers(2, 135, 129, seed=1)
    want = a.astype(float) @ b.astype(float)
    left, right = xp.asarray(a), xp.asarray(b.swapaxes(1, 2).copy()).swapaxes(1, 2)
    check(ck.ops.matmul(left, right, stream=stream), want, a, b)
    check(ck.ops.matmul(left[0], right[1], stream=stream), a[0].astype(float) @ b[1], a[0], b[1])


@pytest.mark.slow
def test_tf32(stream: Any, xp: Any) -> None:
    a, b = numbers(70, 96, dtype=F4), numbers(96, 48, dtype=F4)
    got = ck.ops.matmul(xp.asarray(a), xp.asarray(b), precision="tf32", stream=stream)
    # Elements keep as many bits as float16's.
    check(got, a.astype(float) @ b.astype(float), a, b, F2)


@pytest.mark.emulator
def test_operands_are_read_as_they_lie() -> None:
    place, _ = array_place("matmul", None, ("x", np.zeros(1)))
    x = np.zeros((256, 256), F2)
    for each in (x, x.T, x[:, :128], x[:, 8:]):
        taken = matmul_tiles._operand_layout(place, each, 256)
        assert taken.reason is None
        assert np.shares_memory(matmul_tiles._operand(place, each, taken), x)
    for each, uses, reason in (
        (x[:, 4:], 256, "its address or pitch is no multiple of 16 bytes"),
        (x[:, 4:], 127, None),
        (x[:, 4:36], 256, None),
        (x[::2, ::2], 256, "no axis of it is contiguous"),
    ):
        assert matmul_tiles._operand_layout(place, each, uses).reason == reason
    made = matmul_tiles._operand(
        place, x[:100, 4:134], taken := matmul_tiles._operand_layout(place, x[:130, 4:134], 256)
    )
    assert taken.layout == (False, 136, 0)
    assert made.shape == (100, 136)
    wide, rows = np.zeros((256, 256), F4), MatrixLayout(False, 256, 0)
    for uses, beside, reason in (
        (1024, rows, "TF32 is multiplied by rows of B with rows of A"),
        (1023, rows, None),
        (1024, rows._replace(is_transposed=True), None),
        (1024, None, None),
    ):
        assert matmul_tiles._operand_layout(place, wide.T, uses, beside).reason == reason
        assert matmul_tiles._operand_layout(place, wide, uses, beside).reason is None


@pytest.mark.slow
def test_outputs(stream: Any, xp: Any) -> None:
    a, b = numbers(16, 24), numbers(24, 32)
    want = a.astype(float) @ b.astype(float)
    wide = xp.zeros((16, 64), F4)
    assert ck.ops.matmul(xp.asarray(a), xp.asarray(b), out=wide[:, ::2], stream=stream) is not None
    check(wide[:, ::2].copy(), want, a, b, F2)
    square = xp.asarray(numbers(24, 24))
    host = to_host(square)
    check(ck.ops.matmul(square, square, out=square, stream=stream), host.astype(float) @ host, host, host)
    for m, n, k in ((0, 4, 4), (4, 0, 4), (4, 4, 0)):
        empty = ck.ops.matmul(xp.zeros((m, k), F2), xp.zeros((k, n), F2), stream=stream)
        assert (to_host(empty) == np.zeros((m, n))).all()


@pytest.mark.parametrize(
    ("shapes", "named", "message"),
    [
        (((4, 5), (4, 5)), {}, "do not fit"),
        (((4,), (5, 4)), {}, "do not fit"),
        (((), (5, 4)), {}, "do not fit"),
        (((2, 4, 4), (3, 4, 4)), {}, "do not fit"),
        (((4, 4), (4, 4)), {"activation": "tanh"}, "none of"),
        (((4, 4), (4, 4)), {"bias": np.zeros(4, F4)}, "bias is float32"),
        (((4, 4), (4, 4)), {"residual": np.zeros((4, 5), F2)}, "residual is float16 of shape"),
        (((4, 4), (4, 4)), {"dtype": "f8"}, "can have"),
        (((4, 4), (4, 4)), {"by": "warps"}, "expected 'tiles' or 'threads'"),
        (((4, 4), (4, 4)), {"precision": "fp64"}, "expected 'tf32'"),
    ],
)
@pytest.mark.emulator
def test_misuse(shapes: Any, named: dict[str, Any], message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        ck.ops.matmul(*(np.zeros(shape, F2) for shape in shapes), **named)


@pytest.mark.emulator
def test_misuse_of_dtypes() -> None:
    for a, b, message in ((F2, F4, "cast one"), ("M8[s]", "M8[s]", "is none of")):
        with pytest.raises(ck.ArgumentError, match=message):
            ck.ops.matmul(np.zeros((4, 4), a), np.zeros((4, 4), b))


@pytest.mark.slow
def test_what_is_chosen_is_explained(stream: Any, xp: Any) -> None:
    explain = vars(ck.ops.matmul)["explain"]
    a = xp.zeros((16384, 520), F2)
    told = explain(a, a.T)
    assert " × 256 × 64, 8 warps, " in told  # fewer CTAs on a card, which looks at the short sums too
    assert "b: read as it lies, turned" in told
    assert "copied first" in explain(a[::2, ::2], a[:260])
    assert "a: copied first, for its address" in explain(a[:, 1:], a[:1].repeat(519, 0))
    batches = xp.zeros((2, 3, 40, 16), F2)
    assert "a: copied first, for its batch" in explain(batches[:, 1:], a[:16])
    assert "b: copied first, for its batch" in explain(batches, batches[:1].swapaxes(-1, -2))
    host = numbers(2, 3, 40, 16)
    left = xp.asarray(host)
    got = ck.ops.matmul(left, left[:1].swapaxes(-1, -2), stream=stream)
    check(got, host.astype(float) @ host[:1].astype(float).swapaxes(-1, -2), host, host[:1].swapaxes(-1, -2))
