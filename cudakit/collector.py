"""The garbage collector while modules load."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

#: Whether frozen objects were seen: counting five million took 0.4 s at each load of a module.
_program_freezes = False


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Keep the garbage collector off in a block that loads modules, which are no garbage.

    A full run takes 14 ms with cuda.core loaded. At the end all objects go to the oldest generation, or the next run
    would search the new modules: 20 ms after cuda.core. In a program that once froze objects they stay as they are.
    """
    global _program_freezes
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        _program_freezes = _program_freezes or gc.get_freeze_count() > 0
        if not _program_freezes:
            gc.freeze()
            gc.unfreeze()
        gc.enable()
