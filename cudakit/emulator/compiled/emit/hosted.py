"""Instructions that NumPy's machine runs for lanes of machine code: its own step, called back with their registers.

A way for what is rare and moves much at a time, and for all errors of what has a quick way here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cudakit.emulator.compiled.builder import Builder, Value, bits_of
from cudakit.emulator.compiled.emit.table import emits, varies
from cudakit.emulator.compiled.layout import Slot
from cudakit.emulator.compiled.refusal import Refusal
from cudakit.emulator.compiled.shapes import VARYING
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.isa.facts import sources, targets
from cudakit.emulator.ptx.program import Instruction, Register

#: Registers of an instruction, of 8 bytes a lane.
_MOST = 16


def registers_of(given: Instruction, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The registers that an instruction reads and those that it writes, each once: the rows of what is handed over."""
    guard = given.guard[0].name if given.guard is not None else ""
    read = [name for name in dict.fromkeys(sources(given)) if name in known and name != guard]
    return read, targets(given)


@emits(
    "cp.reduce.async.bulk", "cp.async.bulk.tensor", "cp.async.bulk.prefetch", "cp.reduce.async.bulk.tensor",
    "cp.async.mbarrier", "tensormap", transfer=varies,
)  # fmt: skip
def hosted(given: Instruction, b: Builder) -> None:
    """All lanes at once."""
    hand_over(given, b)
    call_back(b, b.all_lanes())
    take_results(given, b)


def hand_over(given: Instruction, b: Builder, more: tuple[X, ...] = ()) -> list[str]:
    """Store what lanes have in their registers, and more for the way of one's own; the rows of the latter."""
    text = b.text
    read, written = registers_of(given, b.function.registers)
    count = len(read) + len(written)
    if count + len(more) > _MOST or any(bits_of(b.function.registers[name]) > 64 for name in [*read, *written]):
        raise Refusal(f"instruction {given}")
    if not b.handed:
        b.handed = b.alloca("i64", "handed", b.width * _MOST)
    values = [b.lanes(b.read(Register(name), _kind(b, name))) for name in read]
    for number, value in enumerate(values):
        text.store(text.cast("zext", value, "i64"), _row(b, number), ", align 8")
    rows = [_row(b, count + number) for number in range(len(more))]
    for row, value in zip(rows, more, strict=True):
        text.store(b.spread(value), row, ", align 8")
    return rows


def call_back(b: Builder, lanes: X) -> None:
    """Let NumPy's machine do the instruction at hand for lanes, which handed their registers over."""
    text = b.text
    mask = b.bits(lanes)
    mask = text.cast("zext", mask, "i64") if b.width < 64 else mask
    _call(b, mask)


def lane_by_lane(b: Builder, quick: Callable[[X], X]) -> None:
    """Do the instruction at hand for one lane after the other: by what is quick, where that can do it."""
    text = b.text
    left = b.alloca("i64", "left")
    mask = b.bits(b.all_lanes())
    text.store(text.cast("zext", mask, "i64") if b.width < 64 else mask, left)
    loop, body, otherwise, done = (text.fresh(stem) for stem in ("lane", "body", "otherwise", "done"))
    text.jump(loop)
    text.label(loop)
    bits_left = text.load("i64", left)
    text.branch(text.compare("ne", bits_left, constant("i64", 0)), body, done)
    text.label(body)
    less = text.binary("sub", bits_left, constant("i64", 1))
    text.store(text.binary("and", bits_left, less), left)
    lane = text.call("llvm.cttz.i64", "i64", bits_left, X("i1", "true"))
    text.do(f"br {quick(lane)}, label %{loop}, label %{otherwise}, !prof !2")
    text.label(otherwise)
    _call(b, text.binary("shl", constant("i64", 1), lane))
    text.jump(loop)
    text.label(done)


def of_lane(b: Builder, row: str, lane: X) -> X:
    """What a lane handed over in a row."""
    return b.text.load("i64", b.text.make(f"getelementptr i64, ptr {row}, {lane}", "ptr").name)


def result_row(given: Instruction, b: Builder) -> str:
    """Where the first result of lanes is put."""
    return _row(b, len(registers_of(given, b.function.registers)[0]))


def take_results(given: Instruction, b: Builder) -> None:
    """Write what came back to registers."""
    read, written = registers_of(given, b.function.registers)
    for number, name in enumerate(written):
        found = b.text.load(b.vector("i64"), _row(b, len(read) + number), ", align 8")
        bits = bits_of(b.function.registers[name])
        b.write(Register(name), _kind(b, name), Value(VARYING, b.text.cast("trunc", found, f"i{bits}")))


def _kind(b: Builder, name: str) -> str:
    bits = bits_of(b.function.registers[name])
    return "pred" if bits == 1 else f"b{bits}"


def _row(b: Builder, number: int) -> str:
    return b.text.at(b.handed, constant("i64", 8 * b.width * number)).name


def _call(b: Builder, mask: X) -> None:
    text = b.text
    back = text.load("ptr", b.slot(Slot.CALL))
    arguments = (X("ptr", "%ctx"), constant("i64", b.site()), b.first_thread, b.block_number, mask, X("ptr", b.handed))
    failed = text.make(f"call i64 {back.name}({', '.join(map(str, arguments))})", "i64")
    b.fail_if(text.compare("ne", failed, constant("i64", 0)))
