"""Type variables of a call, deduced from its arguments and promoted by NumPy's rules (NEP 50)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.arrays.output import can_cast
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.declarations import Parameter
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
