"""Times of calls: of the device, by events; of the host, by many calls in a row. Medians, after a warm-up."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping

#: Calls before a measurement. An op records its third call, which takes as long as many: were it the one by which a
#: batch is sized, the batch would be one call, and the host's time would be measured.
_WARM_UP = 6


def seconds(act: Callable[[], object], repeats: int = 3) -> float:
    """Median time of `act`, after one call to warm up."""
    act()
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def device_ms(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds of a call on CuPy's current stream; short ones in batches, queued ahead of the device."""
    import cupy

    def once(batch: int) -> float:
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        for _ in range(batch):
            call()
        end.record()
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) / batch

    for _ in range(_WARM_UP):
        call()
    batch = max(1, min(20, int(2 / once(1))))
    once(batch)
    return statistics.median(once(batch) for _ in range(repeats))


def call_ms(call: Callable[[], object], repeats: int) -> float:
    """Median milliseconds that a call takes, many being queued before the device is waited for."""
    return calls_ms({"": call}, repeats)[""]


def calls_ms(calls: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median milliseconds that each call takes, the device waited for after 100 of them; the calls take turns."""
    import cupy

    wait = cupy.cuda.get_current_stream().synchronize
    found = host_time(calls, wait, repeats, 100, is_waited=True)
    return {name: nanoseconds / 1e6 for name, nanoseconds in found.items()}


def host_time(
    calls: Mapping[str, Callable[[], object]],
    sync: Callable[[], None],
    repeats: int,
    inner: int,
    is_waited: bool = False,
) -> dict[str, float]:
    """Median host nanoseconds of each call; the calls take turns, so that drift of the machine hits all alike."""
    for call in calls.values():
        for _ in range(inner if is_waited else 3 * inner):
            call()
        sync()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    gc.disable()
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(inner):
                call()
            if is_waited:
                sync()
            taken[name].append((time.perf_counter_ns() - start) / inner)
            sync()
    gc.enable()
    return {name: statistics.median(values) for name, values in taken.items()}
