"""Values that a traced Python function reads from outside: globals and variables of enclosing functions."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Hashable, Mapping
from functools import cache
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from cudakit.arrays.replay import Function

#: How deep values in values are looked at, how many of them in all, and how many bytes of an array.
_DEEPEST, _MOST, _MOST_BYTES = 4, 256, 4096
#: Where modules are that are not the user's.
_INSTALLED: Final = (
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
    *(path for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")),
)


class Outside:
    """The values that a function reads from outside. A call returns a number, another one when any of them has changed.

    Modules of the standard library and of installed packages count as constant. What tracing itself changes, such as a
    list that the function appends to, does not count.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._numbers: dict[Any, int] = {}
        self._own: set[Any] = set()
        #: Objects that are known by their address.
        self._kept_alive: dict[int, Any] = {}

    @property
    def is_empty(self) -> bool:
        """True if the function reads no value that can change."""
        return not self.values()

    def __call__(self) -> int:
        values = self.values()
        key = tuple(item for item in values.items() if item[0] not in self._own)
        return self._numbers.setdefault(key, len(self._numbers))

    def values(self) -> dict[Any, Hashable]:
        """Return the contents to compare, by function and name."""
        contents: dict[Any, Hashable] = {}
        self._look(self._function, contents, set())
        return contents

    def traced(self, before: Mapping[Any, Hashable]) -> None:
        """Note that the function was just traced: values that differ from `before` are ignored from now on.

        `before` is the result of `values` before the tracing.
        """
        self._own.update(name for name, value in self.values().items() if before.get(name) != value)

    def _look(self, function: Any, values: dict[Any, Hashable], visited: set[int]) -> None:
        if id(function) in visited:
            return
        visited.add(id(function))
        if isinstance(function, Function):
            self._look(getattr(function, "function", None), values, visited)
        elif isinstance(function, functools.partial):
            self._look(function.func, values, visited)
            self._note(values, visited, function, "", (function.args, function.keywords))
        elif isinstance(function, MethodType):
            self._look(function.__func__, values, visited)
            self._note(values, visited, function.__func__, "self", function.__self__)
        elif isinstance(function, FunctionType):
            if _is_installed(function.__globals__.get("__file__")):
                return
            names = _names(function.__code__)
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            for name, cell in cells.items():
                try:
                    self._note(values, visited, function, name, cell.cell_contents)
                except ValueError:  # it has no value yet
                    continue
            for name in names & function.__globals__.keys():
                value = function.__globals__[name]
                if isinstance(value, ModuleType):
                    # What has no file is part of Python.
                    path = getattr(value, "__file__", None)
                    if path is not None and not _is_installed(path):
                        inside = {
                            name_inside: vars(value)[name_inside] for name_inside in sorted(names & vars(value).keys())
                        }
                        for name_inside, part in inside.items():
                            self._note(values, visited, function, f"{name}.{name_inside}", part)
                else:
                    self._note(values, visited, function, name, value)
        elif callable(function) and isinstance(call := type(function).__call__, FunctionType):
            self._look(call, values, visited)
            self._note(values, visited, call, "self", function)

    def _note(self, values: dict[Any, Hashable], visited: set[int], function: Any, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            return
        if callable(value) and not isinstance(value, type):
            self._look(value, values, visited)
        key = id(getattr(function, "__code__", function)), name
        values[key] = self._content(value, _DEEPEST, [_MOST])

    def _content(self, value: Any, depth: int, left: list[int]) -> Hashable:
        """Return a hashable form of a value, which is equal for equal contents.

        Parts of lists and objects are compared up to `depth` levels. ``left[0]`` is the number of parts that may still
        be read. Beyond these limits an object is compared by its address.
        """
        type_name = type(value).__name__
        if isinstance(value, float | complex | np.generic | np.dtype):
            return type_name, repr(value)  # zeros of both signs apart, and NaNs alike
        if isinstance(value, int | str | bytes | None):
            return type_name, value
        if isinstance(value, np.ndarray) and value.nbytes <= _MOST_BYTES and not value.dtype.hasobject:
            return type_name, value.dtype.str, value.shape, value.tobytes()
        parts = _parts(value)
        if parts is None or depth == 0 or len(parts) > left[0]:
            self._kept_alive[id(value)] = value  # so that no other has its address
            return type_name, id(value)
        left[0] -= len(parts)
        return type_name, tuple([self._content(part, depth - 1, left) for part in parts])


def _parts(value: Any) -> list[Any] | None:
    """Return the parts of a list, a dictionary, a class or a user's object; None for other objects."""
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    owner = value if isinstance(value, type) else type(value)
    module = sys.modules.get(owner.__module__)
    is_own = owner.__module__ != "builtins" and not _is_installed(getattr(module, "__file__", None))
    if not is_own or isinstance(value, functools.partial) or not hasattr(value, "__dict__"):
        return None
    items = {name: part for name, part in vars(value).items() if not (name.startswith("__") and name.endswith("__"))}
    return [owner.__qualname__, *items.keys(), *items.values()]


@cache
def _names(code: CodeType) -> frozenset[str]:
    """Return the names in a function, and in nested functions, that may be globals and attributes of modules."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return frozenset(code.co_names).union(*inner)


@cache
def _is_installed(path: str | None) -> bool:
    return path is not None and path.startswith(_INSTALLED)
