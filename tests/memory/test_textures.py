"""Textures of device arrays, as far as cuda.core is asked for them; what they give is tested with the emulator's."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.core.texture import ResourceDescriptor

import cudakit as ck
from cudakit.memory import textures


class DeviceArray:
    """A CuPy array, as far as a texture asks."""

    __module__ = "cupy._core"

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        like = np.zeros(shape, dtype)
        self.shape, self.dtype, self.strides, self.nbytes, self.flags = (
            shape, like.dtype, like.strides, like.nbytes, like.flags
        )  # fmt: skip
        self.data = SimpleNamespace(ptr=1 << 20)
        self.device = SimpleNamespace(id=0, synchronize=lambda: None)


class Opaque:
    """A cuda.core OpaqueArray that no driver has made."""

    def __init__(self, options: Any) -> None:
        self.options = options

    def copy_from(self, source: Any, *, stream: Any) -> None:
        self.source, self.stream = source, stream


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Device:
        create_opaque_array = staticmethod(Opaque)

        def create_texture_object(self, *, resource: Any, options: Any) -> Any:
            return SimpleNamespace(resource=resource, options=options)

    stream = SimpleNamespace(sync=lambda: None)
    current = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=5))
    library: Any = SimpleNamespace(cuda=current, ascontiguousarray=lambda array: array)
    monkeypatch.setitem(sys.modules, "cupy", library)
    monkeypatch.setattr(textures.devices, "current_device", Device)
    monkeypatch.setattr(ResourceDescriptor, "from_opaque_array", lambda array: array)
    monkeypatch.setattr(textures.devices, "on_device", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(textures.streams, "of_handle", lambda _: stream)


@pytest.mark.usefixtures("made")
def test_linear_memory_is_the_arrays_own() -> None:
    line = ck.texture(DeviceArray((16, 2), "u1"), memory="linear", channels=2, read="normalized").resource
    assert (line.kind, line.num_channels, line.format, line.size_bytes) == ("linear", 2, "uint8", 32)
    assert int(line.source.handle) == 1 << 20
    plane = ck.texture(DeviceArray((4, 8), "f4"), memory="linear", filter="linear").resource
    assert (plane.kind, plane.width, plane.height, plane.pitch_bytes) == ("pitch2d", 8, 4, 32)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("code", ["u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"])
def test_an_array_is_copied_to_memory_of_the_drivers_layout(code: str) -> None:
    opaque = ck.texture(DeviceArray((3, 4, 5), code)).resource
    assert (opaque.options.shape, opaque.options.format, opaque.options.num_channels) == ((5, 4, 3), np.dtype(code), 1)
    assert (int(opaque.source.handle), opaque.source.size) == (1 << 20, 60 * np.dtype(code).itemsize)


@pytest.mark.usefixtures("made")
def test_lookups_are_as_asked() -> None:
    array = DeviceArray((4, 8), "u2")
    options = ck.texture(array, filter="linear", address=("wrap", "mirror"), normalized=True, read="normalized").options
    assert (options.filter_mode, options.address_mode) == ("linear", ("wrap", "mirror", "clamp"))
    assert (options.normalized_coords, options.read_mode) == (True, "normalized_float")
    plain = ck.texture(array).options
    assert (plain.filter_mode, plain.address_mode) == ("point", ("clamp",) * 3)
    assert (plain.normalized_coords, plain.read_mode) == (False, "element_type")
    with pytest.raises(ck.ArgumentError, match=r"cuda\.core makes none"):
        ck.texture(array, layered=True)
