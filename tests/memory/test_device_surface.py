"""Surfaces of a GPU and copies of boxes, on a stand-in for the driver: what it is asked for, and what is freed."""

from __future__ import annotations

import contextlib
import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.memory import device_memory
from cudakit.memory.device_memory import Box, LayeredArray, LayeredSurface, SurfaceObject, box_of, copy_box

driver = pytest.importorskip("cuda.bindings.driver")
pytestmark = pytest.mark.emulator

GOOD, REFUSED = driver.CUresult.CUDA_SUCCESS, driver.CUresult.CUDA_ERROR_INVALID_VALUE


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver is asked for, by its function."""
    found: list[tuple[Any, ...]] = []

    def answers(name: str, *result: Any) -> None:
        def call(*given: Any) -> tuple[Any, ...]:
            found.append((name, *given))
            return GOOD, *result

        monkeypatch.setattr(driver, name, call)

    answers("cuArray3DCreate", 70)
    answers("cuArrayDestroy")
    answers("cuSurfObjectCreate", 80)
    answers("cuSurfObjectDestroy")
    answers("cuMemcpyAsync")
    answers("cuMemcpy3DAsync")
    return found


@pytest.mark.parametrize(
    ("shape", "dtype", "channels", "extents", "format"),
    [
        ((3, 7), "f4", 1, (7, 0, 3), "FLOAT"),
        ((3, 5, 7), "u1", 4, (7, 5, 3), "UNSIGNED_INT8"),
        ((6, 2), "i2", 2, (2, 0, 6), "SIGNED_INT16"),
        ((6, 2), "f2", 2, (2, 0, 6), "HALF"),
    ],
)
def test_an_array_of_layers_is_made_and_destroyed(
    log: list[Any], shape: tuple[int, ...], dtype: str, channels: int, extents: tuple[int, ...], format: str
) -> None:
    made = LayeredArray(shape, np.dtype(dtype), channels)
    ((_, wanted),) = log
    assert (wanted.Width, wanted.Height, wanted.Depth) == extents
    assert wanted.Format.name == f"CU_AD_FORMAT_{format}"
    assert wanted.NumChannels == channels
    assert wanted.Flags == 1 | 2  # CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST
    surface = LayeredSurface(made)
    (_, resource) = log[1]
    assert int(resource.res.array.hArray) == 70
    assert resource.resType.name == "CU_RESOURCE_TYPE_ARRAY"
    assert (made.handle, surface.handle) == (70, 80)
    del made
    gc.collect()
    assert len(log) == 2, "the surface keeps its array"
    del surface
    gc.collect()
    assert log[2:] == [("cuSurfObjectDestroy", 80), ("cuArrayDestroy", 70)]


def test_what_the_driver_does_not_make_is_said_and_not_destroyed(
    log: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = LayeredArray((2, 3), np.dtype("f4"), 1)
    monkeypatch.setattr(driver, "cuSurfObjectCreate", lambda wanted: (REFUSED, 0))
    with pytest.raises(ck.LaunchError, match="does not make a layered surface: CUDA_ERROR_INVALID_VALUE"):
        LayeredSurface(array)
    monkeypatch.setattr(driver, "cuArray3DCreate", lambda wanted: (REFUSED, 0))
    with pytest.raises(ck.LaunchError, match=r"a layered surface of shape \(2, 3\): CUDA_ERROR_INVALID_VALUE"):
        LayeredArray((2, 3), np.dtype("f4"), 1)
    gc.collect()
    assert [name for name, *_ in log] == ["cuArray3DCreate"]


@pytest.mark.parametrize(
    ("shape", "channels", "layered", "box"),
    [
        ((7,), 1, False, (28, 1, 1)),
        ((5, 7), 1, False, (28, 5, 1)),
        ((3, 5, 7), 1, False, (28, 5, 3)),
        ((3, 5, 7, 2), 2, False, (56, 5, 3)),
        ((3, 7), 1, True, (28, 1, 3)),
        ((3, 7, 4), 4, True, (112, 1, 3)),
        ((3, 5, 7), 1, True, (28, 5, 3)),
    ],
)
def test_the_box_of_a_surface_is_all_of_it(
    shape: tuple[int, ...], channels: int, layered: bool, box: tuple[int, int, int]
) -> None:
    made, source = SimpleNamespace(handle=5), SimpleNamespace(handle=6)
    surface = SurfaceObject(made, source, shape, np.dtype("f4"), channels, layered, 2)
    assert surface.box == Box("array", 6, *box, 0, 0)
    assert (surface.handle, surface.resource.source, surface.device_id) == (5, source, 2)
    assert (surface.ndim, surface.nbytes) == (len(shape), 4 * int(np.prod(shape)))
    assert (surface.shape, surface.channels, surface.layered) == (shape, channels, layered)


@pytest.mark.parametrize("layered", [True, False])
def test_a_surface_has_a_copy_of_its_array(monkeypatch: pytest.MonkeyPatch, layered: bool) -> None:
    from cuda.core.texture import ResourceDescriptor

    steps: list[Any] = []
    device = SimpleNamespace(
        create_opaque_array=lambda options: steps.append(options) or SimpleNamespace(handle=60),
        create_surface_object=lambda resource: SimpleNamespace(handle=61, resource=resource),
    )
    current = SimpleNamespace(sync=lambda: steps.append("sync"), handle=9)
    monkeypatch.setattr(device_memory.devices, "current_device", lambda: device)
    monkeypatch.setattr(
        device_memory.devices, "on_device", lambda number: steps.append(number) or contextlib.nullcontext()
    )
    monkeypatch.setattr(ResourceDescriptor, "from_opaque_array", lambda array: ("resource of", array.handle))
    monkeypatch.setattr(device_memory, "LayeredArray", lambda *given: steps.append(given) or SimpleNamespace(handle=70))
    monkeypatch.setattr(device_memory, "LayeredSurface", lambda array: SimpleNamespace(handle=array.handle + 1))
    monkeypatch.setattr(device_memory, "copy_box", lambda *given: steps.append(given))
    monkeypatch.setattr(device_memory.streams, "of_handle", lambda handle: steps.append(handle) or current)
    contiguous = SimpleNamespace(data=SimpleNamespace(ptr=4096))
    library = SimpleNamespace(
        cuda=SimpleNamespace(get_current_stream=lambda: SimpleNamespace(ptr=8)),
        ascontiguousarray=lambda array: contiguous,
    )
    monkeypatch.setattr(device_memory, "cupy", library)
    shape = (3, 5, 7)
    array = SimpleNamespace(
        shape=(*shape, 2),
        dtype=np.dtype("f4"),
        device=SimpleNamespace(id=4, synchronize=lambda: steps.append("synchronized")),
    )
    made = device_memory.make(array, shape, 2, layered)
    number, asked, *rest = steps
    assert number == 4
    if layered:
        assert asked == (shape, np.dtype("f4"), 2)
        assert (made.handle, made.resource.source.handle) == (71, 70)
    else:
        assert (asked.shape, asked.format, asked.num_channels) == ((7, 5, 3), np.dtype("f4"), 2)
        assert asked.is_surface_load_store
        assert (made.handle, made.resource.source.handle) == (61, 60)
        assert made._surface.resource == ("resource of", 60)
    assert (made.shape, made.channels, made.layered, made.device_id) == ((*shape, 2), 2, layered, 4)
    copied = made.box, Box("device", 4096, 56, 5, 3, 56, 280), 9
    assert rest == ["synchronized", 8, copied, "sync"]


# ── copies of boxes ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_row_is_copied_as_bytes(log: list[Any]) -> None:
    copy_box(Box("device", 100, 2**33, 1, 1, 2**33, 2**33), Box("host", 200, 2**33, 1, 1, 2**33, 2**33), 7)
    ((name, target, source, size, stream),) = log
    assert (name, int(target), int(source), size, int(stream)) == ("cuMemcpyAsync", 100, 200, 2**33, 7)


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (Box("device", 100, 12, 3, 1, 16, 64), Box("host", 200, 12, 3, 1, 32, 96)),
        (Box("host", 100, 12, 1, 3, 16, 48), Box("device", 200, 12, 1, 3, 32, 96)),
        (Box("array", 100, 12, 1, 1, 0, 0), Box("host", 200, 12, 1, 1, 32, 96)),
        (Box("device", 100, 12, 1, 1, 16, 16), Box("array", 200, 12, 1, 1, 0, 0)),
    ],
)
def test_rows_and_arrays_are_described_to_the_driver(log: list[Any], target: Box, source: Box) -> None:
    copy_box(target, source, 7)
    ((name, wanted, stream),) = log
    assert (name, int(stream)) == ("cuMemcpy3DAsync", 7)
    assert (wanted.WidthInBytes, wanted.Height, wanted.Depth) == (target.width, target.height, target.depth)
    for side, box in (("src", source), ("dst", target)):
        assert getattr(wanted, f"{side}MemoryType").name == f"CU_MEMORYTYPE_{box.space.upper()}"
        assert int(getattr(wanted, f"{side}{box.space.title()}")) == box.address
        pitch, height = getattr(wanted, f"{side}Pitch"), getattr(wanted, f"{side}Height")
        assert (pitch, height) == ((0, 0) if box.space == "array" else (box.pitch, box.slice // box.pitch))


def test_a_copy_that_the_driver_refuses_is_said(log: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuMemcpyAsync", "cuMemcpy3DAsync"):
        monkeypatch.setattr(driver, name, lambda *given: (REFUSED,))
    for height in (1, 2):
        box = Box("device", 100, 12, height, 1, 16, 32)
        with pytest.raises(ck.LaunchError, match=f"does not copy 12 bytes × {height} × 1: CUDA_ERROR_INVALID_VALUE"):
            copy_box(box, box, 7)


def test_boxes_of_host_and_device_arrays() -> None:
    x = np.zeros((4, 5), "f4")[1:]
    assert box_of(x, (20, 3, 1), 20, 60) == Box("host", x.ctypes.data, 20, 3, 1, 20, 60)
    on_gpu = SimpleNamespace(data=SimpleNamespace(ptr=96))
    assert box_of(on_gpu, (20, 3, 1), 20, 60) == Box("device", 96, 20, 3, 1, 20, 60)


def test_the_couriers_flags_are_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    from cudakit.memory import staging

    asked: list[Any] = []
    monkeypatch.setattr(driver, "cuStreamWriteValue32", lambda *given: asked.append(given) or (3,))
    monkeypatch.setattr(driver, "cuStreamWaitValue32", lambda *given: asked.append(given) or (4,))
    monkeypatch.setattr(staging, "Courier", lambda write, wait: (write, wait))
    monkeypatch.setattr(staging._only, "courier", None)
    write, wait = staging.courier()  # type: ignore[misc]
    assert (write(7, 100, 5), wait(8, 200, 6)) == (3, 4)
    assert asked == [(7, 100, 5, 0), (8, 200, 6, int(driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ))]
    assert staging.courier() == (write, wait)
    assert staging.has_courier()
