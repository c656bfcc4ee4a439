"""Why one waits: threads for the threads of their block, streams for other streams, and the host for a stream.

Each thread writes to shared memory and reads another's value. The kernel without the barrier is wrong wherever the
writer is slower than the reader, which here it is made to be. Streams are ordered by cudakit; where the order is left
to you, a wait that is missing is told of, on the emulator as an error. The host waits by `sync`.

Prints::

    a block with __syncthreads():    every element is right
    a block without __syncthreads(): ... of 64 elements are wrong
    streams by themselves:           every element is right
    streams by hand, with a wait:    every element is right
    streams by hand, without a wait: ...reverse...
    the host, before it waits:       the work is ...
    the host, after it has waited:   every element is right
"""

import numpy as np

import cudakit as ck

reverse = ck.Kernel("""
template <bool SYNCHRONISED>
__global__ void reverse(const int* x, int* y) {
    __shared__ int values[64];
    values[threadIdx.x] = -1;
    __syncthreads();
    if (threadIdx.x >= 32)  // the second warp is late
        for (int i = 0; i < 1000; ++i) __nanosleep(100);
    values[threadIdx.x] = x[threadIdx.x];
    if (SYNCHRONISED) __syncthreads();
    y[threadIdx.x] = values[63 - threadIdx.x];
}
""")
right, wrong = reverse[True], reverse[False]
block = ck.config(1, 64)
stream, other = ck.stream(), ck.stream()
given = np.arange(64, dtype=np.int32)
x = ck.to_device(given, stream)
stream.sync()


def count_wrong(found: np.ndarray, expected: np.ndarray) -> str:
    """How many elements are wrong, in words."""
    count = int((found != expected).sum())
    return f"{count} of {found.size} elements are wrong" if count else "every element is right"


# 1. Threads of a block.
for kernel, words in ((right, "a block with __syncthreads():   "), (wrong, "a block without __syncthreads():")):
    y = ck.to_device(np.full(64, -2, np.int32), stream)
    kernel(stream, block, x, y)
    said = count_wrong(ck.to_host(y, stream), given[::-1])
    assert (said == "every element is right") == (kernel is right)
    print(f"{words} {said}")


# 2. Streams: what one writes the other reads, so that what comes out is the given again.
def there_and_back(wait: bool) -> np.ndarray:
    """Reverse on one stream, and again on the other one."""
    y, z = (ck.to_device(np.full(64, -2, np.int32), stream) for _ in range(2))
    ck.hazards.ordered(other, after=stream)  # other.wait(stream), and the report knows of it: y and z are there
    right(stream, block, x, y)
    if wait:
        ck.hazards.ordered(other, after=stream)
    right(other, block, y, z)
    return ck.to_host(z, other)


with ck.hazards.trace() as report:
    said = count_wrong(there_and_back(wait=False), given)
assert said == "every element is right"
assert not report.missing
print(f"streams by themselves:           {said}")

for wait, words in ((True, "streams by hand, with a wait:   "), (False, "streams by hand, without a wait:")):
    with ck.hazards.trace() as report, ck.hazards.manual():
        try:
            said = count_wrong(there_and_back(wait), given)
            # Not of the copies to y and z, whose memory may have been another stream's before.
            told = [str(each) for each in report.missing if "reverse" in each.first.work]
        except ck.EmulationError as error:
            told = [str(error)]
    assert bool(told) != wait
    print(f"{words} {' '.join(told[0].split()) if told else said}")
    assert told or said == "every element is right"
stream.sync()
other.sync()

# 3. The host. A GPU's work is under way when the call returns; the emulator's is done.
result = ck.empty(64, np.int32, kind="pinned")
result[:] = -2
right(stream, block, x, y)
ck.to_host(y, stream, out=result, wait=False)
done = stream.record()
print(f"the host, before it waits:       the work is {'done' if done.is_done else 'under way'}")
stream.sync()
assert done.is_done
said = count_wrong(result, given[::-1])
assert said == "every element is right"
print(f"the host, after it has waited:   {said}")
