"""Beginning to step through a kernel, and a session in a terminal, by the commands of gdb and pdb."""

from __future__ import annotations

import cmd
import re
from collections.abc import Callable, Sequence
from typing import IO, Any, Final

import numpy as np

from cudakit.emulator.debug import dwarf
from cudakit.emulator.debug.scope import Program
from cudakit.emulator.debug.session import Session
from cudakit.emulator.debug.stops import Lines
from cudakit.emulator.debug.view import head_of, lines_of, ranges, value_of
from cudakit.emulator.launch import pack
from cudakit.emulator.machine.machine import Launch, run
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ready import Emulated, EmulatedThreads
from cudakit.emulator.resources.allocations import room
from cudakit.emulator.resources.texture import EmulatedTensorMap
from cudakit.emulator.streams.order import order
from cudakit.emulator.streams.stream import EmulatedEvent, EmulatedStream, Point
from cudakit.errors import ArgumentError, CudakitError
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.load.config import Config, Cover

_ALIASES: Final = {
    "b": "break", "r": "run", "c": "continue", "cont": "continue", "s": "step", "n": "next", "si": "stepi",
    "rs": "back", "reverse-step": "back", "rsi": "backi", "reverse-stepi": "backi", "u": "until", "fin": "finish",
    "p": "print", "i": "info", "l": "list", "d": "delete", "w": "where", "bt": "where", "q": "quit", "EOF": "quit",
    "restart": "rewind", "h": "help", "?": "help",
}  # fmt: skip
_BREAK = re.compile(
    r"(?P<line>.*?)(?:\s+block\s+(?P<block>\d+))?(?:\s+thread\s+(?P<thread>\d+))?(?:\s+if\s+(?P<when>.+))?$"
)

#: Commands that move, or look elsewhere: what they do with their argument, and what help says of them.
_MOVES: Final[dict[str, tuple[Callable[[Session, str], Session], str]]] = {
    "run": (lambda at, _: at.run(), "run: run to the next breakpoint, error, or the end."),
    "continue": (lambda at, _: at.continue_(), "continue: the same, from a stop on."),
    "step": (lambda at, n: at.step(int(n or 1)), "Step [N]: run the warp to its next line, into functions."),
    "next": (lambda at, n: at.next(int(n or 1)), "Next [N]: run the warp to its next line, over functions."),
    "stepi": (lambda at, _: at.step_instruction(), "stepi: run one instruction."),
    "until": (
        lambda at, n: at.until(int(n) if n.isdigit() else n),
        "Until LINE|TEXT: run the warp until it comes to a line.",
    ),
    "finish": (lambda at, _: at.finish(), "finish: run the warp until it has left the function."),
    "back": (lambda at, n: at.back(int(n or 1)), "Back [N], or reverse-step: go back by a line of the warp."),
    "backi": (lambda at, _: at.back_instruction(), "backi, or reverse-stepi: go back by an instruction."),
    "rewind": (lambda at, _: at.rewind(), "rewind: go back to the begin."),
    "block": (lambda at, n: at.block(int(n)), "Block N: look at another block."),
    "warp": (lambda at, n: at.warp(int(n)), "Warp N: look at another warp of the block."),
    "thread": (lambda at, n: at.thread(int(n)), "Thread N: look at the warp of a thread of the block."),
}


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
        self._say(head_of(view.where))
        if view.error:
            self._say(f"error: {view.error}")
        for line in lines_of(view):
            self._say(line)
        for name in view.variables:
            if name in view.changed:
                self._say(f"  {name} = {value_of(view.variables[name], 80)}")

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

    # ── looking ──

    def do_where(self, given: str) -> None:
        """where: say where the warp stands."""
        self._say(head_of(self.session.where))

    def do_list(self, given: str) -> None:
        """List [N]: N lines of the source around the warp's."""
        for line in lines_of(self.session.seen(int(given or 5))):
            self._say(line)

    def do_print(self, given: str) -> None:
        """Print EXPRESSION: its value; of each lane where they differ."""
        shared = self.session.shared.get(given.strip())
        self._say(f"{given} = {_array(shared) if shared is not None else value_of(self.session[given])}")

    def do_info(self, given: str) -> None:
        """Info lanes|locals|shared|registers|breakpoints: list them."""
        what = given.strip()
        if what == "lanes":
            by: dict[tuple[str, int], list[int]] = {}
            for lane in self.session.lanes:
                by.setdefault((lane.state, lane.line), []).append(lane.lane)
            for (state, line), lanes in by.items():
                self._say(f"  lanes {ranges(lanes)}: {state}{f', line {line}' if line else ''}")
        elif what in ("locals", "variables"):
            for name, value in self.session.variables.items():
                self._say(f"  {name} = {value_of(value, 80)}")
        elif what == "shared":
            if not self.session.shared:
                self._say("  the kernel declares no shared arrays")
            for name, array in self.session.shared.items():
                self._say(f"  {name}: {array.dtype} {array.shape} = {_array(array)}")
        elif what == "registers":
            for name, value in self.session.registers.items():
                self._say(f"  {name} = {value_of(value)}")
        elif what in ("breakpoints", "break"):
            for stop in self.session.stops:
                self._say(f"  {stop}")
        else:
            self._say("info lanes|locals|shared|registers|breakpoints")

    def do_quit(self, given: str) -> bool:
        """quit: leave; the kernel stays where it is."""
        return True


def _command(move: Callable[[Session, str], Session], text: str) -> Callable[[Terminal, str], None]:
    def command(terminal: Terminal, given: str) -> None:
        move(terminal.session, given)
        terminal._show()

    command.__doc__ = text
    return command


for _name, _move in _MOVES.items():
    setattr(Terminal, f"do_{_name}", _command(*_move))


def interact(session: Session) -> None:
    """Take commands from the terminal."""
    Terminal(session).cmdloop()


def _array(array: np.ndarray) -> str:
    return np.array2string(array, threshold=64, max_line_width=110)


class _Taker:
    """Takes a stream's launch in place of its being run; see `cudakit.emulator.streams.stream.Recorder`."""

    def __init__(self) -> None:
        self.capture = self
        self.asked: list[tuple[Emulated, Config | Cover, Sequence[Any]]] = []

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        self.asked.append((shape.emulated, config, tuple(values)))

    def record(self) -> Point:
        raise ArgumentError("emulator.debug: no event can be recorded by what is debugged")

    def wait(self, event: EmulatedEvent) -> None:
        raise ArgumentError("emulator.debug: what is debugged can wait for no event")


def debug(
    kernel: Callable[..., Any],
    config: Any,
    /,
    *arguments: Any,
    stream: EmulatedStream | None = None,
    checks: bool = True,
) -> Session:
    """Step through a launch of a kernel, on the emulator; nothing has run yet.

    The kernel is compiled with debug information and not optimised, so that its variables are there by their names.

    Parameters
    ----------
    kernel : Kernel
        Of threads, its template arguments given or not.
    config : Config or Cover
    *arguments
        As in a call: host arrays and numbers. What the kernel writes to arrays is there at once; going back undoes it.
    stream : EmulatedStream, optional
        Whose arch, output and budget of steps it has.
    checks : bool
        Whether it stops too at races and at reads of what nobody wrote.

    Returns
    -------
    Session

    Raises
    ------
    ArgumentError
        For tile kernels, and as a call does.

    Examples
    --------
    >>> session = ck.emulator.debug(scale, ck.cover(x.size), x, 2.0, x.size)
    >>> session.break_at("x[i] *=", when="i == 5")
    >>> session.run()
    """
    if stream is None:
        stream = EmulatedStream()
    if not isinstance(stream, EmulatedStream):
        raise ArgumentError(f"emulator.debug: stream is the emulator's, got {type(stream).__name__}")
    if stream.recorder is not None:
        raise ArgumentError("emulator.debug: the stream is captured now")
    taker = stream.recorder = _Taker()
    try:
        kernel(stream, config, *arguments)
    finally:
        stream.recorder = None
    if len(taker.asked) != 1:
        what = f"{len(taker.asked)} launches" if taker.asked else "nothing: its grid is empty"
        raise ArgumentError(f"emulator.debug takes a call that launches one kernel; this one launches {what}")
    order().finish_all()
    return begin(*taker.asked[0], stream, checks)


def begin(
    emulated: Emulated, config: Config | Cover, values: Sequence[Any], stream: EmulatedStream, checks: bool
) -> Session:
    """Step through a launch that was bound for a stream; `debug` says more.

    Raises
    ------
    ArgumentError
        For tile kernels.
    """
    name = emulated.specialization.name_expression
    if not isinstance(emulated, EmulatedThreads):
        raise ArgumentError(f"{name}: tile kernels cannot be stepped through, only kernels of threads")
    memory = Memory(room().arrays)
    ready, text = _with_symbols(emulated, memory)
    for parameter, value in zip(ready.parameters, values, strict=True):
        held = value.array if isinstance(value, EmulatedTensorMap) else value
        if isinstance(held, np.ndarray):
            memory.add(held, parameter.name, not held.flags.writeable)
    launch = Launch(
        ready.loaded,
        ready.entry,
        ready.geometry(stream.arch, config),
        pack(ready, values),
        stream.output,
        step_budget=stream.step_budget,
        name=name,
        placed=ready.placed,
        source=ready.source,
        runner=run,
        schedule=stream.schedule,
    )
    specialization = ready.specialization
    lines = Lines(ready.loaded, specialization.source, specialization.own_text, ready.placed)
    program = Program(dwarf.read(text), specialization.own_text, dict(specialization.template_arguments))
    before = stream.clock
    return Session(launch, lines, program, checks, lambda: stream.pass_time(until=before + launch.steps), interact)


def _with_symbols(emulated: EmulatedThreads, memory: Memory) -> tuple[EmulatedThreads, str]:
    """The kernel compiled with debug information, in a memory of its own but with the variables of its module."""
    wanted, compiled = emulated.specialization, emulated.compiled
    options = wanted.options.replace(debug=True, lineinfo=False)
    try:
        with_symbols = wanted._replace(options=options)
        made = compiled_of(with_symbols)
        if wanted.name_expression in made.lowered:
            wanted, compiled = with_symbols, made
    except CudakitError:
        pass  # compiled code, or what the compiler refuses to compile so: its registers are there
    text = compiled.code.decode()
    linked = emulated.loaded.symbols.linked
    module = Module(parse(text), memory, None, linked)
    constants = {address for address, _ in module.symbols.constants}
    for name, address in module.symbols.addresses.items():
        memory.add(module.symbols.storage[name], f"variable {name}", address in constants)
    return EmulatedThreads(wanted, compiled, emulated.parameters, module), text
