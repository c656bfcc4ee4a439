"""Three hundred faulty candidates, eleven beside a right one that does more work: none wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import cudakit as ck

#: What each fault does to the value of element i of n, before `STORE` writes it; `at` is drawn by the seed.
FAULTS = {
    1: "wrong at one element",
    2: "the last block writes nothing",
    3: "wrong for odd sizes",
    4: "believes old output that is a number",
    5: "one thread's result overtakes another's",
    6: "writes past the end too",
    7: "wrong by one in a hundred",
    8: "right for the tuned data only",
    9: "reads shared memory that nobody wrote",
    10: "wrong for half of the warps",
    11: "leaves memory of the heap allocated",
}
#: Faults that show before anything is measured.
AT_ONCE = (1, 2, 6, 7, 10)
STORE = """
template <int FAULT> __device__ void store(const float* x, float* y, int i, int n, int at, float value) {
    __shared__ float s[64];
    if (FAULT == 1 && i == at) value += 1;
    if (FAULT == 2 && blockIdx.x == gridDim.x - 1) return;
    if (FAULT == 3 && n % 2 && i == n - 1) value = 0;
    if (FAULT == 4 && y[i] == y[i] && i >= at) return;
    if (FAULT == 5) { s[threadIdx.x] = value; value = i % 2 ? value : value + s[threadIdx.x ^ 1] - s[threadIdx.x ^ 1]; }
    if (FAULT == 6 && i == at) y[n] = value;
    if (FAULT == 7 && i >= at) value *= 1.01f;
    if (FAULT == 8 && i >= at) value = y[i] = expected(i, n);
    if (FAULT == 9) value += 0 * s[threadIdx.x ^ 1];
    if (FAULT == 10 && threadIdx.x / 32 % 2 && i >= at % 32) value = 0;
    if (FAULT == 11 && i == at) *(volatile float*)malloc(4) = value;
    y[i] = value;
    if (FAULT == 0) for (int k = 0; k < 60; k++) y[i] = value + 0 * y[i];
}
"""
HEAD = "template <int FAULT> __global__ void f(const float* x, float* y, int n, int at) {\n"
INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;\n"


class Case(NamedTuple):
    """A kernel: its body, what it computes of arange(n), and the same in NumPy."""

    body: str
    expected: str
    function: Callable[[np.ndarray], np.ndarray]


CASES = {
    "add": Case("store<FAULT>(x, y, i, n, at, x[i] + 1);", "i + 2", lambda x: x + 1),
    "reverse": Case("store<FAULT>(x, y, i, n, at, x[n - 1 - i]);", "n - i", lambda x: x[::-1]),
    "stencil": Case(
        "store<FAULT>(x, y, i, n, at, x[i] + x[i ? i - 1 : 0]);",
        "i ? 2 * i + 1 : 2",
        lambda x: x + np.concatenate([x[:1], x[:-1]]),
    ),
    "gather": Case(
        "store<FAULT>(x, y, i, n, at, 3 * x[i * 7 % n]);",
        "3 * (i * 7 % n + 1)",
        lambda x: 3 * x[np.arange(x.size) * 7 % x.size],
    ),
    "polynomial": Case("store<FAULT>(x, y, i, n, at, x[i] * x[i] - x[i]);", "(i + 1) * i", lambda x: x * x - x),
}


#: Elements of the tuned arrays. A check is a function for those at even places, and the first candidate for others.
SIZES = (97, 98, 100, 99, 101, 102)


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("seed", range(len(SIZES)))
@pytest.mark.parametrize("name", CASES)
def test_no_faulty_candidate_wins(name: str, seed: int) -> None:
    case, size = CASES[name], SIZES[seed]
    expected = f"__device__ float expected(int i, int n) {{ return {case.expected}; }}\n"
    kernel = ck.Kernel(expected + STORE + HEAD + INDEX + case.body + "\n}")
    stream = ck.emulator.stream()
    at = int(np.random.default_rng([seed, *name.encode()]).integers(0, 60))

    def arguments(stream: Any, n: int) -> tuple[Any, ...]:
        x = np.arange(n, dtype=np.float32) + 1
        # Right results of a run before lie in the output.
        return ck.to_device(x, stream), ck.to_device(case.function(x).astype(np.float32), stream), n, at

    tuned = ck.tune(
        kernel, arguments, {"FAULT": [0, *FAULTS]}, sizes=[size], seed=seed,
        config=lambda n: ck.config(-(-n // 64), 64), objective="instructions", strategy="exhaustive", workers=0,
        stream=stream, check=None if seed % 2 else lambda x, y, n, at: case.function(x),
    )  # fmt: skip
    (result,) = tuned.values()
    assert result.best == {"FAULT": 0}, result
    losers = {row.point["FAULT"]: row for row in result.table if row.point["FAULT"]}
    assert losers.keys() == FAULTS.keys()
    for fault, loser in losers.items():
        assert loser.state in ("wrong", "failed"), (FAULTS[fault], loser)
        shows_at_once = fault in AT_ONCE or (fault == 3 and size % 2 == 1)
        assert (loser.value is None) == shows_at_once, (FAULTS[fault], loser)
