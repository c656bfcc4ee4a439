"""Commands of the terminal: what each asks of a session and says."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.emulator.debug.debug import Terminal
from cudakit.emulator.debug.stops import Line
from cudakit.emulator.debug.view import Lane, View, Where
from cudakit.errors import ArgumentError

HEAD = "block 0, warp 1, lanes 0-1 in f at f.cu:7 (step)\n"
SHOWN = f"{HEAD}->    7 x = 1;\n  x = 3\n"
MOVES = (
    *("run", "continue_", "step", "next", "step_instruction", "until", "finish", "back", "back_instruction"),
    *("rewind", "block", "warp", "thread", "clear"),
)


class Recorded:
    """A session that notes what is asked of it."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.error = ""
        self.where = Where("f.cu", 7, "x = 1;", "f", 0, 1, (0, 1), "step")
        self.variables = {"x": self.value(3), "y": self.value(4)}
        self.registers = {"%r1": self.value(5)}
        self.shared: dict[str, np.ndarray] = {}
        self.stops = ["1: f.cu:7"]
        self.lanes = [Lane(k, (k, 0, 0), *state) for k, state in enumerate([("active", 7)] * 2 + [("exited", 0)])]

    def __getattr__(self, name: str) -> Any:
        if name not in MOVES:
            raise AttributeError(name)
        return lambda *given: self.calls.append((name, *given))

    def value(self, number: int) -> np.ma.MaskedArray:
        return np.ma.MaskedArray(np.full(32, number), mask=np.zeros(32, bool))

    def __getitem__(self, expression: str) -> np.ma.MaskedArray:
        self.calls.append(("value", expression))
        if expression == "wait":
            raise KeyboardInterrupt
        if expression == "wrong":
            raise ArgumentError("no variable wrong")
        return self.value(6)

    def seen(self, around: int) -> View:
        listing = [Line("f.cu", line, "x = 1;") for line in range(7 - around, 8 + around)]
        return View(self.where, self.error, listing, self.variables, {"x"}, self.lanes)

    def break_at(self, line: int | str, when: str, *, block: int | None, thread: int | None) -> Any:
        self.calls.append(("break_at", line, when, block, thread))
        return SimpleNamespace(line=Line("f.cu", 7, "  x = 1;"))

    def watch(self, expression: str) -> str:
        self.calls.append(("watch", expression))
        return f"2: watch {expression}"


def said(session: Recorded, *commands: str) -> str:
    out = io.StringIO()
    terminal = Terminal(session, io.StringIO("".join(f"{command}\n" for command in [*commands, "quit"])), out)  # type: ignore[arg-type]
    terminal.cmdloop()
    text = out.getvalue()
    assert text.startswith(f"{SHOWN}(cudakit) ")
    assert text.endswith("(cudakit) ")
    return text.removeprefix(f"{SHOWN}(cudakit) ").removesuffix("(cudakit) ")


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("run", ("run",)),
        ("r", ("run",)),
        ("continue", ("continue_",)),
        ("cont", ("continue_",)),
        ("step", ("step", 1)),
        ("s 3", ("step", 3)),
        ("next", ("next", 1)),
        ("n 4", ("next", 4)),
        ("stepi", ("step_instruction",)),
        ("si", ("step_instruction",)),
        ("until 12", ("until", 12)),
        ("u x = 1", ("until", "x = 1")),
        ("fin", ("finish",)),
        ("back", ("back", 1)),
        ("rs 2", ("back", 2)),
        ("reverse-stepi", ("back_instruction",)),
        ("restart", ("rewind",)),
        ("block 3", ("block", 3)),
        ("warp 2", ("warp", 2)),
        ("thread 40", ("thread", 40)),
    ],
)
def test_commands_that_move_show_where_the_session_is(command: str, call: tuple[Any, ...]) -> None:
    session = Recorded()
    assert said(session, command) == SHOWN
    assert session.calls == [call]


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("break 7", (7, "", None, None)),
        ("b 'x = 1'", ("x = 1", "", None, None)),
        ("b f.cu:7 block 2 thread 40 if x == 3", ("f.cu:7", "x == 3", 2, 40)),
        ("b x = 1 thread 4", ("x = 1", "", None, 4)),
        ("b x = 1 block 0 if i < 2", ("x = 1", "i < 2", 0, None)),
    ],
)
def test_breakpoints(command: str, call: tuple[Any, ...]) -> None:
    session = Recorded()
    assert said(session, command).endswith(": x = 1;\n")
    assert session.calls == [("break_at", *call)]


def test_other_stops() -> None:
    session = Recorded()
    assert said(session, "break", "watch x[3]", "delete 2", "d") == (
        "(cudakit) ".join(["break LINE|TEXT [block N] [thread N] [if CONDITION]\n", "watch 2: watch x[3]\n", "", ""])
    )
    assert session.calls == [("watch", "x[3]"), ("clear", 2), ("clear", None)]


def test_looking() -> None:
    session = Recorded()
    assert said(session, "w") == HEAD
    assert said(session, "list").count("x = 1;") == 11
    assert said(session, "l 1") == "      6 x = 1;\n->    7 x = 1;\n      8 x = 1;\n"
    assert said(session, "p x + 1") == "x + 1 = 6\n"
    assert session.calls == [("value", "x + 1")]
    assert said(session, "info locals") == said(session, "i variables") == "  x = 3\n  y = 4\n"
    assert said(session, "info registers") == "  %r1 = 5\n"
    assert said(session, "info breakpoints") == said(session, "info break") == "  1: f.cu:7\n"
    assert said(session, "info lanes") == "  lanes 0-1: active, line 7\n  lanes 2: exited\n"
    assert said(session, "info") == "info lanes|locals|shared|registers|breakpoints\n"


def test_shared_memory() -> None:
    session = Recorded()
    assert said(session, "info shared") == "  the kernel declares no shared arrays\n"
    session.shared = {"tile": np.arange(3), "many": np.zeros(65, "f4")}
    many = "[0. 0. 0. ... 0. 0. 0.]"
    assert said(session, "info shared") == f"  tile: int64 (3,) = [0 1 2]\n  many: float32 (65,) = {many}\n"
    assert said(session, "p tile") == "tile = [0 1 2]\n"
    session.shared["many"] = np.zeros(64, "f4")
    assert "..." not in said(session, "p many")


def test_what_goes_wrong_is_said() -> None:
    session = Recorded()
    assert said(session, "jump 3") == "no command 'jump'; help lists them\n"
    assert said(session, "p wrong") == "no variable wrong\n"
    assert said(session, "p wait") == "interrupted\n"
    assert said(session, "step x").startswith("invalid literal for int()")
    session.error = "out of bounds"
    out = io.StringIO()
    Terminal(session, io.StringIO("q\n"), out).cmdloop()  # type: ignore[arg-type]
    assert out.getvalue() == SHOWN.replace(HEAD, f"{HEAD}error: out of bounds\n") + "(cudakit) "
