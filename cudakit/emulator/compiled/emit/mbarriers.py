"""Barriers in shared memory (mbarrier), and copies of many bytes that complete on them.

A block's threads run on one core, so the word of a barrier is changed as any other is. What a helper does not do at
once is left to NumPy's machine, every error too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cudakit.emulator.compiled.builder import Builder, Value
from cudakit.emulator.compiled.emit.access import SPACES, address_of, mark_of, space_of
from cudakit.emulator.compiled.emit.hosted import (
    call_back,
    hand_over,
    hosted,
    lane_by_lane,
    of_lane,
    result_row,
    take_results,
)
from cudakit.emulator.compiled.emit.memory import load
from cudakit.emulator.compiled.emit.table import by_sources, emits
from cudakit.emulator.compiled.helpers import GENERIC, READ, SHARED, WRITE
from cudakit.emulator.compiled.shapes import UNIFORM, VARYING, Shape
from cudakit.emulator.compiled.text import X, constant
from cudakit.emulator.ptx.program import Address, Instruction

_WAITS = ("test_wait", "try_wait")
#: The bit of a barrier's word that says that it has been made.
_MADE = 62


def _shape(given: Instruction, shape: Callable[..., Shape]) -> Shape:
    return by_sources(given, shape) if given.modifiers[0] in _WAITS and _is_near(given) else VARYING


def _is_near(given: Instruction) -> bool:
    """Whether a barrier is named as one of the block's own."""
    return not any(modifier == "shared::cluster" for modifier in given.modifiers)


@emits("mbarrier", transfer=_shape)
def mbarrier(given: Instruction, b: Builder) -> None:
    action = given.modifiers[0]
    if not _is_near(given) or action in ("init", "inval", "pending_count"):
        hosted(given, b)
    elif action in _WAITS:
        _wait(given, b)
    else:
        _arrive(given, b)


def _arrive(given: Instruction, b: Builder) -> None:
    """Let lanes arrive one after the other; each is given the word that it found."""
    text, action = b.text, given.modifiers[0]
    operands = list(given.operands)
    target = None if isinstance(operands[0], Address) else operands.pop(0)
    amount: X = constant("i64", 1)
    if len(operands) > 1:
        amount = text.cast("zext", b.lanes(b.read(operands[1], "u32")), "i64")
    none = constant(amount.type, 0)
    arrives = action in ("arrive", "arrive_drop")
    sign = {"expect_tx": 1, "complete_tx": -1}.get(action, 1 if "expect_tx" in given.modifiers else 0)
    comes = (amount if not sign else constant("i64", 1)) if arrives else none
    owed = none if not sign else amount if sign > 0 else text.binary("sub", none, amount)
    gone = comes if action == "arrive_drop" else none
    rows = hand_over(given, b, (b.lanes(address_of(b, operands[0])), comes, owed, gone))
    tokens = result_row(given, b) if target is not None else b.scratch_addresses

    def quick(lane: X) -> X:
        token = text.make(f"getelementptr i64, ptr {tokens}, {lane}", "ptr")
        columns = [of_lane(b, row, lane) for row in rows]
        return text.call("arrive", "i1", X("ptr", "%ctx"), _code(given), *columns, token)

    lane_by_lane(b, quick)
    take_results(given, b)


def _code(given: Instruction) -> X:
    return constant("i64", SPACES.get(space_of(given), GENERIC))


def _wait(given: Instruction, b: Builder) -> None:
    """Whether the phase that lanes tell of is over."""
    text = b.text
    target, place, state = given.operands[:3]
    parity = "parity" in given.modifiers
    told = b.read(state, "b32" if parity else "b64")
    seen = replace(given, opcode="ld", modifiers=("volatile", *_space(given), "b64"), operands=(target, place))
    (word,) = load(b, seen, place, 8, 1)
    void = text.compare("eq", text.binary("and", word, constant(word.type, 1 << _MADE)), constant(word.type, 0))
    lanes = b.spread(void)
    lanes = lanes if b.mask is None else text.binary("and", lanes, b.mask)
    wrong, well = text.fresh("wrong"), text.fresh("well")
    text.do(f"br {b.any_of(lanes)}, label %{wrong}, label %{well}, !prof !1")
    text.label(wrong)
    hand_over(given, b)
    call_back(b, lanes)
    text.jump(well)
    text.label(well)
    phase = text.binary("lshr", word, constant(word.type, 63))
    if told.shape != UNIFORM or word.is_vector:
        phase, held = b.spread(phase), b.lanes(told)
    else:
        held = told.x
    before = text.binary("and" if parity else "lshr", held, constant(held.type, 1 if parity else 63))
    done = text.compare("ne", phase, text.cast("zext", before, "i64"))
    b.write(target, "pred", Value(VARYING if done.is_vector else UNIFORM, done))


def _space(given: Instruction) -> tuple[str, ...]:
    return ("shared",) if space_of(given) == "shared" else ()


@emits("cp.async.bulk")
def bulk(given: Instruction, b: Builder) -> None:
    """Bytes in a row, between global memory and that of the block."""
    text = b.text
    if given.modifiers[2] in ("commit_group", "wait_group"):
        return
    spaces = [each for each in given.modifiers if each.partition("::")[0] in ("shared", "global")]
    to, of = (SHARED if each.startswith("shared") else SPACES["global"] for each in spaces)
    if "multicast::cluster" in given.modifiers or (to == SHARED) == (of == SHARED):
        hosted(given, b)
        return
    target, source, size, *rest = given.operands
    count = text.cast("zext", b.lanes(b.read(size, "u32")), "i64")
    ends = b.lanes(address_of(b, rest[0])) if to == SHARED else constant("i64", -1)
    rows = hand_over(given, b, (b.lanes(address_of(b, target)), b.lanes(address_of(b, source)), count, ends))

    def quick(lane: X) -> X:
        thread = text.binary("add", b.first_thread, lane)
        columns = [of_lane(b, row, lane) for row in rows]
        marks = [constant("i64", mark_of(given, use)) for use in (WRITE, READ)]
        return text.call(
            "bulk", "i1", X("ptr", "%ctx"), thread, b.block_number, constant("i64", to), constant("i64", of),
            *columns, *marks,
        )  # fmt: skip

    lane_by_lane(b, quick)
