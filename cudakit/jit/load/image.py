"""A module where it runs: the code of it that is loaded there, which kernels are found in that, and its variables.

On GPUs of one arch code that shares variables must be one piece, and is loaded anew when it grows (`DeviceImage`).
"""

from __future__ import annotations

import gc
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from cudakit.errors import LaunchError
from cudakit.jit.cache.stages import compiled_and_read
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.elf import common_name, variable_name, variables_of
from cudakit.jit.compile.nvrtc import type_of
from cudakit.jit.load.load import Loaded, load, loadable, object_code
from cudakit.jit.source.closure import Closure
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.streams import devices, streams
from cudakit.streams.streams import as_stream

if TYPE_CHECKING:
    from cuda.core import ObjectCode


class Variables(Protocol):
    """The variables of a module where it runs."""

    def names(self) -> Collection[str]:
        """Those of all variables."""

    def address(self, name: str) -> tuple[int, int]:
        """Where a variable lies there, and its bytes."""

    def read(self, name: str, stream: Any) -> np.ndarray:
        """The bytes of a variable, after the work of a stream; None: of all."""

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        """Set a variable to as many bytes as it has, after the work of a stream; None: of all."""


class DeviceVariables(NamedTuple):
    """Those of code on the current device; `known` are their names."""

    code: ObjectCode
    known: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        return self.known

    def address(self, name: str) -> tuple[int, int]:
        from cuda.bindings import driver

        if self.known.count(name) > 1:
            raise LaunchError(f"several linked texts have a variable {variable_name(name)}: rename all but one")
        devices.make_current()
        library = driver.CUlibrary(int(self.code.handle))
        for find in (driver.cuLibraryGetGlobal, driver.cuLibraryGetManaged):
            status, pointer, size = find(library, name.encode())
            if int(status) == 0:
                return int(pointer), int(size)
        raise LaunchError(f"the driver does not find the variable {variable_name(name)} ({name}): {status.name}")

    def read(self, name: str, stream: Any) -> np.ndarray:
        pointer, size = self.address(name)
        out = np.empty(size, np.uint8)
        _copy("cuMemcpyDtoH", stream, out.ctypes.data, pointer, size)
        return out

    def write(self, name: str, data: np.ndarray, stream: Any) -> None:
        pointer, size = self.address(name)
        _copy("cuMemcpyHtoD", stream, pointer, data.ctypes.data, size)


def move(old: Variables, new: Variables) -> None:
    """Give the variables of a module that is loaded anew the values that they had, on the current device.

    Raises
    ------
    LaunchError
        If one cannot be found, or holds the address of one.
    """
    after = {common_name(name): name for name in new.names()}
    if len(after) < len(new.names()):
        raise LaunchError("several linked texts have variables of one name")
    pairs = [(name, after[common_name(name)]) for name in old.names() if common_name(name) in after]
    ranges = sorted((*old.address(name), new.address(other)[0]) for name, other in pairs)
    starts, sizes, targets = (np.array(column, np.uint64) for column in zip(*ranges, strict=True))
    values = []
    for name, other in pairs:
        data, fresh = old.read(name, None), new.read(other, None)
        words, as_initialised = (each[: data.size // 8 * 8].view(np.uint64) for each in (data, fresh))
        owner = np.searchsorted(starts, words, "right") - 1
        offsets = words - starts[owner]
        held = (owner >= 0) & (offsets < sizes[owner])
        moved = targets[owner] + offsets
        # A pointer that is as it was initialised is the new module's; any other may have copies elsewhere.
        if (held & (moved != as_initialised)).any():
            raise LaunchError(f"its variable {variable_name(name)} holds the address of a variable, and these move")
        words[held] = moved[held]
        values.append((other, data))
    for other, data in values:
        new.write(other, data, None)


def _copy(function: str, stream: Any, target: int, source: int, size: int) -> None:
    from cuda.bindings import driver

    if stream is None:
        # A copy from pageable memory may be under way when the driver returns, and is for all streams.
        done = driver.cuCtxSynchronize
        for step in (done, lambda: getattr(driver, function)(target, source, size), done):
            _check(step()[0])  # while anything is captured, the first of them is refused, and nothing is copied
    else:
        core = as_stream(stream)
        _check(getattr(driver, f"{function}Async")(target, source, size, driver.CUstream(int(core.handle)))[0])
        # The host memory is this function's own: it must not go before the copy has been made.
        core.sync()


def _check(status: Any) -> None:
    if int(status) != 0:
        raise LaunchError(f"copying a variable failed: {status.name}")


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


#: A pointer to a function: what it says is not known to be the same in other code.
_FUNCTION_POINTER = re.compile(r"\(\s*\*[\s\w\[\]]*\)\s*\(")


class DeviceImage(Image):
    """See `Image`. Code that has no variables stays apart: each instance of a template is compiled by itself."""

    def add(self, wanted: Specialization) -> Code:
        if wanted.is_tile:  # which shares no variables
            compiled = self.compiled(wanted)
            loaded = DeviceVariables(object_code(compiled, wanted.title), ())
            self.codes.append(Code((wanted,), compiled, loaded))
            return self.codes[-1]
        former = next((code for code in self.codes if code.loaded.names()), None)
        if former is not None:
            # From here on every call comes to the module and waits for it, and who is in the middle of a launch has
            # long made it when the device is waited for.
            self.forget()
        ahead = (each for each in self.ahead if not each.is_tile)
        members = dict.fromkeys((*(former.members if former else ()), *ahead, wanted))
        compiled = self.compiled(wanted.among(members))
        variables = DeviceVariables(object_code(compiled, wanted.title), variables_of(compiled.code))
        code = Code(tuple(members), compiled, variables)
        if former is not None and variables.names():
            try:
                self._move(former, code)
            except LaunchError as error:
                raise LaunchError(
                    f"{wanted.name_expression}: its module has variables and is loaded without it; to load it anew and "
                    f"move the variables is not possible: {error}. Name all instances before the first launch: "
                    f'module.prepare("{wanted.name_expression}", …), or kernel.prepare(…)'
                ) from error
            self.codes.remove(former)
            self.ready.clear()
        self.codes.append(code)
        return code

    def compiled(self, wanted: Specialization) -> Compiled:
        return super().compiled(loadable(wanted) if wanted.is_tile else wanted)

    def load(self, wanted: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Loaded:
        return load(wanted, code.compiled, code.loaded.code, parameters)

    def variables(self) -> DeviceVariables:
        shared: DeviceVariables = next((code for code in self.codes if code.loaded.names()), self.codes[-1]).loaded
        return shared

    def _move(self, former: Code, code: Code) -> None:
        """Give the variables of new code the values that they have."""
        if self._holders():
            gc.collect()
        if held := self._holders():
            raise LaunchError(f"a plan, a captured graph or a frozen call holds {', '.join(held)} as it is")
        if streams.is_any_open():
            raise LaunchError("a graph is being captured, and moving waits for the device")
        any_member, lowered = former.members[0], former.compiled.lowered
        types = (lowered.get(type_of(variable), "") for variable in any_member.typed)
        if _FUNCTION_POINTER.search(any_member.source.text) or any("PF" in each for each in types):
            raise LaunchError("a variable may hold a pointer to a function, which other code may have elsewhere")
        for entered in self.entered.values():
            with entered():
                move(former.loaded, code.loaded)

    def _holders(self) -> list[str]:
        """Kernels that somebody can launch without a call to the module."""
        return sorted({ready.specialization.name_expression for ready in self.ready.values() if len(ready.holders)})
