"""What is known of a kernel before its code is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from cudakit.emulator.compiled import barriers, threads
from cudakit.emulator.compiled.builder import bits_of
from cudakit.emulator.compiled.emit import EMITTERS  # noqa: F401 (fills the table)
from cudakit.emulator.compiled.emit.table import entry_of
from cudakit.emulator.compiled.flow import Flow, ends_block, waits
from cudakit.emulator.compiled.layout import Layout
from cudakit.emulator.compiled.polls import polling
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Affine, Shape, Shapes, resized
from cudakit.emulator.isa.facts import facts_of, is_atomic, is_strong, sources, targets
from cudakit.emulator.machine.decode import STORAGE, Context
from cudakit.emulator.ptx.program import Immediate, Instruction, Operand, Register, Symbol


class Traits(NamedTuple):
    """What of a kernel decides how it is compiled, and when."""

    #: Whether lanes of a warp meet in it.
    uses_warps: bool
    #: Whether it adds floats atomically, in whose sums the order of the lanes is seen: it stays on the machine that has
    #: begun it.
    adds_floats: bool
    #: Whether its vectors may run in any order, those of a block too: none waits, none sees what others do.
    is_free: bool
    #: Instructions.
    size: int


def traits_of(contexts: Sequence[Context]) -> Traits:
    """The traits of a kernel: its function, and those that it calls."""
    return Traits(
        any(map(_uses_warps, contexts)),
        any(map(_adds_floats, contexts)),
        all(map(_is_free, contexts)),
        sum(len(each.function.code) for each in contexts),
    )


def _uses_warps(context: Context) -> bool:
    return any(
        facts_of(instruction).warp or any(name.startswith("%lanemask") for name in sources(instruction))
        for instruction in context.function.code
    )


def _adds_floats(context: Context) -> bool:
    return any(
        is_atomic(given) and "add" in given.modifiers and given.modifiers[-1].startswith(("f", "bf"))
        for given in context.function.code
    )


def _is_free(context: Context) -> bool:
    if context.local or _uses_shared(context):
        return False
    return not any(given.opcode == "call" or waits(given) or is_strong(given) for given in context.function.code)


def _uses_shared(context: Context) -> bool:
    """Whether a kernel can come to shared memory."""
    shared = context.symbols.shared
    return bool(shared) and any(
        any(modifier.startswith("shared") for modifier in given.modifiers)
        or any(isinstance(each, Symbol) and each.name in shared for each in given.operands)
        for given in context.function.code
    )


class Analysis:
    """What is known of a kernel that is to run in vectors of a layout.

    Attributes
    ----------
    flow : Flow
    shapes : Shapes
    threads : frozenset of str
        Registers that hold the threads' x.
    raw : set of str
        Registers of float32 that only arithmetic writes: their NaN are made canonical when they are read.
    lasting : set of str
        Predicates of which what is known holds where they do.
    uses_shared : bool
    waiting, parted_waits, parted_polls, lone_polls : list of int
        Blocks that end at a barrier, and those of them that a part of a vector's lanes may come to; headers of loops
        that wait for what others write, by whether a part of a vector's lanes may be in them.
    counted : bool
        Whether vectors wait at barriers for a part of the block.
    suspends : bool
        Whether vectors wait.
    meets_parted : bool
        Whether lanes of a warp meet where a part of them may come to.

    Raises
    ------
    Refusal
        Where an instruction has no entry.
    """

    def __init__(self, context: Context, layout: Layout) -> None:
        for given in context.function.code:
            if given.opcode == "brx" or (not ends_block(given) and entry_of(given) is None):
                raise Refusal(f"instruction {given}")
        if context.local_align > 64:
            raise Refusal("local memory of a large alignment")
        self.context, self.layout = context, layout
        function = self.function = context.function
        flow = self.flow = Flow(function)
        self.polling: set[int] = polling(flow)
        self.threads: frozenset[str] = threads.numbers(function, layout)
        # Of no method of its own: what holds itself lives until a garbage collection.
        special, transfer = partial(_special_shape, layout), partial(_transfer, context, layout, self.threads)
        shapes = self.shapes = Shapes(function, flow, special, transfer, self.polling)
        self.raw: set[str] = self._raw()
        self.uses_shared: bool = _uses_shared(context)
        self.waiting: list[int] = [number for number in flow.order if flow.blocks[number].waits]
        self.parted_waits: list[int] = [number for number in self.waiting if number in shapes.parted]
        polls = [number for number in flow.order if number in self.polling]
        self.parted_polls: list[int] = [number for number in polls if number in shapes.parted]
        self.lone_polls: list[int] = [number for number in polls if number not in shapes.parted]
        self.counted: bool = any(barriers.is_counted(given) for given in function.code if waits(given))
        self.suspends: bool = bool(self.waiting or self.polling)
        self.lasting: set[str] = set()
        if not self.suspends:
            written = [name for given in function.code for name in targets(given)]
            predicates = [name for name, kind in function.registers.items() if kind == "pred"]
            once = {name for name in predicates if written.count(name) == 1}
            self.lasting = once - shapes.kept - shapes.live_in[0]
        self.meets_parted: bool = any(flow.blocks[number].meets for number in shapes.parted)

    def last_of(self, number: int) -> Instruction:
        """The instruction that a block ends with."""
        return self.function.code[self.flow.blocks[number].last - 1]

    def _raw(self) -> set[str]:
        raw = set[str]()
        for given in self.function.code:
            entry = entry_of(given)
            if entry is not None and entry.makes_nan and given.opcode != "mov" and given.modifiers[-1] == "f32":
                raw.update(targets(given))
        raw |= {name for given in self.function.code if given.opcode == "mov" for name in targets(given)}
        changed = True
        while changed:
            changed = False
            for given in self.function.code:
                entry = entry_of(given)
                fits = entry is not None and entry.makes_nan and given.modifiers[-1] == "f32"
                if given.opcode == "mov":
                    source = given.operands[1]
                    same = isinstance(source, Register) and source.name in raw
                    number = isinstance(source, Immediate) and _is_number(source)
                    whole = isinstance(given.operands[0], Register)
                    fits = whole and given.modifiers[-1] in ("f32", "b32") and (same or number)
                for name in targets(given):
                    if name in raw and not fits:
                        raw.discard(name)
                        changed = True
        return raw


def _special_shape(layout: Layout, name: str) -> Shape:
    """The shape of a special register."""
    base, _, axis = name.removeprefix("%").partition(".")
    if base == "tid":
        return VARYING if not layout.rows else Affine(1) if axis == "x" else UNIFORM
    if base == "laneid":
        return Affine(1)
    return VARYING if base.startswith("lanemask") else UNIFORM


def _transfer(
    context: Context, layout: Layout, numbers: frozenset[str], given: Instruction, shape: Callable[[Operand], Shape]
) -> Shape:
    """The shape of an instruction's result."""
    entry = entry_of(given)
    if entry is None:
        return VARYING  # a barrier's result

    def of(operand: Operand | None, kind: str) -> Shape:
        if operand is None:  # whether the kernel has local memory
            return UNIFORM if context.local else None
        held = shape(operand)
        if isinstance(held, Affine) and isinstance(operand, Register) and kind in STORAGE:
            has = context.function.registers.get(operand.name, "b32")
            return resized(held, bits_of(has), bits_of(kind), kind[0] == "s")
        return held

    of_threads = threads.shape_of(given, numbers, layout.width)
    if of_threads is not None:
        return of_threads
    return entry.transfer(given, lambda operand, kind="": of(operand, kind))


def _is_number(operand: Immediate) -> bool:
    """Whether the bits of a constant, as float32, are no NaN."""
    return operand.value & 0x7F80_0000 != 0x7F80_0000 or not operand.value & 0x7F_FFFF
