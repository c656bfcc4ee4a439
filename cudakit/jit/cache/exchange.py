"""Files of compiled code, from a machine that has a compiler to others that need none."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cudakit.errors import ArgumentError

#: What an entry of a file may be long: no code is.
_MOST_BYTES: Final = 1 << 30
_SUFFIX: Final = ".cudakit"


def write_file(path: Path, entries: Iterator[tuple[str, bytes]]) -> int:
    """Write entries, each a key and checked bytes, into one file; how many there were."""
    temporary = path.with_name(f"{path.name}.tmp")
    count = 0
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file:
            for key, data in entries:
                file.writestr(f"{key}{_SUFFIX}", data)
                count += 1
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def read_file(path: Path) -> Iterator[tuple[str, bytes]]:
    """The entries of a file that `write_file` wrote.

    Raises
    ------
    ArgumentError
        For what is no such file.
    """
    try:
        with zipfile.ZipFile(path) as file:
            for each in file.infolist():
                key = each.filename.removesuffix(_SUFFIX)
                if key == each.filename or len(key) != 64 or key.strip("0123456789abcdef"):
                    raise ArgumentError(f"{path} holds {each.filename!r}, which is no compiled kernel")
                if each.file_size > _MOST_BYTES:
                    raise ArgumentError(f"{path}: {each.filename} is {each.file_size} bytes long")
                yield key, file.read(each)
    except (OSError, zipfile.BadZipFile) as error:
        raise ArgumentError(f"{path} is no file of compiled kernels: {error}") from error
