"""Reading debug information: each form of an attribute, and where a variable is kept."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cudakit.emulator.debug import dwarf
from cudakit.emulator.debug.dwarf import Location, Place

#: Numbers of DWARF 2 that the units below are made of.
UNIT, BASE, VARIABLE, FUNCTION, BLOCK, STRUCT, MEMBER = 0x11, 0x24, 0x34, 0x2E, 0x0B, 0x13, 0x0D
NAME, TYPE, LINE, LOCATION, SIZE, LOW, HIGH, OFFSET = 0x03, 0x49, 0x3B, 0x02, 0x0B, 0x11, 0x12, 0x38
SPECIFICATION, SYMBOL = 0x47, 0x2007
STRING, DATA1, DATA2, DATA4, DATA8, BLOCK1, ADDR, REF4 = 0x08, 0x0B, 0x05, 0x06, 0x07, 0x0A, 0x01, 0x13
OP_ADDR, OP_PLUS, OP_REGX = 0x03, 0x23, 0x90
#: Bytes in front of a unit's first entry.
HEAD = 11


def size_of(lines: Sequence[str]) -> int:
    return sum(
        int(line.split()[0][2:]) // 8 * len(line.split(None, 1)[1].split(","))
        for line in lines
        if not line.endswith(":")
    )


def text(string: str) -> list[str]:
    return [f".b8 {','.join(str(byte) for byte in [*string.encode(), 0])}"]


def bytes_of(*numbers: int) -> list[str]:
    return [f".b8 {','.join(map(str, numbers))}"]


def abbreviations(*entries: tuple[int, bool, Sequence[tuple[int, int]]]) -> list[str]:
    """Numbered from 1; numbers of more than seven bits are split as DWARF splits them."""
    data: list[int] = []
    for code, (tag, has_children, attributes) in enumerate(entries, 1):
        data += [code, tag, int(has_children)]
        for name, form in [*attributes, (0, 0)]:
            data += [name & 127 | 128, name >> 7] if name > 127 else [name]
            data += [form]
    return bytes_of(*data, 0)


def unit(entries: Sequence[str], version: int = 2) -> list[str]:
    return [f".b32 {size_of(entries) + 7}", f".b16 {version}", ".b32 .debug_abbrev", ".b8 8", *entries]


def ptx(**sections: Sequence[str]) -> str:
    return "\n".join(f"\t.section\t.debug_{name}\n\t{{\n" + "\n".join(sections[name]) + "\n\t}" for name in sections)


def variables(*attributes: tuple[int, int, Sequence[str]], **sections: Sequence[str]) -> list[dwarf.Variable]:
    """The variables of a unit of a type of 4 bytes and one variable."""
    shapes = [(UNIT, True, ()), (BASE, False, [(SIZE, DATA1)]), (VARIABLE, False, [each[:2] for each in attributes])]
    values = [line for each in attributes for line in each[2]]
    info = unit([".b8 1", ".b8 2", ".b8 4", ".b8 3", *values, ".b8 0"])
    return dwarf.read(ptx(abbrev=abbreviations(*shapes), info=info, **sections)).program


def variable(
    *attributes: tuple[int, int, Sequence[str]], **sections: Sequence[str]
) -> tuple[dwarf.Variable, dwarf.Entry | None]:
    """The one variable of a unit, and its type."""
    (read,) = variables(*attributes, **sections)
    return read, read.type


NAMED = (NAME, STRING, text("count"))
KEPT = (LOCATION, BLOCK1, [".b8 9", f".b8 {OP_ADDR}", ".b64 total"])


def test_without_debug_information_there_are_no_variables() -> None:
    assert dwarf.read(".visible .entry f() { ret; }") == dwarf.Symbols()
    assert dwarf.read(ptx(abbrev=abbreviations())) == dwarf.Symbols()
    assert dwarf.read(ptx(info=unit([]))) == dwarf.Symbols()


@pytest.mark.parametrize(
    ("form", "lines", "number"),
    [
        (DATA1, [".b8 200"], 200),
        (DATA2, [".b16 300"], 300),
        (DATA4, [".b32 70000"], 70000),
        (DATA8, [".b64 1099511627776"], 1 << 40),
        (0x0C, [".b8 1"], 1),
        (0x0D, [".b8 0x81,0x02"], 257),
        (0x0F, [".b8 0xff,0x7f"], 16383),
        (0x19, [], 1),
        (ADDR, [".b64 42"], 42),
        (0x10, [".b32 77"], 77),
        (0x17, [".b32 78"], 78),
    ],
)
def test_each_form_of_a_number(form: int, lines: list[str], number: int) -> None:
    read, _ = variable((LINE, form, lines), NAMED, KEPT)
    assert (read.line, read.name, read.locations) == (number, "count", (Location(Place("total")),))


@pytest.mark.parametrize(
    ("form", "bits"), [(0x11, 8), (0x12, 16), (REF4, 32), (0x14, 64), (0x15, 8)], ids=lambda number: f"{number:#x}"
)
def test_each_form_of_a_reference(form: int, bits: int) -> None:
    _, of = variable((TYPE, form, [f".b{bits} {HEAD + 1}"]), NAMED, KEPT)
    assert of is not None
    assert (of.tag, of.attributes) == ("base", {"size": 4})


@pytest.mark.parametrize(
    ("form", "size"), [(BLOCK1, ".b8 9"), (0x03, ".b16 9"), (0x04, ".b32 9"), (0x09, ".b8 9"), (0x18, ".b8 9")]
)
def test_each_form_of_a_block(form: int, size: str) -> None:
    read, _ = variable((LOCATION, form, [size, f".b8 {OP_ADDR}", ".b64 total"]), NAMED, (LINE, DATA1, [".b8 3"]))
    assert (read.line, read.locations) == (3, (Location(Place("total")),))


@pytest.mark.parametrize(("at", "name"), [("4", "two"), ("second", "two"), ("second+1", "wo"), ("0", "one")])
def test_strings_of_another_section(at: str, name: str) -> None:
    strings = [*text("one"), "second:", *text("two")]
    read, _ = variable((NAME, 0x0E, [f".b32 {at}"]), KEPT, (LINE, DATA1, [".b8 3"]), str=strings)
    assert (read.name, read.line) == (name, 3)


def test_a_form_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="form 0x21 of DWARF is not known here"):
        variable(NAMED, (LINE, 0x21, []), KEPT)


def test_attributes_that_are_not_used_are_left_out() -> None:
    _, of = variable((TYPE, REF4, [f".b32 {HEAD + 1}"]), (0x3A, DATA1, [".b8 1"]), NAMED, KEPT)
    assert of is not None
    assert set(of.attributes) == {"size"}


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ([f".b8 {OP_ADDR}", ".b64 total"], Place("total")),
        ([f".b8 {OP_ADDR}", ".b64 total", f".b8 {OP_PLUS},12"], Place("total", 12)),
        ([f".b8 {OP_ADDR}", ".b64 total", f".b8 {OP_PLUS},12,{OP_PLUS},4"], Place("total", 16)),
        # "%r1", its characters from the highest byte on: 0x257231.
        ([f".b8 {OP_REGX},0xb1,0xe4,0x95,0x01"], Place("%r1", 0, True)),
        ([f".b8 {OP_REGX},0xb1,0xe4,0x95,0x01,{OP_PLUS},8"], Place("%r1", 8, True)),
    ],
)
def test_places_of_a_variable(lines: list[str], place: Place) -> None:
    read, _ = variable(NAMED, (LOCATION, BLOCK1, [f".b8 {size_of(lines)}", *lines]))
    assert read.locations == (Location(place),)
    assert (read.line, read.type, read.first, read.end) == (0, None, "", "")


@pytest.mark.parametrize(
    "lines",
    [
        [".b8 0x11"],
        [f".b8 {OP_ADDR}", ".b64 total", f".b8 {OP_ADDR}", ".b64 other"],
        [f".b8 {OP_REGX},1,{OP_REGX},2"],
    ],
)
def test_places_that_cannot_be_computed_are_left_out(lines: list[str]) -> None:
    assert variables(NAMED, (LOCATION, BLOCK1, [f".b8 {size_of(lines)}", *lines])) == []


def test_a_variable_that_is_kept_in_one_place_after_the_other() -> None:
    first = [f".b8 {OP_REGX},1"]
    second = [f".b8 {OP_ADDR}", ".b64 total"]
    places = [
        "places:",
        *(".b64 begin", ".b64 middle", f".b16 {size_of(first)}", *first),
        *(".b64 middle", ".b64 end", ".b16 1", ".b8 0x11"),
        *(".b64 middle", ".b64 end", f".b16 {size_of(second)}", *second),
        *(".b64 0", ".b64 0"),
        *(".b64 never", ".b64 never", f".b16 {size_of(second)}", *second),
    ]
    read, _ = variable(NAMED, (LOCATION, DATA4, [".b32 places"]), loc=places)
    assert read.locations == (
        Location(Place("\1", 0, True), "begin", "middle"),
        Location(Place("total"), "middle", "end"),
    )


def test_variables_without_a_name_or_a_place_are_left_out() -> None:
    shapes = [(UNIT, True, ()), (VARIABLE, False, [(NAME, STRING)]), (VARIABLE, False, [(LOCATION, BLOCK1)])]
    info = unit([".b8 1", ".b8 2", *text("nowhere"), ".b8 3", *KEPT[2], ".b8 0"])
    assert dwarf.read(ptx(abbrev=abbreviations(*shapes), info=info)).program == []


def test_functions_have_their_variables_by_scope() -> None:
    shapes = [
        (UNIT, True, ()),
        (FUNCTION, True, [(NAME, STRING), (SYMBOL, STRING), (LOW, ADDR)]),
        (VARIABLE, False, [(NAME, STRING), (LOCATION, BLOCK1)]),
        (BLOCK, True, [(LOW, ADDR), (HIGH, ADDR)]),
        (BLOCK, True, ()),
        (FUNCTION, False, [(SYMBOL, STRING)]),
        (FUNCTION, False, [(SPECIFICATION, REF4), (LOW, ADDR)]),
    ]
    place = KEPT[2]
    entries = [".b8 1"]
    entries += [".b8 2", *text("f"), *text("_Z1fv"), ".b64 low"]
    entries += [".b8 4", ".b64 from", ".b64 to", ".b8 3", *text("inner"), *place, ".b8 0"]
    entries += [".b8 5", ".b8 3", *text("hidden"), *place, ".b8 0"]
    entries += [".b8 3", *text("outer"), *place, ".b8 0"]
    declared = HEAD + size_of(entries)
    entries += [".b8 6", *text("g"), ".b8 7", f".b32 {declared}", ".b64 low", ".b8 0"]
    symbols = dwarf.read(ptx(abbrev=abbreviations(*shapes), info=unit(entries)))
    assert list(symbols.functions) == ["_Z1fv", "g"]
    outer, inner = symbols.functions["_Z1fv"]
    assert (outer.name, outer.first, outer.end) == ("outer", "", "")
    assert (inner.name, inner.first, inner.end) == ("inner", "from", "to")
    assert symbols.functions["g"] == []
    assert symbols.program == []


def test_types_are_known_by_name_and_the_first_counts() -> None:
    shapes = [
        (UNIT, True, ()),
        (STRUCT, True, [(NAME, STRING), (SIZE, DATA1)]),
        (MEMBER, False, [(NAME, STRING), (OFFSET, BLOCK1)]),
        (STRUCT, False, [(SIZE, DATA1)]),
        (VARIABLE, False, [(NAME, STRING), (TYPE, REF4), (LOCATION, BLOCK1)]),
    ]
    entries = [".b8 1", ".b8 2", *text("Part"), ".b8 8"]
    entries += [".b8 3", *text("x"), ".b8 2", f".b8 {OP_PLUS},4", ".b8 0"]
    entries += [".b8 4", ".b8 16"]
    entries += [".b8 2", *text("Part"), ".b8 24", ".b8 0"]
    entries += [".b8 5", *text("part"), f".b32 {HEAD + 1}", *KEPT[2], ".b8 0"]
    symbols = dwarf.read(ptx(abbrev=abbreviations(*shapes), info=unit(entries)))
    assert list(symbols.types) == ["Part"]
    part = symbols.types["Part"]
    assert part.attributes["size"] == 8
    assert [(each.tag, each.attributes) for each in part.children] == [("member", {"name": "x", "offset": 4})]
    assert [(each.name, each.type) for each in symbols.program] == [("part", part)]


@pytest.mark.parametrize(("version", "count"), [(1, 1), (2, 2), (4, 2), (5, 1)])
def test_units_of_other_versions_are_left_out(version: int, count: int) -> None:
    shapes = [(UNIT, True, ()), (VARIABLE, False, [(NAME, STRING), (LOCATION, BLOCK1)])]
    entries = [".b8 1", ".b8 2", *text("x"), *KEPT[2], ".b8 0"]
    info = [*unit(entries, version), *unit(entries)]
    symbols = dwarf.read(ptx(abbrev=abbreviations(*shapes), info=info))
    assert [each.name for each in symbols.program] == ["x"] * count
