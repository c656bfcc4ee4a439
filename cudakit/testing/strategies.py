"""Hypothesis strategies for dtypes, shapes, values, arrays and launch shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from cudakit.errors import ArgumentError, shortened
from cudakit.jit.load.config import Config, config
from cudakit.types.checked import dtype_of, flag, listed, whole

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

#: Sizes at which kernels go wrong: none, one, and around a warp and a block.
_SIZES = (0, 1, 2, 31, 32, 33, 127, 128, 129, 255, 256, 257, 1000)
_DTYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
_MOST_THREADS = 1024


class _Hypothesis(NamedTuple):
    """Modules of hypothesis that the strategies use."""

    st: Any
    numpy: Any


def _hypothesis() -> _Hypothesis:
    """Import hypothesis, which only users of the strategies need.

    Raises
    ------
    ModuleNotFoundError
        If hypothesis is not installed.
    """
    try:
        from hypothesis import strategies
        from hypothesis.extra import numpy as of_numpy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "cudakit.testing draws from hypothesis, which is not installed: pip install hypothesis", name=error.name
        ) from error
    return _Hypothesis(strategies, of_numpy)


def dtypes(among: Sequence[DTypeLike] = _DTYPES) -> SearchStrategy[np.dtype]:
    """Draw one of several dtypes. Default: integers and floats of all sizes."""
    return _hypothesis().st.sampled_from(
        [
            dtype_of("testing.dtypes: each of among", item)
            for item in listed("testing.dtypes: among are several dtypes", among)
        ]
    )


def shapes(
    least_dims: int = 1, most_dims: int = 3, most_elements: int = 4096, least_side: int = 0
) -> SearchStrategy[tuple[int, ...]]:
    """Draw shapes whose sides are 0, 1, near the size of a warp or a block, or any number between.

    Parameters
    ----------
    least_dims, most_dims : int
        Bounds of the number of dimensions.
    most_elements : int
        Largest number of elements of the whole array.
    least_side : int
        Smallest side. 1 excludes empty arrays.
    """
    least_dims = whole("testing.shapes: least_dims", least_dims)
    most_dims = whole("testing.shapes: most_dims", most_dims, least_dims)
    least_side = whole("testing.shapes: least_side", least_side)
    most_elements = whole("testing.shapes: most_elements", most_elements, least_side)
    st = _hypothesis().st
    sides = [size for size in _SIZES if least_side <= size <= most_elements]
    side = st.sampled_from(sides) | st.integers(least_side, max(least_side, min(300, most_elements)))
    lists = st.lists(side, min_size=least_dims, max_size=most_dims).map(tuple)
    return lists.filter(lambda shape: int(np.prod(shape, dtype=np.int64)) <= most_elements)


def values(dtype: DTypeLike, finite: bool = False) -> SearchStrategy[Any]:
    """Draw values of a dtype. Frequent are its extremes, and for floats NaN, infinities, zeros and subnormal numbers.

    Parameters
    ----------
    dtype : dtype
        Dtype of the values.
    finite : bool
        Whether to leave out NaN and infinities.
    """
    finite = flag("testing.values: finite", finite)
    st, of_numpy = _hypothesis()
    of = dtype_of("testing.values: dtype", dtype)
    usual: SearchStrategy[Any] = of_numpy.from_dtype(
        of, **({"allow_nan": not finite, "allow_infinity": not finite} if of.kind == "f" else {})
    )
    if of.kind == "f":
        limits = np.finfo(of)
        small = limits.smallest_subnormal
        special = [0.0, -0.0, 1.0, -1.0, limits.tiny, small, -small, limits.max, limits.min]
        special += [] if finite else [np.nan, np.inf, -np.inf]
        return st.sampled_from([of.type(value) for value in special]) | usual
    if of.kind in "iu":
        edges = sorted({0, 1, int(np.iinfo(of).min), int(np.iinfo(of).max)})
        return st.sampled_from([of.type(edge) for edge in edges]) | usual
    return usual


def arrays(
    dtype: DTypeLike | Sequence[DTypeLike] | SearchStrategy[np.dtype] = _DTYPES,
    shape: tuple[int, ...] | SearchStrategy[tuple[int, ...]] | None = None,
    strided: bool = False,
    finite: bool = False,
) -> SearchStrategy[np.ndarray]:
    """Draw NumPy arrays.

    Parameters
    ----------
    dtype : dtype, sequence of dtype, or strategy
        Dtype of the arrays, or dtypes to draw from.
    shape : tuple or strategy, optional
        Shape of the arrays. Default: drawn from `shapes`.
    strided : bool
        Whether to draw views too: with steps, reversed, with axes in another order, or with an offset.
    finite : bool
        Whether to leave out NaN and infinities.

    Raises
    ------
    ArgumentError
        If `shape` is neither a tuple nor a strategy.
    """
    strided, finite = flag("testing.arrays: strided", strided), flag("testing.arrays: finite", finite)
    st, of_numpy = _hypothesis()
    if isinstance(dtype, Sequence) and not isinstance(dtype, str):
        dtype_strategy = dtypes(dtype)
    else:
        dtype_strategy = (
            dtype if isinstance(dtype, st.SearchStrategy) else st.just(dtype_of("testing.arrays: dtype", dtype))
        )
    if shape is not None and not isinstance(shape, tuple | st.SearchStrategy):
        raise ArgumentError(f"testing.arrays: shape is a tuple or a strategy for tuples, got {shortened(shape)}")
    extents = shapes() if shape is None else st.just(shape) if isinstance(shape, tuple) else shape

    def drawn(draw: DrawFn) -> Any:
        of, sides = draw(dtype_strategy), draw(extents)
        elements = values(of, finite)
        if not strided:
            return draw(of_numpy.arrays(of, sides, elements=elements, fill=elements))
        order = draw(st.permutations(range(len(sides))))
        steps = [draw(st.sampled_from((1, 1, 2, 3, -1, -2))) for _ in sides]
        skipped = [draw(st.integers(0, 2)) for _ in sides]
        lengths = [
            skip + max(0, side - 1) * abs(step) + 1 for side, step, skip in zip(sides, steps, skipped, strict=True)
        ]
        memory = of_numpy.arrays(of, tuple(lengths[axis] for axis in order), elements=elements, fill=elements)
        view = draw(memory).transpose(np.argsort(order)) if order else draw(memory)
        view = view[tuple(slice(skip, None) for skip in skipped)][tuple(slice(None, None, step) for step in steps)]
        return view[tuple(slice(0, side) for side in sides)]

    return st.composite(drawn)()


def configs(most_blocks: int = 64, dims: int = 1, threads: Sequence[int] = ()) -> SearchStrategy[Config]:
    """Draw launch shapes: grids and blocks of all sizes, with whole and with partial warps.

    Parameters
    ----------
    most_blocks : int
        Largest number of blocks.
    dims : int
        Number of dimensions of grid and block, 1 to 3.
    threads : sequence of int
        Numbers of threads of a block to choose from. Default: any number up to 1,024.
    """
    if whole("testing.configs: dims", dims, 1) > 3:
        raise ArgumentError(f"testing.configs: dims is 1, 2 or 3, got {shortened(dims)}")
    whole("testing.configs: most_blocks", most_blocks, 1)
    threads = [
        whole("testing.configs: each of threads", item, 1)
        for item in listed("testing.configs: threads are several numbers", threads)
    ]
    st = _hypothesis().st
    if threads and max(threads) > _MOST_THREADS:
        raise ArgumentError(f"testing.configs: a block has {_MOST_THREADS} threads at most, got {max(threads)}")
    usual = [size for size in (1, 31, 32, 33, 64, 96, 128, 256, 1024) if size <= _MOST_THREADS]
    size = st.sampled_from(threads) if threads else st.sampled_from(usual) | st.integers(1, _MOST_THREADS)

    def spread(count: int, among: tuple[int, ...]) -> tuple[int, ...]:
        """Return factors whose product is `count`: the remaining factor, then one for each number of `among`.

        Each factor but the first is the largest divisor of what remains that is not above its number in `among`.
        """
        factors, rest = [], count
        for limit in among:
            side = next(divisor for divisor in range(min(limit, rest), 0, -1) if rest % divisor == 0)
            factors.append(side)
            rest //= side
        return (rest, *factors)

    sides = st.tuples(*[st.integers(1, 32)] * (dims - 1))
    grid = st.builds(spread, st.integers(1, most_blocks), sides)
    block = st.builds(spread, size, sides)
    return st.builds(config, grid, block)
