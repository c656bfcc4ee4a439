"""Host arrays that lie at no multiple of their elements' size, as pickles of other processes have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator


def misaligned(values: list[float]) -> np.ndarray:
    memory = np.zeros(4 * len(values) + 1, np.uint8)
    array = memory[1:].view(np.float32)
    array[:] = values
    assert not array.flags.aligned
    return array


X = [3.0, 1.0, 2.0]
CALLS: list[tuple[Any, Any]] = [
    (ck.elementwise("T x", "T z", "z = x + 1", name="more"), [4.0, 2.0, 3.0]),
    (ck.reduction("T x", "T z", "x", "a + b", identity="0", name="total"), 6.0),
    (ck.scan("T x", "T z", "x", "a + b", identity="0", name="running"), [3.0, 4.0, 6.0]),
    (ck.fuse(lambda x: x * 2), [6.0, 2.0, 4.0]),
    (ck.math.negative, [-3.0, -1.0, -2.0]),
    (ck.ops.cumsum, [3.0, 4.0, 6.0]),
    (ck.ops.sum, 6.0),
]


@pytest.mark.parametrize(
    ("function", "wanted"), CALLS, ids=["elementwise", "reduction", "scan", "fuse", "ufunc", *"ab"]
)
def test_inputs_are_taken(function: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(function(misaligned(X)), np.array(wanted, np.float32))


def test_an_output_is_refused() -> None:
    for call in (ck.ops.cumsum, CALLS[0][0], ck.math.negative):
        with pytest.raises(ck.ArgumentError, match=r"out.*does not lie at a multiple of its elements' size"):
            call(np.array(X, np.float32), out=misaligned(X))
