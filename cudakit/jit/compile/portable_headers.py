"""The headers of compiled code on every machine: by folder and name in place of paths."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from cudakit.jit.source import headers
from cudakit.jit.source.closure import Closure, content_of, kind_of
from cudakit.jit.source.roots import Roots
from cudakit.jit.specialise.specialise import Specialization


def roots_of(specialization: Specialization) -> Roots:
    """Return the folders that a specialization's headers are named by."""
    return Roots(specialization.source.folder, specialization.options.include_paths)


def portable_closure(specialization: Specialization, closures: Iterable[Closure | None]) -> Closure | None:
    """Return the headers that were read, and the places where none was, by folder and name in place of the path.

    Files that are linked are among the headers.

    None if files of this machine alone were read, or if they are unknown.
    """
    files, places, roots = dict[str, str](), dict[str, str](), roots_of(specialization)
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
    roots = roots_of(specialization)
    for name, content in closure.files:
        if content_of(path := roots.path(name)) not in (None, content):
            yield path
    for name, state in closure.places if places else ():
        if kind_of(path := roots.path(name)) not in ("", state):
            yield path
