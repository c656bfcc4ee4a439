"""Debug information that ``-G`` writes into PTX: variables' C++ names, types and locations (DWARF 2, 7.5).

C++ expressions of variables are evaluated for all lanes of a warp: conditions of breakpoints, and printed values.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from cudakit.errors import ArgumentError, shortened

#: Tags used here (DWARF 2, figure 14), by number.
_TAGS: Final = {
    0x01: "array", 0x02: "struct", 0x04: "enum", 0x05: "variable", 0x0B: "block", 0x0D: "member", 0x0F: "pointer",
    0x10: "pointer", 0x13: "struct", 0x16: "same", 0x17: "struct", 0x1C: "member", 0x21: "extent", 0x24: "base",
    0x26: "same", 0x2D: "same", 0x2E: "function", 0x34: "variable", 0x35: "same", 0x37: "same", 0x39: "space",
    0x42: "pointer",
}  # fmt: skip
#: Attributes used here, by number.
_ATTRIBUTES: Final = {
    0x02: "location", 0x03: "name", 0x0B: "size", 0x11: "low", 0x12: "high", 0x2F: "last", 0x31: "origin",
    0x37: "count", 0x38: "offset", 0x3B: "line", 0x3E: "encoding", 0x47: "specification", 0x49: "type", 0x6E: "symbol",
    0x2007: "symbol",
}  # fmt: skip
_FIXED: Final = {0x01: 8, 0x05: 2, 0x06: 4, 0x07: 8, 0x0B: 1, 0x0C: 1, 0x11: 1, 0x12: 2, 0x13: 4, 0x14: 8, 0x17: 4}
_BLOCKS: Final = {0x03: 2, 0x04: 4, 0x0A: 1}
_STRING, _BLOCK, _SDATA, _STRP, _UDATA, _ADDRESS = 0x08, 0x09, 0x0D, 0x0E, 0x0F, 0x10
_REF_UDATA, _EXPRLOC, _PRESENT = 0x15, 0x18, 0x19
_OP_ADDR, _OP_PLUS, _OP_REGX = 0x03, 0x23, 0x90
_SECTION = re.compile(r"^\s*\.section\s+(\.\w+)\s*\{(.*?)\}", re.DOTALL | re.MULTILINE)
_DATUM = re.compile(r"^\s*(?:\.b(8|16|32|64)\s+([^\n]+)|([\w$%]+):)", re.MULTILINE)


class Section(NamedTuple):
    """A section of debug information.

    `data` has its bytes, and `labels` the byte offset of each label. `symbols` has, by byte offset, each name that the
    section has in place of a number.
    """

    data: bytes
    symbols: dict[int, str]
    labels: dict[str, int]


class Place(NamedTuple):
    """Storage of a variable: a register by name, or memory `offset` bytes behind the symbol `name`."""

    name: str
    offset: int = 0
    in_register: bool = False


class Location(NamedTuple):
    """A place of a variable, and the two labels of the function between which it is valid; empty: everywhere."""

    place: Place
    first: str = ""
    end: str = ""


@dataclass(eq=False)
class Entry:
    """An entry of the DWARF tree: tag, attributes and children."""

    tag: str
    attributes: dict[str, Any] = field(default_factory=dict)
    children: list[Entry] = field(default_factory=list)


class Variable(NamedTuple):
    """A variable of the source.

    Attributes
    ----------
    name : str
        Name of the variable.
    type : Entry or None
        Type of the variable.
    line : int
        Line of the declaration, as the compiler counts.
    locations : tuple of Location
        Places of the variable.
    first, end : str
        Labels where the variable's scope begins and ends; empty for a variable of the whole function or program.
    """

    name: str
    type: Entry | None
    line: int
    locations: tuple[Location, ...]
    first: str = ""
    end: str = ""


@dataclass
class Symbols:
    """Variables of a program.

    Attributes
    ----------
    functions : dict of str to list of Variable
        Variables of each function, by its name in the PTX; inner scopes are last.
    program : list of Variable
        Variables of the program.
    types : dict of str to Entry
        Structs and other named types, by name.
    """

    functions: dict[str, list[Variable]] = field(default_factory=dict)
    program: list[Variable] = field(default_factory=list)
    types: dict[str, Entry] = field(default_factory=dict)


def read(ptx: str) -> Symbols:
    """Return the variables in the debug information of PTX; no variables if it has no debug information."""
    sections = {name: _section(body) for name, body in _SECTION.findall(ptx)}
    if ".debug_info" not in sections or ".debug_abbrev" not in sections:
        return Symbols()
    return _Reader(sections).symbols


def _section(body: str) -> Section:
    data, symbols, labels = bytearray(), dict[int, str](), dict[str, int]()
    for bits, values, label in _DATUM.findall(body):
        if label:
            labels[label] = len(data)
        for value in values.split(",") if values else ():
            try:
                number = int(value.strip(), 0)
            except ValueError:
                symbols[len(data)], number = value.strip(), 0
            size = int(bits) // 8
            data += (number & (1 << 8 * size) - 1).to_bytes(size, "little")
    return Section(bytes(data), symbols, labels)


class _Reader:
    """Reader of the DWARF tree of one program."""

    def __init__(self, sections: dict[str, Section]) -> None:
        self.sections = sections
        self.symbols = Symbols()
        self.info = sections[".debug_info"]
        self.at = 0
        self.entries: dict[int, Entry] = {}
        while self.at + 11 <= len(self.info.data):
            self._unit()

    # ── numbers ──

    def _number(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.info.data[self.at - size : self.at], "little")

    def _uleb(self) -> int:
        number, self.at = _uleb(self.info.data, self.at)
        return number

    def _string(self, data: bytes, start: int) -> tuple[str, int]:
        end = data.index(0, start)
        return data[start:end].decode(errors="replace"), end + 1

    # ── the tree ──

    def _unit(self) -> None:
        start = self.at
        end = self.at + 4 + self._number(4)
        version = self._number(2)
        if not 2 <= version <= 4:
            self.at = end
            return
        here = self.at
        abbreviations = self._abbreviations(self._offset(here, self._number(4)))
        self.at += 1
        open_: list[Entry] = []
        while self.at < end:
            at = self.at - start
            code = self._uleb()
            if not code:
                if open_:
                    open_.pop()
                continue
            tag, has_children, attributes = abbreviations[code]
            entry = Entry(tag)
            for name, form in attributes:
                value = self._value(form)
                if name:
                    entry.attributes[name] = value
            self.entries[at] = entry
            if open_:
                open_[-1].children.append(entry)
            if has_children:
                open_.append(entry)
        self.at = end
        for entry in list(self.entries.values()):
            for name in ("type", "specification", "origin"):
                if name in entry.attributes:
                    entry.attributes[name] = self.entries.get(entry.attributes[name])
        for entry in self.entries.values():
            self._finish(entry)
        self.entries = {}

    def _offset(self, at: int, otherwise: int) -> int:
        """Return the offset in another section that the reference at byte `at` names: ``.debug_loc+133``, or a label.

        `otherwise` is the number stored there. It is added to the offset, or is the whole result if there is no
        reference.
        """
        name, _, shift = self.info.symbols.get(at, "").partition("+")
        label = next((section.labels[name] for section in self.sections.values() if name in section.labels), 0)
        return label + (int(shift) if shift else 0) + otherwise

    def _abbreviations(self, at: int) -> dict[int, tuple[str, bool, list[tuple[str, int]]]]:
        data = self.sections[".debug_abbrev"].data
        table: dict[int, tuple[str, bool, list[tuple[str, int]]]] = {}
        while at < len(data):
            code, at = _uleb(data, at)
            if not code:
                break
            tag, at = _uleb(data, at)
            has_children, at = bool(data[at]), at + 1
            attributes = []
            while True:
                name, at = _uleb(data, at)
                form, at = _uleb(data, at)
                if not name and not form:
                    break
                attributes.append((_ATTRIBUTES.get(name, ""), form))
            table[code] = _TAGS.get(tag, ""), has_children, attributes
        return table

    def _value(self, form: int) -> Any:
        at = self.at
        if form in _FIXED:
            number = self._number(_FIXED[form])
            if form == 0x06 and at in self.info.symbols:
                return self._offset(at, number), "list"
            return self.info.symbols.get(at, number) if form == 0x01 else number
        if form in _BLOCKS or form in (_BLOCK, _EXPRLOC):
            size = self._number(_BLOCKS[form]) if form in _BLOCKS else self._uleb()
            at, self.at = self.at, self.at + size
            return _place(self.info, at, size)
        if form == _STRING:
            text, self.at = self._string(self.info.data, at)
            return text
        if form == _STRP:
            return self._string(self.sections[".debug_str"].data, self._offset(at, self._number(4)))[0]
        if form in (_UDATA, _REF_UDATA, _SDATA):
            return self._uleb()
        if form == _PRESENT:
            return 1
        if form == _ADDRESS:
            return self._offset(at, self._number(4))
        raise ValueError(f"form {form:#x} of DWARF is not known here")

    # ── what it means ──

    def _finish(self, entry: Entry) -> None:
        name = entry.attributes.get("name", "")
        if entry.tag in ("struct", "enum") and name:
            self.symbols.types.setdefault(name, entry)
        if entry.tag == "function":
            origin = entry.attributes.get("specification") or entry.attributes.get("origin")
            symbol = entry.attributes.get("symbol") or (origin and origin.attributes.get("symbol")) or name
            if "low" in entry.attributes:
                self.symbols.functions[symbol] = list(self._variables(entry, "", ""))
        elif entry.tag in ("", "space"):
            for child in entry.children:
                if child.tag == "variable" and (variable := self._variable(child, "", "")):
                    self.symbols.program.append(variable)

    def _variables(self, scope: Entry, first: str, end: str) -> Iterator[Variable]:
        for entry in scope.children:
            if entry.tag == "variable" and (variable := self._variable(entry, first, end)):
                yield variable
        for entry in scope.children:
            if entry.tag == "block" and "low" in entry.attributes:
                yield from self._variables(entry, str(entry.attributes["low"]), str(entry.attributes["high"]))

    def _variable(self, entry: Entry, first: str, end: str) -> Variable | None:
        origin = entry.attributes.get("specification") or entry.attributes.get("origin") or entry
        attributes = {**origin.attributes, **entry.attributes}
        location = attributes.get("location")
        if location is None or "name" not in attributes:
            return None
        places = (
            [Location(location)]
            if isinstance(location, Place)
            else self._list(location[0])
            if isinstance(location, tuple)
            else ()
        )
        return Variable(
            attributes["name"], attributes.get("type"), attributes.get("line", 0), tuple(places), first, end
        )

    def _list(self, at: int) -> Iterator[Location]:
        section = self.sections[".debug_loc"]
        while at in section.symbols and at + 8 in section.symbols:
            size = int.from_bytes(section.data[at + 16 : at + 18], "little")
            place = _place(section, at + 18, size)
            if isinstance(place, Place):
                yield Location(place, section.symbols[at], section.symbols[at + 8])
            at += 18 + size


def _uleb(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at


def _place(section: Section, at: int, size: int) -> Place | int | None:
    """Return the storage that a DWARF location expression of `size` bytes at byte `at` of the section names.

    The result is an integer for the byte offset of a struct's member, and None for an expression that is not supported.
    """
    data, end = section.data, at + size
    place: Place | None = None
    offset = 0
    while at < end:
        operation, at = data[at], at + 1
        if operation == _OP_ADDR and place is None:
            place, at = Place(section.symbols.get(at, "")), at + 8
        elif operation == _OP_REGX and place is None:
            number, at = _uleb(data, at)
            # Name of a PTX register, its characters from the highest byte on.
            place = Place(number.to_bytes(8, "big").lstrip(b"\0").decode(errors="replace"), 0, True)
        elif operation == _OP_PLUS:
            more, at = _uleb(data, at)
            offset += more
        else:
            return None
    return offset if place is None else place._replace(offset=offset)


_SPELLED: Final = {"&&": " and ", "||": " or ", "->": ".", "::": "."}
_OPERATOR = re.compile(r"&&|\|\||->|!(?!=)|\b(?:true|false)\b|(?<=[\d.])[fFuUlL]+\b")
_BINARY: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: np.logical_not
}  # fmt: skip


class Value(NamedTuple):
    """A value for each lane, and, if the value is an address, the type to which it points.

    Attributes
    ----------
    data : numpy.ndarray
        Values; the first axis is the lanes.
    target : Entry or None
        Type to which an address points.
    has_value : numpy.ndarray of bool, or None
        Flags of the lanes that have a value; None if all do.
    """

    data: np.ndarray
    target: Entry | None = None
    has_value: np.ndarray | None = None


class Scope(Protocol):
    """Meaning of names in an expression: variables, and memory behind addresses."""

    def variable(self, name: str) -> Value:
        """Return a variable's value.

        Raises
        ------
        ArgumentError
            For a name without a variable.
        """

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        """Return the values in memory `index` elements behind an address; both have one entry for each lane."""


def evaluate(text: str, scope: Scope) -> Value:
    """Return the value of an expression in C++'s notation. Integers are computed in 64 bits.

    Raises
    ------
    ArgumentError
        For text that is no expression of known variables.
    """
    spelled = _OPERATOR.sub(_respelled, text).strip()
    try:
        tree = ast.parse(spelled, mode="eval").body
    except (SyntaxError, ValueError):
        raise ArgumentError(
            f"{shortened(text)} is not an expression of variables, numbers, [ ], . and operators"
        ) from None
    with np.errstate(all="ignore"):
        return _Evaluation(text, scope).of(tree)


def _respelled(match: re.Match[str]) -> str:
    word = match[0]
    if word in ("true", "false"):
        return word.capitalize()
    return " not " if word == "!" else _SPELLED.get(word, "")


class _Evaluation:
    def __init__(self, text: str, scope: Scope) -> None:
        self.text, self.scope = text, scope

    def of(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                return Value(np.asarray([number]))
            case ast.Name(id=name):
                return self.scope.variable(name)
            case ast.Attribute(value=inner, attr=name):
                if isinstance(inner, ast.Name) and inner.id in ("threadIdx", "blockIdx", "blockDim", "gridDim"):
                    return self.scope.variable(f"{inner.id}.{name}")
                return self._member(self.of(inner), name)
            case ast.Subscript(value=inner, slice=index):
                return self._element(self.of(inner), self.of(index))
            case ast.UnaryOp(op=operation, operand=inner):
                value = self.of(inner)
                return value._replace(data=np.asarray(_UNARY[type(operation)](value.data)), target=None)
            case ast.BoolOp(op=operation, values=parts):
                join = np.logical_and if isinstance(operation, ast.And) else np.logical_or
                result = self.of(parts[0])
                for part in parts[1:]:
                    result = self._joined(join, result, self.of(part))
                return result
            case ast.Compare(left=left, ops=[operation], comparators=[right]) if type(operation) in _COMPARE:
                return self._joined(_COMPARE[type(operation)], self.of(left), self.of(right))
            case ast.BinOp(left=left, op=operation, right=right):
                return self._binary(type(operation), self.of(left), self.of(right))
        raise ArgumentError(f"{shortened(self.text)}: {shortened(ast.unparse(node))} cannot be computed here")

    def _joined(self, join: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
        try:
            data = np.asarray(join(_wide(left.data), _wide(right.data)))
        except (TypeError, ValueError) as error:
            raise ArgumentError(f"{shortened(self.text)} cannot be computed: {error}") from None
        masks = [value.has_value for value in (left, right) if value.has_value is not None]
        return Value(data, None, np.logical_and.reduce(masks) if masks else None)

    def _binary(self, operation: type[ast.operator], left: Value, right: Value) -> Value:
        whole = left.data.dtype.kind in "iub" and right.data.dtype.kind in "iub"
        if operation in (ast.Div, ast.FloorDiv):
            # Integers are rounded to zero, as in C++.
            return self._joined(_divided if whole else operator.truediv, left, right)
        if operation is ast.Mod:
            return self._joined(np.fmod, left, right)
        if operation not in _BINARY:
            raise ArgumentError(f"{shortened(self.text)}: this operator is not known here")
        return self._joined(_BINARY[operation], left, right)

    def _member(self, value: Value, name: str) -> Value:
        if value.target is not None:
            value = self.scope.pointed(value, np.zeros(1, np.int64))
        if value.data.dtype.names is None or name not in value.data.dtype.names:
            raise ArgumentError(f"{shortened(self.text)}: there is no member {name}")
        return Value(value.data[name], None, value.has_value)

    def _element(self, value: Value, index: Value) -> Value:
        if index.data.dtype.kind not in "iub":
            raise ArgumentError(f"{shortened(self.text)}: an index is a whole number")
        at = index.data.astype(np.int64)
        if value.target is not None and value.data.ndim == 1:
            return self.scope.pointed(value, at)
        if value.data.ndim < 2:
            raise ArgumentError(f"{shortened(self.text)}: [ ] follows a value that is not an array")
        lanes = max(value.data.shape[0], at.shape[0])
        at = np.broadcast_to(at, lanes)
        inside = (at >= 0) & (at < value.data.shape[1])
        if not inside.any():
            raise ArgumentError(f"{shortened(self.text)}: index {at[0]} is outside the {value.data.shape[1]} elements")
        rows = np.broadcast_to(np.arange(value.data.shape[0]), lanes)
        has_value = inside if value.has_value is None else inside & value.has_value
        if index.has_value is not None:
            has_value = has_value & index.has_value
        return Value(value.data[rows, np.where(inside, at, 0)], value.target, has_value)


def _wide(data: np.ndarray) -> np.ndarray:
    return data.astype(np.int64) if data.dtype.kind in "iu" else data


def _divided(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    by = np.where(right == 0, 1, right)
    quotient: np.ndarray = np.where(right == 0, 0, np.sign(left) * np.sign(by) * (abs(left) // abs(by)))
    return quotient
