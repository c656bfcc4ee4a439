"""Trials of candidates with one set of arguments: launch, check the results, measure."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cudakit.emulator import face
from cudakit.errors import ArgumentError, CompileError, CudakitError, EmulationError, LaunchError, TemplateError
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.compile import elf
from cudakit.jit.load.config import Config, is_empty
from cudakit.jit.load.limits import check_code
from cudakit.jit.specialise.specialise import Specialization
from cudakit.places import DEVICES, place_of
from cudakit.tuning.arrays import Outputs, on_place
from cudakit.tuning.candidate import Candidate, Traffic
from cudakit.tuning.compiling import Ahead
from cudakit.tuning.expected import Expected
from cudakit.tuning.objectives import Counter, Objective, card_name, interval, is_slower
from cudakit.tuning.space import Point
from cudakit.tuning.variants import Variants

#: A candidate is far from the best if its fastest launch takes this many times as long.
_HOPELESS = 1.5
#: Candidates that are measured again at the end, in turns.
_FINALISTS = 5
#: Most rounds in which the best candidates are measured again, in turns.
_ROUNDS = 10
#: Most threads, and most steps, of a launch that is run again on the emulator.
_MOST_THREADS, _MOST_STEPS = 1 << 16, 5_000


class Trials:
    """Candidates of a search, tried with one set of arguments.

    Parameters
    ----------
    variants : Variants
        Kernels and configurations of the points.
    arguments : sequence
        Arguments as in a call. They are never written.
    stream : stream
        Stream of the launches.
    objective : Objective
        Quantity that is measured.
    check, tolerance
        As for `ck.tune`.
    is_poisoned : dict of int to bool, optional
        Whether an argument may be poisoned, by its number, beside what `ck.InOut` and its kin say.
    further : sequence of Objective
        Quantities that are measured of each right candidate, beside the objective. No candidate then ends early.
    others : dict of str to callable, optional
        Name → function that returns other arguments, with which the winner must be right too.

    Attributes
    ----------
    candidates : list of Candidate
        All candidates that were tried, in order.
    broken : str
        Error after which the device takes no launch of this process; empty as long as it does.
    seconds : dict of str to float
        Time of the search: waiting for compiles, loading, checking, measuring, comparing and confirming.
    """

    def __init__(
        self,
        variants: Variants,
        arguments: Sequence[Any],
        stream: Any,
        objective: Objective,
        check: Any = None,
        tolerance: float | None = None,
        is_poisoned: Mapping[int, bool] | None = None,
        others: Mapping[str, Callable[[], Sequence[Any]]] | None = None,
        further: Sequence[Objective] = (),
    ) -> None:
        self.variants, self.stream, self.objective, self.further = variants, stream, objective, further
        self.candidates: list[Candidate] = []
        self._arguments, self._is_poisoned = on_place(arguments, stream)
        self._is_poisoned |= is_poisoned or {}
        self._check, self._tolerance = check, tolerance
        self._values = variants.values(arguments)
        self._outputs: Outputs | None = None
        self._expected: Expected | None = None
        self._fastest = float("inf")
        self.seconds: dict[str, float] = {}
        self.broken = ""
        self._others = others or {}

    def __enter__(self) -> Trials:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End what the trials have started."""

    @contextlib.contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time of a block to `seconds`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begun

    @property
    def right(self) -> list[Candidate]:
        """The right candidates, the best first."""
        right = [candidate for candidate in self.candidates if candidate.state == "right"]
        return sorted(right, key=lambda candidate: candidate.value or 0.0)

    def reconsider(self) -> None:
        """Mark as right what was slow only beside candidates that are wrong."""
        fastest = min((c.value or 0.0 for c in self.candidates if c.state in ("right", "slow")), default=0.0)
        for candidate in self.candidates:
            if candidate.state == "slow" and (candidate.low or 0.0) <= _HOPELESS * fastest:
                candidate.state = "right"

    def specializations(self, point: Point) -> Sequence[Specialization]:
        """Return the specializations of a point."""
        return self.variants.specializations(point, self.stream, self._arguments)

    def evaluate(self, point: Point, ahead: Ahead) -> Candidate:
        """Compile, launch, check and measure a point."""
        candidate = Candidate(point, "failed")
        self.candidates.append(candidate)
        try:
            with self.timed("compile"):
                ahead.wait(point)
                self._examine(candidate)
            with self.timed("load"):
                plan = self._plan(candidate)
        except LaunchError as error:
            candidate.state, candidate.why = "invalid", str(error)
            return candidate
        except (CompileError, TemplateError) as error:
            candidate.why = str(error)
            return candidate
        try:
            counts: list[float] = []
            with self.timed("check"):
                is_right = self._is_right(candidate, self._counted(plan, counts))
            if is_right:
                with self.timed("measure"):
                    self._measure(candidate, plan, counts)
        except (ArgumentError, MemoryError):
            raise
        except Exception as error:  # of the emulator, CuPy or the driver
            self._look_at_device()
            candidate.state = "invalid" if isinstance(error, LaunchError) and not self.broken else "failed"
            candidate.why = str(error) if isinstance(error, CudakitError) else f"{type(error).__name__}: {error}"
        return candidate

    def compare(self) -> None:
        """Mark the candidates that tie with the best. Values that differ from run to run are measured again first."""
        if self.objective.repeats:
            self.compare_in_turns(self.right[:_FINALISTS])
            return
        values = [candidate.value for candidate in self.right]
        for candidate in self.right:
            candidate.tied = candidate.value == values[0] and values.count(values[0]) > 1

    def compare_in_turns(self, finalists: Sequence[Candidate]) -> None:
        """Measure the best candidates again, in turns, until their order is certain. The rest are ties."""
        if len(finalists) < 2:
            return
        plans = [self._plan(candidate) for candidate in finalists]
        values: list[list[float]] = [[] for _ in finalists]
        still_open = list(range(len(finalists)))
        for _ in range(_ROUNDS):
            for number in still_open:
                values[number] += self.objective.measure(plans[number], float("inf"))
            best = min(still_open, key=lambda number: float(np.median(values[number])))
            still_open = [number for number in still_open if not is_slower(values[number], values[best])]
            if len(still_open) == 1:
                break
        for number, candidate in enumerate(finalists):
            self._note(candidate, values[number])
            candidate.tied = number in still_open and len(still_open) > 1

    def traffic(self, flops: float) -> Traffic | None:
        """Return the work of a launch; None before any candidate was launched."""
        if self._outputs is None:
            return None
        card = card_name(self.stream)
        peaks = [row.gigabytes_per_s for name, row in face.CARDS.items() if name in card]
        peak = peaks[0] if peaks else 0.0
        return Traffic(self._outputs.bytes_moved, flops, card, peak)

    def confirm(self, candidate: Candidate, seed: int) -> dict[str, str]:
        """Run a candidate on fresh data, and on the emulator with all checks. Return the result of each.

        A candidate that fails is marked as wrong.
        """
        outcomes = {}
        confirmations: list[tuple[str, Callable[[Candidate, int], str]]] = [("fresh data", self._on_fresh_data)]
        confirmations += [(name, functools.partial(self._with_others, make)) for name, make in self._others.items()]
        confirmations.append(("emulator", self._on_emulator))
        for name, confirmation in confirmations:
            try:
                outcomes[name] = confirmation(candidate, seed)
                if candidate.state == "wrong":
                    candidate.why = f"{name}: {candidate.why}"
                    break
            except MemoryError as error:
                outcomes[name] = f"left out: memory is full ({error})"
            except Exception as error:  # of the emulator, CuPy or the driver
                candidate.state, candidate.why = "wrong", f"{name}: {error}"
                outcomes[name] = candidate.why
                self._look_at_device()
                break
        return outcomes

    def _plan(self, candidate: Candidate) -> Any:
        kernel = self.variants.kernel(candidate.point)
        config = self.variants.config(candidate.point, self._values)
        if self._outputs is None:
            plan = self._launchable(kernel, config, self._arguments)
            if self._arguments and not plan.parameters:
                raise ArgumentError(f"{kernel.name} is launched with no thread: pass arrays with elements")
            compare = self.variants.packaged("compare/differences")
            outputs = Outputs(self.stream, self._arguments, plan.parameters, self._is_poisoned, compare)
            if not outputs.names:
                raise ArgumentError(f"{kernel.name} writes no array: there is nothing to check; pass an output")
            self._outputs = outputs
        if self._expected is None:
            self._expected = self._expectation(self._outputs, config)
        plan = self._launchable(kernel, config, self._outputs.arguments)
        if place_of(self.stream) is DEVICES:
            resources = kernel.attributes()
            candidate.registers, candidate.spill_bytes = resources.registers, resources.spill_bytes
            candidate.shared_bytes, candidate.occupancy = resources.shared_bytes, resources.occupancy
        return plan

    def _examine(self, candidate: Candidate) -> None:
        """Note what a candidate's machine code needs, and check its configuration by it. Nothing is loaded.

        Raises
        ------
        CompileError
        LaunchError
            No block fits the device.
        """
        try:
            specializations = self.specializations(candidate.point)
        except ArgumentError as error:
            raise LaunchError(str(error)) from error
        for specialization in specializations:
            self._examine_code(candidate, specialization)

    def _examine_code(self, candidate: Candidate, specialization: Specialization) -> None:
        if specialization.target != "cubin" or specialization.is_tile:
            return
        compiled = compiled_of(specialization)
        symbol = compiled.lowered[specialization.name_expression]
        needs, bounds = elf.resources(compiled.code, symbol), elf.launch_bounds(compiled.code, symbol)
        candidate.registers, candidate.spill_bytes, candidate.shared_bytes = needs
        config = self.variants.config(candidate.point, self._values)
        if isinstance(config, Config) and not is_empty(config):
            limits = place_of(self.stream).limits(self.stream)
            check_code(specialization.name_expression, config, limits, needs, bounds)

    def _launchable(self, kernel: Any, config: Any, arguments: Sequence[Any]) -> Any:
        """Return the plan of a launch.

        Raises
        ------
        LaunchError
            The kernel cannot be launched so. Another point may well be.
        """
        try:
            return kernel.plan(self.stream, config, *arguments)
        except ArgumentError as error:
            raise LaunchError(str(error)) from error

    def _look_at_device(self) -> None:
        """Note in `broken` if no launch is possible any more."""
        try:
            self.stream.sync()
        except Exception as error:  # of the driver
            self.broken = f"{type(error).__name__}: {error}"

    def _expectation(self, outputs: Outputs, config: Any) -> Expected:
        if hasattr(self._check, "plan"):  # a kernel
            reference = self._check.plan(self.stream, config, *outputs.arguments)
            return Expected(outputs, None, reference, self._tolerance)
        return Expected(outputs, self._check, None, self._tolerance)

    def _is_right(self, candidate: Candidate, plan: Callable[[], None]) -> bool:
        assert self._expected is not None
        difference = self._expected.difference(plan)
        if difference is not None:
            candidate.state, candidate.why = "wrong", str(difference)
        return difference is None

    def _counted(self, plan: Callable[[], None], counts: list[float]) -> Callable[[], None]:
        """Return a launch that counts once, on the caller's contents: a counter needs no launch of its own."""

        def launch() -> None:
            if isinstance(self.objective, Counter) and not counts:
                counts.extend(self.objective.measure(plan, float("inf")))
            else:
                plan()

        return launch

    def _measure(self, candidate: Candidate, plan: Callable[[], None], counts: Sequence[float]) -> None:
        limit = float("inf") if self.further else _HOPELESS * self._fastest
        values = counts or self.objective.measure(plan, limit)
        self._note(candidate, values)
        for objective in self.further:
            candidate.values[objective.name] = float(np.median(objective.measure(plan, float("inf"))))
        candidate.state = "slow" if min(values) > limit else "right"
        self._fastest = min(self._fastest, candidate.value or 0.0)

    def _note(self, candidate: Candidate, values: Sequence[float]) -> None:
        candidate.value, candidate.runs = float(np.median(values)), len(values)
        candidate.values[self.objective.name] = candidate.value
        candidate.low, candidate.high = interval(values)

    def _on_fresh_data(self, candidate: Candidate, seed: int) -> str:
        if self._check is not None and not callable(self._check):
            return "left out: the expected arrays are of the passed data only"
        assert self._outputs is not None
        arguments, expected = list(self._outputs.arguments), self._expected
        try:
            self._outputs.refill(seed)
            reference = next(other for other in self.candidates if other.state in ("right", "slow"))
            config = self.variants.config(reference.point, self._values)
            self._expected = self._expectation(self._outputs, config)
            if self._check is None:
                self._is_right(reference, self._plan(reference))
            if not self._is_right(candidate, self._plan(candidate)):
                return candidate.why
            return "right"
        finally:
            self._outputs.arguments[:], self._expected = arguments, expected

    def _with_others(self, make: Callable[[], Sequence[Any]], candidate: Candidate, seed: int) -> str:
        """Run a candidate with other arguments, such as those of the next size."""
        if self._check is not None and not callable(self._check):
            return "left out: the expected arrays are of the passed data only"
        trials = Trials(self.variants, make(), self.stream, self.objective, self._check, self._tolerance)
        try:
            if self._check is None:
                reference = next(other for other in self.candidates if other.state in ("right", "slow"))
                trials._is_right(reference, trials._plan(reference))
            plan = trials._plan(candidate)
        except LaunchError as error:
            return f"left out: {error}"
        return "right" if trials._is_right(candidate, plan) else candidate.why

    def _on_emulator(self, candidate: Candidate, seed: int) -> str:
        assert self._outputs is not None
        kernel = self.variants.kernel(candidate.point)
        config = self.variants.config(candidate.point, self._values)
        here = face.stream(check="raise", step_budget=_MOST_STEPS)
        arguments = self._outputs.host_arguments()
        threads = _threads_of(config)
        if threads > _MOST_THREADS:
            return f"left out: {threads:,} threads; at most {_MOST_THREADS:,} are run"
        blocks = _heap_blocks()
        try:
            kernel(here, config, *arguments)
            here.sync()
            if (leaked := _heap_blocks() - blocks) > 0:
                raise EmulationError(f"{kernel.name} leaves {leaked} blocks of the device's heap allocated")
        except EmulationError as error:
            if "steps is used up" in str(error):
                return f"no finding in the first {_MOST_STEPS:,} steps"
            raise
        return "right"


def _heap_blocks() -> int:
    """Return the number of blocks that kernels of the emulator have allocated and not freed."""
    limits = face.device_limits()
    return limits.heap.block_count if limits.has_heap else 0


def _threads_of(config: Any) -> int:
    """Return the threads of a launch; for a cover its elements."""
    extents = config.shape if hasattr(config, "shape") else (*config.grid, *config.block)
    return int(np.prod([extent or 1 for extent in extents], dtype=object))
