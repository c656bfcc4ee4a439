"""Filters of images by order: the least, middle or greatest pixel of the window around each."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from cudakit.arrays.repeated import repeated
from cudakit.ops.window_plan import (
    AXES,
    NO_WEIGHTS,
    Images,
    Pass,
    check_window,
    far_pass,
    filtered,
    is_near,
    near_pass,
    number_type,
    size_of,
)


@repeated("out")
def median3(
    image: Any,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = the median of the 3 × 3 pixels around image[y, x].

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`; ``valid`` is no mode of it.

    Returns
    -------
    array
        C-contiguous, of the image's shape and dtype: scipy.ndimage.median_filter's, and, of mode nearest, OpenCV's
        medianBlur. NaN where one is in the window.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    return filtered("median3", image, axes, out, stream, (mode, value), _median)


@repeated("out")
def erode(
    image: Any,
    size: Any = 3,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = the least pixel of the window around image[y, x].

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`; ``valid`` is no mode of it: ``reflect`` gives the least of the pixels inside.
    size : int or (rows, columns)
        Of the window, odd.

    Returns
    -------
    array
        C-contiguous, of the image's shape and dtype: scipy.ndimage.grey_erosion's, and OpenCV's erode with a rectangle.
        NaN where one is in the window.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    plan = functools.partial(_extremes, "erode", "minimum", size_of("erode", size))
    return filtered("erode", image, axes, out, stream, (mode, value), plan)


@repeated("out")
def dilate(
    image: Any,
    size: Any = 3,
    *,
    mode: str = "reflect",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = the greatest pixel of the window around image[y, x].

    Parameters
    ----------
    image, size, mode, value, axes, out, stream
        As for `erode`.

    Returns
    -------
    array
        As for `erode`: scipy.ndimage.grey_dilation's, and OpenCV's dilate with a rectangle.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    plan = functools.partial(_extremes, "dilate", "maximum", size_of("dilate", size))
    return filtered("dilate", image, axes, out, stream, (mode, value), plan)


@functools.lru_cache(1024)
def _median(images: Images, dtype: np.dtype, border: tuple[int, float], alignment: int) -> tuple[Pass, ...]:
    check_window("median3", images, (3, 3))
    window = f"cudakit::median<{number_type(dtype, True)}, {images.channels}>"
    return (near_pass(images, (dtype, dtype), window, NO_WEIGHTS, border, alignment, 3),)


@functools.lru_cache(1024)
def _extremes(
    op: str,
    pick: str,
    size: tuple[int, int],
    images: Images,
    dtype: np.dtype,
    border: tuple[int, float],
    alignment: int,
) -> tuple[Pass, ...]:
    check_window(op, images, size)
    number, pick = number_type(dtype, True), f"cudakit::{pick}"
    if is_near(images, size, border[0]):
        window = f"cudakit::picked<{number}, {pick}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
        return (near_pass(images, (dtype, dtype), window, NO_WEIGHTS, border, alignment, size[0]),)
    fold, dtypes = f"cudakit::chosen<{pick}>", (dtype, dtype)
    return (
        far_pass(images, dtypes, number, fold, None, (1, size[1]), border),
        far_pass(images, dtypes, number, fold, None, (size[0], 1), border),
    )
