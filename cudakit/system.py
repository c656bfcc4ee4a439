"""What differs by operating system, and nothing else asks for: files, processes, the host and its C libraries.

A port to another system is made here. Where a system lacks something, the next best is said, or None.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final

_IS_WINDOWS: Final = sys.platform == "win32"
_BINARY: Final = getattr(os, "O_BINARY", 0)

# ── files ──

#: How a program's file name ends.
PROGRAM_SUFFIX: Final = ".exe" if _IS_WINDOWS else ""
#: A flag of `os.open`: a pipe is not waited for.
NOT_WAITING: Final = getattr(os, "O_NONBLOCK", 0)
_READ: Final = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | NOT_WAITING


def open_to_read(path: str, flags: int) -> int:
    """An opener for `open`: what lies there is not followed if it is a link, and not waited for if it is a pipe."""
    return os.open(path, _READ)


def create(path: str) -> int:
    """A new file of the user's own."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)


def is_others(found: os.stat_result) -> bool:
    """Whether a file belongs to another user than this one and the superuser; no where files have no such owner."""
    return hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0)


def writable_by(found: os.stat_result, others: int) -> bool:
    """Whether a file's mode lets `others`, bits of it, write; no where a mode does not say that."""
    return hasattr(os, "geteuid") and bool(found.st_mode & others)


def replace(temporary: str, path: str) -> None:
    """Put a file in the place of another with the same content."""
    try:
        os.replace(temporary, path)
    except PermissionError:
        # Windows does not replace a file that somebody is reading.
        if not _IS_WINDOWS or not os.path.exists(path):
            raise
        os.unlink(temporary)


def changed_ns(found: os.stat_result) -> int:
    """When a file was changed, or what it is called."""
    # On Windows `st_ctime_ns` is the time of creation.
    return found.st_mtime_ns if _IS_WINDOWS else found.st_ctime_ns


def now_ns() -> int:
    """A time that a file changed from now on gets at the least, and that one changed before does not reach.

    The system dates files by a clock of its own, coarser than any that can be asked; so a file in memory is changed
    until its date moves.
    """
    if not hasattr(os, "memfd_create"):
        return time.time_ns() - 20_000_000
    file = os.memfd_create("cudakit")
    try:
        first = last = _touch(file)
        while last == first:  # for at most a tick, and not at all from Linux 6.13 on
            time.sleep(0.0002)
            last = _touch(file)
        return last
    finally:
        os.close(file)


def _touch(file: int) -> int:
    os.utime(file)
    return os.fstat(file).st_ctime_ns


# ── processes and the host ──

#: Arguments of `subprocess.Popen` for a program that `end` ends with what it started.
GROUP: Final[dict[str, Any]] = {} if _IS_WINDOWS else {"start_new_session": True}


def end(process: subprocess.Popen[Any]) -> None:
    """End a process that was started with `GROUP`."""
    process.kill() if _IS_WINDOWS else os.killpg(process.pid, signal.SIGKILL)


def at_fork(**calls: Callable[[], object]) -> None:
    """Have `calls` called around each fork, as `os.register_at_fork` has, where the system can fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


def cores() -> int:
    """Cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """The host's memory; 0 where the system does not say."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def be_woken_in_time(slack_ns: int) -> None:
    """Have this thread's short waits end when they should, where the system has a word for it."""
    if sys.platform == "linux":
        set_timer_slack = 29
        c_library().prctl(set_timer_slack, ctypes.c_ulong(slack_ns), 0, 0, 0)


# ── C and C++ ──


@cache
def c_library() -> ctypes.CDLL:
    """The C library that is loaded already."""
    return ctypes.CDLL(None)


@cache
def cxa_demangle() -> Any:
    """The C++ runtime's function that reads mangled names; None without libstdc++ and libc++."""
    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            function = ctypes.CDLL(library).__cxa_demangle
            function.restype = ctypes.c_void_p
            return function
    return None
