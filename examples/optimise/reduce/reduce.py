"""A sum, made fast in two steps: three kernels of ``reduce.cu``, checked against NumPy, counted and timed.

Run: ``python examples/optimise/reduce/reduce.py``. Without a GPU the kernels run on the emulator, which counts their
traffic and measures no time. Read ``reduce.cu`` beside it, from the top. Look at the sectors of a load, and at how many
would be enough. The ready-made op is ``ck.ops.sum``.

Prints::

        naive: 294906, off by 0.0e+00 of 294906
               32 sectors a load, 4 are enough; 0 bank conflicts, 2048 atomic operations
               each thread reads a part of its own: a load of a warp touches 32 sectors, and uses 4 bytes of each
    coalesced: 294906, off by 0.0e+00 of 294906
               4 sectors a load, 4 are enough; 0 bank conflicts, 4 atomic operations
               neighbouring threads read neighbouring elements: all bytes of a sector are used
         fast: 294906, off by 0.0e+00 of 294906
               16 sectors a load, 16 are enough; 0 bank conflicts, 4 atomic operations
               each thread has 8 loads of 16 bytes under way, so memory always has work; a fixed order of additions
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

SOURCE = Path(__file__).parent / "reduce.cu"

#: For each kernel, its access to memory, and what the next kernel improves.
STEPS = {
    "naive": "each thread reads a part of its own: a load of a warp touches 32 sectors, and uses 4 bytes of each",
    "coalesced": "neighbouring threads read neighbouring elements: all bytes of a sector are used",
    "fast": "each thread has 8 loads of 16 bytes under way, so memory always has work; a fixed order of additions",
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
    multiprocessors = 132  # of an H200; another number costs little
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
            # The first kernel adds the sums of all threads to one float, which is rounded each time.
            assert error < 1e-2, f"{name} is wrong"
            if on_gpu:
                milliseconds = median_ms(stream, launch)
                print(f"           time: {milliseconds:.3f} ms, {x.nbytes / milliseconds / 1e6:.0f} GB/s")
            print(f"           {traffic(name)}")
            print(f"           {STEPS[name]}")
    if not on_gpu:
        print("time: needs a GPU")
    return results


def traffic(name: str) -> str:
    """Return the traffic of a kernel for 65,536 elements, counted on the emulator."""
    stream = ck.emulator.stream()
    launch = launches(stream, np, np.ones(1 << 16, np.float32), 4)[name]
    with ck.emulator.counters(stream) as report:
        launch()
    loads = report.global_.loads
    return (
        f"{loads.sectors / loads.requests:.0f} sectors a load, {loads.least_sectors / loads.requests:.0f} are enough; "
        f"{report.shared.bank_conflicts} bank conflicts, {report.atomics.operations} atomic operations"
    )


def launches(stream: Any, xp: Any, x: Any, blocks: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each kernel: it launches the kernel and returns the array for the sum."""
    naive, coalesced, fast = (ck.Kernel.from_file(SOURCE, name) for name in STEPS)
    config = ck.config(blocks, 512)
    out, sums, ticket = xp.zeros(1, np.float32), xp.empty(blocks, np.float32), xp.zeros(1, np.uint32)

    def add_to_out(kernel: ck.Kernel) -> Callable[[], Any]:
        def launch() -> Any:
            out[0] = 0  # the first two kernels add to it
            kernel(stream, config, x, out, x.size)
            return out

        return launch

    def launch_fast() -> Any:
        fast(stream, config, x, out, sums, ticket, x.size)
        return out

    return {"naive": add_to_out(naive), "coalesced": add_to_out(coalesced), "fast": launch_fast}


if __name__ == "__main__":
    main()
