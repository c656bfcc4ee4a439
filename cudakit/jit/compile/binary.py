"""Kernels in compiled files: their signatures, by their names and sizes or from the caller, and their code.

`disassemble` disassembles a cubin by the NVIDIA tool that is installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cudakit.errors import LaunchError, TemplateError, shortened
from cudakit.jit.compile import elf, mangled
from cudakit.jit.compile.compiled import TYPES_PROBE, Compiled
from cudakit.jit.compile.mangled import demangle, types_in
from cudakit.jit.signature.reader import parse
from cudakit.jit.signature.signature import Declarations, Parameter, Signature, Symbol
from cudakit.jit.source.source import Source, kind_of
from cudakit.jit.specialise.options import CompileOptions
from cudakit.jit.specialise.specialise import Specialization
from cudakit.types.cpp import (
    CppType,
    Named,
    Opaque,
    Pointer,
    Reference,
    parse_type,
    scalar_dtype,
    vector,
    without_const,
)

_TOOLS = (("nvdisasm", ("-c",)), ("cuobjdump", ("--dump-sass",)))


def disassemble(cubin: bytes) -> str:
    """Return the SASS of `cubin`.

    Raises
    ------
    LaunchError
        If neither nvdisasm nor cuobjdump is found, or it fails.
    """
    from cuda import pathfinder

    for tool, flags in _TOOLS:
        path = shutil.which(tool)
        if path is None and hasattr(pathfinder, "find_nvidia_binary_utility"):
            path = pathfinder.find_nvidia_binary_utility(tool)
        if path is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "kernel.cubin"
            file.write_bytes(cubin)
            process = subprocess.run([path, *flags, str(file)], capture_output=True, text=True, check=False)
        if process.returncode != 0:
            raise LaunchError(f"{tool} failed: {process.stderr.strip()}")
        return process.stdout
    raise LaunchError(
        "no disassembler found; pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit's bin on the PATH"
    )


_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.[a-z]+(\d+)\s+(\.ptr\b)?[^,\[]*(?:\[(\d+)\])?")
_VARIABLE = re.compile(
    r"^\s*(?:\.visible\s+)?\.(global|const)\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(\w+)(?:\[(\d+)\])?\s*[;=]", re.MULTILINE
)
_TYPES = {
    "s32": "int", "u32": "unsigned int", "s64": "long long", "u64": "unsigned long long", "f32": "float",
    "f64": "double", "s16": "short", "u16": "unsigned short", "s8": "signed char",
}  # fmt: skip
_TARGET = re.compile(r"^\s*\.target\s+sm_(\d+)", re.MULTILINE)
#: The type of a number among the template arguments of a demangled name.
_CAST = re.compile(r"\((?:unsigned |signed )?(?:bool|char|short|int|long|long long)\)")
_HEAD = re.compile(
    r'(?:extern\s+"C"\s+)?(?:__global__\s+)?(?:void\s+)?(?P<name>[\w:$]+(?:<.*>)?)\s*\((?P<types>.*)\)\s*;?\s*'
)
_WORDS = {"cubin": "machine code", "ltoir": "LTO IR", "fatbin": "a fatbin", "ptx": "PTX"}


class Entry(NamedTuple):
    """A kernel in compiled code: its mangled name (`symbol`), C++ name, and the types or sizes of its parameters."""

    symbol: str
    name: str
    types: tuple[CppType, ...]


def declarations(origin: Source) -> Declarations:
    """Return the kernels of compiled code, none if it does not list them, and the variables that PTX shows.

    Raises
    ------
    TemplateError
        If the code is damaged, or has no kernel.
    """
    entries = _entries(origin)
    if not entries and _is_readable(origin):
        raise TemplateError(f"{origin.name} has no kernel; what it has can be linked to one: CompileOptions(link=[…])")
    return Declarations(
        tuple(Signature(entry.name, (), _parameters(entry), 1) for entry in entries), _variables(origin)
    )


def signature(origin: Source) -> Signature:
    """Return the signature that the caller passed with the code.

    Raises
    ------
    TemplateError
        If the text is no signature, or fits no kernel of the code.
    """
    match = _HEAD.fullmatch(origin.head or "")
    (kernel,) = (match and parse(f"__global__ void kernel({match['types']}) {{}}").kernels) or (None,)
    if match is None or kernel is None or kernel.parameters is None:
        raise TemplateError(
            f"signature {shortened(origin.head)} is not the signature of a kernel, as in 'void scale(float* x, int n)'"
        )
    name = symbol = _plain(match["name"])
    if _is_readable(origin):
        entries = [entry for entry in _entries(origin) if name in (entry.name, entry.symbol)]
        if len(entries) != 1:
            names = ", ".join(f"{entry.name} ({entry.symbol})" for entry in _entries(origin))
            raise TemplateError(f"{origin.name} has {len(entries) or 'no'} kernels {name}; it has {names}")
        symbol, name, _ = entries[0]
    _check_head(origin, kernel.parameters, symbol)
    return Signature(name, (), kernel.parameters, 1)


def _check_head(origin: Source, parameters: tuple[Parameter, ...], symbol: str) -> None:
    """Raise TemplateError if the caller's signature contradicts the parameter types in the mangled name `symbol`.

    `parameters` are the signature's. Names that are not mangled (``extern "C"``) are not checked.
    """
    if not symbol.startswith("_Z"):
        return
    _, bracket, behind = _demangled(symbol).partition("(")
    types = types_in(behind)
    if bracket and (
        len(types) != len(parameters) or not all(map(_fits, (parameter.type for parameter in parameters), types))
    ):
        raise TemplateError(
            f"signature {shortened(origin.head)} is not the kernel's own in {origin.name}: its name {symbol} says "
            f"({', '.join(map(str, types))}); leave signature out, and name the kernel: from_file(path, "
            f"{shortened(symbol)})"
        )


def _fits(head: CppType, own: CppType) -> bool:
    """Return whether `head`, a type in a signature, can be `own`, the type in a mangled name.

    A type with an unknown name fits any type.
    """
    head, own = without_const(head), without_const(own)
    if isinstance(head, Pointer) and isinstance(own, Pointer):
        return _is_const(head.target) == _is_const(own.target) and _fits(head.target, own.target)
    numbers, own_numbers = _numbers(head), _numbers(own)
    is_known = numbers is not None or isinstance(head, Pointer)
    is_own_known = own_numbers is not None or isinstance(own, Pointer)
    return not (is_known and is_own_known) or numbers == own_numbers is not None


def _is_const(cpp: CppType) -> bool:
    return not isinstance(cpp, Reference) and cpp.const


def _numbers(cpp: CppType) -> tuple[Any, int] | None:
    """Return the dtype and the count of the numbers in a C++ type.

    The count is 1 for a scalar, 2 for a complex number, and the number of components for a vector.

    For void the dtype is the text "void". Return None for any other type.
    """
    if not isinstance(cpp, Named):
        return None
    if cpp.name == "void":
        return "void", 1
    dtype = scalar_dtype(cpp)
    if dtype is not None:
        return (np.dtype(f"f{dtype.itemsize // 2}"), 2) if dtype.kind == "c" else (dtype, 1)
    parts = vector(cpp.name)
    return None if parts is None else parts[:2]


class AnyName(dict[str, str]):
    """A table of lowered names for code that does not list its kernels. It maps every name to itself."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return name


def kernels_of(cubin: bytes) -> dict[str, str]:
    """Return the mangled names of the kernels in machine code, each mapped to itself."""
    return {symbol.name: symbol.name for symbol in elf.symbols(cubin) if symbol.kernel}


def _is_readable(origin: Source) -> bool:
    return kind_of(origin.code or b"") in ("ptx", "cubin")


def spelled(name: str | None) -> str | None:
    """Return the C++ name of a mangled name. Return any other name, and None, unchanged."""
    return _demangled(name) if name is not None and name.startswith("_Z") else name


def compiled(specialization: Specialization) -> Compiled:
    """Return code that was compiled before (PTX, cubin, LTO IR or an object) as `Compiled`, with its bytes unchanged.

    The caller links it for the arch where that is needed.

    Raises
    ------
    LaunchError
        If the code was made for an arch that does not run on the specialization's arch.
    TemplateError
        If compile options are set that have no effect on compiled code, or the target cannot be made from it.
    """
    origin, target = specialization.source, specialization.target
    assert origin.code is not None
    code_format = kind_of(origin.code) or ""
    usual = CompileOptions()
    changed = specialization.options.replace(
        link=(), lto=False, rdc=False, lineinfo=False, debug=False, max_registers=None
    )
    if changed != usual:
        raise TemplateError(f"{origin.name} is compiled already: of the options only link, lto and max_registers count")
    if target not in ("cubin", "ptx") or (target == "ptx" and code_format != "ptx"):
        raise TemplateError(
            f"{origin.name} holds {_WORDS[code_format]}, of which no {target} can be made; the emulator runs CUDA C++ "
            "and PTX: take the source, or nvcc -ptx"
        )
    origin_cc, here = _arch(origin.code, code_format), int(re.sub(r"\D", "", specialization.arch))
    if origin_cc and (origin_cc > here or (code_format == "cubin" and origin_cc // 10 != here // 10)):
        raise LaunchError(
            f"{origin.name} is made for sm_{origin_cc}, and does not run on {specialization.arch}; machine code runs "
            "on devices of its own major version, PTX on later ones"
        )
    return Compiled(
        origin.code,
        dict(_lowered(origin)) if _is_readable(origin) else AnyName(),
        "",
        "ptx" if code_format == "ptx" else "cubin",
    )


def runs_as_it_is(code: bytes, target: str) -> bool:
    """Return whether compiled code runs without linking. PTX does so only on the emulator."""
    code_format = kind_of(code)
    return (
        (code_format == "cubin" and elf.is_executable(code))
        or code_format == "fatbin"
        or (code_format == "ptx" and target == "ptx")
    )


@lru_cache(64)
def _lowered(origin: Source) -> Mapping[str, str]:
    """Map the name expression of each kernel in compiled code to its mangled name.

    The name expression is the C++ name. If kernels share it, a cast to the kernel's function type is put before it.
    """
    entries = _entries(origin)
    names = [entry.name for entry in entries]
    return {
        (
            entry.name
            if names.count(entry.name) == 1
            else f"(void (*)({', '.join(str(parameter.type) for parameter in _parameters(entry))})){entry.name}"
        ): entry.symbol
        for entry in entries
    }


@lru_cache(64)
def _entries(origin: Source) -> tuple[Entry, ...]:
    assert origin.code is not None
    code_format = kind_of(origin.code)
    symbols: dict[str, tuple[CppType, ...]] = {}
    if code_format == "ptx":
        text = re.sub(r"//[^\n]*", "", origin.code.decode(errors="replace"))
        for symbol, parameters in _ENTRY.findall(text):
            symbols[symbol] = tuple(_ptx_type(*fields) for fields in _PARAMETER.findall(parameters))
    elif code_format == "cubin":
        for name in kernels_of(origin.code):
            symbols[name] = tuple(map(_bytes, elf.parameter_sizes(origin.code, name)))
    return tuple(_entry(symbol, types) for symbol, types in symbols.items() if TYPES_PROBE not in symbol)


def _variables(origin: Source) -> tuple[Symbol, ...]:
    """Return the variables of PTX, in which arrays are of bytes."""
    assert origin.code is not None
    if kind_of(origin.code) != "ptx":
        return ()
    rows = _VARIABLE.findall(origin.code.decode(errors="replace"))
    return tuple(
        Symbol(
            mangled.variable_name(name),
            parse_type(_TYPES.get(ptx_type, "unsigned char")),
            (count,) * bool(count),
            space == "const",
        )
        for space, ptx_type, name, count in rows
    )


def _parameters(entry: Entry) -> tuple[Parameter, ...]:
    return tuple(Parameter("", cpp) for cpp in entry.types)


def _entry(symbol: str, types: tuple[CppType, ...]) -> Entry:
    """Describe a kernel by its name; an ``extern "C"`` name tells no types, so that parameters have sizes only."""
    if not symbol.startswith("_Z"):
        return Entry(symbol, symbol, types)
    head = _demangled(symbol)
    name, _, _ = head.partition("(")
    own_types = types_in(head[len(name) + 1 :])
    return Entry(symbol, _plain(name), own_types if len(own_types) == len(types) else types)


def _demangled(symbol: str) -> str:
    """Return a kernel's demangled name with its parameter types, and without its result type."""
    return _CAST.sub("", demangle(symbol)).removeprefix("void ")


def _plain(name: str) -> str:
    return "".join(_CAST.sub("", name).split())


def _ptx_type(bits: str, pointer: str, count: str) -> CppType:
    return parse_type("void*") if pointer else _bytes(int(bits) // 8 * int(count or 1))


def _bytes(size: int) -> CppType:
    return Opaque(f"{size} bytes")


def _arch(code: bytes, code_format: str | None) -> int:
    """Return the compute capability of code, such as 90; 0 if the code does not say."""
    if code_format == "cubin":
        return elf.arch(code)
    match = _TARGET.search(code.decode(errors="replace")) if code_format == "ptx" else None
    return int(match[1]) if match else 0
