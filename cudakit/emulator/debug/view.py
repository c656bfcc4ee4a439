"""What is seen of a launch at one moment: variables, registers, shared memory, lanes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cudakit.emulator.debug.cursor import Cursor
from cudakit.emulator.debug.lines import Line
from cudakit.emulator.debug.stepper import ALL
from cudakit.emulator.debug.stops import by_lane
from cudakit.emulator.machine.memory import plain
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, DONE


class Where(NamedTuple):
    """Where a warp stands.

    Attributes
    ----------
    file, line, text : str, int, str
        Of the source; empty and 0 where the warp does not run, or is in a library.
    function : str
    block, warp : int
        The block, counted along x first, and the warp in it.
    lanes : tuple of int
        The lanes that go on next, together.
    reason : str
        Why it stopped: ``begin``, ``breakpoint 1``, ``step``, ``watch 2: …``, ``error of …``, ``exit`` (of the warp) or
        ``end``.
    """

    file: str
    line: int
    text: str
    function: str
    block: int
    warp: int
    lanes: tuple[int, ...]
    reason: str


class Lane(NamedTuple):
    """A lane of the warp.

    Attributes
    ----------
    lane : int
    thread : tuple of int
        Its ``threadIdx``.
    state : str
        ``active``, ``elsewhere``, ``barrier``, ``waiting`` (for others of its warp) or ``exited``.
    line : int
        Where it stands; 0 where it has exited.
    """

    lane: int
    thread: tuple[int, int, int]
    state: str
    line: int


class View(NamedTuple):
    """All that a page or a terminal shows of it."""

    where: Where
    error: str
    listing: list[Line]
    variables: dict[str, np.ma.MaskedArray]
    changed: set[str]
    lanes: list[Lane]


def where(cursor: Cursor, reason: str) -> Where:
    """Where the warp stands."""
    front, line = cursor.front, cursor.line or Line("", 0, "")
    if front is None:
        return Where(*line, "", cursor.block, cursor.warp, (), reason)
    stepper = cursor.stepper
    function = stepper.module.functions[front.function]
    name = stepper.launch.title if function is stepper.launch.entry else _short(function.name)
    lanes = tuple(stepper.lane_id[front.lanes].tolist())
    return Where(*line, name, cursor.block, cursor.warp, lanes, reason)


def _short(name: str) -> str:
    """A mangled function's name without its types."""
    text, depth, start = plain(name), 0, 0
    for place, letter in enumerate(text):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and not depth:
            return text[start:place]
        if letter == " " and not depth:
            start = place + 1
    return text


def listing(cursor: Cursor, around: int) -> list[Line]:
    """The lines of the source around the one that the warp stands at."""
    line = cursor.line
    return [] if line is None else cursor.lines.text(line.line - around, line.line + around)


def variables(cursor: Cursor) -> dict[str, np.ma.MaskedArray]:
    """The variables of the function that the warp sees."""
    scope = cursor.scope_or_none()
    return {} if scope is None else {name: by_lane(scope, scope.variable(name)) for name in scope.names()}


def registers(cursor: Cursor) -> dict[str, np.ma.MaskedArray]:
    """The registers of the function."""
    scope = cursor.scope_or_none()
    return {} if scope is None else {name: by_lane(scope, scope.register(name)) for name in scope.function.registers}


def shared(cursor: Cursor) -> dict[str, np.ndarray]:
    """The variables in the block's shared memory: copies."""
    scope = cursor.scope_or_none()
    if scope is None:
        return {}
    block = cursor.block - cursor.stepper.first_block
    return {plain(symbol): scope.shared(symbol, block).copy() for symbol in scope.offsets}


def lanes(cursor: Cursor) -> list[Lane]:
    """What each lane of the warp does."""
    stepper, warp, front = cursor.stepper, cursor.number, cursor.front
    active = set() if front is None or front.waits else set(front.lanes.tolist())
    states = {AT_BARRIER: "barrier", AT_WARP: "waiting", DONE: "exited"}
    found = []
    for lane in [] if warp == ALL else stepper.lanes_of(warp).tolist():
        status = int(stepper.status[lane])
        state = "active" if lane in active else states.get(status, "elsewhere")
        _, function, code = stepper.where(int(stepper.place[lane]))
        at = None if status == DONE else cursor.lines.of[function][code - (status in (AT_BARRIER, AT_WARP))]
        x, y, z = (int(stepper.special[f"tid.{axis}"][lane]) for axis in "xyz")
        found.append(Lane(int(stepper.lane_id[lane]), (x, y, z), state, at.line if at else 0))
    return found


def same(now: np.ma.MaskedArray, former: np.ma.MaskedArray | None) -> bool:
    """Whether a variable is what it was, in all lanes."""
    if former is None or former.shape != now.shape or former.dtype != now.dtype:
        return False
    masks = np.array_equal(np.ma.getmaskarray(now), np.ma.getmaskarray(former))
    return masks and np.ascontiguousarray(now.data).tobytes() == np.ascontiguousarray(former.data).tobytes()
