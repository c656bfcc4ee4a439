"""A session in a terminal, by the commands of gdb and pdb."""

from __future__ import annotations

import cmd
import re
from typing import IO, Final

import numpy as np

from cudakit.emulator.debug import show
from cudakit.emulator.debug.session import Session
from cudakit.errors import CudakitError

_ALIASES: Final = {
    "b": "break", "r": "run", "c": "continue", "cont": "continue", "s": "step", "n": "next", "si": "stepi",
    "rs": "back", "reverse-step": "back", "rsi": "backi", "reverse-stepi": "backi", "u": "until", "fin": "finish",
    "p": "print", "i": "info", "l": "list", "d": "delete", "w": "where", "bt": "where", "q": "quit", "EOF": "quit",
    "restart": "rewind", "h": "help", "?": "help",
}  # fmt: skip
_BREAK = re.compile(
    r"(?P<line>.*?)(?:\s+block\s+(?P<block>\d+))?(?:\s+thread\s+(?P<thread>\d+))?(?:\s+if\s+(?P<when>.+))?$"
)


class Terminal(cmd.Cmd):
    """Takes commands for a session.

    Parameters
    ----------
    session : Session
    stdin, stdout : file, optional
        By default the program's own.
    """

    prompt = "(cudakit) "
    doc_header = "commands, as in gdb; an empty line does the last one again"

    def __init__(self, session: Session, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput: bool = stdin is None
        self.session: Session = session

    def preloop(self) -> None:
        """Say where the session is."""
        self._show()

    def precmd(self, line: str) -> str:
        """Take short and other names of commands."""
        name, _, rest = line.strip().partition(" ")
        return f"{_ALIASES.get(name, name)} {rest}".strip()

    def onecmd(self, line: str) -> bool:
        """Run a command; what goes wrong is said, and the next one taken."""
        try:
            return bool(super().onecmd(line))
        except (CudakitError, ValueError) as error:
            self._say(f"{error}")
        except KeyboardInterrupt:
            self._say("interrupted")
        return False

    def default(self, line: str) -> None:
        """Say that there is no such command."""
        self._say(f"no command {line.partition(' ')[0]!r}; help lists them")

    def _say(self, text: str) -> None:
        self.stdout.write(f"{text}\n")

    def _show(self) -> None:
        view = self.session.seen(0)
        self._say(show.head_of(view.where))
        if view.error:
            self._say(f"error: {view.error}")
        for line in show.lines_of(view):
            self._say(line)
        for name in view.variables:
            if name in view.changed:
                self._say(f"  {name} = {show.value_of(view.variables[name], 80)}")

    # ── where to stop ──

    def do_break(self, given: str) -> None:
        """Break LINE|TEXT [block N] [thread N] [if CONDITION]: stop where threads come to a line."""
        found = _BREAK.match(given.strip())
        if not given.strip() or found is None:
            self._say("break LINE|TEXT [block N] [thread N] [if CONDITION]")
            return
        line = found["line"].strip().strip("\"'")
        block, thread = (int(found[name]) if found[name] else None for name in ("block", "thread"))
        made = self.session.break_at(
            int(line) if line.isdigit() else line, found["when"] or "", block=block, thread=thread
        )
        self._say(f"breakpoint {made}: {made.line.text.strip()}")

    def do_watch(self, given: str) -> None:
        """Watch EXPRESSION: stop when its value changes."""
        self._say(f"watch {self.session.watch(given)}")

    def do_delete(self, given: str) -> None:
        """Delete [NUMBER]: remove a breakpoint or watch, or all."""
        self.session.clear(int(given) if given else None)

    # ── forward ──

    def do_run(self, given: str) -> None:
        """run: run to the next breakpoint, error, or the end."""
        self.session.run()
        self._show()

    def do_continue(self, given: str) -> None:
        """continue: the same, from a stop on."""
        self.session.continue_()
        self._show()

    def do_step(self, given: str) -> None:
        """Step [N]: run the warp to its next line, into functions."""
        self.session.step(int(given or 1))
        self._show()

    def do_next(self, given: str) -> None:
        """Next [N]: run the warp to its next line, over functions."""
        self.session.next(int(given or 1))
        self._show()

    def do_stepi(self, given: str) -> None:
        """stepi: run one instruction."""
        self.session.step_instruction()
        self._show()

    def do_until(self, given: str) -> None:
        """Until LINE|TEXT: run the warp until it comes to a line."""
        self.session.until(int(given) if given.isdigit() else given)
        self._show()

    def do_finish(self, given: str) -> None:
        """finish: run the warp until it has left the function."""
        self.session.finish()
        self._show()

    # ── back ──

    def do_back(self, given: str) -> None:
        """Back [N], or reverse-step: go back by a line of the warp."""
        self.session.back(int(given or 1))
        self._show()

    def do_backi(self, given: str) -> None:
        """backi, or reverse-stepi: go back by an instruction."""
        self.session.back_instruction()
        self._show()

    def do_rewind(self, given: str) -> None:
        """rewind: go back to the begin."""
        self.session.rewind()
        self._show()

    # ── looking ──

    def do_where(self, given: str) -> None:
        """where: say where the warp stands."""
        self._say(show.head_of(self.session.where))

    def do_list(self, given: str) -> None:
        """List [N]: N lines of the source around the warp's."""
        for line in show.lines_of(self.session.seen(int(given or 5))):
            self._say(line)

    def do_print(self, given: str) -> None:
        """Print EXPRESSION: its value; of each lane where they differ."""
        shared = self.session.shared.get(given.strip())
        self._say(f"{given} = {_array(shared) if shared is not None else show.value_of(self.session[given])}")

    def do_info(self, given: str) -> None:
        """Info lanes|locals|shared|registers|breakpoints: list them."""
        what = given.strip()
        if what == "lanes":
            by: dict[tuple[str, int], list[int]] = {}
            for lane in self.session.lanes:
                by.setdefault((lane.state, lane.line), []).append(lane.lane)
            for (state, line), lanes in by.items():
                self._say(f"  lanes {show.ranges(lanes)}: {state}{f', line {line}' if line else ''}")
        elif what in ("locals", "variables"):
            for name, value in self.session.variables.items():
                self._say(f"  {name} = {show.value_of(value, 80)}")
        elif what == "shared":
            if not self.session.shared:
                self._say("  the kernel declares no shared arrays")
            for name, array in self.session.shared.items():
                self._say(f"  {name}: {array.dtype} {array.shape} = {_array(array)}")
        elif what == "registers":
            for name, value in self.session.registers.items():
                self._say(f"  {name} = {show.value_of(value)}")
        elif what in ("breakpoints", "break"):
            for stop in self.session.stops:
                self._say(f"  {stop}")
        else:
            self._say("info lanes|locals|shared|registers|breakpoints")

    def do_block(self, given: str) -> None:
        """Block N: look at another block."""
        self.session.block(int(given))
        self._show()

    def do_warp(self, given: str) -> None:
        """Warp N: look at another warp of the block."""
        self.session.warp(int(given))
        self._show()

    def do_thread(self, given: str) -> None:
        """Thread N: look at the warp of a thread of the block."""
        self.session.thread(int(given))
        self._show()

    def do_quit(self, given: str) -> bool:
        """quit: leave; the kernel stays where it is."""
        return True


def interact(session: Session) -> None:
    """Take commands from the terminal."""
    Terminal(session).cmdloop()


def _array(array: np.ndarray) -> str:
    return np.array2string(array, threshold=64, max_line_width=110)
