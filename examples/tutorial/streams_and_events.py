"""Streams and events: one stream waits for the other where it must, two copies go at once, and events tell the time.

cudakit puts in the wait that an array's use on two streams needs. Under `ck.hazards.manual` the order is yours, by
events; a wait that is missing is an error on the emulator.

Prints::

    written on one stream, read on the other: [2. 2. 2.] …
    with an event, by hand:                   [4. 4. 4.] …
    in and out at once: both arrive whole
    no GPU here: nothing to time
"""

import numpy as np

import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(const float* x, float* y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = by * x[i];
}
""")
first, second = ck.stream(), ck.stream()
n = (1 << (24 if ck.has_gpu() else 14)) - 384  # no multiple of a block
given = np.arange(n, dtype=np.float32) % 1000 + 1
x = ck.to_device(given, first)
y, z = ck.empty(n, np.float32, stream=first), ck.empty(n, np.float32, stream=second)

scale(first, ck.cover(n), x, y, 2.0, n)
scale(second, ck.cover(n), y, z, 3.0, n)  # waits for the launch before: it reads y
result = ck.to_host(z, second)
np.testing.assert_array_equal(result, given * 6)
print(f"written on one stream, read on the other: {result[:3] / given[:3] / 3} …")

with ck.hazards.manual():
    scale(first, ck.cover(n), x, y, 4.0, n)
    written = first.record()  # an event: all that `first` was given so far
    second.wait(written)
    scale(second, ck.cover(n), y, z, 5.0, n)
    result = ck.to_host(z, second)
np.testing.assert_array_equal(result, given * 20)
print(f"with an event, by hand:                   {result[:3] / given[:3] / 5} …")

# One stream copies in while the other copies out: a GPU has an engine for each direction. Only pinned memory does.
half = n // 2
frame, back = (ck.empty(size, np.float32, kind="pinned") for size in (half, n))
frame[:], back[:] = 7, 0
into, out = ck.Timer(first), ck.Timer(second)
both = ck.Timer(first)
with ck.trace({"in": first, "out": second}) as trace:
    both.start()
    with into:
        ck.to_device(frame, first, out=x[:half])
    with out:
        ck.to_host(z, second, out=back, wait=False)
    first.wait(second)  # so that `both` ends when the later of the two does
    both.stop()
    first.sync()
np.testing.assert_array_equal(back, given * 20)
np.testing.assert_array_equal(ck.to_host(x, first), np.where(np.arange(n) < half, 7, given))
print("in and out at once: both arrive whole")
copies = {span.stream: span for span in trace.spans if span.kind == "copy"}
if ck.has_gpu():
    alone = into.elapsed_ms + out.elapsed_ms
    print(f"in {into.elapsed_ms:.2f} ms, out {out.elapsed_ms:.2f} ms: {alone:.2f} ms, in {both.elapsed_ms:.2f} ms")
else:
    # The emulator has no time, but an order: neither copy comes after the other.
    assert copies["in"].start_ms < copies["out"].end_ms
    assert copies["out"].start_ms < copies["in"].end_ms
    assert both.elapsed_steps == out.elapsed_steps == 2 * into.elapsed_steps > 0
    print("no GPU here: nothing to time")
