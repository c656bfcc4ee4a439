"""Kernels whose code is kept in a folder of their own: whose it must be, and what changes under it."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.cache import cache, settings
from cudakit.jit.cache.cache import CacheInfo, cache_at, default_cache

TEXT = "template <class T> __global__ void kept_apart(T* x) { *x = 3; }"


def kernel(folder: Any, text: str = TEXT) -> ck.Kernel:
    return ck.Kernel(text, options=ck.CompileOptions(cache=folder))[np.float32]


def info(folder: Path | str) -> CacheInfo:
    return cache_at(str(folder)).info()


@contextlib.contextmanager
def as_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing in memory."""
    with monkeypatch.context() as patched:
        patched.setattr(cache, "_caches", {})
        yield


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "own"


def test_code_and_heads_are_kept_there_alone(own: Path) -> None:
    kernel(own).compile(arch="sm_90")
    now = info(own)
    assert (now.entries, now.blobs, now.misses) == (1, 1, 1)
    assert not [entry for entry in default_cache().entries() if "kept_apart" in entry.label]
    assert own.stat().st_mode & 0o777 == 0o700
    kernel(own).compile(arch="sm_90")
    assert (info(own).misses, info(own).memory_hits) == (1, 1)


def test_the_key_is_the_same_wherever_it_is_kept(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(own).compile(arch="sm_90")
    shutil.copytree(own, own.with_name("other"))
    os.chmod(own.with_name("other"), 0o700)
    with as_a_new_process(monkeypatch):
        kernel(own.with_name("other")).compile(arch="sm_90")
        assert (info(own.with_name("other")).disk_hits, info(own.with_name("other")).misses) == (1, 0)


def test_each_package_has_its_own(own: Path) -> None:
    for name in ("a", "b"):
        kernel(own / name).compile(arch="sm_90")
    assert [info(own / name).misses for name in ("a", "b")] == [1, 1]


def test_with_options_takes_effect(own: Path) -> None:
    kernel(own).with_options(cache=own.with_name("later")).compile(arch="sm_90")
    assert info(own.with_name("later")).misses == 1
    assert info(own).misses == 0
    assert kernel(own).with_options(cache=None).options == ck.CompileOptions()


def test_a_change_of_the_record_is_refused(own: Path) -> None:
    with pytest.raises(AttributeError):
        kernel(own).options.cache = "elsewhere"  # type: ignore[misc]
    with pytest.raises(ck.TemplateError, match="cach"):
        kernel(own).with_options(cach="elsewhere")


def test_a_relative_folder_is_that_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = kernel("own/../here/")
    monkeypatch.chdir("/")
    made.compile(arch="sm_90")
    assert info(tmp_path / "here").entries == 1
    assert made.options == kernel(tmp_path / "here").options


def test_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ck.CompileOptions(cache="~/cache").cache == str(tmp_path / "cache")


@pytest.mark.parametrize("folder", ["", 3, b"x", True, "a\0b", "~nobody-has-this-name/x", ["a"], os.devnull + "\0"])
def test_what_is_no_folder_is_refused(folder: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="CompileOptions: cache"):
        ck.CompileOptions(cache=folder)


@pytest.mark.parametrize("place", ["folder", "version"])
def test_a_folder_that_others_may_write_is_not_used(own: Path, place: str) -> None:
    (own / "v1").mkdir(parents=True, mode=0o700)
    os.chmod(own, 0o777 if place == "folder" else 0o700)
    os.chmod(own / "v1", 0o777 if place == "version" else 0o700)
    with pytest.warns(ck.CacheWarning, match=r"can be written by others.* set CompileOptions\(cache=…\) to a folder"):
        kernel(own).compile(arch="sm_90")
    assert list((own / "v1").iterdir()) == []


def test_a_link_is_not_followed(own: Path) -> None:
    (own / "there").mkdir(parents=True)
    os.chmod(own, 0o700)
    (own / "v1").symlink_to(own / "there")
    with pytest.warns(ck.CacheWarning, match="is a link"):
        kernel(own).compile(arch="sm_90")
    assert list((own / "there").iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the superuser gives files away")
def test_what_another_user_has_there_is_not_believed(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(own).compile(arch="sm_90")
    (entry,) = own.glob("v1/*.kernel")
    os.chown(entry, 65534, 65534)
    with as_a_new_process(monkeypatch):
        kernel(own).compile(arch="sm_90")
        assert (info(own).disk_hits, info(own).misses) == (0, 1)
    os.chown(own / "v1", 65534, 65534)
    with as_a_new_process(monkeypatch), pytest.warns(ck.CacheWarning, match="belongs to another user"):
        kernel(own).compile(arch="sm_90")


def test_entries_that_are_opened_to_others_later_are_not_believed(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel(own).compile(arch="sm_90")
    cached = cache_at(str(own))
    (entry,) = own.glob("v1/*.kernel")
    os.chmod(entry, 0o666)
    cached._memory.clear()
    kernel(own).compile(arch="sm_90")
    assert cached.info().misses == 2, "in the process that trusted the folder, too"


@pytest.mark.parametrize("planted", ["pipe", "folder", "damage", "other"])
def test_what_is_planted_is_not_believed(own: Path, planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = kernel(own).compile(arch="sm_90")
    (entry,) = own.glob("v1/*.kernel")
    data = entry.read_bytes()
    entry.unlink()
    if planted == "pipe":
        os.mkfifo(entry, 0o600)
    elif planted == "folder":
        entry.mkdir()
    elif planted == "damage":
        entry.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        kernel(own, TEXT.replace("3", "4")).compile(arch="sm_90")
        (other,) = own.glob("v1/*.kernel")
        other.rename(entry)
    if planted in ("damage", "other"):
        entry.chmod(0o600)
    with as_a_new_process(monkeypatch), warnings.catch_warnings():
        warnings.simplefilter("ignore", ck.CacheWarning)
        assert kernel(own).compile(arch="sm_90") == wanted
        assert info(own).misses == 1


def test_a_file_in_its_place_is_told(own: Path) -> None:
    own.write_text("")
    with pytest.warns(ck.CacheWarning, match=r"cannot be written.*CompileOptions\(cache=…\)"):
        kernel(own).compile(arch="sm_90")
    assert own.read_text() == ""


def test_a_folder_that_is_removed_is_made_again(own: Path) -> None:
    kernel(own).compile(arch="sm_90")
    shutil.rmtree(own)
    kernel(own, TEXT.replace("3", "5")).compile(arch="sm_90")
    assert info(own).entries == 1


def test_the_environment_turns_it_off_and_bounds_it(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
    kernel(own).compile(arch="sm_90")
    assert not own.exists()
    assert info(own).folder is None
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(own.with_name("user")))
    monkeypatch.setenv("CUDAKIT_CACHE_BYTES", "1M")
    kernel(own).compile(arch="sm_90")
    assert (info(own).entries, info(own).max_bytes) == (1, 1 << 20)


def test_an_environment_that_is_changed_later_takes_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.replace("kept_apart(", "k_of_a_changed_environment(")
    for name in ("one", "two", "one"):
        monkeypatch.setenv("CUDAKIT_CACHE_DIR", str(tmp_path / name))
        ck.Kernel(text)[np.float32].compile(arch="sm_90")
    assert [len(list((tmp_path / name).glob("v1/*.kernel"))) for name in ("one", "two")] == [1, 1]
    assert default_cache().info().memory_hits == 1
    monkeypatch.setenv("CUDAKIT_CACHE_BYTES", "much")
    with pytest.raises(ck.CudakitError, match="CUDAKIT_CACHE_BYTES='much'"):
        ck.Kernel(text)[np.float32].compile(arch="sm_90")


def test_pickles_and_children_keep_it(own: Path) -> None:
    again = pickle.loads(pickle.dumps(kernel(own)))
    assert again.options.cache == str(own)
    program = "import pickle, sys; pickle.load(sys.stdin.buffer).compile(arch='sm_90')"
    subprocess.run([sys.executable, "-c", program], input=pickle.dumps(again), check=True)
    again.compile(arch="sm_90")
    assert (info(own).disk_hits, info(own).misses) == (1, 0)
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            kernel(own, TEXT.replace("3", "7")).compile(arch="sm_90")
            status = 0
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert info(own).entries == 2


@pytest.mark.slow
def test_workers_and_links_keep_it(own: Path) -> None:
    text = "__device__ float f(); template <class T> __global__ void kept_apart(T* x) { *x = f(); }"
    options = ck.CompileOptions(cache=own, link=["__device__ float f() { return 2; }"])
    ck.prewarm([ck.Kernel(text, options=options)[each] for each in (np.float32, np.float64)], arch="sm_90", workers=2)
    ck.prewarm([ck.Kernel(TEXT, options=ck.CompileOptions(cache=each))[np.float32] for each in (own, own / "b")])
    assert info(own).entries == 6
    assert info(own / "b").entries == 1
    assert not [entry for entry in default_cache().entries() if "kept_apart" in entry.label]


def test_threads_that_come_first_together_share_one(own: Path) -> None:
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(kernel(own).compile(arch="sm_90"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert info(own).misses == 1


def test_kernels_that_run_keep_it(own: Path, stream: Any, xp: Any) -> None:
    x = xp.zeros(1, "f4")
    kernel(own)(stream, ck.config(1, 1), x)
    stream.sync()
    assert x[0] == 3
    assert info(own).entries == 1
    assert settings.environment_values()[0] != str(own)
