"""Sources and sinks of pipelines: files, folders, Zarr arrays, sockets; what is wrong with them is named."""

from __future__ import annotations

import io
import itertools
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit import pipeline as lines
from cudakit.pipeline import sources


def same() -> ck.Pipeline:
    return ck.Pipeline([lines.host(lambda item: item)])


# ── arrays and .npy files ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [1, 3, 10, 11])
@pytest.mark.parametrize("halo", [0, 2, 100])
def test_chunks_hold_their_rows_and_halo(rows: int, halo: int) -> None:
    array = np.arange(30).reshape(10, 3)
    source = lines.from_array(array, rows, halo=halo)
    chunks = list(source)
    assert len(source) == len(chunks) == -(-10 // rows)
    for chunk, (first, start, stop, last) in zip(chunks, source.spans, strict=True):
        np.testing.assert_array_equal(chunk, array[max(start - halo, 0) : stop + halo])
        assert (first, last) == (max(start - halo, 0), min(stop + halo, 10))
    own = [
        chunk[start - first : stop - first] for chunk, (first, start, stop, _) in zip(chunks, source.spans, strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(own), array)


def test_a_file_is_mapped_and_one_can_be_written(tmp_path: Path) -> None:
    array = np.arange(600, dtype=np.int16).reshape(100, 6)
    np.save(tmp_path / "in.npy", array)
    source = lines.from_array(tmp_path / "in.npy", 7)
    assert isinstance(source.array, np.memmap)
    assert same().run(source, lines.to_npy(tmp_path / "out.npy")) == 15
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), array)
    out = np.zeros((100, 6), np.int32)
    same().run(source, lines.to_array(out))
    np.testing.assert_array_equal(out, array)


def test_npy_files_of_a_folder_are_items(tmp_path: Path) -> None:
    for number in range(12):
        np.save(tmp_path / f"{number:02d}.npy", np.full(3, number))
    source = lines.from_npy(tmp_path)
    assert [int(item[0]) for item in same()(source)] == list(range(12))
    assert same().run(source, lines.to_npy(tmp_path / "all.npy", stack=True)) == 12
    assert np.load(tmp_path / "all.npy").shape == (12, 3)
    (one,) = same()(lines.from_npy(tmp_path / "03.npy"))
    assert one.tolist() == [3, 3, 3]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", np.zeros(3))
    (tmp_path / "1.npy").write_bytes(b"no array")
    with pytest.raises(ck.PipelineError, match=r"the source failed on item 1.*1\.npy cannot be read"):
        list(same()(lines.from_npy(tmp_path)))
    np.save(tmp_path / "1.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ck.PipelineError, match=r"1\.npy cannot be read"):
        list(same()(lines.from_npy(tmp_path)))
    with pytest.raises(ck.ArgumentError, match=r"has no file that ends in \.npy"):
        lines.from_npy(tmp_path / "..")


class Stops(Exception):
    pass


def two_then_stop(item: Callable[[int], Any]) -> Iterator[Any]:
    yield item(0)
    yield item(1)
    raise Stops


@pytest.mark.parametrize("name", ["npy", "zarr"])
def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    if name == "zarr":
        pytest.importorskip("zarr")
    make = {"npy": lines.to_npy, "zarr": lines.to_zarr}[name]
    path = tmp_path / "out"
    with pytest.raises(ck.PipelineError) as caught:
        same().run(two_then_stop(lambda n: np.full((2, 3), n)), make(path))
    assert isinstance(caught.value.__cause__, Stops)
    assert list(tmp_path.iterdir()) == []
    same().run([np.zeros((2, 3))], make(path))
    with pytest.raises(ck.ArgumentError, match=r"rows of float64 \(4,\), and those before float64 \(3,\)"):
        same().run([np.ones((2, 3)), np.ones((2, 4))], make(path))
    with pytest.raises(ck.ArgumentError, match="there was no result"):
        same().run([], make(path))
    assert [found.name for found in tmp_path.iterdir()] == ["out"]  # the former one, as it was


def test_sinks_say_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ck.ArgumentError, match=r"rows 4 to 8 of shape \(3,\) do not fit an array \(6, 3\)"):
        same().run([np.ones((4, 3)), np.ones((4, 3))], lines.to_array(np.zeros((6, 3))))
    with pytest.raises(ck.ArgumentError, match="the results had 4 rows, and the array has 6"):
        same().run([np.ones((4, 3))], lines.to_array(np.zeros((6, 3))))
    with pytest.raises(ck.ArgumentError, match="results are float64, and the array is int8"):
        same().run([np.ones((4, 3))], lines.to_array(np.zeros((4, 3), np.int8)))
    with pytest.raises(ck.ArgumentError, match="a result of no dimension has no rows; give stack=True"):
        same().run([np.array(1.0)], lines.to_npy(tmp_path / "x.npy"))
    with pytest.raises(ck.ArgumentError, match="a result is a NumPy array, got int"):
        same().run([3], lines.to_npy(tmp_path / "x.npy"))
    with pytest.raises(ck.ArgumentError, match="expected a writeable NumPy array"):
        lines.to_array([])
    assert list(tmp_path.iterdir()) == []


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_images_of_a_folder_come_and_go(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pixels = [np.random.default_rng(n).integers(0, 256, (5, 7, 3), np.uint8) for n in range(4)]
    assert same().run(pixels, lines.to_images(tmp_path / "a", "{:02d}.png")) == 4
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["00.png", "01.png", "02.png", "03.png"]
    found = list(same()(lines.from_images(tmp_path / "a")))
    np.testing.assert_array_equal(found, pixels)
    (gray,) = same()(lines.from_images([tmp_path / "a" / "01.png"], mode="L"))
    assert gray.shape == (5, 7)
    (tmp_path / "a" / "02.png").write_bytes(b"\x89PNG no image")
    with pytest.raises(ck.PipelineError, match=r"item 2.*02\.png cannot be read"):
        list(same()(lines.from_images(tmp_path / "a")))


def test_images_already_written_stay_and_none_is_half(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    with pytest.raises(ck.ArgumentError, match=r"an image is a uint8 array.*got float64 \(5, 5\)"):
        same().run([np.zeros((5, 5), np.uint8), np.zeros((5, 5))], lines.to_images(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["000000.png"]
    with pytest.raises(ValueError, match="unknown file extension"):
        lines.write_image(tmp_path / "x.what", np.zeros((5, 5), np.uint8))
    assert [path.name for path in tmp_path.iterdir()] == ["000000.png"]


def test_a_folder_named_as_an_image_is_there_or_is_a_mistake(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    folder = tmp_path / "frames.png"
    with pytest.raises(ck.ArgumentError, match=r"frames\.png is named as an image, and a folder is wanted"):
        lines.to_images(folder)
    folder.mkdir()
    assert same().run([np.zeros((5, 5), np.uint8)], lines.to_images(folder)) == 1
    assert [path.name for path in folder.iterdir()] == ["000000.png"]


@pytest.mark.parametrize(
    ("module", "use", "said"),
    [
        ("PIL", lambda path: lines.from_images(path), "from_images needs Pillow.*pip install pillow"),
        ("PIL", lambda path: lines.to_images(path), "to_images needs Pillow"),
        ("zarr", lambda path: lines.from_zarr(path), "from_zarr reads with zarr.*pip install zarr"),
        ("zarr", lambda path: lines.to_zarr(path), "to_zarr writes with zarr"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str, use: Any, said: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ck.CudakitError, match=said):
        use(tmp_path)


# ── Zarr ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_zarr_arrays(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    array = np.arange(300, dtype=np.float32).reshape(100, 3)
    assert same().run(lines.from_array(array, 30), lines.to_zarr(tmp_path / "a.zarr")) == 4
    written = zarr.open_array(str(tmp_path / "a.zarr"), mode="r")
    assert written.chunks == (30, 3)
    np.testing.assert_array_equal(written[:], array)
    source = lines.from_zarr(tmp_path / "a.zarr", halo=1)
    assert len(source) == 4
    np.testing.assert_array_equal(list(same()(source))[1], array[29:61])
    np.testing.assert_array_equal(same().map_array(source), array)
    same().run([np.ones((2, 2))], lines.to_zarr(tmp_path / "a.zarr"))  # takes the place of the other
    assert zarr.open_array(str(tmp_path / "a.zarr"), mode="r").shape == (2, 2)
    with pytest.raises(ck.ArgumentError, match="expected a Zarr array with rows"):
        lines.from_zarr(3)


# ── sockets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    for end in (here, there):
        end.settimeout(20)
    with here, there:
        yield here, there


def test_frames_over_a_socket(stream: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    given = [
        np.arange(200_000, dtype=np.float32).reshape(400, 500),
        np.empty((0, 4), np.int8),
        np.array(3.5),
        np.arange(12).reshape(3, 4).T,
        np.arange(5, dtype=">i4"),
        np.arange(5, dtype=ml_dtypes.bfloat16),
        np.array([True, False]),
    ]
    sender = threading.Thread(target=lambda: same().run(given, lines.to_socket(there)))
    sender.start()
    found = list(same()(lines.from_socket(here)))
    sender.join(20)
    for got, expected in zip(found, given, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
        assert got.flags.writeable


def test_a_server_of_frames(stream: Any, pair: tuple[socket.socket, socket.socket]) -> None:
    """One end asks for one frame after another, and sends the next only when it has the answer."""
    here, there = pair
    pipeline = ck.Pipeline([lambda x, _: x + 1], stream=stream)
    server = threading.Thread(target=lambda: pipeline.run(lines.from_socket(there), lines.to_socket(there)))
    server.start()
    for number in range(4):
        sources.send(here, np.full(3, number))
        answer = sources.receive(here)
        assert answer is not None
        assert answer.tolist() == [number + 1] * 3
    sources.send_end(here)
    assert sources.receive(here) is None
    server.join(20)
    assert not server.is_alive()


def raw(descr: Any = "<f4", shape: Any = (3,), **other: Any) -> bytes:
    return headed(repr({"descr": descr, "fortran_order": False, "shape": shape, **other}).encode())


def headed(text: bytes) -> bytes:
    return np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"", "closed the connection after 0 of the 8 bytes of a frame's beginning"),
        (raw()[:6], "after 6 of the 8 bytes of a frame's beginning"),
        (b"GET / HTTP/1.1\r\n\r\n", "begins as an .npy file does, and something else came: the magic string"),
        (np.lib.format.magic(3, 0) + raw()[8:], r"something else came: version \(3, 0\)"),
        (headed(b" " * 4097), r"something else came: Header info length \(4097\) is large"),
        (raw()[:20], "after 10 of the 55 bytes of a frame's header"),
        (raw() + b"12345", r"after 5 of the 12 bytes of a frame of float32 \(3,\)"),
        (headed(b"not a header"), "something else came: Cannot parse header: 'not a header'"),
        (headed(b"[" * 4000), "something else came"),
        (headed(b"-" * 4000 + b"1"), "something else came"),
        (headed(b"\xff'''"), "something else came"),
        (headed(b"[1]"), "something else came: Header is not a dictionary"),
        (raw(more=1), "something else came: Header does not contain the correct keys"),
        (raw(descr="O", shape=(1,)), "dtype is a number's, such as '<f4'; 'object' came"),
        (raw(descr=[("a", "<f4")], shape=(1,)), "dtype is a number's"),
        (raw(descr=("<f4", (2,)), shape=(1,)), "dtype is a number's"),
        (raw(descr="<U3", shape=(1,)), "dtype is a number's"),
        (raw(descr=4, shape=(1,)), "something else came: descr is not a valid dtype descriptor: 4"),
        (raw(descr=("<f4",), shape=(1,)), "something else came: tuple index out of range"),
        (raw(shape=(-3,)), r"at most 32 extents from 0 up; \(-3,\) came"),
        (raw(shape=(True,)), "extents"),
        (raw(shape=(1.5,)), "something else came: shape is not valid"),
        (raw(shape=(1,) * 33), "extents"),
        (raw(shape=3), "something else came: shape is not valid: 3"),
        (raw(shape=(1 << 40,)), "max_bytes allows 1,073,741,824"),
        (raw(shape=(1 << 61, 1 << 61)), "extents"),
        (raw(shape=(0, 1 << 61, 1 << 61)), "extents"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_frame_is_named(pair: tuple[socket.socket, socket.socket], sent: bytes, said: str) -> None:
    here, there = pair
    sources.send(there, np.ones(3))
    there.sendall(sent)
    there.shutdown(socket.SHUT_WR)
    run = same()(lines.from_socket(here))
    assert next(run).tolist() == [1, 1, 1]
    with pytest.raises(ck.PipelineError, match=said) as caught:
        next(run)
    assert (caught.value.stage, caught.value.item) == ("source", 1)
    assert isinstance(caught.value.__cause__, ck.FrameError)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_what_numpy_saves_is_a_frame(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    for array in (np.arange(6).reshape(2, 3), np.arange(6).reshape(2, 3).T):
        np.save(file := io.BytesIO(), array)
        there.sendall(file.getvalue())
        np.testing.assert_array_equal(sources.receive(here), array)  # type: ignore[arg-type]  # it is there


def test_a_larger_frame_than_allowed_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    sources.send(there, np.ones(10, np.int8))
    sources.send(there, np.ones(11, np.int8))
    run = same()(lines.from_socket(here, max_bytes=10))
    next(run)
    with pytest.raises(ck.PipelineError, match="has 11 bytes; max_bytes allows 10"):
        next(run)


def test_a_receiver_that_stops_does_not_wait_for_its_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    sources.send(there, np.ones(3))
    run = same()(lines.from_socket(here))
    next(run)
    run.close()  # the source's thread is in recv, and nothing is sent
    assert list(run) == []


def test_a_sender_whose_peer_has_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    here.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        same().run([np.ones(1000)] * 100, lines.to_socket(there))


@pytest.mark.parametrize("array", [np.array([{}]), np.zeros(2, "f4,i4"), np.array(["text"]), [1, 2]])
def test_what_cannot_be_sent_is_said(pair: tuple[socket.socket, socket.socket], array: Any) -> None:
    with pytest.raises(ck.ArgumentError, match=r"cannot be sent as a frame|a frame is a NumPy array"):
        sources.send(pair[0], array)
    with pytest.raises(ck.ArgumentError, match="expected a connected socket"):
        lines.from_socket(3)
    with pytest.raises(ck.ArgumentError, match="expected a connected socket"):
        lines.to_socket(3)
