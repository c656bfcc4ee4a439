"""PyCUDA's modules, on cudakit: ``import pycuda.driver`` works after `install`, on a GPU and on the emulator.

Each module of PyCUDA is the module of the same name in this package. Programs need no change, and no PyCUDA.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from cudakit.adapters.stand_ins import Find, StandIns
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
#: Modules whose import makes a context.
_CONTEXT_MAKERS = ("autoinit", "autoprimaryctx")
#: Modules of PyCUDA that are not here, and what to use.
ABSENT = {
    "gl": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "gl.autoinit": "cuda.core.GraphicsResource shares buffers of OpenGL",
    "sparse": "cupyx.scipy.sparse has sparse matrices on a GPU",
    "debug": "cudakit debug program.py steps through kernels",
    "compyte": "pycuda.gpuarray and pycuda.elementwise have what programs use of it",
}


def _find(name: str) -> ModuleType:
    """Return the module of this package for PyCUDA's name of it, such as ``pycuda.driver``."""
    part = name.removeprefix("pycuda").removeprefix(".")
    if not part:
        for maker in _CONTEXT_MAKERS:  # run again for each program
            sys.modules.pop(f"{__name__}.{maker}", None)
            globals().pop(maker, None)
    elif part not in MODULES:
        raise _absent(part, name)
    return importlib.import_module(f"{__name__}.{part}" if part else __name__)


def _find_missing(name: str) -> None:
    """Raise for the own name of a module of PyCUDA that is not here: ``from pycuda import gl`` asks for it."""
    if (part := name.removeprefix(f"{__name__}.")) in ABSENT:
        raise _absent(part, name)


def _absent(part: str, name: str) -> ModuleNotFoundError:
    use = ABSENT.get(part, f"the modules are {', '.join(MODULES)}")
    return ModuleNotFoundError(f"pycuda.{part} is not in cudakit's PyCUDA: {use}", name=name)


#: Stand-ins by package. Programs meet the modules' own names where they import a name that is missing.
PACKAGES: dict[str, Find] = {"pycuda": _find, __name__: _find_missing}
_stand_ins = StandIns(PACKAGES, shared=[__name__])


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
    if _stand_ins not in sys.meta_path:
        _stand_ins.__enter__()


def uninstall() -> None:
    """Undo `install`; the names of modules that are imported already stay with those who have them."""
    if _stand_ins in sys.meta_path:
        _stand_ins.__exit__()
