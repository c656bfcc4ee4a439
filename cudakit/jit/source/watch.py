"""What a compile can have read, and looked for: the closure, seen from outside the compiler.

What can be read comes from `cudakit.jit.source.includes`. Where the compiler looks first and finds nothing is noted
too: each name for every folder in which it would have been found earlier, and each name in an ``__has_include`` for
every folder at all. What cannot be known so raises `Unsure`, and is not kept.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from cudakit.jit.source import headers
from cudakit.jit.source.closure import TELLS_TIME, TIMES, Closure, content_of, kind_of, mark_of, read

_SPLICE: Final = re.compile(rb"\\[ \t\v\f]*\r?\n")
_ASKED: Final = re.compile(rb"""has_include\w*\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)""", re.IGNORECASE)
#: ``__has_include`` other than with a name in quotes or brackets, or as the macro that `#ifdef` asks about.
_ASKED_OTHERWISE: Final = re.compile(
    rb"""(?<!ifdef )(?<!ifndef )(?<!defined )(?<!defined\()(?<!\w)__has_include(?:_next)?\b(?!\s*\(\s*["<])"""
)
#: How a name that ``##`` may complete to ``__has_include`` can begin.
_BEGINNING: Final = re.compile(rb"(?<!\w)_(?:_(?:h(?:a(?:s(?:_(?:i(?:n(?:c(?:l(?:u(?:de?)?)?)?)?)?)?)?)?)?)?)?(?!\w)")
_EMBED: Final = re.compile(rb"(?:\#|%:)\s*embed\b|__has_embed\b")


class Unsure(Exception):
    """Why it cannot be known what a compile has read."""


class Watch:
    """What is known before a compile, to tell afterwards whether something changed while the compiler read.

    Parameters
    ----------
    folders : iterable of str
        Where headers are searched, in order.
    files : iterable of str
        Files that will be read; one that was saved just now can be used all the same.
    """

    def __init__(self, folders: Iterable[str], files: Iterable[str] = ()) -> None:
        self.folders: tuple[str, ...] = tuple(dict.fromkeys(folders))
        self._files = {path: (mark_of(path), content_of(path)) for path in files}
        self._identities = self._identify()
        self._since_ns = _now_ns()

    def check_folders(self) -> None:
        """Raise `Unsure` if a folder is no longer the one that it was."""
        if self._identify() != self._identities:
            raise Unsure("a folder of headers was replaced while it was compiled")

    def check(self, path: str, content: str | None) -> None:
        """Raise `Unsure` if the file may have changed since."""
        changed = content is None or self.changed(path)
        if changed and (content is None or self._files.get(path) != (mark_of(path), content)):
            raise Unsure(f"{path} changed while it was compiled")

    def changed(self, path: str) -> bool:
        """Whether a file or folder, a link to it or a folder between it and those that are searched is new."""
        with contextlib.suppress(OSError):
            newest = max(_changed_ns(os.stat(path)), _changed_ns(os.lstat(path)))
            if "/../" not in path and any(path.startswith(f"{folder}/") for folder in self.folders):
                while (path := os.path.dirname(path)) not in self.folders and len(path) > 1:
                    newest = max(newest, _changed_ns(os.lstat(path)))
            return newest >= self._since_ns
        return True

    def _identify(self) -> list[tuple[int, int] | None]:
        return [_identity(folder) for folder in self.folders]


def closure_of(reads: list[str], texts: Iterable[bytes], watch: Watch) -> Closure:
    """The closure of a compile that reads no more than `reads`.

    Parameters
    ----------
    reads : iterable of str
        Absolute paths of all that was read, as the compiler found them.
    texts : iterable of bytes
        Texts that are no file: the source, and macros of the command line.
    watch : Watch
        Made before the compile.

    Raises
    ------
    Unsure
    """
    folders = watch.folders
    watch.check_folders()
    asked = {name for text in texts for name in names_asked_for(text)}
    files: dict[str, str] = {}
    for path in reads:
        if not os.path.isabs(path):
            raise Unsure(f"{path} was found in the working directory")
        if headers.is_cudas(path):
            continue
        content = content_of(path)
        watch.check(path, content)
        assert content is not None
        files[path] = content
        asked |= set(names_asked_for(read(path)))
    beside = [folder for folder in dict.fromkeys(map(os.path.dirname, files)) if folder not in folders]
    open_folders = [folder for folder in folders if not headers.in_wheel(f"{folder}/")]
    places: dict[str, str] = {}
    kinds = cache(kind_of)

    def note(folder: str, name: str) -> None:
        path = folder
        for part in name.split("/"):
            path = f"{path}/{part}"
            if kinds(path) != "folder":
                break
        if path not in files and path not in places:
            places[path] = kinds(path)

    if any(map(headers.is_cudas, reads)):
        installed = set(map(str, headers.toolkit_folders()))
        for folder in (*open_folders, *beside):
            if folder not in installed:
                places[f"{folder}/*"] = kind_of(f"{folder}/*")
    for path in files:
        for position, folder in enumerate(folders):
            if path.startswith(f"{folder}/"):
                for earlier in (*(f for f in folders[:position] if f in open_folders), *beside):
                    note(earlier, path[len(folder) + 1 :])
    for name in asked:
        for folder in (*open_folders, *beside):
            note(folder, name)
    return Closure(tuple(sorted(files.items())), tuple(sorted(places.items())))


def names_asked_for(text: bytes) -> Iterator[str]:
    """Names in each ``__has_include`` of a text.

    Raises
    ------
    Unsure
        If there may be one whose name is not written there.
    """
    if b"\\" in text:
        text = _SPLICE.sub(b"", text)
    if b"has_include" in text:
        if _ASKED_OTHERWISE.search(text):
            raise Unsure("an __has_include has a name that is made by a macro")
        for match in _ASKED.finditer(text):
            yield os.fsdecode(match[1] or match[2])
    if (b"##" in text or b"%:%:" in text) and _BEGINNING.search(text):
        raise Unsure("a macro may make an __has_include with ##")
    if b"embed" in text and _EMBED.search(text):
        raise Unsure("#embed reads a file")
    if any(name.encode() in text for name in TIMES):
        raise Unsure(TELLS_TIME)


def _identity(folder: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = os.stat(folder)
        return found.st_dev, found.st_ino
    return None


def _changed_ns(found: os.stat_result) -> int:
    # On Windows this is the time of creation.
    return found.st_mtime_ns if os.name == "nt" else found.st_ctime_ns


def _now_ns() -> int:
    """A time that a file changed from now on gets at the least, and that one changed before does not reach.

    The system dates files by a clock of its own, coarser than any that can be asked; so a file in memory is changed
    until its date moves.
    """
    if not hasattr(os, "memfd_create"):
        return time.time_ns() - 20_000_000
    file = os.memfd_create("cudakit")
    try:
        first = last = _touch(file)
        while last == first:  # for at most a tick, and not at all from Linux 6.13 on
            time.sleep(0.0002)
            last = _touch(file)
        return last
    finally:
        os.close(file)


def _touch(file: int) -> int:
    os.utime(file)
    return os.fstat(file).st_ctime_ns
