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
template <typename T_, typename = void> struct cudakit_size {{ enum {{ bytes, alignment }}; }};
template <typename T_> struct cudakit_size<T_*, decltype((void)sizeof(T_))> {{
    enum {{ bytes = sizeof(T_), alignment = alignof(T_) }};
}};
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
        f"__device__ char cudakit_{name}_{at}[1 + cudakit_size<{parameters[at].cpp}>::{name}];\n"
        for at in unknown
        for name in ("bytes", "alignment")
    )
    asking = specialization._replace(postlude=(*specialization.postlude, f'{_SIZE}extern "C" {{\n{variables}}}\n'))
    try:
        found = parse(compiled_of(asking).code.decode()).variables
    except CompileError:  # a type that cannot be named there
        return parameters
    result = list(parameters)
    for at in unknown:
        size, alignment = (max(1, found[f"cudakit_{name}_{at}"].size - 1) for name in ("bytes", "alignment"))
        made = parameters[at]._replace(kind="pointer", dtype=np.dtype("u1"), count=size, alignment=alignment)
        result[at] = made
    return tuple(result)
