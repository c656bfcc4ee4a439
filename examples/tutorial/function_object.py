"""A function as an argument: a C++ lambda, a struct with a call operator, or a function object of libcu++.

The kernel has a template parameter `Op`, and Python passes C++ source for it. The function is inlined, so a kernel is
compiled for each one. For most uses a ready-made op or `ck.elementwise` needs no kernel at all.

Prints::

    a function object of libcu++: [-3. -2. -1.  0.  1.] …
    a lambda:                     [ 1.  4.  7. 10. 13.] …
    a struct:                     [3.   3.16 3.61 4.24 5.  ] …
"""

import numpy as np

import cudakit as ck

combine = ck.Kernel("""
#include <cuda/std/functional>
template <typename T, typename Op>
__global__ void combine(const T* x, const T* y, T* result, Op op, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) result[i] = op(x[i], y[i]);
}
""")
distance = "struct Distance { __device__ float operator()(float a, float b) const { return sqrtf(a * a + b * b); } }"

stream = ck.stream()
n = 1000
host_x, host_y = np.arange(n, dtype=np.float32), np.full(n, 3, np.float32)
x, y = ck.to_device(host_x, stream), ck.to_device(host_y, stream)
for label, op, expected in (
    ("a function object of libcu++:", "cuda::std::minus<>", host_x - host_y),
    ("a lambda:                    ", "[](float a, float b) { return a * b + 1; }", host_x * host_y + 1),
    ("a struct:                    ", distance, np.hypot(host_x, host_y)),
):
    result = ck.to_device(np.full(n, -1, np.float32), stream)
    combine(stream, ck.cover(n), x, y, result, op, n)
    host_result = ck.to_host(result, stream)
    np.testing.assert_allclose(host_result, expected, rtol=1e-6)
    print(f"{label} {host_result[:5].round(2)} …")
