"""Compute statistics of a file that is larger than the allowed device memory.

Run: ``python examples/out_of_core.py``. Without a GPU it runs on the emulator, on a small file.

The file is memory-mapped and goes through the device in chunks. While one chunk is computed, the next is copied in,
and the one after is read from the disk. The first pass computes mean, variance, minimum and maximum: the host
combines the values of the chunks. The second pass computes the histogram between minimum and maximum on the device.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cudakit as ck

BINS = 64


class Statistics(NamedTuple):
    """Statistics of all values in the file."""

    count: int
    mean: float
    variance: float
    least: float
    greatest: float
    histogram: np.ndarray  # (64,) int64, equal bins from minimum to maximum


def main(arguments: Sequence[str] | None = None) -> Statistics:
    """Write a file, compute its statistics, compare them with NumPy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, help="size of the file; default: 2048 MiB on a GPU, 1/4 on the emulator")
    parser.add_argument("--allowed-mib", type=float, help="device memory; default: an eighth of the file")
    parser.add_argument("--file", type=Path, help="keep the file here; default: a temporary one")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    size = int((options.mib or (2048 if on_gpu else 0.25)) * 2**20)
    allowed = int(options.allowed_mib * 2**20) if options.allowed_mib else size // 8

    with tempfile.TemporaryDirectory() as folder:
        path = options.file or Path(folder) / "values.npy"
        write_values(path, size // 4)
        start = time.perf_counter()
        with ck.memory.limit(allowed):  # more device memory is an error
            found = statistics(stream, path, allowed)
        elapsed = time.perf_counter() - start
        took = f" in {elapsed:.2f} s" if on_gpu else ""
        print(f"{size / 2**20:g} MiB through {allowed / 2**20:g} MiB of device memory{took}, twice")
        print(f"mean {found.mean:.6f}, variance {found.variance:.6f}, from {found.least:.4f} to {found.greatest:.4f}")
        check(path, found)
    return found


def write_values(path: Path, count: int) -> None:
    """Write `count` float32 values in pieces, half of them around 0 and half around 3."""
    rng = np.random.default_rng(5)
    with ck.pipeline.to_npy(path) as file:
        for first in range(0, count, 1 << 22):
            piece = rng.standard_normal(min(1 << 22, count - first), np.float32)
            piece[::2] += 3
            file.write(piece)


def statistics(stream: Any, path: Path, allowed: int) -> Statistics:
    """Compute statistics of float32 values in two passes over chunks. All chunks fit `allowed` bytes."""
    # Up to four chunks are on the device at a time, and the results of the stages.
    chunks = ck.pipeline.from_array(path, max(1, allowed // 8 // 4))

    def moments(x: Any, stream: Any) -> tuple[Any, ...]:
        calls = (ck.ops.mean, ck.ops.var, ck.ops.min, ck.ops.max)
        return (x.size, *(call(x, stream=stream) for call in calls))

    parts = np.array(list(ck.Pipeline([moments], stream=stream, depth=4, progress=True)(chunks)), np.float64)
    sizes, means, variances, least, greatest = parts.T
    mean = np.average(means, weights=sizes)
    variance = np.average(variances + (means - mean) ** 2, weights=sizes)  # within the chunks, and between them
    ends = float(least.min()), float(greatest.max())

    with ck.using(stream) as xp:
        total = xp.zeros(BINS, np.int64)

    def count(x: Any, stream: Any) -> Any:
        counts, _ = ck.ops.histogram(x, BINS, ends, stream=stream)
        ck.ops.add(total, counts, out=total, stream=stream)  # device stages of all items run in order: no race
        return total

    for so_far in ck.Pipeline([count], stream=stream, depth=4)(chunks):
        histogram = so_far
    return Statistics(int(sizes.sum()), float(mean), float(variance), *ends, histogram)


def check(path: Path, found: Statistics) -> None:
    """Compare with NumPy, which reads the whole file."""
    values = np.load(path, mmap_mode="r")
    assert found.count == values.size
    assert (found.least, found.greatest) == (values.min(), values.max())
    assert abs(found.mean - values.mean(dtype=np.float64)) < 1e-6
    assert abs(found.variance - values.var(dtype=np.float64)) < 1e-5
    assert found.histogram.sum() == values.size
    expected, _ = np.histogram(values, BINS, (found.least, found.greatest))
    # NumPy rounds the edges once more: a value on an edge may fall on either side.
    assert np.abs(found.histogram - expected).sum() <= 1e-5 * values.size
    print("checked against NumPy")


if __name__ == "__main__":
    main()
