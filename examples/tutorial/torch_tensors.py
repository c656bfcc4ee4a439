"""torch tensors as arguments of a kernel, and a kernel as a differentiable op of torch.

`ck.torch.op` makes an op from a kernel and its derivative. On a GPU the op runs on torch's current stream, in order
with torch's own work. Without a GPU the tensors are in the host's memory, and the emulator runs the kernel. Look at the
gradient, which passes through the kernel.

Prints::

    forward:  torch.float32, agrees with torch.nn.functional.leaky_relu
    forward:  torch.float64, agrees with torch.nn.functional.leaky_relu
    backward: the gradient agrees with torch's
    result of an op as a tensor: the same memory, 1000 sums
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

#: y = value where x > 0, else slope * value. The function has value = x, its derivative value = dy.
leaky = ck.torch.op(
    "tutorial::leaky",
    ck.Kernel("""
template <typename T>
__global__ void leaky(const T* x, const T* value, T* y, T slope, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > T(0) ? value[i] : slope * value[i];
}
"""),
    out=lambda x, value: torch.full_like(x, -7),
    backward=lambda x, slope, dy: (None, leaky(x, dy.contiguous(), slope)),
)
device = "cuda" if ck.has_gpu() else "cpu"
slope = 0.1

torch.manual_seed(3)
for dtype in (torch.float32, torch.float64):
    x = torch.randn(1000, device=device, dtype=dtype)
    torch.testing.assert_close(leaky(x, x, slope), torch.nn.functional.leaky_relu(x, slope))
    print(f"forward:  {dtype}, agrees with torch.nn.functional.leaky_relu")

ours = torch.randn(1000, device=device, requires_grad=True)
theirs = ours.detach().clone().requires_grad_()
leaky(ours, ours, slope).square().sum().backward()
torch.nn.functional.leaky_relu(theirs, slope).square().sum().backward()
torch.testing.assert_close(ours.grad, theirs.grad)
print("backward: the gradient agrees with torch's")

# Ops return arrays of CuPy, or of NumPy on the emulator. torch uses their memory by DLPack.
stream = torch.cuda.current_stream() if ck.has_gpu() else ck.stream()
sums = ck.ops.cumsum(x, stream=stream)
as_tensor = torch.from_dlpack(sums)
assert as_tensor.data_ptr() == (sums.data.ptr if ck.has_gpu() else sums.ctypes.data)
torch.testing.assert_close(as_tensor, x.cumsum(0))
np.testing.assert_array_equal(as_tensor.cpu().numpy(), ck.to_host(sums, stream))
print(f"result of an op as a tensor: the same memory, {as_tensor.numel()} sums")
