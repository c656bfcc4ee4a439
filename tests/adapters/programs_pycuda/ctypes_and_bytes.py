import ctypes

import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
struct Pair { int first; float second; };
__global__ void add(int *x, Pair p)
{
    x[threadIdx.x] += p.first + (int) p.second;
}
__global__ void count(unsigned char *text, int n, int *spaces)
{
    if (threadIdx.x < n && text[threadIdx.x] == ' ')
        atomicAdd(spaces, 1);
}
""")

numbers = (ctypes.c_int * 8)(*range(8))
x_gpu = cuda.mem_alloc(ctypes.sizeof(numbers))
cuda.memcpy_htod(x_gpu, numbers)

pair = np.zeros(1, np.dtype([("first", np.int32), ("second", np.float32)]))[0]
pair["first"], pair["second"] = 10, 5
mod.get_function("add")(x_gpu, pair, block=(8, 1, 1))
cuda.memcpy_dtoh(numbers, x_gpu)
assert list(numbers) == [15 + i for i in range(8)]

text = b"five words are in here"
text_gpu = cuda.to_device(text)
spaces = np.zeros(1, np.int32)
mod.get_function("count")(text_gpu, np.int32(len(text)), cuda.InOut(spaces), block=(32, 1, 1))
assert spaces[0] == text.count(b" ")

back = bytearray(len(text))
cuda.memcpy_dtoh(back, text_gpu)
assert bytes(back) == text
