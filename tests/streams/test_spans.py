"""Where the memory of arrays lies."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.streams import segments
from cudakit.streams.segments import argument_span, named_producers, producers_of, span_of

BASE = np.arange(24, dtype="f4").reshape(4, 6)


@pytest.mark.parametrize(
    "view",
    [BASE, BASE[1:3], BASE[::2, ::3], BASE[::-1, ::-2], BASE.T, BASE[2], BASE[:, 1], np.broadcast_to(BASE[0], (9, 6))],
    ids=lambda view: str(view.strides),
)
def test_a_view_is_taken_from_its_first_byte_to_its_last(view: Any) -> None:
    assert span_of(view) == np.lib.array_utils.byte_bounds(view)


def test_nothing_lies_nowhere() -> None:
    for nothing in (None, BASE[:0], BASE[::2, :0], np.empty((3, 0))):
        start, stop = span_of(nothing)
        assert start == stop


def test_a_range_is_itself() -> None:
    assert span_of((16, 32)) == (16, 32)


class Other:
    """An array of another library."""

    def __init__(self, stream: int | None) -> None:
        self.asked: list[int] = []
        self.__cuda_array_interface__ = {"version": 3, "shape": (4,), "typestr": "<f4", "data": (0, False)}
        if stream is not None:
            self.__cuda_array_interface__["stream"] = stream


class Exporter:
    """An array by DLPack alone."""

    def __init__(self) -> None:
        self.asked: list[int | None] = []

    def __dlpack__(self, *, stream: int | None = None) -> None:
        self.asked.append(stream)


def test_an_array_names_its_stream() -> None:
    assert named_producers(Other(None), 5) == []
    assert named_producers(Other(7), 5) == [7]
    exporter = Exporter()
    assert named_producers(exporter, 5) == []
    assert exporter.asked == [5], "it lets our stream wait itself"
    assert producers_of([BASE, (16, 32), Other(7), Other(None)], 0, 5) == [7]


def test_textures_lie_where_their_texels_do() -> None:
    from cuda.core import Buffer
    from cuda.core.texture import ResourceDescriptor

    class TextureObject:
        handle = 7
        resource = ResourceDescriptor.from_linear(
            Buffer.from_handle(4096, 64), format=np.dtype("f4"), num_channels=1
        )  # such as cuda.core makes, for which a GPU is needed

    assert span_of(TextureObject()) == (4096, 4160)

    class OpaqueTexture(TextureObject):
        class resource:
            class source:
                handle = 5

    OpaqueTexture.__name__ = "TextureObject"
    assert span_of(OpaqueTexture()) == (5, 6)


def of(module: str, **given: Any) -> Any:
    """An object of a class of another library."""
    return type("Array", (), {"__module__": module, **given})()


def test_arrays_of_cupy_and_torch_lie_where_they_say() -> None:
    data = SimpleNamespace(ptr=1000)
    whole = of("cupy", data=data, _c_contiguous=True, nbytes=96)
    assert span_of(whole) == (1000, 1096)
    assert segments.cupy_span(whole) == (1000, 1096)
    view = of("cupy", data=data, _c_contiguous=False, shape=(3, 5), strides=(-40, 8), itemsize=4)
    assert span_of(view) == (1000 - 80, 1000 + 32 + 4)
    tensor = of(
        "torch", data_ptr=lambda self: 1000, element_size=lambda self: 2, shape=(3, 5), stride=lambda self: (10, 1)
    )
    assert span_of(tensor) == (1000, 1000 + 2 * (20 + 4) + 2)


def test_host_memory_without_strides_is_whole() -> None:
    described = {"shape": (3, 5), "typestr": "<f8", "data": (4096, False)}
    assert span_of(SimpleNamespace(__array_interface__=described)) == (4096, 4096 + 120)


def test_cupys_textures_lie_where_their_arrays_do() -> None:
    def texture(arr: Any, number: Any) -> Any:
        return of("cupy.cuda.texture", ResDesc=SimpleNamespace(arr=arr, cuArr=number))

    assert span_of(texture((16, 48), None)) == (16, 48)
    assert span_of(texture(None, SimpleNamespace(ptr=7))) == (7, 8)
    assert span_of(texture(None, None)) == (0, 0)


def test_other_arguments_lie_where_they_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def argument(kind: str, dtype: Any = None, **given: Any) -> Any:
        return SimpleNamespace(
            family="other", pointer=64, evidence=SimpleNamespace(category=kind, dtype=dtype), **given
        )

    strided = {"shape": (2, 3), "strides": (8, 2)}
    assert argument_span(argument("array", np.dtype("f4"), **strided)) == (64, 64 + 4 * (8 + 4) + 4)
    assert argument_span(argument("array")) == (0, 0)
    assert argument_span(argument("number", np.dtype("f4"))) == (0, 0)
    buffer = argument("array", value=SimpleNamespace(size=24))
    buffer.family = "buffer"
    assert argument_span(buffer) == (64, 88)
    monkeypatch.setattr(segments, "allocation_of", lambda address: (address, address + 100))
    assert argument_span(argument("address")) == (64, 164)
    monkeypatch.setattr(segments, "describe", lambda array: array)
    assert span_of(argument("address")) == (64, 164)


def test_an_address_is_taken_for_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    answer = [0, 96, 32]
    monkeypatch.setattr(driver, "cuMemGetAddressRange", lambda address: (answer[0], int(address) - 4, answer[2]))
    assert segments.allocation_of(100) == (96, 128)
    answer[0] = 1
    assert segments.allocation_of(100) == (100, 101)
    assert segments.allocation_of(0) == (0, 0)


def test_the_current_streams_of_the_libraries_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        segments, "current_streams", lambda libraries, device: asked.append((list(libraries), device)) or [9]
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    arrays = [of("torch.cuda"), Other(7), of("cupy"), of("torch")]
    assert producers_of(arrays, 3, 5) == [9, 7]
    assert asked == [(["torch", "cupy"], 3)]
    monkeypatch.delitem(sys.modules, "torch")
    assert producers_of([of("torch")], 0, 5) == [9]
    assert asked[-1] == ([], 0)
