"""PyCUDA's modules, on cudakit: ``import pycuda.driver`` works after `install`, on a GPU and on the emulator.

Each module of PyCUDA is the module of the same name in this package. Programs need no change, and no PyCUDA.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from cudakit.errors import LaunchError

__all__ = ["install", "uninstall"]

#: Release of PyCUDA whose names these modules have.
VERSION = (2026, 1)
VERSION_STATUS = ""
VERSION_TEXT = "2026.1"

#: Modules of PyCUDA that are here.
MODULES = (
    "autoinit", "autoprimaryctx", "characterize", "compiler", "cumath", "curandom", "driver", "elementwise", "gpuarray",
    "reduction", "scan", "tools",
)  # fmt: skip
#: Modules of PyCUDA that are not here, and what to use.
_ABSENT = {
    "gl": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "gl.autoinit": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "sparse": "cupyx.scipy.sparse has sparse matrices on a GPU",
    "debug": "cudakit debug program.py steps through kernels",
    "compyte": "pycuda.gpuarray and pycuda.elementwise have what programs use of it",
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that gives this package's modules for PyCUDA's names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a module of PyCUDA, or None for other modules."""
        root, _, name = fullname.partition(".")
        if root != "pycuda":
            return None
        if name and name not in MODULES:
            use = _ABSENT.get(name, f"the modules are {', '.join(MODULES)}")
            raise ModuleNotFoundError(f"{fullname} is not in cudakit's PyCUDA: {use}", name=fullname)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=not name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the module of this package that has the spec's name."""
        module = importlib.import_module(f"{__name__}{spec.name.removeprefix('pycuda')}")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module, which has run, its own spec back."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


_finder = _Finder()


def install() -> None:
    """Let ``import pycuda`` and its modules give those of this package.

    Raises
    ------
    LaunchError
        In a process that has imported another PyCUDA.
    """
    loaded = sys.modules.get("pycuda")
    if loaded is not None and loaded is not sys.modules[__name__]:
        raise LaunchError("this process has imported PyCUDA already; install cudakit's before the first import of it")
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def uninstall() -> None:
    """Undo `install`; the names of modules that are imported already stay with those who have them."""
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pycuda"]:
        if sys.modules[name].__name__.startswith(__name__):
            del sys.modules[name]
