"""Textures, surfaces and tensor maps of arrays.

- A texture is read: a kernel takes it as ``cudaTextureObject_t``.
- A surface is read and written: a kernel takes it as ``cudaSurfaceObject_t``.
- A tensor map is a ``CUtensorMap``, for copies of boxes of a tensor (TMA).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.streams import devices, streams
from cudakit.types.arguments import as_numpy, refuse_masked
from cudakit.types.checked import flag, is_one_of, whole

if TYPE_CHECKING:
    from cudakit.emulator.face import SurfaceObject as EmulatedSurface
    from cudakit.emulator.face import TextureObject
    from cudakit.memory.device_memory import SurfaceObject


Address = Literal["clamp", "border", "wrap", "mirror"]
_MODES = ("clamp", "border", "wrap", "mirror")
_AXES = "xyz"
_TEXTURE_WORDS = {"filter": ("point", "linear"), "read": ("element", "normalized"), "memory": ("array", "linear")}
#: What cuda.core says for `read`.
_READS = {"element": "element_type", "normalized": "normalized_float"}


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
    """Return a texture of `array`, for a kernel's parameter of type ``cudaTextureObject_t``.

    Keep the texture for as long as kernels use it. A NumPy array gives a texture for the emulator's stream. A CuPy
    array gives a texture for its GPU.

    Parameters
    ----------
    array : numpy.ndarray, cupy.ndarray or surface, shape ([depth,] [height,] width[, channels])
        Texels of 8, 16 or 32-bit integers, float16 or float32. A surface (of ``ck.surface``) is read in its own memory,
        and has its own channels and layers.
    filter : {"point", "linear"}
        Result of a lookup: the nearest texel (``point``), or the surrounding texels weighted by distance
        (``linear``: float texels, or ``read="normalized"``).
    address : str or tuple of str
        Result outside the texture, for all axes or for each of x, y, z: the nearest texel (``clamp``), zero
        (``border``), the repeated texture (``wrap``), or the mirrored texture (``mirror``). The last two need
        `normalized`.
    normalized : bool
        Whether coordinates go from 0 to 1 along each axis instead of counting texels.
    read : {"element", "normalized"}
        Whether a lookup gives texels as they are, or 8 and 16-bit integers as floats in [0, 1] or [-1, 1].
    channels : {1, 2, 4}
        Number of components of a texel; from 2 on, the last axis of `array`.
    memory : {"array", "linear"}
        Memory that kernels read:

        - ``array``: a copy of the texels as of this call, in the layout that ``tex1D``, ``tex2D`` and ``tex3D``
          read. The call waits for all earlier work of the GPU.
        - ``linear``: the array's own memory, so later changes are visible. One dimension is read by ``tex1Dfetch``,
          which returns zero outside. Two dimensions are read by ``tex2D``; their rows may begin at a pitch, as those
          of ``ck.memory.empty_pitched``.
    layered : bool
        Whether the first axis counts layers, for ``tex1DLayered``, ``tex2DLayered`` and ``texCubemap`` (6 layers a
        cube). On the emulator only.

    Returns
    -------
    cudakit.emulator.resources.texture.TextureObject or cuda.core.texture.TextureObject
        Texture to pass to kernels.

    Raises
    ------
    ArgumentError
        The array cannot be a texture with these options.
    """
    normalized, layered = flag("texture: normalized", normalized), flag("texture: layered", layered)
    for name, value in {"filter": filter, "read": read, "memory": memory}.items():
        if not is_one_of(value, allowed := _TEXTURE_WORDS[name]):
            raise ArgumentError(f"{name} is {' or '.join(allowed)}, got {shortened(value)}")
    surface = array if type(array).__name__ == "SurfaceObject" and hasattr(array, "channels") else None
    if surface is not None:
        if memory == "linear":
            raise ArgumentError("a texture of a surface is of array memory, not linear")
        channels, layered = surface.channels, surface.layered
        array = getattr(surface, "values", surface)  # of the emulator's, its memory
    shape = _texel_shape("texture", array, channels)
    rank = len(shape) - layered
    modes = _modes(address, rank)
    _check_format(array.dtype, filter, read)
    _check_memory(array, shape, memory, layered, filter, normalized)
    if not normalized and not {"wrap", "mirror"}.isdisjoint(modes):
        raise ArgumentError(f"address {shortened(address)} needs normalized=True: coordinates from 0 to 1")
    refuse_masked(array)
    if not isinstance(array, np.ndarray):
        words: dict[str, Any] = {"filter_mode": filter, "read_mode": _READS[read], "normalized_coords": normalized}
        words["address_mode"] = (*modes, *("clamp",) * (3 - rank))  # one row is read as one of two axes
        return _on_gpu(array, shape, channels, memory, layered, words)
    from cudakit.emulator.face import TextureObject, order

    if memory == "array" and surface is None:
        order().finish_all()
    texels = array.view() if memory == "linear" or surface is not None else array.copy()
    texels = texels.reshape(_box_shape(shape, channels, layered))
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


def _texel_shape(noun: str, array: Any, channels: int) -> tuple[int, ...]:
    """Check an array with `channels` components a texel, and return its shape without the axis of channels.

    `noun`, "texture" or "surface", is for the error.
    """
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise _no_array(noun, array)
    if whole(f"{noun}: channels", channels, 1) not in (1, 2, 4):
        raise ArgumentError(f"a texel has 1, 2 or 4 channels, got {shortened(channels)}")
    shape = tuple(array.shape)
    if channels > 1 and (not shape or shape[-1] != channels):
        raise ArgumentError(f"with channels={channels} the last axis has {channels} elements, got shape {shape}")
    shape = shape if channels == 1 else shape[:-1]
    if 0 in shape or not shape:
        raise ArgumentError(f"a {noun} needs texels, got an array of shape {tuple(array.shape)}")
    return shape


def _no_array(noun: str, array: Any) -> ArgumentError:
    return ArgumentError(f"a {noun} is made of a NumPy or a CuPy array, got {type(array).__name__}")


def _require_cupy(noun: str, array: Any) -> None:
    if type(array).__module__.partition(".")[0] != "cupy":
        raise _no_array(noun, array)


def _check_texels(noun: str, dtype: np.dtype) -> None:
    """Check that the hardware supports texels of this dtype."""
    if dtype.kind not in "iuf" or dtype.itemsize > 4 or not dtype.isnative:
        raise ArgumentError(
            f"a {noun}'s texels are 8, 16 or 32-bit integers, float16 or float32, got {dtype}; 64-bit numbers are "
            "read as two channels of 32 bits, x.view('i4')"
        )


def _check_rank(noun: str, array: Any, rank: int, most: int) -> None:
    if not 1 <= rank <= most:
        raise ArgumentError(f"a {noun} cannot have {rank} dimensions (array of shape {tuple(array.shape)})")


def _box_shape(shape: tuple[int, ...], channels: int, layered: bool) -> tuple[int, ...]:
    """Return the shape of texels, `shape`, as the emulator's five axes: layers, depth, height, width and channels.

    Axes that `shape` lacks have extent 1.
    """
    inner = shape[layered:]
    return (shape[0] if layered else 1, *(1,) * (3 - len(inner)), *inner, channels)


def _modes(address: str | tuple[str, ...], rank: int) -> tuple[str, ...]:
    modes = (address,) * rank if isinstance(address, str) else address
    if not isinstance(modes, tuple | list) or not all(is_one_of(mode, _MODES) for mode in modes):
        raise ArgumentError(f"address is one of {', '.join(_MODES)}, or one for each axis, got {shortened(address)}")
    if len(modes) != rank:
        raise ArgumentError(f"address names {len(modes)} axes of a texture that has {', '.join(_AXES[:rank])}")
    return tuple(modes)


def _check_format(dtype: np.dtype, filter: str, read: str) -> None:
    """Check that the hardware supports these texels with this filter and read mode."""
    _check_texels("texture", dtype)
    if read == "normalized" and (dtype.kind == "f" or dtype.itemsize > 2):
        raise ArgumentError(f"read='normalized' takes 8 and 16-bit integers, got {dtype}")
    if filter == "linear" and dtype.kind != "f" and read == "element":
        raise ArgumentError(f"linear filtering gives floats: {dtype} needs read='normalized', or x.astype('f4')")


def _check_memory(
    array: Any, shape: tuple[int, ...], memory: str, layered: bool, filter: str, normalized: bool
) -> None:
    rank, most = len(shape) - layered, 2 if layered or memory == "linear" else 3
    _check_rank(f"{'layered ' * layered}texture of {memory} memory", array, rank, most)
    if memory == "linear":
        if layered:
            raise ArgumentError("a layered texture is of array memory, not linear")
        if not array.flags.c_contiguous and not _is_pitched(array, rank):
            raise ArgumentError("linear memory is contiguous, in C order; copy the array, or take memory='array'")
        if rank == 1 and (filter == "linear" or normalized):
            raise ArgumentError("linear memory of one dimension is read by tex1Dfetch: no filter, texels counted")


def _is_pitched(array: Any, rank: int) -> bool:
    """Return whether an array of two dimensions has contiguous rows, which begin at a pitch."""
    step = array.dtype.itemsize
    for extent, stride in zip(reversed(array.shape[1:]), reversed(array.strides[1:]), strict=True):
        if stride != step:
            return False
        step *= extent
    return rank == 2 and bool(array.strides[0] >= step)


def _on_gpu(
    array: Any, shape: tuple[int, ...], channels: int, memory: str, layered: bool, words: dict[str, Any]
) -> Any:
    """Return cuda.core's texture object of a CuPy array or a surface.

    Parameters
    ----------
    array : cupy.ndarray or surface
        Texels.
    shape : tuple of int
        Shape of the array without channels.
    channels : int
        Number of components of a texel.
    memory : {"array", "linear"}
        Whether to copy the texels, or to read the array's own memory; see `texture`.
    layered : bool
        Whether the first axis counts layers. True is refused.
    words : dict
        Options of cuda.core's ``TextureObjectOptions``.
    """
    is_surface = type(array).__name__ == "SurfaceObject"
    if not is_surface:
        _require_cupy("texture", array)
    if layered:
        raise ArgumentError("layered textures are the emulator's only: cuda.core makes none")
    from cuda.core.texture import ResourceDescriptor, TextureObjectOptions

    options = TextureObjectOptions(**words)
    with devices.on_device(array.device_id if is_surface else array.device.id):
        device = devices.current_device()
        if is_surface:
            resource = ResourceDescriptor.from_opaque_array(array.resource.source)
        elif memory == "array":
            resource = ResourceDescriptor.from_opaque_array(_opaque(device, array, shape, channels))
        elif len(shape) == 1:
            resource = ResourceDescriptor.from_linear(_buffer(array), format=array.dtype, num_channels=channels)
        else:
            sides = {"width": shape[1], "height": shape[0], "pitch_bytes": array.strides[0]}
            buffer = _buffer(array, array.strides[0] * shape[0])
            resource = ResourceDescriptor.from_pitch2d(buffer, format=array.dtype, num_channels=channels, **sides)
        return device.create_texture_object(resource=resource, options=options)


def _opaque(device: Any, array: Any, shape: tuple[int, ...], channels: int) -> Any:
    """Return a copy of a CuPy array in the driver's own layout for textures. Wait for all earlier work of the device.

    `shape` is the array's shape without channels.
    """
    import cupy
    from cuda.core.texture import OpaqueArrayOptions

    result = device.create_opaque_array(OpaqueArrayOptions(shape[::-1], array.dtype, channels))
    # The texels may be any stream's work, and any stream's kernels may fetch them.
    array.device.synchronize()
    current = streams.of_handle(cupy.cuda.get_current_stream().ptr)
    result.copy_from(_buffer(cupy.ascontiguousarray(array)), stream=current)
    current.sync()
    return result


def _buffer(array: Any, size: int | None = None) -> Any:
    """Return the memory of a CuPy array, of `size` bytes or its own, and keep the array alive with it."""
    from cuda.core import Buffer

    return Buffer.from_handle(array.data.ptr, array.nbytes if size is None else size, owner=array)


def surface(array: Any, *, channels: Literal[1, 2, 4] = 1, layered: bool = False) -> SurfaceObject | EmulatedSurface:
    """Return a surface with a copy of `array`, for a kernel's parameter of type ``cudaSurfaceObject_t``.

    Kernels read and write it by ``surf1Dread``, ``surf2Dwrite``, ``surf2DLayeredwrite``, ``surfCubemapread`` and
    related functions; x counts bytes. An access outside stops the kernel. With ``cudaBoundaryModeClamp`` it reads
    the nearest element instead, with ``cudaBoundaryModeZero`` zero. ``ck.texture(surface)`` is a texture of the same
    memory: it reads what earlier launches wrote. ``ck.memory.copy`` copies to and from arrays.

    Keep the surface until the kernels that use it are done. A NumPy array gives a surface for the emulator's
    streams. A CuPy array gives a surface for its GPU.

    Parameters
    ----------
    array : numpy.ndarray or cupy.ndarray, shape ([depth or layers,] [height,] width[, channels])
        Elements of 8, 16 or 32-bit integers, float16 or float32. They are copied as of this call, which waits for
        all earlier work of the GPU.
    channels : {1, 2, 4}
        Number of components of an element; from 2 on, the last axis of `array`.
    layered : bool
        Whether the first axis counts layers, for ``surf1DLayeredread``, ``surf2DLayeredread`` and
        ``surfCubemapread`` (6 layers a cube).

    Returns
    -------
    SurfaceObject
        Surface with ``shape``, ``dtype``, ``channels``, ``layered`` and ``handle``, the number by which kernels
        access it.

    Raises
    ------
    ArgumentError
        The array cannot be a surface with these options.

    Examples
    --------
    >>> image = ck.surface(xp.zeros((480, 640), np.float32))
    >>> blur(stream, ck.cover((480, 640)), image)
    >>> ck.memory.copy(result, image, stream)
    """
    layered = flag("surface: layered", layered)
    shape = _texel_shape("surface", array, channels)
    _check_texels("surface", array.dtype)
    rank = len(shape) - layered
    _check_rank(f"{'layered ' * layered}surface", array, rank, 2 if layered else 3)
    refuse_masked(array)
    if isinstance(array, np.ndarray):
        from cudakit.emulator.face import SurfaceObject as EmulatedSurface
        from cudakit.emulator.face import order

        order().finish_all()
        texels = np.array(array, order="C").reshape(_box_shape(shape, channels, layered))
        return EmulatedSurface(texels, rank, tuple(array.shape), layered)
    _require_cupy("surface", array)
    from cudakit.memory.device_memory import make

    return make(array, shape, channels, layered)


_MOST_DIMENSIONS, _MOST_BOX, _MOST_ELEMENT_STRIDE = 5, 256, 8
_TENSOR_WORDS = {
    "swizzle": ("none", "32B", "64B", "128B"),
    "fill": ("zero", "nan"),
    "interleave": ("none", "16B", "32B"),
    "l2_promotion": ("none", "64B", "128B", "256B"),
}
#: Addresses, strides and rows of a box are multiples of this many bytes.
_UNIT = 16
_MOST_STRIDE = 2**40


def tensor_map(
    array: Any,
    box: Sequence[int],
    *,
    element_strides: Sequence[int] | None = None,
    swizzle: Literal["none", "32B", "64B", "128B"] = "none",
    fill: Literal["zero", "nan"] = "zero",
    interleave: Literal["none", "16B", "32B"] = "none",
    l2_promotion: Literal["none", "64B", "128B", "256B"] = "none",
    precision: Literal["tf32"] | None = None,
) -> Any:
    """Return the tensor map of an array, for a kernel's ``const __grid_constant__ CUtensorMap`` parameter.

    The kernel copies boxes of the array to and from shared memory with ``cp.async.bulk.tensor``. Coordinates in the
    kernel have the fastest dimension first. `box` and `element_strides` are in the array's own order.

    Parameters
    ----------
    array : array
        Array of one to five dimensions, the last contiguous; in device memory, or a NumPy array for the emulator.
        It must live as long as kernels use the map. The emulator's map keeps it alive.
    box : sequence of int
        Extents of a box in elements, 1 to 256 a dimension. A row of the box is a multiple of 16 bytes.
    element_strides : sequence of int, optional
        Steps within the box in elements, 1 to 8 a dimension. The last must be 1. Default: 1.
    swizzle : str
        Number of bytes within which 16-byte chunks of a box are permuted in shared memory, to avoid bank conflicts.
        A row of the box must not be longer. A shorter row takes as many bytes of shared memory.
    fill : str
        Value read outside the array.
    interleave : str
        Layout of the tensor in memory. The emulator supports ``"none"`` only.
    l2_promotion : str
        Least number of bytes that a read loads into the L2 cache.
    precision : "tf32", optional
        Rounding of float32 that is read: to the 11 bits that tensor cores multiply. Default: none.

    Returns
    -------
    cuda.core.TensorMapDescriptor or the emulator's map
        Tensor map to pass to kernels.

    Raises
    ------
    ArgumentError
        No tensor map can describe the array or the box.
    """
    words: dict[str, str] = {"swizzle": swizzle, "fill": fill, "interleave": interleave, "l2_promotion": l2_promotion}
    for name, value in words.items():
        if not is_one_of(value, allowed := _TENSOR_WORDS[name]):
            raise ArgumentError(f"tensor_map: {name} is one of {', '.join(map(repr, allowed))}, got {shortened(value)}")
    if not is_one_of(precision, (None, "tf32")):
        raise ArgumentError(f"tensor_map: precision is 'tf32' or None, got {shortened(precision)}")
    box = _numbers("box", box)
    steps = None if element_strides is None else _numbers("element_strides", element_strides)
    host = as_numpy(array)
    if host is None:
        if isinstance(shape := getattr(array, "shape", None), tuple):
            _check_numbers(len(shape), box, steps or (1,) * len(shape))
        return _on_device(array, box, steps, words, precision)
    if interleave != "none":
        raise ArgumentError(
            f"tensor_map: the emulator has no interleaved tensors, got interleave={shortened(interleave)}"
        )
    steps = steps or (1,) * host.ndim
    _check(host, box, steps, swizzle, fill)
    _check_precision(precision, host.dtype)
    from cudakit.emulator import face

    return face.EmulatedTensorMap(host, box, steps, swizzle, fill == "nan", precision)


def _check_precision(precision: str | None, dtype: Any) -> None:
    if precision is not None and dtype != np.float32:
        raise ArgumentError(f"tensor_map: with precision={precision!r} the array's dtype is float32, got {dtype}")


def _numbers(name: str, value: Any) -> tuple[int, ...]:
    try:
        return tuple([index(number) for number in value])
    except TypeError:
        raise ArgumentError(f"tensor_map: {name} is a number for each dimension, got {shortened(value)}") from None


def _check(array: np.ndarray, box: tuple[int, ...], steps: tuple[int, ...], swizzle: str, fill: str) -> None:
    """Raise if no tensor map can describe a NumPy array and box: the checks that the driver makes on a GPU.

    `steps` are the element strides, `box` the extents of a box.
    """
    from cudakit.emulator import face

    shape, strides, size = array.shape, array.strides, array.dtype.itemsize
    if array.dtype not in face.EmulatedTensorMap.KINDS:
        raise ArgumentError(f"tensor_map: no tensor map has dtype {array.dtype}; its bits may do, as x.view('u1')")
    if not 1 <= array.ndim <= _MOST_DIMENSIONS or not array.size:
        raise ArgumentError(f"tensor_map: an array of 1 to {_MOST_DIMENSIONS} dimensions, none empty, got {shape}")
    _check_numbers(array.ndim, box, steps)
    if steps[-1] != 1:
        raise ArgumentError(f"tensor_map: the last of element_strides is 1, got {steps}")
    address = int(array.__array_interface__["data"][0])
    if address % _UNIT:
        raise ArgumentError(f"tensor_map: the array begins at {address:#x}, which is no multiple of {_UNIT} bytes")
    if strides[-1] != size or any(step % _UNIT or not 0 < step < _MOST_STRIDE for step in strides[:-1]):
        raise ArgumentError(
            f"tensor_map: the last stride is the element's {size} bytes and the others multiples of {_UNIT}, got "
            f"{strides}; pad the rows"
        )
    row = box[-1] * size
    if row % _UNIT:
        raise ArgumentError(f"tensor_map: a row of the box is a multiple of {_UNIT} bytes, got {box[-1]} of {size}")
    most = face.EmulatedTensorMap.SWIZZLES[swizzle]
    if most and row > most:
        raise ArgumentError(f"tensor_map: a row of the box, {row} bytes, is longer than the swizzle {swizzle}")
    if fill == "nan" and array.dtype.kind in "iu":
        raise ArgumentError(f"tensor_map: {array.dtype} has no NaN to fill with")


def _check_numbers(ndim: int, box: tuple[int, ...], steps: tuple[int, ...]) -> None:
    for name, values, most in (("box", box, _MOST_BOX), ("element_strides", steps, _MOST_ELEMENT_STRIDE)):
        if len(values) != ndim or not all(1 <= value <= most for value in values):
            raise ArgumentError(f"tensor_map: {name} is {ndim} numbers of 1 to {most}, got {values}")


def _on_device(
    array: Any, box: tuple[int, ...], steps: tuple[int, ...] | None, words: dict[str, str], precision: str | None
) -> Any:
    """Return cuda.core's descriptor, which the driver makes and checks."""
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
        _check_precision(precision, None if precision is None else view.dtype)
        with devices.on_device(view.device_id):
            return view.as_tensor_map(box, element_strides=steps, **_core_words(**words), **_core_type(precision))
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(f"tensor_map of {type(array).__name__}: {error}") from error


def _core_type(precision: str | None) -> dict[str, Any]:
    """Return cuda.core's type of elements, where it is not the array's. Its enumeration has no public name."""
    if precision is None:
        return {}
    from cuda.core._tensor_map import TensorMapDataType

    return {"data_type": TensorMapDataType.TFLOAT32}


def _core_words(swizzle: str, fill: str, interleave: str, l2_promotion: str) -> dict[str, Any]:
    """Return cuda.core's values for our option words.

    Its enumerations have no public names, but are the options' types.
    """
    from cuda.core import TensorMapDescriptorOptions

    options = TensorMapDescriptorOptions
    return {
        "swizzle": type(options.swizzle)["NONE" if swizzle == "none" else f"SWIZZLE_{swizzle}"],
        "oob_fill": type(options.oob_fill)["NONE" if fill == "zero" else "NAN_REQUEST_ZERO_FMA"],
        "interleave": type(options.interleave)["NONE" if interleave == "none" else f"INTERLEAVE_{interleave}"],
        "l2_promotion": type(options.l2_promotion)["NONE" if l2_promotion == "none" else f"L2_{l2_promotion}"],
    }
