"""The outputs of a call of a generated function: told apart from inputs, checked, or made."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.output import Casting, checked_output
from cudakit.arrays.place import ArrayPlace
from cudakit.errors import ArgumentError
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise_plan import Layout
from cudakit.generate.gather import Function
from cudakit.generate.promotion import check_dtype


def split(recipe: Function, args: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs, and an array or None for each output."""
    inputs, outputs = len(recipe.inputs), len(recipe.outputs)
    if len(args) == inputs + outputs and out is None:
        return args[:inputs], args[inputs:]
    if len(args) != inputs:
        names = ", ".join(p.name for p in recipe.inputs)
        more = f" (or {inputs + outputs}, with the outputs)" if out is None else ""
        raise ArgumentError(f"{recipe.name} takes {inputs} inputs{more}: {names}; got {len(args)}")
    return args, outs_of(recipe, out)


def outs_of(of: Function, out: Any) -> tuple[Any, ...]:
    """An array or None for each output.

    Raises
    ------
    ArgumentError
    """
    if out is None:
        return (None,) * len(of.outputs)
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(of.outputs):
        names = ", ".join(p.name for p in of.outputs)
        raise ArgumentError(f"{of.name} has {len(of.outputs)} outputs ({names}); out has {len(outs)}")
    return outs


def checked(
    op: str,
    p: Parameter,
    place: ArrayPlace,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    casting: Casting = "safe",
) -> Any:
    """An output array of a function from an expression, as an array of the place; a raw one is of any shape.

    Raises
    ------
    ArgumentError
        As for `checked_output`; also for a raw one of another dtype, which is not converted.
    """
    own = getattr(out, "dtype", dtype)
    if own != dtype:
        check_dtype(op, "out", own)
    if p.raw:
        casting, shape = "no", getattr(out, "shape", ())
    return checked_output(op, place, out, shape, dtype, casting)


def new_result(place: ArrayPlace, p: Parameter, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A new array for an output; a raw one is 0 where the body does not set it."""
    made = place.empty(shape, dtype)
    if p.raw:
        place.clear(made)
    return made


def layout_of(array: Any) -> Layout:
    """What decides how an array is walked."""
    return Layout(array.dtype, array.shape, array.strides)
