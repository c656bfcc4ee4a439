"""What the tests of pickles and of `ck.scale` send to other processes: all of it is found there by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit import pipeline as lines

ROOT = Path(__file__).parents[2]
#: The PYTHONPATH with which another process finds cudakit, what is here, and what this process was given.
PATH = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])

SQUARE = """
template <typename T>
__global__ void square(const T* x, T* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] * x[i];
}
"""
square = ck.Kernel(SQUARE)


@ck.fuse
def half_of_square(x: Any) -> Any:
    return x * x / 2


def stage(x: Any, stream: Any) -> Any:
    with ck.using(stream) as xp:
        y = xp.empty_like(x)
    square(stream, ck.cover(x.size), x, y, x.size)
    return y


def squares() -> ck.Pipeline:
    return ck.Pipeline([lines.host(np.ascontiguousarray), stage])


def plain_square(x: np.ndarray) -> np.ndarray:
    return x * x


def fails_on_three(x: np.ndarray) -> np.ndarray:
    if x[0] == 3:
        raise ValueError("three")
    return x


def where(x: np.ndarray) -> tuple[int, float]:
    return os.getpid(), float(x[0])


class Journal:
    """A function of a chunk that writes a line into a folder each time that it has worked one out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, x: np.ndarray) -> np.ndarray:
        with (self.folder / f"{os.getpid()}.txt").open("a") as file:
            file.write(f"{int(x[0])}\n")
        return x + 1
