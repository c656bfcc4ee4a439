"""Launches with the same arguments again, whose parameters are written once: what CuPy gives the driver."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.launch import launch, param_buffer
from cudakit.jit.launch.bind import Callee, bind
from cudakit.jit.launch.dispatch import Dispatcher
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.launch.param_buffer import bound_launch
from cudakit.jit.load.config import launch_traits
from cudakit.jit.specialise.deduce import Evidence
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams import devices
from cudakit.streams import order as order_module
from cudakit.streams.order import Order
from cudakit.types.arguments import Argument, describe

pytestmark = pytest.mark.emulator
ENOUGH = launch._CALLS_BEFORE_BINDING + 1


class Array:
    """CuPy's array of four float32 at an address."""

    dtype, _c_contiguous, nbytes, shape = np.dtype("f4"), True, 16, (4,)

    def __init__(self, address: int) -> None:
        self.data = SimpleNamespace(ptr=address)


class Config:
    """A ``cuda.core.LaunchConfig``, which can change."""

    def __init__(self, **changes: Any) -> None:
        self.grid, self.block, self.shmem_size = (2, 3, 1), (32, 1, 1), 64
        self.cluster, self.is_cooperative, self.programmatic_stream_serialization = None, False, False
        vars(self).update(changes)


class Bench:
    """The function of ``saxpy(float a, const float* x, float* y, int n)``, with the launches by cuda.core and CuPy."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core: list[tuple[Any, ...]] = []
        self.cupy: list[tuple[Any, ...]] = []
        self.checked: list[Any] = []
        self.current = self.stream = SimpleNamespace(handle=7)
        cuda: Any = SimpleNamespace(
            get_current_stream=lambda *device: self.current, driver=SimpleNamespace(launchKernel=self.launch)
        )
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))  # type: ignore[misc]
        monkeypatch.setattr(devices, "device_count", lambda: 1)
        monkeypatch.setattr(order_module, "_order", Order())
        monkeypatch.setattr(param_buffer, "handle_of", lambda stream: stream.handle)
        f4 = np.dtype("f4")
        self.parameters = (
            BoundParameter("a", "float", "scalar", f4),
            BoundParameter("x", "const float*", "pointer", f4, const=True),
            BoundParameter("y", "float*", "pointer", f4),
            BoundParameter("n", "int", "scalar", np.dtype("i4")),
        )
        self.x, self.y = Array(0x1000), Array(0x2000)
        memory = Argument(self.x, "cupy", Evidence("array", "x", f4, 1), 0, 0x1000, True, (4,), (1,), 0x1000)
        described = describe(2.0), memory, memory, describe(4)
        fragments = tuple(
            bind(parameter, argument, Callee("saxpy", 0, False), size, False)
            for parameter, argument, size in zip(self.parameters, described, (4, 8, 8, 4), strict=True)
        )
        self.loaded: Any = SimpleNamespace(
            kernel=SimpleNamespace(handle=9), parameters=self.parameters, sizes=(4, 8, 8, 4)
        )
        families = tuple(argument.family for argument in described)
        self.shape = CallShape(self.loaded, fragments, families, 0, lambda *call: self.core.append(call))
        self.dispatcher = Dispatcher("saxpy", ["a", "x", "y", "n"], lambda *call: self.checked.append(call))
        self.dispatcher.add(self.shape)

    def launch(self, function: int, *place: int) -> None:
        """Read the parameters as the driver does."""
        *place, parameters, extra = place
        assert extra == 0
        addresses = [address or 0 for address in (ctypes.c_void_p * 4).from_address(parameters)]
        data = [ctypes.string_at(address, size) for address, size in zip(addresses, (4, 8, 8, 4), strict=True)]
        self.cupy.append((function, *place, data))

    def settle(self, config: Any, resolved: Any = None) -> None:
        """Let the arrays go straight to the driver."""
        target: Any = SimpleNamespace(stream=self.stream, core=self.stream)
        values = (int.from_bytes(np.float32(2).tobytes(), "little"), 0x1000, 0x2000, 4)
        self.shape.last_launch = self.shape._settled_flat(
            target, config, resolved or config, launch.RENEWING, values, (2.0, self.x, self.y, 4)
        )

    def call(self, config: Any, a: Any = 2.0, n: Any = 4, x: Any = None, times: int = 1) -> tuple[int, int]:
        """Call; how many launches came by cuda.core, and how many by CuPy."""
        before = len(self.core), len(self.cupy)
        for _ in range(times):
            self.dispatcher.function(self.stream, config, a, x or self.x, self.y, n)
        return len(self.core) - before[0], len(self.cupy) - before[1]


def bits(a: float, n: int, x: int = 0x1000) -> list[bytes]:
    return [np.float32(a).tobytes(), *(k.to_bytes(8, "little") for k in (x, 0x2000)), n.to_bytes(4, "little")]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


def test_the_driver_is_given_what_cuda_core_was(bench: Bench) -> None:
    config, resolved = ck.config((2, 3), 32, 64), Config()
    bench.settle(config, resolved)
    assert bench.call(config, times=ENOUGH) == (ENOUGH - 1, 1)
    assert bench.core[0] == (bench.stream, resolved, bench.loaded.kernel, 0x40000000, 0x1000, 0x2000, 4)
    assert bench.cupy == [(9, 2, 3, 1, 32, 1, 1, 64, 7, bits(2, 4))]
    assert bench.call(config, times=3) == (0, 3)
    assert bench.call(config, a=float("2"), n=int("4")) == (0, 1), "equal numbers are the same parameters"
    assert bench.checked == []


def test_another_number_is_another_launch(bench: Bench) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    bench.call(config, times=ENOUGH)
    for a, n in ((2.0, 5), (3.0, 4), (2.5, 5)):
        assert bench.call(config, a, n) == (1, 0)
        assert bench.core[-1][3:] == (int.from_bytes(np.float32(a).tobytes(), "little"), 0x1000, 0x2000, n)
    assert bench.call(config) == (0, 1)
    for a, n in ((2, 4), (2.0, True), (2.0, 4.0), (np.float32(2), 4), (2.0, np.int32(4))):
        bench.checked.clear()
        assert bench.call(config, a, n) == (0, 0), "another type is checked in full"
        assert len(bench.checked) == 1


@pytest.mark.parametrize(("remembered", "other"), [(0.0, -0.0), (-0.0, 0.0), (float("nan"), float("nan"))])
def test_numbers_that_are_not_the_same_bits(bench: Bench, remembered: float, other: float) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    bench.shape.renew((0, 0x1000, 0x2000, 4), (remembered, bench.x, bench.y, 4))
    bench.call(config, a=remembered, times=ENOUGH)
    assert bench.call(config, a=remembered) == (0, 1)
    assert bench.call(config, a=other) == (1, 0)


def test_a_configuration_that_changes_is_read_at_each_launch(bench: Bench) -> None:
    config = Config()
    bench.settle(config)
    bench.call(config, times=ENOUGH)
    assert bench.call(config) == (0, 1)
    for name, value in (
        ("grid", (5, 1, 1)),
        ("block", (64, 1, 1)),
        ("shmem_size", 0),
        ("cluster", (2, 1, 1)),
        ("is_cooperative", True),
        ("programmatic_stream_serialization", True),
    ):
        former = getattr(config, name)
        setattr(config, name, value)
        assert bench.call(config) == (1, 0), name
        assert bench.core[-1][1] is config
        setattr(config, name, former)
        assert bench.call(config) == (0, 1), name


@pytest.mark.parametrize("name", ["cluster", "is_cooperative", "programmatic_stream_serialization"])
def test_what_cupys_call_cannot_say_goes_by_cuda_core(bench: Bench, name: str) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config(**{name: (1, 1, 1)}))
    assert bench.call(config, times=3 * ENOUGH) == (3 * ENOUGH, 0)


def test_without_cupys_driver_launches_go_by_cuda_core(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["cupy"].cuda, "driver")
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    assert bench.call(config, times=3 * ENOUGH) == (3 * ENOUGH, 0)
    monkeypatch.delitem(sys.modules, "cupy")
    run = bound_launch(print, bench.loaded, bench.shape.fragments, bench.stream, Config(), (1, 2, 3, 4))  # type: ignore[arg-type]
    assert run.func is print  # type: ignore[attr-defined]


def test_another_array_stream_or_current_stream_is_not_the_bound_one(bench: Bench) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    bench.call(config, times=ENOUGH)
    other = Array(0x3000)
    assert bench.call(config, x=other) == (1, 0)
    assert bench.core[-1][4] == 0x3000
    assert bench.call(config) == (0, 1), "the two take turns"
    assert bench.call(config, x=other, times=ENOUGH) == (ENOUGH - 1, 1), "and each is bound"
    assert bench.cupy[-1][-1] == bits(2, 4, 0x3000)
    del other
    again = Array(0x4000)
    assert bench.call(config, x=again) == (1, 0)
    assert bench.core[-1][4] == 0x4000
    bench.current = SimpleNamespace(handle=8)
    bench.shape.target = lambda stream: None  # type: ignore[method-assign]
    assert bench.call(config) == (0, 0)
    assert len(bench.checked) == 1


def test_nothing_is_bound_while_work_is_ordered_or_watched(bench: Bench) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    bench.call(config, times=ENOUGH)
    bench.shape.target = lambda stream: None  # type: ignore[method-assign]
    bench.shape.unsettle()
    assert bench.call(config) == (0, 0)
    assert len(bench.checked) == 1


def test_an_error_of_the_driver_is_looked_at_in_full(bench: Bench) -> None:
    config = ck.config((2, 3), 32, 64)
    bench.settle(config, Config())
    bench.call(config, times=ENOUGH)
    error = type("CUDADriverError", (RuntimeError,), {})("CUDA_ERROR_INVALID_VALUE: invalid argument")

    def refuse(*_: Any) -> None:
        raise error

    bench.shape.last_launch[-1][0] = refuse
    bench.call(config)
    ((_, _, _, reason),) = bench.checked
    assert reason is error
    with pytest.raises(ck.LaunchError, match="saxpy: the driver refused the launch: CUDA_ERROR_INVALID_VALUE"):
        ck.errors.raise_launch_error(error, "saxpy")


def test_the_buffer_lives_as_long_as_the_launch(bench: Bench) -> None:
    run: Any = bound_launch(print, bench.loaded, bench.shape.fragments, bench.stream, Config(), (1, 2, 3, 4))  # type: ignore[arg-type]
    assert run.buffer._address == run.args[-2]
    assert launch_traits(Config()) == ((2, 3, 1), (32, 1, 1), 64, None, False, False)
    other: Any = bound_launch(print, bench.loaded, bench.shape.fragments, bench.stream, Config(), (5, 6, 7, 8))  # type: ignore[arg-type]
    run()
    other()
    assert [data[3] for *_, data in bench.cupy] == [(4).to_bytes(4, "little"), (8).to_bytes(4, "little")]
