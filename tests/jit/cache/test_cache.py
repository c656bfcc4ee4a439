"""The cache: compiled once, never stale, never half written, bounded, and work goes on when it cannot be used."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cudakit import system
from cudakit.errors import CacheWarning, CudakitError
from cudakit.jit.cache import cache as cache_module
from cudakit.jit.cache import settings, store
from cudakit.jit.cache.cache import Cache, Difference, default_cache
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source.closure import NOTHING_READ, Closure

MIB = 1 << 20
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="signals and fork are POSIX's")


@dataclass
class Asked:
    """What a specialization shows to the cache."""

    name: str = "saxpy<float>"
    source: str = "saxpy.cu"
    arch: str = "sm_90"
    options: str = "-std=c++17"
    unstorable: str | None = None
    origin: None = None
    closure: Closure | None = NOTHING_READ

    @property
    def base(self) -> str:
        return self.key

    @property
    def parts(self) -> Mapping[str, str]:
        digest = hashlib.sha256(self.source.encode()).hexdigest()
        return {"format": "1", "source": digest, "name": self.name, "options": self.options, "arch": self.arch}

    @property
    def key(self) -> str:
        return hashlib.sha256(repr(self.parts).encode()).hexdigest()

    @property
    def label(self) -> str:
        return f"{self.source}: {self.name}"


@dataclass
class Compiler:
    """Compiles to bytes that say for whom, and counts."""

    code: bytes = b"\x7fELF cubin"
    count: int = 0
    lowered: dict[str, str] = field(default_factory=lambda: {"saxpy<float>": "_Z5saxpyIfEvT_"})

    def __call__(self) -> Compiled:
        self.count += 1
        return Compiled(self.code, self.lowered, "a remark: café", "cubin")


def refuse() -> NoReturn:
    pytest.fail("compiled again")


def compiled(size: int = 10) -> Compiled:
    return Compiled(b"x" * size, {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> Cache:
    return Cache(folder, MIB)


def again(cache: Cache) -> Cache:
    """The cache as a new process sees it."""
    copy: Cache = pickle.loads(pickle.dumps(cache))
    return copy


def files(folder: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in folder.rglob(f"*{suffix}") if path.is_file() and path.name != "ledger")


def only_file(folder: Path) -> Path:
    (path,) = files(folder)
    return path


def ledger_of(folder: Path) -> list[int]:
    data = (folder / f"v{store.FORMAT_VERSION}" / "ledger").read_bytes()
    return [number for (number,) in struct.iter_unpack("=Q", data)]


def wait_for(condition: Callable[[], bool], limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.002)


class TestHitAndMiss:
    def test_compiles_once_then_memory_then_disk(self, cache: Cache) -> None:
        compiler = Compiler()
        first = cache.get(Asked(), compiler)
        assert cache.get(Asked(), refuse) is first
        new = again(cache)
        assert new.get(Asked(), refuse) == first == Compiler()()
        assert compiler.count == 1
        info = cache.info()
        assert (info.memory_hits, info.disk_hits, info.misses) == (1, 0, 1)
        info = new.info()
        assert (info.memory_hits, info.disk_hits, info.misses, info.entries) == (0, 1, 0, 1)

    def test_files_that_another_process_removes_meanwhile_are_not_counted(
        self, cache: Cache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache.get(Asked(), Compiler())

        class Gone:
            def __init__(self, item: os.DirEntry[str]) -> None:
                self.name, self.path = item.name, item.path

            def stat(self, follow_symlinks: bool = True) -> NoReturn:
                raise FileNotFoundError(self.path)

        class Listed:
            def __init__(self, folder: Path) -> None:
                self.items = [Gone(item) for item in found(folder)]

            def __enter__(self) -> list[Gone]:
                return self.items

            def __exit__(self, *_: object) -> None:
                pass

            def __iter__(self) -> Iterator[Gone]:
                return iter(self.items)

        found = os.scandir
        monkeypatch.setattr(store.os, "scandir", Listed)
        assert again(cache).info().entries == 0
        monkeypatch.undo()
        assert again(cache).info().entries == 1

    def test_what_is_logged(self, cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level("DEBUG", logger="cudakit"):
            cache.get(Asked(), Compiler())
            cache.get(Asked(), refuse)
            again(cache).get(Asked(), refuse)
        told = [(name, level, re.sub(r"[\d.]+ s", "… s", message)) for name, level, message in caplog.record_tuples]
        assert told == [
            ("cudakit", logging.DEBUG, f"{Asked().label}: not in the cache"),
            ("cudakit", logging.INFO, f"{Asked().label}: compiled in … s: cubin, 10 bytes"),
            ("cudakit", logging.DEBUG, f"{Asked().label}: from the cache (memory)"),
            ("cudakit", logging.DEBUG, f"{Asked().label}: from the cache (disk)"),
        ]

    def test_a_program_that_does_not_log_neither_loads_logging_nor_says_anything(self) -> None:
        program = """
import sys
from cudakit.jit.cache.cache import report
assert "logging" not in sys.modules
report("INFO", None, "nobody listens")
assert "logging" not in sys.modules
import logging
report("INFO", None, "nobody listens")
assert [type(each).__name__ for each in logging.getLogger("cudakit").handlers] == ["NullHandler"]
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def test_every_part_of_the_key_counts(self, cache: Cache) -> None:
        for asked in (Asked(), Asked(name="saxpy<double>"), Asked(arch="sm_80"), Asked(source="other.cu")):
            cache.get(asked, (compiler := Compiler(asked.label.encode() + asked.arch.encode())))
            assert compiler.count == 1
        assert again(cache).get(Asked(arch="sm_80"), refuse).code.endswith(b"sm_80")

    def test_without_a_folder_memory_only(self) -> None:
        cache = Cache(None, MIB)
        cache.get(Asked(), Compiler())
        cache.get(Asked(), refuse)
        assert again(cache).peek(Asked()) is None
        assert cache.blob("signature", "ab" * 32, lambda: b"made") == b"made"
        assert cache.entries() == []
        assert cache.info().folder is None

    def test_unstorable_is_not_kept_at_all(self, cache: Cache, folder: Path) -> None:
        asked = Asked(unstorable="a macro may make an __has_include")
        cache.get(asked, compiler := Compiler())
        cache.get(asked, compiler)
        assert compiler.count == 2
        assert files(folder) == []
        assert cache.explain(Asked(name="f", unstorable="because")).unstorable == "because"

    def test_peek_and_put(self, cache: Cache) -> None:
        assert cache.peek(Asked()) is None
        cache.put(Asked(), compiled())
        assert cache.peek(Asked()) == compiled()
        assert again(cache).peek(Asked()) == compiled()
        assert cache.info().misses == 0

    def test_failure_to_compile_keeps_nothing(self, cache: Cache, folder: Path) -> None:
        def fail() -> Compiled:
            raise ZeroDivisionError

        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                cache.get(Asked(), fail)
        assert files(folder) == []
        cache.get(Asked(), Compiler())

    def test_blob(self, cache: Cache) -> None:
        assert cache.blob("signature", "ab" * 32, lambda: b"\x00made") == b"\x00made"
        assert again(cache).blob("signature", "ab" * 32, refuse) == b"\x00made"
        assert cache.blob("signature", "cd" * 32, lambda: b"other") == b"other"
        assert cache.blob("layout", "ab" * 32, lambda: b"layout") == b"layout"
        info = cache.info()
        assert (info.entries, info.blobs) == (0, 3)

    @pytest.mark.parametrize("digest", ["../../etc/passwd", "ab", "", "AB" * 32])
    def test_a_name_that_is_no_digest_is_refused(self, cache: Cache, digest: str) -> None:
        with pytest.raises(ValueError, match="hexadecimal"):
            cache.blob("signature", digest, lambda: b"")

    def test_pickle_is_equal_and_empty(self, cache: Cache) -> None:
        cache.get(Asked(), Compiler())
        new = again(cache)
        assert new == cache
        assert hash(new) == hash(cache)
        assert new != Cache(None, MIB)
        cache.clear()
        assert new.peek(Asked()) is None

    @pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
    def test_files_are_the_owners_alone(self, cache: Cache, folder: Path) -> None:
        before = os.umask(0)
        try:
            cache.get(Asked(), Compiler())
        finally:
            os.umask(before)
        path = only_file(folder)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


class TestDamaged:
    """Whatever is wrong with a file, it is removed, counted, and made anew."""

    def expect_recompiled(self, cache: Cache, path: Path) -> None:
        new = again(cache)
        new.get(Asked(), (compiler := Compiler()))
        assert compiler.count == 1
        assert new.info().damaged == 1
        assert again(cache).get(Asked(), refuse) == compiler()
        assert path.exists()

    @pytest.fixture
    def path(self, cache: Cache, folder: Path) -> Path:
        cache.get(Asked(), Compiler())
        return only_file(folder)

    @pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"garbage", b"cudakit\x01" + b"\xff" * 500])
    def test_garbage(self, cache: Cache, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        self.expect_recompiled(cache, path)

    def test_truncated_at_any_byte(self, cache: Cache, path: Path) -> None:
        whole = path.read_bytes()
        for length in range(len(whole)):
            path.write_bytes(whole[:length])
            assert again(cache).peek(Asked()) is None, length
            assert not path.exists(), length
        path.write_bytes(whole)
        assert again(cache).peek(Asked()) is not None

    def test_any_byte_changed_or_added(self, cache: Cache, path: Path) -> None:
        whole = path.read_bytes()
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :])
            assert again(cache).peek(Asked()) is None, place
        path.write_bytes(whole + b"\x00")
        self.expect_recompiled(cache, path)

    def test_a_valid_file_under_another_name(self, cache: Cache, path: Path) -> None:
        cache.get(Asked(arch="sm_80"), Compiler(b"other code"))
        other = path.with_name(f"{Asked(arch='sm_80').key}.kernel")
        shutil.copy(other, path)
        self.expect_recompiled(cache, path)

    def test_a_valid_file_with_other_parts(self, cache: Cache, path: Path) -> None:
        header = {"label": "", "parts": dict(Asked(arch="sm_80").parts), "lowered": {}, "log": "", "target": "cubin"}
        store.Store(str(path.parent), MIB).write("kernel", Asked().key, {**header, "code_bytes": 4}, b"code")
        self.expect_recompiled(cache, path)

    def test_a_valid_file_that_lacks_a_field(self, cache: Cache, path: Path) -> None:
        header = {"parts": dict(Asked().parts), "code_bytes": 4}
        store.Store(str(path.parent), MIB).write("kernel", Asked().key, header, b"code")
        self.expect_recompiled(cache, path)

    def test_blob(self, cache: Cache, folder: Path) -> None:
        cache.blob("signature", "ab" * 32, lambda: b"good")
        path = only_file(folder)
        path.write_bytes(path.read_bytes().replace(b"good", b"evil"))
        assert cache.blob("signature", "ab" * 32, lambda: b"good") == b"good"
        assert cache.info().damaged == 1
        assert again(cache).blob("signature", "ab" * 32, refuse) == b"good"

    def test_a_valid_blob_under_another_name(self, cache: Cache, folder: Path) -> None:
        cache.blob("signature", "ab" * 32, lambda: b"of ab")
        path = only_file(folder)
        path.rename(path.with_name(f"{'cd' * 32}.signature"))
        assert cache.blob("signature", "cd" * 32, lambda: b"of cd") == b"of cd"
        assert cache.info().damaged == 1

    def test_listing_passes_over_it(self, cache: Cache, path: Path) -> None:
        cache.put(Asked(name="f"), compiled())
        path.write_bytes(b"garbage")
        assert [entry.label for entry in cache.entries()] == ["saxpy.cu: f"]

    def test_readers_never_see_half_a_file(self, cache: Cache) -> None:
        versions = [Compiled(letter * (4 * MIB), {}) for letter in (b"a", b"b")]
        cache = Cache(cache.info().folder, 100 * MIB)
        cache.put(Asked(), versions[0])
        done = threading.Event()

        def rewrite() -> None:
            writer = again(cache)
            for turn in range(40):
                writer.put(Asked(), versions[turn % 2])
            done.set()

        thread = threading.Thread(target=rewrite)
        thread.start()
        while not done.is_set():
            reader = again(cache)
            assert reader.peek(Asked()) in versions
            assert reader.info().damaged == 0
        thread.join()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX permissions")
class TestForeign:
    """What others could have written is not used, and cannot hold a call."""

    @pytest.fixture
    def path(self, cache: Cache, folder: Path) -> Path:
        cache.get(Asked(), Compiler())
        return only_file(folder)

    def expect_compiled_here(self, cache: Cache, warning: str | None) -> None:
        new = again(cache)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.monotonic()
            assert new.get(Asked(), compiler := Compiler(b"ours")).code == b"ours"
            assert new.blob("signature", "ab" * 32, lambda: b"ours") == b"ours"
            assert time.monotonic() - start < 5
        assert compiler.count == 1
        assert [str(w.message) for w in caught] == ([] if warning is None else [str(caught[0].message)])
        assert warning is None or warning in str(caught[0].message)

    @pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
    def test_a_folder_that_others_may_write(self, cache: Cache, path: Path, mode: int) -> None:
        path.parent.chmod(mode)
        self.expect_compiled_here(cache, f"can be written by others (mode {mode:o})")
        new = again(cache)
        assert self.warnings_of(new.entries)
        assert new.clear() == 0
        assert path.exists()

    def test_a_folder_in_one_that_others_may_write(self, cache: Cache, path: Path) -> None:
        path.parent.parent.chmod(0o777)
        self.expect_compiled_here(cache, "can be written by others (mode 777)")
        for mode in (0o1777, 0o775):  # nobody may rename what is ours; a group of one's own
            path.parent.parent.chmod(mode)
            assert again(cache).get(Asked(), refuse) == Compiler()()

    def test_a_folder_that_is_a_link(self, cache: Cache, path: Path, tmp_path: Path) -> None:
        path.parent.rename(tmp_path / "elsewhere")
        path.parent.symlink_to(tmp_path / "elsewhere")
        self.expect_compiled_here(cache, "is a link")

    @pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only the superuser gives files away")
    def test_what_belongs_to_another_user(self, cache: Cache, path: Path) -> None:
        os.chown(path, 65534, 65534)
        self.expect_compiled_here(cache, None)
        os.chown(path.parent, 65534, 65534)
        self.expect_compiled_here(cache, "belongs to another user (number 65534)")

    def test_an_entry_that_others_may_write(self, cache: Cache, path: Path) -> None:
        path.chmod(0o606)
        assert [entry.label for entry in cache.entries()] == []
        self.expect_compiled_here(cache, None)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    @pytest.mark.parametrize("kind", ["pipe", "link", "folder", "socket"])
    def test_an_entry_that_is_no_file(self, cache: Cache, path: Path, tmp_path: Path, kind: str) -> None:
        path.rename(tmp_path / "entry")
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(tmp_path / "entry")
        elif kind == "folder":
            path.mkdir()
        else:
            os.mknod(path, stat.S_IFSOCK | 0o600)
        assert cache.entries() == []
        made = [w for w in self.warnings_of(lambda: again(cache).get(Asked(), Compiler())) if kind != "folder"]
        assert made == []
        assert kind == "folder" or path.is_file()

    @staticmethod
    def warnings_of(call: Callable[[], object]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        return [str(warning.message) for warning in caught]

    @POSIX
    def test_a_lock_that_another_holds_in_a_shared_folder(self, cache: Cache, path: Path) -> None:
        import fcntl

        path.unlink()
        with open(path.with_suffix(".lock"), "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            path.parent.chmod(0o777)
            self.expect_compiled_here(cache, "can be written by others")


class TestBound:
    @pytest.mark.parametrize("oldest_first", ["abc", "bca", "cab"])
    def test_least_recently_used_goes_first(self, folder: Path, oldest_first: str) -> None:
        cache = Cache(folder, 10_000)
        for age, name in enumerate(reversed(oldest_first), start=1):
            cache.put(Asked(name=name), compiled(2500))
            os.utime(cache_path(folder, Asked(name=name)), (time.time() - 1000 * age,) * 2)
        read, evicted, kept = list(oldest_first)
        assert again(cache).peek(Asked(name=read)) is not None  # reading the oldest makes it the newest
        again(cache).put(Asked(name="d"), compiled(2500))
        assert {entry.label[-1] for entry in cache.entries()} == {read, kept, "d"}
        assert again(cache).peek(Asked(name=evicted)) is None
        assert cache.info().bytes <= 10_000

    def test_the_entry_just_written_stays(self, folder: Path) -> None:
        cache = Cache(folder, 100)
        for name in "abc":
            cache.put(Asked(name=name), compiled(5000))
            assert [entry.label[-1] for entry in cache.entries()] == [name]

    def test_bound_holds_with_several_writers(self, folder: Path) -> None:
        caches = [Cache(folder, 50_000) for _ in range(4)]
        largest = 0
        for turn in range(200):
            caches[turn % 4].put(Asked(name=f"k{turn}"), compiled(1000))
            largest = max(largest, caches[0].info().bytes)
        assert 40_000 < largest <= 60_000
        assert caches[0].info().bytes <= 60_000

    def test_entries_removed_by_others_while_evicting(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache = Cache(folder, 3000)
        cache.put(Asked(name="a"), compiled(2000))
        unlink = os.unlink

        def unlink_late(path: str) -> None:
            unlink(path)
            unlink(path)

        monkeypatch.setattr(os, "unlink", unlink_late)
        cache.put(Asked(name="b"), compiled(2000))
        assert [entry.label[-1] for entry in cache.entries()] == ["b"]

    def test_reading_marks_as_used_at_most_once_a_minute(self, cache: Cache, folder: Path) -> None:
        cache.get(Asked(), Compiler())
        path = only_file(folder)
        for age_s, marked in ((30, False), (100, True)):
            os.utime(path, (time.time() - age_s,) * 2)
            again(cache).get(Asked(), refuse)
            assert (time.time() - path.stat().st_mtime < 20) == marked

    def test_abandoned_files_are_swept_when_evicting(self, folder: Path) -> None:
        cache = Cache(folder, 1000)
        cache.put(Asked(), compiled())
        leftovers = [only_file(folder).with_name(f"{'ab' * 16}.{suffix}") for suffix in ("tmp", "lock")]
        fresh = only_file(folder).with_name(f"{'cd' * 16}.tmp")
        for path in (*leftovers, fresh):
            path.write_bytes(b"")
        for path in leftovers:
            os.utime(path, (time.time() - 7200,) * 2)
        cache.put(Asked(name="f"), compiled(1000))
        assert not any(path.exists() for path in leftovers)
        assert fresh.exists()

    def test_a_new_process_reads_the_ledger_in_place_of_the_folder(
        self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache.put(Asked(), compiled())
        scans: list[str] = []
        scan = store.Store._scan
        monkeypatch.setattr(store.Store, "_scan", lambda self: scans.append(self.folder) or scan(self))
        for name in "abc":
            again(cache).put(Asked(name=name), compiled())
        assert not scans
        assert len(ledger_of(folder)) == 2 + 3

    @pytest.mark.parametrize(
        "fault", ["absent", "empty", "torn", "zeros", "old", "of tomorrow", "long", "link", "shared"]
    )
    def test_the_bound_holds_without_a_ledger_that_is_valid(self, folder: Path, tmp_path: Path, fault: str) -> None:
        for name in "abcdef":
            cache, path = Cache(folder, 10_000), folder / f"v{store.FORMAT_VERSION}" / "ledger"
            if path.exists():
                then = ledger_of(folder)[0]
                path.unlink()
                match fault:
                    case "empty":
                        path.write_bytes(b"")
                    case "torn":
                        path.write_bytes(struct.pack("=QQ", then, 1) + b"\0\0\0")
                    case "zeros":
                        path.write_bytes(struct.pack("=QQQ", then, 1, 0))
                    case "old" | "of tomorrow":
                        path.write_bytes(struct.pack("=QQ", then + (-100_000 if fault == "old" else 100_000), 1))
                    case "long":
                        path.write_bytes(struct.pack("=Q", then) + struct.pack("=Q", 1) * (1 << 17))
                    case "link" | "shared":
                        (tmp_path / "valid").write_bytes(struct.pack("=QQ", then, 1))
                        path.symlink_to(tmp_path / "valid")
                if fault == "shared":
                    (tmp_path / "valid").replace(path)
                    path.chmod(0o666)
            cache.put(Asked(name=name), compiled(2500))
            assert cache.info().bytes <= 10_000

    def test_other_peoples_files_stay(self, folder: Path) -> None:
        notes = folder / f"v{store.FORMAT_VERSION}" / "notes.txt"
        notes.parent.mkdir(parents=True)
        notes.write_bytes(b"x" * 5000)
        cache = Cache(folder, 1000)
        cache.put(Asked(), compiled(500))
        cache.put(Asked(name="f"), compiled(500))
        assert cache.clear() == 1
        assert only_file(folder) == notes


def cache_path(folder: Path, asked: Asked) -> Path:
    return folder / f"v{store.FORMAT_VERSION}" / f"{asked.key}.kernel"


def lock_path(folder: Path, asked: Asked) -> str:
    return str(cache_path(folder, asked).with_suffix(".lock"))


def race(folder: Path, made: Path, barrier: Barrier) -> None:
    def compile() -> Compiled:
        (made / str(os.getpid())).touch()
        time.sleep(0.3)
        return compiled(20_000)

    cache = Cache(folder, MIB)
    barrier.wait(30)
    assert cache.get(Asked(), compile) == compiled(20_000)


def hold_until_killed(folder: Path, started: Path, fork: bool) -> None:
    def compile() -> Compiled:
        if fork and os.fork() == 0:
            (started / f"child-{os.getpid()}").touch()
            time.sleep(60)
            os._exit(0)
        (started / "holder").touch()
        time.sleep(60)
        return compiled()

    Cache(folder, MIB).get(Asked(), compile)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # from Python 3.12 on, of other threads
class TestProcesses:
    #: The processes make caches of their own: forked ones share nothing with them but what is imported.
    processes = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")

    def test_processes_that_ask_at_once_compile_once(self, folder: Path, tmp_path: Path) -> None:
        made = tmp_path / "made"
        made.mkdir()
        barrier = self.processes.Barrier(4)
        processes = [self.processes.Process(target=race, args=(folder, made, barrier)) for _ in range(4)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * 4
        assert len(files(made)) == 1
        assert [path.suffix for path in files(folder)] == [".kernel"]

    @POSIX
    @pytest.mark.parametrize("fork", [False, True], ids=["alone", "with a forked child that lives on"])
    def test_a_killed_holder_is_taken_over(self, folder: Path, tmp_path: Path, fork: bool) -> None:
        started = tmp_path / "started"
        started.mkdir()
        holder = self.processes.Process(target=hold_until_killed, args=(folder, started, fork))
        holder.start()
        wait_for(lambda: len(files(started)) == 1 + fork)
        compiler = Compiler()
        waiter = threading.Thread(target=Cache(folder, MIB).get, args=(Asked(), compiler))
        waiter.start()
        try:
            time.sleep(0.2)
            assert compiler.count == 0
            assert holder.pid is not None
            os.kill(holder.pid, signal.SIGKILL)
            waiter.join(2)
            assert compiler.count == 1
            assert [path.suffix for path in files(folder)] == [".kernel"]
        finally:
            for child in started.glob("child-*"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child.name.removeprefix("child-")), signal.SIGKILL)
            holder.kill()
            waiter.join(10)

    @POSIX
    def test_a_forked_child_is_not_stopped_by_its_parents_threads(self, cache: Cache) -> None:
        compiling, go_on = threading.Event(), threading.Event()

        def compile() -> Compiled:
            compiling.set()
            go_on.wait(10)
            return compiled()

        thread = threading.Thread(target=cache.get, args=(Asked(unstorable="memory only"), compile))
        thread.start()
        compiling.wait(10)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12: threads and fork
            with cache._guard:
                child = os.fork()
        if child == 0:
            signal.alarm(5)
            cache.get(Asked(unstorable="memory only"), compiled)
            os._exit(0)
        go_on.set()
        thread.join(10)
        assert os.waitpid(child, 0)[1] == 0


class TestLocks:
    def test_threads_that_ask_at_once_compile_once(self, cache: Cache) -> None:
        compiler = Compiler()

        def compile() -> Compiled:
            time.sleep(0.1)
            return compiler()

        threads = [threading.Thread(target=cache.get, args=(Asked(), compile)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert compiler.count == 1
        assert (cache.info().memory_hits, cache.info().misses) == (7, 1)
        assert len(cache._thread_locks) == 0

    def test_threads_compile_different_keys_side_by_side(self, cache: Cache) -> None:
        both = threading.Barrier(2, timeout=5)

        def compile() -> Compiled:
            both.wait()
            return compiled()

        threads = [threading.Thread(target=cache.get, args=(Asked(name=name), compile)) for name in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert cache.info().misses == 2

    def test_one_holder_at_a_time_and_no_file_left(self, tmp_path: Path) -> None:
        path = str(tmp_path / "made" / "a.lock")
        inside: list[int] = []
        crowds: list[int] = []

        def work() -> None:
            for _ in range(60):
                with store.hold(path, ready=lambda: False, limit_s=20) as held:
                    inside.append(1)
                    crowds.append(len(inside) + (not held))
                    time.sleep(0.0002)
                    inside.pop()

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert crowds == [1] * 480
        assert not os.path.exists(path)

    def test_a_waiter_leaves_when_the_entry_appears(self, cache: Cache, folder: Path) -> None:
        with store.hold(lock_path(folder, Asked()), ready=lambda: False, limit_s=1) as held:
            assert held
            waiter = threading.Thread(target=cache.get, args=(Asked(), refuse))
            waiter.start()
            time.sleep(0.1)
            assert waiter.is_alive()
            again(cache).put(Asked(), compiled())
            waiter.join(2)
            assert not waiter.is_alive()
        assert cache.info().disk_hits == 1

    def test_waiting_ends(self, folder: Path) -> None:
        cache = Cache(folder, MIB, wait_limit_s=0.1)
        with store.hold(lock_path(folder, Asked()), ready=lambda: False, limit_s=1):
            cache.get(Asked(), (compiler := Compiler()))
        assert compiler.count == 1

    @POSIX
    def test_a_forked_child_leaves_its_parents_lock(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a.lock")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # from Python 3.12: threads and fork
            with store.hold(path, ready=lambda: False, limit_s=1):
                child = os.fork()
                if child:
                    assert os.waitpid(child, 0)[1] == 0
                    store.remove_if_free(path)
                    assert os.path.exists(path)
            if not child:
                os._exit(not os.path.exists(path))
        assert not os.path.exists(path)

    def test_sweeping_leaves_a_held_lock(self, tmp_path: Path) -> None:
        path = str(tmp_path / "a.lock")
        with store.hold(path, ready=lambda: False, limit_s=1):
            store.remove_if_free(path)
            assert os.path.exists(path)

    @pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
    def test_a_file_system_without_locks(
        self, cache: Cache, folder: Path, code: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse_lock(fd: int, operation: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr("fcntl.flock", refuse_lock)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cache.get(Asked(), Compiler())
        assert only_file(folder).suffix == ".kernel"

    @pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files by /proc")
    def test_no_file_stays_open(self, cache: Cache) -> None:
        before = len(os.listdir("/proc/self/fd"))
        for name in "abc":
            cache.get(Asked(name=name), Compiler())
            again(cache).get(Asked(name=name), refuse)
        assert len(os.listdir("/proc/self/fd")) == before


class TestUnusableFolder:
    """Work goes on, one warning says which folder, why, and what to do."""

    def expect_one_warning(self, cache: Cache, reason: str) -> None:
        with pytest.warns(CacheWarning) as caught:
            for name in "ab":
                assert cache.get(Asked(name=name), (compiler := Compiler())) == compiler()
                cache.get(Asked(name=name), refuse)
            assert cache.blob("signature", "ab" * 32, lambda: b"made") == b"made"
        assert len(caught) == 1
        message = str(caught[0].message)
        assert str(cache.info().folder) in message
        assert reason in message
        assert "CUDAKIT_CACHE_DIR" in message

    def test_folder_under_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        self.expect_one_warning(Cache(tmp_path / "file" / "cache", MIB), os.strerror(errno.ENOTDIR))

    @pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="a file system that cannot be written")
    def test_folder_on_a_file_system_that_cannot_be_written(self) -> None:
        self.expect_one_warning(Cache(Path("/proc/cudakit"), MIB), os.strerror(errno.ENOENT))

    def test_full_disk(self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def half_written(fd: int, data: bytes) -> None:
            os.write(fd, data[:10])
            os.close(fd)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(store, "_write_all", half_written)
        self.expect_one_warning(cache, os.strerror(errno.ENOSPC))
        assert files(folder) == []

    def test_a_full_disk_that_is_emptied_is_used_again(self, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch, pytest.warns(CacheWarning):
            patch.setattr(system, "create", refuse_to_create)
            cache.get(Asked(), Compiler())
        cache.get(Asked(name="f"), Compiler())
        assert [entry.label for entry in cache.entries()] == ["saxpy.cu: f"]

    def test_read_only_folder_still_hits(self, cache: Cache, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache.get(Asked(), Compiler())
        os.utime(only_file(folder), (1000, 1000))
        for module, name in ((system, "create"), (os, "utime")):
            monkeypatch.setattr(module, name, refuse_to_create)
        monkeypatch.setattr(os, "open", read_only)
        new = again(cache)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            new.get(Asked(), refuse)
        self.expect_one_warning(new, os.strerror(errno.EROFS))

    def test_folder_removed_meanwhile(self, cache: Cache, folder: Path) -> None:
        cache.get(Asked(), Compiler())
        shutil.rmtree(folder)
        cache.get(Asked(name="f"), Compiler())
        again(cache).get(Asked(name="f"), refuse)


def refuse_to_create(path: str, *_: object) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)


def read_only(path: str, flags: int, *more: Any, opened: Any = os.open, **named: Any) -> int:
    if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        refuse_to_create(path)
    file: int = opened(path, flags, *more, **named)
    return file


class TestExplain:
    def test_hits(self, cache: Cache) -> None:
        cache.get(Asked(), Compiler())
        assert cache.explain(Asked()).where == "memory"
        explanation = again(cache).explain(Asked())
        assert (explanation.where, explanation.neighbours) == ("disk", ())

    def test_miss_names_the_parts_that_differ_nearest_first(self, cache: Cache) -> None:
        for stored in (
            Asked(name="saxpy<double>", arch="sm_80"),
            Asked(arch="sm_80"),
            Asked(name="saxpy<half>", source="other.cu", arch="sm_70", options=""),
            Asked(name="scale<float>", options=""),  # another kernel of the same source
            Asked(name="saxpy2", source="unrelated.cu"),
        ):
            cache.put(stored, compiled())
        explanation = again(cache).explain(Asked())
        assert explanation.where == "miss"
        assert explanation.neighbours[0].differences == (Difference("arch", "sm_90", "sm_80"),)
        found = [(len(neighbour.differences), neighbour.entry.label) for neighbour in explanation.neighbours]
        assert [count for count, _ in found] == [1, 2, 2, 4]
        assert sorted(found) == [
            (1, "saxpy.cu: saxpy<float>"),
            (2, "saxpy.cu: saxpy<double>"),
            (2, "saxpy.cu: scale<float>"),
            (4, "other.cu: saxpy<half>"),
        ]

    def test_other_kernels_of_other_files_are_not_near(self, cache: Cache) -> None:
        for stored in (Asked(name="saxpy2", source="unrelated.cu"), Asked(name="scale<float>", source="s.cu")):
            cache.put(stored, compiled())
        assert cache.explain(Asked()).neighbours == ()

    def test_a_part_that_one_of_them_lacks(self, cache: Cache) -> None:
        @dataclass
        class Newer(Asked):
            @property
            def parts(self) -> Mapping[str, str]:
                return {**super().parts, "headers": "ab"}

        cache.put(Asked(), compiled())
        assert cache.explain(Newer()).neighbours[0].differences == (Difference("headers", "ab", None),)
        cache.clear()
        cache.put(Newer(), compiled())
        assert cache.explain(Asked()).neighbours[0].differences == (Difference("headers", None, "ab"),)

    def test_explaining_counts_nothing(self, cache: Cache) -> None:
        cache.explain(Asked())
        info = cache.info()
        assert (info.memory_hits, info.disk_hits, info.misses) == (0, 0, 0)


class TestListAndClear:
    @pytest.fixture
    def filled(self, cache: Cache) -> Cache:
        for age, name in enumerate(("saxpy<float>", "saxpy<double>", "scale<float>")):
            cache.put(Asked(name=name), compiled(100))
            os.utime(cache_path(cache.info().folder, Asked(name=name)), (1000 - age,) * 2)  # type: ignore[arg-type]
        cache.blob("signature", "ab" * 32, lambda: b"blob")
        return cache

    def test_entries(self, filled: Cache) -> None:
        entries = filled.entries()
        assert [entry.label for entry in entries] == [
            "saxpy.cu: saxpy<float>",
            "saxpy.cu: saxpy<double>",
            "saxpy.cu: scale<float>",
        ]
        assert entries[0].parts == Asked().parts
        assert list(entries[0].parts) == list(Asked().parts)
        assert entries[0].last_used == 1000
        assert entries[0].bytes == entries[0].path.stat().st_size
        info = filled.info()
        assert (info.entries, info.blobs) == (3, 1)
        assert info.bytes == sum(path.stat().st_size for path in files(entries[0].path.parent))

    @pytest.mark.parametrize(
        ("pattern", "removed"), [("saxpy<", 2), ("*<float>", 2), ("sc?le", 1), ("none", 0), (None, 3)]
    )
    def test_clear(self, filled: Cache, pattern: str | None, removed: int) -> None:
        assert filled.clear(pattern) == removed
        info = filled.info()
        assert (info.entries, info.blobs) == (3 - removed, 0 if pattern is None else 1)

    def test_clear_forgets_memory_too(self, filled: Cache) -> None:
        filled.clear("scale")
        filled.get(Asked(name="scale<float>"), (compiler := Compiler()))
        assert compiler.count == 1

    def test_clear_of_an_absent_folder(self, cache: Cache) -> None:
        assert cache.clear() == 0
        assert cache.clear("x") == 0


class TestSettings:
    @pytest.fixture(autouse=True)
    def _clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("CUDAKIT_CACHE_DIR", raising=False)
        monkeypatch.delenv("CUDAKIT_CACHE_BYTES", raising=False)
        monkeypatch.setattr(cache_module, "_caches", {})

    def test_defaults(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        now = settings.read()
        assert now.cache_bytes == 1 << 30
        assert now.cache_folder is not None
        assert now.cache_folder.name == "cudakit"
        assert now.cache_folder.is_absolute()

    def test_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.chdir(tmp_path)
        for value, folder in (("some/folder", tmp_path / "some/folder"), ("", None), (" ", None)):
            monkeypatch.setenv("CUDAKIT_CACHE_DIR", value)
            assert settings.read().cache_folder == folder

    @pytest.mark.parametrize(
        ("value", "size"), [("1000", 1000), ("3K", 3072), ("500m", 500 << 20), (" 2 G ", 2 << 30), ("", 1 << 30)]
    )
    def test_bytes(self, monkeypatch: pytest.MonkeyPatch, value: str, size: int) -> None:
        monkeypatch.setenv("CUDAKIT_CACHE_BYTES", value)
        assert settings.read().cache_bytes == size

    @pytest.mark.parametrize("value", ["lots", "-1", "0", "1.5G", "1T", "0K"])
    def test_bad_bytes_name_the_variable(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("CUDAKIT_CACHE_BYTES", value)
        with pytest.raises(CudakitError, match=f"CUDAKIT_CACHE_BYTES='{value}'"):
            settings.read()

    def test_bad_folder_names_the_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", "~nobody-has-this-name/x")
        with pytest.raises(CudakitError, match="CUDAKIT_CACHE_DIR"):
            settings.read()

    def test_default_cache_is_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path))
        monkeypatch.setenv("CUDAKIT_CACHE_BYTES", "5K")
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(default_cache())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len({id(cache) for cache in found}) == 1
        assert default_cache() == Cache(tmp_path, 5120)
