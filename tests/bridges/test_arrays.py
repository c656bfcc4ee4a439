"""Arrays of other libraries, taken as they are: each with the real package, on a GPU where it installs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.bridges import SOURCE

import cudakit as ck
from cudakit.types.arguments import describe, is_on_device

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
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_tensors_of_fp8(stream: Any, name: str) -> None:
    """torch exports no fp8: its property of device memory raises a KeyError."""
    torch = package("torch")
    numbers = torch.randn(64, 128, device="cuda")
    tensor = numbers.to(getattr(torch, name))
    torch.cuda.synchronize()
    host = ck.to_host(tensor, stream)
    assert host.dtype.name == name
    np.testing.assert_array_equal(host.astype("f4"), tensor.float().cpu().numpy())
    columns = ck.to_host(tensor[:, ::2], stream)
    np.testing.assert_array_equal(columns, host[:, ::2])
    product = ck.ops.matmul(tensor, tensor.T, dtype=np.float32, stream=stream)
    exact = host.astype("f8") @ host.astype("f8").T
    np.testing.assert_allclose(ck.to_host(product, stream), exact, rtol=1e-5, atol=1e-4 * np.abs(exact).max())


def test_a_tensor_is_on_its_device_whatever_torch_exports() -> None:
    class Tensor:
        def __init__(self, is_cuda: bool) -> None:
            self.is_cuda = is_cuda

        def data_ptr(self) -> int:
            return 0

        @property
        def __cuda_array_interface__(self) -> Any:
            raise KeyError("torch.float8_e4m3fn")

    Tensor.__module__ = "torch"
    assert is_on_device(Tensor(True))
    assert not is_on_device(Tensor(False))
    assert not is_on_device(np.zeros(3))


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
