"""The closure of a source: every file that the compiler reads for it, and every place where another could be found."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
from typing import Final, NamedTuple

from cudakit.jit.source import headers


class Closure(NamedTuple):
    """Files that decide the compiled code, and places that must stay as they are.

    Attributes
    ----------
    files : tuple of (str, str)
        Path, and the SHA-256 of its content or, in an installed toolkit, the file's marks. Files of NVIDIA's wheels
        are not among them: their versions are part of the key.
    places : tuple of (str, str)
        Path, and what is there: ``"file"``, ``"folder"`` or ``""`` for nothing; and for the path of a folder with
        ``/*``, what of its content has a name that one of CUDA's headers could have, as a digest.
    """

    files: tuple[tuple[str, str], ...] = ()
    places: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of all of it; empty for nothing."""
        return "" if self == NOTHING_READ else hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps(self)

    @staticmethod
    def from_json(text: str) -> Closure:
        """Raises ValueError or TypeError for what is not a closure."""
        files, places = json.loads(text)
        pairs = [tuple((str(path), str(what)) for path, what in given) for given in (files, places)]
        return Closure(pairs[0], pairs[1])

    @property
    def marks(self) -> str:
        """What changes with every change to a file, even one that is undone."""
        return hashlib.sha256(repr([mark_of(path) for path, _ in self.files]).encode()).hexdigest()

    def holds(self) -> bool:
        """Whether everything is still as it was."""
        return all(kind_of(path) == kind for path, kind in self.places) and all(
            content_of(path) == content for path, content in self.files
        )


NOTHING_READ: Final = Closure()
#: What gives other code each time, and what is said of it.
TIMES: Final = ("__DATE__", "__TIME__")
TELLS_TIME: Final = "its text asks for the time of the compile"


def read(path: str) -> bytes:
    """The content of a file; a pipe in its place does not block."""
    with open(path, "rb", buffering=0, opener=_opened) as file:
        return file.readall()


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def content_of(path: str) -> str | None:
    """What stands for a file's content; None where it cannot be read."""
    if headers.in_toolkit(path):
        return mark_of(path)
    try:
        return hashlib.sha256(read(path)).hexdigest()
    except OSError:
        return None


def mark_of(path: str) -> str | None:
    """What changes whenever a file does: no content, but ten times as fast to get."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"
    return None


def kind_of(path: str) -> str:
    """What is at a path: ``"file"``, ``"folder"`` or ``""`` for nothing."""
    if path.endswith("/*"):
        return _shadows(path[:-2])
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return ""
    return "folder" if stat.S_ISDIR(mode) else "file"


def _shadows(folder: str) -> str:
    try:
        names = sorted(headers.cudas_names().intersection(os.listdir(folder)))
    except OSError:
        return ""
    paths = [f"{folder}/{name}" for name in names]
    for path in [path for path in paths if os.path.isdir(path)]:
        paths += [os.path.join(at, name) for at, _, files in os.walk(path, followlinks=True) for name in sorted(files)]
    return hashlib.sha256(repr([(path, mark_of(path)) for path in paths]).encode()).hexdigest() if paths else ""
