"""Parts of modules that are others for a while, whether a module is imported before or meanwhile."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeAlias

#: Puts another value in the place of an object's attribute.
Put: TypeAlias = Callable[[Any, str, Any], None]


class Replaced(importlib.abc.MetaPathFinder):
    """A context in which parts of a module are others.

    Parameters
    ----------
    name : str
        Of the module.
    replace : callable
        Is given the module, and what it puts others with.
    """

    def __init__(self, name: str, replace: Callable[[Any, Put], None]) -> None:
        self._name, self._replace = name, replace
        self._former: list[tuple[Any, str, Any]] = []
        self._is_searching = False

    def __enter__(self) -> Replaced:
        if self._name in sys.modules:
            self._replace(sys.modules[self._name], self._put)
        else:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *raised: object) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for owner, name, former in reversed(self._former):
            setattr(owner, name, former)
        self._former.clear()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`: what the others find, with parts replaced when it has run."""
        if fullname != self._name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        loader = spec.loader if spec is not None else None
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                self._replace(module, self._put)

            loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def _put(self, owner: Any, name: str, made: Any) -> None:
        self._former.append((owner, name, getattr(owner, name, None)))
        setattr(owner, name, made)
