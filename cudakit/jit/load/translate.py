"""Machine code of PTX, by the driver: for devices that no machine code of a bundle is for."""

from __future__ import annotations

import ctypes
import hashlib
import re
from typing import Any, Final

from cudakit.errors import LaunchError
from cudakit.jit.cache.cache import cache_at
from cudakit.jit.compile.compiled import Compiled
from cudakit.jit.specialise.specialise import Specialization

_BEGIN: Final = re.compile(rb"^\.version", re.MULTILINE)


def machine_code(specialization: Specialization, compiled: Compiled, driver_version: tuple[int, int]) -> Compiled:
    """Return the machine code of PTX for the current device. The driver translates it once for each cache.

    Raises
    ------
    LaunchError
        If the driver cannot translate it, such as an older driver than the compiler that made the PTX.
    """
    text = f"{driver_version} {specialization.arch} ".encode() + compiled.code
    digest = hashlib.sha256(text).hexdigest()

    def translate() -> bytes:
        return _translated(specialization.name_expression, compiled.code, driver_version)

    code = cache_at(specialization.options.cache).blob("translated", digest, translate)
    return compiled._replace(code=code, target="cubin")


def _translated(name: str, ptx: bytes, driver_version: tuple[int, int]) -> bytes:
    from cuda.bindings import driver

    def check(result: tuple[Any, ...]) -> Any:
        status, *values = result
        if int(status) != 0:
            raise LaunchError(
                f"{name}: the driver, for CUDA {'.'.join(map(str, driver_version))}, does not translate the PTX of "
                f"the bundle: {status.name}. If the bundle's compiler is newer than the driver, update the driver or "
                "build the bundle with an older NVRTC; machine code for this arch in the bundle's SPEC needs no "
                "translation"
            )
        return values[0] if values else None

    state = check(driver.cuLinkCreate(0, [], []))
    try:
        form = driver.CUjitInputType.CU_JIT_INPUT_PTX
        # Linked kernels are several texts, which the driver links.
        for text in _BEGIN.split(ptx.rstrip(b"\0"))[1:]:
            data = b".version" + text + b"\0"
            check(driver.cuLinkAddData(state, form, data, len(data), name.encode(), 0, [], []))
        status, address, size = driver.cuLinkComplete(state)
        check((status,))
        return ctypes.string_at(int(address), int(size))
    finally:
        driver.cuLinkDestroy(state)
