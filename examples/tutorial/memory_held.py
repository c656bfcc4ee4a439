"""Memory in use: what keeps an array alive, memory for one block of code, and a limit.

Memory of the device is freed when the last reference to its array is gone. Look at the list: a program that appends to
a list keeps all arrays, and one name is enough to keep one. `ck.memory.limit` turns a leak into an error.

Prints::

    ck.allocated:            1 MiB in the block, 0 MiB after it
    a list of 8 arrays:      8 MiB
    one name is left:        1 MiB
    no name is left:         0 MiB
    over the limit of 4 MiB: 1,073,741,824 bytes of device memory were asked for; the emulator holds 0 in use, and
        ↳ ck.memory.limit allows 4,194,304; free arrays, or work in chunks
    at the end:              0 bytes in use, at most 67,108,864 so far
"""

import numpy as np

import cudakit as ck

MIB = 1 << 20
stream = ck.stream()


def used_mib() -> int:
    """Return the device memory in use, less what was in use at the start, in MiB."""
    stream.sync()  # memory stays in use until the work that needs it is done
    return (ck.memory.report().of("device").used - used_at_start) // MIB


used_at_start = ck.memory.report().of("device").used

with ck.allocated(MIB, np.uint8, stream=stream) as scratch:
    assert scratch.nbytes == MIB
    within = used_mib()
assert scratch.size == 0  # the name is still there, and the memory is free
assert (within, used_mib()) == (1, 0)
print(f"ck.allocated:            {within} MiB in the block, 0 MiB after it")

frames = [ck.empty(MIB, np.uint8, stream=stream) for _ in range(8)]
assert used_mib() == 8
print(f"a list of 8 arrays:      {used_mib()} MiB")
first_frame = frames[0]
frames.clear()  # an array is freed with its last reference
assert used_mib() == 1
print(f"one name is left:        {used_mib()} MiB")
del first_frame
assert used_mib() == 0
print(f"no name is left:         {used_mib()} MiB")

ck.memory.trim()  # a limit also counts memory that the pool keeps free
pool = ck.memory.report().of("device")
with ck.memory.limit(pool.used + pool.free + 4 * MIB):
    ck.empty(2 * MIB, np.uint8, stream=stream)  # within the limit
    try:
        ck.empty(1024 * MIB, np.uint8, stream=stream)
    except ck.LaunchError as error:
        print(f"over the limit of 4 MiB: {error}")
    else:
        raise AssertionError("the limit does not hold")
ck.empty(64 * MIB, np.uint8, stream=stream)  # no limit after the block
report = ck.memory.report().of("device")
assert report.peak >= 64 * MIB
print(f"at the end:              {report.used:,} bytes in use, at most {report.peak:,} so far")
