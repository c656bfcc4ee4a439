"""Tensor maps: what a kernel's ``CUtensorMap`` parameter is given, for copies of boxes of a tensor (TMA)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Literal

import numpy as np

from cudakit.errors import ArgumentError, shortened
from cudakit.streams import devices
from cudakit.types.arguments import as_numpy
from cudakit.types.checked import is_one_of

_MOST_DIMENSIONS, _MOST_BOX, _MOST_ELEMENT_STRIDE = 5, 256, 8
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
) -> Any:
    """Tensor map of an array, to give to a kernel's ``const __grid_constant__ CUtensorMap`` parameter.

    The kernel copies boxes of the array to and from shared memory with ``cp.async.bulk.tensor``; its coordinates have
    the fastest dimension first, where `box` and `element_strides` are in the array's own order.

    Parameters
    ----------
    array : array
        Of one to five dimensions, the last contiguous; in device memory, or NumPy's for the emulator. It must live as
        long as kernels use the map; the emulator's map keeps it.
    box : sequence of int
        Elements of a box, 1 to 256 a dimension; a row of it is a multiple of 16 bytes.
    element_strides : sequence of int, optional
        Step in elements within the box, 1 to 8 a dimension; default 1. The last must be 1.
    swizzle : str
        Bytes over which 16-byte chunks of a box are exchanged in shared memory against bank conflicts; a row of the
        box may not be longer, and a shorter one takes as many bytes of shared memory all the same.
    fill : str
        What is read outside the array.
    interleave : str
        Layout of the tensor in memory; the emulator has ``"none"`` only.
    l2_promotion : str
        Bytes that a read brings into the L2 cache at least.

    Returns
    -------
    cuda.core.TensorMapDescriptor or the emulator's map

    Raises
    ------
    ArgumentError
        For what no tensor map can describe.
    """
    for name, value, known in (
        ("swizzle", swizzle, ("none", "32B", "64B", "128B")),
        ("fill", fill, ("zero", "nan")),
        ("interleave", interleave, ("none", "16B", "32B")),
        ("l2_promotion", l2_promotion, ("none", "64B", "128B", "256B")),
    ):
        if not is_one_of(value, known):
            raise ArgumentError(f"tensor_map: {name} is one of {', '.join(map(repr, known))}, got {shortened(value)}")
    box = _numbers("box", box)
    steps = None if element_strides is None else _numbers("element_strides", element_strides)
    host = as_numpy(array)
    if host is None:
        if isinstance(shape := getattr(array, "shape", None), tuple):
            _check_numbers(len(shape), box, steps or (1,) * len(shape))
        return _on_device(array, box, steps, swizzle, fill, interleave, l2_promotion)
    if interleave != "none":
        raise ArgumentError(
            f"tensor_map: the emulator has no interleaved tensors, got interleave={shortened(interleave)}"
        )
    steps = steps or (1,) * host.ndim
    _check(host, box, steps, swizzle, fill)
    from cudakit.emulator import face

    return face.EmulatedTensorMap(host, box, steps, swizzle, fill == "nan")


def _numbers(name: str, given: Any) -> tuple[int, ...]:
    try:
        return tuple([index(each) for each in given])
    except TypeError:
        raise ArgumentError(f"tensor_map: {name} is a number for each dimension, got {shortened(given)}") from None


def _check(array: np.ndarray, box: tuple[int, ...], steps: tuple[int, ...], swizzle: str, fill: str) -> None:
    """Check what the driver checks of a GPU's tensor map."""
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
    array: Any,
    box: tuple[int, ...],
    steps: tuple[int, ...] | None,
    swizzle: str,
    fill: str,
    interleave: str,
    l2_promotion: str,
) -> Any:
    """cuda.core's descriptor, which the driver makes and checks."""
    from cuda.core.utils import StridedMemoryView

    try:
        view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
        words = _core_words(swizzle, fill, interleave, l2_promotion)
        with devices.on_device(view.device_id):
            return view.as_tensor_map(box, element_strides=steps, **words)
    except (TypeError, ValueError, BufferError) as error:
        raise ArgumentError(f"tensor_map of {type(array).__name__}: {error}") from error


def _core_words(swizzle: str, fill: str, interleave: str, l2_promotion: str) -> dict[str, Any]:
    """What cuda.core says for our words; its enumerations have no public names, but are the options' types."""
    from cuda.core import TensorMapDescriptorOptions

    options = TensorMapDescriptorOptions
    return {
        "swizzle": type(options.swizzle)["NONE" if swizzle == "none" else f"SWIZZLE_{swizzle}"],
        "oob_fill": type(options.oob_fill)["NONE" if fill == "zero" else "NAN_REQUEST_ZERO_FMA"],
        "interleave": type(options.interleave)["NONE" if interleave == "none" else f"INTERLEAVE_{interleave}"],
        "l2_promotion": type(options.l2_promotion)["NONE" if l2_promotion == "none" else f"L2_{l2_promotion}"],
    }
