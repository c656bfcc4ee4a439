"""Source lines of a program, breakpoints and watches."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudakit.emulator.debug.dwarf import Value, evaluate
from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.debug.timeline import Front, Stepper
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import DEEPEST, RUNNING, YIELDED, Machine
from cudakit.errors import ArgumentError, shortened
from cudakit.jit.source.headers import search_folders
from cudakit.jit.source.source import Source as Text


class Line(NamedTuple):
    """A line of the source: file, line number and text."""

    file: str
    line: int
    text: str


class Lines:
    """Source lines of a program's functions.

    Parameters
    ----------
    module : Module
        Module of the program.
    source : Text
        Source of the kernel.
    text : str
        Part of the source that was compiled.
    placed : callable
        Function that returns a file and line of the compiler as the user names them.
    """

    def __init__(self, module: Module, source: Text, text: str, placed: Callable[[str, int], str]) -> None:
        self._source, self._placed = source, placed
        self._text = text.splitlines()
        self._libraries = tuple(str(folder) for folder in search_folders())
        self._lines: dict[tuple[str, int], Line | None] = {}
        #: Source line of each instruction of each function; None for a library's, or an unknown one.
        self.of: list[list[Line | None]] = []
        for function in module.functions:
            lines: list[Line | None] = []
            for instr in function.code:
                own = None if instr.source is None else self._line(instr.source.file, instr.source.line)
                caller = None if instr.source is None else instr.source.caller
                while own is None and caller is not None:
                    own, caller = self._line(caller.file, caller.line), caller.caller
                if own is None and instr.source is None and lines:
                    own = lines[-1]
                lines.append(own)
            self.of.append(lines)

    @property
    def files(self) -> set[str]:
        """The user's files with code in the program."""
        return {line.file for line in self._lines.values() if line is not None}

    def text(self, first: int, last: int) -> list[Line]:
        """Return lines of the kernel's own source, by the user's numbers, from `first` to `last`."""
        shown = [self._line(self._source.name, line) for line in range(1, len(self._text) + 1)]
        return [line for line in shown if line is not None and first <= line.line <= last]

    def _line(self, file: str, line: int) -> Line | None:
        entry = self._lines.get((file, line), ...)
        if entry is ...:
            entry = self._lines[file, line] = self._resolved(file, line)
        return entry

    def _resolved(self, file: str, line: int) -> Line | None:
        shown, _, number = self._placed(file, line).rpartition(":")
        if self._source.named(file) == self._source.name or file == self._source.name:
            text = self._text[line - 1] if 0 < line <= len(self._text) else ""
            return Line(shown, int(number), text)
        if file.startswith(self._libraries) or not Path(file).is_file():
            return None
        return Line(shown, int(number), linecache.getline(file, line).rstrip("\n"))

    def places(self, target: int | str) -> tuple[Line, frozenset[tuple[int, int]]]:
        """Return a line, and the places (function, instruction) where it begins.

        The target is a number, ``file:number``, or a part of the line's text. A number without code means the next line
        with code.

        Raises
        ------
        ArgumentError
            For a target without code behind it.
        """
        lines = {line for of in self.of for line in of if line is not None}
        if isinstance(target, str):
            file, _, number = target.rpartition(":")
            if number.isdigit() and (not file or any(Path(line.file).name == Path(file).name for line in lines)):
                lines = {line for line in lines if not file or Path(line.file).name == Path(file).name}
                target = int(number)
        if isinstance(target, str):
            source_line = min((line for line in lines if target in line.text), default=None, key=lambda line: line.line)
            if source_line is None:
                raise ArgumentError(f"no line with code has {shortened(target)} in it")
        else:
            after = [line for line in lines if line.line >= target]
            if not after:
                last = max((line.line for line in lines), default=0)
                raise ArgumentError(f"no code comes from line {target} or after it; the last line with any is {last}")
            source_line = min(after, key=lambda line: line.line)
        starts = frozenset(
            (number, code)
            for number, of in enumerate(self.of)
            for code, line in enumerate(of)
            if line == source_line and (code == 0 or of[code - 1] != source_line)
        )
        return source_line, starts


#: Bits of a place for function and instruction.
_WITHIN = Machine.location(DEEPEST - 1, 0, 0) - 1


@dataclass(eq=False)
class Breakpoint:
    """A line at which threads stop.

    Attributes
    ----------
    number : int
        Number of the breakpoint.
    line : Line
        The line.
    starts : frozenset of (int, int)
        Places where the line begins: function and instruction.
    when : str
        Condition for each thread; empty: always.
    block, thread : int or None
        The only block or thread that stops, counted along x first; None: all.
    hits : int
        Number of stops so far.
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
        """Return the first lane that has reached the line since the last call and meets the conditions, or None."""
        before = self._standing if self._of is stepper else np.zeros(stepper.lanes, bool)
        self.settle(stepper)
        arrivals = np.flatnonzero(self._standing & ~before)
        if self.block is not None:
            arrivals = arrivals[stepper.block_of[arrivals] + stepper.first_block == self.block]
        if self.thread is not None:
            arrivals = arrivals[arrivals % stepper.threads == self.thread]
        if not arrivals.size or not self.when:
            return int(arrivals[0]) if arrivals.size else None
        hits = list[int]()
        for place in np.unique(stepper.place[arrivals]):
            lanes = arrivals[stepper.place[arrivals] == place]
            scope = Scope(program, stepper, Front(lanes, *stepper.where(int(place)), False))
            condition = evaluate(self.when, scope)
            holds = np.broadcast_to(condition.data.astype(bool), lanes.shape)
            holds = holds if condition.has_value is None else holds & condition.has_value
            hits += lanes[holds].tolist()
        return min(hits, default=None)

    def settle(self, stepper: Stepper) -> None:
        """Record the lanes that are at the line now: the next call of `arrived` does not count them as arrivals."""
        keys = [Machine.location(DEEPEST, *start) for start in self.starts]
        able = (stepper.status == RUNNING) | (stepper.status == YIELDED)
        self._standing, self._of = np.isin(stepper.place & _WITHIN, keys) & able, stepper


@dataclass(eq=False)
class Watch:
    """An expression whose change stops the launch.

    Attributes
    ----------
    number : int
        Number of the watch.
    text : str
        The expression.
    """

    number: int
    text: str
    _former: np.ma.MaskedArray | None = None

    def __str__(self) -> str:
        return f"{self.number}: watch {self.text}"

    def settle(self, scope: Scope | None) -> None:
        """Record the current value of the expression in a scope; the next call of `change` compares with it."""
        self._former = self._value(scope)

    def change(self, scope: Scope | None) -> str:
        """Return the change of the value since the last call or `settle`, as text: ``tile[3]: 1 → 2``.

        The text has the first lane that changed. It is empty if no lane changed, or if there was or is no value.
        """
        former, now = self._former, self._value(scope)
        if now is None:
            return ""
        self._former = now
        if former is None or former.shape != now.shape:
            return ""
        both = ~(missing(former) | missing(now))
        raw, was = (np.ascontiguousarray(array.data) for array in (now, former))
        bits = raw.view(np.uint8).reshape(32, -1) != was.view(np.uint8).reshape(32, -1)
        at = np.flatnonzero(both & bits.any(axis=1))
        return f"{self.text}: {was[at[0]]} → {raw[at[0]]}" if at.size else ""

    def _value(self, scope: Scope | None) -> np.ma.MaskedArray | None:
        try:
            return None if scope is None else by_lane(scope, evaluate(self.text, scope))
        except ArgumentError:
            return None


def missing(value: np.ma.MaskedArray) -> np.ndarray:
    """Return a flag for each lane: whether it has no value."""
    mask: np.ndarray = np.ascontiguousarray(np.ma.getmaskarray(value))
    return np.asarray(mask.view(bool).reshape(len(mask), -1).all(axis=1))


def by_lane(scope: Scope, value: Value) -> np.ma.MaskedArray:
    """Return a value as an array over the 32 lanes of the warp, masked for a lane without a value."""
    lanes = scope.stepper.lane_id[scope.lanes].astype(np.int64)
    data = np.broadcast_to(value.data, (len(lanes), *value.data.shape[1:]))
    full = np.zeros((32, *data.shape[1:]), data.dtype)
    full[lanes] = data
    has_value = np.zeros(32, bool)
    has_value[lanes] = True if value.has_value is None else value.has_value
    descr = np.ma.make_mask_descr(full.dtype)
    mask: Any = np.zeros(full.shape, descr)
    mask[~has_value] = np.ones((), descr)
    # NumPy fills masked elements with 1e20, which not every type can hold.
    with np.errstate(over="ignore"):
        masked: np.ma.MaskedArray = np.ma.MaskedArray(full, mask=mask)
        masked.fill_value = np.zeros(1, full.dtype)[0]
    return masked
