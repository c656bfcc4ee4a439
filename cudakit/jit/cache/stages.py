"""Results of the stages before load, kept: a source's declarations, a specialization's code, its parameters in full."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator

from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.signature.signature import RECORDS_FORMAT, Declarations
from cudakit.jit.source.closure import Closure
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.specialise import BoundParameter, PartPromise, Specialization, agreed, bound_parameter
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Evidence

_COMMENT_OR_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def declarations_of(origin: Source, folder: str | None = None) -> Declarations:
    """The parsed source, kept on disk by its digest: a process that compiles nothing need not load the parser."""
    parsed: list[Declarations] = []

    if origin.code is not None:
        from cudakit.jit.compile import binary  # as `linked` below: few programs need either

        return binary.declarations(origin)

    def read() -> bytes:
        from cudakit.jit.signature.reader import parse  # not needed where the cache has the result

        parsed.append(parse(origin.text))
        return parsed[0].to_json().encode()

    key = hashlib.sha256(f"{RECORDS_FORMAT} {origin.digest}".encode()).hexdigest()
    stored = cache_at(folder).blob("signature", key, read)
    return parsed[0] if parsed else Declarations.from_json(stored.decode())


def compiled_of(specialization: Specialization) -> Compiled:
    """A specialization's code, from the cache or by the compiler and, where its options or its text ask for it, linker.

    Raises
    ------
    CompileError
    TemplateError
        For what cannot be linked.
    """
    compiled = compiled_and_read(specialization)[0]
    own = specialization.name_expression
    if specialization.kernels and own and own not in compiled.lowered:
        # The compiler refused its name among the others', for which the code was made: alone it says why.
        return compiled_and_read(specialization._replace(kernels=()))[0]
    return compiled


def compiled_and_read(specialization: Specialization) -> tuple[Compiled, frozenset[Closure | None]]:
    """The same, and what the compiler read for each text of it; None where that is not known."""
    made_elsewhere = cache_at(specialization.options.cache).imported(specialization)
    if made_elsewhere is not None:
        return made_elsewhere, frozenset()
    read = set[Closure | None]()

    def compile(text: Specialization) -> Compiled:
        request = nvrtc.Request(text)
        compiled = cache_at(text.options.cache).get(request, request.compile)
        read.add(None if request.unstorable else request.closure)
        return compiled

    return _code_of(specialization, compile, read), frozenset(read)


def _code_of(
    specialization: Specialization, compile: Callable[[Specialization], Compiled], read: set[Closure | None]
) -> Compiled:
    if specialization.source.code is not None:
        return _of_binary(specialization, specialization.source.code, compile)
    if specialization.is_tile and specialization.target == "cubin":
        from cudakit.jit.compile.assemble import Assembly

        own = compile(specialization._replace(target="tileir"))
        assembly = Assembly(specialization, own, *read)
        return cache_at(specialization.options.cache).get(assembly, assembly.run)
    wanted = as_linked(specialization)
    if wanted is None:
        return compile(specialization)
    from cudakit.jit.compile import linked

    own = compile(linked.text_part(wanted))
    if not specialization.options.relocatable and linked.DEVICE_RUNTIME_CALL.encode() not in own.code:
        # The launch that stands in the text is of the host, and code that is not relocatable may be quicker.
        return compile(specialization)
    return _linked(wanted, own, compile)


def _of_binary(specialization: Specialization, code: bytes, compile: Callable[[Specialization], Compiled]) -> Compiled:
    from cudakit.jit.compile import binary, linked

    own = binary.compiled(specialization)
    if not specialization.options.relocatable and binary.runs_as_it_is(code, specialization.target):
        return own
    made = _linked(linked.to_be_linked(specialization), own, compile)
    # LTO IR tells its kernels when it is linked.
    return made if own.lowered or made.target == "ptx" else made._replace(lowered=binary.kernels_of(made.code))


def _linked(wanted: Specialization, own: Compiled, compile: Callable[[Specialization], Compiled]) -> Compiled:
    from cudakit.jit.compile import linked

    others = linked.inputs_of(wanted, compile)
    if wanted.target == "ptx":
        return linked.together(own, others)
    link = linked.Link(wanted, own, others)
    return cache_at(wanted.options.cache).get(link, link.run)


def as_linked(specialization: Specialization) -> Specialization | None:
    """The specialization with relocatable code, if it is to be linked, or may have to be."""
    options = specialization.options
    if specialization.target not in ("cubin", "ptx"):
        return None
    text = specialization.source.text
    if not options.relocatable and not ("<<<" in text and "<<<" in _COMMENT_OR_STRING.sub("", text)):
        return None
    from cudakit.jit.compile import linked

    return linked.to_be_linked(specialization)


def first_request(specialization: Specialization) -> nvrtc.Request:
    """What is compiled first for a specialization of a text: it itself, its part of what is linked, or its Tile IR."""
    if specialization.is_tile and specialization.target == "cubin":
        return nvrtc.Request(specialization._replace(target="tileir"))
    wanted = as_linked(specialization)
    if wanted is None:
        return nvrtc.Request(specialization)
    from cudakit.jit.compile import linked

    return nvrtc.Request(linked.text_part(wanted))


def complete_parameters(
    specialization: Specialization,
    compiled: Compiled,
    declarations: Declarations,
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> tuple[BoundParameter, ...]:
    """The parameters; what the signature left open, or could have taken for another type, as the compiler has it.

    Those of tile code have what it takes for granted of them.
    """
    found = specialization.parameters
    if specialization.needs_types:
        found = _told(specialization, compiled, declarations, evidence, book)
    assert found is not None
    return tuple(promised(found, compiled, compiled.lowered.get(specialization.name_expression, "")))


def _told(
    specialization: Specialization,
    compiled: Compiled,
    declarations: Declarations,
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> tuple[BoundParameter, ...]:
    """The parameters with the types that the compiler says."""
    known = specialization.parameters
    from cudakit.jit.compile.elf import parameter_types

    types = parameter_types(compiled.lowered[nvrtc.type_of(specialization.name_expression)])
    result: list[BoundParameter] = []
    left = list(types)
    while left:
        position, cpp = len(result), left[0]
        parameter = known[position] if known is not None and position < len(known) else None
        del left[: 1 if parameter is None else parameter.parts]
        if parameter is not None and parameter.kind == "tensor":
            result.append(parameter)
            continue
        name = parameter.name if parameter else f"parameter[{position}]"
        found = evidence[position] if position < len(evidence) else None
        told = bound_parameter(name, cpp, None, found, declarations, book)
        result.append(told if parameter is None else agreed(parameter, told))
    return tuple(result)


def promised(parameters: Iterable[BoundParameter], compiled: Compiled, symbol: str) -> Iterator[BoundParameter]:
    """The parameters, with what tile code takes for granted of them."""
    promises = {promise.position: promise for promise in compiled.promises if promise.symbol == symbol}
    first = 0
    for parameter in parameters:
        position, first = first, first + parameter.parts
        promise = promises.get(position)
        if parameter.kind == "tensor":
            found = ((part, promises.get(position + part)) for part in range(parameter.parts))
            yield parameter._replace(promises=tuple(PartPromise(part, *p[2:]) for part, p in found if p is not None))
        elif promise is None:
            yield parameter
        elif parameter.kind == "pointer":
            yield parameter._replace(alignment=math.lcm(parameter.alignment, promise.divisor))
        else:
            yield parameter._replace(divisor=promise.divisor, low=promise.low, high=promise.high)
