"""A module on GPUs of one arch."""

from __future__ import annotations

from cudakit.jit.load.image import Code, Image
from cudakit.jit.load.load import Loaded, load, object_code
from cudakit.jit.load.variables import DeviceVariables
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.jit.specialise.specialise import Specialization


class DeviceImage(Image):
    """See `Image`."""

    def add(self, wanted: Specialization) -> Code:
        compiled = self.compiled(wanted)
        code = Code((wanted,), compiled, object_code(compiled, wanted.title))
        self.codes.append(code)
        return code

    def load(self, wanted: Specialization, code: Code, parameters: tuple[BoundParameter, ...]) -> Loaded:
        return load(wanted, code.compiled, code.loaded, parameters)

    def variables(self) -> DeviceVariables:
        return DeviceVariables(self.codes[-1].loaded)
