"""printf in a kernel: print what each thread holds before and after a step.

The text appears when the stream is synchronised. A GPU writes it to the process's standard output, not to Python's
`sys.stdout`, so flush what Python printed before. Blocks run in any order, and so do their lines; one block of four
threads prints in the order of its threads.

Prints::

    before the launch: [0.5 1.5 2.5 3.5]
    thread 0: x = 0.50 before, 1.00 after
    thread 1: x = 1.50 before, 3.00 after
    thread 2: x = 2.50 before, 5.00 after
    thread 3: x = 3.50 before, 7.00 after
    after stream.sync(): [1. 3. 5. 7.]
"""

import numpy as np

import cudakit as ck

double_it = ck.Kernel("""
__global__ void double_it(float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float before = x[i];
    x[i] = 2 * before;
    printf("thread %d: x = %.2f before, %.2f after\\n", i, before, x[i]);
}
""")

stream = ck.stream()
host_x = np.arange(4, dtype=np.float32) + 0.5
print(f"before the launch: {host_x}", flush=True)
x = ck.to_device(host_x, stream)
double_it(stream, ck.config(grid=1, block=4), x)
stream.sync()  # a GPU's text is written here
result = ck.to_host(x, stream)
np.testing.assert_array_equal(result, host_x + host_x)
print(f"after stream.sync(): {result}")
