import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule

caught = []

try:
    SourceModule("__global__ void broken(float *x) { x[0] = undeclared; }")
except cuda.CompileError as e:
    caught.append("compile")
    assert "undeclared" in str(e)
    assert "undeclared" in e.stderr or "undeclared" in e.stdout

mod = SourceModule("__global__ void f(float *x) { x[threadIdx.x] = 1; }")

try:
    mod.get_function("g")
except cuda.LogicError as e:
    caught.append("function")
    print(e)

f = mod.get_function("f")
x = np.zeros(4096, np.float32)
try:
    f(cuda.InOut(x), block=(4096, 1, 1), grid=(1, 1))
except (cuda.LogicError, cuda.LaunchError) as e:
    caught.append("block")
    print(e)

try:
    f(cuda.InOut(x))
except ValueError as e:
    caught.append("no block")
    print(e)

try:
    cuda.mem_alloc(2**50)
except cuda.MemoryError as e:
    caught.append("memory")
    print(e)

try:
    gpuarray.zeros(3, np.float32) + gpuarray.zeros(4, np.float32)
except Exception as e:
    caught.append("shapes")
    print(e)

assert caught == ["compile", "function", "block", "no block", "memory", "shapes"], caught
assert issubclass(cuda.LogicError, cuda.Error)
assert issubclass(cuda.CompileError, cuda.Error)

# the context is still of use
f(cuda.InOut(x), block=(1024, 1, 1), grid=(1, 1))
assert x.sum() == 1024
