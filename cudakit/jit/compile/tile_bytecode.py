"""A reader of Tile IR bytecode of versions 13.1 to 13.5, which makes the records of `tile_ir`.

The table has each operation's encoding, as of CUDA 13.5: opcode, name and, in order, its parts.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cudakit.errors import CompileError, shortened
from cudakit.jit.compile import tile_ir

#: Enumerations by name; a value's number is its place.
ENUMERATIONS: Final = {
    "rounding": (
        "nearest_even", "zero", "negative_inf", "positive_inf", "approx", "full", "nearest_int_to_zero", "nearest_away",
    ),
    "signedness": ("unsigned", "signed"),
    "overflow": ("none", "no_signed_wrap", "no_unsigned_wrap", "no_wrap"),
    "ordering": ("unordered", "ordered"),
    "predicate": ("equal", "not_equal", "less_than", "less_than_or_equal", "greater_than", "greater_than_or_equal"),
    "memory": ("weak", "relaxed", "acquire", "release", "acq_rel"),
    "scope": ("tl_blk", "device", "sys"),
    "reduction": ("add", "min", "max", "and", "or", "xor", "umin", "umax"),
    "mode": ("and", "or", "xor", "add", "addf", "max", "min", "umax", "umin", "xchg"),
}  # fmt: skip
#: Values that pad a tile where its view ends.
PADDINGS: Final = ("zero", "neg_zero", "nan", "pos_inf", "neg_inf")


class Part(NamedTuple):
    """A part of an operation.

    Attributes
    ----------
    category : str
        ``type``, ``types``, ``flags``, ``operand``, ``operands``, ``enum``, ``number``, ``byte``, ``text``,
        ``constant``, ``bytes``, ``numbers``, ``tagged``, ``several``, ``hints`` or ``regions``.
    name : str
        Name of the attribute; for flags, the names of the bits, with commas.
    bit : int or None
        Flag that says whether the part is present.
    since : tuple of int
        First version of the bytecode with this part.
    enumeration : str
        Name in `ENUMERATIONS` for an ``enum``.
    """

    category: str
    name: str
    bit: int | None
    since: tuple[int, int]
    enumeration: str = ""


class Form(NamedTuple):
    """An operation's name, the first version that has it, and its parts."""

    name: str
    since: tuple[int, int]
    parts: tuple[Part, ...]


# Parts: r a result's type, R several; o an operand, O several; f[…] flags by their bits; e:… an enumeration, of another
# name as e:name=enumeration; n: a number, b: a byte, s: a text, c: a constant, l: bytes, L: numbers, t: a tagged
# attribute, T: several; h: hints; G regions. `?2` after it: there if that flag is set; `@3`: since version 13.3,
# as after an operation's name.
_TEXT: Final = """
0 absf r o
1 absi r o
2 addf r f[ftz] e:rounding o o
3 addi r e:overflow o o
4 andi r o o
5 assert s:message o
6 assume r t:predicate o
7 atomic_cas_tko r r f[mask,token] e:memory e:scope o o o o:mask?0 o:token?1
8 atomic_rmw_tko r r f[mask,token] e:memory e:scope e:mode o o o:mask?0 o:token?1
9 bitcast r o
10 break R O
11 broadcast r o
12 cat r n:dim o o
13 ceil r o
14 cmpf r e:predicate e:ordering o o
15 cmpi r e:predicate e:signedness o o
16 constant r c:value
17 continue R O
18 cos r o
19 cosh r o
20 divf r f[ftz] e:rounding o o
21 divi r e:signedness e:rounding o o
23 exp r e:rounding@3 o
24 exp2 r f[ftz] o
37 exti r e:signedness o
38 extract R O
39 floor r o
40 fma r f[ftz] e:rounding o o o
41 for R f[unsigned]@2 O G
42 ftof r e:rounding o
43 ftoi r f[saturate]@4 e:signedness e:rounding o
44 get_global r s:symbol
45 get_index_space_shape R o
46 get_num_tile_blocks r r r
47 get_tensor_shape R o
48 get_tile_block_id r r r
50 if R o G
51 int_to_ptr r o
58 iota r
59 itof r e:signedness e:rounding o
60 join_tokens R O
61 load_ptr_tko r r f[scope,hints,mask,padding,token] e:memory e:scope?0 h:hints?1 o o:mask?2 o:padding?3 o:token?4
62 load_view_tko R f[scope,hints,token] e:memory e:scope?0 h:hints?1 l:inbounds@4 o O o:token?2
63 log r o
64 log2 r o
65 loop R O G
66 make_partition_view r o
67 make_tensor_view R o O O
68 make_token r
69 maxf r f[nan,ftz] o o
70 maxi r e:signedness o o
71 minf r f[nan,ftz] o o
72 mini r e:signedness o o
73 mmaf r f[fast]@3 o o o
74 mmai r e:lhs=signedness e:rhs=signedness o o o
76 mulf r f[ftz] e:rounding o o
77 mulhii r o o
78 muli r e:overflow o o
79 negf r o
80 negi r e:overflow@2 o
81 offset r o o
82 ori r o o
83 permute r L:order o
84 fpowf r o o
85 print_tko R f[token]@2 s:format O o:token?0
86 ptr_to_int r o
87 ptr_to_ptr r o
88 reduce R n:dim T:identities O G
89 remf r o o
90 remi r e:signedness o o
91 reshape r o
92 return R O
93 rsqrt r f[ftz] o
94 scan R n:dim b:reverse T:identities O G
95 select r o o o
96 shli r e:overflow o o
97 shri r e:signedness o o
98 sin r o
99 sinh r o
100 sqrt r f[ftz] e:rounding o
101 store_ptr_tko r f[scope,hints,mask,token] e:memory e:scope?0 h:hints?1 o o o:mask?2 o:token?3
102 store_view_tko R f[scope,hints,token] e:memory e:scope?0 h:hints?1 l:inbounds@4 o o O o:token?2
103 subf r f[ftz] e:rounding o o
104 subi r e:overflow o o
105 tan r o
106 tanh r e:rounding@2 o
107 trunci r e:overflow o
108 xori r o o
109 yield R O
110 atan2@2 r o o
111 pack@3 r o
112 unpack@3 r o
113 alloca@3 r f[global] n:count n:alignment
114 mmaf_scaled@3 r o o o o o
115 make_gather_scatter_view@3 r o
116 make_strided_view@3 r o
117 atomic_red_view_tko@3 R f[token] e:memory e:scope e:mode l:inbounds@5 o O o o:token?0
118 insert@4 R O
119 gdc_launch_dependents_tko@4 r O
120 gdc_wait_tko@4 r O
121 fpowi@4 r o o
122 memory_fence_alias_tko@4 r o
123 multimem_load_reduce_view_tko@5 R f[scope,token] e:memory e:scope?0 e:reduction l:inbounds o O o:token?1
124 multimem_reduce_view_tko@5 R f[token] e:memory e:scope e:reduction l:inbounds o o O o:token?0
125 multimem_store_view_tko@5 R f[scope,token] e:memory e:scope?0 l:inbounds o o O o:token?1
"""
_CATEGORIES: Final = {
    "r": "type", "R": "types", "o": "operand", "O": "operands", "e": "enum", "n": "number", "b": "byte", "s": "text",
    "c": "constant", "l": "bytes", "L": "numbers", "t": "tagged", "T": "several", "h": "hints", "G": "regions",
}  # fmt: skip


def _part(text: str) -> Part:
    text, _, since = text.partition("@")
    text, _, bit = text.partition("?")
    version = (13, int(since or 1))
    if text.startswith("f["):
        return Part("flags", text[2:-1], None, version)
    letter, _, name = text.partition(":")
    name, _, other = name.partition("=")
    return Part(_CATEGORIES[letter], name, int(bit) if bit else None, version, other or name)


#: Forms by opcode.
FORMS: Final = {
    int(code): Form(name, (13, int(since or 1)), tuple(map(_part, parts)))
    for code, head, *parts in map(str.split, _TEXT.strip().splitlines())
    for name, _, since in [head.partition("@")]
}


_MAGIC: Final = b"\x7fTileIR\0"
_FIRST, _LAST = (13, 1), (13, 5)
_STRINGS, _FUNCTIONS, _DEBUG, _CONSTANTS, _TYPES, _GLOBALS = range(1, 7)
#: Of a tile.
_MOST_ELEMENTS: Final = 1 << 24
_ELEMENTS: Final = {
    0: "i1", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "bf16", 7: "f32", 8: "tf32", 9: "f64",
    10: "f8E4M3FN", 11: "f8E5M2", 18: "f8E8M0FNU", 19: "f4E2M1FN", 22: "i4", 130: "f8E5M3FNU",
}  # fmt: skip
#: First version of types that 13.1 lacks.
_SINCE: Final = {18: (13, 2), 19: (13, 3), 20: (13, 3), 21: (13, 3), 22: (13, 3), 130: (13, 4)}
_POINTER, _TILE, _TENSOR_VIEW, _PARTITION, _FUNCTION, _TOKEN, _GATHER, _STRIDED = 12, 13, 14, 15, 16, 17, 20, 21


def read(code: bytes) -> tile_ir.TileModule:
    """Read the module in Tile IR bytecode.

    Raises
    ------
    CompileError
        For other data, damaged bytecode, or an unknown version.
    """
    if code[:8] != _MAGIC or len(code) < 12:
        raise CompileError("this is not Tile IR bytecode")
    version = code[8], code[9]
    if not _FIRST <= version <= _LAST:
        raise CompileError(
            f"Tile IR of version {version[0]}.{version[1]} is not known here, which reads "
            f"{'.'.join(map(str, _FIRST))} to {'.'.join(map(str, _LAST))}: use a compiler of these versions, or a "
            "newer cudakit"
        )
    try:
        return _Module(code, version).module()
    except (IndexError, KeyError, ValueError, RecursionError) as error:
        raise CompileError(
            f"this Tile IR bytecode is damaged, or has what is not known here: {shortened(error)}"
        ) from error


class _Bytes:
    """A reader of numbers from bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        result = shift = 0
        while True:
            byte = self.byte()
            result |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return result

    def signed(self) -> int:
        number = self.number()
        return ~(number >> 1) if number & 1 else number >> 1

    def take(self, count: int) -> bytes:
        data = self.data[self.at : self.at + count]
        if len(data) != count:
            raise IndexError("it ends too early")
        self.at += count
        return data

    def integers(self, width: int) -> tuple[int, ...]:
        count = self.number()
        data = self.take(width * count)
        rows = (data[k : k + width] for k in range(0, len(data), width))
        return tuple(int.from_bytes(row, "little", signed=True) for row in rows)

    def align(self, to: int) -> None:
        if to <= 0:
            raise ValueError("an alignment of 0")
        self.at += -self.at % to


def _table(data: bytes, width: int) -> list[bytes]:
    """Return the byte strings of a section that begins with their number and their offsets of `width` bytes.

    An empty section has none.
    """
    return _pieces(_Bytes(data), width) if data else []


def _pieces(at: _Bytes, width: int) -> list[bytes]:
    """Read a table from the reader's position: a number, so many offsets of `width` bytes, and the data.

    Return the data divided at the offsets.
    """
    starts = _offsets(at, width)
    rest = at.data[at.at :]
    return [rest[start:end] for start, end in zip(starts, [*starts[1:], len(rest)], strict=False)]


def _offsets(at: _Bytes, width: int) -> list[int]:
    count = at.number()
    at.align(width)
    return [int.from_bytes(at.take(width), "little") for _ in range(count)]


def _tile_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    if any(extent < 1 or extent & extent - 1 for extent in shape) or math.prod(shape) > _MOST_ELEMENTS:
        raise ValueError(f"a tile of shape {shape}")
    return shape


class _Module:
    """The sections of bytecode, and their contents."""

    def __init__(self, code: bytes, version: tuple[int, int]) -> None:
        self.version = version
        self.sections: dict[int, bytes] = {}
        at = _Bytes(code, 12)
        while header := at.byte() & 255:
            size = at.number()
            if header & 128:
                at.align(at.number())
            self.sections[header & 127] = at.take(size)
        self.strings = [text.decode(errors="replace") for text in _table(self.sections.get(_STRINGS, b""), 4)]
        self.constants = _table(self.sections.get(_CONSTANTS, b""), 8)
        self._types = _table(self.sections.get(_TYPES, b""), 4)
        self.type = functools.cache(self._type)
        self.place = functools.cache(self._place)
        self._read_places()

    def module(self) -> tile_ir.TileModule:
        result = tile_ir.TileModule(self.version)
        if section := self.sections.get(_FUNCTIONS):
            at = _Bytes(section)
            for _ in range(at.number()):
                function = self._function(at)
                result.functions[function.name] = function
        if section := self.sections.get(_GLOBALS):
            at = _Bytes(section)
            for _ in range(at.number()):
                name, cpp, value, alignment = self.strings[at.number()], at.number(), at.number(), at.number()
                _, constant = (at.number(), at.number()) if self.version >= (13, 3) else (0, 0)
                result.globals[name] = tile_ir.Global(self.type(cpp), self.constant(value), alignment, bool(constant))
        return result

    def constant(self, number: int) -> bytes:
        at = _Bytes(self.constants[number])
        return at.take(at.number())

    def _function(self, at: _Bytes) -> tile_ir.Function:
        name, signature, flags, places = self.strings[at.number()], at.number(), at.byte(), at.number()
        # From 13.5 on there are always two lists of attributes, of which one may be empty.
        hints = self.tagged(at) if flags & 4 or self.version >= (13, 5) else {}
        if self.version >= (13, 5):
            self.tagged(at)
        size = at.number()
        parameters = self._signature(signature)
        body = _Body(self, at.take(size), len(parameters), self._places_of(places))
        operations = body.operations()
        return tile_ir.Function(name, parameters, hints if isinstance(hints, dict) else {}, operations, body.most)

    # ── types ──

    def _signature(self, number: int) -> tuple[tile_ir.Type, ...]:
        at = _Bytes(self._types[number])
        if at.number() != _FUNCTION:
            raise ValueError("a function's type is none")
        return tuple(self.type(at.number()) for _ in range(at.number()))

    def _element(self, number: int) -> tuple[str, bool]:
        """Return an element's type, and whether it is a pointer to that type.

        `number` is the type's index in the module.
        """
        at, tag = self._tagged_type(number)
        if tag != _POINTER:
            return _ELEMENTS[tag], False
        self._flags(at, (13, 4))  # says whether an address is multi-device memory, which none here is
        return self._element(at.number())[0], True

    def _flags(self, at: _Bytes, since: tuple[int, int]) -> int:
        """Read the flags of a type's optional parts. Bytecode older than version `since` has none: then return 0."""
        return at.number() if self.version >= since else 0

    def _tagged_type(self, number: int) -> tuple[_Bytes, int]:
        at = _Bytes(self._types[number])
        tag = at.number()
        if _SINCE.get(tag, _FIRST) > self.version:
            raise ValueError(f"type {tag}, which is newer")
        return at, tag

    def _type(self, number: int) -> tile_ir.Type:
        at, tag = self._tagged_type(number)
        if tag == _TOKEN:
            return tile_ir.Token()
        if tag == _TILE:
            element, is_pointer = self._element(at.number())
            return tile_ir.Tile(_tile_shape(at.integers(8)), element, is_pointer)
        if tag == _TENSOR_VIEW:
            self._flags(at, (13, 4))
            element = self._element(at.number())[0]
            shape, strides = (tuple(None if extent < 0 else extent for extent in at.integers(8)) for _ in range(2))
            return tile_ir.TensorView(shape, strides, element)
        if tag in (_PARTITION, _STRIDED, _GATHER):
            flags = self._flags(at, (13, 3))
            tile = _tile_shape(at.integers(4))
            steps = at.integers(4) if tag == _STRIDED else tile
            tensor = self.type(at.number())
            sparse, dimensions = (at.number(), tuple(range(len(tile)))) if tag == _GATHER else (None, at.integers(4))
            if not isinstance(tensor, tile_ir.TensorView):
                raise ValueError("a view of what is no array")
            is_padded = flags & 1 if self.version >= (13, 3) else at.byte()
            return tile_ir.View(tile, tensor, steps, dimensions, PADDINGS[at.byte()] if is_padded else None, sparse)
        if tag in _ELEMENTS or tag == _POINTER:
            element, is_pointer = self._element(number)
            return tile_ir.Tile((), element, is_pointer)
        raise ValueError(f"type {tag}")

    # ── attributes ──

    def tagged(self, at: _Bytes) -> Any:
        match at.byte():
            case 1:
                at.number()
                return at.number()
            case 2:
                element = self._element(at.number())[0]
                return element, at.byte() if element.startswith(("f8", "f4")) else at.signed()
            case 3:
                return bool(at.byte())
            case 5:
                return self.strings[at.number()]
            case 6:
                return [self.tagged(at) for _ in range(at.number())]
            case 8:
                divisor, flags = at.number(), at.byte()
                return tile_ir.DivisibleBy(divisor, *(at.signed() if flags & bit else None for bit in (1, 2)))
            case 9:
                return tile_ir.SameElements(at.integers(8))
            case 10 | 11:
                return self.named(at)
            case 12:
                flags = at.byte()
                return tile_ir.Bounded(*(at.signed() if flags & bit else None for bit in (1, 2)))
            case tag:
                raise ValueError(f"attribute {tag}")

    def named(self, at: _Bytes) -> dict[str, Any]:
        return {self.strings[at.number()]: self.tagged(at) for _ in range(at.number())}

    # ── positions in the source ──

    def _read_places(self) -> None:
        self._place_starts: list[int] = []
        self._place_numbers: list[int] = []
        self._places: list[bytes] = []
        if not (section := self.sections.get(_DEBUG)):
            return
        at = _Bytes(section)
        self._place_starts, self._place_numbers = _offsets(at, 4), _offsets(at, 8)
        self._places = _pieces(at, 4)

    def _places_of(self, function: int) -> Iterator[tile_ir.Place | None]:
        """Yield the source places of a function's operations, in order, then None without end.

        `function` is the function's number in the debug information; number 0 means that it has no places.
        """
        if function == 0 or not self._place_starts:
            while True:
                yield None
        start = self._place_starts[function - 1] + 1  # the first is the function's own
        for number in self._place_numbers[start:]:
            yield self.place(number)
        while True:
            yield None

    def _place(self, number: int) -> tile_ir.Place | None:
        if number == 0:
            return None
        at = _Bytes(self._places[number - 1])
        match at.number():
            case 4:
                at.number()  # the scope
                return tile_ir.Place(self.strings[at.number()], at.number(), at.number())
            case 6:
                callee, caller = self.place(at.number()), self.place(at.number())
                if callee is None:
                    return caller
                chain, inner = [callee], callee.caller
                while inner is not None:
                    chain.append(inner)
                    inner = inner.caller
                result = caller
                for inner_place in reversed(chain):
                    result = inner_place._replace(caller=result)
                return result
        return None


#: Functions that read attribute parts, by category.
_ATTRIBUTES: Final[Mapping[str, Callable[[_Module, _Bytes, Part], Any]]] = {
    "enum": lambda module, at, part: ENUMERATIONS[part.enumeration][at.byte()],
    "number": lambda module, at, part: at.number(),
    "byte": lambda module, at, part: bool(at.byte()),
    "text": lambda module, at, part: module.strings[at.number()],
    "constant": lambda module, at, part: module.constant(at.number()),
    "bytes": lambda module, at, part: at.integers(1),
    "numbers": lambda module, at, part: at.integers(4),
    "tagged": lambda module, at, part: module.tagged(at),
    "several": lambda module, at, part: [module.tagged(at) for _ in range(at.number())],
    "hints": lambda module, at, part: module.named(at),
}


class _Body:
    """The operations of a function."""

    def __init__(self, module: _Module, data: bytes, parameters: int, places: Iterator[tile_ir.Place | None]) -> None:
        self._module, self._at, self._places = module, _Bytes(data), places
        self._next = self.most = parameters

    def operations(self) -> list[tile_ir.Operation]:
        result = []
        while self._at.at < len(self._at.data):
            result.append(self._operation())
        return result

    def _numbers(self, count: int) -> tuple[int, ...]:
        numbers = tuple(range(self._next, self._next + count))
        self._next += count
        self.most = max(self.most, self._next)
        return numbers

    def _operation(self) -> tile_ir.Operation:
        module, at = self._module, self._at
        code = at.number()
        if code not in FORMS:
            raise ValueError(f"operation {code}")
        name, since, parts = FORMS[code]
        if since > module.version:
            raise ValueError(f"{name}, which is newer")
        place = next(self._places)
        types: list[tile_ir.Type] = []
        operands: list[int] = []
        first_new = self._next
        optional: dict[str, int] = {}
        attributes: dict[str, Any] = {}
        regions: list[tile_ir.Region] = []
        flags = 0
        for part in parts:
            if part.since > module.version or (part.bit is not None and not flags >> part.bit & 1):
                continue
            match part.category:
                case "type":
                    types.append(module.type(at.number()))
                case "types":
                    types += [module.type(at.number()) for _ in range(at.number())]
                case "operand" if part.name:
                    optional[part.name] = at.number()
                case "operand":
                    operands.append(at.number())
                case "operands":
                    operands += [at.number() for _ in range(at.number())]
                case "flags":
                    flags = at.number()
                    for bit, flag in enumerate(part.name.split(",")):
                        attributes[flag] = bool(flags >> bit & 1)
                case "regions":
                    regions = [self._region() for _ in range(at.number())]
                case other:
                    attributes[part.name] = _ATTRIBUTES[other](module, at, part)
        if any(number >= first_new for number in (*operands, *optional.values())):
            raise ValueError("an operand that is no value yet")
        results = self._numbers(len(types))
        return tile_ir.Operation(
            name, results, tuple(types), tuple(operands), optional, attributes, tuple(regions), place
        )

    def _region(self) -> tile_ir.Region:
        at = self._at
        if not (blocks := at.number()):  # an `if` without an else
            return tile_ir.Region((), (), [])
        if blocks != 1:
            raise ValueError("a region of several blocks")
        outer_next = self._next
        types = tuple(self._module.type(at.number()) for _ in range(at.number()))
        arguments = self._numbers(len(types))
        operations = [self._operation() for _ in range(at.number())]
        self._next = outer_next
        return tile_ir.Region(arguments, types, operations)
