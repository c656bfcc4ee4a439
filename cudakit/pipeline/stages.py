"""Stages: functions that a pipeline calls for each item, on the host or on the device.

An item passes from node to node as a `Parcel`, with its number and name, even if it has no value any more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from cudakit.errors import ArgumentError, lost_context
from cudakit.kernel.kernel import Kernel
from cudakit.types.checked import listed, text_of, whole


class Failure(NamedTuple):
    """The failure of a stage, or of the source, on an item.

    Attributes
    ----------
    stage : str
        Name of the stage that failed.
    error : BaseException
        Exception of the stage.
    final : bool
        Whether the run ends after this failure, with any ``on_error``.
    """

    stage: str
    error: BaseException
    final: bool


class Gone(Enum):
    """Reason why an item has no result of its own, without a failure: dropped, or replaced by several results."""

    DROPPED = "it had no result"
    SPLIT = "its results came before"


class Room(Protocol):
    """A share of a limited number, which a parcel occupies until the consumer gets it: see `Gate`."""

    def leave(self) -> None:
        """Free the share of the limit, because the consumer has got the parcel."""


@dataclass(slots=True, eq=False)
class Parcel:
    """An item of a pipeline with its number and name, or one of several results of an item.

    Stages change its value. A parcel with a fate skips the other stages. So each item of the source reaches the end, in
    its turn, with or without a value.

    Attributes
    ----------
    value : object
        Result of the stages so far; before the first stage, the source's item.
    number : int
        Number of the source's item, from 0.
    name : str or None
        Name of the item in the source.
    room : Room or None
        Limit to notify, by its `leave`, when the parcel reaches the consumer. None: no limit.
    fate : Failure, Gone or None
        Reason why the item has no value. None: it has a value.
    """

    value: Any
    number: int
    room: Room | None = None
    name: str | None = None
    fate: Failure | Gone | None = None

    def fail(self, stage: str, error: BaseException, final: bool = False) -> None:
        """Record that a stage failed on this item.

        The failure is final if `final` is True, the error is no `Exception`, or the device is lost.
        """
        lost = lost_context(error)
        self.value = None
        self.fate = Failure(stage, lost or error, final or lost is not None or not isinstance(error, Exception))

    def part(self, value: Any, count: int, room: Room | None) -> Parcel:
        """Return a new parcel with the item's number for `value`, one of the item's results.

        `count` is the number of the item's earlier results: from 1 on, it is appended to the name. `room` is the new
        parcel's.
        """
        result = Parcel(value, self.number, room)
        if self.name is not None:
            result.name = f"{self.name}-{count}" if count else self.name
        return result

    def split(self, count: int) -> None:
        """End this parcel: its item gave `count` results, each sent on in a parcel of its own before this one.

        The value becomes None. The fate becomes `Gone.SPLIT`, or `Gone.DROPPED` if `count` is 0.
        """
        self.value = None
        self.fate = Gone.SPLIT if count else Gone.DROPPED

    def ends(self, lenient: bool) -> bool:
        """Return whether the run ends after this parcel. With `lenient`, only a final failure ends the run."""
        return isinstance(self.fate, Failure) and (self.fate.final or not lenient)


#: No item comes any more.
END: Final = Parcel(None, -1, fate=Gone.DROPPED)
#: No item is there yet.
NOTHING: Final = Parcel(None, -1, fate=Gone.DROPPED)


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline.

    Attributes
    ----------
    function : callable
        ``function(item)`` on the host, ``function(item, stream)`` on the device.
    name : str
        Name of the stage in errors and traces.
    threads : int
        Number of threads of a host stage; 0 for a stage of the device.
    """

    function: Callable[..., Any]
    name: str
    threads: int = 0

    @property
    def on_host(self) -> bool:
        """True if the stage works on host memory, on threads of its own."""
        return self.threads > 0


def host(function: Callable[[Any], Any], *, threads: int = 1, name: str | None = None) -> Stage:
    """Return a stage of the host: ``function(item)``, on threads of its own.

    Parameters
    ----------
    function : callable
        Function that takes an item with NumPy arrays and returns the next stage's item. A generator function may yield
        no result or several: they are passed on one by one. Each array that it yields must be a new array.
    threads : int
        Number of threads, and so of items that are processed at a time. With one thread the function gets the items in
        order. Results stay in order with any number.
    name : str, optional
        Name of the stage in errors and traces. Default: the function's name.

    Raises
    ------
    ArgumentError
    """
    return Stage(_callable(function, "host"), _name("host", function, name), whole("host: threads", threads, 1))


def device(function: Callable[[Any, Any], Any], *, name: str | None = None) -> Stage:
    """Return a stage of the device, ``function(item, stream)``, with a name. A bare function is such a stage, too."""
    return Stage(_callable(function, "device"), _name("device", function, name))


def check_calls(stages: Sequence[Stage]) -> None:
    """Check that each stage can be called with its arguments, as far as its signature shows.

    Raises
    ------
    ArgumentError
    """
    for number, stage in enumerate(stages, 1):
        if inspect.iscoroutinefunction(stage.function) or inspect.isasyncgenfunction(stage.function):
            raise ArgumentError(
                f"Pipeline: stage {number}, {stage.name}, is asynchronous, and stages are called in threads; sources "
                "and sinks may be asynchronous"
            )
        try:
            signature = inspect.signature(stage.function)
        except (TypeError, ValueError):  # functions of C
            continue
        try:
            signature.bind(*([None] * (1 if stage.on_host else 2)))
        except TypeError as error:
            how = "a stage of the host is called as function(item)"
            if not stage.on_host:
                how = "a bare function is a stage of the device, called as function(item, stream)"
            hint = (
                "" if stage.on_host else ". For one of the host, called as function(item), give pipeline.host(function)"
            )
            raise ArgumentError(
                f"Pipeline: stage {number}, {stage.name}, takes {signature}, and {how}: {error}{hint}"
            ) from None


def as_stages(stages: Sequence[Any]) -> tuple[Stage, ...]:
    """Return the stages of a pipeline from its argument.

    Raises
    ------
    ArgumentError
        If the argument has no stages, or an element that is no stage.
    """
    if callable(stages) or isinstance(stages, Stage):
        raise ArgumentError("Pipeline takes a list of stages, as in Pipeline([stage])")
    words = "Pipeline: stages are a list, as in Pipeline([stage])"
    items: list[Any] = [stages] if isinstance(stages, str) else listed(words, stages)
    result = tuple(stage if isinstance(stage, Stage) else device(stage) for stage in items)
    if not result:
        raise ArgumentError("Pipeline: there is no stage; give at least one function")
    return result


def _callable(function: Any, role: str) -> Callable[..., Any]:
    if isinstance(function, Kernel):
        raise ArgumentError(
            f"{role}: kernel {function.name} alone is no stage, which must say its configuration and arguments: give "
            "a function, as in lambda x, stream: (kernel(stream, ck.cover(x.size), x, x.size), x)[1]"
        )
    if not callable(function):
        hint = "; a sink is given to pipeline.run(source, sink)" if hasattr(function, "write") else ""
        actual = f"got {type(function).__name__}{hint}"
        raise ArgumentError(f"{role}: a stage is a function or pipeline.host(function), {actual}")
    result: Callable[..., Any] = function
    return result


def _name(role: str, function: Any, name: str | None) -> str:
    """Return the name of a stage: `name`, or the name of `function` if `name` is None.

    `role` begins the error message.
    """
    if name is not None:
        return text_of(f"{role}: name", name)
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", None) or type(function).__name__
    return "stage" if name == "<lambda>" else str(name)
