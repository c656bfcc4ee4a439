"""Calls of generated functions: dtypes deduced (NEP 50), arguments on one execution place, outputs checked or
allocated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import integers
from cudakit.arrays.output import Casting, can_cast, checked_output, overlaps
from cudakit.arrays.place import ArrayPlace, array_place, as_array
from cudakit.arrays.repeated import ArrayFunction
from cudakit.errors import ArgumentError, CompileError, shortened
from cudakit.generate.declarations import Declared, Parameter, explained
from cudakit.jit.specialise.options import CompileOptions, options_of
from cudakit.places import default_place, place_of
from cudakit.types import structs
from cudakit.types.arguments import texture_handle
from cudakit.types.cpp import spelling

_WEAK = (bool, int, float, complex)


def dtype_of(op: str, name: str, value: Any) -> np.dtype | type:
    """Return the dtype of an array, a NumPy scalar or a struct, or the class of a Python number.

    The dtype of a texture or surface object is the dtype of its handle.

    Raises
    ------
    ArgumentError
        The value is no array, number or struct.
    """
    value_type = type(value)
    if value_type in _WEAK:
        return value_type
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, np.dtype):
        return dtype
    if isinstance(value, _WEAK):
        return next(weak for weak in _WEAK if isinstance(value, weak))
    as_type: Any = value_type
    if structs.is_struct_type(as_type):
        return structs.struct_dtype(as_type)
    if value_type.__module__ == "ml_dtypes":
        return np.dtype(value_type)
    if texture_handle(value) is not None:
        return np.dtype("u8")
    raise ArgumentError(f"{op}: {name} is {value_type.__name__}, neither an array nor a number nor a struct")


def check_dtype(op: str, name: str, dtype: np.dtype) -> None:
    """Raise if no C++ type corresponds to a dtype.

    Raises
    ------
    ArgumentError
        No C++ type corresponds to the dtype.
    """
    if dtype.names is None and spelling(dtype) is None:
        hint = "; it is not in native byte order" if not dtype.isnative else ""
        raise ArgumentError(f"{op}: {name} is of {dtype}, which has no C++ equivalent{hint}")


def promoted(op: str, variable: str, types: Sequence[tuple[str, np.dtype | type]]) -> np.dtype:
    """Return NumPy's common dtype of several types. Python numbers, represented by their classes, are weak.

    Parameters
    ----------
    op, variable : str
        Names of the op and of the type variable, for messages.
    types : sequence of (str, dtype or class)
        Name of each argument, and its type as `dtype_of` returned it.

    Raises
    ------
    ArgumentError
        The dtypes have no common dtype. The message names the arguments.
    """
    dtypes = [operand_type for _, operand_type in types if isinstance(operand_type, np.dtype)]
    weak = [operand_type for _, operand_type in types if not isinstance(operand_type, np.dtype)]
    try:
        result = np.result_type(*dtypes) if dtypes else None
        if weak and (result is None or result.type.__module__ != "ml_dtypes" or complex in weak):
            result = np.result_type(*([] if result is None else [result]), *(number_type(0) for number_type in weak))
    except TypeError:
        listing = ", ".join(
            f"{name} is of {operand_type if isinstance(operand_type, np.dtype) else operand_type.__name__}"
            for name, operand_type in types
        )
        raise ArgumentError(f"{op}: {variable} has no common type: {listing}; convert one of them") from None
    assert result is not None  # kinds are not empty
    return result


def deduce_types(
    op: str,
    inputs: Sequence[Parameter],
    types: Sequence[np.dtype | type],
    outputs: Sequence[Parameter] = (),
    outs: Sequence[np.dtype | None] = (),
) -> dict[str, np.dtype]:
    """Return the dtype of each type variable, and of each struct that the preamble declares.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    inputs : sequence of Parameter
        Declared inputs.
    types : sequence of dtype or class
        Type of each input, as `dtype_of` returned it.
    outputs : sequence of Parameter
        Declared outputs.
    outs : sequence of dtype or None
        Dtype of each output array, or None for a new one. They decide type variables that no input decides.

    Raises
    ------
    ArgumentError
        One of these:

        - A type variable is not decided by any argument, or the arguments have no common type.
        - An array would lose values in a conversion.
        - A raw array would need a conversion.
    """
    result: dict[str, np.dtype] = {}
    for variable in dict.fromkeys(p.type for p in inputs if p.dtype is None):
        users = [(p.name, operand_type) for p, operand_type in zip(inputs, types, strict=True) if p.type == variable]
        result[variable] = promoted(op, variable, users)
        check_dtype(op, f"{variable} (of {', '.join(name for name, _ in users)})", result[variable])
    for p, out in zip(outputs, outs, strict=False):
        if p.dtype is None and p.type not in result and out is not None:
            result[p.type] = out
            check_dtype(op, p.name, out)
    for p in outputs:
        if p.dtype is None and p.type not in result:
            raise ArgumentError(
                f"{op}: the type {p.type} of {p.name} cannot be deduced: no input has it; give out=, or a type in its "
                "place"
            )
    for p, operand_type in zip(inputs, types, strict=True):
        if isinstance(operand_type, np.dtype):
            _check_input(op, p, operand_type, result.get(p.type, p.dtype))
    return result


def _check_input(op: str, parameter: Parameter, actual: np.dtype, expected: np.dtype | None) -> None:
    """Raise if an array of dtype `actual` cannot be read as `expected`, the parameter's dtype in this call.

    A raw array must have exactly this dtype. Other arrays may have a dtype that converts without loss.
    """
    assert expected is not None  # deduced, or declared
    if actual == expected:
        return
    name = parameter.name
    if parameter.raw:
        raise ArgumentError(
            f"{op}: {name} is of {actual} and {parameter.type} is {expected}: a raw argument is not converted; give "
            f"{name}.astype({shortened(str(expected))})"
        )
    check_dtype(op, name, actual)
    if not can_cast(actual, expected):
        raise ArgumentError(
            f"{op}: {name} is of {actual} and would lose as {expected} ({parameter}); convert it with "
            f"{name}.astype({shortened(str(expected))})"
        )


class Layout(NamedTuple):
    """The layout of an array: dtype, shape, strides in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class CallArguments(NamedTuple):
    """The arguments of a call, and the layouts that select its kernel.

    Attributes
    ----------
    place : ArrayPlace
        Execution place of the arrays.
    values : sequence
        Arrays of the place, and numbers.
    layouts : tuple
        Layout of each value: (dtype, shape, strides) of an array; a dtype, or the class of a Python number.
    initial : object
        Value that is combined before all elements, or None.
    """

    place: ArrayPlace
    values: Sequence[Any]
    layouts: tuple[Any, ...]
    initial: Any = None

    @property
    def arrays(self) -> list[Any]:
        """The values that are arrays."""
        return [value for value, layout in zip(self.values, self.layouts, strict=True) if type(layout) is tuple]

    def apart(self, of: Declared, outs: Sequence[Any], may_be: Callable[[int, Parameter], bool]) -> CallArguments:
        """Return these arguments, with a copy of each input array that overlaps an output.

        `outs` has the caller's array, or None, for each output. ``may_be(k, p)`` says whether input k may be exactly
        the memory of output p. It is then not copied.
        """
        values, layouts = list(self.values), list(self.layouts)
        for out, p in zip(outs, of.outputs, strict=True):
            array = None if out is None else as_array(f"{of.name}, output {p.name}", "out", out)[0]
            for k, layout in enumerate(layouts) if array is not None else ():
                if type(layout) is tuple and overlaps(array, values[k], in_place=may_be(k, p)):
                    values[k] = copied = self.place.copied(values[k])
                    layouts[k] = copied.dtype, copied.shape, copied.strides
        return self._replace(values=values, layouts=tuple(layouts))


def gather(of: Declared, args: tuple[Any, ...], stream: Any, more: Sequence[tuple[str, Any]] = ()) -> CallArguments:
    """Return the inputs `args` of a call as arrays of one execution place and numbers, with their layouts.

    `more` has further arrays as (name, array). They follow the inputs in the result.

    Raises
    ------
    ArgumentError
        There are too few or too many arguments, no array among them, or arrays in several places.
    """
    module = sys.modules.get("cupy") if stream is None and not more else None
    if module is not None and args and len(args) == len(of.inputs):
        # The calls that most programs make, as short as they can be.
        array = module.ndarray
        for value in args:
            if type(value) is not array:
                break
        else:
            place = ArrayPlace(module, module.cuda.get_current_stream(), True, args[0].data.device_id)
            return CallArguments(place, args, tuple([(x.dtype, x.shape, x.strides) for x in args]))
    if len(args) != len(of.inputs):
        names = ", ".join(p.name for p in of.inputs)
        raise ArgumentError(f"{of.name} takes {len(of.inputs)} inputs: {names}; got {len(args)}")
    own = getattr(sys.modules.get("cupy"), "ndarray", None)
    numbers = [
        type(value) is not own and not is_array(of.name, p, value) for p, value in zip(of.inputs, args, strict=True)
    ]
    arrays_by_name = [(p.name, value) for p, value, number in zip(of.inputs, args, numbers, strict=True) if not number]
    place, arrays = place_for(of.name, stream, [*arrays_by_name, *more])
    placed = iter(arrays)
    values = [value if number else next(placed) for value, number in zip(args, numbers, strict=True)]
    layouts = [
        dtype_of(of.name, p.name, value) if number else (value.dtype, value.shape, value.strides)
        for p, value, number in zip(of.inputs, values, numbers, strict=True)
    ]
    others = list(placed)
    layouts += [(array.dtype, array.shape, array.strides) for array in others]
    return CallArguments(place, [*values, *others], tuple(layouts))


def broadcast(op: str, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """Return the common shape of several arrays.

    Raises
    ------
    ArgumentError
        The shapes cannot be broadcast. The message names each argument with its shape.
    """
    try:
        return np.broadcast_shapes(*(shape for _, shape in shapes))
    except ValueError:
        listing = ", ".join(f"{name} has shape {shape}" for name, shape in shapes)
        raise ArgumentError(f"{op}: {listing}, which cannot be broadcast together") from None


def common_shape(
    op: str, arrays: Sequence[tuple[Parameter, tuple[int, ...]]], size: int | tuple[int, ...] | None
) -> tuple[int, ...]:
    """Return the shape of a call's elements.

    It is the common shape of the arrays, of the raw arrays if there are no others, or `size`.

    Raises
    ------
    ArgumentError
        The shapes do not fit together, or a `size` is passed although the arrays decide the shape.
    """
    shapes = [(p.name, shape) for p, shape in arrays if not p.raw]
    if shapes:
        if size is not None:
            raise ArgumentError(f"{op}: size= is for calls whose arrays are all raw; {shapes[0][0]} is not")
        return broadcast(op, shapes)
    if size is not None:
        sizes = integers(op, "size", size)
        extents = (sizes,) if isinstance(sizes, int) else tuple(sizes or ())
        if min(extents, default=0) < 0:
            raise ArgumentError(f"{op}: size {shortened(size)} is negative")
        return extents
    if len({shape for _, shape in arrays}) > 1:
        listing = ", ".join(f"{p.name} has shape {shape}" for p, shape in arrays)
        raise ArgumentError(f"{op}: all its arrays are raw, and {listing}; say how many elements: size=")
    return arrays[0][1] if arrays else ()


def dtypes_of(layouts: Sequence[Any]) -> list[np.dtype | type]:
    """Return the dtype or class of each layout, for `deduce_types`."""
    return [layout[0] if type(layout) is tuple else layout for layout in layouts]


def is_array(op: str, p: Parameter, value: Any) -> bool:
    """Return whether an argument is an array, and not a number, a struct or a texture by value."""
    value_type: Any = type(value)
    is_value = isinstance(value, bool | int | float | complex | np.generic) or structs.is_struct_type(value_type)
    is_value = is_value or texture_handle(value) is not None
    if is_value or value_type.__module__ == "ml_dtypes" or (isinstance(value, np.ndarray) and _is_record(value)):
        if p.raw:
            raise ArgumentError(f"{op}: {p.name} is raw and takes an array, got {value_type.__name__}")
        return False
    return True


def _is_record(value: np.ndarray) -> bool:
    """Return whether a NumPy array is a struct by value."""
    return value.shape == () and value.dtype.names is not None


def place_for(op: str, stream: Any, arrays: list[tuple[str, Any]]) -> tuple[ArrayPlace, list[Any]]:
    """Return the execution place of a call, and its arrays as arrays of this place.

    `arrays` has names and arrays. Without arrays the place is the stream's, or the default place for stream None.
    """
    if arrays:
        return array_place(op, stream, *arrays)
    place = default_place() if stream is None else place_of(stream)
    return array_place(op, stream, ("", place.xp.empty(0)))[0], []


def split(recipe: Declared, args: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the inputs of a call, and its outputs: the caller's array or None (a new array) for each output.

    The outputs may follow the inputs in `args` if `out` is None.

    Raises
    ------
    ArgumentError
        The number of arguments or of outputs does not fit.
    """
    inputs, outputs = len(recipe.inputs), len(recipe.outputs)
    if len(args) == inputs + outputs and out is None:
        return args[:inputs], args[inputs:]
    if len(args) != inputs:
        names = ", ".join(p.name for p in recipe.inputs)
        more = f" (or {inputs + outputs}, with the outputs)" if out is None else ""
        raise ArgumentError(f"{recipe.name} takes {inputs} inputs{more}: {names}; got {len(args)}")
    return args, outs_of(recipe, out)


def outs_of(of: Declared, out: Any) -> tuple[Any, ...]:
    """Return `out` as a tuple: an array, or None for a new array, for each output.

    Raises
    ------
    ArgumentError
        The number of outputs does not fit.
    """
    if out is None:
        return (None,) * len(of.outputs)
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(of.outputs):
        names = ", ".join(p.name for p in of.outputs)
        raise ArgumentError(f"{of.name} has {len(of.outputs)} outputs ({names}); out has {len(outs)}")
    return outs


def gather_all(
    of: Declared, args: tuple[Any, ...], out: Any, stream: Any, more: Sequence[tuple[str, Any]] = ()
) -> tuple[CallArguments, tuple[Any, ...], list[Any]]:
    """Return the arguments of a call and its outputs.

    The outputs are returned as the caller's objects (None: new), and as arrays of the execution place.

    Raises
    ------
    ArgumentError
        As for `split` and `gather`.
    """
    args, outs = split(of, args, out)
    shown = [(f"out ({p.name})", out) for p, out in zip(of.outputs, outs, strict=True) if out is not None]
    call = gather(of, args, stream, (*more, *shown))
    count = len(args) + len(more)
    own = iter(call.values[count:])
    mine = [None if out is None else next(own) for out in outs]
    return call._replace(values=call.values[:count], layouts=call.layouts[:count]), outs, mine


def delivered(outs: Sequence[Any], results: Sequence[Any]) -> Any:
    """Return what a call returns: for each output the caller's own object in `outs`, or the new array if it is None.

    One output is returned as it is, several outputs as a tuple.
    """
    own = [result if out is None else out for result, out in zip(results, outs, strict=True)]
    return own[0] if len(own) == 1 else tuple(own)


def checked(
    op: str,
    p: Parameter,
    place: ArrayPlace,
    out: Any,
    shape: tuple[int, ...],
    dtype: np.dtype,
    casting: Casting = "safe",
) -> Any:
    """Return an output of a generated function as an array of the execution place. A raw output has any shape.

    Raises
    ------
    ArgumentError
        As for `checked_output`, or a raw output has another dtype (it is not converted).
    """
    own = getattr(out, "dtype", dtype)
    if own != dtype:
        check_dtype(op, "out", own)
    if p.raw:
        casting, shape = "no", getattr(out, "shape", ())
    return checked_output(op, place, out, shape, dtype, casting)


def new_result(place: ArrayPlace, p: Parameter, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a new array for an output. A raw output is initialized to 0."""
    result = place.empty(shape, dtype)
    if p.raw:
        place.clear(result)
    return result


def layout_of(array: Any) -> Layout:
    """Return the layout of an array."""
    return Layout(array.dtype, array.shape, array.strides)


class GeneratedFunction(ArrayFunction):
    """A function of arrays generated from declarations. It is pickled as its recipe and options."""

    #: What messages call its family.
    _FAMILY: ClassVar[str]
    #: Whether its outputs may follow its inputs.
    _TAKES_OUTPUTS: ClassVar[bool] = True

    recipe: Any
    options: CompileOptions

    def __new__(cls, recipe: Any, options: CompileOptions | None = None, **own: Any) -> Self:
        inputs, outputs = ([p.name for p in parameters] for parameters in (recipe.inputs, recipe.outputs))
        own |= {"recipe": recipe, "options": options_of(recipe.name, options)}
        return super().__new__(cls, recipe.name, inputs, outputs if cls._TAKES_OUTPUTS else (), **own)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe, self.options)

    def __repr__(self) -> str:
        return f"<cudakit.{self._FAMILY} {self.recipe.name}: {self.recipe.shown}>"

    def _names(self) -> dict[str, tuple[str, ...]]:
        """Return the names that each part of the expression may use, besides type variables."""
        return {"expression": tuple(p.name for p in (*self.recipe.inputs, *self.recipe.outputs))}

    def _explained(self, error: CompileError) -> CompileError:
        return explained(self.recipe, error, self._names())
