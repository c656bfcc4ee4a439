"""Who sits at a terminal is told what is being compiled where that takes long."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import Final

from cudakit.jit.cache import settings

AFTER_S: Final = 1.0
_MOST_CHARACTERS: Final = 100


@contextlib.contextmanager
def noticed(what: str) -> Iterator[None]:
    """Say on the terminal that `what` is compiled, once the block has taken a second, and how long it took."""
    if not _somebody_sees():
        yield
        return
    shown = "".join(each if each.isprintable() else "?" for each in what)
    shown = shown if len(shown) <= _MOST_CHARACTERS else f"{shown[: _MOST_CHARACTERS - 1]}…"
    told = threading.Event()

    def tell() -> None:
        told.set()
        print(f"cudakit: compiling {shown} …", file=sys.stderr, flush=True)

    timer = threading.Timer(AFTER_S, tell)
    timer.daemon = True
    start = time.perf_counter()
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if told.is_set():
        print(f"cudakit: compiled {shown} in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)


def _somebody_sees() -> bool:
    """Whether this process writes to a terminal, and is not one of many; a notebook's output is no terminal."""
    try:
        if not sys.stderr.isatty() or settings.quiet():
            return False
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False
    processes = sys.modules.get("multiprocessing.process")
    return processes is None or processes.parent_process() is None
