"""C++ types as written in a signature, and the dtypes of scalar and vector types.

A type is one of four records: `Named` (``float``, ``T``, ``cuda::std::complex<T>``), `Pointer`, `Reference` and
`Opaque` (a type that only the compiler can resolve, such as ``typename Traits<T>::type``). `parse_type` parses template
arguments as users write them, and types in a demangled name.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cache
from typing import Final, TypeAlias

import numpy as np

from cudakit.records import NamedTuple


class Named(NamedTuple):
    """A type name, qualified as written, with its template arguments (None if it has none).

    Fundamental types are canonical (``unsigned int``, never ``unsigned``).
    """

    name: str
    arguments: tuple[CppType | Value, ...] | None = None
    const: bool = False

    def __str__(self) -> str:
        arguments = "" if self.arguments is None else f"<{', '.join(map(str, self.arguments))}>"
        return f"{'const ' if self.const else ''}{self.name}{arguments}"


class Pointer(NamedTuple):
    """A pointer type. `const` says whether the pointer itself is const; the type of its target has its own `const`."""

    target: CppType
    const: bool = False
    restrict: bool = False

    def __str__(self) -> str:
        return f"{self.target}*{' const' if self.const else ''}{' __restrict__' if self.restrict else ''}"


class Reference(NamedTuple):
    """A reference type. No kernel parameter can be a reference; errors show it."""

    target: CppType
    rvalue: bool = False

    def __str__(self) -> str:
        return f"{self.target}{'&&' if self.rvalue else '&'}"


class Opaque(NamedTuple):
    """A type of which only the source text is known. Nothing is deduced from it; the compiler resolves it."""

    text: str
    const: bool = False

    def __str__(self) -> str:
        return f"{'const ' if self.const else ''}{self.text}"


class Value(NamedTuple):
    """A non-type template argument as written: ``2``, ``N``, ``true``, ``sizeof(T)``."""

    text: str

    def __str__(self) -> str:
        return self.text


CppType: TypeAlias = Named | Pointer | Reference | Opaque

_INTEGER_WORDS: Final = frozenset({"signed", "unsigned", "char", "short", "int", "long"})

_FUNDAMENTAL_WORDS: Final = _INTEGER_WORDS | {
    "void", "bool", "float", "double", "wchar_t", "char8_t", "char16_t", "char32_t",
}  # fmt: skip


def canonical_name(name: str) -> str:
    """Return a fundamental type's name with its words in canonical order; return any other name unchanged.

    ``unsigned`` → ``unsigned int``; ``long int`` → ``long``; ``int unsigned long long`` → ``unsigned long long``.
    """
    words = name.split()
    if not words or not set(words) <= _INTEGER_WORDS:
        return " ".join(words)
    unsigned, signed, longs = "unsigned" in words, "signed" in words, words.count("long")
    if "char" in words:
        return "unsigned char" if unsigned else "signed char" if signed else "char"
    base = "short" if "short" in words else {0: "int", 1: "long", 2: "long long"}.get(longs, "long long")
    return f"unsigned {base}" if unsigned else base


def is_fundamental(name: str) -> bool:
    """Return whether a canonical name consists of C++ keywords, which only a macro can redefine."""
    return set(name.split()) <= _FUNDAMENTAL_WORDS


def _scalars() -> dict[str, np.dtype]:
    long, wide = ctypes.sizeof(ctypes.c_long), ctypes.sizeof(ctypes.c_wchar)
    spellings = (
        ("?", "bool"),
        ("i1", "char, signed char"),
        ("u1", "unsigned char, char8_t, uchar"),
        ("i2", "short"),
        ("u2", "unsigned short, char16_t, ushort"),
        ("i4", "int"),
        ("u4", "unsigned int, char32_t, uint"),
        (f"i{wide}", "wchar_t"),
        (f"i{long}", "long"),
        (f"u{long}", "unsigned long"),
        ("i8", "long long, ssize_t, ptrdiff_t, intptr_t"),
        ("u8", "unsigned long long, size_t, uintptr_t"),
        (f"u{long}", "ulong"),
        ("u8", "CUdeviceptr, cudaTextureObject_t, cudaSurfaceObject_t, CUtexObject, CUsurfObject"),
        ("f4", "float"),
        ("f8", "double"),
        ("f2", "__half, half"),
        ("c8", "cuFloatComplex, cuComplex"),
        ("c16", "cuDoubleComplex"),
    )
    table = {name: np.dtype(code) for code, names in spellings for name in names.split(", ")}
    for bits in (8, 16, 32, 64):
        # The fast types differ between the host's headers and libcu++'s: the compiler resolves them.
        for stem in (f"int{bits}_t", f"int_least{bits}_t"):
            table[stem], table["u" + stem] = np.dtype(f"i{bits // 8}"), np.dtype(f"u{bits // 8}")
    for complex_name in ("cuda::std::complex", "thrust::complex", "std::complex"):
        table[f"{complex_name}<float>"] = np.dtype("c8")
        table[f"{complex_name}<double>"] = np.dtype("c16")
    for name in [name for name in table if name.endswith("_t")]:
        for namespace in ("std", "cuda::std"):
            table[f"{namespace}::{name}"] = table[name]
    return table


#: Spellings of scalar types, and their dtypes; ML_SCALARS has those of ml_dtypes.
SCALARS: Final[dict[str, np.dtype]] = _scalars()


class ClassFloat(NamedTuple):
    """A floating-point dtype that is a class in C++.

    Attributes
    ----------
    dtype : str
        Name of the dtype in NumPy or ml_dtypes.
    names : tuple of str
        Names of the class; template parameters become the first.
    header : str
        Header that declares the class.
    letter : str
        Letter of the class in assertions about the fields of structs.
    bytes : int
        Size of a number.
    narrow : bool
        Whether ops and expressions accept the dtype. They compute in float and round when they store.
    """

    dtype: str
    names: tuple[str, ...]
    header: str
    letter: str
    bytes: int
    narrow: bool = False


#: All floating-point dtypes that are classes in C++; a dtype of ml_dtypes is supported if it has a row here.
CLASS_FLOATS: Final = (
    ClassFloat("float16", ("__half", "half"), "cuda_fp16.h", "h", 2, narrow=True),
    ClassFloat("bfloat16", ("__nv_bfloat16", "nv_bfloat16"), "cuda_bf16.h", "y", 2, narrow=True),
    ClassFloat("float8_e4m3fn", ("__nv_fp8_e4m3",), "cuda_fp8.h", "4", 1),
    ClassFloat("float8_e5m2", ("__nv_fp8_e5m2",), "cuda_fp8.h", "5", 1),
)
#: C++ names of the dtypes that are computed as float.
NARROW: Final[dict[str, str]] = {row.dtype: row.names[0] for row in CLASS_FLOATS if row.narrow}
#: Spellings of scalar types whose dtypes are of ml_dtypes, and their names there.
ML_SCALARS: Final[dict[str, str]] = {
    name: row.dtype for row in CLASS_FLOATS for name in row.names if name not in SCALARS
}

_DEDUCED = (
    "bool", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int", "long long",
    "unsigned long long", "__half", "float", "double", "cuda::std::complex<float>", "cuda::std::complex<double>",
)  # fmt: skip
#: The C++ spelling for a dtype that a template parameter is deduced from.
_SPELLINGS: Final[dict[np.dtype, str]] = {SCALARS[name]: name for name in _DEDUCED}
#: The same for dtypes of ml_dtypes, by name.
ML_SPELLINGS: Final[dict[str, str]] = {row.dtype: row.names[0] for row in CLASS_FLOATS if row.names[0] in ML_SCALARS}

#: The header that declares a spelling which is not built in.
HEADER: Final[dict[str, str]] = {
    **{row.names[0]: row.header for row in CLASS_FLOATS},
    "cuda::std::complex": "cuda/std/complex",
    "cudakit::strided": "cudakit/strided.cuh",
    "cudakit::tensor": "cudakit/tensor.cuh",
}


def _vectors() -> dict[str, tuple[np.dtype, int, int]]:
    """Return the built-in vector types: name → (component dtype, components, alignment in bytes)."""
    bases = {
        "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4",
        "long": SCALARS["long"].str, "ulong": SCALARS["unsigned long"].str, "longlong": "i8", "ulonglong": "u8",
        "float": "f4", "double": "f8",
    }  # fmt: skip
    table: dict[str, tuple[np.dtype, int, int]] = {}
    for base, code in bases.items():
        dtype = np.dtype(code)
        for count in (1, 2, 3, 4):
            alignment = dtype.itemsize if count == 3 else min(16, dtype.itemsize * count)
            table[f"{base}{count}"] = (dtype, count, alignment)
    for name in ("__half2", "half2"):
        table[name] = (np.dtype("f2"), 2, 4)
    table["dim3"] = table["uint3"]
    return table


VECTORS: Final[dict[str, tuple[np.dtype, int, int]]] = _vectors()


def is_other_name(name: str) -> bool:
    """Return whether CUDA declares `name` as a typedef of a type with another name, such as ``size_t``."""
    if name in ("half2", "nv_bfloat162", "nv_bfloat16"):
        return True
    return name in SCALARS and not (is_fundamental(name) or name.endswith(">") or name == "__half")


def scalar(name: str) -> np.dtype | None:
    """Return the dtype of the scalar type spelled `name`, or None."""
    if name in ML_SCALARS:
        # Imported for the first such type only; most programs use none.
        import ml_dtypes

        dtype: np.dtype = np.dtype(getattr(ml_dtypes, ML_SCALARS[name]))
        return dtype
    return SCALARS.get(name)


def vector(name: str) -> tuple[np.dtype, int, int] | None:
    """Return component dtype, component count and alignment in bytes of a built-in vector type, or None."""
    if name in ("__nv_bfloat162", "nv_bfloat162"):
        component = scalar("__nv_bfloat16")
        return None if component is None else (component, 2, 4)
    return VECTORS.get(name)


def spelling(dtype: np.dtype) -> str | None:
    """Return the C++ type of a scalar dtype in native byte order, or None if C++ has none."""
    if dtype.type.__module__ == "ml_dtypes":
        return ML_SPELLINGS.get(dtype.name) if dtype.isnative else None
    return _SPELLINGS.get(dtype)


def is_real(dtype: np.dtype) -> bool:
    """Return whether a dtype is bool, integer or floating point. Narrow floats are included, such as bfloat16."""
    return dtype.kind in "biuf" or dtype.name in NARROW


def without_const(cpp: CppType) -> CppType:
    """Return `cpp` without its top-level const (which a by-value parameter may drop)."""
    return with_const(cpp, False) if isinstance(cpp, Named | Pointer | Opaque) and cpp.const else cpp


def is_tensor(cpp: CppType) -> bool:
    """Return whether a type is ``cudakit::tensor<T, RANK>``, judged by its name."""
    plain = without_const(cpp)
    return isinstance(plain, Named) and plain.name.split("::")[-1] == "tensor" and len(plain.arguments or ()) == 2


def tensor_arguments(cpp: CppType) -> tuple[CppType | Value, CppType | Value]:
    """Return T and RANK of ``cudakit::tensor<T, RANK>``."""
    plain = without_const(cpp)
    assert isinstance(plain, Named)
    assert plain.arguments is not None
    element, rank = plain.arguments
    return element, rank


def with_const(cpp: Named | Pointer | Opaque, const: bool) -> Named | Pointer | Opaque:
    """Return `cpp` with its top-level const set to `const`."""
    return cpp._replace(const=const)


def scalar_dtype(cpp: CppType) -> np.dtype | None:
    """Return the dtype of a scalar type, or None if `cpp` is no scalar type."""
    return scalar(str(without_const(cpp))) if isinstance(cpp, Named) else None


def names_in(cpp: CppType | Value) -> Iterator[str]:
    """Yield every name in `cpp`, template arguments included; for an `Opaque`, every identifier."""
    match cpp:
        case Named(name, arguments):
            yield name
            for argument in arguments or ():
                yield from names_in(argument)
        case Pointer(target) | Reference(target):
            yield from names_in(target)
        case Opaque(text) | Value(text):
            yield from re.findall(r"\w+", text)


_QUALIFIERS = frozenset({"const", "volatile", "typename", "struct", "class", "enum", "union"})
_RESTRICT = frozenset({"__restrict__", "__restrict", "restrict"})


def parse_type(text: str) -> CppType:
    """Parse a C++ type; a type that is no plain name, pointer or template becomes `Opaque`.

    >>> str(parse_type("float const*"))
    'const float*'
    """
    if text.isidentifier() and text not in _QUALIFIERS and text not in _RESTRICT:
        return Named(canonical_name(text))
    parsed, rest = _parse(_token().findall(text))
    return Opaque(" ".join(text.split())) if parsed is None or rest else parsed


@cache
def _token() -> re.Pattern[str]:
    return re.compile(r"\s*(::|&&|[<>,*&()\[\]{}]|[^\s<>,*&()\[\]{}:]+|:)")


@cache
def _value() -> re.Pattern[str]:
    """Return the pattern of the start of a template argument that is a value, not a type, such as ``2`` or ``true``."""
    return re.compile(r"[-+(]*[\d'\"]|true$|false$|sizeof\b|\(")


_CLOSERS: Final = {"(": ")", "[": "]", "{": "}"}


def closing(text: str, start: int) -> int:
    """Return the offset of the bracket that closes the bracket at offset `start`, or -1 if none does."""
    depth, opener = 0, text[start]
    for match in re.compile(f"[{re.escape(opener + _CLOSERS[opener])}]").finditer(text, start):
        depth += 1 if match[0] == opener else -1
        if depth == 0:
            return match.start()
    return -1


def closing_angle(text: str, start: int) -> int:
    """Return the offset of the ``>`` that closes the ``<`` at offset `start`, or -1 if none does.

    Brackets in parentheses do not count.
    """
    depth, position = 0, start
    for match in re.compile(r"->|[<>]=|<<|[<>()]").finditer(text, start):
        if match.start() < position or len(match[0]) == 2:
            continue
        if match[0] == "(":
            position = closing(text, match.start())
            if position < 0:
                return -1
        elif match[0] != ")":
            depth += 1 if match[0] == "<" else -1
            if depth == 0:
                return match.start()
    return -1


def split_at(text: str, separator: str = ",", brackets: str = "(<[{") -> list[str]:
    """Split `text` at separators outside of brackets, and return the parts. An unclosed bracket hides no separator."""
    parts, start, position = [], 0, 0
    for match in re.finditer(f"[{re.escape(brackets)}]|{re.escape(separator)}", text):
        if match.start() < position:
            continue
        if match[0] == separator:
            parts.append(text[start : match.start()])
            start = match.end()
        else:
            position = (closing_angle if match[0] == "<" else closing)(text, match.start()) + 1
    return [*parts, text[start:]]


def split_arguments(text: str) -> list[str]:
    """Split `text` at its top-level commas, and return the parts without surrounding spaces."""
    return [part.strip() for part in split_at(text)] if text.strip() else []


def _parse(tokens: list[str]) -> tuple[CppType | None, list[str]]:
    """Parse a type from the start of `tokens`; return the type, or None, and the other tokens."""
    const, dependent = False, False
    words: list[str] = []
    arguments: tuple[CppType | Value, ...] | None = None
    while tokens:
        token = tokens[0]
        if token in _QUALIFIERS:
            const, dependent = const or token == "const", dependent or token == "typename"
        elif token == "::":
            if arguments is not None:
                return None, tokens
            words.append("::")
        elif token == "<" and words and arguments is None:
            parsed, tokens = _parse_arguments(tokens[1:])
            if parsed is None:
                return None, tokens
            arguments = parsed
            continue
        elif (token[0].isalpha() or token[0] == "_") and token not in _RESTRICT and arguments is None:
            words.append(token)
        else:
            break
        tokens = tokens[1:]
    if not words or dependent:
        return None, tokens
    name = canonical_name(re.sub(r"\s*::\s*", "::", " ".join(words)).removeprefix("::"))
    result: CppType = Named(name, arguments, const)
    while tokens:
        token = tokens[0]
        if token == "*":
            result = Pointer(result)
        elif token in ("&", "&&"):
            result = Reference(result, rvalue=token == "&&")
        elif token == "const" and isinstance(result, Named | Pointer):
            result = with_const(result, True)
        elif token in _RESTRICT and isinstance(result, Pointer):
            result = result._replace(restrict=True)
        elif token != "volatile":
            break
        tokens = tokens[1:]
    return result, tokens


def _parse_arguments(tokens: list[str]) -> tuple[tuple[CppType | Value, ...] | None, list[str]]:
    """Parse template arguments up to the closing ``>``; return them, or None, and the tokens after it."""
    parts: list[list[str]] = [[]]
    depth = 0
    for position, token in enumerate(tokens):
        if token == ">" and depth == 0:
            arguments = [_argument(part) for part in parts if part]
            return tuple(arguments), tokens[position + 1 :]
        if token == "," and depth == 0:
            parts.append([])
            continue
        depth += (token in "<([{") - (token in ">)]}")
        parts[-1].append(token)
    return None, []


def _argument(tokens: list[str]) -> CppType | Value:
    text = " ".join(tokens).replace(" :: ", "::")
    if _value().match(text):
        return Value(text)
    parsed, rest = _parse(tokens)
    return parsed if parsed is not None and not rest else Opaque(text)
