"""Views of a launch at one moment, as text and as HTML for notebooks: variables, registers, memory, lanes.

A cursor has the selected warp, and finds where the warp's steps end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from cudakit.emulator.debug.scope import Program, Scope
from cudakit.emulator.debug.stops import Line, Lines, by_lane, missing
from cudakit.emulator.debug.timeline import ALL, Front, Stepper, Timeline
from cudakit.emulator.machine.memory import plain
from cudakit.emulator.machine.state import AT_BARRIER, AT_WARP, DONE
from cudakit.errors import ArgumentError, EmulationError
from cudakit.jit.compile.mangled import bare_name

#: Depth, function, instruction and lanes of a warp at the beginning of a line.
Mark: TypeAlias = tuple[int, int, int, bytes, Line]


class Cursor:
    """A selected warp of a launch at some moment of its run.

    Attributes
    ----------
    time : Timeline
        Timeline of the launch.
    lines : Lines
        Source lines of the program.
    program : Program
        Variables of the program.
    block : int
        Number of the block, counted along x first.
    warp : int
        Number of the warp in the block.
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
        """Interpreter of the blocks that run now."""
        return self.time.stepper

    @property
    def number(self) -> int:
        """Number of the warp among the running warps; `ALL` if its block does not run."""
        stepper = self.stepper
        block = self.block - stepper.first_block
        return block * (stepper.warps // stepper.blocks) + self.warp if 0 <= block < stepper.blocks else ALL

    @property
    def front(self) -> Front | None:
        """Position of the warp; None if the warp does not run."""
        number = self.number
        return None if number == ALL else self.stepper.front(number)

    @property
    def line(self) -> Line | None:
        """Source line of the warp; None if the warp is in a library."""
        front = self.front
        return None if front is None else self.lines.of[front.function][front.code]

    @property
    def mark(self) -> Mark | None:
        """Position of the warp, which `boundaries` compares: call depth, function, instruction, lanes and line.

        None if the warp does not run, or is in a library.
        """
        front, line = self.front, self.line
        if front is None or line is None:
            return None
        return front.depth, front.function, front.code, front.lanes.tobytes(), line

    def boundaries(self) -> Callable[[int | None], bool]:
        """Return a function that returns whether the warp has begun a line since the function's last call.

        A further round of a loop inside one line counts as a begin too. The function takes the greatest call depth at
        which a line counts; None: any.
        """
        former = self.mark

        def moved(deepest: int | None) -> bool:
            nonlocal former
            now = self.mark
            if now is None or (deepest is not None and now[0] > deepest):
                return False
            was, former = former, now
            if was is None or was[:2] != now[:2] or was[4] != now[4]:
                return True
            # The same lanes repeat a loop inside this line.
            between = self.lines.of[now[1]][now[2] : was[2]]
            return now[3] == was[3] and now[2] < was[2] and all(line == now[4] for line in between)

        return moved

    def line_before(self) -> int:
        """Return the step at which the warp began its current line.

        If the warp is at that step now, return the step of the line before. The timeline may be at another step
        afterwards.
        """

        def begin(stepper: Stepper) -> Callable[[], bool] | None:
            if self.front is not None and self.line is None:
                return None  # in a library: what line it came from is known earlier
            moved = self.boundaries()
            return lambda: moved(None)

        return self.time.last(begin)

    def look_at(self, lane: int) -> None:
        """Select the warp of a lane, by the lane's number in the interpreter of the running blocks."""
        stepper = self.stepper
        self.block = stepper.first_block + lane // stepper.threads
        self.warp = lane % stepper.threads // 32

    def look_at_culprit(self, warp: int, text: str) -> str:
        """Select the warp of the thread whose next instruction fails, and return the thread's name.

        If all threads wait, select nothing and return an empty text. `warp` is the warp that ran, or `ALL`. `text` is
        an error message that may begin with the thread's name. If it is empty, parts of the lanes are run on trial.
        """
        with self.time.trial() as stepper:
            try:
                location, index, _ = stepper.next(warp)
            except EmulationError:
                return ""  # nobody's: all wait
        lanes = np.arange(stepper.lanes) if index is None else index
        culprits = [lane for lane in lanes.tolist() if text.startswith(f"{stepper.name_of(lane)} ")] if text else []
        lanes = np.asarray(culprits[:1]) if culprits else lanes[:1] if text else lanes
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
        """Return the scope of the warp.

        Raises
        ------
        ArgumentError
            If the warp does not run.
        """
        visible = self.scope_or_none()
        if visible is None:
            raise ArgumentError(f"block {self.block}, warp {self.warp} does not run: it has no variables")
        return visible

    def scope_or_none(self) -> Scope | None:
        """Return the scope of the warp; None if it does not run."""
        front = self.front
        return None if front is None else Scope(self.program, self.stepper, front)


class Where(NamedTuple):
    """Place of a warp.

    Attributes
    ----------
    file, line, text : str, int, str
        File, number and text of the source line; empty and 0 if the warp does not run, or is in a library.
    function : str
        Name of the function.
    block, warp : int
        Number of the block, counted along x first, and number of the warp in the block.
    lanes : tuple of int
        Lanes that run next, together.
    reason : str
        Reason of the stop: ``begin``, ``breakpoint 1``, ``step``, ``watch 2: …``, ``error of …``, ``exit`` (of the
        warp) or ``end``.
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
        Number of the lane.
    thread : tuple of int
        ``threadIdx`` of the lane.
    state : str
        ``active``, ``elsewhere``, ``barrier``, ``waiting`` (for other lanes of its warp) or ``exited``.
    line : int
        Source line of the lane; 0 if the lane has exited.
    """

    lane: int
    thread: tuple[int, int, int]
    state: str
    line: int


class View(NamedTuple):
    """Contents of the session's page or terminal: place, error, source lines, variables and lanes."""

    where: Where
    error: str
    listing: list[Line]
    variables: dict[str, np.ma.MaskedArray]
    changed: set[str]
    lanes: list[Lane]


def where(cursor: Cursor, reason: str) -> Where:
    """Return the place of the cursor's warp, with the reason of the stop."""
    front, line = cursor.front, cursor.line or Line("", 0, "")
    if front is None:
        return Where(*line, "", cursor.block, cursor.warp, (), reason)
    stepper = cursor.stepper
    function = stepper.module.functions[front.function]
    name = stepper.launch.title if function is stepper.launch.entry else bare_name(plain(function.name))
    lanes = tuple(stepper.lane_id[front.lanes].tolist())
    return Where(*line, name, cursor.block, cursor.warp, lanes, reason)


def listing(cursor: Cursor, around: int) -> list[Line]:
    """Return the warp's source line with `around` lines before and after; an empty list if it has no line."""
    line = cursor.line
    return [] if line is None else cursor.lines.text(line.line - around, line.line + around)


def variables(cursor: Cursor) -> dict[str, np.ma.MaskedArray]:
    """Return the visible variables of the warp's function, each masked for lanes without a value."""
    scope = cursor.scope_or_none()
    return {} if scope is None else {name: by_lane(scope, scope.variable(name)) for name in scope.names()}


def registers(cursor: Cursor) -> dict[str, np.ma.MaskedArray]:
    """Return the registers of the function."""
    scope = cursor.scope_or_none()
    return {} if scope is None else {name: by_lane(scope, scope.register(name)) for name in scope.function.registers}


def shared(cursor: Cursor) -> dict[str, np.ndarray]:
    """Return copies of the variables in the block's shared memory."""
    scope = cursor.scope_or_none()
    if scope is None:
        return {}
    block = cursor.block - cursor.stepper.first_block
    return {plain(symbol): scope.shared(symbol, block).copy() for symbol in scope.offsets}


def lanes(cursor: Cursor) -> list[Lane]:
    """Return the state of each lane of the warp."""
    stepper, warp, front = cursor.stepper, cursor.number, cursor.front
    active = set() if front is None or front.waits else set(front.lanes.tolist())
    states = {AT_BARRIER: "barrier", AT_WARP: "waiting", DONE: "exited"}
    result = []
    for lane in [] if warp == ALL else stepper.lanes_of(warp).tolist():
        status = int(stepper.status[lane])
        state = "active" if lane in active else states.get(status, "elsewhere")
        _, function, code = stepper.where(int(stepper.place[lane]))
        at = None if status == DONE else cursor.lines.of[function][code - (status in (AT_BARRIER, AT_WARP))]
        x, y, z = (int(stepper.special[f"tid.{axis}"][lane]) for axis in "xyz")
        result.append(Lane(int(stepper.lane_id[lane]), (x, y, z), state, at.line if at else 0))
    return result


def same(now: np.ma.MaskedArray, former: np.ma.MaskedArray | None) -> bool:
    """Return whether a variable has its former value in all lanes; False without a former value."""
    if former is None or former.shape != now.shape or former.dtype != now.dtype:
        return False
    masks = np.array_equal(np.ma.getmaskarray(now), np.ma.getmaskarray(former))
    return masks and np.ascontiguousarray(now.data).tobytes() == np.ascontiguousarray(former.data).tobytes()


#: Most values displayed of a variable.
_MOST: Final = 8
#: Characters for the values of all lanes, where not all are asked for.
_WIDTH: Final = 80
_STYLE: Final = (
    "<style>.cudakit-debug{font:13px sans-serif}.cudakit-debug pre{margin:4px 0}"
    ".cudakit-debug table{border-collapse:collapse;font:12px monospace}"
    ".cudakit-debug td,.cudakit-debug th{padding:1px 5px;text-align:right;border:1px solid #8884}"
    ".cudakit-debug .here{background:#fd06;font-weight:bold}.cudakit-debug .new{background:#f806}"
    ".cudakit-debug .off{opacity:.35}.cudakit-debug .wrong{color:#c22;font-weight:bold}"
    ".cudakit-debug div{overflow-x:auto}</style>"
)


def head_of(where: Where) -> str:
    """Return one line of text: block, warp, lanes, function, source line and the reason of the stop."""
    lanes = f", lanes {ranges(where.lanes)}" if where.lanes else ""
    at = f" at {where.file}:{where.line}" if where.line else ""
    inside = f" in {where.function}" if where.function else ""
    return f"block {where.block}, warp {where.warp}{lanes}{inside}{at} ({where.reason})"


def as_text(view: View) -> str:
    """Return a view as text: place, error, source lines and variables."""
    parts = [head_of(view.where)]
    parts += [f"error: {view.error}"] if view.error else []
    parts += lines_of(view)
    parts += [
        f"  {'*' if name in view.changed else ' '} {name} = {value_of(value, _WIDTH)}"
        for name, value in view.variables.items()
    ]
    return "\n".join(parts)


def lines_of(view: View) -> list[str]:
    """Return the source lines of a view, the current one marked."""
    return [f"{'->' if line.line == view.where.line else '  '} {line.line:4} {line.text}" for line in view.listing]


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as text: ``0-3, 8``."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def value_of(value: np.ma.MaskedArray, width: int = 1 << 20) -> str:
    """Return a value as text: once if all lanes with a value agree, else for each lane, up to `width` characters.

    Lanes without a value are shown as ``-``. If no lane has a value, the text is ``not set``.
    """
    has_value = ~missing(value)
    data = value.data[has_value]
    if not len(data):
        return "not set"
    raw = np.ascontiguousarray(data).view(np.uint8).reshape(len(data), -1)
    if (raw == raw[0]).all():
        return lane_value(data[0])
    shown = ["-" if not is_known else lane_value(item) for item, is_known in zip(value.data, has_value, strict=True)]
    first = next((k for k in range(1, len(shown)) if len(" ".join(shown[: k + 1])) > width), len(shown))
    return "[" + " ".join(shown[:first]) + (" …]" if first < len(shown) else "]")


def lane_value(value: object) -> str:
    """Return the value of one lane as text."""
    if isinstance(value, np.void) and value.dtype.names is not None:
        return "{" + ", ".join(f"{name}: {lane_value(value[name])}" for name in value.dtype.names) + "}"
    if isinstance(value, np.ndarray):
        if value.ndim == 0:
            return lane_value(value[()])
        more = ", …" if len(value) > _MOST else ""
        return "{" + ", ".join(lane_value(element) for element in value[:_MOST]) + more + "}"
    if isinstance(value, np.uint64) and value > 1 << 32:
        return hex(int(value))
    if isinstance(value, np.floating):
        return f"{float(value):.7g}"
    return str(value)


def as_html(view: View) -> str:
    """Return a view as a fragment of HTML: the source with its current line, and a table of the lanes' variables."""
    wrong = f"<p class='wrong'>{escape(view.error)}</p>" if view.error else ""
    source = "\n".join(
        f"<span class='{'here' if line.line == view.where.line else ''}'>{line.line:4} {escape(line.text)}</span>"
        for line in view.listing
    )
    head = f"<b>{escape(head_of(view.where))}</b>"
    return f"<div class='cudakit-debug'>{_STYLE}{head}{wrong}<pre>{source}</pre>{_table(view)}</div>"


def _table(view: View) -> str:
    if not view.lanes:
        return ""
    lanes = "".join(f"<th{_off(lane)}>{lane.lane}</th>" for lane in view.lanes)
    rows = [f"<tr><th>lane</th>{lanes}</tr>"]
    at = "".join(f"<td{_off(lane)} title='{lane.state}'>{lane.line or '·'}</td>" for lane in view.lanes)
    rows.append(f"<tr><th>line</th>{at}</tr>")
    for name, value in view.variables.items():
        absent = missing(value)
        cells = "".join(
            "<td class='off'>·</td>" if absent[lane.lane] else f"<td>{escape(lane_value(value.data[lane.lane]))}</td>"
            for lane in view.lanes
        )
        rows.append(f"<tr class='{'new' if name in view.changed else ''}'><th>{escape(name)}</th>{cells}</tr>")
    return f"<div><table>{''.join(rows)}</table></div>"


def _off(lane: Lane) -> str:
    return "" if lane.state == "active" else " class='off'"
