"""How large may a block be? As large as the device allows, and no thread larger.

Prints::

    a block of 1024 threads: 1024 elements written
    a block of 1025 threads: count: block.x is 1025, over the limit 1024 of the emulator's sm_90
"""

import cudakit as ck

count = ck.Kernel("""
__global__ void count(unsigned int* total) { atomicAdd(total, 1u); }
""")

stream = ck.stream()
most = ck.device_limits(stream).threads_per_block
with ck.using(stream) as xp:
    for block in (most, most + 1):
        total = xp.zeros(1, dtype=xp.uint32)
        try:
            count(stream, ck.config(1, block), total)
        except ck.LaunchError as error:
            print(f"a block of {block} threads: {error}")
        else:
            print(f"a block of {block} threads: {int(total[0])} elements written")
            assert int(total[0]) == block
