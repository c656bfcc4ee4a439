"""Assertions on the layouts of structs, by the compiler: those that hold compile, and each that does not is told."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck
from cudakit.errors import TemplateError
from cudakit.types import struct_source

pytestmark = pytest.mark.emulator

TEXT = """
#include <cuda_fp16.h>
struct Inner { unsigned short u; float v[2]; };
enum Colour { red };
struct All {
    bool flag; char c; signed char i; unsigned char u; short s; double d; Inner inner; Inner more[2]; float4 vector;
    __half h; Colour colour; void* pointer; const int constant; long long wide;
};
"""
INNER = np.dtype([("u", "u2"), ("v", "f4", (2,))], align=True)
ALL = np.dtype(
    [
        ("flag", "?"), ("c", "i1"), ("i", "i1"), ("u", "u1"), ("s", "i2"), ("d", "f8"), ("inner", INNER),
        ("more", INNER, (2,)), ("_pad", "V12"), ("vector", "f4", (4,)), ("h", "f2"), ("colour", "i4"),
        ("pointer", "u8"), ("constant", "i4"), ("wide", "i8"),
    ],
    align=True,
)  # fmt: skip


def record(dtype: np.dtype) -> np.dtype:
    """The same without the field that stands for padding."""
    assert dtype.fields is not None
    names = [name for name in dtype.names or () if name != "_pad"]
    size = -(-dtype.itemsize // 16) * 16
    formats, offsets = [dtype.fields[name][0] for name in names], [dtype.fields[name][1] for name in names]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def compiled(*assertions: str) -> None:
    text = f"{TEXT}{struct_source.SUPPORT}{''.join(assertions)}__global__ void f(All a, const Inner* x, float* y) {{}}"
    ck.Kernel(text, "f").compile(arch="sm_90")


def test_what_holds_compiles() -> None:
    compiled(
        struct_source.struct_assertions("a", "All", "All", record(ALL)),
        struct_source.struct_assertions("b", "Inner", "Inner", INNER),
        struct_source.struct_assertions("d", "void", "what is no struct here", INNER),
        struct_source.number_assertion("Colour", "Colour", np.dtype("i4")),
        struct_source.number_assertion("float", "y", np.dtype("f4")),
        struct_source.number_assertion("__half", "h", np.dtype("f2")),
        struct_source.number_assertion("Inner", "bytes", np.dtype("V12")),
    )


def test_what_does_not_hold_is_told() -> None:
    wrong = {
        "size": np.dtype([("u", "u2"), ("v", "f4", (2,)), ("more", "i4")], align=True),
        "offset": np.dtype({"names": ["u", "v"], "formats": ["u2", ("f4", 2)], "offsets": [2, 4], "itemsize": 12}),
        "field's size": np.dtype({"names": ["u", "v"], "formats": ["u2", "f8"], "offsets": [0, 4], "itemsize": 12}),
        "field's type": np.dtype([("u", "i2"), ("v", "i4", (2,))], align=True),
    }
    texts = [
        struct_source.struct_assertions(f"w{k}", "Inner", f"Inner{k}", dtype) for k, dtype in enumerate(wrong.values())
    ]
    numbers = [
        struct_source.number_assertion("Colour", "paint", np.dtype("f4")),
        struct_source.number_assertion("Inner", "pair", np.dtype("i4")),
        struct_source.number_assertion("float", "thin", np.dtype("f2")),
    ]
    with pytest.raises(ck.CompileError) as caught:
        compiled(*texts, *numbers, struct_source.struct_assertions("n", "float", "real", INNER))
    told = str(caught.value)
    for words in (
        "struct Inner0: the Python side has 16 bytes; the C++ struct has another size",
        "struct Inner1: the Python side has field u at byte 2; the C++ struct has it elsewhere",
        "struct Inner2: the Python side has float64 for field v; the C++ struct has another type",
        "struct Inner3: the Python side has int16 for field u; the C++ struct has another type",
        "paint is an enumeration; the Python side has float32, no integer",
        "pair is a struct; the Python side has an integer; numpy.void is for bytes",
        "thin is another type; the Python side has float16",
        "struct real: the Python side has a struct; the C++ type is none",
    ):
        assert words in told, told


def test_fields_are_identifiers() -> None:
    with pytest.raises(TemplateError, match="a field of struct S has the name 'a; b'"):
        struct_source.struct_assertions("t", "S", "S", np.dtype([("a; b", "i4")]))


def test_a_parameter_is_named_by_its_position() -> None:
    assert struct_source.number_assertion("x", "x", np.dtype("V4")) == ""
    assert "parameter<3, decltype(+f<int>)>" in struct_source.parameter(3, "f<int>")
