"""Masked arrays are refused wherever an array is taken: their mask would be lost."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator, pipeline
from cudakit.pipeline import sources

pytestmark = pytest.mark.emulator

ADD = ck.Kernel("__global__ void add(float* x, const float* y) { x[threadIdx.x] += y[threadIdx.x]; }")
TABLE = ck.Kernel("__constant__ float table[3]; __global__ void read(float* x) { *x = table[0]; }")


def masked(dtype: Any = "f4") -> Any:
    return np.ma.array([1, 2, 4], mask=[0, 1, 0], dtype=dtype)


def plain() -> np.ndarray:
    return np.zeros(3, "f4")


def add(x: Any, y: Any) -> None:
    ADD(emulator.stream(), ck.config(1, 3), x, y)


def send_masked() -> None:
    here, there = socket.socketpair()
    with here, there:
        sources.send(here, masked())


def ways(folder: Path) -> dict[str, Callable[[], Any]]:
    stream = emulator.stream()
    double = ck.elementwise("T x", "T y", "y = x + x")
    total = ck.reduction("T x", "T out", map="x", reduce="a + b", identity="0")
    running = ck.scan("T x", "T y", map="x", reduce="a + b", identity="0", output="y = item")
    fused = ck.fuse(lambda x: np.sqrt(x))
    return {
        "argument": lambda: add(plain(), masked()),
        "output": lambda: add(masked(), plain()),
        "In": lambda: add(plain(), ck.In(masked())),
        "InOut": lambda: add(ck.InOut(masked()), plain()),
        "sum": lambda: ck.ops.sum(masked()),
        "mean": lambda: ck.ops.mean(masked()),
        "cumsum": lambda: ck.ops.cumsum(masked()),
        "softmax": lambda: ck.ops.softmax(masked()),
        "transpose": lambda: ck.ops.transpose(masked()),
        "compact": lambda: ck.ops.compact(plain(), masked(bool)),
        "histogram": lambda: ck.ops.histogram(masked(), 4, (0, 4)),
        "out=": lambda: ck.ops.add(plain(), plain(), out=masked()),
        "elementwise": lambda: double(masked()),
        "reduction": lambda: total(masked()),
        "scan": lambda: running(masked()),
        "fuse": lambda: fused(masked()),
        "math": lambda: ck.math.sin(masked()),
        "to_device": lambda: ck.to_device(masked(), stream),
        "to_host": lambda: ck.to_host(plain(), stream, out=masked()),
        "texture": lambda: ck.texture(masked()),
        "globals": lambda: TABLE.globals.write("table", masked(), stream),
        "capture": lambda: ck.capture(stream, x=masked()).__enter__(),
        "pipeline": lambda: list(ck.Pipeline([lambda x, stream: x], stream=stream)([masked()])),
        "frame": send_masked,
        "image": lambda: pipeline.write_image(folder / "a.png", np.ma.zeros((4, 4), np.uint8)),
    }


NAMES = list(ways(Path()))


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_array_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises((ck.ArgumentError, ck.PipelineError), match="a masked array's mask would be lost"):
        ways(tmp_path)[name]()
    assert not list(tmp_path.iterdir())


def test_what_a_masked_array_says_to_give_is_taken() -> None:
    x = masked()
    assert ck.ops.sum(x.filled(0)) == 5
    assert ck.ops.sum(x.compressed()) == 5
    assert ck.ops.sum(x.data) == 7
