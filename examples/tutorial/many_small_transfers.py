"""One large transfer or many small ones: the same bytes, but every transfer has a cost of its own.

An array is copied to the device and back in 1, 16, 256 and 1024 pieces. Look at the number of copies and at the size of
each; on a GPU also at the time, which grows with the number of copies once they are small. The host's clock measures
it, which is right where the host waits for the end of the work, as `ck.to_host` does.

Prints::

       1 pieces:    2 copies of 262,144 bytes
      16 pieces:   32 copies of 16,384 bytes
     256 pieces:  512 copies of 1,024 bytes
    1024 pieces: 2048 copies of 256 bytes
    time: needs a GPU
"""

import time

import numpy as np

import cudakit as ck

stream = ck.stream()
numbers = np.random.default_rng(2).random(1 << (24 if ck.has_gpu() else 16), np.float32)


def copy_in_pieces(count: int) -> float:
    """Copy the numbers to the device and back in `count` pieces; return the time in seconds."""
    pieces = np.split(numbers, count)
    stream.sync()  # so that earlier work is not measured
    start = time.perf_counter()
    on_device = [ck.to_device(piece, stream) for piece in pieces]
    on_host = [ck.to_host(piece, stream) for piece in on_device]
    elapsed = time.perf_counter() - start
    np.testing.assert_array_equal(np.concatenate(on_host), numbers)
    return elapsed


times = {}
for count in (1, 16, 256, 1024):
    with ck.trace({"stream": stream}) as trace:
        copy_in_pieces(count)
    sizes = {span.size for span in trace.spans if span.kind == "copy"}
    copies = sum(span.kind == "copy" for span in trace.spans)
    assert (copies, sizes) == (2 * count, {numbers.nbytes // count})
    line = f"{count:4} pieces: {copies:4} copies of {sizes.pop():,} bytes"
    if ck.has_gpu():
        times[count] = min(copy_in_pieces(count) for _ in range(3))
        line += f", {times[count] * 1e3:.2f} ms, {times[count] / times[1]:.1f} × the time of one piece"
    print(line)
print(f"time: {'see above' if ck.has_gpu() else 'needs a GPU'}")
