"""Attention on one page: softmax(q kᵀ) v for all heads, by tiles, with no matrix of all products in memory.

A block has the queries of one tile and goes over the keys, a tile at a time. It keeps the greatest product of each
query so far, the sum of exponentials, and the sum of values; where a greater product comes, what was summed before is
made less by as much. `ck.ops.attention` is this, with the tiles that were measured. Needs NVRTC 13.5 and, on a GPU, the
extra `tile`.

Prints::

    4 heads of 100 queries: as NumPy has it
    4 heads of 100 queries, which see the keys up to their own: as NumPy has it
    4 heads of 100 queries, turned keys: as NumPy has it
    ck.ops.attention: as NumPy has it
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
    auto most = ct::full<ct::tile<float, ct::shape<BQ, 1>>>(-1e30f);
    auto sum = ct::zeros<ct::tile<float, ct::shape<BQ, 1>>>();
    auto values = ct::zeros<ct::tile<float, ct::shape<BQ, D>>>();
    const int end = CAUSAL ? ct::min(keys, (tile + 1) * BQ) : keys;
    for (auto i : ct::irange(0, (end + BK - 1) / BK)) {
        auto key = ct::reshape(view<1, BK, D>(k).load_masked(head, i, 0), ct::shape<BK, D>{});
        auto value = ct::reshape(view<1, BK, D>(v).load_masked(head, i, 0), ct::shape<BK, D>{});
        auto products = ct::mma(query, ct::transpose(key), ct::zeros<ct::tile<float, ct::shape<BQ, BK>>>()) * scale;
        auto column = ct::reshape(ct::iota<ct::tile<int, ct::shape<BK>>>(), ct::shape<1, BK>{}) + i * BK;
        auto last = CAUSAL ? row : row * 0 + keys;
        auto seen = column < keys && column <= last;
        products = ct::select(seen, products, ct::full<ct::tile<float, ct::shape<BQ, BK>>>(-1e30f));
        auto now = ct::max(most, ct::reduce_max(products, 1_ic));
        auto weights = ct::exp(products - now);
        auto before = ct::exp(most - now);
        sum = sum * before + ct::sum(weights, 1_ic);
        values = ct::mma(ct::element_cast<T>(weights), value, values * before);
        most = now;
    }
    auto made = ct::reshape(ct::element_cast<T>(values / sum), ct::shape<1, BQ, D>{});
    view<1, BQ, D>(out).store_masked(made, head, tile, 0);
}
""")
heads, length, D, BQ, BK = 4, 100, 32, 32, 16
attention = {causal: kernel["D":D, "BQ":BQ, "BK":BK, "CAUSAL":causal] for causal in (False, True)}
stream = ck.stream()
try:
    for each in attention.values():
        each.compile("f2", "f2", "f2", "f2", arch="sm_90", target="cubin" if ck.has_gpu() else "tileir")
except ck.CompileError as error:
    print(f"no tile kernels here: {str(error).splitlines()[0]}")
    sys.exit()

rng = np.random.default_rng(0)
Q, K, V = (rng.standard_normal((heads, length, D), np.float32).astype(np.float16) for _ in range(3))
scale = D**-0.5


def wanted(causal: bool) -> np.ndarray:
    """What NumPy makes of it, in float64, with all products in memory."""
    products = Q.astype(np.float64) @ K.astype(np.float64).transpose(0, 2, 1) * scale
    if causal:
        products[:, ~np.tri(length, dtype=bool)] = -np.inf
    weights = np.exp(products)
    return weights / weights.sum(2, keepdims=True) @ V


q, k, v = (ck.to_device(each, stream) for each in (Q, K, V))
turned = ck.to_device(K.transpose(0, 2, 1).copy(), stream).transpose(0, 2, 1)
grid = ck.cover((heads, length), tile=(1, BQ))
causally = ", which see the keys up to their own"
for kind, keys in (("", k), (causally, k), (", turned keys", turned)):
    causal = kind == causally
    out = np.full((heads, length, D), np.nan, np.float16)
    attention[causal](stream, grid, q, keys, v, ck.Out(out), scale)
    stream.sync()
    # Weights are rounded to float16 before they are multiplied by values, and so are results.
    np.testing.assert_allclose(out, wanted(causal), atol=2e-3)
    print(f"{heads} heads of {length} queries{kind}: as NumPy has it")

found = ck.to_host(ck.ops.attention(q, k, v, stream=stream), stream)
np.testing.assert_allclose(found, wanted(False), atol=2e-3)
print("ck.ops.attention: as NumPy has it")
