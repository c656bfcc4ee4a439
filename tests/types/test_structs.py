"""Structs: dataclasses laid out as C lays them out, and the C++ text of a struct."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Annotated, Any

import ml_dtypes
import numpy as np
import pytest

from cudakit.errors import TemplateError
from cudakit.types import struct_source, structs

pytestmark = pytest.mark.emulator


@dataclasses.dataclass
class Point:
    x: np.float32
    y: np.float32


@dataclasses.dataclass
class Mixed:
    a: np.int8
    b: np.float64
    c: bool
    d: Annotated[np.int16, 3]
    point: Point
    e: np.uint8
    points: Annotated[Point, (2, 2)]
    count: int
    real: float


@dataclasses.dataclass
class Nothing:
    pass


class CPoint(ctypes.Structure):
    _fields_ = [("x", ctypes.c_float), ("y", ctypes.c_float)]


class CMixed(ctypes.Structure):
    _fields_ = [
        ("a", ctypes.c_int8), ("b", ctypes.c_double), ("c", ctypes.c_bool), ("d", ctypes.c_int16 * 3),
        ("point", CPoint), ("e", ctypes.c_uint8), ("points", (CPoint * 2) * 2), ("count", ctypes.c_int64),
        ("real", ctypes.c_double),
    ]  # fmt: skip


def test_a_dataclass_is_laid_out_as_c_lays_it_out() -> None:
    found = structs.struct_dtype(Mixed)
    assert found.names == tuple(name for name, *_ in CMixed._fields_)
    assert found.itemsize == ctypes.sizeof(CMixed)
    assert found.fields is not None
    for name in found.names:
        place = getattr(CMixed, name)
        assert found.fields[name][1] == place.offset
        assert found.fields[name][0].itemsize == place.size
    assert structs.struct_dtype(CMixed) == np.dtype(CMixed)
    assert structs.struct_dtype(np.dtype(CPoint)) == np.dtype(CPoint)
    small = dataclasses.make_dataclass("Small", [("a", np.int8), ("b", np.uint8), ("c", bool)])
    assert structs.struct_dtype(small).itemsize == 3


def test_complex_numbers_are_aligned_as_cuda_std_has_them() -> None:
    kind = dataclasses.make_dataclass("Signal", [("n", np.int32), ("z", np.complex64), ("m", np.int8), ("w", complex)])
    found = structs.struct_dtype(kind)
    assert found.fields is not None
    assert [found.fields[name][1] for name in ("n", "z", "m", "w")] == [0, 8, 16, 32]
    assert found.itemsize == 48


def test_an_empty_struct_has_a_byte_as_in_cpp() -> None:
    assert structs.struct_dtype(Nothing).itemsize == 1


def test_what_stands_for_a_struct() -> None:
    for kind in (Point, CPoint, np.dtype([("x", "f4")])):
        assert structs.is_struct_type(kind)
    for other in (int, np.float32, np.dtype("f4"), Point(np.float32(1), np.float32(2)), "Point", CPoint * 2):
        assert not structs.is_struct_type(other)


@pytest.mark.parametrize("hint", [str, list, object, "U3", np.longdouble, dict[str, int], np.dtype(">f4")])
def test_a_field_that_cpp_has_no_type_for_is_named(hint: Any) -> None:
    kind = dataclasses.make_dataclass("Wrong", [("good", np.float32), ("bad", hint if hint != "U3" else np.str_)])
    with pytest.raises(TemplateError, match=r"field 'bad' of Wrong has type .*no C\+\+ equivalent"):
        structs.struct_dtype(kind)


def test_what_an_array_is_of() -> None:
    assert structs.innermost(np.dtype("f4")) == (np.dtype("f4"), ())
    assert structs.innermost(np.dtype(("f4", (2, 3)))) == (np.dtype("f4"), (2, 3))
    assert structs.innermost(np.dtype((np.dtype(("f4", (3,))), (2,)))) == (np.dtype("f4"), (2, 3))
    assert structs.innermost(np.dtype((ctypes.c_int * 4) * 5)) == (np.dtype("i4"), (5, 4))


def test_names_in_cpp_text_are_identifiers() -> None:
    assert struct_source.identifier("x_1", "a field") == "x_1"
    for name in ("1x", "a b", "x; }", "", "a-b"):
        with pytest.raises(TemplateError, match=r"^a field has the name .* no C\+\+ identifier"):
            struct_source.identifier(name, "a field")
    assert structs.struct_name(Point) == "Point"
    one, other = np.dtype([("x", "f4")]), np.dtype([("x", "f8")])
    assert structs.struct_name(one) == structs.struct_name(np.dtype([("x", "f4")]))
    assert structs.struct_name(one) != structs.struct_name(other)
    assert structs.struct_name(one).isidentifier()


def offsets_in(text: str) -> dict[str, int]:
    """Where the members of a struct lie by the rules of C, of text that has scalars and arrays of them only."""
    sizes = {"float": 4, "double": 8, "signed char": 1, "short": 2, "unsigned char": 1, "int": 4, "__half": 2}
    found, end = {}, 0
    for line in text.splitlines()[1:-1]:
        declared, _, rest = line.strip(" ;").rpartition(" ")
        name, *extents = rest.replace("]", "").split("[")
        size = sizes[declared]
        end = -(-end // size) * size
        found[name] = end
        end += size * int(np.prod([int(extent) for extent in extents], dtype=int))
    return found


def test_the_text_of_a_struct_has_its_layout() -> None:
    aligned = np.dtype([("a", "i1"), ("b", "f8"), ("c", "i2", (2, 3)), ("h", "f2")], align=True)
    apart = np.dtype({"names": ["a", "b"], "formats": ["f4", "i4"], "offsets": [8, 32], "itemsize": 48})
    late = np.dtype({"names": ["a"], "formats": ["i1"], "offsets": [1], "itemsize": 2})
    for dtype in (aligned, apart, late):
        text = struct_source.definition("S", dtype, {})
        assert text.startswith("struct S {\n")
        assert text.endswith("};\n")
        found = offsets_in(text)
        assert dtype.fields is not None
        assert {name: found[name] for name in dtype.names or ()} == {n: f[1] for n, f in dtype.fields.items()}
    assert "unsigned char cudakit_pad_36[12];" in struct_source.definition("S", apart, {}), "to its size"
    assert "pad" not in struct_source.definition("S", aligned, {})


def test_structs_in_a_struct_are_defined_before_it_once() -> None:
    inner = np.dtype([("x", "f4")])
    outer = np.dtype([("a", inner), ("b", inner, (2,)), ("c", np.dtype([("y", "i4")]))])
    known: dict[np.dtype, str] = {}
    text = struct_source.definition("Outer", outer, known)
    name = structs.struct_name(inner)
    assert text.count(f"struct {name} {{") == 1
    assert text.index(f"struct {name} {{") < text.index("struct Outer {")
    assert f"    {name} a;\n    {name} b[2];\n" in text
    assert known[outer] == "Outer"
    assert known[inner] == name
    given = struct_source.definition("Outer", outer, {inner: "Mine"})
    assert "    Mine a;\n" in given
    assert "struct Mine" not in given


def test_a_layout_that_cpp_has_not_is_refused() -> None:
    packed = np.dtype([("a", "i1"), ("b", "f4")])
    with pytest.raises(TemplateError, match=r"field 'b' of struct S is at byte 1, .*float's alignment 4; .*align=True"):
        struct_source.definition("S", packed, {})
    with pytest.raises(TemplateError, match="a field of struct S has the name 'a b'"):
        struct_source.definition("S", np.dtype([("a b", "f4")]), {})
    with pytest.raises(TemplateError, match=r"field 'x' of struct S has dtype >f4, .* not in native byte order"):
        struct_source.definition("S", np.dtype([("x", ">f4")]), {})
    with pytest.raises(TemplateError, match=r"has dtype <U3, which has no C\+\+ equivalent$"):
        structs.spelling(np.dtype("U3"), "x")
    assert structs.spelling(np.dtype(ml_dtypes.bfloat16), "x") == "__nv_bfloat16"
