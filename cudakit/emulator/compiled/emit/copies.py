"""Asynchronous copies by threads, which land at once: a load and a store, with zeros for what is not read.

That is one of the orders that PTX ISA 9.7.9.25.3 allows, and the one of NumPy's machine. To wait for them is nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit.memory import load, store
from cudakit.emulator.compiled.emit.table import emits
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Address, Immediate, Instruction, Operand, Register


@emits("cp.async")
def cp_async(given: Instruction, b: Builder) -> None:
    target, source, size, *rest = given.operands
    space, mask, text = given.modifiers[2].partition("::"), b.mask, b.text
    if space[0] != "shared" or space[2] == "cluster" or not isinstance(size, Immediate):
        raise Refusal(f"instruction {given}")
    if "L2::cache_hint" in given.modifiers:
        rest.pop()
    bytes_ = 8 if size.value > 4 else 4
    count = size.value // bytes_

    def read() -> list[X]:
        return load(b, _part(given, "ld", "global", bytes_), source, bytes_, count, bytes_)

    values: list[X]
    if not rest:
        values = read()
    elif isinstance(rest[0], Register) and b.function.registers.get(rest[0].name) == "pred":
        chosen = b.lanes(b.read(rest[0], "pred"))
        values = _where(b, mask, text.binary("xor", chosen, constant(chosen.type, 1)), read, bytes_, count)
    else:
        used = b.lanes(b.read(rest[0], "u32"))
        _refuse_longer(b, given, used, size.value)
        whole = text.compare("eq", used, b.spread(constant("i32", size.value)))
        values = _where(b, mask, whole, read, bytes_, count)
        part = text.binary("and", text.compare("ne", used, constant(used.type, 0)), _not(b, whole))
        some = _where(b, mask, part, lambda: _by_bytes(b, given, source, used, bytes_, count), bytes_, count)
        values = [text.binary("or", b.spread(one), other) for one, other in zip(values, some, strict=True)]
    b.mask = mask
    store(b, _part(given, "st", "shared", bytes_), target, bytes_, values, bytes_)


@emits("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all")
def group(given: Instruction, b: Builder) -> None:
    """What was copied has landed."""


def _part(given: Instruction, opcode: str, space: str, size: int) -> Instruction:
    """The load, or the store, of a copy."""
    return replace(given, opcode=opcode, modifiers=(space, f"b{8 * size}"))


def _not(b: Builder, x: X) -> X:
    return b.text.binary("xor", x, constant(x.type, 1))


def _where(b: Builder, mask: X | None, held: X, read: Callable[[], list[X]], size: int, count: int) -> list[X]:
    """What is read by the lanes of a mask where something holds, and zeros for the others."""
    text, type_ = b.text, b.vector(f"i{8 * size}")
    b.mask = lanes = held if mask is None else text.binary("and", mask, held)
    do, skip = text.fresh("do"), text.fresh("skip")
    before = text.here
    text.branch(b.any_of(lanes), do, skip)
    text.label(do)
    zero = constant(type_, 0)
    found = [text.select(lanes, b.spread(each), zero) for each in read()]
    here = text.here
    text.jump(skip)
    text.label(skip)
    b.mask = mask
    return [text.phi(type_, (each, here), (zero, before)) for each in found]


def _by_bytes(b: Builder, given: Instruction, source: Operand, used: X, size: int, count: int) -> list[X]:
    """The first bytes of a source, as many as each lane uses, and zeros; lane by lane, for it is rare."""
    if not isinstance(source, Address):
        raise Refusal(f"instruction {given}")
    text, outer, unlikely = b.text, b.mask, b.unlikely
    type_, found = b.vector(f"i{8 * size}"), list[X]()
    b.unlikely = True
    for number in range(count):
        whole = constant(type_, 0)
        for byte in range(size):
            at = number * size + byte
            within = text.compare("ugt", used, b.spread(constant("i32", at)))
            place = replace(source, offset=source.offset + at)
            (one,) = _where(b, outer, within, partial(load, b, _part(given, "ld", "global", 1), place, 1, 1), 1, 1)
            b.mask = outer
            wide = text.binary("shl", text.cast("zext", one, f"i{8 * size}"), constant(type_, 8 * byte))
            whole = text.binary("or", whole, wide)
        found.append(whole)
    b.unlikely = unlikely
    return found


def _refuse_longer(b: Builder, given: Instruction, used: X, total: int) -> None:
    """Stop where a source is said to have more bytes than are copied."""
    longer = b.text.compare("ugt", used, b.spread(constant("i32", total)))
    if b.mask is not None:
        longer = b.text.binary("and", longer, b.mask)
    b.stop_where(longer, b.text.cast("zext", used, "i64"))
