"""Arrays to sort, with elements that are equal, and their order by NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.places import to_host
from support.views import bits

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def some(shape: Any, dtype: np.dtype, seed: int = 0) -> np.ndarray:
    """Random bits, of which a part are few values that come often, zeros of both signs among them."""
    found = bits(shape, dtype, seed)
    generator = np.random.default_rng(seed)
    few_values = np.array([0, 1, 0, 1], dtype) if dtype.kind in "?ui" else np.array([0.0, -0.0, 1.5, np.nan], dtype)
    return np.where(generator.random(shape) < 0.3, generator.choice(few_values, shape), found).astype(dtype)


def order_of(host: np.ndarray, axis: int | None = -1, is_descending: bool = False) -> np.ndarray:
    """NumPy's stable order; the greatest first by the order of what is turned round."""
    wide = host.astype("f4") if host.dtype == BFLOAT16 else host
    if not is_descending:
        return np.argsort(wide, axis, kind="stable")
    if axis is None:
        wide, axis = wide.reshape(-1), 0
    turned = np.argsort(np.flip(wide, axis), axis, kind="stable")
    return np.flip(wide.shape[axis] - 1 - turned, axis)


def taken(host: np.ndarray, order: np.ndarray, axis: int | None = -1) -> np.ndarray:
    return host.reshape(-1)[order] if axis is None else np.take_along_axis(host, order, axis)


def check(got: Any, want: np.ndarray) -> None:
    host = to_host(got)
    assert host.dtype == want.dtype
    assert host.shape == want.shape
    assert host.tobytes() == np.ascontiguousarray(want).tobytes()
