"""How the window around each pixel is gone through: in registers where it is small, element by element where not."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import Axis, axes_in_order, integers
from cudakit.arrays.output import as_number, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.delivery import delivered
from cudakit.ops.transpose import copy
from cudakit.types.checked import real, text_of, whole
from cudakit.types.cpp import spelling

#: Of <cudakit/image/border.cuh>, by SciPy's names; the last ones are others of the same.
MODES = {
    "constant": 0,
    "nearest": 1,
    "reflect": 2,
    "mirror": 3,
    "wrap": 4,
    "grid-constant": 0,
    "grid-mirror": 2,
    "grid-wrap": 4,
}
#: Rows and columns, where a call does not say.
AXES = (-2, -1)
#: What windows take that need no weights.
NO_WEIGHTS = np.int32(0)
#: Where averages leave out what is outside.
VALID = {"valid": 5}
_CONSTANT = MODES["constant"]
DTYPES = tuple(np.dtype(name) for name in ("uint8", "uint16", "float16", "float32", "float64"))
#: Farthest neighbours, and most channels that alternate, of windows in registers.
_FARTHEST, _CHANNELS = 3, 4
#: Warps of a block; parts of rows that are so many that a thread does several rows, and how many: of bytes more, for
#: there it is arithmetic that takes the time, of which then less is done twice.
_WARPS, _BUSY, _ROWS = 4, 1 << 20, (10, 20)
#: Warps of a block, and rows a thread, of windows that are gone through element by element.
_FAR_WARPS, _FAR_ROWS = 8, 8


class Images(NamedTuple):
    """An array as images: how many, their extents in pixels, and the elements of a pixel that lie side by side."""

    batch: int
    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self)


class Pass(NamedTuple):
    """A launch, whose result has `dtype`, and the weights that it reads from memory."""

    job: Job
    dtype: np.dtype
    weights: np.ndarray | None = None
    is_far: bool = False


@functools.lru_cache(1024)
def images_of(op: str, shape: tuple[int, ...], axes: Axis) -> Images:
    """An array of `shape` as images whose rows and columns go along `axes`.

    Raises
    ------
    ArgumentError
        For axes that are not there, or not neighbours in this order.
    """
    found = axes_in_order(op, "axes", axes, len(shape))
    if len(found) != 2 or found[1] != found[0] + 1:
        raise ArgumentError(
            f"{op}: axes {shortened(axes)} must be two, of rows and then of columns, next to each other"
        )
    rows, columns = found
    return Images(prod(shape[:rows]), shape[rows], shape[columns], prod(shape[columns + 1 :]))


def check_dtype(op: str, dtype: np.dtype) -> None:
    """Raise where images have no such pixels.

    Raises
    ------
    ArgumentError
    """
    if dtype not in DTYPES:
        raise ArgumentError(
            f"{op}: image has dtype {dtype}; images are of {', '.join(str(each) for each in DTYPES)}, cast it first"
        )


def mode_of(op: str, mode: Any, more: dict[str, int] | None = None) -> int:
    """The number of a border mode.

    Raises
    ------
    ArgumentError
    """
    modes = {**MODES, **(more or {})}
    if text_of(f"{op}: mode", mode) not in modes:
        raise ArgumentError(f"{op}: mode {shortened(mode)}; there are {', '.join(modes)}")
    return modes[mode]


def border_of(op: str, mode: Any, value: Any, dtype: np.dtype, more: dict[str, int] | None = None) -> tuple[int, float]:
    """The number of a border mode, and the number outside, which is one of the image's dtype.

    Raises
    ------
    ArgumentError
    """
    return mode_of(op, mode, more), float(as_number(op, "value", value, dtype))


def number_of(where: str, value: Any, least: float | None = None) -> float:
    """A number, more than `least`.

    Raises
    ------
    ArgumentError
    """
    with contextlib.suppress(ArgumentError):
        number = real(where, value)
        if least is None or (number > least and number < float("inf")):
            return number
    raise ArgumentError(f"{where} is a number{'' if least is None else f' above {least:g}'}, got {shortened(value)}")


def pair_of(value: Any) -> tuple[Any, Any]:
    """What is given for rows and columns, as one or as two."""
    return tuple(value) if isinstance(value, tuple | list) and len(value) == 2 else (value, value)


def size_of(op: str, size: Any) -> tuple[int, int]:
    """Rows and columns of a window: odd, so that it has a middle.

    Raises
    ------
    ArgumentError
    """
    found = [whole(f"{op}: size", each, 1) for each in pair_of(size)]
    if not all(each % 2 for each in found):
        raise ArgumentError(f"{op}: size {shortened(size)} must be odd, so that the window has a middle")
    return found[0], found[1]


def check_window(op: str, images: Images, size: tuple[int, int]) -> None:
    """Raise where an image is smaller than the window.

    Raises
    ------
    ArgumentError
    """
    if images.size and (images.height < size[0] or images.width < size[1]):
        raise ArgumentError(
            f"{op}: an image of {images.height} × {images.width} pixels is smaller than the window of "
            f"{size[0]} × {size[1]}; give a smaller window, or axes if these are not rows and columns"
        )


def is_near(images: Images, size: tuple[int, int], mode: int) -> bool:
    """Whether windows fit registers."""
    return max(size) // 2 <= _FARTHEST and images.channels <= _CHANNELS and mode != VALID["valid"]


def number_type(dtype: np.dtype, whole_numbers: bool = False) -> str:
    """The C++ type that pixels are reckoned in."""
    if whole_numbers and dtype.kind == "u":
        return "int"
    return "double" if dtype.itemsize == 8 else "float"


def near_pass(
    images: Images,
    dtypes: tuple[np.dtype, np.dtype],
    window: str,
    weights: Any,
    border: tuple[int, float],
    alignment: int,
    high: int,
    most: int = 8,
) -> Pass:
    """A window in registers.

    Parameters
    ----------
    dtypes : (numpy.dtype, numpy.dtype)
        Of image and result.
    window : str
        One of <cudakit/image/window.cuh>.
    weights : numpy.void
        What it takes.
    border : (int, float)
        Mode and fill.
    alignment : int
        Of both arrays, in bytes.
    high : int
        Rows of a window.
    most : int
        Elements a thread and row.
    """
    width = images.width * images.channels
    wide = max(each.itemsize for each in dtypes)
    each = min(most, 16 // wide)
    aligned = width % each == 0 and alignment >= each * wide
    if not aligned:
        each = min(each, 4)
    rows = max(_ROWS[wide == 1] if images.size >= _BUSY * each else 0, high) // high * high
    across, down = -(-width // (32 * each)), -(-images.height // (_WARPS * rows))
    mode, fill = border
    kernel = Kernel.from_template("window/near")[
        *(spelling(dtype) for dtype in dtypes),
        window,
        images.channels,
        each,
        rows,
        aligned,
        mode == _CONSTANT,
        "unsigned" if images.height * width < 2**32 else "long long",
    ]
    launch = config(images.batch * across * down, (32, _WARPS))
    numbers = images.height, width, mode, fill, weights
    return Pass(Job((), (), kernel, launch, numbers=numbers), dtypes[1])


def far_pass(
    images: Images,
    dtypes: tuple[np.dtype, np.dtype],
    number: str,
    fold: str,
    weights: np.ndarray | None,
    size: tuple[int, int],
    border: tuple[int, float],
    scale: float = 1.0,
) -> Pass:
    """A window of any size, with `weights` or none, that `fold` of ``window.cuh`` goes through."""
    batch, height, width, channels = images
    rows = _FAR_ROWS if size[0] > 1 else 1
    kernel = Kernel.from_template("window/any")[*(spelling(dtype) for dtype in dtypes), number, fold, rows]
    numbers = height, width, channels, *size, *border, scale
    blocks = batch * -(-width * channels // 32) * -(-height // (_FAR_WARPS * rows))
    launch = config(blocks, (32, _FAR_WARPS))
    return Pass(Job((), (), kernel, launch, numbers=numbers), dtypes[1], weights, True)


def filtered(
    op: str,
    image: Any,
    axes: tuple[int, int],
    out: Any,
    stream: Any,
    outside: tuple[Any, Any],
    plan: Callable[[Images, np.dtype, tuple[int, float], int], tuple[Pass, ...]],
    more: dict[str, int] | None = None,
) -> Any:
    """The result of passes over an image, each over what the one before made.

    `plan(images, dtype, border, alignment)` names them; the result has the shape of `image` and the dtype of the last.
    `outside` is a border's mode, of `MODES` or `more`, and value.
    """
    place, (x,) = array_place(op, stream, ("image", image))
    check_dtype(op, x.dtype)
    border = border_of(op, *outside, x.dtype, more)
    images = images_of(op, x.shape, integers(op, "axes", axes))
    x = contiguous(place, x)
    dtype = plan(images, x.dtype, border, 16)[-1].dtype
    to = target(op, place, out, x.shape, dtype, x, contiguous=True)
    passes = plan(images, x.dtype, border, place.alignment(x, to.written))
    if images.size:
        for k, each in enumerate(passes):
            made = to.written if k == len(passes) - 1 else place.empty(x.shape, each.dtype)
            weights = () if not each.is_far else (None if each.weights is None else place.upload(each.weights),)
            each.job.run(place, x, made, *weights)
            x = made
    return delivered(place, to)


def contiguous(place: ArrayPlace, x: Any) -> Any:
    """`x`, or a copy of it that is C-contiguous."""
    return x if x.flags.c_contiguous else copy(x, stream=place.stream)
