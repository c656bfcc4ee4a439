"""Leaks, and how not to have them: what a program holds, memory of a block's own, and a limit.

Prints::

    1 MiB for a block's time, and none after it
    a list that grows holds all that it was given: 8 MiB
    dropped: held no more
    ...
"""

import numpy as np

import cudakit as ck

stream = ck.stream()

with ck.allocated(1 << 20, np.uint8, stream=stream) as scratch:
    assert scratch.nbytes == 1 << 20
assert scratch.size == 0  # the name is still there, the memory is not
print("1 MiB for a block's time, and none after it")

frames = [ck.empty(1 << 20, np.uint8, stream=stream) for _ in range(8)]
print(f"a list that grows holds all that it was given: {sum(frame.nbytes for frame in frames) >> 20} MiB")
frames.clear()  # arrays die with their last name, as everywhere in Python
print("dropped: held no more")

print(ck.memory.report())
if ck.has_gpu():
    try:
        with ck.memory.limit(4 << 20):
            ck.empty(1 << 30, np.uint8, stream=stream)
    except ck.LaunchError as error:
        print(f"over the limit: {error}")
