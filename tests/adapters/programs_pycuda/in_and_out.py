import numpy
import pycuda.autoinit
import pycuda.driver as drv
from pycuda.compiler import SourceModule

mod = SourceModule("""
__global__ void product(float *out, float *left, float *right)
{
  int k = threadIdx.x;
  out[k] = left[k] * right[k];
}
""")
product = mod.get_function("product")

left = numpy.random.randn(300).astype(numpy.float32)
right = numpy.random.randn(300).astype(numpy.float32)
out = numpy.zeros_like(left)
product(drv.Out(out), drv.In(left), drv.In(right), block=(300, 1, 1), grid=(1, 1))

print(out - left * right)
assert numpy.array_equal(out, left * right)
