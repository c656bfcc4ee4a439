// <cufft.h> for NVRTC, which refuses cuFFT's own (host functions): the types of the arrays that it transforms.
#pragma once
#include <cuComplex.h>
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
