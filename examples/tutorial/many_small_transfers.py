"""One large transfer or many small ones? The same bytes, but each transfer has a price of its own.

Timed by the host's clock, which is right where the host waits for the end of what it times, as `ck.to_host` does.

Prints::

    1 … 1024 transfers of 256 … 0.25 KiB arrive whole
    no GPU here: nothing to time
"""

import time

import numpy as np

import cudakit as ck

stream = ck.stream()
data = np.random.default_rng(2).random(1 << (24 if ck.has_gpu() else 16), np.float32)


def seconds(pieces: int) -> float:
    """Time to copy the data to the device and back in so many pieces."""
    parts = np.split(data, pieces)
    stream.sync()  # nothing of what was before
    start = time.perf_counter()
    on_device = [ck.to_device(part, stream) for part in parts]
    back = [ck.to_host(part, stream) for part in on_device]
    elapsed = time.perf_counter() - start
    assert len(back) == pieces
    np.testing.assert_array_equal(np.concatenate(back), data)
    return elapsed


counts = (1, 16, 256, 1024)
times = {}
for pieces in counts:
    seconds(pieces)  # warms up the pools of memory
    times[pieces] = min(seconds(pieces) for _ in range(3))
print(
    f"1 … {counts[-1]} transfers of {data.nbytes / 1024:.0f} … {data.nbytes / 1024 / counts[-1]:.2f} KiB arrive whole"
)
if ck.has_gpu():
    for pieces, elapsed in times.items():
        print(f"{pieces:5} pieces: {elapsed * 1e3:.2f} ms, {elapsed / times[1]:.1f} × the time of one")
else:
    print("no GPU here: nothing to time")
