"""Differences between operating systems: files, processes, the host and its C libraries.

A port to another system changes only this file. A function whose feature the system lacks returns the next best value,
or None.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import os
import signal
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import subprocess

_IS_WINDOWS: Final = sys.platform == "win32"
_BINARY: Final = getattr(os, "O_BINARY", 0)

# ── files ──

#: Suffix of a program's file name.
PROGRAM_SUFFIX: Final = ".exe" if _IS_WINDOWS else ""
#: Flag of `os.open`: opening a pipe does not wait.
NOT_WAITING: Final = getattr(os, "O_NONBLOCK", 0)
_READ: Final = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | NOT_WAITING


def open_to_read(path: str, flags: int) -> int:
    """Open a file for reading and return its descriptor, as an opener for `open`. `flags` is ignored.

    Links are not followed, and pipes are not waited for.
    """
    return os.open(path, _READ)


def open_to_append(path: str) -> int:
    """Open a file that exists, to write at its end, and return its descriptor. Links are not followed."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | _BINARY | getattr(os, "O_NOFOLLOW", 0) | NOT_WAITING)


def create(path: str) -> int:
    """Create a file that only this user can read and write, and return its descriptor. It must not exist yet."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)


def is_of_another_user(status: os.stat_result) -> bool:
    """Return whether a file belongs to another user, who is not the superuser; False if files have no owner here."""
    return hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0)


def writable_by(status: os.stat_result, others: int) -> bool:
    """Return whether a file's mode lets `others` (permission bits) write; False if modes do not say that here."""
    return hasattr(os, "geteuid") and bool(status.st_mode & others)


def replace(temporary: str, path: str) -> None:
    """Move a temporary file to `path`, over a file with the same content.

    If Windows cannot replace a file in use, the temporary file is deleted instead.
    """
    try:
        os.replace(temporary, path)
    except PermissionError:
        # Windows does not replace a file that a process is reading.
        if not _IS_WINDOWS or not os.path.exists(path):
            raise
        os.unlink(temporary)


def is_within(path: str, folder: str | os.PathLike[str]) -> bool:
    """Return whether `path` begins with `folder` as a folder. Windows has two separators."""
    return path.startswith((f"{folder}/", f"{folder}{os.sep}"))


def is_closed_pipe(error: BaseException) -> bool:
    """Return whether a write failed because nobody reads the pipe. Windows has no signal and no name for that."""
    return isinstance(error, BrokenPipeError) or (
        _IS_WINDOWS and isinstance(error, OSError) and error.errno == errno.EINVAL
    )


def discard_output() -> None:
    """Let standard output lead nowhere, so that the interpreter does not complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def changed_ns(status: os.stat_result) -> int:
    """Return the time of a file's last change, in nanoseconds, its renaming included where the system dates that."""
    # On Windows `st_ctime_ns` is the time of creation.
    return status.st_mtime_ns if _IS_WINDOWS else status.st_ctime_ns


def now_ns() -> int:
    """Return a time that every later change of a file reaches, and no earlier change does, in nanoseconds.

    The system dates files by a clock coarser than any that a program can read. A file in memory is therefore changed
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

#: Arguments of `subprocess.Popen` for a program that `end` can end together with its own child processes.
GROUP: Final[dict[str, Any]] = {} if _IS_WINDOWS else {"start_new_session": True}


def end(process: subprocess.Popen[Any]) -> None:
    """Kill a process that was started with `GROUP`, and all processes that it started."""
    if not _IS_WINDOWS:
        os.killpg(process.pid, signal.SIGKILL)
        return
    import subprocess  # only a program that has started one gets here

    with contextlib.suppress(OSError):
        taskkill = os.path.join(_system_folder(), "taskkill.exe")
        subprocess.run([taskkill, "/T", "/F", "/PID", str(process.pid)], capture_output=True, check=False)
    process.kill()


def _system_folder() -> str:
    """Return the folder of Windows' own programs. A name alone would be searched in the working folder too."""
    name = ctypes.create_unicode_buffer(260)
    windows: Any = vars(ctypes)["windll"]  # which only Windows has
    windows.kernel32.GetSystemDirectoryW(name, len(name))
    return name.value


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Make this process the parent of its descendants whose parent ends, inside a ``with`` block; only Linux can."""
    set_child_subreaper = 36
    _prctl(set_child_subreaper, 1)
    try:
        yield
    finally:
        _prctl(set_child_subreaper, 0)


def end_with_parent() -> None:
    """Let this process be killed when its parent ends; only Linux can."""
    set_parent_death_signal = 1
    _prctl(set_parent_death_signal, int(signal.SIGTERM))


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        c_library().prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def descendants(but: Container[int] = ()) -> dict[int, int]:
    """Return the processes below this one, with the bytes of memory of each; none if the system does not list them.

    `but` are children of this process that are left out, with those below them.
    """
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, encoding="ascii", errors="replace") as file:
            # The name, in brackets, may have any characters.
            number, fields = int(path.split("/")[2]), file.read().rpartition(")")[2].split()
            parents[number], pages[number] = int(fields[1]), int(fields[21])
    below = {os.getpid()}
    while more := {number for number, parent in parents.items() if parent in below and number not in but} - below:
        below |= more
    size = os.sysconf("SC_PAGE_SIZE") if pages else 0
    return {number: pages[number] * size for number in below - {os.getpid()}}


def kill_all(remaining: Callable[[], Iterable[int]], within_s: float = 5.0) -> None:
    """Kill processes below this one until `remaining` returns none. First all are stopped, so that none starts more."""
    end = time.monotonic() + within_s
    while (numbers := list(remaining())) and time.monotonic() < end:
        for signal_number in (signal.SIGSTOP, signal.SIGKILL):
            for number in numbers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal_number)
        for number in numbers:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(number, os.WNOHANG)
        time.sleep(0.002)


def limit_data(size: int) -> None:
    """Let the process allocate at most `size` bytes more; a further allocation fails. Only Linux counts them all."""
    if sys.platform == "linux":
        import resource  # only POSIX systems have it

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (now + size, most))


def user_cache_folder(of_environment: str) -> Path:
    """Return cudakit's folder among the user's cache files. `of_environment` is the value of ``XDG_CACHE_HOME``."""
    if sys.platform == "linux":
        # As platformdirs has it, whose modules and patterns take 2 ms to load.
        is_usable = os.path.isabs(of_environment)
        return Path(of_environment if is_usable else os.path.expanduser("~/.cache"), "cudakit")
    import platformdirs

    return Path(platformdirs.user_cache_dir("cudakit"))


def at_fork(**calls: Callable[[], object]) -> None:
    """Register callbacks around each fork, as `os.register_at_fork` does; do nothing if the system cannot fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(**calls)


def cores() -> int:
    """Return the number of cores that the process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Return the size of the host's memory in bytes; 0 if the system does not report it."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def be_woken_in_time(slack_ns: int) -> None:
    """Set the timer slack of this thread, so that its short waits end on time; only Linux can."""
    set_timer_slack = 29
    _prctl(set_timer_slack, slack_ns)


# ── C and C++ ──


@cache
def c_library() -> ctypes.CDLL:
    """Return the C library that is loaded already. Windows has none by that way, and no caller here needs it there."""
    return ctypes.CDLL(None)


@cache
def cuda_driver() -> ctypes.CDLL | None:
    """Return the CUDA driver's library; None if there is none."""
    try:
        return ctypes.CDLL("nvcuda.dll" if _IS_WINDOWS else "libcuda.so.1")
    except OSError:
        return None


@cache
def cxa_demangle() -> Any:
    """Return the C++ runtime's demangling function; None without libstdc++ and libc++, as on Windows."""
    for library in ("libc++.1.dylib",) if sys.platform == "darwin" else ("libstdc++.so.6", "libc++abi.so.1"):
        with contextlib.suppress(OSError, AttributeError):
            function = ctypes.CDLL(library).__cxa_demangle
            function.restype = ctypes.c_void_p
            return function
    return None
