"""Stand-ins for cuda.core's modules in programs that run without a driver, and the module of its old names."""

from __future__ import annotations

import importlib
import re
from functools import cache, wraps
from types import ModuleType
from typing import Any

#: Old names in ``cuda.core.experimental`` whose module is another one today.
_MOVED = {
    "Graph": "graph", "GraphBuilder": "graph", "GraphCompleteOptions": "graph", "GraphDebugPrintOptions": "graph",
    "StridedMemoryView": "utils", "args_viewable_as_strided_memory": "utils",
}  # fmt: skip


_MODULES = ("cuda.core", "cuda.core.graph", "cuda.core.system", "cuda.core.texture", "cuda.core.utils")
#: Modules that some programs import names of `_MODULES` from.
_PRIVATE = (
    "_context", "_device", "_event", "_launch_config", "_launcher", "_linker", "_memory", "_memoryview", "_module",
    "_program", "_stream", "_tensor_map", "graph._graph_builder",
)  # fmt: skip


#: Modules of ``cuda.bindings`` whose functions call the driver.
BINDINGS = ("cuda.bindings.driver", "cuda.bindings.runtime", "cuda.bindings.nvrtc")
_CALL = re.compile(r"cu(?:da)?[A-Z]|nvrtcGetCUBIN$")


@cache
def find(name: str) -> ModuleType | None:
    """Return the module that a program sees as `name`, such as ``cuda.core.utils``; None for the real one.

    cudakit and other libraries always see the real modules: see `cudakit.adapters.stand_ins.StandIns`.
    """
    return _StandIn(name) if name in _MODULES or name.removeprefix("cuda.core.") in _PRIVATE else None


@cache
def find_binding(name: str) -> ModuleType | None:
    """Return the module that a program sees as `name`, such as ``cuda.bindings.driver``: its calls are stand-ins."""
    if name not in BINDINGS:
        return None
    real = importlib.import_module(name)
    module = ModuleType(name, real.__doc__)
    module.__dict__.update(vars(real))
    for key, value in vars(real).items():
        if _CALL.match(key) and callable(value) and not isinstance(value, type):
            setattr(module, key, _call(name, value))
    return module


def _call(module: str, real: Any) -> Any:
    """Return the stand-in for a function of ``cuda.bindings``."""

    @wraps(real)
    def call(*arguments: Any, **keywords: Any) -> Any:
        from cudakit.adapters.cuda_core import bindings  # late: it imports cuda.core

        return bindings.call(module, real, arguments, keywords)

    return call


class _StandIn(ModuleType):
    """A module of cuda.core's names, with stand-ins. It is filled at its first use, after cuda.core is imported."""

    def __getattribute__(self, name: str) -> Any:
        own = super().__getattribute__("__dict__")
        if not own.get("_is_filled") and (not name.startswith("__") or name in ("__all__", "__dict__")):
            from cudakit.adapters.cuda_core.stand_ins import names  # late: it imports cuda.core

            module = str(own["__name__"])
            own["_is_filled"] = True
            real = importlib.import_module(module).__dict__
            stand_ins = names().get(module) or {
                key: value
                for owner, table in names().items()
                if owner != "cuda.core.system"
                for key, value in table.items()
                if key in real
            }
            own.update({**real, **stand_ins})
            for child in _MODULES if module == "cuda.core" else ():
                if child != module:
                    own[child.removeprefix("cuda.core.")] = find(child)
        return super().__getattribute__(name)


def old_names(core: ModuleType | None) -> ModuleType:
    """Return the module ``cuda.core.experimental`` with the names of `core`. Default: those of the stand-in."""
    return _OldNames(core)


class _OldNames(ModuleType):
    """The module ``cuda.core.experimental``, of which some names are in other modules today."""

    def __init__(self, core: ModuleType | None) -> None:
        super().__init__("cuda.core.experimental", "Names of cuda.core by which old programs import them.")
        self.__dict__.update(_is_emulated=core is None, _core=core or find("cuda.core"), __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "system" and self._is_emulated:
            from cudakit.adapters.cuda_core.systems import System

            return System()
        owner = getattr(self._core, _MOVED[name]) if name in _MOVED else self._core
        if not hasattr(owner, name):
            raise AttributeError(f"cuda.core has no {name}, as cuda.core.experimental had", name=name, obj=self)
        return getattr(owner, name)
