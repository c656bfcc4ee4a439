"""Statistics of a file that is larger than the device memory the program allows itself.

Run: ``python examples/out_of_core.py``. Without a GPU it runs on the emulator, on a small file.

The file is mapped and passes through the device in chunks: while one chunk is computed, the next one is copied in, and
another one is read from the disk. The first pass computes mean, variance, minimum and maximum of each chunk, and the
host combines them. The second pass adds up the histogram on the device. Look at ``ck.memory.limit``: a program that
needed the whole file on the device would fail.

Prints::

    two passes of 0.25 MiB through 0.03125 MiB of device memory
    mean 1.502206, variance 3.277302, from -3.9401 to 7.1388
    checked against NumPy
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
    histogram: np.ndarray  # (64,) int64, equal bins from least to greatest


def main(arguments: Sequence[str] | None = None) -> Statistics:
    """Make a file, compute its statistics, check them against NumPy."""
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
            result = statistics(stream, path, allowed)
        elapsed = time.perf_counter() - start
        duration = f" in {elapsed:.2f} s" if on_gpu else ""
        print(f"two passes of {size / 2**20:g} MiB through {allowed / 2**20:g} MiB of device memory{duration}")
        print(
            f"mean {result.mean:.6f}, variance {result.variance:.6f}, from {result.least:.4f} to {result.greatest:.4f}"
        )
        check(path, result)
    return result


def write_values(path: Path, count: int) -> None:
    """Write `count` float32 values in pieces, half of them around 0 and half around 3."""
    rng = np.random.default_rng(5)
    with ck.pipeline.to_npy(path) as file:
        for first in range(0, count, 1 << 22):
            piece = rng.standard_normal(min(1 << 22, count - first), np.float32)
            piece[::2] += 3
            file.write(piece)


def statistics(stream: Any, path: Path, allowed: int) -> Statistics:
    """Return statistics of the float32 values in `path`, by two passes over chunks that fit `allowed` bytes."""
    # Up to four chunks are on the device at a time, with the results of the stages.
    chunks = ck.pipeline.from_array(path, max(1, allowed // 8 // 4))

    def moments(x: Any, stream: Any) -> tuple[Any, ...]:
        calls = (ck.ops.mean, ck.ops.var, ck.ops.min, ck.ops.max)
        return (x.size, *(call(x, stream=stream) for call in calls))

    parts = np.array(list(ck.Pipeline([moments], stream=stream, depth=4, progress=True)(chunks)), np.float64)
    sizes, means, variances, least, greatest = parts.T
    mean = np.average(means, weights=sizes)
    variance = np.average(variances + (means - mean) ** 2, weights=sizes)  # within the chunks, plus between them
    ends = float(least.min()), float(greatest.max())

    with ck.using(stream) as xp:
        total = xp.zeros(BINS, np.int64)

    def count(x: Any, stream: Any) -> Any:
        counts, _ = ck.ops.histogram(x, BINS, ends, stream=stream)
        ck.ops.add(total, counts, out=total, stream=stream)  # device stages run in order, so there is no race
        return total

    for so_far in ck.Pipeline([count], stream=stream, depth=4)(chunks):
        histogram = so_far
    return Statistics(int(sizes.sum()), float(mean), float(variance), *ends, histogram)


def check(path: Path, result: Statistics) -> None:
    """Compare with NumPy, which reads the whole file."""
    values = np.load(path, mmap_mode="r")
    assert result.count == values.size
    assert (result.least, result.greatest) == (values.min(), values.max())
    assert abs(result.mean - values.mean(dtype=np.float64)) < 1e-6
    assert abs(result.variance - values.var(dtype=np.float64)) < 1e-5
    assert result.histogram.sum() == values.size
    expected, _ = np.histogram(values, BINS, (result.least, result.greatest))
    # NumPy rounds its edges once more, so a value on an edge may be in either bin.
    assert np.abs(result.histogram - expected).sum() <= 1e-5 * values.size
    print("checked against NumPy")


if __name__ == "__main__":
    main()
