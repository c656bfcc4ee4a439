"""One kernel in several processes: each worker squares a band of an image on its device.

Run: ``python docs/scale_out.py``. Without a GPU the workers use the emulator.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

import cudakit as ck

square = ck.Kernel("""
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}""")


def work(kernel: ck.Kernel, number: int, band: np.ndarray) -> np.ndarray:
    """Square a band in a worker, with the pickled kernel."""
    if ck.has_gpu():
        from cuda.core import Device, system

        Device(number % system.get_num_devices()).set_current()
    stream = ck.stream() if ck.has_gpu() else ck.emulator.stream()
    result = np.empty_like(band)
    kernel(stream, ck.cover(band.size), ck.In(band), ck.Out(result), band.size)
    stream.sync()
    return result


def main() -> None:
    """Split the array, send the bands to workers, join the results."""
    picture = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    bands = np.array_split(picture, 4)
    # CUDA does not survive a fork: workers are spawned.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        kernels = [square] * len(bands)
        results = workers.map(work, kernels, range(len(bands)), bands)
        result = np.concatenate(list(results))
    assert np.array_equal(result, picture**2)
    print("right, in", len(bands), "bands")


if __name__ == "__main__":
    main()
