"""torch tensors in cudakit's kernels, results as torch tensors, and gradients through a kernel, without copies.

Run: ``python examples/torch_interop.py``, with torch and a GPU.

A torch tensor is an argument of a kernel, and torch's stream is a stream for a launch. Kernels on
``torch.cuda.current_stream()`` run in order with torch's own work. Ops of cudakit return CuPy arrays, whose memory
torch uses by DLPack. Look at ``ck.torch.op``: it makes an op of torch from a kernel, for gradients and for
`torch.compile`.
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
    """Run all parts, compare with torch, and return the largest differences; None if a part is missing."""
    missing = missing_part()
    if missing:
        print(f"This example needs {missing}: nothing was run.")
        return None
    import torch

    torch.manual_seed(0)
    differences = {}

    # A kernel on torch's current stream, with tensors as arguments.
    x = torch.randn(1 << 20, device="cuda")
    y = torch.empty_like(x)
    SILU(torch.cuda.current_stream(), ck.cover(x.numel()), x, y, x.numel())
    differences["kernel"] = difference(y, torch.nn.functional.silu(x))

    # An op of cudakit returns a CuPy array. torch uses its memory.
    sums = ck.ops.cumsum(x.reshape(1024, 1024), axis=1, stream=torch.cuda.current_stream())
    as_tensor = torch.from_dlpack(sums)
    assert as_tensor.data_ptr() == sums.data.ptr, "the result was copied"
    differences["op"] = difference(as_tensor, torch.cumsum(x.reshape(1024, 1024), dim=1))

    # On another stream of torch: cudakit adds the waits for its own work. The waits for torch's work are up to you.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        doubled = x * 2
        SILU(side, ck.cover(x.numel()), doubled, y, x.numel())
    torch.cuda.current_stream().wait_stream(side)
    differences["stream"] = difference(y, torch.nn.functional.silu(2 * x))

    # A kernel with a derivative as an op of torch.
    silu = ck.torch.op("examples::silu", SILU, out=lambda x: ck.torch.like(x), backward=SILU_BACK)
    weights = torch.randn(512, 512, device="cuda", requires_grad=True)
    reference = weights.detach().clone().requires_grad_()
    silu(weights).square().sum().backward()
    torch.nn.functional.silu(reference).square().sum().backward()
    differences["gradient"] = difference(weights.grad, reference.grad)

    # The same op inside a program that torch compiles.
    compiled = torch.compile(lambda x: silu(x).square(), fullgraph=True)
    differences["compiled"] = difference(compiled(weights), torch.nn.functional.silu(reference).square())

    for name, largest in differences.items():
        print(f"{name}: within {largest:.1e} of torch")
        assert largest < 1e-4, f"{name} is wrong"
    return differences


def difference(result: Any, expected: Any) -> float:
    """Return the largest difference between two tensors, relative where the expected value is above 1."""
    return float(((result - expected).abs() / expected.abs().clamp(min=1)).max().detach())


def missing_part() -> str | None:
    """Return the name of what this example needs and does not find, or None."""
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
