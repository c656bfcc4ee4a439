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
    rows = DeviceArray((4, 8), "f4")
    rows.strides, rows.flags = (512, 4), SimpleNamespace(c_contiguous=False)
    plane = ck.texture(rows, memory="linear").resource
    assert (plane.width, plane.height, plane.pitch_bytes, plane.source.size) == (8, 4, 512, 2048)


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


@pytest.mark.parametrize(
    ("array", "options", "why"),
    [
        ([1.0], {}, "a texture is made of a NumPy or a CuPy array, got list"),
        (SimpleNamespace(dtype=np.dtype("f4")), {}, "got SimpleNamespace"),
        (SimpleNamespace(shape=(3,)), {}, "got SimpleNamespace"),
        (np.zeros(3, "f4"), {"channels": 3}, "a texel has 1, 2 or 4 channels, got 3"),
        (np.zeros((4, 3), "f4"), {"channels": 2}, "with channels=2 the last axis has 2 elements"),
        (np.zeros((), "f4"), {"channels": 2}, "with channels=2 the last axis has 2 elements"),
        (np.zeros((0, 4), "f4"), {}, "a texture needs texels"),
        (np.zeros((), "f4"), {}, "a texture needs texels"),
        (np.zeros(2, "f4"), {"channels": 2}, "a texture needs texels"),
        (np.zeros(3, "f4"), {"address": "none"}, "address is one of .*, or one for each axis, got 'none'"),
        (np.zeros((3, 3), "f4"), {"address": ("clamp", "no")}, "address is one of"),
        (np.zeros((3, 3), "f4"), {"address": 3}, "address is one of"),
        (np.zeros((3, 3), "f4"), {"address": ("clamp",)}, "address names 1 axes of a texture that has"),
        (np.zeros(3, "f4"), {"filter": "cubic"}, "filter is point or linear, got 'cubic'"),
        (np.zeros(3, "f4"), {"read": "raw"}, "read is element or normalized, got 'raw'"),
        (np.zeros(3, "f8"), {}, "texels are 8, 16 or 32-bit integers, float16 or float32, got float64"),
        (np.zeros(3, "?"), {}, "texels are .* got bool"),
        (np.zeros(3, ">f4"), {}, "texels are .* got >f4"),
        (np.zeros(3, "f2"), {"read": "normalized"}, "takes 8 and 16-bit integers, got float16"),
        (np.zeros(3, "i4"), {"read": "normalized"}, "takes 8 and 16-bit integers, got int32"),
        (np.zeros((3, 3), "u2"), {"filter": "linear"}, "linear filtering gives floats: uint16 needs"),
        (np.zeros(3, "f4"), {"memory": "pinned"}, "memory is array or linear, got 'pinned'"),
        (np.zeros((2, 2, 2, 2), "f4"), {}, "a texture of array memory cannot have 4 dimensions"),
        (np.zeros((2, 2, 2), "f4"), {"memory": "linear"}, "a texture of linear memory cannot have 3 dimensions"),
        (np.zeros((2, 2, 2, 2), "f4"), {"layered": True}, "a layered texture of array memory cannot have 3"),
        (np.zeros(2, "f4"), {"layered": True}, "a layered texture of array memory cannot have 0"),
        (np.zeros((2, 8), "f4"), {"layered": True, "memory": "linear"}, "a layered texture is of array memory"),
        (np.zeros((4, 8), "f4")[:, ::2], {"memory": "linear"}, "linear memory is contiguous, in C order"),
        (np.zeros(8, "f4"), {"memory": "linear", "filter": "linear"}, "linear memory of one dimension is read by"),
        (np.zeros(8, "f4"), {"memory": "linear", "normalized": True}, "linear memory of one dimension is read by"),
        (np.zeros(8, "f4"), {"address": "wrap"}, "address 'wrap' needs normalized=True"),
        (np.zeros((8, 8), "f4"), {"address": ("clamp", "mirror")}, "needs normalized=True"),
        (np.ma.zeros(3, "f4"), {}, "masked"),
        (DeviceArray((4, 8), "f4").flags, {}, "a texture is made of a NumPy or a CuPy array"),
    ],
)
def test_textures_that_cannot_be(array: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ck.ArgumentError, match=why):
        ck.texture(array, **options)


@pytest.mark.emulator
@pytest.mark.parametrize(
    ("shape", "options", "texels"),
    [
        ((8,), {}, (1, 1, 1, 8, 1)),
        ((4, 8), {"address": "border"}, (1, 1, 4, 8, 1)),
        ((3, 4, 8), {"filter": "linear"}, (1, 3, 4, 8, 1)),
        ((3, 4, 2), {"channels": 2}, (1, 1, 3, 4, 2)),
        ((3, 4), {"channels": 4}, (1, 1, 1, 3, 4)),
        ((3, 8), {"layered": True}, (3, 1, 1, 8, 1)),
        ((3, 5, 8), {"layered": True}, (3, 1, 5, 8, 1)),
        ((4, 8), {"memory": "linear", "filter": "linear", "normalized": True}, (1, 1, 4, 8, 1)),
        ((8,), {"memory": "linear"}, (1, 1, 1, 8, 1)),
        ((8,), {"normalized": True, "address": ["wrap"]}, (1, 1, 1, 8, 1)),
    ],
)
def test_the_emulators_texels(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], options: dict[str, Any], texels: tuple[int, ...]
) -> None:
    from cudakit.emulator import face

    made: list[Any] = []
    monkeypatch.setattr(face, "TextureObject", lambda *given, **more: made.append((*given, more)) or "texture")
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    assert ck.texture(x, **options) == "texture"
    ((values, rank, more),) = made
    assert values.shape == texels
    assert not values.flags.writeable
    np.testing.assert_array_equal(values.ravel(), x.ravel())
    assert np.shares_memory(values, x) == (options.get("memory") == "linear")
    assert rank == len(shape) - options.get("layered", False) - ("channels" in options)
    mode = options.get("address", "clamp")
    assert more == {
        "filter": options.get("filter", "point"),
        "address": ((mode,) if isinstance(mode, str) else tuple(mode)) * rank + ("clamp",) * (3 - rank),
        "normalized": options.get("normalized", False),
        "read": "element",
        "is_linear": options.get("memory") == "linear" and rank == 1,
    }


def test_texels_of_all_formats_that_there_are() -> None:
    for code in ("u1", "i1", "u2", "i2", "u4", "i4", "f2", "f4"):
        textures._check_format(np.dtype(code), "point", "element")
    for code in ("u1", "i1", "u2", "i2"):
        textures._check_format(np.dtype(code), "linear", "normalized")
    for code in ("f2", "f4"):
        textures._check_format(np.dtype(code), "linear", "element")


@pytest.mark.usefixtures("made")
def test_a_texture_of_a_gpus_surface_is_of_its_array() -> None:
    surface = type(
        "SurfaceObject", (), {"shape": (4, 8, 2), "dtype": np.dtype("f4"), "channels": 2, "layered": False}
    )()
    surface.device_id, surface.resource = 3, SimpleNamespace(source="the array")
    surface.flags = SimpleNamespace(c_contiguous=True)
    assert ck.texture(surface).resource == "the array"
    with pytest.raises(ck.ArgumentError, match="a texture of a surface is of array memory"):
        ck.texture(surface, memory="linear")
    with pytest.raises(ck.ArgumentError, match="got Foreign"):
        ck.texture(type("Foreign", (), {"shape": (4,), "dtype": np.dtype("f4")})())
