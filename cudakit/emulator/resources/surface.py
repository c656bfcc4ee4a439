"""Surfaces: memory of host arrays that kernels know by a handle."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.resources.handles import Handles


class SurfaceObject:
    """The memory of a host array as a surface.

    Attributes
    ----------
    array : numpy.ndarray, shape (layers, depth, height, width, channels), C-contiguous
    rank : int
        Coordinates of a place, beside its layer.
    shape : tuple of int
        Of the array that it was made of.
    dtype : numpy.dtype
    channels : int
    layered : bool
    handle : int
        What a kernel knows the surface by.
    """

    array: np.ndarray
    rank: int
    shape: tuple[int, ...]
    dtype: np.dtype
    layered: bool
    channels: int

    def __init__(self, array: np.ndarray, rank: int, shape: tuple[int, ...], layered: bool = False) -> None:
        self.array, self.rank = array, rank
        self.shape, self.dtype, self.layered = shape, array.dtype, layered
        self._bytes = array.reshape(-1).view(np.uint8)
        layers, depth, height, width, self.channels = array.shape
        #: Width in bytes, height, depth, layers.
        self.sizes: tuple[int, int, int, int] = (width * self.channels * array.itemsize, height, depth, layers)
        self.handle: int = SURFACES.add(self)

    @property
    def values(self) -> np.ndarray:
        """The memory as an array of the surface's shape."""
        return self.array.reshape(self.shape)

    def elements(self, dtype: np.dtype) -> np.ndarray:
        """The memory as whole elements of `dtype`."""
        return self._bytes[: self._bytes.size // dtype.itemsize * dtype.itemsize].view(dtype)


#: Global for the reason that textures' handles are.
SURFACES: Handles[SurfaceObject] = Handles("surface", 0x7500_0000_0000_0000)
