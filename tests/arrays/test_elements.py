"""Element types that kernels compute with, and numbers beside arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cudakit as ck
from cudakit.arrays.output import accumulator, as_dtype, as_number, cpp, number_of, real_part

pytestmark = pytest.mark.emulator
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def test_numbers_as_template_arguments() -> None:
    assert number_of("op", np.dtype("c8")) == "cudakit::parts<float>"
    assert number_of("op", np.dtype("c16")) == "cudakit::parts<double>"
    for code in ("?", "i1", "u8", "f2", "f4", "f8", BFLOAT16):
        assert number_of("op", np.dtype(code)) == np.dtype(code)
    for wrong in ("f4,f4", "M8[s]", "S4", "longdouble", "clongdouble"):
        with pytest.raises(ck.ArgumentError, match=r"op: .* is not supported; expected bool, integers, floating"):
            number_of("op", np.dtype(wrong))


def test_types_in_cpp() -> None:
    assert [cpp("op", np.dtype(code)) for code in ("?", "i4", "f4", "f8")] == ["bool", "int", "float", "double"]
    assert cpp("op", BFLOAT16) == "__nv_bfloat16"
    assert "complex" in cpp("op", np.dtype("c8"))
    for wrong in ("f4,f4", "M8[s]", ">f4"):
        with pytest.raises(
            ck.ArgumentError, match=r"op: keys has dtype .*; expected bool, integers, floating point or"
        ):
            cpp("op", np.dtype(wrong), "keys")
    with pytest.raises(ck.ArgumentError, match="op: x has dtype"):
        cpp("op", np.dtype("S4"))


def test_what_sums_are_kept_in() -> None:
    assert [accumulator("op", np.dtype(code)) for code in ("?", "i1", "u2", "f2", "f4", "f8")] == [
        *(("long long", 8), ("long long", 8), ("unsigned long long", 8), ("float", 4), ("float", 4), ("double", 8)),
    ]
    assert accumulator("op", BFLOAT16) == ("float", 4)
    assert accumulator("op", np.dtype("c16"))[1] == 16


def test_real_parts_where_a_real_dtype_is_asked_for() -> None:
    x = np.array([1 + 2j])
    assert real_part(x, None) is x
    assert real_part(x, "c8") is x
    assert real_part(x, bool) is x
    assert real_part(x, "f4").tolist() == [1]
    assert real_part(x, "no dtype") is x
    real = np.ones(2)
    assert real_part(real, "f4") is real
    assert real_part(3, "f4") == 3
    bare: Any = SimpleNamespace(dtype=np.dtype("c8"))
    assert real_part(bare, "f4") is bare


def test_dtypes_that_are_asked_for() -> None:
    assert as_dtype("op", "f4") == np.float32
    with pytest.raises(ck.ArgumentError, match="op: dtype"):
        as_dtype("op", "no dtype")


def test_numbers_beside_arrays() -> None:
    found = as_number("op", "value", 3, np.dtype("f4"))
    assert (found, found.dtype) == (3, np.float32)
    assert as_number("op", "value", np.array(2), np.dtype("i8")) == 2
    for wrong, dtype in (("3", "f4"), (b"3", "f8"), ([1, 2], "f4"), (np.ones(2), "f8"), (None, "i4"), (300, "u1")):
        with pytest.raises(ck.ArgumentError, match=f"op: value takes {np.dtype(dtype)}, got "):
            as_number("op", "value", wrong, np.dtype(dtype))
