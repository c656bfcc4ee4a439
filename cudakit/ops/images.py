"""Images on other grids of pixels (resized, warped), and with other levels (gray, equalized)."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from cudakit.arrays.layout import Axis, axes_in_order, axis_of, integers
from cudakit.arrays.output import target
from cudakit.arrays.place import array_place, multiprocessors_of
from cudakit.arrays.plans import Job
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, error_text, shortened
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import Ints, delivered
from cudakit.ops.filters import AXES, Border, Images, border_of, check_dtype, contiguous, images_of, number_type
from cudakit.types.checked import flag, text_of, whole
from cudakit.types.cpp import spelling

_METHODS = {"linear": True, "nearest": False}
#: By bytes of an element, 4 where not told, as an H200 was fastest: rows that a thread reads at once, its rows of twice
#: the size, and bytes that it writes side by side.
_TOGETHER, _TWICE, _BYTES = {1: 1, 2: 1, 4: 2}, {1: 2, 2: 4, 4: 2}, {1: 8, 2: 8, 4: 16}
#: Warps of a block; rows of a thread; rows of a thread of `warped`, and lanes of a warp that are neighbours; threads of
#: a block of the other kernels.
_WARPS, _ROWS, _FEW_ROWS, _ACROSS, _BLOCK = 4, 8, 4, 16, 256
#: Of bytes: rows of a thread that reads words; rows of a thread and columns of a block that has them in shared memory.
_WORD_ROWS, _TILE_ROWS, _TILE_COLUMNS = 16, 9, 256


@repeated("out")
def resize(
    image: Any,
    shape: tuple[int, int],
    *,
    method: str = "linear",
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = image at ((y + ½) height / rows − ½, (x + ½) width / columns − ½).

    Parameters
    ----------
    image : array
        Images along `axes`, with any other axes before (a batch, channels) and after them (channels): uint8,
        uint16, float16, float32 or float64.
    shape : (int, int)
        Rows and columns of the result, at least 1 each.
    method : str
        Interpolation, by name:

        - ``linear``: between the four pixels around, as OpenCV's INTER_LINEAR. Pixels are squares, and positions
          are of their centres. Beyond the outermost centres the outermost pixel is used.
        - ``nearest``: image[⌊y height / rows⌋, ⌊x width / columns⌋], as OpenCV's INTER_NEAREST.
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
        C-contiguous array of the image's dtype. Integers are rounded to the nearest, a half upward. Weights for
        uint8 have 15 bits in a row. OpenCV's weights have 11 bits, so its pixels may differ by one level.

    Raises
    ------
    ArgumentError
        The shape is not two numbers from 1 up, the image has no pixels, or the dtype is not supported.

    Notes
    -----
    Neither method smooths: blur the image first if the result is much smaller.
    """
    op = "resize"
    linear = _is_linear(op, method)
    rows, columns = _shape_of(op, shape)
    place, (x,) = array_place(op, stream, ("image", image))
    check_dtype(op, x.dtype)
    images, result = _images_and_shape(op, x.shape, integers(op, "axes", axes), rows, columns)
    x = contiguous(place, x)
    to = target(op, place, out, result, x.dtype, x, contiguous=True)
    if to.written.size:
        aligned = place.alignment(x, to.written) == 16
        _resized(images, x.dtype, rows, columns, linear, aligned).run(place, x, to.written)
    return delivered(place, to)


@repeated("out")
def warp_affine(
    image: Any,
    matrix: Any,
    shape: tuple[int, int] | None = None,
    *,
    inverse: bool = False,
    method: str = "linear",
    mode: str = "constant",
    value: float = 0,
    axes: tuple[int, int] = AXES,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[y, x] = image at (x', y') = M⁻¹ (x, y), where M = `matrix` maps points of the image to points of the result.

    Parameters
    ----------
    image, axes, out, stream
        As for `resize`.
    matrix : array_like, shape (2, 3)
        Affine map in host memory: (x, y) of the image goes to M[:, :2] @ (x, y) + M[:, 2], as in OpenCV.
    shape : (int, int), optional
        Rows and columns of the result. Default: rows and columns of the image.
    inverse : bool
        Whether `matrix` maps points of the result to points of the image, as OpenCV's WARP_INVERSE_MAP and
        scipy.ndimage.affine_transform. SciPy's coordinates begin with y.
    method : str
        Interpolation: ``linear`` between the four pixels around, or ``nearest``. Positions are of the pixels'
        centres: (0, 0) is the centre of the first pixel.
    mode, value
        Border mode and value outside the image, as for `gaussian_blur`. Mode ``constant`` is SciPy's grid-constant
        and OpenCV's BORDER_CONSTANT.

    Returns
    -------
    array
        C-contiguous array of the image's dtype, as scipy.ndimage.affine_transform of order 1 or 0. OpenCV rounds
        positions to 1/32 of a pixel. Integers are rounded to the nearest, a half upward.

    Raises
    ------
    ArgumentError
        As for `resize`, or the matrix has no inverse or is not of 2 × 3 finite numbers.
    """
    op = "warp_affine"
    linear = _is_linear(op, method)
    back = _inverse_of(op, matrix, flag(f"{op}: inverse", inverse))
    place, (x,) = array_place(op, stream, ("image", image))
    check_dtype(op, x.dtype)
    border = border_of(op, mode, value, x.dtype)
    own = images_of(op, x.shape, integers(op, "axes", axes))
    rows, columns = (own.height, own.width) if shape is None else _shape_of(op, shape)
    images, result = _images_and_shape(op, x.shape, integers(op, "axes", axes), rows, columns)
    x = contiguous(place, x)
    to = target(op, place, out, result, x.dtype, x, contiguous=True)
    if to.written.size:
        _warped(images, x.dtype, rows, columns, linear, border, back).run(place, x, to.written)
    return delivered(place, to)


def _is_linear(op: str, method: Any) -> bool:
    if text_of(f"{op}: method", method) not in _METHODS:
        raise ArgumentError(f"{op}: method {shortened(method)}; expected one of {', '.join(_METHODS)}")
    return _METHODS[method]


def _shape_of(op: str, shape: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise ArgumentError(f"{op}: shape is (rows, columns), got {shortened(shape)}")
    return whole(f"{op}: rows", shape[0], 1), whole(f"{op}: columns", shape[1], 1)


@functools.lru_cache(1024)
def _images_and_shape(op: str, shape: Ints, axes: Axis, rows: int, columns: int) -> tuple[Images, Ints]:
    images = images_of(op, shape, axes)
    if not (images.height and images.width):
        raise ArgumentError(f"{op}: an image of {images.height} × {images.width} pixels has none to take")
    start = axes_in_order(op, "axes", axes, len(shape))[0]
    return images, (*shape[:start], rows, columns, *shape[start + 2 :])


def _inverse_of(op: str, matrix: Any, is_inverse: bool) -> tuple[float, ...]:
    """Return the affine 2 × 3 matrix from points of the result to points of the image: six numbers, row by row.

    `matrix` is inverted, unless `is_inverse` says that it already maps in this direction.

    Raises
    ------
    ArgumentError
        If `matrix` is not of 2 × 3 finite numbers, or has no inverse.
    """
    try:
        affine = np.asarray(matrix, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"{op}: matrix is not of numbers in host memory: {error_text(error)}") from None
    if affine.shape != (2, 3) or not np.isfinite(affine).all():
        raise ArgumentError(f"{op}: matrix is of 2 × 3 finite numbers, got shape {affine.shape}: {shortened(affine)}")
    if not is_inverse:
        try:
            inverse = np.linalg.inv(affine[:, :2])
        except np.linalg.LinAlgError:
            raise ArgumentError(f"{op}: matrix {affine.tolist()} has no inverse") from None
        affine = np.column_stack([inverse, -inverse @ affine[:, 2]])
    return tuple(affine.ravel().tolist())


@functools.lru_cache(1024)
def _resized(images: Images, dtype: np.dtype, rows: int, columns: int, linear: bool, aligned: bool) -> Job:
    batch, height, width, channels = images
    cpp, number, size = spelling(dtype), number_type(dtype), min(dtype.itemsize, 4)
    if linear and aligned and channels == 1:
        if dtype == np.uint8 and (2 * rows, 2 * columns) == (height, width) and columns % 8 == 0:
            packs = batch * rows * columns // 8
            kernel = Kernel.from_template("sample/halved")[(_BLOCK,)]
            return Job((), (), kernel, config(-(-packs // _BLOCK), _BLOCK), numbers=(packs, columns))
        thread_elements = 8 // dtype.itemsize
        if (rows, columns) == (2 * height, 2 * width) and width % thread_elements == 0:
            tall = _TWICE[size]
            tiles = batch * -(-width // (32 * thread_elements)) * -(-height // (_WARPS * tall))
            kernel = Kernel.from_template("sample/doubled")[cpp, number, tall]
            return Job((), (), kernel, config(tiles, (32, _WARPS)), numbers=(height, width))
    steps = round(2**32 * height / rows), round(2**32 * width / columns)
    # Bytes that are read as words, where eight of them hold what four results see.
    packed = linear and aligned and dtype == np.uint8 and channels == 1 and width <= 2 * columns
    if packed and width % 16 == 0 and columns % 8 == 0 and height <= 2 * rows:
        wide, high = _TILE_COLUMNS, _WARPS * _TILE_ROWS
        # Bytes of a row that a tile sees, from a multiple of 16 on and with a thread's last word, and rows.
        pitch = ((wide - 1) * width // columns + 1 + 15 + 27) // 16 * 16
        image_rows = (high - 1) * height // rows + 3
        kernel = Kernel.from_template("sample/resized_bytes")[_WARPS, _TILE_ROWS]
        launch = config(batch * -(-columns // wide) * -(-rows // high), (32, _WARPS), pitch * image_rows)
        return Job((), (), kernel, launch, numbers=(height, width, rows, columns, *steps, pitch))
    thread_elements = _BYTES[size] // dtype.itemsize
    packed = packed and batch * height * width % 4 == 0
    thread_rows = _WORD_ROWS if packed else _ROWS
    kernel = Kernel.from_template("sample/resized")[
        cpp, number, linear, thread_elements, _WARPS, thread_rows, _TOGETHER[size], packed
    ]
    across, down = -(-columns * channels // (32 * thread_elements)), -(-rows // (_WARPS * thread_rows))
    numbers = height, width, rows, columns, channels, *steps
    return Job((), (), kernel, config(batch * across * down, (32, _WARPS)), numbers=numbers)


@functools.lru_cache(1024)
def _warped(
    images: Images, dtype: np.dtype, rows: int, columns: int, linear: bool, border: Border, back: tuple[float, ...]
) -> Job:
    # Places of float images have 24 bits of a part, and 27 before it.
    number = number_type(dtype) if max(images.height, images.width) < 1 << 26 else "double"
    xs, ys = np.meshgrid((0, columns), (0, rows))
    is_near = bool((np.abs([back[k] * xs + back[k + 1] * ys + back[k + 2] for k in (0, 3)]) < (1 << 26) - 1).all())
    most = max(images.height * images.width, rows * columns) * images.channels
    kernel = Kernel.from_template("sample/warped")[
        spelling(dtype),
        number,
        "unsigned" if most < 2**32 else "long long",
        linear,
        _FEW_ROWS,
        _ACROSS,
        int(images.channels == 1),
        is_near,
    ]
    high = _WARPS * _FEW_ROWS * 32 // _ACROSS
    tiles = images.batch * -(-columns * images.channels // _ACROSS) * -(-rows // high)
    matrix = np.array((back,), [("all", np.float64, (6,))])[()]
    numbers = images.height, images.width, rows, columns, images.channels, *border, matrix
    return Job((), (), kernel, config(tiles, (32, _WARPS)), numbers=numbers)


# --- levels -----------------------------------------------------------------------------------------------------------


#: Dtypes that ``image.cuh`` has a kernel for.
_PACKED = (np.uint8, np.float32, np.float64)
#: Blocks a multiprocessor, and fewest pixels that a block is for.
_BLOCKS, _LEAST = 8, 1 << 14


@repeated("out")
def rgb_to_gray(image: Any, axis: int = -1, *, out: Any = None, stream: Any = None) -> Any:
    """out[…] = 0.299 red + 0.587 green + 0.114 blue.

    Parameters
    ----------
    image : array
        Input of any shape and strides with 3 channels along `axis`: uint8, uint16, float16, float32 or float64.
    axis : int
        Axis of the channels: -1 if they are the last axis, -3 if they are before rows and columns.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Array of the image's shape without `axis`, of the image's dtype. The weights are of ITU-R BT.601, as in
        Pillow and OpenCV. uint8 and uint16 are computed in 16-bit fixed point and rounded to the nearest. The
        result is Pillow's ``convert("L")`` bit for bit; OpenCV's differs by at most one level.

    Raises
    ------
    ArgumentError
        There are not 3 channels, or the dtype is not supported.
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
        launch = config(-(-pixels * x.itemsize // (16 * _BLOCK)), _BLOCK)
        place.launch(_kernel("image/gray", spelling(x.dtype)), launch, x, to.written, pixels)
    return delivered(place, to)


@repeated("out")
def equalize(image: Any, *, out: Any = None, stream: Any = None) -> Any:
    """Spread the levels of an image, so that each level has about as many pixels.

    Parameters
    ----------
    image : array, shape (…, height, width)
        Images of uint8, any strides. Each image is equalized by itself.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        C-contiguous uint8 array, as OpenCV's equalizeHist, bit for bit. An image of one level stays as it is.

    Raises
    ------
    ArgumentError
        The dtype is not uint8, or the image has less than two dimensions.
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
        images, size = prod(x.shape[:-2]), x.shape[-2] * x.shape[-1]
        parts = max(1, min(_BLOCKS * multiprocessors_of(place.device) // images, size // _LEAST))
        counts = place.empty((images, 256), np.dtype(np.uint32))
        place.clear(counts)
        launch = config(images * parts, _BLOCK)
        place.launch(_kernel("equalize/levels", _BLOCK), launch, x, counts, size, parts)
        place.launch(_kernel("equalize/equalized", _BLOCK), launch, x, counts, to.written, size, parts)
    return delivered(place, to)


@functools.cache
def _kernel(name: str, argument: str | int) -> Kernel:
    """Return a packaged kernel for a template argument, specialized once."""
    return Kernel.from_template(name)[(argument,)]


@functools.cache
def _gray(dtype: np.dtype) -> Elementwise:
    """Return the kernel that computes gray levels from three arrays, one for each channel."""
    if dtype.kind == "u":
        value = "(19595u * r + 38470u * g + 7471u * b + 32768u) >> 16"
    else:
        number = "double" if dtype.itemsize == 8 else "float"
        weights = (("0.299", "r"), ("0.587", "g"), ("0.114", "b"))
        value = " + ".join(f"{number}({weight}) * cudakit::as<{number}>({of})" for weight, of in weights)
    return elementwise("T r, T g, T b", "T y", f"y = cudakit::as<T>({value})", name="gray")
