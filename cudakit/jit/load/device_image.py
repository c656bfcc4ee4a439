"""A module on GPUs of one arch: code that shares variables must be one piece, and is loaded anew when it grows."""

from __future__ import annotations

import gc
import re

from cudakit.errors import LaunchError
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.compile.elf import variables_of
from cudakit.jit.compile.nvrtc import type_of
from cudakit.jit.load.driver_tiles import loadable
from cudakit.jit.load.image import Code, Image
from cudakit.jit.load.load import Loaded, load, object_code
from cudakit.jit.load.variables import DeviceVariables, move
from cudakit.jit.specialise.specialise import BoundParameter, Specialization
from cudakit.streams import streams

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
