"""Modules of other libraries that are replaced, whole or in part, while a program runs.

`cudakit.adapters.program` decides which. A stand-in is found by import, so it is there again when a program has deleted
it from ``sys.modules``.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ClassVar, TypeAlias

#: Function that replaces a part of a module: ``put(owner, name, value)``.
Put: TypeAlias = Callable[[Any, str, Any], None]
#: Function that replaces parts of a module, by a `Put`.
Replace: TypeAlias = Callable[[Any, Put], None]
#: Function that returns the module for a full name, such as ``cupy.cuda``, or None. A `ModuleNotFoundError` says why.
Find: TypeAlias = Callable[[str], ModuleType | None]
_MISSING = object()
#: Packages that get the real modules where a program gets stand-ins.
_KEEPERS = frozenset({"cudakit", "cuda", "numba", "numba_cuda", "numba_cuda_mlir", "triton", "torch"})


def nothing(*arguments: Any, **keywords: Any) -> None:
    """Do nothing, in place of a function that has nothing to do where all work is done at its call."""


@contextlib.contextmanager
def unchanged(*arguments: Any, **keywords: Any) -> Iterator[None]:
    """Return a context that changes nothing, in place of one with options of a GPU."""
    yield


class StandIns(importlib.abc.MetaPathFinder):
    """A context in which modules of other libraries are replaced, imported before the context or in it.

    Parameters
    ----------
    packages : dict
        Packages that are replaced whole. Each has a function that returns the module for a full name.
    parts : dict
        Modules in which parts are replaced. Each has a function of the module and a `Put`.
    shared : collection of str
        Those of `packages` of which cudakit and other libraries keep the real modules.
    """

    def __init__(
        self,
        packages: Mapping[str, Find],
        parts: Mapping[str, Replace] | None = None,
        shared: Sequence[str] = (),
    ) -> None:
        self._packages, self._parts, self._shared = dict(packages), dict(parts or {}), frozenset(shared)
        self._roots = {name.partition(".")[0] for name in self._packages}
        self._former: list[tuple[Any, str, Any]] = []
        self._former_modules: dict[str, ModuleType] = {}
        self._searched: set[str] = set()
        self._loaded: set[str] = set()

    def __enter__(self) -> StandIns:
        whole = [name for name in sys.modules if (package := self._package(name)) and package not in self._shared]
        self._former_modules = {name: sys.modules.pop(name) for name in whole}
        sys.meta_path.insert(0, self)
        for name, module in [*sys.modules.items()]:
            self._change(name, module)
        return self

    def __exit__(self, *raised: object) -> None:
        with contextlib.suppress(ValueError):  # the program has removed it
            sys.meta_path.remove(self)
        for owner, name, former in reversed(self._former):
            if former is _MISSING:
                with contextlib.suppress(AttributeError):  # the program has deleted it
                    delattr(owner, name)
            else:
                setattr(owner, name, former)
        self._former.clear()
        for name in self._loaded:
            sys.modules.pop(name, None)
        self._loaded.clear()
        sys.modules.update(self._former_modules)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the spec of a stand-in, or of a real module that will be changed, as `MetaPathFinder` does.

        Raises
        ------
        ModuleNotFoundError
            For a name that the stand-in lacks, with the stand-in's own words.
        """
        package = self._package(fullname)
        if fullname in self._searched or (package is None and fullname not in self._parts):
            return None
        real = self._real(fullname) if package is None or package in self._shared else None
        if real is not None and real.loader is not None:
            run = real.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._change(fullname, module)

            real.loader.exec_module = exec_module  # type: ignore[method-assign]
            return real
        if package is None or (package in self._shared and _importer()[0] in _KEEPERS):
            return None
        module = self._stand_in(package, fullname)
        # A package: by its path Python asks this finder for names that it lacks.
        return ModuleSpec(fullname, _Loader(module), is_package=True) if module is not None else None

    def _stand_in(self, package: str, fullname: str) -> ModuleType | None:
        """Return a whole module of a package, which may also be an attribute of its parent."""
        parent, _, name = fullname.rpartition(".")
        try:
            module = self._packages[package](fullname)
            if module is None and parent in sys.modules:
                value = getattr(sys.modules[parent], name)
                module = value if isinstance(value, ModuleType) else None
        except (AttributeError, ModuleNotFoundError) as error:
            if isinstance(error, ModuleNotFoundError) and error.name != fullname:
                raise
            callers = _importer()[1]
            if "_find_and_load" in callers and not str(error).startswith("module '"):
                # After `from module import name` Python would go on without the words of an error with that name.
                raise ModuleNotFoundError(
                    str(error), name=None if "_handle_fromlist" in callers else fullname
                ) from None
            return None
        if module is not None:
            self._loaded.add(fullname)
            if parent in sys.modules:  # importing makes the module an attribute of its parent
                former = ModuleType.__getattribute__(sys.modules[parent], "__dict__").get(name, _MISSING)
                self._former.append((sys.modules[parent], name, former))
        return module

    def _real(self, fullname: str) -> ModuleSpec | None:
        """Return the spec that other finders have."""
        self._searched.add(fullname)
        try:
            return importlib.util.find_spec(fullname)
        finally:
            self._searched.discard(fullname)

    def _package(self, fullname: str) -> str | None:
        """Return the replaced package of a module: the one with the longest name."""
        parts = fullname.split(".")
        if parts[0] not in self._roots:  # as most of the thousands of modules
            return None
        names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
        return next((name for name in names if name in self._packages), None)

    def _change(self, fullname: str, module: ModuleType) -> None:
        """Replace the parts of a real module, or let the program see the stand-in's names in it."""
        if (replace := self._parts.get(fullname)) is not None:
            replace(module, self._put)
        package = self._package(fullname)
        if package is not None and package in self._shared:
            try:
                stand_in = self._packages[package](fullname)
            except ModuleNotFoundError:
                return
            if stand_in is not None and not isinstance(module, _Shared):
                _Shared.stand_ins[module] = stand_in
                self._former.append((module, "__class__", module.__class__))
                module.__class__ = _Shared

    def _put(self, owner: Any, name: str, value: Any) -> None:
        self._former.append((owner, name, getattr(owner, name, _MISSING)))
        setattr(owner, name, value)


def _importer() -> tuple[str, list[str]]:
    """Return the top package of the code that imports or asks for a name, and the functions of importlib above it."""
    frame, functions = sys._getframe(2), list[str]()
    while frame.f_back is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if name != __name__ and not name.startswith("importlib"):
            return name.partition(".")[0], functions
        functions.append(frame.f_code.co_name)
        frame = frame.f_back
    return "", functions


class _Loader(importlib.abc.Loader):
    """A loader of a module that exists already."""

    def __init__(self, module: ModuleType) -> None:
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is not None:
            module.__spec__ = self._spec


class _Shared(ModuleType):
    """A real module in which programs see the names of a stand-in; cudakit and other libraries see the real ones."""

    #: Stand-in of each real module.
    stand_ins: ClassVar[dict[ModuleType, ModuleType]] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__dict__"):
            return super().__getattribute__(name)
        if _importer()[0] in _KEEPERS:
            return super().__getattribute__(name)
        try:
            return getattr(_Shared.stand_ins[self], name)
        except AttributeError:
            value = super().__getattribute__("__dict__").get(name)
            if isinstance(value, ModuleType):
                return value
            raise
