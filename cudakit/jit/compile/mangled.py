"""Mangled names: the types in them, which only the compiler knows, and which variables are the same in each compile."""

from __future__ import annotations

import ctypes
import re

from cudakit import system
from cudakit.errors import TemplateError, shortened
from cudakit.types.cpp import (
    CppType,
    Named,
    Opaque,
    Pointer,
    Value,
    closing,
    is_other_name,
    parse_type,
    split_arguments,
)

#: Names of the constants of libraries.
_LIBRARY = (
    r"_Z+(?:N|TAX)?(?:10_INTERNAL_)?(?:4cuda|3cub|6thrust|5nvstd|18cooperative_groups|15__cccl_internal)[A-Z0-9]"
    # Names of packaged templates and generated code: their namespaces and classes begin like this.
    r"|_Z+(?:N|TAX)?\d+cudakit[_A-Z0-9]"
    # Tables of mathematical functions and cuRAND, virtual tables, and variables of CUDA 12's atomics.
    r"|__cudart_|__cr_|precalc_(?:xorwow|scrambled)_|mrg32k3aM|_ZT[VIS]|_ZN\d+__nv_atomic_"
    # Names of the device runtime, which is linked to kernels that launch kernels.
    r"|__nv_static_\d+__\w+_cuda_device_runtime_cu_|cudartError|__CNPRT_"
)


#: The part of a mangled name for its file, after its length.
_INTERNAL = r"(\d+)(_INTERNAL_|_GLOBAL__N_)"


def common_name(lowered: str) -> str:
    """Return a mangled name without the prefix of names with internal linkage, which varies between compiles.

    Names without it are returned unchanged.
    """
    name, position = lowered, 0
    while match := re.compile(_INTERNAL).search(name, position):
        head, tail = name[: match.start()], name[match.end(1) + int(match[1]) :]
        name, position = f"{head}{len(match[2])}{match[2]}{tail}", match.end()
    return name


def is_shared(lowered: str) -> bool:
    """Return whether a variable is the same in every compile of a source, and belongs to the user's source.

    False for data that the compiler makes, such as a text to print. False for constants of CUDA's libraries and of the
    packaged templates.
    """
    made_up = "$" in lowered or lowered.startswith("__unnamed")
    return not made_up and not re.match(_LIBRARY, common_name(lowered))


_INLINE_NAMESPACE = r"\b(?:__\d+|_V_\w+|(?:CUB|THRUST)_\d\w+|_CUDA_\w+|__cccl_\w+|detail_\d+)::"


def parameter_types(lowered: str) -> tuple[CppType, ...]:
    """Return the types of a kernel's parameters, from the mangled name of the probe for its function type.

    Raises
    ------
    TemplateError
        If the name cannot be demangled here.
    """
    text = demangle(lowered)
    start = text.find("(*)(")
    if start < 0:
        raise TemplateError(f"the compiler's name {shortened(text)} holds no function type; give a simpler kernel head")
    return types_in(text[start + 4 :])


def types_in(text: str) -> tuple[CppType, ...]:
    """Return the parameter types in a demangled name.

    `text` is the name from after the opening bracket of its parameters.
    """
    inner = re.sub(_INLINE_NAMESPACE, "", text[: closing(f"({text}", 0) - 1])
    return tuple(_meant(parse_type(part)) for part in split_arguments(inner) if part != "void")


def variable_type(lowered: str) -> tuple[CppType, tuple[int, ...]]:
    """Return the type of a variable, or of an array's elements, and its extents; `lowered` is its mangled probe name.

    Raises
    ------
    TemplateError
        If the name cannot be demangled here.
    """
    text = re.sub(_INLINE_NAMESPACE, "", demangle(lowered).partition("<")[2].rpartition(">")[0]).strip()
    rows = re.fullmatch(r"(.*?) ?\(\*\) ?((?:\[\d+\])+)", text)
    extents = tuple(map(int, re.findall(r"\d+", rows[2]))) if rows else ()
    return _meant(parse_type(rows[1] if rows else text.removesuffix("*").strip())), extents


def variable_name(lowered: str) -> str:
    """Return the qualified name of a variable in its source, from its mangled name."""
    if not lowered.startswith("_Z"):
        return lowered
    return re.sub(r"_INTERNAL_\w*::|\(anonymous namespace\)::", "", demangle(lowered))


def _meant(cpp: CppType) -> CppType:
    """Return `cpp` with types whose name is a typedef in CUDA, such as ``half2``, replaced by opaque types.

    No mangled name has a typedef's name, so a type of that name is the user's own.
    """
    match cpp:
        case Named(name, None, const) if is_other_name(name):
            return Opaque(f"::{name}", const)
        case Named(name, tuple(arguments), const):
            return Named(name, tuple(part if isinstance(part, Value) else _meant(part) for part in arguments), const)
        case Pointer(target):
            return cpp._replace(target=_meant(target))
    return cpp


def demangle(name: str) -> str:
    """Demangle an Itanium C++ name, by the C++ runtime library that is loaded."""
    function = system.cxa_demangle()
    if function is None:
        raise TemplateError(
            "parameter types that only the compiler knows need libstdc++ to be read; "
            "write them out in the kernel's head"
        )
    status = ctypes.c_int()
    address = function(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not address:
        raise TemplateError(f"cannot demangle {shortened(name)}")
    try:
        return ctypes.string_at(address).decode()
    finally:
        system.c_library().free(ctypes.c_void_p(address))


def bare_name(demangled: str) -> str:
    """Return the name in a function's demangled name, without its parameter types and its return type."""
    depth, start = 0, 0
    for place, letter in enumerate(demangled):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and not depth:
            return demangled[start:place]
        if letter == " " and not depth:
            start = place + 1
    return demangled


def readable_name(name: str) -> str:
    """Return a function's name without mangling; the mangled name where it cannot be read."""
    try:
        return bare_name(demangle(name)) if name.startswith("_Z") else name
    except TemplateError:
        return name
