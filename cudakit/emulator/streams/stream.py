"""The emulator's stream and its events. Work on the stream runs on the host, at the call."""

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


#: Observers of the kernels of all streams.
EVERYWHERE: list[Observer] = []


class EmulatedStream:
    """A stream whose kernels run on the host, on NumPy arrays, each to its end before the call returns.

    Streams, events and waits have the same meaning as on a GPU: they alone order work that a GPU could run at the same
    time. From the second stream on, the emulator watches each byte that a piece of work reads or writes. A race raises
    an `EmulationError`.

    Parameters
    ----------
    arch : str
        Arch for which kernels are compiled, ``sm_80`` or ``sm_90``.
    step_budget : int or None
        Steps after which a launch is stopped as endless; None: no limit.
    output : callable
        Function that takes what kernels print.
    block_order : int or None
        Seed of the order in which the blocks of tile kernels run; None: by their numbers.
    check : {"raise", "warn", "off"}
        Action for findings of checks in kernels of threads.
    schedule : int, tuple of int or None
        Seed of the order in which threads run; None: the threads that are behind run first.
    strict : bool
        Whether host arrays and device arrays are separate, as on a GPU.

    Attributes
    ----------
    handle : int
        Small number, unique for each stream.
    recorder : Recorder or None
        Recorder that takes launches instead of running them, during a capture.
    observers : tuple of Observer
        Observers of the stream's kernels of threads.
    order : Order
        Order of all streams, from `cudakit.emulator.streams.order.order`.
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
        """Return another stream with the same settings."""
        copy = EmulatedStream(
            self.arch, self.step_budget, self.output, self.block_order, self.machine, self.check, self.schedule,
            self.strict,
        )  # fmt: skip
        copy.observers = self.observers
        return copy

    @property
    def clock(self) -> int:
        """Current emulated step of the stream; the host's step if the stream has nothing to do.

        Work begins at this step, or later, when the work for which it waits ends. The clock is set to the step of the
        begin before a witness is notified. A kernel takes the steps it executes, a copy or a fill one step for 16
        bytes, work of the host no step.
        """
        return max(self._clock, self.order.step)

    def record(self, event: EmulatedEvent | None = None, options: Any = None) -> EmulatedEvent:
        """Return an event for all work that the stream has so far.

        Parameters
        ----------
        event : EmulatedEvent, optional
            Event to record again, which is returned. Default: a new event.
        options : optional
            ``cuda.core.EventOptions``. Ignored: every event has a time, in steps.
        """
        if event is None:
            return EmulatedEvent(self)
        if not isinstance(event, EmulatedEvent):
            raise ArgumentError(f"an emulated stream records its own events, not {type(event).__name__}")
        event.record_on(self)
        return event

    def wait(self, event_or_stream: EmulatedEvent | EmulatedStream) -> None:
        """Order later work of the stream after an event, or after all work that another stream has so far.

        Raises
        ------
        ArgumentError
            For an argument that is neither an event nor a stream of the emulator.
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
        """Make the host wait for the stream, so that all later work is ordered after the stream's work."""
        self.record().sync()

    def doing(
        self, work: Work, insert_waits: bool = True, reported: bool = True
    ) -> contextlib.AbstractContextManager[object]:
        """Return a context in which `work` runs, other than a kernel's launch: see `Turn`.

        Parameters
        ----------
        work : Work
            Copy, fill or work of the host.
        insert_waits : bool
            Whether the work also waits for conflicting work on other streams. In a graph it does not.
        reported : bool
            Whether the work is reported to the witnesses.
        """
        reported = reported and watched()
        if self.recorder is not None:
            # Nothing runs yet; the recorder refuses what cannot be recorded.
            return telling(work) if reported else contextlib.nullcontext()
        turn = Turn(self.order, self, work.name, work.reads, work.writes, insert_waits, move=work)
        return _reported(turn, work) if reported else turn

    def pass_time(self, steps: int = 0, until: int = 0) -> None:
        """Advance the clock by some steps, and then to the step `until` if that is later."""
        self._clock = max(self._clock + steps, self.order.step + steps, until)


@contextlib.contextmanager
def _reported(turn: Turn, work: Work) -> Iterator[None]:
    with turn, telling(work):
        yield
        turn.pass_time()


class EmulatedEvent:
    """A position in the order of an emulated stream's work, made by `EmulatedStream.record`.

    ``b - a`` is the number of emulated steps from `a` to `b`; for cuda.core's events it is milliseconds.

    Attributes
    ----------
    point : Point or None
        Position in a capture, if the event was recorded in a capture.
    """

    __slots__ = ("_mark", "_order", "point")

    point: Point | None
    _mark: Mark

    def __init__(self, stream: EmulatedStream) -> None:
        self.record_on(stream)

    def record_on(self, stream: EmulatedStream) -> None:
        """Record the event again, for all work that `stream` has so far."""
        self.point = None if stream.recorder is None else stream.recorder.record()
        if self.point is None:
            self._order = stream.order
            self._mark = self._order.record(stream)

    @property
    def step(self) -> int:
        """Step of the event on the stream's clock.

        Raises
        ------
        LaunchError
            If the event was recorded in a capture.
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
        """True: all work is done when its call returns.

        The query also orders the host after the event, as `sync` does.
        """
        self.sync()
        return True

    def sync(self) -> None:
        """Make the host wait for the event, so that all later work is ordered after it."""
        if self.point is not None:
            raise self.point.refusal()
        self._order.finish(self._mark)

    def be_waited_for(self, stream: EmulatedStream) -> None:
        """Order later work of `stream` after the event."""
        if self.point is not None:
            self.point.be_waited_for(stream)
        else:
            self._order.wait(stream, self._mark)


class Point(Protocol):
    """A position of an event in a capture, whose work has not run yet."""

    def refusal(self) -> LaunchError:
        """Return the error for a host that waits for the event or queries it."""

    def be_waited_for(self, stream: EmulatedStream) -> None:
        """Order later work of a stream outside the capture after the event; this adds `stream` to the capture."""


class Recorder(Protocol):
    """A recorder of launches, events and waits, to run them later.

    Attributes
    ----------
    capture : object
        Capture for which the recorder works.
    """

    capture: Any

    def launch(self, shape: Any, config: Any, values: Any, arguments: Any) -> None:
        """Record a launch, with the arguments of `cudakit.emulator.launch.EmulatedShape.run`."""

    def record(self) -> Point:
        """Return the position of an event after everything recorded so far."""

    def wait(self, event: EmulatedEvent) -> None:
        """Record a wait of the stream for an event."""


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
    """Return a new stream of the emulator.

    Parameters
    ----------
    arch : str
        Arch for which kernels are compiled.
    step_budget : int, optional
        Steps after which a launch is stopped as endless.
    output : callable, optional
        Function that takes what kernels print. Default: standard output.
    block_order : int, optional
        Seed of a random order in which the blocks of tile kernels run. Default: by their numbers.
    machine : {"auto", "compiled", "numpy"}
        Interpreter of kernels: machine code for your processor (extra ``cpu``), or NumPy. ``auto`` takes machine code
        as soon as a kernel's compile pays, where the extra is installed. A kernel that cannot be compiled runs on
        NumPy; with ``compiled`` an `EmulatorWarning` says so. Default: the variable ``CUDAKIT_MACHINE``, or ``auto``.
    check : {"raise", "warn", "off"}
        Action for findings of checks: races, reads of memory that was never written, barriers that threads never reach.
    schedule : int or tuple of int, optional
        Seed of a reproducible random order in which threads run. Default: the threads that are behind run first. A
        tuple, as ``ck.check(schedules=…)`` reports it, has the seed and the numbers of the switches between threads to
        make.
    strict : bool
        Whether host arrays and device arrays are separate, as on a GPU. Kernels then take no NumPy array that is not
        pinned, and arrays of `ck.empty`, `ck.to_device` and ``xp`` do not mix with NumPy's.

    Raises
    ------
    EmulationError
        If `arch` is not the name of an arch.
    ArgumentError
        If an argument is not valid. `step_budget` must be a number from 1 up, and `block_order` one from 0 up. `output`
        must be callable, and `machine` and `check` one of the values above. The backend must be installed. `schedule`
        must be a number from 0 up or a tuple of them.
    """
    if not is_arch(arch):
        raise EmulationError(unknown_arch("emulator.stream", arch))
    if step_budget is not None:
        whole("emulator.stream: step_budget", step_budget, 1)
    if block_order is not None:
        whole("emulator.stream: block_order", block_order, 0)
    if schedule is not None:
        for number in schedule if isinstance(schedule, tuple) and schedule else (schedule,):
            whole("emulator.stream: schedule", number, 0)
    if not is_one_of(check, ("raise", "warn", "off")):
        raise ArgumentError(f"emulator.stream: check is 'raise', 'warn' or 'off', got {shortened(check)}")
    if output is not None and not callable(output):
        raise ArgumentError(f"emulator.stream: output is a function of a text, got {shortened(output)}")
    backend = settings.machine() if machine is None else machine
    if not is_one_of(backend, ("auto", "compiled", "numpy")):
        raise ArgumentError(f"emulator.stream: machine is 'auto', 'compiled' or 'numpy', got {shortened(backend)}")
    if backend == "compiled" and importlib.util.find_spec("llvmlite") is None:
        raise ArgumentError("emulator.stream: machine='compiled' needs llvmlite: pip install 'cudakit[cpu]'")
    strict = flag("emulator.stream: strict", strict)
    return EmulatedStream(arch, step_budget, output or _print, block_order, backend, check, schedule, strict)
