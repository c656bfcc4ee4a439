"""torch's tensors as they are: a kernel reads and writes them where they lie, on torch's stream, and is differentiated.

On a GPU cudakit is given torch's current stream, so that torch's work before and after is in order with the kernel.
Without a GPU the tensors are the host's, and the stream is the emulator's.

Prints::

    forward:  torch.float32, as torch.nn.functional.leaky_relu has it
    forward:  torch.float64, as torch.nn.functional.leaky_relu has it
    backward: the gradient is torch's, through our kernel
    an op's result as a tensor: the same memory, 1000 sums
"""

import sys
from typing import Any

import numpy as np

import cudakit as ck

try:
    import torch
except ImportError:
    print("torch is not installed: pip install torch")
    sys.exit()
if ck.has_gpu() and not torch.cuda.is_available():
    print("this torch is not built for CUDA")
    sys.exit()

#: y = given where x > 0, else slope * given. With given = x that is the function, with given = dy its derivative.
leaky = ck.Kernel("""
template <typename T>
__global__ void leaky(const T* x, const T* given, T* y, T slope, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > T(0) ? given[i] : slope * given[i];
}
""")
emulated = None if ck.has_gpu() else ck.stream()
place = "cpu" if emulated else "cuda"
slope = 0.1


def run(x: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """One launch, on the stream that torch works on now."""
    y = torch.full_like(x, -7)
    leaky(emulated or torch.cuda.current_stream(), ck.cover(x.numel()), x, given, y, slope, x.numel())
    return y


class Leaky(torch.autograd.Function):
    """The kernel as a function of torch that gradients go through."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        """Leaky ReLU of x."""
        context.save_for_backward(x)
        return run(x.detach(), x.detach())

    @staticmethod
    def backward(context: Any, dy: torch.Tensor) -> torch.Tensor:
        """The gradient by x, from that by y."""
        (x,) = context.saved_tensors
        return run(x.detach(), dy.contiguous())


torch.manual_seed(3)
for dtype in (torch.float32, torch.float64):
    x = torch.randn(1000, device=place, dtype=dtype)
    torch.testing.assert_close(run(x, x), torch.nn.functional.leaky_relu(x, slope))
    print(f"forward:  {dtype}, as torch.nn.functional.leaky_relu has it")

ours = torch.randn(1000, device=place, requires_grad=True)
theirs = ours.detach().clone().requires_grad_()
Leaky.apply(ours).square().sum().backward()
torch.nn.functional.leaky_relu(theirs, slope).square().sum().backward()
torch.testing.assert_close(ours.grad, theirs.grad)
print("backward: the gradient is torch's, through our kernel")

# Ops return arrays of CuPy, or of NumPy on the emulator, which torch takes over where they lie.
stream = emulated or torch.cuda.current_stream()
sums = ck.ops.cumsum(x, stream=stream)
as_tensor = torch.from_dlpack(sums)
assert as_tensor.data_ptr() == (sums.data.ptr if ck.has_gpu() else sums.ctypes.data)
torch.testing.assert_close(as_tensor, x.cumsum(0))
np.testing.assert_array_equal(as_tensor.cpu().numpy(), ck.to_host(sums, stream))
print(f"an op's result as a tensor: the same memory, {as_tensor.numel()} sums")
