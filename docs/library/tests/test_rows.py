"""Scaled rows, compared with NumPy in float64."""

import numpy as np
import pytest
import rowkit

import cudakit as ck


def expected(x):
    """Return NumPy's result."""
    low, high = x.min(1, keepdims=True), x.max(1, keepdims=True)
    return np.where(high > low, (x - low) / np.where(high > low, high - low, 1), 0)


@pytest.mark.parametrize("columns", [1, 255, 256, 257, 1001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rescale(cuda_stream, dtype, columns):
    """Compare for sizes around the block size."""
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(dtype)
    scaled = rowkit.rescale(ck.to_device(x, cuda_stream), stream=cuda_stream)
    result = ck.to_host(scaled, cuda_stream)
    assert result.dtype == dtype
    rtol = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(result, expected(x.astype(float)), rtol=rtol, atol=1e-7)


def test_numpy_arrays_are_taken_and_returned():
    """Call without a stream, in place."""
    x = np.array([[1, 2, 3], [5, 5, 5]], np.float32)
    assert rowkit.rescale(x, out=x) is x
    np.testing.assert_array_equal(x, [[0, 0.5, 1], [0, 0, 0]])


def test_torch_tensors_are_taken_and_returned():
    """Call on the tensor's device, or on the emulator."""
    torch = pytest.importorskip("torch")
    x = torch.tensor([[1.0, 2.0, 3.0]], device="cuda" if ck.has_gpu() else "cpu")
    assert torch.equal(rowkit.rescale(x).cpu(), torch.tensor([[0.0, 0.5, 1.0]]))


def test_mistakes_raise_errors():
    """Expect errors of this library."""
    with pytest.raises(ValueError, match="at least one column"):
        rowkit.rescale(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="float32 or float64"):
        rowkit.rescale(np.zeros((3, 3), np.int32))


def test_users_can_include_the_headers(cuda_stream):
    """Compile a kernel with the folder of the headers."""
    source = """
    #include <rowkit/scale.cuh>
    __global__ void f(float* x) { *x = rowkit::scaled(*x, 0.0f, 4.0f); }
    """
    options = ck.CompileOptions(include_paths=[rowkit.include_path()])
    kernel = ck.Kernel(source, options=options)
    x = ck.to_device(np.full(1, 3, np.float32), cuda_stream)
    kernel(cuda_stream, ck.config(1, 1), x)
    assert float(ck.to_host(x, cuda_stream)[0]) == 0.75


def test_kernels_compile_for_all_archs():
    """Compile without such a device."""
    rowkit.prewarm(["sm_80", "sm_90"])
