"""The specializations of one kernel: made from the types of arguments, loaded once, bound to the shapes of calls."""

from __future__ import annotations

import threading
from typing import Any

from cudakit.errors import TemplateError
from cudakit.jit.cache.stages import compiled_of, complete_parameters
from cudakit.jit.launch.call_arguments import weak_choices, wrong_count
from cudakit.jit.launch.code_place import CodePlace, Ready
from cudakit.jit.launch.dispatch import Shape
from cudakit.jit.signature.signature import Declarations, Signature, listed
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.deduce import Deduced, deduce
from cudakit.jit.specialise.options import CompileOptions, Target
from cudakit.jit.specialise.specialise import Specialization, specialise
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.types.arguments import Argument, Evidence


class Specializations:
    """What was made of a kernel, on GPUs and on the emulator.

    Parameters
    ----------
    source : Source
    declarations : Declarations
    signature : Signature
    explicit : dict of str to Deduced
        Template arguments that were given.
    options : CompileOptions
    arch : str or None
        The only one to compile for.
    book : TypeBook

    Attributes
    ----------
    latest : Loaded, Emulated or None
        The one that was launched last, or asked for.
    """

    def __init__(
        self,
        source: Source,
        declarations: Declarations,
        signature: Signature,
        explicit: dict[str, Deduced],
        options: CompileOptions,
        arch: str | None,
        book: TypeBook,
    ) -> None:
        self.latest: Ready | None = None
        self._source, self._declarations, self._signature = source, declarations, signature
        self._explicit, self._options, self._arch, self._book = explicit, options, arch, book
        self._ready: dict[Specialization, Ready] = {}
        self._lock = threading.RLock()

    def make(self, evidence: tuple[Evidence, ...], arch: str, target: Target) -> tuple[Specialization, TypeBook]:
        """The specialization for arguments of those types, and the types that it knows then."""
        if self._signature.overloads:
            raise TemplateError(
                f"there are several kernels {self._signature.name}: {listed(self._signature.overloads)}; name one with "
                f"the types of its parameters, as in Kernel(source, {self._signature.overloads[0].full_name!r})"
            )
        book = TypeBook(self._declarations, dict(self._book.structs), dict(self._book.snippets))
        found = deduce(self._signature, self._explicit, evidence, book.spell)
        made = specialise(
            self._source, self._declarations, self._signature, found, evidence, book, arch, self._options, target
        )
        return made, book

    def load(self, evidence: tuple[Evidence, ...], place: CodePlace) -> Ready:
        """The specialization for arguments of those types, ready to be launched at a place."""
        place.check_arch(self._signature.name, self._arch)
        specialization, book = self.make(evidence, self._arch or place.arch, place.target)
        with self._lock:
            found = self._ready.get(specialization)
            if found is None:
                compiled = compiled_of(specialization._replace(options=place.options(specialization.options)))
                parameters = complete_parameters(specialization, compiled, self._declarations, evidence, book)
                found = self._ready[specialization] = place.load(specialization, compiled, parameters)
            self.latest = found
            return found

    def shape(self, given: tuple[Any, ...], described: tuple[Argument, ...], place: CodePlace) -> Shape:
        """What a place is given for arguments like these, with the checks that they passed."""
        evidence = tuple(argument.evidence for argument in described)
        with place.entered():
            ready = self.load(evidence, place)
            if len(ready.parameters) != len(described):
                raise wrong_count(self._signature.name, len(ready.parameters), len(described))
            return place.bind(ready, given, described, weak_choices(self._signature, evidence, self._explicit))
