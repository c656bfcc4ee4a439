"""Keys of compiled code that are the same on every machine, whichever compiler made it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Final

from cudakit import system
from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure, Unsure, has_include_names, kind_of, names_included, read, spliced
from cudakit.jit.specialise.specialise import Specialization

_FORMAT: Final = "1"
#: Options that do not change the code.
_LOCAL: Final = ("cache", "pch")
#: Fields of `CompileOptions.extra` that name headers or where they are searched.
_SEARCHED: Final = frozenset(("include_path", "pre_include"))


def portable_key(specialization: Specialization, closure: Closure | None) -> str | None:
    """Return the key of code on every machine; None if the code depends on files that only this machine has.

    The key covers source, names, options, arch, cudakit's own headers and, for tile kernels, the host. It does not
    cover the compiler and CUDA's headers: the machine that uses the code may have others, or none.
    """
    if closure is None:
        return None
    own = headers.own_folders()

    def is_everywhere(path: str) -> bool:
        is_own = any(system.is_within(path, folder) for folder in own)
        return is_own or headers.is_cuda_header(path) or headers.in_toolkit(path)

    if not all(is_everywhere(path) for path, _ in closure.files):
        return None
    return imported_key(specialization)


def imported_key(specialization: Specialization) -> str | None:
    """Return the key of a specialization's imported code; None if files of this machine can change the code."""
    source, options = specialization.source, specialization.options
    is_searched = not _SEARCHED.isdisjoint(name for name, _ in options.extra)
    if source.code is not None or options.link or options.include_paths or is_searched:
        return None
    text = "\n".join((*specialization.prelude, specialization.own_text, *specialization.postlude)).encode()
    if b"include" in spliced(text) and _has_headers(text, source.folder):
        return None
    return hashlib.sha256(f"{source_digest(specialization)} {_own_headers()}".encode()).hexdigest()


def _has_headers(text: bytes, folder: Path | None) -> bool:
    """Return whether a header in the source's folder may be included, directly or in place of one of CUDA's."""
    try:
        names, has_include_tests = list(names_included(text)), any(has_include_names(text))
    except Unsure:
        return True
    if has_include_tests or folder is None or not names:
        return has_include_tests
    if folder != headers.templates_folder():
        # Headers of CUDA and of cudakit search the source's folder too.
        names += ["*", *_own_names()]
    return any(kind_of(f"{folder}/{name}") for name in names)


def source_digest(spec: Specialization) -> str:
    """Return the digest of everything in the portable key but cudakit's own headers."""
    options = spec.options
    parts = (
        _FORMAT,
        spec.target,
        spec.arch,
        f"{platform.system()} {platform.machine()}" if spec.is_tile else "",
        repr(sorted((name, value) for name, value in vars(options).items() if name not in _LOCAL)),
        repr((spec.name_expression, spec.requested, spec.symbols, spec.typed)),
        *spec.prelude,
        spec.own_text,
        *spec.postlude,
        spec.checks,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _own_names() -> frozenset[str]:
    """Return the names of the files and folders at the top of cudakit's header folders.

    The path of each of cudakit's headers in an ``#include`` begins with one of them.
    """
    last = headers.fallback_folder()
    names = {path.name for folder in (*headers.own_folders(), last) for path in folder.iterdir()}
    return frozenset(names - {last.name})


@cache
def _own_headers() -> str:
    """Return the digest of cudakit's own headers."""
    digest = hashlib.sha256()
    for folder in headers.own_folders():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                digest.update(f"{path.relative_to(folder)}\0".encode() + read(str(path)) + b"\0")
    return digest.hexdigest()
