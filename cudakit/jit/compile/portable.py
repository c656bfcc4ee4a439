"""The identity of compiled code on every machine: a key without paths and compiler."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cudakit.jit.source import source
from cudakit.jit.specialise.options import Target
from cudakit.jit.specialise.specialise import Specialization

if TYPE_CHECKING:
    from cudakit.jit.source.roots import Roots
    from cudakit.jit.source.source import Source

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
    from cudakit.jit.compile.portable_headers import roots_of  # few kernels are linked

    linked = tuple(_linked_name(item, roots_of(specialization)) for item in options.link)
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
