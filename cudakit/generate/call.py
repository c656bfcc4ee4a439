"""A call of a generated function: dtypes deduced (NEP 50), arguments gathered in one place, outputs checked or made."""

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
    """What an argument says of its type: an array's or a NumPy scalar's dtype, a struct's; a Python number's class.

    A texture or surface object is its number.

    Raises
    ------
    ArgumentError
        For something that is neither an array nor a number nor a struct.
    """
    kind = type(value)
    if kind in _WEAK:
        return kind
    found = getattr(value, "dtype", None)
    if isinstance(found, np.dtype):
        return found
    if isinstance(value, _WEAK):
        return next(weak for weak in _WEAK if isinstance(value, weak))
    as_type: Any = kind
    if structs.is_struct_type(as_type):
        return structs.struct_dtype(as_type)
    if kind.__module__ == "ml_dtypes":
        return np.dtype(kind)
    if texture_handle(value) is not None:
        return np.dtype("u8")
    raise ArgumentError(f"{op}: {name} is {kind.__name__}, neither an array nor a number nor a struct")


def check_dtype(op: str, name: str, dtype: np.dtype) -> None:
    """Raise where no C++ type stands for a dtype.

    Raises
    ------
    ArgumentError
    """
    if dtype.names is None and spelling(dtype) is None:
        hint = "; it is not in native byte order" if not dtype.isnative else ""
        raise ArgumentError(f"{op}: {name} is of {dtype}, which has no C++ equivalent{hint}")


def promoted(op: str, what: str, kinds: Sequence[tuple[str, np.dtype | type]]) -> np.dtype:
    """The dtype that NumPy promotes to; Python numbers (given by their classes) are weak.

    Parameters
    ----------
    op, what : str
        Of whom and of which type variable, for messages.
    kinds : sequence of (str, dtype or class)
        Name of each argument, and what `dtype_of` said of it.

    Raises
    ------
    ArgumentError
        For dtypes that have no common one, naming the arguments.
    """
    dtypes = [kind for _, kind in kinds if isinstance(kind, np.dtype)]
    weak = [kind for _, kind in kinds if not isinstance(kind, np.dtype)]
    try:
        found = np.result_type(*dtypes) if dtypes else None
        if weak and (found is None or found.type.__module__ != "ml_dtypes" or complex in weak):
            found = np.result_type(*([] if found is None else [found]), *(kind(0) for kind in weak))
    except TypeError:
        given = ", ".join(
            f"{name} is of {kind if isinstance(kind, np.dtype) else kind.__name__}" for name, kind in kinds
        )
        raise ArgumentError(f"{op}: {what} has no common type: {given}; convert one of them") from None
    assert found is not None  # kinds are not empty
    return found


def deduce_types(
    op: str,
    inputs: Sequence[Parameter],
    kinds: Sequence[np.dtype | type],
    outputs: Sequence[Parameter] = (),
    outs: Sequence[np.dtype | None] = (),
) -> dict[str, np.dtype]:
    """The dtype of each type variable, and of each struct that the preamble declares.

    Parameters
    ----------
    op : str
        For messages.
    inputs : sequence of Parameter
    kinds : sequence of dtype or class
        What `dtype_of` said of each input.
    outputs : sequence of Parameter
    outs : sequence of dtype or None
        Of each output array that was given; they decide what no input does.

    Raises
    ------
    ArgumentError
        For a type variable that nothing decides, arguments without a common type, an array that would have to be
        converted to a type that loses, a raw array that would have to be converted at all.
    """
    found: dict[str, np.dtype] = {}
    for variable in dict.fromkeys(p.type for p in inputs if p.dtype is None):
        users = [(p.name, kind) for p, kind in zip(inputs, kinds, strict=True) if p.type == variable]
        found[variable] = promoted(op, variable, users)
        check_dtype(op, f"{variable} (of {', '.join(name for name, _ in users)})", found[variable])
    for p, out in zip(outputs, outs, strict=False):
        if p.dtype is None and p.type not in found and out is not None:
            found[p.type] = out
            check_dtype(op, p.name, out)
    for p in outputs:
        if p.dtype is None and p.type not in found:
            raise ArgumentError(
                f"{op}: the type {p.type} of {p.name} cannot be deduced: no input has it; give out=, or a type in its "
                "place"
            )
    for p, kind in zip(inputs, kinds, strict=True):
        if isinstance(kind, np.dtype):
            _check_input(op, p, kind, found.get(p.type, p.dtype))
    return found


def _check_input(op: str, parameter: Parameter, given: np.dtype, wanted: np.dtype | None) -> None:
    """Raise where an array cannot be read as what the parameter is."""
    assert wanted is not None  # deduced, or declared
    if given == wanted:
        return
    name = parameter.name
    if parameter.raw:
        raise ArgumentError(
            f"{op}: {name} is of {given} and {parameter.type} is {wanted}: a raw argument is not converted; give "
            f"{name}.astype({shortened(str(wanted))})"
        )
    check_dtype(op, name, given)
    if not can_cast(given, wanted):
        raise ArgumentError(
            f"{op}: {name} is of {given} and would lose as {wanted} ({parameter}); convert it with "
            f"{name}.astype({shortened(str(wanted))})"
        )


class Layout(NamedTuple):
    """An array of a call: dtype, shape, strides in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Given(NamedTuple):
    """The arguments of one call, and what decides its kind.

    Attributes
    ----------
    place : ArrayPlace
    values : sequence
        Arrays of the place, and numbers.
    kinds : tuple
        Of each: (dtype, shape, strides) of an array; a dtype, or the class of a Python number.
    initial : object
        What is combined before all elements; None for nothing.
    """

    place: ArrayPlace
    values: Sequence[Any]
    kinds: tuple[Any, ...]
    initial: Any = None

    @property
    def arrays(self) -> list[Any]:
        """Those of the values that are arrays."""
        return [value for value, kind in zip(self.values, self.kinds, strict=True) if type(kind) is tuple]

    def apart(self, of: Declared, outs: Sequence[Any], may_be: Callable[[int, Parameter], bool]) -> Given:
        """The same with copies of the arrays that an output overlaps; `may_be(k, p)`: unless p's is just value k."""
        values, kinds = list(self.values), list(self.kinds)
        for out, p in zip(outs, of.outputs, strict=True):
            array = None if out is None else as_array(f"{of.name}, output {p.name}", "out", out)[0]
            for k, kind in enumerate(kinds) if array is not None else ():
                if type(kind) is tuple and overlaps(array, values[k], in_place=may_be(k, p)):
                    values[k] = made = self.place.copied(values[k])
                    kinds[k] = made.dtype, made.shape, made.strides
        return self._replace(values=values, kinds=tuple(kinds))


def gather(of: Declared, args: tuple[Any, ...], stream: Any, more: Sequence[tuple[str, Any]] = ()) -> Given:
    """The arguments of a call; `more` arrays, by their names, follow the inputs.

    Raises
    ------
    ArgumentError
        For too few or too many, none that is an array, arrays in several places.
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
            return Given(place, args, tuple([(x.dtype, x.shape, x.strides) for x in args]))
    if len(args) != len(of.inputs):
        names = ", ".join(p.name for p in of.inputs)
        raise ArgumentError(f"{of.name} takes {len(of.inputs)} inputs: {names}; got {len(args)}")
    own = getattr(sys.modules.get("cupy"), "ndarray", None)
    numbers = [
        type(value) is not own and not is_array(of.name, p, value) for p, value in zip(of.inputs, args, strict=True)
    ]
    named = [(p.name, value) for p, value, number in zip(of.inputs, args, numbers, strict=True) if not number]
    place, arrays = place_for(of.name, stream, [*named, *more])
    found = iter(arrays)
    values = [value if number else next(found) for value, number in zip(args, numbers, strict=True)]
    kinds = [
        dtype_of(of.name, p.name, value) if number else (value.dtype, value.shape, value.strides)
        for p, value, number in zip(of.inputs, values, numbers, strict=True)
    ]
    others = list(found)
    kinds += [(array.dtype, array.shape, array.strides) for array in others]
    return Given(place, [*values, *others], tuple(kinds))


def broadcast(op: str, named: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """The shape of several arrays together.

    Raises
    ------
    ArgumentError
        Naming each argument with its shape.
    """
    try:
        return np.broadcast_shapes(*(shape for _, shape in named))
    except ValueError:
        given = ", ".join(f"{name} has shape {shape}" for name, shape in named)
        raise ArgumentError(f"{op}: {given}, which cannot be broadcast together") from None


def common_shape(
    op: str, arrays: Sequence[tuple[Parameter, tuple[int, ...]]], size: int | tuple[int, ...] | None
) -> tuple[int, ...]:
    """The shape of a call's elements: that of its arrays together, of raw ones where there are no others, or `size`.

    Raises
    ------
    ArgumentError
        For shapes that do not fit together, and a `size` beside arrays that tell.
    """
    named = [(p.name, shape) for p, shape in arrays if not p.raw]
    if named:
        if size is not None:
            raise ArgumentError(f"{op}: size= is for calls whose arrays are all raw; {named[0][0]} is not")
        return broadcast(op, named)
    if size is not None:
        found = integers(op, "size", size)
        extents = (found,) if isinstance(found, int) else tuple(found or ())
        if min(extents, default=0) < 0:
            raise ArgumentError(f"{op}: size {shortened(size)} is negative")
        return extents
    if len({shape for _, shape in arrays}) > 1:
        given = ", ".join(f"{p.name} has shape {shape}" for p, shape in arrays)
        raise ArgumentError(f"{op}: all its arrays are raw, and {given}; say how many elements: size=")
    return arrays[0][1] if arrays else ()


def dtypes_of(kinds: Sequence[Any]) -> list[np.dtype | type]:
    """What `deduction.deduce_types` takes of each input."""
    return [kind[0] if type(kind) is tuple else kind for kind in kinds]


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


def _is_record(value: np.ndarray) -> bool:
    """Whether a NumPy array is a struct by value."""
    return value.shape == () and value.dtype.names is not None


def place_for(op: str, stream: Any, named: list[tuple[str, Any]]) -> tuple[ArrayPlace, list[Any]]:
    """Where a call runs; without any array, where its stream is."""
    if named:
        return array_place(op, stream, *named)
    place = default_place() if stream is None else place_of(stream)
    return array_place(op, stream, ("", place.xp.empty(0)))[0], []


def split(recipe: Declared, args: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Inputs, and an array or None for each output."""
    inputs, outputs = len(recipe.inputs), len(recipe.outputs)
    if len(args) == inputs + outputs and out is None:
        return args[:inputs], args[inputs:]
    if len(args) != inputs:
        names = ", ".join(p.name for p in recipe.inputs)
        more = f" (or {inputs + outputs}, with the outputs)" if out is None else ""
        raise ArgumentError(f"{recipe.name} takes {inputs} inputs{more}: {names}; got {len(args)}")
    return args, outs_of(recipe, out)


def outs_of(of: Declared, out: Any) -> tuple[Any, ...]:
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


def gather_all(
    of: Declared, args: tuple[Any, ...], out: Any, stream: Any, more: Sequence[tuple[str, Any]] = ()
) -> tuple[Given, tuple[Any, ...], list[Any]]:
    """The arguments of a call; its outputs as the caller has them, None for new ones, and as arrays of the place.

    Raises
    ------
    ArgumentError
        As `split` and `gather` do.
    """
    args, outs = split(of, args, out)
    shown = [(f"out ({p.name})", out) for p, out in zip(of.outputs, outs, strict=True) if out is not None]
    call = gather(of, args, stream, (*more, *shown))
    count = len(args) + len(more)
    own = iter(call.values[count:])
    mine = [None if out is None else next(own) for out in outs]
    return call._replace(values=call.values[:count], kinds=call.kinds[:count]), outs, mine


def delivered(outs: Sequence[Any], results: Sequence[Any]) -> Any:
    """What a call returns: the caller's own objects, which may be another library's, and new results."""
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


class GeneratedFunction(ArrayFunction):
    """A function of arrays that is generated from declarations; it is pickled as its recipe and options."""

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
        """The names that each part of the expression has, besides type variables."""
        return {"expression": tuple(p.name for p in (*self.recipe.inputs, *self.recipe.outputs))}

    def _explained(self, error: CompileError) -> CompileError:
        return explained(self.recipe, error, self._names())
