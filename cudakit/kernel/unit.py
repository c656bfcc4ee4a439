"""A translation unit, as C++ has it: what is loaded of one source, and the variables that its kernels share."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from cudakit.errors import ArgumentError, CompileError
from cudakit.jit.cache.stages import compiled_of, complete_parameters, declarations_of
from cudakit.jit.launch.code_place import CodePlace, Ready
from cudakit.jit.load.image import Image, Variables
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, check_target, options_of
from cudakit.jit.specialise.specialise import Specialization, bare
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.places import default_place, place_of
from cudakit.streams import process
from cudakit.types import structs
from cudakit.types.arguments import Evidence


class User(Protocol):
    """What holds code of a unit: the calls of a kernel."""

    def forget(self) -> None:
        """Ask the unit for it again."""


class Unit:
    """A source with options and an arch: the one in this process, with what is loaded of it and its variables.

    Attributes
    ----------
    users : set of User
    module : object
        The `cudakit.kernel.kernel.Module` that it is to users, while anybody has that.
    """

    def __init__(self, origin: Source, options: CompileOptions, arch: str | None) -> None:
        self.source, self.options, self.arch = origin, options, arch
        self.declarations: Declarations = declarations_of(origin, options.cache)
        self.lock: threading.RLock = threading.RLock()
        self.users: weakref.WeakSet[User] = weakref.WeakSet()
        self.module: Callable[[], Any] = lambda: None
        self._images: dict[tuple[str, str], Image] = {}
        self._latest: CodePlace | None = None
        self._ahead: list[Specialization] = []

    @classmethod
    def of(cls, origin: Source, options: CompileOptions | None = None, arch: str | None = None) -> Unit:
        """The one of a source that was read."""
        options = options_of(origin.name, options)
        files: tuple[str | None, ...] = ()
        if options.link:  # a file that is linked may change, as a header may
            from cudakit.jit.compile.linked import linked_files

            files = linked_files(options)
        if arch is not None and not isinstance(arch, str | int):  # what may have no hash
            check_target(origin.name, arch, "cubin")
        key = origin, options, arch, files
        with _units.lock:
            found: Unit | None = _units.known.get(key)
        # A header may have changed since it was loaded.
        if found is None or not all(image.is_current() for image in tuple(found._images.values())):
            made = cls(origin, options, arch)
            with _units.lock:
                # Another thread may have made it meanwhile.
                now: Unit | None = _units.known.get(key)
                if now is not None and now is not found:
                    return now
                found = _units.known[key] = made
                if made.declarations.symbols:
                    _units.lasting.add(made)
        return found

    def _place(self, stream: Any) -> CodePlace:
        """Where its variables are: of a stream's kernels; without one, where a kernel was launched last."""
        if stream is not None:
            return place_of(stream).code(stream)
        return self._latest or default_place().default_code(self.arch)

    def _image(self, place: CodePlace) -> Image:
        """What of it is loaded at a place."""
        key = place.target, self.arch or place.arch
        with self.lock:
            found = self._images.get(key)
            if found is None:
                found = self._images[key] = place.image()
                found.ahead, found.forget = self._ahead, self._forget
            found.entered[place] = place.entered
            return found

    def _forget(self) -> None:
        for user in self.users:
            user.forget()

    @contextlib.contextmanager
    def loaded(self, stream: Any) -> Iterator[tuple[Variables, Mapping[str, str]]]:
        """Its variables as the kernels of a stream see them, and the names that the compiler gave them."""
        place = self._place(stream)
        with place.entered(), self.lock:
            image = self._image(place)
            code = image.codes[-1] if image.codes else image.add(self._bare(place))
            yield image.variables(), code.compiled.lowered

    def check(self, variable: str, shown: str, dtype: np.dtype) -> None:
        """Let the compiler compare a structured dtype with the type of a variable."""
        place = self._place(None)
        cpp = f"cudakit_layout::element<decltype({variable})>::type"
        text = TypeBook(self.declarations).checks([structs.struct_assertions("variable", cpp, shown, dtype)])
        try:
            self._image(place).compiled(self._bare(place)._replace(checks=text))
        except CompileError as error:
            raise ArgumentError(f"variable {variable} ({shown}) has another layout than {dtype}: {error}") from error

    def _bare(self, place: CodePlace) -> Specialization:
        """What all its specializations for a place hold: variables, and the kernels that are no templates."""
        made = bare(self.source, self.declarations, self.arch or place.arch, self.options)
        return place.adapted(made)

    def prepare(self, wanted: Iterable[Specialization]) -> None:
        """Compile specializations together, and let the first of them that is loaded bring the others."""
        with self.lock:
            self._ahead += wanted
            for place in {_together(each) for each in self._ahead}:
                first, *others = (each for each in self._ahead if _together(each) == place)
                if first.is_tile:  # each is loaded by itself
                    for each in (first, *others):
                        compiled_of(each)
                else:
                    compiled_of(first.among(others))

    def instances(self, kernel: str) -> list[Ready]:
        """What of a kernel is loaded."""
        with self.lock:
            loaded = [ready for image in self._images.values() for ready in image.ready.values()]
        return [ready for ready in loaded if ready.specialization.kernel == kernel]

    def load(self, wanted: Specialization, evidence: tuple[Evidence, ...], book: TypeBook, place: CodePlace) -> Ready:
        """A specialization, ready to be launched at a place."""
        image = self._image(place)
        self._latest = place
        with self.lock:
            found: Ready | None = image.ready.get(wanted)
            if found is None:
                code, compiled = image.code(wanted)
                parameters = complete_parameters(wanted, compiled, self.declarations, evidence, book)
                found = image.ready[wanted] = image.load(wanted, code, parameters)
                if image.variables().names():
                    _units.lasting.add(self)
            return found


def _together(wanted: Specialization) -> tuple[Any, ...]:
    """What specializations share that are compiled together."""
    return wanted.arch, wanted.target, wanted.is_tile, wanted.edits


class _Units:
    """Those of this process."""

    def __init__(self) -> None:
        self.known: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self.lasting: set[Unit] = set()
        self.renew()
        process.in_child(self.renew)

    def renew(self) -> None:
        self.lock = threading.Lock()
        for unit in self.known.values():
            unit.lock = threading.RLock()


_units = _Units()
