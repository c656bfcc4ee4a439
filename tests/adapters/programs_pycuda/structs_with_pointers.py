import struct

import numpy
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule("""
struct Series {
    int length;
    float step;
    float *values;  // at byte 8: pointers are aligned
};

__global__ void extend(Series *all)
{
    Series s = all[blockIdx.x];
    for (int k = threadIdx.x; k < s.length; k += blockDim.x)
        s.values[k] += s.step;
}
""")
SIZE = 8 + numpy.intp(0).nbytes


class Series:
    def __init__(self, values, step, address):
        self.like = numpy.asarray(values, dtype=numpy.float32)
        self.values = cuda.to_device(self.like)
        record = struct.pack("ifP", self.like.size, step, int(self.values))
        assert len(record) == SIZE
        cuda.memcpy_htod(address, record)

    def get(self):
        return cuda.from_device(self.values, self.like.shape, self.like.dtype)


both = cuda.mem_alloc(2 * SIZE)
second = int(both) + SIZE
one = Series([1, 2, 3], 1.0, both)
two = Series(range(70), 0.5, second)

extend = mod.get_function("extend")
extend(both, block=(32, 1, 1), grid=(2, 1))
assert numpy.array_equal(one.get(), [2, 3, 4])
assert numpy.array_equal(two.get(), numpy.arange(70) + 0.5)

# the address of the second, as a number
extend(numpy.intp(second), block=(32, 1, 1), grid=(1, 1))
assert numpy.array_equal(one.get(), [2, 3, 4])
assert numpy.array_equal(two.get(), numpy.arange(70) + 1)

extend.prepare("P")
extend.prepared_call((2, 1), (32, 1, 1), both)
extend.prepared_call((1, 1), (32, 1, 1), second)
assert numpy.array_equal(one.get(), [3, 4, 5])
assert numpy.array_equal(two.get(), numpy.arange(70) + 2)
