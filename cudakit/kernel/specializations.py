"""The specializations of one kernel: made from the types of arguments, loaded once, bound to the shapes of calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from cudakit.jit.cache.stages import compiled_of, slots_of
from cudakit.jit.launch import bind as binding
from cudakit.jit.launch import call_arguments as calls
from cudakit.jit.launch import launch
from cudakit.jit.load.load import Loaded, load
from cudakit.jit.signature.signature import Declarations, Signature
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.deduce import Deduced, deduce
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization, specialise
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.streams import devices
from cudakit.types.arguments import Argument, Evidence

if TYPE_CHECKING:
    from cudakit.emulator.launch import Emulated


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
        self.latest: Loaded | Emulated | None = None
        self._source, self._declarations, self._signature = source, declarations, signature
        self._explicit, self._options, self._arch, self._book = explicit, options, arch, book
        self._loaded: dict[Specialization, Loaded] = {}
        self._emulated: dict[Specialization, Emulated] = {}
        self._lock = threading.RLock()

    def make(
        self, evidence: tuple[Evidence, ...], arch: str, target: Literal["cubin", "ptx"]
    ) -> tuple[Specialization, TypeBook]:
        """The specialization for arguments of those types, and the types that it knows then."""
        book = TypeBook(self._declarations, dict(self._book.structs), dict(self._book.snippets))
        found = deduce(self._signature, self._explicit, evidence, book.spell)
        made = specialise(
            self._source, self._declarations, self._signature, found, evidence, book, arch, self._options, target
        )
        return made, book

    def load(self, evidence: tuple[Evidence, ...], arch: str) -> Loaded:
        """For a GPU; of the cache where it has been launched before."""
        specialization, book = self.make(evidence, arch, "cubin")
        with self._lock:
            found = self._loaded.get(specialization)
            if found is None:
                compiled = compiled_of(specialization)
                slots = slots_of(specialization, compiled, self._declarations, evidence, book)
                found = self._loaded[specialization] = load(specialization, compiled, slots)
            self.latest = found
            return found

    def emulate(self, evidence: tuple[Evidence, ...], arch: str) -> Emulated:
        """For a stream of the emulator: as PTX, its program decoded once."""
        from cudakit.emulator import launch as call

        call.check_arch(self._signature.name, self._arch, arch)
        specialization, book = self.make(evidence, self._arch or arch, "ptx")
        with self._lock:
            found = self._emulated.get(specialization)
            if found is None:
                # With source lines, which change no code and which the emulator's errors name.
                options = specialization.options
                placed = options if options.debug else options.replace(lineinfo=True)
                compiled = compiled_of(specialization._replace(options=placed))
                slots = slots_of(specialization, compiled, self._declarations, evidence, book)
                found = self._emulated[specialization] = call.prepare(specialization, compiled, slots)
            self.latest = found
            return found

    def shape(self, described: tuple[Argument, ...], device_id: int) -> launch.CallShape:
        """What a GPU's specialization is given for arguments like these, with the checks that they passed."""
        evidence = tuple(argument.evidence for argument in described)
        loaded = self.load(evidence, self._arch or devices.limits(device_id).arch)
        if len(loaded.slots) != len(described):
            raise calls.wrong_count(self._signature.name, len(loaded.slots), len(described))
        target = binding.Target(loaded.specialization.name_expression, device_id, devices.device_count() > 1)
        weak = calls.weak_choices(self._signature, evidence, self._explicit)
        fragments = tuple(
            binding.bind(slot, argument, target, size, choice)
            for slot, argument, size, choice in zip(loaded.slots, described, loaded.sizes, weak, strict=True)
        )
        families = tuple(argument.family for argument in described)
        return launch.CallShape(loaded, fragments, families, device_id, launch.make_run(loaded, fragments))
