"""One kernel, several processes: a picture in bands, each by a worker on a device of its own.

Run: ``python docs/scale_out.py``. Without a GPU the workers are on the emulator.
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
    """What a worker does with part `number`: the kernel came pickled, its machine code is on disk."""
    if ck.has_gpu():
        from cuda.core import Device, system

        Device(number % system.get_num_devices()).set_current()
    stream = ck.stream() if ck.has_gpu() else ck.emulator.stream()
    result = np.empty_like(band)
    kernel(stream, ck.cover(band.size), ck.In(band), ck.Out(result), band.size)
    stream.sync()
    return result


def main() -> None:
    """Cut the array, hand the parts out, put the results together."""
    picture = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    bands = np.array_split(picture, 4)
    # CUDA does not survive a fork: workers are spawned.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
        result = np.concatenate(list(workers.map(work, [square] * len(bands), range(len(bands)), bands)))
    assert np.array_equal(result, picture**2)
    print("right, in", len(bands), "bands")


if __name__ == "__main__":
    main()
