"""Sources of items: arrays in chunks, files, folders of images, Zarr arrays, sockets.

Any iterable is a source. The sources of this module know their number of items, and name an item that cannot be read.
Their attribute `threaded` says whether to read them on a thread of their own, because reading takes time.

Arrays are sent over a socket in NumPy's file format, version 1.0, one array after the other. The output of
`numpy.save` is a frame. The end mark is the format's magic with version 0.0, which NumPy never writes. If a connection
closes before the end mark, the transfer is broken. All bytes from a peer are checked. Dtypes of extensions such as
ml_dtypes are sent by their names, which NumPy reads and does not write.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import length_hint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib import format as npy

from cudakit.errors import ArgumentError, CudakitError, FrameError, shortened
from cudakit.types.arguments import refuse_masked
from cudakit.types.checked import iterated, path_of, text_of, whole


def pillow(caller: str) -> Any:
    """Return Pillow's module of images.

    `caller` is the name of the calling function, for the error.

    Raises
    ------
    CudakitError
        If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise CudakitError(f"{caller} needs Pillow, which is not installed: pip install pillow") from error
    return Image


def writes_images(caller: str, suffix: str) -> bool:
    """Return whether Pillow writes files with this suffix.

    `caller` is the name of the calling function, for the error if Pillow is not installed.
    """
    library = pillow(caller)
    return library.registered_extensions().get(suffix.lower()) in library.SAVE


def zarr_for(caller: str) -> Any:
    """Return the module zarr.

    `caller` begins the error message: "from_zarr reads", "to_zarr writes".

    Raises
    ------
    CudakitError
        If zarr is not installed.
    """
    try:
        import zarr
    except ImportError as error:
        raise CudakitError(f"{caller} with zarr, which is not installed: pip install zarr") from error
    return zarr


#: Bytes of the largest frame that is taken where nothing else is said.
LARGEST_FRAME = 1 << 30
_VERSION, _END = (1, 0), (0, 0)
_LONGEST_HEADER = 4096
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 1 << 58
_NUMBERS = "biufc"
#: What NumPy says of a dtype that an extension has added.
_REGISTERED = 2


def send(connection: socket.socket, array: np.ndarray) -> None:
    """Send one array.

    Raises
    ------
    ArgumentError
        If the dtype has Python objects or fields.
    OSError
        If the connection is closed.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"a frame is a NumPy array, got {type(array).__name__}")
    refuse_masked(array)
    if not _is_number(array.dtype):
        raise ArgumentError(f"an array of dtype {array.dtype} cannot be sent as a frame; send numbers")
    name = array.dtype.str if array.dtype.kind in _NUMBERS else array.dtype.name
    header = io.BytesIO()
    npy.write_array_header_1_0(header, {"descr": name, "fortran_order": False, "shape": array.shape})
    connection.sendall(header.getvalue())
    connection.sendall(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def send_end(connection: socket.socket) -> None:
    """Send the end mark: there are no more frames."""
    connection.sendall(npy.magic(*_END))


def receive(connection: socket.socket, max_bytes: int = LARGEST_FRAME) -> np.ndarray | None:
    """Return the next array, or None at the end mark.

    Raises
    ------
    FrameError
        If the peer closed the connection before the end mark. If it sent no frame, or a frame of more than `max_bytes`.
    """
    import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 and the like by name once it is here)

    source = _Source(connection, "a frame's beginning")
    try:
        version = npy.read_magic(source)
        if version == _END:
            return None
        if version != _VERSION:
            raise ValueError(f"version {version}, and {_VERSION} is known")
        source.part = "a frame's header"
        shape, is_fortran, dtype = npy.read_array_header_1_0(source, max_header_size=_LONGEST_HEADER)
    except OSError:  # the connection's, or a FrameError
        raise
    except Exception as error:  # whatever NumPy's parsers make of it
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise FrameError(f"a frame begins as an .npy file does, and something else came: {reason}") from error
    if not _is_number(dtype):
        raise FrameError(f"a frame's dtype is a number's, such as '<f4'; {shortened(str(dtype))} came")
    good = len(shape) <= _MOST_DIMENSIONS and all(type(extent) is int and extent >= 0 for extent in shape)
    # An empty array's other extents are bounded too.
    if not good or math.prod(max(extent, 1) for extent in shape) >= _MOST_ELEMENTS:
        raise FrameError(f"a frame's shape has at most {_MOST_DIMENSIONS} extents from 0 up; {str(shape)[:80]} came")
    size = math.prod(shape) * dtype.itemsize
    if size > max_bytes:
        raise FrameError(f"a frame of {dtype} {shape} has {size:,} bytes; max_bytes allows {max_bytes:,}")
    payload = _receive_bytes(connection, size, f"a frame of {dtype} {shape}")
    return np.frombuffer(payload, dtype).reshape(shape, order="F" if is_fortran else "C")


def _is_number(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in _NUMBERS or dtype.isbuiltin == _REGISTERED


class _Source:
    """A socket with the methods of a file, from which NumPy reads one frame and no byte beyond it."""

    def __init__(self, connection: socket.socket, caller: str) -> None:
        self._connection = connection
        self.part = caller

    def read(self, count: int = 0, /) -> bytes:
        return bytes(_receive_bytes(self._connection, count, self.part))


def _receive_bytes(connection: socket.socket, count: int, caller: str) -> bytearray:
    received = bytearray(count)
    rest = memoryview(received)
    while rest:
        count_read = connection.recv_into(rest)
        if not count_read:
            raise FrameError(
                f"the peer closed the connection after {count - len(rest):,} of the {count:,} bytes of {caller}; one "
                "that is done says so, as to_socket does"
            )
        rest = rest[count_read:]
    return received


_CHUNK_BYTES = 64 << 20
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


class Chunks:
    """The rows of an array in chunks. See `from_array`.

    Attributes
    ----------
    array : numpy.ndarray or zarr.Array
        Array that is read.
    halo : int
        Further rows on both sides of a chunk.
    is_stored : bool
        Whether the array is in files that other processes can read. The chunks are then pickled by the files' names.
    spans : list of (int, int, int, int)
        For each chunk (first, start, stop, last): ``start:stop`` are its own rows, ``first:last`` its rows with the
        halo on both sides, as far as the array has it.
    """

    def __init__(
        self, array: Any, rows: int, halo: int, threaded: bool = False, path: str | None = None, is_stored: bool = False
    ) -> None:
        self.array = array
        self.halo = halo
        self.threaded = threaded
        self.is_stored: bool = is_stored or path is not None
        self._rows, self._path = rows, path
        count = int(array.shape[0])
        starts = range(0, count, rows) if count else (0,)
        stops = [min(start + rows, count) for start in starts]
        self.spans: list[tuple[int, int, int, int]] = [
            (max(start - halo, 0), start, stop, min(stop + halo, count))
            for start, stop in zip(starts, stops, strict=True)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        if self._path is not None:
            return partial(from_array, halo=self.halo), (self._path, self._rows)
        return Chunks, (self.array, self._rows, self.halo, self.threaded, None, self.is_stored)

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, number: int) -> np.ndarray:
        """Read and return chunk `number`, with its halo."""
        first, _, _, last = self.spans[number]
        return np.asarray(self.array[first:last])

    def __iter__(self) -> Iterator[np.ndarray]:
        for number in range(len(self)):
            yield self[number]


def from_array(array: Any, rows: int | None = None, *, halo: int = 0) -> Chunks:
    """Return a source of the rows of an array, or of an ``.npy`` file, in chunks along the first axis.

    Parameters
    ----------
    array : numpy.ndarray or path
        Array, or path of an ``.npy`` file. A file is mapped, not read: it may be larger than memory.
    rows : int, optional
        Rows of a chunk; the last may have fewer. Default: as many rows as 64 MiB hold.
    halo : int
        Further rows before and after a chunk, as far as the array has them.

    Raises
    ------
    ArgumentError
    """
    path = None
    if isinstance(array, (str, os.PathLike)):
        path = os.path.abspath(array)
        with _reading(array):
            array = np.load(array, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise ArgumentError(f"from_array: expected a NumPy array with rows, or a path; got {type(array).__name__}")
    if array.dtype.hasobject:
        raise ArgumentError(f"from_array: the array has dtype {array.dtype}, which no device holds; convert it")
    if rows is None:
        rows = max(1, _CHUNK_BYTES * len(array) // max(array.nbytes, 1))
    return Chunks(array, whole("from_array: rows", rows, 1), whole("from_array: halo", halo), path=path)


def from_zarr(array: Any, rows: int | None = None, *, halo: int = 0) -> Chunks:
    """Return a source of the rows of a Zarr array, or of the array at a path, in chunks, read on a thread.

    Needs the package zarr.

    Parameters
    ----------
    array : zarr.Array or path
        Zarr array, or path of one.
    rows : int, optional
        Rows of a chunk. Default: the rows of the Zarr array's own chunks.
    halo : int
        Further rows before and after a chunk, as far as the array has them.

    Raises
    ------
    CudakitError
        If zarr is not installed.
    ArgumentError
    """
    zarr = zarr_for("from_zarr reads")
    if isinstance(array, (str, os.PathLike)):
        # Workers have other working directories; what is no folder is the name of a store elsewhere.
        array = zarr.open_array(os.path.abspath(array) if os.path.exists(array) else str(array), mode="r")
    if not isinstance(array, zarr.Array) or array.ndim == 0:
        raise ArgumentError(f"from_zarr: expected a Zarr array with rows, or a path; got {type(array).__name__}")
    rows = int(array.chunks[0]) if rows is None else rows
    rows, halo = whole("from_zarr: rows", rows, 1), whole("from_zarr: halo", halo)
    return Chunks(array, rows, halo, threaded=True, is_stored=not isinstance(array.store, zarr.storage.MemoryStore))


class Files:
    """A source with one item for each file, read on a thread. See `from_npy` and `from_images`."""

    threaded: ClassVar[bool] = True
    is_stored: ClassVar[bool] = True

    def __init__(self, paths: Sequence[Path], mode: str | None = None) -> None:
        self.paths: tuple[Path, ...] = tuple(paths)
        self._mode = mode

    def __reduce__(self) -> tuple[Any, ...]:
        return Files, ([path.absolute() for path in self.paths], self._mode)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> np.ndarray:
        """Read file `number`, and return its item."""
        path = self.paths[number]
        with _reading(path):
            if self._mode is None:
                array: np.ndarray = np.load(path, allow_pickle=False)
                return array
            with pillow("from_images").open(path) as image:
                return np.array(image.convert(self._mode))

    def __iter__(self) -> Iterator[np.ndarray]:
        for _, item in self.named_items():
            yield item

    def named_items(self) -> Iterator[tuple[str, np.ndarray]]:
        """Return an iterator over pairs of a file's name, without suffix, and its item."""
        return _NamedFiles(self)


class _NamedFiles(Iterator[tuple[str, np.ndarray]]):
    """Iterator over files and names that continues after a file that cannot be read."""

    goes_on: ClassVar[bool] = True

    def __init__(self, files: Files) -> None:
        self._files, self._numbers = files, iter(range(len(files)))

    def __next__(self) -> tuple[str, np.ndarray]:
        number = next(self._numbers)
        return self._files.paths[number].stem, self._files[number]


def from_npy(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Files:
    """Return a source of one array for each file: ``.npy`` files, or all of a folder in the order of their names.

    Raises
    ------
    ArgumentError
        If the folder has no ``.npy`` file. A file that cannot be read raises an error with its name at its turn.
    """
    return Files(_listed("from_npy", paths, (".npy",)))


def from_images(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], mode: str = "RGB") -> Files:
    """Return a source of one image for each file, from a list of files or a folder in the order of names.

    Parameters
    ----------
    paths : path or iterable of path
        Folder, or paths of the files.
    mode : str
        Pillow's image mode: ``"RGB"`` gives (height, width, 3), ``"L"`` (height, width), both uint8.

    Raises
    ------
    CudakitError
        If Pillow is not installed.
    ArgumentError
        If the folder has no image. A file that cannot be read raises an error with its name at its turn.
    """
    modes = pillow("from_images").MODES
    if text_of("from_images: mode", mode) not in modes:
        raise ArgumentError(f"from_images: mode {shortened(mode)}; Pillow has {', '.join(modes)}")
    return Files(_listed("from_images", paths, _IMAGES), mode)


def connected(where: str, connection: Any) -> socket.socket:
    """Return `connection` after checking that it is a socket.

    `where` is the name of the calling function, which begins the error message.

    Raises
    ------
    ArgumentError
        If it is no socket.
    """
    if not isinstance(connection, socket.socket):
        raise ArgumentError(f"{where}: expected a connected socket, got {type(connection).__name__}")
    return connection


class Frames:
    """Frames from a socket, until the sender's end mark. See `from_socket`."""

    threaded: ClassVar[bool] = True

    def __init__(self, connection: socket.socket, max_bytes: int) -> None:
        self._connection = connection
        self._max_bytes = max_bytes

    def __iter__(self) -> Iterator[np.ndarray]:
        while (frame := receive(self._connection, self._max_bytes)) is not None:
            yield frame

    def interrupt(self) -> None:
        """Wake a thread that waits for the peer, and read no further frames."""
        try:
            self._connection.shutdown(socket.SHUT_RD)
        except OSError:
            return  # the peer, or the owner, has closed it already


def from_socket(connection: socket.socket, *, max_bytes: int = LARGEST_FRAME) -> Frames:
    """Return a source of the frames that `to_socket` sends at the other end of a connection.

    Parameters
    ----------
    connection : socket.socket
        Connected socket. The caller closes it. A pipeline that stops early shuts down the socket's reading side.
    max_bytes : int
        Limit of a frame's bytes. A larger frame is refused before memory is allocated for it.

    Raises
    ------
    ArgumentError
    """
    return Frames(connected("from_socket", connection), whole("from_socket: max_bytes", max_bytes, 1))


class _Wrapped:
    """A source that delegates to another source."""

    def __init__(self, source: Iterable[Any]) -> None:
        self._source = source

    def interrupt(self) -> None:
        """Interrupt the wrapped source."""
        interrupt = getattr(self._source, "interrupt", None)
        if callable(interrupt):
            interrupt()

    def __length_hint__(self) -> int:
        return length_hint(self._source)


class Ahead(_Wrapped):
    """A source that is read on a thread of its own. See `ahead`."""

    threaded: ClassVar[bool] = True

    def __init__(self, source: Iterable[Any]) -> None:
        super().__init__(source)
        self.named_items = getattr(source, "named_items", None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._source)


class Named(_Wrapped):
    """Items with names. See `named`."""

    def __iter__(self) -> Iterator[Any]:
        for _, item in self.named_items():
            yield item

    def named_items(self) -> Iterator[tuple[str, Any]]:
        """Yield the pairs of a name and an item, after checking each pair."""
        pairs = iterated("named: pairs are several (name, item)", self._source)
        try:
            for pair in pairs:
                if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
                    raise ArgumentError(f"named: a source of names gives pairs (str, item), got {type(pair).__name__}")
                yield pair
        finally:
            close = getattr(pairs, "close", None)
            if close is not None:
                close()


def named(pairs: Iterable[tuple[str, Any]]) -> Named:
    """Return a source of items with names, from pairs (name, item). Stages get the items only.

    The names are in errors, in ``run.name`` beside each result, and in file names, as in
    ``to_images(folder, "{name}.png")``. `from_images` and `from_npy` name their items by the files, without suffixes.

    Raises
    ------
    ArgumentError
        If `pairs` is not iterable. An element that is no pair is a failure of the source.
    """
    if not isinstance(pairs, Iterable):
        raise ArgumentError(f"named: expected an iterable of pairs (name, item), got {type(pairs).__name__}")
    return Named(pairs)


def ahead(source: Iterable[Any]) -> Ahead:
    """Return a source that is read ahead on a thread: for a slow or waiting source, such as a camera.

    Results are then delivered while the source waits. A run that ends early waits for the source's present item, unless
    the source has a method ``interrupt()`` that wakes it.

    Raises
    ------
    ArgumentError
    """
    if not isinstance(source, Iterable) or isinstance(source, str | bytes) or getattr(source, "shape", None) == ():
        raise ArgumentError(f"ahead: a source is an iterable of items, got {type(source).__name__}")
    return Ahead(source)


def _listed(
    caller: str, paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], suffixes: tuple[str, ...]
) -> list[Path]:
    if isinstance(paths, Iterable) and not isinstance(paths, (str, bytes, os.PathLike)):
        return [
            path_of(f"{caller}: each of several", path)
            for path in iterated(f"{caller}: paths are one or several", paths)
        ]
    folder = path_of(f"{caller}: what is read", paths)
    try:
        if not folder.is_dir():
            return [folder]
    except OSError as error:
        raise ArgumentError(f"{caller}: {shortened(str(folder))} cannot be read: {error.strerror}") from None
    result = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
    if not result:
        raise ArgumentError(f"{caller}: {folder} has no file that ends in {', '.join(suffixes)}")
    return result


@contextlib.contextmanager
def _reading(path: Any) -> Iterator[None]:
    """Name a file in the error if it cannot be read inside the ``with`` block."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise CudakitError(f"{path} cannot be read: {error}") from error
