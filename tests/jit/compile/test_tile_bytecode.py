"""Tile IR bytecode: numbers, types, attributes and places are read as they were written, and damage is told."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from support.tile_writer import Body, integers, number, signed, table, written

from cudakit.errors import CompileError
from cudakit.jit.compile import tile_bytecode
from cudakit.jit.compile.tile_bytecode import _Bytes, _Module, _table, _tile_shape, read
from cudakit.jit.compile.tile_ir import (
    Bounded,
    DivisibleBy,
    Global,
    Place,
    Region,
    SameElements,
    TensorView,
    Tile,
    Type,
    View,
)

VERSIONS = [(13, k) for k in range(1, 6)]
F32, ARRAY = Tile((), "f32", True), TensorView((None, 8), (8, 1), "f32")
EMPTY = Body()
EMPTY.values("return", [])
CODE = written(EMPTY.module())


@pytest.mark.parametrize("value", [0, 1, 63, 64, 127, 128, 300, 1 << 14, (1 << 35) + 5])
def test_numbers(value: int) -> None:
    at = _Bytes(number(value) + signed(value) + signed(-value) + b"\x07")
    assert (at.number(), at.signed(), at.signed(), at.byte()) == (value, value, -value, 7)
    assert at.at == len(at.data)
    assert _Bytes(b"\0" * 3 + number(value), 3).number() == value


def test_rows_of_integers_and_alignment() -> None:
    at = _Bytes(integers((3, -1, 1 << 40), 8) + b"\0" + integers((-2,), 4))
    assert at.integers(8) == (3, -1, 1 << 40)
    at.align(2)
    assert at.at == 26
    at.at = 25
    at.align(13)
    assert at.at == 26
    at.align(13)
    assert at.at == 26
    assert at.integers(4) == (-2,)
    with pytest.raises(IndexError, match="it ends too early"):
        at.take(1)
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="an alignment of 0"):
            at.align(wrong)


def test_tables() -> None:
    pieces = [b"", b"abc", b"de"]
    for width in (4, 8):
        assert _table(table(pieces, width), width) == pieces
    assert _table(b"", 4) == []


def test_shapes_of_tiles() -> None:
    for shape in ((), (1,), (1 << 24,), (4, 1 << 22)):
        assert _tile_shape(shape) == shape
    for shape in ((0,), (-2,), (3,), (4, 6), (1 << 25,), (8, 1 << 22)):
        with pytest.raises(ValueError, match="a tile of shape"):
            _tile_shape(shape)


TYPES: list[tuple[tuple[int, int], Type]] = [
    ((13, 1), Tile((4, 8), "f32")),
    ((13, 1), Tile((), "i64")),
    ((13, 1), Tile((16,), "f16", True)),
    ((13, 1), ARRAY),
    ((13, 1), View((4, 8), ARRAY, (4, 8), (0, 1))),
    ((13, 1), View((8, 4), ARRAY, (8, 4), (1, 0), "zero")),
    ((13, 3), View((4, 8), ARRAY, (2, 8), (0, 1), "zero")),
    ((13, 3), View((4, 8), ARRAY, (4, 8), (0, 1), None, 1)),
]


@pytest.mark.parametrize(("since", "given"), TYPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_types(version: tuple[int, int], since: tuple[int, int], given: Type) -> None:
    body = Body(F32, given)
    body.values("return", [])
    code = written(body.module(), version)
    if version < since:
        with pytest.raises(CompileError, match=r"damaged, or has what is not known here: .*which is newer"):
            read(code)
        return
    found = read(code)
    assert (found.version, found.functions["k"].parameters) == (version, (F32, given))


@pytest.mark.parametrize("version", VERSIONS)
def test_variables_and_hints(version: tuple[int, int]) -> None:
    body = Body()
    body.values("return", [])
    constant = version >= (13, 3)
    first, second = Global(Tile((4,), "i8"), b"abcd", 16, constant), Global(Tile((1,), "f32"), b"\0" * 4, 4, False)
    module = body.module({"sm_90": {"occupancy": 2}}, first=first, second=second)
    found = read(written(module, version))
    assert found.globals == {"first": first, "second": second}
    assert found.functions["k"].hints == {"sm_90": {"occupancy": 2}}
    assert [each.name for each in found.functions["k"].operations] == ["return"]


def attribute(data: bytes) -> Any:
    """What an attribute's bytes say, in a module that has two strings and the type f32."""
    module = _Module(CODE, (13, 5))
    module.strings, module._types = ["first", "second"], [number(7), number(11), number(3)]
    at = _Bytes(data)
    found = module.tagged(at)
    assert at.at == len(data)
    return found


def test_attributes() -> None:
    assert attribute(b"\1" + number(2) + number(300)) == 300
    assert attribute(b"\2" + number(0) + signed(-5)) == ("f32", -5)
    assert attribute(b"\2" + number(1) + b"\xf3") == ("f8E5M2", 0xF3)
    assert [attribute(bytes([3, flag])) for flag in (0, 1)] == [False, True]
    assert attribute(b"\5" + number(1)) == "second"
    assert attribute(b"\6" + number(2) + b"\3\1" + b"\5\0") == [True, "first"]
    assert attribute(b"\x09" + integers((1, 4), 8)) == SameElements((1, 4))
    for code in (10, 11):
        assert attribute(bytes([code]) + number(1) + number(1) + b"\3\1") == {"second": True}
    for every, along in itertools.product((None, 3), (None, -1)):
        given = b"".join(signed(each) for each in (every, along) if each is not None)
        flags = (every is not None) | (along is not None) << 1
        assert attribute(b"\x08" + number(16) + bytes([flags]) + given) == DivisibleBy(16, every, along)
        assert attribute(b"\x0c" + bytes([flags]) + given) == Bounded(every, along)
    for code in (0, 4, 7, 13):
        with pytest.raises(ValueError, match=f"attribute {code}"):
            attribute(bytes([code]))


def test_types_that_are_damaged() -> None:
    module = _Module(CODE, (13, 5))
    module._types = [number(17), number(99), number(15) + b"\0" + integers((4,), 4) + number(0) + integers((0,), 4)]
    assert module.type(0) is not None
    for which, words in ((1, "type 99"), (2, "a view of what is no array")):
        with pytest.raises(ValueError, match=words):
            module.type(which)
    with pytest.raises(ValueError, match="a function's type is none"):
        module._signature(0)


def test_places_in_the_source() -> None:
    module = _Module(CODE, (13, 5))
    assert (module._place_starts, module._place_numbers) == ([], [])
    nothing = module._places_of(1)
    assert [next(nothing) for _ in range(3)] == [None] * 3
    module.strings = ["a.cu", "b.cu"]

    def at(file: int, line: int, column: int) -> bytes:
        return number(4) + number(9) + number(file) + number(line) + number(column)

    def called(callee: int, caller: int) -> bytes:
        return number(6) + number(callee) + number(caller)

    module._places = [at(0, 300, 2), at(1, 5, 1), at(0, 7, 3), called(1, 2), called(4, 3), called(0, 2), number(1)]
    outer, middle = Place("a.cu", 7, 3), Place("b.cu", 5, 1)
    assert module.place(0) is None
    assert module.place(1) == Place("a.cu", 300, 2)
    assert module.place(4) == Place("a.cu", 300, 2, middle)
    assert module.place(5) == Place("a.cu", 300, 2, Place("b.cu", 5, 1, outer))
    assert module.place(6) == middle
    assert module.place(7) is None
    module._place_starts, module._place_numbers = [0, 3], [1, 2, 0, 1, 3]
    own = module._places_of(1)
    assert [next(own) for _ in range(2)] == [middle, None]
    second = module._places_of(2)
    assert [next(second) for _ in range(3)] == [outer, None, None]
    assert next(module._places_of(0)) is None


def test_places_are_read_from_their_section() -> None:
    def offsets(values: list[int], width: int) -> bytes:
        made = number(len(values))
        return made + bytes(-len(made) % width) + b"".join(each.to_bytes(width, "little") for each in values)

    data = offsets([0, 2], 4)
    data += number(3) + bytes(-(len(data) + 1) % 8) + struct.pack("<3Q", 5, 6, 7)
    data += number(2) + bytes(-(len(data) + 1) % 4) + struct.pack("<2I", 0, 2) + b"abcde"
    code = CODE[:-1] + bytes([3 | 128]) + number(len(data)) + number(8)
    code += bytes(-len(code) % 8) + data + b"\0"
    module = _Module(code, (13, 5))
    assert (module._place_starts, module._place_numbers, module._places) == ([0, 2], [5, 6, 7], [b"ab", b"cde"])


def test_what_is_no_bytecode_is_refused() -> None:
    for wrong in (b"", CODE[:11], b"\x7fTileIS" + CODE[7:], CODE[1:]):
        with pytest.raises(CompileError, match=r"^this is not Tile IR bytecode$"):
            read(wrong)
    for version in ((13, 0), (13, 6), (12, 5), (14, 1)):
        with pytest.raises(CompileError, match=rf"version {version[0]}\.{version[1]} is not known .*: use"):
            read(CODE[:8] + bytes(version) + CODE[10:])
    for end in (12, 14, 20, len(CODE) - 1):
        with pytest.raises(CompileError, match="this Tile IR bytecode is damaged, or has what is not known here: "):
            read(CODE[:end])


def operations(data: bytes, parameters: int = 1) -> Any:
    module = _Module(CODE, (13, 5))
    module._types = [number(7), number(3)]
    places = itertools.repeat(None)
    return tile_bytecode._Body(module, data, parameters, places)


def test_operations_that_are_damaged() -> None:
    with pytest.raises(ValueError, match="operation 9999"):
        operations(number(9999)).operations()
    body = operations(number(2) + number(0))
    with pytest.raises(ValueError, match="a region of several blocks"):
        body._region()
    assert operations(number(0))._region() == Region((), (), [])
    body = operations(number(1) + number(2) + number(0) + number(1) + number(0), 3)
    assert body._region() == Region((3, 4), (Tile((), "f32"), Tile((), "i32")), [])
    assert (body._next, body.most) == (3, 5)
    broken = Body(Tile((), "f32"))
    broken.value("negf", Tile((), "f32"), 1)
    broken.values("return", [])
    with pytest.raises(CompileError, match="an operand that is no value yet"):
        read(written(broken.module()))
    right = Body(Tile((), "f32"))
    right.value("negf", Tile((), "f32"), 0)
    right.values("return", [])
    found = read(written(right.module())).functions["k"]
    assert [(each.name, each.results, each.operands) for each in found.operations] == [
        *(("negf", (1,), (0,)), ("return", (), ())),
    ]
