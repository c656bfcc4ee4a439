import threading

import numpy as np
import pycuda.driver as cuda
from pycuda.compiler import SourceModule

source = """
__global__ void shift(int *numbers, int by)
{
    numbers[threadIdx.x] += by;
}
"""
results, errors = {}, []


def worker(number):
    context = cuda.Device(0).make_context()
    try:
        shift = SourceModule(source).get_function("shift")
        numbers = np.arange(48, dtype=np.int32)
        numbers_gpu = cuda.to_device(numbers)
        shift(numbers_gpu, np.int32(100 * number), block=(48, 1, 1))
        results[number] = cuda.from_device_like(numbers_gpu, numbers)
        numbers_gpu.free()
    except Exception as error:
        errors.append(error)
    finally:
        context.pop()


cuda.init()
threads = [threading.Thread(target=worker, args=(k,)) for k in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()

assert not errors, errors
for number in range(3):
    assert np.array_equal(results[number], np.arange(48) + 100 * number)
