"""Memory as the order between streams sees it: a line of segments, each with the uses that later uses must follow.

A segment is cut where a range begins or ends inside it. Its parts are joined again when all of it is written.

`span_of` returns the address range of an array, `producers_of` the streams on which its library works. A view counts
as all bytes from its first element to its last, with the gaps between. A raw address counts as the whole allocation of
the driver that contains it. If a kernel accesses memory outside its array (around a view, say), the order does not know
of this memory. Pass the whole array to such a kernel.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from cudakit.records import NamedTuple
from cudakit.streams.streams import current_streams
from cudakit.types.arguments import Argument, describe, texture_handle

#: A stream's name here: anything that is equal to itself only.
Name: TypeAlias = Hashable
#: Bytes of memory: the first one's address, and the address after the last.
Range: TypeAlias = tuple[int, int]

#: The count of uses that go on: no clock reaches it.
NEVER = 1 << 62
#: What `cudakit.streams.clocks.Clocks.step` says in place of a use.
MANY: Any = object()
COLD: Any = object()
#: Looked up once: what was touched lately.
_MOST_TOUCHED = 1024


class Spell:
    """A period in which a stream may repeat launches on the same memory without recording each use.

    Attributes
    ----------
    end : Use or None
        Work of the stream up to the end of the period, for which other streams wait. None while the period lasts.
    """

    __slots__ = ("end",)

    def __init__(self) -> None:
        self.end: Use | None = None


class Use:
    """A position in a stream's order: one use of memory, or all work of the stream until then.

    Attributes
    ----------
    stream : hashable
        Name of the stream.
    count : int
        Number of uses of the stream so far, this one included.
    clock : mapping
        Clock of the stream at this use: counts of other streams that precede it.
    note : object
        Note of the caller.
    event : object
        Event to wait for, set by the caller.
    point : object
        The event in the form that repeated launches wait for (see `cudakit.streams.streams.EventCalls`); None if it is
        unknown, or done.
    spell : Spell or None
        Spell in which the use may have been repeated since.
    """

    __slots__ = ("clock", "count", "event", "note", "point", "spell", "stream")

    def __init__(self, stream: Name, count: int, clock: Mapping[Name, int]) -> None:
        self.stream: Name = stream
        self.count: int = count
        self.clock: Mapping[Name, int] = clock
        self.note: Any = None
        self.event: Any = None
        self.point: Any = None
        self.spell: Spell | None = None

    @property
    def last(self) -> int:
        """Count up to which a waiting stream waits for this stream; `NEVER` while the use goes on."""
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
        First address, and the address after the last.
    write : Use or None
        Last write.
    reads : dict of stream to Use
        Last read of each stream since the last write.
    warmth : int
        Number of further uses for which the bytes stay warm; see `Clocks.warm`.
    """

    __slots__ = ("reads", "start", "stop", "warmth", "write")

    def __init__(self, start: int, stop: int) -> None:
        self.start: int = start
        self.stop: int = stop
        self.write: Use | None = None
        self.reads: dict[Name, Use] = {}
        self.warmth: int = 0


class Touched(NamedTuple):
    """The segments of some ranges, valid while `Segments.version` is `version`.

    Attributes
    ----------
    version : int
        `Segments.version` at the look-up.
    read, written : tuple of Segment
        Segments that are read, and segments that are written. A segment that is both is in `written` alone.
    cut : tuple of tuple of Segment
        Segments of each written range that has more than one segment.
    steps : dict
        Step functions by stream; see `Clocks.step`.
    """

    version: int
    read: tuple[Segment, ...]
    written: tuple[Segment, ...]
    cut: tuple[tuple[Segment, ...], ...]
    steps: dict[Name, Callable[[Use, bool], Any]]


class Segments:
    """All memory that was accessed and is remembered.

    Attributes
    ----------
    version : int
        Number that changes whenever a segment is cut, joined or forgotten. `Touched` results are then looked up again.
    segments : list of Segment
        Segments in the order of their addresses.
    """

    def __init__(self) -> None:
        self.version: int = 0
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self._touched: dict[tuple[tuple[Range, ...], tuple[Range, ...]], Touched] = {}

    def touch(self, reads: Iterable[Range] = (), writes: Iterable[Range] = ()) -> Touched:
        """Return the segments of ranges that are read, and of ranges that are written (read or not).

        Empty ranges are ignored. Segments are cut at the ends of the ranges, so that no returned segment exceeds the
        ranges.
        """
        key = (tuple(reads), tuple(writes))
        entry = self._touched.get(key)
        if entry is None or entry.version != self.version:
            if len(self._touched) >= _MOST_TOUCHED:
                self._touched.clear()
            entry = self._touched[key] = self._touch(*key)
        return entry

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
        """Return the segments of a range, none of which exceeds it. New segments fill its gaps."""
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
        """Cut the segment at index `position` in two at `address`, which is inside it. Both parts keep its uses."""
        first = self.segments[position]
        second = Segment(address, first.stop)
        second.write, second.reads, second.warmth = first.write, dict(first.reads), first.warmth
        first.stop = address
        self._starts.insert(position + 1, address)
        self.segments.insert(position + 1, second)
        self.version += 1

    def _join(self, pieces: tuple[Segment, ...]) -> None:
        """Join adjacent segments that were just written as a whole into one, unless they have changed since."""
        first, last = pieces[0], pieces[-1]
        start, stop = bisect_left(self._starts, first.start), bisect_left(self._starts, last.start)
        if self.segments[start : stop + 1] != list(pieces):
            return  # an overlapping range was joined before
        first.stop, first.warmth = last.stop, max(piece.warmth for piece in pieces)
        del self._starts[start + 1 : stop + 1], self.segments[start + 1 : stop + 1]
        self.version += 1

    def forget_range(self, start: int, stop: int) -> None:
        """Forget all uses of freed memory, because new arrays may get this memory."""
        if gone := self._bounded(start, stop):
            first = bisect_left(self._starts, start)
            del self._starts[first : first + len(gone)], self.segments[first : first + len(gone)]
            self.version += 1

    def keep(self, remaining: Iterable[Segment]) -> None:
        """Forget all segments but `remaining`, which is in the order of addresses."""
        segments = list(remaining)
        if len(segments) < len(self.segments):
            self.segments = segments
            self._starts = [segment.start for segment in segments]
            self.version += 1


_NOTHING: Range = (0, 0)


def span_of(array: Any) -> Range:
    """Return the first address of an array's memory, and the address after its last. A range is returned as it is."""
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
    """Return the first address of a CuPy array's memory, and the address after its last."""
    start: int = array.data.ptr
    if array._c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def torch_span(tensor: Any) -> Range:
    """Return the first address of a torch tensor's memory, and the address after its last."""
    start, size = tensor.data_ptr(), tensor.element_size()
    return _strided(start, tensor.shape, [step * size for step in tensor.stride()], size)


def host_span(array: np.ndarray) -> Range:
    """Return the first address of a NumPy array's memory, and the address after its last."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return start, start + array.nbytes
    return _strided(start, array.shape, array.strides, array.itemsize)


def _texture_span(source: Any) -> Range:
    """Return the first address of the memory of a texture's source, and the address after its last.

    An array in the driver's layout has no address: its number stands for one byte.
    """
    start = int(source.handle)
    return start, start + getattr(source, "size", 1)


def _cupy_texture_span(resource: Any) -> Range:
    """Return the first address of the memory of a CuPy texture, and the address after its last.

    A CUDA array has one byte at its handle. A texture without memory has an empty range.
    """
    if resource.arr is not None:
        return span_of(resource.arr)
    return (resource.cuArr.ptr, resource.cuArr.ptr + 1) if resource.cuArr is not None else _NOTHING


def argument_span(argument: Argument) -> Range:
    """Return the first address of a described kernel argument's memory, and the address after its last."""
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
    """Return the first address of the driver's allocation that contains `address`, and the address after its last.

    If there is no such allocation, the range is the one byte at `address`.
    """
    if not address:
        return _NOTHING
    from cuda.bindings import driver

    status, start, size = driver.cuMemGetAddressRange(driver.CUdeviceptr(address))
    return (int(start), int(start) + int(size)) if int(status) == 0 else (address, address + 1)


def _strided(start: int, shape: Sequence[int], strides: Sequence[int], size: int) -> Range:
    """Return the first address of a view's memory, and the address after its last, gaps included.

    `start` is the address of the view's element 0. `strides` and `size`, the element size, are in bytes.
    """
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
    """Return the number of the stream that an array of another library names as its producer, in a list.

    The list is empty if the array names none. ``__cuda_array_interface__`` may name a stream. An array with DLPack
    alone is exported here: the export makes the stream with the driver's number `handle` wait for the array's producer.
    """
    if hasattr(array, "__array_interface__"):
        return []  # host memory
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        producer = interface.get("stream")
        return [] if producer is None else [int(producer)]
    if hasattr(array, "__dlpack__"):
        array.__dlpack__(stream=handle)
    return []


def producers_of(arrays: Iterable[Any], device_id: int, handle: int) -> list[int]:
    """Return the driver's numbers of streams that may have unseen work on the arrays.

    These streams are the current streams of the arrays' libraries, and the streams that the arrays name.
    """
    libraries: dict[str, None] = {}
    result: list[int] = []
    for array in arrays:
        library = type(array).__module__.partition(".")[0]
        if library in ("cupy", "torch") and library in sys.modules:
            libraries[library] = None
        elif type(array) is not tuple and not hasattr(array, "__array_interface__"):
            result += named_producers(array, handle)
    return current_streams(libraries, device_id) + result
