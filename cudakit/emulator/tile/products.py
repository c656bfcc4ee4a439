"""Products of matrices: `mmaf`, `mmai`, `mmaf_scaled`. The sums are float32's, in the order of a BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.tile.decode import Decoder, Step, operation, pure
from cudakit.emulator.tile.values import dtype_of, unsigned, wide
from cudakit.jit.compile.tile_ir import Operation


@operation("mmaf")
def _floats(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])

    def product(a: Any, b: Any, c: Any) -> Any:
        return (np.matmul(wide(a), wide(b)) + wide(c)).astype(dtype, copy=False)

    return pure(given, product)


@operation("mmaf_scaled")
def _scaled(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])

    def product(a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
        depth = a.shape[-1]
        left = wide(a) * np.repeat(wide(scale_a), depth // scale_a.shape[-1], -1)
        right = wide(b) * np.repeat(wide(scale_b), depth // scale_b.shape[-2], -2)
        return (np.matmul(left, right) + wide(c)).astype(dtype)

    return pure(given, product)


@operation("mmai")
def _integer_product(given: Operation, decoder: Decoder) -> Step:
    lhs, rhs = (given.attributes[side] == "signed" for side in ("lhs", "rhs"))

    def product(a: Any, b: Any, c: Any) -> Any:
        left, right = (a if lhs else unsigned(a)), (b if rhs else unsigned(b))
        # Exact in float64, which has a BLAS: 16 bits a product, and no tile is as deep as 2^37.
        found = np.matmul(left.astype(np.float64), right.astype(np.float64))
        return found.astype(np.int64).astype(np.int32) + c

    return pure(given, product)
