"""Products of which one side is a vector, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import in_tiers, slow

import cudakit as ck

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
QUICK = ["i1", "f4"]


def numbers(*shape: int, dtype: Any = "f4", seed: int = 0) -> np.ndarray:
    made = np.random.default_rng(seed).integers(-4, 5, shape)
    return made.astype(dtype) if np.dtype(dtype).kind != "c" else (made + 1j * made[::-1]).astype(dtype)


def close(got: Any, want: np.ndarray) -> None:
    found = to_host(got)
    assert (found.shape, found.dtype) == (want.shape, want.dtype)
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(found, want)
    else:
        eps = float(ml_dtypes.finfo(want.dtype).eps)
        np.testing.assert_allclose(found.astype(complex), want.astype(complex), rtol=4 * eps, atol=eps)


@pytest.mark.parametrize("dtype", [*QUICK, *slow(*(each for each in DTYPES if each not in QUICK))])
def test_matvec_of_any_dtype(stream: Any, xp: Any, dtype: str) -> None:
    a, v = numbers(37, 70, dtype=dtype), numbers(70, dtype=dtype, seed=1)
    close(ck.ops.matvec(xp.asarray(a), xp.asarray(v), stream=stream), np.einsum("ij,j->i", a, v))


@in_tiers(
    "shape, dtype",
    [(70, 515), (3000, 264)],
    ["i1", "u2", "i4", "f2", "f4", "f8"],
    strength=1,
    also=lambda shape, dtype: dtype in ("f4", "i1") or dtype in (("u2", "f2") if shape[0] == 70 else ("i4", "f8")),
    quick=lambda shape, dtype: (shape[0], dtype) in [(70, "f4"), (70, "i1")],
)
def test_long_rows_and_columns(stream: Any, xp: Any, dtype: str, shape: tuple[int, int]) -> None:
    a, v = numbers(*shape, dtype=dtype), numbers(shape[1], dtype=dtype, seed=1)
    want = np.einsum("ij,j->i", a, v) if np.dtype(dtype).kind in "iu" else (a.astype("f8") @ v).astype(dtype)
    left, right = xp.asarray(a), xp.asarray(v)
    for _ in range(2):
        close(ck.ops.matvec(left, right, stream=stream), want)
    close(ck.ops.matvec(xp.asarray(a.T.copy()).T, right, stream=stream), want)
    wide = xp.asarray(np.pad(a, ((0, 0), (1, 2))))
    close(ck.ops.matvec(wide[:, 1:-2], right, stream=stream), want)
    close(ck.ops.matvec(left[:, :256], right[:256], stream=stream), want_of_part(a, v))


def want_of_part(a: np.ndarray, v: np.ndarray) -> np.ndarray:
    a, v = a[:, :256], v[:256]
    return np.einsum("ij,j->i", a, v) if a.dtype.kind in "iu" else (a.astype("f8") @ v).astype(a.dtype)


@pytest.mark.parametrize("dtype", [*QUICK, *slow(*(each for each in DTYPES if each not in QUICK))])
def test_outer_of_any_dtype(stream: Any, xp: Any, dtype: str) -> None:
    x, y = numbers(37, dtype=dtype), numbers(21, dtype=dtype, seed=1)
    close(ck.ops.outer(xp.asarray(x), xp.asarray(y), stream=stream), np.outer(x, y))


def test_bfloat16(stream: Any, xp: Any) -> None:
    if xp is not np:
        pytest.skip("CuPy has no such arrays")
    a, v = numbers(9, 33, dtype=ml_dtypes.bfloat16), numbers(33, dtype=ml_dtypes.bfloat16, seed=1)
    want = (a.astype("f4") @ v.astype("f4")).astype(ml_dtypes.bfloat16)
    close(ck.ops.matvec(a, v, stream=stream), want)
    close(ck.ops.outer(v, v, stream=stream), np.outer(v, v))


@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (300, 1), (65, 129), (0, 4), (4, 0)])
def test_shapes(stream: Any, xp: Any, shape: tuple[int, int]) -> None:
    a, v = numbers(*shape), numbers(shape[1], seed=1)
    for _ in range(2):
        close(ck.ops.matvec(xp.asarray(a), xp.asarray(v), stream=stream), a @ v)
    x, y = numbers(shape[0]), numbers(shape[1])
    close(ck.ops.outer(xp.asarray(x), xp.asarray(y), stream=stream), np.outer(x, y))


def test_strides_and_batches(stream: Any, xp: Any) -> None:
    a, v = numbers(3, 40, 50), numbers(3, 50, seed=1)
    left, right = xp.asarray(a), xp.asarray(v)
    want = np.einsum("bij,bj->bi", a, v)
    close(ck.ops.matvec(left, right, stream=stream), want)
    close(ck.ops.matvec(left, right[1], stream=stream), a @ v[1])
    close(ck.ops.matvec(left[1], right, stream=stream), np.einsum("ij,bj->bi", a[1], v))
    close(ck.ops.matvec(left[1].T, left[1, ::-1, 3], stream=stream), a[1].T @ a[1, ::-1, 3])
    close(ck.ops.matvec(left[::-1, ::2, ::5], right[::-1, ::5], stream=stream), want_of(a, v))
    close(ck.ops.outer(left[0], right[:, ::7], stream=stream), np.outer(a[0], v[:, ::7]))


def want_of(a: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.einsum("bij,bj->bi", a[::-1, ::2, ::5], v[::-1, ::5])


def test_outputs(stream: Any, xp: Any) -> None:
    a, v = numbers(40, 40), numbers(40, seed=1)
    right, want = xp.asarray(v.copy()), a @ v
    assert ck.ops.matvec(xp.asarray(a), right, out=right, stream=stream) is not None
    close(right, want)
    wide = xp.zeros((40, 80), "f8")
    ck.ops.outer(xp.asarray(a[0]), xp.asarray(v), out=wide[:, ::2], stream=stream)
    close(wide[:, ::2].copy(), np.outer(a[0], v).astype("f8"))


def test_outer_of_strided_memory(stream: Any, xp: Any) -> None:
    """And of what has no kernel of its own: such dtypes, and nothing."""
    x, y = numbers(8), numbers(10, seed=1)
    close(ck.ops.outer(xp.asarray(x)[::2], xp.asarray(y), stream=stream), np.outer(x[::2], y))
    close(ck.ops.outer(xp.asarray(x), xp.asarray(y)[::-2], stream=stream), np.outer(x, y[::-2]))
    wide = xp.zeros((8, 20), "f4")
    ck.ops.outer(xp.asarray(x), xp.asarray(y), out=wide[:, ::2], stream=stream)
    close(wide[:, ::2].copy(), np.outer(x, y))
    assert to_host(wide[:, 1::2]).max() == 0
    whole = xp.arange(3, dtype="i8")
    assert to_host(ck.ops.outer(whole, whole, stream=stream)).tolist() == [[0, 0, 0], [0, 1, 2], [0, 2, 4]]
    assert ck.ops.outer(whole[:0], whole, stream=stream).shape == (0, 3)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((4,), (4,)), "do not fit"),
        (((4, 5), (4,)), "do not fit"),
        (((2, 4, 5), (3, 5)), "do not fit"),
        (((4, 5), ()), "do not fit"),
    ],
)
def test_misuse(shapes: Any, message: str) -> None:
    with pytest.raises(ck.ArgumentError, match=message):
        ck.ops.matvec(*(np.zeros(shape) for shape in shapes))


@pytest.mark.emulator
def test_misuse_of_dtypes() -> None:
    with pytest.raises(ck.ArgumentError, match="cast one"):
        ck.ops.matvec(np.zeros((4, 4)), np.zeros(4, "f4"))
    with pytest.raises(ck.CudakitError):
        ck.ops.matvec(np.zeros((4, 4), "M8[s]"), np.zeros(4, "M8[s]"))
    with pytest.raises(ck.ArgumentError, match="out"):
        ck.ops.outer(np.zeros(3), np.zeros(4), out=np.zeros((4, 3)))
