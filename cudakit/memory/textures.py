"""Textures of arrays: what a kernel that takes a ``cudaTextureObject_t`` is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.streams import devices, streams
from cudakit.types.arguments import refuse_masked
from cudakit.types.checked import flag, is_one_of, whole

if TYPE_CHECKING:
    from cudakit.emulator.face import TextureObject

Address = Literal["clamp", "border", "wrap", "mirror"]
_MODES = ("clamp", "border", "wrap", "mirror")
_AXES = "xyz"


def texture(
    array: Any,
    *,
    filter: Literal["point", "linear"] = "point",
    address: Address | tuple[Address, ...] = "clamp",
    normalized: bool = False,
    read: Literal["element", "normalized"] = "element",
    channels: Literal[1, 2, 4] = 1,
    memory: Literal["array", "linear"] = "array",
    layered: bool = False,
) -> TextureObject | Any:
    """A texture of `array`, for a kernel's parameter of type ``cudaTextureObject_t``.

    Keep the texture for as long as kernels use it. A NumPy array gives a texture for the emulator's stream, a CuPy
    array one for its GPU.

    Parameters
    ----------
    array : numpy.ndarray, cupy.ndarray or surface, shape ([depth,] [height,] width[, channels])
        Texels of 8, 16 or 32-bit integers, float16 or float32. A surface (of ``ck.surface``) is read in its own memory,
        and has its own channels and layers.
    filter : {"point", "linear"}
        What a lookup gives: the nearest texel, or those around it weighed by distance (float texels, or
        ``read="normalized"``).
    address : str or tuple of str
        What lies outside, for all axes or for each of x, y, z: the nearest texel (``clamp``), zero (``border``), the
        texture again (``wrap``), or mirrored (``mirror``; both of these need `normalized`).
    normalized : bool
        Whether coordinates go from 0 to 1 along each axis instead of counting texels.
    read : {"element", "normalized"}
        Whether a lookup gives texels as they are, or 8 and 16-bit integers as floats in [0, 1] or [-1, 1].
    channels : {1, 2, 4}
        Components of a texel; from 2 on, the last axis of `array`.
    memory : {"array", "linear"}
        ``array``: a copy of the texels as of this call, which waits for all that the GPU was given, in the layout that
        ``tex1D``, ``tex2D`` and ``tex3D`` read.
        ``linear``: the array's own memory, so that later changes show; in one dimension read by ``tex1Dfetch``, which
        finds zero outside, in two by ``tex2D``.
    layered : bool
        Whether the first axis counts layers, for ``tex1DLayered``, ``tex2DLayered`` and, of 6 layers a cube,
        ``texCubemap``. On the emulator only.

    Returns
    -------
    cudakit.emulator.resources.texture.TextureObject or cuda.core.texture.TextureObject

    Raises
    ------
    ArgumentError
        If there is no such texture.
    """
    normalized, layered = flag("texture: normalized", normalized), flag("texture: layered", layered)
    surface = array if type(array).__name__ == "SurfaceObject" and hasattr(array, "channels") else None
    if surface is not None:
        if isinstance(memory, str) and memory == "linear":
            raise ArgumentError("a texture of a surface is of array memory, not linear")
        channels, layered = surface.channels, surface.layered
        array = getattr(surface, "values", surface)  # of the emulator's, its memory
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ArgumentError(f"a texture is made of a NumPy or a CuPy array, got {type(array).__name__}")
    shape = texel_shape(array, channels, "texture")
    rank = len(shape) - layered
    modes = _modes(address, rank)
    _check_format(array.dtype, filter, read)
    _check_shape(array, rank, memory, layered, filter, normalized)
    if not normalized and not {"wrap", "mirror"}.isdisjoint(modes):
        raise ArgumentError(f"address {shortened(address)} needs normalized=True: coordinates from 0 to 1")
    refuse_masked(array)
    if not isinstance(array, np.ndarray):
        return _on_gpu(array, shape, filter, modes, normalized, read, channels, memory, layered)
    from cudakit.emulator.face import TextureObject, order

    if memory == "array" and surface is None:
        order().finish_all()
    texels = array.view() if memory == "linear" or surface is not None else array.copy()
    layers = shape[0] if layered else 1
    inner = shape[layered:]
    texels = texels.reshape(layers, *(1,) * (3 - rank), *inner, channels)
    texels.flags.writeable = False
    return TextureObject(
        texels,
        rank,
        filter=filter,
        address=modes + ("clamp",) * (3 - rank),
        normalized=normalized,
        read=read,
        is_linear=memory == "linear" and rank == 1,
    )


def texel_shape(array: Any, channels: int, noun: str) -> tuple[int, ...]:
    """Shape of `array` counted in texels; `noun` is what it is for.

    Raises
    ------
    ArgumentError
    """
    if whole(f"{noun}: channels", channels, 1) not in (1, 2, 4):
        raise ArgumentError(f"a texel has 1, 2 or 4 channels, got {shortened(channels)}")
    shape = tuple(array.shape)
    if channels > 1 and (not shape or shape[-1] != channels):
        raise ArgumentError(f"with channels={channels} the last axis has {channels} elements, got shape {shape}")
    shape = shape if channels == 1 else shape[:-1]
    if 0 in shape or not shape:
        raise ArgumentError(f"a {noun} needs texels, got an array of shape {tuple(array.shape)}")
    return shape


def _modes(address: str | tuple[str, ...], rank: int) -> tuple[str, ...]:
    modes = (address,) * rank if isinstance(address, str) else address
    if not isinstance(modes, tuple | list) or not all(is_one_of(mode, _MODES) for mode in modes):
        raise ArgumentError(f"address is one of {', '.join(_MODES)}, or one for each axis, got {shortened(address)}")
    if len(modes) != rank:
        raise ArgumentError(f"address names {len(modes)} axes of a texture that has {', '.join(_AXES[:rank])}")
    return tuple(modes)


def _check_format(dtype: np.dtype, filter: str, read: str) -> None:
    """Check that the hardware has such texels, and reads them so."""
    if not is_one_of(filter, ("point", "linear")):
        raise ArgumentError(f"filter is point or linear, got {shortened(filter)}")
    if not is_one_of(read, ("element", "normalized")):
        raise ArgumentError(f"read is element or normalized, got {shortened(read)}")
    if dtype.kind not in "iuf" or dtype.itemsize > 4 or not dtype.isnative:
        raise ArgumentError(
            f"texels are 8, 16 or 32-bit integers, float16 or float32, got {dtype}; 64-bit numbers are read as two "
            "channels of 32 bits, x.view('i4')"
        )
    if read == "normalized" and (dtype.kind == "f" or dtype.itemsize > 2):
        raise ArgumentError(f"read='normalized' takes 8 and 16-bit integers, got {dtype}")
    if filter == "linear" and dtype.kind != "f" and read == "element":
        raise ArgumentError(f"linear filtering gives floats: {dtype} needs read='normalized', or x.astype('f4')")


def _check_shape(array: Any, rank: int, memory: str, layered: bool, filter: str, normalized: bool) -> None:
    if not is_one_of(memory, ("array", "linear")):
        raise ArgumentError(f"memory is array or linear, got {shortened(memory)}")
    if not 1 <= rank <= (2 if layered or memory == "linear" else 3):
        raise ArgumentError(
            f"a {'layered ' * layered}texture of {memory} memory cannot have {rank} dimensions (array of shape "
            f"{tuple(array.shape)})"
        )
    if memory == "linear":
        if layered:
            raise ArgumentError("a layered texture is of array memory, not linear")
        if not array.flags.c_contiguous:
            raise ArgumentError("linear memory is contiguous, in C order; copy the array, or take memory='array'")
        if rank == 1 and (filter == "linear" or normalized):
            raise ArgumentError("linear memory of one dimension is read by tex1Dfetch: no filter, texels counted")


def _on_gpu(
    array: Any,
    shape: tuple[int, ...],
    filter: str,
    modes: tuple[str, ...],
    normalized: bool,
    read: str,
    channels: int,
    memory: str,
    layered: bool,
) -> Any:
    """cuda.core's texture object of a CuPy array."""
    is_surface = type(array).__name__ == "SurfaceObject"
    if not is_surface and type(array).__module__.partition(".")[0] != "cupy":
        raise ArgumentError(f"a texture is made of a NumPy or a CuPy array, got {type(array).__name__}")
    if layered:
        raise ArgumentError("layered textures are the emulator's only: cuda.core makes none")
    from cuda.core.texture import ResourceDescriptor, TextureObjectOptions

    options = TextureObjectOptions(
        address_mode=(*modes, *("clamp",) * (3 - len(modes))),  # a texture of one row is read as one of two axes
        filter_mode=filter,
        read_mode="normalized_float" if read == "normalized" else "element_type",
        normalized_coords=normalized,
    )
    with devices.on_device(array.device_id if is_surface else array.device.id):
        device = devices.current_device()
        if is_surface:
            resource = ResourceDescriptor.from_opaque_array(array.resource.source)
        elif memory == "array":
            resource = ResourceDescriptor.from_opaque_array(_opaque(device, array, shape, channels))
        elif len(shape) == 1:
            resource = ResourceDescriptor.from_linear(_buffer(array), format=array.dtype, num_channels=channels)
        else:
            resource = ResourceDescriptor.from_pitch2d(
                _buffer(array),
                format=array.dtype,
                num_channels=channels,
                width=shape[1],
                height=shape[0],
                pitch_bytes=array.strides[0],
            )
        return device.create_texture_object(resource=resource, options=options)


def _opaque(device: Any, array: Any, shape: tuple[int, ...], channels: int) -> Any:
    """A copy of an array in the layout of textures."""
    import cupy
    from cuda.core.texture import OpaqueArrayOptions

    made = device.create_opaque_array(OpaqueArrayOptions(shape[::-1], array.dtype, channels))
    # The texels may be any stream's work, and any stream's kernels may fetch them.
    array.device.synchronize()
    current = streams.of_handle(cupy.cuda.get_current_stream().ptr)
    made.copy_from(_buffer(cupy.ascontiguousarray(array)), stream=current)
    current.sync()
    return made


def _buffer(array: Any) -> Any:
    """The memory of a CuPy array, which it keeps alive."""
    from cuda.core import Buffer

    return Buffer.from_handle(array.data.ptr, array.nbytes, owner=array)
