"""The variables that are seen from where a warp stands: their types, where they are kept, and what they hold."""

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
    """What the bytes of a variable are, and of a pointer what it points to."""

    dtype: np.dtype
    target: Entry | None = None


def of_entry(entry: Entry | None) -> Type | None:
    """The type that an entry of debug information stands for; None where NumPy has none."""
    while entry is not None and entry.kind == "same":
        entry = entry.given.get("type")
    if entry is None:
        return None
    given = entry.given
    if entry.kind == "pointer":
        return Type(np.dtype("u8"), given.get("type"))
    if entry.kind == "base":
        if given.get("encoding") == 2:
            return Type(np.dtype("?"))
        kind, size = _KINDS.get(given.get("encoding", 0)), given.get("size", 0)
        return Type(np.dtype(f"{kind}{size}")) if kind and size in (1, 2, 4, 8) else None
    if entry.kind == "enum":
        return Type(np.dtype(f"i{given.get('size', 4)}"))
    if entry.kind == "array":
        element = of_entry(given.get("type"))
        extents = tuple(_extent(each) for each in entry.children if each.kind == "extent")
        return None if element is None else Type(np.dtype((element.dtype, extents)), element.target)
    if entry.kind == "struct":
        special = scalar(given["name"]) if given.get("name") in HEADER else None
        return _struct(entry) if special is None else Type(special)
    return None


def _extent(entry: Entry) -> int:
    return int(entry.given.get("count", entry.given.get("last", -1) + 1))


def _struct(entry: Entry) -> Type | None:
    names, formats, offsets = list[str](), list[np.dtype](), list[int]()
    for member in entry.children:
        found = of_entry(member.given.get("type")) if member.kind == "member" else None
        if found is not None and isinstance(member.given.get("offset", 0), int):
            # A base class has no name.
            names.append(member.given.get("name") or f"base{len(names)}")
            formats.append(found.dtype)
            offsets.append(member.given.get("offset", 0))
    if not names:
        return None
    fields = {"names": names, "formats": formats, "offsets": offsets, "itemsize": entry.given.get("size", 0)}
    try:
        return Type(np.dtype(fields))  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None


def of_shared(text: str, name: str, size: int, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype:
    """Type and shape of a shared variable of `size` bytes, as the text declares it; bytes where that is not clear.

    Parameters
    ----------
    text : str
        CUDA C++.
    name : str
    size : int
    meant : mapping of str to str
        What template parameters are.
    structs : mapping of str to Entry
        Structs by their names.
    """
    for match in _SHARED.finditer(_COMMENT.sub(" ", text)):
        base, declared = _split(_ALIGNED.sub(" ", match[1]))
        for each in declared:
            found = _DECLARED.match(each)
            if found is None or found[1] != name:
                continue
            element = _element(base, meant, structs)
            if element is None or not element.itemsize or size % element.itemsize:
                break
            extents = [_whole(extent, meant) for extent in re.findall(r"\[([^\]]*)\]", found[2])]
            shape = _completed(extents, size // element.itemsize)
            return np.dtype((element, shape)) if shape is not None else element
    return np.dtype(("u1", (size,)))


def _split(declaration: str) -> tuple[str, list[str]]:
    """The type in front, and the names with their extents."""
    first, *more = re.split(r",(?![^<\[]*[>\]])", declaration)
    match = re.search(r"(\w+)\s*((?:\[[^\]]*\]\s*)*)$", first)
    if match is None:
        return "", []
    return first[: match.start()].strip(), [match[0], *more]


def _element(base: str, meant: Mapping[str, str], structs: Mapping[str, Entry]) -> np.dtype | None:
    name = meant.get(base, base).strip()
    if name in structs:
        found = of_entry(structs[name])
        return None if found is None else found.dtype
    try:
        return scalar_dtype(parse_type(name))
    except (KeyError, TypeError, ValueError):
        return None


def _whole(text: str, meant: Mapping[str, str]) -> int | None:
    """A constant expression of numbers and template parameters."""
    try:
        return int(evaluate(text, _Constants(meant)).data[0])
    except (ArgumentError, OverflowError, TypeError, ValueError):
        return None


class _Constants:
    """Template parameters as variables."""

    def __init__(self, meant: Mapping[str, str]) -> None:
        self._meant = meant

    def variable(self, name: str) -> Value:
        if name not in self._meant:
            raise ArgumentError(f"{name} is not known")
        return evaluate(self._meant[name], _Constants({}))

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        raise ArgumentError("no constant is a pointer")


def _completed(extents: list[int | None], count: int) -> tuple[int, ...] | None:
    """Extents of `count` elements, of which one may be unknown; else a row of them."""
    if not extents:
        return () if count == 1 else (count,)
    known = prod(extent for extent in extents if extent)
    missing = [place for place, extent in enumerate(extents) if not extent]
    if len(missing) == 1 and known and count % known == 0:
        extents[missing[0]] = count // known
    elif missing or known != count:
        return (count,)
    return tuple(extent or 0 for extent in extents)


_BUILT_IN = {"threadIdx": "tid", "blockIdx": "ctaid", "blockDim": "ntid", "gridDim": "nctaid"}


class Program:
    """What is known of a program's variables.

    Parameters
    ----------
    symbols : dwarf.Symbols
    text : str
        Of the source, in which shared variables are looked up.
    meant : dict of str to str
        The template arguments.
    """

    symbols: dwarf.Symbols
    text: str
    meant: dict[str, str]

    def __init__(self, symbols: dwarf.Symbols, text: str, meant: dict[str, str]) -> None:
        self.symbols, self.text, self.meant = symbols, text, meant
        self._shared: dict[tuple[str, int], np.dtype] = {}

    def shared_type(self, symbol: str, size: int) -> np.dtype:
        """The type of a shared variable that takes so many bytes."""
        known = self._shared.get((symbol, size))
        if known is None:
            kept_there = (v.type for v in self.symbols.program if any(k.place.name == symbol for k in v.kept))
            found = of_entry(next(kept_there, None))
            if found is not None and found.dtype.itemsize == size:
                known = found.dtype
            else:
                known = of_shared(self.text, plain(symbol), size, self.meant, self.symbols.types)
            self._shared[symbol, size] = known
        return known


class Scope:
    """What names mean for some lanes of a warp.

    Parameters
    ----------
    program : Program
    stepper : Stepper
    front : Front
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
        #: Where the kernel's shared variables lie.
        self.offsets = stepper.launch.shared.offsets

    # ── by names ──

    def names(self) -> list[str]:
        """The variables of the function that are seen here, the outermost first."""
        return list(dict.fromkeys(each.name for each in self._seen()))

    def _seen(self) -> Iterator[dwarf.Variable]:
        for each in self.program.symbols.functions.get(self.function.name, ()):
            if self._holds(each.first, each.end):
                yield each

    def _holds(self, first: str, end: str) -> bool:
        labels, size = self.function.labels, len(self.function.code)
        return not first or labels.get(first, 0) <= self.front.code < labels.get(end, size)

    def variable(self, name: str) -> Value:
        """See `cudakit.emulator.debug.dwarf.Scope`."""
        own = [each for each in self._seen() if each.name == name]
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
                held = self.shared(symbol, int(self.stepper.block_of[self.lanes[0]]))
                return Value(np.broadcast_to(held, (len(self.lanes), *held.shape)))
        for each in self.program.symbols.program:
            if each.name == name:
                return self._read(each)
        known = ", ".join([*self.names(), *map(plain, self.offsets)]) or "none"
        raise ArgumentError(f"no variable {name} is known here; those seen from this line are {known}")

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        """See `cudakit.emulator.debug.dwarf.Scope`."""
        found = of_entry(value.target)
        if found is None:
            raise ArgumentError("what this pointer points to is not known")
        size = found.dtype.itemsize
        base = np.broadcast_to(value.data, self.lanes.shape).astype(np.uint64)
        at = base + (np.broadcast_to(index, self.lanes.shape) * size).astype(np.uint64)
        data = np.zeros((len(self.lanes), size), np.uint8)
        known = np.broadcast_to(True if value.known is None else value.known, base.shape).copy()
        for lane in np.flatnonzero(known):
            addresses, lanes = at[lane] + np.arange(size, dtype=np.uint64), np.full(size, self.lanes[lane])
            try:
                data[lane] = self.stepper.memory.load("generic", addresses, np.dtype("u1"), lanes)
            except AccessError:
                known[lane] = False
        return Value(_as_type(data, found.dtype), found.target, known)

    # ── by places ──

    def register(self, name: str) -> Value:
        """What a register of the function holds."""
        number = self.context.numbers.get(name)
        if number is None:
            raise ArgumentError(f"no register {name} is in {self.function.name}")
        held = self.frame.registers[number]
        known = None if held is not self.context.blank[number] else np.zeros(len(self.lanes), bool)
        return Value(self._per_lane(held), None, known)

    def shared(self, symbol: str, block: int) -> np.ndarray:
        """A variable in a block's shared memory."""
        memory, start = self.stepper.memory, self.offsets[symbol]
        variables = [*self.stepper.module.program.variables.values()]
        for function in self.stepper.module.functions:
            variables += function.variables.values()
        size = next(variable.size for variable in variables if variable.name == symbol)
        raw = memory.shared[block, start : start + size if size else memory.shared_bytes]
        if not size:
            types = (v.type for v in self.program.symbols.program if v.kept[0].place.name == symbol)
            found = of_entry(next(types, None))
            element = found.dtype.base if found is not None else np.dtype("u1")
            return raw[: raw.size // element.itemsize * element.itemsize].view(element)
        dtype = self.program.shared_type(symbol, size)
        return raw.view(dtype.base).reshape(dtype.shape)

    def _read(self, variable: dwarf.Variable) -> Value:
        found = of_entry(variable.type)
        kept = next((each.place for each in reversed(variable.kept) if self._holds(each.first, each.end)), None)
        nothing = np.zeros(len(self.lanes), bool)
        if found is None or kept is None:
            dtype = np.dtype("u1") if found is None else found.dtype
            return Value(np.zeros((len(self.lanes), *dtype.shape), dtype.base), found and found.target, nothing)
        size = found.dtype.itemsize
        if kept.in_register:
            if kept.name not in self.context.numbers:
                return Value(np.zeros(len(self.lanes), found.dtype), found.target, nothing)
            held = self.register(kept.name)
            raw = np.ascontiguousarray(held.data).view(np.uint8).reshape(len(self.lanes), -1)
            wide = np.zeros((len(self.lanes), max(size, raw.shape[1])), np.uint8)
            wide[:, : raw.shape[1]] = raw
            return Value(_as_type(wide[:, :size], found.dtype), found.target, held.known)
        return Value(_as_type(self._bytes(kept, size), found.dtype), found.target)

    def _bytes(self, place: dwarf.Place, size: int) -> np.ndarray:
        memory, symbols, lanes = self.stepper.memory, self.context.symbols, self.lanes
        if place.name in self.context.local:
            start = self.frame.local_base[lanes] + self.context.local[place.name] + place.offset
            found: np.ndarray = memory.local[lanes[:, None], start[:, None] + np.arange(size)]
            return found
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
            given = self.frame.parameters.get(place.name)
            raw = np.zeros(size, np.uint8) if given is None else given[0 if len(given) == 1 else lanes]
            raw = raw[..., place.offset : place.offset + size]
        return np.broadcast_to(raw, (len(lanes), size))

    def _per_lane(self, held: object) -> np.ndarray:
        data = np.asarray(held)
        return np.broadcast_to(data.reshape(-1), self.lanes.shape) if data.size == 1 else data[self.lanes]


def _as_type(raw: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Rows of bytes as a value each."""
    flat = np.ascontiguousarray(raw).reshape(-1).view(dtype.base)
    return flat.reshape(raw.shape[0], *dtype.shape)
