"""Attention by tiles: softmax(q kᵀ) v for all heads, without the matrix of all products in memory.

A block holds one tile of queries and goes over the keys tile by tile. It keeps the largest product, the sum of
exponentials and the sum of values for each query, and rescales the sums when a larger product comes. Look at the loop:
it is the whole algorithm. The ready-made op is `ck.ops.attention`, with tile sizes that were measured.

Prints::

    4 heads of 100 queries: agrees with NumPy
    4 heads of 100 queries, causal: agrees with NumPy
    4 heads of 100 queries, transposed keys: agrees with NumPy
    ck.ops.attention: agrees with NumPy
"""

import sys

import numpy as np

import cudakit as ck

kernel = ck.Kernel("""
#include <cuda_fp16.h>
#include <cudakit/tensor.cuh>
namespace ct = cuda::tiles;
using namespace ct::literals;

template <typename T, int D, int BQ, int BK, bool CAUSAL>
__tile_global__ void attention(cudakit::tensor<const T, 3> q, cudakit::tensor<const T, 3> k,
                               cudakit::tensor<const T, 3> v, cudakit::tensor<T, 3> out, float scale) {
    const int tile = ct::bid().x, head = ct::bid().y, keys = k.extent(1);
    auto query = ct::reshape(view<1, BQ, D>(q).load_masked(head, tile, 0), ct::shape<BQ, D>{});
    auto row = ct::reshape(ct::iota<ct::tile<int, ct::shape<BQ>>>(), ct::shape<BQ, 1>{}) + tile * BQ;
    auto largest = ct::full<ct::tile<float, ct::shape<BQ, 1>>>(-1e30f);
    auto sum = ct::zeros<ct::tile<float, ct::shape<BQ, 1>>>();
    auto values = ct::zeros<ct::tile<float, ct::shape<BQ, D>>>();
    const int end = CAUSAL ? ct::min(keys, (tile + 1) * BQ) : keys;
    for (auto i : ct::irange(0, (end + BK - 1) / BK)) {
        auto key = ct::reshape(view<1, BK, D>(k).load_masked(head, i, 0), ct::shape<BK, D>{});
        auto value = ct::reshape(view<1, BK, D>(v).load_masked(head, i, 0), ct::shape<BK, D>{});
        auto products = ct::mma(query, ct::transpose(key), ct::zeros<ct::tile<float, ct::shape<BQ, BK>>>()) * scale;
        auto column = ct::reshape(ct::iota<ct::tile<int, ct::shape<BK>>>(), ct::shape<1, BK>{}) + i * BK;
        auto last_key = CAUSAL ? row : ct::full<ct::tile<int, ct::shape<BQ, 1>>>(keys);
        auto is_visible = column < keys && column <= last_key;
        products = ct::select(is_visible, products, ct::full<ct::tile<float, ct::shape<BQ, BK>>>(-1e30f));
        auto new_largest = ct::max(largest, ct::reduce_max(products, 1_ic));
        auto weights = ct::exp(products - new_largest);
        auto rescale = ct::exp(largest - new_largest);
        sum = sum * rescale + ct::sum(weights, 1_ic);
        values = ct::mma(ct::element_cast<T>(weights), value, values * rescale);
        largest = new_largest;
    }
    auto result = ct::reshape(ct::element_cast<T>(values / sum), ct::shape<1, BQ, D>{});
    view<1, BQ, D>(out).store_masked(result, head, tile, 0);
}
""")
heads, length, D, BQ, BK = 4, 100, 32, 32, 16
attention = {causal: kernel["D":D, "BQ":BQ, "BK":BK, "CAUSAL":causal] for causal in (False, True)}
stream = ck.stream()
try:
    for instance in attention.values():
        instance.compile("f2", "f2", "f2", "f2", arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

rng = np.random.default_rng(0)
Q, K, V = (rng.standard_normal((heads, length, D), np.float32).astype(np.float16) for _ in range(3))
scale = D**-0.5


def by_numpy(causal: bool) -> np.ndarray:
    """Return the attention, by NumPy, in float64, with all products in memory."""
    products = Q.astype(np.float64) @ K.astype(np.float64).transpose(0, 2, 1) * scale
    if causal:
        products[:, ~np.tri(length, dtype=bool)] = -np.inf
    weights = np.exp(products)
    return weights / weights.sum(2, keepdims=True) @ V


q, k, v = (ck.to_device(array, stream) for array in (Q, K, V))
k_transposed = ck.to_device(K.transpose(0, 2, 1).copy(), stream).transpose(0, 2, 1)
grid = ck.cover((heads, length), tile=(1, BQ))
for label, keys, causal in (("", k, False), (", causal", k, True), (", transposed keys", k_transposed, False)):
    out = np.full((heads, length, D), np.nan, np.float16)
    attention[causal](stream, grid, q, keys, v, ck.Out(out), scale)
    stream.sync()
    # Weights and results are rounded to float16.
    np.testing.assert_allclose(out, by_numpy(causal), atol=2e-3)
    print(f"{heads} heads of {length} queries{label}: agrees with NumPy")

host_result = ck.to_host(ck.ops.attention(q, k, v, stream=stream), stream)
np.testing.assert_allclose(host_result, by_numpy(False), atol=2e-3)
print("ck.ops.attention: agrees with NumPy")
