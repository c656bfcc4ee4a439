"""A translation unit, as in C++: the loaded code of one source, and the variables that its kernels share.

On the emulator all programs share memory and one ``decode.Linked``, which has the variables by names that are the
same in each compile (``elf.common_name``). On a GPU loaded code has variables of its own. So a further instance of a
module with variables is compiled together with all others, loaded, and the variables are copied (``DeviceImage.add``,
``image.move``). First the function of every kernel forgets its shapes (`Unit.users`, `Dispatcher.clear`). Code that
is launched without a question (`Loaded.holders`: plans, captures, replayed calls) forbids that change, as stored
addresses of variables do. Code that is only checked (`Specialization.checks`) is compiled beside the rest and not
loaded.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cudakit.errors import ArgumentError, CompileError
from cudakit.jit.bundle.used import in_use, note
from cudakit.jit.cache.stages import bundled_code_of, compiled_of, complete_parameters, declarations_of
from cudakit.jit.launch.code_place import CodePlace, Ready
from cudakit.jit.load.image import Image
from cudakit.jit.signature.signature import Declarations
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, check_target, options_of
from cudakit.jit.specialise.specialise import Specialization, bare
from cudakit.jit.specialise.spellings import TypeBook
from cudakit.places import default_place, place_of
from cudakit.streams import process
from cudakit.types.arguments import Evidence

if TYPE_CHECKING:
    from cudakit.jit.load.variables import Variables


class User(Protocol):
    """A holder of a unit's code: the calls of a kernel."""

    def forget(self) -> None:
        """Drop the code; the next use asks the unit for it again."""


class Unit:
    """The process's one unit of a source, options and arch, with its loaded code and its variables.

    Attributes
    ----------
    users : set of User
        Holders of the unit's code.
    module : callable
        Function that returns the unit's `cudakit.kernel.kernel.Module`, or None if the module no longer exists.
    """

    def __init__(self, origin: Source, options: CompileOptions, arch: str | None) -> None:
        self.source, self.options, self.arch = origin, options, arch
        self.declarations: Declarations = declarations_of(origin, options.cache, options.bundle)
        self.lock: threading.RLock = threading.RLock()
        self.users: weakref.WeakSet[User] = weakref.WeakSet()
        self.module: Callable[[], Any] = lambda: None
        self._images: dict[tuple[str, str], Image] = {}
        self._latest: CodePlace | None = None
        self._ahead: list[Specialization] = []

    @classmethod
    def of(cls, origin: Source, options: CompileOptions | None = None, arch: str | None = None) -> Unit:
        """Return the process's unit of a source, options and arch. A unit that does not exist yet is made."""
        options = options_of(origin.name, options)
        files: tuple[str | None, ...] = ()
        if options.link:  # a linked file may change, as a header may
            from cudakit.jit.compile.linked import linked_files

            files = linked_files(options)
        if arch is not None and not isinstance(arch, str | int):  # other objects may be unhashable
            check_target(origin.name, arch, "cubin")
        key = origin, options, arch, files
        with _units.lock:
            unit: Unit | None = _units.by_key.get(key)
        # A header may have changed since it was loaded.
        if unit is None or not all(image.is_current() for image in tuple(unit._images.values())):
            new_unit = cls(origin, options, arch)
            with _units.lock:
                # Another thread may have made it meanwhile.
                now: Unit | None = _units.by_key.get(key)
                if now is not None and now is not unit:
                    return now
                unit = _units.by_key[key] = new_unit
                if new_unit.declarations.symbols:
                    _units.lasting.add(new_unit)
        return unit

    def _place(self, stream: Any) -> CodePlace:
        """Return the code place of `stream`. Without a stream, return the place of the last launch."""
        if stream is not None:
            return place_of(stream).code(stream)
        return self._latest or default_place().default_code(self.arch)

    def _image(self, place: CodePlace) -> Image:
        """Return the image of the unit at a place, which holds the loaded code."""
        key = place.target, self.arch or place.arch
        with self.lock:
            image = self._images.get(key)
            if image is None:
                image = self._images[key] = place.image()
                image.ahead, image.forget = self._ahead, self._forget
            image.entered[place] = place.entered
            return image

    def _forget(self) -> None:
        for user in self.users:
            user.forget()

    @contextlib.contextmanager
    def loaded(self, stream: Any) -> Iterator[tuple[Variables, Mapping[str, str]]]:
        """Yield the variables of the code that kernels on `stream` use, and a mapping from C++ names to mangled names.

        Without a stream, the place of the last launch is used. Code is loaded if there is none yet.
        """
        place = self._place(stream)
        with place.entered(), self.lock:
            image = self._image(place)
            code = image.codes[-1] if image.codes else image.add(self._bare(place))
            yield image.variables(), code.compiled.lowered

    def check(self, variable: str, shown: str, dtype: np.dtype) -> None:
        """Have the compiler compare a structured dtype with the type of a variable.

        `variable` is the variable's name in C++, `shown` the name of its type in errors.

        Raises
        ------
        ArgumentError
            If size, fields or field types differ.
        """
        place = self._place(None)
        cpp = f"cudakit_layout::element<decltype({variable})>::type"
        from cudakit.types import struct_source  # few programs write structs to variables

        text = TypeBook(self.declarations).checks([struct_source.struct_assertions("variable", cpp, shown, dtype)])
        try:
            self._image(place).compiled(self._bare(place)._replace(checks=text))
        except CompileError as error:
            if in_use(self.options.bundle).never:
                raise CompileError(
                    f"variable {variable} ({shown}): its layout is compared by a compile, which compile='never' "
                    "forbids; write its bytes, as in value.view(np.uint8)"
                ) from error
            raise ArgumentError(f"variable {variable} ({shown}) has another layout than {dtype}: {error}") from error

    def _bare(self, place: CodePlace) -> Specialization:
        """Return the specialization of variables and plain kernels, which all others at a place contain."""
        specialization = bare(self.source, self.declarations, self.arch or place.arch, self.options)
        return place.adapted(specialization)

    def prepare(self, specializations: Iterable[Specialization]) -> None:
        """Compile specializations together; loading the first of them loads the others too.

        Those that a bundle has are left out.
        """
        specializations = [
            specialization for specialization in specializations if bundled_code_of(specialization) is None
        ]
        with self.lock:
            self._ahead += specializations
            for place in {_together(specialization) for specialization in self._ahead}:
                first, *others = (
                    specialization for specialization in self._ahead if _together(specialization) == place
                )
                if first.is_tile:  # each is loaded by itself
                    for specialization in (first, *others):
                        compiled_of(specialization)
                else:
                    compiled_of(first.among(others))

    def instances(self, kernel: str) -> list[Ready]:
        """Return the loaded specializations of the kernel with this name, at all places."""
        with self.lock:
            loaded = [ready for image in self._images.values() for ready in image.ready.values()]
        return [ready for ready in loaded if ready.specialization.kernel == kernel]

    def load(
        self, specialization: Specialization, evidence: tuple[Evidence, ...], book: TypeBook, place: CodePlace
    ) -> Ready:
        """Return a specialization, loaded at a place and ready to launch."""
        image = self._image(place)
        self._latest = place
        with self.lock:
            ready: Ready | None = image.ready.get(specialization)
            if ready is None:
                code, compiled = image.code(specialization)
                parameters = complete_parameters(specialization, compiled, self.declarations, evidence, book)
                ready = image.ready[specialization] = image.load(specialization, code, parameters)
                note(specialization, evidence)
                if image.variables().names():
                    _units.lasting.add(self)
            return ready


def _together(specialization: Specialization) -> tuple[Any, ...]:
    """Return a key. Only specializations with equal keys can be compiled together."""
    return specialization.arch, specialization.target, specialization.is_tile, specialization.edits


class _Units:
    """The units of this process by key, and its lock. A forked child gets new locks."""

    def __init__(self) -> None:
        self.by_key: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self.lasting: set[Unit] = set()
        self.renew()
        process.in_child(self.renew)

    def renew(self) -> None:
        self.lock = threading.Lock()
        for unit in self.by_key.values():
            unit.lock = threading.RLock()


_units = _Units()
