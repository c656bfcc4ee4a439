"""Where the memory of arrays lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cudakit.streams.order.ranges import named_producers, producers_of, span_of

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
