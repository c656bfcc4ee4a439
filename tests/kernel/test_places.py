"""One kernel called on a GPU's streams and the emulator's in turns, with a stand-in for the driver; a third place."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import places
from cudakit.emulator.launch import limits_of
from cudakit.jit.launch import code_place
from cudakit.jit.load import image
from cudakit.jit.load.load import Loaded, parameter_size
from cudakit.streams import devices, streams
from cudakit.streams import order as order_module
from cudakit.streams.order import Order

pytestmark = pytest.mark.emulator

ONE = ck.config(1, 1)


class Stream:
    """A GPU's stream that does nothing."""

    handle, is_closed = 1000, False

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What cuda.core's launch was given for parameters."""
    found: list[Any] = []

    def load(specialization: Any, compiled: Any, code: Any, parameters: Any) -> Loaded:
        sizes = tuple(parameter_size(parameter) or 8 for parameter in parameters)
        loaded = Loaded(specialization, compiled, code, code, parameters, sizes)
        monkeypatch.setattr(loaded, "launch_config", lambda *given: "resolved")
        return loaded

    monkeypatch.setattr(order_module, "_order", Order())
    monkeypatch.setattr(devices, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "make_current", lambda device_id: None)
    monkeypatch.setattr(streams, "is_captured", lambda handle: False)
    monkeypatch.setattr(devices, "require_gpu", lambda: None)
    monkeypatch.setattr(devices, "limits", lambda device_id: limits_of("sm_90"))
    monkeypatch.setattr(image, "load", load)
    monkeypatch.setattr(image, "object_code", lambda *given: None)
    monkeypatch.setattr(code_place, "make_run", lambda *shape: lambda *given: found.append(given[3:]))
    return found


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    made: Any = Stream()
    monkeypatch.setitem(streams._device_streams, id(made), streams.DeviceStream(made, made, made.handle, 0))
    return made


def test_both_places_have_their_shapes(launches: list[Any], stream: Stream) -> None:
    kernel = ck.Kernel("__global__ void f(int* x, int n) { if (x) *x = n; }")
    emulated = ck.emulator.stream()
    for n in range(3):
        kernel(stream, ONE, None, n)
        kernel(emulated, ONE, None, n)
    assert launches == [(0, 0), (0, 1), (0, 2)]
    assert len(kernel.dispatcher.shapes) == 2, "the same arguments fit both; the stream tells"
    x = np.zeros(1, "i4")
    kernel(emulated, ONE, x, 5)
    assert x.tolist() == [5]
    for _ in range(2):
        with pytest.raises(ck.ArgumentError, match="is in host memory and this stream is a GPU's"):
            kernel(stream, ONE, x, 5)


def test_an_error_of_the_driver_names_the_kernel_of_its_place(launches: list[Any], stream: Stream) -> None:
    kernel = ck.Kernel("template <typename T> __global__ void f(T n) {}")["int"]
    kernel(stream, ONE, 1)
    kernel(ck.emulator.stream(), ONE, 1)
    refused = type("CUDAError", (Exception,), {})("invalid")

    def refuse(*given: Any) -> None:
        raise refused

    shape: Any = kernel.dispatcher.shapes[1]
    shape.run = refuse
    with pytest.raises(ck.LaunchError, match=r"^f<int>: the driver refused the launch: invalid") as caught:
        kernel(stream, ck.config(2, 1), 1)
    assert caught.value.__cause__ is refused
    assert not isinstance(caught.value.__context__, ck.CudakitError), "it is launched once"


def test_plans_of_both(launches: list[Any], stream: Stream) -> None:
    kernel = ck.Kernel("__global__ void f(int* x, int n) { if (x) *x += n; }")
    x = np.zeros(1, "i4")
    planned = kernel.plan(ck.emulator.stream(), ONE, x, 7)
    planned()
    planned()
    assert x.tolist() == [14]
    kernel.plan(stream, ONE, None, 7)()
    assert launches == [(0, 7)]


class Elsewhere:
    """A place beside the two, where nothing runs: as another vendor's would begin."""

    unit = "ms"

    def __getattr__(self, name: str) -> Any:
        def refuse(*given: Any) -> None:
            raise ck.LaunchError(f"nothing runs elsewhere: {name}")

        return refuse


def captured(stream: Any) -> None:
    with ck.capture(stream):
        pass


@pytest.mark.parametrize(
    "door",
    [
        lambda stream, x: ck.Kernel("__global__ void f(int* x) {}")(stream, ONE, x),
        lambda stream, x: ck.Kernel("__global__ void f(int* x) {}")(stream, ONE, ck.Out(x)),
        lambda stream, x: ck.ops.sum(x, stream=stream),
        lambda stream, x: ck.elementwise("T x", "T y", "y = x")(x, stream=stream),
        lambda stream, x: ck.empty(4, np.int32, stream=stream),
        lambda stream, x: ck.device_limits(stream),
        lambda stream, x: ck.using(stream),
        lambda stream, x: captured(stream),
    ],
    ids=["call", "call with Out", "op", "elementwise", "memory", "limits", "using", "capture"],
)
def test_a_third_place_is_not_taken_for_the_emulator(door: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place, place_of, stream = Elsewhere(), places.place_of, SimpleNamespace()
    for name, module in list(sys.modules.items()):
        if name.startswith("cudakit.") and getattr(module, "place_of", None) is place_of:
            monkeypatch.setattr(module, "place_of", lambda given: place if given is stream else place_of(given))
    with pytest.raises((ck.ArgumentError, ck.LaunchError), match=r"nothing runs elsewhere|expected a stream"):
        door(stream, np.zeros(4, np.int32))
