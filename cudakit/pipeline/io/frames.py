"""Arrays over a socket, each as an ``.npy`` file would hold it; what a peer says is checked.

On the wire: NumPy's format, version 1.0, one array behind the other; what `numpy.save` writes is a frame. Its magic
with version 0.0, which NumPy never writes, is the end; a connection that closes before it has broken.
Dtypes that an extension has added, as ml_dtypes does, go by their names, which NumPy reads and does not write.
"""

from __future__ import annotations

import io
import math
import socket
from typing import Any

import numpy as np
from numpy.lib import format as npy

from cudakit.errors import ArgumentError, FrameError, shortened
from cudakit.types.arguments import refuse_masked

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
        For a dtype of Python objects or of fields.
    OSError
        If the connection is gone.
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
    """Say that there are no more frames."""
    connection.sendall(npy.magic(*_END))


def receive(connection: socket.socket, max_bytes: int = LARGEST_FRAME) -> np.ndarray | None:
    """The next array, or None at the end.

    Raises
    ------
    FrameError
        If the peer closed the connection before the end, or sent what is no frame, or too large a one.
    """
    import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 and the like by name once it is here)

    source = _Source(connection, "a frame's beginning")
    try:
        version = npy.read_magic(source)
        if version == _END:
            return None
        if version != _VERSION:
            raise ValueError(f"version {version}, and {_VERSION} is known")
        source.what = "a frame's header"
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
    """A connection as NumPy reads files; no byte beyond what is asked for, which is `what`, for errors."""

    def __init__(self, connection: socket.socket, what: str) -> None:
        self._connection = connection
        self.what = what

    def read(self, count: int = 0, /) -> bytes:
        return bytes(_receive_bytes(self._connection, count, self.what))


def _receive_bytes(connection: socket.socket, count: int, what: str) -> bytearray:
    received = bytearray(count)
    rest = memoryview(received)
    while rest:
        got = connection.recv_into(rest)
        if not got:
            raise FrameError(
                f"the peer closed the connection after {count - len(rest):,} of the {count:,} bytes of {what}; one "
                "that is done says so, as to_socket does"
            )
        rest = rest[got:]
    return received
