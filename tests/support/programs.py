"""Calls kernels of whole programs on host arrays, in either of the two places."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.places import to_host

import cudakit as ck


def run(stream: Any, kernel: ck.Kernel, config: ck.Config, *arguments: Any) -> None:
    """Call a kernel with host arrays, which hold afterwards what the kernel has written."""
    with ck.using(stream) as xp:
        placed = [xp.asarray(given) if _is_array(given) else given for given in arguments]
        kernel(stream, config, *placed)
        for given, there in zip(arguments, placed, strict=True):
            if _is_array(given) and given is not there:
                given[...] = to_host(there)


def _is_array(given: Any) -> bool:
    return isinstance(given, np.ndarray) and given.ndim > 0
