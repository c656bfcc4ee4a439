import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule
from pycuda.tools import dtype_to_ctype

particle = np.dtype([("x", np.float32), ("y", np.float32), ("id", np.int32), ("mass", np.float64)], align=True)
assert particle.itemsize == 24

mod = SourceModule("""
struct Particle {
    float x, y;
    int id;
    double mass;
};

__global__ void move(Particle *p, int n, float dx)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        p[i].x += dx;
        p[i].mass *= 2;
        p[i].id = -p[i].id;
    }
}

__global__ void momentum(Particle p, double *out)
{
    out[0] = p.mass * p.x;
}
""")
move = mod.get_function("move")

host = np.zeros(50, particle)
host["x"] = np.arange(50)
host["id"] = np.arange(50)
host["mass"] = np.random.rand(50)

p_gpu = gpuarray.to_gpu(host)
move(p_gpu, np.int32(50), np.float32(0.5), block=(64, 1, 1), grid=(1, 1))
result = p_gpu.get()
assert np.array_equal(result["x"], host["x"] + np.float32(0.5))
assert np.array_equal(result["id"], -host["id"])
assert np.array_equal(result["mass"], 2 * host["mass"])
assert np.array_equal(result["y"], host["y"])

out = np.zeros(1)
mod.get_function("momentum")(result[7], cuda.Out(out), block=(1, 1, 1))
assert out[0] == result["mass"][7] * result["x"][7]
assert dtype_to_ctype(np.float32) == "float"
assert dtype_to_ctype(np.dtype(np.uint8)) == "unsigned char"
