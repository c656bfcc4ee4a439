"""Cached results of the stages before load: a source's declarations, a specialization's code, and its parameters."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator

from cudakit.errors import CompileError
from cudakit.jit.bundle.used import in_use
from cudakit.jit.cache import bundled
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.signature.signature import Declarations, declarations_key
from cudakit.jit.source.closure import Closure
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.specialise import BoundParameter, PartPromise, Specialization, agreed, bound_parameter
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Evidence

_COMMENT_OR_STRING = r'(?s)"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'


def declarations_of(origin: Source, folder: str | None = None, bundle: str | None = None) -> Declarations:
    """Parse a source. The result is stored on disk by the source's digest, so that a cached source needs no parser.

    `folder` is the cache of the kernel's own, and `bundle` the path of its own bundle.
    """
    parsed: list[Declarations] = []

    if origin.code is not None:
        from cudakit.jit.compile import binary  # as `linked` below: few programs need either

        return binary.declarations(origin)

    def read() -> bytes:
        from cudakit.jit.signature.reader import parse  # not needed where the cache has the result

        try:
            parsed.append(parse(origin.text))
        except CompileError as error:  # no parser is here
            if not bundles.files:
                raise
            raise CompileError(
                bundled.source_miss(origin.name, bundles, f"there is no parser here ({error})")
            ) from error
        return parsed[0].to_json().encode()

    key, cache = declarations_key(origin.digest), cache_at(folder)
    bundles = in_use(bundle, cache.imported())
    stored = bundled.signature_of(key, origin.name, bundles)
    if stored is None:
        stored = cache.blob("signature", key, read)
    return parsed[0] if parsed else Declarations.from_json(stored.decode())


def compiled_of(specialization: Specialization) -> Compiled:
    """Return a specialization's code, from the cache, or from the compiler and, if needed, the linker.

    Raises
    ------
    CompileError
    TemplateError
        For inputs that cannot be linked.
    """
    compiled = compiled_and_read(specialization)[0]
    own = specialization.name_expression
    if specialization.kernels and own and own not in compiled.lowered:
        # The compiler refused its name when it compiled for all kernels: compiled alone, the error says why.
        return compiled_and_read(specialization._replace(kernels=()))[0]
    return compiled


def bundled_code_of(specialization: Specialization) -> Compiled | None:
    """Return a specialization's code from the bundles in use, imported ones included; None if it may be compiled.

    Raises
    ------
    CompileError
        If no bundle has the code, and nothing may be compiled.
    """
    options = specialization.options
    return bundled.code_of(specialization, in_use(options.bundle, cache_at(options.cache).imported()))


def compiled_and_read(specialization: Specialization) -> tuple[Compiled, frozenset[Closure | None]]:
    """Return a specialization's code, and the closures of its sources: the sets of files that the compiler read.

    None in place of a closure means that the files are unknown. Code of a bundle has no closures.
    """
    ready = bundled_code_of(specialization)
    return (ready, frozenset()) if ready is not None else compiled_here(specialization)


def compiled_here(specialization: Specialization) -> tuple[Compiled, frozenset[Closure | None]]:
    """Return a specialization's code and closures, as `compiled_and_read` does, but never from a bundle."""
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
        return _of_binary(specialization, specialization.source.code, compile, read)
    if specialization.is_tile and specialization.target == "cubin":
        from cudakit.jit.compile.assemble import Assembly

        own = compile(specialization._replace(target="tileir"))
        assembly = Assembly(specialization, own, *read)
        return cache_at(specialization.options.cache).get(assembly, assembly.run)
    relocatable = as_linked(specialization)
    if relocatable is None:
        return compile(specialization)
    from cudakit.jit.compile import linked

    own = compile(linked.text_part(relocatable))
    if not specialization.options.relocatable and linked.DEVICE_RUNTIME_CALL.encode() not in own.code:
        # The launch in the text is host code; code that is not relocatable may be faster.
        return compile(specialization)
    return _linked(relocatable, own, compile, specialization, read)


def _of_binary(
    specialization: Specialization,
    code: bytes,
    compile: Callable[[Specialization], Compiled],
    read: set[Closure | None],
) -> Compiled:
    from cudakit.jit.compile import binary, linked

    own = binary.compiled(specialization)
    if not specialization.options.relocatable and binary.runs_as_it_is(code, specialization.target):
        return own
    linked_code = _linked(linked.to_be_linked(specialization), own, compile, specialization, read)
    # LTO IR lists its kernels only when it is linked.
    return (
        linked_code
        if own.lowered or linked_code.target == "ptx"
        else linked_code._replace(lowered=binary.kernels_of(linked_code.code))
    )


def _linked(
    specialization: Specialization,
    own: Compiled,
    compile: Callable[[Specialization], Compiled],
    unlinked: Specialization,
    read: set[Closure | None],
) -> Compiled:
    from cudakit.jit.compile import linked

    others = linked.inputs_of(specialization, compile)
    if specialization.target == "ptx":
        return linked.together(own, others)
    link = linked.Link(specialization, own, others, (unlinked, tuple(read)))
    return cache_at(specialization.options.cache).get(link, link.run)


def as_linked(specialization: Specialization) -> Specialization | None:
    """Return the specialization with the options for linking, if its code must or may have to be linked; else None.

    Code is linked if an option asks for it, or if its source launches kernels (``<<<``).
    """
    options = specialization.options
    if specialization.target not in ("cubin", "ptx"):
        return None
    text = specialization.source.text
    if not options.relocatable and not ("<<<" in text and "<<<" in re.sub(_COMMENT_OR_STRING, "", text)):
        return None
    from cudakit.jit.compile import linked

    return linked.to_be_linked(specialization)


def first_request(specialization: Specialization) -> nvrtc.Request:
    """Return the first compile of a specialization, as a request to the cache. Nothing is compiled.

    A tile kernel for a GPU is first compiled to Tile IR. If the code must be linked, its own source is first compiled
    to code for the linker. Otherwise the request is the specialization itself.
    """
    if specialization.is_tile and specialization.target == "cubin":
        return nvrtc.Request(specialization._replace(target="tileir"))
    relocatable = as_linked(specialization)
    if relocatable is None:
        return nvrtc.Request(specialization)
    from cudakit.jit.compile import linked

    return nvrtc.Request(linked.text_part(relocatable))


def complete_parameters(
    specialization: Specialization,
    compiled: Compiled,
    declarations: Declarations,
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> tuple[BoundParameter, ...]:
    """Return the parameters, with the compiler's types where the signature leaves them open or ambiguous.

    For tile code, each parameter also has the code's assumptions about its argument.
    """
    parameters = specialization.parameters
    if specialization.needs_types:
        parameters = _compiled_parameters(specialization, compiled, declarations, evidence, book)
    assert parameters is not None
    return tuple(promised(parameters, compiled, compiled.lowered.get(specialization.name_expression, "")))


def _compiled_parameters(
    specialization: Specialization,
    compiled: Compiled,
    declarations: Declarations,
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> tuple[BoundParameter, ...]:
    """Return the parameters with the compiler's types."""
    parameters = specialization.parameters
    from cudakit.jit.compile.elf import parameter_types

    types = parameter_types(compiled.lowered[nvrtc.type_of(specialization.name_expression)])
    result: list[BoundParameter] = []
    left = list(types)
    while left:
        position, cpp = len(result), left[0]
        parameter = parameters[position] if parameters is not None and position < len(parameters) else None
        del left[: 1 if parameter is None else parameter.parts]
        if parameter is not None and parameter.category == "tensor":
            result.append(parameter)
            continue
        name = parameter.name if parameter else f"parameter[{position}]"
        argument = evidence[position] if position < len(evidence) else None
        compiled_parameter = bound_parameter(name, cpp, None, argument, declarations, book)
        result.append(compiled_parameter if parameter is None else agreed(parameter, compiled_parameter))
    return tuple(result)


def promised(parameters: Iterable[BoundParameter], compiled: Compiled, symbol: str) -> Iterator[BoundParameter]:
    """Yield the parameters, each with tile code's assumptions about its argument added.

    `symbol` is the mangled name of the kernel. Parameters without an assumption are yielded unchanged.
    """
    promises = {promise.position: promise for promise in compiled.promises if promise.symbol == symbol}
    first = 0
    for parameter in parameters:
        position, first = first, first + parameter.parts
        promise = promises.get(position)
        if parameter.category == "tensor":
            pairs = ((part, promises.get(position + part)) for part in range(parameter.parts))
            yield parameter._replace(promises=tuple(PartPromise(part, *p[2:]) for part, p in pairs if p is not None))
        elif promise is None:
            yield parameter
        elif parameter.category == "pointer":
            yield parameter._replace(alignment=math.lcm(parameter.alignment, promise.divisor))
        else:
            yield parameter._replace(divisor=promise.divisor, low=promise.low, high=promise.high)
