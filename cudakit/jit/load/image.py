"""A module at a place: its loaded code, the kernels in that code, and its variables.

On GPUs of one arch, code that shares variables must be one piece, which is loaded again when it grows (`DeviceImage`).
"""

from __future__ import annotations

import gc
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from cudakit.errors import LaunchError
from cudakit.jit.cache.stages import compiled_and_read
from cudakit.jit.compile.compiled import Compiled, type_of
from cudakit.jit.compile.elf import variables_of
from cudakit.jit.load.load import Loaded, driver_version, load, loadable, object_code
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.records import NamedTuple
from cudakit.streams import devices, streams
from cudakit.streams.streams import as_stream

if TYPE_CHECKING:
    from cuda.core import ObjectCode

    from cudakit.jit.load.variables import Variables
    from cudakit.jit.source.closure import Closure


class DeviceVariables(NamedTuple):
    """The variables of code on the current device; `variable_names` are their mangled names."""

    code: ObjectCode
    variable_names: tuple[str, ...]

    def names(self) -> tuple[str, ...]:
        return self.variable_names

    def address(self, name: str) -> tuple[int, int]:
        from cuda.bindings import driver

        from cudakit.jit.compile.mangled import variable_name  # for variables alone

        if self.variable_names.count(name) > 1:
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


def _copy(function: str, stream: Any, target: int, source: int, size: int) -> None:
    from cuda.bindings import driver

    if stream is None:
        # A copy from pageable memory may still run when the driver returns, and all streams must see it.
        synchronize = driver.cuCtxSynchronize
        for step in (synchronize, lambda: getattr(driver, function)(target, source, size), synchronize):
            _check(step()[0])  # during a capture the first step is refused, and nothing is copied
    else:
        core = as_stream(stream)
        _check(getattr(driver, f"{function}Async")(target, source, size, driver.CUstream(int(core.handle)))[0])
        # The host memory belongs to this function: it must live until the copy is done.
        core.sync()


def _check(status: Any) -> None:
    if int(status) != 0:
        raise LaunchError(f"copying a variable failed: {status.name}")


class Code(NamedTuple):
    """Code that was compiled at once, and loaded.

    Attributes
    ----------
    members : tuple of Specialization
        Specializations in the code.
    compiled : Compiled
        Compiled code.
    loaded : object
        Loaded code: an object of cuda.core or of the emulator.
    """

    members: tuple[Specialization, ...]
    compiled: Compiled
    loaded: Any

    def has(self, specialization: Specialization) -> bool:
        """Return whether the code contains a specialization's kernel, made from the same generated source and edits."""
        generated = {piece for member in self.members for piece in (*member.prelude, *member.postlude)}
        is_there = not specialization.name_expression or specialization.name_expression in self.compiled.lowered
        same_heads = all(member.edits == specialization.edits for member in self.members)
        return is_there and same_heads and generated.issuperset((*specialization.prelude, *specialization.postlude))


class Image(ABC):
    """A module on GPUs of one arch, or on the emulator of one arch.

    Attributes
    ----------
    codes : list of Code
        Loaded code.
    ready : dict
        Kernels by specialization.
    ahead : sequence of Specialization
        Specializations to load with the first one that is requested.
    read : set of Closure or None
        Closures of the compiled sources.
    entered : dict
        Context managers that make each device current, by code place.
    forget : callable
        Function that makes all calls of the module's kernels look up their code again.
    """

    ahead: Sequence[Specialization] = ()
    forget: Callable[[], None]

    def __init__(self) -> None:
        self.codes: list[Code] = []
        self.ready: dict[Specialization, Any] = {}
        self.read: set[Closure | None] = set()
        self.entered: dict[Any, Callable[[], AbstractContextManager[None]]] = {}

    def code(self, specialization: Specialization) -> tuple[Code, Compiled]:
        """Return the loaded code with a kernel, and the compiled code with its `checks` and types."""
        code = next((code for code in self.codes if code.has(specialization)), None)
        if code is None:
            code = self.add(specialization)
            if code.has(specialization):
                return code, code.compiled
            # The compiler refused its name when it compiled for all kernels.
            code = self.add(specialization._replace(kernels=()))
        unknown = specialization.needs_types and type_of(specialization.name_expression) not in code.compiled.lowered
        # Code that is compiled only for checks must not be loaded: it would have variables of its own.
        return code, self.compiled(specialization) if specialization.checks or unknown else code.compiled

    def compiled(self, specialization: Specialization) -> Compiled:
        """Return the code of a specialization, from the cache or the compiler."""
        compiled, read = compiled_and_read(specialization)
        self.read |= read
        return compiled

    def is_current(self) -> bool:
        """Return whether compiling again would give the loaded code; False if that is unknown."""
        return all(closure is not None and closure.holds() for closure in tuple(self.read))

    @abstractmethod
    def add(self, specialization: Specialization) -> Code:
        """Compile and load code for a specialization that `codes` does not contain, and return the code."""

    @abstractmethod
    def load(self, specialization: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Any:
        """Return a kernel of loaded code."""

    @abstractmethod
    def variables(self) -> Variables:
        """Return the variables, once any code is loaded."""


#: A pointer to a function: it may have another value in other code.
_FUNCTION_POINTER = r"\(\s*\*[\s\w\[\]]*\)\s*\("


class DeviceImage(Image):
    """The image of a module on GPUs. Code without variables stays separate: each instance is compiled by itself."""

    def add(self, specialization: Specialization) -> Code:
        if specialization.is_tile:  # tile kernels share no variables
            compiled = self.compiled(specialization)
            loaded = DeviceVariables(object_code(compiled, specialization.title), ())
            self.codes.append(Code((specialization,), compiled, loaded))
            return self.codes[-1]
        former = next((code for code in self.codes if code.loaded.names()), None)
        if former is not None:
            # From here on every call comes to the module and waits for it. A launch that has begun is made before the
            # device is waited for.
            self.forget()
        ahead = (member for member in self.ahead if not member.is_tile)
        members = dict.fromkeys((*(former.members if former else ()), *ahead, specialization))
        compiled = self.compiled(specialization.among(members))
        variables = DeviceVariables(object_code(compiled, specialization.title), variables_of(compiled.code))
        code = Code(tuple(members), compiled, variables)
        if former is not None and variables.names():
            try:
                self._move(former, code)
            except LaunchError as error:
                name = specialization.name_expression
                raise LaunchError(
                    f"{name}: its module has variables and is loaded without it; to load it anew and "
                    f"move the variables is not possible: {error}. Name all instances before the first launch: "
                    f'module.prepare("{name}", …), or kernel.prepare(…)'
                ) from error
            self.codes.remove(former)
            self.ready.clear()
        self.codes.append(code)
        return code

    def compiled(self, specialization: Specialization) -> Compiled:
        compiled = super().compiled(loadable(specialization) if specialization.is_tile else specialization)
        if compiled.target != "ptx":
            return compiled
        from cudakit.jit.load.translate import machine_code  # for devices that no machine code of a bundle is for

        return machine_code(specialization, compiled, driver_version())

    def load(self, specialization: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Loaded:
        return load(specialization, code.compiled, code.loaded.code, parameters)

    def variables(self) -> DeviceVariables:
        shared: DeviceVariables = next((code for code in self.codes if code.loaded.names()), self.codes[-1]).loaded
        return shared

    def _move(self, former: Code, code: Code) -> None:
        """Copy the current values of the variables to new code."""
        if self._holders():
            gc.collect()
        if holders := self._holders():
            raise LaunchError(f"a plan, a captured graph or a recorded call holds {', '.join(holders)} as it is")
        if streams.is_any_open():
            raise LaunchError("a graph is being captured, and moving waits for the device")
        any_member, lowered = former.members[0], former.compiled.lowered
        types = (lowered.get(type_of(variable), "") for variable in any_member.typed)
        if re.search(_FUNCTION_POINTER, any_member.source.text) or any("PF" in type_text for type_text in types):
            raise LaunchError("a variable may hold a pointer to a function, which other code may have elsewhere")
        from cudakit.jit.load.variables import move  # for variables alone

        for entered in self.entered.values():
            with entered():
                move(former.loaded, code.loaded)

    def _holders(self) -> list[str]:
        """Return the names of the kernels that a plan, a graph or a replay can launch by itself, sorted."""
        return sorted({ready.specialization.name_expression for ready in self.ready.values() if len(ready.holders)})
