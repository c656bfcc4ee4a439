// <pycuda-complex.hpp> for programs of PyCUDA: its complex numbers are libcu++'s.
#pragma once

#include <cuda/std/complex>

namespace pycuda {
using namespace cuda::std;  // complex, and its functions: abs, arg, norm, conj, polar, exp, log, pow, sqrt, sin, …
}
