"""Dynamic shared memory: its size is chosen at the launch.

One kernel then serves blocks of any size. `ck.config(…, shared_bytes=…)` says the size, also beyond the 48 KiB that a
kernel has without asking. Look at the last line: more than the device has is refused before the launch.

Prints::

    blocks of 64 threads, 256 bytes each: every block reversed
    blocks of 1000 threads, 4000 bytes each: every block reversed
    60000 bytes, more than 48 KiB: every block reversed
    beyond the limit: reverse<float>: shared memory a block is 232452 bytes (0 static, 232452 dynamic), over the limit
        ↳ 232448 bytes of the emulator's sm_90
"""

import numpy as np

import cudakit as ck

reverse = ck.Kernel("""
template <typename T>
__global__ void reverse(T* x, int size) {
    extern __shared__ unsigned char bytes[];  // the launch says how many
    T* values = reinterpret_cast<T*>(bytes);
    T* block = x + (size_t)blockIdx.x * size;
    for (int i = threadIdx.x; i < size; i += blockDim.x) values[i] = block[i];
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += blockDim.x) block[i] = values[size - 1 - i];
}
""")
stream = ck.stream()


def reversed_by_blocks(blocks: int, threads: int, size: int) -> int:
    """Reverse `size` values in each block, check the result, and return the bytes of a block."""
    host_x = np.arange(blocks * size, dtype=np.float32)
    x = ck.to_device(host_x, stream)
    config = ck.config(blocks, threads, shared_bytes=size * host_x.itemsize)
    reverse(stream, config, x, size)
    np.testing.assert_array_equal(ck.to_host(x, stream), host_x.reshape(blocks, size)[:, ::-1].ravel())
    return config.shared_bytes


for size in (64, 1000):
    print(f"blocks of {size} threads, {reversed_by_blocks(3, size, size)} bytes each: every block reversed")
large_bytes = reversed_by_blocks(2, 256, 15_000)
assert large_bytes > 48 * 1024
print(f"{large_bytes} bytes, more than 48 KiB: every block reversed")

message = ""
limit = ck.device_limits(stream).shared_bytes
try:
    reversed_by_blocks(1, 256, limit // 4 + 1)
except ck.LaunchError as error:
    message = str(error)
assert str(limit) in message
print(f"beyond the limit: {message}")
