"""What the pipelines' tests share."""

from __future__ import annotations

from typing import Any

import numpy as np

import cudakit as ck
from cudakit.streams import witnesses as work

ADD = """
__global__ void add(const float* x, float* y, float what, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + what;
}
"""


def adding(xp: Any, what: float) -> Any:
    kernel = ck.Kernel(ADD)

    def add(x: Any, stream: Any) -> Any:
        y = xp.empty_like(x)
        kernel(stream, ck.config(1, 64), x, y, what, x.size)
        return y

    return add


def items(count: int, size: int = 8) -> list[np.ndarray]:
    return [np.full(size, number, np.float32) for number in range(count)]


class Listener(work.Witness):
    """Hears of all work."""

    def __init__(self) -> None:
        self.heard: list[work.Work] = []

    def begin(self, told: work.Work) -> None:
        self.heard.append(told)
