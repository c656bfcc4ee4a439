"""The ops beside CuPy, torch and CUB, in one run on a GPU: rates, ratios to peers and to a copy of as many bytes.

Run on a GPU: ``python benchmarks/kernels.py [--only reduce,scan] [--quick] [--output FILE.md] [--plot FILE.png]``.
CUB is measured where ``nvcc`` is found, torch where it is installed. Every figure is a median of launches timed by
events, after a warm-up, over random data; the rows of 1024 elements are host time a call, launches included.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import cupy

import cudakit as ck

sys.path.insert(0, str(Path(__file__).parent))
from cases import Case, device_line, torch_module
from tables import table

FAMILIES = ("elementwise", "reduce", "scan", "move", "count", "rows")
#: Elements; the first is launch cost, the second stays in L2.
SIZES = (1 << 10, 1 << 20, 1 << 24, 1 << 28)
CALL_SIZE = SIZES[0]


def device_ms(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of a call on CuPy's current stream; short ones in batches, queued ahead of the device."""

    def once(batch: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(batch):
            call()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / batch

    call()
    batch = max(1, min(20, int(2 / once(1))))
    once(batch)
    return statistics.median(once(batch) for _ in range(repeats))


def call_ms(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds that a call takes, many being queued before the device is waited for."""
    for _ in range(20):
        call()
    cupy.cuda.get_current_stream().synchronize()
    times = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        for _ in range(100):
            call()
        cupy.cuda.get_current_stream().synchronize()
        times.append((time.perf_counter_ns() - start) / 100 / 1e6)
    return statistics.median(times)


def measured(case: Case, repeats: int) -> dict[str, float]:
    """Milliseconds of a case's own call, of its peers, and of a copy that moves as many bytes."""
    one = call_ms if case.size <= CALL_SIZE else device_ms
    source = cupy.empty(max(1, case.bytes // 2), cupy.uint8)
    target = cupy.empty_like(source)
    calls = {"cudakit": case.run, **case.peers}
    if case.size > CALL_SIZE:
        calls["copy"] = lambda: cupy.cuda.runtime.memcpyAsync(
            target.data.ptr, source.data.ptr, source.nbytes, 3, cupy.cuda.get_current_stream().ptr
        )
    return {name: one(call, repeats) for name, call in calls.items()}


def row(case: Case, found: dict[str, float]) -> tuple[str, ...]:
    """A line of the table."""
    own = found["cudakit"]

    def rate(ms: float) -> str:
        return f"{ms * 1e3:.2f} µs" if case.size <= CALL_SIZE else f"{case.bytes / ms / 1e6:.0f}"

    peers = [f"{name} {rate(ms)} ({ms / own:.2f} ×)" for name, ms in found.items() if name not in ("cudakit", "copy")]
    copy = f"{rate(found['copy'])} ({found['copy'] / own:.2f} ×)" if "copy" in found else ""
    return case.op, case.dtype, f"{case.size:,}", rate(own), ", ".join(peers), copy, case.aim


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(FAMILIES), help="families, by commas")
    parser.add_argument("--quick", action="store_true", help="float32 only")
    parser.add_argument("--repeats", type=int, default=11, help="measurements whose median is taken")
    parser.add_argument("--output", type=Path, help="also write the table here")
    parser.add_argument("--plot", type=Path, help="also draw the largest size here")
    options = parser.parse_args()
    stream = ck.stream()
    rows, largest = [], []
    with ck.using(stream):
        if torch := torch_module():
            torch.cuda.set_stream(torch.cuda.ExternalStream(int(stream.handle)))
        for family in options.only.split(","):
            for case in cases_of(family, options.quick):
                found = measured(case, options.repeats)
                rows.append(row(case, found))
                print("  ".join(rows[-1]), flush=True)
                if case.size == SIZES[-1]:
                    largest.append((case.op, case.dtype, case.bytes, found))
                del case
                cupy.get_default_memory_pool().free_all_blocks()
    if options.output:
        options.output.write_text(page("Ops beside their peers", "kernels.py", options, FAMILIES, rows))
    if options.plot:
        draw(largest, options.plot)


def page(
    title: str, program: str, options: argparse.Namespace, families: Sequence[str], rows: Iterable[Sequence[str]]
) -> str:
    """The table of a benchmark's rows, as `row` makes them, under its title and the command that made it."""
    given = f" --only {options.only}" * (options.only != ",".join(families)) + " --quick" * options.quick
    command = f"python benchmarks/{program}{given} --repeats {options.repeats}"
    head = ("op", "dtype", "elements", "cudakit, GB/s", "peers, GB/s (time over ours)", "copy of as many bytes", "aim")
    lines = [
        f"# {title}",
        "",
        f"{device_line()}, {datetime.date.today()}. `{command}`",
        "",
        "GB/s are bytes read once and written once over the median time; × above 1 means that cudakit is faster. At "
        f"{CALL_SIZE:,} elements: host time a call, µs.",
        "",
        *table(head, rows),
    ]
    return "\n".join(lines) + "\n"


def cases_of(family: str, quick: bool) -> Iterable[Case]:
    """The cases of a family, one after the other, each made when it is wanted: their arrays are large."""
    module = importlib.import_module(f"cases.{family}")
    found: Iterable[Case] = module.cases(SIZES, quick)
    return found


def draw(largest: list[tuple[str, str, int, dict[str, float]]], path: Path) -> None:
    """Bars of GB/s at the largest size: a panel a dtype, an op a group of bars."""
    from matplotlib.figure import Figure

    names = sorted({name for *_, found in largest for name in found}, key=lambda name: (name != "cudakit", name))
    dtypes = list(dict.fromkeys(dtype for _, dtype, _, _ in largest))
    most = max(sum(case[1] == dtype for case in largest) for dtype in dtypes)
    figure = Figure(figsize=(6 * len(dtypes), 1 + 0.4 * most), layout="constrained")
    for axes, dtype in zip(figure.subplots(1, len(dtypes), squeeze=False)[0], dtypes, strict=True):
        cases = [case for case in largest if case[1] == dtype]
        for offset, name in enumerate(names):
            places = [i for i, case in enumerate(cases) if name in case[3]]
            rates = [cases[i][2] / cases[i][3][name] / 1e6 for i in places]
            heights = [i + 0.8 * (offset + 0.5) / len(names) - 0.4 for i in places]
            axes.barh(heights, rates, 0.8 / len(names), label=name)
        axes.set_yticks(range(len(cases)), [case[0] for case in cases])
        axes.set_ylim(most - 0.5, -0.5)
        axes.set_title(dtype)
        axes.set_xlabel("GB/s, read once and written once")
    axes.legend(loc="lower right")
    figure.suptitle(f"{device_line()}: {SIZES[-1]:,} elements")
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main()
