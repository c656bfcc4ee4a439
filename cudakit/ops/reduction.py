"""Reductions by name: what becomes of the elements is a packaged reducer, all else is as for those from expressions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.function import ArrayFunction
from cudakit.arrays.job import Job, views_or_none
from cudakit.arrays.layout import Axis, axes_of, integers, without
from cudakit.arrays.made import Calls, Launched, tell
from cudakit.arrays.place import multiprocessors_of, output, place_of
from cudakit.arrays.reduction_plan import ReductionTask, array_of, plan
from cudakit.errors import ArgumentError
from cudakit.kernel.kernel import Kernel


class Reducer(NamedTuple):
    """What becomes of the elements.

    Attributes
    ----------
    name : str
        A reducer of ``<cudakit/reduce/reducer.cuh>``.
    dtype : numpy.dtype
        Of the result.
    state_bytes : int
        Size of the reducer's State.
    ddof : float
        What the number of elements is lessened by, for the divisor.
    empty : bool
        Whether no elements have a result.
    in_order : bool
        Whether elements must be numbered as NumPy numbers them.
    """

    name: str
    dtype: np.dtype
    state_bytes: int
    ddof: float = 0.0
    empty: bool = True
    in_order: bool = False


class NamedReduction(ArrayFunction):
    """A reduction of one array, or of two vectors together.

    Parameters
    ----------
    op : str
        Its name.
    choose : callable
        ``choose(op, option, *dtypes)``: the `Reducer` for inputs of these dtypes. Called once for each `option`.
    inputs : tuple of str
        Names of the inputs.
    """

    _OPTIONS = MappingProxyType({"axis": None, "keepdims": False, "option": None})

    op: str
    choose: Callable[..., Reducer]
    inputs: tuple[str, ...]

    def __new__(cls, op: str, choose: Callable[..., Reducer], inputs: tuple[str, ...] = ("x",)) -> Self:
        return super().__new__(cls, len(inputs), op=op, choose=choose, inputs=inputs)

    def ordinary(
        self, args: tuple[Any, ...], out: Any, stream: Any, calls: Calls, axis: Axis, keepdims: bool, option: Any
    ) -> Any:
        place, arrays = place_of(self.op, stream, *zip(self.inputs, args, strict=True))
        same = (("axis", axis), ("keepdims", keepdims), ("option", option))
        if axis is not None and axis.__class__ is not int:
            axis = integers(self.op, "axis", axis)
        kinds = tuple([(x.dtype, x.shape, x.strides) for x in arrays])
        key = kinds, axis, keepdims, option, place.device
        job = self._job_of(key, *key)
        result = output(self.op, place, out, job.shape, job.dtypes[0], *arrays)
        if job.kernel is not None:
            workspace = place.workspace(job.scratch_bytes) if job.scratch_bytes else None
            passed = (*job.seen(arrays), result, workspace, *job.numbers)
            job.kernel(place.stream, job.config, *passed)
            if stream is None:
                launched, outs = Launched(job.kernel, job.config, passed), None if out is None else (out,)
                tell(calls, id(job), launched, args, place, arrays, outs, [result], same)
        return result

    def _job(self, kinds: tuple[Any, ...], axis: Axis, keepdims: bool, option: Any, device: int | str) -> Job:
        op, shape = self.op, kinds[0][1]
        if len(kinds) > 1 and (len(shape) != 1 or kinds[1][1] != shape):
            raise ArgumentError(
                f"{op}: x has shape {shape} and y {kinds[1][1]}; it takes two vectors of one length (cupy.matmul has "
                "the others)"
            )
        axes = axes_of(op, axis, len(shape))
        for name, (dtype, extents, strides) in zip(self.inputs, kinds, strict=True):
            if any(extent > 1 and step % dtype.itemsize for extent, step in zip(extents, strides, strict=True)):
                raise ArgumentError(
                    f"{op}: {name} has strides {strides} in bytes, not whole elements of {dtype}; copy it"
                )
        dtypes = [dtype for dtype, _, _ in kinds]
        reducer = self.choose(op, option, *dtypes)
        target, length = without(shape, axes, keepdims), prod(shape[d] for d in axes)
        if length == 0 and not reducer.empty:
            raise ArgumentError(
                f"{op}: x has shape {shape}: no elements along axis {axis}; {op} of nothing is undefined"
            )
        if prod(target) == 0:
            return Job(target, (reducer.dtype,))
        arrays = [array_of(op, kind, shape) for kind in kinds]
        task = ReductionTask(arrays, reducer.state_bytes, multiprocessors_of(device), 8)
        launch = plan(task, shape, axes, reducer.in_order)
        name = "reduced" if len(kinds) == 1 else "reduced_together"
        kernel = Kernel.from_template(f"reduce/{name}")[(*dtypes, reducer.dtype, reducer.name, launch.how)]
        numbers = launch.layout, max(length - reducer.ddof, 0.0)
        views = views_or_none([array.view for array in arrays])
        return Job(target, (reducer.dtype,), kernel, launch.config, launch.scratch_bytes, numbers, views)
