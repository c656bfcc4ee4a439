"""A captured graph in either place: its recorded steps, and what in them uses each named argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from cudakit.errors import ArgumentError
from cudakit.graphs.named_arguments import Memory, Named
from cudakit.graphs.open_capture import Recording
from cudakit.jit.launch.bind import converter
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.types.scalars import Converter

#: Writes a new value into a step's arguments.
Write: TypeAlias = Callable[[Any], None]


class Step:
    """A recorded step, which a player repeats at each launch: the driver a node of its own, the emulator the call.

    Attributes
    ----------
    name : str
        What it does.
    uses : list of (str, callable)
        For each use of a named argument, its name and what writes a new value in its place. What writes holds the
        arguments and not the step, lest they hold each other.
    foreign : bool
        Whether others than cudakit put it there.
    """

    foreign = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.uses: list[tuple[str, Write]] = []

    def number_of(self, named: Named, parameter: BoundParameter, argument: Any) -> tuple[str, Converter] | None:
        """The named number that a parameter was given, and what converts others to the parameter's type.

        Raises
        ------
        ArgumentError
            For a parameter that is no number.
        """
        name = named.number_named(argument)
        if name is None:
            return None
        where = f"{self.name}'s parameter {parameter.name} ({parameter.cpp})"
        if parameter.kind != "scalar" or parameter.dtype is None:
            raise ArgumentError(
                f"graph: {name} goes to {where}; what can be changed at a launch is an array or a number"
            )
        return name, converter(parameter, f"graph: {name}, {where},")


class Executable:
    """A finished graph, launched by its place.

    Attributes
    ----------
    nodes : sequence of Step
        What it does, without orders between streams.
    """

    #: Whether a new array is written by its address.
    by_address = False

    def __init__(self, capture: Recording, nodes: Sequence[Step]) -> None:
        self._capture = capture
        self.nodes: Sequence[Step] = nodes
        self._uses: dict[str, list[tuple[Any, Write]]] = {}
        for node in nodes:
            for name, write in node.uses:
                self._uses.setdefault(name, []).append((node, write))

    def change(self, name: str, value: Any, memory: Memory | None) -> None:
        """Let the nodes that use `name` use `value` from the next launch on: all, or none where one refuses it."""
        uses = self._uses.get(name, [])
        try:
            for _, write in uses:
                write(memory.address if memory is not None and self.by_address else value)
        except ArgumentError:
            for _, write in uses:
                write(self._capture.named.values[name])
            raise
        self._changed(uses)

    def _changed(self, uses: Sequence[tuple[Any, Write]]) -> None:
        """What was written must be known before the next launch."""

    def launch(self, stream: Any, graph: Any) -> None:
        """Launch on a stream; inside a capture, become a part of that graph, whose user has this as `graph`."""
        raise NotImplementedError

    def dot(self) -> str:
        """The graph in Graphviz' language."""
        raise NotImplementedError
