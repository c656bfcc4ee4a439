"""Loads, stores and fences."""

from __future__ import annotations

from collections.abc import Callable

from cudakit.emulator.compiled.builder import Builder, Reached, Value, bits_of
from cudakit.emulator.compiled.emit.access import Access, Way, address_of, space_of
from cudakit.emulator.compiled.emit.common import type_of
from cudakit.emulator.compiled.emit.lanes import gather, load_row, scatter, store_row
from cudakit.emulator.compiled.emit.table import emits
from cudakit.emulator.compiled.helpers import READ, WRITE
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.isa.facts import is_strong
from cudakit.emulator.machine import memory
from cudakit.emulator.machine.memory import WIDEST
from cudakit.emulator.ptx.program import Address, Group, Instruction, Operand, Register, Symbol

# ── loads ──


def _load_shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    source = given.operands[1]
    space = next((m.partition("::")[0] for m in given.modifiers if m.partition("::")[0] in ("param", "local")), "")
    if space == "local":
        return VARYING
    if not isinstance(source, Address):
        return VARYING
    held = shape(source.base, "")
    if held not in (UNIFORM, None):
        return VARYING
    named = any(m.partition("::")[0] in ("global", "shared", "const", "param") for m in given.modifiers)
    # Through a generic address a lane may come to its own memory.
    return UNIFORM if named or not shape(None, "local") else VARYING


@emits("ld", "ldu", transfer=_load_shape)
def ld(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source = given.operands[:2]
    items = target.items if isinstance(target, Group) and target.kind == "vector" else (target,)
    size, text = bits_of(kind) // 8, b.text
    element = f"i{8 * size}"
    if kind == "b128":
        raise Refusal(f"instruction {given}")
    if space_of(given) == "param":
        if isinstance(source, Address) and isinstance(source.base, Register):
            for item, value in zip(items, _by_address(b, source, size, len(items)), strict=True):
                b.write(item, kind, Value(VARYING if value.is_vector else UNIFORM, value))
            return
        if not isinstance(source, Address) or not isinstance(source.base, Symbol):
            raise Refusal(f"instruction {given}")
        start = b.context.parameter_offsets.get(source.base.name)
        if start is None:
            raise Refusal("a parameter of a function")
        for number, item in enumerate(items):
            at = text.at(b.parameters.name, constant("i64", start + source.offset + number * size))
            value = text.load(element, at.name, ", !invariant.load !0")
            b.write(item, kind, Value(UNIFORM, value))
        return
    for item, value in zip(items, load(b, given, source, size, len(items)), strict=True):
        b.write(item, kind, Value(VARYING if value.is_vector else UNIFORM, value))


def _by_address(b: Builder, source: Operand, size: int, count: int) -> list[X]:
    """Parameters at an address that is computed: one of many."""
    text, element = b.text, f"i{8 * size}"
    held = address_of(b, source)
    end = max((b.context.parameter_offsets[v.name] + v.size for v in b.function.parameters), default=0)
    span = -(-end // WIDEST) * WIDEST - size * count
    x = held.x if held.shape == UNIFORM else b.lanes(held)
    bad = text.compare("ugt", x, constant(x.type, span))
    odd = text.binary("and", x, constant(x.type, size * count - 1))
    bad = b.spread(text.binary("or", bad, text.compare("ne", odd, constant(x.type, 0))))
    if b.mask is not None:
        bad = text.binary("and", bad, b.mask)
    b.stop_where(bad, b.spread(x), Reached("param", size, count, memory.READ))
    if not x.is_vector:
        at = text.at(b.parameters.name, x).name
        return [text.load(element, text.at(at, constant("i64", n * size)).name, ", align 1") for n in range(count)]
    where = text.make(f"getelementptr i8, {b.parameters}, {x}", b.vector("ptr"))
    return [gather(b, where, element, number * size) for number in range(count)]


def load(b: Builder, given: Instruction, source: Operand, size: int, count: int, piece: int = 16) -> list[X]:
    """What lies at an address: elements of so many bytes, each a vector, or one value where all lanes read one."""
    text, element = b.text, f"i{8 * size}"
    access = Access(b, given, source, size, count, READ, piece)
    strong = is_strong(given)
    if strong:
        text.do('fence syncscope("singlethread") seq_cst')

    def fast(way: Way) -> list[X]:
        if way.kind == "one":
            return [
                text.load(element, text.at(way.x.name, constant("i64", number * size)).name, f", align {size}")
                for number in range(count)
            ]
        if way.kind == "row":
            return load_row(b, way.x, element, count, size)
        return [gather(b, way.x, element, number * size) for number in range(count)]

    found = access.run(fast, [])
    if strong:
        text.do('fence syncscope("singlethread") seq_cst')
    return found


# ── stores ──


@emits("st")
def st(given: Instruction, b: Builder) -> None:
    kind = type_of(given)
    target, source = given.operands[:2]
    items = source.items if isinstance(source, Group) and source.kind == "vector" else (source,)
    size = bits_of(kind) // 8
    if kind == "b128" or space_of(given) == "param":
        raise Refusal(f"instruction {given}")
    values = [b.read(item, kind) for item in items]
    store(b, given, target, size, [value.x if value.shape == UNIFORM else b.lanes(value) for value in values])


def store(b: Builder, given: Instruction, target: Operand, size: int, values: list[X], piece: int = 16) -> None:
    """Write elements of so many bytes to an address."""
    text = b.text
    access = Access(b, given, target, size, len(values), WRITE, piece)

    def fast(way: Way) -> list[X]:
        if way.kind == "one":
            for number, value in enumerate(values):
                at = text.at(way.x.name, constant("i64", number * size))
                text.store(_last(b, value), at.name, f", align {size}")
        elif way.kind == "row":
            store_row(b, way.x, [b.spread(value) for value in values], size)
        else:
            for number, value in enumerate(values):
                scatter(b, way.x, b.spread(value), number * size)
        return []

    access.run(fast, values)
    if is_strong(given):
        text.do('fence syncscope("singlethread") seq_cst')


def _last(b: Builder, value: X) -> X:
    """The value of the last lane that runs."""
    text = b.text
    if not value.is_vector:
        return value
    lane = constant("i64", b.width - 1)
    if b.mask is not None:
        bits = b.bits(b.mask)
        high = text.call(f"llvm.ctlz.{bits.type}", bits.type, bits, X("i1", "true"))
        lane = text.binary("sub", lane, text.cast("zext", high, "i64"))
    return text.make(f"extractelement {value}, {lane}", value.element)


@emits("prefetch", "prefetchu", "discard", "applypriority")
def hint(given: Instruction, b: Builder) -> None:
    """Hints to the caches, which there are none of."""


@emits("membar", "fence", "griddepcontrol", "setmaxnreg", "pmevent")
def fence(given: Instruction, b: Builder) -> None:
    b.text.do('fence syncscope("singlethread") seq_cst')
