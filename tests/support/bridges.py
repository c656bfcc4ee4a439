"""Kernels that the tests of bridges put into torch and JAX."""

from __future__ import annotations

SOURCE = """
#include <cudakit/strided.cuh>
template <typename T>
__global__ void axpy(T a, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ z, size_t n) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
template <typename T>
__global__ void axpy_back(T a, const T* __restrict__ dz, T* __restrict__ dx, T* __restrict__ dy, size_t n) {
    size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
    if (i < n) { dx[i] = a * dz[i]; dy[i] = dz[i]; }
}
template <typename T>
__global__ void scale(T* x, T by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
template <typename T>
__global__ void both(const T* x, T* total, T* y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    T sum = 0;
    for (int k = 0; k < columns; ++k) { sum += x[row * columns + k]; y[row * columns + k] = sum; }
    total[row] = sum;
}
template <typename T>
__global__ void transposed(cudakit::strided<const T, 2> x, T* y) {
    int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x.shape[0] && j < x.shape[1]) y[i * x.shape[1] + j] = x(i, j);
}
"""
