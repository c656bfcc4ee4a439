"""How a scan runs: the kernel for what its lines look like in memory, and the launch that fills the device."""

from __future__ import annotations

import functools
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.elements import cpp
from cudakit.arrays.layout import axis_of
from cudakit.arrays.place import device_limits
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel

# Of `line_scan` in templates/scan.cuh: warps that scan and that reduce, and what a tile takes in shared memory at most.
_SCANNERS, _REDUCERS, _MOST_STAGES, _TILE_BYTES = 16, 4, 8, 32 << 10
_LINE_THREADS = 32 * (2 + _REDUCERS + _SCANNERS)
_STATUS_HEADER = 256
_ROWS_THREADS = 256
# Of `columns`: what a thread keeps in registers; fewer lines than so many are not worth a warp's width.
_COLUMN_BYTES = 64
_LEAST_COLUMNS = 8
#: Blocks that the emulator is given at once: it runs all threads of a launch side by side.
_EMULATED_BLOCKS = 4


#: Dtype, shape and strides in bytes.
Layout: TypeAlias = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


class _Rule(NamedTuple):
    """What is combined, as the templates name it, and whether sums of integers have 64 bits."""

    inclusive: str
    exclusive: str
    widens: bool


_RULES = {
    "cumsum": _Rule("cudakit::running_plus", "cudakit::plus", True),
    "cumprod": _Rule("cudakit::times", "cudakit::times", True),
    "cummin": _Rule("cudakit::minimum", "cudakit::minimum", False),
    "cummax": _Rule("cudakit::maximum", "cudakit::maximum", False),
}


class Job(NamedTuple):
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


@functools.lru_cache(4096)
def job_of(
    op: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    axis: int | None,
    exclusive: bool,
    reverse: bool,
    of_keys: Layout | None,
    wanted: Any,
    out_strides: tuple[int, ...] | None,
    device: int | str,
) -> Job:
    """The job of a call of one kind."""
    result = _result(op, dtype, wanted)
    size = prod(shape)
    flat = axis is None
    at = 0 if axis is None else axis_of(op, axis, len(shape))
    seen_shape = (size,) if flat else shape
    if of_keys is not None:
        _check_keys(op, of_keys, shape, at, flat)
    nothing = Job(None, None, seen_shape, result, at, flat, False, 0, ())
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
    along, lines = (len(seen_shape), at), size // n
    steps = [abs(step) for step in (strides if not flat or len(shape) == 1 else (dtype.itemsize,))]
    others = [step for d, step in enumerate(steps) if d != at and seen_shape[d] > 1]
    beside = bool(others) and min(others) < steps[at]  # neighbours in memory belong to different lines
    if 2 * lines <= kind.blocks and n >= 4 * kind.tile and not (beside and lines >= _LEAST_COLUMNS):
        kernel, launch, status_bytes, stages = kind.line(n, lines, along)
        return job._replace(kernel=kernel, config=launch, status_bytes=status_bytes, numbers=(stages,))
    if beside and lines >= _LEAST_COLUMNS:
        kernel, launch, status_bytes, sharing = kind.columns(n, lines, along)
        return job._replace(kernel=kernel, config=launch, status_bytes=status_bytes, numbers=(sharing,))
    kernel, launch = kind.rows(n, lines, along)
    return job._replace(kernel=kernel, config=launch)


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
        self._vector = min(16 // dtype.itemsize, 32 // result.itemsize)
        element_bytes = dtype.itemsize + (keys.itemsize if keyed else 0)
        row = 32 * self._vector
        self._scan_rows = max(r for r in (1, 2, 4) if r == 1 or r * _SCANNERS * row * element_bytes <= _TILE_BYTES)
        self.tile = _SCANNERS * self._scan_rows * row
        self._stage_bytes = self.tile * element_bytes + (16 if keyed else 0)
        item_bytes = kept.itemsize * (2 if keyed else 1)
        self._words = -(-item_bytes // 4)
        limits = device_limits(device)
        static = 32 * _MOST_STAGES + 2 * _MOST_STAGES * _SCANNERS * item_bytes + 1024
        self._most_stages = min(_MOST_STAGES, (limits.shared_bytes - static) // self._stage_bytes)
        self.blocks = _EMULATED_BLOCKS if isinstance(device, str) else limits.multiprocessors

    def line(self, n: int, lines: int, along: tuple[int, int] | None = None) -> tuple[Kernel, Config, int, int]:
        """Kernel, launch, bytes of status and stages for `lines` lines of `n`; along: rank and axis of views."""
        shape = (*self._options, self._scan_rows, _SCANNERS, _REDUCERS)
        if along is None:
            kernel = Kernel.from_template("scan/line")[(*self._types, *shape)]
        else:
            kernel = Kernel.from_template("scan/lines")[(*self._types, *along, *shape)]
        tiles = n // self.tile + 2
        blocks = min(-(-n // self.tile), max(1, self.blocks // lines))
        stages = min(self._most_stages, -(-tiles // blocks))
        shared = stages * self._stage_bytes
        launch = config((blocks, lines), _LINE_THREADS, shared, cooperative=tiles > blocks > 1)
        return kernel, launch, _STATUS_HEADER + 8 * self._words * tiles * lines, stages

    def rows(self, n: int, lines: int, along: tuple[int, int]) -> tuple[Kernel, Config]:
        """Kernel and launch for many lines of `n` elements along memory."""
        packs = -(-n // self._vector)
        if packs <= 128:
            width, rows = min(32, 1 << (packs - 1).bit_length()), -(-packs // 32)
            at_once = max(1, 4 // rows)
            kernel = Kernel.from_template("scan_axis/short_rows")[
                (*self._types, *along, *self._options, width, rows, at_once)
            ]
            blocks = -(-lines * width // (_ROWS_THREADS * at_once))
            resident = 4 if rows == 1 else 3
        else:
            warps = _ROWS_THREADS // 32
            rows = min(4, -(-packs // _ROWS_THREADS))
            kernel = Kernel.from_template("scan_axis/rows")[(*self._types, *along, *self._options, warps, rows)]
            blocks, resident = lines, 4
        return kernel, config(min(blocks, resident * self.blocks), _ROWS_THREADS)

    def columns(self, n: int, lines: int, along: tuple[int, int]) -> tuple[Kernel, Config, int, int]:
        """Kernel, launch, bytes of status and blocks a strip for lines that lie beside each other."""
        strips = -(-lines // 32)
        small = self._words <= 2
        rows = _COLUMN_BYTES // max(4, 4 * self._words)
        warps = 32 if small and strips <= self.blocks // 2 else 16
        tiles = -(-n // (warps * rows))
        sharing = max(1, min(tiles, self.blocks // strips, 5 * warps))
        kernel = Kernel.from_template("scan_axis/columns")[
            (*self._types, *along, *self._options, sharing > 1, warps, rows)
        ]
        status_bytes = _STATUS_HEADER + (8 * self._words * tiles * lines if sharing > 1 else 0)
        return kernel, config(strips * sharing, 32 * warps, cooperative=sharing > 1), status_bytes, sharing


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


def _check_keys(op: str, of_keys: Layout, shape: tuple[int, ...], axis: int, flat: bool) -> None:
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
