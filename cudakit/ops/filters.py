"""Filters of images by weights: sums of the window around each pixel."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.ops.window_plan import (
    AXES,
    NO_WEIGHTS,
    VALID,
    Images,
    Pass,
    check_window,
    far_pass,
    filtered,
    is_near,
    near_pass,
    number_of,
    number_type,
    pair_of,
    size_of,
)

_UINT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)
_DERIVATIVES: dict[np.dtype, np.dtype] = {_UINT8: np.dtype(np.int16), np.dtype(np.uint16): np.dtype(np.int32)}
#: OpenCV's weights of windows of so many pixels, where no sigma is given.
_SMALL = {1: (1.0,), 3: (0.5, 0.25), 5: (0.375, 0.25, 0.0625), 7: (0.28125, 0.21875, 0.109375, 0.03125)}
_ONE = 256  # of weights of bytes, which OpenCV rounds to such parts


@repeated("out")
def gaussian_blur(
    image: Any,
    size: Any = None,
    sigma: Any = None,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = Σ w[j] w[i] image[y + j, x + i], w a Gaussian whose weights add up to 1.

    Parameters
    ----------
    image : array
        Images along `axes`, and any other axes before (a batch, channels) and after them (channels). uint8, uint16,
        float16, float32 or float64; sums are made in float32, or float64.
    size : int or (rows, columns), optional
        Of the window, odd. Left out: 2 int(4 sigma + 0.5) + 1, SciPy's.
    sigma : float or (rows, columns), optional
        Pixels. Left out: 0.15 size + 0.35 as in OpenCV, and its binomial weights up to 7 pixels.
    mode : str
        What stands outside, by SciPy's names, and OpenCV's for it. ``reflect``: b a | a b c d | d c, REFLECT;
        ``mirror``: c b | a b c d | c b, REFLECT_101, its default; ``nearest``: a a | a b c d | d d, REPLICATE;
        ``wrap``: c d | a b c d | a b; ``constant``: `value`; ``valid``: nothing, weights are those of the pixels
        inside.
    value : float
        Of mode constant, converted to the image's dtype.
    axes : (int, int)
        Rows and columns, next to each other: (-3, -2) where channels come last.
    out : array, optional
        Of the image's shape, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous, of the image's shape and dtype. Floats: scipy.ndimage.gaussian_filter's. uint8: OpenCV's
        GaussianBlur, to the bit: weights are rounded to 1/256, the sum to the nearest, a half upward. uint16: sums of
        float32, rounded alike.

    Raises
    ------
    ArgumentError
        For a sigma that is not above 0, an even size, an image smaller than the window, other dtypes by name.

    Notes
    -----
    Up to 7 × 7, and 4 channels that alternate, one kernel reads the image once; larger windows take two.
    """
    op = "gaussian_blur"
    if size is None and sigma is None:
        raise ArgumentError(f"{op}: give size, sigma or both")
    sigmas = (None, None) if sigma is None else tuple(number_of(f"{op}: sigma", each, 0) for each in pair_of(sigma))
    if size is None:
        sizes = tuple(2 * int(4 * each + 0.5) + 1 for each in sigmas if each is not None)
    else:
        sizes = size_of(op, size)

    def plan(images: Images, dtype: np.dtype, border: tuple[int, float], alignment: int) -> tuple[Pass, ...]:
        weights = tuple(_gaussian(n, s, dtype == _UINT8) for n, s in zip(sizes, sigmas, strict=True))
        return _smoothing(op, images, dtype, weights, 1.0 / _ONE**2 if dtype == _UINT8 else 1.0, border, alignment)

    return filtered(op, image, axes, out, stream, (mode, value), plan, VALID)


@repeated("out")
def box_blur(
    image: Any,
    size: Any,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = the mean of the window around image[y, x].

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`; mode ``valid`` is the mean of the window's part inside.
    size : int or (rows, columns)
        Of the window, odd.

    Returns
    -------
    array
        C-contiguous, of the image's shape and dtype: scipy.ndimage.uniform_filter's for floats, OpenCV's blur for uint8
        and uint16, to the nearest.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    op = "box_blur"
    sizes = size_of(op, size)

    def plan(images: Images, dtype: np.dtype, border: tuple[int, float], alignment: int) -> tuple[Pass, ...]:
        weights = tuple((1.0,) * (n // 2 + 1) for n in sizes)
        return _smoothing(op, images, dtype, weights, 1.0 / (sizes[0] * sizes[1]), border, alignment)

    return filtered(op, image, axes, out, stream, (mode, value), plan, VALID)


@repeated("out")
def sobel(
    image: Any,
    axis: int | None = None,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The derivative of 3 × 3 weights (1, 2, 1) × (−1, 0, 1) along `axis`, or the length of the gradient.

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`; ``valid`` is no mode of it.
    axis : int, optional
        0: down the rows, 1: to the right, of the two `axes`. Left out: √(down² + right²).

    Returns
    -------
    array
        C-contiguous. The derivative is OpenCV's Sobel, and scipy.ndimage.sobel's: int16 of uint8, int32 of uint16, else
        of the image's dtype. The length is of the image's dtype, of integers to the nearest and no more than they hold.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    op = "sobel"
    if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int | np.integer) or axis not in (0, 1)):
        raise ArgumentError(f"{op}: axis is 0 (down), 1 (to the right) or None, of the two axes, got {shortened(axis)}")
    return filtered(op, image, axes, out, stream, (mode, value), functools.partial(_sobel, axis))


@repeated("out")
def convolve2d(
    image: Any,
    kernel: Any,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = Σ kernel[j, i] image[y − j + rows // 2, x − i + columns // 2].

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`; ``valid`` is no mode of it.
    kernel : array_like
        (rows, columns), both odd, numbers in host memory.

    Returns
    -------
    array
        C-contiguous, of the image's shape and dtype: scipy.ndimage.convolve's for floats, and OpenCV's filter2D with
        the kernel turned by 180°; integers to the nearest, a half upward, within their range.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`, and for a kernel that is no matrix of numbers.
    """
    op = "convolve2d"
    try:
        given = np.asarray(kernel)
        if given.dtype.kind not in "biuf" and given.dtype.name != "bfloat16":
            raise TypeError(f"it is of {given.dtype}")
        weights = given.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{op}: kernel is no matrix of numbers in host memory: {error}") from None
    if weights.ndim != 2:
        raise ArgumentError(f"{op}: kernel has {weights.ndim} dimensions; give (rows, columns)")
    size = size_of(op, weights.shape)
    turned = tuple(weights[::-1, ::-1].ravel().tolist())
    return filtered(op, image, axes, out, stream, (mode, value), functools.partial(_weighed, turned, size))


@functools.lru_cache(256)
def _gaussian(size: int, sigma: float | None, in_bytes: bool) -> tuple[float, ...]:
    """Weights from the middle outward; `in_bytes`: as whole numbers that add up to `_ONE`, as OpenCV rounds them."""
    if sigma is None and size in _SMALL:
        weights = _SMALL[size]
    else:
        width = 0.15 * size + 0.35 if sigma is None else sigma
        half = np.exp(-0.5 * (np.arange(size // 2 + 1) / width) ** 2)
        weights = tuple((half / (2 * half.sum() - half[0])).tolist())
    if not in_bytes:
        return weights
    rounded, error = [], 0.0
    for weight in weights[:0:-1]:  # from outside; what one is rounded by, the next makes good
        wanted = _ONE * weight + error
        rounded.append(round(wanted))
        error = wanted - rounded[-1]
    return tuple(float(each) for each in (_ONE - 2 * sum(rounded), *rounded[::-1]))


@functools.lru_cache(1024)
def _smoothing(
    op: str,
    images: Images,
    dtype: np.dtype,
    weights: tuple[tuple[float, ...], ...],
    scale: float,
    border: tuple[int, float],
    alignment: int,
) -> tuple[Pass, ...]:
    """Weights along rows and columns, symmetric, from the middle outward."""
    check_window(op, images, (2 * len(weights[0]) - 1, 2 * len(weights[1]) - 1))
    # Weights of bytes that were rounded to nothing are no part of the window, nor is what 8 bits do not hold.
    weights = tuple(each[: 1 + max(k for k, weight in enumerate(each) if weight)] for each in weights)
    size = 2 * len(weights[0]) - 1, 2 * len(weights[1]) - 1
    number = number_type(dtype)
    if is_near(images, size, border[0]):
        down, right = weights
        kind: Any = np.float64 if number == "double" else np.float32
        words = np.zeros((4, 12), np.uint8)
        if dtype == _UINT8:
            number, kind, scale = "unsigned", np.uint32, round(scale * 2**24)
            for k in range(4 if size[1] > 1 else 0):
                words[k, k : k + size[1]] = (*right[:0:-1], *right)
        fields = [("y", kind, (len(down),)), ("x", kind, (len(right),)), ("bytes", np.uint32, (12,))]
        scaled = tuple(scale * each for each in down)
        record = np.array((scaled, right, words.ravel().view(np.uint32)), fields)[()]
        window = f"cudakit::smooth<{number}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
        return (near_pass(images, (dtype, dtype), window, record, border, alignment, size[0]),)
    between = np.dtype(np.float64) if number == "double" else _FLOAT32
    columns, rows = (np.array([*each[:0:-1], *each], between) for each in (weights[1], weights[0]))
    return (
        far_pass(images, (dtype, between), number, "cudakit::summed", columns, (1, size[1]), border),
        far_pass(images, (between, dtype), number, "cudakit::summed", rows, (size[0], 1), border, scale),
    )


@functools.lru_cache(1024)
def _sobel(
    axis: int | None, images: Images, dtype: np.dtype, border: tuple[int, float], alignment: int
) -> tuple[Pass, ...]:
    check_window("sobel", images, (3, 3))
    result = dtype if axis is None else _DERIVATIVES.get(dtype, dtype)
    along = 2 if axis is None else axis
    window = f"cudakit::gradient<{number_type(dtype, True)}, {along}, {images.channels}>"
    return (near_pass(images, (dtype, result), window, NO_WEIGHTS, border, alignment, 3),)


@functools.lru_cache(1024)
def _weighed(
    weights: tuple[float, ...],
    size: tuple[int, int],
    images: Images,
    dtype: np.dtype,
    border: tuple[int, float],
    alignment: int,
) -> tuple[Pass, ...]:
    check_window("convolve2d", images, size)
    number = number_type(dtype)
    kind = np.dtype(np.float64) if number == "double" else _FLOAT32
    if not is_near(images, size, border[0]):
        given = np.array(weights, kind)
        return (far_pass(images, (dtype, dtype), number, "cudakit::summed", given, size, border),)
    record = np.array((weights,), [("all", kind, (len(weights),))])[()]
    window = f"cudakit::weighed<{number}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
    return (near_pass(images, (dtype, dtype), window, record, border, alignment, size[0], 4),)
