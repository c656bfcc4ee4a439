"""Start of a debug session, and its terminal, with the commands of gdb and pdb."""

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

#: Commands that move or select: their function of the argument, and their help.
_MOVES: Final[dict[str, tuple[Callable[[Session, str], Session], str]]] = {
    "run": (lambda at, _: at.run(), "run: run to the next breakpoint, error, or the end."),
    "continue": (lambda at, _: at.continue_(), "continue: run on from a stop."),
    "step": (lambda at, n: at.step(int(n or 1)), "Step [N]: run the warp to its next line, into functions."),
    "next": (lambda at, n: at.next(int(n or 1)), "Next [N]: run the warp to its next line, over functions."),
    "stepi": (lambda at, _: at.step_instruction(), "stepi: run one instruction."),
    "until": (
        lambda at, n: at.until(int(n) if n.isdigit() else n),
        "Until LINE|TEXT: run the warp until it reaches a line.",
    ),
    "finish": (lambda at, _: at.finish(), "finish: run the warp until it has left the function."),
    "back": (lambda at, n: at.back(int(n or 1)), "Back [N], or reverse-step: go back by a line of the warp."),
    "backi": (lambda at, _: at.back_instruction(), "backi, or reverse-stepi: go back by an instruction."),
    "rewind": (lambda at, _: at.rewind(), "rewind: go back to the beginning."),
    "block": (lambda at, n: at.block(int(n)), "Block N: select another block."),
    "warp": (lambda at, n: at.warp(int(n)), "Warp N: select another warp of the block."),
    "thread": (lambda at, n: at.thread(int(n)), "Thread N: select the warp of a thread of the block."),
}


class Terminal(cmd.Cmd):
    """Terminal of a session.

    Parameters
    ----------
    session : Session
        Debug session.
    stdin, stdout : file, optional
        Input and output. Default: the program's own.
    """

    prompt = "(cudakit) "
    doc_header = "commands, as in gdb; an empty line does the last one again"

    def __init__(self, session: Session, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput: bool = stdin is None
        self.session: Session = session

    def preloop(self) -> None:
        """Print the place of the session before the first command."""
        self._show()

    def precmd(self, line: str) -> str:
        """Return a command line with an alias of a command replaced by the command's name."""
        name, _, rest = line.strip().partition(" ")
        return f"{_ALIASES.get(name, name)} {rest}".strip()

    def onecmd(self, line: str) -> bool:
        """Run a command. An error is printed, and the session continues."""
        try:
            return bool(super().onecmd(line))
        except (CudakitError, ValueError) as error:
            self._say(f"{error}")
        except KeyboardInterrupt:
            self._say("interrupted")
        return False

    def default(self, line: str) -> None:
        """Report an unknown command."""
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

    def do_break(self, argument: str) -> None:
        """Break LINE|TEXT [block N] [thread N] [if CONDITION]: stop where threads reach a line."""
        match = _BREAK.match(argument.strip())
        if not argument.strip() or match is None:
            self._say("break LINE|TEXT [block N] [thread N] [if CONDITION]")
            return
        line = match["line"].strip().strip("\"'")
        block, thread = (int(match[name]) if match[name] else None for name in ("block", "thread"))
        stop = self.session.break_at(
            int(line) if line.isdigit() else line, match["when"] or "", block=block, thread=thread
        )
        self._say(f"breakpoint {stop}: {stop.line.text.strip()}")

    def do_watch(self, argument: str) -> None:
        """Watch EXPRESSION: stop when its value changes."""
        self._say(f"watch {self.session.watch(argument)}")

    def do_delete(self, argument: str) -> None:
        """Delete [NUMBER]: remove a breakpoint or watch, or all."""
        self.session.clear(int(argument) if argument else None)

    # ── looking ──

    def do_where(self, argument: str) -> None:
        """Show the place of the warp: where."""
        self._say(head_of(self.session.where))

    def do_list(self, argument: str) -> None:
        """List [N]: N lines of the source around the warp's."""
        for line in lines_of(self.session.seen(int(argument or 5))):
            self._say(line)

    def do_print(self, argument: str) -> None:
        """Print EXPRESSION: show its value, for each lane where values differ."""
        shared = self.session.shared.get(argument.strip())
        self._say(f"{argument} = {_array(shared) if shared is not None else value_of(self.session[argument])}")

    def do_info(self, argument: str) -> None:
        """Info lanes|locals|shared|registers|breakpoints: list them."""
        topic = argument.strip()
        if topic == "lanes":
            by: dict[tuple[str, int], list[int]] = {}
            for lane in self.session.lanes:
                by.setdefault((lane.state, lane.line), []).append(lane.lane)
            for (state, line), lanes in by.items():
                self._say(f"  lanes {ranges(lanes)}: {state}{f', line {line}' if line else ''}")
        elif topic in ("locals", "variables"):
            for name, value in self.session.variables.items():
                self._say(f"  {name} = {value_of(value, 80)}")
        elif topic == "shared":
            if not self.session.shared:
                self._say("  the kernel declares no shared arrays")
            for name, array in self.session.shared.items():
                self._say(f"  {name}: {array.dtype} {array.shape} = {_array(array)}")
        elif topic == "registers":
            for name, value in self.session.registers.items():
                self._say(f"  {name} = {value_of(value)}")
        elif topic in ("breakpoints", "break"):
            for stop in self.session.stops:
                self._say(f"  {stop}")
        else:
            self._say("info lanes|locals|shared|registers|breakpoints")

    def do_quit(self, argument: str) -> bool:
        """quit: leave; the kernel stays where it is."""
        return True


def _command(move: Callable[[Session, str], Session], text: str) -> Callable[[Terminal, str], None]:
    def command(terminal: Terminal, argument: str) -> None:
        move(terminal.session, argument)
        terminal._show()

    command.__doc__ = text
    return command


for _name, _move in _MOVES.items():
    setattr(Terminal, f"do_{_name}", _command(*_move))


def interact(session: Session) -> None:
    """Read commands for a session from the terminal and run them, until the user quits."""
    Terminal(session).cmdloop()


def _array(array: np.ndarray) -> str:
    return np.array2string(array, threshold=64, max_line_width=110)


class _LaunchRecorder:
    """A recorder that takes a stream's launch instead of running it; see `cudakit.emulator.streams.stream.Recorder`."""

    def __init__(self) -> None:
        self.capture = self
        self.launches: list[tuple[Emulated, Config | Cover, Sequence[Any]]] = []

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        self.launches.append((shape.emulated, config, tuple(values)))

    def record(self) -> Point:
        raise ArgumentError("emulator.debug: a call that is debugged cannot record an event")

    def wait(self, event: EmulatedEvent) -> None:
        raise ArgumentError("emulator.debug: a call that is debugged cannot wait for an event")


def debug(
    kernel: Callable[..., Any],
    config: Any,
    /,
    *arguments: Any,
    stream: EmulatedStream | None = None,
    checks: bool = True,
) -> Session:
    """Step through a launch of a kernel on the emulator. Nothing runs before the first step.

    The kernel is compiled with debug information and without optimization, so that its variables keep their names.

    Parameters
    ----------
    kernel : Kernel
        Kernel of threads, with or without its template arguments.
    config : Config or Cover
        Grid and block of the launch.
    *arguments
        Arguments of a call: host arrays and numbers. Writes of the kernel to arrays appear at once; going back undoes
        them.
    stream : EmulatedStream, optional
        Stream whose arch, output and step budget the session has.
    checks : bool
        Whether to stop at races and at reads of memory that was never written.

    Returns
    -------
    Session

    Raises
    ------
    ArgumentError
        For tile kernels, and for the errors of a call.

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
        raise ArgumentError("emulator.debug: the stream is being captured; debug outside of the capture")
    recorder = stream.recorder = _LaunchRecorder()
    try:
        kernel(stream, config, *arguments)
    finally:
        stream.recorder = None
    if len(recorder.launches) != 1:
        launched = f"{len(recorder.launches)} launches" if recorder.launches else "nothing: its grid is empty"
        raise ArgumentError(f"emulator.debug takes a call that launches one kernel; this one launches {launched}")
    order().finish_all()
    return begin(*recorder.launches[0], stream, checks)


def begin(
    emulated: Emulated, config: Config | Cover, values: Sequence[Any], stream: EmulatedStream, checks: bool
) -> Session:
    """Start a session for a launch that was bound for a stream: see `debug`.

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
        array = value.array if isinstance(value, EmulatedTensorMap) else value
        if isinstance(array, np.ndarray):
            memory.add(array, parameter.name, not array.flags.writeable)
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
    lines = Lines(ready.loaded, specialization.source, specialization.written_text, ready.placed)
    program = Program(dwarf.read(text), specialization.written_text, dict(specialization.template_arguments))
    before = stream.clock
    return Session(launch, lines, program, checks, lambda: stream.pass_time(until=before + launch.steps), interact)


def _with_symbols(emulated: EmulatedThreads, memory: Memory) -> tuple[EmulatedThreads, str]:
    """Compile a kernel with debug information; return the kernel with a new module in `memory`, and its PTX.

    The variables of the loaded module are shared with the new one. If the kernel cannot be compiled with debug
    information, the code is the one compiled before.
    """
    specialization, compiled = emulated.specialization, emulated.compiled
    options = specialization.options.replace(debug=True, lineinfo=False)
    try:
        with_symbols = specialization._replace(options=options)
        debug_code = compiled_of(with_symbols)
        if specialization.name_expression in debug_code.lowered:
            specialization, compiled = with_symbols, debug_code
    except CudakitError:
        pass  # compiled code, or what the compiler refuses to compile so: its registers are there
    text = compiled.code.decode()
    linked = emulated.loaded.symbols.linked
    module = Module(parse(text), memory, None, linked)
    constants = {address for address, _ in module.symbols.constants}
    for name, address in module.symbols.addresses.items():
        memory.add(module.symbols.storage[name], f"variable {name}", address in constants)
    return EmulatedThreads(specialization, compiled, emulated.parameters, module), text
