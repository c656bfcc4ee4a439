"""The `Specialization` of a signature with template arguments, ready to compile.

A `BoundParameter` describes a kernel parameter of known C++ type; arguments are checked against it.

A tensor parameter of a tile kernel is compiled as its parts (`cudakit.jit.specialise.tensor_parts`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from cudakit.errors import ArgumentError, TemplateError
from cudakit.jit.signature.signature import Declarations, Signature, Symbol
from cudakit.jit.source.source import escaped
from cudakit.jit.specialise.deduce import COMPLEX_TEMPLATES, Deduced, substitute
from cudakit.jit.specialise.options import CompileOptions, Target, check_target
from cudakit.jit.specialise.spellings import Names, TypeBook, names_of
from cudakit.records import NamedTuple
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
    vector,
    without_const,
)

if TYPE_CHECKING:
    from cudakit.jit.source.source import Source
    from cudakit.jit.specialise.tensor_parts import Edit
    from cudakit.types.tensors import TensorLayout

#: `float[16]`, the target of a parameter `float (*x)[16]` or `float x[][16]`, and its pointer in a demangled name.
_ROWS = r"([^\[\]()]+?)\s*((?:\[[^\[\]]*\])+)"
_POINTER_TO_ROWS = r"([^\[\]()]+?) ?\(\*\) ?((?:\[[^\[\]]*\])+)"


class PartPromise(NamedTuple):
    """An assumption of tile code about a part of a tensor: its address, an extent or a stride.

    Attributes
    ----------
    part : int
        Index of the part: first the address, then the extents, then the strides.
    divisor : int
        Number that divides the part.
    low, high : int or None
        Bounds of the part.
    """

    part: int
    divisor: int
    low: int | None
    high: int | None


class BoundParameter(NamedTuple):
    """A kernel parameter whose template arguments are known.

    Attributes
    ----------
    name : str
        Name, or the position of an unnamed parameter.
    cpp : str
        C++ type, for errors.
    category : str
        ``pointer``, ``scalar``, ``vector``, ``struct``, ``strided``, ``tensor``, ``functor``, ``tensor_map`` or
        ``unknown``.
    dtype : numpy.dtype or None
        Dtype of the elements of a pointer (None: any), strided array or tensor; of a scalar, a vector's component, a
        struct.
    const : bool
        Whether the elements of a pointer, strided array or tensor are only read.
    count : int
        Components of a vector; rank of a strided array or tensor; otherwise 1.
    alignment : int
        Required alignment of an address in bytes, or 1.
    divisor : int
        Number that must divide the argument.
    low, high : int or None
        Bounds of a number.
    layout : TensorLayout or None
        Layout that the code of a tensor assumes.
    promises : tuple of PartPromise
        Assumptions of the user's own code about address, extents and strides, by position.
    """

    name: str
    cpp: str
    category: Literal["pointer", "scalar", "vector", "struct", "strided", "tensor", "functor", "tensor_map", "unknown"]
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
        """Number of parameters in the compiled code."""
        return 1 if self.layout is None else 1 + 2 * self.count


def bound_parameters(
    declarations: Declarations,
    signature: Signature,
    arguments: Mapping[str, Deduced],
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> Iterable[BoundParameter]:
    """Yield each parameter of `signature` bound to complete template `arguments`, with packs expanded."""
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
            argument = evidence[position] if position < len(evidence) else None
            yield bound_parameter(name, cpp, signature, argument, declarations, book)
            position += 1


def _arguments(signature: Signature, arguments: Mapping[str, Deduced]) -> dict[str, CppType | str]:
    """Return template arguments without packs: types as records, values as text."""
    parameters = {parameter.name: parameter for parameter in signature.template_parameters}
    return {
        name: parse_type(value) if parameters[name].category == "type" else value
        for name, value in arguments.items()
        if isinstance(value, str)
    }


def resolved(cpp: CppType, declarations: Declarations) -> CppType:
    """Return `cpp` with the source's type aliases replaced by their meanings, also inside other aliases.

    The number of rounds is limited, so that an alias of itself ends.
    """
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
    evidence: Evidence | None,
    declarations: Declarations,
    book: TypeBook | None,
) -> BoundParameter:
    """Bind a parameter of a concrete type; `evidence` has the layout of a struct that only the source names."""
    plain = without_const(cpp)
    shown = str(plain)
    if isinstance(plain, Reference):
        kernel = signature.name if signature else "the kernel"
        raise TemplateError(
            f"{kernel}: parameter {name} is a reference ({shown}); a kernel runs on the device and cannot refer to "
            "host memory: take it by value, or as a pointer"
        )
    if isinstance(plain, Opaque) and (rows := re.fullmatch(_POINTER_TO_ROWS, plain.text)):
        # The demangled form of the signature's `float[16]*`.
        plain = Pointer(Opaque(f"{rows[1]}{rows[2]}"))
    if isinstance(plain, Pointer):
        return _pointer_parameter(name, plain, evidence, declarations, book)
    if isinstance(plain, Named):
        if (dtype := _number(plain)) is not None:
            return BoundParameter(name, shown, "scalar", dtype)
        if (vector_type := vector(plain.name)) is not None:
            component, count, alignment = vector_type
            return BoundParameter(name, shown, "vector", component, count=count, alignment=alignment)
        if plain.name.split("::")[-1] == "strided" and plain.arguments and len(plain.arguments) == 2:
            return _strided_parameter(name, plain)
        if is_tensor(plain) and (signature is None or signature.is_tile or plain.name.endswith("cudakit::tensor")):
            return _tensor_parameter(name, plain, signature, evidence)
        if plain.name == "CUtensorMap":
            return BoundParameter(name, shown, "tensor_map", alignment=64)
        if underlying := {enum.underlying for enum in declarations.enums if enum.name == plain.name}:
            if underlying == {""}:  # as wide as its values need; nearly always an int
                return BoundParameter(name, shown, "unknown", np.dtype("i4"))
            of_values = resolved(parse_type(underlying.pop()), declarations)
            dtype = scalar(str(of_values)) if not underlying else None
            return BoundParameter(name, shown, "unknown" if dtype is None else "scalar", dtype)
        if (
            evidence is not None
            and evidence.category == "functor"
            and plain == resolved(parse_type(evidence.text), declarations)
        ):
            return BoundParameter(name, shown, "functor")
        if (
            evidence is not None
            and evidence.category == "scalar"
            and evidence.dtype is not None
            and evidence.dtype.names is not None
        ):
            if book is not None:
                book.written.setdefault(shown, evidence.dtype)
            return BoundParameter(name, shown, "struct", evidence.dtype)
        if book is not None and (dtype := book.struct_named(shown)) is not None:
            return BoundParameter(name, shown, "struct", dtype)
    return BoundParameter(name, shown, "unknown")


def agreed(read: BoundParameter, compiled: BoundParameter) -> BoundParameter:
    """Return one of two descriptions of a parameter: `read` is from the signature, `compiled` from the compiler.

    It is `read` if both agree, or if only the signature knows the type. Complex numbers and function objects are
    vectors and classes to the compiler. Otherwise it is `compiled`.
    """
    if read.category == "unknown":
        return read if compiled.category == "unknown" and read.dtype is not None else compiled
    if read.category in ("functor", "tensor_map") or (read.category == "struct" and compiled.category == "unknown"):
        return read
    if (read.category, read.dtype, read.const, read.count) == (
        compiled.category,
        compiled.dtype,
        compiled.const,
        compiled.count,
    ):
        return read
    pair = read.dtype is not None and read.dtype.kind == "c" and (compiled.count, compiled.const) == (2, read.const)
    return read if pair and compiled.dtype == np.zeros(0, read.dtype).real.dtype else compiled


def _number(cpp: Named) -> np.dtype | None:
    """Return the dtype of a number's type, complex numbers of any library included; None for any other type."""
    is_complex = cpp.name in COMPLEX_TEMPLATES and cpp.arguments
    return scalar(f"cuda::std::complex<{cpp.arguments[0]}>" if is_complex and cpp.arguments else str(cpp))


def _pointer_parameter(
    name: str, cpp: Pointer, evidence: Evidence | None, declarations: Declarations, book: TypeBook | None
) -> BoundParameter:
    target = cpp.target
    const = isinstance(target, Named | Opaque | Pointer) and target.const
    plain = without_const(target)
    if isinstance(plain, Opaque) and (rows := re.fullmatch(_ROWS, plain.text)):
        element = parse_type(rows[1])
        const = const or (isinstance(element, Named | Opaque | Pointer) and element.const)
        plain = without_const(element)
    text = str(plain)
    if isinstance(plain, Pointer):
        return BoundParameter(name, str(cpp), "pointer", np.dtype("u8"), const)
    if isinstance(plain, Named):
        if (dtype := _number(plain)) is not None:
            return BoundParameter(name, str(cpp), "pointer", dtype, const)
        if (vector_type := vector(plain.name)) is not None:
            component, count, alignment = vector_type
            return BoundParameter(name, str(cpp), "pointer", component, const, count, alignment)
        if plain.name in ("void", "std::byte", "cuda::std::byte"):
            return BoundParameter(name, str(cpp), "pointer", None, const)
        if book is not None and (dtype := book.struct_named(text)) is not None:
            return BoundParameter(name, str(cpp), "pointer", dtype, const)
        if (
            evidence is not None
            and evidence.dtype is not None
            and evidence.dtype.names is not None
            and book is not None
        ):
            book.written.setdefault(text, evidence.dtype)
            return BoundParameter(name, str(cpp), "pointer", evidence.dtype, const)
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
    """Return the names of the tensor parameters whose offsets are known in all declarations of a kernel.

    Prototypes count too.
    """
    names = [parameter.name or f"parameter[{k}]" for k, parameter in enumerate(signature.parameters or ())]
    names_by_head = [{names[position] for position, *_ in head.parameters} for head in signature.heads]
    return set.intersection(*names_by_head) if names_by_head else set()


def _tensor_parameter(name: str, cpp: Named, signature: Signature | None, evidence: Evidence | None) -> BoundParameter:
    """Bind a tensor parameter of a tile kernel.

    Raises
    ------
    ArgumentError
        For an array of another rank.
    TemplateError
        For a parameter whose text cannot be replaced by its parts.
    """
    where = f"{signature.name if signature else 'the kernel'}: parameter {name} ({cpp})"
    if signature is not None and not signature.is_tile:
        raise TemplateError(f"{where} is for tile kernels; take cudakit::strided<T, RANK>, from <cudakit/strided.cuh>")
    parameter = _strided_parameter(name, cpp)
    if parameter.category == "unknown":
        raise TemplateError(
            f"{where} needs a number type that the text tells, and a RANK that is a number or a template parameter"
        )
    if signature is not None and name not in _written(signature):
        raise TemplateError(f"{where} must stand in the kernel's head as it is: no alias, macro, #if or pack")
    if evidence is not None and evidence.category == "array" and evidence.rank != parameter.count:
        raise ArgumentError(f"{where} takes {parameter.count} dimensions, got {evidence.shown}")
    from cudakit.types.tensors import plain_layout  # for tile kernels alone

    layout = plain_layout(parameter.count) if evidence is None or evidence.layout is None else evidence.layout
    return parameter._replace(category="tensor", layout=layout)


#: File name of generated source in diagnostics.
GENERATED = "<generated by cudakit>"


class Specialization(NamedTuple):
    """A kernel with template arguments, options and arch: the unit that is compiled and cached.

    Attributes
    ----------
    source : Source
        Source of the kernel.
    kernel : str
        Qualified name of the kernel.
    template_arguments : tuple of (str, str)
        C++ source of each template argument, by parameter name.
    name_expression : str
        Name expression for NVRTC, ``saxpy<float>``.
    kernels : tuple of (str, bool)
        Name expressions of all kernels in the code, kernels that are no templates included. The bool says whether the
        compiler is asked for the types of the kernel's parameters.
    parameters : tuple of BoundParameter or None
        Parameters; None if the signature cannot be parsed, until the compiler has reported their types.
    prelude, postlude : tuple of str
        Generated source before and after the user's: headers and structs, and function objects.
    checks : str
        Assertions about C++ types at the end of the source; they do not change the code.
    symbols : tuple of str
        Names of ``__constant__`` and ``__device__`` variables whose addresses are requested.
    typed : tuple of str
        Names of variables whose types are requested.
    arch : str
        ``sm_90`` …
    options : CompileOptions
        Compile options.
    target : str
        ``cubin``; for the emulator ``ptx``, or ``tileir`` of tile kernels; ``object`` or ``ltoir`` for linking.
    has_tiles : bool
        Whether any kernel of the source is a tile kernel.
    is_tile : bool
        Whether this kernel is a tile kernel.
    edits : tuple of Edit
        Replacements of tensor parameters of tile kernels.
    unsure : bool
        Whether a name in a parameter's type is ambiguous, so that the compiler must report the type.
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
        """The user's source, with tensor parameters replaced as `edits` say."""
        if not self.edits:
            return self.source.text
        from cudakit.jit.specialise.tensor_parts import edited  # for tile kernels alone

        return edited(self.source.text, self.edits)

    @property
    def written_text(self) -> str:
        """The user's source, by whose lines the compiler counts: of an nvcc program with its host's part."""
        return self.source.whole.text if self.source.whole is not None else self.own_text

    @property
    def text(self) -> str:
        """The whole source that is compiled; ``#line`` separates generated lines from the user's."""
        name = f'#line 1 "{escaped(self.source.name)}"\n'
        prelude = "".join(self.prelude)
        head = f'#line 1 "{GENERATED}"\n{prelude}{name}' if prelude else ""
        if self.options.pch:
            # The compiler precompiles leading includes only if nothing else is between them.
            head = prelude
        return f"{head}{self.own_text}\n{''.join(self.postlude)}{self.checks}"

    @property
    def unnumbered_lines(self) -> int:
        """Number of generated lines before the user's source without a ``#line`` between them."""
        return "".join(self.prelude).count("\n") if self.options.pch else 0

    @property
    def needs_types(self) -> bool:
        """True if the compiler must report the parameter types."""
        is_known = self.parameters is not None and all(parameter.category != "unknown" for parameter in self.parameters)
        # Compiled code has no compiler to ask.
        return self.source.code is None and (self.unsure or not is_known)

    @property
    def requested(self) -> tuple[tuple[str, bool], ...]:
        """Pairs as in `kernels`; if `kernels` is empty, a pair for this kernel alone."""
        own = ((self.name_expression, self.needs_types),) if self.name_expression else ()
        return self.kernels or own

    @property
    def title(self) -> str:
        """Name expressions of all requested kernels, separated by commas."""
        return ", ".join(name for name, _ in self.requested) or "no kernel"

    def among(self, others: Iterable[Specialization]) -> Specialization:
        """Return a copy whose code contains the kernels of `others` too, without the `checks` of `others`.

        Any specialization of the same group gives the same code: their order does not matter, except for the checks.
        """
        others = {*others} - {self}
        if not others:
            return self
        all_of_them = sorted(
            {self, *others},
            key=lambda specialization: (
                specialization.name_expression,
                specialization.prelude,
                specialization.postlude,
            ),
        )
        kernels: dict[str, bool] = {}
        for name, unknown in (kernel for specialization in all_of_them for kernel in specialization.requested):
            kernels[name] = unknown or kernels.get(name, False)
        before = dict.fromkeys(piece for specialization in all_of_them for piece in specialization.prelude)
        # The same function object may be an argument for parameters of different names.
        after = {
            re.sub("#line .*", "", piece): piece for specialization in all_of_them for piece in specialization.postlude
        }
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
    """Return the specialization of `signature` for complete template `arguments`.

    Raises
    ------
    TemplateError
        If a parameter cannot be a kernel parameter (a reference), if a struct has no C++ spelling, and for an unknown
        arch or target.
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
    specialization = module._replace(
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
        edits=_edits_of(declarations, signature, parameters or ()) if signature.heads else module.edits,
    )
    own = [(name, specialization.needs_types)] if name not in dict(module.kernels) else []
    return specialization._replace(kernels=(*own, *module.kernels))


def bare(
    source: Source,
    declarations: Declarations,
    arch: str,
    options: CompileOptions,
    names: Names | None = None,
    is_tile: bool = False,
) -> Specialization:
    """Return a specialization of no kernel, with the content that all specializations of a module contain.

    These are the variables, and the kernels without template parameters or overloads. With `is_tile`, they are the tile
    kernels, without variables. `names` are the source's names; by default they are read from the source and its
    headers.
    """
    names = names or names_of(source, declarations, options)
    counts = Counter(signature.name for signature in declarations.kernels)
    kernels = []
    for signature in declarations.kernels:
        # The compiler makes their code in every compile; overloads have no names of their own.
        plain = counts[signature.name] == 1 and signature.defined and not signature.is_template
        if plain and signature.is_tile == is_tile:
            unknown = signature.parameters is None or _doubtful(signature, (), names)
            if not unknown:
                try:
                    bound = bound_parameters(declarations, signature, {}, (), TypeBook(declarations))
                    unknown = any(parameter.category == "unknown" for parameter in bound)
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
        edits=_edits_of(declarations),
    )


def _edits_of(
    declarations: Declarations, kernel: Signature | None = None, parameters: Sequence[BoundParameter] = ()
) -> tuple[Edit, ...]:
    """Return the edits of `cudakit.jit.specialise.tensor_parts.edits_of`; none without tensor parameters."""
    if not any(signature.heads for signature in declarations.kernels):
        return ()
    from cudakit.jit.specialise.tensor_parts import edits_of  # for tile kernels alone

    return edits_of(declarations, kernel, [(parameter.count, parameter.layout) for parameter in parameters])


def _function_type(
    signature: Signature,
    arguments: Mapping[str, Deduced],
    declarations: Declarations,
    bound: Sequence[BoundParameter],
) -> str:
    """Return the type of a pointer to the kernel, which distinguishes it from other kernels of its name."""
    types = _arguments(signature, arguments)
    parameters: list[str] = []
    for position, parameter in enumerate(signature.parameters or ()):
        cpp = substitute(parameter.type, types)
        structs = bound[position].layout if position < len(bound) else None
        if structs is None:
            parameters.append(str(cpp))
            continue
        from cudakit.jit.specialise.tensor_parts import part_types  # for tile kernels alone

        parameters += part_types(cpp, bound[position].count, structs)
    text = f"void (*)({', '.join(parameters)})".replace(" __restrict__", "")
    # The cast stands outside of the kernel's namespace.
    type_names = {*declarations.structs, *(enum.name for enum in declarations.enums), *dict(declarations.aliases)}
    scopes = signature.name.split("::")[:-1]
    for depth in range(len(scopes), 0, -1):
        prefix = "::".join(scopes[:depth]) + "::"
        for type_name in type_names:
            if type_name.startswith(prefix):
                text = re.sub(rf"(?<![\w:]){re.escape(type_name.removeprefix(prefix))}\b", type_name, text)
    return text


def _open(symbol: Symbol, names: Names) -> bool:
    """Return whether only the compiler can tell the type or the extents of a variable."""
    cpp = without_const(resolved(symbol.type, names.declarations))
    plain = scalar_dtype(cpp) is not None and not names.unsure(symbol.type, ())
    return not (plain and all(extent.isdigit() for extent in symbol.extents))


def _doubtful(signature: Signature, arguments: Iterable[str], names: Names) -> bool:
    """Return whether a name in the parameters' types or in the template arguments is ambiguous."""
    own = {parameter.name for parameter in signature.template_parameters}
    types = [parameter.type for parameter in signature.parameters or ()] + [parse_type(text) for text in arguments]
    return any(names.unsure(cpp, own) for cpp in types)


def _checks(
    expression: str, parameters: tuple[BoundParameter, ...] | None, evidence: tuple[Evidence, ...], doubtful: bool
) -> Iterator[str]:
    """Yield C++ assertions about the types of parameters whose arguments have a dtype.

    `expression` is the kernel's name expression. `doubtful` says whether names in its types are ambiguous, which adds
    assertions about structs.
    """
    compiled_position = 0
    for number, argument in enumerate(evidence):
        dtype = argument.dtype
        parameter = parameters[number] if parameters is not None and number < len(parameters) else None
        position, compiled_position = (
            compiled_position,
            compiled_position + (1 if parameter is None else parameter.parts),
        )
        is_tensor = parameter is not None and parameter.category == "tensor"
        if dtype is None or argument.category not in ("array", "scalar") or is_tensor:
            continue
        unknown = parameter is None or parameter.category == "unknown"
        if dtype.names is None and not (unknown and argument.category == "scalar"):
            continue
        from cudakit.types import struct_source  # few kernels need the compiler to check a type

        cpp = struct_source.parameter(position, expression)
        shown = parameter.cpp.removeprefix("const ").partition("*")[0] if parameter else f"of parameter {position}"
        if dtype.names is None:
            name = f"{expression}: parameter {parameter.name if parameter else position} ({shown})"
            yield struct_source.number_assertion(cpp, name, dtype)
        elif doubtful or parameter is None or unknown or (parameter.dtype is not None and parameter.dtype.names):
            yield struct_source.struct_assertions(str(position), cpp, shown, dtype)
