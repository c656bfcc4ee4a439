"""Mangled names of variables: which are the same in every compile of one text, and which a text may change."""

from __future__ import annotations

import re

#: Names of the constants of libraries.
_LIBRARY = re.compile(
    r"_Z+(?:N|TAX)?(?:10_INTERNAL_)?(?:4cuda|3cub|6thrust|5nvstd|18cooperative_groups|15__cccl_internal)[A-Z0-9]"
    # The packaged templates', and what is generated: namespaces and classes whose names begin so.
    r"|_Z+(?:N|TAX)?\d+cudakit[_A-Z0-9]"
    # Tables of the mathematical functions and of cuRAND, those of virtual functions, and what atomics of CUDA 12 have.
    r"|__cudart_|__cr_|precalc_(?:xorwow|scrambled)_|mrg32k3aM|_ZT[VIS]|_ZN\d+__nv_atomic_"
    # The device runtime's, which kernels that launch kernels are linked with.
    r"|__nv_static_\d+__\w+_cuda_device_runtime_cu_|cudartError|__CNPRT_"
)
#: The part of a mangled name that stands for its file, after the number of its characters.
_INTERNAL = re.compile(r"(\d+)(_INTERNAL_|_GLOBAL__N_)")


def common_name(lowered: str) -> str:
    """A mangled name as it is in every compile of one text: what has internal linkage has a part that varies."""
    name, position = lowered, 0
    while found := _INTERNAL.search(name, position):
        head, tail = name[: found.start()], name[found.end(1) + int(found[1]) :]
        name, position = f"{head}{len(found[2])}{found[2]}{tail}", found.end()
    return name


def is_shared(lowered: str) -> bool:
    """Whether a variable is the same in every compile of one text, and one that the text may change.

    What the compiler made up, such as a text to print, is not; nor are the constants of CUDA's libraries and of the
    packaged templates.
    """
    made_up = "$" in lowered or lowered.startswith("__unnamed")
    return not made_up and not _LIBRARY.match(common_name(lowered))
