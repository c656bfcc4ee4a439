"""Races of loads of whose value the thread has used nothing yet: they are told when it does.

Several threads of a Triton program load the same element, and one of them stores what comes of it. What the others have
loaded goes nowhere, whenever they load it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cudakit.emulator.checks.plans import Plan
from cudakit.emulator.checks.uses import Uses, Values
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Machine


class _Waiting(NamedTuple):
    """A race of the loads of some lanes, made with an access, and what tells it of one of them."""

    uses: Uses
    lanes: np.ndarray
    event: int
    tell: Callable[[int], None]


class Unused:
    """The loads of one machine of which threads may use nothing.

    Parameters
    ----------
    machine : Machine
    values : Values
    """

    def __init__(self, machine: Machine, values: Values) -> None:
        self._machine, self._values = machine, values
        #: By the instruction that takes such a value: the access with which each lane ran it last; what waits for it.
        self._last: dict[int, np.ndarray] = {}
        self._waiting: dict[int, list[_Waiting]] = {}
        #: Of each such load, the access with which each lane ran it last, and where.
        self._loaded: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        #: Lanes that wait, by the two instructions that race.
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def writes(self, plan: Plan, lanes: Index, now: int) -> None:
        """Lanes are about to store; the races are told of those loads whose value they take."""
        taker = id(plan.given)
        if taker not in self._values.watched:
            return
        last = self._last.setdefault(taker, np.zeros(self._machine.lanes, np.int64))
        last[slice(None) if lanes is None else lanes] = now
        rest = []
        for race in self._waiting.pop(taker, ()):
            used = np.flatnonzero(self._has_run(last, race.uses, race.lanes, race.event))
            if used.size:
                race.tell(int(used[0]))
            else:
                rest.append(race)
        if rest:
            self._waiting[taker] = rest

    def among(self, load: Plan, event: int, lanes: np.ndarray) -> np.ndarray:
        """Whether lanes have used nothing of what they loaded with an access."""
        uses = self._conditional(load)
        if uses is None:
            return np.zeros(lanes.shape, bool)
        unused = np.ones(lanes.shape, bool)
        for last in (self._last[taker] for taker in uses.writes if taker in self._last):
            unused &= ~self._has_run(last, uses, lanes, event)
        return unused

    def loaded(self, load: Plan, event: int, lanes: np.ndarray, offsets: np.ndarray) -> None:
        """Lanes load; stamps keep two of those that read one place, and any of the others may use it."""
        if self._conditional(load) is not None:
            if id(load.given) not in self._loaded:
                self._loaded[id(load.given)] = (
                    np.zeros(self._machine.lanes, np.int64),
                    np.zeros(self._machine.lanes, np.uint64),
                )
            events, places = self._loaded[id(load.given)]
            events[lanes], places[lanes] = event, offsets

    def alike(self, load: Plan, event: int, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Lanes that loaded from any of some places with an access, and the positions of these."""
        events, places = self._loaded[id(load.given)]
        lanes, order = np.flatnonzero(events == event), np.argsort(offsets, kind="stable")
        at = order[np.minimum(np.searchsorted(offsets[order], places[lanes]), offsets.size - 1)]
        same = offsets[at] == places[lanes]
        return lanes[same], at[same]

    def wait(self, load: Plan, other: Plan, event: int, lanes: np.ndarray, tell: Callable[[int], None]) -> None:
        """Loads race that nobody has used; `tell` is given the position of the first lane that does."""
        known = self._known.setdefault((id(load.given), id(other.given)), np.zeros(self._machine.lanes, bool))
        if known[lanes].all():
            return
        known[lanes] = True
        uses = self._values.of(load.given, load.function)
        race = _Waiting(uses, lanes, event, tell)
        for taker in uses.writes:
            self._waiting.setdefault(taker, []).append(race)

    def _conditional(self, load: Plan) -> Uses | None:
        uses = self._values.of(load.given, load.function) if load.given.opcode == "ld" else None
        return uses if uses is not None and uses.is_conditional else None

    def _has_run(self, last: np.ndarray, uses: Uses, lanes: np.ndarray, event: int) -> np.ndarray:
        if not uses.crosses:
            return np.asarray(last[lanes] > event)
        warp_of = self._machine.warp_of
        latest = np.zeros(int(warp_of[-1]) + 1, np.int64)
        np.maximum.at(latest, warp_of, last)
        return np.asarray(latest[warp_of[lanes]] > event)
