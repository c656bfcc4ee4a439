"""Running sums, products, minima and maxima along an axis, in one pass."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit import devices
from cudakit.config import Config, config
from cudakit.errors import ArgumentError
from cudakit.kernel import Kernel
from cudakit.ops.layout import axis_of
from cudakit.ops.place import Place, multiprocessors_of, output, place_of
from cudakit.ops.reducing import cpp
from cudakit.streams import as_stream, order

# Of `line_scan` in templates/scan.cuh: warps that scan and that reduce, and what a tile takes in shared memory at most.
_SCANNERS, _REDUCERS, _MOST_STAGES, _TILE_BYTES = 16, 4, 8, 32 << 10
_LINE_THREADS = 32 * (2 + _REDUCERS + _SCANNERS)
_STATUS_HEADER = 256
_ROWS_THREADS = 256
# Of `columns`: warps, and what a thread keeps in registers.
_COLUMN_WARPS, _COLUMN_BYTES = 16, 64
_LEAST_COLUMNS = 8
_MOST_BLOCKS = 1 << 20
#: Blocks that the emulator is given at once: it runs all threads of a launch side by side.
_EMULATED_BLOCKS = 4
_EMULATED_SHARED_BYTES = 227 << 10


class _Rule(NamedTuple):
    """What is combined, as the templates name it, and whether sums of integers have 64 bits."""

    inclusive: str
    exclusive: str
    widens: bool


_RULES = {
    "cumsum": _Rule("running_plus", "cudakit::plus", True),
    "cumprod": _Rule("cudakit::times", "cudakit::times", True),
    "cummin": _Rule("cudakit::minimum", "cudakit::minimum", False),
    "cummax": _Rule("cudakit::maximum", "cudakit::maximum", False),
}


class _Job(NamedTuple):
    """What a call of one kind launches; `numbers` follow the arrays and the look-back's memory, if it has any.

    Attributes
    ----------
    kernel, config
        None where there are no elements.
    shape, dtype
        Of the result.
    axis : int
        Of what the kernel sees.
    flat, viewed : bool
        Whether it sees all elements as one line; whether what it sees must first be made of the arrays.
    status_bytes : int
    numbers : tuple of int
    """

    kernel: Kernel | None
    config: Config | None
    shape: tuple[int, ...]
    dtype: np.dtype
    axis: int
    flat: bool
    viewed: bool
    status_bytes: int
    numbers: tuple[int, ...]


def cumsum(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = x[0] + … + x[i] along `axis`, as `numpy.cumsum` has it.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integer, floating point (float16 and bfloat16 too) or complex.
    axis : int or None
        None: along all elements in row-major order; the result is then one-dimensional.
    exclusive : bool
        Leave x[i] itself out: out[i] = x[0] + … + x[i-1], and out[0] = 0.
    reverse : bool
        Begin at the other end: out[i] = x[i] + … + x[n-1].
    keys : array, optional
        Of one dimension, as long as the axis, or of x's shape. Every run of equal neighbours is a segment, and is
        scanned for itself: a new one begins where a key differs from the one before (a NaN from any other).
    dtype : dtype, optional
        Of the result; elements are converted to it first. Default: int64 or uint64 for integers and bool, else x's.
    out : array, optional
        Where the result goes: its shape and dtype. May be x itself.
    stream : stream, optional
        Default: CuPy's current one.

    Returns
    -------
    array
        Integers modulo their range; float16 and bfloat16 accumulate in float, all others in the result's dtype.
        Floating point is added in an order that shape, strides, dtype and device fix (and not in the order 0, 1, 2, …):
        the same bits on every run and stream.

    Raises
    ------
    ArgumentError
        For an axis out of range, keys that do not fit, a dtype that does not add up, an `out` that does not fit or
        overlaps an input without being x.

    Notes
    -----
    Unlike NumPy's, dtype=bool and a real dtype for complex elements are refused. A view that is neither C-contiguous
    nor one-dimensional is copied first where axis is None.
    After Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back (2016).
    """
    return _scanned("cumsum", x, axis, exclusive, reverse, keys, dtype, out, stream)


def cumprod(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = x[0] · … · x[i] along `axis`, as `numpy.cumprod` has it.

    Parameters, result dtype and errors are those of `cumsum`; exclusive ones begin with 1.
    """
    return _scanned("cumprod", x, axis, exclusive, reverse, keys, dtype, out, stream)


def cummin(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = min(x[0], …, x[i]) along `axis`, as `numpy.minimum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with +∞, or the
    greatest value of the dtype. Of zeros of both signs the result may be either.
    """
    return _scanned("cummin", x, axis, exclusive, reverse, keys, None, out, stream)


def cummax(
    x: Any,
    axis: int | None = None,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    keys: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[i] = max(x[0], …, x[i]) along `axis`, as `numpy.maximum.accumulate` has it: NaN from the first NaN on.

    Parameters and errors are those of `cumsum`; the result has x's dtype. Exclusive ones begin with -∞, or the
    least value of the dtype. Of zeros of both signs the result may be either.
    """
    return _scanned("cummax", x, axis, exclusive, reverse, keys, None, out, stream)


def _scanned(
    op: str, x: Any, axis: int | None, exclusive: bool, reverse: bool, keys: Any, dtype: Any, out: Any, stream: Any
) -> Any:
    """`x` scanned along `axis`."""
    of_keys = of_out = None
    if keys is None:
        place, (x,) = place_of(op, stream, ("x", x))
    else:
        place, (x, keys) = place_of(op, stream, ("x", x), ("keys", keys))
        of_keys = keys.dtype, keys.shape, keys.strides
    if out is not None:
        if type(out) is not type(x):
            _, (out,) = place_of(op, stream, ("out", out))
        of_out = out.strides
    job = _job(op, x.dtype, x.shape, x.strides, axis, exclusive, reverse, of_keys, dtype, of_out, place.device)
    result = output(op, place, out, job.shape, job.dtype, x, in_place=True)
    if job.kernel is None:
        return result
    seen, target = (x, x if keys is None else keys), result
    if keys is not None and out is not None:
        output(op, place, out, job.shape, job.dtype, keys)
    if job.viewed:
        seen, target = _views(place, job, x, keys, result, reverse)
    if job.status_bytes:
        job.kernel(place.stream, job.config, *seen, target, place.status(job.status_bytes), *job.numbers)
    else:
        job.kernel(place.stream, job.config, *seen, target, *job.numbers)
    return result


def _views(place: Place, job: _Job, x: Any, keys: Any, out: Any, reverse: bool) -> tuple[tuple[Any, Any], Any]:
    """What the kernel of a job sees of the arrays: x, keys, and out."""
    if job.flat:
        x = _flat(place, x)
        keys = None if keys is None else _flat(place, keys)
    elif keys is not None and keys.ndim == 1:
        keys = keys.reshape((-1,) + (1,) * (x.ndim - 1 - job.axis))
    keys = x if keys is None else place.xp.broadcast_to(keys, x.shape)
    if reverse:
        backward = (slice(None),) * job.axis + (slice(None, None, -1),)
        x, keys, out = x[backward], keys[backward], out[backward]
    return (x, keys), out


def _flat(place: Place, x: Any) -> Any:
    """All elements in row-major order: a view where there is one."""
    if place.current:
        return x.reshape(-1)
    with order().cupy_stream(as_stream(place.stream)):
        return x.reshape(-1)


@functools.lru_cache(4096)
def _job(
    op: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    of_keys: tuple[np.dtype, tuple[int, ...], tuple[int, ...]] | None,
    wanted: Any,
    out_strides: tuple[int, ...] | None,
    device: int | str,
) -> _Job:
    """The job of a call of one kind."""
    result = _result(op, dtype, wanted)
    size = prod(shape)
    flat = axis is None
    at = 0 if axis is None else axis_of(op, axis, len(shape))
    seen_shape = (size,) if flat else shape
    if of_keys is not None:
        _check_keys(op, of_keys, shape, at, flat)
    nothing = _Job(None, None, seen_shape, result, at, flat, False, 0, ())
    if size == 0:
        return nothing
    n = seen_shape[at]
    kind = _Kind(op, dtype, result, exclusive, dtype if of_keys is None else of_keys[0], of_keys is not None, device)
    packed = [_is_packed(shape, strides, dtype), out_strides is None or _is_packed(seen_shape, out_strides, result)]
    if of_keys is not None:
        packed.append(_is_packed(of_keys[1], of_keys[2], of_keys[0]) and prod(of_keys[1]) == size)
    if n == size and all(packed) and not reverse:
        kernel, launch, status_bytes, stages = kind.line(size, 1)
        return nothing._replace(kernel=kernel, config=launch, status_bytes=status_bytes, numbers=(size, stages))
    viewed = of_keys is not None or reverse or (flat and len(shape) != 1)
    job = nothing._replace(viewed=viewed)
    rank, lines = len(seen_shape), size // n
    steps = [abs(step) for step in (strides if not flat or len(shape) == 1 else (dtype.itemsize,))]
    others = [step for d, step in enumerate(steps) if d != at and seen_shape[d] > 1]
    beside = bool(others) and min(others) < steps[at]  # neighbours in memory belong to different lines
    if 2 * lines <= kind.blocks and n >= 4 * kind.tile and not (beside and lines >= _LEAST_COLUMNS):
        kernel, launch, status_bytes, stages = kind.line(n, lines, rank)
        return job._replace(kernel=kernel, config=launch, status_bytes=status_bytes, numbers=(at, stages))
    if beside and lines >= _LEAST_COLUMNS:
        kernel, launch, status_bytes, along = kind.columns(n, lines, rank)
        return job._replace(kernel=kernel, config=launch, status_bytes=status_bytes, numbers=(at, along))
    kernel, launch = kind.rows(n, lines, rank)
    return job._replace(kernel=kernel, config=launch, numbers=(at,))


class _Kind:
    """The kernels for elements of one kind, each with its launch.

    Parameters
    ----------
    op : str
    dtype, result, keys : numpy.dtype
    exclusive, keyed : bool
    device : int or str
    """

    def __init__(
        self,
        op: str,
        dtype: np.dtype,
        result: np.dtype,
        exclusive: bool,
        keys: np.dtype,
        keyed: bool,
        device: int | str,
    ) -> None:
        rule = _RULES[op]
        kept = result if result.kind in "biufc" and result != np.float16 else np.dtype(np.float32)
        self._types = (dtype, keys, result, kept, rule.exclusive if exclusive else rule.inclusive)
        self._options = (keyed, exclusive)
        self._vector = 16 // max(dtype.itemsize, result.itemsize)
        element_bytes = dtype.itemsize + (keys.itemsize if keyed else 0)
        row = 32 * self._vector
        self._scan_rows = max(r for r in (1, 2, 4) if r == 1 or r * _SCANNERS * row * element_bytes <= _TILE_BYTES)
        self.tile = _SCANNERS * self._scan_rows * row
        self._stage_bytes = self.tile * element_bytes + (16 if keyed else 0)
        item_bytes = kept.itemsize * (2 if keyed else 1)
        self._words = -(-item_bytes // 4)
        emulated = isinstance(device, str)
        shared = _EMULATED_SHARED_BYTES if emulated else devices.limits(device).shared_bytes
        static = 32 * _MOST_STAGES + 2 * _MOST_STAGES * _SCANNERS * item_bytes + 1024
        self._most_stages = min(_MOST_STAGES, (shared - static) // self._stage_bytes)
        self.blocks = _EMULATED_BLOCKS if emulated else multiprocessors_of(device)

    def line(self, n: int, lines: int, rank: int | None = None) -> tuple[Kernel, Config, int, int]:
        """Kernel, launch, bytes of status and stages for `lines` lines of `n` elements; a rank: of views."""
        shape = (*self._options, self._scan_rows, _SCANNERS, _REDUCERS)
        if rank is None:
            kernel = Kernel.from_template("scan/line")[(*self._types, *shape)]
        else:
            kernel = Kernel.from_template("scan/lines")[(*self._types, rank, *shape)]
        tiles = n // self.tile + 2
        blocks = min(-(-n // self.tile), max(1, self.blocks // lines))
        stages = min(self._most_stages, -(-tiles // blocks))
        shared = stages * self._stage_bytes
        launch = config((blocks, lines), _LINE_THREADS, shared, cooperative=tiles > blocks > 1)
        return kernel, launch, _STATUS_HEADER + 8 * self._words * tiles * lines, stages

    def rows(self, n: int, lines: int, rank: int) -> tuple[Kernel, Config]:
        """Kernel and launch for many lines of `n` elements along memory."""
        packs = -(-n // self._vector)
        if packs <= 128:
            width, rows = min(32, 1 << (packs - 1).bit_length()), -(-packs // 32)
            at_once = max(1, 4 // rows)
            kernel = Kernel.from_template("scan/short_rows")[
                (*self._types, rank, *self._options, width, rows, at_once)
            ]
            blocks = -(-lines * width // (_ROWS_THREADS * at_once))
        else:
            warps = _ROWS_THREADS // 32
            rows = min(4, -(-packs // _ROWS_THREADS))
            kernel = Kernel.from_template("scan/rows")[(*self._types, rank, *self._options, warps, rows)]
            blocks = lines
        return kernel, config(min(blocks, _MOST_BLOCKS), _ROWS_THREADS)

    def columns(self, n: int, lines: int, rank: int) -> tuple[Kernel, Config, int, int]:
        """Kernel, launch, bytes of status and blocks a strip for lines that lie beside each other."""
        strips = -(-lines // 32)
        small = self._words <= 2
        rows = _COLUMN_BYTES // max(4, 4 * self._words)
        warps = 32 if small and strips <= self.blocks // 2 else 16
        tiles = -(-n // (warps * rows))
        along = max(1, min(tiles, self.blocks // strips))
        kernel = Kernel.from_template("scan/columns")[(*self._types, rank, *self._options, along > 1, warps, rows)]
        status_bytes = _STATUS_HEADER + (8 * self._words * tiles * lines if along > 1 else 0)
        return kernel, config(strips * along, 32 * warps, cooperative=along > 1), status_bytes, along


def _result(op: str, dtype: np.dtype, wanted: Any) -> np.dtype:
    """Dtype of a scan: as asked for, or NumPy's, where sums of integers have 64 bits."""
    cpp(op, dtype)
    if wanted is None:
        if not _RULES[op].widens or dtype.kind not in "biu" or dtype.itemsize == 8:
            return dtype
        return np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
    try:
        result: np.dtype = np.dtype(wanted)
    except TypeError:
        raise ArgumentError(f"{op}: dtype must be a dtype, got {wanted!r}") from None
    cpp(op, result, "dtype")
    if result.kind == "b" or (dtype.kind == "c" and result.kind != "c"):
        raise ArgumentError(f"{op}: dtype {result} cannot hold a {op} of {dtype}")
    return result


def _check_keys(
    op: str, of_keys: tuple[np.dtype, tuple[int, ...], tuple[int, ...]], shape: tuple[int, ...], axis: int, flat: bool
) -> None:
    """Check that keys fit the axis.

    Raises
    ------
    ArgumentError
    """
    dtype, found, _ = of_keys
    cpp(op, dtype, "keys")
    length = prod(shape) if flat else shape[axis]
    if found not in (shape, (length,)):
        raise ArgumentError(f"{op}: keys have shape {found}; give ({length},), as long as the axis, or x's {shape}")


def _is_packed(shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype) -> bool:
    """Whether an array is C-contiguous; `strides` may be too many or too few, of an `out` that will be refused."""
    step = dtype.itemsize
    for extent, stride in zip(reversed(shape), reversed(strides), strict=False):
        if extent != 1 and stride != step:
            return False
        step *= extent
    return True
