"""printf from the device: what a kernel's threads have in hand, seen once the stream is synchronised.

A GPU's text goes to the process's standard output, past Python's `sys.stdout`; here both are read, to be checked.

Prints::

    block 0, thread 0: x[0] = 0.50
    block 0, thread 1: x[1] = 1.50
    block 1, thread 0: x[2] = 2.50
    block 1, thread 1: x[3] = 3.50
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TextIO

import cudakit as ck

show = ck.Kernel("""
__global__ void show(const float* x) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    printf("block %d, thread %d: x[%d] = %.2f\\n", blockIdx.x, threadIdx.x, i, x[i]);
}
""")


@contextlib.contextmanager
def standard_output() -> Iterator[TextIO]:
    """A file that gets what the process writes in the block, from Python or past it."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as file, contextlib.redirect_stdout(file):
        os.dup2(file.fileno(), 1)
        try:
            yield file
        finally:
            os.dup2(kept, 1)
            os.close(kept)


stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.arange(4, dtype=xp.float32) + 0.5
with standard_output() as file:
    show(stream, ck.config(grid=2, block=2), x)
    stream.sync()  # the text is there once the kernel is done
    file.flush()
    file.seek(0)
    lines = file.read().splitlines()
lines.sort()  # blocks run in any order
assert lines == [f"block {i // 2}, thread {i % 2}: x[{i}] = {i + 0.5:.2f}" for i in range(4)]
print(*lines, sep="\n")
