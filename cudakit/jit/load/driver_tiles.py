"""Tile IR that the driver itself makes machine code of, where no assembler is installed."""

from __future__ import annotations

from functools import cache
from typing import Final

from cudakit.jit.cache.cache import cache_at
from cudakit.jit.specialise.specialise import Specialization

#: The version of Tile IR that NVRTC writes; a driver reads those up to its own CUDA version.
_WRITTEN: Final = 13, 5


def loadable(wanted: Specialization) -> Specialization:
    """What a driver is given for a tile kernel: machine code, where there is any; else Tile IR, if it takes that."""
    from cudakit.jit.compile import assemble  # starts programs: most never load it

    if wanted.target != "cubin" or assemble.is_here() or cache_at(wanted.options.cache).imported(wanted) is not None:
        return wanted
    return wanted._replace(target="tileir") if driver_version() >= _WRITTEN else wanted


@cache
def driver_version() -> tuple[int, int]:
    """Which CUDA the driver is for; (0, 0) where it does not say."""
    from cuda.bindings import driver

    status, version = driver.cuDriverGetVersion()
    return (version // 1000, version % 1000 // 10) if int(status) == 0 else (0, 0)
