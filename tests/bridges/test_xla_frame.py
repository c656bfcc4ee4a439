"""What XLA hands to a handler, made by hand: no JAX is needed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.bridges import jax_call
from cudakit.bridges.jax_call import Call, handler

DTYPES = {1: "?", 5: "i8", 9: "u8", 10: "f2", 11: "f4", 12: "f8", 15: "c8", 18: "c16"}


class Frame:
    """A call frame, its memory, and what was asked of XLA."""

    def __init__(self, number: int, *given: tuple[int, tuple[int, ...]]) -> None:
        self.errors: list[bytes] = []
        self.api = jax_call._Api()
        self.api.version.major, self.api.version.minor = 7, 9
        self.create = type(self.api.error_create)(self._error)
        self.stream = type(self.api.stream_get)(self._stream)
        self.api.error_create, self.api.stream_get = self.create, self.stream
        self.frame = jax_call._Frame(api=ctypes.pointer(self.api), context=77, stage=3)
        self.value = ctypes.c_int64(number)
        self.scalar = jax_call._Scalar(5, ctypes.pointer(self.value))
        self.scalars = (ctypes.POINTER(jax_call._Scalar) * 1)(ctypes.pointer(self.scalar))
        self.frame.attributes.values, self.frame.attributes.size = self.scalars, 1
        self.kept: list[Any] = []
        for buffers, part in ((self.frame.arguments, given[:-1]), (self.frame.results, given[-1:])):
            buffers.buffers, buffers.size = self._pointers(part), len(part)

    def _pointers(self, given: Any) -> int:
        made = []
        for k, (dtype, shape) in enumerate(given):
            dims = (ctypes.c_int64 * len(shape))(*shape)
            # Above the type's 32 bits lies what nobody has set.
            array = (ctypes.c_uint64 * 6)(48, 0, dtype | 5 << 32, 4096 * (k + 1), len(shape), ctypes.addressof(dims))
            self.kept += [dims, array]
            made.append(ctypes.addressof(array))
        arrays = (ctypes.c_uint64 * len(made))(*made)
        self.kept.append(arrays)
        return ctypes.addressof(arrays)

    def _error(self, arguments: Any) -> int:
        self.errors.append(arguments.contents.message)
        assert arguments.contents.struct_size >= 28
        return 123

    def _stream(self, arguments: Any) -> None:
        assert arguments.contents.context == 77
        arguments.contents.stream = 4711


def handled(frame: Frame, work: Callable[[Call], None], on_gpu: bool = False) -> Any:
    return handler(work, on_gpu)(ctypes.byref(frame.frame))


def test_a_call_is_read() -> None:
    found: list[Call] = []
    assert handled(Frame(2**62 + 5, (11, (3, 4)), (16, ()), (12, (2,))), found.append) is None
    (call,) = found
    assert (call.number, call.stream) == (2**62 + 5, None)
    assert [tuple(each) for each in call.arguments] == [
        (4096, (3, 4), np.dtype("f4"), 48),
        (8192, (), np.dtype(ml_dtypes.bfloat16), 2),
    ]
    assert [tuple(each) for each in call.results] == [(4096, (2,), np.dtype("f8"), 16)]


def test_the_stream_is_asked_for_on_a_gpu() -> None:
    found: list[Call] = []
    handled(Frame(1, (11, (3,))), found.append, on_gpu=True)
    assert found[0].stream == 4711


@pytest.mark.parametrize(("number", "dtype"), DTYPES.items())
def test_types_of_elements(number: int, dtype: str) -> None:
    found: list[Call] = []
    handled(Frame(1, (number, (3,))), found.append)
    assert found[0].results[0].dtype == np.dtype(dtype)


def test_what_is_raised_is_xlas_error() -> None:
    def work(call: Call) -> None:
        raise ValueError("what was wrong — said")

    frame = Frame(1, (11, (3,)))
    assert handled(frame, work) == 123
    assert frame.errors == ["ValueError: what was wrong — said".encode()]
    frame = Frame(1, (17, ()))
    assert handled(frame, work) == 123
    assert b"(number 17) has no C++ equivalent" in frame.errors[0]


def test_xla_is_told_the_interface_that_it_has() -> None:
    frame = Frame(1, (11, (3,)))
    metadata = jax_call._Metadata(traits=9)
    extension = jax_call._MetadataExtension(metadata=ctypes.pointer(metadata))
    extension.base.type = 1
    frame.frame.extension = ctypes.cast(ctypes.pointer(extension), type(frame.frame.extension))
    found: list[Call] = []
    assert handled(frame, found.append) is None
    assert (metadata.version.major, metadata.version.minor, metadata.traits) == (7, 9, 0)
    assert found == []


def test_kinds_of_arrays_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_call, "_layouts", {})
    monkeypatch.setattr(jax_call, "_MOST_LAYOUTS", 2)
    sizes = []
    for size in (1, 2, 2, 3):
        handled(Frame(1, (11, (size,))), lambda call: sizes.append(call.results[0].shape))
    assert sizes == [(1,), (2,), (2,), (3,)]
    assert list(jax_call._layouts.values()) == [((3,), np.dtype("f4"), 12)]


def test_a_stream_that_xla_does_not_give_is_its_error() -> None:
    frame = Frame(1, (11, (3,)))
    refused = type(frame.api.stream_get)(lambda arguments: 5)
    frame.api.stream_get = refused
    assert handled(frame, lambda call: None, on_gpu=True) == 123
    assert frame.errors == [b"RuntimeError: XLA gives no stream for the call"]


def test_another_extension_is_no_question() -> None:
    frame = Frame(1, (11, (3,)))
    extension = jax_call._Extension(type=7)
    frame.frame.extension = ctypes.pointer(extension)
    found: list[Call] = []
    assert handled(frame, found.append) is None
    assert len(found) == 1
