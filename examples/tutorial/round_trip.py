"""Copy an array to the device and back.

`ck.to_device` returns an array on the device, and `ck.to_host` a NumPy array. Look at the type in between: on a GPU the
array is CuPy's, on the emulator NumPy's.

Prints::

    on the host:   ndarray of float64, 8000000 bytes
    on the device: numpy.ndarray
    back again:    the same 1000000 numbers
"""

import numpy as np

import cudakit as ck

stream = ck.stream()
host_x = np.random.default_rng(0).normal(size=1_000_000)
print(f"on the host:   {type(host_x).__name__} of {host_x.dtype}, {host_x.nbytes} bytes")

on_device = ck.to_device(host_x, stream)
print(f"on the device: {type(on_device).__module__.split('.')[0]}.{type(on_device).__name__}")

result = ck.to_host(on_device, stream)
assert result is not host_x
np.testing.assert_array_equal(result, host_x)
print(f"back again:    the same {result.size} numbers")
