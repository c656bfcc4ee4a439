"""What a mangled name tells: types that only the compiler knows, and which names are one in several compiles."""

from __future__ import annotations

import ctypes
import re
from functools import cache
from typing import Any

from cudakit.errors import TemplateError
from cudakit.types.cpp import CppType, Named, Opaque, Pointer, Value, is_other_name
from cudakit.types.text import parse_type, split_arguments

_INLINE_NAMESPACE = re.compile(r"\b(?:__\d+|_V_\w+|(?:CUB|THRUST)_\d\w+|_CUDA_\w+|__cccl_\w+|detail_\d+)::")

#: The part of a mangled name that stands for its file, after the number of its characters.
_LIBRARY = re.compile(
    r"_Z+(?:N|TAX)?(?:10_INTERNAL_)?(?:4cuda|3cub|6thrust|5nvstd|18cooperative_groups)[A-Z0-9]"
    # The device runtime's, which kernels that launch kernels are linked with.
    r"|__nv_static_\d+__\w+_cuda_device_runtime_cu_|cudartError|__CNPRT_"
)
_INTERNAL = re.compile(r"(\d+)(_INTERNAL_|_GLOBAL__N_)")


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
        raise TemplateError(f"the compiler's name {text!r} holds no function type; give a simpler kernel head")
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


def common_name(lowered: str) -> str:
    """A mangled name as it is in every compile of one text: what has internal linkage has a part that varies."""
    name, position = lowered, 0
    while found := _INTERNAL.search(name, position):
        head, tail = name[: found.start()], name[found.end(1) + int(found[1]) :]
        name, position = f"{head}{len(found[2])}{found[2]}{tail}", found.end()
    return name


def is_shared(lowered: str) -> bool:
    """Whether a variable is the same in every compile of one text, and one that the text may change.

    What the compiler made up, such as a text to print, is not; nor are the constants of CUDA's own libraries.
    """
    made_up = "$" in lowered or lowered.startswith("__unnamed")
    return not made_up and not _LIBRARY.match(common_name(lowered))


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
        raise TemplateError(f"cannot demangle {name!r}")
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
