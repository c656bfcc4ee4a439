// Functions of tiles of float by the names that traced Python functions call those of elements by.
#pragma once

#include "cuda_tile.h"

namespace cudakit {
namespace tile_functions {

#define CUDAKIT_BINARY(NAME, TEXT) \
    template <typename X, typename Y> \
    __tile__ auto NAME(X x, Y y) { return TEXT; }
CUDAKIT_BINARY(add, x + y)
CUDAKIT_BINARY(subtract, x - y)
CUDAKIT_BINARY(multiply, x * y)
CUDAKIT_BINARY(divide, x / y)
CUDAKIT_BINARY(true_divide, x / y)
CUDAKIT_BINARY(maximum, cuda::tiles::max(x, y))
CUDAKIT_BINARY(minimum, cuda::tiles::min(x, y))
CUDAKIT_BINARY(fmax, cuda::tiles::max(x, y))
CUDAKIT_BINARY(fmin, cuda::tiles::min(x, y))
CUDAKIT_BINARY(power, cuda::tiles::pow(x, y))
#undef CUDAKIT_BINARY

#define CUDAKIT_UNARY(NAME, TEXT) \
    template <typename X> \
    __tile__ auto NAME(X x) { return TEXT; }
CUDAKIT_UNARY(negative, -x)
CUDAKIT_UNARY(positive, x)
CUDAKIT_UNARY(square, x* x)
CUDAKIT_UNARY(reciprocal, 1.0f / x)
CUDAKIT_UNARY(sqrt, cuda::tiles::sqrt(x))
CUDAKIT_UNARY(exp, cuda::tiles::exp(x))
CUDAKIT_UNARY(exp2, cuda::tiles::exp2(x))
CUDAKIT_UNARY(log, cuda::tiles::log(x))
CUDAKIT_UNARY(log2, cuda::tiles::log2(x))
CUDAKIT_UNARY(tanh, cuda::tiles::tanh(x))
CUDAKIT_UNARY(sin, cuda::tiles::sin(x))
CUDAKIT_UNARY(cos, cuda::tiles::cos(x))
CUDAKIT_UNARY(absolute, cuda::tiles::abs(x))
CUDAKIT_UNARY(fabs, cuda::tiles::abs(x))
CUDAKIT_UNARY(floor, cuda::tiles::floor(x))
CUDAKIT_UNARY(ceil, cuda::tiles::ceil(x))
#undef CUDAKIT_UNARY

}  // namespace tile_functions
}  // namespace cudakit
