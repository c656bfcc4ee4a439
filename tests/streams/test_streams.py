"""Order between streams, lifetime of memory, threads, processes and devices."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
import threading
import traceback
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck

SLOW = """
__global__ void slow_add(float* x, float by, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    x[threadIdx.x] += by;
}
"""


@pytest.fixture
def cycles(request: pytest.FixtureRequest) -> int:
    """Some 50 ms on a GPU: long enough that a missing wait always shows; on the emulator a clock's tick is a step."""
    return 100_000_000 if request.config.getoption("--gpu") else 100


@pytest.fixture(scope="module")
def slow() -> ck.Kernel:
    return ck.Kernel(SLOW)


def test_an_argument_used_on_another_stream_is_waited_for(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    second = another(stream)
    x = xp.zeros(32, "f4")
    one = ck.config(1, 32)
    slow(second, one, x, 1.0, cycles)
    slow(stream, one, x, 10.0, 0)
    slow(second, one, x, 100.0, 0)
    with ck.using(second):
        assert (to_host(x) == 111).all()


def test_a_raw_address_is_ordered_by_the_allocation_that_it_points_into(stream: Any) -> None:
    add = ck.Kernel("__global__ void add(float* x) { x[threadIdx.x] += 1; }")
    second, x = another(stream), ck.to_device(np.zeros(32, "f4"), stream)
    start = x.data.ptr if hasattr(x.data, "ptr") else x.ctypes.data
    for _ in range(4):
        add(stream, ck.config(1, 32), x)
        add(second, ck.config(1, 16), ctypes.c_void_p(start + 4 * 8))
    expected = np.full(32, 4.0)
    expected[8:24] += 4
    np.testing.assert_array_equal(ck.to_host(x, stream), expected)
    for wrong in (start, np.intp(start)):
        with pytest.raises(ck.ArgumentError, match=r"a raw address is given as ctypes\.c_void_p\(address\)"):
            add(stream, ck.config(1, 16), wrong)


@pytest.mark.gpu
def test_independent_streams_overlap(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    streams = [another(stream) for _ in range(4)]
    arrays = [xp.zeros(32, "f4") for _ in streams]
    one = ck.config(1, 32)
    for each, array in zip(streams, arrays, strict=True):
        slow(each, one, array, 1.0, 0)
    stream.device.sync()
    from cuda.core import EventOptions

    start = stream.record(options=EventOptions(timing_enabled=True))
    for each in streams:
        each.wait(start)
    for each, array in zip(streams, arrays, strict=True):
        slow(each, one, array, 1.0, cycles)
    for each in streams:
        stream.wait(each)
    end = stream.record(options=EventOptions(timing_enabled=True))
    end.sync()
    alone = stream.record(options=EventOptions(timing_enabled=True))
    slow(stream, one, arrays[0], 1.0, cycles)
    finished = stream.record(options=EventOptions(timing_enabled=True))
    finished.sync()
    assert end - start < 2 * (finished - alone)


def test_memory_made_by_cupy_on_its_stream_is_ready(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    """CuPy's pending work on its own stream comes before a launch on another one."""
    other = another(stream)
    x = xp.zeros(32, "f4")
    slow(stream, ck.config(1, 32), x, 1.0, cycles)
    y = x + 1
    slow(other, ck.config(1, 32), y, 10.0, 0)
    other.sync()
    assert (to_host(y) == 12).all()


@pytest.mark.gpu
def test_dropped_memory_is_not_reused_before_the_kernel_is_done(
    stream: Any, xp: Any, slow: ck.Kernel, cycles: int
) -> None:
    other = another(stream)
    watch = xp.zeros(32, "f4")
    for _ in range(3):
        x = xp.zeros(32, "f4")
        address = x.data.ptr
        slow(other, ck.config(1, 32), x, 1.0, cycles)
        del x
        fresh = [xp.full(32, 5, "f4") for _ in range(4)]
        assert address not in [array.data.ptr for array in fresh]
        other.sync()
        assert all((to_host(array) == 5).all() for array in fresh)
    del watch


@pytest.mark.gpu
def test_ordering_is_skipped_until_an_array_moves(
    stream: Any, xp: Any, slow: ck.Kernel, cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several streams in use, arrays that stay on one cost nothing; once one moves, it is waited for again."""
    from cudakit.streams.order import Order

    other = another(stream)
    one = ck.config(1, 32)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    slow(other, one, y, 1.0, 0)
    looks: list[Any] = []
    before = Order.before

    def counted(self: Any, *arguments: Any) -> Any:
        looks.append(arguments)
        return before(self, *arguments)

    monkeypatch.setattr(Order, "before", counted)
    for _ in range(5):
        slow(stream, one, x, 1.0, 0)
    assert len(looks) == 1
    slow(stream, one, x, 1.0, cycles)
    slow(other, one, x, 10.0, 0)
    slow(stream, one, x, 100.0, 0)
    assert len(looks) == 3
    assert (to_host(x) == 116).all()


@pytest.mark.gpu
def test_a_closed_stream_is_still_waited_for(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    x, passing = xp.zeros(32, "f4"), ck.stream()
    slow(passing, ck.config(1, 32), x, 1.0, cycles)
    passing.close()
    slow(stream, ck.config(1, 32), x, 10.0, 0)
    assert (to_host(x) == 11).all()


def test_a_parameter_may_have_any_name(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(
        "__global__ void f(int* given, int reason, int stream, int lambda) { *given = reason + stream + lambda; }"
    )
    out = xp.zeros(1, "i4")
    for _ in range(2):
        kernel(stream, ck.config(1, 1), given=out, reason_=1, stream_=2, parameter3=3)
        assert int(out[0]) == 6


def test_using_orders_work_before_and_after(stream: Any, xp: Any, slow: ck.Kernel, cycles: int) -> None:
    inner = another(stream)
    x = xp.zeros(32, "f4")
    slow(stream, ck.config(1, 32), x, 1.0, cycles)
    with ck.using(inner):
        y = x * 2
        slow(inner, ck.config(1, 32), y, 1.0, cycles)
    assert (to_host(y) == 3).all()


@pytest.mark.slow
def test_threads_share_a_kernel(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("template <typename T> __global__ void add(T* x, T by) { x[threadIdx.x] += by; }")
    failures: list[BaseException] = []

    def work(index: int) -> None:
        try:
            dtype = ["f4", "f8", "i4", "i8"][index % 4]
            own = another(stream)
            with ck.using(own) as cupy:
                x = cupy.zeros(32, dtype)
                for step in range(200):
                    kernel(own, ck.config(1, 32), x, 1 if step % 2 else np.dtype(dtype).type(1))
                assert (to_host(x) == 200).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_share_a_kernel_with_structs(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(
        "template <typename P> __global__ void put(P p, int* out) { if (p.a != (int)p.b) atomicAdd(out + 1, 1); }"
    )
    dtype = np.dtype([("a", "i4"), ("b", "f8")], align=True)
    out = xp.zeros(2, "i4")

    def work(index: int) -> None:
        for _ in range(300):
            kernel(stream, ck.config(1, 1), np.array((index, index), dtype)[()], out)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(out[1]) == 0


@pytest.mark.slow
def test_spawned_child_uses_a_pickled_kernel(stream: Any, xp: Any, slow: ck.Kernel) -> None:
    program = """
import pickle, sys, cudakit as ck
kernel = pickle.load(sys.stdin.buffer)
s = ck.stream()
with ck.using(s) as xp:
    x = xp.zeros(4, "f4"); kernel(s, ck.config(1, 4), x, 2.0, 0); print(float(x.sum()))
"""
    done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(slow), capture_output=True, check=False)
    assert done.stdout.decode().strip() == "8.0", done.stderr.decode()


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_gets_a_clear_error(stream: Any, xp: Any, slow: ck.Kernel) -> None:
    x, one = xp.zeros(32, "f4"), ck.config(1, 32)
    for _ in range(3):  # the same call again goes straight to the driver, and must not in the child
        slow(stream, one, x, 1.0, 0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            slow(stream, one, x, 1.0, 0)
            os.write(write, b"launched")
        except ck.LaunchError as error:
            os.write(write, str(error).encode())
        except BaseException:  # of any other kind: the parent shows it
            os.write(write, traceback.format_exc().replace("forked", "f.").encode())
        finally:
            os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    said = os.read(read, 4000)
    assert b"forked" in said, (status, said)


@pytest.mark.gpu
def test_several_devices(xp: Any, stream: Any, slow: ck.Kernel) -> None:
    from cuda.core import Device

    if xp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("needs two GPUs")
    first = xp.zeros(32, "f4")
    other = Device(1)
    other.set_current()
    second_stream = other.create_stream()
    Device(0).set_current()
    with ck.using(second_stream):
        second = xp.zeros(32, "f4")
        for _ in range(3):
            slow(second_stream, ck.config(1, 32), second, 1.0, 0)
        assert (to_host(second) == 3).all()
    for _ in range(3):
        slow(stream, ck.config(1, 32), first, 1.0, 0)
        slow(second_stream, ck.config(1, 32), second, 1.0, 0)
    assert (to_host(first) == 3).all()
    second_stream.sync()
    with xp.cuda.Device(1):
        assert (to_host(second) == 6).all()
    with pytest.raises(ck.ArgumentError, match="stream is of device 1"):
        slow(second_stream, ck.config(1, 32), first, 1.0, 0)
