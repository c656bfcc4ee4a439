"""Debug session of a launch."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np

from cudakit.emulator.checks.checker import Checker
from cudakit.emulator.checks.findings import Finding, raise_finding
from cudakit.emulator.debug import view
from cudakit.emulator.debug.dwarf import evaluate
from cudakit.emulator.debug.scope import Program
from cudakit.emulator.debug.stops import Breakpoint, Line, Lines, Watch, by_lane
from cudakit.emulator.debug.timeline import ALL, Timeline
from cudakit.emulator.debug.view import Cursor
from cudakit.emulator.machine.machine import Launch
from cudakit.emulator.machine.memory import Index
from cudakit.errors import ArgumentError, EmulationError


class Session:
    """A launch of a kernel that runs step by step, forward and back; made by `debug`.

    The past is recorded: the same steps run the same way again. Methods that move return the session.

    Attributes
    ----------
    error : str
        Error of the next instruction; empty if no error is known.
    stops : list of Breakpoint or Watch
        Breakpoints and watches.
    """

    def __init__(
        self,
        launch: Launch,
        lines: Lines,
        program: Program,
        checks: bool,
        ended: Callable[[], None],
        interact: Callable[[Session], None],
    ) -> None:
        self.error: str = ""
        self.stops: list[Breakpoint | Watch] = []
        self._ended, self._interact = ended, interact
        self._finding = ""
        time = Timeline(launch, (Checker(self._find),) if checks else ())
        self._time, self._cursor = time, Cursor(time, lines, program)
        self._reason = "begin"
        self._numbers = 0
        self._is_closed = False
        self._before: dict[str, np.ma.MaskedArray] = self.variables

    def _find(self, finding: Finding) -> None:
        is_local = "local memory" in finding.text or finding.file not in self._cursor.lines.files
        if finding.kind == "uninitialised" and is_local:
            # Code without optimization copies structs with their padding, and empty structs.
            return
        self._finding = finding.text
        raise_finding(finding)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return view.as_text(self.seen())

    def _repr_html_(self) -> str:
        return view.as_html(self.seen())

    def seen(self, around: int = 3) -> view.View:
        """Return the place, source lines, variables and lanes of the current moment, as a view to print or display.

        `around` is the number of source lines before and after the warp's line.
        """
        variables = self.variables
        changed = {name for name, value in variables.items() if not view.same(value, self._before.get(name))}
        return view.View(self.where, self.error, self.listing(around), variables, changed, self.lanes)

    # ── where to stop ──

    def break_at(
        self, line: int | str, when: str = "", *, block: int | None = None, thread: int | None = None
    ) -> Breakpoint:
        """Stop where threads reach a line.

        Parameters
        ----------
        line : int or str
            Number of the line in the user's file, ``"file:number"``, or a part of its text. A number without code means
            the next line with code.
        when : str
            Condition in C++'s notation, of variables visible at the line: ``"i == 5"``. Any thread that meets the
            condition stops all threads.
        block, thread : int, optional
            The only block or thread that stops, counted along x first.

        Raises
        ------
        ArgumentError
            For a line without code behind it, and a block or thread that does not exist.
        """
        self._check()
        if block is not None:
            self._within("block", block)
        if thread is not None:
            self._within("thread", thread)
        source_line, starts = self._cursor.lines.places(line)
        self._numbers += 1
        stop = Breakpoint(self._numbers, source_line, starts, when, block, thread)
        self.stops.append(stop)
        return stop

    def watch(self, expression: str) -> Watch:
        """Stop when the value of an expression changes, as the selected warp sees it: ``"tile[3]"``.

        Raises
        ------
        ArgumentError
            For a variable that is not visible at the warp's place.
        """
        self._check()
        evaluate(expression, self._cursor.scope())
        self._numbers += 1
        stop = Watch(self._numbers, expression)
        stop.settle(self._cursor.scope_or_none())
        self.stops.append(stop)
        return stop

    def clear(self, number: int | None = None) -> None:
        """Remove a breakpoint or watch by its number; without a number, remove all.

        Raises
        ------
        ArgumentError
            For a number that no breakpoint or watch has.
        """
        left = [] if number is None else [stop for stop in self.stops if stop.number != number]
        if number is not None and len(left) == len(self.stops):
            raise ArgumentError(f"there is no breakpoint {number}")
        self.stops = left

    # ── forward ──

    def run(self) -> Self:
        """Run all threads to the next breakpoint, change of a watched value, or error; else to the end."""
        if self._time.tick == 0 and not self.error:
            self._check()
            if self._hit():
                return self
        return self._move(ALL, lambda: "")

    def continue_(self) -> Self:
        """Continue from a stop, as `run` does."""
        return self.run()

    def step(self, count: int = 1) -> Self:
        """Run the warp to its next source line, `count` times, also into functions in the user's own files.

        Other warps run only if the warp must wait for them.
        """
        for _ in range(count):
            self._step(None)
        return self

    def next(self, count: int = 1) -> Self:
        """Run the warp to its next source line, `count` times, over the functions that the current line calls."""
        for _ in range(count):
            front = self._cursor.front
            self._step(None if front is None else front.depth)
        return self

    def _step(self, depth: int | None) -> Self:
        moved = self._cursor.boundaries()
        return self._move(self._cursor.number, lambda: "step" if moved(depth) else "")

    def step_instruction(self) -> Self:
        """Run one instruction of the warp, or of other warps if it must wait for them."""
        return self._move(self._cursor.number, lambda: "step")

    def until(self, line: int | str) -> Self:
        """Run the warp until it reaches a line.

        Raises
        ------
        ArgumentError
            For a line without code behind it.
        """
        _, starts = self._cursor.lines.places(line)

        def reached() -> str:
            front = self._cursor.front
            there = front is not None and not front.waits and (front.function, front.code) in starts
            return "step" if there else ""

        return self._move(self._cursor.number, reached)

    def finish(self) -> Self:
        """Run the warp until it has left its function; in the kernel itself, until the warp has exited."""
        front = self._cursor.front
        depth = front.depth if front is not None else 0

        def left() -> str:
            now = self._cursor.front
            return "step" if now is not None and now.depth < depth else ""

        return self._move(self._cursor.number, left)

    def _move(self, warp: int, arrived: Callable[[], str]) -> Self:
        """Run until a breakpoint, a changed watch, an error or the end, or until `arrived` returns a reason to stop.

        `arrived` is called after each instruction and returns an empty text to continue. If `warp` is `ALL`, all warps
        run, otherwise the selected warp, until it exits.
        """
        self._leave()
        time = self._time
        follows = warp != ALL
        for stop in self.stops:
            stop.settle(time.stepper) if isinstance(stop, Breakpoint) else stop.settle(self._cursor.scope_or_none())
        while True:
            if time.is_over:
                self._reason = "end"
                self._ended()
                return self
            stands = follows and self._cursor.front is not None
            try:
                self.error = ""
                ran = time.step(self._cursor.number if follows else ALL)
            except EmulationError as error:
                self.error = str(error)
                culprit = self._finding.removeprefix("race: ") if self._finding and self._finding in self.error else ""
                who = self._cursor.look_at_culprit(self._cursor.number if follows else ALL, culprit)
                self._reason = f"error of {who}" if who else "error"
                return self
            if self._changed(*ran) or (not follows and self._hit()):
                return self
            if reason := arrived():
                self._reason = reason
                return self
            if stands and self._cursor.front is None:
                self._reason = "end" if time.is_over else "exit"
                if time.is_over:
                    self._ended()
                return self

    def _hit(self) -> bool:
        for stop in self.stops:
            if isinstance(stop, Breakpoint):
                lane = stop.arrived(self._time.stepper, self._cursor.program)
                if lane is not None:
                    stop.hits += 1
                    self._reason = f"breakpoint {stop.number}"
                    self._cursor.look_at(lane)
                    return True
        return False

    def _changed(self, location: int, index: Index) -> bool:
        watches = [stop for stop in self.stops if isinstance(stop, Watch)]
        scope = self._cursor.scope_or_none() if watches else None
        for stop in watches:
            if change := stop.change(scope):
                stepper = self._time.stepper
                _, function, code = stepper.where(location)
                line = self._cursor.lines.of[function][code]
                by = stepper.name_of(0 if index is None else int(index[0]))
                self._reason = (
                    f"watch {stop.number}: {change}, at line {line.line if line else 0} ({by} and its fellows)"
                )
                return True
        return False

    # ── back ──

    def back(self, count: int = 1) -> Self:
        """Go back to where the warp began its previous line, or its current line if it is inside it.

        Repeat this `count` times.
        """
        for _ in range(count):
            self._leave()
            tick = self._cursor.line_before()
            self._settle(tick, "begin" if tick == 0 else "step")
        return self

    def back_instruction(self) -> Self:
        """Go back by one instruction, of the warp that ran last."""
        self._leave()
        self._settle(max(0, self._time.tick - 1), "step")
        return self

    def rewind(self) -> Self:
        """Go back to the beginning, and undo the kernel's writes to memory."""
        self._leave()
        self._settle(0, "begin")
        return self

    def _settle(self, tick: int, reason: str) -> None:
        self._time.seek(tick)
        self.error, self._reason = "", reason

    # ── where to look ──

    def block(self, number: int) -> Self:
        """Select the first warp of a block, counted along x first.

        Raises
        ------
        ArgumentError
            For a block that does not exist.
        """
        self._within("block", number)
        self._cursor.block, self._cursor.warp = number, 0
        return self

    def warp(self, number: int) -> Self:
        """Select another warp of the block.

        Raises
        ------
        ArgumentError
            For a warp that does not exist.
        """
        self._within("warp", number)
        self._cursor.warp = number
        return self

    def thread(self, number: int) -> Self:
        """Select the warp of a thread of the block, counted along x first.

        Raises
        ------
        ArgumentError
            For a thread that does not exist.
        """
        self._within("thread", number)
        return self.warp(number // 32)

    def _within(self, unit: str, number: int) -> None:
        geometry = self._time.launch.geometry
        most = {"block": geometry.blocks, "warp": -(-geometry.threads // 32), "thread": geometry.threads}[unit]
        if not 0 <= number < most:
            owner = "the launch" if unit == "block" else "a block"
            raise ArgumentError(f"{unit} {number}: {owner} has {unit}s 0 to {most - 1}")

    @property
    def is_over(self) -> bool:
        """True once the launch has ended."""
        return self._time.is_over

    @property
    def position(self) -> int:
        """Number of instructions that groups of lanes have run since the beginning."""
        return self._time.tick

    @property
    def where(self) -> view.Where:
        """Place of the selected warp, and the reason of the stop."""
        return view.where(self._cursor, self._reason)

    def listing(self, around: int = 5) -> list[Line]:
        """Return the source lines around the warp's line."""
        return view.listing(self._cursor, around)

    # ── what is there ──

    def __getitem__(self, expression: str) -> np.ma.MaskedArray:
        """Return the value of a variable or an expression in the 32 lanes; masked for a lane without a value.

        Raises
        ------
        ArgumentError
            For an expression that is not valid at the warp's place.
        """
        self._check()
        scope = self._cursor.scope()
        return by_lane(scope, evaluate(expression, scope))

    @property
    def variables(self) -> dict[str, np.ma.MaskedArray]:
        """Visible variables of the warp's function, each an array over the 32 lanes.

        Lanes that are not active, and values not yet set, are masked.
        """
        return view.variables(self._cursor)

    @property
    def registers(self) -> dict[str, np.ma.MaskedArray]:
        """Registers of the function in the PTX, each an array over the 32 lanes, masked like `variables`."""
        return view.registers(self._cursor)

    @property
    def shared(self) -> dict[str, np.ndarray]:
        """Copies of the variables in the block's shared memory, as the source declares them."""
        return view.shared(self._cursor)

    @property
    def lanes(self) -> list[view.Lane]:
        """State of each lane of the warp."""
        return view.lanes(self._cursor)

    # ── the end ──

    def _check(self) -> None:
        if self._is_closed:
            raise ArgumentError("the session is closed")

    def _leave(self) -> None:
        """Save the values of the visible variables before a move, to show later which have changed."""
        self._check()
        self._before = self.variables

    def close(self) -> None:
        """Release the launch: the kernel's writes so far stay."""
        if not self._is_closed:
            self._is_closed = True
            self._time.close()

    def interact(self) -> None:
        """Read commands from the terminal: ``help`` lists them."""
        self._interact(self)
