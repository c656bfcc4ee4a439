"""The identity of compiled code on every machine: a key without paths and compiler, and the headers that were read."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cudakit.jit.source import headers, source
from cudakit.jit.source.closure import Closure, content_of, kind_of
from cudakit.jit.source.roots import Roots
from cudakit.jit.source.source import Source
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
    if specialization.source.code is not None or not _SEARCHED.isdisjoint(name for name, _ in options.extra):
        return None
    if not options.link:
        return source_digest(specialization)
    linked = tuple(_linked_name(item, _roots(specialization)) for item in options.link)
    return None if None in linked else source_digest(specialization, linked)


def _linked_name(item: Source | Path | bytes, roots: Roots) -> str | None:
    """Return the name of an input of the linker: that of a file, as of a header, and the digest of other inputs."""
    if isinstance(item, Path):
        return roots.name(os.path.abspath(item))
    return hashlib.sha256(item).hexdigest() if isinstance(item, bytes) else item.digest


def source_digest(spec: Specialization, linked: tuple[str | None, ...] = ()) -> str:
    """Return the digest of source, names and options of a specialization. `linked` has the names of linked inputs."""
    options = spec.options
    values = {**vars(options), "link": linked}
    parts = (
        _FORMAT,
        f"{platform.system()} {platform.machine()}" if spec.is_tile else "",
        repr(sorted((name, value) for name, value in values.items() if name not in _LOCAL)),
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

    Files that are linked are among the headers.

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
    for item in specialization.options.link:
        if isinstance(item, Path):  # compared as headers are
            path = os.path.abspath(item)
            name, digest = roots.name(path), content_of(path)
            if name is None or digest is None:
                return None
            files[name] = digest
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
