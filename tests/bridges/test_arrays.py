"""Arrays of other libraries, taken as they are: each with the real package, on a GPU where it installs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.bridges import SOURCE

import cudakit as ck
from cudakit.types.arguments import describe

pytestmark = [pytest.mark.bridges, pytest.mark.filterwarnings("ignore")]  # of these libraries


def package(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def tripled(stream: Any, array: Any, size: int) -> None:
    """Multiply an array of float32 by 3 where it lies."""
    ck.Kernel(SOURCE, "scale")[np.float32](stream, ck.cover(size), array, 3.0, size)
    stream.sync()


@pytest.mark.gpu
def test_device_arrays_of_numba(stream: Any) -> None:
    cuda = package("numba.cuda")
    array = cuda.to_device(np.arange(100, dtype=np.float32))
    cuda.synchronize()
    tripled(stream, array, 100)
    np.testing.assert_array_equal(array.copy_to_host(), 3 * np.arange(100, dtype=np.float32))
    with pytest.raises(ck.ArgumentError, match=r"contiguous.*DeviceNDArray"):
        tripled(stream, array[::2], 50)


@pytest.mark.gpu
def test_columns_of_cudf(stream: Any) -> None:
    cudf = package("cudf")
    series = cudf.Series(np.arange(100, dtype=np.float32))
    tripled(stream, series, 100)
    np.testing.assert_array_equal(series.to_numpy(), 3 * np.arange(100, dtype=np.float32))
    assert float(ck.ops.sum(series)) == 3 * 4950
    with pytest.raises((ck.ArgumentError, NotImplementedError, TypeError)):  # a mask would be lost
        tripled(stream, cudf.Series([1.0, None], dtype="float32"), 2)


@pytest.mark.gpu
def test_buffers_of_rmm(stream: Any) -> None:
    rmm = package("rmm")
    given = np.arange(100, dtype=np.float32)
    buffer = rmm.DeviceBuffer.to_device(given.view(np.uint8))
    with pytest.raises(ck.ArgumentError, match=r"takes elements of float32.*uint8"):
        tripled(stream, buffer, 100)
    import cupy

    tripled(stream, cupy.asarray(buffer).view(np.float32), 100)
    np.testing.assert_array_equal(np.frombuffer(buffer.tobytes(), np.float32), 3 * given)


@pytest.mark.gpu
def test_buffers_of_arrow_on_a_device(stream: Any) -> None:
    cuda = package("pyarrow.cuda")  # the wheels of PyPI lack it
    given = np.arange(100, dtype=np.float32)
    context = cuda.Context(0)
    buffer = context.buffer_from_data(given)
    tripled(stream, buffer, 100)
    np.testing.assert_array_equal(np.frombuffer(buffer.copy_to_host(), np.float32), 3 * given)


class Buffer:
    """What a buffer of Arrow tells, on a device that is none."""

    def __init__(self, address: int, size: int, is_mutable: bool, is_cpu: bool = False) -> None:
        self.address, self.size, self.is_mutable, self.is_cpu, self.device = address, size, is_mutable, is_cpu, self
        self.device_id = 1


def test_a_buffer_of_arrow_is_memory_without_a_dtype() -> None:
    found = describe(Buffer(0x1000, 64, is_mutable=False))
    assert (found.family, found.pointer, found.device_id) == ("buffer", 0x1000, 1)
    assert (found.evidence.category, found.evidence.readonly, found.evidence.dtype) == ("address", True, None)
    assert found.evidence.shown == "Arrow Buffer of 64 bytes"
    assert not describe(Buffer(0x1000, 64, is_mutable=True)).evidence.readonly
    with pytest.raises(ck.ArgumentError, match=r"host memory has no dtype; give numpy.frombuffer"):
        describe(Buffer(0x1000, 64, is_mutable=True, is_cpu=True))


def test_the_buffer_of_arrow_that_is_installed_tells_that() -> None:
    pyarrow = package("pyarrow")
    buffer = pyarrow.py_buffer(b"12345678")
    assert {"address", "size", "is_cpu", "is_mutable"} <= {*dir(buffer)}
    assert isinstance(buffer.device.device_id, int)
    with pytest.raises(ck.ArgumentError, match=r"Buffer of Arrow in host memory"):
        ck.Kernel(SOURCE, "scale")[np.float32](ck.emulator.stream(), ck.config(1, 32), buffer, 2.0, 2)
