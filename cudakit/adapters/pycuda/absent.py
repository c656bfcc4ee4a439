"""Names of PyCUDA that this package lacks: the error that says what to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn


def missing(module: str, uses: Mapping[str, str]) -> Callable[[str], NoReturn]:
    """Return the ``__getattr__`` of a module.

    Parameters
    ----------
    module : str
        Full name of the module.
    uses : dict
        Names of PyCUDA that the module lacks, each with what to use.
    """

    def raise_for(name: str) -> NoReturn:
        use = f": {uses[name]}" if name in uses else ""
        raise AttributeError(f"cudakit's pycuda.{module.rpartition('.')[2]} has no {name!r}{use}", name=name)

    return raise_for
