"""Which host memory devices reach by its address: what the driver has page-locked."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.types.scalars import is_masked

#: How many arrays are registered with the driver: memory that NumPy has allocated may be page-locked only then.
_registered = [0]


def count_registered(change: int) -> None:
    """Note that an array has been registered with the driver, or is no more."""
    _registered[0] += change


def is_page_locked(host: np.ndarray) -> bool:
    """Whether the driver knows an array's memory as page-locked, so that devices reach it by themselves."""
    if not host.nbytes:
        return True
    # An array that has its memory from NumPy is not; to ask the driver takes some microseconds.
    owner: Any = host
    if is_masked(host):
        return False
    while isinstance(owner, np.ndarray):
        if owner.flags.owndata and not _registered[0]:
            return False
        owner = owner.base
    if getattr(owner, "is_page_locked", False):
        return True
    from cuda.bindings import driver

    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    try:
        status, found = driver.cuPointerGetAttribute(kind, host.__array_interface__["data"][0])
    except RuntimeError:  # there is no driver
        return False
    return int(status) == 0 and int(found) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)
