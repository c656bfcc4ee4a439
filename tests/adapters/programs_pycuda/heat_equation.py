import numpy as np
import pycuda.driver as cuda
import pycuda.autoinit
from pycuda.compiler import SourceModule

STEPS = 10


def main():
    kernel = SourceModule(
        """
    #define NX {nx}
    #define NY {ny}
    __global__ void diffuse(float* T_new, const float* T, float alpha)
    {{
        int x = blockIdx.x * blockDim.x + threadIdx.x;
        int y = blockIdx.y * blockDim.y + threadIdx.y;
        if (x >= NX || y >= NY) return;
        int i = y * NX + x;
        if (x == 0 || y == 0 || x == NX - 1 || y == NY - 1)
            T_new[i] = T[i];
        else
            T_new[i] = T[i] + alpha * (T[i - 1] + T[i + 1] + T[i - NX] + T[i + NX] - 4 * T[i]);
    }}
    """.format(nx=20, ny=15)
    ).get_function("diffuse")

    t = np.zeros((15, 20), dtype=np.float32)
    t[5:9, 8:12] = 100
    old, new = cuda.mem_alloc(t.nbytes), cuda.mem_alloc(t.nbytes)
    cuda.memcpy_htod(old, t)
    stream = cuda.Stream()
    for _ in range(STEPS):
        kernel(new, old, np.float32(0.1), block=(16, 16, 1), grid=(2, 1), stream=stream)
        old, new = new, old
    stream.synchronize()
    result = np.empty_like(t)
    cuda.memcpy_dtoh(result, old)

    for _ in range(STEPS):
        t[1:-1, 1:-1] += np.float32(0.1) * (t[1:-1, :-2] + t[1:-1, 2:] + t[:-2, 1:-1] + t[2:, 1:-1] - 4 * t[1:-1, 1:-1])
    assert np.allclose(result, t, atol=1e-3)
    assert abs(result.sum() - 1600) < 1


if __name__ == "__main__":
    main()
