"""Leaks, and how not to have them: what a program holds, memory of a block's own, and a limit.

Prints::

    1 MiB for a block's time, and none after it
    a list that grows holds all that it was given: 8 MiB
    a name that still refers to one of them: 1 MiB
    dropped: held no more
    1 GiB over a limit of 4 MiB: 1,073,741,824 bytes of device memory were asked for; the emulator holds 0 in use, and
        ↳ ck.memory.limit allows 4,194,304; let go of arrays, or work in chunks
    memory            used  free in pool        peak  limit
    pinned               0             0           0   none
    device emulator      0             0  67,108,864   none
    managed emulator     0             0           0   none
"""

import numpy as np

import cudakit as ck

MIB = 1 << 20
stream = ck.stream()


def held() -> int:
    """MiB of device memory that arrays hold, beside what was held at the start."""
    stream.sync()  # what work still needs is held for it
    return (ck.memory.report().of("device").used - at_start) // MIB


at_start = 0
at_start = ck.memory.report().of("device").used

with ck.allocated(MIB, np.uint8, stream=stream) as scratch:
    assert scratch.nbytes == MIB
    inside = held()
assert scratch.size == 0  # the name is still there, the memory is not
assert (inside, held()) == (1, 0)
print(f"{inside} MiB for a block's time, and none after it")

frames = [ck.empty(MIB, np.uint8, stream=stream) for _ in range(8)]
assert held() == 8
print(f"a list that grows holds all that it was given: {held()} MiB")
first = frames[0]
frames.clear()  # arrays die with their last name, as everywhere in Python
assert held() == 1
print(f"a name that still refers to one of them: {held()} MiB")
del first
assert held() == 0
print("dropped: held no more")

ck.memory.trim()  # a limit counts what the pool keeps free, too
pool = ck.memory.report().of("device")
with ck.memory.limit(pool.used + pool.free + 4 * MIB):
    ck.empty(2 * MIB, np.uint8, stream=stream)  # below it
    try:
        ck.empty(1024 * MIB, np.uint8, stream=stream)
    except ck.LaunchError as error:
        print(f"1 GiB over a limit of 4 MiB: {error}")
    else:
        raise AssertionError("the limit does not hold")
ck.empty(64 * MIB, np.uint8, stream=stream)  # after the block there is none
print(ck.memory.report())
