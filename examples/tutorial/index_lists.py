"""Sums and minima over a list of indices, and sums by group.

A `raw` parameter is indexed by the expression itself, so a reduction can read `x[index]` without a copy of the chosen
elements. Look at the three ways: a raw parameter, `ck.ops.take` before a sum, and a kernel with atomic additions. The
ready-made op for sums by group is `ck.ops.bincount` with `weights=`.

Prints::

    sum of x[chosen]:     agrees with NumPy, by a raw parameter and by ck.ops.take
    minimum of x[chosen]: agrees with NumPy
    sums by group:        agree with NumPy
"""

import numpy as np

import cudakit as ck

# A raw parameter is a whole array: the expression indexes it.
sum_chosen = ck.reduction(
    "raw T x, int64 index", "T out", map="x[index]", reduce="a + b", identity="0", name="sum_chosen"
)
min_chosen = ck.reduction(
    "raw T x, int64 index",
    "T out",
    map="x[index]",
    reduce="a < b ? a : b",
    identity="INFINITY",
    preamble="#include <cmath>",
    name="min_chosen",
)
sum_groups = ck.Kernel("""
template <typename T>
__global__ void sum_groups(const T* x, const int* group, T* sums, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&sums[group[i]], x[i]);  // several threads may have the same group
}
""")

stream = ck.stream()
rng = np.random.default_rng(8)
host_x = rng.integers(-1000, 1000, 5000).astype(np.float32)  # integers: sums are exact in any order
host_chosen = rng.integers(0, host_x.size, 700)
host_group = rng.integers(0, 10, host_x.size, dtype=np.int32)
x, chosen, group = (ck.to_device(array, stream) for array in (host_x, host_chosen, host_group))
with ck.using(stream) as xp:
    direct = float(sum_chosen(x, chosen, stream=stream))
    taken = float(ck.ops.sum(ck.ops.take(x, chosen, stream=stream), stream=stream))
    assert direct == taken == host_x[host_chosen].sum()
    print("sum of x[chosen]:     agrees with NumPy, by a raw parameter and by ck.ops.take")

    least = float(min_chosen(x, chosen, stream=stream))
    assert least == host_x[host_chosen].min()
    print("minimum of x[chosen]: agrees with NumPy")

    sums = xp.zeros(10, dtype=xp.float32)
    sum_groups(stream, ck.cover(x.size), x, group, sums, x.size)
    np.testing.assert_array_equal(ck.to_host(sums, stream), np.bincount(host_group, weights=host_x, minlength=10))
    print("sums by group:        agree with NumPy")
