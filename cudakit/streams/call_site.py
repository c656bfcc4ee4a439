"""Where in the user's program something was asked for."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path

_PACKAGE = str(Path(__file__).parents[1])


def call_site() -> str:
    """File and line of the program that called cudakit."""
    frame = sys._getframe(1)
    while is_own(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


@functools.lru_cache(4096)
def is_own(file: str) -> bool:
    """Whether code of that file is cudakit's."""
    return file.startswith((_PACKAGE, "<launch of ", "<call of ")) or file == contextlib.__file__
