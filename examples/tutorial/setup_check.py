"""Check the set-up: versions, the device and its limits, then one step after the other, each tried and checked.

cudakit takes cuda.core's `Device` and `Stream`. `Device(0)` is the same object wherever a thread asks for it; it
allocates memory and makes streams and events. Where there is no GPU there is no `Device` either: the emulator has
streams and events of the same form. Look at the last line, and at the advice of a step that fails.

Prints::

    cudakit 0.1.0.dev0, cuda-core 1.2.2, NumPy 2.4.6, NVRTC 13.5
    device: the emulator's sm_90
    compute capability: 9.0, kernels are compiled for sm_90
    multiprocessors: 132
    threads in a block: at most 1024
    grid: at most 2147483647 × 65535 × 65535 blocks
    shared memory of a block: at most 227 KiB
    memory: the host's memory; there is no GPU here, kernels run on the emulator
    Device object: works, the emulator needs none
    allocate: works, 1 MiB as an array
    copy there and back: works, 8000 bytes
    compile and launch: works, in warps of 32 threads
    time by events: works, 8 MiB copied between two events
    wait: works, stream.sync() for one stream; the emulator has no wait for all
    all steps work, without a GPU
"""

import sys

import cuda.core
import numpy as np
from cuda.bindings import driver, nvrtc

import cudakit as ck

_, major, minor = nvrtc.nvrtcVersion()
print(f"cudakit {ck.__version__}, cuda-core {cuda.core.__version__}, NumPy {np.__version__}, NVRTC {major}.{minor}")

stream, other = ck.stream(), ck.stream()
limits = ck.device_limits(stream)
if ck.has_gpu():
    _, version = driver.cuDriverGetVersion()
    details = f", {cuda.core.Device().uuid}, driver for CUDA {version // 1000}.{version % 1000 // 10}"
    _, free, total = driver.cuMemGetInfo()
    memory = f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f} GiB"
else:
    details, memory = "", "the host's memory; there is no GPU here, kernels run on the emulator"
print(f"device: {limits.name}{details}")
print(f"compute capability: {'.'.join(map(str, limits.compute_capability))}, kernels are compiled for {limits.arch}")
print(f"multiprocessors: {limits.multiprocessors}")
print(f"threads in a block: at most {limits.threads_per_block}")
print(f"grid: at most {' × '.join(map(str, limits.grid))} blocks")
print(f"shared memory of a block: at most {limits.shared_bytes // 1024} KiB")
print(f"memory: {memory}")

write_lanes = ck.Kernel("""
__global__ void write_lanes(int* lane, int* warp_size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    lane[i] = threadIdx.x % warpSize;
    *warp_size = warpSize;
}
""")


def device_object() -> str:
    """Ask for the device twice, and get one object."""
    if not ck.has_gpu():
        return "the emulator needs none"
    device = cuda.core.Device()
    assert cuda.core.Device(device.device_id) is device
    return f"Device({device.device_id}) is one object in this thread"


def allocate() -> str:
    """Allocate memory as an array, and on a GPU as a buffer of cuda.core."""
    x = ck.empty(1 << 20, np.uint8, stream=stream)
    assert x.nbytes == 1 << 20
    if not ck.has_gpu():
        return "1 MiB as an array"
    buffer = cuda.core.Device().allocate(1 << 20, stream=stream)
    assert buffer.size == 1 << 20
    buffer.close(stream)
    return "1 MiB as an array, 1 MiB as a buffer of cuda.core"


def copy() -> str:
    """Copy an array to the device and back."""
    numbers = np.arange(1000.0)
    result = ck.to_host(ck.to_device(numbers, stream), stream)
    assert result is not numbers
    np.testing.assert_array_equal(result, numbers)
    return f"{numbers.nbytes} bytes"


def launch() -> str:
    """Compile a kernel, launch it, and check its result."""
    lane, warp_size = (ck.to_device(np.full(size, -1, np.int32), stream) for size in (128, 1))
    write_lanes(stream, ck.config(2, 64), lane, warp_size)
    threads = int(ck.to_host(warp_size, stream)[0])
    np.testing.assert_array_equal(ck.to_host(lane, stream), np.arange(128) % threads)
    return f"in warps of {threads} threads"


def time_by_events() -> str:
    """Measure the time between two events of a stream."""
    with ck.Timer(stream) as timer:
        ck.to_device(np.zeros(1 << 20), stream)
    assert timer.elapsed_ms > 0
    return "8 MiB copied between two events"


def wait() -> str:
    """Wait for one stream, and for all streams of the device."""
    ck.to_device(np.zeros(1 << 20), stream)
    ck.to_device(np.zeros(1 << 20), other)
    event, other_event = stream.record(), other.record()
    stream.sync()  # for this stream only: the other one may still work
    assert event.is_done
    if ck.has_gpu():
        cuda.core.Device().sync()  # for all streams
        assert other_event.is_done
        return "stream.sync() for one stream, Device.sync() for all"
    return "stream.sync() for one stream; the emulator has no wait for all"


failed = 0
for label, step, advice in (
    ("Device object", device_object, "look with nvidia-smi whether the driver sees the GPU"),
    ("allocate", allocate, "look with nvidia-smi which program holds the memory"),
    ("copy there and back", copy, "look with nvidia-smi and dmesg whether the GPU reports errors"),
    ("compile and launch", launch, "install the packages for the driver's CUDA: pip install 'cudakit[cu13]', or cu12"),
    ("time by events", time_by_events, "mend the step that failed first: its error shows up in later steps too"),
    ("wait", wait, "mend the step that failed first: its error shows up in later steps too"),
):
    try:
        print(f"{label}: works, {step()}")
    except (ck.CudakitError, AssertionError) as error:
        failed += 1
        print(f"{label}: {error}. To do: {advice}")
if failed:
    sys.exit(f"{failed} steps failed")
print(f"all steps work{'' if ck.has_gpu() else ', without a GPU'}")
