"""Zarr arrays as sources and sinks, on a stand-in for the package: what it is asked to make, and what is refused."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import pipeline as lines


class Memory:
    """A store in this process."""


class Array:
    """Zarr's array: a folder with a file of NumPy's."""

    def __init__(self, folder: Path | None, values: np.ndarray, chunks: tuple[int, ...]) -> None:
        self.folder, self.values, self.chunks = folder, values, chunks
        self.store = Memory() if folder is None else str(folder)
        self._save()

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    nbytes = property(lambda self: self.values.nbytes)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> np.ndarray:
        return self.values[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[key] = value
        self._save()

    def append(self, rows: np.ndarray, axis: int) -> None:
        self.values = np.concatenate([self.values, rows], axis)
        self._save()

    def _save(self) -> None:
        if self.folder is not None:
            self.folder.mkdir(exist_ok=True)
            np.save(self.folder / "values.npy", self.values)
            (self.folder / "chunks.json").write_text(json.dumps(self.chunks))


@pytest.fixture(autouse=True)
def opened(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Paths and modes that the package was asked for."""
    asked: list[tuple[str, str]] = []

    def open_array(path: str, mode: str, **made: Any) -> Array:
        asked.append((path, mode))
        if mode == "w":
            return Array(Path(path), np.zeros(made["shape"], made["dtype"]), tuple(made["chunks"]))
        chunks = json.loads(Path(path, "chunks.json").read_text())
        return Array(Path(path), np.load(Path(path, "values.npy")), tuple(chunks))

    module = ModuleType("zarr")
    module.open_array, module.Array = open_array, Array  # type: ignore[attr-defined]
    module.storage = SimpleNamespace(MemoryStore=Memory)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zarr", module)
    return asked


def stored(path: Path, values: np.ndarray, rows: int) -> Path:
    Array(path, values, (rows, *values.shape[1:]))
    return path


def read(path: Path) -> np.ndarray:
    found: np.ndarray = np.load(path / "values.npy")
    return found


def chunks_of(path: Path) -> list[int]:
    found: list[int] = json.loads((path / "chunks.json").read_text())
    return found


NUMBERS = np.arange(40, dtype=np.float32).reshape(10, 4)


def test_a_stored_array_is_read_in_chunks_of_its_own(tmp_path: Path, opened: list[Any]) -> None:
    path = stored(tmp_path / "in.zarr", NUMBERS, 3)
    source = lines.from_zarr(path, halo=1)
    assert opened == [(str(path), "r")]
    assert [len(chunk) for chunk in source] == [4, 5, 5, 2]
    np.testing.assert_array_equal(next(iter(source)), NUMBERS[:4])
    assert source.threaded
    assert source.is_stored
    assert [len(chunk) for chunk in lines.from_zarr(path, 6)] == [6, 4]
    memory = Array(None, NUMBERS, (5, 4))
    assert not lines.from_zarr(memory).is_stored
    assert [len(chunk) for chunk in lines.from_zarr(memory)] == [5, 5]


def test_the_name_of_a_store_elsewhere_is_left_as_it_is(opened: list[Any]) -> None:
    with pytest.raises(FileNotFoundError):
        lines.from_zarr("elsewhere://array")
    assert opened == [("elsewhere://array", "r")]


@pytest.mark.parametrize("wrong", [3, NUMBERS, Array(None, np.float32(1)[()] * np.ones(()), ())])
def test_what_is_no_array_with_rows_is_refused(wrong: Any) -> None:
    with pytest.raises(
        ck.ArgumentError, match=f"expected a Zarr array with rows, or a path; got {type(wrong).__name__}"
    ):
        lines.from_zarr(wrong)


def test_wrong_numbers_are_refused() -> None:
    memory = Array(None, NUMBERS, (5, 4))
    with pytest.raises(ck.ArgumentError, match="from_zarr: rows"):
        lines.from_zarr(memory, 0)
    with pytest.raises(ck.ArgumentError, match="from_zarr: halo"):
        lines.from_zarr(memory, 1, halo=-1)
    assert [len(chunk) for chunk in lines.from_zarr(memory, 1)] == [1] * 10


def test_results_are_appended_with_the_first_ones_chunks(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    with lines.to_zarr(path) as sink:
        sink.write(NUMBERS[:4])
        assert not path.exists()
        sink.write(NUMBERS[4:])
    np.testing.assert_array_equal(read(path), NUMBERS)
    assert chunks_of(path) == [4, 4]
    with lines.to_zarr(path, stack=True) as sink:
        for row in NUMBERS:
            sink.write(row)
    np.testing.assert_array_equal(read(path), NUMBERS)
    assert chunks_of(path) == [1, 4]
    with lines.to_zarr(path) as sink:
        sink.write(np.zeros((2, 0), "i4"))
    assert (read(path).shape, chunks_of(path)) == ((2, 0), [2, 1])


def test_results_that_do_not_fit_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"

    def write(second: Any) -> None:
        with lines.to_zarr(path) as sink:
            sink.write(NUMBERS)
            sink.write(second)

    for second, why in (
        (NUMBERS[:, :2], r"rows of float32 \(2,\), and those before float32 \(4,\)"),
        (NUMBERS.astype("f8"), r"rows of float64 \(4,\), and those before float32"),
        (np.float32(3), "a result is a NumPy array, got float32"),
        (np.array(3, "f4"), "a result of no dimension has no rows; give stack=True"),
    ):
        with pytest.raises(ck.ArgumentError, match=f"to_zarr: .*{why}"):
            write(second)
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(ck.ArgumentError, match="there was no result, and so no dtype to write"), lines.to_zarr(path):
        pass


def test_each_result_goes_to_the_rows_of_its_chunk(tmp_path: Path, opened: list[Any]) -> None:
    path, source = tmp_path / "out.zarr", lines.from_array(NUMBERS, 4, halo=1)
    sink = lines.to_zarr(path, like=source)
    with pytest.raises(ck.ArgumentError, match="written to inside of its `with` block"):
        sink.write(NUMBERS[:4], 0)
    with sink:
        sink.write(2 * NUMBERS[3:9], 1)  # with the rows of its halo
        sink.write(2 * NUMBERS[8:], 2)
        sink.write(2 * NUMBERS[:5], 0)
        assert not path.exists()
    np.testing.assert_array_equal(read(path), 2 * NUMBERS)
    assert chunks_of(path) == [4, 4]
    assert [mode for _, mode in opened] == ["w", "r+"]
    assert opened[0][0] == opened[1][0]


def test_results_of_other_rows_have_a_shape_and_dtype(tmp_path: Path) -> None:
    path, source = tmp_path / "out.zarr", lines.from_array(NUMBERS, 6, halo=2)
    with lines.to_zarr(path, like=source, shape=(2, 0), dtype="i8") as sink:
        sink.write(np.zeros((6, 2, 0), "i8"), 0)
        with pytest.raises(ck.ArgumentError, match="chunk 1 has 4 rows, and its result 3"):
            sink.write(np.zeros((3, 2, 0), "i8"), 1)
        with pytest.raises(ck.ArgumentError, match=r"rows of float64 \(2, 0\), and those before int64 \(2, 0\)"):
            sink.write(np.zeros((4, 2, 0), "f8"), 1)
        with pytest.raises(ck.ArgumentError, match="has no rows"):
            sink.write(np.array(3), 1)
    assert (read(path).shape, read(path).dtype, chunks_of(path)) == ((10, 2, 0), np.int64, [6, 2, 1])


def test_a_sink_of_parts_goes_to_other_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sink = lines.to_zarr("out.zarr", like=lines.from_array(NUMBERS, 5))
    with sink:
        other = pickle.loads(pickle.dumps(sink))
        other.write(NUMBERS[5:], 1)
        pickle.loads(pickle.dumps(other)).write(NUMBERS[:5], 0)
    np.testing.assert_array_equal(read(tmp_path / "out.zarr"), NUMBERS)
    assert other._path == tmp_path / "out.zarr"


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    source = lines.from_array(NUMBERS, 5)
    for options, why in (
        ({"shape": (4,)}, "shape and dtype are given with like="),
        ({"dtype": "f4"}, "shape and dtype are given with like="),
        ({"like": NUMBERS}, "like= is what from_array or from_zarr made"),
        ({"like": source, "stack": True}, "stack=True goes without it"),
        ({"like": source, "shape": (-1,)}, "to_zarr: shape"),
        ({"like": source, "dtype": "no"}, "to_zarr: dtype"),
    ):
        with pytest.raises(ck.ArgumentError, match=why):
            lines.to_zarr(tmp_path / "out.zarr", **options)  # type: ignore[arg-type]


def test_a_pipeline_from_zarr_to_zarr(tmp_path: Path) -> None:
    source = lines.from_zarr(stored(tmp_path / "in.zarr", NUMBERS, 3), halo=1)
    sink = lines.to_zarr(tmp_path / "out.zarr", like=source)
    assert ck.scale.run(lambda x: x * x, source, sink) == 4
    np.testing.assert_array_equal(read(tmp_path / "out.zarr"), NUMBERS**2)
