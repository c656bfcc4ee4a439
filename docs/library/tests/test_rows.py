"""Rows on one scale, against NumPy in float64."""

import numpy as np
import pytest
import rowkit

import cudakit as ck


def expected(x):
    """What NumPy makes of it."""
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return np.where(high > low, (x - low) / np.where(high > low, high - low, 1), 0)


@pytest.mark.parametrize("columns", [1, 255, 256, 257, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rescale(cuda_stream, dtype, columns):
    """Sizes around the block's."""
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(dtype)
    result = ck.to_host(rowkit.rescale(ck.to_device(x, cuda_stream), stream=cuda_stream), cuda_stream)
    assert result.dtype == dtype
    np.testing.assert_allclose(result, expected(x.astype(float)), rtol=4 * np.finfo(dtype).eps, atol=1e-7)


def test_numpy_arrays_are_taken_and_returned():
    """Without a word of streams, and in place."""
    x = np.array([[1, 2, 3], [5, 5, 5]], np.float32)
    assert rowkit.rescale(x, out=x) is x
    np.testing.assert_array_equal(x, [[0, 0.5, 1], [0, 0, 0]])


def test_torch_tensors_are_taken_and_returned():
    """On the device that they are on; without a GPU on the emulator."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, 2.0, 3.0]], device="cuda" if ck.has_gpu() else "cpu")
    assert torch.equal(rowkit.rescale(x).cpu(), torch.tensor([[0.0, 0.5, 1.0]]))


def test_mistakes_are_told():
    """By this library's own names."""
    with pytest.raises(ValueError, match="at least one column"):
        rowkit.rescale(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="float32 or float64"):
        rowkit.rescale(np.zeros((3, 3), np.int32))


def test_headers_are_for_users_too(cuda_stream):
    """As they lie in the wheel."""
    kernel = ck.Kernel(
        "#include <rowkit/scale.cuh>\n__global__ void f(float* x) { *x = rowkit::scaled(*x, 0.0f, 4.0f); }",
        options=ck.CompileOptions(include_paths=[rowkit.include_path()]),
    )
    x = ck.to_device(np.full(1, 3, np.float32), cuda_stream)
    kernel(cuda_stream, ck.config(1, 1), x)
    assert float(ck.to_host(x, cuda_stream)[0]) == 0.75


def test_kernels_compile_for_what_is_shipped_to():
    """With no such device here."""
    rowkit.prewarm(["sm_80", "sm_90"])
