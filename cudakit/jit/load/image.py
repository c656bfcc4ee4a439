"""A module where it runs: the code of it that is loaded there, and which kernels are found in that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from cudakit.jit.cache.stages import compiled_and_read
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.nvrtc import type_of
from cudakit.jit.load.variables import Variables
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.specialise import BoundParameter, Specialization


class Code(NamedTuple):
    """What was compiled in one go, and loaded.

    Attributes
    ----------
    members : tuple of Specialization
        What it was compiled for.
    compiled : Compiled
    loaded : object
        cuda.core's code, or the emulator's program.
    """

    members: tuple[Specialization, ...]
    compiled: Compiled
    loaded: Any

    def has(self, wanted: Specialization) -> bool:
        """Whether its kernel is in it, and means the same there."""
        generated = {piece for each in self.members for piece in (*each.prelude, *each.postlude)}
        is_there = not wanted.name_expression or wanted.name_expression in self.compiled.lowered
        same_heads = all(each.edits == wanted.edits for each in self.members)
        return is_there and same_heads and generated.issuperset((*wanted.prelude, *wanted.postlude))


class Image(ABC):
    """A module on GPUs of one arch, or on the emulator of one.

    Attributes
    ----------
    codes : list of Code
    ready : dict
        Kernels by their specializations.
    ahead : sequence of Specialization
        What is to be loaded with the first that is asked for.
    read : set of Closure or None
        What the compiler read for them.
    entered : dict
        What makes each device current that it was asked for.
    forget : callable
        Lets all calls of the module's kernels look for their code anew.
    """

    ahead: Sequence[Specialization] = ()
    forget: Callable[[], None]

    def __init__(self) -> None:
        self.codes: list[Code] = []
        self.ready: dict[Specialization, Any] = {}
        self.read: set[Closure | None] = set()
        self.entered: dict[Any, Callable[[], AbstractContextManager[None]]] = {}

    def code(self, wanted: Specialization) -> tuple[Code, Compiled]:
        """The loaded code that has a kernel; and what was compiled with its `checks` and its types."""
        code = next((code for code in self.codes if code.has(wanted)), None)
        if code is None:
            code = self.add(wanted)
            if code.has(wanted):
                return code, code.compiled
            # The compiler refused its name among the others'.
            code = self.add(wanted._replace(kernels=()))
        unknown = wanted.needs_types and type_of(wanted.name_expression) not in code.compiled.lowered
        # What is only checked must not be loaded: it would have variables of its own.
        return code, self.compiled(wanted) if wanted.checks or unknown else code.compiled

    def compiled(self, wanted: Specialization) -> Compiled:
        """The code of a specialization, from the cache or by the compiler."""
        compiled, read = compiled_and_read(wanted)
        self.read |= read
        return compiled

    def is_current(self) -> bool:
        """Whether what was loaded is what would be compiled now; not where that cannot be known."""
        return all(closure is not None and closure.holds() for closure in tuple(self.read))

    @abstractmethod
    def add(self, wanted: Specialization) -> Code:
        """Compile and load what `codes` have not."""

    @abstractmethod
    def load(self, wanted: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Any:
        """A kernel of loaded code."""

    @abstractmethod
    def variables(self) -> Variables:
        """Its variables, once any code is loaded."""
