"""Memory as the order between streams sees it: a line of segments, each with the uses that later ones must come after.

A segment is cut where a range begins or ends inside it, and made whole again where it is written as a whole.

`span_of` says where the memory of an array lies, `producers_of` which streams its library works on. A view is taken for
the bytes from its first element to its last, with those of the gaps between. A raw address is taken for the whole of
the driver's allocation that it points into. A kernel that goes beyond the array that it is given (around a view, say)
touches memory that nobody is told of: give it the whole array.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from cudakit.streams.streams import current_streams
from cudakit.types.arguments import Argument, describe, texture_handle

#: A stream's name here: anything that is equal to itself only.
Name: TypeAlias = Hashable
#: Bytes of memory: the first one's address, and the address after the last.
Range: TypeAlias = tuple[int, int]

#: The count of uses that go on: no clock reaches it.
NEVER = 1 << 62
#: Looked up once: what was touched lately.
_MOST_TOUCHED = 1024


class Spell:
    """A time in which a stream may repeat uses without saying so.

    Attributes
    ----------
    end : Use or None
        The place in the stream's order where it was over, which is what must be waited for; None while it lasts.
    """

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: Use | None = None


class Use:
    """A place in a stream's order: one use of memory, or all that the stream was given until then.

    Attributes
    ----------
    stream : hashable
    count : int
        How many uses the stream had then, this one included.
    clock : mapping
        The stream's clock then: counts of other streams that come before.
    note : object
        Whatever the caller gave.
    event : object
        What can be waited for; kept for the caller, who may set it.
    spell : Spell or None
        Where the use may have been repeated since.
    """

    __slots__ = ("clock", "count", "event", "note", "spell", "stream")

    def __init__(self, stream: Name, count: int, clock: Mapping[Name, int]) -> None:
        self.stream: Name = stream
        self.count: int = count
        self.clock: Mapping[Name, int] = clock
        self.note: Any = None
        self.event: Any = None
        self.spell: Spell | None = None

    @property
    def last(self) -> int:
        """The count up to which the stream must be waited for; `NEVER` while the use goes on."""
        if self.spell is None:
            return self.count
        return NEVER if self.spell.end is None else self.spell.end.count

    def __repr__(self) -> str:
        return f"Use({self.stream!r}, {self.count if self.last != NEVER else 'going on'})"


class Segment:
    """Bytes that were always used together: their last write and, by stream, the last read since then.

    Attributes
    ----------
    start, stop : int
    write : Use or None
    reads : dict of stream to Use
    warmth : int
        For how many uses it stays warm; see `Clocks.warm`.
    """

    __slots__ = ("reads", "start", "stop", "warmth", "write")

    def __init__(self, start: int, stop: int) -> None:
        self.start: int = start
        self.stop: int = stop
        self.write: Use | None = None
        self.reads: dict[Name, Use] = {}
        self.warmth: int = 0


class Touched(NamedTuple):
    """The segments of some ranges; good while `Segments.version` is `version`.

    Attributes
    ----------
    version : int
    read, written : tuple of Segment
        A segment that is both read and written is in `written` alone.
    cut : tuple of tuple of Segment
        The segments of each written range that has more than one.
    steps : dict
        By stream; see `Clocks.step`.
    """

    version: int
    read: tuple[Segment, ...]
    written: tuple[Segment, ...]
    cut: tuple[tuple[Segment, ...], ...]
    steps: dict[Name, Callable[[Use, bool], Any]]


class Segments:
    """All memory that was touched and is remembered.

    Attributes
    ----------
    version : int
        Changes whenever a segment is cut, joined or forgotten: what was touched before must be looked up again.
    segments : list of Segment
        In the order of their addresses.
    """

    def __init__(self) -> None:
        self.version: int = 0
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self._touched: dict[tuple[tuple[Range, ...], tuple[Range, ...]], Touched] = {}

    def touch(self, reads: Iterable[Range] = (), writes: Iterable[Range] = ()) -> Touched:
        """The segments of what is read and of what is written (read or not); empty ranges are left out.

        Segments begin and end where the ranges do: all that were cut are in the answer whole.
        """
        key = (tuple(reads), tuple(writes))
        found = self._touched.get(key)
        if found is None or found.version != self.version:
            if len(self._touched) >= _MOST_TOUCHED:
                self._touched.clear()
            found = self._touched[key] = self._touch(*key)
        return found

    def _touch(self, reads: tuple[Range, ...], writes: tuple[Range, ...]) -> Touched:
        covers: list[tuple[Segment, ...]] = []
        version = None
        while version != self.version:  # a later range may have cut what an earlier one covers
            version = self.version
            covers = [self._bounded(start, stop) for start, stop in (*reads, *writes)]
        covered = covers[len(reads) :]
        written = dict.fromkeys(chain.from_iterable(covered))
        read = dict.fromkeys(chain.from_iterable(covers[: len(reads)]))
        for segment in written:
            read.pop(segment, None)
        return Touched(self.version, tuple(read), tuple(written), tuple([c for c in covered if len(c) > 1]), {})

    def _bounded(self, start: int, stop: int) -> tuple[Segment, ...]:
        """The segments of a range, none of which goes beyond it, with new ones where there were none."""
        if start >= stop:
            return ()
        starts, segments = self._starts, self.segments
        for address in (start, stop):
            position = bisect_left(starts, address)
            if position and segments[position - 1].stop > address:
                self._cut(position - 1, address)
        first = position = bisect_left(starts, start)
        while start < stop:
            following = starts[position] if position < len(starts) else stop
            if following > start:
                starts.insert(position, start)
                segments.insert(position, Segment(start, min(following, stop)))
            start = segments[position].stop
            position += 1
        return tuple(segments[first:position])

    def _cut(self, position: int, address: int) -> None:
        """Make two of the segment that has `address` inside it."""
        first = self.segments[position]
        second = Segment(address, first.stop)
        second.write, second.reads, second.warmth = first.write, dict(first.reads), first.warmth
        first.stop = address
        self._starts.insert(position + 1, address)
        self.segments.insert(position + 1, second)
        self.version += 1

    def _join(self, pieces: tuple[Segment, ...]) -> None:
        """Make one of what was just written as one, so that memory cut once does not stay cut."""
        first, last = pieces[0], pieces[-1]
        start, stop = bisect_left(self._starts, first.start), bisect_left(self._starts, last.start)
        if self.segments[start : stop + 1] != list(pieces):
            return  # an overlapping range was joined before
        first.stop, first.warmth = last.stop, max(piece.warmth for piece in pieces)
        del self._starts[start + 1 : stop + 1], self.segments[start + 1 : stop + 1]
        self.version += 1

    def forget_range(self, start: int, stop: int) -> None:
        """Forget memory that is gone; new arrays may be there."""
        if gone := self._bounded(start, stop):
            first = bisect_left(self._starts, start)
            del self._starts[first : first + len(gone)], self.segments[first : first + len(gone)]
            self.version += 1

    def keep(self, kept: Iterable[Segment]) -> None:
        """Forget all other segments; those kept are given in their order."""
        segments = list(kept)
        if len(segments) < len(self.segments):
            self.segments = segments
            self._starts = [segment.start for segment in segments]
            self.version += 1


_NOTHING: Range = (0, 0)


def span_of(array: Any) -> Range:
    """First address of an array's memory, and the address after its last; `array` itself where it is such a range."""
    if type(array) is tuple:
        return array
    if array is None:
        return _NOTHING
    library = type(array).__module__.partition(".")[0]
    if library == "cupy" and hasattr(array, "data"):
        return cupy_span(array)
    if library == "torch":
        return torch_span(array)
    if hasattr(array, "__array_interface__"):
        return host_span(np.asarray(array))
    if hasattr(array, "resource") and texture_handle(array) is not None:
        return _texture_span(array.resource.source)
    if hasattr(array, "ResDesc"):
        return _cupy_texture_span(array.ResDesc)
    return argument_span(describe(array))


def cupy_span(array: Any) -> Range:
    """Of a CuPy array."""
    start: int = array.data.ptr
    if array._c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def torch_span(tensor: Any) -> Range:
    """Of a torch tensor."""
    start, size = tensor.data_ptr(), tensor.element_size()
    return _strided(start, tensor.shape, [step * size for step in tensor.stride()], size)


def host_span(array: np.ndarray) -> Range:
    """Of a NumPy array."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def _texture_span(source: Any) -> Range:
    """Of what a texture is made of; an array of the driver's own layout has a number, and no address."""
    start = int(source.handle)
    return start, start + getattr(source, "size", 1)


def _cupy_texture_span(resource: Any) -> Range:
    """Of what a texture of CuPy's is made of, likewise."""
    if resource.arr is not None:
        return span_of(resource.arr)
    return (resource.cuArr.ptr, resource.cuArr.ptr + 1) if resource.cuArr is not None else _NOTHING


def argument_span(argument: Argument) -> Range:
    """Of anything else, as a kernel argument is described."""
    start = argument.pointer
    if argument.family == "buffer":
        return start, start + argument.value.size
    dtype = argument.evidence.dtype
    if argument.evidence.category == "array" and dtype is not None:
        size = dtype.itemsize
        return _strided(start, argument.shape, [step * size for step in argument.strides], size)
    if argument.evidence.category == "address":
        return allocation_of(start)
    return _NOTHING


def allocation_of(address: int) -> Range:
    """The driver's allocation that an address is in; the one byte where there is none."""
    if not address:
        return _NOTHING
    from cuda.bindings import driver

    status, start, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
    return (int(start), int(start) + int(size)) if int(status) == 0 else (address, address + 1)


def _strided(start: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Range:
    """From the lowest to the highest element of a view whose element 0 is at `start`; steps in bytes."""
    first = last = start
    for extent, step in zip(shape, strides, strict=True):
        if extent == 0:
            return _NOTHING
        if step < 0:
            first += step * (extent - 1)
        else:
            last += step * (extent - 1)
    return first, last + size


def named_producers(array: Any, handle: int) -> list[int]:
    """Streams that the work on another library's array is on, as it says itself.

    With ``__cuda_array_interface__`` of version 3 it names one; with DLPack alone it makes the stream of the driver's
    number `handle` wait for it when it is asked for the array, which is done here.
    """
    if hasattr(array, "__array_interface__"):
        return []  # host memory
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        named = interface.get("stream")
        return [] if named is None else [int(named)]
    if hasattr(array, "__dlpack__"):
        array.__dlpack__(stream=handle)
    return []


def producers_of(arrays: Iterable[Any], device_id: int, handle: int) -> list[int]:
    """Streams that unseen work on the arrays may be on: the current ones of their libraries, and those they name."""
    libraries: dict[str, None] = {}
    found: list[int] = []
    for array in arrays:
        library = type(array).__module__.partition(".")[0]
        if library in ("cupy", "torch") and library in sys.modules:
            libraries[library] = None
        elif type(array) is not tuple and not hasattr(array, "__array_interface__"):
            found += named_producers(array, handle)
    return current_streams(libraries, device_id) + found
