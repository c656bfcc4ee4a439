"""What XLA hands to a custom call: the records of its C interface (``xla/ffi/api/c_api.h``), read by ctypes."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

#: Of an extension of the frame: XLA asks what the handler is, and calls it for nothing else.
_METADATA = 1
#: An error's code, of absl's: what was given cannot be.
_INVALID_ARGUMENT = 3
#: Types of elements, by XLA's numbers.
_DTYPES = {
    **dict(zip((1, 2, 3, 4, 5), map(np.dtype, ("?", "i1", "i2", "i4", "i8")), strict=True)),
    **dict(zip((6, 7, 8, 9), map(np.dtype, ("u1", "u2", "u4", "u8")), strict=True)),
    **dict(zip((10, 11, 12, 15, 18), map(np.dtype, ("f2", "f4", "f8", "c8", "c16")), strict=True)),
    **dict(
        zip(
            (16, 19, 20),
            map(np.dtype, (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)),
            strict=True,
        )
    ),
}


class _Extension(ctypes.Structure):
    pass


_HEAD: list[tuple[str, Any]] = [("struct_size", ctypes.c_size_t), ("extension", ctypes.POINTER(_Extension))]
_Extension._fields_ = [
    ("struct_size", ctypes.c_size_t),
    ("type", ctypes.c_int),
    ("next", ctypes.POINTER(_Extension)),
]


class _Version(ctypes.Structure):
    _fields_ = [*_HEAD, ("major", ctypes.c_int), ("minor", ctypes.c_int)]


class _Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("version", _Version), ("traits", ctypes.c_uint32)]


class _MetadataExtension(ctypes.Structure):
    _fields_ = [("base", _Extension), ("metadata", ctypes.POINTER(_Metadata))]


class _ErrorArguments(ctypes.Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("code", ctypes.c_int)]


class _StreamArguments(ctypes.Structure):
    _fields_ = [*_HEAD, ("context", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


_STREAM_SIZE = ctypes.sizeof(_StreamArguments)


class _Api(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("version", _Version),
        ("internal", ctypes.c_void_p),
        ("error_create", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_ErrorArguments))),
        ("error_message", ctypes.c_void_p),
        ("error_destroy", ctypes.c_void_p),
        ("handler_register", ctypes.c_void_p),
        ("stream_get", ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(_StreamArguments))),
    ]


#: What a call reads, as words: they take less time than a record's fields. An array: size of the record, extension,
#: type (32 bits), address, rank, address of the extents.
_ARRAY = struct.Struct("6Q")
#: A `_Frame`: size, extension, api, context, stage; size, extension, count, types and addresses of the arguments; the
#: same of the results; of the attributes size, extension, count, types, names, values.
_FRAME = struct.Struct("21Q")
#: Shape, dtype and bytes of arrays, by type, and their extents as bytes.
_kinds: dict[tuple[int, bytes], tuple[tuple[int, ...], np.dtype, int]] = {}
_MOST_KINDS = 4096


@functools.cache
def _bytes(size: int) -> Callable[[int], Any]:
    """What gives the `size` bytes at an address, as they lie there: in a fifth of the time of `ctypes.string_at`."""
    return (ctypes.c_char * size).from_address


_frame_at, _array_at = _bytes(_FRAME.size), _bytes(_ARRAY.size)
_word, _number = ctypes.c_uint64.from_address, ctypes.c_int64.from_address


class _Buffers(ctypes.Structure):
    """Arguments or results, which lie alike."""

    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
    ]


class _Scalar(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("value", ctypes.POINTER(ctypes.c_int64))]


class _Attributes(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.c_void_p),
        ("names", ctypes.c_void_p),
        ("values", ctypes.POINTER(ctypes.POINTER(_Scalar))),
    ]


class _Frame(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.POINTER(_Api)),
        ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("arguments", _Buffers),
        ("results", _Buffers),
        ("attributes", _Attributes),
    ]


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


class Buffer(NamedTuple):
    """Memory of XLA's: address, shape, dtype and bytes of an array in row-major order."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype
    nbytes: int


class Call(NamedTuple):
    """A custom call.

    Attributes
    ----------
    number : int
        Its one attribute.
    arguments, results : list of Buffer
    stream : int or None
        The driver's number of the stream that it is to work on; None on the host.
    """

    number: int
    arguments: list[Buffer]
    results: list[Buffer]
    stream: int | None


def handler(work: Callable[[Call], None], on_gpu: bool) -> Any:
    """A function for XLA, for calls with one attribute, an int of 64 bits; what `work` raises is XLA's error.

    It must be kept for as long as XLA may call it.
    """
    streams = _Streams() if on_gpu else None

    def handle(frame: int) -> int | None:
        try:
            words = _FRAME.unpack(_frame_at(frame))
            if words[1] and _is_asked(_Frame.from_address(frame)):
                return None
            work(_read(words, streams))
        except BaseException as error:  # XLA's thread has nobody else to tell
            text = f"{type(error).__name__}: {error}".encode()
            told = _ErrorArguments(ctypes.sizeof(_ErrorArguments), None, text, _INVALID_ARGUMENT)
            made: int | None = _Frame.from_address(frame).api.contents.error_create(ctypes.byref(told))
            return made
        return None

    return _HANDLER(handle)


def _is_asked(frame: _Frame) -> bool:
    """Whether XLA asks for the interface that the handler is written for, which then is told."""
    extension = frame.extension
    if not extension or extension.contents.type != _METADATA:
        return False
    asked = ctypes.cast(extension, ctypes.POINTER(_MetadataExtension)).contents.metadata.contents
    own = frame.api.contents.version
    asked.version.major, asked.version.minor, asked.traits = own.major, own.minor, 0
    return True


class _Streams:
    """The streams that XLA's calls are to work on."""

    def __init__(self) -> None:
        self._asks: dict[int, Any] = {}

    def of(self, api: int, context: int) -> int:
        ask = self._asks.get(api)
        if ask is None:
            ask = self._asks[api] = _Api.from_address(api).stream_get
        asked = _StreamArguments(_STREAM_SIZE, None, context, None)
        if ask(ctypes.byref(asked)):
            raise RuntimeError("XLA gives no stream for the call")
        return int(asked.stream or 0)


def _read(words: Sequence[int], streams: _Streams | None) -> Call:
    scalar = _word(words[20]).value  # its type, and after 8 bytes where it is
    number = _number(_word(scalar + 8).value).value
    stream = None if streams is None else streams.of(words[2], words[3])
    return Call(number, _buffers(words[7], words[9]), _buffers(words[12], words[14]), stream)


def _buffers(count: int, addresses: int) -> list[Buffer]:
    found = []
    for place in range(addresses, addresses + 8 * count, 8):
        _, _, kind, data, rank, dims = _ARRAY.unpack(_array_at(_word(place).value))
        key = kind & 0xFFFFFFFF, _bytes(8 * rank)(dims).raw if rank else b""
        known = _kinds.get(key)
        if known is None:
            known = _kind(key, rank)
        found.append(Buffer(data, *known))
    return found


def _kind(key: tuple[int, bytes], rank: int) -> tuple[tuple[int, ...], np.dtype, int]:
    dtype = _DTYPES.get(key[0])
    if dtype is None:
        raise TypeError(f"a type of XLA's (number {key[0]}) has no C++ equivalent here")
    if len(_kinds) >= _MOST_KINDS:
        _kinds.clear()
    shape = struct.unpack(f"{rank}q", key[1])
    found = _kinds[key] = shape, dtype, math.prod(shape) * dtype.itemsize
    return found
