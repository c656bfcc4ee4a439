"""Stage 3, specialise: a signature and template arguments become one `Specialization`, ready to compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from cudakit import structs
from cudakit.deduce import COMPLEX_TEMPLATES, Deduced, Evidence, pair_up, substitute
from cudakit.errors import TemplateError
from cudakit.options import CompileOptions
from cudakit.signature import Declarations, Parameter, Signature
from cudakit.source import Source
from cudakit.types import (
    HEADER,
    SCALARS,
    VECTORS,
    CppType,
    Named,
    Opaque,
    Pointer,
    Reference,
    Value,
    names_in,
    without_const,
)
from cudakit.typetext import parse_type

#: Headers that a template argument's text calls for, where it names something of libcu++.
_TEXT_HEADERS = (
    (re.compile(r"\bcuda::std::complex\b"), "cuda/std/complex"),
    (re.compile(r"\bcuda::std::(plus|minus|multiplies|divides|modulus|negate|bit_|logical_|less|greater|equal_to|not_)"),
     "cuda/std/functional"),
    (re.compile(r"\bcuda::(maximum|minimum)\b"), "cuda/functional"),
    (re.compile(r"\b__half2?\b"), "cuda_fp16.h"),
    (re.compile(r"\b__nv_bfloat162?\b"), "cuda_bf16.h"),
    (re.compile(r"\b__nv_fp8_"), "cuda_fp8.h"),
)  # fmt: skip


@dataclass(frozen=True)
class Slot:
    """What one kernel parameter takes, once its template arguments are known.

    Attributes
    ----------
    name : str
        Parameter name, or its position where it has none.
    cpp : str
        Its C++ type, for errors.
    kind : str
        ``pointer``, ``scalar``, ``vector``, ``struct``, ``strided``, ``functor``, ``tensor_map`` or ``unknown``.
    dtype : numpy.dtype or None
        Element dtype of a pointer (None: any) or strided array; dtype of a scalar, of a vector's component, of a
        struct.
    const : bool
        Whether a pointer's or strided array's elements are only read.
    count : int
        Components of a vector; rank of a strided array; 1 otherwise.
    alignment : int
        Bytes that an address must be a multiple of (vector types), or 1.
    """

    name: str
    cpp: str
    kind: Literal["pointer", "scalar", "vector", "struct", "strided", "functor", "tensor_map", "unknown"]
    dtype: np.dtype | None = None
    const: bool = False
    count: int = 1
    alignment: int = 1


@dataclass(frozen=True)
class Specialization:
    """One kernel with its template arguments, options and arch: what is compiled and what the cache keeps.

    Attributes
    ----------
    source : Source
    kernel : str
        Qualified kernel name.
    template_arguments : tuple of (str, str)
        C++ text by template parameter name.
    name_expression : str
        What NVRTC is asked for, ``saxpy<float>``.
    slots : tuple of Slot or None
        What each parameter takes; None where the head could not be parsed, until the compiler has said it.
    prelude, postlude : str
        Generated text before and after the source.
    symbols : tuple of str
        Names of ``__constant__`` and ``__device__`` variables whose addresses are asked for.
    arch : str
        ``sm_90`` …
    options : CompileOptions
    target : str
        ``cubin``, or ``ptx`` for the emulator.
    """

    source: Source
    kernel: str
    template_arguments: tuple[tuple[str, str], ...]
    name_expression: str
    slots: tuple[Slot, ...] | None
    prelude: str
    postlude: str
    symbols: tuple[str, ...]
    arch: str
    options: CompileOptions
    target: Literal["cubin", "ptx"] = "cubin"

    @cached_property
    def text(self) -> str:
        """The whole text that is compiled."""
        return f'{self.prelude}#line 1 "{_escape(self.source.name)}"\n{self.source.text}\n{self.postlude}'

    @property
    def needs_types(self) -> bool:
        """Whether the compiler must be asked for the parameter types."""
        return self.slots is None or any(slot.kind == "unknown" for slot in self.slots)


def _escape(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


@dataclass
class TypeBook:
    """C++ spellings of the dtypes of one specialization, and the generated text that they need."""

    declarations: Declarations
    structs: dict[np.dtype, str] = field(default_factory=dict)
    snippets: dict[str, str] = field(default_factory=dict)

    def spell(self, dtype: np.dtype, where: str) -> str:
        """The C++ type that `dtype` becomes; a structured dtype becomes a generated struct."""
        if dtype.names is None:
            return structs.spelling(dtype, where)
        return self.name_struct(dtype, structs.struct_name(dtype))

    def name_struct(self, dtype: np.dtype, name: str) -> str:
        return self.structs.setdefault(dtype, name)

    def functor(self, text: str, parameter: str) -> str:
        """The name of a function-object type given as C++ text: a name as it is, a snippet by its generated name."""
        text = text.strip()
        if "{" not in text:
            return text
        declared = re.match(r"(?:struct|class)\s+(\w+)", text)
        if declared:
            name, body = declared[1], text.rstrip(";") + ";"
        elif text.startswith("["):
            name = f"cudakit_functor_{len(self.snippets)}"
            for known, snippet in self.snippets.items():
                if f"({text})" in snippet:
                    return known
            # The lambda stands inside a device function, so it needs no annotation of its own.
            body = (
                f"struct {name} {{ template <typename... Arguments> __device__ constexpr auto "
                f'operator()(Arguments... arguments) const {{ return (\n#line 1 "<template argument {parameter}>"\n'
                f"({text})\n)(arguments...); }} }};"
            )
        else:
            raise TemplateError(
                f"template argument {parameter}: {text!r} is neither a type's name, a struct nor a lambda such as "
                "'[](auto a, auto b) { return a + b; }'"
            )
        self.snippets[name] = f'#line 1 "<template argument {parameter}>"\n{body}\n'
        return name

    def prelude(self, texts: Iterable[str]) -> str:
        """Headers that `texts` need and the structs that the source does not declare."""
        known: dict[np.dtype, str] = {}
        definitions = "".join(
            structs.definition(name, dtype, known)
            for dtype, name in self.structs.items()
            if name not in self.declarations.structs and dtype not in known
        )
        everything = "\n".join([*texts, definitions, *self.snippets.values()])
        included = [header for pattern, header in _TEXT_HEADERS if pattern.search(everything)]
        return "".join(f"#include <{header}>\n" for header in included) + definitions

    def postlude(self) -> str:
        """Function objects, and the layout checks of structs that the source declares."""
        checks = (
            structs.layout_assertions(name, dtype)
            for dtype, name in self.structs.items()
            if name in self.declarations.structs
        )
        return "".join(self.snippets.values()) + '#line 1 "<struct layout>"\n' * bool(self.structs) + "".join(checks)


def specialise(
    source: Source,
    declarations: Declarations,
    signature: Signature,
    arguments: Mapping[str, Deduced],
    evidence: tuple[Evidence, ...],
    book: TypeBook,
    arch: str,
    options: CompileOptions,
    target: Literal["cubin", "ptx"] = "cubin",
) -> Specialization:
    """The specialization of `signature` for complete template `arguments`.

    Raises
    ------
    TemplateError
        If a parameter cannot be a kernel parameter (a reference), or a struct cannot be spelled.
    """
    flat = [text for value in arguments.values() for text in ((value,) if isinstance(value, str) else value)]
    name = signature.name + (f"<{', '.join(flat)}>" if signature.is_template else "")
    slots = None
    if signature.parameters is not None:
        slots = tuple(_slots(declarations, signature, arguments, evidence, book))
    return Specialization(
        source=source,
        kernel=signature.name,
        template_arguments=tuple(
            (key, value if isinstance(value, str) else ", ".join(value)) for key, value in arguments.items()
        ),
        name_expression=name,
        slots=slots,
        prelude=book.prelude(flat),
        postlude=book.postlude(),
        symbols=tuple(symbol.name for symbol in declarations.symbols),
        arch=arch,
        options=options,
        target=target,
    )


def _slots(
    declarations: Declarations,
    signature: Signature,
    arguments: Mapping[str, Deduced],
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> Iterable[Slot]:
    types: dict[str, CppType | str] = dict(declarations.aliases)
    packs: dict[str, tuple[str, ...]] = {}
    for declared in signature.template_parameters:
        value = arguments.get(declared.name)
        if isinstance(value, tuple):
            packs[declared.name] = value
        elif value is not None:
            types[declared.name] = parse_type(value) if declared.kind == "type" else value
    known = {id(parameter): found for parameter, found in pair_up(signature, evidence)}
    position = 0
    for parameter in signature.parameters or ():
        repeats: list[dict[str, CppType | str]] = [types]
        if parameter.pack:
            used = [name for name in names_in(parameter.type) if name in packs]
            count = len(packs[used[0]]) if used else 0
            repeats = [{**types, **{name: parse_type(packs[name][i]) for name in used}} for i in range(count)]
        for replacement in repeats:
            name = f"{parameter.name or 'parameter'}{f'[{position}]' if parameter.pack or not parameter.name else ''}"
            cpp = _resolve(substitute(parameter.type, replacement), declarations)
            yield make_slot(name, cpp, signature, parameter, known.get(id(parameter)), declarations, book)
            position += 1


def _resolve(cpp: CppType, declarations: Declarations) -> CppType:
    """`cpp` with the source's own aliases followed (each once, so that a self-naming alias ends)."""
    aliases: dict[str, CppType | str] = dict(declarations.aliases)
    for _ in range(len(aliases)):
        followed = substitute(cpp, aliases)
        if followed == cpp:
            break
        cpp = followed
    return cpp


def make_slot(
    name: str,
    cpp: CppType,
    signature: Signature | None,
    parameter: Parameter | None,
    known: Evidence | None,
    declarations: Declarations,
    book: TypeBook | None,
) -> Slot:
    """The slot of one concrete parameter type; `known` tells the layout of a struct that only the source names."""
    plain = without_const(cpp)
    shown = str(plain)
    if isinstance(plain, Reference):
        kernel = signature.name if signature else "the kernel"
        raise TemplateError(
            f"{kernel}: parameter {name} is a reference ({shown}); a kernel runs on the device and cannot refer to "
            "host memory: take it by value, or as a pointer"
        )
    if isinstance(plain, Pointer):
        return _pointer_slot(name, plain, known, declarations, book)
    if isinstance(plain, Named):
        dtype = SCALARS.get(shown)
        if dtype is None and plain.name in COMPLEX_TEMPLATES and plain.arguments:
            dtype = SCALARS.get(f"cuda::std::complex<{plain.arguments[0]}>")
        if dtype is not None:
            return Slot(name, shown, "scalar", dtype)
        if plain.name in VECTORS:
            component, count, alignment = VECTORS[plain.name]
            return Slot(name, shown, "vector", component, count=count, alignment=alignment)
        if plain.name.split("::")[-1] == "strided" and plain.arguments and len(plain.arguments) == 2:
            return _strided_slot(name, plain)
        if plain.name == "CUtensorMap":
            return Slot(name, shown, "tensor_map", alignment=64)
        if plain.name in {enum[0] for enum in declarations.enums}:
            return Slot(name, shown, "unknown")
        if known is not None and known.kind == "functor":
            return Slot(name, shown, "functor")
        if known is not None and known.kind == "scalar" and known.dtype is not None and known.dtype.names is not None:
            if book is not None:
                book.name_struct(known.dtype, plain.name)
            return Slot(name, shown, "struct", known.dtype)
        if book is not None and plain.name in book.structs.values():
            dtype = next(dtype for dtype, struct in book.structs.items() if struct == plain.name)
            return Slot(name, shown, "struct", dtype)
    return Slot(name, shown, "unknown")


def _pointer_slot(
    name: str, cpp: Pointer, known: Evidence | None, declarations: Declarations, book: TypeBook | None
) -> Slot:
    target = cpp.target
    const = isinstance(target, Named | Opaque | Pointer) and target.const
    plain = without_const(target)
    text = str(plain)
    if isinstance(plain, Pointer):
        return Slot(name, str(cpp), "pointer", np.dtype("u8"), const)
    if isinstance(plain, Named):
        dtype = SCALARS.get(text)
        if dtype is None and plain.name in COMPLEX_TEMPLATES and plain.arguments:
            dtype = SCALARS.get(f"cuda::std::complex<{plain.arguments[0]}>")
        if dtype is not None:
            return Slot(name, str(cpp), "pointer", dtype, const)
        if plain.name in VECTORS:
            component, count, alignment = VECTORS[plain.name]
            return Slot(name, str(cpp), "pointer", component, const, count, alignment)
        if plain.name in ("void", "std::byte", "cuda::std::byte"):
            return Slot(name, str(cpp), "pointer", None, const)
        if book is not None and plain.name in book.structs.values():
            dtype = next(dtype for dtype, struct in book.structs.items() if struct == plain.name)
            return Slot(name, str(cpp), "pointer", dtype, const)
        if known is not None and known.dtype is not None and known.dtype.names is not None and book is not None:
            book.name_struct(known.dtype, plain.name)
            return Slot(name, str(cpp), "pointer", known.dtype, const)
    return Slot(name, str(cpp), "unknown", None, const)


def _strided_slot(name: str, cpp: Named) -> Slot:
    assert cpp.arguments is not None
    element, rank = cpp.arguments
    const = isinstance(element, Named) and element.const
    plain = element if isinstance(element, Value) else without_const(element)
    dtype = SCALARS.get(str(plain))
    if dtype is None or not str(rank).isdigit():
        return Slot(name, str(cpp), "unknown")
    return Slot(name, str(cpp), "strided", dtype, const, int(str(rank)), 8)


__all__ = ["HEADER", "Slot", "Specialization", "TypeBook", "make_slot", "specialise"]
