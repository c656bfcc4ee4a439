"""Decoding: instructions made ready to run, one function a table entry.

`INSTRUCTIONS` is the table: opcode → maker, filled by the family modules (`words`, `access`, `warp`, `barrier`,
`atomic`, `control`, …). A maker takes an instruction and its `Context`, which has the registers and variables of its
function (`Symbols`). The maker binds each operand once, to a function that reads or writes the operand for the lanes of
an index. The maker returns a `Step` or a `Control`, which runs for the lanes of an index. A `Control` may also move
lanes to other places or make them wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from cudakit.emulator.isa.facts import polls, sources
from cudakit.emulator.machine.kernel_memory import frame_bytes, laid_out
from cudakit.emulator.machine.memory import Index, Memory
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Operand,
    Pointer,
    Program,
    Register,
    Symbol,
    Variable,
)
from cudakit.errors import EmulationError
from cudakit.jit.compile.mangled import common_name, is_shared

#: The pointer to a program's first function.
_FUNCTIONS = 0x7300_0000_0000_0000


class Linked:
    """Symbols that the programs of one source share, by names that are equal in all of them.

    Attributes
    ----------
    variables : dict of str to (numpy.ndarray, int)
        Bytes and address of each variable in global or constant memory.
    functions : dict of str to int
        Pointer to each function.
    """

    def __init__(self) -> None:
        self.variables: dict[str, tuple[np.ndarray, int]] = {}
        self.functions: dict[str, int] = {}


class Symbols:
    """Variables and functions of a program, for as long as its module lives.

    Attributes
    ----------
    storage : dict of str to numpy.ndarray
        Bytes of each variable in global or constant memory.
    addresses : dict of str to int
        Address of each variable in `storage`.
    constants : list of (int, int)
        Address and size in bytes of each variable in constant memory.
    numbers : dict of str to int
        Number of each function.
    shared : frozenset of str
        Names of the variables in shared memory, which each kernel places itself.
    linked : Linked
        Symbols shared with other programs of the source.
    """

    shared: frozenset[str]

    def __init__(self, program: Program, memory: Memory, linked: Linked) -> None:
        self.storage: dict[str, np.ndarray] = {}
        self.addresses: dict[str, int] = {}
        self.constants: list[tuple[int, int]] = []
        self.numbers: dict[str, int] = {name: number for number, name in enumerate(program.functions)}
        self.linked = linked
        self._pointers = {
            name: linked.functions.setdefault(common_name(name), _FUNCTIONS + len(linked.functions))
            for name in program.functions
        }
        self._functions = {pointer: name for name, pointer in self._pointers.items()}
        scopes = (program.variables, *(function.variables for function in program.functions.values()))
        self.shared = frozenset(v.name for scope in scopes for v in scope.values() if v.space == "shared")
        new = [
            variable
            for variable in program.variables.values()
            if variable.space in ("global", "const") and self._place(variable, memory)
        ]
        for variable in new:
            self._fill(variable)

    def _place(self, variable: Variable, memory: Memory) -> bool:
        """Give a variable its memory; return whether the memory is new."""
        common = common_name(variable.name) if is_shared(variable.name) else None
        data, address = self.linked.variables.get(common or "", (None, 0))
        is_new = data is None or data.size != max(1, variable.size)
        if data is None or is_new:
            data, address = self._allocate(variable, memory)
            if common is not None:
                self.linked.variables[common] = data, address
        self.storage[variable.name], self.addresses[variable.name] = data, address
        if variable.space == "const":
            self.constants.append((address, variable.size))
        return is_new

    def _allocate(self, variable: Variable, memory: Memory) -> tuple[np.ndarray, int]:
        """Allocate aligned memory for a variable; return its bytes and address."""
        try:
            padded = bytearray(max(1, variable.size) + variable.align)
        except MemoryError:
            raise EmulationError(f"no memory for the {variable.size} bytes of variable {variable.name}") from None
        skip = -int(np.frombuffer(padded, np.uint8).__array_interface__["data"][0]) % max(1, variable.align)
        # An array of its own: a part of another array would make that array reachable too.
        data = np.frombuffer(padded, np.uint8, max(1, variable.size), skip)
        return data, memory.add(data, f"variable {variable.name}", variable.space == "const")

    def _fill(self, variable: Variable) -> None:
        """Write a variable's initialiser to its memory."""
        for offset, item in variable.data:
            if isinstance(item, Pointer):
                address = self.address_of(item.symbol.name)
                if address is None:
                    raise EmulationError(
                        f"PTX line {item.line}: no variable in memory and no function is named {item.symbol.name}"
                    )
                item = item.to_bytes(address)
            self.storage[variable.name][offset : offset + len(item)] = np.frombuffer(item, np.uint8)

    def address_of(self, name: str) -> int | None:
        """Return the address of a variable in global or constant memory, or the pointer to a function.

        For another name, return None.
        """
        if name in self.addresses:
            return self.addresses[name]
        return self._pointers.get(name)

    def function_at(self, pointer: int) -> str:
        """Return the name of the function that a pointer stands for.

        Raises
        ------
        EmulationError
            For a pointer to no function, or to a function that this program lacks.
        """
        if pointer in self._functions:
            return self._functions[pointer]
        address = next((name for name, number in self.linked.functions.items() if number == pointer), None)
        if address is None:
            raise EmulationError(f"a call to {pointer:#x}, which is no function")
        raise EmulationError(
            f"a call through a pointer to {address}, which another kernel's code has and this one's has not; let them "
            "be compiled together: module.prepare(…) with both, before the first launch"
        )


# ── operands ──

#: dtype in which a value of a PTX type is computed; half precision as raw bits, converted where computed with.
DTYPES: dict[str, np.dtype] = {
    **{f"{name}{bits}": np.dtype(f"u{bits // 8}") for name in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"i{bits // 8}") for bits in (8, 16, 32, 64)},
    "f16": np.dtype("u2"), "bf16": np.dtype("u2"), "f16x2": np.dtype("u4"), "bf16x2": np.dtype("u4"),
    "tf32": np.dtype("u4"), "f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?"),
    "b128": np.dtype([("low", "u8"), ("high", "u8")]),
}  # fmt: skip

#: dtype in which a register of a PTX type is stored.
STORAGE = {
    name: dtype if name in ("pred", "b128") else np.dtype(f"u{dtype.itemsize}") for name, dtype in DTYPES.items()
}


#: The carry flag of `add.cc` and its kind: a register of every function, which no PTX text can name.
CARRY = Register("%condition code")


#: Offsets of shared variables where none are known.
_NOWHERE: Mapping[str, int] = MappingProxyType({})

Reader: TypeAlias = Callable[[Frame, Index, Machine], Any]
Writer: TypeAlias = Callable[[Frame, Index, Any], None]


class Context:
    """Context of an instruction for its maker: the function's registers, addresses and types.

    Parameters
    ----------
    symbols : Symbols
        Variables and functions of the program.
    function : Function
        Function that has the instruction.
    shared : mapping of str to int, optional
        Offset of each variable in shared memory, if the context is of one kernel alone. Default: each launch says so.
    """

    symbols: Symbols
    function: Function
    local: dict[str, int]
    parameter_offsets: dict[str, int]

    def __init__(self, symbols: Symbols, function: Function, shared: Mapping[str, int] = _NOWHERE) -> None:
        self.symbols, self.function = symbols, function
        self.shared: Mapping[str, int] = shared
        registers = {**function.registers, CARRY.name: "pred"}
        self.numbers: dict[str, int] = {name: number for number, name in enumerate(registers)}
        if unsupported := sorted({name for name in registers.values() if name not in STORAGE}):
            raise EmulationError(f"{function.name}: registers of type .{unsupported[0]} are not emulated")
        self.storage: list[np.dtype] = [STORAGE[name] for name in registers.values()]
        #: Initial, unwritten value of each register.
        self.blank: list[np.ndarray] = [np.zeros(1, dtype) for dtype in self.storage]
        local = [variable for variable in function.variables.values() if variable.space == "local"]
        self.local, end = laid_out(local)
        self.local_bytes: int = -(-end // 16) * 16
        #: Alignment of the function's frame.
        self.local_align: int = max((variable.align for variable in local), default=1)
        #: Memory of a lane in this function, in bytes.
        self.lane_bytes: int = self.local_bytes + sum(dtype.itemsize for dtype in self.storage)
        self.parameter_sizes: dict[str, int] = {
            v.name: v.size
            for v in (*function.parameters, *function.returns, *function.variables.values())
            if v.space == "param"
        }
        #: Addresses of a kernel's parameters; empty for other functions.
        self.parameter_offsets, _ = laid_out(function.parameters if function.is_entry else ())
        #: Instructions where divergent lanes may converge.
        self.leaders: frozenset[int] = frozenset(function.labels.values())
        #: Steps that only compute each lane's result from the same lane's operands.
        self.elementwise: set[Callable[..., None]] = set()
        #: Branches back of the innermost loops that poll memory: a group which goes round one may be spinning.
        self.polling: frozenset[int] = _polling_loops(function)

    @cached_property
    def registers_read(self) -> frozenset[str]:
        """Names of the registers that any instruction of the function may read."""
        return frozenset(name for instruction in self.function.code for name in sources(instruction))

    @cached_property
    def frame_bytes(self) -> int:
        """Estimate of the stack bytes that compiled machine code takes for a call of the function."""
        return frame_bytes(self.function, self.local_bytes)

    def make_frame(self, lanes: int) -> Frame:
        """Return a frame with the function's registers, all empty, for `lanes` lanes."""
        return Frame(lanes, list(self.blank), np.zeros(lanes, np.int64), {}, np.zeros(lanes, np.int64))

    # ── operands ──

    def read(self, operand: Operand, type_name: str, compact: bool = False) -> Reader:
        """Return a function that reads `operand` as a PTX type: an array over the lanes, or one value for all.

        Parameters
        ----------
        operand : Operand
            Register, constant, symbol, or the negation of a predicate.
        type_name : str
            PTX type.
        compact : bool
            Whether a register with the same value in all lanes is read as one element, not repeated for each lane.
        """
        dtype = DTYPES[type_name]
        match operand:
            case Register(name) if name in self.numbers:
                return self._read_register(self.numbers[name], dtype, type_name, compact)
            case Register(name):
                return self._read_special(name.removeprefix("%"), dtype)
            case Immediate():
                value = _value(operand.value, operand.float_bits, dtype)
                return lambda frame, index, machine: value
            case Symbol(name, offset):
                return self._read_symbol(name, offset, dtype)
            case Group("not", (inner,)):
                read_inner = self.read(inner, type_name, compact)
                return lambda frame, index, machine: ~read_inner(frame, index, machine)
        raise EmulationError(f"operand {operand} cannot be read as {type_name}")

    def _read_register(self, number: int, dtype: np.dtype, type_name: str, compact: bool) -> Reader:
        """Return a function that reads a register, by its number, with its value extended or cut to the type."""
        stored = self.storage[number]
        is_same_size = stored.itemsize == dtype.itemsize
        # A wider register gives its low part; a narrower one is extended by the type's sign.
        narrow = stored if is_same_size else np.dtype(f"u{dtype.itemsize}")
        source = stored if is_same_size else np.dtype(f"{'i' if type_name[0] == 's' else 'u'}{stored.itemsize}")

        def values(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
            stored_values = frame.registers[number]
            if stored_values.size == 1:
                if not compact:
                    stored_values = np.ndarray(
                        frame.lanes if index is None else index.size, stored, stored_values, 0, (0,)
                    )
            elif index is not None:
                stored_values = stored_values[index]
            # Always a view, so that no writer adopts the register's own array.
            return stored_values.view(dtype) if is_same_size else stored_values.view(source).astype(narrow).view(dtype)

        return values

    def _read_special(self, name: str, dtype: np.dtype) -> Reader:
        """Return a function that reads a special register, by its name without %."""
        if name in ("clock", "clock64", "globaltimer", "globaltimer_lo"):
            return lambda f, i, m: dtype.type(m.steps & (2 ** (8 * dtype.itemsize) - 1))
        if name in ("clock_hi", "globaltimer_hi"):
            return lambda f, i, m: dtype.type(m.steps >> 32)

        if name.startswith("reserved_smem_offset_"):
            place = name.removeprefix("reserved_smem_offset_")
            return lambda f, i, m: dtype.type(m.reserved_shared(place))

        def special(frame: Frame, index: Index, machine: Machine) -> Any:
            values = machine.special[name]
            if isinstance(values, np.ndarray) and index is not None:
                values = values[index]
            return values.astype(dtype) if values.dtype != dtype else values.view()

        return special

    def _read_symbol(self, name: str, offset: int, dtype: np.dtype) -> Reader:
        """Return a function that reads a symbol's address plus `offset`."""
        if name in self.local:
            base = self.local[name] + offset

            def local(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
                return ((frame.local_base if index is None else frame.local_base[index]) + base).astype(dtype)

            return local
        if name in self.symbols.shared:
            # Each kernel lays out its own.
            return lambda frame, index, machine: dtype.type(machine.memory.shared_offset(name) + offset)
        value = dtype.type(self.address_of(name) + offset)
        return lambda frame, index, machine: value

    def address_of(self, name: str) -> int:
        """Return the address of a function, or of a variable in its state space.

        Of a parameter, return its offset among the parameters. Shared variables have no address here.
        """
        if name in self.parameter_offsets:
            return self.parameter_offsets[name]
        address = self.symbols.address_of(name)
        if address is not None:
            return address
        if name == "WARP_SZ":
            return 32
        raise EmulationError(f"no variable or function {name}")

    def write(self, operand: Operand, type_name: str, adopts: bool = False) -> Writer:
        """Return a function that writes values of a PTX type to a register; ``_`` discards them.

        The index of the returned function may be a mask over all lanes, with a value for each lane.

        Parameters
        ----------
        operand : Operand
            Register, or ``_``.
        type_name : str
            PTX type.
        adopts : bool
            Whether an array that is no view becomes the register itself. The caller must not use the array any more.
        """
        if isinstance(operand, Register) and operand.name == "_":
            return lambda frame, index, values: None
        if not isinstance(operand, Register) or operand.name not in self.numbers:
            raise EmulationError(f"operand {operand} cannot be written")
        number = self.numbers[operand.name]
        stored, dtype = self.storage[number], DTYPES[type_name]
        blank = self.blank[number]
        is_same_size = stored.itemsize == dtype.itemsize
        extended = np.dtype(f"{'i' if type_name[0] == 's' else 'u'}{stored.itemsize}") if not is_same_size else stored

        def write(frame: Frame, index: Index, values: Any) -> None:
            values = np.asarray(values, dtype)
            owned = (adopts and values.base is None) or not is_same_size
            if dtype != stored:
                values = values.view(stored) if is_same_size else values.astype(extended).view(stored)
            if index is None:
                values = values if owned else values.copy()
                frame.registers[number] = values if values.ndim else values.reshape(1)
                return
            register = frame.registers[number]
            if register is blank and index.dtype == bool and values.size > 1:
                # The values of the other lanes are undefined.
                frame.registers[number] = values if owned else values.copy()
                return
            if register.size == 1:
                register = frame.registers[number] = np.full(frame.lanes, register[0])
            if index.dtype == bool:
                np.copyto(register, values, where=index)
            else:
                register[index] = values

        return write

    def address(self, operand: Operand, space: str) -> Reader:
        """Return a function that reads an address operand as an address in `space`, uint64, one a lane."""
        if not isinstance(operand, Address):
            raise EmulationError(f"operand {operand} is no address")
        number = self.numbers.get(operand.base.name) if isinstance(operand.base, Register) else None
        type_name = "u32" if number is not None and self.storage[number].itemsize == 4 else "u64"
        read_base = self.read(operand.base, type_name, compact=True)
        # Added in the register's own width, where it wraps around.
        offset = _value(operand.offset, 0, DTYPES[type_name])

        def address(frame: Frame, index: Index, machine: Machine) -> np.ndarray:
            addresses = np.asarray(read_base(frame, index, machine))
            if offset:
                addresses = addresses + offset
            if addresses.size == 1:
                addresses = np.full(frame.lanes if index is None else index.size, addresses)
            return addresses.astype(np.uint64, copy=False)

        return address


def back_branches(function: Function) -> list[tuple[int, int]]:
    """Return length and last index of each loop: of the code from a label to a branch back to it, shortest first."""
    return sorted(
        (code - function.labels[target.name], code)
        for code, instr in enumerate(function.code)
        if instr.opcode == "bra"
        for target in instr.operands
        if isinstance(target, Symbol) and function.labels.get(target.name, code + 1) <= code
    )


def _polling_loops(function: Function) -> frozenset[int]:
    """Return the index of the back branch of each innermost loop around a load or atomic that may poll."""
    back, branches = back_branches(function), set()
    for code, instr in enumerate(function.code):
        if polls(instr):
            branches.update([end for length, end in back if end - length <= code <= end][:1])
    return frozenset(branches)


def constant_of(operand: Operand, description: str = "") -> int:
    """Return the value of an operand that must be an integer constant.

    If it is none, raise an error that names the operand by `description`.
    """
    if not isinstance(operand, Immediate):
        raise EmulationError(f"{description or f'operand {operand}'} is no constant")
    return operand.value


def immediate(operand: Immediate, dtype: np.dtype) -> Any:
    """Return a constant as a scalar of `dtype`."""
    return _value(operand.value, operand.float_bits, dtype)


@lru_cache(4096)
def _value(value: int, float_bits: int, dtype: np.dtype) -> Any:
    """Return a whole number, or a float of these bits, as a scalar of `dtype`."""
    if float_bits:
        bits = np.array(value, f"u{float_bits // 8}").view(f"f{float_bits // 8}")
        return dtype.type(bits[()] if dtype.kind == "f" else value)
    if dtype.kind == "f":
        return dtype.type(value)
    if dtype.kind == "b":
        return np.bool_(value)
    return np.array(value & (2 ** (8 * dtype.itemsize) - 1), f"u{dtype.itemsize}").view(dtype)[()]


Step: TypeAlias = Callable[[Frame, Index, Machine], None]
#: control(machine, frame, lanes here, lanes here whose guard holds, (depth, function, instruction)) → whether all lanes
#: here go on to the next instruction at once.
Control: TypeAlias = Callable[[Machine, Frame, Index, Index, tuple[int, int, int]], bool | None]
Maker: TypeAlias = Callable[[Instruction, Context], Step]

#: opcode → maker
INSTRUCTIONS: dict[str, Maker] = {}
CONTROLS: dict[str, Callable[[Instruction, Context], Control]] = {}
#: Modifiers that may belong to a name in the table.
_MOST_PARTS = 4


def instruction(*opcodes: str) -> Callable[[Maker], Maker]:
    """Return a decorator that enters a maker into the table, under each of the opcodes.

    An opcode may have modifiers: ``cp.async.bulk`` is another entry than ``cp.async``.
    """

    def enter(maker: Maker) -> Maker:
        INSTRUCTIONS.update(dict.fromkeys(opcodes, maker))
        return maker

    return enter


def control(*opcodes: str) -> Callable[[Any], Any]:
    """Return a decorator that enters the maker of an instruction that moves lanes or makes them wait."""

    def enter(maker: Any) -> Any:
        CONTROLS.update(dict.fromkeys(opcodes, maker))
        return maker

    return enter


@dataclass(slots=True)
class Decoded:
    """An instruction ready to run: its step or control, and its guard; or the reason why it cannot run."""

    instruction: Instruction
    step: Step | None
    control: Control | None
    guard: Callable[[Frame, Index], Index] | None
    #: Why it cannot run; empty where it can.
    missing: str = ""


@cache
def _maker(opcode: str, modifiers: tuple[str, ...]) -> Maker | None:
    """Return the maker of the longest opcode in the table that begins an instruction's name, or None."""
    parts = (opcode, *modifiers[:_MOST_PARTS])
    names = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((INSTRUCTIONS[name] for name in names if name in INSTRUCTIONS), None)


#: No lane at all.
_NOBODY = np.zeros(0, np.int64)


def failure(error: Exception) -> str:
    """Return the text of an error that a maker raised because operands do not have the expected form.

    The text is ``… is not known here`` for a `KeyError`, else the error's type and message.
    """
    return f"{error} is not known here" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"


def decode(instr: Instruction, context: Context) -> Decoded:
    """Bind an instruction to its function.

    An unknown instruction raises no error here. It raises when it is run.
    """
    guard = None
    if instr.guard is not None:
        register, negated = instr.guard
        number = context.numbers[register.name]

        def guard(frame: Frame, index: Index) -> Index:
            truths = frame.registers[number]
            if truths.size == 1:
                return index if truths[0] != negated else _NOBODY
            if index is not None:
                truths = truths[index]
            if negated:
                truths = ~truths
            if truths.all():
                return index
            return np.flatnonzero(truths) if index is None else index[truths]

    try:
        if instr.opcode in CONTROLS:
            return Decoded(instr, None, CONTROLS[instr.opcode](instr, context), guard)
        maker = _maker(instr.opcode, instr.modifiers)
        if maker is not None:
            return Decoded(instr, maker(instr, context), None, guard)
        reason = "this instruction is not emulated"
    except EmulationError as error:
        reason = f"this form of the instruction is not emulated ({error})"
    except Exception as error:
        # Makers do not check that operands have the form that the instruction requires.
        reason = f"its operands or modifiers are none that are emulated ({failure(error)})"

    def missing(frame: Frame, index: Index, machine: Machine) -> None:
        raise EmulationError(reason)

    return Decoded(instr, missing, None, guard, reason)
