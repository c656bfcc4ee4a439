"""A tile kernel: blocks of elements are loaded, added and stored, and no thread is named.

The grid counts tiles. Look at the masked load and store: they cut off the part of the last tile that is beyond the
array. The ready-made op is `ck.ops.add`.

Prints::

    1000 elements in tiles of 256: agrees with NumPy
    1 elements in tiles of 256: agrees with NumPy
    4096 elements in tiles of 256: agrees with NumPy
"""

import sys

import numpy as np

import cudakit as ck

add = ck.Kernel("""
#include "cuda_tile.h"
namespace ct = cuda::tiles;

template <typename T, int TILE>
__tile_global__ void add(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int n) {
    auto tiles = [n](auto* p) { return ct::partition_view{ct::tensor_span{p, ct::extents{n}}, ct::shape<TILE>{}}; };
    int i = ct::bid().x;
    tiles(c).store_masked(tiles(a).load_masked(i) + tiles(b).load_masked(i), i);
}
""")
TILE = 256
stream = ck.stream()
try:
    add["float", TILE].compile(arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

for n in (1000, 1, 4096):
    a, b = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
    c = np.full(n, np.nan, np.float32)
    add["TILE":TILE](stream, ck.cover(n, tile=TILE), ck.In(a), ck.In(b), ck.Out(c), n)
    stream.sync()
    assert (c == a + b).all()
    print(f"{n} elements in tiles of {TILE}: agrees with NumPy")
