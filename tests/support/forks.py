"""Runs a function or a program in a fork, within a time limit, and ends whatever it started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path


def in_a_fork(act: Callable[[], int], seconds: float) -> int | None:
    """Run `act` in a fork, in a session of its own.

    Returns
    -------
    int or None
        What `act` returns, minus the number of the signal that ended the fork, or None where the time was not enough.
    """
    start = time.monotonic()
    child = os.fork()
    if not child:
        os.setsid()  # with what it starts itself
        status = 1
        try:
            status = act()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if not ended and time.monotonic() - start < seconds:
            time.sleep(0.005)
            continue
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.waitpid(child, 0)
            return None
        return os.waitstatus_to_exitcode(status)


def printed_in_a_fork(act: Callable[[], int], seconds: float, folder: Path | None = None) -> tuple[str, int | None]:
    """Run `act` as `in_a_fork` does, in `folder`, and return what it printed to both outputs, and its result.

    Warnings are no errors there.
    """

    def acted() -> int:
        for descriptor in (1, 2):
            os.dup2(printed.fileno(), descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout, sys.stderr = (open(descriptor, "w", closefd=False) for descriptor in (1, 2))  # noqa: SIM115
        if folder is not None:
            os.chdir(folder)
        warnings.resetwarnings()
        try:
            return act()
        finally:
            if sys.exception() is not None:
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()

    with tempfile.TemporaryFile() as printed:
        status = in_a_fork(acted, seconds)
        printed.seek(0)
        return printed.read().decode(), status


def run_anew(program: str) -> str:
    """Run a program that imports the package anew, in a fork where NumPy and the like are imported; return its output.

    A fresh process would be needed only for what it imports beside the package, and costs three times as much.
    """

    def act() -> int:
        for name in [*sys.modules]:
            if name.partition(".")[0] == "cudakit":
                del sys.modules[name]
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
        return 0

    printed, status = printed_in_a_fork(act, 120)
    assert status == 0, printed
    return printed
