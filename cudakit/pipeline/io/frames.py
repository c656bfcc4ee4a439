"""Arrays over a socket: each frame says its dtype and shape; what a peer says is checked.

On the wire: ``ckf1``, the header's length (4 bytes), the payload's (8 bytes), both big-endian; the header, JSON with
``dtype`` and ``shape``; the payload, C-contiguous. Both lengths 0 is the end; a connection that closes before it has
broken.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from typing import Any

import numpy as np

from cudakit.errors import ArgumentError, FrameError

#: Bytes of the largest frame that is taken where nothing else is said.
LARGEST_FRAME = 1 << 30
_MAGIC = b"ckf1"
_PREFIX = struct.Struct("!4sIQ")
_LONGEST_HEADER = 4096
_MOST_DIMENSIONS = 32
_NUMBERS = "biufc"
#: What NumPy says of a dtype that an extension has added, as ml_dtypes does.
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
    name = array.dtype.str if array.dtype.kind in _NUMBERS else array.dtype.name
    if _dtype_of(name) != array.dtype:
        raise ArgumentError(f"an array of dtype {array.dtype} cannot be sent as a frame; send numbers")
    header = json.dumps({"dtype": name, "shape": array.shape}).encode()
    connection.sendall(_PREFIX.pack(_MAGIC, len(header), array.nbytes) + header)
    connection.sendall(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def send_end(connection: socket.socket) -> None:
    """Say that there are no more frames."""
    connection.sendall(_PREFIX.pack(_MAGIC, 0, 0))


def receive(connection: socket.socket, max_bytes: int = LARGEST_FRAME) -> np.ndarray | None:
    """The next array, or None at the end.

    Raises
    ------
    FrameError
        If the peer closed the connection before the end, or sent what is no frame, or too large a one.
    """
    magic, header_bytes, payload_bytes = _PREFIX.unpack(_receive_bytes(connection, _PREFIX.size, "a frame's beginning"))
    if magic != _MAGIC:
        raise FrameError(f"a frame begins with {_MAGIC!r}, and {magic!r} came: the peer sends something else")
    if header_bytes == payload_bytes == 0:
        return None
    if header_bytes > _LONGEST_HEADER:
        raise FrameError(f"a frame's header has at most {_LONGEST_HEADER} bytes, and {header_bytes:,} are announced")
    dtype, shape = _read_header(bytes(_receive_bytes(connection, header_bytes, "a frame's header")))
    expected = math.prod(shape) * dtype.itemsize
    if payload_bytes != expected:
        raise FrameError(f"a frame of {dtype} {shape} has {expected:,} bytes, and {payload_bytes:,} are announced")
    if payload_bytes > max_bytes:
        raise FrameError(f"a frame of {dtype} {shape} has {payload_bytes:,} bytes; max_bytes allows {max_bytes:,}")
    payload = _receive_bytes(connection, payload_bytes, f"a frame of {dtype} {shape}")
    return np.frombuffer(payload, dtype).reshape(shape)


def _read_header(text: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        header = json.loads(text)
        name, shape = header["dtype"], header["shape"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FrameError(f"a frame's header is JSON with dtype and shape, and {text[:80]!r} came") from error
    dtype = _dtype_of(name) if isinstance(name, str) else None
    if dtype is None:
        raise FrameError(f"a frame's dtype is a number's, such as '<f4'; {name!r} came")
    good = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
    if not good or not all(type(extent) is int and 0 <= extent < 1 << 62 for extent in shape):
        raise FrameError(f"a frame's shape is a list of at most {_MOST_DIMENSIONS} extents; {str(shape)[:80]} came")
    return dtype, tuple(shape)


def _dtype_of(name: str) -> np.dtype[Any] | None:
    """The dtype of a number by name; None for any other."""
    import ml_dtypes  # noqa: F401  (NumPy knows bfloat16 and the like by name once it is here)

    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        return None
    return dtype if dtype.kind in _NUMBERS or dtype.isbuiltin == _REGISTERED else None


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
