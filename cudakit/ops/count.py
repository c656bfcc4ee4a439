"""Counts of elements by bins or by values: histogram, bincount."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import element_strides, merged
from cudakit.arrays.output import Target, target
from cudakit.arrays.place import ArrayPlace, array_place, device_limits, multiprocessors_of
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import delivered
from cudakit.types.checked import flag
from cudakit.types.cpp import NARROW, spelling

#: Threads a block, packs in flight a thread.
_BLOCK, _ITEMS = 1024, 4
_SMALL_BLOCK = 512
#: Bytes of values up to which a launch has small blocks: what a block does before and after its values counts most.
_FEW_VALUES = 16 << 20
#: Most bytes of counters that leave room for two blocks and for L1, and most bytes of one block.
_FEW_BYTES, _MOST_BYTES = 32 << 10, 64 << 10
#: Most passes over the values, for bins that exceed a block's memory.
_MOST_PARTS = 8
#: Of <cudakit/count/bins.cuh>: any_bins::SHARED_BYTES, on a multiple of 16; and edges that are copied to shared memory.
_CELL_BYTES, _NEAR_EDGES = 8208, 4096
#: Most bins for which templates/count.cuh needs no zeroed counts.
GATHERED = 500

#: How a value finds its bin, by a struct of <cudakit/count/bins.cuh>.
Policy: TypeAlias = Literal["even", "any", "whole"]


class Pass(NamedTuple):
    """A launch of a counting kernel."""

    kernel: Kernel
    config: Config
    table_at: int = 0
    own_edges: bool = False


class Values(NamedTuple):
    """Properties of the values that are counted: dtype, dimensions (None: C-contiguous), elements, and the device."""

    dtype: np.dtype
    rank: int | None
    size: int
    device: int | str

    def view(self, dtype: np.dtype | None = None) -> str:
        """Return the C++ type of a view of the values, or of an array of another dtype with the same layout."""
        of = spelling(dtype or self.dtype)
        return f"const {of}*" if self.rank is None else f"cudakit::strided<const {of}, {self.rank}>"

    @property
    def block(self) -> int:
        """Threads of a block that counts, where few bins share what it has of shared memory."""
        return _SMALL_BLOCK if self.size * self.dtype.itemsize <= _FEW_VALUES else _BLOCK

    def blocks(self, block: int, resident: int) -> int:
        """Return the blocks of a launch, at most `resident` for each multiprocessor.

        Each thread gets at least one pack.
        """
        packed = 16 // self.dtype.itemsize if self.rank is None else 1
        return max(1, min(-(-self.size // (block * packed)), resident * multiprocessors_of(self.device)))


def compared(dtype: np.dtype) -> np.dtype:
    """Return the dtype in which values of `dtype` are compared."""
    return np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype


def _struct(policy: Policy, dtype: np.dtype, edge: np.dtype, bins: int, cells: int = 2048) -> str:
    """Return the C++ type of <cudakit/count/bins.cuh> that finds the bin of a value of `dtype`.

    `edge` is the dtype of the edges. `cells` is the size of the lookup table that policy "any" uses.
    """
    value, key = spelling(dtype), spelling(compared(edge))
    if policy == "whole":
        return f"cudakit::whole_numbers<{value}>"
    if policy == "any":
        return f"cudakit::any_bins<{value}, {key}, {spelling(edge)}, {cells}>"
    # Of values whose guess is a float, bins in 2^21 are near an edge: few, up to here.
    guess = "float" if dtype.itemsize <= 4 and bins <= 4096 else "double"
    return f"cudakit::even_bins<{value}, {key}, {spelling(edge)}, {guess}>"


def _copies(bytes_each: int) -> int:
    """Return how many copies of all counters fit into `_FEW_BYTES`: a power of two, from 1 to 32.

    `bytes_each` is the size of one copy in bytes.
    """
    return 1 << max(0, min(32, _FEW_BYTES // bytes_each).bit_length() - 1)


@functools.lru_cache(4096)
def byte_pass(values: Values, policy: Policy, edge: np.dtype) -> Pass:
    """Return the launch that counts 8-bit values by their bits. The counts become bins at the end."""
    # 256 values are looked up, fewer than a table of cells has.
    struct = _struct("whole" if policy == "whole" else "any", values.dtype, edge, 256, cells=1)
    kernel = Kernel.from_template("count/bytes")[values.view(), struct, edge, values.block, _ITEMS]
    return Pass(kernel, config(values.blocks(values.block, 1), values.block, 256 * 32 * 4))


@functools.lru_cache(4096)
def range_pass(values: Values, edge: np.dtype) -> Pass:
    """Return the launch that finds the least and greatest finite value, and the even edges between them."""
    template = Kernel.from_template("count/range")
    kernel = template[values.view(), compared(values.dtype), edge, _SMALL_BLOCK, _ITEMS]
    return Pass(kernel, config(values.blocks(_SMALL_BLOCK, 4), _SMALL_BLOCK))


@functools.lru_cache(4096)
def value_pass(values: Values, policy: Policy, edge: np.dtype, bins: int) -> Pass:
    """Return the launch that counts values in bins, in shared memory where the bins fit."""
    parts, counter_bytes = 1, 0
    # Shared memory for finding bins; where there is room the edges are copied there, too.
    own_edges = policy == "any" and bins < _NEAR_EDGES
    table_bytes = (_CELL_BYTES if policy == "any" else 0) + own_edges * (bins + 1) * edge.itemsize
    # Bins that one block counts; the rest is for tickets.
    halves = (device_limits(values.device).shared_bytes - 1024 - table_bytes) // 2
    if 4 * bins <= _MOST_BYTES:
        copies = _copies(4 * bins)
        counters, counter_bytes = f"cudakit::word_counters<{copies}>", 4 * copies * (bins + 1)
    elif bins <= halves * _MOST_PARTS:
        parts = -(-bins // halves)
        counters, counter_bytes = "cudakit::half_counters", 2 * -(-bins // parts)
    else:
        counters = "cudakit::global_counters"
    # One block a multiprocessor leaves a thread 64 registers, and most of L1 to values on their way; two are better
    # where threads wait for something else, too.
    resident = 2 if policy == "any" or counter_bytes == 0 else 1
    block = values.block if resident == 1 and 4 * bins <= _MOST_BYTES else _BLOCK
    table_at = -(-counter_bytes // 16) * 16
    kernel = Kernel.from_template("count/values")[
        values.view(), _struct(policy, values.dtype, edge, bins), counters, edge, block, _ITEMS, resident
    ]
    blocks = values.blocks(block, resident)
    return Pass(kernel, config((blocks, parts), block, table_at + table_bytes), table_at, own_edges)


@functools.lru_cache(4096)
def weighing_passes(
    values: Values, weight: np.dtype, policy: Policy, edge: np.dtype, bins: int, out: np.dtype
) -> tuple[Pass, Pass]:
    """Return two launches: the first sums the weights of each bin, the second rounds these sums to the dtype `out`.

    `weight` is the dtype of the weights, `edge` the dtype of the edges.
    """
    sum, limbs = ("cudakit::whole_sum", 1) if weight.kind in "biu" else ("cudakit::fixed_sum", 2)
    near = 8 * limbs * bins <= _MOST_BYTES
    copies = _copies(8 * limbs * bins) if near else 1
    sums = f"cudakit::{'shared' if near else 'global'}_sums<{limbs}, {copies}>"
    sum_bytes = -(-8 * limbs * copies * bins // 16) * 16 if near else 0
    table_bytes = _CELL_BYTES if policy == "any" else 0
    struct = _struct(policy, values.dtype, edge, bins)
    kernel = Kernel.from_template("count/weigh")[
        values.view(), values.view(weight), struct, sum, sums, edge, _SMALL_BLOCK, _ITEMS
    ]
    blocks = max(1, min(-(-values.size // _SMALL_BLOCK), 4 * multiprocessors_of(values.device)))
    settle = Kernel.from_template("count/settle")[sum, weight, out]
    return (
        Pass(kernel, config(blocks, _SMALL_BLOCK, sum_bytes + table_bytes), sum_bytes),
        Pass(settle, config(-(-bins // _SMALL_BLOCK), _SMALL_BLOCK)),
    )


_MOST_BINS = 1 << 30
_COUNT, _SUM, _DOUBLE = np.dtype(np.int64), np.dtype(np.uint64), np.dtype(np.float64)


class _Bins(NamedTuple):
    """The bins of a call.

    Attributes
    ----------
    policy : str
        Rule that finds the bin of a value.
    edges : array (bins + 1)
        Edges that the kernels read, or compute unless `has_edges`. Kernels of policy "whole" read no edges.
    result_edges : array (bins + 1)
        Edges that the caller gets: `edges`, or an array to which the kernels copy them.
    has_edges : bool
        Whether the caller passed edges.
    number : int
        Number of bins.
    """

    policy: Policy
    edges: Any
    result_edges: Any
    has_edges: bool
    number: int


def histogram(
    x: Any,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    weights: Any = None,
    density: bool = False,
    *,
    out: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """counts[b] = number of values with edges[b] ≤ x < edges[b + 1]; the last bin includes its right edge.

    With `weights`, counts[b] is the sum of the weights of these values. Values outside the edges and NaN are in no
    bin.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool, integers, float16, bfloat16, float32 or float64.
    bins : int or array
        Number of even bins, or their edges (bins + 1) in ascending order. Edges in host memory are checked. Edges
        in device memory are not checked, because the check would wait for the device.
    range : (float, float), optional
        Left edge of the first even bin and right edge of the last. Default: least and greatest finite value of `x`. The
        device finds both, and the host does not wait. A single value v has the range v − 0.5 … v + 0.5. For no values
        the range is 0 … 1.
    weights : array, optional
        Weights of the elements: array of the shape of `x`, of any of its dtypes or complex.
    density : bool
        Whether to return counts / (width of the bin · sum of counts), in float64.
    out : array (bins), optional
        Output array for the counts, not together with `density`; any strides. Counts are cast to another dtype of
        the same kind.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    counts : array (bins)
        Counts in int64; with weights, sums in the dtype of the weights (int64 for bool).
    edges : array (bins + 1)
        Edges of the bins. Even edges are float64 if x is bool or integer, else of x's dtype. Passed edges are
        returned as they are.

    Raises
    ------
    ArgumentError
        One of these:

        - The dtype of x cannot be counted, or the weights have another shape.
        - `bins` is neither a positive whole number nor ascending edges.
        - The range is not finite, or its right edge is less than its left edge.

    Notes
    -----
    Every run on every stream gives the same bits.

    Counts are whole numbers. Integer weights are summed in 64 bits (modulo 2^64). Floating-point weights are summed in
    128-bit fixed point. There each weight is rounded to 2^-66 of the greatest weight for 2^28 values, and finer for
    fewer values. Infinities and NaN are summed as in floating point.

    Values are compared with the returned edges in NumPy's common dtype of both. Exceptions:

    - 64-bit integers with float64 edges are compared as float64.
    - bfloat16 and float16 are compared as float32.

    Differences from NumPy:

    - Without `range`, values that are not finite are ignored. NumPy refuses them.
    - Without `range`, edges are computed in float64 and rounded to `x`'s dtype.
    - Bins have no names ("auto" …).
    - Sums of float weights are more exact.
    - At least two edges are required.

    The algorithm: <cudakit/count/counters.cuh>, after Gómez-Luna et al., An optimized approach to histogram computation
    on GPU, Machine Vision and Applications 24 (2013).
    """
    density = flag("histogram: density", density)
    if density and out is not None:
        raise ArgumentError(
            "histogram: out is for counts; with density=True the result is another array, so leave it out"
        )
    if getattr(getattr(weights, "dtype", None), "kind", "") == "c":
        place, (weights,) = array_place("histogram", stream, ("weights", weights))
        number = bins if isinstance(bins, int) else len(bins) - 1
        to = target("histogram", place, out, (number,), weights.dtype, x, weights)
        counts, edges = to.written, None
        for part in ("real", "imag"):
            _, edges = _binned(x, bins, range, getattr(weights, part), out=getattr(counts, part), stream=stream)
        counts = delivered(place, to)
    else:
        counts, edges = _binned(x, bins, range, weights, out=out, stream=stream)
    if not density:
        return counts, edges
    place, _ = array_place("histogram", stream, ("x", counts))
    with place.inside():
        return counts / place.xp.diff(edges).astype(_DOUBLE) / counts.sum(), edges


@repeated("out")
def _binned(
    x: Any, bins: Any, range: tuple[float, float] | None, weights: Any, *, out: Any = None, stream: Any = None
) -> tuple[Any, Any]:
    """Return counts, and the edges of their bins."""
    place, arrays = array_place("histogram", stream, ("x", x), *(() if weights is None else (("weights", weights),)))
    x = arrays[0]
    _check_dtype("histogram", "x", x.dtype)
    plan = _bins_of(place, x.dtype, bins, range)
    if weights is None:
        return _count_values("histogram", place, x, plan, out), plan.result_edges
    sum_dtype = _COUNT if arrays[1].dtype == bool else arrays[1].dtype
    return _sum_weights("histogram", place, x, arrays[1], plan, sum_dtype, out), plan.result_edges


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, length: int | None = None, *, out: Any = None, stream: Any = None
) -> Any:
    """counts[v] = number of elements of x that equal v, or the sum of their weights.

    Parameters
    ----------
    x : array
        Input of any shape and strides; bool or integers, none of them negative.
    weights : array, optional
        Weights of the elements: array of the shape of `x`; bool, integers or floating point.
    minlength : int
        Least length of the result. The length is max(x) + 1 if this is greater. Finding the maximum waits for the
        device.
    length : int, optional
        Exact length of the result; `minlength` is then ignored. Values of `length` or more, and negative values,
        are not counted. The call does not wait for the device.
    out : array, optional
        Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then the
        result is cast).
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

    Returns
    -------
    array
        Counts in int64; with weights, sums in float64.

    Raises
    ------
    ArgumentError
        The dtype is neither integer nor bool, the weights have another shape, or, without `length`, a value is
        negative.

    Notes
    -----
    Every run on every stream gives the same bits. Sums of weights are computed as in `histogram`.

    Differences from NumPy: `x` may have any number of dimensions, `x` may be uint64, and there is a parameter `length`.
    """
    if length is None:
        length = _greatest(x, _whole("minlength", minlength), stream)
    return _bincount(x, weights, length, out=out, stream=stream)


@repeated("out")
def _bincount(x: Any, weights: Any, length: int, *, out: Any = None, stream: Any = None) -> Any:
    """Return an array of `length`: how often each number below `length` occurs in x.

    With weights, each element is the sum of the weights of this number.
    """
    place, arrays = array_place("bincount", stream, ("x", x), *(() if weights is None else (("weights", weights),)))
    x = arrays[0]
    _check_whole(x)
    plan = _Bins("whole", None, None, True, _whole("length", length))
    if weights is None:
        return _count_values("bincount", place, x, plan, out)
    return _sum_weights("bincount", place, x, arrays[1], plan, _DOUBLE, out)


# --- what a call launches ---------------------------------------------------------------------------------------------


def _count_values(op: str, place: ArrayPlace, x: Any, bins: _Bins, out: Any) -> Any:
    """Return the counts of `x`."""
    to = _target(op, place, out, bins, _COUNT, x)
    counts = to.written
    if bins.number == 0:
        return to.result
    x = _flat(place, x)
    values = _values(place, x)
    edges = counts if bins.edges is None else bins.edges
    result_edges = bins.result_edges if bins.policy == "even" else edges
    workspace = place.workspace(0)
    if x.dtype.itemsize == 1:
        job = byte_pass(values, bins.policy, edges.dtype)
        place.launch(
            job.kernel, job.config, x, edges, result_edges, counts, workspace, bins.number, not bins.has_edges, x.size
        )
    else:
        if not bins.has_edges:
            _launch_range(place, x, edges, bins.number)
        if bins.number > GATHERED:
            place.clear(counts)
        job = value_pass(values, bins.policy, edges.dtype, bins.number)
        layout = bins.number, job.table_at, job.own_edges, x.size
        place.launch(job.kernel, job.config, x, edges, result_edges, counts, workspace, *layout)
    return delivered(place, to)


def _values(place: ArrayPlace, x: Any) -> Values:
    return Values(x.dtype, None if x.flags.c_contiguous else x.ndim, x.size, place.device)


def _target(op: str, place: ArrayPlace, out: Any, bins: _Bins, dtype: np.dtype, *inputs: Any) -> Target:
    """Return the target of counts or sums, contiguous where kernels write."""
    edges = (bins.edges,) if bins.policy == "any" else ()
    return target(op, place, out, (bins.number,), dtype, *inputs, *edges, contiguous=True)


def _sum_weights(op: str, place: ArrayPlace, x: Any, weights: Any, bins: _Bins, dtype: np.dtype, out: Any) -> Any:
    """Return the sums of `weights` in each bin, in `dtype`."""
    _check_dtype(op, "weights", weights.dtype)
    if weights.shape != x.shape:
        raise ArgumentError(f"{op}: weights has shape {weights.shape}, x has {x.shape}; they go together one by one")
    to = _target(op, place, out, bins, dtype, x, weights)
    if bins.number == 0:
        return to.result
    if not bins.has_edges:
        _launch_range(place, _flat(place, x), bins.edges, bins.number)
    elif bins.policy == "even":
        place.copy(bins.edges, bins.result_edges)
    whole = weights.dtype.kind in "biu"
    sums = place.empty((1 if whole else 3, bins.number), _SUM)
    place.clear(sums)
    range = place.empty(2, _DOUBLE)
    if not whole:
        _launch_range(place, _flat(place, weights), range, 0)
    edges = range if bins.edges is None else bins.edges
    alone, (x, weights) = x, _together(place, x, weights)
    values = Values(x.dtype, None if x is alone else x.ndim, x.size, place.device)
    job, settle = weighing_passes(values, weights.dtype, bins.policy, edges.dtype, bins.number, dtype)
    place.launch(job.kernel, job.config, x, weights, edges, range, sums, bins.number, job.table_at, x.size)
    place.launch(settle.kernel, settle.config, sums, range, to.written, bins.number, x.size)
    return delivered(place, to)


def _launch_range(place: ArrayPlace, x: Any, edges: Any, bins: int) -> None:
    """Launch the kernel that writes even edges over the finite values of `x`; for no bins, their least and greatest."""
    job = range_pass(_values(place, x), edges.dtype)
    place.launch(job.kernel, job.config, x, edges, place.workspace(16 * job.config.grid[0]), bins, x.size)


def _greatest(x: Any, least: int, stream: Any) -> int:
    """Return max(x) + 1, or `least` if it is greater. Wait for the device.

    Raises
    ------
    ArgumentError
        A value is negative.
    """
    range = _range_of(x, stream=stream)
    if range is None:
        return least
    low, high = (int(value) for value in array_place("bincount", stream, ("x", range))[0].download(range))
    if low < 0:
        raise ArgumentError(f"bincount: x has a negative value, {low}; only 0 and above are counted")
    return _whole("the greatest value of x, and 1,", max(high + 1, least))


@repeated()
def _range_of(x: Any, *, stream: Any = None) -> Any:
    """Return the least and the greatest of an array of whole numbers. None for an empty array."""
    place, (x,) = array_place("bincount", stream, ("x", x))
    _check_whole(x)
    if x.size == 0:
        return None
    range = place.empty(2, x.dtype)
    _launch_range(place, _flat(place, x), range, 0)
    return range


# --- bins -------------------------------------------------------------------------------------------------------------


def _bins_of(place: ArrayPlace, dtype: np.dtype, bins: Any, range: tuple[float, float] | None) -> _Bins:
    """Return the bins that the arguments `bins` and `range` describe."""
    if isinstance(bins, list | tuple) or getattr(bins, "ndim", 0) > 0:
        return _bins_between(place, dtype, bins)
    count = _whole("bins", bins, 1, "histogram")
    edge = _DOUBLE if dtype.kind in "biu" else dtype
    if range is None:
        edges = place.empty(count + 1, edge)
        return _Bins("even", edges, edges, False, count)
    try:
        low, high = map(float, range)
    except (TypeError, ValueError):
        raise ArgumentError(f"histogram: range is {shortened(range)}, expected two numbers") from None
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ArgumentError(
            f"histogram: range is {shortened(range)}, expected two finite numbers, the first not the greater"
        )
    edges = place.keep(_even_edges(count, low, high, edge, place.device))
    return _Bins("even", edges, place.empty(count + 1, edge), True, count)


@functools.lru_cache(64)
def _even_edges(bins: int, low: float, high: float, dtype: np.dtype, device: int | str) -> Any:
    """Return even edges as NumPy computes them, uploaded to the device once."""
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, bins + 1, dtype=dtype)
    if isinstance(device, str):
        return edges
    import cupy

    # On a stream that nobody captures, and waited for: it will be read on any.
    with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as aside:
        uploaded = cupy.asarray(edges)
        aside.synchronize()
    return uploaded


def _bins_between(place: ArrayPlace, dtype: np.dtype, bins: Any) -> _Bins:
    """Return bins between the caller's edges, in the dtype in which values are compared."""
    if place.xp is not np and isinstance(bins, place.xp.ndarray):
        edges = bins
    else:
        try:
            host = np.asarray(bins)
        except ValueError as error:
            raise ArgumentError(f"histogram: bins are no array: {error}") from None
        if host.ndim == 1 and host.dtype.kind in "biuf" and not (host[:-1] <= host[1:]).all():
            raise ArgumentError("histogram: bins must be edges that ascend, none of them NaN")
        edges = place.upload(host) if host.dtype.kind in "biuf" else host
    if edges.ndim != 1 or edges.size < 2:
        raise ArgumentError(f"histogram: bins has shape {edges.shape}; edges are one-dimensional, two at least")
    _check_dtype("histogram", "bins", edges.dtype)
    try:
        common = np.result_type(dtype, edges.dtype)
    except TypeError:  # bfloat16 has no common dtype with some
        common = _DOUBLE
    return _Bins("any", place.contiguous(edges, compared(common)), edges, True, edges.size - 1)


# --- arguments and arrays ---------------------------------------------------------------------------------------------


def _check_dtype(op: str, name: str, dtype: np.dtype) -> None:
    if not (dtype.kind in "biu" or dtype.name in (*NARROW, "float32", "float64")):
        raise ArgumentError(f"{op}: {name} has dtype {dtype}, expected bool, integers or real floating point")


def _check_whole(x: Any) -> None:
    if x.dtype.kind not in "biu":
        raise ArgumentError(f"bincount: x has dtype {x.dtype}, expected whole numbers; convert it, or use histogram")


def _whole(name: str, value: Any, least: int = 0, op: str = "bincount") -> int:
    """Return `value` as an int of at least `least`, for the argument `name`.

    Raises
    ------
    ArgumentError
        The value is no whole number, is less than `least`, or is too large.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not least <= number < _MOST_BINS:
        raise ArgumentError(
            f"{op}: {name} is {shortened(value)}, expected a whole number from {least} to {_MOST_BINS - 1}"
        )
    return number


def _flat(place: ArrayPlace, x: Any) -> Any:
    """Return a view of `x` in few dimensions, with its elements in the order of memory."""
    if x.flags.c_contiguous:
        return x
    steps = x.strides
    x = x.transpose(sorted(range(x.ndim), key=lambda d: -abs(steps[d])))
    x = x[tuple(slice(None, None, -1 if step < 0 else 1) for step in x.strides)]
    return x if x.flags.c_contiguous else _together(place, x)[0]


def _together(place: ArrayPlace, *arrays: Any) -> tuple[Any, ...]:
    """Return arrays of one shape with their dimensions merged, or unchanged if all are C-contiguous."""
    if all(array.flags.c_contiguous for array in arrays):
        return arrays
    shape, *strides = merged(arrays[0].shape, *map(element_strides, arrays))
    return tuple(
        place.xp.lib.stride_tricks.as_strided(array, shape, [step * array.dtype.itemsize for step in steps])
        for array, steps in zip(arrays, strides, strict=True)
    )
