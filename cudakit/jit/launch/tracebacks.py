"""Errors as a caller sees them: raised from the call, without the frames of cudakit.

``CUDAKIT_TRACEBACK=full`` keeps the frames, for those who change cudakit.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar, cast

from cudakit.errors import CudakitError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_PACKAGE: Final = str(Path(__file__).parents[2])
#: File names of the package, and of the code that `cudakit.streams.process.make_function` generates.
_OWN_FILE: Final = rf"{re.escape(_PACKAGE + os.sep)}|<(?:launch of|call of|op|what an instruction means) .*\d+>"


def cut(error: BaseException) -> None:
    """Remove the frames of cudakit from the tracebacks of an error and of its causes.

    Call it in an ``except`` clause, and end that clause with a plain ``raise``: the frame of the clause is not added.
    Frames of callers' functions that cudakit called stay. Without an error a ``try`` costs nothing.
    """
    from cudakit.jit.cache import settings  # for an error alone

    if settings.full_tracebacks():
        return
    visited = set[int]()
    link: BaseException | None = error
    while link is not None and id(link) not in visited:
        visited.add(id(link))
        link.__traceback__ = _outside(link.__traceback__)
        link = link.__cause__ or link.__context__


def raised_from_call(function: _Function) -> _Function:
    """Raise the errors of a public function from its call. A call through it costs one Python call more."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except CudakitError as error:
            cut(error)
            raise

    return cast(_Function, call)


def _outside(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of cudakit, and of the standard library where cudakit called it.

    Return None if no frame is left.
    """
    entries: list[TracebackType] = []
    is_inside = False
    while traceback is not None:
        frame = traceback.tb_frame
        module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        is_ours = module == "cudakit" or re.match(_OWN_FILE, frame.f_code.co_filename) is not None
        is_inside = is_ours or (is_inside and module in sys.stdlib_module_names)
        if not is_inside:
            entries.append(traceback)
        traceback = traceback.tb_next
    outside: TracebackType | None = None
    for entry in reversed(entries):
        outside = TracebackType(outside, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return outside
