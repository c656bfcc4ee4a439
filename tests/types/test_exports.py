"""Objects whose array interface or DLPack export is broken: refused, with the field that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import ops
from cudakit.types.arguments import described, device_array_of, exporting

MEMORY = np.zeros(4, np.float32)
ADDRESS = MEMORY.__array_interface__["data"][0]
GOOD: dict[str, Any] = {"data": (ADDRESS, False), "shape": (4,), "typestr": "<f4", "version": 3}
BOTH = ("__array_interface__", "__cuda_array_interface__")


class Exported:
    """An object that says something of its memory."""

    def __init__(self, **said: Any) -> None:
        self.__dict__.update(said)


class Capsule:
    """An object with DLPack's two functions."""

    def __init__(self, capsule: Any, device: Any) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        if isinstance(self._capsule, Exception):
            raise self._capsule
        return self._capsule

    def __dlpack_device__(self) -> Any:
        if isinstance(self._device, Exception):
            raise self._device
        return self._device


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"shape": "x"}, "'shape' is a tuple of ints from 0 up, got 'x'"),
    ({"shape": (-4,)}, r"'shape' .* got \(-4,\)"),
    ({"shape": (2.5,)}, "'shape'"),
    ({"shape": [4]}, "'shape'"),
    ({"shape": (2**70,)}, "'shape'"),
    ({"shape": None}, "'shape'"),
    ({"typestr": "x"}, "'typestr' is as '<f4', got 'x'"),
    ({"typestr": 4}, "'typestr'"),
    ({"typestr": None}, "'typestr'"),
    ({"strides": (4, 4)}, "'strides' is None or an int for each axis"),
    ({"strides": ("x",)}, "'strides'"),
    ({"strides": 4}, "'strides'"),
    ({"data": (-5, False)}, r"its address is a number from \d up, got -5"),
    ({"data": ("x", False)}, "its address"),
    ({"data": (5,)}, r"'data' is \(address, whether it is read-only\), got \(5,\)"),
]


@pytest.mark.parametrize("protocol", BOTH)
@pytest.mark.parametrize(("field", "message"), WRONG)
def test_fields_that_are_wrong(protocol: str, field: dict[str, Any], message: str) -> None:
    value = Exported(**{protocol: {**GOOD, **field}})
    with pytest.raises(ck.ArgumentError, match=f"Exported cannot .* its {protocol} is broken: {message}"):
        described(value, protocol)
    with pytest.raises(ck.ArgumentError, match="give a NumPy or a CuPy array in its place"):
        ops.sum(value)


@pytest.mark.parametrize("protocol", BOTH)
def test_fields_that_are_missing(protocol: str) -> None:
    for field in GOOD:
        said = {name: value for name, value in GOOD.items() if name != field}
        if field == "version" or (field == "data" and protocol == BOTH[0]):
            assert described(Exported(**{protocol: said}), protocol) == said
            continue
        with pytest.raises(ck.ArgumentError, match=f"'{field}' is missing"):
            described(Exported(**{protocol: said}), protocol)
    for wrong in (None, [1], "x"):
        with pytest.raises(ck.ArgumentError, match="it is a dict, got"):
            described(Exported(**{protocol: wrong}), protocol)
    null = Exported(**{protocol: {**GOOD, "data": (0, False)}})
    if protocol == BOTH[1]:  # as an argument
        assert described(null, protocol)["data"] == (0, False)
    else:
        with pytest.raises(ck.ArgumentError, match="its address is a number from 1 up, got 0"):
            described(null, protocol)
    assert described(Exported(**{protocol: {**GOOD, "shape": (0,), "data": (0, False)}}), protocol)["shape"] == (0,)


@pytest.mark.emulator
@pytest.mark.parametrize(
    "call",
    [
        lambda kernel, stream, value: kernel(stream, ck.config(1, 1), value),
        lambda kernel, stream, value: ops.sum(value),
        lambda kernel, stream, value: ck.math.add(value, 1),
        lambda kernel, stream, value: ck.In(value),
        lambda kernel, stream, value: ck.to_host(value, stream),
        lambda kernel, stream, value: ck.to_device(value, stream),
    ],
)
def test_every_call_refuses_what_is_broken(stream: Any, call: Callable[..., Any]) -> None:
    kernel = ck.Kernel("__global__ void k(const float* x) {}")
    right = MEMORY.__dlpack__
    broken = [
        Exported(__array_interface__={**GOOD, "shape": (-1,)}),
        Exported(__array_interface__={**GOOD, "data": None}),
        Exported(__cuda_array_interface__={**GOOD, "typestr": "<q9"}),
        Capsule(None, (1, 0)),
        Capsule("x", (1, 0)),
        Capsule(RuntimeError("no"), (1, 0)),
        Capsule(right(), "x"),
        Capsule(right(), None),
        Capsule(right(), RuntimeError("no")),
        Capsule(right(), ()),
    ]
    for value in broken:
        with pytest.raises(ck.CudakitError) as raised:
            call(kernel, stream, value)
        assert len(str(raised.value)) < 500


@pytest.mark.emulator
def test_read_only_memory_is_not_written(stream: Any) -> None:
    value = Exported(__array_interface__={**GOOD, "data": (ADDRESS, True)})
    with pytest.raises(ck.ArgumentError, match="read-only"):
        ck.Kernel("__global__ void k(float* x) {}")(stream, ck.config(1, 1), value)


def test_errors_of_the_driver_stay() -> None:
    class CUDAError(Exception):
        pass

    with pytest.raises(CUDAError), exporting(None, "x"):
        raise CUDAError("lost")
    with pytest.raises(ck.ArgumentError, match="no CUDA driver here"), exporting(None, "x"):
        raise CUDAError("cudaErrorInsufficientDriver: …")
    with pytest.raises(ck.LaunchError), exporting(None, "x"):
        raise ck.LaunchError("ours")


def test_device_memory_that_is_broken() -> None:
    pytest.importorskip("cupy")
    with pytest.raises(ck.ArgumentError, match="is broken"):
        device_array_of(Exported(__cuda_array_interface__={**GOOD, "shape": 4}))
