import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel

knl = InclusiveScanKernel(np.int32, "a+b")

for n in [1, 10, 512, 1025, 5000]:
    host_data = np.random.randint(0, 10, n).astype(np.int32)
    dev_data = gpuarray.to_gpu(host_data)
    knl(dev_data)
    assert (dev_data.get() == np.cumsum(host_data, axis=0)).all(), n

before = ExclusiveScanKernel(np.int32, "a+b", neutral="0")
dev_data = gpuarray.to_gpu(host_data)
out = gpuarray.empty_like(dev_data)
before(dev_data, out)
assert (out.get() == np.cumsum(host_data) - host_data).all()
assert (dev_data.get() == host_data).all()

running_max = InclusiveScanKernel(np.float32, "max(a, b)")
x = np.random.randn(700).astype(np.float32)
x_gpu = gpuarray.to_gpu(x)
running_max(x_gpu)
assert (x_gpu.get() == np.maximum.accumulate(x)).all()
