import numpy as np
import pycuda.autoinit
import pycuda.gpuarray as gpuarray
from pycuda.scan import ExclusiveScanKernel, InclusiveScanKernel

host = np.random.randint(1, 101, size=3000).astype(np.uint32)
array = gpuarray.to_gpu(host)
ExclusiveScanKernel(np.int32, "a+b", neutral="0")(array)
assert array.get().tolist() == [0, *np.cumsum(host)[:-1].tolist()]

counts = gpuarray.to_gpu(np.array([7, 5, 10], dtype=np.int32))
InclusiveScanKernel(np.uint32, "a+b")(counts)
assert counts.get().tolist() == [7, 12, 22]
