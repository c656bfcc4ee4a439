"""Arrays in chunks through a pipeline, and put together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.pipelines import adding

import cudakit as ck

SMOOTH = """
// y[i, :] = x[i − 1, :] + x[i, :] + x[i + 1, :], rows repeated at the ends.
__global__ void smooth(const float* x, float* y, int rows, int columns) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += gridDim.x * blockDim.x) {
        const int row = i / columns, column = i % columns;
        y[i] = x[max(row - 1, 0) * columns + column] + x[i] + x[min(row + 1, rows - 1) * columns + column];
    }
}
"""


@pytest.mark.parametrize("rows", [1, 2, 99, 100, 101])
@pytest.mark.parametrize("chunk", [1, 7, 100, None])
def test_map_array(stream: Any, xp: Any, rows: int, chunk: int | None) -> None:
    array = np.random.default_rng(rows).random((rows, 5), np.float32)
    result = ck.Pipeline([adding(xp, 1)], stream=stream).map_array(array, chunk=chunk)
    np.testing.assert_array_equal(result, array + np.float32(1))


@pytest.mark.parametrize("chunk", [1, 2, 10, 64])
def test_a_stencil_with_a_halo_sees_no_chunks(stream: Any, xp: Any, chunk: int) -> None:
    kernel = ck.Kernel(SMOOTH)

    def smooth(x: Any, stream: Any) -> Any:
        y = xp.empty_like(x)
        kernel(stream, ck.config(2, 64), x, y, *x.shape)
        return y

    array = np.random.default_rng(0).random((64, 3), np.float32)
    padded = np.pad(array, ((1, 1), (0, 0)), mode="edge")
    expected = padded[:-2] + padded[1:-1] + padded[2:]
    pipeline = ck.Pipeline([smooth], stream=stream)
    np.testing.assert_allclose(pipeline.map_array(array, chunk=chunk, halo=1), expected, rtol=1e-6)
    if chunk < 64:
        without = pipeline.map_array(array, chunk=chunk)
        assert not np.allclose(without, expected)


def test_map_array_between_files(stream: Any, xp: Any, tmp_path: Any) -> None:
    array = np.arange(4000, dtype=np.float32).reshape(400, 10)
    np.save(tmp_path / "in.npy", array)
    pipeline = ck.Pipeline([adding(xp, 1)], stream=stream)
    found = pipeline.map_array(tmp_path / "in.npy", tmp_path / "out.npy", chunk=33)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array + 1)
    mapped = np.lib.format.open_memmap(tmp_path / "map.npy", mode="w+", dtype=np.float32, shape=array.shape)
    pipeline.map_array(array, mapped, chunk=33)
    np.testing.assert_array_equal(mapped, array + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "map.npy", "out.npy"]


def test_map_array_in_place_and_empty(stream: Any, xp: Any) -> None:
    array = np.arange(100, dtype=np.float32)
    pipeline = ck.Pipeline([adding(xp, 1)], stream=stream)
    assert pipeline.map_array(array, array, chunk=9) is array
    np.testing.assert_array_equal(array, np.arange(1, 101))
    empty = ck.Pipeline([lambda x, _: x.astype(np.int8)], stream=stream).map_array(np.empty((0, 4)))
    assert empty.shape == (0, 4)
    assert empty.dtype == np.int8


def test_map_array_says_what_does_not_fit(stream: Any, xp: Any, tmp_path: Any) -> None:
    array = np.zeros((20, 3), np.float32)
    same = ck.Pipeline([lambda x, _: x], stream=stream)
    with pytest.raises(ck.ArgumentError, match=r"given 7 rows and returned \(3,\)"):
        ck.Pipeline([lambda x, _: x.sum(0)], stream=stream).map_array(array, tmp_path / "sums.npy", chunk=7)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ck.ArgumentError, match=r"out is \(20, 4\) of float32; the stages give \(20, 3\)"):
        same.map_array(array, np.zeros((20, 4), np.float32))
    with pytest.raises(ck.ArgumentError, match="out cannot be the array itself"):
        same.map_array(array, array, chunk=4, halo=1)
    with pytest.raises(ck.ArgumentError, match="out is a writeable NumPy array or a path, got list"):
        same.map_array(array, [])
    with pytest.raises(ck.ArgumentError, match="rows is a number from 1 up, got 0"):
        same.map_array(array, chunk=0)
    with pytest.raises(ck.ArgumentError, match="expected a NumPy array with rows"):
        same.map_array(3)
