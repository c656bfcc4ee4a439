"""What compiled code is known by on every machine, whatever compiler made it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure, Unsure, kind_of, names_asked_for, names_included, read, spliced
from cudakit.jit.specialise.specialise import Specialization

_FORMAT: Final = "1"
#: Options that say what is kept, and change no code.
_LOCAL: Final = ("cache", "pch")
#: Fields of `CompileOptions.extra` that name headers or where they are searched.
_SEARCHED: Final = frozenset(("include_path", "pre_include"))


def portable_key(specialization: Specialization, closure: Closure | None) -> str | None:
    """What code is known by on every machine; None where it depends on files that only this machine has.

    Text, names, options, arch, cudakit's own headers, and, of tile kernels, the host: not compiler and CUDA's headers,
    which may be others where the code is used, or none.
    """
    if closure is None:
        return None
    own = tuple(f"{folder}/" for folder in headers.own_folders())
    if not all(path.startswith(own) or headers.is_cudas(path) or headers.in_toolkit(path) for path, _ in closure.files):
        return None
    return wanted_key(specialization)


def wanted_key(specialization: Specialization) -> str | None:
    """The key under which imported code of a specialization would be; None where files of this machine have a say."""
    source, options = specialization.source, specialization.options
    is_searched = not _SEARCHED.isdisjoint(name for name, _ in options.extra)
    if source.code is not None or options.link or options.include_paths or is_searched:
        return None
    text = "\n".join((*specialization.prelude, specialization.own_text, *specialization.postlude)).encode()
    if b"include" in spliced(text) and _has_headers(text, source.folder):
        return None
    return hashlib.sha256(f"{written_digest(specialization)} {_own_headers()}".encode()).hexdigest()


def _has_headers(text: bytes, folder: Path | None) -> bool:
    """Whether a header in the source's folder may be included, directly or in the place of one of CUDA's."""
    try:
        names, asked = list(names_included(text)), any(names_asked_for(text))
    except Unsure:
        return True
    if asked or folder is None or not names:
        return asked
    if folder != headers.templates_folder():
        # Headers of CUDA and of cudakit search the source's folder too.
        names += ["*", *_own_names()]
    return any(kind_of(f"{folder}/{name}") for name in names)


def written_digest(spec: Specialization) -> str:
    """What code is known by on every machine, but for cudakit's own headers."""
    options = spec.options
    parts = (
        _FORMAT,
        spec.target,
        spec.arch,
        f"{platform.system()} {platform.machine()}" if spec.is_tile else "",
        repr(sorted((name, value) for name, value in vars(options).items() if name not in _LOCAL)),
        repr((spec.name_expression, spec.asked, spec.symbols, spec.typed)),
        *spec.prelude,
        spec.own_text,
        *spec.postlude,
        spec.checks,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _own_names() -> frozenset[str]:
    """What the first part of a name can be that finds one of cudakit's headers."""
    last = headers.fallback_folder()
    names = {path.name for folder in (*headers.own_folders(), last) for path in folder.iterdir()}
    return frozenset(names - {last.name})


@cache
def _own_headers() -> str:
    """Digest of cudakit's own headers."""
    found = hashlib.sha256()
    for folder in headers.own_folders():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found.update(f"{path.relative_to(folder)}\0".encode() + read(str(path)) + b"\0")
    return found.hexdigest()
