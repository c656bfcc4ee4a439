"""Locks between processes, one file a lock, that end with their holder.

The operating system drops a lock when its holder dies, however it dies, so a lock is never stale and a waiter takes
over at once. A lock only saves work: where the file system refuses locks, or the folder cannot be written, the
caller goes on without one.

A lock file is removed by its holder, still holding it. Who was waiting on that file then gets a lock on a file that
no longer has the name, sees so, and starts again with the file that has it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.05

if sys.platform == "win32":
    import msvcrt

    def _lock_now(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock_now(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


class FileLocks:
    """The lock files that this process holds."""

    def __init__(self) -> None:
        self._held: set[int] = set()

    @contextlib.contextmanager
    def hold(self, path: str, *, ready: Callable[[], bool], limit_s: float) -> Iterator[bool]:
        """Hold the lock at `path` while the block runs, waiting for it at most `limit_s` seconds.

        Parameters
        ----------
        path : str
            The lock file; its folder is made if need be.
        ready : callable
            Asked while waiting: True once what the lock guards is done, so that waiting is pointless.
        limit_s : float
            Longest wait, in seconds.

        Yields
        ------
        bool
            Whether the lock is held; False if it could not be had, if `ready` said so, or if the time was up.
        """
        try:
            fd = _acquire(path, ready, time.monotonic() + limit_s)
        except OSError:
            fd = None
        if fd is None:
            yield False
            return
        self._held.add(fd)
        try:
            yield True
        finally:
            # A forked child gave its copies up in `forget`, and the number may be another file's by now.
            if fd in self._held:
                self._held.remove(fd)
                _release(fd, path)

    def forget(self) -> None:
        """Give up, in a forked child, the copies of its parent's locks, which would outlive the parent."""
        for fd in self._held:
            with contextlib.suppress(OSError):
                os.close(fd)
        self._held.clear()


def remove_if_free(path: str) -> None:
    """Remove a lock file that nobody holds, such as one whose holder was killed."""
    try:
        fd = os.open(path, os.O_RDWR)
    except OSError:
        return
    try:
        free = _locks(fd) and _has_name(fd, path)
    except OSError:
        free = False
    if free:
        _release(fd, path)
    else:
        os.close(fd)


def _acquire(path: str, ready: Callable[[], bool], deadline: float) -> int | None:
    pause_s = _FIRST_PAUSE_S
    while True:
        fd = _open(path)
        try:
            while not _locks(fd):
                if ready() or time.monotonic() >= deadline:
                    os.close(fd)
                    return None
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            if _has_name(fd, path):
                return fd
        except OSError:
            # The file system has no locks: nobody can hold this file, so nobody misses it.
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _open(path: str) -> int:
    # For writing too: over NFS an exclusive flock needs it.
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _locks(fd: int) -> bool:
    try:
        _lock_now(fd)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True


def _has_name(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _release(fd: int, path: str) -> None:
    if sys.platform == "win32":
        # An open file cannot be removed there, so neither can one that somebody waits for.
        os.close(fd)
        with contextlib.suppress(OSError):
            os.unlink(path)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.close(fd)
