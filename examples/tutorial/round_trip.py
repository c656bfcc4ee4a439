"""To the device and back: a transfer changes nothing.

Prints::

    on the host:   ndarray of float64, 8000000 bytes
    on the device: numpy.ndarray
    back again:    the same 1000000 numbers
"""

import numpy as np

import cudakit as ck

stream = ck.stream()
there = np.random.default_rng(0).normal(size=1_000_000)
print(f"on the host:   {type(there).__name__} of {there.dtype}, {there.nbytes} bytes")

on_device = ck.to_device(there, stream)
print(f"on the device: {type(on_device).__module__.split('.')[0]}.{type(on_device).__name__}")

back = ck.to_host(on_device, stream)
assert back is not there
np.testing.assert_array_equal(back, there)
print(f"back again:    the same {back.size} numbers")
