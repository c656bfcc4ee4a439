"""Lanes of a warp that wait for each other at collectives in divergent code.

Lanes go on from a collective when all members of their mask wait there or have exited. Members may also wait at other
places, at a collective with the same name and mask. If no lane of a warp can go on otherwise, the lanes at all places
are compared. Lanes that meet so leave the values that they exchange in memory, and each place then runs for its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from cudakit.emulator.compiled.analysis import Analysis
from cudakit.emulator.compiled.builder import Builder, Elsewhere, X, constant
from cudakit.emulator.compiled.emit.warps import exchanged
from cudakit.emulator.compiled.shapes import UNIFORM
from cudakit.emulator.isa.flow import member_mask
from cudakit.emulator.ptx.program import Instruction


class Rendezvous:
    """The divergent collectives of a kernel, and code for the lanes that wait at them.

    Parameters
    ----------
    analysis : Analysis
        Analysis of the kernel.
    b : Builder
        Builder of the kernel.
    masks : mapping of int to str
        Places of the lanes that wait for each block, by the block's number.
    alive : str
        Place of the lanes that have not left.

    Attributes
    ----------
    sites : list of int
        Divergent blocks that begin with a collective.
    """

    sites: list[int]

    def __init__(self, analysis: Analysis, b: Builder, masks: Mapping[int, str], alive: str) -> None:
        self._b, self._shapes, self._masks, self._alive = b, analysis.shapes, masks, alive
        flow, divergent = analysis.flow, analysis.shapes.divergent
        self._instructions: dict[int, Instruction] = {
            number: flow.code[flow.blocks[number].first]
            for number in flow.order
            if number in divergent and flow.blocks[number].has_collective
        }
        self.sites = list(self._instructions)
        places: dict[str, list[int]] = {}
        for number, instr in self._instructions.items():
            if "sync" in instr.modifiers:
                places.setdefault(str(instr), []).append(number)
        #: Places of each collective that stands at several; and the lanes elsewhere, by the instruction's identity.
        self._several = [numbers for numbers in places.values() if len(numbers) > 1]
        self._elsewhere: dict[int, Elsewhere] = {}
        for numbers in self._several:
            elsewhere = Elsewhere(self._b)
            self._elsewhere |= {id(self._instructions[number]): elsewhere for number in numbers}

    def elsewhere(self, instr: Instruction) -> Elsewhere | None:
        """Return the lanes elsewhere for a divergent collective that stands at several places, else None."""
        return self._elsewhere.get(id(instr))

    def ready(self, number: int, waiting: X) -> X:
        """Return the lanes, as bits, that may go on, of those that wait at the collective of block `number`."""
        instr, text = self._instructions[number], self._b.text
        elsewhere = self.elsewhere(instr)
        if elsewhere is None:
            return self._converged(instr, waiting)
        released = text.binary("and", waiting, text.load(waiting.type, elsewhere.released))
        first = text.compare("ne", released, 0)
        return text.select(first, released, self._converged(instr, waiting))

    def go(self, number: int, waiting: X) -> tuple[X, X]:
        """Write code that takes the lanes that may go on at block `number`; return them, and those that stay."""
        instr, text = self._instructions[number], self._b.text
        elsewhere = self.elsewhere(instr)
        # Lanes that name one mask go on all together, and this code is reached when lanes go on.
        others = waiting if self._is_one_mask(instr) else self._converged(instr, waiting)
        if elsewhere is None:
            return others, text.binary("xor", waiting, others)
        released = text.load(waiting.type, elsewhere.released)
        first = text.binary("and", waiting, released)
        has_met, none = text.compare("ne", first, 0), constant(waiting.type, 0)
        lanes = text.select(has_met, first, others)
        away = text.binary("and", text.load(lanes.type, elsewhere.met), text.binary("xor", lanes, -1))
        elsewhere.lanes = text.select(has_met, away, none)
        text.store(text.binary("and", released, text.binary("xor", lanes, -1)), elsewhere.released)
        return lanes, text.binary("xor", waiting, lanes)

    def meet(self) -> X:
        """Write code that lets lanes go on whose members wait at other places; return the truth that there are any."""
        b, text = self._b, self._b.text
        none = constant(b.mask_type, 0)
        all_met = none
        alive = text.cast("zext", text.load(b.mask_type, self._alive), "i64")
        for numbers in self._several:
            elsewhere = self._elsewhere[id(self._instructions[numbers[0]])]
            members, waiting = constant(b.vector("i32"), 0), none
            value: X | None = None
            for number in numbers:
                instr = self._instructions[number]
                here = text.load(b.mask_type, self._masks[number])
                is_here = b.from_bits(here)
                waiting = text.binary("or", waiting, here)
                members = text.select(is_here, b.spread(self._members(instr)), members)
                operand = exchanged(instr)
                if operand is not None:
                    own = b.lanes(b.read(*operand))
                    value = own if value is None else text.select(is_here, own, value)
            text.store(text.cast("zext", members, "i64"), b.scratch_values)
            met = text.call("met", "i64", text.cast("zext", waiting, "i64"), alive, b.scratch_values)
            met = text.cast("trunc", met, b.mask_type)
            for place in (elsewhere.released, elsewhere.met):
                text.store(met, place)
            if value is not None:
                text.store(value, elsewhere.values(value.type))
            all_met = text.binary("or", all_met, met)
        return text.compare("ne", all_met, 0)

    def _is_one_mask(self, instr: Instruction) -> bool:
        """Return whether all lanes name the same member mask at a collective, and all or none wait for it."""
        named = [member_mask(instr), *([] if instr.guard is None else [instr.guard[0]])]
        return "sync" not in instr.modifiers or all(self._shapes.shape(name) in (UNIFORM, None) for name in named)

    def _members(self, instr: Instruction) -> X:
        """Return the member mask of each lane at a collective; one for all lanes if they are the same.

        Lanes whose guard does not hold wait for no others.
        """
        b, text = self._b, self._b.text
        value = b.read(member_mask(instr), "b32")
        members = value.x if value.shape == UNIFORM else b.lanes(value)
        if instr.guard is None:
            return members
        chosen = b.holds(instr.guard)
        truth = chosen.x if chosen.shape == UNIFORM else b.lanes(chosen)
        members = b.spread(members) if truth.is_vector else members
        return text.select(truth, members, constant(members.type, 0))

    def _converged(self, instr: Instruction, waiting: X) -> X:
        """Return the waiting lanes, as bits, whose members all wait at this place or have exited."""
        b, text = self._b, self._b.text
        if "sync" not in instr.modifiers:
            return waiting
        alive = text.load(b.mask_type, self._alive)
        missing = text.binary("and", alive, text.binary("xor", waiting, -1))
        members = self._members(instr)
        absent = text.binary("and", members, b.spread(missing) if members.is_vector else missing)
        arrived = text.compare("eq", absent, 0)
        if arrived.is_vector:
            return text.binary("and", waiting, b.bits(arrived))
        return text.select(arrived, waiting, constant(waiting.type, 0))
