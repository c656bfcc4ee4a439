"""Surfaces: memory in the layout of textures, which kernels that take a ``cudaSurfaceObject_t`` read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.memory.textures import texel_shape
from cudakit.types.arguments import refuse_masked
from cudakit.types.checked import flag

if TYPE_CHECKING:
    from cudakit.emulator.face import SurfaceObject as EmulatedSurface
    from cudakit.memory.device_memory import SurfaceObject


def surface(array: Any, *, channels: Literal[1, 2, 4] = 1, layered: bool = False) -> SurfaceObject | EmulatedSurface:
    """A surface with a copy of `array`, for a kernel's parameter of type ``cudaSurfaceObject_t``.

    Kernels read and write it by ``surf1Dread``, ``surf2Dwrite``, ``surf2DLayeredwrite``, ``surfCubemapread`` and their
    kin; x counts bytes. What lies outside stops the kernel, or, as the call says, is the nearest element
    (``cudaBoundaryModeClamp``) or zero (``cudaBoundaryModeZero``). ``ck.texture(surface)`` is a texture of the same
    memory, which launches after one that wrote read; ``ck.memory.copy`` copies to and from arrays.

    Keep the surface until the kernels that use it are done. A NumPy array gives a surface for the emulator's streams, a
    CuPy array one for its GPU.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray, shape ([depth or layers,] [height,] width[, channels])
        8, 16 or 32-bit integers, float16 or float32. Copied as of this call, which waits for all that the GPU was
        given.
    channels : {1, 2, 4}
        Components of an element; from 2 on, the last axis of `array`.
    layered : bool
        Whether the first axis counts layers, for ``surf1DLayeredread``, ``surf2DLayeredread`` and, of 6 layers a cube,
        ``surfCubemapread``.

    Returns
    -------
    SurfaceObject
        With ``shape``, ``dtype``, ``channels``, ``layered`` and ``handle``, the number that kernels know it by.

    Raises
    ------
    ArgumentError
        If there is no such surface.

    Examples
    --------
    >>> image = ck.surface(xp.zeros((480, 640), np.float32))
    >>> blur(stream, ck.cover((480, 640)), image)
    >>> ck.memory.copy(result, image, stream)
    """
    layered = flag("surface: layered", layered)
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ArgumentError(f"a surface is made of a NumPy or a CuPy array, got {type(array).__name__}")
    dtype, shape = array.dtype, texel_shape(array, channels, "surface")
    rank = len(shape) - layered
    if dtype.kind not in "iuf" or dtype.itemsize > 4 or not dtype.isnative:
        raise ArgumentError(
            f"a surface has 8, 16 or 32-bit integers, float16 or float32, got {dtype}; 64-bit numbers are two channels "
            "of 32 bits, x.view('i4')"
        )
    if not 1 <= rank <= (2 if layered else 3):
        raise ArgumentError(
            f"a {'layered ' * layered}surface cannot have {rank} dimensions (array of shape {tuple(array.shape)})"
        )
    refuse_masked(array)
    if isinstance(array, np.ndarray):
        from cudakit.emulator.face import SurfaceObject as EmulatedSurface
        from cudakit.emulator.face import order

        order().finish_all()
        layers, inner = (shape[0], shape[1:]) if layered else (1, shape)
        texels = np.array(array, order="C").reshape(layers, *(1,) * (3 - rank), *inner, channels)
        return EmulatedSurface(texels, rank, tuple(array.shape), layered)
    if type(array).__module__.partition(".")[0] != "cupy":
        raise ArgumentError(f"a surface is made of a NumPy or a CuPy array, got {type(array).__name__}")
    from cudakit.memory.device_memory import make

    return make(array, shape, channels, layered)
