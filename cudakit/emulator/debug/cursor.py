"""Where in a launch one looks: at which step, and at which warp."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from cudakit.emulator.debug.lines import Line, Lines
from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.debug.stepper import ALL, Front, Stepper
from cudakit.emulator.debug.timeline import Timeline
from cudakit.errors import ArgumentError, EmulationError

#: Depth, function, instruction and lanes of a warp that stands at a line.
Mark: TypeAlias = tuple[int, int, int, bytes, Line]


class Cursor:
    """A launch somewhere in its run, and a warp of it.

    Attributes
    ----------
    time : Timeline
    lines : Lines
    program : Program
    block, warp : int
        The block, counted along x first, and the warp in it.
    """

    time: Timeline
    lines: Lines
    program: Program
    block: int
    warp: int

    def __init__(self, time: Timeline, lines: Lines, program: Program) -> None:
        self.time, self.lines, self.program = time, lines, program
        self.block = self.warp = 0

    @property
    def stepper(self) -> Stepper:
        """The blocks that run now."""
        return self.time.stepper

    @property
    def number(self) -> int:
        """The number of the warp among those that run; `ALL` where its block does not."""
        stepper = self.stepper
        block = self.block - stepper.first_block
        return block * (stepper.warps // stepper.blocks) + self.warp if 0 <= block < stepper.blocks else ALL

    @property
    def front(self) -> Front | None:
        """Where the warp stands; None where it does not run."""
        number = self.number
        return None if number == ALL else self.stepper.front(number)

    @property
    def line(self) -> Line | None:
        """The line that it stands at; None in a library."""
        front = self.front
        return None if front is None else self.lines.of[front.function][front.code]

    @property
    def mark(self) -> Mark | None:
        """What tells one line's begin from another's; None where it is at none."""
        front, line = self.front, self.line
        if front is None or line is None:
            return None
        return front.depth, front.function, front.code, front.lanes.tobytes(), line

    def boundaries(self) -> Callable[[int | None], bool]:
        """Whether the warp has come to another line since this was asked last, no deeper than a depth."""
        former = self.mark

        def moved(deepest: int | None) -> bool:
            nonlocal former
            now = self.mark
            if now is None or (deepest is not None and now[0] > deepest):
                return False
            was, former = former, now
            if was is None or was[:2] != now[:2] or was[4] != now[4]:
                return True
            # The same lanes go round a loop that is all in this line.
            between = self.lines.of[now[1]][now[2] : was[2]]
            return now[3] == was[3] and now[2] < was[2] and all(line == now[4] for line in between)

        return moved

    def line_before(self) -> int:
        """Go back to where the warp began with its line, or with the one before; gives the step."""

        def begin(stepper: Stepper) -> Callable[[], bool] | None:
            if self.front is not None and self.line is None:
                return None  # in a library: what line it came from is known earlier
            moved = self.boundaries()
            return lambda: moved(None)

        return self.time.last(begin)

    def look_at(self, lane: int) -> None:
        """Look at the warp of a lane that runs."""
        stepper = self.stepper
        self.block = stepper.first_block + lane // stepper.threads
        self.warp = lane % stepper.threads // 32

    def look_at_culprit(self, warp: int, text: str) -> str:
        """Look at the thread whose instruction fails, which comes next and which `text` may name; gives its name."""
        with self.time.trial() as stepper:
            try:
                location, index, _ = stepper.next(warp)
            except EmulationError:
                return ""  # nobody's: all wait
        lanes = np.arange(stepper.lanes) if index is None else index
        named = [lane for lane in lanes.tolist() if text.startswith(f"{stepper.name_of(lane)} ")] if text else []
        lanes = np.asarray(named[:1]) if named else lanes[:1] if text else lanes
        while lanes.size > 1:
            half = lanes[: lanes.size // 2]
            with self.time.trial() as stepper:
                try:
                    stepper.run_group(location, half)
                    lanes = lanes[half.size :]
                except EmulationError:
                    lanes = half
        self.look_at(int(lanes[0]))
        return self.stepper.name_of(int(lanes[0]))

    def scope(self) -> Scope:
        """What the warp sees.

        Raises
        ------
        ArgumentError
            Where it does not run.
        """
        found = self.scope_or_none()
        if found is None:
            raise ArgumentError(f"block {self.block}, warp {self.warp} does not run: it has no variables")
        return found

    def scope_or_none(self) -> Scope | None:
        """The same; None where it does not run."""
        front = self.front
        return None if front is None else Scope(self.program, self.stepper, front)
