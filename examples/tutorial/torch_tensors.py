"""torch's tensors as they are: a kernel reads and writes them where they lie, on torch's stream, and is differentiated.

`ck.torch.op` makes an op of torch of the kernel. On a GPU it works on torch's current stream, in order with torch's
work before and after. Without a GPU the tensors are the host's, and the emulator runs the kernel.

Prints::

    forward:  torch.float32, as torch.nn.functional.leaky_relu has it
    forward:  torch.float64, as torch.nn.functional.leaky_relu has it
    backward: the gradient is torch's, through our kernel
    an op's result as a tensor: the same memory, 1000 sums
"""

import sys

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
leaky = ck.torch.op(
    "tutorial::leaky",
    ck.Kernel("""
template <typename T>
__global__ void leaky(const T* x, const T* given, T* y, T slope, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > T(0) ? given[i] : slope * given[i];
}
"""),
    out=lambda x, given: torch.full_like(x, -7),
    backward=lambda x, slope, dy: (None, leaky(x, dy.contiguous(), slope)),
)
place = "cuda" if ck.has_gpu() else "cpu"
slope = 0.1

torch.manual_seed(3)
for dtype in (torch.float32, torch.float64):
    x = torch.randn(1000, device=place, dtype=dtype)
    torch.testing.assert_close(leaky(x, x, slope), torch.nn.functional.leaky_relu(x, slope))
    print(f"forward:  {dtype}, as torch.nn.functional.leaky_relu has it")

ours = torch.randn(1000, device=place, requires_grad=True)
theirs = ours.detach().clone().requires_grad_()
leaky(ours, ours, slope).square().sum().backward()
torch.nn.functional.leaky_relu(theirs, slope).square().sum().backward()
torch.testing.assert_close(ours.grad, theirs.grad)
print("backward: the gradient is torch's, through our kernel")

# Ops return arrays of CuPy, or of NumPy on the emulator, which torch takes over where they lie.
stream = torch.cuda.current_stream() if ck.has_gpu() else ck.stream()
sums = ck.ops.cumsum(x, stream=stream)
as_tensor = torch.from_dlpack(sums)
assert as_tensor.data_ptr() == (sums.data.ptr if ck.has_gpu() else sums.ctypes.data)
torch.testing.assert_close(as_tensor, x.cumsum(0))
np.testing.assert_array_equal(as_tensor.cpu().numpy(), ck.to_host(sums, stream))
print(f"an op's result as a tensor: the same memory, {as_tensor.numel()} sums")
