"""Images whose pixels become others, each by itself: gray levels of colours, and evenly spread ones."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.layout import axis_of
from cudakit.arrays.output import target
from cudakit.arrays.place import ArrayPlace, array_place, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.delivery import delivered
from cudakit.ops.window_plan import check_dtype, contiguous
from cudakit.types.cpp import spelling

#: Dtypes that ``image.cuh`` has a kernel for.
_PACKED = (np.uint8, np.float32, np.float64)
#: Threads of a block, blocks a multiprocessor, and fewest pixels that a block is for.
_BLOCK, _BLOCKS, _LEAST = 256, 8, 1 << 14


@repeated("out")
def rgb_to_gray(image: Any, axis: int = -1, *, out: Any = None, stream: Any = None) -> Any:
    """Out = 0.299 red + 0.587 green + 0.114 blue.

    Parameters
    ----------
    image : array
        Any shape and strides, with 3 channels along `axis`. uint8, uint16, float16, float32 or float64.
    axis : int
        Of the channels: -1 where they come last, -3 where they come first.
    out : array, optional
        Of the image's shape without `axis`, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        Of the image's dtype. The weights are those of ITU-R BT.601, as Pillow and OpenCV have them; for uint8 and
        uint16 in 16-bit fixed point, to the nearest: Pillow's ``convert("L")`` to the bit, of which OpenCV's is at most
        one level off.

    Raises
    ------
    ArgumentError
        For other than 3 channels, and other dtypes by name.
    """
    op = "rgb_to_gray"
    place, (x,) = array_place(op, stream, ("image", image))
    check_dtype(op, x.dtype)
    channel = axis_of(op, axis, x.ndim)
    if x.shape[channel] != 3:
        raise ArgumentError(f"{op}: image has {x.shape[channel]} channels along axis {axis} of shape {x.shape}, not 3")
    shape = x.shape[:channel] + x.shape[channel + 1 :]
    if channel != x.ndim - 1 or x.dtype not in _PACKED or not x.flags.c_contiguous:
        to = target(op, place, out, shape, x.dtype, x)
        head = (slice(None),) * channel
        _gray(x.dtype)(*(x[(*head, k)] for k in range(3)), out=to.written, stream=place.stream)
        return delivered(place, to)
    to = target(op, place, out, shape, x.dtype, x, contiguous=True)
    pixels = prod(shape)
    if pixels:
        place.launch(
            _kernel("image/gray", spelling(x.dtype)), config(-(-pixels // (4 * _BLOCK)), _BLOCK), x, to.written, pixels
        )
    return delivered(place, to)


@repeated("out")
def equalize(image: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Out = the image with its levels spread, so that about as many pixels have each.

    Parameters
    ----------
    image : array
        (…, height, width), uint8; each image by itself.
    out : array, optional
        Of the image's shape, and uint8 or a wider unsigned integer; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous, uint8: OpenCV's equalizeHist, to the bit. An image of one level stays as it is.

    Raises
    ------
    ArgumentError
        For other dtypes by name, and less than two dimensions.
    """
    op = "equalize"
    place, (x,) = array_place(op, stream, ("image", image))
    if x.dtype != np.uint8:
        raise ArgumentError(f"{op}: image has dtype {x.dtype}; levels are of uint8, cast it first")
    if x.ndim < 2:
        raise ArgumentError(f"{op}: image has shape {x.shape}; give (…, height, width)")
    x = contiguous(place, x)
    to = target(op, place, out, x.shape, x.dtype, x, contiguous=True)
    if x.size:
        _equalize(place, x, to.written)
    return delivered(place, to)


def _equalize(place: ArrayPlace, x: Any, out: Any) -> None:
    images, size = prod(x.shape[:-2]), x.shape[-2] * x.shape[-1]
    parts = max(1, min(_BLOCKS * multiprocessors_of(place.device) // images, size // _LEAST))
    counts = place.empty((images, 256), np.dtype(np.uint32))
    place.clear(counts)
    launch = config(images * parts, _BLOCK)
    place.launch(_kernel("equalize/levels", _BLOCK), launch, x, counts, size, parts)
    place.launch(_kernel("equalize/equalized", _BLOCK), launch, x, counts, out, size, parts)


@functools.cache
def _kernel(name: str, argument: str | int) -> Kernel:
    """A packaged kernel for a template argument, which is made once."""
    return Kernel.from_template(name)[(argument,)]


@functools.cache
def _gray(dtype: np.dtype) -> Elementwise:
    """The same of three arrays."""
    if dtype.kind == "u":
        value = "(19595u * r + 38470u * g + 7471u * b + 32768u) >> 16"
    else:
        number = "double" if dtype.itemsize == 8 else "float"
        weights = (("0.299", "r"), ("0.587", "g"), ("0.114", "b"))
        value = " + ".join(f"{number}({weight}) * cudakit::as<{number}>({of})" for weight, of in weights)
    return elementwise("T r, T g, T b", "T y", f"y = cudakit::as<T>({value})", name="gray")
