"""Analysis of a kernel before its code is written: thread numbers, barriers, saved registers, traits.

A vector begins at a multiple of its width along x. The bits of the thread number above the width are therefore the same
in all lanes of the vector, as the warp's number is. The lower bits count the lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import Builder, Value, X, bits_of, constant, lanes_of
from cudakit.emulator.compiled.emit import EMITTERS  # noqa: F401 (fills the table)
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.emit.warps import is_counted
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, Shapes, resized
from cudakit.emulator.instructions.control import CALLS
from cudakit.emulator.isa.facts import facts_of, is_atomic, is_strong, targets
from cudakit.emulator.isa.flow import Flow, ends_block, is_barrier, polling
from cudakit.emulator.machine.decode import STORAGE, Context, back_branches
from cudakit.emulator.ptx.program import (
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    registers_in,
    symbols_in,
)

# ── numbers of threads ──

_INTEGERS = frozenset({"u32", "s32", "b32", "u64", "s64", "b64"})
#: Comparisons with a bound: by whether a number equal to the bound counts as below it.
_BELOW, _UP_TO = frozenset({"lt", "ge", "lo", "hs"}), frozenset({"le", "gt", "ls", "hi"})
_COMPARED = {
    **{"lt": "ult", "lo": "ult", "le": "ule", "ls": "ule"},
    **{"gt": "ugt", "hi": "ugt", "ge": "uge", "hs": "uge"},
}


def thread_numbers(function: Function, layout: Layout) -> frozenset[str]:
    """Return the names of the registers that hold a copy of ``threadIdx.x``, which is never negative.

    The set is empty if the lanes of a vector are not adjacent in x.
    """
    if not layout.rows:
        return frozenset()
    written = [name for instr in function.code for name in targets(instr)]
    numbers = {"%tid.x"}
    before = 0
    while before < len(numbers):
        before = len(numbers)
        for instr in function.code:
            copies = instr.opcode == "mov" or (instr.opcode == "cvt" and _INTEGERS.issuperset(instr.modifiers))
            if copies and instr.guard is None and isinstance(instr.operands[1], Register):
                into = targets(instr)
                is_only_write = len(into) == 1 == written.count(into[0]) and bits_of(function.registers[into[0]]) >= 32
                if is_only_write and instr.operands[1].name in numbers:
                    numbers.add(into[0])
    return frozenset(numbers)


def thread_shape(instr: Instruction, numbers: frozenset[str], width: int) -> Shape:
    """Return the shape of a result computed from a thread number, or None if no special rule holds.

    `numbers` has the registers that hold ``threadIdx.x``, and `width` is the number of a vector's lanes.
    """
    if instr.guard is not None or len(instr.operands) != 3 or instr.modifiers[-1] not in _INTEGERS:
        return None
    _, source, by = instr.operands
    if not isinstance(source, Register) or source.name not in numbers or not isinstance(by, Immediate):
        return None
    if instr.opcode == "shr":
        return UNIFORM if 1 << min(by.value, 32) >= width else None
    if instr.opcode == "setp":
        # Whole vectors are below a bound that is a multiple of their width.
        bound = by.value + (instr.modifiers[0] in _UP_TO)
        ordered = instr.modifiers[0] in _BELOW | _UP_TO and len(instr.modifiers) == 2
        return UNIFORM if ordered and 0 <= bound < 1 << 31 and bound % width == 0 else None
    if instr.opcode != "and":
        return None
    if not by.value & width - 1:
        return UNIFORM
    return Affine(1) if by.value & width - 1 == width - 1 else None


def emit_of_threads(instr: Instruction, b: Builder, shape: Shape) -> None:
    """Write code for a result computed from a thread number, by the first lane's number.

    `shape` is the result's shape, as `thread_shape` returned it.
    """
    type_name, text = instr.modifiers[-1], b.text
    target, _, by = instr.operands
    assert isinstance(by, Immediate)
    first = text.cast("zext", b.special("tid.x").x, f"i{bits_of(type_name)}")
    if instr.opcode == "setp":
        how = _COMPARED[instr.modifiers[0]]
        b.write(target, "pred", Value(shape, text.compare(how, first, by.value)))
        return
    amount = by.value if instr.opcode == "and" else min(by.value, bits_of(type_name) - 1)
    opcode = "and" if instr.opcode == "and" else "lshr"
    b.write(target, type_name, Value(shape, text.binary(opcode, first, amount)))


# ── registers that a vector saves before a barrier, and loads behind it ──
# It saves registers written since the last barrier, and loads registers read before the next.


class Saves:
    """Registers to save before each barrier of a kernel and to load behind it, by the block that ends in the barrier.

    Parameters
    ----------
    flow : Flow
        Control flow of the kernel.
    shapes : Shapes
        Shapes of the kernel's registers.
    whole : bool
        Whether all live registers are saved and loaded at each barrier, as for lanes that wait divergently.

    Attributes
    ----------
    stores, loads : dict of int to set of str
        Registers saved before the barrier that ends a block, and loaded behind it.
    entries : dict of (int, int) to set of str
        Registers saved on the way from a block to a loop's header.
    """

    def __init__(self, flow: Flow, shapes: Shapes, whole: bool) -> None:
        code = flow.code
        ends = {n: flow.blocks[n].successors[0] for n in flow.order if flow.blocks[n].has_barrier}
        live = {n: shapes.live_in[after] if after != flow.end else set[str]() for n, after in ends.items()}
        self.stores: dict[int, set[str]] = {n: set(names) for n, names in live.items()}
        self.loads: dict[int, set[str]] = {n: set(names) for n, names in live.items()}
        #: Registers saved on the way from a block into a loop.
        self.entries: dict[tuple[int, int], set[str]] = {}
        if whole or any(targets(code[flow.blocks[n].last - 1]) for n in ends):
            return
        used = [read | (written & shapes.preserved) for read, written in shapes.uses]
        # Registers that a guarded instruction may write are saved too.
        written = [
            {name for instr in code[block.first : block.last] for name in targets(instr)} for block in flow.blocks
        ]
        changed = {0: set(shapes.live_in[0])}
        # Before a loop with barriers all is saved, so that the loop saves only the registers that it changes.
        entered: set[tuple[int, int]] = set()
        for header, body in flow.loops.items():
            if header not in shapes.divergent and not body.isdisjoint(ends):
                entered |= {(n, header) for n in flow.blocks[header].predecessors if n not in body | shapes.divergent}
        self._spread(flow, changed, written, ends, entered)
        for number, header in entered:
            if number not in ends:
                out = changed.get(number, set()) | written[number]
                self.entries[number, header] = out & shapes.live_in[header]
        self.stores = {n: live[n] & (changed.get(n, set()) | written[n]) for n in ends}
        needed = self._needed(flow, used, [names - shapes.preserved for _, names in shapes.uses], ends)
        self.loads = {n: live[n] & needed.get(after, set()) for n, after in ends.items()}

    def _spread(
        self,
        flow: Flow,
        changed: dict[int, set[str]],
        written: list[set[str]],
        ends: dict[int, int],
        entered: set[tuple[int, int]],
    ) -> None:
        """Add to `changed`, by block, the registers that may have been written between the last save and the block.

        `written` has the registers that each block writes, and `ends` the blocks that end at a barrier.
        `entered` has the edges into loops on which registers are saved, as pairs of blocks.
        """
        open_ = list(flow.order)
        while open_:
            number = open_.pop(0)
            out = set() if number in ends else changed.get(number, set()) | written[number]
            for after in flow.blocks[number].successors:
                if after == flow.end or (number, after) in entered:
                    continue
                if not out <= changed.setdefault(after, set()):
                    changed[after] |= out
                    open_.append(after)

    def _needed(
        self, flow: Flow, used: list[set[str]], written: list[set[str]], ends: dict[int, int]
    ) -> dict[int, set[str]]:
        """Return, by block, the registers that are read or saved between the block's begin and the next barrier.

        `used` and `written` have the registers that each block reads and writes. `ends` has the blocks that end at a
        barrier.
        """
        needed: dict[int, set[str]] = {}
        moved = True
        while moved:
            moved = False
            for number in reversed(flow.order):
                out = set(self.stores[number]) if number in ends else set[str]()
                if number not in ends:
                    for after in flow.blocks[number].successors:
                        out |= needed.get(after, set()) | self.entries.get((number, after), set())
                new = used[number] | (out - written[number])
                if new != needed.get(number):
                    needed[number] = new
                    moved = True
        return needed


class States:
    """Memory in which the vectors of a thread block save their registers while they wait.

    The first eight bytes of a vector's state have the number of the code where the vector resumes.

    Attributes
    ----------
    at : str
        Name of the current vector's state address in the code.
    bytes : int
        Bytes of a vector's state, known once all code is written (`end`).
    """

    at: str

    def __init__(self, b: Builder) -> None:
        self._b, self._text = b, b.text
        self._places: dict[tuple[str, str], int] = {}
        self.bytes: int = 64

    def of(self, states: X, vector: X) -> str:
        """Write code for the address of the state of vector number `vector`; return the address's name in the code.

        `states` is the address of all states.
        """
        return self._text.at(states, self._text.binary("mul", vector, X("i64", "%state.bytes")))

    def begin(self, states: X, vector: X) -> None:
        """Write code for the address of a vector's state, and use this state in all later calls."""
        self.at = self.of(states, vector)

    def end(self) -> None:
        """Put the final size of a state into the code written so far, in place of ``%state.bytes``."""
        self.bytes = -(-self.bytes // 64) * 64
        self._text.lines = [line.replace("%state.bytes", str(self.bytes)) for line in self._text.lines]

    def resume_at(self, number: int) -> None:
        """Write code that stores the number of the code where the vector is to resume."""
        self._text.store(constant("i64", number), self.at)

    def place(self, name: str, part: str, type_: str) -> str:
        """Write code for the address where a part of a register, or another named value, is saved; return its name.

        The first call for a part also reserves bytes for it in the state.
        """
        offset = self._places.get((name, part))
        if offset is None:
            element = X(type_, "").element
            bits = 8 if element == "i1" else int(element[1:])
            size = max(1, lanes_of(type_) * bits // 8)
            align = min(64, size)
            offset = self._places[name, part] = -(-self.bytes // align) * align
            self.bytes = offset + size
        return self._text.at(self.at, offset)

    def save(self, names: Iterable[str]) -> None:
        """Write code that saves registers."""
        self._move_all(names, load=False)

    def load(self, names: Iterable[str]) -> None:
        """Write code that loads saved registers."""
        self._move_all(names, load=True)

    def _move_all(self, names: Iterable[str], load: bool) -> None:
        """Write code that moves registers from their saved places to their own (`load`), or back."""
        for name in sorted(names):
            for part, type_ in self._b.types_of(name):
                self.move(type_, self.place(name, part, type_), self._b.place_of(name, part), load)

    def move(self, type_: str, saved: str, place: str, load: bool) -> None:
        """Write code that copies a value from the address `saved` to its own address `place` with `load`, or else back.

        Masks are saved as bits.
        """
        text, b = self._text, self._b
        if X(type_, "").element == "i1":
            bits = f"i{b.width}" if type_[0] == "<" else "i8"
            if load:
                raw = text.load(bits, saved)
                text.store(b.from_bits(raw) if type_[0] == "<" else text.cast("trunc", raw, "i1"), place)
            else:
                value = text.load(type_, place)
                text.store(b.bits(value) if type_[0] == "<" else text.cast("zext", value, "i8"), saved)
            return
        align = f", align {min(64, lanes_of(type_) * int(X(type_, '').element[1:]) // 8)}"
        if load:
            text.store(text.load(type_, saved, align), place)
        else:
            text.store(text.load(type_, place), saved, align)


# ── a kernel ──


#: System functions that a launch calls once only, even if it begins anew.
_EFFECTS = CALLS.keys() - {"__assertfail"}


class Traits(NamedTuple):
    """Traits of a kernel that decide how it is compiled, and when."""

    #: Whether it has warp collectives.
    uses_warps: bool
    #: Whether it adds floats atomically. The sums depend on the order of the lanes, so the kernel stays on the back-end
    #: that ran it first.
    adds_floats: bool
    #: Whether its vectors may run in any order, even in a block: they do not wait or read each other's memory.
    is_free: bool
    #: Instructions.
    size: int
    #: Whether it has loops and changes global memory alone, so that a long launch may begin anew.
    may_begin_anew: bool


def traits_of(contexts: Sequence[Context]) -> Traits:
    """Return the traits of a kernel, from the contexts of its function and of the functions that it calls."""
    code = [instr for context in contexts for instr in context.function.code]
    forms = _forms(code)
    return Traits(
        any(facts_of(instr).warp for instr in forms) or _reads_lane_masks(code),
        any(
            "add" in instr.modifiers and instr.modifiers[-1].startswith(("f", "bf")) and is_atomic(instr)
            for instr in forms
        ),
        all(map(_is_free, contexts)),
        len(code),
        any(back_branches(context.function) for context in contexts) and not any(map(_has_effects, code)),
    )


def _forms(code: Iterable[Instruction]) -> Iterable[Instruction]:
    """Return an instruction of each opcode with its modifiers, which decide its facts."""
    return {(instr.opcode, instr.modifiers): instr for instr in code}.values()


def _reads_lane_masks(code: Iterable[Instruction]) -> bool:
    """Return whether instructions read masks of their lane's neighbours; faster than by `sources`."""
    operands = {id(operand): operand for instr in code for operand in instr.operands}  # equal ones are one record
    return any(
        register.name.startswith("%lanemask") for operand in operands.values() for register in registers_in(operand)
    )


def _is_free(context: Context) -> bool:
    """Return whether a function's vectors may run in any order."""
    if context.local or _uses_shared(context):
        return False
    forms = _forms(context.function.code)
    return not any(instr.opcode == "call" or is_barrier(instr) or is_strong(instr) for instr in forms)


def _has_effects(instr: Instruction) -> bool:
    """Return whether an instruction changes more than registers and memory, or may do so: prints, for example."""
    if instr.opcode == "call":
        names = {symbol.name for operand in instr.operands for symbol in symbols_in(operand)}
        return any(isinstance(operand, Register) for operand in instr.operands) or not names.isdisjoint(_EFFECTS)
    return any(access.space == "texture" and access.use != "loads" for access in facts_of(instr).memory)


def _uses_shared(context: Context) -> bool:
    """Return whether a kernel may access shared memory."""
    shared = context.symbols.shared
    return bool(shared) and any(
        any(modifier.startswith("shared") for modifier in instr.modifiers)
        or any(isinstance(operand, Symbol) and operand.name in shared for operand in instr.operands)
        for instr in context.function.code
    )


class Analysis:
    """Analysis of a kernel that runs in vectors of a layout.

    Attributes
    ----------
    flow : Flow
        Control flow of the kernel.
    shapes : Shapes
        Shapes of the kernel's registers.
    threads : frozenset of str
        Registers that hold ``threadIdx.x``.
    raw : set of str
        Registers of float32 that only arithmetic writes: their NaN are made canonical when they are read.
    lasting : set of str
        Predicates written once, whose `Verdict` holds in all later blocks.
    uses_shared : bool
        Whether the kernel may access shared memory.
    barriers : list of int
        Blocks that end at a barrier.
    divergent_barriers : list of int
        Blocks of `barriers` that are in divergent code.
    divergent_polls, convergent_polls : list of int
        Headers of polling loops in divergent code, and in convergent code.
    has_counted_barriers : bool
        Whether vectors wait at barriers for a part of the block.
    suspends : bool
        Whether vectors wait for others.
    has_divergent_collectives : bool
        Whether divergent code has warp collectives.

    Raises
    ------
    Refusal
        If the table has no entry for an instruction.
    """

    context: Context
    layout: Layout
    function: Function
    flow: Flow
    shapes: Shapes

    def __init__(self, context: Context, layout: Layout) -> None:
        for instr in context.function.code:
            if instr.opcode == "brx" or (not ends_block(instr) and entry_of(instr) is None):
                raise Refusal(f"instruction {instr}")
        if context.local_align > 64:
            raise Refusal("local memory of a large alignment")
        self.context, self.layout = context, layout
        function = self.function = context.function
        flow = self.flow = Flow(function)
        self.polling: set[int] = polling(flow)
        self.threads: frozenset[str] = thread_numbers(function, layout)
        # No bound methods: an object that refers to itself lives until a garbage collection.
        special, transfer = partial(_special_shape, layout), partial(_transfer, context, layout, self.threads)
        shapes = self.shapes = Shapes(function, flow, special, transfer, self.polling)
        self.raw: set[str] = self._raw()
        self.uses_shared: bool = _uses_shared(context)
        self.barriers: list[int] = [number for number in flow.order if flow.blocks[number].has_barrier]
        self.divergent_barriers: list[int] = [number for number in self.barriers if number in shapes.divergent]
        polls = [number for number in flow.order if number in self.polling]
        self.divergent_polls: list[int] = [number for number in polls if number in shapes.divergent]
        self.convergent_polls: list[int] = [number for number in polls if number not in shapes.divergent]
        self.has_counted_barriers: bool = any(is_counted(instr) for instr in function.code if is_barrier(instr))
        self.suspends: bool = bool(self.barriers or self.polling)
        self.lasting: set[str] = set()
        if not self.suspends:
            written = [name for instr in function.code for name in targets(instr)]
            predicates = [name for name, type_name in function.registers.items() if type_name == "pred"]
            written_once = {name for name in predicates if written.count(name) == 1}
            self.lasting = written_once - shapes.preserved - shapes.live_in[0]
        self.has_divergent_collectives: bool = any(flow.blocks[number].has_collective for number in shapes.divergent)

    def last_of(self, number: int) -> Instruction:
        """Return the last instruction of a block."""
        return self.function.code[self.flow.blocks[number].last - 1]

    def _raw(self) -> set[str]:
        """Return the float32 registers whose NaN may be made canonical when they are read."""
        raw = set[str]()
        for instr in self.function.code:
            entry = entry_of(instr)
            if entry is not None and entry.makes_nan and instr.opcode != "mov" and instr.modifiers[-1] == "f32":
                raw.update(targets(instr))
        raw |= {name for instr in self.function.code if instr.opcode == "mov" for name in targets(instr)}
        changed = True
        while changed:
            changed = False
            for instr in self.function.code:
                entry = entry_of(instr)
                fits = entry is not None and entry.makes_nan and instr.modifiers[-1] == "f32"
                if instr.opcode == "mov":
                    source = instr.operands[1]
                    copies_raw = isinstance(source, Register) and source.name in raw
                    number = isinstance(source, Immediate) and _is_number(source)
                    whole = isinstance(instr.operands[0], Register)
                    fits = whole and instr.modifiers[-1] in ("f32", "b32") and (copies_raw or number)
                for name in targets(instr):
                    if name in raw and not fits:
                        raw.discard(name)
                        changed = True
        return raw


def _special_shape(layout: Layout, name: str) -> Shape:
    """Return the shape of a special register."""
    base, _, axis = name.removeprefix("%").partition(".")
    if base == "tid":
        return VARYING if not layout.rows else Affine(1) if axis == "x" else UNIFORM
    if base == "laneid":
        return Affine(1)
    return VARYING if base.startswith("lanemask") else UNIFORM


def _transfer(
    context: Context, layout: Layout, numbers: frozenset[str], instr: Instruction, shape: Callable[[Operand], Shape]
) -> Shape:
    """Return the shape of an instruction's result."""
    entry = entry_of(instr)
    if entry is None:
        return VARYING  # a barrier's result
    of_threads = thread_shape(instr, numbers, layout.width)
    if of_threads is not None:
        return of_threads
    return entry.transfer(instr, as_read(context, shape))


def as_read(context: Context, shape: Callable[[Operand], Shape]) -> Callable[..., Shape]:
    """Return the function for the shape of an operand that is read as a PTX type, by the function for its own shape."""

    def of(operand: Operand | None, type_name: str = "") -> Shape:
        if operand is None:  # whether the kernel has local memory
            return UNIFORM if context.local else None
        operand_shape = shape(operand)
        if isinstance(operand_shape, Affine) and isinstance(operand, Register) and type_name in STORAGE:
            has = context.function.registers.get(operand.name, "b32")
            return resized(operand_shape, bits_of(has), bits_of(type_name), type_name[0] == "s")
        return operand_shape

    return of


def _is_number(operand: Immediate) -> bool:
    """Return whether a constant's bits, as float32, are no NaN."""
    return operand.value & 0x7F80_0000 != 0x7F80_0000 or not operand.value & 0x7F_FFFF
