"""The variables that are seen from where a warp stands, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cudakit.emulator.debug import dwarf, types
from cudakit.emulator.debug.expressions import Value
from cudakit.emulator.debug.stepper import Front, Stepper
from cudakit.emulator.machine.decode import Context
from cudakit.emulator.machine.memory import AccessError, plain
from cudakit.emulator.machine.state import Frame
from cudakit.emulator.ptx.program import Function
from cudakit.errors import ArgumentError

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
            told = next((v for v in self.symbols.program if any(k.place.name == symbol for k in v.kept)), None)
            found = types.of_entry(told.type) if told is not None else None
            if found is not None and found.dtype.itemsize == size:
                known = found.dtype
            else:
                known = types.of_shared(self.text, plain(symbol), size, self.meant, self.symbols.types)
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
    lanes: np.ndarray
    function: Function
    context: Context
    frame: Frame

    def __init__(self, program: Program, stepper: Stepper, front: Front) -> None:
        self.program, self.stepper, self.front = program, stepper, front
        self.lanes = front.lanes
        self.function = stepper.module.functions[front.function]
        self.context = stepper.module.context(self.function)
        self.frame = stepper.frame(front.depth, front.function)
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
        """See `cudakit.emulator.debug.expressions.Scope`."""
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
                block = int(self.stepper.block_of[self.lanes[0]])
                return Value(
                    np.broadcast_to(self.shared(symbol, block), (len(self.lanes), *self.shared(symbol, block).shape))
                )
        for each in self.program.symbols.program:
            if each.name == name:
                return self._read(each)
        known = ", ".join([*self.names(), *map(plain, self.offsets)]) or "none"
        raise ArgumentError(f"no variable {name} is known here; those seen from this line are {known}")

    def pointed(self, value: Value, index: np.ndarray) -> Value:
        """See `cudakit.emulator.debug.expressions.Scope`."""
        found = types.of_entry(value.target)
        if found is None:
            raise ArgumentError("what this pointer points to is not known")
        size = found.dtype.itemsize
        base = np.broadcast_to(value.data, self.lanes.shape).astype(np.uint64)
        at = base + (np.broadcast_to(index, self.lanes.shape) * size).astype(np.uint64)
        data = np.zeros((len(self.lanes), size), np.uint8)
        known = (
            np.ones(len(self.lanes), bool) if value.known is None else np.broadcast_to(value.known, base.shape).copy()
        )
        for lane in np.flatnonzero(known):
            addresses = at[lane] + np.arange(size, dtype=np.uint64)
            try:
                data[lane] = self.stepper.memory.load(
                    "generic", addresses, np.dtype("u1"), np.full(size, self.lanes[lane])
                )
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
            told = next((v for v in self.program.symbols.program if v.kept[0].place.name == symbol), None)
            found = types.of_entry(told.type) if told is not None else None
            element = found.dtype.base if found is not None else np.dtype("u1")
            return raw[: raw.size // element.itemsize * element.itemsize].view(element)
        dtype = self.program.shared_type(symbol, size)
        return raw.view(dtype.base).reshape(dtype.shape)

    def _read(self, variable: dwarf.Variable) -> Value:
        found = types.of_entry(variable.type)
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
