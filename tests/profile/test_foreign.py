"""``ck.hazards.foreign``: work of other libraries in the order between streams; and copies between devices."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.places import another, to_host

import cudakit as ck
from cudakit.streams import devices
from cudakit.streams.streams import cupy_stream

SLOW = """
__global__ void slow(float* x, float value, long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
    x[threadIdx.x] = value;
}
"""
ONE = ck.config(1, 32)
slow = ck.Kernel(SLOW)


@pytest.fixture
def cycles(request: pytest.FixtureRequest) -> int:
    return 40_000_000 if request.config.getoption("--gpu") else 100


@contextlib.contextmanager
def on(stream: Any, xp: Any) -> Iterator[None]:
    """As NCCL is given a stream: nobody is told."""
    with contextlib.nullcontext() if xp is np else cupy_stream(stream):
        yield


def exchanged(stream: Any, xp: Any, cycles: int) -> tuple[Any, Any]:
    """x is written on one stream, copied by others on a second, and written again on the first."""
    first, second = another(stream), another(stream)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    for each in (first, second):
        slow(each, ONE, xp.zeros(32, "f4"), 0.0, 0)
        each.sync()
    slow(first, ONE, x, 7.0, cycles)
    with ck.hazards.foreign(second, reads=[x], writes=[y], name="all-reduce"), on(second, xp):
        y[...] = x
    slow(first, ONE, x, 8.0, 0)
    slow(first, ONE, y, 9.0, 0)
    first.sync()
    second.sync()
    return x, y


def test_it_is_ordered_on_both_sides(stream: Any, xp: Any, cycles: int) -> None:
    first, second = another(stream), another(stream)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    stream.sync()
    slow(first, ONE, x, 7.0, cycles)
    with ck.hazards.foreign(second, reads=[x], writes=[y]), on(second, xp):
        y[...] = x
    slow(first, ONE, x, 8.0, 0)
    first.sync()
    second.sync()
    assert (to_host(x) == 8).all()
    assert (to_host(y) == 7).all()


def test_it_is_told_by_its_name(stream: Any, xp: Any, cycles: int) -> None:
    with ck.hazards.trace() as report:
        exchanged(stream, xp, cycles)
    pairs = {(each.first.work, each.second.work) for each in report.dependencies}
    assert {("slow", "all-reduce"), ("all-reduce", "slow")} <= pairs
    assert not report.missing


@pytest.mark.emulator
def test_what_is_not_said_is_a_race(stream: Any, xp: Any) -> None:
    first, second = another(stream), another(stream)
    x, y = xp.zeros(32, "f4"), xp.zeros(32, "f4")
    slow(first, ONE, x, 7.0, 0)
    with (
        ck.hazards.manual(),
        pytest.raises(ck.EmulationError, match="foreign work"),
        ck.hazards.foreign(second, reads=[x], writes=[y]),
    ):
        y[...] = x


@pytest.mark.gpu
def test_arrays_go_between_devices_in_order(cycles: int) -> None:
    if devices.device_count() < 2:
        pytest.skip("needs two GPUs")
    import cupy
    from cuda.core import Device

    streams = []
    for number in (0, 1):
        Device(number).set_current()
        streams.append(ck.stream())
    Device(0).set_current()
    first, second = streams
    x = ck.to_device(np.zeros(1 << 20, np.float32), first)
    for each in streams:
        spare = ck.empty(32, np.float32, stream=each)
        slow(each, ONE, spare, 0.0, 0)
    for _ in range(3):  # a first copy, and those on memory that is known
        slow(first, ONE, x, 7.0, cycles)
        y = ck.to_device(x, second)
        slow(first, ONE, x, 8.0, 0)  # waits for the copy
        assert y.device.id == 1
        assert (ck.to_host(y, second)[:32] == 7).all()
        slow(second, ONE, y, 9.0, cycles)
        again = ck.to_device(y, first, out=x)
        assert again is x
        assert (ck.to_host(x, first)[:32] == 9).all()
    with ck.hazards.trace() as report:
        slow(first, ONE, x, 7.0, 0)
        ck.to_device(x, second)
    assert report.dependencies
    assert not report.missing
    with pytest.raises(ck.ArgumentError, match="C-contiguous"):
        ck.to_device(x[::2], second)
    with pytest.raises(ck.ArgumentError, match="out is on device 0"):
        ck.to_device(x, second, out=x)
    np.testing.assert_array_equal(ck.to_host(ck.to_device(x, first), first), ck.to_host(x, first))
    with cupy.cuda.Device(0):
        z = cupy.arange(1 << 20, dtype="f4")
        z += 1  # unseen, on CuPy's stream of the first device
    found = ck.to_host(ck.to_device(z, second), second)
    np.testing.assert_array_equal(found, np.arange(1, (1 << 20) + 1, dtype="f4"))
