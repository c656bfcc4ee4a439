"""A mosaic of pictures that is larger than any memory: blurred and counted on one GPU, on several, or on a cluster.

Run: ``python examples/mosaic.py --gib 100``, with ``--devices 0,1`` for several GPUs in this process, or with
``--engine dask`` or ``--engine ray`` for one worker per GPU. Without a GPU it runs on the emulator, at a small size.

The picture has tiles of 256 by 256 pixels, each with rings around its middle, and is never in memory as a whole. A
worker gets the number of a band of rows. It draws the band on the device with two more rows above and below, blurs it
by a window of 5 by 5, and counts the bright pixels. ``--out`` keeps the blurred picture in a Zarr array, to which each
worker writes its own bands. Look at ``Bands``: a band is computed from its number alone, so any worker may repeat it.
All numbers are integers, so the result is the same on every device, and in NumPy.

Prints::

    2,850 of 512 × 256 pixels are bright
    checked against NumPy
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit import pipeline as lines

TILE, RADIUS, BRIGHT = 256, 2, 200
SOURCE = """
// A pixel of the mosaic: rings around the middle of its tile. The tile decides how wide they are.
__global__ void draw(unsigned char* band, long long first, int rows, int width, long long height) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (long long)rows * width;
         i += (long long)gridDim.x * blockDim.x) {
        const long long row = first + i / width, column = i % width;
        const long long y = row % 256 - 128, x = column % 256 - 128;
        const long long rhythm = 3 + (row / 256 * 7 + column / 256 * 5) % 11;
        band[i] = row < 0 || row >= height ? 0 : (x * x + y * y) / rhythm % 256;
    }
}

// The mean of 5 by 5 pixels, rounded down. Pixels outside the picture count as 0.
__global__ void blur(const unsigned char* band, unsigned char* blurred, int rows, int width) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (long long)rows * width;
         i += (long long)gridDim.x * blockDim.x) {
        const int column = i % width;
        int sum = 0;
        for (int dy = 0; dy < 5; dy++)
            for (int dx = -2; dx <= 2; dx++)
                if (column + dx >= 0 && column + dx < width) sum += band[i + dy * width + dx];
        blurred[i] = sum / 25;
    }
}
"""
draw, blur = ck.Kernel(SOURCE, "draw"), ck.Kernel(SOURCE, "blur")


class Bands:
    """The stages of the pipeline for one band of rows. Worker processes receive a copy."""

    def __init__(self, height: int, width: int, rows: int, out: str | None) -> None:
        self.height, self.width, self.rows, self.out = height, width, rows, out

    def numbers(self) -> Iterator[np.ndarray]:
        """Yield the bands: for each the number of its first row, and the number of its rows."""
        for first in range(0, self.height, self.rows):
            yield np.array([first, min(self.rows, self.height - first)])

    def ready(self, band: np.ndarray) -> tuple[int, int, np.ndarray]:
        """On the host: return the numbers as ints."""
        return int(band[0]), int(band[1]), np.empty(0, np.uint8)

    def on_device(self, item: tuple[int, int, Any], stream: Any) -> tuple[int, Any, Any]:
        """On the device: draw, blur, count."""
        first, rows, _ = item
        with ck.using(stream) as xp:
            band = xp.empty((rows + 2 * RADIUS, self.width), np.uint8)
            blurred = xp.empty((rows, self.width), np.uint8)
            draw(stream, ck.cover(band.size), band, first - RADIUS, rows + 2 * RADIUS, self.width, self.height)
            blur(stream, ck.cover(blurred.size), band, blurred, rows, self.width)
            bright = ck.ops.count_nonzero(ck.math.greater(blurred, BRIGHT, stream=stream), stream=stream)
            return first, bright, blurred if self.out else None

    def keep(self, item: tuple[int, Any, np.ndarray | None]) -> int:
        """On the host: write the band if `out` names an array; return the number of bright pixels."""
        first, bright, blurred = item
        if blurred is not None:
            import zarr

            zarr.open_array(self.out, mode="r+")[first : first + len(blurred)] = blurred
        return int(bright)


@contextlib.contextmanager
def engine_of(name: str, workers: int) -> Iterator[Any]:
    """Start Dask or Ray on this machine, reachable from this machine only. A cluster's client works as well."""
    if name == "dask":
        from dask.distributed import Client, LocalCluster

        options = {"n_workers": workers, "threads_per_worker": 1, "host": "127.0.0.1"}
        with LocalCluster(**options, dashboard_address="127.0.0.1:0") as cluster, Client(cluster) as client:
            yield client
    elif name == "ray":
        import ray

        ray.init(
            include_dashboard=False, _node_ip_address="127.0.0.1", **({} if ck.has_gpu() else {"num_cpus": workers})
        )
        yield ray
        ray.shutdown()
    else:
        yield None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return the number of bright pixels of the mosaic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, help="size of the mosaic; default: 100 GiB on a GPU, 128 KiB without")
    parser.add_argument("--band-mib", type=float, help="size of a band; default: 64 MiB on a GPU, 16 KiB without")
    parser.add_argument("--devices", help="GPUs of this process, such as 0,1")
    parser.add_argument("--engine", choices=("here", "dask", "ray"), default="here", help="where the workers run")
    parser.add_argument("--workers", type=int, default=2, help="number of workers of the engine")
    parser.add_argument("--out", type=Path, help="a Zarr array for the blurred mosaic")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu()
    size = int((options.gib or (100 if on_gpu else 2**-13)) * 2**30)
    band = int((options.band_mib or (64 if on_gpu else 2**-6)) * 2**20)
    width = max(TILE, int(size**0.5) // TILE * TILE)
    height, rows = max(1, size // width), max(1, band // width)
    if options.out:
        import zarr

        zarr.open_array(str(options.out), mode="w", shape=(height, width), chunks=(rows, width), dtype="u1")
    work = Bands(height, width, rows, str(options.out.absolute()) if options.out else None)
    devices = [int(number) for number in options.devices.split(",")] if options.devices else None
    stages = [lines.host(work.ready), work.on_device, lines.host(work.keep)]

    start = time.perf_counter()
    with ck.Pipeline(stages, devices=devices, progress=options.engine == "here") as pipeline:
        if options.engine == "here":
            bright = sum(pipeline(work.numbers()))
        else:
            with engine_of(options.engine, options.workers) as engine:
                start = time.perf_counter()
                results = ck.scale.map(pipeline, work.numbers(), engine=engine, ordered=False, progress=True)
                bright = sum(results)
    elapsed = time.perf_counter() - start
    rate = f"; {elapsed:.2f} s, {height * width / elapsed / 1e9:.1f} GB/s" if on_gpu else ""
    print(f"{bright:,} of {height:,} × {width:,} pixels are bright{rate}")
    if height * width <= 2**24:
        check(work, bright, options.out)
    return bright


def check(work: Bands, bright: int, out: Path | None) -> None:
    """Compare with NumPy, on the whole mosaic."""
    row, column = np.ogrid[: work.height, : work.width]
    rhythm = 3 + (row // TILE * 7 + column // TILE * 5) % 11
    mosaic = ((row % TILE - 128) ** 2 + (column % TILE - 128) ** 2) // rhythm % 256
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(mosaic, RADIUS), (5, 5))
    blurred = windows.sum(axis=(2, 3)) // 25
    assert bright == np.count_nonzero(blurred > BRIGHT)
    if out:
        import zarr

        assert np.array_equal(zarr.open_array(str(out), mode="r")[:], blurred)
    print("checked against NumPy")


if __name__ == "__main__":
    main()
