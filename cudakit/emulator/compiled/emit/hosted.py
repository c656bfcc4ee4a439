"""Instructions that the NumPy interpreter runs for lanes of machine code: its step, called back with their registers.

They are rare instructions that move much at a time, and error cases of instructions with a fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from cudakit.emulator.compiled import Refusal
from cudakit.emulator.compiled.builder import Builder, Value, X, bits_of, constant, value_of
from cudakit.emulator.compiled.emit.access import SPACES, address_of, mark_of, next_lane
from cudakit.emulator.compiled.emit.memory import load, store
from cudakit.emulator.compiled.emit.table import by_sources, emits, varies
from cudakit.emulator.compiled.helpers import GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.instructions.access import space_of
from cudakit.emulator.isa.facts import sources, targets
from cudakit.emulator.ptx.program import Address, Immediate, Instruction, Operand, Register

#: Registers of an instruction, of 8 bytes a lane.
_MOST = 16


def registers_of(instr: Instruction, declared: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the registers that an instruction reads, without its guard, and the registers that it writes.

    Each is a row of the table that lanes hand over. `declared` has the kernel's registers.
    """
    guard = instr.guard[0].name if instr.guard is not None else ""
    read = [name for name in dict.fromkeys(sources(instr)) if name in declared and name != guard]
    return read, targets(instr)


@emits(
    "cp.reduce.async.bulk", "cp.async.bulk.tensor", "cp.async.bulk.prefetch", "cp.reduce.async.bulk.tensor",
    "cp.async.mbarrier", "tensormap", transfer=varies,
)  # fmt: skip
def hosted(instr: Instruction, b: Builder) -> None:
    """Run the instruction on the interpreter, for all lanes at once."""
    hand_over(instr, b)
    b.call_back(b.lane_bits(), b.handed)
    take_results(instr, b)


def hand_over(instr: Instruction, b: Builder, more: tuple[X, ...] = ()) -> list[str]:
    """Write code that stores the registers that an instruction reads, a row of lanes each, for the interpreter.

    The values `more`, for a fast path, are stored behind them; return the names of their rows' addresses.

    Raises
    ------
    Refusal
        If the rows are too many, or a register has more than 64 bits.
    """
    text = b.text
    read, written = registers_of(instr, b.function.registers)
    count = len(read) + len(written)
    if count + len(more) > _MOST or any(bits_of(b.function.registers[name]) > 64 for name in [*read, *written]):
        raise Refusal(f"instruction {instr}")
    if not b.handed:
        b.handed = b.alloca("i64", "handed", b.width * _MOST)
    values = [b.lanes(b.read(Register(name), _register_type(b, name))) for name in read]
    for number, value in enumerate(values):
        text.store(text.cast("zext", value, "i64"), _row(b, number), ", align 8")
    rows = [_row(b, count + number) for number in range(len(more))]
    for row, value in zip(rows, more, strict=True):
        text.store(b.spread(value), row, ", align 8")
    return rows


def lane_by_lane(b: Builder, quick: Callable[[X], X]) -> None:
    """Write code that runs the current instruction for one lane after the other.

    ``quick(lane)`` writes the fast code for a lane, and returns the bit (an ``i1``) that says whether the code did it.
    Where the bit is 0, the host runs the instruction for this lane.
    """
    text = b.text
    otherwise, done_label = text.fresh("otherwise"), text.fresh("done")
    loop, lane = next_lane(b, done_label)
    text.do(f"br {quick(lane)}, label %{loop}, label %{otherwise}, !prof !2")
    text.label(otherwise)
    b.call_back(text.binary("shl", constant("i64", 1), lane), b.handed)
    text.jump(loop)
    text.label(done_label)


def of_lane(b: Builder, row: str, lane: X) -> X:
    """Return one lane's value in a row of handed-over values; `row` is the name of the row's address."""
    return b.text.load("i64", b.text.at(row, lane, "i64"))


def result_row(instr: Instruction, b: Builder) -> str:
    """Return the LLVM name of the address of the row, after the sources' rows, that gets the lanes' first result."""
    return _row(b, len(registers_of(instr, b.function.registers)[0]))


def take_results(instr: Instruction, b: Builder) -> None:
    """Write code that moves the returned values to registers."""
    read, written = registers_of(instr, b.function.registers)
    for number, name in enumerate(written):
        row = b.text.load(b.vector("i64"), _row(b, len(read) + number), ", align 8")
        bits = bits_of(b.function.registers[name])
        b.write(Register(name), _register_type(b, name), Value(VARYING, b.text.cast("trunc", row, f"i{bits}")))


def _register_type(b: Builder, name: str) -> str:
    """Return the untyped PTX type of a register, by its bits."""
    bits = bits_of(b.function.registers[name])
    return "pred" if bits == 1 else f"b{bits}"


def _row(b: Builder, number: int) -> str:
    """Return the address of a row of handed-over values."""
    return b.text.at(b.handed, 8 * b.width * number)


# ── barriers in shared memory (mbarrier), and copies of many bytes that complete on them ──
# A block's threads run on one core, so a barrier's word needs no atomic access. The interpreter runs the cases that a
# helper does not take, errors included.

_WAITS = ("test_wait", "try_wait")
#: The valid bit of a barrier's word.
_MADE = 62


def _shape(instr: Instruction, shape: Callable[..., Shape]) -> Shape:
    """Return the shape of an mbarrier instruction's result."""
    return by_sources(instr, shape) if instr.modifiers[0] in _WAITS and _is_near(instr) else VARYING


def _is_near(instr: Instruction) -> bool:
    """Return whether an mbarrier instruction names a barrier of its own block, without ``shared::cluster``."""
    return not any(modifier == "shared::cluster" for modifier in instr.modifiers)


@emits("mbarrier", transfer=_shape)
def mbarrier(instr: Instruction, b: Builder) -> None:
    action = instr.modifiers[0]
    if not _is_near(instr) or action in ("init", "inval", "pending_count"):
        hosted(instr, b)
    elif action in _WAITS:
        _wait(instr, b)
    else:
        _arrive(instr, b)


def _arrive(instr: Instruction, b: Builder) -> None:
    """Let lanes arrive one after the other; each gets the word from before its arrival."""
    text, action = b.text, instr.modifiers[0]
    operands = list(instr.operands)
    target = None if isinstance(operands[0], Address) else operands.pop(0)
    amount: X = constant("i64", 1)
    if len(operands) > 1:
        amount = text.cast("zext", b.lanes(b.read(operands[1], "u32")), "i64")
    none = constant(amount.type, 0)
    arrives = action in ("arrive", "arrive_drop")
    sign = {"expect_tx": 1, "complete_tx": -1}.get(action, 1 if "expect_tx" in instr.modifiers else 0)
    comes = (amount if not sign else constant("i64", 1)) if arrives else none
    owed = none if not sign else amount if sign > 0 else text.binary("sub", none, amount)
    exits = comes if action == "arrive_drop" else none
    rows = hand_over(instr, b, (b.lanes(address_of(b, operands[0])), comes, owed, exits))
    tokens = result_row(instr, b) if target is not None else b.scratch_addresses

    def quick(lane: X) -> X:
        token = text.at(tokens, lane, "i64")
        columns = [of_lane(b, row, lane) for row in rows]
        return text.call("arrive", "i1", "%ctx", _code(instr), *columns, token)

    lane_by_lane(b, quick)
    take_results(instr, b)


def _code(instr: Instruction) -> X:
    """Return the constant that stands for an instruction's state space."""
    return constant("i64", SPACES.get(space_of(instr), GENERIC))


def _wait(instr: Instruction, b: Builder) -> None:
    """Test whether the phases that lanes name are complete."""
    text = b.text
    target, place, state = instr.operands[:3]
    parity = "parity" in instr.modifiers
    token = b.read(state, "b32" if parity else "b64")
    word_load = replace(
        instr,
        opcode="ld",
        modifiers=("volatile", *(["shared"] if space_of(instr) == "shared" else []), "b64"),
        operands=(target, place),
    )
    (word,) = load(b, word_load, place, 8, 1)
    void = text.compare("eq", text.binary("and", word, 1 << _MADE), 0)
    lanes = b.among(b.spread(void))
    wrong, well = text.fresh("wrong"), text.fresh("well")
    text.do(f"br {b.any_of(lanes)}, label %{wrong}, label %{well}, !prof !1")
    text.label(wrong)
    hand_over(instr, b)
    b.call_back(b.lane_bits(lanes), b.handed)
    text.jump(well)
    text.label(well)
    phase = text.binary("lshr", word, 63)
    if token.shape != UNIFORM or word.is_vector:
        phase, tokens = b.spread(phase), b.lanes(token)
    else:
        tokens = token.x
    before = text.binary("and" if parity else "lshr", tokens, 1 if parity else 63)
    is_complete = text.compare("ne", phase, text.cast("zext", before, "i64"))
    b.write(target, "pred", value_of(is_complete))


@emits("cp.async.bulk")
def bulk(instr: Instruction, b: Builder) -> None:
    """Copy adjacent bytes between global memory and the block's shared memory."""
    text = b.text
    if instr.modifiers[2] in ("commit_group", "wait_group"):
        return
    spaces = [space for space in instr.modifiers if space.partition("::")[0] in ("shared", "global")]
    to, source_space = (SHARED if space.startswith("shared") else SPACES["global"] for space in spaces)
    if "multicast::cluster" in instr.modifiers or (to == SHARED) == (source_space == SHARED):
        hosted(instr, b)
        return
    target, source, size, *rest = instr.operands
    count = text.cast("zext", b.lanes(b.read(size, "u32")), "i64")
    ends = b.lanes(address_of(b, rest[0])) if to == SHARED else constant("i64", -1)
    rows = hand_over(instr, b, (b.lanes(address_of(b, target)), b.lanes(address_of(b, source)), count, ends))

    def quick(lane: X) -> X:
        thread = text.binary("add", b.first_thread, lane)
        columns = [of_lane(b, row, lane) for row in rows]
        marks = [constant("i64", mark_of(instr, use)) for use in (WRITE, READ)]
        return text.call(
            "bulk", "i1", "%ctx", thread, b.block_number, to, source_space,
            *columns, *marks,
        )  # fmt: skip

    lane_by_lane(b, quick)


# ── asynchronous copies by threads, which land at once: a load and a store, with zeros for bytes not read ──
# PTX ISA 9.7.9.25.3 allows this order, and the interpreter has it too. Waiting for the copies does nothing.


@emits("cp.async")
def cp_async(instr: Instruction, b: Builder) -> None:
    target, source, size, *rest = instr.operands
    space, mask, text = instr.modifiers[2].partition("::"), b.mask, b.text
    if space[0] != "shared" or space[2] == "cluster" or not isinstance(size, Immediate):
        raise Refusal(f"instruction {instr}")
    if "L2::cache_hint" in instr.modifiers:
        rest.pop()
    bytes_ = 8 if size.value > 4 else 4
    count = size.value // bytes_

    def read() -> list[X]:
        return load(b, _part(instr, "ld", "global", bytes_), source, bytes_, count, bytes_)

    values: list[X]
    if not rest:
        values = read()
    elif isinstance(rest[0], Register) and b.function.registers.get(rest[0].name) == "pred":
        chosen = b.lanes(b.read(rest[0], "pred"))
        values = _where(b, mask, text.binary("xor", chosen, 1), read, bytes_, count)
    else:
        used = b.lanes(b.read(rest[0], "u32"))
        _refuse_longer(b, instr, used, size.value)
        whole = text.compare("eq", used, size.value)
        values = _where(b, mask, whole, read, bytes_, count)
        part = text.binary("and", text.compare("ne", used, 0), _not(b, whole))
        some = _where(b, mask, part, lambda: _by_bytes(b, instr, source, used, bytes_, count), bytes_, count)
        values = [
            text.binary("or", b.spread(whole_value), other) for whole_value, other in zip(values, some, strict=True)
        ]
    b.mask = mask
    store(b, _part(instr, "st", "shared", bytes_), target, bytes_, values, bytes_)


@emits("cp.async.commit_group", "cp.async.wait_group", "cp.async.wait_all")
def group(instr: Instruction, b: Builder) -> None:
    """Write no code: a wait has nothing to wait for, as the copies have landed."""


def _part(instr: Instruction, opcode: str, space: str, size: int) -> Instruction:
    """Return an instruction with the opcode of a copy's load or store, for `size` bytes in a space."""
    return replace(instr, opcode=opcode, modifiers=(space, f"b{8 * size}"))


def _not(b: Builder, x: X) -> X:
    return b.text.binary("xor", x, 1)


def _where(b: Builder, mask: X | None, condition: X, read: Callable[[], list[X]], size: int, count: int) -> list[X]:
    """Return the `count` vectors that `read` writes code for, for active lanes where a condition holds, else zeros.

    `size` is the bytes of an element. The code runs only if some lane needs it.
    """
    text, type_ = b.text, b.vector(f"i{8 * size}")
    b.mask = lanes = condition if mask is None else text.binary("and", mask, condition)
    do, skip = text.fresh("do"), text.fresh("skip")
    before = text.here
    text.branch(b.any_of(lanes), do, skip)
    text.label(do)
    zero = constant(type_, 0)
    results = [text.select(lanes, b.spread(value), zero) for value in read()]
    end_label = text.here
    text.jump(skip)
    text.label(skip)
    b.mask = mask
    return [text.phi(type_, (value, end_label), (zero, before)) for value in results]


def _by_bytes(b: Builder, instr: Instruction, source: Operand, used: X, size: int, count: int) -> list[X]:
    """Return `count` elements of `size` bytes of a source: the first `used` bytes, by lane, and zeros behind them.

    The code reads byte by byte, since the case is rare.
    """
    if not isinstance(source, Address):
        raise Refusal(f"instruction {instr}")
    text, outer, unlikely = b.text, b.mask, b.unlikely
    type_, results = b.vector(f"i{8 * size}"), list[X]()
    b.unlikely = True
    for number in range(count):
        whole = constant(type_, 0)
        for byte in range(size):
            at = number * size + byte
            within = text.compare("ugt", used, at)
            place = replace(source, offset=source.offset + at)
            (byte_value,) = _where(
                b, outer, within, partial(load, b, _part(instr, "ld", "global", 1), place, 1, 1), 1, 1
            )
            b.mask = outer
            wide = text.binary("shl", text.cast("zext", byte_value, f"i{8 * size}"), 8 * byte)
            whole = text.binary("or", whole, wide)
        results.append(whole)
    b.unlikely = unlikely
    return results


def _refuse_longer(b: Builder, instr: Instruction, used: X, total: int) -> None:
    """Write code that stops with an error if a lane uses more bytes of a source than the copy has."""
    longer = b.text.compare("ugt", used, total)
    b.stop_where(b.among(longer), b.text.cast("zext", used, "i64"))
