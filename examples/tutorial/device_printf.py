"""printf from the device: text of a kernel's threads, seen once the stream is synchronised.

Prints::

    thread 0 of block 0 says hello
    thread 1 of block 0 says hello
    thread 0 of block 1 says hello
    thread 1 of block 1 says hello
"""

import cudakit as ck

hello = ck.Kernel("""
__global__ void hello(int block) {
    // One block after the other prints, so that the order is the same each time.
    if (blockIdx.x == block)
        for (int thread = 0; thread < blockDim.x; ++thread)
            if (threadIdx.x == thread) printf("thread %d of block %d says hello\\n", threadIdx.x, blockIdx.x);
}
""")

stream = ck.stream()
for block in range(2):
    hello(stream, ck.config(grid=2, block=2), block)
stream.sync()
