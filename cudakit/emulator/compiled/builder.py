"""Builder of a kernel's LLVM IR: its text, registers, operands, masks, and jumps to errors.

Emitters use its `read` and `write` of operands, and its `mask`.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from typing import NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.layout import Effort, Layout, Slot
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, Shapes, join, resized
from cudakit.emulator.isa.facts import sources, targets
from cudakit.emulator.machine.decode import DTYPES, STORAGE, Context, immediate
from cudakit.emulator.ptx.program import Function, Group, Immediate, Instruction, Operand, Register, Symbol

# ── text: values with their types, and the lines that make them ──


class X(NamedTuple):
    """A value of the IR: its type, and its name or the text of a constant."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"

    @property
    def element(self) -> str:
        """Type of a vector's elements, or the type itself."""
        return self.type[self.type.index("x ") + 2 : -1] if self.type[0] == "<" else self.type

    @property
    def is_vector(self) -> bool:
        """True for a vector."""
        return self.type[0] == "<"


@dataclass(slots=True)
class SharedFunction:
    """Function beside the kernel: its name, the names of its parameters, and what it returns."""

    name: str
    parameters: list[str] = field(default_factory=list[str])
    results: list[X] = field(default_factory=list[X])

    @property
    def type(self) -> str:
        """Type of what it returns: the results, and whether it has failed."""
        return f"{{ {', '.join([*(x.type for x in self.results), 'i1'])} }}"


class Text:
    """Lines of a function's body in LLVM IR."""

    here: str

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self.declared: set[str] = set()
        #: Text of the functions beside the kernel, and their declarations.
        self.functions: list[str] = []
        self.prototypes: list[str] = []
        #: Bits of masks that were made from bits, by the masks' names.
        self.bits_of_mask: dict[str, X] = {}
        #: Label of the current block.
        self.here = "entry"

    def fresh(self, stem: str = "v") -> str:
        """Return a name that no value or label has yet: `stem` with a number behind it."""
        self._count += 1
        return f"{stem}.{self._count}"

    def make(self, code: str, type_: str) -> X:
        """Append an instruction; return its value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {code}")
        return X(type_, name)

    def do(self, code: str) -> None:
        """Append an instruction without a value."""
        self.lines.append(f"  {code}")

    def label(self, name: str) -> None:
        """Begin a block with a label."""
        self.here = name
        self.lines.append(f"{name}:")

    @contextmanager
    def function(self, parameters: Mapping[str, X]) -> Iterator[SharedFunction]:
        """Write the code of the block as a function beside the kernel, with names of its own.

        The block adds the function's results. A jump to the label ``failed`` returns none, and the truth. Names of the
        kernel's that the code uses become parameters, as pointers.
        """
        outer = self.lines, self._count, self.here, self.bits_of_mask
        self.lines, self._count, self.bits_of_mask = [], 0, {}
        self.label("entry")
        function = SharedFunction(f"shared.{len(self.functions)}")
        yield function
        type_ = function.type
        result = X(type_, "poison")
        for number, x in enumerate([*function.results, constant("i1", 0)]):
            result = self.make(f"insertvalue {result}, {x}, {number}", type_)
        self.do(f"ret {result}")
        self.label("failed")
        failed = self.make(f"insertvalue {type_} poison, i1 true, {len(function.results)}", type_)
        self.do(f"ret {failed}")
        body = "\n".join(self.lines)
        defined = set(re.findall(r"^  (%\S+) =", body, re.MULTILINE))
        labels = {f"%{label}" for label in re.findall(r"^(\S+):$", body, re.MULTILINE)}
        function.parameters += sorted(set(re.findall(r"%[\w.]+", body)) - defined - labels)
        types = [parameters[name].type if name in parameters else "ptr" for name in function.parameters]
        head = ", ".join(map(" ".join, zip(types, function.parameters, strict=True)))
        self.prototypes.append(f"declare {type_} @{function.name}({', '.join(types)})")
        self.functions.append(f"define {type_} @{function.name}({head}) #0 {{\n{body}\n}}")
        self.lines, self._count, self.here, self.bits_of_mask = outer

    def call_parts(self, function: SharedFunction, arguments: Sequence[X]) -> list[X]:
        """Append a call of a function beside the kernel; return its results, and whether it has failed."""
        whole = self.call(function.name, function.type, *arguments)
        types = [*(x.type for x in function.results), "i1"]
        return [self.make(f"extractvalue {whole}, {number}", type_) for number, type_ in enumerate(types)]

    # ── the usual instructions ──

    def binary(self, opcode: str, a: X, b: X | int) -> X:
        """Append an instruction of two operands; return its value.

        An integer stands for a constant of the first operand's type.
        """
        return self.make(f"{opcode} {a}, {_operand(a, b)}", a.type)

    def compare(self, how: str, a: X, b: X | int) -> X:
        """Append ``icmp`` or ``fcmp``, by the operands' types; return its value."""
        opcode = "fcmp" if a.element in ("float", "double", "half") else "icmp"
        return self.make(f"{opcode} {how} {a}, {_operand(a, b)}", like(a, "i1"))

    def cast(self, opcode: str, a: X, element: str) -> X:
        """Append a cast to another element type; return its value, or `a` if the types are the same."""
        to = like(a, element)
        return a if to == a.type else self.make(f"{opcode} {a} to {to}", to)

    def select(self, chosen: X, a: X, b: X) -> X:
        """Append a ``select`` of `a`, if `chosen` is true, or `b`; return its value."""
        return self.make(f"select {chosen}, {a}, {b}", a.type)

    def call(self, name: str, type_: str, *arguments: X | int | str) -> X:
        """Append a call of a function; return its value.

        An integer argument has 64 bits; a name is a pointer.
        """
        return self.make(self._called(f"@{name}", type_, arguments), type_)

    def run(self, name: str, *arguments: X | int | str) -> None:
        """Append a call of a function that returns nothing."""
        self.do(self._called(f"@{name}", "void", arguments))

    def call_through(self, pointer: X, *arguments: X | int | str) -> X:
        """Append a call of a function at an address, which returns 64 bits; return its value."""
        return self.make(self._called(pointer.name, "i64", arguments), "i64")

    def _called(self, callee: str, type_: str, arguments: Sequence[X | int | str]) -> str:
        """Return the text of a call, and declare the function if it is an intrinsic."""
        typed = [
            X("ptr", a) if isinstance(a, str) else constant("i64", a) if isinstance(a, int) else a for a in arguments
        ]
        if callee.startswith("@llvm."):
            self.declared.add(f"declare {type_} {callee}({', '.join(argument.type for argument in typed)})")
        return f"call {type_} {callee}({', '.join(map(str, typed))})"

    def load(self, type_: str, pointer: X | str, attributes: str = "") -> X:
        """Append a load; return its value."""
        return self.make(f"load {type_}, ptr {_name(pointer)}{attributes}", type_)

    def store(self, value: X, pointer: X | str, attributes: str = "") -> None:
        """Append a store."""
        self.do(f"store {value}, ptr {_name(pointer)}{attributes}")

    def shuffled(self, x: X, places: Iterable[int], other: X | None = None) -> X:
        """Append a shuffle of elements of a vector, and of `other` behind it, by their numbers; return its value."""
        items = [f"i32 {place}" for place in places]
        order = f"<{len(items)} x i32> <{', '.join(items)}>"
        type_ = f"<{len(items)} x {x.element}>"
        return self.make(f"shufflevector {x}, {other or X(x.type, 'poison')}, {order}", type_)

    @contextmanager
    def when(self, chosen: X, do: str = "do", skip: str = "skip") -> Iterator[None]:
        """Append code that runs if `chosen` is true: the code written in the block.

        `do` and `skip` are stems of the labels.
        """
        do, skip = self.fresh(do), self.fresh(skip)
        self.branch(chosen, do, skip)
        self.label(do)
        yield
        self.jump(skip)
        self.label(skip)

    def fence(self) -> None:
        """Append a fence over which LLVM moves no memory accesses; the CPU executes nothing for it."""
        self.do('fence syncscope("singlethread") seq_cst')

    def phi(self, type_: str, *incoming: tuple[X, str]) -> X:
        """Append a ``phi``: one of several values, each with the label of the preceding block; return its value."""
        return self.make(f"phi {type_} " + ", ".join(f"[ {x.name}, %{label} ]" for x, label in incoming), type_)

    def branch(self, chosen: X, then: str, otherwise: str) -> None:
        """Append a conditional branch."""
        self.do(f"br {chosen}, label %{then}, label %{otherwise}")

    def jump(self, to: str) -> None:
        """Append a branch to a label."""
        self.do(f"br label %{to}")

    def at(self, base: X | str, offset: X | int, element: str = "i8") -> str:
        """Append code for a pointer `offset` elements behind `base`, by default bytes; return its name.

        `element` is the LLVM type of an element.
        """
        if offset == 0:
            return _name(base)
        offset = constant("i64", offset) if isinstance(offset, int) else offset
        return self.make(f"getelementptr {element}, ptr {_name(base)}, {offset}", "ptr").name


def _name(x: X | str) -> str:
    return x.name if isinstance(x, X) else x


def _operand(a: X, b: X | int) -> str:
    return b.name if isinstance(b, X) else constant(a.type, b).name


def like(a: X, element: str) -> str:
    """Return the type of `element` with the shape of `a`: a vector of as many elements, or the element type."""
    return f"{a.type[: a.type.index('x ') + 2]}{element}>" if a.is_vector else element


def lanes_of(type_: str) -> int:
    """Return the number of a vector type's elements; 1 for other types."""
    return int(type_[1 : type_.index(" ")]) if type_[0] == "<" else 1


@lru_cache(4096)
def constant(type_: str, value: int) -> X:
    """Return a constant of a type, or of all elements of a vector type; `value` is an integer, or a float's bits."""
    element = X(type_, "").element
    if element == "i1":
        text = "true" if value else "false"
    elif element == "float":
        text = f"0x{_double_bits(value):016X}"
    elif element == "double":
        text = f"0x{value:016X}"
    elif element == "half":
        text = f"0xH{value:04X}"
    elif element == "bfloat":
        text = f"0xR{value:04X}"
    else:
        bits = int(element[1:])
        value &= (1 << bits) - 1
        text = str(value - (1 << bits) if value >> (bits - 1) else value)
    return X(type_, f"splat ({element} {text})" if type_[0] == "<" else text)


def _double_bits(single: int) -> int:
    """Return the bits of a float32, passed as bits, as a float64, by which LLVM writes a float32."""
    if single & 0x7F80_0000 == 0x7F80_0000:  # infinity and NaN, whose payload is kept
        return (single >> 31) << 63 | 0x7FF0_0000_0000_0000 | (single & 0x7F_FFFF) << 29
    (value,) = struct.unpack("<f", struct.pack("<I", single))
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)


#: LLVM's types of floats.
FLOATS = {"f32": "float", "f64": "double"}


@dataclass(slots=True)
class Value:
    """Value of an operand over the lanes of a vector: its shape, and IR values.

    `x` is the one value, the base of an affine value, or the vector. `narrow` is the base in fewer bits, for an affine
    value that was extended from them.
    """

    shape: Shape
    x: X
    narrow: X | None = None


def value_of(x: X) -> Value:
    """Return an IR value as a value for all lanes, or as a vector of any values."""
    return Value(VARYING if x.is_vector else UNIFORM, x)


class LaneAccess(NamedTuple):
    """A lane's access to memory: state space, size of an element in bytes, number of elements, and mark.

    The mark is the flag by which memory records the access: read or write, weak or strong.
    """

    space: str
    size: int
    elements: int
    mark: int
    #: Most bytes of an access that an error reports as one.
    piece: int = 16


class Site(NamedTuple):
    """A place where an error can occur: number of the instruction, and its access to memory."""

    number: int
    lane_access: LaneAccess | None


@dataclass(frozen=True, slots=True)
class Checked:
    """The range that accesses by a register were checked against ("" for shared memory), and the register's value.

    The value has 64 bits.
    """

    range: str
    base: X


class Elsewhere:
    """Lanes of a warp that meet at a collective which stands at several places, and the values that they exchange.

    Parameters
    ----------
    b : Builder
        Builder of the kernel, on whose stack the lanes and values are.

    Attributes
    ----------
    lanes : X or None
        Lanes, as bits, that meet the running ones from other places; set where the code of such a place begins.
    met, released : str
        Places of all lanes that have met last, and of those among them that have not run since.
    """

    lanes: X | None
    met: str
    released: str

    def __init__(self, b: Builder) -> None:
        self._b, self._values, self.lanes = b, "", None
        self.met, self.released = b.alloca(b.mask_type, "met"), b.alloca(b.mask_type, "released")
        for place in (self.met, self.released):
            b.starts.append(f"  store {constant(b.mask_type, 0)}, ptr {place}")

    def values(self, type_: str) -> str:
        """Return the place of the lanes' values, a vector of `type_`, which is the same in all calls."""
        self._values = self._values or self._b.alloca(type_, "exchanged")
        return self._values


def bits_of(type_name: str) -> int:
    """Return the number of bits of a register of a PTX type."""
    return 1 if type_name == "pred" else 8 * STORAGE[type_name].itemsize


class Builder:
    """Builder of the IR of one kernel for one layout.

    Attributes
    ----------
    text : Text
        Lines of the function.
    mask : X or None
        Mask of the lanes that the current instruction runs for; None for all of the vector.
    elsewhere : Elsewhere or None
        Lanes that meet the current instruction's lanes from other places; None if there can be none.
    """

    context: Context
    shapes: Shapes
    layout: Layout
    raw: set[str]
    text: Text

    def __init__(self, context: Context, shapes: Shapes, layout: Layout, raw: set[str], effort: Effort) -> None:
        self.context, self.shapes, self.layout, self.raw = context, shapes, layout, raw
        self.function: Function = context.function
        self.text = Text()
        #: Whether blocks have one body only, and no second one for vectors with all lanes active.
        self.single: bool = effort.single
        #: Whether accesses are calls of functions that equal accesses share.
        self.shares: bool = effort.shares
        #: Functions that equal code shares, by all that decides their code.
        self.functions: dict[tuple[object, ...], SharedFunction] = {}
        self.width: int = layout.width
        #: Type of a set of lanes: an integer with a bit a lane.
        self.mask_type: str = f"i{layout.width}"
        self.mask: X | None = None
        self.elsewhere: Elsewhere | None = None
        #: While the vectors of a run are checked together: the number of its last lane, in 64 bits.
        self.run_last: X | None = None
        self.guarded = False
        self.instr: Instruction | None = None
        self.sites: list[Site] = []
        self._places = {id(instruction): number for number, instruction in enumerate(self.function.code)}
        self._carry: str | None = None
        #: Places for the values of lanes that take turns, and for the writes of inactive lanes.
        self.turns: tuple[str, str] | None = None
        #: Place of the lanes that are left in a loop over lanes; empty: none yet.
        self.left = ""
        #: Place of the registers that lanes hand over to the interpreter; empty: none yet.
        self.handed = ""
        self.allocas: list[str] = []
        self.symbols: dict[str, int] = {}
        self.numbers: dict[str, int] = {}
        self.specials: dict[str, Value] = {}
        #: Ranges that accesses were last checked against, by the key of accesses that share a range.
        self.ranges: dict[tuple[object, ...], str] = {}
        #: The check made before the current access; and whether the access is on a path that is hardly ever taken.
        self.checked: Checked | None = None
        self.unlikely = False
        #: The instructions that write each register.
        self.made_by: dict[str, list[Instruction]] = {}
        for instr in self.function.code:
            for name in targets(instr):
                self.made_by.setdefault(name, []).append(instr)
        #: Registers that only one branch reads.
        read = [(name, instr.opcode) for instr in self.function.code for name in sources(instr)]
        times = Counter(name for name, _ in read)
        self.for_branch: set[str] = {name for name, opcode in read if opcode == "bra" and times[name] == 1}
        #: Predicates written once, whose verdict holds in all later blocks.
        self.lasting: set[str] = set()
        #: Places of the predicates' verdicts, and predicates with a verdict in the current block.
        self.verdicts: dict[str, tuple[str, str]] = {}
        self.known_here: set[str] = set()
        #: Lines at the function's begin.
        self.starts: list[str] = []
        for number, (name, _type) in enumerate(self.function.registers.items()):
            self.numbers[name] = number

    # ── set by the scaffold ──

    parameters: X
    shared_base: X
    shared_bytes: X
    local_base: X
    local_row: int
    first_thread: X
    block_number: X
    scratch_addresses: str
    scratch_values: str

    # ── names and types ──

    def vector(self, element: str) -> str:
        """Return the type of a vector of `element`, a value for each lane."""
        return f"<{self.width} x {element}>"

    def iota(self, element: str, stride: int = 1) -> X:
        """Return a constant vector over the lanes: 0, stride, 2 · stride, …"""
        return self.lane_constants(element, (lane * stride for lane in range(self.width)))

    def lane_constants(self, element: str, values: Iterable[int]) -> X:
        """Return a vector with a constant for each lane."""
        return X(self.vector(element), f"<{', '.join(str(constant(element, value)) for value in values)}>")

    def spread(self, x: X) -> X:
        """Return a vector with the value `x` in all lanes."""
        if x.is_vector:
            return x
        if x.name[0] not in "%@":
            return X(self.vector(x.type), f"splat ({x.type} {x.name})")
        type_ = self.vector(x.type)
        inserted = self.text.make(f"insertelement {type_} poison, {x}, i64 0", type_)
        return self.text.make(f"shufflevector {inserted}, {type_} poison, <{self.width} x i32> zeroinitializer", type_)

    def lanes(self, value: Value) -> X:
        """Return a value as a vector, also a uniform or affine one."""
        if not isinstance(value.shape, Affine):
            return self.spread(value.x)
        narrow_shape, type_ = value.shape.narrow, value.x.type
        if narrow_shape is None or value.narrow is None:
            return self.text.binary("add", self.spread(value.x), self.iota(type_, value.shape.stride))
        extend, factor = "sext" if narrow_shape.signed else "zext", constant(type_, value.shape.factor)
        narrow = self.text.binary("add", self.spread(value.narrow), self.iota(value.narrow.type, narrow_shape.stride))
        scaled = self.text.cast(extend, narrow, type_)
        scaled = self.text.binary("mul", scaled, self.spread(factor))
        first = self.text.binary("mul", self.text.cast(extend, value.narrow, type_), factor)
        return self.text.binary("add", scaled, self.spread(self.text.binary("sub", value.x, first)))

    def valid(self, value: Value) -> X | None:
        """Return the truth that no lane of an affine value has wrapped around; None if none can."""
        if not isinstance(value.shape, Affine) or value.shape.narrow is None or value.narrow is None:
            return None
        narrow_shape, first = value.shape.narrow, value.narrow
        extend, wide = "sext" if narrow_shape.signed else "zext", f"i{narrow_shape.bits + 32}"
        reach, wide_reach = (self.to_last(type_, narrow_shape.stride) for type_ in (first.type, wide))
        last = self.text.cast(extend, self.text.binary("add", first, reach), wide)
        straight = self.text.binary("add", self.text.cast(extend, first, wide), wide_reach)
        return self.text.compare("eq", last, straight)

    def to_last(self, type_: str, stride: int) -> X | int:
        """Return the distance of the last lane to the first, of the vector or of the run that is checked, in a type."""
        if self.run_last is None:
            return stride * (self.width - 1)
        opcode = "trunc" if int(type_[1:]) < 64 else "zext"
        return self.text.binary("mul", self.text.cast(opcode, self.run_last, type_), stride)

    def alloca(self, type_: str, stem: str, count: int = 1) -> str:
        """Allocate memory on the stack for `count` values of a type; return its name."""
        name = f"%{self.text.fresh(stem)}"
        size = f", i64 {count}" if count > 1 else ""
        self.allocas.append(f"  {name} = alloca {type_}{size}, align 256")
        return name

    def slot(self, slot: int) -> str:
        """Return the address of a word that the launch and its code share, by its number in `Slot`."""
        return self.text.at("%ctx", int(slot), "i64")

    def word(self, slot: int, type_: str = "i64") -> X:
        """Return the value of a shared word that does not change while the function runs, by its number in `Slot`."""
        return self.text.load(type_, self.slot(slot), ", !invariant.load !0")

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Take the values of the scaffold from shared words: a function has no names of the kernel's."""
        outer = self.mask, self.first_thread, self.block_number, self.shared_base, self.shared_bytes
        places = self.scratch_addresses, self.scratch_values
        self.first_thread, self.block_number = self.word(Slot.FIRST_THREAD), self.word(Slot.BLOCK_NUMBER)
        self.shared_base, self.shared_bytes = self.word(Slot.SHARED, "ptr"), self.word(Slot.SHARED_BYTES)
        self.scratch_addresses = self.word(Slot.SCRATCH_ADDRESSES, "ptr").name
        self.scratch_values = self.word(Slot.SCRATCH_VALUES, "ptr").name
        yield
        self.mask, self.first_thread, self.block_number, self.shared_base, self.shared_bytes = outer
        self.scratch_addresses, self.scratch_values = places

    # ── registers ──

    def place_of(self, name: str, part: str = "") -> str:
        """Return the name of the stack memory that holds a register; with `part` ``.narrow`` its base in fewer bits."""
        return f"%r{self.numbers[name]}{part}"

    def types_of(self, name: str) -> list[tuple[str, str]]:
        """Return the parts of a register: pairs of the part's suffix, empty for the register itself, and LLVM type."""
        element = f"i{bits_of(self.function.registers[name])}"
        shape = self.shapes.by_register.get(name)
        if shape in (None, UNIFORM):
            return [("", element)]
        if isinstance(shape, Affine):
            return [("", element), *([(".narrow", f"i{shape.narrow.bits}")] if shape.narrow is not None else [])]
        return [("", self.vector(element))]

    def register_value(self, name: str) -> Value:
        """Return the value of a register."""
        parts = [self.text.load(type_, self.place_of(name, part)) for part, type_ in self.types_of(name)]
        shape = self.shapes.by_register.get(name) or UNIFORM
        return Value(shape, *parts)

    def read(self, operand: Operand, type_name: str, raw: bool = False) -> Value:
        """Read an operand as a PTX type, in the bits of the type; with `raw`, NaN may have any payload."""
        bits = bits_of(type_name)
        match operand:
            case Register(name) if name in self.function.registers:
                value = self.register_value(name)
                if name in self.raw and not raw:
                    value = self.canonical(value)
                return self.resized(value, bits, type_name[0] == "s")
            case Register(name):
                return self.resized(self.special(name.removeprefix("%")), bits, type_name[0] == "s")
            case Immediate():
                if type_name == "pred":
                    return Value(UNIFORM, constant("i1", operand.value))
                value_ = immediate(operand, DTYPES[type_name])
                return Value(UNIFORM, constant(f"i{bits}", int.from_bytes(value_.tobytes(), "little")))
            case Symbol(name, offset):
                return self.resized(self.symbol(name, offset), bits, False)
            case Group("not", (inner,)):
                value = self.read(inner, type_name)
                return Value(value.shape, self.text.binary("xor", value.x, -1 if bits > 1 else 1))
        raise Refusal(f"an operand {operand} read as {type_name}")

    def constant_value(self, operand: Operand | None) -> int | None:
        """Return the value of a constant, or of a register that only one ``mov`` of a constant writes; else None."""
        if isinstance(operand, Register):
            writers = self.made_by.get(operand.name, ())
            if (
                len(writers) != 1
                or writers[0].opcode != "mov"
                or writers[0].guard is not None
                or len(writers[0].operands) != 2
            ):
                return None
            operand = writers[0].operands[1]
        return operand.value if isinstance(operand, Immediate) else None

    def holds(self, guard: tuple[Register, bool]) -> Value:
        """Return the truth of a guard: a predicate, which may be negated."""
        register, negated = guard
        chosen = self.read(register, "pred")
        return Value(chosen.shape, self.text.binary("xor", chosen.x, 1)) if negated else chosen

    def canonical(self, value: Value) -> Value:
        """Replace every float32 NaN by the hardware's."""
        as_float = self.text.cast("bitcast", value.x, "float")
        nan = self.text.compare("uno", as_float, as_float)
        return Value(value.shape, self.text.select(nan, constant(value.x.type, 0x7FFF_FFFF), value.x))

    def resized(self, value: Value, bits: int, signed: bool) -> Value:
        """Return a value in another number of bits; an affine value stays affine if no lane has wrapped around."""
        has = int(value.x.element[1:])
        if has == bits or bits == 1 or has == 1:
            return value
        shape = resized(value.shape, has, bits, signed)
        opcode = "trunc" if has > bits else "sext" if signed else "zext"
        if shape == VARYING:
            return Value(VARYING, self.text.cast(opcode, self.lanes(value), f"i{bits}"))
        narrow = value.x if isinstance(shape, Affine) and shape.narrow is not None else None
        return Value(shape, self.text.cast(opcode, value.x, f"i{bits}"), narrow)

    def write(self, target: Operand, type_name: str, value: Value) -> None:
        """Write code that stores a value of a PTX type to a register, for the lanes of the mask; ``_`` takes no value.

        Raises
        ------
        Refusal
            If the operand is no register of the kernel, or the value does not have the register's shape.
        """
        if isinstance(target, Register) and target.name == "_":
            return
        if not isinstance(target, Register) or target.name not in self.function.registers:
            raise Refusal(f"an operand {target} that is written")
        name = target.name
        self.known_here.discard(name)
        shape = self.shapes.by_register[name]
        value = self.resized(value, bits_of(self.function.registers[name]), type_name[0] == "s")
        place = self.place_of(name)
        if shape == VARYING:
            new = self.lanes(value)
            if self.mask is not None and (self.guarded or name in self.shapes.preserved):
                new = self.text.select(self.mask, new, self.text.load(new.type, place))
            self.text.store(new, place)
            return
        if join(shape, value.shape) != shape:
            raise Refusal(f"a result of {self.instr} that is not as it was foreseen ({value.shape}, {shape})")
        self.text.store(value.x, place)
        if isinstance(shape, Affine) and shape.narrow is not None:
            self.text.store(value.narrow or constant(f"i{shape.narrow.bits}", 0), f"{place}.narrow")

    # ── special registers and symbols ──

    def special(self, name: str) -> Value:
        """Return the value of a special register, by its name without ``%``.

        Raises
        ------
        Refusal
            If the back-end has no such register.
        """
        entry = self.specials.get(name)
        if entry is None:
            raise Refusal(f"special register %{name}")
        return replace(entry)

    def symbol(self, name: str, offset: int) -> Value:
        """Return the address of a variable in its own state space."""
        context = self.context
        if name in context.local:
            return Value(UNIFORM, constant("i64", context.local[name] + offset))
        if name in context.shared:
            return Value(UNIFORM, constant("i64", context.shared[name] + offset))
        if name in context.parameter_offsets:
            return Value(UNIFORM, constant("i64", context.parameter_offsets[name] + offset))
        if name == "WARP_SZ":
            return Value(UNIFORM, constant("i64", 32))
        if name not in context.symbols.addresses:
            raise Refusal(f"the address of {name}")
        number = self.symbols.setdefault(name, len(self.symbols))
        at = self.text.at(self.word(Slot.SYMBOLS, "ptr"), number, "i64")
        address = self.text.load("i64", at, ", !invariant.load !0")
        return Value(UNIFORM, self.text.binary("add", address, offset))

    def untyped(self, x: X) -> X:
        """Return a float as the integer of its bits."""
        element = {"float": "i32", "double": "i64", "half": "i16", "bfloat": "i16"}.get(x.element)
        return self.text.cast("bitcast", x, element) if element else x

    # ── lanes ──

    def all_lanes(self) -> X:
        """Return the current mask, or a mask of all lanes if there is no mask."""
        return self.mask if self.mask is not None else constant(self.vector("i1"), 1)

    def lane_bits(self, mask: X | None = None) -> X:
        """Return `mask`, or the current mask, as 64 bits with a bit a lane."""
        return self.text.cast("zext", self.bits(self.all_lanes() if mask is None else mask), "i64")

    def among(self, lanes: X) -> X:
        """Return the mask of the lanes that are in `lanes` and in the current mask."""
        return lanes if self.mask is None else self.text.binary("and", lanes, self.mask)

    def all_of(self, conditions: Sequence[X]) -> X:
        """Return the truth that all conditions hold."""
        return reduce(lambda left, other: self.text.binary("and", left, other), conditions)

    def any_of(self, mask: X) -> X:
        """Return the truth that a mask has any lane."""
        return self.text.compare("ne", self.bits(mask), 0)

    def bits(self, mask: X) -> X:
        """Return a mask as an integer with a bit a lane."""
        if mask == constant(mask.type, 1):
            return constant(self.mask_type, -1)
        bits = self.text.bits_of_mask.get(mask.name)
        return bits or self.text.make(f"bitcast {mask} to {self.mask_type}", self.mask_type)

    def from_bits(self, bits: X) -> X:
        """Return a mask from an integer with a bit a lane."""
        mask = self.text.make(f"bitcast {bits} to {self.vector('i1')}", self.vector("i1"))
        self.text.bits_of_mask[mask.name] = bits
        return mask

    def carry(self) -> str:
        """Return the name of the memory that holds the lanes' carry flags."""
        if self._carry is None:
            self._carry = self.alloca(self.vector("i1"), "carry")
            self.starts.append(f"  store {constant(self.vector('i1'), 0)}, ptr {self._carry}")
        return self._carry

    # ── errors ──

    def site(self, lane_access: LaneAccess | None = None) -> int:
        """Return the number of the site by which an error names the current instruction and its access."""
        assert self.instr is not None
        site = Site(self._places[id(self.instr)], lane_access)
        if not self.sites or self.sites[-1] != site:
            self.sites.append(site)
        return len(self.sites) - 1

    def stop_where(self, bad: X, numbers: X, lane_access: LaneAccess | None = None) -> None:
        """Write code that leaves the kernel with an error at the first of the `bad` lanes.

        `numbers` has a number for each lane, which the message names.
        """
        text, lanes = self.text, self.bits(bad)
        wrong, well = text.fresh("wrong"), text.fresh("well")
        text.do(f"br {text.compare('ne', lanes, 0)}, label %{wrong}, label %{well}, !prof !1")
        text.label(wrong)
        text.store(numbers, self.scratch_addresses)
        text.run(
            "blame", "%ctx", self.site(lane_access), self.first_thread, self.block_number,
            text.cast("zext", lanes, "i64"), self.scratch_addresses,
        )  # fmt: skip
        text.jump("failed")
        text.label(well)

    def call_back(self, mask: X, values: str) -> None:
        """Write a call of Python for the current instruction.

        `mask` has the lanes as 64 bits, and `values` is the name of the memory that holds the lanes' values.
        """
        back = self.text.load("ptr", self.slot(Slot.CALL))
        failed = self.text.call_through(back, "%ctx", self.site(), self.first_thread, self.block_number, mask, values)
        self.fail_if(self.text.compare("ne", failed, 0))

    def fail_if(self, failed: X) -> None:
        """Write code that leaves the kernel if `failed` is true, with an error that a helper has recorded."""
        after = self.text.fresh("fine")
        self.text.do(f"br {failed}, label %failed, label %{after}, !prof !1")
        self.text.label(after)
