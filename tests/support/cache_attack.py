"""An attack on the cache: processes killed at any moment, files damaged in any way; each answer must be the right one.

``python -m support.cache_attack --kills 300 --damages 2000 --rounds 50`` from ``tests/``.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cudakit as ck
from cudakit.jit.cache.cache import Cache
from cudakit.jit.compile import nvrtc
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.source.closure import NOTHING_READ, Closure

_KEYS = 24
_HEADERS = 3
_LIMIT_S = 60  # of one look at the whole cache
_LARGE_BYTES = 1 << 28


@dataclass
class Asked:
    """What a specialization shows to the cache."""

    number: int
    unstorable: str | None = None
    origin: None = None
    closure: Closure | None = NOTHING_READ

    @property
    def parts(self) -> Mapping[str, str]:
        return {"name": f"k{self.number}", "arch": "sm_90"}

    @property
    def key(self) -> str:
        return hashlib.sha256(repr(self.parts).encode()).hexdigest()

    base = key

    @property
    def label(self) -> str:
        return f"k.cu: k{self.number}"

    def code(self) -> Compiled:
        bytes_ = random.Random(self.number).randbytes(500 + 997 * (self.number % 13))
        return Compiled(bytes_, {f"k{self.number}": f"_Z{self.number}"}, "", "cubin")


class Attack:
    """A cache under attack.

    Parameters
    ----------
    folder : pathlib.Path
        Empty; the cache and the headers of its kernels lie there.
    seed : str

    Attributes
    ----------
    counts : collections.Counter
        What was done, and what was wrong.
    """

    def __init__(self, folder: Path, seed: str) -> None:
        self.random = random.Random(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self._root = folder
        self._cache = Cache(folder / "cache", 120_000, wait_limit_s=5.0)
        self._files = folder / "cache" / "v1"
        self._values = [0] * _HEADERS
        for number in range(_HEADERS):
            (folder / f"k{number}.cu").write_text(f'#include "v{number}.h"\n__global__ void k(int* y) {{ *y = V; }}\n')
            self._save(number)

    def _save(self, number: int) -> None:
        self._values[number] += 1
        (self._root / f"v{number}.h").write_text(f"#define V {self._values[number]}\n")

    def _fresh(self) -> Cache:
        """The cache as a new process sees it."""
        return Cache(self._root / "cache", 120_000, wait_limit_s=5.0)

    # ── what is asked, and whether the answer is right ───────────────────────────────────────────────────────────────

    def _look(self, cache: Cache, number: int) -> None:
        asked = Asked(number)
        if number % 8 == 7:
            digest = hashlib.sha256(b"%d" % number).hexdigest()
            assert cache.blob("signature", digest, lambda: asked.code().code) == asked.code().code, f"blob {number}"
        else:
            assert cache.get(asked, asked.code) == asked.code(), f"key {number}"

    def _look_at_header(self, cache: Cache, number: int) -> None:
        kernel = ck.Kernel.from_file(self._root / f"k{number}.cu")
        request = nvrtc.Request(kernel.specialization(arch="sm_90", target="ptx"))
        text = cache.get(request, request.compile).code.decode()
        assert f", {self._values[number]};" in text, f"header {number}: not {self._values[number]} in {text}"

    def check(self, what: str, numbers: list[int] | None = None, header: bool = False) -> None:
        """Ask for keys in a new process; it must answer, in time, and rightly."""

        def ask() -> None:
            cache = self._fresh()
            for number in range(_KEYS) if numbers is None else numbers:
                self._look(cache, number)
            for number in range(_HEADERS) if header else ():
                self._look_at_header(cache, number)

        status = os.waitpid(_child(ask, _LIMIT_S), 0)[1]
        self.counts["looks"] += 1
        if status:
            self.counts["WRONG"] += 1
            self.wrong.append(f"{what}: {_words(status)}")

    # ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def kill(self) -> None:
        """Some processes work on the cache, and are killed at some moment; then all of it is looked at."""
        children = [_child(self._work(self.random.random()), 2 * _LIMIT_S) for _ in range(self.random.randint(1, 3))]
        for child in children:
            time.sleep(self.random.uniform(0, 0.04))
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            status = os.waitpid(child, 0)[1]
            if status != signal.SIGKILL:
                self.counts["WRONG"] += 1
                self.wrong.append(f"before a kill: {_words(status)}")
            self.counts["kills"] += 1
        self.check("after kills", header=self.random.random() < 0.15)

    def _work(self, seed: float) -> Callable[[], None]:
        def work() -> None:
            chosen = random.Random(seed)
            while True:
                cache = self._fresh()
                for _ in range(10):
                    way = chosen.random()
                    if way < 0.05:
                        cache.clear(chosen.choice([None, "k1", "k2*"]))
                    elif way < 0.1:
                        cache.entries()
                    elif way < 0.14:
                        self._look_at_header(cache, chosen.randrange(_HEADERS))
                    else:
                        self._look(cache, chosen.randrange(_KEYS))

        return work

    # ── damages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def damage(self) -> None:
        """One file is damaged, or another thing is put in its place; then its key is asked for."""
        files = sorted(path for path in self._files.iterdir() if path.suffix != ".lock" and path.is_file())
        if len(files) < _KEYS // 2:
            self.check("filling", header=True)
            return
        path = self.random.choice(files)
        way = self.random.choice(_WAYS)
        way(self.random, path, self.random.choice(files))
        self.counts["damages"] += 1
        self.counts[way.__name__] += 1
        number = next(
            (n for n in range(_KEYS) if path.stem in (Asked(n).key, hashlib.sha256(b"%d" % n).hexdigest())), None
        )
        if number is None:
            if self.random.random() < 0.5:
                self._save(self.random.randrange(_HEADERS))
            self.check(f"{way.__name__} of {path.suffix}", [], header=True)
        else:
            self.check(f"{way.__name__} of {path.suffix}", [number, self.random.randrange(_KEYS)])
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif not path.is_file() or path.is_symlink() or path.stat().st_size > _LARGE_BYTES:
            path.unlink(missing_ok=True)

    # ── compiled once ────────────────────────────────────────────────────────────────────────────────────────────────

    def race(self, processes: int = 8) -> None:
        """Processes ask for one new key at once: one of them compiles it."""
        number = 1000 + self.counts["races"]
        made = self._root / f"made{number}"
        made.mkdir()
        start = time.monotonic() + 0.1

        def ask() -> None:
            def compile() -> Compiled:
                (made / str(os.getpid())).touch()
                time.sleep(0.05)
                return Asked(number).code()

            cache = self._fresh()
            time.sleep(max(0, start - time.monotonic()))
            assert cache.get(Asked(number), compile) == Asked(number).code()

        children = [_child(ask, _LIMIT_S) for _ in range(processes)]
        statuses = [os.waitpid(child, 0)[1] for child in children]
        self.counts["races"] += 1
        compiled = len(list(made.iterdir()))
        if any(statuses) or compiled != 1:
            self.counts["WRONG"] += 1
            self.wrong.append(f"a race of {processes}: compiled {compiled} times, {set(map(_words, statuses))}")
        shutil.rmtree(made)

    def leftovers(self) -> list[str]:
        """What killed processes left behind, once it has been swept."""
        store = self._cache._store_unchecked
        assert store is not None
        store.sweep(abandoned_after_s=0)
        return [path.name for path in self._files.iterdir() if path.suffix in (".tmp", ".lock")]


def _child(work: Callable[[], None], limit_s: float) -> int:
    """Do work in a forked process, which ends after a time."""
    child = os.fork()
    if child:
        return child
    try:
        signal.alarm(int(limit_s))
        warnings.simplefilter("ignore")
        work()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _words(status: int) -> str:
    return "it hung" if status == signal.SIGALRM else "a wrong answer" if status == 256 else f"status {status}"


# ── ways to damage a file ────────────────────────────────────────────────────────────────────────────────────────────


def _truncated(random: random.Random, path: Path, other: Path) -> None:
    os.truncate(path, random.randrange(path.stat().st_size + 1))


def _bits_flipped(random: random.Random, path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(random.randint(1, 8)):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def _zeroed(random: random.Random, path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    start = random.randrange(len(data))
    data[start : start + 512] = bytes(len(data[start : start + 512]))
    path.write_bytes(data)


def _lengthened(random: random.Random, path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(random.randbytes(random.choice([1, 100, 5000])))


def _shifted(random: random.Random, path: Path, other: Path) -> None:
    data = path.read_bytes()
    at = random.randrange(len(data))
    path.write_bytes(data[:at] + random.choice([b"\0", b"{", b""]) + data[at + random.randint(0, 1) :])


def _header_length(random: random.Random, path: Path, other: Path) -> None:
    """A checksum that is right over a header of another length."""
    data = path.read_bytes()
    checked = random.choice([0, 1, 2**31, 2**32 - 1, len(data)]).to_bytes(4, "little") + data[44:]
    path.write_bytes(data[:8] + hashlib.sha256(checked).digest() + checked)


def _swapped(random: random.Random, path: Path, other: Path) -> None:
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def _renamed_over(random: random.Random, path: Path, other: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy(other, copy)
    copy.replace(path)


def _hard_link(random: random.Random, path: Path, other: Path) -> None:
    if path != other:
        path.unlink()
        os.link(other, path)


def _link(random: random.Random, path: Path, other: Path) -> None:
    target = random.choice([other, path.with_name("nothing"), path, Path("/dev/zero"), Path("/dev/stdin"), path.parent])
    path.unlink()
    path.symlink_to(target)


def _folder(random: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    if random.random() < 0.5:
        (path / "inside").touch()


def _pipe(random: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path, random.choice([0o600, 0o666]))


def _socket(random: random.Random, path: Path, other: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # such a name may have 107 characters
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def _mode(random: random.Random, path: Path, other: Path) -> None:
    evil = path.read_bytes()
    path.write_bytes(evil[:60] + b"evil" + evil[64:])
    path.chmod(random.choice([0o666, 0o622, 0o000, 0o606, stat.S_ISUID | 0o602]))


def _owner(random: random.Random, path: Path, other: Path) -> None:
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)


def _sparse(random: random.Random, path: Path, other: Path) -> None:
    os.truncate(path, _LARGE_BYTES + 1)


def _lock_in_the_way(random: random.Random, path: Path, other: Path) -> None:
    """The entry is gone, and its lock is no file."""
    lock = path.with_suffix(".lock")
    path.unlink()
    if lock.is_dir():
        lock.rmdir()
    lock.unlink(missing_ok=True)
    kind = random.randrange(4)
    if kind == 0:
        lock.mkdir()
    elif kind == 1:
        os.mkfifo(lock)
    elif kind == 2:
        lock.symlink_to("/dev/zero")
    else:
        lock.touch()
        lock.chmod(0)


_WAYS: list[Any] = [
    _truncated,
    _truncated,
    _bits_flipped,
    _bits_flipped,
    _bits_flipped,
    _zeroed,
    _lengthened,
    _shifted,
    _shifted,
    _header_length,
    _swapped,
    _swapped,
    _renamed_over,
    _hard_link,
    _link,
    _folder,
    _pipe,
    _socket,
    _mode,
    _owner,
    _sparse,
    _lock_in_the_way,
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--damages", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        attack = Attack(Path(folder), options.seed)
        attack.check("filling", header=True)
        while attack.counts["kills"] < options.kills:
            attack.kill()
        attack.check("filling", header=True)
        while attack.counts["damages"] < options.damages:
            attack.damage()
        for _ in range(options.rounds):
            attack.race()
        print(dict(attack.counts), "left behind:", attack.leftovers())
    print(*attack.wrong, sep="\n")
    return bool(attack.wrong)


if __name__ == "__main__":
    sys.exit(main())
