"""A folder of checked files, of limited size: each is published whole and verified when it is read.

A file is ``<digest>.<category>``. It begins with the magic, which has the format's version, and a SHA-256 checksum of
the rest. Then come the length of a JSON header, the header (with the file's own name), and the body. A file that fails
verification is removed and counts as absent. Nothing is flushed to the device: a file that a power cut left incomplete
fails its checksum.

`cuda.core.utils.FileStreamProgramCache` is not used as the byte store, for these reasons:

- To limit its size it reads the whole folder when it is opened. This takes 0.14 ms with 1 entry, 9 ms with 1,000, and
  36 to 51 ms with 5,000, where a read costs 0.1 ms.
- It makes folders, and so cannot open a read-only folder.
- Its file names are hashes of the keys, so that entries cannot be listed.
- A write costs 0.7 ms, half of it in fsync, where this store needs 0.2 ms.

Locks between processes are files too, one for each lock. The operating system drops a lock when its holder dies, so
that a lock is never stale and a waiter takes over at once. A forked child has no part in its parent's lock. A lock only
saves work: if the file system refuses locks, or the folder is read-only, the caller continues without. The holder
removes the lock file while it holds the lock. A process that waited on that file then gets a lock on a file without a
name. `filelock` notices this, and starts again with the named file.

The folder also has a ledger of 8-byte integers: the time of the last scan, the size of all files then, and the size of
each file written since. A new process reads the ledger in place of scanning the folder. The folder is scanned if the
ledger is absent, damaged, long or a day old, or if the sizes exceed the limit. Removed files stay in the ledger, so
that a scan may come early.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import struct
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cudakit import system
from cudakit.records import NamedTuple

if TYPE_CHECKING:
    from filelock import FileLock


def make_folder(folder: str) -> None:
    """Make a cache folder and its parent, accessible to this user only."""
    for path in (os.path.dirname(folder), folder):
        os.makedirs(path, mode=0o700, exist_ok=True)


_PAUSE_S: Final = 0.005
_NO_LOCKS: Final = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextlib.contextmanager
def hold(path: str, *, ready: Callable[[], bool], limit_s: float) -> Iterator[bool]:
    """Hold the lock at `path` during the block; wait for it at most `limit_s` seconds.

    Parameters
    ----------
    path : str
        Path of the lock file; its folder is made if needed.
    ready : callable
        Function that is called while waiting. If it returns True, the guarded work is done elsewhere, and the wait
        ends.
    limit_s : float
        Longest wait, in seconds.

    Yields
    ------
    bool
        Whether the lock is held; False if it cannot be had, if `ready` returned True, or if the time was up.
    """
    lock = _lock(path)
    try:
        make_folder(os.path.dirname(path))
        lock.acquire(limit_s, _PAUSE_S, cancel_check=ready)
    except OSError as error:  # Timeout too is one
        if error.errno in _NO_LOCKS:
            # No process can hold this file.
            with contextlib.suppress(OSError):
                os.unlink(path)
        yield False
        return
    try:
        yield True
    finally:
        _release(lock)


def remove_if_free(path: str) -> None:
    """Remove a lock file that no process holds, such as the file of a killed process."""
    lock = _lock(path)
    with contextlib.suppress(OSError):
        lock.acquire(blocking=False)
        _release(lock)


def _lock(path: str) -> FileLock:
    from filelock import FileLock  # only a miss needs a lock

    # Not bound to its thread: the garbage collector may close a generator, and with it `hold`, in another thread.
    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


def _release(lock: FileLock) -> None:
    # A forked child has no part in its parent's lock, and leaves the file.
    if lock.is_locked:
        # On Windows an open file cannot be removed; there `filelock` removes it, unless somebody waits for it.
        with contextlib.suppress(OSError):
            os.unlink(lock.lock_file)
        with contextlib.suppress(OSError):
            lock.release()


FORMAT_VERSION: Final = 1

_MAGIC: Final = b"cudakit" + bytes([FORMAT_VERSION])
_PREFIX: Final = struct.Struct("<8s32sI")  # magic, checksum, header's length
_CHECKED_FROM: Final = len(_MAGIC) + hashlib.sha256().digest_size
_HEXADECIMAL: Final = "0123456789abcdef"
_LOWER_CASE: Final = "abcdefghijklmnopqrstuvwxyz"
_TOUCH_AFTER_S: Final = 60.0  # a file read more often than this is not marked as used each time
_ABANDONED_AFTER_S: Final = 3600.0  # what a killed writer left behind
_SCAN_AFTER_S: Final = 86_400.0
_MOST_SIZES: Final = 1 << 16  # in the ledger
_EVICT_TO: Final = 0.9  # part of the limit to evict down to: otherwise each write to a full folder would scan it


class StoredFile(NamedTuple):
    """A file of a store.

    Attributes
    ----------
    category, digest : str
        Parts of the file's name, ``<digest>.<category>``.
    bytes : int
        Size of the file, in bytes.
    last_used : float
        Time of the last read or write, in seconds since the epoch, to about a minute.
    path : str
        Path of the file.
    """

    category: str
    digest: str
    bytes: int
    last_used: float
    path: str


class Store:
    """The files of a folder, limited to `max_bytes`: the least recently used are removed.

    Parameters
    ----------
    folder : str
        Folder of the files; made at the first write.
    max_bytes : int
        Limit on the size of all files, in bytes. Several processes that write at once may exceed it a little, for a
        short time.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.damaged_count: int = 0
        self._trusted: bool | None = None
        self._ledger = f"{folder}/ledger"
        # Bytes that may be written before the ledger is read again. Threads may lose each other's updates, which only
        # shifts the reading.
        self._until_look_bytes = 0

    def path(self, category: str, digest: str) -> str:
        """Return the path of a file; raise ValueError if the name is not a hexadecimal digest and a lower-case word."""
        name = f"{digest}.{category}"
        if not _is_name(digest, category):
            raise ValueError(f"{name!r} cannot name a cache entry: expected 32 to 128 hexadecimal digits, '.', a word")
        return f"{self.folder}/{name}"

    def distrust(self) -> str | None:
        """Return the reason why another user could have put code in the folder, or None; such a folder is not used."""
        if self._trusted:
            return None
        try:
            above, status = os.stat(os.path.dirname(self.folder)), os.lstat(self.folder)
        except OSError:
            return None  # made at the first write, for the user alone
        if not stat.S_ISDIR(status.st_mode):
            return f"{self.folder} is a link or no folder"
        # Whoever may rename the folder could replace it. The group there is mostly the user's own.
        free = stat.S_IWOTH if not above.st_mode & stat.S_ISVTX else 0
        why = _foreign_reason(self.folder, status) or _foreign_reason(os.path.dirname(self.folder), above, free)
        self._trusted = why is None
        return why

    def obstacle(self) -> str | None:
        """Return the reason why the folder cannot be read and written, or must not be; else None."""
        if (distrusted := self.distrust()) is not None:
            return distrusted
        try:
            with os.scandir(self.folder):
                pass
        except FileNotFoundError:
            # Made at the first write: the nearest existing parent must be a writable folder.
            above = os.path.dirname(self.folder)
            while not os.path.lexists(above):
                above = os.path.dirname(above)
            if not os.path.isdir(above):
                return f"{above} is no folder"
            return None if os.access(above, os.W_OK) else f"{above} is not writable"
        except OSError as error:
            return f"{self.folder}: {error.strerror}"
        return None if os.access(self.folder, os.W_OK) else f"{self.folder} is not writable"

    def read(self, category: str, digest: str) -> tuple[dict[str, Any], bytes] | None:
        """Return a file's header and body, and mark it as used; None if it is absent, another user's or damaged."""
        path = self.path(category, digest)
        try:
            with open(path, "rb", buffering=0, opener=system.open_to_read) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or _foreign_reason(path, status):
                    return None
                data = file.readall()
        except OSError:
            return None
        content = unpacked(data, f"{digest}.{category}")
        if content is None:
            self._discard(path, status)
            return None
        if abs(time.time() - status.st_mtime) > _TOUCH_AFTER_S:
            with contextlib.suppress(OSError):
                os.utime(path)
        return content

    def own_file(self, name: str) -> str | None:
        """Return the path of another file in the folder; None if it is absent or another user could have written it."""
        path = f"{self.folder}/{name}"
        try:
            status = os.lstat(path)
        except OSError:
            return None
        return path if stat.S_ISREG(status.st_mode) and not _foreign_reason(path, status) else None

    def reject(self, category: str, digest: str) -> None:
        """Remove a file that passed verification but whose content is wrong. A failure to remove it is ignored."""
        path = self.path(category, digest)
        with contextlib.suppress(OSError):
            self._discard(path, os.lstat(path))

    def write(self, category: str, digest: str, header: Mapping[str, object], body: bytes) -> None:
        """Publish a file whole; then remove the least recently used files if the folder exceeds its limit.

        Raises
        ------
        OSError
            If the folder cannot be written, or is full; no partial file stays.
        """
        path = self.path(category, digest)
        data = packed(header, f"{digest}.{category}", body)
        self._publish(path, data)
        with contextlib.suppress(OSError):
            _write_all(system.open_to_append(self._ledger), array("Q", [len(data)]).tobytes())
        self._until_look_bytes -= len(data)
        if self._until_look_bytes < 0:
            left_bytes = self._left_bytes()
            if left_bytes < 0:
                left_bytes = self._evict(keep=path)
            # An eighth, so that several writing processes stay near the limit.
            self._until_look_bytes = left_bytes // 8

    def _publish(self, path: str, data: bytes) -> None:
        temporary = f"{self.folder}/{os.urandom(16).hex()}.tmp"
        try:
            file = system.create(temporary)
        except FileNotFoundError:
            make_folder(self.folder)
            file = system.create(temporary)
        try:
            _write_all(file, data)
            system.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _left_bytes(self) -> int:
        """Return how many bytes may be written before the next scan; less than 0 if the ledger does not say so."""
        sizes = array("Q")
        try:
            with open(self._ledger, "rb", buffering=0, opener=system.open_to_read) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or _foreign_reason(self._ledger, status):
                    return -1
                sizes.frombytes(file.read(_MOST_SIZES * sizes.itemsize))
        except (OSError, ValueError):
            return -1
        is_young = len(sizes) > 1 and 0 <= time.time() - sizes[0] < _SCAN_AFTER_S
        # After a power cut a file may end in zeros.
        is_whole = len(sizes) < _MOST_SIZES and all(sizes)
        return self.max_bytes - sum(sizes[1:]) if is_young and is_whole else -1

    def files(self) -> Iterator[StoredFile]:
        """Yield the files of the folder, without temporary files and lock files."""
        return (file for file in self._scan() if file.category not in ("tmp", "lock"))

    def header(self, file: StoredFile) -> dict[str, Any] | None:
        """Return a file's header, or None if it cannot be read. It is not verified: use it for lists only."""
        try:
            with open(file.path, "rb", opener=system.open_to_read) as opened:
                status = os.fstat(opened.fileno())
                if not stat.S_ISREG(status.st_mode) or _foreign_reason(file.path, status):
                    return None
                magic, _, length = _PREFIX.unpack(opened.read(_PREFIX.size))
                header = json.loads(opened.read(min(length, file.bytes)))
        except (OSError, ValueError, struct.error):
            return None
        return header if magic == _MAGIC and isinstance(header, dict) else None

    def sweep(self, abandoned_after_s: float = _ABANDONED_AFTER_S) -> None:
        """Remove the ledger, and the temporary files and lock files of killed processes."""
        with contextlib.suppress(OSError):
            os.unlink(self._ledger)
        for file in self._scan():
            self._sweep(file, time.time() - abandoned_after_s)

    def _sweep(self, file: StoredFile, before: float) -> None:
        if file.last_used < before:
            if file.category == "tmp":
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
            elif file.category == "lock":
                remove_if_free(file.path)

    def _scan(self) -> Iterator[StoredFile]:
        try:
            items = os.scandir(self.folder)
        except OSError:
            return
        with items:
            for item in items:
                # The user chose the folder: other files in it are neither counted nor removed.
                digest, _, category = item.name.partition(".")
                if not _is_name(digest, category):
                    continue
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # another process removed it
                yield StoredFile(category, digest, status.st_size, status.st_mtime, item.path)

    def _evict(self, keep: str) -> int:
        """Remove the least recently used files if the folder exceeds its limit; return the bytes below the limit."""
        before = time.time() - _ABANDONED_AFTER_S
        files = []
        for file in self._scan():
            if file.category in ("tmp", "lock"):
                self._sweep(file, before)
            else:
                files.append(file)
        total_bytes = sum(file.bytes for file in files)
        if total_bytes > self.max_bytes:
            for file in sorted(files, key=lambda file: file.last_used):
                if total_bytes <= _EVICT_TO * self.max_bytes:
                    break
                if file.path != keep:
                    with contextlib.suppress(OSError):
                        os.unlink(file.path)
                    total_bytes -= file.bytes
        with contextlib.suppress(OSError):
            self._publish(self._ledger, array("Q", [int(time.time()), total_bytes]).tobytes())
        return max(0, self.max_bytes - total_bytes)

    def _discard(self, path: str, status: os.stat_result) -> None:
        self.damaged_count += 1
        with contextlib.suppress(OSError):
            now = os.lstat(path)
            # Another process may have written a valid file since.
            if os.path.samestat(now, status) and now.st_mtime_ns == status.st_mtime_ns:
                os.unlink(path)


def _foreign_reason(path: str, status: os.stat_result, writable: int = stat.S_IWGRP | stat.S_IWOTH) -> str | None:
    """Return the reason why another user could have written a file or folder, or None; the superuser does not count.

    `status` is the file's status, and `writable` the permission bits that let other users write.
    """
    if system.is_of_another_user(status):
        return f"{path} belongs to another user (number {status.st_uid})"
    if system.writable_by(status, writable):
        return f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _is_name(digest: str, category: str) -> bool:
    """Return whether ``<digest>.<category>`` is a possible file name of the store."""
    return (
        32 <= len(digest) <= 128
        and not digest.strip(_HEXADECIMAL)
        and bool(category)
        and not category.strip(_LOWER_CASE)
    )


def packed(header: Mapping[str, object], name: str, body: bytes) -> bytes:
    """Return the bytes of a file of this name: checksum, header and body."""
    text = json.dumps({**header, "file": name}, separators=(",", ":")).encode("ascii")
    checked = struct.pack("<I", len(text)) + text + body
    return _MAGIC + hashlib.sha256(checked).digest() + checked


def unpacked(data: bytes, name: str) -> tuple[dict[str, Any], bytes] | None:
    """Return header and body of a file of this name; None if it is damaged or has another name."""
    if len(data) < _PREFIX.size:
        return None
    magic, checksum, length = _PREFIX.unpack_from(data)
    if magic != _MAGIC or hashlib.sha256(memoryview(data)[_CHECKED_FROM:]).digest() != checksum:
        return None
    body_from = _PREFIX.size + length
    try:
        header = json.loads(data[_PREFIX.size : body_from])
    except ValueError:
        return None
    if not isinstance(header, dict) or header.get("file") != name:
        return None
    return header, data[body_from:]


def _write_all(fd: int, data: bytes) -> None:
    with open(fd, "wb", buffering=0) as file:
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
