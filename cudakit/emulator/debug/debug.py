"""Beginning to step through a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cudakit.emulator.debug import dwarf
from cudakit.emulator.debug.lines import Lines
from cudakit.emulator.debug.scope import Program
from cudakit.emulator.debug.session import Session
from cudakit.emulator.debug.terminal import interact
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
