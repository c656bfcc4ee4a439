"""A kernel as the compiled machine takes it: alone, with its calls put in their places."""

from __future__ import annotations

from functools import cached_property

from cudakit.emulator.compiled.inline import Inlined
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.webs import split
from cudakit.emulator.machine.decode import Context, decode
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.program import Function, Instruction


class Source:
    """A kernel of a program; its calls are put in their places once somebody asks for its instructions.

    Parameters
    ----------
    module : Module
    name : str
        The kernel's name in the program.
    """

    def __init__(self, module: Module, name: str) -> None:
        # Not the module itself, which holds what is compiled of it.
        self._program, self._symbols = module.program, module.symbols
        self._offsets = module.shared(name).offsets
        self._name = name

    @property
    def identity(self) -> tuple[str, ...]:
        """The PTX, by its digest, the kernel's name, and where its shared variables lie."""
        return self._program.digest, self._name, *(f"{name} {at}" for name, at in sorted(self._offsets.items()))

    @cached_property
    def _inlined(self) -> Inlined:
        inlined = Inlined(self._program, self._program.functions[self._name])
        context = Context(self._symbols, inlined.function, self._offsets)
        # What NumPy's machine does not know, in this form, is not known here: its error comes where it is run.
        for given in inlined.function.code:
            if decode(given, context).missing:
                raise Refusal(f"instruction {given}")
        split(inlined.function, inlined.origins)
        return inlined

    @cached_property
    def context(self) -> Context:
        """Its instructions and registers, and where its variables lie.

        Raises
        ------
        Refusal
        """
        return Context(self._symbols, self._inlined.function, self._offsets)

    def instruction(self, number: int) -> tuple[Instruction, Function]:
        """An instruction by its number, and the function that it was taken from."""
        given = self._inlined.function.code[number]
        return given, self._inlined.origins.get(id(given), self._program.functions[self._name])
