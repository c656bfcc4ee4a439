"""Structs and arrays in Python to bytes, against NumPy's own of the same dtype."""

from __future__ import annotations

import ctypes
import dataclasses
import fractions
from types import SimpleNamespace
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.errors import ArgumentError, RangeError
from cudakit.types.packing import filled, struct_packer
from cudakit.types.structs import struct_dtype

pytestmark = pytest.mark.emulator


@dataclasses.dataclass
class Inner:
    u: np.uint16
    v: np.float16


@dataclasses.dataclass
class Outer:
    a: np.int8
    b: float
    inner: Inner
    c: Annotated[np.int32, (2, 2)]
    d: bool
    z: np.complex64
    n: np.uint64


def outer(**changes: Any) -> Outer:
    given: dict[str, Any] = {
        "a": -3, "b": 0.1, "inner": Inner(np.uint16(7), np.float16(0.5)), "c": [[1, 2], [3, -4]], "d": True,
        "z": 1 - 2j, "n": 2**64 - 1,
    }  # fmt: skip
    return Outer(**{**given, **changes})


def as_numpy(value: Outer, dtype: np.dtype) -> bytes:
    made = np.zeros((), dtype)
    for name in ("a", "b", "c", "d", "z", "n"):
        made[name] = getattr(value, name)
    made["inner"]["u"], made["inner"]["v"] = value.inner.u, value.inner.v
    return made.tobytes()


def test_a_dataclass_has_the_bytes_of_numpys_record() -> None:
    dtype = struct_dtype(Outer)
    pack = struct_packer(dtype, "f, parameter x")
    for value in (
        outer(),
        outer(a=np.int8(5), c=np.arange(4, dtype=np.int32).reshape(2, 2)),
        outer(c=7, z=np.complex64(3j), d=np.False_),
        outer(b=np.float32(0.5), n=np.uint8(3), inner=Inner(65535, 1)),  # type: ignore[arg-type]
    ):
        assert pack(value) == as_numpy(value, dtype)


def test_records_and_c_structures_go_as_they_are() -> None:
    dtype = np.dtype([("x", "f4"), ("n", "i4")])
    pack = struct_packer(dtype, "f")
    record = np.array((1.5, -2), dtype)
    structure = type("S", (ctypes.Structure,), {"_fields_": [("x", ctypes.c_float), ("n", ctypes.c_int)]})(1.5, -2)
    assert pack(record) == pack(record[()]) == pack(structure) == record.tobytes()
    assert pack(SimpleNamespace(x=1.5, n=-2)) == record.tobytes()


def test_one_field_alone_and_none() -> None:
    assert struct_packer(np.dtype([("x", "f8")]), "f")(SimpleNamespace(x=2.5)) == np.float64(2.5).tobytes()
    nothing = np.dtype({"names": [], "formats": [], "itemsize": 1})
    assert struct_packer(nothing, "f")(SimpleNamespace()) == b"\0"


def test_fields_that_share_bytes_and_fields_in_any_order() -> None:
    union = np.dtype({"names": ["a", "b"], "formats": ["u4", "u2"], "offsets": [0, 2], "itemsize": 8})
    assert struct_packer(union, "f")(SimpleNamespace(a=0x11112222, b=0x3333)) == bytes.fromhex("2222333300000000")
    turned = np.dtype({"names": ["a", "b"], "formats": ["u2", "u2"], "offsets": [4, 0], "itemsize": 6})
    assert struct_packer(turned, "f")(SimpleNamespace(a=1, b=2)) == bytes.fromhex("020000000100")


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"a": 200}, RangeError, r"f, parameter x, field a, takes int8, got 200 \(int\): outside -128 … 127"),
        ({"a": 1.5}, ArgumentError, "field a, takes int8, .*not an integer"),
        ({"n": -1}, RangeError, "field n, takes uint64"),
        ({"inner": Inner(1, 1e6)}, RangeError, r"field inner\.v, takes float16, .*beyond the largest"),  # type: ignore[arg-type]
        ({"inner": None}, ArgumentError, r"field inner\.u, is missing"),
        ({"c": [1, 2, 3]}, ArgumentError, r"field c, has shape \(2, 2\), got \(3,\)"),
        ({"c": [[1, 2], [3, 2**31]]}, RangeError, "field c, takes int32, got 2147483648"),
        ({"b": "1"}, ArgumentError, "field b, takes float64, .*not a number"),
        ({"d": 2}, RangeError, "field d, takes bool"),
    ],
)
def test_what_a_field_cannot_hold_is_told_by_its_name(changes: dict[str, Any], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        struct_packer(struct_dtype(Outer), "f, parameter x")(outer(**changes))


# ── arrays ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2, 3], "i2"), ([1, 2, 3], "f4"), (np.arange(3, dtype="u1"), "i8"), ([True, False, True], "u1"),
        ([0.1, 0.2, 0.3], "f2"), ([0.1, 1, 1e300], "f8"), ([1 + 1j, 2, 3], "c8"), ([1.5, 2, 3], "c16"),
        (np.arange(3, dtype="f8"), "f4"), ([1, 0, 1], "?"), ([np.inf, -np.inf, 0], "f4"), ([1, 2, 3], "f2"),
        ([fractions.Fraction(1, 2), 2, 3.5], "f4"), (np.array([1, 2, 3], object), "u1"), ([2**70, 1, 2], "f8"),
        (np.array([1, 2, 3]).astype(ml_dtypes.bfloat16), "f4"), ([1, 2.5, 3], ml_dtypes.bfloat16),
    ],
)  # fmt: skip
def test_arrays_that_a_dtype_holds(value: Any, dtype: Any) -> None:
    made = filled(value, np.dtype(dtype), (3,), "x")
    assert made.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(made, np.asarray(value).astype(dtype))


def test_a_number_fills_an_array_and_a_row_all_rows() -> None:
    np.testing.assert_array_equal(filled(2, np.dtype("f4"), (2, 3), "x"), np.full((2, 3), 2, "f4"))
    np.testing.assert_array_equal(filled([1, 2, 3], np.dtype("i4"), (2, 3), "x"), [[1, 2, 3]] * 2)
    assert filled([], np.dtype("f4"), (0,), "x").shape == (0,)


@pytest.mark.parametrize(
    ("value", "dtype", "kind", "words"),
    [
        ([1, 300], "u1", RangeError, "x takes uint8, got 300"),
        ([1, -1], "u8", RangeError, "x takes uint64, got -1"),
        (np.array([1, 2**63], "u8"), "i8", RangeError, "x takes int64, got 9223372036854775808"),
        ([0, 2], "?", RangeError, "x takes bool, got 2"),
        ([1.0, 2.0], "i4", ArgumentError, "not an integer"),
        ([1j, 2], "f4", ArgumentError, "complex number"),
        ([1.0, 1e39], "f4", RangeError, "beyond the largest float32"),
        ([1, 70000], "f2", RangeError, "beyond the largest float16"),
        (["a", "b"], "f4", ArgumentError, "x takes float32, got 'a' .*not a number"),
        ([None, 1], "f4", ArgumentError, "x takes float32, got None .*not a number"),
        ([2**70, 1], "i8", RangeError, "x takes int64, got 1180591620717411303424"),
        ([[1, 2], [3]], "f4", ArgumentError, "no array"),
        ([1, 2, 3], "f4", ArgumentError, r"x has shape \(2,\), got \(3,\)"),
        ([1 + 1e39j, 0], "c8", RangeError, "beyond the largest complex64"),
    ],
)
def test_arrays_that_a_dtype_does_not_hold(value: Any, dtype: str, kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        filled(value, np.dtype(dtype), (2,), "x")
