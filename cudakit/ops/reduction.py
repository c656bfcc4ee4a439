"""Reductions by name: a packaged reducer combines the elements. The rest is as for reductions from expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, integers, without
from cudakit.arrays.output import as_number, check_holds, target
from cudakit.arrays.place import array_place, multiprocessors_of
from cudakit.arrays.plans import Job, ReductionTask, array_of, plan_reduction, views_or_none
from cudakit.arrays.tunable import planned
from cudakit.errors import ArgumentError
from cudakit.generate.ufuncs import Ufunc
from cudakit.kernel.kernel import Kernel
from cudakit.ops.copies import delivered
from cudakit.types.checked import flag

#: Reductions whose tuned points are those of another one, which does the same with other numbers.
_LIKE = {"prod": "sum", "mean": "sum", "min": "max", "argmin": "argmax", "all": "any"}


class Reducer(NamedTuple):
    """A packaged reducer, which combines elements.

    Attributes
    ----------
    name : str
        Name of a reducer of ``<cudakit/reduce/reducer.cuh>``.
    dtype : numpy.dtype
        Dtype of the result.
    state_bytes : int
        Size of the reducer's State in bytes.
    ddof : float
        Delta degrees of freedom: the divisor is n − ddof.
    empty : bool
        Whether a reduction of no elements has a result.
    in_order : bool
        Whether elements are numbered as in NumPy, for results that are indices.
    """

    name: str
    dtype: np.dtype
    state_bytes: int
    ddof: float = 0.0
    empty: bool = True
    in_order: bool = False

    def chosen(self) -> Reducer:
        """Return a reducer like this one that combines only the elements that a mask selects."""
        # Its count is aligned as the state before it is, to 16 bytes at most.
        state_bytes = self.state_bytes + (16 if self.state_bytes % 16 == 0 else 8)
        return self._replace(name=f"cudakit::chosen<{self.name}>", state_bytes=-(-state_bytes // 8) * 8)


def _check_mask(op: str, layout: tuple[Any, ...], shape: tuple[int, ...]) -> None:
    dtype, extents, _ = layout
    if dtype != np.bool_:
        raise ArgumentError(f"{op}: where is of {dtype}; it must be of bool, as x > 0 is")
    try:
        fits = np.broadcast_shapes(extents, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(f"{op}: where has shape {extents}, which is not broadcast to x's {shape}")


class NamedReduction:
    """A reduction of one array, or of two vectors together.

    Parameters
    ----------
    op : str
        Name of the op in messages.
    choose : callable
        Function ``choose(op, option, *dtypes)``, which returns the `Reducer` for inputs of these dtypes. It is
        called once for each `option`.
    inputs : tuple of str
        Names of the inputs.
    combine : Ufunc or None
        Function that combines the result with an initial value. None: the op takes no initial value.
    """

    def __init__(
        self, op: str, choose: Callable[..., Reducer], inputs: tuple[str, ...] = ("x",), combine: Ufunc | None = None
    ) -> None:
        self._op, self._choose, self._inputs, self._combine = op, choose, inputs, combine
        self._job_of = planned(4096)(self._job)

    def __call__(
        self,
        args: Sequence[Any],
        axis: Axis,
        keepdims: bool,
        out: Any,
        stream: Any,
        option: Any = None,
        where: Any = None,
        initial: Any = None,
    ) -> Any:
        masks = () if where is None or where is True else (("where", where),)
        place, arrays = array_place(self._op, stream, *zip(self._inputs, args, strict=True), *masks)
        if axis is not None and axis.__class__ is not int:
            axis = integers(self._op, "axis", axis)
        if keepdims.__class__ is not bool:
            keepdims = flag(f"{self._op}: keepdims", keepdims)
        layouts = tuple([(x.dtype, x.shape, x.strides) for x in arrays])
        job = self._job_of(layouts, axis, keepdims, option, initial is not None, place.device)
        to = target(self._op, place, out, job.shape, job.dtypes[0], *arrays, most=job.most, contiguous=True)
        if job.kernel is not None:
            workspace = place.workspace(job.scratch_bytes) if job.scratch_bytes else None
            place.launch(job.kernel, job.config, *job.operands(arrays), to.written, workspace, *job.numbers)
        if initial is not None:
            assert self._combine is not None  # of all ops that take an initial value
            first = as_number(self._op, "initial", initial, job.dtypes[0])
            self._combine(first, to.written, out=to.written, stream=place.stream)
        return delivered(place, to)

    def _job(
        self, layouts: tuple[Any, ...], axis: Axis, keepdims: bool, option: Any, starts: bool, device: int | str
    ) -> Job:
        op, shape = self._op, layouts[0][1]
        masked = len(layouts) > len(self._inputs)
        if masked:
            _check_mask(op, layouts[-1], shape)
        elif len(layouts) > 1 and (len(shape) != 1 or layouts[1][1] != shape):
            raise ArgumentError(
                f"{op}: x has shape {shape} and y {layouts[1][1]}; it takes two vectors of one length (ck.ops.matmul "
                "has the others)"
            )
        axes = axes_of(op, axis, len(shape))
        for name, (dtype, extents, strides) in zip(self._inputs, layouts, strict=False):
            if any(extent > 1 and step % dtype.itemsize for extent, step in zip(extents, strides, strict=True)):
                raise ArgumentError(
                    f"{op}: {name} has strides {strides} in bytes, not whole elements of {dtype}; copy it"
                )
        dtypes = [dtype for dtype, _, _ in layouts]
        reducer = self._choose(op, option, *dtypes[: len(self._inputs)])
        if masked:
            reducer = reducer.chosen()
        target, length = without(shape, axes, keepdims), prod(shape[d] for d in axes)
        if masked and not reducer.empty and not starts:
            raise ArgumentError(f"{op}: where may leave no elements, of which {op} is undefined; give initial=")
        if length == 0 and not (reducer.empty or starts):
            raise ArgumentError(
                f"{op}: x has shape {shape}: no elements along axis {axis}; {op} of nothing is undefined"
            )
        most = max(length - 1, 0) if reducer.in_order else None
        if most is not None:
            check_holds(op, "dtype", reducer.dtype, most)
        if prod(target) == 0:
            return Job(target, (reducer.dtype,), most=most)
        arrays = [array_of(op, layout, shape) for layout in layouts]
        form = f"{_LIKE.get(op, op)} {', '.join(map(str, dtypes))}"
        tuned = form, prod(shape), device
        task = ReductionTask(arrays, reducer.state_bytes, multiprocessors_of(device), 8, tuned=tuned)
        launch = plan_reduction(task, shape, axes, reducer.in_order)
        name = "reduced" if len(layouts) == 1 else "reduced_together"
        kernel = Kernel.from_template(f"reduce/{name}")[(*dtypes, reducer.dtype, reducer.name, launch.how)]
        numbers = launch.layout, reducer.ddof if masked else max(length - reducer.ddof, 0.0)
        views = views_or_none([array.view for array in arrays])
        return Job(target, (reducer.dtype,), kernel, launch.config, launch.scratch_bytes, numbers, views, most=most)
