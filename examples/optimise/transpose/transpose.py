"""A matrix transposed, made fast in two steps: three kernels of ``transpose.cu``, checked, counted and timed.

Run: ``python examples/optimise/transpose/transpose.py``. Without a GPU the kernels run on the emulator, which counts
their traffic and measures no time. Read ``transpose.cu`` beside it, from the top. Look at the sectors of a load and of
a store, and at the bank conflicts. The ready-made op is ``ck.ops.transpose``.

Prints::

        naive: right
               4 sectors a load, 32 a store, 4 are enough; 0 bank conflicts
               a warp reads a row, 4 sectors, and writes a column, 32 sectors, of which it uses 4 bytes each
    coalesced: right
               4 sectors a load, 4 a store, 4 are enough; 15,872 bank conflicts
               a tile in shared memory: rows on both sides; but a column of the tile is in one bank, 32 turns
         fast: right
               16 sectors a load, 16 a store, 16 are enough; 0 bank conflicts
               four accesses of 16 bytes under way; the tile is rearranged, so that no two lanes need one bank
    time: needs a GPU
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit.demo import median_ms

SOURCE = Path(__file__).parent / "transpose.cu"

#: For each kernel, its access to memory, and what the next kernel improves.
STEPS = {
    "naive": "a warp reads a row, 4 sectors, and writes a column, 32 sectors, of which it uses 4 bytes each",
    "coalesced": "a tile in shared memory: rows on both sides; but a column of the tile is in one bank, 32 turns",
    "fast": "four accesses of 16 bytes under way; the tile is rearranged, so that no two lanes need one bank",
}


def main(arguments: Sequence[str] | None = None) -> dict[str, bool]:
    """Run, check and time the kernels; return whether the result of each is right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--side", type=int, help="rows and columns, a multiple of 64; default: 16384 on a GPU, else 128"
    )
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    rows = columns = (16384 if on_gpu else 128) if options.side is None else options.side
    if rows <= 0 or rows % 64:
        parser.error(f"--side {rows} is not a positive multiple of 64")
    results = {}
    with ck.using(stream) as xp:
        # The bits of 0, 1, 2, … as floats: all are different.
        x = xp.arange(rows * columns, dtype=np.int32).view(np.float32).reshape(rows, columns)
        out = xp.empty((columns, rows), np.float32)
        if on_gpu:
            report("copy", median_ms(stream, lambda: xp.copyto(out, x)), x)
            print("           the limit: as many bytes read and written, in order")
        for name, config in configurations(rows, columns).items():
            kernel = ck.Kernel.from_file(SOURCE, name)
            launch = launcher(kernel, stream, config, x, out)
            out.fill(-1)
            launch()
            results[name] = bool((out == x.T).all())
            print(f"{name:>9}: {'right' if results[name] else 'WRONG'}")
            if on_gpu:
                report(name, median_ms(stream, launch), x)
            print(f"           {traffic(kernel, name)}")
            print(f"           {STEPS[name]}")
    if not on_gpu:
        print("time: needs a GPU")
    return results


def configurations(rows: int, columns: int) -> dict[str, ck.Config]:
    """Return the launch configuration of each kernel, as ``transpose.cu`` states it."""
    return {
        "naive": ck.config((columns // 32, rows // 8), (32, 8)),
        "coalesced": ck.config((columns // 32, rows // 32), (32, 8)),
        "fast": ck.config(rows // 64 * (columns // 64), 256),
    }


def traffic(kernel: ck.Kernel, name: str) -> str:
    """Return the traffic of a kernel for 128 × 128 elements, counted on the emulator."""
    x, out = np.zeros((128, 128), np.float32), np.zeros((128, 128), np.float32)
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as counters:
        kernel(stream, configurations(128, 128)[name], x, out, 128, 128)
    loads, stores = counters.global_.loads, counters.global_.stores
    return (
        f"{loads.sectors / loads.requests:.0f} sectors a load, {stores.sectors / stores.requests:.0f} a store, "
        f"{loads.least_sectors / loads.requests:.0f} are enough; {counters.shared.bank_conflicts:,} bank conflicts"
    )


def launcher(kernel: ck.Kernel, stream: Any, config: ck.Config, x: Any, out: Any) -> Callable[[], None]:
    """Return a function that launches the kernel."""
    return lambda: kernel(stream, config, x, out, *x.shape)


def report(name: str, milliseconds: float, x: Any) -> None:
    """Print a time and a rate."""
    print(f"{name:>9}: time {milliseconds:.3f} ms, {2 * x.nbytes / milliseconds / 1e6:.0f} GB/s")


if __name__ == "__main__":
    main()
