"""Files and folders that are there whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, with the same name in a folder beside `path`; it takes its place if the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    part = folder / path.name
    try:
        yield part
        if part.is_dir() and path.is_dir():
            # A folder cannot replace another in one step: the former goes aside first.
            os.replace(path, folder / "former")
        os.replace(part, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
