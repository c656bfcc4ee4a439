"""Deduction, explicit template arguments, and what each parameter takes: no GPU and no compiler needed."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit.jit.compile import compiled, mangled
from cudakit.jit.compile import nvrtc as compile
from cudakit.jit.launch.bind import Callee, bind
from cudakit.jit.specialise import spellings
from cudakit.jit.specialise.options import is_arch
from cudakit.jit.specialise.specialise import bound_parameter
from cudakit.types.arguments import Argument, Evidence, describe
from cudakit.types.cpp import parse_type, split_arguments

SAXPY = "template <typename T> __global__ void saxpy(T a, const T* x, T* y, size_t n) {}"


def array(dtype: Any, rank: int = 1, readonly: bool = False) -> Evidence:
    return Evidence("array", f"an array of {np.dtype(dtype)}", np.dtype(dtype), rank, readonly)


def name(kernel: ck.Kernel, *evidence: Evidence) -> str:
    return kernel._calls.specialized(evidence, "sm_90", "cubin")[0].name_expression


def weak(value: Any) -> Evidence:
    return describe(value).evidence


@pytest.mark.parametrize(
    ("dtype", "spelled"),
    [
        ("?", "bool"), ("i1", "signed char"), ("u1", "unsigned char"), ("i2", "short"), ("u2", "unsigned short"),
        ("i4", "int"), ("u4", "unsigned int"), ("i8", "long long"), ("u8", "unsigned long long"), ("f2", "__half"),
        ("f4", "float"), ("f8", "double"), ("c8", "cuda::std::complex<float>"), ("c16", "cuda::std::complex<double>"),
        (ml_dtypes.bfloat16, "__nv_bfloat16"), (ml_dtypes.float8_e4m3fn, "__nv_fp8_e4m3"),
        (ml_dtypes.float8_e5m2, "__nv_fp8_e5m2"),
    ],
)  # fmt: skip
def test_each_dtype_has_its_type(dtype: Any, spelled: str) -> None:
    kernel = ck.Kernel(SAXPY)
    assert name(kernel, weak(1.0), array(dtype), array(dtype), weak(5)) == f"saxpy<{spelled}>"
    assert kernel[np.dtype(dtype)].specialization(arch="sm_90").name_expression == f"saxpy<{spelled}>"


def test_python_numbers_follow_typed_arguments() -> None:
    kernel = ck.Kernel("template <typename T> __global__ void f(T a, T b) {}")
    assert name(kernel, weak(2), weak(np.float32(1))) == "f<float>"
    assert name(kernel, weak(2), weak(3)) == "f<int>"
    assert name(kernel, weak(2.0), weak(3.0)) == "f<double>"
    assert name(kernel, weak(2**40), weak(2**40)) == "f<long long>"
    assert name(kernel, weak(True), weak(False)) == "f<bool>"


def test_conflicts_name_both_arguments() -> None:
    kernel = ck.Kernel(SAXPY)
    with pytest.raises(ck.TemplateError) as caught:
        name(kernel, weak(1.0), array("f4"), array("f8"), weak(1))
    message = str(caught.value)
    assert "float from x (an array of float32)" in message
    assert "double from y (an array of float64)" in message
    assert name(kernel[np.float32], weak(1.0), array("f4"), array("f8"), weak(1)) == "saxpy<float>"


def test_typed_scalars_take_part() -> None:
    with pytest.raises(ck.TemplateError, match=r"double from a .*float from x|float from x .*double from a"):
        name(ck.Kernel(SAXPY), weak(np.float64(1)), array("f4"), array("f4"), weak(1))


def test_missing_argument_is_named() -> None:
    with pytest.raises(ck.TemplateError, match="N cannot be deduced"):
        name(ck.Kernel("template <typename T, int N> __global__ void f(T* x) {}"), array("f4"))


def test_defaults_are_left_to_cpp_or_filled_in() -> None:
    kernel = ck.Kernel("template <typename T, int N = 2 * sizeof(T), typename U = T> __global__ void f(T* x, U* y) {}")
    assert name(kernel, array("f4"), array("f8")) == "f<float, 2 * sizeof(float), double>"
    assert name(kernel[np.float32], Evidence("address", "None"), Evidence("address", "None")) == "f<float>"


def test_positional_named_and_mixed_template_arguments() -> None:
    kernel = ck.Kernel("template <typename T, int BLOCK, bool FLAG = false> __global__ void f(T* x) {}")
    expected = "f<float, 256, true>"
    for bound in (
        kernel[np.float32, 256, True],
        kernel["float", 256, "true"],
        kernel[np.float32]["BLOCK":256, "FLAG":True],
        kernel[{"T": "float", "BLOCK": 256, "FLAG": np.True_}],
        kernel[np.float32, {"BLOCK": np.int64(256), "FLAG": True}],
    ):
        assert bound.specialization(arch="sm_90").name_expression == expected
    assert kernel[np.float32, 1] is kernel[np.float32, 1]
    assert kernel[np.float32, 1] is not kernel[np.float32, True]


@pytest.mark.parametrize(("given", "spelled"), [
    ("float32", "float"), ("int8", "signed char"), ("uint64", "unsigned long long"), ("float16", "__half"),
    ("bfloat16", "__nv_bfloat16"), ("complex64", "cuda::std::complex<float>"), ("bool", "bool"),
    ("float", "float"), ("int", "int"), ("double", "double"), ("half", "half"), ("short", "short"),
])  # fmt: skip
def test_a_type_is_named_as_numpy_or_cpp_names_it(given: str, spelled: str) -> None:
    pytest.importorskip("ml_dtypes")
    kernel = ck.Kernel("template <typename T> __global__ void f(int* x) {}")
    assert kernel[given].specialization(arch="sm_90").name_expression == f"f<{spelled}>"


@pytest.mark.parametrize("own", ["struct float32 { char c; };", "typedef char float32;", "enum float32 : char { a };"])
def test_a_type_of_the_source_comes_before_numpys_names(own: str) -> None:
    kernel = ck.Kernel(f"{own} template <typename T> __global__ void f(int* x) {{ *x = sizeof(T); }}")
    x = np.zeros(1, np.int32)
    kernel["float32"](ck.emulator.stream(), ck.config(1, 1), x)
    assert x[0] == 1


@pytest.mark.parametrize("value", [-(2**63), 1 - 2**63, -1, 2**63 - 1])
def test_whole_numbers_of_64_bits(value: int) -> None:
    kernel = ck.Kernel("template <long long N> __global__ void f(long long* x) { *x = N; }")
    x = np.zeros(1, np.int64)
    kernel[value](ck.emulator.stream(), ck.config(1, 1), x)
    assert x[0] == value


class Mode(enum.IntEnum):
    FAST = 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (256, "T is a type"),
        (1.5, "T is a type"),
        ((np.float32, np.float32), "N is a value"),
        ((np.float32, 1.5), "N is a value"),
        ((np.float32, 1, 2), "takes 2 template arguments"),
        ({"U": 1}, "no template parameter 'U'; it has T, N"),
        ((np.float32, {"T": np.float64}), "given twice"),
        (np.dtype(">f4"), "native byte order"),
        (np.dtype("U4"), "no C\\+\\+ equivalent"),
        ("", "empty string"),
    ],
)
def test_wrong_template_arguments_are_named(given: Any, why: str) -> None:
    with pytest.raises(ck.TemplateError, match=why):
        ck.Kernel("template <typename T, int N> __global__ void f(T* x) {}")[given]


def test_enum_values() -> None:
    text = "enum class Mode { slow, fast }; template <Mode M, int N> __global__ void f(int* x) {}"
    kernel = ck.Kernel(text)
    assert kernel[Mode.FAST, Mode.FAST].specialization(arch="sm_90").name_expression == "f<static_cast<Mode>(1), 1>"
    assert kernel["Mode::fast", 2].specialization(arch="sm_90").name_expression == "f<Mode::fast, 2>"


def test_packs() -> None:
    kernel = ck.Kernel("template <int N, typename... Ts> __global__ void f(int* out, Ts... xs) {}")[3]
    spec = kernel._calls.specialized((array("i4"), weak(np.int8(1)), weak(np.float32(2))), "sm_90", "cubin")[0]
    assert spec.name_expression == "f<3, signed char, float>"
    assert [parameter.dtype for parameter in spec.parameters] == [np.dtype("i4"), np.dtype("i1"), np.dtype("f4")]


def test_strided_deduces_type_and_rank() -> None:
    kernel = ck.Kernel("""template <typename T, int RANK>
        __global__ void f(cudakit::strided<const T, RANK> x, cudakit::strided<T, RANK> y) {}""")
    spec = kernel._calls.specialized((array("f4", 3, readonly=True), array("f4", 3)), "sm_90", "cubin")[0]
    assert spec.name_expression == "f<float, 3>"
    assert [(parameter.category, parameter.count, parameter.const) for parameter in spec.parameters] == [
        ("strided", 3, True),
        ("strided", 3, False),
    ]
    with pytest.raises(ck.TemplateError, match="RANK is 3 from x"):
        name(kernel, array("f4", 3), array("f4", 2))


def test_complex_component_is_deduced() -> None:
    kernel = ck.Kernel("template <typename R> __global__ void f(const cuda::std::complex<R>* x, R* y) {}")
    assert name(kernel, array("c8"), array("f4")) == "f<float>"


def test_references_are_refused_with_a_reason() -> None:
    with pytest.raises(ck.TemplateError, match="x is a reference"):
        ck.Kernel("__global__ void f(const float& x) {}").specialization(arch="sm_90")


@dataclass
class Labelled:
    name: str


@dataclass
class Pair:
    a: np.int8
    b: np.float64


def test_structs_by_dataclass_get_cpp_layout() -> None:
    kernel = ck.Kernel("template <typename P> __global__ void f(P p) {}")
    spec = kernel[Pair].specialization(arch="sm_90")
    assert spec.name_expression == "f<Pair>"
    assert "struct Pair {" in "".join(spec.prelude)
    assert spec.parameters[0].dtype.itemsize == 16
    with pytest.raises(ck.TemplateError, match="field 'name' of Labelled has type"):
        kernel[Labelled]


def test_aliases_of_the_source_are_followed() -> None:
    text = "using real = float; typedef const real* input; __global__ void f(input x, real y) {}"
    parameters = ck.Kernel(text).specialization(arch="sm_90").parameters
    assert [(parameter.category, parameter.dtype, parameter.const) for parameter in parameters] == [
        ("pointer", np.dtype("f4"), True), ("scalar", np.dtype("f4"), False)
    ]  # fmt: skip


def test_pointers_to_rows_take_their_elements() -> None:
    kernel = ck.Kernel("""
        #include <cuda_fp16.h>
        template <typename T, int N>
        __global__ void f(
            float (*a)[16], const T b[][N], double c[3][4], T (*__restrict__ d)[2][N], float* const (*e)[4]) {}
        """)["__half", 8]
    spec = kernel.specialization(arch="sm_90")
    made = compile.Request(spec._replace(parameters=None, kernels=())).compile()
    types = mangled.parameter_types(made.lowered[compiled.type_of(spec.name_expression)])
    expected = [("f4", False), ("f2", True), ("f8", False), ("f2", False), ("u8", True)]
    by_compiler = [bound_parameter("", cpp, None, None, kernel.module.declarations, None) for cpp in types]
    for parameters in (spec.parameters, by_compiler):
        assert [(parameter.category, parameter.dtype, parameter.const) for parameter in parameters] == [
            ("pointer", np.dtype(code), const) for code, const in expected
        ]


def test_dim3_is_a_vector() -> None:
    (parameter,) = ck.Kernel("__global__ void f(dim3 size) {}").specialization(arch="sm_90").parameters
    assert (parameter.category, parameter.dtype, parameter.count) == ("vector", np.dtype("u4"), 3)


def memory(dtype: Any) -> Argument:
    return Argument(None, "memory", array(dtype), pointer=4096, shape=(96,), contiguous=True, device_id=0)


def test_a_pointer_to_a_type_that_nobody_knows_takes_bytes() -> None:
    text = "struct State { int words[12]; }; __global__ void f(State* __restrict__ states) {}"
    (parameter,) = ck.Kernel(text).specialization(arch="sm_90").parameters
    target = Callee("f", 0, False)
    assert bind(parameter, memory("u1"), target, 8, False).form == "q"
    assert bind(parameter, memory([("words", "i4", 12)]), target, 8, False).form == "q"
    assert bind(parameter, describe(None), target, 8, False).value == "0"
    with pytest.raises(ck.ArgumentError, match=r"points to a type that cudakit does not know.*float32.*view\('u1'\)"):
        bind(parameter, memory("f4"), target, 8, False)


def test_unknown_kernel_names_are_answered_with_near_ones() -> None:
    with pytest.raises(ck.TemplateError, match="saxpy"):
        ck.Kernel(SAXPY, "saxpi")
    with pytest.raises(ck.TemplateError, match="__global__"):
        ck.Kernel("__device__ void helper() {}")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("float const*", "const float*"),
        ("unsigned", "unsigned int"),
        ("long long unsigned int", "unsigned long long"),
        ("cuda::std::complex< float >", "cuda::std::complex<float>"),
        ("ns::A<ns::B<int>, 3>*", "ns::A<ns::B<int>, 3>*"),
        ("char const* const*", "const char* const*"),
        ("typename A<T>::b", "typename A<T>::b"),
    ],
)
def test_types_are_read_from_text(text: str, shown: str) -> None:
    assert str(parse_type(text)) == shown


def test_split_at_top_level_commas() -> None:
    assert split_arguments("A<int, 2>, f(1, 2), x") == ["A<int, 2>", "f(1, 2)", "x"]
    assert split_arguments("") == []


@pytest.mark.parametrize("name", ['x\n#include "/etc/hostname"\n', "x; float y", "a b", "x[2]", "", "1st", "x)", "µ-σ"])
def test_names_from_data_are_identifiers_or_refused(name: str) -> None:
    field = np.dtype([("ok", "f4"), (name or " ", "f4")])
    nested = np.dtype([("inner", field)])
    template = ck.Kernel("template <class S> __global__ void q(const S* x) {}")
    named = ck.Kernel("struct S { float ok, other; }; __global__ void q(const S* x, S y) {}")
    stream = ck.emulator.stream("sm_90")
    for dtype in (field, nested):
        with pytest.raises(ck.TemplateError, match="no C\\+\\+ identifier"):
            template[dtype].compile(arch="sm_90")
        with pytest.raises(ck.TemplateError, match="no C\\+\\+ identifier"):
            template(stream, ck.config(1, 1), np.zeros(2, dtype))
    with pytest.raises(ck.CudakitError):
        named(stream, ck.config(1, 1), np.zeros(2, field), np.zeros((), field))


def test_a_file_s_name_stays_within_its_line(tmp_path: Path) -> None:
    folder = tmp_path / 'a"\n#error planted\n"'
    folder.mkdir()
    path = folder / "k.cu"
    path.write_text("template <class T> __global__ void k(T* x) { *x = 1; }")
    kernel = ck.Kernel.from_file(path)
    assert kernel[np.dtype([("a", "f4")])].specialization(arch="sm_90").text.count("#error") == 1
    assert "\n#error" not in kernel[np.float16].specialization(arch="sm_90").text
    assert kernel[np.float16].compile(arch="sm_90").code


@pytest.mark.parametrize("pattern", [spellings._DECLARING, spellings._DEFINING])
@pytest.mark.parametrize(
    "text",
    [
        "void f(word x);", "using word = int;", "typedef int word;", "struct word;", "union { int a; } word;", "}word;",
        "class a { int b; }\n\t word;", "enum word { a };", "#define word 1", "# define word", "{ } swords;", "} words",
        "template <typename word> void f(word x) { }", "int word; // }", "structure(word)", "",
    ],
)  # fmt: skip
def test_declarations_are_counted_as_by_the_pattern_alone(pattern: str, text: str) -> None:
    """Most texts need no regular expression."""
    assert spellings._count.__wrapped__(pattern, "word", text) == len(re.findall(pattern.format("word"), text))


@pytest.mark.parametrize(
    "arch", ["sm_90", "sm_90a", "sm_100f", "sm_9", "sm_", "sm_a", "sm_90A", "sm_90aa", "sm_9a0", "sm_-9", "sm_ 90",
             "sm_90 ", "SM_90", "xsm_90", "compute_90", "", "sm_٣", "sm_²", "sm_90\n", None, 90, b"sm_90"],
)  # fmt: skip
def test_names_of_archs(arch: object) -> None:
    assert is_arch(arch) == (isinstance(arch, str) and re.fullmatch(r"sm_\d+[af]?", arch) is not None)
