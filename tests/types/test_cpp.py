"""C++ types: names in canonical order, what dtypes they are, vectors as the CUDA C++ Programming Guide has them."""

from __future__ import annotations

import ctypes
import itertools

import ml_dtypes
import numpy as np
import pytest

from cudakit.types import cpp
from cudakit.types.cpp import Named, Opaque, Pointer, Reference, Value

pytestmark = pytest.mark.emulator

FLOAT = Named("float")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("unsigned", "unsigned int"),
        ("signed", "int"),
        ("long", "long"),
        ("long int", "long"),
        ("long long", "long long"),
        ("short int", "short"),
        ("unsigned short int", "unsigned short"),
        ("unsigned long long int", "unsigned long long"),
        ("unsigned long", "unsigned long"),
        ("signed long int", "long"),
        ("char", "char"),
        ("signed char", "signed char"),
        ("unsigned char", "unsigned char"),
    ],
)
def test_the_words_of_a_fundamental_type_may_come_in_any_order(words: str, wanted: str) -> None:
    for order in itertools.permutations(words.split()):
        assert cpp.canonical_name(" ".join(order)) == wanted
    assert cpp.canonical_name(wanted) == wanted
    assert cpp.is_fundamental(wanted)
    assert cpp.scalar(wanted) is not None


def test_other_names_stay_as_they_are() -> None:
    for name in ("float", "Point", "long_long", "my::type", "unsigned Point"):
        assert cpp.canonical_name(name) == name
    assert cpp.canonical_name("  my   type ") == "my type"
    assert cpp.canonical_name("") == ""
    assert not cpp.is_fundamental("Point")
    assert not cpp.is_fundamental("size_t")
    assert all(map(cpp.is_fundamental, ("void", "bool", "wchar_t", "char8_t", "char16_t", "char32_t")))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bool", ctypes.c_bool),
        ("char", ctypes.c_byte),
        ("unsigned char", ctypes.c_ubyte),
        ("short", ctypes.c_short),
        ("unsigned short", ctypes.c_ushort),
        ("int", ctypes.c_int),
        ("unsigned int", ctypes.c_uint),
        ("long", ctypes.c_long),
        ("unsigned long", ctypes.c_ulong),
        ("ulong", ctypes.c_ulong),
        ("long long", ctypes.c_longlong),
        ("unsigned long long", ctypes.c_ulonglong),
        ("size_t", ctypes.c_size_t),
        ("ssize_t", ctypes.c_ssize_t),
        ("ptrdiff_t", ctypes.c_ssize_t),
        ("float", ctypes.c_float),
        ("double", ctypes.c_double),
        ("int8_t", ctypes.c_int8),
        ("uint16_t", ctypes.c_uint16),
        ("std::int32_t", ctypes.c_int32),
        ("cuda::std::uint64_t", ctypes.c_uint64),
        ("int_least64_t", ctypes.c_int64),
        ("uchar", ctypes.c_ubyte),
        ("ushort", ctypes.c_ushort),
        ("uint", ctypes.c_uint),
    ],
)
def test_a_scalar_is_what_c_has_it(name: str, kind: type) -> None:
    assert cpp.scalar(name) == np.dtype(kind)


def test_scalars_that_c_has_no_name_for() -> None:
    found = {
        name: cpp.scalar(name) for name in ("__half", "half", "cuComplex", "cuDoubleComplex", "char8_t", "char16_t")
    }
    assert found == {
        "__half": np.dtype("f2"), "half": np.dtype("f2"), "cuComplex": np.dtype("c8"),
        "cuDoubleComplex": np.dtype("c16"), "char8_t": np.dtype("u1"), "char16_t": np.dtype("u2"),
    }  # fmt: skip
    for handle in ("CUdeviceptr", "cudaTextureObject_t", "cudaSurfaceObject_t", "uintptr_t"):
        assert cpp.scalar(handle) == np.dtype("u8")
    assert cpp.scalar("__nv_bfloat16") == np.dtype(ml_dtypes.bfloat16)
    assert cpp.scalar("__nv_fp8_e4m3") == np.dtype(ml_dtypes.float8_e4m3fn)
    assert cpp.scalar("__nv_fp8_e5m2") == np.dtype(ml_dtypes.float8_e5m2)
    for name in ("cuda::std::complex", "thrust::complex", "std::complex"):
        assert cpp.scalar(f"{name}<float>") == np.dtype("c8")
        assert cpp.scalar(f"{name}<double>") == np.dtype("c16")
    assert cpp.scalar("Point") is None
    assert cpp.scalar("float4") is None


def test_a_dtype_is_spelled_as_a_type_of_its_own_dtype() -> None:
    dtypes = [np.dtype(code) for code in ("?", *np.typecodes["AllInteger"], *"efdFD")]
    dtypes += [np.dtype(kind) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)]
    for dtype in dtypes:
        spelled = cpp.spelling(dtype)
        assert spelled is not None
        assert cpp.scalar(spelled) == dtype
    for dtype in (np.dtype(">f4"), np.dtype("U3"), np.dtype("g"), np.dtype("M8[s]"), np.dtype(ml_dtypes.int4)):
        assert cpp.spelling(dtype) is None
    for spelled in ("__half", "__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2"):
        assert spelled in cpp.HEADER


@pytest.mark.parametrize(
    ("name", "code", "count", "alignment"),
    [
        # The table "Alignment Requirements of Built-in Vector Types" of the guide.
        ("char1", "i1", 1, 1), ("uchar2", "u1", 2, 2), ("char3", "i1", 3, 1), ("uchar4", "u1", 4, 4),
        ("short1", "i2", 1, 2), ("ushort2", "u2", 2, 4), ("short3", "i2", 3, 2), ("ushort4", "u2", 4, 8),
        ("int1", "i4", 1, 4), ("uint2", "u4", 2, 8), ("int3", "i4", 3, 4), ("uint4", "u4", 4, 16),
        ("longlong1", "i8", 1, 8), ("ulonglong2", "u8", 2, 16), ("longlong3", "i8", 3, 8), ("ulonglong4", "u8", 4, 16),
        ("float1", "f4", 1, 4), ("float2", "f4", 2, 8), ("float3", "f4", 3, 4), ("float4", "f4", 4, 16),
        ("double1", "f8", 1, 8), ("double2", "f8", 2, 16), ("double3", "f8", 3, 8), ("double4", "f8", 4, 16),
        ("dim3", "u4", 3, 4), ("half2", "f2", 2, 4), ("__half2", "f2", 2, 4),
    ],
)  # fmt: skip
def test_vectors(name: str, code: str, count: int, alignment: int) -> None:
    assert cpp.vector(name) == (np.dtype(code), count, alignment)


def test_other_vectors() -> None:
    assert cpp.vector("__nv_bfloat162") == cpp.vector("nv_bfloat162") == (np.dtype(ml_dtypes.bfloat16), 2, 4)
    assert cpp.vector("long2") == (np.dtype(ctypes.c_long), 2, 2 * ctypes.sizeof(ctypes.c_long))
    assert cpp.vector("float5") is None
    assert cpp.vector("float") is None


def test_names_that_cuda_has_for_other_types() -> None:
    for name in ("size_t", "uint", "half", "nv_bfloat16", "half2", "cuComplex", "cudaTextureObject_t"):
        assert cpp.is_other_name(name), name
    for name in ("float", "unsigned int", "__half", "std::complex<float>", "float4", "Point", "__nv_bfloat16"):
        assert not cpp.is_other_name(name), name


def test_types_are_written_as_in_cpp() -> None:
    written = {
        "const float": Named("float", const=True),
        "cudakit::strided<const float, 2>": Named("cudakit::strided", (Named("float", const=True), Value("2"))),
        "const float*": Pointer(Named("float", const=True)),
        "float* const": Pointer(FLOAT, const=True),
        "float* __restrict__": Pointer(FLOAT, restrict=True),
        "float* const __restrict__": Pointer(FLOAT, const=True, restrict=True),
        "float**": Pointer(Pointer(FLOAT)),
        "float&": Reference(FLOAT),
        "float&&": Reference(FLOAT, rvalue=True),
        "const typename T::x": Opaque("typename T::x", const=True),
    }
    assert [str(kind) for kind in written.values()] == list(written)


def test_const_at_the_top_alone_is_taken_away_and_put_on() -> None:
    for kind in (Named("f", (FLOAT,)), Pointer(FLOAT, restrict=True), Opaque("x")):
        constant = cpp.with_const(kind, True)
        assert str(constant).count("const") == 1
        assert cpp.without_const(constant) == kind
        assert cpp.without_const(kind) is kind
    assert cpp.without_const(Pointer(Named("float", const=True))) == Pointer(Named("float", const=True))
    assert cpp.without_const(Reference(FLOAT)) == Reference(FLOAT)
    assert cpp.scalar_dtype(Named("float", const=True)) == np.float32
    assert cpp.scalar_dtype(Pointer(FLOAT)) is None


def test_arrays_that_are_taken_whole() -> None:
    for name in ("cudakit::tensor", "tensor", "my::tensor"):
        kind = Named(name, (Named("T"), Value("2")), const=True)
        assert cpp.is_tensor(kind)
        assert cpp.tensor_arguments(kind) == (Named("T"), Value("2"))
    for other in (Named("tensor"), Named("tensor", (FLOAT,)), Named("strided", (FLOAT, Value("2"))), Pointer(FLOAT)):
        assert not cpp.is_tensor(other)


def test_all_names_in_a_type() -> None:
    inner = Named("pair", (Named("K"), Value("sizeof(N) + 2")))
    kind = Pointer(Named("map", (inner, Opaque("typename Traits<T>::kind_"))))
    assert list(cpp.names_in(kind)) == ["map", "pair", "K", "sizeof", "N", "2", "typename", "Traits", "T", "kind_"]
    assert list(cpp.names_in(Reference(FLOAT))) == ["float"]
