"""Names of headers that are the same on every machine: a folder that is searched, by its role, and the path in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cudakit import system
from cudakit.jit.source import headers


class Roots:
    """The folders of a source whose headers travel by name: its own, the include paths, and cudakit's.

    Parameters
    ----------
    folder : pathlib.Path or None
        Folder of the source.
    include_paths : iterable of str
        Folders that are searched after it.
    """

    def __init__(self, folder: Path | None, include_paths: Iterable[str]) -> None:
        roots = {
            **({"<source>": str(folder)} if folder is not None else {}),
            **{f"<include {k}>": os.path.abspath(path) for k, path in enumerate(include_paths)},
            "<cudakit>": str(headers.own_folders()[0]),
        }
        self._folders = dict(sorted(roots.items(), key=lambda root: -len(root[1])))  # a folder before one around it

    def name(self, path: str) -> str | None:
        """Return the name of a header, such as ``<include 0>/mine/scale.cuh``; None if no root contains the path."""
        for name, folder in self._folders.items():
            if system.is_within(path, folder):
                return f"{name}/{path[len(folder) + 1 :].replace(os.sep, '/')}"
        return None

    def path(self, name: str) -> str:
        """Return the path here of a header with this name."""
        root, _, rest = name.partition("/")
        return f"{self._folders[root]}/{rest}"
