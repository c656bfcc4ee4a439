"""PyCUDA's GPUArray and cumath: NumPy is the referee."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from cudakit.adapters.pycuda.gpuarray import GPUArray, to_gpu

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.EmulatorWarning")

DTYPES = ("int8", "uint8", "int32", "uint64", "float16", "float32", "float64", "complex64")
OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)


def values(dtype: Any, shape: Any = (3, 5), seed: int = 0) -> np.ndarray:
    """Return numbers from 1 to 9, complex ones with an imaginary part."""
    drawn = np.random.default_rng(seed).integers(1, 10, shape)
    return (drawn + 1j * drawn[::-1] if np.dtype(dtype).kind == "c" else drawn).astype(dtype)


def close(array: GPUArray, expected: Any) -> None:
    expected = np.asarray(expected)
    assert (array.shape, array.dtype) == (expected.shape, expected.dtype)
    rtol = 4e-3 if expected.dtype == np.float16 else 1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-14
    np.testing.assert_allclose(array.get(), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("operation", OPERATORS)
def test_operators_have_numpys_values_and_dtypes(operation: Any, dtype: str) -> None:
    a, b = values(dtype), values("float32", seed=1)
    x, y = to_gpu(a), to_gpu(b)
    close(operation(x, y), operation(a, b))
    close(operation(x, 2.5), operation(a, 2.5))
    close(operation(2, y), operation(2, b))
    close(operation(y, x), operation(b, a))
