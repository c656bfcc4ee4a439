"""A stand-in for ``cupy.cuda.texture``: textures and surfaces, by ``ck.texture`` and ``ck.surface``."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.adapters.cupy.arrays import plain
from cudakit.adapters.cupy.runtime import CONSTANTS
from cudakit.errors import ArgumentError
from cudakit.memory.textures import surface, texture

_ADDRESSES = ("wrap", "clamp", "mirror", "border")
_KINDS = {0: "i", 1: "u", 2: "f"}


class ChannelFormatDescriptor:
    """Bits of the components of a texel, and their kind: a constant ``cudaChannelFormatKind…``."""

    def __init__(self, x: int, y: int, z: int, w: int, f: int) -> None:
        self.ch_format: dict[str, int] = {"x": x, "y": y, "z": z, "w": w, "f": f}

    def get_channel_format(self) -> dict[str, int]:
        """Return bits and kind, by name."""
        return dict(self.ch_format)

    @property
    def channels(self) -> int:
        """Number of components."""
        return sum(self.ch_format[name] > 0 for name in "xyzw")

    @property
    def dtype(self) -> np.dtype:
        """Dtype of a component."""
        return np.dtype(f"{_KINDS[self.ch_format['f']]}{self.ch_format['x'] // 8}")


class CUDAarray:
    """Memory of texels, of shape ([depth,] [height,] width[, channels]), for textures and surfaces.

    Attributes
    ----------
    own : SurfaceObject
        Memory as a surface of cudakit's.
    """

    def __init__(
        self, desc: ChannelFormatDescriptor, width: int, height: int = 0, depth: int = 0, flags: int = 0
    ) -> None:
        self.desc: ChannelFormatDescriptor = desc
        self.width: int = width
        self.height: int = height
        self.depth: int = depth
        self.flags: int = flags
        self.ndim = 3 if depth else 2 if height else 1
        extents = tuple(extent for extent in (depth, height, width) if extent)
        channels = (desc.channels,) * (desc.channels > 1)
        shape = (*extents, *channels)
        channels_of: Any = desc.channels
        own: Any = surface(np.zeros(shape, desc.dtype), channels=channels_of)
        self.own = own
        self._elements: np.ndarray = own.array.reshape(shape)

    def copy_from(self, in_arr: Any, stream: Any = None) -> None:
        """Copy the elements of a NumPy or CuPy array, whose last axis has the components."""
        self._elements[...] = plain(in_arr).reshape(self._elements.shape)

    def copy_to(self, out_arr: Any, stream: Any = None) -> None:
        """Copy the elements to a NumPy or CuPy array."""
        plain(out_arr)[...] = self._elements.reshape(out_arr.shape)


class ResourceDescriptor:
    """Memory of a texture: a `CUDAarray`, or a CuPy array with its format."""

    def __init__(
        self,
        restype: int,
        cuArr: CUDAarray | None = None,
        arr: Any = None,
        chDesc: ChannelFormatDescriptor | None = None,
        sizeInBytes: int = 0,
        width: int = 0,
        height: int = 0,
        pitchInBytes: int = 0,
    ) -> None:
        self.restype: int = restype
        self.cuArr: CUDAarray | None = cuArr
        self.arr: Any = arr
        self.chDesc: ChannelFormatDescriptor | None = chDesc
        self.size: int = sizeInBytes
        self.width: int = width
        self.height: int = height
        self.pitch: int = pitchInBytes
        if cuArr is None and (arr is None or chDesc is None):
            raise ArgumentError("ResourceDescriptor takes cuArr, or arr and chDesc")

    def linear_texels(self) -> tuple[np.ndarray, int]:
        """Return the texels of a CuPy array, and their number of components."""
        assert self.chDesc is not None
        channels, dtype = self.chDesc.channels, self.chDesc.dtype
        components = (channels,) * (channels > 1)
        memory = plain(self.arr).reshape(-1).view(dtype)
        if self.restype == CONSTANTS["cudaResourceTypeLinear"]:
            return memory.reshape(-1, *components), channels
        rows = np.lib.stride_tricks.as_strided(
            memory, (self.height, self.width * channels), (self.pitch, dtype.itemsize), subok=True
        )
        return rows.reshape(self.height, self.width, *components), channels


class TextureDescriptor:
    """Options of lookups in a texture, by CUDA's constants."""

    def __init__(
        self,
        addressModes: Any = None,
        filterMode: int = 0,
        readMode: int = 0,
        sRGB: Any = None,
        borderColors: Any = None,
        normalizedCoords: Any = None,
        maxAnisotropy: Any = None,
    ) -> None:
        self.addressModes: tuple[Any, ...] = tuple(addressModes or ())
        self.filterMode: int = filterMode
        self.readMode: int = readMode
        self.normalizedCoords: bool = bool(normalizedCoords)
        if sRGB or maxAnisotropy or any(borderColors or ()):
            raise ArgumentError("TextureDescriptor: the emulator has no sRGB, maxAnisotropy or borderColors but zeros")


class TextureObject:
    """A texture, as an argument of kernels."""

    def __init__(self, ResDesc: ResourceDescriptor, TexDesc: TextureDescriptor) -> None:
        self.ResDesc: ResourceDescriptor = ResDesc
        self.TexDesc: TextureDescriptor = TexDesc

    @functools.cached_property
    def own(self) -> Any:
        """Texture of cudakit's."""
        texels: Any
        channels: Any
        array = self.ResDesc.cuArr
        if array is not None:
            texels, channels, rank = array.own, array.desc.channels, array.ndim
        else:
            texels, channels = self.ResDesc.linear_texels()
            rank = texels.ndim - (channels > 1)
        modes: Any = tuple(_ADDRESSES[number] for number in self.TexDesc.addressModes[:rank])
        return texture(
            texels, filter="linear" if self.TexDesc.filterMode else "point",
            address=modes if len(modes) == rank else "clamp", normalized=self.TexDesc.normalizedCoords,
            read="normalized" if self.TexDesc.readMode else "element", channels=channels,
            memory="array" if array is not None else "linear",
        )  # fmt: skip


class SurfaceObject:
    """A surface, as an argument of kernels: it writes the memory of a `CUDAarray`."""

    def __init__(self, ResDesc: ResourceDescriptor) -> None:
        if ResDesc.cuArr is None:
            raise ArgumentError("SurfaceObject takes a ResourceDescriptor of a CUDAarray")
        self.ResDesc: ResourceDescriptor = ResDesc
        self.own: Any = ResDesc.cuArr.own
