"""What is here, and does it work: versions, the device and its limits; and one step after the other is tried.

Prints::

    cudakit ..., cuda-core ..., NumPy ..., NVRTC ...
    device: ...
    compute capability: ...
    multiprocessors: ...
    threads in a block: at most 1024
    grid: at most 2147483647 × 65535 × 65535 blocks
    shared memory of a block: at most ... KiB
    memory: ...
    allocate: works, 1 MiB
    copy there and back: works, 8000 bytes
    compile and launch: works, in warps of 32 threads
    time by events: works, 8 MiB copied between two
    all is well...
"""

import sys

import cuda.core
import numpy as np
from cuda.bindings import driver, nvrtc

import cudakit as ck

_, major, minor = nvrtc.nvrtcVersion()
print(f"cudakit {ck.__version__}, cuda-core {cuda.core.__version__}, NumPy {np.__version__}, NVRTC {major}.{minor}")

stream = ck.stream()
limits = ck.device_limits(stream)
if ck.has_gpu():
    _, version = driver.cuDriverGetVersion()
    told = f", {cuda.core.Device().uuid}, driver for CUDA {version // 1000}.{version % 1000 // 10}"
    _, free, total = driver.cuMemGetInfo()
    memory = f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB"
else:
    told, memory = "", "the host's; there is no GPU here, kernels run on the emulator"
print(f"device: {limits.name}{told}")
print(f"compute capability: {'.'.join(map(str, limits.compute_capability))}, compiled for as {limits.arch}")
print(f"multiprocessors: {limits.multiprocessors}")
print(f"threads in a block: at most {limits.threads_per_block}")
print(f"grid: at most {' × '.join(map(str, limits.grid))} blocks")
print(f"shared memory of a block: at most {limits.shared_bytes // 1024} KiB")
print(f"memory: {memory}")

number = ck.Kernel("""
__global__ void number(int* lane, int* warp) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    lane[i] = threadIdx.x % warpSize;
    *warp = warpSize;
}
""")


def allocate() -> str:
    """Memory of the device."""
    x = ck.empty(1 << 20, np.uint8, stream=stream)
    assert x.nbytes == 1 << 20
    return "1 MiB"


def copy() -> str:
    """What comes back is what was sent, in other memory."""
    given = np.arange(1000.0)
    back = ck.to_host(ck.to_device(given, stream), stream)
    assert back is not given
    np.testing.assert_array_equal(back, given)
    return f"{given.nbytes} bytes"


def launch() -> str:
    """A kernel is compiled, and does what it says."""
    lane, warp = (ck.to_device(np.full(size, -1, np.int32), stream) for size in (128, 1))
    number(stream, ck.config(2, 64), lane, warp)
    threads = int(ck.to_host(warp, stream)[0])
    np.testing.assert_array_equal(ck.to_host(lane, stream), np.arange(128) % threads)
    return f"in warps of {threads} threads"


def events() -> str:
    """Time passes between two events."""
    with ck.Timer(stream) as timer:
        ck.to_device(np.zeros(1 << 20), stream)
    assert timer.elapsed_ms > 0
    return "8 MiB copied between two"


failed = 0
for words, step, advice in (
    ("allocate", allocate, "see by nvidia-smi who holds the memory"),
    ("copy there and back", copy, "see by nvidia-smi and dmesg whether the GPU reports errors"),
    ("compile and launch", launch, "install what fits the driver's CUDA: pip install 'cudakit[cu13]', or cu12"),
    ("time by events", events, "mend what failed before: an error shows up in what comes after it, too"),
):
    try:
        print(f"{words}: works, {step()}")
    except (ck.CudakitError, AssertionError) as error:
        failed += 1
        print(f"{words}: {error}. To do: {advice}")
if failed:
    sys.exit(f"{failed} steps failed")
print(f"all is well{'' if ck.has_gpu() else ', as far as can be told without a GPU'}")
