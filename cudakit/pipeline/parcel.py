"""What goes from node to node: an item with its number and name, also where nothing is left of it."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from cudakit.errors import lost_context


class Failure(NamedTuple):
    """What became of an item that a stage, or the source, failed on.

    Attributes
    ----------
    stage : str
    error : BaseException
    final : bool
        Nothing comes after it, whatever is to be done about failures.
    """

    stage: str
    error: BaseException
    final: bool


class Gone(Enum):
    """What became of an item of which there is nothing to give on."""

    DROPPED = "it had no result"
    SPLIT = "its results came before"


class Room(Protocol):
    """Where there is room for a parcel until it has arrived."""

    def leave(self) -> None:
        """It has."""


class Parcel:
    """An item on its way, or one of several results of it.

    Stages change its value. A parcel whose fate is known passes the other stages by, so that each item of the source
    reaches the end, in its turn, whatever became of it.

    Attributes
    ----------
    value : object
        The item, as the stages so far have made it.
    number : int
        Which of the source's items it is, from 0.
    name : str or None
        What the source calls it.
    room : Room or None
        To be left at the end.
    fate : Failure, Gone or None
        None: there is a value.
    """

    number: int
    room: Room | None
    value: None

    __slots__ = ("fate", "name", "number", "room", "value")

    def __init__(self, value: Any, number: int, room: Room | None = None) -> None:
        self.value = value
        self.number = number
        self.room = room
        self.name: str | None = None
        self.fate: Failure | Gone | None = None

    def fail(self, stage: str, error: BaseException, final: bool = False) -> None:
        """A stage failed on it; final, too, if that is no Exception or the device is lost."""
        lost = lost_context(error)
        self.value = None
        self.fate = Failure(stage, lost or error, final or lost is not None or not isinstance(error, Exception))

    def part(self, value: Any, count: int, room: Room | None) -> Parcel:
        """A parcel for one of its results, before which there were `count`."""
        made = Parcel(value, self.number, room)
        if self.name is not None:
            made.name = f"{self.name}-{count}" if count else self.name
        return made

    def split(self, count: int) -> None:
        """There were `count` results, each in a parcel of its own."""
        self.value = None
        self.fate = Gone.SPLIT if count else Gone.DROPPED

    def ends(self, lenient: bool) -> bool:
        """Whether nothing comes after it; where failures are forgiven, after one that cannot be."""
        return isinstance(self.fate, Failure) and (self.fate.final or not lenient)


def _token() -> Parcel:
    token = Parcel(None, -1)
    token.fate = Gone.DROPPED
    return token


#: No item comes any more.
END: Final = _token()
#: No item is there yet.
NOTHING: Final = _token()
