// <cupy/complex.cuh> for kernels of CuPy: `complex` is Thrust's, with its functions.
#pragma once

#include <thrust/complex.h>

using thrust::complex;
using thrust::abs;
using thrust::arg;
using thrust::conj;
using thrust::exp;
using thrust::log;
using thrust::norm;
using thrust::polar;
using thrust::pow;
using thrust::sqrt;
