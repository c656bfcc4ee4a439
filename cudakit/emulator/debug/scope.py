"""Variables that are visible at a warp's place: types, storage and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Final, NamedTuple

import numpy as np

from cudakit.emulator.debug import dwarf
from cudakit.emulator.debug.dwarf import Entry, Value, evaluate
from cudakit.emulator.debug.timeline import Front, Stepper
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.machine.memory import AccessError, plain
from cudakit.emulator.machine.state import Frame
from cudakit.emulator.ptx.program import Function
from cudakit.errors import ArgumentError
from cudakit.types.cpp import HEADER, parse_type, scalar, scalar_dtype

_KINDS: Final = {2: "u", 4: "f", 5: "i", 6: "i", 7: "u", 8: "u"}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SHARED = re.compile(r"__shared__\s+([^;=()]+(?:\([^;=]*?\)[^;=()]*)*)\s*[;=]")
_DECLARED = re.compile(r"\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)$")
_ALIGNED = re.compile(r"(?:__align__|alignas)\s*\([^()]*\)|\b(?:const|volatile|static|extern|struct)\b")


class Type(NamedTuple):
    """NumPy dtype of a variable, and the type to which a pointer points."""

    dtype: np.dtype
    target: Entry | None = None


def of_entry(entry: Entry | None) -> Type | None:
    """Return the type of an entry of debug information; None if NumPy has no such type."""
    while entry is not None and entry.tag == "same":
        entry = entry.attributes.get("type")
    if entry is None:
        return None
    attributes = entry.attributes
    if entry.tag == "pointer":
        return Type(np.dtype("u8"), attributes.get("type"))
    if entry.tag == "base":
        if attributes.get("encoding") == 2:
            return Type(np.dtype("?"))
        dtype_kind, size = _KINDS.get(attributes.get("encoding", 0)), attributes.get("size", 0)
        return Type(np.dtype(f"{dtype_kind}{size}")) if dtype_kind and size in (1, 2, 4, 8) else None
    if entry.tag == "enum":
        return Type(np.dtype(f"i{attributes.get('size', 4)}"))
    if entry.tag == "array":
        element = of_entry(attributes.get("type"))
        extents = tuple(_extent(child) for child in entry.children if child.tag == "extent")
        return None if element is None else Type(np.dtype((element.dtype, extents)), element.target)
    if entry.tag == "struct":
        special = scalar(attributes["name"]) if attributes.get("name") in HEADER else None
        return _struct(entry) if special is None else Type(special)
    return None


def _extent(entry: Entry) -> int:
    return int(entry.attributes.get("count", entry.attributes.get("last", -1) + 1))


def _struct(entry: Entry) -> Type | None:
    names, formats, offsets = list[str](), list[np.dtype](), list[int]()
    for member in entry.children:
        member_type = of_entry(member.attributes.get("type")) if member.tag == "member" else None
        if member_type is not None and isinstance(member.attributes.get("offset", 0), int):
            # A base class has no name.
            names.append(member.attributes.get("name") or f"base{len(names)}")
            formats.append(member_type.dtype)
            offsets.append(member.attributes.get("offset", 0))
    if not names:
        return None
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": entry.attributes.get("size", 0)}
    try:
        return Type(np.dtype(fields))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


def of_shared(text: str, name: str, size: int, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype:
    """Return the dtype, with its shape, of a shared variable of `size` bytes, as the source declares it.

    If the declaration is not found or not understood, the result is a dtype of `size` bytes.

    Parameters
    ----------
    text : str
        CUDA C++ source.
    name : str
        Name of the variable.
    size : int
        Bytes of the variable.
    meant : mapping of str to str
        Values of template parameters, by name.
    structs : mapping of str to Entry
        Structs by name.
    """
    for match in _SHARED.finditer(_COMMENT.sub(" ", text)):
        base, declared = _split(_ALIGNED.sub(" ", match[1]))
        for declarator in declared:
            declaration = _DECLARED.match(declarator)
            if declaration is None or declaration[1] != name:
                continue
            element = _element(base, meant, structs)
            if element is None or not element.itemsize or size % element.itemsize:
                break
            extents = [_whole(extent, meant) for extent in re.findall(r"\[([^\]]*)\]", declaration[2])]
            shape = _completed(extents, size // element.itemsize)
            return np.dtype((element, shape)) if shape is not None else element
    return np.dtype(("u1", (size,)))


def _split(declaration: str) -> tuple[str, list[str]]:
    """Return the type of a declaration as text, and its declarators, each a name with its extents: ``"a[4][8]"``.

    If the declaration is not understood, the text and the list are empty.
    """
    first, *more = re.split(r",(?![^<\[]*[>\]])", declaration)
    match = re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", first)
    if match is None:
        return "", []
    return first[: match.start()].strip(), [match[0], *more]


def _element(base: str, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype | None:
    name = meant.get(base, base).strip()
    if name in structs:
        struct_type = of_entry(structs[name])
        return None if struct_type is None else struct_type.dtype
    try:
        return scalar_dtype(parse_type(name))
    except (KeyError, TypeError, ValueError):
        return None


def _whole(text: str, meant: Mapping[str, str]) -> int | None:
    """Return the value of a constant integer expression, or None if it has no known value.

    `meant` has the values of the template parameters that the expression may name.
    """
    try:
        return int(evaluate(text, _Constants(meant)).data[0])
    except (ArgumentError, OverflowError, TypeError, ValueError):
        return None


class _Constants:
    """A scope in which the names of an expression are template parameters."""

    def __init__(self, meant: Mapping[str, str]) -> None:
        self._meant = meant

    def variable(self, name: str) -> Value:
        if name not in self._meant:
            raise ArgumentError(f"{name} is not known")
        return evaluate(self._meant[name], _Constants({}))

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        raise ArgumentError("no constant is a pointer")


def _completed(extents: list[int | None], count: int) -> tuple[int, ...] | None:
    """Return the shape of `count` elements by the extents, of which one may be unknown (None or 0).

    An unknown extent is filled in, also in `extents` itself. The result is (count,) if the extents do not fit, and ()
    for a single element without extents.
    """
    if not extents:
        return () if count == 1 else (count,)
    product = prod(extent for extent in extents if extent)
    missing = [place for place, extent in enumerate(extents) if not extent]
    if len(missing) == 1 and product and count % product == 0:
        extents[missing[0]] = count // product
    elif missing or product != count:
        return (count,)
    return tuple(extent or 0 for extent in extents)


_BUILT_IN = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}


class Program:
    """Variables of a program, with their declarations.

    Parameters
    ----------
    symbols : dwarf.Symbols
        Variables of the program's debug information.
    text : str
        Source in which shared variables are looked up.
    meant : dict of str to str
        Template arguments, by parameter name.
    """

    symbols: dwarf.Symbols
    text: str
    meant: dict[str, str]

    def __init__(self, symbols: dwarf.Symbols, text: str, meant: dict[str, str]) -> None:
        self.symbols, self.text, self.meant = symbols, text, meant
        self._shared: dict[tuple[str, int], np.dtype] = {}

    def shared_type(self, symbol: str, size: int) -> np.dtype:
        """Return the dtype of a shared variable of `size` bytes."""
        dtype = self._shared.get((symbol, size))
        if dtype is None:
            types_there = (v.type for v in self.symbols.program if any(k.place.name == symbol for k in v.locations))
            entry_type = of_entry(next(types_there, None))
            if entry_type is not None and entry_type.dtype.itemsize == size:
                dtype = entry_type.dtype
            else:
                dtype = of_shared(self.text, plain(symbol), size, self.meant, self.symbols.types)
            self._shared[symbol, size] = dtype
        return dtype


class Scope:
    """Meaning of names for the lanes of a warp at one place.

    Parameters
    ----------
    program : Program
        Variables of the program.
    stepper : Stepper
        Interpreter of the lanes.
    front : Front
        Position of the warp.
    """

    program: Program
    stepper: Stepper
    front: Front

    def __init__(self, program: Program, stepper: Stepper, front: Front) -> None:
        self.program, self.stepper, self.front = program, stepper, front
        self.lanes: np.ndarray = front.lanes
        self.function: Function = stepper.module.functions[front.function]
        self.context: Context = stepper.module.context(self.function)
        self.frame: Frame = stepper.frame(front.depth, front.function)
        #: Offsets of the kernel's shared variables.
        self.offsets = stepper.launch.shared.offsets

    # ── by names ──

    def names(self) -> list[str]:
        """Return the names of the function's visible variables, the outermost first."""
        return list(dict.fromkeys(variable.name for variable in self._visible()))

    def _visible(self) -> Iterator[dwarf.Variable]:
        for variable in self.program.symbols.functions.get(self.function.name, ()):
            if self._holds(variable.first, variable.end):
                yield variable

    def _holds(self, first: str, end: str) -> bool:
        labels, size = self.function.labels, len(self.function.code)
        return not first or labels.get(first, 0) <= self.front.code < labels.get(end, size)

    def variable(self, name: str) -> Value:
        """Return a variable's value: see `cudakit.emulator.debug.dwarf.Scope`."""
        own = [variable for variable in self._visible() if variable.name == name]
        if own:
            return self._read(own[-1])
        base, _, axis = name.partition(".")
        if base in _BUILT_IN and axis in ("x", "y", "z"):
            return Value(self._per_lane(self.stepper.special[f"{_BUILT_IN[base]}.{axis}"]))
        if name == "warpSize":
            return Value(np.asarray([32]))
        if name.startswith("%"):
            return self.register(name)
        for symbol in self.offsets:
            if plain(symbol) == name:
                array = self.shared(symbol, int(self.stepper.block_of[self.lanes[0]]))
                return Value(np.broadcast_to(array, (len(self.lanes), *array.shape)))
        for outer in self.program.symbols.program:
            if outer.name == name:
                return self._read(outer)
        visible = ", ".join([*self.names(), *map(plain, self.offsets)]) or "none"
        raise ArgumentError(f"no variable {name} is known here; those seen from this line are {visible}")

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        """Return the value behind an address: see `cudakit.emulator.debug.dwarf.Scope`."""
        target_type = of_entry(value.target)
        if target_type is None:
            raise ArgumentError("what this pointer points to is not known")
        size = target_type.dtype.itemsize
        base = np.broadcast_to(value.data, self.lanes.shape).astype(np.uint64)
        at = base + (np.broadcast_to(index, self.lanes.shape) * size).astype(np.uint64)
        data = np.zeros((len(self.lanes), size), np.uint8)
        has_value = np.broadcast_to(True if value.has_value is None else value.has_value, base.shape).copy()
        for lane in np.flatnonzero(has_value):
            addresses, lanes = at[lane] + np.arange(size, dtype=np.uint64), np.full(size, self.lanes[lane])
            try:
                data[lane] = self.stepper.memory.load("generic", addresses, np.dtype("u1"), lanes)
            except AccessError:
                has_value[lane] = False
        return Value(_as_type(data, target_type.dtype), target_type.target, has_value)

    # ── by places ──

    def register(self, name: str) -> Value:
        """Return the values that the debugged lanes have in a register now, with a mark where none has been written."""
        number = self.context.numbers.get(name)
        if number is None:
            raise ArgumentError(f"no register {name} is in {self.function.name}")
        values = self.frame.registers[number]
        has_value = None if values is not self.context.blank[number] else np.zeros(len(self.lanes), bool)
        return Value(self._per_lane(values), None, has_value)

    def shared(self, symbol: str, block: int) -> np.ndarray:
        """Return a view of a shared variable of a block, as its declared type.

        `symbol` is the variable's name in the PTX, `block` the block's number among the running blocks. A variable of
        unknown size takes the rest of the block's shared memory.
        """
        memory, start = self.stepper.memory, self.offsets[symbol]
        variables = [*self.stepper.module.program.variables.values()]
        for function in self.stepper.module.functions:
            variables += function.variables.values()
        size = next(variable.size for variable in variables if variable.name == symbol)
        raw = memory.shared[block, start : start + size if size else memory.shared_bytes]
        if not size:
            types = (v.type for v in self.program.symbols.program if v.locations[0].place.name == symbol)
            entry_type = of_entry(next(types, None))
            element = entry_type.dtype.base if entry_type is not None else np.dtype("u1")
            return raw[: raw.size // element.itemsize * element.itemsize].view(element)
        dtype = self.program.shared_type(symbol, size)
        return raw.view(dtype.base).reshape(dtype.shape)

    def _read(self, variable: dwarf.Variable) -> Value:
        variable_type = of_entry(variable.type)
        place = next(
            (location.place for location in reversed(variable.locations) if self._holds(location.first, location.end)),
            None,
        )
        nothing = np.zeros(len(self.lanes), bool)
        if variable_type is None or place is None:
            dtype = np.dtype("u1") if variable_type is None else variable_type.dtype
            return Value(
                np.zeros((len(self.lanes), *dtype.shape), dtype.base), variable_type and variable_type.target, nothing
            )
        size = variable_type.dtype.itemsize
        if place.in_register:
            if place.name not in self.context.numbers:
                return Value(np.zeros(len(self.lanes), variable_type.dtype), variable_type.target, nothing)
            register = self.register(place.name)
            raw = np.ascontiguousarray(register.data).view(np.uint8).reshape(len(self.lanes), -1)
            wide = np.zeros((len(self.lanes), max(size, raw.shape[1])), np.uint8)
            wide[:, : raw.shape[1]] = raw
            return Value(_as_type(wide[:, :size], variable_type.dtype), variable_type.target, register.has_value)
        return Value(_as_type(self._bytes(place, size), variable_type.dtype), variable_type.target)

    def _bytes(self, place: dwarf.Place, size: int) -> np.ndarray:
        memory, symbols, lanes = self.stepper.memory, self.context.symbols, self.lanes
        if place.name in self.context.local:
            start = self.frame.local_base[lanes] + self.context.local[place.name] + place.offset
            result: np.ndarray = memory.local[lanes[:, None], start[:, None] + np.arange(size)]
            return result
        if place.name in self.offsets:
            start = self.offsets[place.name] + place.offset
            rows: np.ndarray = memory.shared[self.stepper.block_of[lanes]][:, start : start + size]
            return rows
        if place.name in symbols.storage:
            raw = symbols.storage[place.name][place.offset : place.offset + size]
        elif place.name in self.context.parameter_offsets:
            start = self.context.parameter_offsets[place.name] + place.offset
            raw = memory.parameters[0, start : start + size]
        else:
            parameter = self.frame.parameters.get(place.name)
            raw = np.zeros(size, np.uint8) if parameter is None else parameter[0 if len(parameter) == 1 else lanes]
            raw = raw[..., place.offset : place.offset + size]
        return np.broadcast_to(raw, (len(lanes), size))

    def _per_lane(self, values: object) -> np.ndarray:
        data = np.asarray(values)
        return np.broadcast_to(data.reshape(-1), self.lanes.shape) if data.size == 1 else data[self.lanes]


def _as_type(raw: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the values of `dtype` that rows of bytes hold, one value for each row.

    The first axis of the result is the rows; the axes of an array dtype follow.
    """
    flat = np.ascontiguousarray(raw).reshape(-1).view(dtype.base)
    return flat.reshape(raw.shape[0], *dtype.shape)
