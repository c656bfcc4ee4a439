import numpy as np
import pycuda.autoinit
import pycuda.driver as drv
import pycuda.gpuarray as gpuarray
from pycuda.compiler import DynamicSourceModule

code = """
__device__ int partition(int *a, int low, int high)
{
    int i = low, pivot = a[high];
    for (int j = low; j < high; j++)
        if (a[j] <= pivot) {
            int other = a[i];
            a[i++] = a[j];
            a[j] = other;
        }
    a[high] = a[i];
    a[i] = pivot;
    return i;
}

__global__ void quicksort(int *a, int low, int high)
{
    if (low >= high)
        return;
    int middle = partition(a, low, high);
    if (middle - 1 > low) {
        cudaStream_t left;
        cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking);
        quicksort<<<1, 1, 0, left>>>(a, low, middle - 1);
        cudaStreamDestroy(left);
    }
    if (middle + 1 < high) {
        cudaStream_t right;
        cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking);
        quicksort<<<1, 1, 0, right>>>(a, middle + 1, high);
        cudaStreamDestroy(right);
    }
}
"""
quicksort = DynamicSourceModule(code).get_function("quicksort")
a = np.random.permutation(60).astype(np.int32)
a_gpu = gpuarray.to_gpu(a)
quicksort(a_gpu, np.int32(0), np.int32(a.size - 1), grid=(1, 1, 1), block=(1, 1, 1))
drv.Context.synchronize()
assert np.array_equal(a_gpu.get(), np.sort(a))
