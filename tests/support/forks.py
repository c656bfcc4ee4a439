"""Runs a function or a program in a fork, within a time limit, and ends whatever it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12 on, of other threads
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


def completed_in_a_fork(
    act: Callable[[], int], seconds: float, folder: Path | None = None, typed: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `act` as `in_a_fork` does, in `folder`, with `typed` as its input, and return it as `subprocess.run` does.

    Warnings are no errors there.
    """

    def acted() -> int:
        for descriptor, file in enumerate(files):
            os.dup2(file.fileno(), descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (open(descriptor, "w", closefd=False) for descriptor in (1, 2))  # noqa: SIM115
        if folder is not None:
            os.chdir(folder)
        warnings.resetwarnings()
        try:
            return act()
        except SystemExit as end:  # as Python ends
            if isinstance(end.code, str):
                print(end.code, file=sys.stderr)
            return end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            sys.stdout.flush()
            sys.stderr.flush()

    with contextlib.ExitStack() as entered:
        files = [entered.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
        files[0].write(typed)
        files[0].seek(0)
        status = in_a_fork(acted, seconds)
        for file in files[1:]:
            file.seek(0)
        assert status is not None, f"the fork did not end in {seconds:g} s"
        return subprocess.CompletedProcess((), status, files[1].read(), files[2].read())


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

    done = completed_in_a_fork(act, 120)
    assert done.returncode == 0, done.stderr
    return done.stderr
