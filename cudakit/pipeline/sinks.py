"""Sinks of results: arrays, ``.npy`` files, folders of images, Zarr arrays, sockets.

A sink is a context manager with ``write(item)``. Its output is complete when its block ends without an error. After an
error no partial output is left: files and Zarr arrays are written beside their final path and moved there at the end.
Images are moved one by one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import Any, ClassVar, Protocol

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.pipeline.sources import Chunks, connected, pillow, send, send_end, writes_images, zarr_for
from cudakit.types.arguments import refuse_masked
from cudakit.types.checked import dtype_of, flag, path_of, text_of, whole


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to, in a folder beside `path`. If the block succeeds, it replaces `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    part = folder / path.name
    try:
        yield part
        if part.is_dir() and path.is_dir():
            # A folder cannot replace another in one step: the former goes aside first.
            os.replace(path, folder / "former")
        os.replace(part, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Sink(Protocol):
    """Protocol of a target for results.

    Attributes of a sink select the call of ``write``:

    - ``takes_names = True``: ``write(item, name)``, where `name` is the name of the source's item, or None.
    - ``takes_numbers = True``: ``write(item, number)``, where `number` is the number of the source's item.
    - ``by_workers = True`` in addition: the workers of `cudakit.scale` write, in any order. After the loss of a worker
      they may write the same result again.

    For `Pipeline.arun`, all three methods may be asynchronous.
    """

    def write(self, item: Any) -> None:
        """Write the next result."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...


def write_arguments(sink: Sink, number: int, name: str | None) -> tuple[Any, ...]:
    """Return the arguments that a sink's ``write`` takes after the result, as a tuple.

    It is ``(number,)`` if the sink has `takes_numbers`, ``(name,)`` if it has `takes_names`, else empty.
    """
    if getattr(sink, "takes_numbers", False):
        return (number,)
    return (name,) if getattr(sink, "takes_names", False) else ()


class _Sink(contextlib.AbstractContextManager[Any]):
    """Base of the sinks: steps that are undone or completed at the end of the block."""

    def __init__(self, path: Path | None = None) -> None:
        self._path: Any = path
        self._stack = contextlib.ExitStack()
        self._is_open = False

    def __enter__(self) -> Any:
        self._is_open = True
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self._is_open or self._path is None:
            reason = "is open" if self._is_open else "writes to memory or a connection of this process"
            raise ArgumentError(
                f"this sink ({type(self).__name__}) cannot be pickled: it {reason}. Workers return results, and one "
                "process writes them; to_zarr(path, like=chunks) is written to by all"
            )
        return {**self.__dict__, "_path": self._path.absolute()}

    def __exit__(self, *raised: Any) -> bool | None:
        self._is_open = False
        if raised[0] is not None:
            return self._stack.__exit__(*raised)
        with self._stack:
            self._finish()
        return None

    def _finish(self) -> None:
        """Complete the output after all results were written."""


class ArraySink(_Sink):
    """The sink of `to_array`."""

    def __init__(self, out: np.ndarray) -> None:
        super().__init__()
        self._out = out
        self._row = 0

    def write(self, item: np.ndarray) -> None:
        """Append the rows of a result."""
        stop = self._row + len(item)
        if stop > len(self._out) or item.shape[1:] != self._out.shape[1:]:
            raise ArgumentError(
                f"to_array: rows {self._row} to {stop} of shape {item.shape[1:]} do not fit an array {self._out.shape}"
            )
        if not np.can_cast(item.dtype, self._out.dtype, "same_kind"):
            raise ArgumentError(f"to_array: results are {item.dtype}, and the array is {self._out.dtype}")
        self._out[self._row : stop] = item
        self._row = stop

    def _finish(self) -> None:
        if self._row != len(self._out):
            raise ArgumentError(f"to_array: the results had {self._row} rows, and the array has {len(self._out)}")
        if isinstance(self._out, np.memmap):
            self._out.flush()


class _Rows(_Sink):
    """A sink that appends rows of results to a file, which the first result opens beside its final path."""

    _word: str

    def __init__(self, path: Path, stack: bool) -> None:
        super().__init__(path)
        self._stacked = stack
        self._shape: tuple[int, ...] = ()
        self._dtype: Any = None

    def write(self, item: np.ndarray) -> None:
        """Append the rows of a result. The first result also opens the file."""
        item = _rows_of(item, self._stacked, self._word)
        if self._dtype is None:
            self._open(self._stack.enter_context(replacing(self._path)), item)
            self._shape, self._dtype = item.shape[1:], item.dtype
        _require_like(item, self._shape, self._dtype, self._word)
        self._append(item)

    def _open(self, part: Path, item: np.ndarray) -> None:
        """Open a new file at `part` for results with the dtype and shape of `item`."""
        raise NotImplementedError

    def _append(self, item: np.ndarray) -> None:
        """Append the rows of a result to the open file."""
        raise NotImplementedError

    def _finish(self) -> None:
        if self._dtype is None:
            raise ArgumentError(f"{self._word}: there was no result, and so no dtype to write {self._path} with")


class NpySink(_Rows):
    """The sink of `to_npy`."""

    _word = "to_npy"
    _rows = 0

    def _open(self, part: Path, item: np.ndarray) -> None:
        self._file: Any = self._stack.enter_context(part.open("wb"))
        self._write_header(item.shape[1:], item.dtype)

    def _append(self, item: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(item).reshape(-1).view(np.uint8))
        self._rows += len(item)

    def _write_header(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        # NumPy leaves room in the header for the first axis to grow: the last header is as long as the first one.
        descr = np.lib.format.dtype_to_descr(dtype)
        header = {"descr": descr, "fortran_order": False, "shape": (self._rows, *shape)}
        np.lib.format.write_array_header_1_0(self._file, header)

    def _finish(self) -> None:
        super()._finish()
        self._file.seek(0)
        self._write_header(self._shape, self._dtype)


class ZarrSink(_Rows):
    """The sink of `to_zarr`. The number of rows of the first result is the chunk size of the Zarr array."""

    _word = "to_zarr"

    def _open(self, part: Path, item: np.ndarray) -> None:
        self._array: Any = _new_zarr(part, (0, *item.shape[1:]), item.shape, item.dtype)

    def _append(self, item: np.ndarray) -> None:
        self._array.append(item, axis=0)


class ImageSink(_Sink):
    """The sink of `to_images`."""

    takes_names: ClassVar[bool] = True

    def __init__(self, folder: Path, template: str) -> None:
        super().__init__(folder)
        self._template = template
        self._is_named = template.format(0, name="a") != template.format(0, name="b")
        #: Files by name, of which there may be two.
        self._written: set[str] = set()
        self._count = 0

    def write(self, item: np.ndarray, name: str | None = None) -> None:
        """Write one image, (height, width) or (height, width, 3 or 4), uint8."""
        file = self._template.format(self._count, name=name)
        if self._is_named:
            if name is None or name in ("", ".", "..") or set(name) & set("/\\\0"):
                raise ArgumentError(
                    f"to_images: result {self._count} has the name {shortened(name)}, which is no file's"
                )
            if file in self._written:
                raise ArgumentError(
                    f"to_images: there are two results for the file {file}; number them, as in '{{name}}-{{}}.png'"
                )
            self._written.add(file)
        write_image(self._path / file, item)
        self._count += 1


class ZarrParts(_Sink):
    """The sink of `to_zarr` with `like`: each result is written to its chunk, by any process and in any order."""

    takes_numbers: ClassVar[bool] = True
    by_workers: ClassVar[bool] = True

    def __init__(self, path: Path, like: Chunks, shape: tuple[int, ...], dtype: np.dtype) -> None:
        super().__init__(path)
        self._spans = like.spans
        self._shape, self._dtype = shape, dtype
        self._part = ""
        self._array: Any = None

    def __enter__(self) -> Any:
        super().__enter__()
        self._part = os.path.abspath(self._stack.enter_context(replacing(self._path)))
        # A chunk of the array is of one writer alone.
        _, start, stop, _ = self._spans[0]
        _new_zarr(self._part, (self._spans[-1][2], *self._shape), (stop - start, *self._shape), self._dtype)
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_path": self._path.absolute(), "_stack": contextlib.ExitStack(), "_array": None}

    def write(self, item: np.ndarray, number: int) -> None:
        """Write the result of chunk `number`, with or without the rows of its halo."""
        if self._array is None:
            if not self._part:
                raise ArgumentError("to_zarr: a sink is written to inside of its `with` block")
            self._array = zarr_for("to_zarr writes").open_array(self._part, mode="r+")
        first, start, stop, last = self._spans[number]
        item = _rows_of(item, False, "to_zarr")
        if len(item) == last - first:
            item = item[start - first : stop - first]
        if len(item) != stop - start:
            raise ArgumentError(f"to_zarr: chunk {number} has {stop - start} rows, and its result {len(item)}")
        _require_like(item, self._shape, self._dtype, "to_zarr")
        self._array[start:stop] = item


def _new_zarr(path: Any, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any) -> Any:
    """Return a new Zarr array. No extent of a chunk is 0."""
    chunks = tuple(max(extent, 1) for extent in chunks)
    return zarr_for("to_zarr writes").open_array(str(path), mode="w", shape=shape, chunks=chunks, dtype=dtype)


class SocketSink(_Sink):
    """The sink of `to_socket`."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection

    def write(self, item: np.ndarray) -> None:
        """Send a result as one frame."""
        send(self._connection, item)

    def _finish(self) -> None:
        send_end(self._connection)


def to_array(out: np.ndarray) -> ArraySink:
    """Return a sink that writes the rows of results one after the other to `out`, such as a memmap, in place.

    Raises
    ------
    ArgumentError
        If `out` is not a writeable array; on writing, if rows do not fit; at the end, if some are missing.
    """
    if not isinstance(out, np.ndarray) or out.ndim == 0 or not out.flags.writeable:
        raise ArgumentError(f"to_array: expected a writeable NumPy array with rows, got {type(out).__name__}")
    return ArraySink(out)


def to_npy(path: str | os.PathLike[str], *, stack: bool = False) -> NpySink:
    """Return a sink that writes one ``.npy`` file of all results.

    The rows of all results follow each other. With `stack` each result is a row.
    """
    return NpySink(path_of("to_npy: what is written", path), flag("to_npy: stack", stack))


def to_images(folder: str | os.PathLike[str], name: str = "{:06d}.png") -> ImageSink:
    """Return a sink that writes an image file for each result, uint8.

    Parameters
    ----------
    folder : path
        Folder of the image files.
    name : str
        File name, formatted with the result's number. Its suffix selects the format. ``"{name}.png"`` inserts the name
        of the source's item, such as the name of the file that the item was read from.

    Raises
    ------
    CudakitError
        If Pillow is not installed.
    ArgumentError
        If `folder` has the suffix of an image. If `name` is the same for all results, or has no suffix of an image.
    """
    place = path_of("to_images: the folder", folder)
    _check_suffix("to_images", Path(text_of("to_images: name", name)))
    try:
        is_numbered = name.format(0, name="0") != name.format(1, name="1")
    except (LookupError, ValueError) as error:
        raise ArgumentError(
            f"to_images: name {shortened(name)} cannot be formatted with a number: {shortened(error)}"
        ) from None
    if not is_numbered:
        raise ArgumentError(
            f"to_images: name {shortened(name)} is the same for all results; number it, as in '{{:06d}}.png'"
        )
    if writes_images("to_images", place.suffix) and not place.is_dir():
        raise ArgumentError(
            f"to_images: {folder} is named as an image, and a folder is wanted, with a file in it for each result; one "
            "image is written by pipeline.write_image"
        )
    return ImageSink(place, name)


def to_zarr(
    path: str | os.PathLike[str],
    *,
    stack: bool = False,
    like: Chunks | None = None,
    shape: tuple[int, ...] | None = None,
    dtype: Any = None,
) -> ZarrSink | ZarrParts:
    """Return a sink that writes all results to one Zarr array in a folder. Needs the package zarr.

    Parameters
    ----------
    path : path
        Folder of the Zarr array.
    stack : bool
        Whether each result is a row. False: the rows of all results follow each other.
    like : Chunks, optional
        Chunks of `from_array` or `from_zarr`: each result is written to the rows of its chunk, without the halo, in any
        order and from any process (`cudakit.scale`).
    shape : tuple of int, optional
        With `like`: shape of a result's rows. Default: shape of the chunks' rows.
    dtype : dtype, optional
        With `like`: dtype of the results. Default: dtype of the chunks.

    Raises
    ------
    CudakitError
        If zarr is not installed.
    ArgumentError
    """
    zarr_for("to_zarr writes")
    place = path_of("to_zarr: what is written", path)
    if like is None:
        if shape is not None or dtype is not None:
            raise ArgumentError("to_zarr: shape and dtype are given with like=; without, the first result has them")
        return ZarrSink(place, stack)
    if not isinstance(like, Chunks) or stack:
        raise ArgumentError("to_zarr: like= is what from_array or from_zarr made, and stack=True goes without it")
    tail = like.array.shape[1:] if shape is None else shape
    tail = tuple(whole("to_zarr: shape", extent) for extent in tail)
    return ZarrParts(place, like, tail, dtype_of("to_zarr: dtype", like.array.dtype if dtype is None else dtype))


def to_socket(connection: socket.socket) -> SocketSink:
    """Return a sink that sends frames over a connection, for `from_socket` at the other end.

    The caller closes the connection.
    """
    return SocketSink(connected("to_socket", connection))


def write_image(path: Path, pixels: np.ndarray) -> None:
    """Write an image file, complete or not at all: for a host stage with several threads (`to_images` writes with one).

    Parameters
    ----------
    path : Path
        Path of the file. Its suffix selects the format.
    pixels : numpy.ndarray
        (height, width) or (height, width, 3 or 4), uint8.

    Raises
    ------
    ArgumentError
    """
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        actual = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ArgumentError(f"an image is a uint8 array (height, width) or (height, width, 3 or 4); got {actual}")
    refuse_masked(pixels)
    path = path_of("write_image: path", path)
    _check_suffix("write_image", path)
    try:
        image = pillow("write_image").fromarray(pixels)
    except TypeError:
        image = None
    if image is None or not pixels.size:
        raise ArgumentError(f"an image is a uint8 array (height, width) or (height, width, 3 or 4); got {pixels.shape}")
    with replacing(path) as part:
        image.save(part)


def _check_suffix(caller: str, path: Path) -> None:
    """Raise if a file's suffix is not the suffix of an image format."""
    if not writes_images(caller, path.suffix):
        raise ArgumentError(
            f"{caller}: {shortened(str(path))} has an unknown file extension; take .png, .jpg, .tif or the like"
        )


def _rows_of(item: Any, stack: bool, caller: str) -> np.ndarray:
    if not isinstance(item, np.ndarray):
        raise ArgumentError(f"{caller}: a result is a NumPy array, got {type(item).__name__}")
    refuse_masked(item)
    if stack:
        return item[None]
    if item.ndim == 0:
        raise ArgumentError(f"{caller}: a result of no dimension has no rows; give stack=True")
    return item


def _require_like(item: np.ndarray, shape: tuple[int, ...], dtype: Any, caller: str) -> None:
    if item.shape[1:] != tuple(shape) or item.dtype != dtype:
        raise ArgumentError(
            f"{caller}: a result has rows of {item.dtype} {item.shape[1:]}, and those before {dtype} {tuple(shape)}"
        )
