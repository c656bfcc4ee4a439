"""Calls of cuda.bindings.runtime: memory, copies, a fill on a stream, an attribute, and calls that are refused."""

import numpy as np
from cuda.bindings import runtime

success, direction = runtime.cudaError_t.cudaSuccess, runtime.cudaMemcpyKind
assert runtime.cudaSetDevice(0) == (success,)
status, count = runtime.cudaGetDeviceCount()
assert status == success
assert count >= 1
status, warp = runtime.cudaDeviceGetAttribute(runtime.cudaDeviceAttr.cudaDevAttrWarpSize, 0)
assert (status, warp) == (success, 32)

x, y = np.arange(10, dtype=np.int32), np.zeros(10, np.int32)
status, pointer = runtime.cudaMalloc(x.nbytes)
assert runtime.cudaMemcpy(pointer, x.ctypes.data, x.nbytes, direction.cudaMemcpyHostToDevice) == (success,)
assert runtime.cudaMemcpy(y.ctypes.data, pointer, x.nbytes, direction.cudaMemcpyDeviceToHost) == (success,)
assert np.array_equal(x, y)
status, stream = runtime.cudaStreamCreate()
assert runtime.cudaMemsetAsync(pointer, 1, x.nbytes, stream) == (success,)
assert runtime.cudaMemcpyAsync(y.ctypes.data, pointer, x.nbytes, direction.cudaMemcpyDefault, stream) == (success,)
assert runtime.cudaStreamSynchronize(stream) == (success,)
assert (y == 0x01010101).all()
assert runtime.cudaStreamDestroy(stream) == (success,)
assert runtime.cudaFree(pointer) == (success,)
(status,) = runtime.cudaSetDevice(1000)
assert status == runtime.cudaError_t.cudaErrorInvalidDevice
print("done!")
