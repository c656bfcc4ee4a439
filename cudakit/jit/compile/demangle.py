"""What a mangled name tells: types that only the compiler knows."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

from cudakit.errors import TemplateError, shortened
from cudakit.types.cpp import CppType, Named, Opaque, Pointer, Value, is_other_name, parse_type, split_arguments

_INLINE_NAMESPACE = re.compile(r"\b(?:__\d+|_V_\w+|(?:CUB|THRUST)_\d\w+|_CUDA_\w+|__cccl_\w+|detail_\d+)::")


def parameter_types(lowered: str) -> tuple[CppType, ...]:
    """Types of the kernel whose function type is the template argument in the mangled probe name `lowered`.

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
    """Types of parameters in a demangled name, from behind their bracket on."""
    depth, position = 1, 0
    while position < len(text) and depth:
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    inner = _INLINE_NAMESPACE.sub("", text[: position - 1])
    return tuple(_meant(parse_type(part)) for part in split_arguments(inner) if part != "void")


def variable_type(lowered: str) -> tuple[CppType, tuple[int, ...]]:
    """Type of a variable, of an array's elements, and its extents; `lowered` is the mangled probe name of its address.

    Raises
    ------
    TemplateError
        If the name cannot be demangled here.
    """
    text = _INLINE_NAMESPACE.sub("", demangle(lowered).partition("<")[2].rpartition(">")[0]).strip()
    rows = re.fullmatch(r"(.*?) ?\(\*\) ?((?:\[\d+\])+)", text)
    extents = tuple(map(int, re.findall(r"\d+", rows[2]))) if rows else ()
    return _meant(parse_type(rows[1] if rows else text.removesuffix("*").strip())), extents


def variable_name(lowered: str) -> str:
    """The qualified name of a variable, as its source has it, of a mangled one."""
    if not lowered.startswith("_Z"):
        return lowered
    return re.sub(r"_INTERNAL_\w*::|\(anonymous namespace\)::", "", demangle(lowered))


def _meant(cpp: CppType) -> CppType:
    """`cpp`, where CUDA's names for other types, which no mangled name has, are of types of the user's."""
    match cpp:
        case Named(name, None, const) if is_other_name(name):
            return Opaque(f"::{name}", const)
        case Named(name, tuple(arguments), const):
            return Named(name, tuple(part if isinstance(part, Value) else _meant(part) for part in arguments), const)
        case Pointer(target):
            return cpp._replace(target=_meant(target))
    return cpp


def demangle(name: str) -> str:
    """The C++ name for an Itanium-mangled one, by the C++ runtime library that is loaded already."""
    function = _cxa_demangle()
    status = ctypes.c_int()
    address = function(name.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not address:
        raise TemplateError(f"cannot demangle {shortened(name)}")
    try:
        return ctypes.string_at(address).decode()
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(address))


@cache
def _cxa_demangle() -> Any:
    for library in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            function = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        return function
    raise TemplateError(
        "parameter types that only the compiler knows need libstdc++ to be read; write them out in the kernel's head"
    )
