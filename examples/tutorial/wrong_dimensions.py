"""Too few threads and too many: elements left undone, and a write past the end of the array.

A grid that is rounded up has more threads than elements. Without the check `i < n` they write past the end. On a GPU
this may go unnoticed. Look at the emulator's error: it names the array, the element and the line.

Prints::

    too few threads:  768 of 1000 elements written
    too many threads: fill: st.global.u32 (PTX line 34, wrong_dimensions.py:19): 4 bytes at 0x55e3f5e52830 are outside
        ↳ every array; the nearest is x with 1000 elements: element 1000 is past the end (valid: 0 to 999)
    ck.cover and a bounds check: 1000 of 1000 elements written
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

stream = ck.emulator.stream()  # also where there is a GPU: the emulator reports the mistake
x = np.zeros(1000, np.float32)
unchecked(stream, ck.config(3, 256), x)
print(f"too few threads:  {int(x.sum())} of {x.size} elements written")
try:
    unchecked(stream, ck.config(4, 256), x)
except ck.EmulationError as error:
    print(f"too many threads: {str(error).splitlines()[0]}")
checked(stream, ck.cover(x.size), x, x.size)
print(f"ck.cover and a bounds check: {(x == 2).sum()} of {x.size} elements written")
assert (x == 2).all()
