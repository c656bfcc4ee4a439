"""The past of a launch: which group ran at each step, and states to begin again from; so it can be gone through.

A launch is deterministic but for the choice whose turn it is, which is what is kept of each step. To go back, the
nearest state before is taken up again, writes to global memory are undone, and the steps up to there are run anew. What
was overwritten between two states is kept once for all its steps where it comes to be much, and then fewer states are.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from cudakit.emulator.debug.stepper import ALL, Saved, Stepper
from cudakit.emulator.debug.undo import Undo
from cudakit.emulator.machine.machine import Launch, Observer
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.module import blocks_at_once
from cudakit.errors import EmulationError

#: Steps between two states that are kept, at first; and how many are kept at the most.
_STEPS, _MOST = 512, 48
#: What was overwritten may take so much; more only where less would not lead back to the begin.
MOST_BYTES = 256 << 20
#: Lanes at once: each state that is kept holds all their registers.
_LANES: Final = 4096


class _State(NamedTuple):
    tick: int
    part: int
    saved: Saved


class Timeline:
    """A launch, somewhere between its begin and its end.

    Parameters
    ----------
    launch : Launch
    observers : sequence of Observer
        Are told of each instruction once, when it is run for the first time.

    Attributes
    ----------
    tick : int
        Steps since the begin.
    known : int
        Steps that have been run.
    stepper : Stepper
        Of the blocks that run now.
    """

    stepper: Stepper
    launch: Launch
    tick: int
    known: int

    def __init__(self, launch: Launch, observers: Sequence[Observer] = ()) -> None:
        self.launch = launch
        self.tick = self.known = 0
        self._observers, self._output = tuple(observers), launch.output
        self._undo, self._most_bytes = Undo(), MOST_BYTES
        self._turns: list[tuple[int, int]] = []
        self._states: list[_State] = []
        self._apart = _STEPS
        geometry = launch.geometry
        most = blocks_at_once(launch.module, launch.entry, geometry, launch.title)
        if not geometry.cooperative:
            cluster = geometry.cluster[0] * geometry.cluster[1] * geometry.cluster[2]
            most = min(most, max(1, _LANES // (geometry.threads * cluster)) * cluster)
        blocks = range(geometry.blocks)
        self._blocks = [blocks[first : first + most] for first in range(0, geometry.blocks, most)]
        self._parts: dict[int, Stepper] = {}
        self._part = 0
        launch.output = self._print
        launch.memory.watcher = self._undo
        self._enter(0)

    @property
    def is_over(self) -> bool:
        """Whether the launch has ended."""
        return self.stepper.is_over and self._part == len(self._blocks) - 1

    def close(self) -> None:
        """Let go of the launch's memory; it can be gone through no more."""
        self.launch.memory.watcher = None
        self.launch.memory.leave()

    # ── forward ──

    def step(self, warp: int = ALL) -> tuple[int, Index]:
        """Run one instruction: what was run here before, or what comes next, of a warp if it can go on.

        Gives its place and lanes.

        Raises
        ------
        EmulationError
            Whereupon all is as it was before the step.
        """
        if self.stepper.is_over and not self.is_over:
            self._enter(self._part + 1)
        if self.tick < self.known:
            at = bisect.bisect_right(self._turns, self.tick, key=lambda turn: turn[0]) - 1
            warp = self._turns[at][1]
        elif not self._turns or self._turns[-1][1] != warp:
            self._turns.append((self.tick, warp))
        if self.tick >= self._states[-1].tick + self._apart:
            self._keep()
        self.launch.observers = self._observers if self.tick == self.known else ()
        self._undo.tick = self.tick
        try:
            ran = self.stepper.tick(warp)
        except EmulationError:
            if self._turns[-1][0] == self.tick == self.known:
                self._turns.pop()
            self.seek(self.tick)
            raise
        self.tick += 1
        self.known = max(self.known, self.tick)
        if self._undo.bytes > self._most_bytes:
            self._shrink()
        return ran

    def _enter(self, part: int) -> None:
        """Begin with other blocks."""
        self._part = part
        known = next((state for state in self._states if state.part == part), None)
        if known is not None:
            self.stepper = self._parts[part]
            self.stepper.restore(known.saved)
            return
        self.launch.steps = self.stepper.steps if part else 0
        self.stepper = self._parts[part] = Stepper(self.launch, self._blocks[part])
        self._states.append(_State(self.tick, part, self.stepper.save()))

    def _keep(self) -> None:
        """Keep the state at hand; of many, every second goes but for the begin of each part."""
        if self.tick < self.known:
            return
        self._states.append(_State(self.tick, self._part, self.stepper.save()))
        if len(self._states) > _MOST + len(self._parts):
            self._thin()

    def _thin(self) -> bool:
        """Let every second state go; whether any did."""
        self._apart *= 2
        count = len(self._states)
        begins = {next(each.tick for each in self._states if each.part == part) for part in self._parts}
        last = self._states[-1]
        self._states = [
            each for k, each in enumerate(self._states) if k % 2 == 0 or each.tick in begins or each is last
        ]
        return len(self._states) < count

    def _shrink(self) -> None:
        """Keep less of what was overwritten, with which each state that is still kept can be gone back to."""
        self._undo.merge([state.tick for state in self._states])
        while self._undo.bytes > self._most_bytes // 2 and self._thin():
            self._undo.merge([state.tick for state in self._states])
        self._most_bytes = max(MOST_BYTES, 2 * self._undo.bytes)

    def _print(self, text: str) -> None:
        if self.tick == self.known:
            self._output(text)

    # ── back ──

    def seek(self, tick: int) -> None:
        """Go to where so many steps have been run, all of which have been run before."""
        if tick <= self.tick:
            self._take_up(self._before(tick))
        while self.tick < tick:
            self.step()

    def _before(self, tick: int) -> _State:
        states: list[_State] = [state for state in self._states if state.tick <= tick]
        return states[-1]

    def _take_up(self, state: _State) -> None:
        self._undo.back(state.tick)
        self.tick, self._part = state.tick, state.part
        self.stepper = self._parts[state.part]
        self.stepper.restore(state.saved)

    def last(self, begin: Callable[[Stepper], Callable[[], bool] | None]) -> int:
        """The step before this one after which a condition held last; that with which these blocks began if none is.

        Parameters
        ----------
        begin : callable
            Gives what is called after each step of a stretch; None where it must begin earlier.
        """
        limit = end = self.tick
        while end > self.began:
            start = self._before(end - 1)
            self._take_up(start)
            while (holds := begin(self.stepper)) is None and start.tick > self.began:
                start = self._before(start.tick - 1)
                self._take_up(start)
            found = self.began - 1
            while self.tick < end:
                self.step()
                if self.tick < limit and holds is not None and holds():
                    found = self.tick
            if found >= self.began:
                return found
            end = start.tick
        return self.began

    @property
    def began(self) -> int:
        """The step with which the blocks at hand began."""
        return next(state.tick for state in self._states if state.part == self._part)

    @contextmanager
    def trial(self) -> Iterator[Stepper]:
        """A block in which the machine may be tried; afterwards all is as before."""
        saved, self._undo.tick = self.stepper.save(), self.tick
        self.launch.observers = ()
        try:
            yield self.stepper
        finally:
            self._undo.back(self.tick)
            self.stepper.restore(saved)
