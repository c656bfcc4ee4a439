import numpy as np
import pycuda.autoinit
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

mod = SourceModule(
    """
#include <pycuda-complex.hpp>
typedef pycuda::complex<double> cplx;

extern "C" __global__ void dft(cplx *out, const cplx *in, int n)
{
    int k = threadIdx.x;
    if (k >= n) return;
    cplx sum(0.0, 0.0);
    for (int j = 0; j < n; j++) {
        double angle = -2.0 * 3.14159265358979323846 * j * k / n;
        sum += in[j] * cplx(cos(angle), sin(angle));
    }
    out[k] = sum;
}
""",
    no_extern_c=True,
)
dft = mod.get_function("dft")
n = 24
x = np.random.randn(n) + 1j * np.random.randn(n)
out = np.empty_like(x)
dft(cuda.Out(out), cuda.In(x), np.int32(n), block=(32, 1, 1))
assert np.allclose(out, np.fft.fft(x))
