"""Objectives of a search: what of a launch is measured, and in which unit. Less is better."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cudakit.emulator import face
from cudakit.errors import ArgumentError, CudakitError, UnknownNameError, shortened
from cudakit.places import DEVICES, place_of
from cudakit.tuning.nvml import Meter, meter_of


class Objective(Protocol):
    """A quantity of a launch, measured several times.

    Attributes
    ----------
    name : str
        Name of the objective.
    unit : str
        Unit of its values.
    repeats : bool
        Whether values differ from run to run, so that the best candidates are measured again.
    """

    name: str
    unit: str
    repeats: bool

    def measure(self, launch: Callable[[], None], stop_above: float) -> Sequence[float]:
        """Return values of launches. Values above `stop_above` end the measurement early."""


class Time:
    """The time of a launch on a GPU, in microseconds, by events.

    The L2 cache is flushed before each launch, or warm. With a warm cache, a launch below 2 ms is timed as a part of a
    graph of equal launches. Two events around one launch also measure 5 to 7 µs of the host (H200, 2026-11-27).
    """

    name, unit, repeats = "time", "µs", True
    #: Values of one measurement: at least, and at most.
    LEAST, MOST = 5, 30
    #: Microseconds of one measurement, after which it ends.
    ENOUGH = 20_000.0
    #: Launches of a graph, at most.
    IN_GRAPH = 20

    def __init__(self, stream: Any, l2: str = "flushed") -> None:
        self._stream, self._place = stream, place_of(stream)
        self._spent: list[Any] = []
        self._flush: Callable[[], None] | None = None
        if l2 == "flushed":
            with self._place.using(stream) as xp:
                size = 2 * int(xp.cuda.Device().attributes["L2CacheSize"])
                block = xp.empty(size, xp.uint8)
            self._flush = lambda: block.fill(0)

    def measure(self, launch: Callable[[], None], stop_above: float) -> Sequence[float]:
        """Return at least three times of a launch."""
        with self._place.using(self._stream):
            launch()
            times: list[float] = []
            run, count = launch, 1
            while len(times) < self.MOST and (len(times) < self.LEAST or count * sum(times) < self.ENOUGH):
                times.append(self._elapsed(run) / count)
                if len(times) >= 3 and min(times) > stop_above:
                    break
                if len(times) == 3 and count == 1 and self._flush is None:
                    size = min(self.IN_GRAPH, int(self.ENOUGH / self.LEAST / max(min(times), 1.0)))
                    graph = self._graph(launch, size) if size > 1 else None
                    times, run, count = (times, run, 1) if graph is None else ([], graph, size)
        return times

    def _elapsed(self, run: Callable[[], None]) -> float:
        """Return the microseconds of work on the stream."""
        if self._flush is not None:
            self._flush()
        begun = self._mark()
        run()
        ended = self._mark()
        self._stream.sync()
        self._spent += [begun, ended]
        return 1000 * self._place.elapsed_ms(begun, ended)

    def _graph(self, launch: Callable[[], None], size: int) -> Callable[[], None] | None:
        """Return the launch of a graph of `size` launches; None if the launch cannot be captured."""
        stream = self._place.check(self._stream)
        try:
            builder = stream.create_graph_builder().begin_building()
            try:
                for _ in range(size):
                    launch()
            finally:
                builder.end_building()
            graph = builder.complete()
            graph.launch(stream)
            stream.sync()
        except Exception:  # of cuda.core, or of a kernel that waits for the device
            return None
        return functools.partial(graph.launch, stream)

    def _mark(self) -> Any:
        return self._place.mark(self._stream, self._spent.pop() if self._spent else None)


class Energy:
    """The energy of a launch on a GPU, in millijoules, by NVML's meter before and after many launches.

    The meter counts the whole card, and changes a few times a second. The L2 cache is warm.
    """

    name, unit, repeats = "energy", "mJ", True
    #: Values of one measurement.
    RUNS = 3
    #: Seconds of the launches of one value, and of those between two looks at the clock.
    LEAST_S, BATCH_S = 0.3, 0.03

    def __init__(self, stream: Any, meter: Meter | None = None) -> None:
        self._stream, self._place = stream, place_of(stream)
        self._meter = meter or meter_of(stream)
        try:
            self._meter.energy_mj()
        except Exception as error:  # of NVML
            raise CudakitError(f"this GPU does not tell its energy: {error}") from error

    def measure(self, launch: Callable[[], None], stop_above: float) -> Sequence[float]:
        """Return energies of a launch, each the mean of launches that take 0.3 s or more."""
        values: list[float] = []
        with self._place.using(self._stream):
            batch = 1
            while self._seconds(launch, batch) < self.BATCH_S:
                batch *= 2
            while len(values) < self.RUNS:
                values.append(self._mean(launch, batch))
                if min(values) > stop_above:
                    break
        return values

    def _seconds(self, launch: Callable[[], None], count: int) -> float:
        """Return the time of launches."""
        begun = time.perf_counter()
        for _ in range(count):
            launch()
        self._stream.sync()
        return time.perf_counter() - begun

    def _mean(self, launch: Callable[[], None], batch: int) -> float:
        """Return the mean energy of launches that take `LEAST_S`."""
        before, seconds, count = self._meter.energy_mj(), 0.0, 0
        while seconds < self.LEAST_S:
            seconds += self._seconds(launch, batch)
            count += batch
        return (self._meter.energy_mj() - before) / count


#: Counters of the emulator that may be an objective, and how they are read of a report.
COUNTERS: dict[str, Callable[[Any], float]] = {
    "instructions": lambda report: report.instructions,
    "sectors": lambda report: report.global_.sectors + report.local.sectors,
    "bytes": lambda report: 32 * (report.global_.sectors + report.local.sectors),
    "wavefronts": lambda report: report.shared.wavefronts,
    "bank_conflicts": lambda report: report.shared.bank_conflicts,
}


class Counter:
    """A counter of the emulator. Its values rank candidates; they are no times."""

    repeats = False

    def __init__(self, stream: Any, name: str) -> None:
        self._stream, self.name, self.unit = stream, name, name
        self._value = COUNTERS[name]

    def measure(self, launch: Callable[[], None], stop_above: float) -> Sequence[float]:
        """Return the count of one launch."""
        with face.counters(self._stream) as report:
            launch()
        return [float(self._value(report))]


#: Objectives of a GPU.
MEASURED: dict[str, type[Time | Energy]] = {"time": Time, "energy": Energy}


def parts_of(objective: Any, stream: Any) -> dict[str, Any]:
    """Return the objectives of a search by their names. Default: the time on a GPU, instructions on the emulator.

    Raises
    ------
    ArgumentError
        There is none, one comes twice, or one is neither a name nor has a method ``measure``.
    """
    default = "time" if place_of(stream) is DEVICES else "instructions"
    parts = objective if isinstance(objective, list | tuple) else [default if objective is None else objective]
    for part in parts:
        if not isinstance(part, str) and not hasattr(part, "measure"):
            raise ArgumentError(f"objective is a name or has a method 'measure', got {shortened(part)}")
    names = [part if isinstance(part, str) else part.name for part in parts]
    if not names or len(set(names)) < len(names):
        raise ArgumentError(f"objective: expected different objectives, at least one; got {', '.join(names) or 'none'}")
    return dict(zip(names, parts, strict=True))


def units_of(objective: Any, stream: Any) -> dict[str, str]:
    """Return the names of the objectives of a search, with their units. Nothing is measured, and no meter is read."""
    parts = parts_of(objective, stream)
    return {name: getattr(MEASURED.get(name, part), "unit", name) for name, part in parts.items()}


def objective_of(objective: Any, stream: Any, l2: str = "flushed") -> Objective:
    """Return an objective by name, for the place of a stream.

    Raises
    ------
    UnknownNameError
        There is no such objective at this place.
    """
    if not isinstance(objective, str):
        return objective  # type: ignore[no-any-return]
    on_gpu = place_of(stream) is DEVICES
    if objective == "time" and on_gpu:
        return Time(stream, l2)
    if objective == "energy" and on_gpu:
        return Energy(stream)
    if objective in COUNTERS and not on_gpu:
        return Counter(stream, objective)
    measured = [*MEASURED]
    there = measured if on_gpu else [*COUNTERS]
    reason = (
        f"the emulator counts, and measures no {objective}"
        if objective in measured
        else f"a GPU has no objective {objective!r}"
    )
    if objective not in (*measured, *COUNTERS):
        reason = f"there is no objective {shortened(objective)}"
    raise UnknownNameError(f"{reason}; pass objective= one of {', '.join(there)}")


def objectives_of(objective: Any, stream: Any, l2: str = "flushed") -> list[Objective]:
    """Return an objective, or several of a list, for the place of a stream. The first leads the search."""
    return [objective_of(part, stream, l2) for part in parts_of(objective, stream).values()]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval that holds the median with 95 %; below six values, all of them."""
    ordered = np.sort(np.asarray(values, float))
    count = len(ordered)
    if count < 6:
        return float(ordered[0]), float(ordered[-1])
    reach = 0.98 * np.sqrt(count)
    low, high = int(np.floor((count - 1) / 2 - reach)), int(np.ceil((count - 1) / 2 + reach))
    return float(ordered[max(low, 0)]), float(ordered[min(high, count - 1)])


def is_slower(values: Sequence[float], best: Sequence[float]) -> bool:
    """Return whether the mean of `values` is greater than that of `best` with 99 % (Welch's test).

    The largest tenth of both is left out: a launch that another process delays says nothing of the kernel.
    """
    first, second = (np.sort(np.asarray(row, float))[: max(2, len(row) - len(row) // 10)] for row in (values, best))
    error = np.sqrt(first.var(ddof=1) / len(first) + second.var(ddof=1) / len(second))
    return bool(first.mean() - second.mean() > 2.58 * error)


def card_name(stream: Any) -> str:
    """Return the name of the card of a stream; on the emulator the arch."""
    if place_of(stream) is not DEVICES:
        return f"emulator {stream.arch}" if isinstance(stream, face.EmulatedStream) else "emulator"
    from cuda.core import Device

    device = stream.device if hasattr(stream, "device") else Device()
    return str(device.name)
