"""Optimise a sum in two steps: three kernels of ``reduce.cu``, compared with NumPy and timed.

Run: ``python examples/optimise/reduce/reduce.py``. Without a GPU the kernels run on the emulator, which shows that
they are correct. Their speed needs a GPU. Read ``reduce.cu`` beside this file, from the top.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cudakit as ck
from cudakit.demo import median_ms

SOURCE = Path(__file__).parent / "reduce.cu"

#: The improvement of each kernel over the one before it.
STEPS = {
    "naive": "each thread reads a stretch of its own: a warp's load touches 32 sectors, and uses 4 bytes of each",
    "coalesced": "neighbours read neighbours: 4 sectors a load, all their bytes used; 4 bytes a load, a few under way",
    "fast": "16 bytes a load and 8 loads a thread under way, so that the memory always has work; one fixed order",
}


def main(arguments: Sequence[str] | None = None) -> dict[str, float]:
    """Run, check and time the kernels; return the sum of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, help="elements; default: 2^28 on a GPU, 2^16 on the emulator")
    parser.add_argument("--emulator", action="store_true", help="run on the emulator even where there is a GPU")
    options = parser.parse_args(arguments)

    on_gpu = ck.has_gpu() and not options.emulator
    stream = ck.stream() if on_gpu else ck.emulator.stream()
    size = options.size or (1 << 28 if on_gpu else 1 << 16)
    multiprocessors = 132  # Of an H200. Other numbers cost little time.
    results = {}
    with ck.using(stream) as xp:
        # Integers from 1 to 8: their sum is exact in double precision, in any order.
        scrambled = xp.arange(size, dtype=np.uint32) * np.uint32(2654435761)
        x = ((scrambled >> np.uint32(29)) + np.uint32(1)).astype(np.float32)
        expected = float(x.sum(dtype=np.float64))
        for name, launch in launches(stream, xp, x, 4 * multiprocessors if on_gpu else 4).items():
            results[name] = float(launch()[0])
            error = abs(results[name] - expected) / expected
            print(f"{name:>9}: {results[name]:.9g}, off by {error:.1e} of {expected:.12g}")
            # The first kernel adds the sums of all threads to one float, each rounded to 24 bits.
            assert error < 1e-2, f"{name} is wrong"
            if on_gpu:
                milliseconds = median_ms(stream, launch)
                print(f"           {milliseconds:.3f} ms, {x.nbytes / milliseconds / 1e6:.0f} GB/s")
            print(f"           {counted(name)}")
            print(f"           {STEPS[name]}")
    if not on_gpu:
        print("The emulator has no clock: times and GB/s take a GPU.")
    return results


def counted(name: str) -> str:
    """Return the memory accesses of a kernel for 65,536 elements, counted on the emulator as on a GPU."""
    stream = ck.emulator.stream()
    launch = launches(stream, np, np.ones(1 << 16, np.float32), 4)[name]
    with ck.emulator.counters(stream) as found:
        launch()
    loads = found.global_.loads
    return (
        f"{loads.sectors / loads.requests:.0f} sectors a load, {loads.least_sectors / loads.requests:.0f} would do; "
        f"{found.shared.bank_conflicts} bank conflicts, {found.atomics.operations} atomic operations"
    )


def launches(stream: Any, xp: Any, x: Any, blocks: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each kernel: it launches the kernel and returns the array of the sum."""
    naive, coalesced, fast = (ck.Kernel.from_file(SOURCE, name) for name in STEPS)
    shape = ck.config(blocks, 512)
    out, sums, ticket = xp.zeros(1, np.float32), xp.empty(blocks, np.float32), xp.zeros(1, np.uint32)

    def adding(kernel: ck.Kernel) -> Callable[[], Any]:
        def launch() -> Any:
            out[0] = 0  # The first two kernels add to this value.
            kernel(stream, shape, x, out, x.size)
            return out

        return launch

    def launch_fast() -> Any:
        fast(stream, shape, x, out, sums, ticket, x.size)
        return out

    return {"naive": adding(naive), "coalesced": adding(coalesced), "fast": launch_fast}


if __name__ == "__main__":
    main()
