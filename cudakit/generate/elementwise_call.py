"""The arguments of a call of an elementwise function: told apart, put in one place, checked, and given outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.arrays.output import Casting, check_apart, checked_output
from cudakit.arrays.place import ArrayPlace, array_place
from cudakit.errors import ArgumentError
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.generate.elementwise_plan import Layout
from cudakit.generate.promotion import check_dtype
from cudakit.generate.stencil_code import StencilRecipe
from cudakit.places import DEVICES, default_place, place_of
from cudakit.types import structs
from cudakit.types.arguments import texture_handle


def split(
    recipe: ElementwiseRecipe | StencilRecipe, args: tuple[Any, ...], out: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs, and an array or None for each output."""
    inputs, outputs = len(recipe.inputs), len(recipe.outputs)
    if len(args) == inputs + outputs and out is None:
        return args[:inputs], args[inputs:]
    if len(args) != inputs:
        names = ", ".join(p.name for p in recipe.inputs)
        more = f" (or {inputs + outputs}, with the outputs)" if out is None else ""
        raise ArgumentError(f"{recipe.name} takes {inputs} inputs{more}: {names}; got {len(args)}")
    if out is None:
        return args, (None,) * outputs
    if not isinstance(out, tuple):
        out = (out,)
    if len(out) != outputs:
        names = ", ".join(p.name for p in recipe.outputs)
        raise ArgumentError(f"{recipe.name} has {outputs} outputs ({names}); out has {len(out)}")
    return args, out


def is_array(op: str, p: Parameter, value: Any) -> bool:
    """Whether an argument is an array, rather than a number, a struct or a texture that goes by value."""
    kind: Any = type(value)
    is_value = isinstance(value, bool | int | float | complex | np.generic) or structs.is_struct_type(kind)
    is_value = is_value or texture_handle(value) is not None
    if is_value or kind.__module__ == "ml_dtypes" or (isinstance(value, np.ndarray) and _is_record(value)):
        if p.raw:
            raise ArgumentError(f"{op}: {p.name} is raw and takes an array, got {kind.__name__}")
        return False
    return True


def results_of(
    recipe: ElementwiseRecipe,
    place: ArrayPlace,
    outs: list[Any],
    shape: tuple[int, ...],
    types: dict[str, np.dtype],
    is_told: bool,
    casting: Casting,
) -> list[Any]:
    """The output arrays: those given, once checked, or new ones; raw ones if the shape `is_told` by what is not raw."""
    results: list[Any] = []
    for p, out in zip(recipe.outputs, outs, strict=True):
        dtype = types.get(p.type, p.dtype)
        assert dtype is not None  # deduced, or declared
        if out is not None:
            results.append(checked(recipe.name, p, place, out, shape, dtype, casting))
            continue
        if p.raw and not is_told:
            raise ArgumentError(
                f"{recipe.name}, output {p.name}: it is raw, so its size is not known; give out=, or size="
            )
        results.append(new_result(place, p, shape, dtype))
    check_apart(recipe.name, outs)
    return results


def checked(
    name: str,
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
    op, own = f"{name}, output {p.name}", getattr(out, "dtype", dtype)
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


def _is_record(value: np.ndarray) -> bool:
    """Whether a NumPy array is a struct by value."""
    return value.shape == () and value.dtype.names is not None


def layout_of(array: Any) -> Layout:
    """What decides how an array is walked."""
    return Layout(array.dtype, array.shape, array.strides)


def place_for(op: str, stream: Any, named: list[tuple[str, Any]]) -> tuple[ArrayPlace, list[Any]]:
    """Where a call runs; without any array, where its stream is."""
    if named:
        return array_place(op, stream, *named)
    if (default_place() if stream is None else place_of(stream)) is not DEVICES:
        return array_place(op, stream, ("", np.empty(0)))[0], []
    import cupy

    return array_place(op, stream, ("", cupy.empty(0)))[0], []
