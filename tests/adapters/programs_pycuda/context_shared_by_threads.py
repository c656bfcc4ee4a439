import threading

import numpy as np
import pycuda.driver as cuda
import pycuda.gpuarray as gpuarray
from pycuda.compiler import SourceModule


class Worker(threading.Thread):
    def __init__(self, context, number):
        threading.Thread.__init__(self)
        self.context, self.number, self.result, self.error = context, number, None, None

    def run(self):
        self.context.push()
        try:
            add = SourceModule("__global__ void add(int *x, int n) { x[threadIdx.x] += n; }").get_function("add")
            x_gpu = gpuarray.zeros(16, np.int32)
            add(x_gpu, np.int32(self.number), block=(16, 1, 1))
            self.result = x_gpu.get()
        except Exception as error:
            self.error = error
        finally:
            self.context.pop()


cuda.init()
context = cuda.Device(0).make_context()
context.pop()
workers = [Worker(context, k) for k in range(4)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
for worker in workers:
    assert worker.error is None, worker.error
    assert (worker.result == worker.number).all()
context.push()
context.synchronize()
context.pop()
context.detach()
