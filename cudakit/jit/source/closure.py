"""The closure of a source: all files that the compiler reads, and all paths where another header could be found first.

The closure is computed without the compiler. `all_included` returns every file that a source may include, down to
CUDA's headers: possibly more than the compiler reads, never less. It counts every possible ``#include``, also in
skipped branches and in comments, and every folder where the name exists. Paths where the compiler looks first and finds
nothing are recorded too. These are each included name in every earlier folder, and each name of an ``__has_include`` in
every folder. If the closure cannot be computed, `Unsure` is raised and the code is not cached.

NVRTC could list the files that it reads (``--fdevice-time-trace``, from CUDA 13.0 on), but its profiler corrupts memory
when a process compiles more than once. So this list serves only to check the closure, in the tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from cudakit import system
from cudakit.jit.source import headers
from cudakit.records import NamedTuple


class Closure(NamedTuple):
    """Files that determine the compiled code, and paths whose state must stay the same.

    Attributes
    ----------
    files : tuple of (str, str)
        Path, and SHA-256 of the content. A file of an installed toolkit has its file status in place of the hash. Files
        of NVIDIA's wheels are left out: the wheels' versions are part of the cache key.
    places : tuple of (str, str)
        Path, and its state: ``"file"``, ``"folder"`` or ``""`` for nothing. A folder's path with ``/*`` has a digest of
        its entries that could shadow a header of CUDA's.
    """

    files: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of the closure; empty for an empty closure."""
        return "" if self == NOTHING_READ else hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self)

    @staticmethod
    def from_json(text: str) -> Closure:
        """Parse a closure; raise ValueError or TypeError for other data."""
        files, places = json.loads(text)
        pairs = [tuple((str(path), str(content)) for path, content in records) for records in (files, places)]
        return Closure(pairs[0], pairs[1])

    @property
    def marks(self) -> str:
        """Digest of the status (size, times, inode) of all files.

        It changes with every change to a file, even a change that is undone.
        """
        return hashlib.sha256(repr([mark_of(path) for path, _ in self.files]).encode()).hexdigest()

    def holds(self) -> bool:
        """Return whether all files and paths are unchanged."""
        return all(kind_of(path) == content_kind for path, content_kind in self.places) and all(
            content_of(path) == content for path, content in self.files
        )


NOTHING_READ: Final = Closure()
#: Macros with another value in each compile, and the reason that is reported.
TIMES: Final = ("__DATE__", "__TIME__")
TELLS_TIME: Final = "its text asks for the time of the compile"


def read(path: str) -> bytes:
    """Read a file; a pipe in its place does not block."""
    with open(path, "rb", buffering=0, opener=_opened) as file:
        return file.readall()


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | system.NOT_WAITING)


def content_of(path: str) -> str | None:
    """Return a file's SHA-256, or the status of a toolkit's file; None if it cannot be read."""
    if headers.in_toolkit(path):
        return mark_of(path)
    try:
        return hashlib.sha256(read(path)).hexdigest()
    except OSError:
        return None


def mark_of(path: str) -> str | None:
    """Return a file's status as a text, or None if there is no such file.

    The status changes whenever the file changes. Reading it is ten times as fast as a hash.
    """
    with contextlib.suppress(OSError):
        status = os.stat(path)
        return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"
    return None


def kind_of(path: str) -> str:
    """Return the state of a path: ``"file"``, ``"folder"`` or ``""`` for nothing; a digest for ``folder/*``."""
    if path.endswith("/*"):
        return _shadows(path[:-2])
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file"


def _shadows(folder: str) -> str:
    try:
        names = sorted(headers.cuda_header_names().intersection(os.listdir(folder)))
    except OSError:
        return ""
    paths = [f"{folder}/{name}" for name in names]
    for path in [path for path in paths if os.path.isdir(path)]:
        paths += [os.path.join(at, name) for at, _, files in os.walk(path, followlinks=True) for name in sorted(files)]
    return hashlib.sha256(repr([(path, mark_of(path)) for path in paths]).encode()).hexdigest() if paths else ""


_SPLICE: Final = rb"\\[ \t\v\f]*\r?\n"
_ASKED: Final = rb"""(?i)has_include\w*\s*\(\s*(?:"([^"\n]+)"|<([^>\n]+)>)"""
#: ``__has_include`` other than with a name in quotes or brackets, or as the macro that `#ifdef` asks about.
_ASKED_OTHERWISE: Final = (
    rb"""(?<!ifdef )(?<!ifndef )(?<!defined )(?<!defined\()(?<!\w)__has_include(?:_next)?\b(?!\s*\(\s*["<])"""
)
#: The begin of a name that ``##`` may complete to ``__has_include``.
_BEGINNING: Final = rb"(?<!\w)_(?:_(?:h(?:a(?:s(?:_(?:i(?:n(?:c(?:l(?:u(?:de?)?)?)?)?)?)?)?)?)?)?)?(?!\w)"
_EMBED: Final = rb"(?:\#|%:)\s*embed\b|__has_embed\b"


class Unsure(Exception):
    """The closure of a compile cannot be computed; the message says why."""


class Watch:
    """The state of folders and files before a compile, to detect changes during the compile.

    Parameters
    ----------
    folders : iterable of str
        Folders that are searched for headers, in order.
    files : iterable of str
        Files that will be read. A file that was saved just now is accepted if it is among them.
    """

    def __init__(self, folders: Iterable[str], files: Iterable[str] = ()) -> None:
        self.folders: tuple[str, ...] = tuple(dict.fromkeys(folders))
        self._files = {path: (mark_of(path), content_of(path)) for path in files}
        self._identities = self._identify()
        self._since_ns = system.now_ns()

    def check_folders(self) -> None:
        """Raise `Unsure` if a folder has been replaced."""
        if self._identify() != self._identities:
            raise Unsure("a folder of headers was replaced while it was compiled")

    def check(self, path: str, content: str | None) -> None:
        """Raise `Unsure` if a file may have changed since the watch began.

        `content` is its SHA-256; None, for a file that cannot be read, always raises.

        A file that was watched by name is accepted if it is the same as at the begin.
        """
        changed = content is None or self.changed(path)
        if changed and (content is None or self._files.get(path) != (mark_of(path), content)):
            raise Unsure(f"{path} changed while it was compiled")

    def changed(self, path: str) -> bool:
        """Return whether a path is missing, or may have changed since the watch began.

        A change of a symbolic link counts too, and so does a change of a folder between the path and the searched
        folder.
        """
        with contextlib.suppress(OSError):
            newest = max(map(system.changed_ns, (os.stat(path), os.lstat(path))))
            if "/../" not in path and any(system.is_within(path, folder) for folder in self.folders):
                while (path := os.path.dirname(path)) not in self.folders and len(path) > 1:
                    newest = max(newest, system.changed_ns(os.lstat(path)))
            return newest >= self._since_ns
        return True

    def _identify(self) -> list[tuple[int, int] | None]:
        return [_identity(folder) for folder in self.folders]


def closure_of(reads: list[str], texts: Iterable[bytes], watch: Watch) -> Closure:
    """Return the closure of a compile that reads at most the files `reads`.

    Parameters
    ----------
    reads : iterable of str
        Absolute paths of all files that may be read, as the compiler finds them.
    texts : iterable of bytes
        Texts that are no file: the source, and macros of the command line.
    watch : Watch
        State of the folders and files before the compile.

    Raises
    ------
    Unsure
        If the closure cannot be computed, or a file changed during the compile.
    """
    folders = watch.folders
    watch.check_folders()
    tested_names = {name for text in texts for name in has_include_names(text)}
    files: dict[str, str] = {}
    for path in reads:
        if not os.path.isabs(path):
            raise Unsure(f"{path} was found in the working directory")
        if headers.is_cuda_header(path):
            continue
        content = content_of(path)
        watch.check(path, content)
        assert content is not None
        files[path] = content
        tested_names |= set(has_include_names(read(path)))
    beside = [folder for folder in dict.fromkeys(map(os.path.dirname, files)) if folder not in folders]
    open_folders = [folder for folder in folders if not headers.in_wheel(f"{folder}/")]
    places: dict[str, str] = {}
    kind_at = cache(kind_of)

    def note(folder: str, name: str) -> None:
        path = folder
        for part in name.split("/"):
            path = f"{path}/{part}"
            if kind_at(path) != "folder":
                break
        if path not in files and path not in places:
            places[path] = kind_at(path)

    if any(map(headers.is_cuda_header, reads)):
        installed = set(map(str, headers.toolkit_folders()))
        for folder in (*open_folders, *beside):
            if folder not in installed:
                places[f"{folder}/*"] = kind_of(f"{folder}/*")
    for path in files:
        for position, folder in enumerate(folders):
            if system.is_within(path, folder):
                for earlier in (*(f for f in folders[:position] if f in open_folders), *beside):
                    note(earlier, path[len(folder) + 1 :])
    for name in tested_names:
        for folder in (*open_folders, *beside):
            note(folder, name)
    return Closure(tuple(sorted(files.items())), tuple(sorted(places.items())))


def spliced(text: bytes) -> bytes:
    """Join the lines of a text that end with a backslash."""
    return re.sub(_SPLICE, b"", text) if b"\\" in text else text


def has_include_names(text: bytes) -> Iterator[str]:
    """Yield the names in each ``__has_include`` of a text.

    Raises
    ------
    Unsure
        If a macro may make the name of an ``__has_include``.
    """
    text = spliced(text)
    if b"has_include" in text:
        if re.search(_ASKED_OTHERWISE, text):
            raise Unsure("an __has_include has a name that is made by a macro")
        for match in re.finditer(_ASKED, text):
            yield os.fsdecode(match[1] or match[2])
    if (b"##" in text or b"%:%:" in text) and re.search(_BEGINNING, text):
        raise Unsure("a macro may make an __has_include with ##")
    if b"embed" in text and re.search(_EMBED, text):
        raise Unsure("#embed reads a file")
    if any(name.encode() in text for name in TIMES):
        raise Unsure(TELLS_TIME)


def _identity(folder: str) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        status = os.stat(folder)
        return status.st_dev, status.st_ino
    return None


_SPACE: Final = rb"(?:\s|/\*.*?\*/)*"
_DIRECTIVE: Final = (
    rb"(?s)(?:#|%:|\?\?=)" + _SPACE + rb"(?:include(?:_next)?|import)\b" + _SPACE + rb'(?:"([^"\n]+)"|<([^>\n]+)>)?'
)


def all_included(text: bytes, folders: Iterable[str]) -> list[str]:
    """Return every file that `text` may include by a literal name, in every folder where the name exists.

    Raises
    ------
    Unsure
        If a macro makes the name of a header.
    """
    paths: dict[str, None] = {}
    pending: list[tuple[tuple[str, ...], Iterable[str]]] = [((), names_included(text))]
    while pending:
        own, names = pending.pop()
        for name in names:
            for folder in dict.fromkeys((*own, *folders)):
                path = os.path.join(folder, name)
                if path not in paths and os.path.isfile(path):
                    paths[path] = None
                    # CUDA's own headers are identified by their version.
                    names_there = () if headers.is_cuda_header(path) else names_included(read(path))
                    pending.append(((os.path.dirname(path),), names_there))
    return list(paths)


def names_included(text: bytes) -> Iterator[str]:
    """Yield every name in a possible ``#include`` of a text, in any spelling.

    Raises
    ------
    Unsure
        If a macro makes the name of a header.
    """
    for match in re.finditer(_DIRECTIVE, spliced(text)):
        if not (match[1] or match[2]):
            raise Unsure("a macro names a header")
        yield os.fsdecode(match[1] or match[2])
