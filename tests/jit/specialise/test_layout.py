"""Structs of Python's beside those of C++: the compiler says whether size, fields and types are the same."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host
from support.tiers import thinned

import cudakit as ck

FIELDS = "{ float alpha; int width; int height; }"
KERNEL = "__global__ void f(%s p, %s* x) { x[0] = p.alpha; x[1] = p.width; x[2] = p.height; }"


@dataclass
class Grid:
    alpha: np.float32
    width: np.int32
    height: np.int32


@dataclass
class Wide:
    alpha: float
    width: int
    height: int


@dataclass
class Swapped:
    alpha: np.float32
    height: np.int32
    width: np.int32


@dataclass
class Mixed:
    alpha: np.int32
    width: np.float32
    height: np.int32


class InC(ctypes.Structure):
    _fields_ = (("alpha", ctypes.c_float), ("width", ctypes.c_int), ("height", ctypes.c_int))


RECORD = np.array([(0.5, 3, 4)], [("alpha", "f4"), ("width", "i4"), ("height", "i4")])[0]

#: How a source comes by its struct: the text, and what its header has. @ is the fields, $ the same of any T, and
#: kernel(type) a kernel.
SOURCES = {
    "plain": ("struct grid @; kernel(grid)", ""),
    "in a namespace, named shortly": ("namespace q { struct grid @; kernel(grid) }", ""),
    "beside another": ("struct grid { double other; int more; }; namespace q { struct grid @; kernel(grid) }", ""),
    "by using": ("namespace q { struct grid @; } using namespace q; kernel(grid)", ""),
    "alias in a namespace": ("struct base @; namespace q { using grid = const base; kernel(grid) }", ""),
    "typedef": ("typedef struct @ grid; kernel(grid)", ""),
    "nested": ("struct outer { struct grid @; }; kernel(outer::grid)", ""),
    "inherited": ("struct base @; struct grid : base {}; kernel(grid)", ""),
    "template": ("template <typename T> struct grid $; kernel(grid<float>)", ""),
    "template of T": ("template <typename T> struct grid $; template <typename T> kernel(grid<T>, T)", ""),
    "template in a namespace": ("namespace q { template <typename T> struct grid $; kernel(grid<float>) }", ""),
    "trait": (
        "struct grid @; template <typename T> struct of { using type = grid; };"
        "template <typename T> kernel(typename of<T>::type, T)", "",
    ),
    "header": ("kernel(grid)", "struct grid @;"),
    "header of a header": ("kernel(grid)", '#include "b.cuh"'),
    "header, in a namespace": ("namespace q { kernel(grid) }", "namespace q { struct grid @; }"),
    "header, qualified": ("kernel(q::grid)", "namespace q { struct grid @; }"),
    "header, template": ("kernel(grid<float>)", "template <typename T> struct grid $;"),
    "header without": ("kernel(grid)", "struct other;"),
    "nowhere": ("namespace q { kernel(grid) }", ""),
}  # fmt: skip


def kernel_of(what: str, folder: Path) -> ck.Kernel:
    def full(text: str) -> str:
        text = text.replace("@", FIELDS).replace("$", FIELDS.replace("float", "T"))
        return re.sub(r"kernel\((.*?)(?:, (T))?\)", lambda m: KERNEL % (m[1], m[2] or "float"), text)

    text, header = map(full, SOURCES[what])
    if header:
        (folder / "a.cuh").write_text(header)
        (folder / "b.cuh").write_text(full("struct grid @;"))
        text = f'#include "a.cuh"\n{text}'
    return ck.Kernel(text, options=ck.CompileOptions(include_paths=[folder]) if header else None)


@pytest.mark.parametrize("what", SOURCES)
def test_a_struct_is_found_as_the_compiler_finds_it(what: str, tmp_path: Path, stream: Any, xp: Any) -> None:
    kernel = kernel_of(what, tmp_path)
    values: list[Any] = [Grid(np.float32(0.5), np.int32(3), np.int32(4)), RECORD, InC(0.5, 3, 4)]
    for value in values:
        x = xp.zeros(3, "f4")
        kernel(stream, ck.config(1, 1), value, x)
        assert to_host(x).tolist() == [0.5, 3, 4]


@pytest.mark.parametrize("value", [Wide(0.5, 3, 4), Swapped(0.5, 4, 3), Mixed(1, 3.0, 4)], ids=type)
@pytest.mark.parametrize("what", [what for what in SOURCES if what not in ("nowhere", "header without")])
def test_another_layout_is_refused(what: str, value: Any, tmp_path: Path, stream: Any, xp: Any) -> None:
    with pytest.raises(ck.CompileError, match=r"struct .*: the Python side has"):
        kernel_of(what, tmp_path)(stream, ck.config(1, 1), value, xp.zeros(3, "f4"))


def test_the_error_says_how_wide_python_s_numbers_are(stream: Any, xp: Any, tmp_path: Path) -> None:
    with pytest.raises(ck.CompileError, match="int and float of a dataclass have 64 bits"):
        kernel_of("plain", tmp_path)(stream, ck.config(1, 1), Wide(0.5, 3, 4), xp.zeros(3, "f4"))


FIELD_TYPES = [
    ("float v;", "f4", "i4"),
    ("int v;", "i4", "f4"),
    ("unsigned v;", "u4", "i4"),
    ("long v;", "i8", "u8"),
    ("size_t v;", "u8", "f8"),
    ("char v;", "i1", "V2"),
    ("unsigned char v;", "u1", "i1"),
    ("bool v;", "?", "u1"),
    ("unsigned short v;", "u2", "f2"),
    ("float v[3];", "3f4", "3i4"),
    ("int v[2][3];", "(2,3)i4", "(2,3)u4"),
    ("float4 v;", "4f4", "4i4"),
    ("float2 v;", "c8", "2i4"),
    ("__half v;", "f2", ml_dtypes.bfloat16),
    ("__half v[2];", "2f2", (ml_dtypes.bfloat16, 2)),
    ("__nv_bfloat16 v;", ml_dtypes.bfloat16, "f2"),
    ("__nv_fp8_e5m2 v;", ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
    ("__nv_fp8_e4m3 v;", ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    ("__half2 v;", "2f2", (ml_dtypes.bfloat16, 2)),
    ("double v;", "f8", "c8"),
    ("double v;", "f8", "2f4"),
    ("float v[2];", "c8", "f8"),
    ("double2 v;", "c16", "2c8"),
    ("long long v;", "i8", "2i4"),
    ("unsigned char v[4];", "4u1", "u4"),
    ("bool v[4];", "4?", "(2,)u2"),
    ("float* v;", "u8", "f8"),
    ("enum E { A } v;", "i4", "f4"),
    ("struct { int a; float b; } v;", [("a", "i4"), ("b", "f4")], [("a", "f4"), ("b", "i4")]),
    ("struct { float a[2]; } v[2];", np.dtype(([("a", "2f4")], 2)), np.dtype(([("a", "2i4")], 2))),
]


@pytest.mark.parametrize(("declared", "right", "wrong"), thinned(FIELD_TYPES, 2, several=True))
def test_types_of_fields_are_those_of_the_struct(
    declared: str, right: Any, wrong: Any, stream: Any, xp: Any, tmp_path: Path
) -> None:
    headers = "#include <cuda_fp8.h>\n#include <cuda_bf16.h>\n" if "__" in declared else ""
    text = f"{headers}struct S {{ {declared} }}; __global__ void f(S s, const S* t, S* out) {{ out[0] = s; }}"
    kernel = ck.Kernel(text)
    value = np.frombuffer(bytes([1] * 256), np.dtype([("v", right)]), 1)[0]
    out = xp.asarray(np.zeros(1, value.dtype))
    kernel(stream, ck.config(1, 1), value, None, out)
    assert to_host(out).tobytes() == value.tobytes()
    other = np.zeros(1, [("v", wrong)])
    with pytest.raises(ck.CompileError, match="struct S: the Python side has"):
        kernel(stream, ck.config(1, 1), other[0], None, None)
    with pytest.raises(ck.CompileError, match="struct S: the Python side has"):
        kernel(stream, ck.config(1, 1), np.zeros(1, [("v", "V200")])[0], xp.asarray(other), None)


def test_packed_structs_and_fields_of_headers_types(stream: Any, xp: Any) -> None:
    text = """
    #include <cuda_fp16.h>
    #include <cuda/std/complex>
    #pragma pack(push, 1)
    struct S { char tag; double d; __half h; cuda::std::complex<float> c; };
    #pragma pack(pop)
    __global__ void f(S s, double* x) { x[0] = s.tag + s.d + (double)__half2float(s.h) + s.c.imag(); }
    """
    packed = np.dtype([("tag", "i1"), ("d", "f8"), ("h", "f2"), ("c", "c8")])
    x = xp.zeros(1)
    ck.Kernel(text)(stream, ck.config(1, 1), np.array((1, 2.5, 3, 4j), packed)[()], x)
    assert float(x[0]) == 10.5
    aligned = np.dtype([("tag", "i1"), ("d", "f8"), ("h", "f2"), ("c", "c8")], align=True)
    with pytest.raises(ck.CompileError, match="struct S: the Python side has field d at byte 8"):
        ck.Kernel(text)(stream, ck.config(1, 1), np.zeros((), aligned)[()], x)


def test_annotated_arrays_of_a_dataclass(stream: Any, xp: Any) -> None:
    @dataclass
    class Matrix:
        cells: Annotated[np.float32, (2, 2)]

    text = "namespace q { struct M { float cells[2][2]; }; __global__ void f(M m, float* x) { *x = m.cells[1][0]; } }"
    x = xp.zeros(1, "f4")
    ck.Kernel(text)(stream, ck.config(1, 1), Matrix([[1, 2], [3, 4]]), x)
    assert float(x[0]) == 3


def test_two_structs_of_one_layout_are_both_checked(stream: Any, xp: Any) -> None:
    structs = "struct A { int a; float b; }; struct B { float a; int b; };"
    text = f"{structs} __global__ void f(A a, B b, float* x) {{ *x = b.a; }}"
    value = np.zeros((), [("a", "i4"), ("b", "f4")])[()]
    with pytest.raises(ck.CompileError, match="struct B: the Python side has int32 for field a"):
        ck.Kernel(text)(stream, ck.config(1, 1), value, value, xp.zeros(1, "f4"))


def test_an_enumeration_takes_no_float(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("enum M { A, B }; __global__ void f(M m, int* y) { *y = (int)m; }")
    y = xp.zeros(1, "i4")
    kernel(stream, ck.config(1, 1), np.int32(1), y)
    assert int(y[0]) == 1
    with pytest.raises(ck.CudakitError, match=r"f: parameter m \(M\) is an enumeration.*float32"):
        kernel(stream, ck.config(1, 1), np.float32(1), y)


# ── names that could mean two things ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "value", "options"),
    [
        ("using real = float; namespace b { using real = double; kernel(real) }", 1.5, {}),
        ("using num = float; namespace b { using num = int; kernel(num) }", 3, {}),
        ("using num = float; struct b { using num = int; }; kernel(b::num)", 3, {}),
        ("namespace n { using size_t = float; kernel(size_t) }", 3, {}),
        ("namespace n { typedef short uint; kernel(uint) }", -3, {}),
        ("kernel(uint)", 3, {"defines": {"uint": "float"}}),
        ("#define float double\nkernel(float)", 2.5, {}),
        ("kernel(ulong)", 2.5, {"defines": {"ulong": "double"}}),
        ('#include "r.cuh"\nnamespace n { kernel(uint) }', 2.5, {}),
        ('#include "r.cuh"\nkernel(num)', 7, {}),
        ("#define num long\n#undef num\n#define num float\nkernel(num)", 2.5, {}),
        ("using num = float; namespace n { using num = int; template <typename T> kernel(T) }", 2.5, {"given": "num"}),
        ("namespace n { using half = float; kernel(half) }", 2.5, {}),
        ("namespace n { using uint = double; template <typename T> struct of { using type = uint; }; }"
         "kernel(n::of<int>::type)", 2.5, {}),
    ],
)  # fmt: skip
def test_the_compiler_says_what_a_name_means(
    text: str, value: float, options: dict[str, Any], tmp_path: Path, stream: Any, xp: Any
) -> None:
    (tmp_path / "r.cuh").write_text("namespace n { using uint = float; }\nusing num = int;")
    text = re.sub(
        r"kernel\((.*?)\)", r"__global__ void k(unsigned long long* y, \1 x) { *y = (long long)(x * 2); }", text
    )
    given = options.get("given")
    folder = {"include_paths": [tmp_path]} if "include" in text else {}
    kernel = ck.Kernel(text, options=ck.CompileOptions(**folder, defines=options.get("defines", ())))
    y = xp.zeros(1, "u8")
    (kernel[given] if given else kernel)(stream, ck.config(1, 1), y, value)
    assert int(y.view("i8")[0]) == int(value * 2)


def test_arrays_of_shadowed_types(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("namespace n { using uint = float; __global__ void k(uint* x) { x[0] *= 2; } }")
    x = xp.ones(1, "f4")
    kernel(stream, ck.config(1, 1), x)
    assert float(x[0]) == 2
    with pytest.raises(ck.ArgumentError, match="takes elements of float32"):
        kernel(stream, ck.config(1, 1), xp.ones(1, "u4"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("namespace n { struct float2 { double a; }; kernel(float2) }", (1.0, 2.0)),
        ("namespace n { struct half { double a; }; kernel(half) }", 1.5),
        ("struct half { double a; }; kernel(half)", 1.5),
    ],
)  # fmt: skip
def test_a_struct_that_hides_a_type_of_cuda_s(text: str, value: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(re.sub(r"kernel\((.*?)\)", r"__global__ void k(double* y, \1 v) { *y = v.a; }", text))
    y = xp.zeros(1)
    with pytest.raises(ck.ArgumentError, match=r"k: parameter v \(.*\) is a type that cudakit does not know"):
        kernel(stream, ck.config(1, 1), y, value)
    kernel(stream, ck.config(1, 1), y, np.array((2.5,), [("a", "f8")])[()])
    assert float(y[0]) == 2.5
    with pytest.raises(ck.CompileError, match="the Python side has"):
        kernel(stream, ck.config(1, 1), y, np.zeros((), [("a", "i8")])[()])


@pytest.mark.parametrize(
    ("head", "types"),
    [
        ("size_t n, const float4* x, uint32_t m, __half h", [None] * 4),
        ("real* x, real a, Body b", [None, None, np.dtype([("x", "f4")])]),
    ],
)
def test_names_with_one_meaning_ask_nothing_of_the_compiler(head: str, types: list[Any]) -> None:
    kernel = ck.Kernel(f"using real = float; struct Body {{ float x; }}; __global__ void f({head}) {{}}")
    assert not kernel.specialization(*types, arch="sm_90").needs_types


def test_arrays_of_arrays_of_ctypes(stream: Any, xp: Any) -> None:
    class Right(ctypes.Structure):
        _fields_ = [("cells", ctypes.c_uint32 * 2 * 3), ("pairs", InC * 2 * 2)]

    class Wrong(ctypes.Structure):
        _fields_ = [("cells", ctypes.c_float * 2 * 3), ("pairs", InC * 2 * 2)]

    names = [name for name, _ in InC._fields_]
    grid = f"struct Grid {{ float {names[0]}; int {names[1]}, {names[2]}; }};"
    text = f"{grid} struct S {{ unsigned cells[3][2]; Grid pairs[2][2]; }};"
    kernel = ck.Kernel(f"{text} __global__ void f(S s, unsigned* y) {{ y[0] = s.cells[2][1]; }}")
    generated = ck.Kernel("template <typename T> __global__ void f(T s, unsigned* y) { y[0] = s.cells[2][1]; }")
    value, y = Right(), xp.zeros(1, "u4")
    value.cells[2][1] = 7
    for each in (kernel, generated):
        each(stream, ck.config(1, 1), value, y)
        assert int(y[0]) == 7
        y[0] = 0
    with pytest.raises(ck.CompileError, match="struct S: the Python side has"):
        kernel(stream, ck.config(1, 1), Wrong(), y)
