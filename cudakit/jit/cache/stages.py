"""Cached results of the stages before load: a source's declarations, a specialization's code, and its parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cudakit.errors import CompileError
from cudakit.jit.bundle.used import InUse, in_use
from cudakit.jit.cache import bundled
from cudakit.jit.compile.compiled import type_of
from cudakit.jit.signature.signature import Declarations, declarations_key
from cudakit.jit.specialise.specialise import BoundParameter, PartPromise, Specialization, agreed, bound_parameter

if TYPE_CHECKING:
    from cudakit.jit.bundle.file import BundleFile
    from cudakit.jit.compile.compiled import Compiled
    from cudakit.jit.source.closure import Closure
    from cudakit.jit.source.source import Source
    from cudakit.jit.specialise.spellings import TypeBook
    from cudakit.types.arguments import Evidence


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
            if next(bundles.all_files(), None) is None:
                raise
            raise CompileError(
                bundled.source_miss(origin.name, bundles, f"there is no parser here ({error})")
            ) from error
        return parsed[0].to_json().encode()

    key, bundles = declarations_key(origin.digest), _bundles(folder, bundle)
    stored = bundled.signature_of(key, origin.name, bundles)
    if stored is None:
        from cudakit.jit.cache.cache import cache_at  # not needed where a bundle has the result

        stored = cache_at(folder).blob("signature", key, read)
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
    return bundled.code_of(specialization, _bundles(options.cache, options.bundle))


def _bundles(folder: str | None, bundle: str | None) -> InUse:
    """Return the bundles of a kernel, with the one that was imported into its cache."""

    def imported() -> BundleFile | None:
        from cudakit.jit.cache.cache import cache_at  # not needed where another bundle has the result

        return cache_at(folder).imported()

    return in_use(bundle, imported)


def compiled_and_read(specialization: Specialization) -> tuple[Compiled, frozenset[Closure | None]]:
    """Return a specialization's code, and the closures of its sources: the sets of files that the compiler read.

    None in place of a closure means that the files are unknown. Code of a bundle has no closures.
    """
    ready = bundled_code_of(specialization)
    if ready is not None:
        return ready, frozenset()
    from cudakit.jit.cache.compiling import compiled_here  # with the compiler, which bundles replace

    return compiled_here(specialization)


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
    from cudakit.jit.compile.mangled import parameter_types

    types = parameter_types(compiled.lowered[type_of(specialization.name_expression)])
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
