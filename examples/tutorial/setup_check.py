"""What is here: versions, the device, its memory and its limits.

Prints::

    cudakit ..., cuda-core ..., NumPy ..., NVRTC ...
    device: ...
    compute capability: ...
    multiprocessors: ...
    threads in a block: at most 1024
    grid: at most 2147483647 × 65535 × 65535 blocks
    shared memory of a block: at most ... KiB
    memory: ...
"""

import cuda.core
import numpy as np
from cuda.bindings import driver, nvrtc

import cudakit as ck

_, major, minor = nvrtc.nvrtcVersion()
print(f"cudakit {ck.__version__}, cuda-core {cuda.core.__version__}, NumPy {np.__version__}, NVRTC {major}.{minor}")

limits = ck.device_limits(ck.stream())
print(f"device: {limits.name}")
print(f"compute capability: {'.'.join(map(str, limits.compute_capability))}, compiled for as {limits.arch}")
print(f"multiprocessors: {limits.multiprocessors}")
print(f"threads in a block: at most {limits.threads_per_block}")
print(f"grid: at most {' × '.join(map(str, limits.grid))} blocks")
print(f"shared memory of a block: at most {limits.shared_bytes // 1024} KiB")

if ck.has_gpu():
    _, free, total = driver.cuMemGetInfo()
    print(f"memory: {free / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB")
else:
    print("memory: the host's; there is no GPU here, kernels run on the emulator")
