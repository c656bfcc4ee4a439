"""Template arguments as users give them, in brackets: positional or by name, dtypes, numbers, C++ text."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import numpy as np

from cudakit.errors import TemplateError, shortened
from cudakit.jit.signature.signature import Signature, TemplateParameter
from cudakit.jit.specialise.deduce import Deduced
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types import structs
from cudakit.types.arguments import torch_dtype
from cudakit.types.cpp import Named, canonical_name, spelling


def explicit_arguments(signature: Signature, given: Any, book: TypeBook) -> dict[str, Deduced]:
    """C++ text of each template argument in `given`, what stands in the brackets of ``kernel[…]``.

    Parameters
    ----------
    signature : Signature
    given : object
        One argument, a tuple of them, and names: a dict ``{"BLOCK": 256}`` or slices ``"BLOCK": 256``.
    book : TypeBook
        Takes the structs and function objects that the arguments bring.

    Raises
    ------
    TemplateError
        For too many arguments, an unknown name, one given twice, or an argument of the wrong kind.
    """
    parameters = signature.template_parameters
    by_name = {parameter.name: parameter for parameter in parameters}
    result: dict[str, Deduced] = {}
    position = 0

    def put(parameter: TemplateParameter, value: Any) -> None:
        text = argument_text(signature, parameter, value, book)
        if parameter.pack:
            earlier = result.get(parameter.name, ())
            result[parameter.name] = (*earlier, text)
        elif parameter.name in result:
            raise TemplateError(f"{signature.name}: template argument {parameter.name} is given twice")
        else:
            result[parameter.name] = text

    for item in given if isinstance(given, tuple) else (given,):
        named = _by_name(item)
        if named is not None:
            for name, value in named.items():
                if name not in by_name:
                    known = ", ".join(by_name) or "none; it is not a template"
                    raise TemplateError(f"{signature.name} has no template parameter {shortened(name)}; it has {known}")
                for one in value if by_name[name].pack and isinstance(value, tuple | list) else (value,):
                    put(by_name[name], one)
            continue
        if position >= len(parameters):
            takes = f"takes {len(parameters)} template argument{'s' * (len(parameters) != 1)}"
            raise TemplateError(
                f"{signature.name} {takes if parameters else 'is not a template'}, got {shortened(item)} too"
            )
        put(parameters[position], item)
        position += not parameters[position].pack
    return result


def _by_name(item: Any) -> Mapping[str, Any] | None:
    if isinstance(item, slice) and isinstance(item.start, str) and item.step is None:
        return {item.start: item.stop}
    return item if isinstance(item, Mapping) else None


def argument_text(signature: Signature, parameter: TemplateParameter, value: Any, book: TypeBook) -> str:
    """C++ text of one template argument."""
    where = f"{signature.name}: template argument {parameter.name}"
    if isinstance(value, str):
        if not value.strip():
            raise TemplateError(f"{where} is an empty string")
        if parameter.kind != "type":
            return value.strip()
        named = _named_dtype(value.strip(), book)
        return canonical_name(book.functor(value, parameter.name)) if named is None else book.spell(named, where)
    if parameter.kind == "type":
        return _type_text(where, value, book)
    if parameter.kind == "template":
        raise TemplateError(f"{where} is a template; give its name as a string, got {shortened(value)}")
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if not isinstance(value, int | np.integer):
        kind = f" of type {parameter.value_type}" if parameter.value_type else ""
        raise TemplateError(f"{where} is a value{kind}; give an int, a bool, or C++ text, got {shortened(value)}")
    enums = {name for name, *_ in book.declarations.enums}
    if isinstance(parameter.value_type, Named) and parameter.value_type.name in enums:
        return f"static_cast<{parameter.value_type.name}>({int(value)})"
    number = int(value)
    if not -(2**63) <= number < 2**64:
        raise TemplateError(f"{where} is a value of at most 64 bits, got {shortened(value)}")
    # Of the least there is no literal: C++ has the number, and takes its opposite.
    return f"({number + 1}LL - 1)" if number == -(2**63) else str(number)


def _named_dtype(text: str, book: TypeBook) -> np.dtype | None:
    """The dtype that NumPy calls `text`, where the source has no type of that name."""
    found = _dtype(text)
    if found is None or found.name != text or spelling(found) is None:
        return None
    known = book.declarations
    names = (*known.structs, *(each.name for each in known.enums), *(name for name, _ in known.aliases))
    return None if any(name.split("::")[-1] == text for name in names) else found


def _type_text(where: str, value: Any, book: TypeBook) -> str:
    if isinstance(value, bool | int | float | np.number) and not isinstance(value, type):
        raise TemplateError(
            f"{where} is a type; give a dtype such as numpy.float32, or C++ text, got {shortened(value)}"
        )
    if structs.is_struct_type(value):
        dtype = structs.struct_dtype(value)
        return book.name_struct(dtype, structs.struct_name(value))
    known = torch_dtype(value) if type(value).__module__ == "torch" else _dtype(value)
    if known is None:
        raise TemplateError(
            f"{where} is a type; give a dtype, a NumPy scalar type, a dataclass or C++ text, got {shortened(value)}"
        )
    return book.spell(known, where)


def _dtype(value: Any) -> np.dtype | None:
    # NumPy takes None for float64, and a dict for a struct.
    if value is None or isinstance(value, Mapping):
        return None
    try:
        found: np.dtype = np.dtype(value)
    except Exception:  # NumPy's, or what the repr of a value raises in its message
        return None
    return found if found.itemsize else None


def hashable(item: Any) -> Any:
    """A key for a template argument as it was given; equal keys mean the same argument."""
    if isinstance(item, slice):
        return ("slice", item.start, item.stop)
    if isinstance(item, Mapping):
        return ("names", *((name, hashable(value)) for name, value in item.items()))
    # 1, 1.0 and True are equal and hash alike, but are different template arguments.
    return (type(item), tuple(item) if isinstance(item, list) else item)
