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
x_host = rng.integers(-1000, 1000, 5000).astype(np.float32)  # integers: sums are exact in any order
chosen_host = rng.integers(0, x_host.size, 700)
group_host = rng.integers(0, 10, x_host.size, dtype=np.int32)
x, chosen, group = (ck.to_device(array, stream) for array in (x_host, chosen_host, group_host))
with ck.using(stream) as xp:
    direct = float(sum_chosen(x, chosen, stream=stream))
    taken = float(ck.ops.sum(ck.ops.take(x, chosen, stream=stream), stream=stream))
    assert direct == taken == x_host[chosen_host].sum()
    print("sum of x[chosen]:     agrees with NumPy, by a raw parameter and by ck.ops.take")

    least = float(min_chosen(x, chosen, stream=stream))
    assert least == x_host[chosen_host].min()
    print("minimum of x[chosen]: agrees with NumPy")

    sums = xp.zeros(10, dtype=xp.float32)
    sum_groups(stream, ck.cover(x.size), x, group, sums, x.size)
    np.testing.assert_array_equal(ck.to_host(sums, stream), np.bincount(group_host, weights=x_host, minlength=10))
    print("sums by group:        agree with NumPy")
