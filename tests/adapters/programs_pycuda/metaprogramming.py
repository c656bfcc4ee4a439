from string import Template

import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

UNROLL = 4
THREADS = 32

# with Template of the standard library
lines = "\n".join(
    f"out[first + {k * THREADS}] = x[first + {k * THREADS}] $op y[first + {k * THREADS}];" for k in range(UNROLL)
)
source = Template(
    """
__global__ void combine($type *out, $type *x, $type *y)
{
    int first = threadIdx.x + $per_block * blockIdx.x;
    %s
}
"""
    % lines
).substitute(type="float", per_block=UNROLL * THREADS, op="-")
combine = SourceModule(source).get_function("combine")
x = gpuarray.to_gpu(np.random.randn(3 * UNROLL * THREADS).astype(np.float32))
y = gpuarray.to_gpu(np.random.randn(3 * UNROLL * THREADS).astype(np.float32))
out = gpuarray.empty_like(x)
combine(out, x, y, block=(THREADS, 1, 1), grid=(3, 1))
assert np.array_equal(out.get(), x.get() - y.get())

# with str.format
for name, dtype in [("int", np.int32), ("double", np.float64), ("unsigned char", np.uint8)]:
    mod = SourceModule(
        """
    __global__ void fill({type} *x) {{ x[threadIdx.x] = {value}; }}
    """.format(type=name, value=7)
    )
    x = np.zeros(16, dtype)
    mod.get_function("fill")(cuda.Out(x), block=(16, 1, 1))
    assert (x == 7).all()

# with the preprocessor
mod = SourceModule("__global__ void f(int *x) { x[threadIdx.x] = A + B; }", options=["-DA=40", "-D", "B=2"])
x = np.zeros(4, np.int32)
mod.get_function("f")(cuda.Out(x), block=(4, 1, 1))
assert (x == 42).all()


# with objects that generate code, as those of cgen
class Function:
    def __init__(self, name, *lines):
        self.name, self.lines = name, lines

    def generate(self):
        yield "__global__ void %s(int *x) {" % self.name
        yield from self.lines
        yield "}"

    def __str__(self):
        return "\n".join(self.generate())


mod = SourceModule(Function("count", "int i = threadIdx.x;", "x[i] = 10 * i;"))
x = np.zeros(4, np.int32)
mod.get_function("count")(cuda.Out(x), block=(4, 1, 1))
assert list(x) == [0, 10, 20, 30]
