"""Arrays joined."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.arrays.layout import axis_of, flat, is_row_major, merged, one_axis, record, steps_of
from cudakit.arrays.output import Casting, as_dtype, target
from cudakit.arrays.place import array_place
from cudakit.arrays.repeated import repeated
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.cast import cast
from cudakit.ops.delivery import delivered
from cudakit.ops.move_plan import word_of
from cudakit.ops.transpose import copy
from cudakit.types.checked import CASTINGS, is_one_of

_ITEMS, _BLOCK, _PACK = 4, 256, 16
#: Arrays that one launch takes; more are joined by several.
_MOST = 64
#: Dtype, shape and strides of an array.
_Kind: TypeAlias = tuple[np.dtype, tuple[int, ...], tuple[int, ...]]


class _Piece(NamedTuple):
    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]
    chosen: slice
    nulls: int


class _Joining(NamedTuple):
    """What a call of one kind does: arrays to be made C-contiguous first, views of others, and the launches."""

    shape: tuple[int, ...]
    dtype: np.dtype
    copied: tuple[int, ...]
    views: tuple[tuple[int, int], ...]
    launches: tuple[_Piece, ...]


@repeated("out")
def concatenate(
    arrays: Sequence[Any],
    axis: int | None = 0,
    *,
    dtype: Any = None,
    casting: Casting = "same_kind",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """out[…, n₀ + … + n_{j−1} + k, …] = arrays[j][…, k, …] along the axis.

    Parameters
    ----------
    arrays : sequence of array
        One at least; of the same shape but along the axis; any strides; elements of 1, 2, 4, 8 or 16 bytes. Arrays of
        different dtypes must be numbers, which are converted first.
    axis : int, optional
        None: each is taken as one dimension.
    dtype : dtype, optional
        Of the result; not beside `out`.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        How the arrays may be cast to it, or the result to an `out`.
    out : array, optional
        Of the result's shape, and its dtype or one that it is cast to within its kind; any strides.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.

    Returns
    -------
    array
        C-contiguous, of the dtype that NumPy promotes all to (``numpy.result_type``).

    Raises
    ------
    ArgumentError

    Notes
    -----
    One kernel joins up to 64 arrays. An array of which the dimensions before the axis, or those from it on, cannot be
    merged to one is copied by another kernel first.
    """
    if not isinstance(arrays, list | tuple) or not arrays:
        raise ArgumentError(
            f"concatenate: arrays must be a list or tuple of arrays, one at least, got {shortened(arrays)}"
        )
    place, given = array_place("concatenate", stream, *[(f"arrays[{j}]", each) for j, each in enumerate(arrays)])
    if dtype is not None and out is not None:
        raise ArgumentError("concatenate: dtype is out's; give one of the two")
    wanted = None if dtype is None else as_dtype("concatenate", dtype)
    if not is_one_of(casting, CASTINGS):
        raise ArgumentError(f"concatenate: casting is {shortened(casting)}; there are {', '.join(CASTINGS)}")
    job = _job(
        tuple([(each.dtype, each.shape, each.strides) for each in given]),
        one_axis("concatenate", axis),
        wanted,
        casting,
    )
    to = target("concatenate", place, out, job.shape, job.dtype, *given, casting=casting, contiguous=True)
    for j in job.copied:
        same = given[j].dtype == job.dtype
        given[j] = copy(given[j], stream=place.stream) if same else cast(given[j], job.dtype, stream=place.stream)
    for j, count in job.views:
        given[j] = flat(given[j], 0, count)
    for kernel, shape, numbers, chosen, nulls in job.launches:
        place.launch(kernel, shape, to.written, *numbers, *given[chosen], *[None] * nulls)
    return delivered(place, to)


@functools.lru_cache(4096)
def _job(kinds: tuple[_Kind, ...], axis: int | None, wanted: np.dtype | None, casting: Casting) -> _Joining:
    try:
        dtype = np.result_type(*[kind[0] for kind in kinds]) if wanted is None else wanted
    except TypeError as error:
        raise ArgumentError(f"concatenate: {error}") from None
    for j, (own, _, _) in enumerate(kinds):
        if wanted is not None and not np.can_cast(own, wanted, casting):
            raise ArgumentError(
                f"concatenate: arrays[{j}] is of {own}, which casting={shortened(casting)} does not take to {wanted}"
            )
    word = word_of("concatenate", dtype)
    ndim = len(kinds[0][1])
    if axis is not None and ndim == 0:
        raise ArgumentError("concatenate: arrays of no dimensions have no axis; give axis=None")
    along = 0 if axis is None else axis_of("concatenate", axis, ndim)
    columns, rows, sizes, copied, views = [], [], [], [], []
    shape = kinds[0][1]
    for j, (own, extents, strides) in enumerate(kinds):
        if axis is not None and not _fits(shape, extents, along):
            raise ArgumentError(
                f"concatenate: arrays[0] has shape {shape} and arrays[{j}] {extents}; only axis {along} may differ"
            )
        steps = steps_of("concatenate", own, strides)
        across = prod(extents[along:]) if axis is not None else prod(extents)
        step = _row_step(extents, steps, along)
        if own != dtype or (step is None and not is_row_major(extents, steps)):
            copied.append(j)
            step = None
        columns.append(across)
        rows.append(across if step is None else step)
        before = prod(extents[:along])
        sizes.append((before - 1) * rows[-1] + across if before * across else 0)
        if j not in copied and not is_row_major(extents, steps):
            views.append((j, sizes[-1]))
    lengths = [extents[along] if axis is not None else prod(extents) for _, extents, _ in kinds]
    result = (sum(lengths),) if axis is None else (*shape[:along], sum(lengths), *shape[along + 1 :])
    height = 1 if axis is None else prod(shape[:along])
    launches = tuple(
        _launch(word, dtype, height, columns, rows, sizes, slice(first, min(first + _MOST, len(kinds))))
        for first in range(0, len(kinds), _MOST)
        if height * sum(columns[first : first + _MOST])
    )
    return _Joining(result, dtype, tuple(copied), tuple(views), launches)


def _fits(shape: tuple[int, ...], other: tuple[int, ...], along: int) -> bool:
    return len(shape) == len(other) and all(
        n == m for d, (n, m) in enumerate(zip(shape, other, strict=True)) if d != along
    )


def _row_step(shape: tuple[int, ...], steps: tuple[int, ...], along: int) -> int | None:
    """Step from row to row, the axis and those after it being the columns; None where there is no such step."""
    if not is_row_major(shape[along:], steps[along:]):
        return None
    (_, outer) = merged(shape[:along], steps[:along])
    if len(outer) > 1 or min((*outer, 0)) < 0:
        return None
    return outer[0] if outer else prod(shape[along:])


def _launch(
    word: str, dtype: np.dtype, height: int, columns: list[int], rows: list[int], sizes: list[int], chosen: slice
) -> _Piece:
    own = columns[chosen]
    count = 1 << (len(own) - 1).bit_length()
    nulls = count - len(own)
    starts = [0, *np.cumsum(own).tolist(), *[sum(own)] * nulls]
    layout = record(start=starts, step=rows[chosen] + [0] * nulls, size=sizes[chosen] + [0] * nulls)
    size = height * sum(own)
    index = "unsigned int" if size < 2**32 - _PACK else "unsigned long long"
    names = {"W": word, "N": count, "Index": index, "ITEMS": _ITEMS, "BLOCK": _BLOCK, "X": ("void",) * count}
    kernel = Kernel.from_template("concatenate/joined")[names]
    numbers = (sum(columns[: chosen.start]), sum(columns), size, layout)
    return _Piece(
        kernel, config(-(-size * dtype.itemsize // (_PACK * _BLOCK * _ITEMS)), _BLOCK), numbers, chosen, nulls
    )
