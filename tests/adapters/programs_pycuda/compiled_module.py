import os
import tempfile

import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import compile

source = """
extern "C" __global__ void add_one(float *x)
{
    x[threadIdx.x] += 1;
}
"""
cubin = compile(source, no_extern_c=True)
assert isinstance(cubin, bytes)

module = cuda.module_from_buffer(cubin)
add_one = module.get_function("add_one")
x = np.zeros(32, np.float32)
add_one(cuda.InOut(x), block=(32, 1, 1))
assert (x == 1).all()

with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "kernel.cubin")
    with open(path, "wb") as file:
        file.write(cubin)
    again = cuda.module_from_file(path).get_function("add_one")
again(cuda.InOut(x), block=(32, 1, 1))
assert (x == 2).all()

ptx = compile(source, no_extern_c=True, target="ptx")
from_ptx = cuda.module_from_buffer(ptx).get_function("add_one")
from_ptx(cuda.InOut(x), block=(32, 1, 1))
assert (x == 3).all()
