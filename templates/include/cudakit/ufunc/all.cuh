// NumPy's universal functions of one element: one template each, called with values of the types that NumPy computes in.
// half and bfloat16 (`narrow`) are computed as float and rounded once, as NumPy does it.
#pragma once

#include <cudakit/ufunc/arithmetic.cuh>
#include <cudakit/ufunc/bits.cuh>
#include <cudakit/ufunc/compare.cuh>
#include <cudakit/ufunc/real.cuh>
