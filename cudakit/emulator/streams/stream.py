"""The emulator's stream, which a call is given to run on the host, and its events."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from cudakit.emulator.machine.machine import DrawnOrder, Observer
from cudakit.emulator.resources.allocations import MARKS
from cudakit.emulator.streams.order import Mark, Order, Turn, order
from cudakit.errors import ArgumentError, EmulationError, LaunchError, shortened
from cudakit.jit.cache import settings
from cudakit.jit.specialise.options import is_arch, unknown_arch
from cudakit.streams.witnesses import Work, telling, watched
from cudakit.types.checked import flag, is_one_of, whole


def _print(text: str) -> None:
    sys.stdout.write(text)


#: Watch the kernels of all streams.
EVERYWHERE: list[Observer] = []


class EmulatedStream:
    """A stream whose kernels run on the host, on NumPy arrays, each to its end before the call returns.

    Streams, events and waits mean what they mean on a GPU: work that a GPU could run at the same time or in another
    order is told by them alone. From the time that there are two streams, what each piece of work reads and writes is
    watched, byte by byte, and a race is an `EmulationError`.

    Parameters
    ----------
    arch : str
        Arch that kernels are compiled for, ``sm_80`` or ``sm_90``.
    step_budget : int or None
        Steps after which a launch is stopped as endless; None: no limit.
    output : callable
        Takes what kernels print.
    block_order : int or None
        The seed of the order in which the blocks of tile kernels run; None: by their numbers.
    check : {"raise", "warn", "off"}
        What is done with what checks find in kernels of threads.
    schedule : int, tuple of int or None
        The seed of the order in which threads run; None: those that are behind go first.
    strict : bool
        Whether the host's arrays and the device's are told apart, as on a GPU.

    Attributes
    ----------
    handle : int
        A small number, for each stream another.
    recorder : Recorder or None
        Is given launches in place of their being run.
    observers : tuple of Observer
        Watch the kernels of threads that it runs.
    order : Order
        Of all streams, as `cudakit.emulator.streams.order.order` gives it.
    """

    arch: str
    step_budget: int | None
    output: Callable[[str], None]
    block_order: int | None
    machine: str
    check: str
    schedule: DrawnOrder | None
    strict: bool

    __slots__ = (
        "__weakref__", "_clock", "arch", "block_order", "check", "handle", "machine", "observers", "order", "output",
        "recorder", "schedule", "step_budget", "strict",
    )  # fmt: skip

    def __init__(
        self,
        arch: str = "sm_90",
        step_budget: int | None = None,
        output: Callable[[str], None] = _print,
        block_order: int | None = None,
        machine: str = "numpy",
        check: str = "off",
        schedule: DrawnOrder | None = None,
        strict: bool = False,
    ) -> None:
        self.arch, self.step_budget, self.output, self.block_order = arch, step_budget, output, block_order
        self.machine, self.check, self.schedule, self.strict = machine, check, schedule, strict
        self.observers: tuple[Observer, ...] = ()
        self._clock = 0
        self.recorder: Recorder | None = None
        self.order: Order = order()
        self.handle: int = self.order.add(self)
        if check != "off":
            MARKS.watch(1)
            weakref.finalize(self, MARKS.watch, -1).atexit = False

    def __repr__(self) -> str:
        return f"EmulatedStream(handle={self.handle}, arch={self.arch!r}, step_budget={self.step_budget})"

    if not TYPE_CHECKING:  # a type checker would take every attribute for one that exists

        def __getattr__(self, name: str) -> NoReturn:
            from cudakit import foreign_names  # late: most programs look up no missing name

            raise foreign_names.missing_attribute("stream", self, f"{type(self).__name__!r} object", name)

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            "a stream cannot be pickled: it is of its process. Make one where the work is done, ck.stream()"
        )

    def alike(self) -> EmulatedStream:
        """Another stream with the same settings."""
        made = EmulatedStream(
            self.arch, self.step_budget, self.output, self.block_order, self.machine, self.check, self.schedule,
            self.strict,
        )  # fmt: skip
        made.observers = self.observers
        return made

    @property
    def clock(self) -> int:
        """The emulated step that the stream has come to; where it has nothing to do, that which the host has come to.

        Work begins there, or later, where what it waits for ends: before a witness is told that work begins, the clock
        is put there. A kernel takes the steps that it executes, a copy or a fill one for 16 bytes, work of the host
        none.
        """
        return max(self._clock, self.order.step)

    def record(self, event: EmulatedEvent | None = None, options: Any = None) -> EmulatedEvent:
        """An event that stands for all that the stream was given so far.

        Parameters
        ----------
        event : EmulatedEvent, optional
            To be used again.
        options : optional
            ``cuda.core.EventOptions``, which change nothing here: every event has a time, in steps.
        """
        if event is None:
            return EmulatedEvent(self)
        if not isinstance(event, EmulatedEvent):
            raise ArgumentError(f"an emulated stream records its own events, not {type(event).__name__}")
        event.record_on(self)
        return event

    def wait(self, event_or_stream: EmulatedEvent | EmulatedStream) -> None:
        """Let what the stream is given from now on come after an event, or after all that a stream was given so far.

        Raises
        ------
        ArgumentError
            For what is neither an event nor a stream of the emulator.
        """
        if isinstance(event_or_stream, EmulatedStream):
            event_or_stream = event_or_stream.record()
        if not isinstance(event_or_stream, EmulatedEvent):
            raise ArgumentError(
                f"an emulated stream waits for an emulated event or stream, got {type(event_or_stream).__name__}"
            )
        if self.recorder is not None:
            self.recorder.wait(event_or_stream)
        else:
            event_or_stream.be_waited_for(self)

    def sync(self) -> None:
        """Let the host wait: whatever is asked for from now on comes after all that the stream was given."""
        self.record().sync()

    def doing(self, work: Work, put_in: bool = True, told: bool = True) -> contextlib.AbstractContextManager[object]:
        """For a ``with``: a block in which `work`, which is no kernel's launch, is done; `Turn` says more.

        Parameters
        ----------
        work : Work
        put_in : bool
            Whether it waits for more than what was asked for; in a graph it does not.
        told : bool
            Whether the witnesses are told of it.
        """
        told = told and watched()
        if self.recorder is not None:
            # Nothing happens yet; whoever records tells what can be recorded.
            return telling(work) if told else contextlib.nullcontext()
        turn = Turn(self.order, self, work.name, work.reads, work.writes, put_in, move=work)
        return _told(turn, work) if told else turn

    def pass_time(self, steps: int = 0, until: int = 0) -> None:
        """Move the clock on by some steps, and then to the step `until` if that is later."""
        self._clock = max(self._clock + steps, self.order.step + steps, until)


@contextlib.contextmanager
def _told(turn: Turn, work: Work) -> Iterator[None]:
    with turn, telling(work):
        yield
        turn.pass_time()


class EmulatedEvent:
    """A point in the order of an emulated stream's work, made by `EmulatedStream.record`.

    ``b - a`` is the number of emulated steps from `a` to `b`; cuda.core's events give milliseconds.

    Attributes
    ----------
    point : Point or None
        What it stands for in a capture, where it was recorded in one.
    """

    __slots__ = ("_mark", "_order", "point")

    point: Point | None
    _mark: Mark

    def __init__(self, stream: EmulatedStream) -> None:
        self.record_on(stream)

    def record_on(self, stream: EmulatedStream) -> None:
        """Stand for all that `stream` was given so far."""
        self.point = None if stream.recorder is None else stream.recorder.record()
        if self.point is None:
            self._order = stream.order
            self._mark = self._order.record(stream)

    @property
    def step(self) -> int:
        """The step on the stream's clock.

        Raises
        ------
        LaunchError
            Where the event was recorded in a capture.
        """
        if self.point is not None:
            raise self.point.refusal()
        return self._mark.step

    def __repr__(self) -> str:
        return f"<EmulatedEvent {'of a capture' if self.point else f'at step {self._mark.step}'}>"

    def __sub__(self, other: EmulatedEvent) -> int:
        if not isinstance(other, EmulatedEvent):
            raise ArgumentError(f"an emulated event has a time from another one only, not from {type(other).__name__}")
        return self.step - other.step

    @property
    def is_done(self) -> bool:
        """True, as all work is done when its call returns; to ask orders the host after the event, as `sync` does."""
        self.sync()
        return True

    def sync(self) -> None:
        """Let the host wait: whatever is asked for from now on comes after the event."""
        if self.point is not None:
            raise self.point.refusal()
        self._order.finish(self._mark)

    def be_waited_for(self, stream: EmulatedStream) -> None:
        """Let what `stream` is given from now on come after the event."""
        if self.point is not None:
            self.point.be_waited_for(stream)
        else:
            self._order.wait(stream, self._mark)


class Point(Protocol):
    """Where an event stands in a capture: nothing has happened yet."""

    def refusal(self) -> LaunchError:
        """The error for the host's asking for it."""

    def be_waited_for(self, stream: EmulatedStream) -> None:
        """Let a stream that is no part of the capture wait, and be one from then on."""


class Recorder(Protocol):
    """Takes note of launches, events and waits, to run them later.

    Attributes
    ----------
    capture : object
        What it does so for.
    """

    capture: Any

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        """A launch that was asked for, as `cudakit.emulator.launch.EmulatedShape.run` has it."""

    def record(self) -> Point:
        """Where an event stands after all that was recorded so far."""

    def wait(self, event: EmulatedEvent) -> None:
        """The stream would wait for an event."""


def stream(
    arch: str = "sm_90",
    *,
    step_budget: int | None = None,
    output: Callable[[str], None] | None = None,
    block_order: int | None = None,
    machine: Literal["auto", "compiled", "numpy"] | None = None,
    check: Literal["raise", "warn", "off"] = "off",
    schedule: int | tuple[int, ...] | None = None,
    strict: bool = False,
) -> EmulatedStream:
    """A stream of the emulator.

    Parameters
    ----------
    arch : str
        Arch that kernels are compiled for.
    step_budget : int, optional
        Steps after which a launch is stopped as endless.
    output : callable, optional
        Takes what kernels print; default: standard output.
    block_order : int, optional
        Lets the blocks of tile kernels run in an order drawn with this seed; default: by their numbers.
    machine : {"auto", "compiled", "numpy"}
        What runs kernels: machine code of the processor at hand (extra ``cpu``), or NumPy. ``auto``: machine code as
        soon as it pays to compile a kernel, where the extra is installed. What cannot be compiled runs on NumPy in any
        case; with ``compiled`` this gives an `EmulatorWarning`. Default: the variable ``CUDAKIT_MACHINE``, or ``auto``.
    check : {"raise", "warn", "off"}
        What is done with what checks find: races, reads of what nobody wrote, barriers that are not reached.
    schedule : int or tuple of int, optional
        Lets threads run in an order drawn with this seed, always the same; default: those that are behind go first.
        A tuple, as ``ck.check(schedules=…)`` tells it: the seed, and the numbers of those switches that are made.
    strict : bool
        Whether the host's arrays and the device's are told apart, as on a GPU: kernels take no array of NumPy's that
        is not pinned, and what `ck.empty`, `ck.to_device` and ``xp`` give does not mix with NumPy's.

    Raises
    ------
    EmulationError
        If `arch` is not an arch's name.
    ArgumentError
        If `step_budget` is no number from 1 up, `block_order` none from 0 up, `output` cannot be called, `machine` is
        none of the three or not installed, `check` is none of those, or `schedule` no number from 0 up nor
        a tuple of such.
    """
    if not is_arch(arch):
        raise EmulationError(unknown_arch("emulator.stream", arch))
    if step_budget is not None:
        whole("emulator.stream: step_budget", step_budget, 1)
    if block_order is not None:
        whole("emulator.stream: block_order", block_order, 0)
    if schedule is not None:
        for each in schedule if isinstance(schedule, tuple) and schedule else (schedule,):
            whole("emulator.stream: schedule", each, 0)
    if not is_one_of(check, ("raise", "warn", "off")):
        raise ArgumentError(f"emulator.stream: check is 'raise', 'warn' or 'off', got {shortened(check)}")
    if output is not None and not callable(output):
        raise ArgumentError(f"emulator.stream: output is a function of a text, got {shortened(output)}")
    wanted = settings.machine() if machine is None else machine
    if not is_one_of(wanted, ("auto", "compiled", "numpy")):
        raise ArgumentError(f"emulator.stream: machine is 'auto', 'compiled' or 'numpy', got {shortened(wanted)}")
    if wanted == "compiled" and importlib.util.find_spec("llvmlite") is None:
        raise ArgumentError("emulator.stream: machine='compiled' needs llvmlite: pip install 'cudakit[cpu]'")
    strict = flag("emulator.stream: strict", strict)
    return EmulatedStream(arch, step_budget, output or _print, block_order, wanted, check, schedule, strict)
