"""Random kernel parameters: their C++ text, what the kernel writes of each, random arguments, what to expect."""

from __future__ import annotations

import ctypes
import dataclasses
import random
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from support.fuzz.judge import Held, Judge
from support.fuzz.numbers import CODES, DTYPES, HEADERS, SPELLINGS, WEIGHTS, Value, any_number, of_python, right, wrong

#: What a call must write for one argument; None where it must be refused.
Expected = list[Held] | None


class Argument(NamedTuple):
    """A Python object for one parameter, what the kernel must write of it, and its type where a template deduces it."""

    value: Any
    expected: Expected
    type: str | None = None


@dataclasses.dataclass
class Parameter:
    """One parameter of a kernel.

    Attributes
    ----------
    text : str
        Its type and name in the kernel's head, ``{name}`` for the name.
    writes : str
        Statements that write it, ``{name}`` for the name.
    make : callable
        A random argument.
    before : str
        Declarations that it needs, at namespace scope.
    headers : set of str
    deduces : str
        Name of the template parameter that its argument decides; empty for none.
    """

    text: str
    writes: str
    make: Callable[[random.Random, Judge], Argument]
    before: str = ""
    headers: set[str] = dataclasses.field(default_factory=set)
    deduces: str = ""


#: Written before everything: what writes values to the output, and says what a type is.
SUPPORT: Final = """
template <typename T> __device__ void put(unsigned char*& out, const T& value) {
    const unsigned char* bytes = reinterpret_cast<const unsigned char*>(&value);
    for (int i = 0; i < (int)sizeof(T); ++i) *out++ = bytes[i];
}
template <typename T, typename U> __device__ void put_as(unsigned char*& out, const U& value) {
    static_assert(sizeof(T) == sizeof(U), "another size");
    put(out, value);
}
"""


def header_of(code: str) -> set[str]:
    return {HEADERS[code]} if code in HEADERS else set()


def a_code(random: random.Random, allowed: str = "") -> str:
    codes = [code for code in SPELLINGS if not allowed or DTYPES[code].kind in allowed]
    return random.choices(codes, [WEIGHTS[code] for code in codes])[0]


def a_value(random: random.Random, code: str) -> Value:
    chance = random.random()
    return right(random, code) if chance < 0.8 else any_number(random) if chance < 0.95 else wrong(random)


def _judged(judge: Judge, code: str, value: Value) -> Expected:
    held = None if value.given is None else judge(code, value.given)
    return None if held is None else [held]


# ── scalars ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def scalar(random: random.Random, number: int) -> Parameter:
    """A number by value, its type spelled in one of the many ways."""
    code = a_code(random)
    spelling = random.choice(SPELLINGS[code])
    headers = header_of(code)
    if spelling.endswith("_t") and "ptrdiff" not in spelling and "size_t" not in spelling:
        headers |= {"cstdint"}
    elif "std::size_t" in spelling or "ptrdiff" in spelling:
        headers |= {"cstddef"}
    before, name = _spelled(random, number, spelling)
    text = random.choice([f"{name} {{name}}", f"const {name} {{name}}", f"{name} const {{name}}", f"{name} {{name}}"])

    def make(random: Any, judge: Judge) -> Argument:
        value = a_value(random, code)
        return Argument(value.value, _judged(judge, code, value))

    return Parameter(text, "put(out, {name});", make, before, headers)


def _spelled(random: random.Random, number: int, spelling: str) -> tuple[str, str]:
    """Declarations and a name by which a type is called: its own, an alias, a macro, an alias that hides another."""
    other = random.choice(["float", "int", "double", "unsigned char"])
    ways: list[tuple[str, str]] = [
        (f"using alias{number} = {spelling};\n", f"alias{number}"),
        (f"typedef {spelling} alias{number};\n", f"alias{number}"),
        (f"#define MACRO{number} {spelling}\n", f"MACRO{number}"),
        (f"namespace space{number} {{ using num = {spelling}; }}\n", f"space{number}::num"),
        (f"using num = {other};\nnamespace space{number} {{ using num = {spelling}; }}\n", f"space{number}::num"),
        (f"struct Traits{number} {{ using type = {spelling}; }};\n", f"Traits{number}::type"),
        (f"struct Traits{number} {{ using type = {spelling}; }};\n", f"typename Traits{number}::type"),
        (
            f"template <typename T> struct Same{number} {{ using type = T; }};\n",
            f"typename Same{number}<{spelling}>::type",
        ),
        (f"template <typename T> using Alias{number} = T;\n", f"Alias{number}<{spelling}>"),
        (
            f"namespace deep{number} {{ namespace er {{ typedef {spelling} num; }} using er::num; }}\n",
            f"deep{number}::num",
        ),
        (
            f"namespace n{number} {{ using num = {spelling}; }}\nusing n{number}::num;\n" if number == 0 else "",
            "num" if number == 0 else spelling,
        ),
    ]
    return random.choice(ways) if random.random() < 0.35 else ("", spelling)


def enumeration(random: random.Random, number: int) -> Parameter:
    """An enumeration, scoped or not, of some underlying type."""
    code = random.choice(["i4", "i4", "u1", "i8", "u2", "u4", "u8", "i1"])
    under = SPELLINGS[code][0]
    scoped = random.random() < 0.6
    kind = f"enum {'class ' if scoped else ''}Color{number}{f' : {under}' if scoped or code != 'i4' else ''}"
    head = f"{kind} {{ RED{number}, BLUE{number} = 5 }};\n"
    if not scoped and code == "i4":
        code = "u4"  # what compilers take where no value is negative
    inside = random.random() < 0.4
    before = f"namespace enums{number} {{ {head} }}\n" if inside else head
    name = f"{f'enums{number}::' if inside else ''}Color{number}"

    def make(random: Any, judge: Judge) -> Argument:
        value = a_value(random, code)
        if (
            value.given is not None
            and value.given.type not in ("integer", "bool")
            and DTYPES.get(value.given.type, np.dtype("f8")).kind not in "iu"
        ):
            return Argument(value.value, None)  # no conversion to an enumeration
        if isinstance(value.value, np.integer | np.void) and value.value.itemsize == DTYPES[code].itemsize:
            return Argument(
                value.value, [Held(value.value.tobytes())]
            )  # its bits: cudakit does not know which is under it
        return Argument(value.value, _judged(judge, code, value))

    return Parameter(f"{name} {{name}}", f"put_as<{under}>(out, {{name}});", make, before)


def vector(random: random.Random, number: int) -> Parameter:
    """One of CUDA's vector types."""
    base, code = random.choice(
        [
            ("char", "i1"),
            ("uchar", "u1"),
            ("short", "i2"),
            ("ushort", "u2"),
            ("int", "i4"),
            ("uint", "u4"),
            ("long", "i8"),
            ("ulonglong", "u8"),
            ("longlong", "i8"),
            ("float", "f4"),
            ("float", "f4"),
            ("double", "f8"),
        ]
    )
    count = random.randint(1, 4)
    before, name = _spelled(random, number, f"{base}{count}")

    def make(random: Any, judge: Judge) -> Argument:
        if random.random() < 0.07:
            return Argument(wrong_vector(random, count), None)
        values = [a_value(random, code) if random.random() < 0.6 else right(random, code) for _ in range(count)]
        expected: Expected = []
        for value in values:
            held = _judged(judge, code, value)
            expected = None if held is None or expected is None else [*expected, *held]
        kind = random.randrange(6)
        items = [value.value for value in values]
        if kind == 0:
            return Argument(items, expected)
        if kind <= 2:
            source = DTYPES[random.choice([code, code, a_code(random, "iuf")])]
            held = []
            with np.errstate(all="ignore"):
                array = np.array([random.choice([0, 1, 100, random.randint(0, 127)]) for _ in range(count)]).astype(
                    source
                )
            if random.random() < 0.2:
                array = np.repeat(array, 2)[::2]
            for item in array:
                held.append(_judged(judge, code, of_python(item)))
            expected = None if None in held else [one[0] for one in held if one]
            if kind == 2 and random.random() < 0.5:
                fields = np.zeros((), [(letter, source) for letter in "xyzw"[:count]])
                for letter, item in zip("xyzw", array, strict=False):
                    fields[letter] = item
                return Argument(fields[()], expected)
            return Argument(array, expected)
        return Argument(tuple(items), expected)

    writes = "".join(f"put(out, {{name}}.{letter});" for letter in "xyzw"[:count])
    return Parameter(f"{name} {{name}}", writes, make, before)


def wrong_vector(random: random.Random, count: int) -> Any:
    return random.choice(
        [
            (),
            (1,) * (count + 1),
            [0.0] * (count + 1),
            np.zeros(count + 1),
            np.zeros((count, 1)),
            np.zeros(()),
            None,
            "1" * count,
            {i: i for i in range(count)},
            (None,) * count,
            ((1,),) * count,
            np.full(count, "1", "O"),
            np.array(["1"] * count),
            b"1" * count,
            range(count + 1),
            (1,) * (count - 1) if count > 1 else (),
        ]
    )


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _array(random: random.Random, dtype: np.dtype, rank: int | None = None) -> np.ndarray:
    """A small array of random bytes, in some layout, of `rank` dimensions or one more."""
    shape = random.choice([(1,), (5,), (2, 3), (2, 2, 2), (0,), (3, 0), (1, 1), (4, 1), ()])
    if rank is not None:
        shape = tuple(random.choice([1, 2, 3, 2, 3, 0]) for _ in range(rank))
    size = int(np.prod(shape))
    data = np.frombuffer(bytes(random.choices(range(0, 120), k=max(1, size) * dtype.itemsize)), np.uint8)
    if dtype == np.bool_:
        data = data & 1
    array = data.copy()[: size * dtype.itemsize].view(dtype).reshape(shape)
    chance = random.random()
    if chance < 0.1 and array.ndim:
        array = np.asfortranarray(array)
    elif chance < 0.18 and array.ndim:
        array = np.repeat(array, 2, 0)[::2]
    elif chance < 0.24 and array.ndim:
        array = array[::-1]
    elif chance < 0.3:
        array = np.broadcast_to(array, (2, *array.shape))
    elif chance < 0.34:
        array = array.astype(dtype.newbyteorder()) if dtype.isbuiltin == 1 else array
    elif chance < 0.42:
        array.flags.writeable = False
    elif chance < 0.46:
        array = array.view(np.ndarray)[np.newaxis]
    elif chance < 0.5:
        array = array.T
    elif chance < 0.52 and size:
        array = np.ma.masked_array(array)
    return array


def _other_dtype(random: random.Random) -> np.dtype:
    return random.choice(
        [
            *DTYPES.values(),
            np.dtype("O"),
            np.dtype("M8[s]"),
            np.dtype("m8[s]"),
            np.dtype("S4"),
            np.dtype("U2"),
            np.dtype("V4"),
            np.dtype("f16"),
            np.dtype([("a", "f4")]),
        ]
    )


def _pointable(array: np.ndarray, const: bool) -> bool:
    return bool(
        array.flags.c_contiguous and array.dtype.isnative and (const or array.flags.writeable)
    ) and not isinstance(array, np.ma.MaskedArray)


def pointer(random: random.Random, number: int) -> Parameter:
    """A pointer: the kernel writes the first element, if there is one."""
    code = random.choice([a_code(random), a_code(random), "void", "row"])
    const = random.random() < 0.5
    spelling, before, headers = "", "", set[str]()
    if code == "void":
        spelling = "void"
    elif code == "row":
        spelling = "float"
    else:
        spelling = SPELLINGS[code][0]
        before, spelling = _spelled(random, number, spelling)
        headers = header_of(code)
    head = f"const {spelling}" if const and random.random() < 0.6 else f"{spelling} const" if const else spelling
    if code == "row":
        text = random.choice([f"{head} {{name}}[][2]", f"{head} (*{{name}})[2]"])
    else:
        ways = [
            f"{head}* {{name}}",
            f"{head} *__restrict__ {{name}}",
            f"{head}* const {{name}}",
            f"{head}*const __restrict__ {{name}}",
        ]
        if code != "void":
            ways += [f"{head} {{name}}[]", f"{head} {{name}}[4]"]
        text = random.choice(ways)
    first = "*(const unsigned char*){name}" if code == "void" else "(*{name})[0]" if code == "row" else "*{name}"

    def make(random: Any, judge: Judge) -> Argument:
        chance = random.random()
        if chance < 0.06:
            return Argument(None, [Held(b"\0")])
        if chance < 0.14:
            value = random.choice([any_number(random), wrong(random)])
            if value.value is None:
                return Argument(None, [Held(b"\0")])
            if isinstance(
                value.value, np.ndarray | memoryview | bytearray | ctypes.c_void_p | np.generic | ctypes._SimpleCData
            ):
                return Argument(5, None)
            return Argument(value.value, None)
        wanted = np.dtype("f4") if code == "row" else DTYPES.get(code, np.dtype("u1"))
        dtype = wanted if chance < 0.8 else _other_dtype(random)
        array = np.zeros(3, dtype) if dtype not in CODES else _array(random, dtype)
        allowed = {wanted}
        if code == "void":
            allowed = {one for one in [dtype] if not one.hasobject}
        elif code in ("i1",) and "char" in spelling and "signed" not in spelling:
            allowed.add(np.dtype("u1"))
        if array.dtype.newbyteorder("=") not in allowed or not _pointable(array, const):
            return Argument(array, None)
        size = 1 if code == "void" else wanted.itemsize
        if not array.size:
            return Argument(array, [])
        return Argument(array, [Held(b"\1"), Held(array.tobytes()[:size])])

    # An empty array's address is any; a null pointer is seen as such.
    told = "put(out, (unsigned char)({name} != nullptr)); "
    writes = f"if (flags >> {number} & 1) {{{{ {told}if ({{name}} != nullptr) put(out, {first}); }}}}"
    return Parameter(text, writes, make, before, headers)


def strided(random: random.Random, number: int) -> Parameter:
    """A view: the kernel writes its shape, strides and first and last element."""
    code, rank, const = a_code(random), random.randint(0, 3), random.random() < 0.5
    spelling = SPELLINGS[code][0]

    def make(random: Any, judge: Judge) -> Argument:
        chance = random.random()
        if chance < 0.08:
            value = random.choice([any_number(random), wrong(random)]).value
            if not isinstance(value, np.ndarray | memoryview | bytearray | np.generic | ctypes._SimpleCData):
                return Argument(value, None)
        dtype = DTYPES[code] if chance < 0.85 else _other_dtype(random)
        array = (
            np.zeros((2,) * rank, dtype)
            if dtype not in CODES
            else _array(random, dtype, random.choice([rank, rank, rank, None]))
        )
        same = array.dtype == DTYPES[code] and array.dtype.isnative and array.ndim == rank
        if (
            not same
            or not (const or array.flags.writeable)
            or isinstance(array, np.ma.MaskedArray)
            or not isinstance(array, np.ndarray)
        ):
            return Argument(array, None)
        expected = [Held(np.array([*array.shape, *(step // array.itemsize for step in array.strides)], "i8").tobytes())]
        if array.size:
            flat = array.reshape(-1)
            expected += [Held(flat[0].tobytes()), Held(flat[-1].tobytes())]
        return Argument(array, expected)

    writes = "".join(f"put(out, {{name}}.shape[{i}]);" for i in range(rank)) + "".join(
        f"put(out, {{name}}.strides[{i}]);" for i in range(rank)
    )
    writes += "if ({name}.size()) {{ put(out, {name}.element(0)); put(out, {name}.element({name}.size() - 1)); }}"
    head = f"cudakit::strided<{'const ' if const else ''}{spelling}, {rank}>"
    before, name = ("", head) if random.random() < 0.7 else (f"using View{number} = {head};\n", f"View{number}")
    return Parameter(f"{name} {{name}}", writes, make, before, {"cudakit/strided.cuh", *header_of(code)})


# ── what templates deduce ────────────────────────────────────────────────────────────────────────────────────────────

#: Kind and size of a type, as the kernel writes it.
KINDS: Final = """
template <typename T> struct kind_of { static constexpr unsigned char value = 0; };
""" + "".join(
    f"template <> struct kind_of<{name}> {{ static constexpr unsigned char value = '{letter}'; }};\n"
    for letter, names in {
        "b": ["bool"],
        "i": ["char", "signed char", "short", "int", "long", "long long"],
        "u": ["unsigned char", "unsigned short", "unsigned", "unsigned long", "unsigned long long"],
        "f": ["float", "double"],
    }.items()
    for name in names
)


def kind_bytes(code: str) -> bytes:
    dtype = DTYPES[code]
    letter = "\0" if code in HEADERS else dtype.kind
    return letter.encode() + bytes([dtype.itemsize])


_TELL: Final = "put(out, kind_of<{type}>::value); put(out, (unsigned char)sizeof({type}));"
#: What C++ takes for a Python number that nothing else decides.
WEAK: Final = {bool: "bool", int: "i4", float: "f8", complex: "c16"}


def deduced(random: random.Random, number: int, name: str) -> Parameter:
    """A parameter whose argument decides the template parameter `name`, or agrees with it."""
    form = random.choice(["value", "value", "pointer", "pointer", "strided"])

    def make(random: Any, judge: Judge) -> Argument:
        raise NotImplementedError

    tell = _TELL.format(type=name)
    if form == "value":
        return Parameter(
            random.choice([f"{name} {{name}}", f"const {name} {{name}}"]),
            tell + "put(out, {name});",
            make,
            deduces=name,
        )
    if form == "strided":
        return Parameter(
            f"cudakit::strided<const {name}, 1> {{name}}",
            tell + "put(out, {name}.element(0));",
            make,
            headers={"cudakit/strided.cuh"},
            deduces=name,
        )
    const = random.choice(["const ", ""])
    return Parameter(f"{const}{name}* {{name}}", tell + "put(out, *{name});", make, deduces=name)


# ── structs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclasses.dataclass
class Struct:
    """A C++ struct: fields with their types and extents, and its alignment rule (0: natural, 1: packed)."""

    name: str
    fields: list[tuple[str, str | Struct, tuple[int, ...]]]
    packed: bool = False

    def alignment(self) -> int:
        if self.packed:
            return 1
        return max(
            kind.alignment() if isinstance(kind, Struct) else DTYPES[kind].itemsize for _, kind, _ in self.fields
        )

    def dtype(self) -> np.dtype:
        """The layout, by C++'s rules."""
        names, formats, offsets, end = [], [], [], 0
        for name, kind, extents in self.fields:
            inner = kind.dtype() if isinstance(kind, Struct) else DTYPES[kind]
            align = 1 if self.packed else kind.alignment() if isinstance(kind, Struct) else inner.itemsize
            end = -(-end // align) * align
            names.append(name), formats.append(np.dtype((inner, extents))), offsets.append(end)
            end += formats[-1].itemsize
        size = -(-end // self.alignment()) * self.alignment()
        return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})

    def leaves(self, path: str = "") -> Iterator[tuple[str, str]]:
        """Each scalar in it: how C++ and Python write its place, ``a.b[0][1]``, and its type."""
        for name, kind, extents in self.fields:
            for index in np.ndindex(extents):
                at = f"{path}.{name}" + "".join(f"[{i}]" for i in index)
                if isinstance(kind, Struct):
                    yield from kind.leaves(at)
                else:
                    yield at, kind

    def structs(self) -> Iterator[Struct]:
        """Nested ones first, then itself."""
        for _, kind, _ in self.fields:
            if isinstance(kind, Struct):
                yield from kind.structs()
        yield self


_FIELD_NAMES: Final = ["a", "b", "x", "y", "value", "T", "data_", "first", "end", "type", "size", "out", "r2", "n"]


def a_struct(random: random.Random, name: str, depth: int = 0) -> Struct:
    fields: list[tuple[str, str | Struct, tuple[int, ...]]] = []
    for field in random.sample(_FIELD_NAMES, random.randint(1, 4)):
        extents = random.choice([(), (), (), (2,), (2, 2)])
        if depth < 2 and random.random() < 0.2:
            fields.append((field, a_struct(random, f"{name}_{field}", depth + 1), random.choice([(), (), (2,)])))
        else:
            fields.append((field, a_code(random), extents))
    return Struct(name, fields, random.random() < 0.15)


def changed(random: random.Random, struct: Struct) -> Struct:
    """Another struct that somebody could take for it."""
    fields = list(struct.fields)
    place = random.randrange(len(fields))
    name, kind, extents = fields[place]
    way = random.randrange(6)
    if way == 0 and len(fields) > 1:
        other = random.randrange(len(fields))
        fields[place], fields[other] = fields[other], fields[place]
    elif way == 1 and isinstance(kind, str):
        fields[place] = name, random.choice(list(DTYPES)), extents
    elif way == 2 and isinstance(kind, str):
        same = [code for code in DTYPES if DTYPES[code].itemsize == DTYPES[kind].itemsize]
        fields[place] = name, random.choice(same), extents
    elif way == 3:
        fields[place] = f"{name}_", kind, extents
    elif way == 4:
        others = [other for other in [(), (2,), (3,), (4,), (2, 2)] if np.prod(other) != np.prod(extents)]
        fields[place] = name, kind, random.choice(others)
    else:
        return Struct(struct.name, fields, not struct.packed)
    return Struct(struct.name, fields, struct.packed)


def _cpp_struct(struct: Struct) -> str:
    lines = []
    for name, kind, extents in struct.fields:
        spelled = kind.name if isinstance(kind, Struct) else SPELLINGS[kind][0]
        lines.append(f"{spelled} {name}{''.join(f'[{extent}]' for extent in extents)};")
    body = " ".join(lines)
    return (
        f"#pragma pack(push, 1)\nstruct {struct.name} {{ {body} }};\n#pragma pack(pop)\n"
        if struct.packed
        else f"struct {struct.name} {{ {body} }};\n"
    )


def _dataclass(struct: Struct, plain: bool) -> type:
    """The struct as a dataclass; `plain` takes Python's own types where they have the size."""
    fields: list[tuple[str, Any]] = []
    for name, kind, extents in struct.fields:
        own = {"i8": int, "f8": float, "bool": bool, "c16": complex} if plain else {}
        inner: Any = _dataclass(kind, plain) if isinstance(kind, Struct) else own.get(kind, DTYPES[kind].type)
        fields.append((name, Annotated[inner, extents] if extents else inner))
    return dataclasses.make_dataclass(struct.name, fields)


_OF_CTYPES: Final = {
    "bool": ctypes.c_bool,
    "i1": ctypes.c_int8,
    "u1": ctypes.c_uint8,
    "i2": ctypes.c_int16,
    "u2": ctypes.c_uint16,
    "i4": ctypes.c_int32,
    "u4": ctypes.c_uint32,
    "i8": ctypes.c_int64,
    "u8": ctypes.c_uint64,
    "f4": ctypes.c_float,
    "f8": ctypes.c_double,
}


def _ctypes(struct: Struct) -> Any:
    fields = []
    for name, kind, extents in struct.fields:
        inner = _ctypes(kind) if isinstance(kind, Struct) else _OF_CTYPES[kind]
        for extent in reversed(extents):
            inner = inner * extent
        fields.append((name, inner))
    members: dict[str, Any] = {"_fields_": fields}
    if struct.packed:
        members = {"_pack_": 1, **members}
    return type(struct.name, (ctypes.Structure,), members)


def _lists(random: random.Random, struct: Struct, kind: type, values: dict[str, Value], path: str, wild: bool) -> Any:
    """An instance of a dataclass with random values, which are noted by place."""
    given: dict[str, Any] = {}
    hints = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, inner, extents in struct.fields:

        def item(at: str, inner: Any = inner, name: str = name) -> Any:
            if isinstance(inner, Struct):
                hint: Any = hints[name]
                hint = hint.__origin__ if hasattr(hint, "__metadata__") else hint
                return _lists(random, inner, hint, values, at, wild)
            values[at] = a_value(random, inner) if wild and random.random() < 0.4 else right(random, inner)
            return values[at].value

        def nested(shape: tuple[int, ...], at: str, item: Any = item) -> Any:
            return item(at) if not shape else [nested(shape[1:], f"{at}[{i}]") for i in range(shape[0])]

        made = nested(extents, f"{path}.{name}")
        if extents and random.random() < 0.5 and not isinstance(inner, Struct):
            places = [f"{path}.{name}" + "".join(f"[{i}]" for i in index) for index in np.ndindex(extents)]
            if all(values[place].given is not None and values[place].given.type == inner for place in places):  # type: ignore[union-attr]
                made = np.array(made, DTYPES[inner])
        given[name] = made
    return kind(**given)


def _at(value: Any, place: str) -> Any:
    """What is at a place of a struct of NumPy's or ctypes'."""
    for part in place.replace("[", ".[").split(".")[1:]:
        if part.startswith("["):
            value = value[int(part[1:-1])]
        else:
            value = getattr(value, part) if isinstance(value, ctypes.Structure) else value[part]
    return value


def struct(random: random.Random, number: int) -> Parameter:
    """A struct by value: at top level, in a namespace or class, a template's, an alias, packed or not."""
    wanted = a_struct(random, f"S{number}")
    codes = {code for _, code in wanted.leaves()}
    text = "".join(_cpp_struct(one) for one in wanted.structs())
    way = random.randrange(6)
    before, name = text, wanted.name
    if way == 0:
        before, name = f"namespace inner{number} {{\n{text}}}\n", f"inner{number}::{wanted.name}"
    elif way == 1 and "#pragma" not in text:
        before, name = f"struct Outer{number} {{\n{text}}};\n", f"Outer{number}::{wanted.name}"
    elif way == 2:
        before, name = f"{text}using Called{number} = {wanted.name};\n", f"Called{number}"
    elif way == 3 and not wanted.packed and isinstance(wanted.fields[0][1], str):
        first, code, _ = wanted.fields[0]
        assert isinstance(code, str)
        nested = "".join(_cpp_struct(one) for one in list(wanted.structs())[:-1])
        own = _cpp_struct(wanted).replace(f"{{ {SPELLINGS[code][0]} {first}", f"{{ P {first}", 1)
        before, name = f"{nested}template <typename P> {own}", f"{wanted.name}<{SPELLINGS[code][0]}>"
    elif way == 4:
        before, name = (
            f"namespace one{number} {{ struct {wanted.name} {{ double d; }}; }}\nnamespace two{number} {{\n{text}}}\n",
            f"two{number}::{wanted.name}",
        )
    twins = [changed(random, wanted) for _ in range(2)]
    kinds: dict[tuple[int, str], Any] = {}

    def kind_of(which: int, form: str) -> Any:
        if (which, form) not in kinds:
            one = wanted if which < 0 else twins[which]
            kinds[which, form] = (
                _ctypes(one)
                if form == "ctypes"
                else one.dtype()
                if form in ("dtype", "zero", "bytes")
                else _dataclass(one, form == "plain")
            )
        return kinds[which, form]

    leaves = list(wanted.leaves())

    def make(random: Any, judge: Judge) -> Argument:
        chance = random.random()
        if chance < 0.05:
            value = random.choice([wrong(random), any_number(random)]).value
            return Argument(
                value if not isinstance(value, np.void) else np.void(b"1" * (1 + wanted.dtype().itemsize)), None
            )
        which = -1 if chance < 0.85 else random.randrange(2)
        given = wanted if which < 0 else twins[which]
        inner_codes = {code for _, code in given.leaves()}
        forms = ["dtype", "zero", "bytes", "dataclass", "dataclass", "plain"]
        if inner_codes <= set(_OF_CTYPES) and (not given.packed or all(one.packed for one in given.structs())):
            forms.append("ctypes")
        form = random.choice(forms)
        values: dict[str, Value] = {}
        kind = kind_of(which, form)
        if form in ("dataclass", "plain"):
            value = _lists(random, given, kind, values, "", random.random() < 0.3)
        else:
            if form == "ctypes":
                value = kind()
                data = bytes(random.choices(range(120), k=ctypes.sizeof(kind)))
                ctypes.memmove(ctypes.addressof(value), data, len(data))
            else:
                data = bytes(random.choices(range(120), k=kind.itemsize))
                value = np.frombuffer(data, kind).copy()[0]
            for place, code in given.leaves():
                found = _at(value, place)
                if code == "bool":
                    # Only 0 and 1 are bools.
                    _set(value, place, bool(found))
                    found = _at(value, place)
                values[place] = of_python(
                    found if not isinstance(found, bool | int | float) or form != "ctypes" else DTYPES[code].type(found)
                )
        if form == "bytes":
            if which >= 0 and value.nbytes == wanted.dtype().itemsize:
                return Argument(None, None)  # bytes say nothing of fields
            value = np.void(bytes(value.tobytes()))
            if which >= 0:
                return Argument(value, None)
        elif form == "zero":
            value = np.array(value)
        expected: Expected = []
        for place, code in leaves:
            held = _judged(judge, code, values[place]) if place in values else None
            expected = None if held is None or expected is None else [*expected, *held]
        return Argument(value, expected)

    writes = "".join(f"put(out, {{name}}{place});" for place, _ in leaves)
    headers = {header for code in codes for header in header_of(code)}
    return Parameter(f"{name} {{name}}", writes, make, before, headers)


def _set(value: Any, place: str, item: Any) -> None:
    *path, last = place.replace("[", ".[").split(".")[1:]
    for part in path:
        value = (
            value[int(part[1:-1])]
            if part.startswith("[")
            else getattr(value, part)
            if isinstance(value, ctypes.Structure)
            else value[part]
        )
    if last.startswith("["):
        value[int(last[1:-1])] = item
    elif isinstance(value, ctypes.Structure):
        setattr(value, last, item)
    else:
        value[last] = item
