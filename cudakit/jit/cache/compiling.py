"""Code from the cache, or from the compiler and, if needed, the linker. A kernel of a bundle never comes here."""

from __future__ import annotations

import re
from collections.abc import Callable

from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.specialise import Specialization

_COMMENT_OR_STRING = r'(?s)"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/'


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
