"""The cache: compiled code of a specialization from memory, from disk, or from the compiler, once.

The key of an entry is the digest of its parts, which cover everything that can change the code. Finding the headers
that a compile can read takes long. Closures of earlier compiles are therefore stored under the other parts of the key,
and the closure that holds now completes the key. An entry on disk repeats its parts, and is used only if they equal the
requested parts. `cudakit.jit.cache.store` says how entries are published and verified. Threads that request a new key
wait for the first of them; processes wait on a lock file.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from cudakit.errors import ArgumentError, CacheWarning
from cudakit.jit.bundle.file import CODE, SIGNATURE, BundleFile
from cudakit.jit.bundle.used import opened
from cudakit.jit.cache import settings
from cudakit.jit.cache.store import FORMAT_VERSION, Store, StoredFile, hold, make_folder
from cudakit.jit.compile.compiled import Compiled, Promise
from cudakit.jit.signature.signature import declarations_key
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.specialise import Specialization
from cudakit.records import NamedTuple
from cudakit.streams import process
from cudakit.streams.witnesses import doing

Where: TypeAlias = Literal["memory", "disk", "miss"]


class Keyed(Protocol):
    """A specialization as the cache sees it.

    Attributes
    ----------
    closure : Closure or None
        Closure of the source; None until the cache finds a stored closure that holds, or the source is compiled.
    unstorable : str or None
        Reason why the code may not be stored, as far as it is known before the compile; None if it may.
    """

    closure: Closure | None
    unstorable: str | None

    @property
    def base(self) -> str:
        """Hexadecimal SHA-256 of everything that decides which files the compiler reads."""

    @property
    def key(self) -> str:
        """Hexadecimal SHA-256 of the parts; final once the closure is known."""

    @property
    def parts(self) -> Mapping[str, str]:
        """Parts of the key: name to value, both readable, in a fixed order."""

    @property
    def origin(self) -> tuple[Specialization, tuple[Closure | None, ...]] | None:
        """Specialization whose code it is, and the closures of its sources; None if no bundle may hold the code."""

    @property
    def label(self) -> str:
        """Label for people: the source's name, a colon and the name expression."""


class Entry(NamedTuple):
    """A compiled specialization on disk.

    Attributes
    ----------
    label : str
        Name of the source and name expression.
    parts : mapping of str to str
        Parts of the entry's key.
    bytes : int
        Size of the entry's file, in bytes.
    last_used : float
        Time of the last read or write, in seconds since the epoch, to about a minute.
    path : pathlib.Path
        Path of the entry's file.
    """

    label: str
    parts: Mapping[str, str]
    bytes: int
    last_used: float
    path: Path


class Difference(NamedTuple):
    """A part of the cache key whose requested and stored values differ; a value is None if that key lacks the part.

    `part` is the part's name.
    """

    part: str
    requested: str | None
    stored: str | None


class Neighbour(NamedTuple):
    """A stored entry of the same kernel or the same source, and the parts in which it differs."""

    entry: Entry
    differences: tuple[Difference, ...]


class Explanation(NamedTuple):
    """The reason why a request for a specialization is a hit or a miss.

    Attributes
    ----------
    label, key : str
        Label and key of the request.
    where : {"memory", "disk", "miss"}
        Place where the code is, or ``"miss"``.
    unstorable : str or None
        Reason why the code is never stored on disk, or None.
    neighbours : tuple of Neighbour
        For a miss, the stored entries of the same kernel or the same source, nearest first.
    """

    label: str
    key: str
    where: Where
    unstorable: str | None
    neighbours: tuple[Neighbour, ...]


def neighbours(keyed: Keyed, entries: Iterable[Entry]) -> tuple[Neighbour, ...]:
    """Return the entries of the same kernel or the same source, fewest differences first."""
    names = _names(keyed.label, keyed.parts)
    result = [
        Neighbour(entry, _differences(keyed.parts, entry.parts))
        for entry in entries
        if any(ours and ours == theirs for ours, theirs in zip(names, _names(entry.label, entry.parts), strict=True))
    ]
    return tuple(sorted(result, key=lambda neighbour: len(neighbour.differences)))


def _differences(requested: Mapping[str, str], stored: Mapping[str, str]) -> tuple[Difference, ...]:
    parts = [*requested, *(part for part in stored if part not in requested)]
    pairs = (Difference(part, requested.get(part), stored.get(part)) for part in parts)
    return tuple(pair for pair in pairs if pair.requested != pair.stored)


def _names(label: str, parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the kernel's name without template arguments, and the source's name.

    Both are taken from the key's `parts`; the source's name, if it is not among them, from `label`.
    """
    return parts.get("name", "").partition("<")[0], parts.get("file") or label.partition(": ")[0]


def report(level: Literal["DEBUG", "INFO"], keyed: Keyed, message: str, *values: object) -> None:
    """Log a message about the code of a key: its label, then `message`, a %-format for `values`.

    The logger is ``cudakit``. Nothing is logged if ``logging`` is not loaded: then there is no handler.
    """
    if "logging" not in sys.modules:
        return
    import logging

    logger, number = logging.getLogger("cudakit"), getattr(logging, level)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    if logger.isEnabledFor(number):
        logger.log(number, f"%s: {message}", keyed.label, *values)


_KERNEL: Final = "kernel"
_CLOSURES: Final = "closures"
#: File of the imported code.
_IMPORTED: Final = "imported.ckb"
_CLOSURES_KEPT: Final = 8  # versions of the headers of one source
_WAIT_LIMIT_S: Final = 600.0


def _compiled_in(header: Mapping[str, Any], code: bytes) -> Compiled:
    promises = tuple(Promise(*row) for row in header.get("promises", ()))
    return Compiled(code, dict(header["lowered"]), header["log"], header["target"], promises)


class CacheInfo(NamedTuple):
    """The state of a cache: the contents of its folder, and this process's requests.

    Attributes
    ----------
    folder : pathlib.Path or None
        Folder of the entries; None for memory only.
    entries, blobs : int
        Number of compiled specializations on disk, and of small files beside them.
    bytes, max_bytes : int
        Size of all files, and its limit.
    memory_hits, disk_hits, misses : int
        Number of requests answered from memory, from disk, and by compiling.
    damaged : int
        Number of files that failed verification and were removed.
    """

    folder: Path | None
    entries: int
    blobs: int
    bytes: int
    max_bytes: int
    memory_hits: int
    disk_hits: int
    misses: int
    damaged: int


class Cache:
    """Compiled specializations and small blobs, in memory and in a folder.

    Parameters
    ----------
    folder : pathlib.Path or None
        Folder of the files, which lie in a subfolder for the format's version; made at the first write. None for memory
        only.
    max_bytes : int
        Limit on the folder's size. A write that exceeds it removes the least recently used files.
    wait_limit_s : float
        Longest wait for another process that compiles the same key, in seconds. After it the key is compiled here too.
    setting : str
        Name of the setting of the folder, for warnings.

    Notes
    -----
    A pickle holds the folder and the limit, never the contents. A forked child starts with its parent's memory.
    """

    def __init__(
        self,
        folder: Path | None,
        max_bytes: int,
        *,
        wait_limit_s: float = _WAIT_LIMIT_S,
        setting: str = "CUDAKIT_CACHE_DIR",
    ) -> None:
        self._folder, self._setting = folder, setting
        self._max_bytes = max_bytes
        self._wait_limit_s = wait_limit_s
        self._store_unchecked = None if folder is None else Store(f"{folder}/v{FORMAT_VERSION}", max_bytes)
        self._memory: dict[str, Compiled] = {}
        self._closures: dict[str, tuple[Closure, ...]] = {}
        self._count: dict[Where, int] = {"memory": 0, "disk": 0, "miss": 0}
        self._warned = False
        self._make_thread_locks()
        this = weakref.ref(self)
        process.in_child(lambda: _after_fork(this()))

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self._folder, self._max_bytes, self._wait_limit_s, self._setting)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cache) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def get(self, keyed: Keyed, compile: Callable[[], Compiled]) -> Compiled:
        """Return the cached code of a key, or the result of `compile`, which is then cached.

        If `compile` raises, nothing is cached.
        """
        self._settle(keyed)
        compiled = self._memory.get(keyed.key)
        if compiled is not None:
            self._note("memory", keyed)
            return compiled
        with self._thread_lock(keyed.base):
            return self._get_alone(keyed, compile)

    def peek(self, keyed: Keyed) -> Compiled | None:
        """Return the cached code of a key, or None; this is not counted as a hit or a miss."""
        self._settle(keyed)
        compiled = self._memory.get(keyed.key)
        if compiled is None:
            compiled = self._read(keyed)
            if compiled is not None:
                self._memory[keyed.key] = compiled
        return compiled

    def put(self, keyed: Keyed, compiled: Compiled) -> None:
        """Cache `compiled` in memory and on disk, if it may be stored."""
        if keyed.closure is None or keyed.unstorable is not None:
            return
        self._memory[keyed.key] = compiled
        # A closure that was found to be empty is stored; the constant for sources without includes is not.
        if keyed.closure is not NOTHING_READ:
            closures = self._closures.get(keyed.base) or self._read_closures(keyed.base)
            others = (closure for closure in closures if closure != keyed.closure)
            self._closures[keyed.base] = (keyed.closure, *others)[:_CLOSURES_KEPT]
        self._write(keyed, compiled)

    def imported(self) -> BundleFile | None:
        """Return the bundle of the imported code, or None."""
        path = None if self._store is None else self._store.own_file(_IMPORTED)
        return None if path is None else opened(path)

    def export_to(self, path: Path, label_pattern: str | None = None) -> tuple[int, list[str]]:
        """Write the compiled kernels into a bundle, for machines without a compiler.

        Parameters
        ----------
        path : pathlib.Path
            File to write.
        label_pattern : str, optional
            Pattern of labels, as for `clear`. Default: all kernels.

        Returns
        -------
        int, list of str
            Number of kernels, and the labels of kernels that are valid on this machine only, which are left out.
        """
        from cudakit.jit.cache import bundling  # to write bundles alone

        alone: list[str] = []
        kernels, signatures = [], []
        # The most recently used first: if several compilers made code of one source, that one is exported.
        for file, entry in self._files_with_entries(label_pattern):
            assert self._store is not None
            content = self._store.read(_KERNEL, file.digest)
            kernel = None if content is None else bundling.of_record(content[0].get("bundled"), content[1])
            if kernel is None:
                alone.append(entry.label)
                continue
            kernels.append(kernel)
            key = declarations_key(kernel.header["source"])
            if (signature := self._store.read(SIGNATURE, key)) is not None:
                signatures.append(bundling.signature(key, signature[1]))
        bundling.write_bundle(path, (*kernels, *signatures), {"made by": "cudakit cache export"})
        return len({kernel.key for kernel in kernels}), alone

    def import_from(self, path: Path) -> int:
        """Import compiled kernels from a bundle, all or none; return their number.

        Imported kernels replace code that a compiler here would make, until they are cleared. Their code runs in this
        process: import only files that you trust like a library.

        Raises
        ------
        ArgumentError
            For a damaged file or another kind of file, and if there is no cache on disk.
        """
        if self._store is None:
            raise ArgumentError("kernels cannot be imported without a cache on disk: CUDAKIT_CACHE_DIR is empty")
        from cudakit.jit.cache import bundling  # to write bundles alone

        entries = list(BundleFile(path))
        former = self.imported()
        make_folder(self._store.folder)
        bundling.write_bundle(
            Path(self._store.folder) / _IMPORTED,
            (*entries, *(() if former is None else former)),
            {"made by": "cudakit cache import"},
        )
        return sum(entry.category == CODE for entry in entries)

    def blob(self, category: str, digest: str, make: Callable[[], bytes]) -> bytes:
        """Return the bytes stored under `category` and `digest`, or the result of `make`, which is then stored.

        Parameters
        ----------
        category : str
            Category of the content: a lower-case word, such as ``"signature"``.
        digest : str
            Hexadecimal digest of everything that the bytes depend on, the version of their format included.
        make : callable
            Function that returns the bytes. It is called if they are not stored.
        """
        data_on_disk = self.stored(category, digest)
        if data_on_disk is not None:
            return data_on_disk
        data = make()
        if self._store is None:
            return data
        try:
            self._store.write(category, digest, {}, data)
        except OSError as error:
            self._warn(error)
        return data

    def stored(self, category: str, digest: str) -> bytes | None:
        """Return the bytes stored on disk under `category` and `digest`, or None."""
        content = None if self._store is None else self._store.read(category, digest)
        return None if content is None else content[1]

    def info(self) -> CacheInfo:
        """Count the contents of the folder and this process's requests."""
        files = [] if self._store is None else list(self._store.files())
        entries = sum(file.category == _KERNEL for file in files)
        return CacheInfo(
            folder=self._folder,
            entries=entries,
            blobs=len(files) - entries,
            bytes=sum(file.bytes for file in files),
            max_bytes=self._max_bytes,
            memory_hits=self._count["memory"],
            disk_hits=self._count["disk"],
            misses=self._count["miss"],
            damaged=0 if self._store is None else self._store.damaged_count,
        )

    @property
    def folder(self) -> Path | None:
        """Folder of the files; None for memory only."""
        return self._folder

    def obstacle(self) -> str | None:
        """Return the reason why the folder cannot be used, or None. None also for memory only."""
        return None if self._store_unchecked is None else self._store_unchecked.obstacle()

    def entries(self) -> list[Entry]:
        """Return the compiled specializations on disk, the most recently used first."""
        return [entry for _, entry in self._files_with_entries()]

    def explain(self, keyed: Keyed) -> Explanation:
        """Return where the code of a key is or, for a miss, in which parts the nearest stored keys differ."""
        self._settle(keyed)
        where: Where = "memory" if keyed.key in self._memory else "miss" if self._read(keyed) is None else "disk"
        near = neighbours(keyed, self.entries()) if where == "miss" else ()
        return Explanation(keyed.label, keyed.key, where, keyed.unstorable, near)

    def clear(self, label_pattern: str | None = None) -> int:
        """Clear the memory, and remove the entries with matching labels from disk.

        Parameters
        ----------
        label_pattern : str, optional
            Part of the label, in which ``*`` and ``?`` stand for any text and any character. None removes everything,
            blobs included.

        Returns
        -------
        int
            Number of compiled specializations removed from disk.
        """
        self._memory.clear()
        self._closures.clear()
        if self._store is None:
            return 0
        if label_pattern is None:
            files = list(self._store.files())
            self._store.sweep()
            if (path := self._store.own_file(_IMPORTED)) is not None:
                os.unlink(path)
        else:
            files = [file for file, _ in self._files_with_entries(label_pattern)]
        removed = 0
        for file in files:
            try:
                os.unlink(file.path)
            except FileNotFoundError:
                continue
            removed += file.category == _KERNEL
        return removed

    def _get_alone(self, keyed: Keyed, compile: Callable[[], Compiled]) -> Compiled:
        self._settle(keyed)
        compiled = self._memory.get(keyed.key)
        if compiled is not None:
            self._note("memory", keyed)
            return compiled
        compiled = self._read(keyed)
        if compiled is None and self._store is not None and keyed.unstorable is None:
            lock = self._store.path("lock", keyed.base)
            with hold(lock, ready=lambda: self._arrived(keyed), limit_s=self._wait_limit_s):
                self._settle(keyed)
                compiled = self._read(keyed)
                if compiled is None:
                    return self._compile(keyed, compile)
        if compiled is None:
            return self._compile(keyed, compile)
        self._memory[keyed.key] = compiled
        self._note("disk", keyed)
        return compiled

    def _settle(self, keyed: Keyed) -> None:
        """Set the closure of `keyed` to the stored closure that is valid now, if there is one. It completes the key."""
        if keyed.closure is not None:
            return
        for read in (self._closures.get, self._read_closures):
            closures = read(keyed.base) or ()
            keyed.closure = next((closure for closure in closures if closure.holds()), None)
            if keyed.closure is not None:
                self._closures[keyed.base] = closures
                return

    def _arrived(self, keyed: Keyed) -> bool:
        """Return whether the requested code is on disk now, stored by another process. Also does `_settle`."""
        self._settle(keyed)
        return (
            keyed.closure is not None
            and self._store is not None
            and os.path.exists(self._store.path(_KERNEL, keyed.key))
        )

    def _read_closures(self, base: str) -> tuple[Closure, ...]:
        content = None if self._store is None else self._store.read(_CLOSURES, base)
        try:
            return () if content is None else tuple(map(Closure.from_json, content[1].decode().splitlines()))
        except (ValueError, TypeError):
            return ()

    def _compile(self, keyed: Keyed, compile: Callable[[], Compiled]) -> Compiled:
        report("DEBUG", keyed, "not in the cache")
        start = time.perf_counter()
        with settings.noticed(keyed.label), doing("compile", f"compile {keyed.label.rpartition(': ')[2]}", None):
            compiled = compile()
        elapsed_s = time.perf_counter() - start
        self._note("miss", keyed)
        report("INFO", keyed, "compiled in %.2f s: %s, %d bytes", elapsed_s, compiled.target, len(compiled.code))
        self.put(keyed, compiled)
        return compiled

    def _read(self, keyed: Keyed) -> Compiled | None:
        if self._store is None or keyed.unstorable is not None or keyed.closure is None:
            return None
        content = self._store.read(_KERNEL, keyed.key)
        if content is None:
            return None
        header, code = content
        try:
            if header["parts"] == dict(keyed.parts) and header["code_bytes"] == len(code):
                return _compiled_in(header, code)
        except (KeyError, TypeError, ValueError):
            pass  # rejected below, like any other wrong entry
        self._store.reject(_KERNEL, keyed.key)
        return None

    def _write(self, keyed: Keyed, compiled: Compiled) -> None:
        if self._store is None:
            return
        from cudakit.jit.cache import bundling  # after a compile alone

        header = {
            "label": keyed.label,
            "parts": dict(keyed.parts),
            "lowered": compiled.lowered,
            "log": compiled.log,
            "target": compiled.target,
            **({"promises": compiled.promises} if compiled.promises else {}),
            "code_bytes": len(compiled.code),
        }
        if keyed.origin is not None and (entry := bundling.entry_of(*keyed.origin, compiled)) is not None:
            header["bundled"] = bundling.record_of(entry)
        try:
            self._store.write(_KERNEL, keyed.key, header, compiled.code)
            if keyed.closure is not NOTHING_READ:
                lines = "\n".join(closure.to_json() for closure in self._closures[keyed.base])
                self._store.write(_CLOSURES, keyed.base, {}, lines.encode())
        except OSError as error:
            self._warn(error)

    def _files_with_entries(self, label_pattern: str | None = None) -> list[tuple[StoredFile, Entry]]:
        if self._store is None:
            return []
        pairs = []
        for file in self._store.files():
            header = self._store.header(file) if file.category == _KERNEL else None
            if header is not None and isinstance(header.get("label"), str) and isinstance(header.get("parts"), dict):
                entry = Entry(header["label"], header["parts"], file.bytes, file.last_used, Path(file.path))
                if label_pattern is None or fnmatch.fnmatchcase(entry.label, f"*{label_pattern}*"):
                    pairs.append((file, entry))
        return sorted(pairs, key=lambda pair: pair[1].last_used, reverse=True)

    @property
    def _store(self) -> Store | None:
        """Store of the files, or None: for memory only, or if another user could have put code in the folder.

        The second reason is reported by a warning, once.
        """
        store = self._store_unchecked
        why = None if store is None else store.distrust()
        if store is None or why is None:
            return store
        self._warn_once(
            f"The kernel cache folder {why}: others could put code there that runs as you. It is not used, and kernels "
            f"are compiled again in each process. Make it yours alone (chmod 700), or set {self._setting} to a folder "
            'that is; CUDAKIT_CACHE_DIR="" turns the cache on disk off.'
        )
        return None

    def _make_thread_locks(self) -> None:
        self._guard = threading.Lock()
        # A lock lives as long as a thread holds it or waits for it.
        self._thread_locks: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def _thread_lock(self, key: str) -> threading.Lock:
        with self._guard:
            lock: threading.Lock = self._thread_locks.setdefault(key, threading.Lock())
            return lock

    def _note(self, where: Where, keyed: Keyed) -> None:
        with self._guard:
            self._count[where] += 1
        if where != "miss":
            report("DEBUG", keyed, "from the cache (%s)", where)

    def _warn(self, error: OSError) -> None:
        folder = self._store_unchecked.folder if self._store_unchecked else None
        self._warn_once(
            f"The kernel cache folder {folder} cannot be written ({error.strerror or error}). Work goes on "
            "without it, and kernels are compiled again in each process. Free space or make it writable, or set "
            f'{self._setting} to a folder that is; CUDAKIT_CACHE_DIR="" turns the cache on disk off.'
        )

    def _warn_once(self, message: str) -> None:
        with self._guard:
            if self._warned:
                return
            self._warned = True
        warnings.warn(message, CacheWarning, stacklevel=3)


def _restore(folder: Path | None, max_bytes: int, wait_limit_s: float, setting: str) -> Cache:
    return Cache(folder, max_bytes, wait_limit_s=wait_limit_s, setting=setting)


def _after_fork(cache: Cache | None) -> None:
    if cache is not None:
        cache._make_thread_locks()


#: By the kernels' own folder, and the environment's values.
_caches: dict[tuple[str | None, ...], Cache] = {}


def default_cache() -> Cache:
    """Return the process's cache, in the folder of the current environment (see `cudakit.jit.cache.settings`)."""
    return cache_at(None)


def cache_at(folder: str | None) -> Cache:
    """Return the cache in a folder of a kernel's own, or, for None, the process's cache.

    Each cache is made at the first use, and then kept. If the environment turns the cache on disk off, it turns off all
    of them.
    """
    key = (folder, *settings.environment_values())
    cache = _caches.get(key)
    if cache is None:
        now = settings.read()
        if folder is None or now.cache_folder is None:
            new_cache = Cache(now.cache_folder, now.cache_bytes)
        else:
            new_cache = Cache(Path(folder), now.cache_bytes, setting="CompileOptions(cache=…)")
        # One step, without a lock that a fork could leave locked: concurrent threads get the same cache.
        cache = _caches.setdefault(key, new_cache)
    return cache
