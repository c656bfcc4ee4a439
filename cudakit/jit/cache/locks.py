"""Locks between processes, one file a lock, that end with their holder.

The operating system drops a lock when its holder dies, however it dies, so a lock is never stale and a waiter takes
over at once; a forked child has no part in its parent's. A lock only saves work: where the file system refuses locks,
or the folder cannot be written, the caller goes on without one.

A lock file is removed by its holder, still holding it. Who was waiting on that file then gets a lock on a file without
a name, which `filelock` sees, and starts again with the file that has it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from typing import Final

from filelock import FileLock, Timeout

from cudakit.jit.cache.folders import make_folder

_PAUSE_S: Final = 0.005
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def hold(path: str, *, ready: Callable[[], bool], limit_s: float) -> Iterator[bool]:
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
    lock = _lock(path)
    try:
        make_folder(os.path.dirname(path))
        lock.acquire(limit_s, _PAUSE_S, cancel_check=ready)
    except (OSError, Timeout) as error:
        if isinstance(error, OSError) and error.errno in _NO_LOCKS:
            # Nobody can hold this file, so nobody misses it.
            with contextlib.suppress(OSError):
                os.unlink(path)
        yield False
        return
    try:
        yield True
    finally:
        _release(lock)


def remove_if_free(path: str) -> None:
    """Remove a lock file that nobody holds, such as one whose holder was killed."""
    lock = _lock(path)
    with contextlib.suppress(OSError, Timeout):
        lock.acquire(blocking=False)
        _release(lock)


def _lock(path: str) -> FileLock:
    # Not of the thread that makes it: the garbage collector may close a generator, and with it `hold`, in another.
    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


def _release(lock: FileLock) -> None:
    # A forked child has no part in its parent's lock, and leaves the file.
    if lock.is_locked:
        # On Windows an open file cannot be removed; there `filelock` removes it, unless somebody waits for it.
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        with contextlib.suppress(OSError):
            lock.release()
