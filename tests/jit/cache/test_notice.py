"""A compile that takes long says so, to who sits at a terminal."""

from __future__ import annotations

import io
import multiprocessing.process
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cudakit as ck
from cudakit.jit.cache import settings
from cudakit.jit.cache.settings import noticed


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.delenv("CUDAKIT_QUIET", raising=False)
    found = Terminal()
    # pytest puts its own sys.stderr in place when the test itself begins.
    monkeypatch.setattr(settings, "sys", SimpleNamespace(stderr=found, modules=sys.modules))
    return found


def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waits until it was said."""
    started = threading.Event()

    class Timer(threading.Timer):
        def run(self) -> None:
            super().run()
            started.set()

    monkeypatch.setattr(threading, "Timer", Timer)
    monkeypatch.setattr(settings, "AFTER_S", 0.0)
    return lambda: None if started.wait(10) else pytest.fail("nothing was said")


def test_a_long_compile_says_so_and_how_long_it_took(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = slow(monkeypatch)
    with noticed("f.cu: f<float>\x1b[2J"):
        wait()
    first, second = terminal.getvalue().splitlines()
    assert first == "cudakit: compiling f.cu: f<float>?[2J …"
    assert second.startswith("cudakit: compiled f.cu: f<float>?[2J in 0.")


def test_a_long_name_is_cut(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = slow(monkeypatch)
    with noticed("f" * 1000):
        wait()
    assert max(map(len, terminal.getvalue().splitlines())) < 150


def test_one_that_fails_is_not_said_to_be_compiled(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    wait = slow(monkeypatch)

    def fail() -> None:
        wait()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), noticed("f"):
        fail()
    assert terminal.getvalue() == "cudakit: compiling f …\n"


def test_a_short_one_says_nothing(terminal: Terminal) -> None:
    with noticed("f"):
        pass
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("why", ["quiet", "file", "closed", "none", "worker"])
def test_nobody_is_told(why: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Timer", lambda *_: pytest.fail("no thread is started"))
    if why == "quiet":
        monkeypatch.setenv("CUDAKIT_QUIET", "1")
    elif why == "file":  # as a notebook's is
        monkeypatch.setattr(settings.sys, "stderr", io.StringIO())
    elif why == "closed":
        closed = io.StringIO()
        closed.close()
        monkeypatch.setattr(settings.sys, "stderr", closed)
    elif why == "none":
        monkeypatch.setattr(settings.sys, "stderr", None)
    else:
        monkeypatch.setattr(multiprocessing.process, "parent_process", lambda: SimpleNamespace())
    with noticed("f"):
        pass
    assert terminal.getvalue() == ""


def test_a_hit_has_nothing_to_do_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel("__global__ void hit_quietly(int* x) {}")
    kernel.compile(arch="sm_90")
    monkeypatch.setattr(settings, "noticed", lambda _: pytest.fail("it was compiled"))
    kernel.compile(arch="sm_90")


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
def test_on_a_terminal(tmp_path: Path) -> None:
    import pty

    program = """
import cudakit as ck, numpy as np
from cudakit.jit.cache import settings
settings.AFTER_S = 0.0
kernel = ck.Kernel("template <class T> __global__ void seen(T* x) { *x = 1; }")
kernel[np.float32].compile(arch="sm_90")
kernel[np.float32].compile(arch="sm_90")
kernel.prepare(np.int8, np.int16, arch="sm_90")
"""
    environment: dict[str, Any] = {**os.environ, "CUDAKIT_CACHE_DIR": str(tmp_path)}
    environment.pop("CUDAKIT_QUIET", None)
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        while piece := _read(ours):
            text += piece
    os.close(ours)
    assert process.returncode == 0, text
    lines = [line for line in text.decode().splitlines() if line.startswith("cudakit: compiling")]
    names = [line.removeprefix("cudakit: compiling ") for line in lines]
    assert len(names) == 2, text
    assert names[0].endswith("seen<float> …")
    assert names[1].startswith("2 kernels in ")


def _read(file: int) -> bytes:
    try:
        return os.read(file, 4096)
    except OSError:  # the other end is closed
        return b""
