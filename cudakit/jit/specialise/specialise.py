"""Stage 3, specialise: a signature and template arguments become one `Specialization`, ready to compile.

A `BoundParameter` is what a kernel parameter takes, once its C++ type is known; arguments are checked against it.

Kernels that take whole arrays are compiled with the arrays' parts in the head, and the arrays in the body (`Edit`), for
Tile C++ passes no structs to kernels. So ``cudakit::tensor<const T, 2> a`` becomes an address, two extents and two
strides, and the body begins with the ``tensor`` of that name. No line moves.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from cudakit.errors import ArgumentError, TemplateError
from cudakit.jit.signature.signature import Declarations, Signature, Symbol
from cudakit.jit.source.preprocessor import escaped
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.deduce import COMPLEX_TEMPLATES, Deduced, substitute
from cudakit.jit.specialise.options import CompileOptions, Target, check_target
from cudakit.jit.specialise.spellings import Names, TypeBook, names_of
from cudakit.types import structs
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
    scalar_dtype,
    tensor_arguments,
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
    types = {**dict(declarations.aliases), **_arguments(signature, arguments)}
    packs = {name: value for name, value in arguments.items() if isinstance(value, tuple)}
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


def _arguments(signature: Signature, arguments: Mapping[str, Deduced]) -> dict[str, CppType | str]:
    """Template arguments but packs: types as their records, values as their text."""
    parameters = {parameter.name: parameter for parameter in signature.template_parameters}
    return {
        name: parse_type(value) if parameters[name].category == "type" else value
        for name, value in arguments.items()
        if isinstance(value, str)
    }


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
        if (dtype := _number(plain)) is not None:
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
        if (
            known is not None
            and known.category == "functor"
            and plain == resolved(parse_type(known.text), declarations)
        ):
            return BoundParameter(name, shown, "functor")
        if (
            known is not None
            and known.category == "scalar"
            and known.dtype is not None
            and known.dtype.names is not None
        ):
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


def _number(cpp: Named) -> np.dtype | None:
    """Dtype of a number's type, complex ones by whichever template."""
    is_complex = cpp.name in COMPLEX_TEMPLATES and cpp.arguments
    return scalar(f"cuda::std::complex<{cpp.arguments[0]}>" if is_complex and cpp.arguments else str(cpp))


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
        if (dtype := _number(plain)) is not None:
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
    if known is not None and known.category == "array" and known.rank != found.count:
        raise ArgumentError(f"{where} takes {found.count} dimensions, got {known.shown}")
    layout = plain_layout(found.count) if known is None or known.layout is None else known.layout
    return found._replace(kind="tensor", layout=layout)


class Edit(NamedTuple):
    """What is compiled in the place of a part of the text."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """`text` with `edits`, which are in their order."""
    pieces, behind = [], 0
    for start, end, new in edits:
        pieces += [text[behind:start], new, "\n" * text.count("\n", start, end)]
        behind = end
    return "".join((*pieces, text[behind:]))


def edits_of(
    declarations: Declarations, wanted: Signature | None = None, parameters: Sequence[BoundParameter] = ()
) -> tuple[Edit, ...]:
    """What is compiled in the place of heads with array parameters; those of the `wanted` kernel are `parameters`."""
    found: list[Edit] = []
    for signature in declarations.kernels:
        if signature.heads and wanted is not None and signature.heads == wanted.heads:
            found += _edits(signature, [(each.count, each.layout or TensorLayout()) for each in parameters])
        elif signature.heads and signature.parameters is not None:
            types = (parameter.type for parameter in signature.parameters)
            ranks = [str(tensor_arguments(cpp)[1]) if is_tensor(cpp) else "0" for cpp in types]
            # Of others that have a rank to be deduced nothing is compiled.
            if all(rank.isdigit() for rank in ranks):
                found += _edits(signature, [(int(rank), TensorLayout()) for rank in ranks])
    return tuple(sorted(found))


def _edits(signature: Signature, known: Sequence[tuple[int, TensorLayout]]) -> Iterator[Edit]:
    """Those of one kernel, by rank and layout of each of its parameters."""
    assert signature.parameters is not None
    for head in signature.heads:
        made = []
        for position, start, end in head.parameters:
            parameter, (rank, layout) = signature.parameters[position], known[position]
            names = _names(parameter.name or str(position), rank)
            types = part_types(parameter.type, rank, layout)
            yield Edit(start, end, ", ".join(map(" ".join, zip(types, names, strict=True))))
            if parameter.name:
                whole = f"::cudakit::tensor<{tensor_arguments(parameter.type)[0]}, {rank}, {layout.cpp}>"
                made.append(f" [[maybe_unused]] const auto {parameter.name} = {whole}::maker::of({', '.join(names)});")
        if head.body >= 0:
            yield Edit(head.body, head.body, "".join(made))


def _names(name: str, rank: int) -> list[str]:
    axes = range(rank)
    return [
        f"cudakit_{name}",
        *(f"cudakit_{name}_extent_{axis}" for axis in axes),
        *(f"cudakit_{name}_stride_{axis}" for axis in axes),
    ]


def part_types(cpp: CppType, rank: int, layout: TensorLayout) -> list[str]:
    """The C++ types that an array parameter is compiled as."""
    return [f"{tensor_arguments(cpp)[0]}* __restrict__", *["int"] * rank, *[layout.stride_type] * rank]


#: What diagnostics call generated text.
GENERATED = "<generated by cudakit>"


class Specialization(NamedTuple):
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
    kernels : tuple of (str, bool)
        Name expressions of all kernels that the code is to hold, those that are no templates always among them; and
        whether the compiler is asked for the types of its parameters.
    parameters : tuple of BoundParameter or None
        What each parameter takes; None where the head could not be parsed, until the compiler has said it.
    prelude, postlude : tuple of str
        Generated text before and after the source: headers and structs, and function objects.
    checks : str
        Assertions about what Python takes types for, after all that; they change no code.
    symbols : tuple of str
        Names of ``__constant__`` and ``__device__`` variables whose addresses are asked for.
    typed : tuple of str
        Those of variables whose types are asked for.
    arch : str
        ``sm_90`` …
    options : CompileOptions
    target : str
        ``cubin``, or ``ptx`` or, of tile kernels, ``tileir`` for the emulator; ``object`` or ``ltoir`` to be linked.
    has_tiles : bool
        Whether any kernel of the source is a tile kernel.
    is_tile : bool
        Whether this one is.
    edits : tuple of Edit
        What is compiled in the place of array parameters of tile kernels.
    unsure : bool
        Whether a name in a parameter's type could mean two things, so that the compiler must say which.
    """

    source: Source
    kernel: str
    template_arguments: tuple[tuple[str, str], ...]
    name_expression: str
    parameters: tuple[BoundParameter, ...] | None
    prelude: tuple[str, ...]
    postlude: tuple[str, ...]
    symbols: tuple[str, ...]
    arch: str
    options: CompileOptions
    target: Target = "cubin"
    unsure: bool = False
    kernels: tuple[tuple[str, bool], ...] = ()
    checks: str = ""
    typed: tuple[str, ...] = ()
    has_tiles: bool = False
    is_tile: bool = False
    edits: tuple[Edit, ...] = ()

    @property
    def own_text(self) -> str:
        """The source's text, as it is compiled."""
        return edited(self.source.text, self.edits) if self.edits else self.source.text

    @property
    def text(self) -> str:
        """The whole text that is compiled; diagnostics of generated lines are told from the source's by ``#line``."""
        name = f'#line 1 "{escaped(self.source.name)}"\n'
        prelude = "".join(self.prelude)
        head = f'#line 1 "{GENERATED}"\n{prelude}{name}' if prelude else ""
        if self.options.pch:
            # The compiler makes a precompiled header of leading includes only as long as nothing else is among them.
            head = prelude
        return f"{head}{self.own_text}\n{''.join(self.postlude)}{self.checks}"

    @property
    def unnumbered_lines(self) -> int:
        """Generated lines before the source that no ``#line`` sets apart."""
        return "".join(self.prelude).count("\n") if self.options.pch else 0

    @property
    def needs_types(self) -> bool:
        """Whether the compiler must be asked for the parameter types."""
        known = self.parameters is not None and all(parameter.kind != "unknown" for parameter in self.parameters)
        # Of what is compiled already nobody can be asked more.
        return self.source.code is None and (self.unsure or not known)

    @property
    def asked(self) -> tuple[tuple[str, bool], ...]:
        """`kernels`; where none are named, its own alone."""
        own = ((self.name_expression, self.needs_types),) if self.name_expression else ()
        return self.kernels or own

    @property
    def title(self) -> str:
        """All kernels that are asked for."""
        return ", ".join(name for name, _ in self.asked) or "no kernel"

    def among(self, others: Iterable[Specialization]) -> Specialization:
        """What is compiled for all of them: with their kernels and generated text too, without their `checks`.

        The same for the same ones in any order, but for the checks.
        """
        others = {*others} - {self}
        if not others:
            return self
        all_of_them = sorted({self, *others}, key=lambda each: (each.name_expression, each.prelude, each.postlude))
        kernels: dict[str, bool] = {}
        for name, unknown in (kernel for each in all_of_them for kernel in each.asked):
            kernels[name] = unknown or kernels.get(name, False)
        before = dict.fromkeys(piece for each in all_of_them for piece in each.prelude)
        # The same function object may be an argument for parameters of different names.
        after = {re.sub("#line .*", "", piece): piece for each in all_of_them for piece in each.postlude}
        return self._replace(
            kernels=tuple(kernels.items()),
            prelude=tuple(sorted(before, key=lambda piece: not piece.startswith("#"))),
            postlude=tuple(after.values()),
        )


def specialise(
    source: Source,
    declarations: Declarations,
    signature: Signature,
    arguments: Mapping[str, Deduced],
    evidence: tuple[Evidence, ...],
    book: TypeBook,
    arch: str,
    options: CompileOptions,
    target: Target = "cubin",
) -> Specialization:
    """The specialization of `signature` for complete template `arguments`.

    Raises
    ------
    TemplateError
        If a parameter cannot be a kernel parameter (a reference), or a struct cannot be spelled; and for an arch or a
        target that there is not.
    """
    check_target(signature.name, arch, target)
    flat = [text for value in arguments.values() for text in ((value,) if isinstance(value, str) else value)]
    name = signature.name + (f"<{', '.join(flat)}>" if signature.is_template else "")
    parameters = None
    if signature.parameters is not None:
        parameters = tuple(bound_parameters(declarations, signature, arguments, evidence, book))
    if signature.is_overload:
        name = f"({_function_type(signature, arguments, declarations, parameters or ())}){name}"
    names = names_of(source, declarations, options)
    doubtful = _doubtful(signature, flat, names)
    module = bare(source, declarations, arch, options, names, signature.is_tile)
    made = module._replace(
        kernel=signature.name,
        template_arguments=tuple(
            (key, value if isinstance(value, str) else ", ".join(value)) for key, value in arguments.items()
        ),
        name_expression=name,
        parameters=parameters,
        prelude=book.prelude(flat, names),
        postlude=tuple(book.snippets.values()),
        checks=book.checks(_checks(name, parameters, evidence, doubtful)),
        target=target,
        unsure=doubtful,
        edits=edits_of(declarations, signature, parameters or ()) if signature.heads else module.edits,
    )
    own = [(name, made.needs_types)] if name not in dict(module.kernels) else []
    return made._replace(kernels=(*own, *module.kernels))


def bare(
    source: Source,
    declarations: Declarations,
    arch: str,
    options: CompileOptions,
    names: Names | None = None,
    is_tile: bool = False,
) -> Specialization:
    """What every specialization of a module holds: its variables, and the kernels of a kind that are no templates."""
    names = names or names_of(source, declarations, options)
    counts = Counter(signature.name for signature in declarations.kernels)
    kernels = []
    for signature in declarations.kernels:
        # The compiler makes code of these, whatever it is asked for; overloads have no names of their own.
        plain = counts[signature.name] == 1 and signature.defined and not signature.is_template
        if plain and signature.is_tile == is_tile:
            unknown = signature.parameters is None or _doubtful(signature, (), names)
            if not unknown:
                try:
                    found = bound_parameters(declarations, signature, {}, (), TypeBook(declarations))
                    unknown = any(parameter.kind == "unknown" for parameter in found)
                except TemplateError:
                    continue
            kernels.append((signature.name, unknown))
    return Specialization(
        source=source,
        kernel="",
        template_arguments=(),
        name_expression="",
        parameters=(),
        prelude=(),
        postlude=(),
        # NVRTC gives no address of a managed variable, and tile kernels share none.
        symbols=() if is_tile else tuple(symbol.name for symbol in declarations.symbols if not symbol.managed),
        arch=arch,
        options=options,
        kernels=tuple(kernels),
        typed=tuple(symbol.name for symbol in declarations.symbols if _open(symbol, names)),
        has_tiles=declarations.has_tiles,
        is_tile=is_tile,
        edits=edits_of(declarations),
    )


def _function_type(
    signature: Signature,
    arguments: Mapping[str, Deduced],
    declarations: Declarations,
    bound: Sequence[BoundParameter],
) -> str:
    """The type of a pointer to the kernel, which tells it from others of its name."""
    types = _arguments(signature, arguments)
    parameters: list[str] = []
    for position, parameter in enumerate(signature.parameters or ()):
        cpp = substitute(parameter.type, types)
        structs = bound[position].layout if position < len(bound) else None
        parameters += [str(cpp)] if structs is None else part_types(cpp, bound[position].count, structs)
    text = f"void (*)({', '.join(parameters)})".replace(" __restrict__", "")
    # The cast stands outside of the kernel's namespace.
    known_types = {*declarations.structs, *(enum.name for enum in declarations.enums), *dict(declarations.aliases)}
    scopes = signature.name.split("::")[:-1]
    for depth in range(len(scopes), 0, -1):
        prefix = "::".join(scopes[:depth]) + "::"
        for known in known_types:
            if known.startswith(prefix):
                text = re.sub(rf"(?<![\w:]){re.escape(known.removeprefix(prefix))}\b", known, text)
    return text


def _open(symbol: Symbol, names: Names) -> bool:
    """Whether only the compiler knows what a variable is."""
    cpp = without_const(resolved(symbol.type, names.declarations))
    plain = scalar_dtype(cpp) is not None and not names.unsure(symbol.type, ())
    return not (plain and all(extent.isdigit() for extent in symbol.extents))


def _doubtful(signature: Signature, arguments: Iterable[str], names: Names) -> bool:
    """Whether a name in the types of the parameters, or in the template arguments, could mean two things."""
    own = {parameter.name for parameter in signature.template_parameters}
    types = [parameter.type for parameter in signature.parameters or ()] + [parse_type(text) for text in arguments]
    return any(names.unsure(cpp, own) for cpp in types)


def _checks(
    expression: str, parameters: tuple[BoundParameter, ...] | None, evidence: tuple[Evidence, ...], doubtful: bool
) -> Iterator[str]:
    """Assertions about the types of parameters, by position, where an argument says what Python takes them for."""
    compiled_position = 0
    for number, found in enumerate(evidence):
        dtype = found.dtype
        known = parameters[number] if parameters is not None and number < len(parameters) else None
        position, compiled_position = compiled_position, compiled_position + (1 if known is None else known.parts)
        is_tensor = known is not None and known.kind == "tensor"
        if dtype is None or found.category not in ("array", "scalar") or is_tensor:
            continue
        unknown = known is None or known.kind == "unknown"
        cpp = structs.parameter(position, expression)
        shown = known.cpp.removeprefix("const ").partition("*")[0] if known else f"of parameter {position}"
        if dtype.names is None:
            if unknown and found.category == "scalar":
                name = f"{expression}: parameter {known.name if known else position} ({shown})"
                yield structs.number_assertion(cpp, name, dtype)
        elif doubtful or known is None or unknown or (known.dtype is not None and known.dtype.names):
            yield structs.struct_assertions(str(position), cpp, shown, dtype)
