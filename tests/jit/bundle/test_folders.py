"""Bundles in folders that change, or that have another owner or a network between: right results or clear errors."""

from __future__ import annotations

import errno
import mmap
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.absent import PTX

import cudakit as ck
from cudakit.jit.bundle.file import CODE, BundleFile, Entry, Signature, write
from cudakit.jit.bundle.used import InUse
from cudakit.jit.cache import bundled, bundling
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.signature.reader import parse
from cudakit.jit.signature.signature import declarations_key

ENTRIES = [Entry("code", f"{n}", {"label": f"k{n}"}, bytes([n]) * 5000) for n in range(5)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "kernels.ckb"
    path.parent.mkdir()
    write(path, ENTRIES, {"made by": "a test"})
    return path


def keys_of(file: BundleFile) -> list[str]:
    return [entry.key for entry in file]


def test_a_folder_that_disappears(path: Path) -> None:
    file = BundleFile(path)
    shutil.rmtree(path.parent)
    assert sorted(keys_of(file)) == ["0", "1", "2", "3", "4"]
    file.verify()
    with pytest.raises(ck.ArgumentError, match=r"cannot be read: .*No such file"):
        BundleFile(path)


def _use_after_cut(path: Path, size: int) -> None:
    file = BundleFile(path)
    os.truncate(path, size)
    try:
        file.read("code", "3")
        file.verify()
    except ck.ArgumentError as error:
        os._exit(0 if f"damaged: it has {size} bytes in place of" in str(error) else 3)
    os._exit(4)


@pytest.mark.parametrize("size", [0, 100, 20_000])
def test_a_file_that_is_cut_short_while_it_is_mapped(path: Path, size: int) -> None:
    """By another program, such as `cp` of another bundle. A read of the mapping would be SIGBUS."""
    process = multiprocessing.get_context("fork").Process(target=_use_after_cut, args=(path, size))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_a_file_that_becomes_another_bundle_in_place(path: Path, tmp_path: Path) -> None:
    """Of the same size, and valid by itself: its entries are not those that were opened, nor signed by that key."""
    for read_first in (False, True):
        write(path, ENTRIES, {"made by": "a test"})
        file = BundleFile(path)
        assert not read_first or len(list(file)) == 5
        others = [entry._replace(body=bytes([9]) * 5000) for entry in ENTRIES]
        write(tmp_path / "other", others, {"made by": "a tesT"})
        other = BundleFile(tmp_path / "other").with_signature(Signature(bytes(32), bytes(64)))
        path.write_bytes(other)
        assert BundleFile(path).read("code", "3") == others[3]
        for number in range(5):
            with pytest.raises(ck.ArgumentError, match="damaged"):
                assert file.read("code", f"{number}") == others[0]._replace(key=f"{number}")
        with pytest.raises(ck.ArgumentError, match="damaged"):
            file.verify()


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(mmap, "mmap", type("Unmapped", (mmap.mmap,), {"__new__": refuse}))


@pytest.mark.usefixtures("unmapped")
def test_a_file_system_without_mappings(path: Path) -> None:
    file = BundleFile(path)
    assert list(file) == [file.read("code", key) for key in keys_of(file)]
    assert sorted(file) == ENTRIES
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ck.ArgumentError, match="an entry has another checksum"):
        BundleFile(path).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(ck.ArgumentError, match="damaged"):
        BundleFile(path)


class Network(mmap.mmap):
    """A mapping of a file on a server: it can go stale, and it is slow."""

    is_stale = False
    pause_s = 0.0

    def size(self) -> int:
        if self.is_stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return super().size()

    def __getitem__(self, part: Any) -> Any:
        time.sleep(self.pause_s)
        data: Any = super().__getitem__(part)
        return data


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Network]]:
    monkeypatch.setattr(mmap, "mmap", Network)
    yield Network
    Network.is_stale, Network.pause_s = False, 0.0


STALE = "cannot be read: .*Stale file handle"


def test_a_network_folder_that_goes_stale(path: Path, network: type[Network]) -> None:
    file = BundleFile(path)
    assert file.read("code", "1") == ENTRIES[1]
    network.is_stale = True
    uses: list[Callable[[], object]] = [lambda: file.read("code", "1"), lambda: file.manifest, file.verify]
    for use in uses:
        with pytest.raises(ck.ArgumentError, match=STALE):
            use()
    network.is_stale = False
    assert file.read("code", "2") == ENTRIES[2]
    assert file.manifest == {"made by": "a test"}


def test_a_folder_that_is_stale_at_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*arguments: object) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("cudakit.jit.bundle.file._opened", stale)
    with pytest.raises(ck.ArgumentError, match=STALE):
        ck.use_bundle(path)


def test_reads_that_fail_in_the_middle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mapping: an error of the server is an error of the bundle."""

    def stale(*arguments: object, **options: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(mmap, "mmap", type("Unmapped", (mmap.mmap,), {"__new__": stale}))
    monkeypatch.setattr("builtins.open", lambda *a, **b: _Failing(os.open(path, os.O_RDONLY)))
    with pytest.raises(ck.ArgumentError, match=r"cannot be read: .*Input/output"):
        BundleFile(path)


class _Failing:
    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number

    def __enter__(self) -> _Failing:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.number)

    def read(self) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_slow_reads_of_several_threads(path: Path, network: type[Network]) -> None:
    network.pause_s = 0.002
    file, answers = BundleFile(path), list[object]()

    def read() -> None:
        answers.extend(file.read("code", f"{number}") for number in range(5))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    assert all(answer in ENTRIES for answer in answers)


def test_a_stale_bundle_is_an_error_or_a_compile(tmp_path: Path, network: type[Network]) -> None:
    """By `compile`; nothing is compiled here, but whether it may be is asked."""
    kernel = ck.Kernel("__global__ void k(float* x) { x[0] = 1; }").specialization(arch="sm_90", target="ptx")
    entry = bundling.entry_of(kernel, [], Compiled(b".version 8.0", {"k": "k"}, "", "ptx"))
    assert entry is not None
    bundling.write_bundle(tmp_path / "k.ckb", [entry], {})
    file = BundleFile(tmp_path / "k.ckb")
    read = bundled.code_of(kernel, InUse((file,), True))
    assert read is not None
    assert read.code == b".version 8.0"
    network.is_stale = True
    with pytest.raises(ck.ArgumentError, match=STALE):
        bundled.code_of(kernel, InUse((file,), True))
    with pytest.warns(ck.CacheWarning, match=rf"{STALE}.*Its kernels are compiled"):
        assert bundled.code_of(kernel, InUse((file,), False)) is None
    with pytest.raises(ck.ArgumentError, match=STALE):
        list(InUse((file,), True).entries(CODE, entry.key))
    with pytest.warns(ck.CacheWarning, match=STALE):
        assert not list(InUse((file,), False).entries(CODE, entry.key))
    second = tmp_path / "second.ckb"  # which is on another disk
    shutil.copy(tmp_path / "k.ckb", second)
    network.is_stale = False
    other = BundleFile(second)
    other._data = second.read_bytes()
    network.is_stale = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ck.CacheWarning)
        assert bundled.code_of(kernel, InUse((file, other), False)) == read


TWICE = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }"
OTHER_USER = """
import os, sys, warnings
from pathlib import Path
import numpy as np, cudakit as ck, cudakit.emulator.launch, cudakit.jit.compile.portable
from cudakit.jit.bundle.file import write
stream = ck.emulator.stream(machine="numpy")
ck.Kernel.from_ptx(sys.argv[3])(stream, ck.config(1, 3), np.ones(3, "f4"))
if os.geteuid() == 0:  # modules that only the superuser can read are imported by now
    os.setgroups([]); os.setegid(65534); os.seteuid(65534)
path = Path(sys.argv[1])
try:
    (path.parent / "probe").touch()
except PermissionError:
    print("read-only")
x = np.arange(3, dtype="f4")
ck.use_bundle(path, compile="never")
ck.Kernel(sys.argv[2])(stream, ck.config(1, 3), x)
print(x)
try:
    write(path, [], {})
except PermissionError:
    print("not written")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such users")
def test_a_read_only_folder_of_another_user() -> None:
    """As a user who is not the superuser, in a folder and with a cache that this user cannot write."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "lib" / "kernels.ckb"
        path.parent.mkdir()
        kernel = ck.Kernel(TWICE)
        code = bundling.entry_of(
            kernel.specialization(arch="sm_80", target="ptx"), [], Compiled(PTX.encode(), {"twice": "twice"}, "", "ptx")
        )
        declarations = bundling.signature(declarations_key(kernel.source.digest), parse(TWICE).to_json().encode())
        assert code is not None
        bundling.write_bundle(path, [code, declarations], {})
        before = path.read_bytes()
        path.chmod(0o444)
        path.parent.chmod(0o555)
        Path(name).chmod(0o555)
        environment = {**os.environ, "CUDAKIT_CACHE_DIR": f"{name}/cache", "HOME": f"{name}/home"}
        command = [sys.executable, "-W", "error", "-c", OTHER_USER, str(path), TWICE, PTX]
        try:
            ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            assert (ran.stdout, ran.stderr) == ("read-only\n[0. 2. 4.]\nnot written\n", "")
            assert path.read_bytes() == before
            assert os.listdir(path.parent) == [path.name]
        finally:
            Path(name).chmod(0o755)
            path.parent.chmod(0o755)
