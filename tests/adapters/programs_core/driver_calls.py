"""Calls of cuda.bindings beside cuda.core: NVRTC's machine code, memory, a stream, an event and two launches."""

import ctypes

import numpy as np
from cuda.bindings import driver, nvrtc
from cuda.core import Buffer, Device

SOURCE = b"""
__device__ float offset = 1;
extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i] + offset;
}
"""


def checked(results):
    status, *values = results
    assert int(status) == 0, status
    return values[0] if len(values) == 1 else values


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
enum = driver.CUdevice_attribute
major, minor = (
    checked(driver.cuDeviceGetAttribute(attribute, device))
    for attribute in (
        enum.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        enum.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    )
)
assert Device().compute_capability == (major, minor)

program = checked(nvrtc.nvrtcCreateProgram(SOURCE, b"saxpy.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture=sm_{major}{minor}".encode()]))
code = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
checked(nvrtc.nvrtcGetCUBIN(program, code))
module = checked(driver.cuModuleLoadData(bytes(code)))
kernel = checked(driver.cuModuleGetFunction(module, b"saxpy"))
error, _ = driver.cuModuleGetFunction(module, b"absent")
assert error == driver.CUresult.CUDA_ERROR_NOT_FOUND
address, size = checked(driver.cuModuleGetGlobal(module, b"offset"))
checked(driver.cuMemcpyHtoD(address, np.array([3], np.float32), size))

n = 1000
x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
stream = checked(driver.cuStreamCreate(0))
device_x, device_y = (checked(driver.cuMemAlloc(x.nbytes)) for _ in range(2))
checked(driver.cuMemcpyHtoDAsync(device_x, x.ctypes.data, x.nbytes, stream))
checked(driver.cuMemcpyHtoDAsync(device_y, y.ctypes.data, x.nbytes, stream))
# The arguments as ctypes say them, and as addresses of their bytes.
pairs = ((2.0, device_x, device_y, n), (ctypes.c_float, None, None, ctypes.c_size_t))
checked(driver.cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, stream, pairs, 0))
words = [np.array([value], dtype) for value, dtype in zip((-1, int(device_x), int(device_y), n), "fQQQ", strict=True)]
table = np.array([word.ctypes.data for word in words], np.uint64)
checked(driver.cuLaunchKernel(kernel, 8, 1, 1, 128, 1, 1, 0, stream, table.ctypes.data, 0))
done = checked(driver.cuEventCreate(0))
checked(driver.cuEventRecord(done, stream))
checked(driver.cuEventSynchronize(done))
checked(driver.cuMemcpyDtoH(y.ctypes.data, device_y, y.nbytes))
assert np.array_equal(y, x + 1 + 3 + 3), y[:4]

# cuda.core sees the driver's memory.
with Buffer.from_handle(int(device_y), x.nbytes, owner=y) as buffer:
    assert buffer.size == 4 * n
checked(driver.cuMemsetD32(device_y, 7, n))
checked(driver.cuMemcpyDtoH(y, device_y, y.nbytes))
assert (y.view(np.uint32) == 7).all()
for pointer in (device_x, device_y):
    checked(driver.cuMemFree(pointer))
checked(driver.cuStreamDestroy(hStream=stream))
checked(driver.cuModuleUnload(module))
print("done!")
