"""Forks while other threads hold locks; and a system that cannot fork, and lacks what else POSIX has."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import pytest
from support.forks import in_a_fork

import cudakit as ck
from cudakit.jit.compile import nvrtc
from cudakit.memory.accounting import Ledger
from cudakit.streams.process import Occupied, hold_at_fork, renewed

PROGRAM = """
import os
import multiprocessing.context, random, subprocess, tempfile  # these look at the system they are on
for name in "register_at_fork fork geteuid getegid getgid sched_getaffinity".split():
    delattr(os, name)
import numpy as np
import cudakit as ck
stream = ck.emulator.stream("sm_80")
x = np.arange(4, dtype=np.int32)
ck.Kernel("__global__ void twice(int* x) { x[threadIdx.x] *= 2; }")(stream, ck.config(1, 4), x)
assert x.tolist() == [0, 2, 4, 6] and ck.ops.sum(x, stream=stream) == 12
"""


def test_nothing_asks_for_what_only_posix_has() -> None:
    """What is only seen by reading on a machine that is no Windows: `docs/support.md`."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@contextmanager
def held_by_another(block: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """A block during which another thread is inside of one."""
    begun, over = threading.Event(), threading.Event()

    def hold() -> None:
        with block():
            begun.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    try:
        yield
    finally:
        over.set()
        thread.join()


forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


@forks
def test_a_lock_that_another_thread_held_at_the_fork_is_free() -> None:
    class Owner:
        def __init__(self) -> None:
            self.lock = renewed(self, "lock", threading.Lock)
            self.other = renewed(self, "other", threading.RLock)

    owner, ledger = Owner(), Ledger()
    for lock in (lambda: owner.lock, lambda: owner.other, lambda: ledger.lock):
        with held_by_another(lock):
            assert in_a_fork(lambda lock=lock: int(not lock().acquire(timeout=5)), 60) == 0
    assert owner.lock.acquire(blocking=False)


@forks
def test_a_library_in_which_another_thread_was_at_the_fork() -> None:
    library = Occupied()
    assert in_a_fork(lambda: int(library.at_fork), 60) == 0
    with held_by_another(library.inside):
        assert not library.at_fork
        assert in_a_fork(lambda: int(library.at_fork), 60) == 1
        # Also in a child of the child.
        assert in_a_fork(lambda: in_a_fork(lambda: int(library.at_fork), 60) or 0, 60) == 1
    assert in_a_fork(lambda: int(library.at_fork), 60) == 0
    with library.inside(), library.inside():  # the thread that forks goes on in the child
        assert in_a_fork(lambda: int(library.at_fork), 60) == 0


@forks
def test_a_fork_waits_for_a_lock_that_is_held_meanwhile() -> None:
    lock, order = threading.RLock(), list[str]()

    def fork_with_hooks() -> int:  # in a child, for a hook stays
        hold_at_fork(lock)
        begun = threading.Event()

        def hold() -> None:
            with lock:
                begun.set()
                time.sleep(0.2)
                order.append("released")

        thread = threading.Thread(target=hold)
        thread.start()
        begun.wait()
        status = in_a_fork(lambda: int(not lock.acquire(timeout=5) or order != ["released"]), 60)
        thread.join()
        return 1 if status or not lock.acquire(timeout=5) else 0

    assert in_a_fork(fork_with_hooks, 60) == 0


@forks
@pytest.mark.emulator
@pytest.mark.parametrize("lines", [10, 4000])
def test_a_fork_while_another_thread_makes_machine_code(monkeypatch: pytest.MonkeyPatch, lines: int) -> None:
    """The child's first compile for the compiled machine waited for ever for llvmlite's lock."""
    native = pytest.importorskip("cudakit.emulator.compiled.native")
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
    steps = "\n".join(f"%v{n + 1} = xor i64 %v{n}, {n * n + 1}\n%w{n} = mul i64 %v{n + 1}, %v0" for n in range(lines))
    text = f"define i64 @kernel(i64 %v0) {{\n{steps}\nret i64 %w{lines - 1}\n}}"
    kernel, over = ck.Kernel("__global__ void k(int* x) { *x = 3; }"), threading.Event()
    kernel.prepare()

    def compile_on() -> None:
        while not over.is_set():
            native.compiled(text, True)

    def runs() -> int:
        x = np.zeros(1, np.int32)
        kernel(ck.emulator.stream(machine="compiled"), ck.config(1, 1), x)
        return int(x[0] != 3 or kernel.attributes().machine != "compiled")

    compiling = threading.Thread(target=compile_on)
    compiling.start()
    try:
        assert [in_a_fork(runs, 60) for _ in range(3)] == [0, 0, 0]
    finally:
        over.set()
        compiling.join()


@forks
@pytest.mark.emulator
def test_a_fork_while_another_thread_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child's first compile waited for ever for NVRTC's own lock."""
    monkeypatch.setenv("CUDAKIT_CACHE_DIR", "")
    text = "#include <cub/block/block_reduce.cuh>\n__global__ void k(int* x) { *x = 1; }"
    compiling = threading.Thread(target=ck.Kernel(text).ptx, kwargs={"arch": "sm_90"})
    compiling.start()
    while not nvrtc._nvrtc._threads and compiling.is_alive():
        pass
    assert compiling.is_alive()

    def compiles() -> int:
        return int("st.global" not in ck.Kernel("__global__ void k(int* x) { *x = 2; }").ptx(arch="sm_90"))

    assert in_a_fork(compiles, 120) == 0
    compiling.join()
