"""The cache: a specialization's compiled code from memory, else from disk, else from the compiler, once.

An entry's key is the digest of its parts, and the parts hold all that can change the code. Which headers can be
read takes long to find; so the closures of earlier compiles are kept under the key's other parts, and the one that
holds now completes the key. An entry on disk repeats its parts and is believed only if they are the ones asked for; see
`cudakit.jit.cache.store` for how it is published and verified. Threads that ask for one new key wait for the first of
them; so do processes, on a lock file.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from cudakit.errors import ArgumentError, CacheWarning
from cudakit.jit.cache import settings
from cudakit.jit.cache.store import FORMAT_VERSION, Store, StoredFile, hold, packed, read_file, unpacked, write_file
from cudakit.jit.compile.compiled import Compiled, Promise
from cudakit.jit.source.closure import NOTHING_READ, Closure
from cudakit.jit.specialise.specialise import Specialization
from cudakit.streams import process
from cudakit.streams.witnesses import doing

Where: TypeAlias = Literal["memory", "disk", "miss"]


class Keyed(Protocol):
    """What the cache needs to know of a specialization.

    Attributes
    ----------
    closure : Closure or None
        What its compiler reads; None until the cache finds a known one that holds, or it is compiled.
    unstorable : str or None
        Why the code may not be kept, as far as that is known before it is compiled; None if it may be.
    """

    closure: Closure | None
    unstorable: str | None

    @property
    def base(self) -> str:
        """The hexadecimal SHA-256 of all that decides what the compiler reads."""

    @property
    def key(self) -> str:
        """The hexadecimal SHA-256 of the parts; final once the closure is known."""

    @property
    def parts(self) -> Mapping[str, str]:
        """What the key is made of: a part's name to its value, both readable, in a fixed order."""

    @property
    def portable(self) -> str | None:
        """What the code is known by on every machine; None where it holds for this one alone."""

    @property
    def label(self) -> str:
        """The source's name, a colon and the name expression, for people."""


class Entry(NamedTuple):
    """A compiled specialization on disk.

    Attributes
    ----------
    label : str
        The source's name and the name expression.
    parts : mapping of str to str
        What its key is made of.
    bytes : int
        Size of its file.
    last_used : float
        When it was last read or written, in seconds since the epoch, to about a minute.
    path : pathlib.Path
        Its file.
    """

    label: str
    parts: Mapping[str, str]
    bytes: int
    last_used: float
    path: Path


class Difference(NamedTuple):
    """A part of the key in which what was asked for and what is stored differ; None where one lacks the part."""

    part: str
    asked: str | None
    stored: str | None


class Neighbour(NamedTuple):
    """A stored entry of the same kernel or the same source, and the parts in which it differs."""

    entry: Entry
    differences: tuple[Difference, ...]


class Explanation(NamedTuple):
    """Why asking for a specialization is a hit or a miss.

    Attributes
    ----------
    label, key : str
        What was asked for.
    where : {"memory", "disk", "miss"}
        Where it was found.
    unstorable : str or None
        Why it is never kept on disk, if so.
    neighbours : tuple of Neighbour
        For a miss, the stored entries of the same kernel or the same source, nearest first.
    """

    label: str
    key: str
    where: Where
    unstorable: str | None
    neighbours: tuple[Neighbour, ...]


def neighbours(keyed: Keyed, entries: Iterable[Entry]) -> tuple[Neighbour, ...]:
    """Return the entries of the same kernel or the same source, those that differ in the fewest parts first."""
    names = _names(keyed.label, keyed.parts)
    found = [
        Neighbour(entry, _differences(keyed.parts, entry.parts))
        for entry in entries
        if any(ours and ours == theirs for ours, theirs in zip(names, _names(entry.label, entry.parts), strict=True))
    ]
    return tuple(sorted(found, key=lambda neighbour: len(neighbour.differences)))


def _differences(asked: Mapping[str, str], stored: Mapping[str, str]) -> tuple[Difference, ...]:
    parts = [*asked, *(part for part in stored if part not in asked)]
    pairs = (Difference(part, asked.get(part), stored.get(part)) for part in parts)
    return tuple(pair for pair in pairs if pair.asked != pair.stored)


def _names(label: str, parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the kernel's name without its template arguments, and the source's."""
    return parts.get("name", "").partition("<")[0], parts.get("file") or label.partition(": ")[0]


def tell(level: Literal["DEBUG", "INFO"], keyed: Keyed, message: str, *values: object) -> None:
    """Log that something was done about the code of a key: its label, then `message` with `values` in it.

    Whoever listens has loaded ``logging``; nobody else should wait for it.
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
_IMPORTED: Final = "imported"
#: What tells that there is imported code.
_MARKER: Final = "marker"
_ANY_IMPORTED: Final = "0" * 64
_CLOSURES_KEPT: Final = 8  # versions of the headers of one source
_WAIT_LIMIT_S: Final = 600.0


def _compiled_in(header: Mapping[str, Any], code: bytes) -> Compiled:
    promises = tuple(Promise(*row) for row in header.get("promises", ()))
    return Compiled(code, dict(header["lowered"]), header["log"], header["target"], promises)


class CacheInfo(NamedTuple):
    """The state of a cache: what its folder holds, and what this process asked of it.

    Attributes
    ----------
    folder : pathlib.Path or None
        Where the entries lie; None for memory only.
    entries, blobs : int
        Compiled specializations on disk, and the small files beside them.
    bytes, max_bytes : int
        Size of all of them, and its bound.
    memory_hits, disk_hits, misses : int
        How often `Cache.get` found the code in memory, on disk, or had to compile.
    damaged : int
        Files that did not verify and were removed.
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
    """Compiled specializations and small blobs, in memory over a folder.

    Parameters
    ----------
    folder : pathlib.Path or None
        Where the files lie, in a folder named by the format's version; made when it is first written. None for
        memory only.
    max_bytes : int
        Bound on the folder's size; the least recently used files are removed at a write that passes it.
    wait_limit_s : float
        Longest wait for another process that compiles the same key, in seconds; then it is compiled here too.
    setting : str
        What names the folder, for warnings.

    Notes
    -----
    A pickle carries the folder and the bound, never the contents. A forked child starts with its parent's memory.
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
        self._given_store = None if folder is None else Store(f"{folder}/v{FORMAT_VERSION}", max_bytes)
        self._memory: dict[str, Compiled] = {}
        self._closures: dict[str, tuple[Closure, ...]] = {}
        self._count: dict[Where, int] = {"memory": 0, "disk": 0, "miss": 0}
        self._warned = False
        self._imported: bool | None = None
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
        """Return what is cached under the key, or else what `compile` makes, which is then kept.

        Whatever `compile` raises is raised, and nothing is kept.
        """
        self._settle(keyed)
        compiled = self._memory.get(keyed.key)
        if compiled is not None:
            self._note("memory", keyed)
            return compiled
        with self._thread_lock(keyed.base):
            return self._get_alone(keyed, compile)

    def peek(self, keyed: Keyed) -> Compiled | None:
        """Return what is cached under the key, if anything; not counted as a hit or a miss."""
        self._settle(keyed)
        compiled = self._memory.get(keyed.key)
        if compiled is None:
            compiled = self._read(keyed)
            if compiled is not None:
                self._memory[keyed.key] = compiled
        return compiled

    def put(self, keyed: Keyed, compiled: Compiled) -> None:
        """Keep `compiled` in memory and on disk, if it may be kept."""
        if keyed.closure is None or keyed.unstorable is not None:
            return
        self._memory[keyed.key] = compiled
        # One that was found to read nothing had to be looked at, and is noted; one that cannot read is known as such.
        if keyed.closure is not NOTHING_READ:
            known = self._closures.get(keyed.base) or self._read_closures(keyed.base)
            others = (closure for closure in known if closure != keyed.closure)
            self._closures[keyed.base] = (keyed.closure, *others)[:_CLOSURES_KEPT]
        self._write(keyed, compiled)

    def imported(self, specialization: Specialization) -> Compiled | None:
        """Code of a specialization that was made on another machine and taken in by `take_in`, if there is any."""
        if self._store is None or not self._has_imported():
            return None
        from cudakit.jit.compile.portable import wanted_key

        key = wanted_key(specialization)
        found = self._memory.get(f"{_IMPORTED} {key}")
        if found is None and key is not None and (stored := self._store.read(_IMPORTED, key)) is not None:
            found = self._memory[f"{_IMPORTED} {key}"] = _compiled_in(*stored)
        return found

    def _has_imported(self) -> bool:
        if self._imported is None:
            assert self._store is not None
            # One small file tells: to look through the folder would cost more than a kernel's first use.
            self._imported = self._store.read(_MARKER, _ANY_IMPORTED) is not None
        return self._imported

    def give_out(self, path: Path, label_pattern: str | None = None) -> tuple[int, list[str]]:
        """Write compiled kernels into one file, for machines that need no compiler then.

        Parameters
        ----------
        path : pathlib.Path
        label_pattern : str, optional
            As `clear` takes it. None: all.

        Returns
        -------
        int, list of str
            How many; and the labels of those that hold for this machine alone, which are left out.
        """
        alone: list[str] = []
        keys = set[str]()

        def entries() -> Iterator[tuple[str, bytes]]:
            assert self._store is not None
            # The most recently used first: of what several compilers made of one text that goes.
            for file, entry in self._files_with_entries(label_pattern):
                found = self._store.read(_KERNEL, file.digest)
                key = None if found is None else found[0].get("portable")
                if found is None or key is None:
                    alone.append(entry.label)
                elif key not in keys:
                    keys.add(key)
                    yield key, packed(found[0], f"{key}.{_IMPORTED}", found[1])

        count = 0 if self._store is None else write_file(path, entries())
        return count, alone

    def take_in(self, path: Path) -> int:
        """Take compiled kernels from a file of `give_out`, all of them or none; how many there were.

        They are used instead of what a compiler here would make, until they are cleared. Their code runs in this
        process: take in what you trust as you would trust a library.

        Raises
        ------
        ArgumentError
            For a file that is damaged, or something else; and where there is no cache on disk.
        """
        if self._store is None:
            raise ArgumentError("there is no cache on disk to take kernels into: CUDAKIT_CACHE_DIR is empty")
        found = []
        for key, data in read_file(path):
            content = unpacked(data, f"{key}.{_IMPORTED}")
            if content is None:
                raise ArgumentError(f"{path}: the kernel {key} is damaged; nothing was taken in")
            found.append((key, content))
        for key, (header, code) in found:
            self._store.write(_IMPORTED, key, header, code)
        self._store.write(_MARKER, _ANY_IMPORTED, {}, b"")
        self._imported = None
        return len(found)

    def blob(self, kind: str, digest: str, make: Callable[[], bytes]) -> bytes:
        """Return the bytes stored on disk under `kind` and `digest`, or else what `make` returns, which is then stored.

        Parameters
        ----------
        kind : str
            What it is: a lower-case word, such as ``"signature"``.
        digest : str
            Hexadecimal digest of all that it depends on, its own format's version included.
        make : callable
            Makes the bytes, if they are not there.
        """
        found = self.stored(kind, digest)
        if found is not None:
            return found
        data = make()
        if self._store is None:
            return data
        try:
            self._store.write(kind, digest, {}, data)
        except OSError as error:
            self._warn(error)
        return data

    def stored(self, kind: str, digest: str) -> bytes | None:
        """The bytes stored on disk under `kind` and `digest`; None where there are none."""
        found = None if self._store is None else self._store.read(kind, digest)
        return None if found is None else found[1]

    def info(self) -> CacheInfo:
        """Count what the folder holds and what was asked for."""
        files = [] if self._store is None else list(self._store.files())
        entries = sum(file.kind == _KERNEL for file in files)
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
        """Return why the folder cannot be used, or None."""
        return None if self._given_store is None else self._given_store.obstacle()

    def entries(self) -> list[Entry]:
        """List the compiled specializations on disk, the most recently used first."""
        return [entry for _, entry in self._files_with_entries()]

    def explain(self, keyed: Keyed) -> Explanation:
        """Say where the key is found or, for a miss, which parts of the nearest stored keys differ."""
        self._settle(keyed)
        where: Where = "memory" if keyed.key in self._memory else "miss" if self._read(keyed) is None else "disk"
        near = neighbours(keyed, self.entries()) if where == "miss" else ()
        return Explanation(keyed.label, keyed.key, where, keyed.unstorable, near)

    def clear(self, label_pattern: str | None = None) -> int:
        """Forget all that is in memory, and remove from disk the entries whose label matches.

        Parameters
        ----------
        label_pattern : str, optional
            A part of the label, in which ``*`` and ``?`` stand for any text and any character. None removes
            everything, blobs included.

        Returns
        -------
        int
            How many compiled specializations were removed from disk.
        """
        self._memory.clear()
        self._closures.clear()
        if self._store is None:
            return 0
        if label_pattern is None:
            files = list(self._store.files())
            self._store.sweep()
        else:
            files = [file for file, _ in self._files_with_entries(label_pattern)]
        self._imported = None
        removed = 0
        for file in files:
            try:
                os.unlink(file.path)
            except FileNotFoundError:
                continue
            removed += file.kind == _KERNEL
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
        """Give `keyed` the known closure that holds now, if there is one, and with it its key."""
        if keyed.closure is not None:
            return
        for read in (self._closures.get, self._read_closures):
            known = read(keyed.base) or ()
            keyed.closure = next((closure for closure in known if closure.holds()), None)
            if keyed.closure is not None:
                self._closures[keyed.base] = known
                return

    def _arrived(self, keyed: Keyed) -> bool:
        """Whether another process has stored what is asked for."""
        self._settle(keyed)
        return (
            keyed.closure is not None
            and self._store is not None
            and os.path.exists(self._store.path(_KERNEL, keyed.key))
        )

    def _read_closures(self, base: str) -> tuple[Closure, ...]:
        found = None if self._store is None else self._store.read(_CLOSURES, base)
        try:
            return () if found is None else tuple(map(Closure.from_json, found[1].decode().splitlines()))
        except (ValueError, TypeError):
            return ()

    def _compile(self, keyed: Keyed, compile: Callable[[], Compiled]) -> Compiled:
        tell("DEBUG", keyed, "not in the cache")
        start = time.perf_counter()
        with settings.noticed(keyed.label), doing("compile", f"compile {keyed.label.rpartition(': ')[2]}", None):
            compiled = compile()
        elapsed_s = time.perf_counter() - start
        self._note("miss", keyed)
        tell("INFO", keyed, "compiled in %.2f s: %s, %d bytes", elapsed_s, compiled.target, len(compiled.code))
        self.put(keyed, compiled)
        return compiled

    def _read(self, keyed: Keyed) -> Compiled | None:
        if self._store is None or keyed.unstorable is not None or keyed.closure is None:
            return None
        found = self._store.read(_KERNEL, keyed.key)
        if found is None:
            return None
        header, code = found
        try:
            if header["parts"] == dict(keyed.parts) and header["code_bytes"] == len(code):
                return _compiled_in(header, code)
        except (KeyError, TypeError, ValueError):
            pass  # rejected below, like any other entry that is not what was asked for
        self._store.reject(_KERNEL, keyed.key)
        return None

    def _write(self, keyed: Keyed, compiled: Compiled) -> None:
        if self._store is None:
            return
        header = {
            "label": keyed.label,
            "parts": dict(keyed.parts),
            "lowered": compiled.lowered,
            "log": compiled.log,
            "target": compiled.target,
            **({"promises": compiled.promises} if compiled.promises else {}),
            "code_bytes": len(compiled.code),
            **({"portable": keyed.portable} if keyed.portable else {}),
        }
        try:
            self._store.write(_KERNEL, keyed.key, header, compiled.code)
            if keyed.closure is not NOTHING_READ:
                known = "\n".join(closure.to_json() for closure in self._closures[keyed.base])
                self._store.write(_CLOSURES, keyed.base, {}, known.encode())
        except OSError as error:
            self._warn(error)

    def _files_with_entries(self, label_pattern: str | None = None) -> list[tuple[StoredFile, Entry]]:
        if self._store is None:
            return []
        found = []
        for file in self._store.files():
            header = self._store.header(file) if file.kind == _KERNEL else None
            if header is not None and isinstance(header.get("label"), str) and isinstance(header.get("parts"), dict):
                entry = Entry(header["label"], header["parts"], file.bytes, file.last_used, Path(file.path))
                if label_pattern is None or fnmatch.fnmatchcase(entry.label, f"*{label_pattern}*"):
                    found.append((file, entry))
        return sorted(found, key=lambda pair: pair[1].last_used, reverse=True)

    @property
    def _store(self) -> Store | None:
        """The files, unless someone else could have put code among them."""
        store = self._given_store
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
            tell("DEBUG", keyed, "from the cache (%s)", where)

    def _warn(self, error: OSError) -> None:
        folder = self._given_store.folder if self._given_store else None
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


#: By the folder of their own that kernels ask for, and the environment as it was.
_caches: dict[tuple[str | None, ...], Cache] = {}


def default_cache() -> Cache:
    """Return the process's cache, as the environment names it now (see `cudakit.jit.cache.settings`)."""
    return cache_at(None)


def cache_at(folder: str | None) -> Cache:
    """Return the cache in a folder that kernels have of their own, or else the process's; each is made at first use.

    An environment that turns the cache on disk off does so for all.
    """
    asked = (folder, *settings.asked())
    cache = _caches.get(asked)
    if cache is None:
        now = settings.read()
        if folder is None or now.cache_folder is None:
            made = Cache(now.cache_folder, now.cache_bytes)
        else:
            made = Cache(Path(folder), now.cache_bytes, setting="CompileOptions(cache=…)")
        # One step, without a lock that a fork could leave locked: threads that come here together get one cache.
        cache = _caches.setdefault(asked, made)
    return cache
