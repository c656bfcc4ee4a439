"""Too few threads leave elements undone, too many write where nothing is: both are found.

Without a bounds check in the kernel, a grid that is rounded up writes past the end of the array. On a GPU nobody may
notice; on the emulator it is an error that names the array and the line.

Prints::

    too few threads: 768 of 1000 done
    too many threads: fill: st.global.u32 (PTX line 34, wrong_dimensions.py:18): 4 bytes at 0x55e289115350 are outside
        ↳ every array; the nearest is x, of which this would be element 1000 of 1000
    ck.cover and a bounds check: 1000 of 1000 done
"""

import numpy as np

import cudakit as ck

unchecked = ck.Kernel("""
__global__ void fill(float* x) { x[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
""")
checked = ck.Kernel("""
__global__ void fill(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2;
}
""")

stream = ck.emulator.stream()  # on purpose, also where there is a GPU: here mistakes are named
x = np.zeros(1000, np.float32)
unchecked(stream, ck.config(3, 256), x)
print(f"too few threads: {int(x.sum())} of {x.size} done")
try:
    unchecked(stream, ck.config(4, 256), x)
except ck.EmulationError as error:
    print(f"too many threads: {str(error).splitlines()[0]}")
checked(stream, ck.cover(x.size), x, x.size)
print(f"ck.cover and a bounds check: {(x == 2).sum()} of {x.size} done")
assert (x == 2).all()
