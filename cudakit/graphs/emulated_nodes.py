"""The steps of a graph recorded on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cudakit.emulator.face import EmulatedEvent, EmulatedShape, EmulatedStream, EmulatedTensorMap, TextureObject
from cudakit.graphs.executable import Step
from cudakit.graphs.named_arguments import ADDRESS, VALUES, Memory, Named, memory_of
from cudakit.streams.witnesses import Work
from cudakit.types.host import as_numpy
from cudakit.types.scalars import Converter


class Play:
    """One launch of a graph: the stream that stands for each captured one, and the events so far."""

    def __init__(self, streams: dict[int, EmulatedStream]) -> None:
        self.streams = streams
        self.events: dict[Any, EmulatedEvent] = {}


class Node(Step):
    """A recorded step.

    Attributes
    ----------
    hidden : bool
        Whether it is an order between streams, which a graph has edges for and no nodes.
    """

    hidden = False

    def run(self, play: Play) -> None:
        """Do it."""

    def again(self, streams: Mapping[int, int], named: Named, tag: Any) -> Node:
        """The step in another graph, whose streams and named arguments are others; `tag` tells its events apart."""
        return Node(self.name)

    def _find_array(
        self, named: Named, array: Any, position: int, *slots: list[Any], value: Callable[[int, Any], Any] | None = None
    ) -> bool:
        """Whether an array is memory, of which a named array's part is taken anew: as the array or a value of it."""
        memory = memory_of(array)
        if memory is None:
            return False
        held = named.viewed(memory)
        if held is not None:
            name, distance = held

            def write(other: Any) -> None:
                part = _view(as_numpy(other), distance, memory)
                argument = part if value is None else value(position, part)
                for arguments in slots:
                    arguments[position] = argument

            self.uses.append((name, write))
        return True


class Launch(Node):
    """A kernel's launch."""

    def __init__(
        self,
        stream: int,
        shape: EmulatedShape,
        config: Any,
        values: Sequence[Any],
        arguments: Sequence[Any],
        named: Named,
    ) -> None:
        super().__init__(shape.name)
        self._stream, self._shape, self._config = stream, shape, config
        self._values, self._arguments = list(values), list(arguments)
        for position, (argument, value) in enumerate(zip(arguments, values, strict=True)):
            kind = shape.emulated.parameters[position].kind
            if isinstance(argument, EmulatedTensorMap):
                named.refuse_inside(_address_of(argument.array), self.name, "tensor map")
            elif isinstance(argument, TextureObject):
                named.refuse_inside(_address_of(argument.texels), self.name, "texture")
            elif self._find_array(named, argument, position, self._values, self._arguments, value=shape.value):
                continue
            elif kind not in VALUES and isinstance(value, bytes | int):
                self._find_addresses(position, value, named)
            elif (use := self.number_of(named, shape.emulated.parameters[position], argument)) is not None:
                self._find_number(position, *use)

    def _find_addresses(self, position: int, value: bytes | int, named: Named) -> None:
        """Addresses in a struct, and one that is given as it is."""
        values = self._values
        data = value if isinstance(value, bytes) else ADDRESS.pack(value)

        for place, name, distance in named.addresses_in(data):

            def put(array: Any, place: int = place, distance: int = distance) -> None:
                address = ADDRESS.pack(_address_of(as_numpy(array)) + distance)
                now = values[position]
                if isinstance(now, bytes):
                    values[position] = now[:place] + address + now[place + len(address) :]
                else:
                    (values[position],) = ADDRESS.unpack(address)

            self.uses.append((name, put))

    def _find_number(self, position: int, name: str, convert: Converter) -> None:
        shape, values, arguments = self._shape, self._values, self._arguments

        def put(value: Any) -> None:
            convert(value)
            values[position], arguments[position] = shape.value(position, value), value

        self.uses.append((name, put))

    def run(self, play: Play) -> None:
        self._shape.run(play.streams[self._stream], self._config, self._values, self._arguments, put_in=False)

    def again(self, streams: Mapping[int, int], named: Named, tag: Any) -> Node:
        return Launch(streams[self._stream], self._shape, self._config, self._values, self._arguments, named)


class Copy(Node):
    """A copy of elements, of which CuPy makes one on a GPU."""

    def __init__(self, stream: int, source: Any, target: Any, named: Named) -> None:
        super().__init__(f"copy of {target.nbytes} bytes")
        self._stream = stream
        self._arrays = [source, target]
        for position, array in enumerate(self._arrays):
            self._find_array(named, array, position, self._arrays)

    def run(self, play: Play) -> None:
        source, target = self._arrays
        stream = play.streams[self._stream]
        work = Work("copy", self.name, stream, (source,), (target,), target.nbytes)
        with stream.doing(work, put_in=False):
            target[...] = source

    def again(self, streams: Mapping[int, int], named: Named, tag: Any) -> Node:
        return Copy(streams[self._stream], self._arrays[0], self._arrays[1], named)


class Edge(Node):
    """An event recorded, or waited for."""

    hidden = True

    def __init__(self, act: str, stream: int, event: Any) -> None:
        super().__init__(act)
        self._stream, self._event = stream, event

    def run(self, play: Play) -> None:
        stream = play.streams[self._stream]
        if self.name == "record":
            play.events[self._event] = stream.record()
        else:
            stream.wait(play.events[self._event])

    def again(self, streams: Mapping[int, int], named: Named, tag: Any) -> Node:
        return Edge(self.name, streams[self._stream], (tag, self._event))


class Conditional(Node):
    """A loop or a branch."""

    inner: int

    def __init__(self, stream: int, inner: int, flag: Any, limit: int | None, again: bool, named: Named) -> None:
        super().__init__("loop" if again else "branch")
        self.body: list[Node] = []
        self._stream, self.inner = stream, inner
        self._limit, self._again = limit, again
        self._flags = [np.asarray(as_numpy(flag))]
        self._find_array(named, flag, 0, self._flags)

    def run(self, play: Play) -> None:
        stream = play.streams[self.inner] = play.streams[self._stream]
        rounds = 0
        while self._limit is None or rounds < self._limit:
            # The device reads the flag: the host waits for nothing.
            work = Work("copy", f"the flag of a {self.name}", stream, (self._flags[0],))
            with stream.doing(work, put_in=False, told=False):
                pass
            if not self._flags[0].reshape(-1)[0]:
                return
            for node in self.body:
                node.run(play)
            rounds += 1
            if not self._again:
                return


def all_of(nodes: Sequence[Node]) -> Iterator[Node]:
    """The steps, with those of bodies."""
    for node in nodes:
        yield node
        if isinstance(node, Conditional):
            yield from all_of(node.body)


def _address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _view(array: Any, distance: int, like: Memory) -> np.ndarray:
    """Elements of another array where those of `like` were in the one that was captured."""
    if distance == 0 and (array.dtype, array.shape, array.strides) == (like.dtype, like.shape, like.strides):
        return np.asarray(array)
    return np.asarray(_Part(array, distance, like)).view(like.dtype)


class _Part:
    """Memory of an array, as elements of some bytes each; keeps the array alive."""

    def __init__(self, array: np.ndarray, distance: int, like: Memory) -> None:
        self.tensor = array
        address, _ = array.__array_interface__["data"]
        self.__array_interface__ = {
            "data": (address + distance, not array.flags.writeable),
            "shape": like.shape,
            "strides": like.strides,
            "typestr": f"|V{like.dtype.itemsize}",
            "version": 3,
        }
