"""Filters of images: weighted sums over the window around each pixel, and its least, middle or greatest pixel.

Small windows are computed in registers, larger windows element by element.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import Axis, axes_in_order, integers
from cudakit.arrays.output import as_number, target
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.arrays.tunable import Choice, planned
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import config
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import copy, delivered
from cudakit.types.checked import real, text_of, whole
from cudakit.types.cpp import is_real, spelling

#: Numbers of <cudakit/image/border.cuh> by SciPy's names. The last three are aliases.
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
#: The argument of windows without weights.
NO_WEIGHTS = np.int32(0)
#: The mode in which averages ignore pixels outside the image.
VALID = {"valid": 5}
_CONSTANT = MODES["constant"]
DTYPES = tuple(np.dtype(name) for name in ("uint8", "uint16", "float16", "float32", "float64"))
#: Farthest neighbours, and most channels that alternate, of windows in registers.
_FARTHEST, _CHANNELS = 3, 4
#: Warps of a block; parts of rows that are so many that a thread does several rows, and how many: of bytes more, for
#: there it is arithmetic that takes the time, of which then less is done twice.
_WARPS, _BUSY, _ROWS = 4, 1 << 20, (10, 20)
#: The same of bytes whose rows begin anywhere.
_UNALIGNED_ROWS = 12
#: Of blurs of bytes up to how many rows more warps pay for fewer registers, on an H200: 7 rows spill.
_FEW_ROWS, _FEW_REGISTERS = 5, CompileOptions(max_registers=80)
#: Warps of a block, and rows a thread, of windows that are gone through element by element; elements of an image from
#: which a thread does several rows.
_FAR_WARPS, _FAR_ROWS, _FAR_BUSY = 8, 8, 1 << 17
#: Of a thread the turns through the window's rows, and elements; warps of a block.
_NEAR = Choice(
    "filter in registers", {"turns": (1, 2, 3, 4, 6, 10, 20), "warps": (1, 2, 4, 8), "elements": (1, 2, 4, 8, 16)}
)
_FAR = Choice("filter", {"rows": (1, 2, 4, 8, 16), "warps": (2, 4, 8, 16)})


#: Number of a border mode, and the number outside.
Border: TypeAlias = tuple[int, float]


class Images(NamedTuple):
    """An array as images: number of images, their extents in pixels, and number of contiguous elements of a pixel."""

    batch: int
    height: int
    width: int
    channels: int

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self)


class Pixels(NamedTuple):
    """Images of a dtype on a device, a border's mode and value, and the alignment of addresses of image and result."""

    images: Images
    dtype: np.dtype
    border: Border
    alignment: int
    device: int | str


class Pass(NamedTuple):
    """A launch, the dtype of its result, and the weights that it reads from memory."""

    job: Job
    dtype: np.dtype
    weights: np.ndarray | None = None
    is_far: bool = False


#: Names the passes over images.
Planner: TypeAlias = Callable[[Pixels], tuple[Pass, ...]]


@functools.lru_cache(1024)
def images_of(op: str, shape: tuple[int, ...], axes: Axis) -> Images:
    """Return an array of `shape` as images whose rows and columns go along `axes`.

    Raises
    ------
    ArgumentError
        An axis is out of range, or the axes are not neighbours in this order.
    """
    positions = axes_in_order(op, "axes", axes, len(shape))
    if len(positions) != 2 or positions[1] != positions[0] + 1:
        raise ArgumentError(
            f"{op}: axes {shortened(axes)} must be two, of rows and then of columns, next to each other"
        )
    rows, columns = positions
    return Images(prod(shape[:rows]), shape[rows], shape[columns], prod(shape[columns + 1 :]))


def check_dtype(op: str, dtype: np.dtype) -> None:
    """Check that images can have pixels of `dtype`.

    Raises
    ------
    ArgumentError
        The dtype is not supported.
    """
    if dtype not in DTYPES:
        raise ArgumentError(
            f"{op}: image has dtype {dtype}; images are of {', '.join(map(str, DTYPES))}, cast it first"
        )


def border_of(op: str, mode: Any, value: Any, dtype: np.dtype, valid: bool = False) -> Border:
    """Return a border mode as its number, and the value outside the image as a float. `valid`: mode ``valid`` is
    allowed.

    Raises
    ------
    ArgumentError
        The mode is unknown, or the value is no number of the image's dtype.
    """
    modes = {**MODES, **VALID} if valid else MODES
    if text_of(f"{op}: mode", mode) not in modes:
        raise ArgumentError(f"{op}: mode {shortened(mode)}; expected one of {', '.join(modes)}")
    return modes[mode], float(as_number(op, "value", value, dtype))


def _above_zero(where: str, value: Any) -> float:
    """Return `value` as a float, after checking that it is finite and greater than 0. `where` begins the message.

    Raises
    ------
    ArgumentError
    """
    with contextlib.suppress(ArgumentError):
        if 0 < (number := real(where, value)) < float("inf"):
            return number
    raise ArgumentError(f"{where} is a number above 0, got {shortened(value)}")


def pair_of(value: Any) -> tuple[Any, Any]:
    """Return a value for rows and a value for columns from one value or two."""
    return tuple(value) if isinstance(value, tuple | list) and len(value) == 2 else (value, value)


def size_of(op: str, size: Any) -> tuple[int, int]:
    """Return rows and columns of a window. Both are odd, so that the window has a middle.

    Raises
    ------
    ArgumentError
        The size is not one or two odd numbers.
    """
    extents = [whole(f"{op}: size", extent, 1) for extent in pair_of(size)]
    if not all(extent % 2 for extent in extents):
        raise ArgumentError(f"{op}: size {shortened(size)} must be odd, so that the window has a middle")
    return extents[0], extents[1]


def check_window(op: str, images: Images, size: tuple[int, int]) -> None:
    """Check that an image is at least as large as the window.

    Raises
    ------
    ArgumentError
        The image is smaller than the window.
    """
    if images.size and (images.height < size[0] or images.width < size[1]):
        raise ArgumentError(
            f"{op}: an image of {images.height} × {images.width} pixels is smaller than the window of "
            f"{size[0]} × {size[1]}; give a smaller window, or axes if these are not rows and columns"
        )


def is_near(images: Images, size: tuple[int, int], mode: int) -> bool:
    """Return whether a window of `size` is small enough for the kernel in registers (`near_pass`).

    It is not for too many channels, or for the border mode ``valid``.
    """
    return max(size) // 2 <= _FARTHEST and images.channels <= _CHANNELS and mode != VALID["valid"]


def number_type(dtype: np.dtype, whole_numbers: bool = False) -> str:
    """Return the C++ type in which pixels of `dtype` are computed: double, float, or int.

    It is int for unsigned integers if `whole_numbers` says that only whole numbers are computed.
    """
    if whole_numbers and dtype.kind == "u":
        return "int"
    return "double" if dtype.itemsize == 8 else "float"


def near_pass(
    pixels: Pixels,
    result: np.dtype,
    window: str,
    weights: Any,
    high: int,
    most: int = 8,
    turns: int = 0,
    options: CompileOptions | None = None,
) -> Pass:
    """Return the launch of a window that fits in registers.

    Parameters
    ----------
    result : numpy.dtype
        Dtype of the result.
    window : str
        Name of a window of <cudakit/image/window.cuh>.
    weights : numpy.void
        Weights of the window.
    high : int
        Number of rows of the window.
    most : int
        Greatest number of elements of one thread in a row.
    turns : int
        Rows of one thread of large images, in rows of the window, or 0 for the dtype's number of rows.
    options : CompileOptions, optional
        Options where rows begin at multiples of a thread's elements.
    """
    images, (mode, fill) = pixels.images, pixels.border
    width = images.width * images.channels
    wide = max(pixels.dtype.itemsize, result.itemsize)
    thread_elements = min(most, 16 // wide)
    turns = (turns or max(1, _ROWS[wide == 1] // high)) if images.size >= _BUSY * thread_elements else 1
    form = f"{window.partition('<')[0].removeprefix('cudakit::')} of {high} rows, {pixels.dtype}, {images.channels}"
    if wide == 1 and (width % thread_elements or pixels.alignment < thread_elements):
        form, thread_elements = f"{form}, unaligned", min(thread_elements, 8)
        turns = max(1, _UNALIGNED_ROWS // high) if turns > 1 else 1
    turns, warps, thread_elements = _NEAR.point(
        form,
        images.size,
        pixels.device,
        (turns, _WARPS, thread_elements),
        fits=lambda elements: elements * wide <= 16,
    )
    aligned = width % thread_elements == 0 and pixels.alignment >= thread_elements * wide
    if not aligned:
        thread_elements = min(thread_elements, 8 if wide == 1 else 4)
    strip = (32 if aligned or wide > 1 or thread_elements % 4 else 31) * thread_elements
    rows = turns * high
    across, down = -(-width // strip), -(-images.height // (warps * rows))
    types = spelling(pixels.dtype), spelling(result), window
    index = "unsigned" if images.height * width < 2**32 else "long long"
    kernel = Kernel.from_template("window/near", options=options if aligned else None)[
        *types, images.channels, thread_elements, rows, aligned, mode == _CONSTANT, index
    ]
    launch = config(images.batch * across * down, (32, warps))
    numbers = images.height, width, mode, fill, weights
    return Pass(Job((), (), kernel, launch, numbers=numbers), result)


def far_pass(
    pixels: Pixels, result: np.dtype, fold: str, weights: np.ndarray | None, size: tuple[int, int], scale: float = 1.0
) -> Pass:
    """Return the launch of a window of any `size` (rows, columns).

    `result` is the dtype of the result. `weights` are the window's weights or None. `fold`, a name in ``window.cuh``,
    combines the elements of the window. The kernel also takes `scale`.
    """
    batch, height, width, channels = pixels.images
    number = number_type(pixels.dtype, fold.startswith("cudakit::chosen"))
    rows, warps = _FAR.point(
        f"{fold.removeprefix('cudakit::')} of {size[0]} × {size[1]}, {pixels.dtype}",
        pixels.images.size,
        pixels.device,
        (_FAR_ROWS if size[0] > 1 and pixels.images.size >= _FAR_BUSY else 1, _FAR_WARPS),
    )
    kernel = Kernel.from_template("window/any")[spelling(pixels.dtype), spelling(result), number, fold, rows]
    numbers = height, width, channels, *size, *pixels.border, scale
    blocks = batch * -(-width * channels // 32) * -(-height // (warps * rows))
    launch = config(blocks, (32, warps))
    return Pass(Job((), (), kernel, launch, numbers=numbers), result, weights, True)


def filtered(
    op: str, image: Any, axes: Axis, out: Any, stream: Any, outside: tuple[Any, Any], plan: Planner, valid: bool = False
) -> Any:
    """Run passes over an image, each over the result of the pass before, and return the last result.

    `plan(pixels)` returns the passes. The result has the shape of `image` and the dtype of the last pass. `outside`
    is a border's mode and value. `valid` says whether the mode may be ``valid``.
    """
    place, (x,) = array_place(op, stream, ("image", image))
    check_dtype(op, x.dtype)
    border = border_of(op, *outside, x.dtype, valid)
    pixels = Pixels(images_of(op, x.shape, integers(op, "axes", axes)), x.dtype, border, 16, place.device)
    x = contiguous(place, x)
    to = target(op, place, out, x.shape, plan(pixels)[-1].dtype, x, contiguous=True)
    passes = plan(pixels._replace(alignment=place.alignment(x, to.written)))
    if x.size:
        for k, stage in enumerate(passes):
            result = to.written if k == len(passes) - 1 else place.empty(x.shape, stage.dtype)
            weights = () if not stage.is_far else (None if stage.weights is None else place.upload(stage.weights),)
            stage.job.run(place, x, result, *weights)
            x = result
    return delivered(place, to)


def contiguous(place: ArrayPlace, x: Any) -> Any:
    """Return `x` if it is C-contiguous, else a C-contiguous copy."""
    return x if x.flags.c_contiguous else copy(x, stream=place.stream)


_UINT8, _FLOAT32 = np.dtype(np.uint8), np.dtype(np.float32)
_DERIVATIVES: dict[np.dtype, np.dtype] = {_UINT8: np.dtype(np.int16), np.dtype(np.uint16): np.dtype(np.int32)}
#: OpenCV's weights by window size, for calls without sigma.
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
    """out[y, x] = Σ w[j] w[i] image[y + j, x + i], where w is a Gaussian whose weights add up to 1.

    Parameters
    ----------
    image : array
        Images along `axes`, with any other axes before (a batch, channels) and after them (channels): uint8,
        uint16, float16, float32 or float64. Float64 is summed in float64, other dtypes in float32.
    size : int or (rows, columns), optional
        Rows and columns of the window, both odd. Default: 2 int(4 sigma + 0.5) + 1, as in SciPy.
    sigma : float or (rows, columns), optional
        Standard deviation in pixels. Default: 0.15 size + 0.35, as in OpenCV; for up to 7 pixels OpenCV's binomial
        weights.
    mode : str
        Border mode, by SciPy's name (OpenCV's name in brackets):

        - ``reflect``: b a | a b c d | d c (REFLECT).
        - ``mirror``: c b | a b c d | c b (REFLECT_101, OpenCV's default).
        - ``nearest``: a a | a b c d | d d (REPLICATE).
        - ``wrap``: c d | a b c d | a b.
        - ``constant``: `value`.
        - ``valid``: no border; the weights of the pixels inside are normalized.
    value : float
        Value outside the image for mode constant, converted to the image's dtype.
    axes : (int, int)
        Axes of rows and columns, which must be adjacent: (-3, -2) if channels are the last axis.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous array of the image's shape and dtype:

        - Floats: as scipy.ndimage.gaussian_filter.
        - uint8: as OpenCV's GaussianBlur, bit for bit. Weights are rounded to 1/256, sums to the nearest, a half
          upward.
        - uint16: sums of float32, rounded to the nearest, a half upward.

    Raises
    ------
    ArgumentError
        Sigma is not above 0, the size is even, the image is smaller than the window, or the dtype is not supported.

    Notes
    -----
    For windows up to 7 × 7, and up to 4 interleaved channels, one kernel reads the image once. Larger windows take two
    kernels.
    """
    op = "gaussian_blur"
    if size is None and sigma is None:
        raise ArgumentError(f"{op}: give size, sigma or both")
    sigmas = (None, None) if sigma is None else tuple(_above_zero(f"{op}: sigma", number) for number in pair_of(sigma))
    if size is None:
        sizes = tuple(2 * int(4 * sigma + 0.5) + 1 for sigma in sigmas if sigma is not None)
    else:
        sizes = size_of(op, size)

    def plan(pixels: Pixels) -> tuple[Pass, ...]:
        in_bytes = pixels.dtype == _UINT8
        weights = tuple(_gaussian(n, s, in_bytes) for n, s in zip(sizes, sigmas, strict=True))
        return _smoothing(op, weights, 1.0 / _ONE**2 if in_bytes else 1.0, pixels)

    return filtered(op, image, axes, out, stream, (mode, value), plan, valid=True)


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
        As for `gaussian_blur`. Mode ``valid`` gives the mean of the pixels of the window that are inside the image.
    size : int or (rows, columns)
        Rows and columns of the window, both odd.

    Returns
    -------
    array
        C-contiguous array of the image's shape and dtype. Floats: as scipy.ndimage.uniform_filter. uint8 and
        uint16: as OpenCV's blur, rounded to the nearest.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    op = "box_blur"
    sizes = size_of(op, size)
    weights = tuple((1.0,) * (n // 2 + 1) for n in sizes)
    plan = functools.partial(_smoothing, op, weights, 1.0 / (sizes[0] * sizes[1]))
    return filtered(op, image, axes, out, stream, (mode, value), plan, valid=True)


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
    """Return the derivative along `axis` by weights (1, 2, 1) × (−1, 0, 1), or the length of the gradient.

    Parameters
    ----------
    image, mode, value, axes, out, stream
        As for `gaussian_blur`, without mode ``valid``.
    axis : int, optional
        Direction of the derivative: 0 down the rows, 1 to the right. Default: the length of the gradient, √(down² +
        right²).

    Returns
    -------
    array
        C-contiguous array of the image's shape. The derivative is OpenCV's Sobel and scipy.ndimage.sobel's: int16
        for uint8, int32 for uint16, else the image's dtype. The length has the image's dtype. For integers it is
        rounded to the nearest and clamped to their range.

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
        As for `gaussian_blur`, without mode ``valid``.
    kernel : array_like, shape (rows, columns)
        Weights in host memory. Both extents are odd.

    Returns
    -------
    array
        C-contiguous array of the image's shape and dtype. Floats: as scipy.ndimage.convolve, and as OpenCV's
        filter2D with the kernel turned by 180°. Integers are rounded to the nearest, a half upward, and clamped to
        their range.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`, or the kernel is no matrix of numbers.
    """
    op = "convolve2d"
    try:
        matrix = np.asarray(kernel)
        if not is_real(matrix.dtype):
            raise TypeError(f"it is of {matrix.dtype}")
        weights = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"{op}: kernel is no matrix of numbers in host memory: {error}") from None
    if weights.ndim != 2:
        raise ArgumentError(f"{op}: kernel has {weights.ndim} dimensions; give (rows, columns)")
    size = size_of(op, weights.shape)
    flipped = tuple(weights[::-1, ::-1].ravel().tolist())
    return filtered(op, image, axes, out, stream, (mode, value), functools.partial(_weighed, flipped, size))


@functools.lru_cache(256)
def _gaussian(size: int, sigma: float | None, in_bytes: bool) -> tuple[float, ...]:
    """Return the weights of a Gaussian window of `size` elements, from the middle outward: size // 2 + 1 numbers.

    `sigma` None: OpenCV's default for the size. `in_bytes`: the weights are whole numbers with the sum `_ONE` over the
    window, rounded as by OpenCV.
    """
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
        exact = _ONE * weight + error
        rounded.append(round(exact))
        error = exact - rounded[-1]
    return tuple(float(number) for number in (_ONE - 2 * sum(rounded), *rounded[::-1]))


@planned(1024)
def _smoothing(op: str, weights: tuple[tuple[float, ...], ...], scale: float, pixels: Pixels) -> tuple[Pass, ...]:
    """Return the passes that blur an image by symmetric weights down the rows and along the columns.

    `weights` has the weights of both directions, each from the middle of the window outward.
    """
    images, dtype = pixels.images, pixels.dtype
    check_window(op, images, (2 * len(weights[0]) - 1, 2 * len(weights[1]) - 1))
    # Weights of bytes that were rounded to nothing are no part of the window, nor is what 8 bits do not hold.
    weights = tuple(half[: 1 + max(k for k, weight in enumerate(half) if weight)] for half in weights)
    size = 2 * len(weights[0]) - 1, 2 * len(weights[1]) - 1
    number = number_type(dtype)
    if is_near(images, size, pixels.border[0]):
        down, right = weights
        if dtype == _UINT8 and (halves := _in_halves(down, right)):
            weights_record, *flags = halves
            flags_text = ", ".join(str(flag).lower() for flag in flags)
            window = f"cudakit::halves<{size[0] // 2}, {size[1] // 2}, {images.channels}, {flags_text}>"
            options = _FEW_REGISTERS if size[0] <= _FEW_ROWS and images.channels == 1 else None
            return (near_pass(pixels, dtype, window, weights_record, size[0], 16, 2, options),)
        word_dtype: Any = np.float64 if number == "double" else np.float32
        if dtype == _UINT8:
            number, word_dtype, scale = "unsigned", np.uint32, round(scale * 2**24)
        fields = [("y", word_dtype, (len(down),)), ("x", word_dtype, (len(right),)), ("bytes", np.uint32, (12,))]
        scaled = tuple(scale * weight for weight in down)
        record = np.array((scaled, right, _in_words(right if dtype == _UINT8 else ())), fields)[()]
        window = f"cudakit::smooth<{number}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
        return (near_pass(pixels, dtype, window, record, size[0]),)
    between = np.dtype(np.float64) if number == "double" else _FLOAT32
    columns, rows = (np.array([*half[:0:-1], *half], between) for half in (weights[1], weights[0]))
    # Outside there are sums, too.
    mode, fill = pixels.border
    sums = pixels._replace(dtype=between, border=(mode, fill * float(columns.sum())))
    if all(set(half) == {1.0} for half in weights):
        return (
            far_pass(pixels, between, "cudakit::added", None, (1, size[1])),
            far_pass(sums, dtype, "cudakit::added", None, (size[0], 1), scale),
        )
    return (
        far_pass(pixels, between, "cudakit::summed", columns, (1, size[1])),
        far_pass(sums, dtype, "cudakit::summed", rows, (size[0], 1), scale),
    )


def _in_words(right: tuple[float, ...]) -> np.ndarray:
    """Return symmetric weights in bytes, four to a word: three words each for windows that begin at byte 0, 1, 2, 3."""
    words = np.zeros((4, 12), np.uint8)
    for k in range(4 if len(right) > 1 else 0):
        words[k, k : k + 2 * len(right) - 1] = (*right[:0:-1], *right)
    return words.ravel().view(np.uint32)


def _in_halves(down: tuple[float, ...], right: tuple[float, ...]) -> tuple[Any, bool, bool] | None:
    """Return weights of the window ``halves`` for bytes, or None where its sums need more than 16 bits.

    `down` and `right` are weights from the middle of the window outward, in whole numbers. The blur divides by the
    product of their sums. The truth values say whether all weights are 1, and whether the outermost down are.
    """
    y, x = (np.array(half).astype(int) // np.gcd.reduce(np.array(half).astype(int)) for half in (down, right))
    total = int((2 * y.sum() - y[0]) * (2 * x.sum() - x[0]))
    is_box = bool((y == 1).all() and (x == 1).all())
    if total > 257 or not (is_box or 256 % total == 0):
        return None
    y = y * (1 if is_box else 256 // total)
    fields = [
        ("y", np.uint32, (len(y),)),
        ("x", np.uint32, (len(x),)),
        ("scale", np.uint32),
        ("bytes", np.uint32, (12,)),
    ]
    return np.array((y, x, round(2**24 / total), _in_words(tuple(x))), fields)[()], is_box, bool(y[-1] == 1)


@planned(1024)
def _sobel(axis: int | None, pixels: Pixels) -> tuple[Pass, ...]:
    check_window("sobel", pixels.images, (3, 3))
    dtype = pixels.dtype
    result, along = (dtype, 2) if axis is None else (_DERIVATIVES.get(dtype, dtype), axis)
    channels = pixels.images.channels
    if dtype == result == _UINT8:
        return (near_pass(pixels, result, f"cudakit::gradient_halves<{channels}>", NO_WEIGHTS, 3, 16, 2),)
    window = f"cudakit::gradient<{number_type(dtype, True)}, {along}, {channels}>"
    return (near_pass(pixels, result, window, NO_WEIGHTS, 3),)


@planned(1024)
def _weighed(weights: tuple[float, ...], size: tuple[int, int], pixels: Pixels) -> tuple[Pass, ...]:
    images, dtype = pixels.images, pixels.dtype
    check_window("convolve2d", images, size)
    number = number_type(dtype)
    weight_dtype = np.dtype(np.float64) if number == "double" else _FLOAT32
    if not is_near(images, size, pixels.border[0]):
        window_weights = np.array(weights, weight_dtype)
        return (far_pass(pixels, dtype, "cudakit::summed", window_weights, size),)
    record = np.array((weights,), [("all", weight_dtype, (len(weights),))])[()]
    window = f"cudakit::weighed<{number}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
    return (near_pass(pixels, dtype, window, record, size[0], 4),)


# --- filters by order -------------------------------------------------------------------------------------------------


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
        As for `gaussian_blur`, without mode ``valid``.

    Returns
    -------
    array
        C-contiguous array of the image's shape and dtype, as scipy.ndimage.median_filter. With mode nearest also as
        OpenCV's medianBlur. The result is NaN if the window holds a NaN.

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
        As for `gaussian_blur`, without mode ``valid``. Mode ``reflect`` gives the least of the pixels inside the
        image.
    size : int or (rows, columns)
        Rows and columns of the window, both odd.

    Returns
    -------
    array
        C-contiguous array of the image's shape and dtype, as scipy.ndimage.grey_erosion and OpenCV's erode with a
        rectangle. The result is NaN if the window holds a NaN.

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
        C-contiguous array of the image's shape and dtype, as scipy.ndimage.grey_dilation and OpenCV's dilate with a
        rectangle. The result is NaN if the window holds a NaN.

    Raises
    ------
    ArgumentError
        As for `gaussian_blur`.
    """
    plan = functools.partial(_extremes, "dilate", "maximum", size_of("dilate", size))
    return filtered("dilate", image, axes, out, stream, (mode, value), plan)


@planned(1024)
def _median(pixels: Pixels) -> tuple[Pass, ...]:
    check_window("median3", pixels.images, (3, 3))
    window = f"cudakit::median<{number_type(pixels.dtype, True)}, {pixels.images.channels}>"
    return (near_pass(pixels, pixels.dtype, window, NO_WEIGHTS, 3),)


@planned(1024)
def _extremes(op: str, pick: str, size: tuple[int, int], pixels: Pixels) -> tuple[Pass, ...]:
    images, dtype, pick = pixels.images, pixels.dtype, f"cudakit::{pick}"
    check_window(op, images, size)
    if is_near(images, size, pixels.border[0]):
        window = (
            f"cudakit::picked<{number_type(dtype, True)}, {pick}, {size[0] // 2}, {size[1] // 2}, {images.channels}>"
        )
        return (near_pass(pixels, dtype, window, NO_WEIGHTS, size[0]),)
    fold = f"cudakit::chosen<{pick}>"
    return tuple(far_pass(pixels, dtype, fold, None, window) for window in ((1, size[1]), (size[0], 1)))
