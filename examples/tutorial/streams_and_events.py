"""Streams and events: a stream that waits for another one, and two copies at the same time.

cudakit adds the wait that an array's use on two streams needs. Inside `ck.hazards.manual` the order is yours: record an
event on one stream, and let the other stream wait for it. Look at the last line: a GPU copies in both directions at
once, if the host's memory is pinned. What a missing wait does is in missing_wait.py.

Prints::

    ordered by cudakit:  x = [1. 2. 3.] …, 3 × (2 × x) = [ 6. 12. 18.] …
    ordered by an event: x = [1. 2. 3.] …, 5 × (4 × x) = [20. 40. 60.] …
    copies in and out at the same time: 4000 steps together, 2000 + 4000 alone
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
host_x = np.arange(n, dtype=np.float32) % 1000 + 1
x = ck.to_device(host_x, first)
y, z = ck.empty(n, np.float32, stream=first), ck.empty(n, np.float32, stream=second)

# 1. The second stream reads y, which the first one writes: cudakit lets it wait.
scale(first, ck.cover(n), x, y, 2.0, n)
scale(second, ck.cover(n), y, z, 3.0, n)
result = ck.to_host(z, second)
np.testing.assert_array_equal(result, host_x * 6)
print(f"ordered by cudakit:  x = {host_x[:3]} …, 3 × (2 × x) = {result[:3]} …")

# 2. The same order by hand.
with ck.hazards.manual():
    scale(first, ck.cover(n), x, y, 4.0, n)
    event = first.record()  # stands for all work that the first stream has been given
    second.wait(event)
    scale(second, ck.cover(n), y, z, 5.0, n)
    result = ck.to_host(z, second)
np.testing.assert_array_equal(result, host_x * 20)
print(f"ordered by an event: x = {host_x[:3]} …, 5 × (4 × x) = {result[:3]} …")

# 3. One stream copies in while the other one copies out, by pinned memory.
half = n // 2
frame, result = (ck.empty(size, np.float32, kind="pinned") for size in (half, n))
frame[:], result[:] = 7, 0
timer_in, timer_out, timer_both = ck.Timer(first), ck.Timer(second), ck.Timer(first)
with ck.trace({"in": first, "out": second}) as trace:
    timer_both.start()
    with timer_in:
        ck.to_device(frame, first, out=x[:half])
    with timer_out:
        ck.to_host(z, second, out=result, wait=False)
    first.wait(second)  # so that timer_both ends with the later copy
    timer_both.stop()
    first.sync()
np.testing.assert_array_equal(result, host_x * 20)
np.testing.assert_array_equal(ck.to_host(x, first), np.where(np.arange(n) < half, 7, host_x))
copies = {span.stream: span for span in trace.spans if span.kind == "copy"}
if ck.has_gpu():
    alone = timer_in.elapsed_ms + timer_out.elapsed_ms
    times = f"{timer_both.elapsed_ms:.2f} ms together, {alone:.2f} ms one after the other"
else:
    # The emulator has no time, but an order: neither copy comes after the other.
    assert copies["in"].start_ms < copies["out"].end_ms
    assert copies["out"].start_ms < copies["in"].end_ms
    assert timer_both.elapsed_steps == timer_out.elapsed_steps == 2 * timer_in.elapsed_steps > 0
    times = f"{timer_both.elapsed_steps} steps together, {timer_in.elapsed_steps} + {timer_out.elapsed_steps} alone"
print(f"copies in and out at the same time: {times}")
