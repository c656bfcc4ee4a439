"""Shapes of registers over the lanes of a vector: one value, a base with a stride, or any values.

The shapes decide which blocks run under masks, and which writes must keep the values of other lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from cudakit.emulator.isa.facts import sources, targets
from cudakit.emulator.isa.flow import Flow
from cudakit.emulator.ptx.program import Function, Immediate, Instruction, Operand, Register, registers_in


@dataclass(frozen=True, slots=True)
class Narrow:
    """The fewer bits from which an affine value was extended, with its stride; in them its lanes may wrap around."""

    bits: int
    stride: int
    signed: bool


@dataclass(frozen=True, slots=True)
class Affine:
    """Shape of a register whose lane i holds base + i · stride.

    A value extended from fewer bits is affine only if no lane wrapped around in those bits. In general lane i holds
    base + factor · (lane i's extended narrow value - lane 0's).
    """

    stride: int
    narrow: Narrow | None = None

    @property
    def factor(self) -> int:
        """Factor by which the narrow value was multiplied."""
        return self.stride // self.narrow.stride if self.narrow is not None else 1


#: None: not yet known. UNIFORM: the same in all lanes. VARYING: any values.
UNIFORM, VARYING = "uniform", "varying"
Shape: TypeAlias = str | Affine | None


def join(a: Shape, b: Shape) -> Shape:
    """Return the shape of a register that one instruction writes with shape `a` and another with shape `b`."""
    if a is None or a == b:
        return b
    if b is None:
        return a
    if isinstance(a, Affine) and isinstance(b, Affine) and a.stride == b.stride and None in (a.narrow, b.narrow):
        narrow = a.narrow or b.narrow
        # Lanes that count from 0 do not wrap around in the fewer bits either.
        if (
            narrow is not None
            and narrow.bits >= 32
            and abs(narrow.stride) < 1 << 20
            and (narrow.signed or narrow.stride > 0)
        ):
            return Affine(a.stride, narrow)
    return VARYING


def resized(shape: Shape, has: int, bits: int, signed: bool) -> Shape:
    """Return the shape of a register of `has` bits that is read with `bits` bits, extended by the sign if `signed`."""
    if not isinstance(shape, Affine) or has == bits:
        return shape
    if bits > has:
        return Affine(shape.stride, Narrow(has, shape.stride, signed)) if shape.narrow is None else VARYING
    return Affine(shape.stride) if shape.narrow is None or shape.narrow.bits >= bits else VARYING


@dataclass
class Shapes:
    """Shapes of a function's registers, computed by iteration to a fixed point.

    Parameters
    ----------
    function : Function
        The function.
    flow : Flow
        Control flow of the function.
    special : callable
        Function that returns the shape of a special register.
    transfer : callable
        Function that returns the shape of an instruction's result, given a function for the shape of an operand.
    """

    function: Function
    flow: Flow
    special: Callable[[str], Shape]
    transfer: Callable[[Instruction, Callable[[Operand], Shape]], Shape]
    #: Headers of polling loops.
    polling: set[int] = field(default_factory=set)
    by_register: dict[str, Shape] = field(default_factory=dict)
    #: Divergent blocks: some lanes of a vector may run them without the others.
    divergent: set[int] = field(default_factory=set)
    #: Registers whose writes must keep the values of inactive lanes.
    preserved: set[str] = field(default_factory=set)
    live_in: list[set[str]] = field(default_factory=list)
    #: Registers that each block reads before it writes them, and registers that it writes.
    uses: list[tuple[set[str], set[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._written: dict[str, list[int]] = {}
        #: Registers that an instruction with a guard writes.
        self._guarded = {name for instr in self.function.code if instr.guard is not None for name in targets(instr)}
        self._targets = [targets(instr) for instr in self.function.code]
        #: The instructions with results that read each register.
        self._readers: dict[str, list[int]] = {}
        for block in self.flow.order:
            for number in range(self.flow.blocks[block].first, self.flow.blocks[block].last):
                for name in self._targets[number]:
                    self._written.setdefault(name, []).append(block)
                for name in sources(self.function.code[number]) if self._targets[number] else ():
                    self._readers.setdefault(name, []).append(number)
        self._live()
        while True:
            before = dict(self.by_register), set(self.divergent)
            self._propagate()
            self._find_divergence()
            if before == (self.by_register, self.divergent):
                break
        for name in self._written:
            self.by_register.setdefault(name, VARYING)
        for name, blocks in self._written.items():
            if any(block in self.divergent for block in blocks) and (
                len(blocks) > 1 or self._escapes(name, blocks[0]) or self._waits_with(name)
            ):
                self.preserved.add(name)

    def shape(self, operand: Operand) -> Shape:
        """Return the shape of an operand."""
        if isinstance(operand, Register):
            return (
                self.by_register.get(operand.name)
                if operand.name in self.function.registers
                else self.special(operand.name)
            )
        if isinstance(operand, Immediate):
            return UNIFORM
        combined: Shape = UNIFORM
        for register in registers_in(operand):
            shape = self.shape(register)
            if shape != UNIFORM:
                combined = VARYING if shape is not None else combined
        return combined

    def _propagate(self) -> None:
        """Compute the shapes of all results until nothing changes: of those whose sources have changed, in order."""
        blocks = self.flow.blocks
        stale = {number for block in self.flow.order for number in range(blocks[block].first, blocks[block].last)}
        while stale:
            for block in self.flow.order:
                for number in range(self.flow.blocks[block].first, self.flow.blocks[block].last):
                    if number not in stale:
                        continue
                    stale.discard(number)
                    instr = self.function.code[number]
                    for name in self._targets[number]:
                        shape = self.transfer(instr, self.shape)
                        if instr.guard is not None and self.shape(instr.guard[0]) != UNIFORM:
                            shape = VARYING
                        if shape not in (None, VARYING) and block in self.divergent:
                            is_only_write = len(self._written[name]) == 1 and instr.guard is None
                            loops = self.flow.blocks[block].loops
                            waits_with = bool(loops) and self._waits_with(name)
                            settled = is_only_write and not self._escapes(name, block) and not waits_with
                            if not settled and not self._in_step(name):
                                shape = VARYING
                        if self.function.registers.get(name) == "pred" and isinstance(shape, Affine):
                            shape = VARYING
                        joined = join(self.by_register.get(name), shape)
                        if joined != self.by_register.get(name):
                            self.by_register[name] = joined
                            stale.update(self._readers.get(name, ()))

    def _find_divergence(self) -> None:
        """Add the blocks that branches on varying predicates make divergent."""
        flow = self.flow
        for number in flow.order:
            block = flow.blocks[number]
            instr = self.function.code[block.last - 1]
            chooser: Operand | None = instr.guard[0] if instr.guard is not None else None
            if instr.opcode == "brx":
                chooser = instr.operands[0]
            if len(block.successors) > 1 and chooser is not None and self.shape(chooser) not in (UNIFORM, None):
                region = flow.until(block.successors, flow.post[number])
                # Lanes that have left a polling loop do not wait for the others, which may wait for them.
                if not self.polling.isdisjoint(block.loops):
                    region |= flow.until(block.successors, flow.end)
                for header in reversed(block.loops):
                    if header in region:
                        # Some lanes go round while others go on: all of the loop and its exits are divergent.
                        body = flow.loops[header]
                        out = {after for member in body for after in flow.blocks[member].successors} - body
                        convergence = flow.post[header]
                        while convergence in body:
                            convergence = flow.post[convergence]
                        region |= body | flow.until(out, convergence)
                self.divergent |= region

        # Where lanes wait for others, lanes that need not wait go on, past the point of convergence.
        for number in list(self.divergent):
            block = flow.blocks[number]
            if number in self.polling or block.has_barrier or block.has_collective:
                self.divergent |= flow.until([number], flow.end)

    def _escapes(self, name: str, block: int) -> bool:
        """Return whether a register that `block` writes in a loop is read behind the loop, or in its next turn.

        False if the block is in no loop.
        """
        loops = self.flow.blocks[block].loops
        if not loops:
            return False
        body = self.flow.loops[loops[-1]]
        if name in self.live_in[loops[-1]]:
            return True
        return any(
            name in self.live_in[after]
            for member in body
            for after in self.flow.blocks[member].successors
            if after not in body and after != self.flow.end
        )

    def _in_step(self, name: str) -> bool:
        """Return whether a register counts the turns of a loop: set before it and changed once in each turn.

        All lanes in the loop have then gone round equally often, and the values of other lanes are not read.
        """
        places = self._written[name]
        if len(places) != 2 or name in self._guarded or self._waits_with(name):
            return False
        flow = self.flow
        for before, inside in (places, places[::-1]):
            loops = flow.blocks[inside].loops
            if not loops or before in flow.loops[loops[-1]] or loops[-1] in self.polling:
                continue
            header, body = loops[-1], flow.loops[loops[-1]]
            before_change = flow.until([header], inside)
            if any(header in flow.blocks[member].successors for member in body & before_change):
                continue  # a turn may skip the change
            ways_out = {after for member in body for after in flow.blocks[member].successors} - body - {flow.end}
            if any(name in self.live_in[after] for after in ways_out):
                continue
            # Outside the loop the register may be live only on the way into it.
            leading = {number for number in flow.order if number not in body and name in self.live_in[number]}
            onward = {after for number in leading for after in flow.blocks[number].successors}
            if onward <= leading | {header} and set(flow.blocks[before].loops) <= set(loops[:-1]):
                return True
        return False

    def _waits_with(self, name: str) -> bool:
        """Return whether a register is live while some lanes wait in divergent code."""
        flow = self.flow
        for number in self.divergent:
            block = flow.blocks[number]
            after = block.successors[0]
            if block.has_barrier and after != flow.end and name in self.live_in[after]:
                return True
            if (block.has_collective or number in self.polling) and name in self.live_in[number]:
                return True
        return False

    def _live(self) -> None:
        """Compute the registers that are live at the beginning of each block."""
        flow, code = self.flow, self.function.code
        registers = self.function.registers
        uses = self.uses
        for block in flow.blocks:
            read: set[str] = set()
            written: set[str] = set()
            for number in range(block.first, block.last):
                instr = code[number]
                read.update(name for name in sources(instr) if name in registers and name not in written)
                if instr.guard is None:
                    written.update(self._targets[number])
                else:
                    # Lanes whose guard does not hold keep the old value.
                    read.update(name for name in self._targets[number] if name in registers and name not in written)
            uses.append((read, written))
        self.live_in = [set(read) for read, _ in uses]
        changed = True
        while changed:
            changed = False
            for number in reversed(flow.order):
                block = flow.blocks[number]
                out: set[str] = set()
                for after in block.successors:
                    if after != flow.end:
                        out |= self.live_in[after]
                read, written = uses[number]
                new = read | (out - written)
                if new != self.live_in[number]:
                    self.live_in[number] = new
                    changed = True
