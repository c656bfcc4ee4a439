"""Writes Tile IR's records as bytecode of any version that is read, by the table of forms that the reader has.

For operations and versions that no compiler here makes; what it writes is held to CUDA's disassembler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cudakit.emulator.tile.values import dtype_of
from cudakit.jit.compile.tile_bytecode import ENUMERATIONS, FORMS, PADDINGS, Part
from cudakit.jit.compile.tile_ir import (
    Bounded,
    DivisibleBy,
    Function,
    Global,
    Operation,
    Region,
    SameElements,
    TensorView,
    Tile,
    TileModule,
    Token,
    Type,
    View,
)

ELEMENTS = {
    "i1": 0, "i8": 1, "i16": 2, "i32": 3, "i64": 4, "f16": 5, "bf16": 6, "f32": 7, "tf32": 8, "f64": 9,
    "f8E4M3FN": 10, "f8E5M2": 11, "f8E8M0FNU": 18, "f4E2M1FN": 19, "i4": 22, "f8E5M3FNU": 130,
}  # fmt: skip
CODES = {form.name: code for code, form in FORMS.items()}
TOKEN = Token()


def number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def signed(value: int) -> bytes:
    return number(value << 1 if value >= 0 else ~value << 1 | 1)


def integers(values: Iterable[int], width: int) -> bytes:
    values = list(values)
    return number(len(values)) + b"".join(each.to_bytes(width, "little", signed=True) for each in values)


def table(pieces: list[bytes], width: int) -> bytes:
    """Their number, their offsets, and the pieces."""
    made = number(len(pieces))
    made += bytes(-len(made) % width)
    at = 0
    for piece in pieces:
        made += at.to_bytes(width, "little")
        at += len(piece)
    return made + b"".join(pieces)


class Writer:
    """What the sections of a module hold, as far as it is written."""

    def __init__(self, version: tuple[int, int], is_strict: bool = True) -> None:
        self.version, self.is_strict = version, is_strict
        self.strings: dict[str, int] = {}
        self.constants: dict[bytes, int] = {}
        self.types: dict[bytes, int] = {}
        #: Whether addresses stand for memory of several devices.
        self.is_multicast = False

    def text(self, given: str) -> bytes:
        return number(self.strings.setdefault(given, len(self.strings)))

    def constant(self, data: bytes) -> bytes:
        return number(self.constants.setdefault(number(len(data)) + data, len(self.constants)))

    # ── types ──

    def _interned(self, data: bytes) -> bytes:
        return number(self.types.setdefault(data, len(self.types)))

    def element(self, name: str, is_pointer: bool = False) -> bytes:
        inner = self._interned(number(ELEMENTS[name]))
        return self._interned(number(12) + self._shared(inner)) if is_pointer else inner

    def _shared(self, data: bytes) -> bytes:
        """What follows a type's tag where it may say what its addresses stand for."""
        if self.version < (13, 4):
            return data
        return b"\1" + data + b"\2" if self.is_multicast else b"\0" + data

    def type(self, given: Type) -> bytes:
        match given:
            case Token():
                return self._interned(number(17))
            case Tile(shape, element, is_pointer):
                return self._interned(number(13) + self.element(element, is_pointer) + integers(shape, 8))
            case TensorView(shape, strides, element):
                rows = [[-(1 << 63) if each is None else each for each in row] for row in (shape, strides)]
                inner = self.element(element) + b"".join(integers(row, 8) for row in rows)
                return self._interned(number(14) + self._shared(inner))
            case View(tile, tensor, steps, dimensions, padding, sparse):
                is_strided = sparse is None and steps != tile
                code = 20 if sparse is not None else 21 if is_strided else 15
                flags = number(padding is not None) if self.version >= (13, 3) else b""
                data = number(code) + flags + integers(tile, 4)
                data += integers(steps, 4) if is_strided else b""
                data += self.type(tensor) + (integers(dimensions, 4) if sparse is None else number(sparse))
                data += number(padding is not None) if self.version < (13, 3) else b""
                return self._interned(data + (b"" if padding is None else bytes([PADDINGS.index(padding)])))
        raise AssertionError(given)

    def signature(self, parameters: Iterable[Type]) -> bytes:
        types = [self.type(each) for each in parameters]
        return self._interned(number(16) + number(len(types)) + b"".join(types) + number(0))

    # ── attributes ──

    def tagged(self, given: Any, element: str = "i32") -> bytes:
        match given:
            case bool():
                return bytes([3, given])
            case int():
                return number(1) + self.element(element) + number(given)
            case (str() as kind, int() as bits):
                small = kind.startswith(("f8", "f4"))
                return number(2) + self.element(kind) + (bytes([bits]) if small else signed(bits))
            case str():
                return number(5) + self.text(given)
            case list():
                return number(6) + number(len(given)) + b"".join(self.tagged(each, element) for each in given)
            case DivisibleBy(divisor, every, along):
                return number(8) + number(divisor) + self._maybe(every, along)
            case SameElements(groups):
                return number(9) + integers(groups, 8)
            case Bounded(low, high):
                return number(12) + self._maybe(low, high)
            case dict():
                return number(10) + self.named(given)
        raise AssertionError(given)

    def _maybe(self, *given: int | None) -> bytes:
        flags = sum(1 << place for place, each in enumerate(given) if each is not None)
        return bytes([flags]) + b"".join(signed(each) for each in given if each is not None)

    def named(self, given: dict[str, Any]) -> bytes:
        return number(len(given)) + b"".join(self.text(name) + self.tagged(each) for name, each in given.items())

    # ── operations ──

    def operation(self, given: Operation) -> bytes:
        """An operation, and all inside it.

        Raises
        ------
        AssertionError
            For what the version does not have.
        """
        assert not self.is_strict or FORMS[CODES[given.name]].since <= self.version, f"{given.name}, {self.version}"
        assert given.name != "print_tko" or self.version > (13, 1) or not given.types, "13.1 prints without tokens"
        parts = FORMS[CODES[given.name]].parts
        types, operands, flags = iter(given.types), iter(given.operands), 0
        made = number(CODES[given.name])
        for place, part in enumerate(parts):
            if part.since > self.version or (part.bit is not None and not flags >> part.bit & 1):
                assert self._is_default(given, part), f"{given.name}, {part}, {self.version}"
                continue
            value = given.attributes.get(part.name)
            match part.category:
                case "type":
                    made += self.type(next(types))
                case "types":
                    left = list(types)
                    made += number(len(left)) + b"".join(map(self.type, left))
                case "operand" if part.name:
                    made += number(given.optional[part.name])
                case "operand":
                    made += number(next(operands))
                case "operands":
                    rest = list(operands)
                    count = len(rest) - sum(each.category == "operand" and not each.name for each in parts[place + 1 :])
                    if given.name == "make_tensor_view" and parts[place + 1 :]:
                        (view,) = given.types
                        assert isinstance(view, TensorView)
                        count = view.shape.count(None)
                    made += number(count) + b"".join(map(number, rest[:count]))
                    operands = iter(rest[count:])
                case "flags":
                    names = part.name.split(",")
                    there = [bool(given.attributes.get(each)) or each in given.optional for each in names]
                    flags = sum(is_there << bit for bit, is_there in enumerate(there))
                    made += number(flags)
                case "enum":
                    made += bytes([ENUMERATIONS[part.enumeration].index(value or ENUMERATIONS[part.enumeration][0])])
                case "number":
                    made += number(int(value))
                case "byte":
                    made += bytes([bool(value)])
                case "text":
                    made += self.text(value)
                case "constant":
                    made += self.constant(value)
                case "bytes":
                    made += integers(value or (), 1)
                case "numbers":
                    made += integers(value, 4)
                case "tagged":
                    made += self.tagged(value)
                case "several":
                    kinds = [each.element for each in given.types if isinstance(each, Tile)]
                    made += number(len(value)) + b"".join(map(self.tagged, value, kinds))
                case "hints":
                    made += self.named(value)
                case "regions":
                    made += number(len(given.regions)) + b"".join(map(self.region, given.regions))
        return made

    def _is_default(self, given: Operation, part: Part) -> bool:
        """Whether nothing is lost where a part is not written."""
        if part.category == "operand":
            return part.name not in given.optional
        names = part.name.split(",") if part.category == "flags" else [part.name]
        nothing: tuple[Any, ...] = (None, False, {}, "none", "nearest_even", "full")
        values = [given.attributes.get(name) for name in names]
        return all(not any(each) if isinstance(each, tuple) else each in nothing for each in values)

    def region(self, given: Region) -> bytes:
        if not given.operations:
            return number(0)
        made = number(1) + number(len(given.types)) + b"".join(map(self.type, given.types))
        return made + number(len(given.operations)) + b"".join(map(self.operation, given.operations))

    def function(self, given: Function) -> bytes:
        made = self.text(given.name) + self.signature(given.parameters)
        made += number(2 | (4 if given.hints and self.version < (13, 5) else 0)) + number(0)
        if given.hints or self.version >= (13, 5):
            made += number(11) + self.named(dict(given.hints))
        if self.version >= (13, 5):
            made += number(6) + number(0)
        body = b"".join(map(self.operation, given.operations))
        return made + number(len(body)) + body


def written(module: TileModule, version: tuple[int, int] = (13, 5), is_strict: bool = True) -> bytes:
    """A module's bytecode of a version, without operations that are newer if it is strict; places are left out."""
    writer = Writer(version, is_strict)
    writer.is_multicast = any(
        each.name.startswith("multimem") for function in module.functions.values() for each in function.walk()
    )
    functions = [writer.function(each) for each in module.functions.values()]
    variables = []
    for name, each in module.globals.items():
        made = writer.text(name) + writer.type(each.type) + writer.constant(each.data) + number(each.alignment)
        variables.append(made + (number(0) + number(each.is_constant) if version >= (13, 3) else b""))
    sections = {
        2: number(len(functions)) + b"".join(functions),
        6: number(len(variables)) + b"".join(variables) if variables else b"",
        4: table(list(writer.constants), 8),
        5: table(list(writer.types), 4),
        1: table([each.encode() for each in writer.strings], 4),
    }
    code = b"\x7fTileIR\0" + bytes([*version, 0, 0])
    for kind, data in sections.items():
        if data:
            code += bytes([kind | 128]) + number(len(data)) + number(8)
            code += bytes(-len(code) % 8) + data
    return code + b"\0"


class Body:
    """Operations, made one by one; values are numbers.

    Parameters
    ----------
    parameters : type
        Of the kernel.
    """

    def __init__(self, *parameters: Type) -> None:
        self.parameters = parameters
        self._next = self._most = len(parameters)
        self._open: list[list[Operation]] = [[]]

    def values(self, name: str, types: Iterable[Type], *operands: int, **attributes: Any) -> tuple[int, ...]:
        """The results of an operation; operands that need not be there are given by name, with a `_` after it."""
        optional = {key[:-1]: value for key, value in attributes.items() if key.endswith("_") and value is not None}
        regions = attributes.pop("regions", ())
        kept = {key: value for key, value in attributes.items() if not key.endswith("_")}
        types = tuple(types)
        results = self._numbers(len(types))
        made = Operation(name, results, types, operands, optional, kept, tuple(regions), None)
        self._open[-1].append(made)
        return results

    def value(self, name: str, made: Type, *operands: int, **attributes: Any) -> int:
        """The one result of an operation."""
        return self.values(name, [made], *operands, **attributes)[0]

    def _numbers(self, count: int) -> tuple[int, ...]:
        found = tuple(range(self._next, self._next + count))
        self._next += count
        self._most = max(self._most, self._next)
        return found

    def region(self, types: Iterable[Type], inside: Callable[..., None]) -> Region:
        """What `inside` makes of the region's arguments."""
        types, kept = tuple(types), self._next
        arguments = self._numbers(len(types))
        self._open.append([])
        inside(*arguments)
        self._next = kept
        return Region(arguments, types, self._open.pop())

    def constant(self, given: Any, kind: Tile) -> int:
        """A constant, of an array of the dtype that its type is held as."""
        held = np.asarray(given, dtype_of(kind))
        data = np.packbits(held, bitorder="little") if held.dtype == np.bool_ and held.ndim else held
        return self.value("constant", kind, value=data.tobytes())

    def module(self, hints: dict[str, Any] | None = None, **variables: Global) -> TileModule:
        """A module of one kernel, `k`."""
        (operations,) = self._open
        made = TileModule((13, 5), globals=dict(variables))
        made.functions["k"] = Function("k", self.parameters, hints or {}, operations, self._most)
        return made
