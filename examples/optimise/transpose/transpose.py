"""Optimise a transposition in two steps: three kernels of ``transpose.cu``, compared with NumPy and timed.

Run: ``python examples/optimise/transpose/transpose.py``. Without a GPU the kernels run on the emulator, which shows
that they are correct and counts their memory accesses. Their speed needs a GPU. Read ``transpose.cu`` beside this
file, from the top.
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

#: The improvement of each kernel over the one before it.
STEPS = {
    "naive": "reads neighbours, 4 sectors a warp; writes down a column, 32 sectors a warp, 4 bytes of each used",
    "coalesced": "a tile in shared memory: neighbours on both sides; but a column of it is in one bank: 32 turns",
    "fast": "16 bytes an access, four under way; chunks of the tile rearranged so that no two lanes want one bank",
}


def main(arguments: Sequence[str] | None = None) -> dict[str, bool]:
    """Run, check and time the kernels; return whether each result is correct."""
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
            print("           what the memory can do: as many bytes read and written, nothing moved about")
        for name, config in configurations(rows, columns).items():
            kernel = ck.Kernel.from_file(SOURCE, name)
            launch = launcher(kernel, stream, config, x, out)
            out.fill(-1)
            launch()
            results[name] = bool((out == x.T).all())
            print(f"{name:>9}: {'right' if results[name] else 'WRONG'}")
            if on_gpu:
                report(name, median_ms(stream, launch), x)
            print(f"           {counted(kernel, name)}")
            print(f"           {STEPS[name]}")
    if not on_gpu:
        print("The emulator has no clock: times and GB/s take a GPU.")
    return results


def configurations(rows: int, columns: int) -> dict[str, ck.Config]:
    """Return the launch configuration of each kernel."""
    return {
        "naive": ck.config((columns // 32, rows // 8), (32, 8)),
        "coalesced": ck.config((columns // 32, rows // 32), (32, 8)),
        "fast": ck.config(rows // 64 * (columns // 64), 256),
    }


def counted(kernel: ck.Kernel, name: str) -> str:
    """Return the memory accesses of a kernel, counted on the emulator as on a GPU."""
    x, out = np.zeros((128, 128), np.float32), np.zeros((128, 128), np.float32)
    stream = ck.emulator.stream()
    with ck.emulator.counters(stream) as found:
        kernel(stream, configurations(128, 128)[name], x, out, 128, 128)
    loads, stores = found.global_.loads, found.global_.stores
    return (
        f"{loads.sectors / loads.requests:.0f} sectors a load, {stores.sectors / stores.requests:.0f} a store, "
        f"{loads.least_sectors / loads.requests:.0f} would do; {found.shared.bank_conflicts:,} bank conflicts"
    )


def launcher(kernel: ck.Kernel, stream: Any, config: ck.Config, x: Any, out: Any) -> Callable[[], None]:
    """Return a function that launches a kernel."""
    return lambda: kernel(stream, config, x, out, *x.shape)


def report(name: str, milliseconds: float, x: Any) -> None:
    """Print a time and a rate."""
    print(f"{name:>9}: {milliseconds:.3f} ms, {2 * x.nbytes / milliseconds / 1e6:.0f} GB/s")


if __name__ == "__main__":
    main()
