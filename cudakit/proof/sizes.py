"""Sizes of what pointers point to that only the compiler knows: a user's structs."""

from __future__ import annotations

import numpy as np

from cudakit.emulator.ptx.parser import parse
from cudakit.errors import CompileError
from cudakit.jit.cache.stages import compiled_of
from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.jit.specialise.specialise import GENERATED, Specialization

#: A type that is only declared has the size 0, and the length of its array is in bytes.
_SIZE = f"""#line 1 "{GENERATED}"
template <typename T_, typename = void> struct cudakit_size {{ enum {{ bytes }}; }};
template <typename T_> struct cudakit_size<T_*, decltype((void)sizeof(T_))> {{ enum {{ bytes = sizeof(T_) }}; }};
"""


def sized(specialization: Specialization, parameters: tuple[BoundParameter, ...]) -> tuple[BoundParameter, ...]:
    """The parameters; pointers to a struct as pointers to elements of so many bytes.

    Parameters
    ----------
    specialization : Specialization
        The kernel, as PTX.
    parameters : tuple of BoundParameter
        As the compiler tells them.
    """
    unknown = [at for at, each in enumerate(parameters) if each.kind == "unknown" and each.cpp.endswith("*")]
    if not unknown or specialization.source.code is not None:
        return parameters
    variables = "".join(
        f"__device__ char cudakit_size_{at}[1 + cudakit_size<{parameters[at].cpp}>::bytes];\n" for at in unknown
    )
    asking = specialization._replace(postlude=(*specialization.postlude, f'{_SIZE}extern "C" {{\n{variables}}}\n'))
    try:
        found = parse(compiled_of(asking).code.decode()).variables
    except CompileError:  # a type that cannot be named there
        return parameters
    sizes = {at: found[f"cudakit_size_{at}"].size - 1 for at in unknown}
    return tuple(
        each._replace(kind="pointer", dtype=np.dtype("u1"), count=max(1, sizes[at])) if at in sizes else each
        for at, each in enumerate(parameters)
    )
