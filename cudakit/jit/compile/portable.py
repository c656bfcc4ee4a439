"""What compiled code is known by on every machine, whatever compiler made it."""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure, read
from cudakit.jit.specialise.specialise import Specialization

_FORMAT: Final = "1"
#: Options that say where things are on one machine, or what is kept; they change no code that is portable.
_LOCAL: Final = ("include_paths", "cache", "pch", "link")


def portable_key(specialization: Specialization, closure: Closure | None) -> str | None:
    """What code is known by on every machine; None where it depends on files that only this machine has.

    Text, names, options, arch, cudakit's own headers, and, of tile kernels, the host: not compiler and CUDA's headers,
    which may be others where the code is used, or none.
    """
    if closure is None or specialization.options.link or specialization.source.code is not None:
        return None
    own = tuple(f"{folder}/" for folder in headers.own_folders())
    if not all(path.startswith(own) or headers.is_cudas(path) or headers.in_toolkit(path) for path, _ in closure.files):
        return None
    return _digest(specialization)


def wanted_key(specialization: Specialization) -> str | None:
    """The key under which imported code of a specialization would be."""
    return None if specialization.source.code is not None else _digest(specialization)


def _digest(spec: Specialization) -> str:
    options = spec.options
    parts = (
        _FORMAT,
        _own_headers(),
        spec.target,
        spec.arch,
        f"{platform.system()} {platform.machine()}" if spec.is_tile else "",
        repr(sorted((name, value) for name, value in vars(options).items() if name not in _LOCAL)),
        repr((spec.name_expression, spec.asked, spec.symbols, spec.typed)),
        *spec.prelude,
        spec.source.text,
        *spec.postlude,
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


@cache
def _own_headers() -> str:
    """Digest of cudakit's own headers."""
    found = hashlib.sha256()
    for folder in headers.own_folders():
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                found.update(f"{path.relative_to(folder)}\0".encode() + read(str(path)) + b"\0")
    return found.hexdigest()
