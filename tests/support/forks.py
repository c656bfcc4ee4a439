"""Runs a function in a fork, within a time limit, and ends whatever it started."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import traceback
from collections.abc import Callable


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
