"""What a launch stops at: lines that threads come to, and values that change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudakit.emulator.debug.expressions import Value, evaluate
from cudakit.emulator.debug.lines import Line
from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.debug.stepper import Front, Stepper
from cudakit.emulator.machine.state import DEEPEST, RUNNING, YIELDED, Machine
from cudakit.errors import ArgumentError

#: The bits of a place that say function and instruction.
_WITHIN = Machine.location(DEEPEST - 1, 0, 0) - 1


@dataclass(eq=False)
class Breakpoint:
    """A line at which threads stop.

    Attributes
    ----------
    number : int
    line : Line
    starts : frozenset of (int, int)
        The places where it begins: function and instruction.
    when : str
        A condition, for each thread; empty: always.
    block, thread : int or None
        Which alone stop, counted along x first.
    hits : int
        How often it has stopped them.
    """

    number: int
    line: Line
    starts: frozenset[tuple[int, int]]
    when: str = ""
    block: int | None = None
    thread: int | None = None
    hits: int = 0
    _standing: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    _of: Stepper | None = None

    def __str__(self) -> str:
        parts = [f"{self.number}: {self.line.file}:{self.line.line}"]
        parts += [f"when {self.when}"] if self.when else []
        parts += [f"block {self.block}"] if self.block is not None else []
        parts += [f"thread {self.thread}"] if self.thread is not None else []
        return ", ".join(parts)

    def arrived(self, stepper: Stepper, program: Program) -> int | None:
        """The first lane that has come to the line since this was asked last, and meets the conditions."""
        before = self._standing if self._of is stepper else np.zeros(stepper.lanes, bool)
        self.settle(stepper)
        come = np.flatnonzero(self._standing & ~before)
        if self.block is not None:
            come = come[stepper.block_of[come] + stepper.first_block == self.block]
        if self.thread is not None:
            come = come[come % stepper.threads == self.thread]
        if not come.size or not self.when:
            return int(come[0]) if come.size else None
        hits = list[int]()
        for place in np.unique(stepper.place[come]):
            lanes = come[stepper.place[come] == place]
            scope = Scope(program, stepper, Front(lanes, *stepper.where(int(place)), False))
            found = evaluate(self.when, scope)
            holds = np.broadcast_to(found.data.astype(bool), lanes.shape)
            holds = holds if found.known is None else holds & found.known
            hits += lanes[holds].tolist()
        return min(hits, default=None)

    def settle(self, stepper: Stepper) -> None:
        """Take who stands at the line now for known."""
        keys = [Machine.location(DEEPEST, *start) for start in self.starts]
        able = (stepper.status == RUNNING) | (stepper.status == YIELDED)
        self._standing, self._of = np.isin(stepper.place & _WITHIN, keys) & able, stepper


@dataclass(eq=False)
class Watch:
    """An expression at whose change all stop.

    Attributes
    ----------
    number : int
    text : str
    """

    number: int
    text: str
    _former: np.ma.MaskedArray | None = None

    def __str__(self) -> str:
        return f"{self.number}: watch {self.text}"

    def settle(self, scope: Scope | None) -> None:
        """Take its value now for known."""
        self._former = self._value(scope)

    def change(self, scope: Scope | None) -> str:
        """How it has changed since this was asked last; empty where it has not."""
        former, now = self._former, self._value(scope)
        if now is None:
            return ""
        self._former = now
        if former is None or former.shape != now.shape:
            return ""
        both = ~(missing(former) | missing(now))
        raw, was = (np.ascontiguousarray(each.data) for each in (now, former))
        bits = raw.view(np.uint8).reshape(32, -1) != was.view(np.uint8).reshape(32, -1)
        at = np.flatnonzero(both & bits.any(axis=1))
        return f"{self.text}: {was[at[0]]} → {raw[at[0]]}" if at.size else ""

    def _value(self, scope: Scope | None) -> np.ma.MaskedArray | None:
        try:
            return None if scope is None else by_lane(scope, evaluate(self.text, scope))
        except ArgumentError:
            return None


def missing(value: np.ma.MaskedArray) -> np.ndarray:
    """Which lanes have no value."""
    mask: np.ndarray = np.ascontiguousarray(np.ma.getmaskarray(value))
    return np.asarray(mask.view(bool).reshape(len(mask), -1).all(axis=1))


def by_lane(scope: Scope, value: Value) -> np.ma.MaskedArray:
    """A value as an array over the 32 lanes of the warp, masked where a lane has none."""
    lanes = scope.stepper.lane_id[scope.lanes].astype(np.int64)
    data = np.broadcast_to(value.data, (len(lanes), *value.data.shape[1:]))
    full = np.zeros((32, *data.shape[1:]), data.dtype)
    full[lanes] = data
    known = np.zeros(32, bool)
    known[lanes] = True if value.known is None else value.known
    descr = np.ma.make_mask_descr(full.dtype)
    mask: Any = np.zeros(full.shape, descr)
    mask[~known] = np.ones((), descr)
    # NumPy fills masked elements with 1e20, which not every type can hold.
    with np.errstate(over="ignore"):
        found: np.ma.MaskedArray = np.ma.MaskedArray(full, mask=mask)
        found.fill_value = np.zeros(1, full.dtype)[0]
    return found
