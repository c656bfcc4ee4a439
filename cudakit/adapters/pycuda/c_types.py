"""C types and dtypes: the registry of ``pycuda.tools``, and the declarations of generated kernels."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit.adapters.pycuda.vector_types import VECTOR_DTYPES
from cudakit.errors import ArgumentError, shortened

_DECLARATION = re.compile(r"(?P<stars>\**)\s*(?P<name>[A-Za-z_]\w*)(?P<counts>(\s*\[[ \d]*\])*)\s*$")
#: Words of a text that may use the header of complex numbers, or the headers that it includes.
_MAY_BE_COMPLEX = re.compile("complex|half|bfloat|include|pycuda|std::")
_QUALIFIERS = re.compile(r"\b(const|volatile|__restrict__|restrict)\b")
#: The dtypes of C's types; the first name is the one that generated code has.
_SPELLINGS = {
    "bool": ("bool",),
    "int8": ("signed char", "char"),
    "uint8": ("unsigned char",),
    "int16": ("short", "signed short", "signed short int", "short signed int", "short int"),
    "uint16": ("unsigned short", "unsigned short int", "short unsigned int"),
    "int32": ("int", "signed int", "signed"),
    "uint32": ("unsigned int", "unsigned"),
    "float16": ("half", "__half"),
    "float32": ("float",),
    "float64": ("double",),
    "complex64": ("pycuda::complex<float>",),
    "complex128": ("pycuda::complex<double>",),
}
#: Types of 64 bits: ``long`` of the host's compiler is one of them where it has 64 bits.
_LONGS = ("long", "long long") if np.dtype("long").itemsize == 8 else ("long long",)


class _Registry:
    """The C names of dtypes, and the dtypes of C names."""

    def __init__(self) -> None:
        self.names: dict[np.dtype, str] = {}
        self.dtypes: dict[str, np.dtype] = {}

    def add(self, names: Sequence[str], dtype: Any) -> np.dtype:
        """Register names of a dtype, and return the dtype that was registered first."""
        dtype = np.dtype(dtype)
        result: np.dtype
        for name in names:
            if self.dtypes.get(name, dtype) != dtype:
                raise RuntimeError(f"the C name {name} is registered for {self.dtypes[name]}; got {dtype}")
        first = self.names.setdefault(dtype, names[0])
        result = np.dtype(self.dtypes.get(first, dtype))
        self.dtypes.update(dict.fromkeys(names, result))
        return result


_registry = _Registry()
for _dtype, _names in _SPELLINGS.items():
    _registry.add(_names, _dtype)
for _long in _LONGS:
    _registry.add([_long, f"{_long} int", f"signed {_long}", f"signed {_long} int", f"{_long} signed int"], "int64")
    _registry.add([f"unsigned {_long}", f"unsigned {_long} int", f"{_long} unsigned int"], "uint64")
_registry.add(["size_t"], "uint64")
for _name, _vector in VECTOR_DTYPES.items():
    _registry.add([_name], _vector)


def get_or_register_dtype(names: str | Sequence[str], dtype: Any = None) -> np.dtype:
    """Register C names of a dtype, and return the dtype. Without a dtype: return the dtype of the names.

    Raises
    ------
    ArgumentError
        Without a dtype: a name is not registered.
    RuntimeError
        A name is registered for another dtype.
    """
    names = [names] if isinstance(names, str) else list(names)
    if dtype is not None:
        return _registry.add(names, dtype)
    dtypes = {dtype_of(name) for name in names}
    if len(dtypes) != 1:
        raise ArgumentError(f"get_or_register_dtype: the names {names} have several dtypes: {shortened(dtypes)}")
    return dtypes.pop()


def register_dtype(dtype: Any, c_names: str | Sequence[str], alias_ok: bool = False) -> None:
    """Register C names of a dtype, which must be new unless `alias_ok`.

    Raises
    ------
    RuntimeError
        The dtype has a name already, or a name is registered for another dtype.
    """
    warnings.warn("register_dtype: use get_or_register_dtype(names, dtype)", DeprecationWarning, stacklevel=2)
    dtype = np.dtype(dtype)
    if not alias_ok and dtype in _registry.names:
        raise RuntimeError(f"register_dtype: {dtype} has the name {_registry.names[dtype]}; give alias_ok=True")
    get_or_register_dtype(c_names, dtype)


def dtype_of(name: str) -> np.dtype:
    """Return the dtype of a C type.

    Raises
    ------
    ArgumentError
        The name is not registered.
    """
    if name not in _registry.dtypes:
        raise ArgumentError(
            f"C type {shortened(name)} has no dtype: register it by pycuda.tools.get_or_register_dtype(name, dtype)"
        )
    return _registry.dtypes[name]


def dtype_to_ctype(dtype: Any, with_fp_tex_hack: bool = False) -> str:
    """Return the C type of a dtype. With `with_fp_tex_hack`: the type that a texture of the dtype has.

    Raises
    ------
    ValueError
        The dtype is None or has no C type.
    """
    if dtype is None:
        raise ValueError("dtype_to_ctype: dtype is None")
    dtype = np.dtype(dtype)
    textures = {"float32": "float", "float64": "double", "complex64": "cfloat", "complex128": "cdouble"}
    if with_fp_tex_hack and dtype.name in textures:
        return f"fp_tex_{textures[dtype.name]}"
    if dtype not in _registry.names:
        raise ValueError(f"dtype {dtype} has no C type: register it by pycuda.tools.get_or_register_dtype(name, dtype)")
    return _registry.names[dtype]


def generated_type(dtype: Any) -> str:
    """Return the C type of a dtype in cudakit's generated kernels, whose complex numbers are libcu++'s."""
    return dtype_to_ctype(dtype).replace("pycuda::complex", "cuda::std::complex")


class Argument:
    """An argument of a generated kernel: a dtype and a name."""

    def __init__(self, dtype: Any, name: str) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.name: str = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.dtype})"


class VectorArg(Argument):
    """An argument that is an array."""

    struct_char = "P"

    def declarator(self) -> str:
        """Return the argument's declaration in C."""
        return f"{dtype_to_ctype(self.dtype)} *{self.name}"


class ScalarArg(Argument):
    """An argument that is a number or a struct."""

    @property
    def struct_char(self) -> str:
        """The argument's letter in the format that ``prepare`` takes."""
        return f"{self.dtype.itemsize}s" if self.dtype.char == "V" else self.dtype.char

    def declarator(self) -> str:
        """Return the argument's declaration in C."""
        return f"{dtype_to_ctype(self.dtype)} {self.name}"


def complex_header(*texts: str) -> str:
    """Return the line that includes PyCUDA's complex numbers, or an empty one for texts that cannot use them.

    The header takes half a second of each compile.
    """
    return "#include <pycuda-complex.hpp>\n" if any(map(_MAY_BE_COMPLEX.search, texts)) else "\n"


def parse_c_arg(c_arg: str) -> VectorArg | ScalarArg:
    """Return the argument that a C declaration such as ``"const float *x"`` declares.

    Raises
    ------
    ArgumentError
        The declaration cannot be read, or its type has no dtype.
    """
    declaration = _QUALIFIERS.sub(" ", c_arg)
    match = _DECLARATION.search(declaration)
    words = declaration[: match.start()].split() if match else []
    if match is None or not words:
        raise ArgumentError(f"argument {shortened(c_arg)}: expected a type and a name, as in 'float *x'")
    is_vector = match["stars"] or match["counts"]
    return (VectorArg if is_vector else ScalarArg)(dtype_of(" ".join(words)), match["name"])


def get_arg_type(c_arg: str) -> str:
    """Return the letter of a C declaration in the format that ``prepare`` takes."""
    return parse_c_arg(c_arg).struct_char
