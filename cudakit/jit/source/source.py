"""Stage 1, source: text, a file or a packaged template becomes a `Source`; its include closure is read for the key."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from cudakit.errors import TemplateError
from cudakit.jit.source import headers


@dataclass(frozen=True)
class Source:
    """CUDA C++ text and where it came from.

    Attributes
    ----------
    text : str
        The CUDA C++ source.
    name : str
        What diagnostics call it: a path, or ``<kernel text>`` for a string.
    folder : Path or None
        Where ``#include "…"`` looks first; None for a string.
    origin : tuple of (str, int), optional
        File and line of the Python call that gave a string, to place diagnostics in.
    """

    text: str
    name: str
    folder: Path | None = None
    origin: tuple[str, int] | None = field(default=None, compare=False)

    @cached_property
    def digest(self) -> str:
        """sha256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()


class Closure(NamedTuple):
    """What a source includes, as far as it decides the compiled code.

    Attributes
    ----------
    digest : str
        sha256 over every header's name and content, and over the versions of CUDA's header folders that are used.
    headers : tuple of str
        Paths of the headers that were read.
    uses_toolkit : bool
        Whether a header of CUDA is included, so that its folders must be on the include path.
    computed : int or None
        Line of an ``#include MACRO``, which cannot be followed: such a source is not kept on disk.
    """

    digest: str
    headers: tuple[str, ...]
    uses_toolkit: bool
    computed: str | None


def from_text(text: str, depth: int = 1) -> Source:
    """`Source` of a string; `depth` counts the frames between the user's call and this one."""
    if not isinstance(text, str):
        raise TemplateError(f"Kernel takes CUDA C++ source as a str, got {type(text).__name__}; see Kernel.from_file")
    if text.strip().endswith((".cu", ".cuh")) and "{" not in text:
        raise TemplateError(f"Kernel takes CUDA C++ source, got a name: {text!r}; a file is Kernel.from_file(…)")
    frame = sys._getframe(depth)
    return Source(text, "<kernel text>", None, (frame.f_code.co_filename, frame.f_lineno))


def from_file(path: str | Path) -> Source:
    """`Source` of a file; quoted includes are looked for beside it."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TemplateError(f"cannot read the CUDA source {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TemplateError(f"the CUDA source {path} is not UTF-8 (byte {error.start})") from error
    return Source(text, str(path), path.resolve().parent)


def from_template(concept: str) -> Source:
    """`Source` of the packaged template file ``templates/<concept>.cuh``."""
    folder = headers.templates_folder()
    path = folder / f"{concept}.cuh"
    if not path.is_file():
        known = ", ".join(sorted(entry.stem for entry in folder.glob("*.cuh"))) or "none"
        raise TemplateError(f"no packaged template {concept!r}; there are: {known}")
    return from_file(path)


def closure(source: Source, prelude: str, include_paths: tuple[str, ...]) -> Closure:
    """Read every header that `source` (or the generated `prelude` before it) may include.

    Parameters
    ----------
    source : Source
    prelude : str
        Generated text that is compiled before the source.
    include_paths : tuple of str
        The user's include folders, in order.

    Returns
    -------
    Closure
    """
    if "include" not in source.text and "include" not in prelude:
        return Closure(hashlib.sha256().hexdigest(), (), uses_toolkit=False, computed=None)
    local = (*map(Path, include_paths), *headers.own_folders())
    hasher = hashlib.sha256()
    seen: dict[Path, None] = {}
    missing: set[str] = set()
    computed: str | None = None
    pending: list[tuple[str, Path | None, bytes]] = [
        (source.name, source.folder, source.text.encode()),
        ("<generated>", None, prelude.encode()),
    ]
    while pending:
        where, folder, text = pending.pop()
        for name, quoted, line in headers.included_names(text):
            if not name:
                computed = computed or f"{where} line {line} includes a macro, which cannot be followed"
                continue
            search = (folder, *local) if quoted and folder is not None else local
            path = next((p for p in (Path(f) / name for f in search) if p.is_file()), None)
            if path is None:
                missing.add(name)
            elif path not in seen:
                seen[path] = None
                content = path.read_bytes()
                hasher.update(f"{path.name}\0{len(content)}\0".encode() + content)
                pending.append((str(path), path.parent, content))
    uses_toolkit = bool(missing)
    for name in sorted(missing):
        hasher.update(f"elsewhere\0{name}\0".encode())
    if uses_toolkit:
        for folder in headers.toolkit_folders():
            hasher.update(headers.folder_version(folder).encode())
        for path in sorted(headers.fallback_folder().glob("*")):
            hasher.update(path.read_bytes())
    return Closure(hasher.hexdigest(), tuple(map(str, seen)), uses_toolkit, computed)
