"""What goes into a kernel by value: exactly what was given, or an error that names kernel, parameter and field."""

from __future__ import annotations

import ctypes
import fractions
from dataclasses import dataclass, replace
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.types import scalars

PAIR = "struct P { float a; int b; }; __global__ void pk(P p, float* y) { y[0] = p.a; y[1] = p.b; }"


def run(kernel: ck.Kernel, stream: Any, *arguments: Any) -> None:
    kernel(stream, ck.config(1, 1), *arguments)


# ── vectors ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("head", ["double2 v", "const double2 v"])
@pytest.mark.parametrize("value", [np.array([1.0, 2.0]), np.array([1, 2], "i4"), np.array([1, 2], ">f8"), (1.0, 2)])
def test_an_array_is_a_vector_s_components(head: str, value: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(f"__global__ void k(double* y, {head}) {{ y[0] = v.x; y[1] = v.y; }}")
    for _ in range(3):
        y = xp.zeros(2)
        run(kernel, stream, y, value)
        assert to_host(y).tolist() == [1, 2]


def test_a_vector_s_components_by_template(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("template <typename T> __global__ void k(float* y, T v) { y[0] = v.x; y[1] = v.y; }")["float2"]
    y = xp.zeros(2, "f4")
    run(kernel, stream, y, xp.asarray([1, 2], "f4"))
    assert to_host(y).tolist() == [1, 2]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([1.0, 2.0]), "not an integer"),
        (np.array([1, 2, 3]), "takes 2 numbers, got 3"),
        (np.array([[1, 2]]), "takes 2 numbers"),
        (np.array(1), "takes 2 numbers"),
        (np.array([1, 3_000_000_000]), "outside"),
        (np.array([None, "x"]), "not an integer"),
        (("1", 2), "not an integer"),
    ],
)
def test_an_array_that_is_no_such_vector(value: Any, why: str, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(int* y, int2 v) { y[0] = v.x; y[1] = v.y; }")
    with pytest.raises(ck.ArgumentError, match=rf"k: parameter v \(int2\).*{why}"):
        run(kernel, stream, xp.zeros(2, "i4"), value)


@pytest.mark.parametrize("value", ["2.5", b"2.5", None])
def test_text_is_no_number(value: Any, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel("__global__ void k(float* y, float2 v) {}")
    with pytest.raises(ck.ArgumentError, match=r"k: parameter v \(float2\).*not a number"):
        run(kernel, stream, xp.zeros(2, "f4"), (value, 1.0))


# ── objects, byte order, bytes ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "array", [np.array(["text", {}], dtype=object), np.array([(1, None)], [("a", "i4"), ("b", "O")]), np.array(None)]
)
@pytest.mark.parametrize("head", ["void* p", "unsigned long long* p", "S* p", "S p"])
def test_arrays_of_python_objects_are_refused(array: Any, head: str) -> None:
    kernel = ck.Kernel(f"struct S {{ int a; void* b; }}; __global__ void k({head}) {{}}")
    for value in (array, array[0] if array.ndim else array):
        if isinstance(value, np.ndarray | np.void):
            with pytest.raises(ck.ArgumentError, match=r"k: argument p: .*Python objects"):
                run(kernel, ck.emulator.stream(), value)


def test_bytes_are_taken_for_any_struct_of_their_size(stream: Any, xp: Any) -> None:
    data = np.array((1.5, 3), [("a", "f4"), ("b", "i4")])[()].tobytes()
    for text in (PAIR, f"namespace q {{ {PAIR} }}", PAIR.replace("float a", "float a[1]").replace("p.a", "p.a[0]")):
        kernel = ck.Kernel(text)
        for _ in range(3):
            y = xp.zeros(2, "f4")
            run(kernel, stream, np.void(data), y)
            assert to_host(y).tolist() == [1.5, 3]
        with pytest.raises(ck.ArgumentError, match=r"pk: parameter p \(.*P\).* 8 bytes.*12"):
            run(kernel, stream, np.void(data + b"1234"), y)


# ── fields of structs ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class P:
    a: np.float32
    b: np.int32


@dataclass
class Deep:
    flag: np.bool_
    inner: P
    table: Annotated[np.int16, (2, 2)]
    c: np.complex64


DEEP = """
struct P { float a; int b; }; struct D { bool flag; P inner; short table[2][2]; __align__(8) float2 c; };
__global__ void k(D d, float* y) { y[0] = d.flag; y[1] = d.inner.b; y[2] = d.table[1][0]; y[3] = d.c.y; }
"""


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (P(1, 2.9), "field b, takes int32, got 2.9 .float.: not an integer"),
        (P(1, np.float32(2)), "field b, takes int32.*not an integer"),
        (P(None, 1), "field a, takes float32, got None"),
        (P("2.5", 1), "field a, takes float32, got '2.5' .str.: not a number"),
        (P(1e39, 1), "field a, takes float32.*beyond the largest float32"),
        (P(10**400, 1), "field a, takes float32.*too large"),
        (P(1j, 1), "field a, takes float32.*complex"),
        (P(1, 2**31), "field b, takes int32.*outside"),
        (P(1, None), "field b, takes int32, got None"),
        (P(1, [1]), "field b, takes int32"),
    ],
)
def test_a_field_takes_what_it_can_hold(value: Any, why: str, stream: Any, xp: Any) -> None:
    kernel, y = ck.Kernel(PAIR), xp.zeros(2, "f4")
    with pytest.raises(ck.ArgumentError, match=rf"pk: parameter p \(P\), {why}"):
        run(kernel, stream, value, y)
    run(kernel, stream, P(0.5, 7), y)
    assert to_host(y).tolist() == [0.5, 7]
    with pytest.raises(ck.ArgumentError, match=rf"pk: parameter p \(P\), {why}"):
        run(kernel, stream, value, y)


@pytest.mark.parametrize(
    "value", [P(0.5, True), P(np.float64(0.5), np.int64(1)), P(np.float16(0.5), 1), P(0.5, np.bool_(1))]
)
def test_a_field_takes_numbers_of_any_type(value: Any, stream: Any, xp: Any) -> None:
    y = xp.zeros(2, "f4")
    run(ck.Kernel(PAIR), stream, value, y)
    assert to_host(y).tolist() == [0.5, 1]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"flag": 2}, "field flag, takes bool, got 2"),
        ({"flag": "yes"}, "field flag, takes bool, got 'yes'"),
        ({"inner": P(1, 2.5)}, "field inner.b, takes int32, got 2.5"),
        ({"inner": None}, "field inner.a, is missing"),
        ({"table": [[1, 2], [3, 40000]]}, "field table, takes int16, got 40000"),
        ({"table": [[1, 2], [3, 4.5]]}, r"field table, takes int16, got 1.0"),
        ({"table": [1, 2, 3]}, "field table, has shape"),
        ({"table": [[1, 2], [3, None]]}, "field table, takes int16, got None"),
        ({"c": "1j"}, "field c, takes complex64, got '1j'"),
        ({"c": 1e39j}, "field c, takes complex64.*beyond"),
    ],
)
def test_nested_fields_arrays_and_bools(change: dict[str, Any], why: str, stream: Any, xp: Any) -> None:
    kernel, y, good = ck.Kernel(DEEP), xp.zeros(4, "f4"), Deep(True, P(1, 2), [[1, 2], [3, 4]], 5j)
    run(kernel, stream, good, y)
    assert to_host(y).tolist() == [1, 2, 3, 5]
    with pytest.raises(ck.ArgumentError, match=why):
        run(kernel, stream, replace(good, **change), y)


def test_structs_in_the_other_byte_order_are_refused(stream: Any, xp: Any) -> None:
    class Big(ctypes.BigEndianStructure):
        _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_int))

    record = np.array((1.5, 3), [("a", ">f4"), ("b", ">i4")])
    for value in (Big(1.5, 3), record, record[()]):
        with pytest.raises(ck.ArgumentError, match=r"pk: argument p: .*byte order"):
            run(ck.Kernel(PAIR), stream, value, xp.zeros(2, "f4"))


# ── variables ────────────────────────────────────────────────────────────────────────────────────────────────────────

VARIABLES = """
using real = float; struct S { int a, b; };
__device__ int counter; __constant__ float table[2]; __device__ unsigned char byte; __device__ real alias;
__device__ S s;
namespace n { using uint = float; __device__ uint shadowed; }
__device__ unsigned long long big;
__global__ void gl(float* y) {
    y[0] = counter; y[1] = table[1]; y[2] = byte; y[3] = alias; y[4] = s.b; y[5] = n::shadowed; y[6] = big == ~0ull;
}
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("counter", 3_000_000_000),
        ("counter", 2.9),
        ("counter", np.float32(2)),
        ("counter", None),
        ("counter", "3"),
        ("counter", np.array([2**31])),
        ("table", [1e300, 1]),
        ("table", [1, None]),
        ("table", ["1", "2"]),
        ("table", [1j, 0]),
        ("table", np.array([1, 2], object) * 1j),
        ("byte", 300),
        ("byte", -1),
        ("alias", 1e39),
        ("s", [1, 2]),
        ("s", object()),
        ("s", np.array([None])),
        ("s", np.array((1, 2), [("a", ">i4"), ("b", ">i4")])),
        ("n::shadowed", 1e39),
        ("big", 2**64),
    ],
)
def test_a_variable_takes_what_it_can_hold(name: str, value: Any, stream: Any) -> None:
    kernel = ck.Kernel(VARIABLES)
    with pytest.raises(ck.ArgumentError, match=name):
        kernel.globals.write(name, value, stream)


def test_variables_hold_what_was_given(stream: Any, xp: Any) -> None:
    kernel, y = ck.Kernel(VARIABLES), xp.zeros(7, "f4")
    values = {
        "counter": np.int64(-5), "table": np.array([1, 2], ">f8"), "byte": 255, "alias": 0.5, "big": 2**64 - 1,
        "s": np.array((1, 2), [("a", "i4"), ("b", "i4")]), "n::shadowed": np.float32(2.5),
    }  # fmt: skip
    for name, value in values.items():
        kernel.globals.write(name, value, stream)
    run(kernel, stream, y)
    assert to_host(y).tolist() == [-5, 2, 255, 0.5, 2, 2.5, 1]
    assert kernel.globals.read("alias", stream).dtype == np.float32
    kernel.globals.write("table", 3, stream)
    assert kernel.globals.read("table", stream).tolist() == [3, 3]


@pytest.mark.parametrize("value", [2.9, 3_000_000_000, np.float32(2), np.str_("2")])
def test_a_graph_s_numbers_are_checked_alike(value: Any, stream: Any, xp: Any) -> None:
    kernel, y = ck.Kernel("__global__ void k(int* y, int n) { *y = n; }"), xp.zeros(1, "i4")
    with ck.capture(stream, n=5) as graph:
        run(kernel, stream, y, graph["n"])
    with pytest.raises(ck.ArgumentError, match=r"graph: n|parameter n"):
        graph(stream, n=value)
    graph(stream, n=7)
    stream.sync()
    assert int(y[0]) == 7


# ── what random calls found ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", [np.void(b"12345678"), np.bytes_(b"1"), np.ma.masked, np.ma.masked_array(1.0)])
def test_what_float_would_read_and_is_no_number(value: Any, stream: Any, xp: Any) -> None:
    kernel, y = ck.Kernel(PAIR), xp.zeros(2, "f4")
    with pytest.raises(ck.ArgumentError, match=r"(?s)field a, takes float32.*not a number"):
        run(kernel, stream, P(value, 1), y)
    vector = ck.Kernel("__global__ void k(float2 v) {}")
    with pytest.raises(ck.ArgumentError, match=r"(?s)parameter v \(float2\) takes float32.*not a number"):
        run(vector, stream, (value, 1.0))


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("f4", 2**60 + 2**36 + 1, 0x5D80_0001),
        ("f4", np.longdouble(1) + np.longdouble(2) ** -24 + np.longdouble(2) ** -62, 0x3F80_0001),
        ("f4", fractions.Fraction(2**60 + 2**36 + 1), 0x5D80_0001),
        ("f2", 2**15 + 2**4 + 1, 0x7801),
        (ml_dtypes.bfloat16, 1 + 2.0**-8 + 2.0**-40, 0x3F81),
        (ml_dtypes.bfloat16, -1 - 2.0**-8 - 2.0**-40, 0xBF81),
        (ml_dtypes.bfloat16, 1 + 2.0**-8, 0x3F80),
        (ml_dtypes.bfloat16, 2**60 + 2**52 + 1, 0x5D81),
        (ml_dtypes.float8_e4m3fn, 1 + 2.0**-4 + 2.0**-30, 0x39),
    ],
)
def test_numbers_are_rounded_once(dtype: Any, value: Any, bits: int) -> None:
    wanted = np.dtype(dtype)
    made = scalars.to_bytes(scalars.converter(wanted, "a")(value), wanted)
    assert made == bits.to_bytes(wanted.itemsize, "little")


def test_infinity_is_refused_where_there_is_none() -> None:
    for value in (float("inf"), -np.float32(np.inf), 1e300):
        with pytest.raises(ck.ArgumentError, match="float8_e4m3fn"):
            scalars.converter(np.dtype(ml_dtypes.float8_e4m3fn), "a")(value)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8"])
def test_a_nan_keeps_its_bits(dtype: str, stream: Any, xp: Any) -> None:
    bits = {"f2": 0x7D01, "f4": 0x7F80_0102, "f8": 0x7FF0_0102_0304_0506, "c8": 0x7FC0_0102_FFC0_0304}[dtype]
    size = np.dtype(dtype).itemsize
    value = np.frombuffer(bits.to_bytes(size, "little"), dtype)[0]
    kernel = ck.Kernel("template <typename T> __global__ void k(T a, T* y) { y[0] = a; }")
    y = xp.zeros(1, dtype)
    for _ in range(3):
        run(kernel, stream, value, y)
        assert to_host(y).tobytes() == bits.to_bytes(size, "little")


def test_a_pack_has_the_types_of_its_arguments_in_their_order(stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(
        "template <typename T> __device__ int put(long long*& y, T x) { *y++ = sizeof(T); *y++ = x; return 0; }"
        "template <typename... T> __global__ void k(long long* y, T... x) { int all[] = {0, put(y, x)...}; (void)all; }"
    )
    y = xp.zeros(8, "i8")
    run(kernel, stream, y, 65535, np.uint8(1), 2.0, np.int16(3))
    assert to_host(y).tolist() == [4, 65535, 1, 1, 8, 2, 2, 3]


@pytest.mark.parametrize("head", ["T x", "T... x"])
def test_the_type_of_a_number_does_not_depend_on_earlier_ones(head: str, stream: Any, xp: Any) -> None:
    pack = "..." if "..." in head else ""
    kernel = ck.Kernel(
        f"template <typename{pack} T> __global__ void k(int* y, {head}) {{"
        f" int size[] = {{sizeof(T){pack}}}; bool negative[] = {{T(-1) < T(0){pack}}};"
        " y[0] = negative[0] ? -size[0] : size[0]; }"
    )
    y = xp.zeros(1, "i4")
    for _ in range(2):
        for value, size in ((2**63, 8), (2**40, -8), (1, -4), (2**64 - 1, 8), (-(2**40), -8), (2**31, -8), (0, -4)):
            run(kernel, stream, y, value)
            assert to_host(y).tolist() == [size], value


def test_the_text_of_a_function_object_is_no_struct(stream: Any) -> None:
    kernel = ck.Kernel("struct S { char a; }; struct Add {}; __global__ void k(S s, Add f) {}")
    s = np.array((1,), [("a", "i1")])[()]
    run(kernel, stream, s, "Add")
    for wrong in ((np.void(b"1"), "S"), ("S2", "Add"), ("2.5", "Add")):
        with pytest.raises(ck.ArgumentError, match=r"k: parameter"):
            run(kernel, stream, *wrong)


@pytest.mark.parametrize("head", ["Same<long long>* p", "const Same<double>* p", "Same<long long> p", "int (*p)(int)"])
def test_a_struct_is_not_taken_for_what_is_none(head: str, stream: Any, xp: Any) -> None:
    kernel = ck.Kernel(f"template <typename T> using Same = T; __global__ void k({head}) {{}}")
    array = xp.zeros(2, np.dtype([("a", "f4"), ("b", "f4")]))
    with pytest.raises(ck.CudakitError, match=r"the C\+\+ type is none|parameter p"):
        run(kernel, stream, array if "*" in head else to_host(array)[0])


@pytest.mark.parametrize("value", [np.float16(1), ml_dtypes.bfloat16(1), np.datetime64(3, "s")])
def test_only_integers_are_enumerations(value: Any, stream: Any) -> None:
    under = "long long" if value.dtype.itemsize == 8 else "short"
    kernel = ck.Kernel(f"enum class E : {under} {{ A, B }}; __global__ void k(E e) {{}}")
    with pytest.raises(ck.CudakitError, match=r"no integer|cannot be|takes"):
        run(kernel, stream, value)


@pytest.mark.parametrize(
    "value", [ctypes.c_char_p(b"a"), ctypes.c_wchar("a"), ctypes.c_char(b"a"), ctypes.py_object(3)]
)
def test_ctypes_that_are_no_numbers(value: Any, stream: Any) -> None:
    for head in ("int p", "void* p", "char* p"):
        with pytest.raises(ck.ArgumentError, match=r"argument p: .* cannot be a kernel argument"):
            run(ck.Kernel(f"__global__ void k({head}) {{}}"), stream, value)


def test_a_list_that_is_no_array(stream: Any, xp: Any) -> None:
    value = Deep(True, P(0, 0), [[ctypes.c_uint(1), 0], [0, 0]], 0j)
    with pytest.raises(ck.ArgumentError, match=r"parameter d \(D\), field table, has shape \(2, 2\), got"):
        run(ck.Kernel(DEEP), stream, value, xp.zeros(4, "f4"))


def test_an_unknown_keyword_names_the_kernel(stream: Any, xp: Any) -> None:
    kernel, y = ck.Kernel("__global__ void fill(float* y) {}"), xp.zeros(1, "f4")
    for _ in range(2):
        with pytest.raises(TypeError, match=r"fill.*'z'"):
            kernel(stream, ck.config(1, 1), y=y, z=1)
        run(kernel, stream, y)


@pytest.mark.parametrize("value", [np.float64(1), np.int64(1), np.datetime64(3, "s"), np.float32(1), np.uint32(1)])
@pytest.mark.parametrize("head", ["S s", "n::S s", "U s"])
def test_a_number_is_no_struct(value: Any, head: str, stream: Any) -> None:
    fields = "int a, b;" if value.nbytes == 8 else "short a, b;"
    text = f"struct S {{ {fields} }}; namespace n {{ struct S {{ {fields} }}; }} union U {{ {fields} }};"
    with pytest.raises(ck.CudakitError, match=r"parameter s \(.*\) is a struct.*numpy.void|takes a struct"):
        run(ck.Kernel(f"{text} __global__ void k({head}) {{}}"), stream, value)


@pytest.mark.parametrize("value", [np.longdouble(1), np.clongdouble(1)])
def test_long_doubles_have_no_type_in_cuda(value: Any, stream: Any) -> None:
    size = value.dtype.itemsize // 8
    text = f"struct S {{ long long a[{size}]; }}; template <typename T> struct Q {{ using type = T; }};"
    heads = ["S s"] if size > 2 else ["S s", "__int128 s", "Q<__int128>::type s"]
    for head in heads:
        kernel = ck.Kernel(f"{text} __global__ void k({head}) {{}}").with_options(extra={"device_int128": True})
        with pytest.raises(ck.CudakitError, match=r"parameter s .* (is a struct|takes|is a type that)"):
            run(kernel, stream, value)


@pytest.mark.parametrize("value", [np.timedelta64(3, "s"), np.timedelta64(3, "ns"), np.datetime64(3, "s")])
def test_times_are_no_numbers(value: Any, stream: Any) -> None:
    for head in ("long long n", "double n"):
        with pytest.raises(ck.ArgumentError, match=r"k: parameter n .* takes (int|float)64, got"):
            run(ck.Kernel(f"__global__ void k({head}) {{}}"), stream, value)
