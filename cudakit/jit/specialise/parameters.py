"""What each kernel parameter takes, once its C++ type is known: what arguments are checked against."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, TemplateError
from cudakit.jit.signature.signature import Declarations, Signature
from cudakit.jit.specialise.deduce import COMPLEX_TEMPLATES, Deduced, substitute
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Evidence
from cudakit.types.cpp import (
    CppType,
    Named,
    Opaque,
    Pointer,
    Reference,
    Value,
    is_tensor,
    names_in,
    parse_type,
    scalar,
    vector,
    without_const,
)
from cudakit.types.tensors import TensorLayout, plain_layout

#: `float[16]`, what a parameter `float (*x)[16]` or `float x[][16]` points to, and such a pointer as demangled.
_ROWS = re.compile(r"([^\[\]()]+?)\s*((?:\[[^\[\]]*\])+)")
_POINTER_TO_ROWS = re.compile(r"([^\[\]()]+?) ?\(\*\) ?((?:\[[^\[\]]*\])+)")


class PartPromise(NamedTuple):
    """What tile code takes for granted of a part of an array: the address, the extents, the strides.

    Attributes
    ----------
    part : int
        Which of them, counted in that order.
    divisor : int
    low, high : int or None
    """

    part: int
    divisor: int
    low: int | None
    high: int | None


class BoundParameter(NamedTuple):
    """What one kernel parameter takes, once its template arguments are known.

    Attributes
    ----------
    name : str
        Parameter name, or its position where it has none.
    cpp : str
        Its C++ type, for errors.
    kind : str
        ``pointer``, ``scalar``, ``vector``, ``struct``, ``strided``, ``tensor``, ``functor``, ``tensor_map`` or
        ``unknown``.
    dtype : numpy.dtype or None
        Element dtype of a pointer (None: any), strided array or tensor; dtype of a scalar, of a vector's component, of
        a struct.
    const : bool
        Whether a pointer's, strided array's or tensor's elements are only read.
    count : int
        Components of a vector; rank of a strided array or tensor; 1 otherwise.
    alignment : int
        Bytes that an address must be a multiple of, or 1.
    divisor : int
        What a number must be a multiple of.
    low, high : int or None
        What a number must not be under, and not over.
    layout : TensorLayout or None
        What the code of a tensor takes for granted of the array.
    promises : tuple of PartPromise
        What the user's own code takes for granted of its address, extents and strides, by their positions in them.
    """

    name: str
    cpp: str
    kind: Literal["pointer", "scalar", "vector", "struct", "strided", "tensor", "functor", "tensor_map", "unknown"]
    dtype: np.dtype | None = None
    const: bool = False
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which nobody asks one for
    alignment: int = 1
    divisor: int = 1
    low: int | None = None
    high: int | None = None
    layout: TensorLayout | None = None
    promises: tuple[PartPromise, ...] = ()

    @property
    def parts(self) -> int:
        """How many parameters of the compiled code it is."""
        return 1 if self.layout is None else 1 + 2 * self.count


def bound_parameters(
    declarations: Declarations,
    signature: Signature,
    arguments: Mapping[str, Deduced],
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> Iterable[BoundParameter]:
    """Each parameter of `signature` bound to complete template `arguments`, packs spread out."""
    types: dict[str, CppType | str] = dict(declarations.aliases)
    packs: dict[str, tuple[str, ...]] = {}
    for declared in signature.template_parameters:
        value = arguments.get(declared.name)
        if isinstance(value, tuple):
            packs[declared.name] = value
        elif value is not None:
            types[declared.name] = parse_type(value) if declared.kind == "type" else value
    position = 0
    for parameter in signature.parameters or ():
        repeats: list[dict[str, CppType | str]] = [types]
        if parameter.pack:
            used = [name for name in names_in(parameter.type) if name in packs]
            count = len(packs[used[0]]) if used else 0
            repeats = [{**types, **{name: parse_type(packs[name][i]) for name in used}} for i in range(count)]
        for replacement in repeats:
            name = f"{parameter.name or 'parameter'}{f'[{position}]' if parameter.pack or not parameter.name else ''}"
            cpp = resolved(substitute(parameter.type, replacement), declarations)
            known = evidence[position] if position < len(evidence) else None
            yield bound_parameter(name, cpp, signature, known, declarations, book)
            position += 1


def resolved(cpp: CppType, declarations: Declarations) -> CppType:
    """`cpp` with the source's own aliases followed (each once, so that a self-naming alias ends)."""
    aliases: dict[str, CppType | str] = dict(declarations.aliases)
    for _ in range(len(aliases)):
        followed = substitute(cpp, aliases)
        if followed == cpp:
            break
        cpp = followed
    return cpp


def bound_parameter(
    name: str,
    cpp: CppType,
    signature: Signature | None,
    known: Evidence | None,
    declarations: Declarations,
    book: TypeBook | None,
) -> BoundParameter:
    """A parameter of one concrete type; `known` tells the layout of a struct that only the source names."""
    plain = without_const(cpp)
    shown = str(plain)
    if isinstance(plain, Reference):
        kernel = signature.name if signature else "the kernel"
        raise TemplateError(
            f"{kernel}: parameter {name} is a reference ({shown}); a kernel runs on the device and cannot refer to "
            "host memory: take it by value, or as a pointer"
        )
    if isinstance(plain, Opaque) and (rows := _POINTER_TO_ROWS.fullmatch(plain.text)):
        # As the compiler's names have what the signature calls `float[16]*`.
        plain = Pointer(Opaque(f"{rows[1]}{rows[2]}"))
    if isinstance(plain, Pointer):
        return _pointer_parameter(name, plain, known, declarations, book)
    if isinstance(plain, Named):
        dtype = scalar(shown)
        if dtype is None and plain.name in COMPLEX_TEMPLATES and plain.arguments:
            dtype = scalar(f"cuda::std::complex<{plain.arguments[0]}>")
        if dtype is not None:
            return BoundParameter(name, shown, "scalar", dtype)
        if (found := vector(plain.name)) is not None:
            component, count, alignment = found
            return BoundParameter(name, shown, "vector", component, count=count, alignment=alignment)
        if plain.name.split("::")[-1] == "strided" and plain.arguments and len(plain.arguments) == 2:
            return _strided_parameter(name, plain)
        if is_tensor(plain) and (signature is None or signature.is_tile or plain.name.endswith("cudakit::tensor")):
            return _tensor_parameter(name, plain, signature, known)
        if plain.name == "CUtensorMap":
            return BoundParameter(name, shown, "tensor_map", alignment=64)
        if underlying := {enum.underlying for enum in declarations.enums if enum.name == plain.name}:
            if underlying == {""}:  # as wide as its values ask; nearly always an int
                return BoundParameter(name, shown, "unknown", np.dtype("i4"))
            of_values = resolved(parse_type(underlying.pop()), declarations)
            dtype = scalar(str(of_values)) if not underlying else None
            return BoundParameter(name, shown, "unknown" if dtype is None else "scalar", dtype)
        if known is not None and known.kind == "functor" and plain == resolved(parse_type(known.text), declarations):
            return BoundParameter(name, shown, "functor")
        if known is not None and known.kind == "scalar" and known.dtype is not None and known.dtype.names is not None:
            if book is not None:
                book.written.setdefault(shown, known.dtype)
            return BoundParameter(name, shown, "struct", known.dtype)
        if book is not None and (dtype := book.struct_named(shown)) is not None:
            return BoundParameter(name, shown, "struct", dtype)
    return BoundParameter(name, shown, "unknown")


def agreed(read: BoundParameter, told: BoundParameter) -> BoundParameter:
    """One parameter as the signature was read and as the compiler tells it; where they differ, the compiler is right.

    The signature knows it by the user's own name, and knows complex numbers and function objects, which the compiler
    calls vectors and classes.
    """
    if read.kind == "unknown":
        return read if told.kind == "unknown" and read.dtype is not None else told
    if read.kind in ("functor", "tensor_map") or (read.kind == "struct" and told.kind == "unknown"):
        return read
    if (read.kind, read.dtype, read.const, read.count) == (told.kind, told.dtype, told.const, told.count):
        return read
    pair = read.dtype is not None and read.dtype.kind == "c" and (told.count, told.const) == (2, read.const)
    return read if pair and told.dtype == np.zeros(0, read.dtype).real.dtype else told


def _pointer_parameter(
    name: str, cpp: Pointer, known: Evidence | None, declarations: Declarations, book: TypeBook | None
) -> BoundParameter:
    target = cpp.target
    const = isinstance(target, Named | Opaque | Pointer) and target.const
    plain = without_const(target)
    if isinstance(plain, Opaque) and (rows := _ROWS.fullmatch(plain.text)):
        element = parse_type(rows[1])
        const = const or (isinstance(element, Named | Opaque | Pointer) and element.const)
        plain = without_const(element)
    text = str(plain)
    if isinstance(plain, Pointer):
        return BoundParameter(name, str(cpp), "pointer", np.dtype("u8"), const)
    if isinstance(plain, Named):
        dtype = scalar(text)
        if dtype is None and plain.name in COMPLEX_TEMPLATES and plain.arguments:
            dtype = scalar(f"cuda::std::complex<{plain.arguments[0]}>")
        if dtype is not None:
            return BoundParameter(name, str(cpp), "pointer", dtype, const)
        if (found := vector(plain.name)) is not None:
            component, count, alignment = found
            return BoundParameter(name, str(cpp), "pointer", component, const, count, alignment)
        if plain.name in ("void", "std::byte", "cuda::std::byte"):
            return BoundParameter(name, str(cpp), "pointer", None, const)
        if book is not None and (dtype := book.struct_named(text)) is not None:
            return BoundParameter(name, str(cpp), "pointer", dtype, const)
        if known is not None and known.dtype is not None and known.dtype.names is not None and book is not None:
            book.written.setdefault(text, known.dtype)
            return BoundParameter(name, str(cpp), "pointer", known.dtype, const)
    return BoundParameter(name, str(cpp), "unknown", None, const)


def _strided_parameter(name: str, cpp: Named) -> BoundParameter:
    assert cpp.arguments is not None
    element, rank = cpp.arguments
    const = isinstance(element, Named) and element.const
    plain = element if isinstance(element, Value) else without_const(element)
    dtype = scalar(str(plain))
    if dtype is None or not str(rank).isdigit():
        return BoundParameter(name, str(cpp), "unknown")
    return BoundParameter(name, str(cpp), "strided", dtype, const, int(str(rank)), 8)


def _written(signature: Signature) -> set[str]:
    """Array parameters that stand as such in all heads of a kernel."""
    names = [parameter.name or f"parameter[{k}]" for k, parameter in enumerate(signature.parameters or ())]
    found = [{names[position] for position, *_ in head.parameters} for head in signature.heads]
    return set.intersection(*found) if found else set()


def _tensor_parameter(name: str, cpp: Named, signature: Signature | None, known: Evidence | None) -> BoundParameter:
    """An array that a tile kernel takes whole.

    Raises
    ------
    ArgumentError
        For an array of another rank.
    TemplateError
        For what stands in the text in another way than the compiler can be given it.
    """
    where = f"{signature.name if signature else 'the kernel'}: parameter {name} ({cpp})"
    if signature is not None and not signature.is_tile:
        raise TemplateError(f"{where} is for tile kernels; take cudakit::strided<T, RANK>, from <cudakit/strided.cuh>")
    found = _strided_parameter(name, cpp)
    if found.kind == "unknown":
        raise TemplateError(
            f"{where} needs a number type that the text tells, and a RANK that is a number or a template parameter"
        )
    if signature is not None and name not in _written(signature):
        raise TemplateError(f"{where} must stand in the kernel's head as it is: no alias, macro, #if or pack")
    if known is not None and known.kind == "array" and known.rank != found.count:
        raise ArgumentError(f"{where} takes {found.count} dimensions, got {known.shown}")
    layout = plain_layout(found.count) if known is None or known.layout is None else known.layout
    return found._replace(kind="tensor", layout=layout)
