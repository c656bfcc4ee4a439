"""Results of the stages before load, kept: a source's declarations, a specialization's code, its parameters in full."""

from __future__ import annotations

import hashlib

from cudakit.jit.cache.cache import default_cache
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.signature.signature import RECORDS_FORMAT, Declarations, parse
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.parameters import BoundParameter, agreed, bound_parameter
from cudakit.jit.specialise.specialise import Specialization
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Evidence


def declarations_of(origin: Source) -> Declarations:
    """The parsed source, kept on disk by its digest: a process that compiles nothing need not load the parser."""
    parsed: list[Declarations] = []

    def read() -> bytes:
        parsed.append(parse(origin.text))
        return parsed[0].to_json().encode()

    key = hashlib.sha256(f"{RECORDS_FORMAT} {origin.digest}".encode()).hexdigest()
    stored = default_cache().blob("signature", key, read)
    return parsed[0] if parsed else Declarations.from_json(stored.decode())


def compiled_of(specialization: Specialization) -> Compiled:
    """A specialization's code, from the cache or by the compiler."""
    request = nvrtc.Request(specialization)
    return default_cache().get(request, request.compile)


def complete_parameters(
    specialization: Specialization,
    compiled: Compiled,
    declarations: Declarations,
    evidence: tuple[Evidence, ...],
    book: TypeBook,
) -> tuple[BoundParameter, ...]:
    """The parameters; what the signature left open, or could have taken for another type, as the compiler has it."""
    known = specialization.parameters
    if not specialization.needs_types:
        assert known is not None
        return known
    from cudakit.jit.compile.demangle import parameter_types

    types = parameter_types(compiled.lowered[nvrtc.type_of(specialization.name_expression)])
    result = []
    for position, cpp in enumerate(types):
        parameter = known[position] if known is not None and position < len(known) else None
        name = parameter.name if parameter else f"parameter[{position}]"
        found = evidence[position] if position < len(evidence) else None
        told = bound_parameter(name, cpp, None, found, declarations, book)
        result.append(told if parameter is None else agreed(parameter, told))
    return tuple(result)
