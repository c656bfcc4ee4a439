"""The largest block: how many threads the device allows.

`ck.device_limits` returns the limits of a GPU, or of the arch that the emulator runs. Look at the second line: a block
with one thread more is refused before the launch, by an error that names the limit.

Prints::

    a block of 1024 threads: 1024 threads counted
    a block of 1025 threads: count_threads: block.x is 1025, over the limit 1024 of the emulator's sm_90
"""

import cudakit as ck

count_threads = ck.Kernel("""
__global__ void count_threads(unsigned int* total) { atomicAdd(total, 1u); }
""")

stream = ck.stream()
limit = ck.device_limits(stream).threads_per_block
with ck.using(stream) as xp:
    for block in (limit, limit + 1):
        total = xp.zeros(1, dtype=xp.uint32)
        try:
            count_threads(stream, ck.config(1, block), total)
        except ck.LaunchError as error:
            print(f"a block of {block} threads: {error}")
        else:
            print(f"a block of {block} threads: {int(total[0])} threads counted")
            assert int(total[0]) == block
