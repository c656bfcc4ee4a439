"""The arguments of a call of a generated function: told apart, put in one place, and what decides the call's kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from cudakit.arrays.output import overlaps
from cudakit.arrays.place import ArrayPlace, array_place, as_array
from cudakit.errors import ArgumentError
from cudakit.generate.declarations import Parameter
from cudakit.generate.promotion import dtype_of
from cudakit.places import DEVICES, default_place, place_of
from cudakit.types import structs
from cudakit.types.arguments import texture_handle


class Function(Protocol):
    """What is called: its name, and its arguments as they are declared."""

    @property
    def name(self) -> str: ...
    @property
    def inputs(self) -> tuple[Parameter, ...]: ...
    @property
    def outputs(self) -> tuple[Parameter, ...]: ...


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

    def apart(self, of: Function, outs: Sequence[Any], may_be: Callable[[int, Parameter], bool]) -> Given:
        """The same with copies of the arrays that an output overlaps; `may_be(k, p)`: unless p's is just value k."""
        values, kinds = list(self.values), list(self.kinds)
        for out, p in zip(outs, of.outputs, strict=True):
            array = None if out is None else as_array(f"{of.name}, output {p.name}", "out", out)[0]
            for k, kind in enumerate(kinds) if array is not None else ():
                if type(kind) is tuple and overlaps(array, values[k], in_place=may_be(k, p)):
                    values[k] = made = self.place.copied(values[k])
                    kinds[k] = made.dtype, made.shape, made.strides
        return self._replace(values=values, kinds=tuple(kinds))


def gather(of: Function, args: tuple[Any, ...], stream: Any, more: Sequence[tuple[str, Any]] = ()) -> Given:
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
    if (default_place() if stream is None else place_of(stream)) is not DEVICES:
        return array_place(op, stream, ("", np.empty(0)))[0], []
    import cupy

    return array_place(op, stream, ("", cupy.empty(0)))[0], []
