"""Use torch tensors in cudakit's kernels, results as torch tensors, and gradients through a kernel, without copies.

Run: ``python examples/torch_interop.py``, with torch and a GPU.

A kernel takes torch tensors and torch's streams. Kernels on ``torch.cuda.current_stream()`` are in order with torch's
own kernels. Ops of cudakit return CuPy arrays, which torch takes without a copy, by DLPack. `ck.torch.op` makes a
torch op from a kernel: it works with gradients and `torch.compile`.
"""

from __future__ import annotations

import importlib.util
from typing import Any

import cudakit as ck

#: The sigmoid-weighted linear unit y = x · s, with s = 1 / (1 + exp(-x)), and its derivative s · (1 + x · (1 - s)).
SOURCE = """
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void silu(const float* __restrict__ x, float* __restrict__ y, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        y[i] = x[i] * sigmoid(x[i]);
}

__global__ void silu_back(const float* __restrict__ x, const float* __restrict__ dy, float* __restrict__ dx, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        float s = sigmoid(x[i]);
        dx[i] = dy[i] * s * (1.0f + x[i] * (1.0f - s));
    }
}
"""
SILU, SILU_BACK = ck.Kernel(SOURCE, "silu"), ck.Kernel(SOURCE, "silu_back")


def main() -> dict[str, float] | None:
    """Compare each part with torch; return the largest differences, or None if a package is missing."""
    missing = what_is_missing()
    if missing:
        print(f"This example needs {missing}: nothing was run.")
        return None
    import torch

    torch.manual_seed(0)
    found = {}

    # A kernel on torch's current stream, on tensors that torch owns.
    x = torch.randn(1 << 20, device="cuda")
    y = torch.empty_like(x)
    SILU(torch.cuda.current_stream(), ck.cover(x.numel()), x, y, x.numel())
    found["kernel"] = difference(y, torch.nn.functional.silu(x))

    # An op of cudakit returns a CuPy array, which torch takes without a copy.
    sums = ck.ops.cumsum(x.reshape(1024, 1024), axis=1, stream=torch.cuda.current_stream())
    as_tensor = torch.from_dlpack(sums)
    assert as_tensor.data_ptr() == sums.data.ptr, "the result was copied"
    found["op"] = difference(as_tensor, torch.cumsum(x.reshape(1024, 1024), dim=1))

    # On another torch stream cudakit adds waits for its own kernels. Order torch's kernels by hand.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled = x * 2
        SILU(side, ck.cover(x.numel()), doubled, y, x.numel())
    torch.cuda.current_stream().wait_stream(side)
    found["stream"] = difference(y, torch.nn.functional.silu(2 * x))

    # A kernel with a gradient, as a torch op.
    silu = ck.torch.op("examples::silu", SILU, out=lambda x: ck.torch.like(x), backward=SILU_BACK)
    weights = torch.randn(512, 512, device="cuda", requires_grad=True)
    reference = weights.detach().clone().requires_grad_()
    silu(weights).square().sum().backward()
    torch.nn.functional.silu(reference).square().sum().backward()
    found["gradient"] = difference(weights.grad, reference.grad)

    # The same op inside a compiled function.
    compiled = torch.compile(lambda x: silu(x).square(), fullgraph=True)
    found["compiled"] = difference(compiled(weights), torch.nn.functional.silu(reference).square())

    for name, off in found.items():
        print(f"{name}: within {off:.1e} of torch")
        assert off < 1e-4, f"{name} is wrong"
    return found


def difference(found: Any, expected: Any) -> float:
    """Return the largest difference of two tensors, relative to expected values above 1."""
    return float(((found - expected).abs() / expected.abs().clamp(min=1)).max().detach())


def what_is_missing() -> str | None:
    """Return the name of a missing package or device, or None."""
    if importlib.util.find_spec("torch") is None:
        return "torch (pip install torch)"
    if not ck.has_gpu():
        return "a GPU with a CUDA driver (the emulator takes NumPy arrays)"
    import torch

    if not torch.cuda.is_available():
        return "a torch that is built for CUDA"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy, which the ops make arrays with (pip install 'cudakit[cu13]')"
    return None


if __name__ == "__main__":
    main()
