"""The identity of compiled code on every machine: a key without paths and compiler, and the headers that were read."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Iterator
from typing import Final

from cudakit.jit.source import headers, source
from cudakit.jit.source.closure import Closure, content_of, kind_of
from cudakit.jit.source.roots import Roots
from cudakit.jit.specialise.options import Target
from cudakit.jit.specialise.specialise import Specialization

_FORMAT: Final = "2"
#: Options that do not change the code, or whose content is compared as headers.
_LOCAL: Final = ("cache", "bundle", "pch", "lineinfo", "include_paths")
#: Fields of `CompileOptions.extra` that name headers or where they are searched.
_SEARCHED: Final = frozenset(("include_path", "pre_include"))


def base_of(specialization: Specialization) -> str | None:
    """Return the digest of everything in a key but target and arch; None if it would not say what the code is.

    The digest covers source, names and options and, for tile kernels, the host. It does not cover the compiler and
    CUDA's headers: the machine that uses the code may have others, or none. Other headers are compared by themselves.
    """
    options = specialization.options
    if (
        specialization.source.code is not None
        or options.link
        or not _SEARCHED.isdisjoint(name for name, _ in options.extra)
    ):
        return None
    return source_digest(specialization)


def source_digest(spec: Specialization) -> str:
    """Return the digest of source, names and options of a specialization."""
    options = spec.options
    parts = (
        _FORMAT,
        f"{platform.system()} {platform.machine()}" if spec.is_tile else "",
        repr(sorted((name, value) for name, value in vars(options).items() if name not in _LOCAL)),
        str(len(options.include_paths)),
        repr((spec.name_expression, spec.requested, spec.symbols, spec.typed)),
        *spec.prelude,
        source.without_folders(spec.own_text) if spec.source.host_code == "skip" else spec.own_text,
        *spec.postlude,
        spec.checks,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def key_of(base: str, target: Target, arch: str) -> str:
    """Return the key of code: `base` with the target and the arch."""
    return hashlib.sha256(f"{base} {target} {arch}".encode()).hexdigest()


def _roots(specialization: Specialization) -> Roots:
    return Roots(specialization.source.folder, specialization.options.include_paths)


def portable_closure(specialization: Specialization, closures: Iterable[Closure | None]) -> Closure | None:
    """Return the headers that were read, and the places where none was, by folder and name in place of the path.

    None if files of this machine alone were read, or if they are unknown.
    """
    files, places, roots = dict[str, str](), dict[str, str](), _roots(specialization)
    for closure in closures:
        if closure is None:
            return None
        for path, content in closure.files:
            if headers.is_cuda_header(path) or headers.in_toolkit(path):
                continue
            if (name := roots.name(path)) is None:
                return None
            files[name] = content
        for path, state in closure.places:
            name = roots.name(path)
            # cudakit's own folder has headers in place of CUDA's, by intention.
            if name is None or (path.endswith("/*") and name.startswith("<cudakit>")):
                continue
            if path.endswith("/*") and state:  # a header that hides one of CUDA's
                return None
            places[name] = state
    return Closure(tuple(sorted(files.items())), tuple(sorted(places.items())))


def differences(specialization: Specialization, closure: Closure, places: bool) -> Iterator[str]:
    """Yield the paths of headers here that are others than those of a portable closure. Missing headers are no others.

    With `places`, headers that are found here and were not there are yielded too.
    """
    roots = _roots(specialization)
    for name, content in closure.files:
        if content_of(path := roots.path(name)) not in (None, content):
            yield path
    for name, state in closure.places if places else ():
        if kind_of(path := roots.path(name)) not in ("", state):
            yield path
