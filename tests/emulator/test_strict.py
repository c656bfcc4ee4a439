"""Strict streams: arrays of the host and of the device are told apart, as on a GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator import EmulatedStream

pytestmark = pytest.mark.emulator

ADD = ck.Kernel("__global__ void add(float* x, float by) { x[threadIdx.x] += by; }")
FOUR = ck.config(1, 4)


@pytest.fixture
def here() -> EmulatedStream:
    return ck.emulator.stream(strict=True)


@pytest.fixture
def host() -> np.ndarray:
    return np.ones(4, np.float32)


@pytest.fixture
def device(here: EmulatedStream) -> Any:
    return ck.to_device(np.ones(4, np.float32), here)


def refused(words: str) -> pytest.RaisesExc[ck.ArgumentError]:
    """The refusal, which names a line of this file."""
    return pytest.raises(ck.ArgumentError, match=f"(?s)at {__file__}:\\d+: .*{words}")


# ── what a GPU refuses ──


def test_kernels_take_no_host_array(here: EmulatedStream, host: np.ndarray) -> None:
    for array in (host, host[::2], np.lib.stride_tricks.as_strided(host)):
        with refused("numpy array of float32 .* is in host memory.*ck.to_device"):
            ADD(here, FOUR, array, 1.0)
    with refused("is in host memory"):
        ADD.plan(here, FOUR, host, 1.0)
    assert host.tolist() == [1] * 4


def test_a_call_that_a_lenient_stream_took_is_refused_all_the_same(here: EmulatedStream, host: np.ndarray) -> None:
    lenient = ck.emulator.stream()
    for _ in range(3):
        ADD(lenient, FOUR, host, 1.0)
    pinned = ck.empty(4, np.float32, kind="pinned", stream=here)
    for _ in range(3):
        ADD(here, FOUR, pinned, 1.0)
    with refused("is in host memory"):
        ADD(here, FOUR, host, 1.0)
    ADD(here, FOUR, pinned, 1.0)
    ADD(lenient, FOUR, host, 1.0)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, h: x + h,
        lambda x, h: h + x,
        lambda x, h: x == h,
        lambda x, h: np.add(h, 1, out=x),
        lambda x, h: np.add(x, 1, out=h),
        lambda x, h: np.allclose(x, h),
        lambda x, h: np.concatenate([x, h]),
        lambda x, h: np.copyto(x, h),
        lambda x, h: np.where(x > 0, x, h),
        lambda x, h: np.testing.assert_array_equal(x, h),
        lambda x, h: np.add(x, x, where=h > 0),
        lambda x, h: np.add.at(x, [0], h[:1]),
        lambda x, h: x.__setitem__(slice(None), h),
        lambda x, h: x.__setitem__(0, h[0:1].reshape(())),
        lambda x, h: x.__iadd__(h),
    ],
)
def test_no_operation_takes_arrays_of_both(device: Any, host: np.ndarray, mix: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(ck.ArgumentError, match=f"at {__file__}:\\d+: .*(beside one of the device|in device memory)"):
        mix(device, host)
    assert device.tolist() == host.tolist() == [1] * 4


@pytest.mark.parametrize("name", ["array", "asanyarray", "asarray", "ascontiguousarray", "asfortranarray"])
def test_no_host_array_is_made_of_one_of_the_device(device: Any, name: str) -> None:
    with refused(f"numpy.{name} of an array in device memory.*ck.to_host"):
        getattr(np, name)(device)
    assert getattr(np, name)([1.0]).tolist() == [1]


def test_ops_take_no_host_array(here: EmulatedStream, host: np.ndarray, device: Any) -> None:
    for call in (
        lambda: ck.ops.sum(host, stream=here),
        lambda: ck.math.exp(host, stream=here),
        lambda: ck.ops.take(device, np.array([1]), stream=here),
        lambda: ck.ops.sort(ck.empty(4, np.float32, kind="pinned", stream=here), stream=here),
        lambda: ck.elementwise("T x", "T y", "y = x", name="same")(device, out=host, stream=here),
    ):
        with refused("is in host memory"):
            call()


def test_managed_memory_is_the_devices(here: EmulatedStream, host: np.ndarray) -> None:
    x = ck.empty(4, np.float32, kind="managed", stream=here)
    with refused("an assignment to elements"):
        x[:] = host
    x[:] = 3
    ADD(here, FOUR, x, 1.0)
    assert ck.to_host(x, here).tolist() == [4] * 4


# ── what a GPU takes ──


def test_arrays_of_the_device_go_everywhere(here: EmulatedStream, device: Any, host: np.ndarray) -> None:
    ADD(here, FOUR, device, 1.0)
    ADD(here, FOUR, ck.ops.sort(device, stream=here), 1.0)
    ADD(here, FOUR, device[:4].copy(), 1.0)
    assert float(device[0]) == 2
    assert device.sum() == 8
    assert np.allclose(device, device)
    assert np.add(device, 1, where=device > 0, out=device.copy()).tolist() == [3] * 4
    assert (2 * device + np.float32(1)).tolist() == [5] * 4
    assert isinstance(device.get(), np.ndarray)
    assert device.get().tolist() == ck.to_host(device, here).tolist() == [2] * 4
    device.set(host)
    assert np.allclose(ck.to_host(device, here), host)
    assert ck.ops.var(device, stream=here) == 0
    assert device[np.array([0, 1])].shape == (2,)


def test_host_arrays_that_a_kernel_reaches(here: EmulatedStream, host: np.ndarray) -> None:
    pinned = ck.empty(4, np.float32, kind="pinned", stream=here)
    pinned[:] = host
    ADD(here, FOUR, pinned, 1.0)
    ADD(here, FOUR, pinned[:4], 1.0)
    with ck.memory.register(host):
        ADD(here, FOUR, host, 1.0)
    ADD(here, FOUR, ck.InOut(host), 1.0)
    here.sync()
    assert (host.tolist(), pinned.tolist()) == ([3] * 4, [3] * 4)


def test_arrays_of_xp_are_the_devices(here: EmulatedStream, host: np.ndarray) -> None:
    with ck.using(here) as xp:
        for x in (
            xp.ones(4, dtype=xp.float32), xp.asarray(host), xp.array([1, 1, 1, 1], "f4"), xp.zeros(4, "f4") + 1,
            xp.random.rand(4).astype("f4") * 0 + 1, xp.concatenate([xp.ones(2, "f4"), xp.ones(2, "f4")]),
            xp.split(xp.ones(8, "f4"), 2)[1], xp.empty(4, "f4") * 0 + 1, xp.ndarray((4,), "f4"),
        ):  # fmt: skip
            ADD(here, FOUR, x, 1.0)
            assert isinstance(x, xp.ndarray)
        with refused("beside one of the device"):
            xp.concatenate([xp.ones(4, "f4"), host])
        assert xp.float32 is np.float32


def test_pipelines_and_graphs(here: EmulatedStream) -> None:
    def work(x: Any, stream: Any) -> Any:
        ADD(stream, FOUR, x, 1.0)
        return x

    items = ck.Pipeline([work], stream=here)([np.zeros(4, np.float32)] * 3)
    assert [item.tolist() for item in items] == [[1] * 4] * 3
    x = ck.to_device(np.zeros(4, np.float32), here)
    with ck.capture(here) as graph:
        ADD(here, FOUR, x, 1.0)
    graph.launch(here)
    assert ck.to_host(x, here).tolist() == [1] * 4


def test_what_numpy_does_for_itself_is_no_mix(device: Any) -> None:
    for function in (np.median, np.percentile, np.sort, np.cumsum, np.std, np.linalg.norm, np.unique, np.histogram):
        function(*((device, 50) if function is np.percentile else (device,)))
    assert repr(device).startswith("DeviceArray")
    assert [float(x) for x in device] == [1] * 4


# ── which streams are strict ──


def test_streams_are_strict_where_it_is_asked(here: EmulatedStream) -> None:
    assert here.strict
    assert here.alike().strict
    assert not ck.emulator.stream().strict
    with ck.emulator.strict():
        with ck.emulator.strict():
            pass
        assert not ck.emulator.stream().strict
        assert type(ck.to_device(np.zeros(1))) is not np.ndarray or ck.has_gpu()
    assert type(ck.to_device(np.zeros(1))) is np.ndarray or ck.has_gpu()
    with pytest.raises(ck.ArgumentError, match="strict"):
        ck.emulator.stream(strict="no")  # type: ignore[arg-type]


PROGRAM = """
import numpy as np
import cudakit as ck

add = ck.Kernel("__global__ void add(float* x) { x[threadIdx.x] += 1; }")
stream = ck.stream()
x = ck.to_device(np.ones(4, np.float32), stream)
add(stream, ck.config(1, 4), x)
print(np.allclose(x, np.ones(4)))
"""


@pytest.mark.slow
def test_a_program_that_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "cudakit", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert f"{path}:9: numpy.allclose of a host array beside one of the device" in done.stdout
    path.write_text(PROGRAM.replace("np.allclose(x,", "np.allclose(ck.to_host(x, stream) - 1,"))
    done = subprocess.run(
        [sys.executable, "-m", "cudakit", "check", str(path)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "True" in done.stdout) == (0, True), done.stderr
