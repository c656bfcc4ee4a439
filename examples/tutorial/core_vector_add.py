"""A vector addition by cuda.core alone, and by cudakit.

cuda.core compiles, launches, and has streams and memory, but passes arguments as they are: pointers and numbers of the
right size are up to you. cudakit deduces T, checks the arguments, and keeps the compiled code. Look at the two
functions side by side; the first one needs a GPU.

Prints::

    cuda.core: needs a GPU
    cudakit:   the same numbers, in 3 lines
"""

import numpy as np

import cudakit as ck

SOURCE = """
template <typename T>
__global__ void vector_add(const T* A, const T* B, T* C, size_t N) {
    const unsigned int tid = threadIdx.x + blockIdx.x * blockDim.x;
    for (size_t i = tid; i < N; i += gridDim.x * blockDim.x) C[i] = A[i] + B[i];
}
"""
rng = np.random.default_rng(0)
a, b = (rng.random(50_000, dtype=np.float32) for _ in range(2))


def by_cuda_core() -> np.ndarray:
    """Add by cuda.core: compile by name, get the kernel, pass pointers and sized integers, synchronise."""
    import cupy
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

    device = Device()
    device.set_current()
    stream = device.create_stream()
    options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
    module = Program(SOURCE, code_type="c++", options=options).compile("cubin", name_expressions=("vector_add<float>",))
    kernel = module.get_kernel("vector_add<float>")
    with cupy.cuda.Stream.from_external(stream):
        x, y = cupy.asarray(a), cupy.asarray(b)
        z = cupy.empty_like(x)
    config = LaunchConfig(grid=-(-a.size // 256), block=256)
    launch(stream, config, kernel, x.data.ptr, y.data.ptr, z.data.ptr, np.uint64(a.size))
    stream.sync()
    return cupy.asnumpy(z)


def by_cudakit(threads: ck.Config | ck.Cover) -> np.ndarray:
    """Add by cudakit, with the same template."""
    stream, c = ck.stream(), np.empty_like(a)
    ck.Kernel(SOURCE)(stream, threads, ck.In(a), ck.In(b), ck.Out(c), a.size)
    stream.sync()
    return c


if ck.has_gpu():
    np.testing.assert_array_equal(by_cuda_core(), a + b)
    print("cuda.core: a + b, in 13 lines")
else:
    print("cuda.core: needs a GPU")
for threads in (ck.cover(a.size), ck.config(1, 512)):  # one block is enough: its threads go on
    np.testing.assert_array_equal(by_cudakit(threads), a + b)
print("cudakit:   the same numbers, in 3 lines")
