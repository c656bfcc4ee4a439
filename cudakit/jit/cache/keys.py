"""Keys of compiled specializations: what they are made of, and in what two of them differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

from cudakit.jit.source.closure import Closure

Where: TypeAlias = Literal["memory", "disk", "miss"]


class Keyed(Protocol):
    """What the cache needs to know of a specialization.

    Attributes
    ----------
    closure : Closure or None
        What its compiler reads; None until the cache finds a known one that holds, or it is compiled.
    unstorable : str or None
        Why the code may not be kept, as far as that is known before it is compiled; None if it may be.
    """

    closure: Closure | None
    unstorable: str | None

    @property
    def base(self) -> str:
        """The hexadecimal SHA-256 of all that decides what the compiler reads."""

    @property
    def key(self) -> str:
        """The hexadecimal SHA-256 of the parts; final once the closure is known."""

    @property
    def parts(self) -> Mapping[str, str]:
        """What the key is made of: a part's name to its value, both readable, in a fixed order."""

    @property
    def portable(self) -> str | None:
        """What the code is known by on every machine; None where it holds for this one alone."""

    @property
    def label(self) -> str:
        """The source's name, a colon and the name expression, for people."""


class Entry(NamedTuple):
    """A compiled specialization on disk.

    Attributes
    ----------
    label : str
        The source's name and the name expression.
    parts : mapping of str to str
        What its key is made of.
    bytes : int
        Size of its file.
    last_used : float
        When it was last read or written, in seconds since the epoch, to about a minute.
    path : pathlib.Path
        Its file.
    """

    label: str
    parts: Mapping[str, str]
    bytes: int
    last_used: float
    path: Path


class Difference(NamedTuple):
    """A part of the key in which what was asked for and what is stored differ; None where one lacks the part."""

    part: str
    asked: str | None
    stored: str | None


class Neighbour(NamedTuple):
    """A stored entry of the same kernel or the same source, and the parts in which it differs."""

    entry: Entry
    differences: tuple[Difference, ...]


class Explanation(NamedTuple):
    """Why asking for a specialization is a hit or a miss.

    Attributes
    ----------
    label, key : str
        What was asked for.
    where : {"memory", "disk", "miss"}
        Where it was found.
    unstorable : str or None
        Why it is never kept on disk, if so.
    neighbours : tuple of Neighbour
        For a miss, the stored entries of the same kernel or the same source, nearest first.
    """

    label: str
    key: str
    where: Where
    unstorable: str | None
    neighbours: tuple[Neighbour, ...]


def neighbours(keyed: Keyed, entries: Iterable[Entry]) -> tuple[Neighbour, ...]:
    """Return the entries of the same kernel or the same source, those that differ in the fewest parts first."""
    names = _names(keyed.label, keyed.parts)
    found = [
        Neighbour(entry, _differences(keyed.parts, entry.parts))
        for entry in entries
        if any(ours and ours == theirs for ours, theirs in zip(names, _names(entry.label, entry.parts), strict=True))
    ]
    return tuple(sorted(found, key=lambda neighbour: len(neighbour.differences)))


def _differences(asked: Mapping[str, str], stored: Mapping[str, str]) -> tuple[Difference, ...]:
    parts = [*asked, *(part for part in stored if part not in asked)]
    pairs = (Difference(part, asked.get(part), stored.get(part)) for part in parts)
    return tuple(pair for pair in pairs if pair.asked != pair.stored)


def _names(label: str, parts: Mapping[str, str]) -> tuple[str, str]:
    """Return the kernel's name without its template arguments, and the source's."""
    return parts.get("name", "").partition("<")[0], parts.get("file") or label.partition(": ")[0]
