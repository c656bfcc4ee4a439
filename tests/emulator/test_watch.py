"""What work touches, byte by byte, and which earlier work it races with, beside each byte's own accesses."""

from __future__ import annotations

import importlib.util
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Allocation
from cudakit.emulator.resources.texture import EmulatedTensorMap
from cudakit.emulator.streams import order
from cudakit.emulator.streams.order import _owner, memory_of
from cudakit.emulator.streams.watch import CONFLICTS, COVERS, Doer, History, Touch, Watch, touch_of
from cudakit.streams.segments import Segment, Use
from cudakit.streams.witnesses import Witness, Work, witnessing
from cudakit.types.arguments import Exported

pytestmark = pytest.mark.emulator
USES = (READ, STRONG_READ, WRITE, STRONG_WRITE)


def races(one: int, other: int) -> bool:
    """Whether two accesses of a byte race: one writes, and not both are strong."""
    strong = (STRONG_READ, STRONG_WRITE)
    writes = (WRITE, STRONG_WRITE)
    return (one in writes or other in writes) and not (one in strong and other in strong)


def test_which_accesses_conflict_and_which_cover_others() -> None:
    for flags in range(16):
        for use in USES:
            assert bool(CONFLICTS[flags] & use) == any(races(use, each) for each in USES if flags & each)
            whole = sum(each for each in USES if races(use, each))
            assert bool(COVERS[flags] & use) == bool(flags and not whole & ~int(CONFLICTS[flags]))


# ── what one piece of work touches ──


def piece_of(array: np.ndarray, shift: int = 0) -> Allocation:
    """An array's bytes from `shift` on."""
    return Allocation("x", array.ctypes.data + shift, array.nbytes - shift, False, array.itemsize, array)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("shift", [0, 1, 3, 16])
@pytest.mark.parametrize("elements", [[2, 3, 4], [3], [4, 2, 3], [1, 3], [1, 1, 2], [0, 4]])
def test_elements_that_are_touched(size: int, shift: int, elements: list[int]) -> None:
    memory = np.zeros(128, np.uint8)
    piece, watch = piece_of(memory, shift), Watch()
    skip = -piece.address % size
    want = np.zeros(128, np.uint8)
    for use, chosen in ((WRITE, elements), (READ, [2])):
        watch.note(piece, np.array(chosen), size, use)
        for element in chosen:
            start = shift + skip + element * size
            want[start : start + size] |= use
    (touch,) = watch.touches()
    held = np.flatnonzero(want)
    assert (touch.start, touch.stop) == (memory.ctypes.data + held[0], memory.ctypes.data + held[-1] + 1)
    assert touch.flags.tolist() == want[held[0] : held[-1] + 1].tolist()
    assert (touch.name, touch.address, touch.itemsize, touch.owner is memory) == ("x", piece.address, 1, True)
    assert touch.within(touch.start, touch.start + 1).tolist() == [want[held[0]]]


def flags_at(address: int, count: int) -> np.ndarray:
    held: Any = SimpleNamespace(
        __array_interface__={"data": (address, False), "shape": (count,), "typestr": "|u1", "version": 3}
    )
    return np.asarray(held)


def test_flags_that_are_set_past_memory() -> None:
    memory = np.zeros(64, np.uint8)
    watch, piece = Watch(), piece_of(memory)
    address = watch.flags_from(piece)
    assert watch.flags_from(piece) == address
    assert watch.touches() == []
    flags_at(address, 64)[[5, 9]] = WRITE
    (touch,) = watch.touches()
    assert (touch.start - piece.address, touch.flags.tolist()) == (5, [WRITE, 0, 0, 0, WRITE])
    watch.note(piece, np.array([20]), 1, READ)
    (touch,) = watch.touches()
    assert (touch.start - piece.address, touch.flags.size, touch.flags[-1]) == (5, 16, READ)


def test_an_allocation_that_has_grown_has_flags_of_its_own() -> None:
    memory = np.zeros(64, np.uint8)
    watch, small = Watch(), piece_of(memory[:16])
    before = watch.flags_from(small)
    flags_at(before, 16)[3] = READ
    after = watch.flags_from(piece_of(memory))
    assert after != before
    flags_at(after, 64)[40] = WRITE
    flags_at(before, 16)[4] = READ
    first, second = watch.touches()
    assert (first.start - small.address, first.flags.tolist()) == (3, [READ, READ])
    assert (second.start - small.address, second.flags.tolist()) == (40, [WRITE])


def test_textures_are_touched_where_their_flags_are_set() -> None:
    array, watch = np.zeros((2, 8), np.float32), Watch()
    watch.flags_of("image", array)[7] = READ
    assert watch.flags_of("image", array)[7] == READ
    (touch,) = watch.touches()
    assert (touch.name, touch.itemsize, touch.start, touch.flags.size) == ("image", 4, array.ctypes.data, 64)
    assert np.flatnonzero(touch.flags).tolist() == [7]


def test_the_touch_of_an_array_leaves_out_what_lies_between_its_elements() -> None:
    memory = np.zeros(32, np.int16)
    touch = touch_of(memory[20:3:-4], "x", WRITE)
    assert touch.address == touch.start == memory.ctypes.data + 2 * 4
    want = [WRITE, WRITE, *[0] * 6] * 4 + [WRITE, WRITE]
    assert (touch.flags.tolist(), touch.itemsize, touch.name) == (want, 2, "x")
    assert touch_of(memory[4:6], "x", READ).flags == READ
    columns = touch_of(memory.reshape(4, 8)[:, 2:4], "y", READ)
    assert columns.flags.reshape(-1)[:20].tolist() == [READ] * 4 + [0] * 12 + [READ] * 4


# ── what was touched until now ──


def touch(start: int, flags: list[int], name: str = "x", itemsize: int = 4) -> Touch:
    return Touch(name, 1000, itemsize, 1000 + start, 1000 + start + len(flags), np.array(flags, np.uint8), None)


def doer(stream: Any) -> Doer:
    return Doer(f"k{stream}", stream, "app.py:3")


@pytest.mark.parametrize("seed", range(30))
def test_a_race_is_one_of_a_byte_with_work_that_is_not_ordered(seed: int) -> None:
    rng, history = random.Random(seed), History()
    touched: dict[Use, dict[int, int]] = {}
    before: dict[Use, set[Use]] = {}
    for number in range(60):
        use = Use(rng.randrange(4), number, {})
        direct = [other for other in touched if other.stream == use.stream or rng.random() < 0.4]
        known = before[use] = set(direct).union(*(before[other] for other in direct))
        start, kind = rng.randrange(10), rng.choice([READ, READ, READ, *USES])
        flags = [kind if rng.random() < 0.8 else rng.choice([0, *USES]) for _ in range(rng.randrange(1, 5))]
        mine = {start + at: flag for at, flag in enumerate(flags)}
        is_race = any(
            races(a, b)
            for other, theirs in touched.items()
            if other not in known
            for at, flag in mine.items()
            for a in USES
            for b in USES
            if flag & a and theirs.get(at, 0) & b
        )
        error = history.add(doer(use.stream), use, [touch(start, flags)], known.__contains__)
        assert (error is not None) is is_race
        if is_race:
            return
        touched[use] = mine


def test_the_message_of_a_race() -> None:
    history = History()
    assert history.add(doer(1), Use(1, 1, {}), [touch(8, [WRITE] * 8)], lambda use: False) is None
    error = history.add(doer(2), Use(2, 1, {}), [touch(0, [READ] * 14)], lambda use: False)
    assert str(error) == (
        "race: k2 on stream 2 (app.py:3) reads bytes 8 … 13 of x (elements 2 … 3), which k1 on stream 1 (app.py:3) "
        "writes, and neither comes first. After k1, record an event on stream 1; before k2, let stream 2 wait for it: "
        "stream.wait(event)"
    )
    changed = touch(12, [0, STRONG_WRITE, 0, READ], "y", 1)
    error = history.add(doer(3), Use(3, 1, {}), [changed], lambda use: use.stream == 2)
    assert str(error).startswith(
        "race: k3 on stream 3 (app.py:3) changes atomically bytes 13 … 13 of y, which k1 on stream 1 (app.py:3) "
        "writes as bytes 13 … 13 of x (element 3), and"
    )
    history = History()
    history.add(doer(1), Use(1, 1, {}), [touch(0, [STRONG_READ] * 4)], lambda use: False)
    error = history.add(doer(2), Use(2, 1, {}), [touch(0, [WRITE] * 4)], lambda use: False)
    assert "writes bytes 0 … 3 of x (element 0), which k1 on stream 1 (app.py:3) reads atomically, and" in str(error)


def test_work_that_comes_before_is_forgotten_where_later_work_covers_it() -> None:
    history, first = History(), Use(1, 1, {})
    history.add(doer(1), first, [touch(0, [WRITE] * 8)], lambda use: False)
    history.add(doer(2), Use(2, 1, {}), [touch(0, [WRITE] * 4)], lambda use: use is first)
    assert len(history.touches) == 2
    error = history.add(doer(3), Use(3, 1, {}), [touch(0, [READ] * 4)], lambda use: False)
    assert "which k2" in str(error)
    error = history.add(doer(3), Use(3, 1, {}), [touch(4, [READ] * 4)], lambda use: False)
    assert "which k1" in str(error)
    history.add(doer(4), Use(4, 1, {}), [touch(0, [WRITE] * 8)], lambda use: True)
    assert len(history.touches) == 1


def test_of_several_that_race_the_first_is_named() -> None:
    history = History()
    for number in (1, 2):
        history.add(doer(number), Use(number, 1, {}), [touch(0, [WRITE] * 4)], lambda use: False)
    assert "which k1" in str(history.add(doer(3), Use(3, 1, {}), [touch(0, [READ] * 4)], lambda use: False))


def test_readers_of_the_same_are_kept_together() -> None:
    history = History()
    uses = [Use(stream, 1, {}) for stream in range(4)]
    for use in uses[:3]:
        history.add(doer(use.stream), use, [touch(0, [READ] * 4)], lambda use: False)
    assert len(history.touches) == 1
    assert history.uses == uses[:3]
    again = Use(0, 2, {})
    history.add(doer(0), again, [touch(0, [READ] * 4)], lambda use: False)
    assert set(history.uses) == {again, *uses[1:3]}
    for different in (
        touch(0, [READ] * 3),
        touch(0, [READ] * 4, "y"),
        touch(0, [READ] * 4, itemsize=2),
        touch(1, [READ] * 4),
    ):
        count = len(history.touches)
        history.add(doer(3), uses[3], [different], lambda use: False)
        assert len(history.touches) == count + 1
    error = history.add(doer(9), Use(9, 1, {}), [touch(0, [WRITE])], lambda use: use.stream != 2)
    assert "which k2" in str(error)


def test_of_many_readers_some_are_forgotten_that_come_before_another() -> None:
    history = History()

    def read(stream: int, count: int, first: int) -> set[Any]:
        """The streams whose uses are remembered, where those from `first` on do not come before."""
        touches = [touch(0, [READ] * count)]
        history.add(doer(stream), Use(stream, 1, {}), touches, lambda use: use.stream < first)  # type: ignore[operator]
        return {use.stream for use in history.uses}

    for stream in range(10):
        left = read(stream, 4, 0)
    assert left == set(range(10))
    assert read(20, 3, 99) == {*left, 20}  # it covers a part alone
    left = read(21, 4, 9)
    assert {9, 20, 21} <= left
    assert len(left) in (8, 9)  # of four that were looked at, three or four came before
    for stream in range(22, 30):
        left = read(stream, 4, 9)
    assert left == {9, 20, *range(21, 30)}
    assert read(30, 4, 99) >= {30}


def test_what_is_over_is_forgotten_and_memory_that_is_gone() -> None:
    history = History()
    uses = [Use(stream, 1, {}) for stream in range(3)]
    for use, start, count in zip(uses, (0, 4, 50), (40, 4, 2), strict=True):
        history.add(doer(use.stream), use, [touch(start, [READ] * count)], lambda use: False)
    history.forget_memory(1000 + 20, 1000 + 30)  # within the long one, which begins before
    assert history.uses == uses[1:]
    history.forget_memory(1000 + 8, 1000 + 50)
    assert history.uses == uses[1:]
    history.forget_memory(1000 + 7, 1000 + 8)
    assert history.uses == uses[2:]
    history.add(doer(0), uses[0], [touch(0, [READ] * 40)], lambda use: False)
    history.forget(lambda use: use is uses[2])
    assert history.uses == uses[:1]
    error = history.add(doer(5), Use(5, 1, {}), [touch(39, [WRITE])], lambda use: False)
    assert error is not None


# ── memory and streams ──


def test_the_owner_of_memory_is_what_lives_as_long() -> None:
    array = np.zeros(8)
    assert _owner(array[2:][1:]) is array
    assert _owner(np.asarray(memoryview(array))) is array
    data = bytearray(16)
    assert _owner(np.frombuffer(data, np.uint8)) is not data  # which cannot be watched
    tensor = np.zeros(3)
    exported = Exported(tensor, tensor.__array_interface__)
    assert _owner(np.asarray(exported)) is tensor
    assert memory_of(array) is array
    assert memory_of(EmulatedTensorMap(array, (1,), (1,), "none", False)) is array
    assert memory_of(3) is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"step_budget": 0}, "step_budget"),
        ({"block_order": -1}, "block_order"),
        ({"schedule": -1}, "schedule"),
        ({"schedule": (1, -2)}, "schedule"),
        ({"schedule": ()}, "schedule"),
        ({"schedule": "x"}, "schedule"),
        ({"check": "on"}, "check is 'raise', 'warn' or 'off', got 'on'"),
        ({"output": 3}, "output is a function of a text, got 3"),
        ({"machine": "fast"}, "machine is 'auto', 'compiled' or 'numpy', got 'fast'"),
    ],
)
def test_settings_that_no_stream_has(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ck.ArgumentError, match=f"emulator.stream: {words}"):
        ck.emulator.stream(**given)


def test_settings_of_a_stream_and_of_one_alike() -> None:
    given: dict[str, Any] = {
        "arch": "sm_80", "step_budget": 1, "output": len, "block_order": 0, "machine": "numpy", "check": "warn",
        "schedule": (0, 3, 5),
    }  # fmt: skip
    stream = ck.emulator.stream(**given)
    observer: Any = object()
    stream.observers = (observer,)
    for each in (stream, stream.alike()):
        assert {name: getattr(each, name) for name in given} == given
        assert each.observers == (observer,)
    assert ck.emulator.stream(schedule=0).schedule == 0
    assert stream.alike().handle != stream.handle
    with pytest.raises(ck.EmulationError, match="unknown arch '90'; expected a name such as 'sm_90'"):
        ck.emulator.stream(arch="90")


def test_a_compiled_machine_needs_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for machine in ("auto", "numpy"):
        assert ck.emulator.stream(machine=machine).machine == machine
    with pytest.raises(ck.ArgumentError, match="machine='compiled' needs llvmlite"):
        ck.emulator.stream(machine="compiled")


# ── the order of streams ──


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> order.Order:
    """An order that knows of no other stream of the process."""
    made = order.Order()
    monkeypatch.setattr(order, "_order", made)
    return made


def test_a_stream_that_comes_later_begins_where_the_host_is(alone: order.Order) -> None:
    first = ck.emulator.stream()
    with order.Turn(alone, first, "k", [], []):
        first.pass_time(7)
    assert (first.clock, alone.step, ck.emulator.stream().clock) == (7, 7, 7)


@pytest.mark.parametrize(("kind", "is_free"), [("copy", False), ("host", True)])
def test_other_threads_may_go_on_while_the_host_is_busy(alone: order.Order, kind: Any, is_free: bool) -> None:
    stream = ck.emulator.stream()
    with ThreadPoolExecutor(1) as other, stream.doing(Work(kind, "w", stream, size=33)):
        assert other.submit(alone.lock.acquire, False).result() is is_free
        assert alone.busy is not is_free
        if is_free:
            other.submit(alone.lock.release).result()
    assert (alone.busy, stream.clock) == (False, 3)


def test_streams_with_nothing_to_remember_are_not_named(alone: order.Order, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ck.emulator.stream(), ck.emulator.stream()
    x, y = np.zeros(4), np.zeros(4)
    for stream, array in ((first, x), (second, y)):
        with stream.doing(Work("fill", "k", stream, writes=(array,))):
            pass
    assert alone._named == {first.handle, second.handle}
    first.sync()
    monkeypatch.setattr(alone, "_limit", 1)
    with order.Turn(alone, second, "k", [], []):
        pass
    assert alone._named == {second.handle}


def test_what_is_over_is_forgotten_once_much_is_remembered(alone: order.Order) -> None:
    streams = ck.emulator.stream(), ck.emulator.stream()
    rows = np.zeros((300, 4))
    for row in rows:
        with streams[0].doing(Work("fill", "k", streams[0], writes=(row,))):
            pass
        streams[0].sync()
    assert len(alone._history.touches) < 100
    assert len(alone.clocks.segments) < 100


# ── what comes in the middle ──


def fill(stream: Any, *arrays: np.ndarray) -> None:
    with stream.doing(Work("fill", "k", stream, writes=arrays)):
        pass


@pytest.mark.parametrize("act", ["memory is gone", "a plan is made"])
def test_nothing_is_forgotten_in_the_middle(alone: order.Order, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """A collection, which may sync a stream, comes while segments are made."""
    stream, other = ck.emulator.stream(), ck.emulator.stream()
    memory = np.zeros((3, 12))
    low, high = (_Owned(memory[row]) for row in (0, 2))
    held = [low]
    for owned in (low, high):
        fill(stream, np.asarray(owned)[:3], np.asarray(owned)[9:])
    made = Segment.__init__

    def collected(*given: Any) -> None:
        made(*given)
        held.clear()
        stream.sync()

    monkeypatch.setattr(Segment, "__init__", collected)
    del low, owned
    if act == "memory is gone":
        del high
        other.record()
    else:
        alone.insert_waits(other, [], [np.asarray(high)])
    assert not held
    segments = alone.clocks.segments
    assert alone.clocks._starts == [segment.start for segment in segments]
    assert all(one.stop <= following.start for one, following in pairwise(segments))
    first, last = (int(memory[row].ctypes.data) for row in (0, 2))
    assert {first <= segment.start < last for segment in segments} <= {False} or act == "a plan is made"


class _Owned:
    """Memory whose end is seen, of an array that stays: where it lies is known."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__ = array.__array_interface__


def test_an_event_of_a_time_that_is_over_orders_nothing(alone: order.Order) -> None:
    first, x = ck.emulator.stream(), np.zeros(4)
    second = ck.emulator.stream()
    for _ in range(5):
        fill(first, x)
    event = first.record()
    former = alone.clocks
    del second
    fill(first, x)
    assert alone.clocks is not former
    for act in ("wait", "sync"):
        third = ck.emulator.stream()
        with ck.hazards.manual():
            fill(first, x)
            third.wait(event) if act == "wait" else event.sync()
            with pytest.raises(ck.EmulationError, match="race"):
                fill(third, x)
        first.sync()
        third.sync()


def test_all_of_an_array_is_forgotten_whichever_parts_were_used(alone: order.Order) -> None:
    first, second = ck.emulator.stream(), ck.emulator.stream()
    x = np.zeros(16)
    for part in (x[4:8], x[8:], x[:2]):
        fill(first, part)
    del part, x
    second.record()
    assert alone._history.touches == alone.clocks.segments == []


def test_work_that_fails_takes_no_time_and_leaves_the_order_free(alone: order.Order) -> None:
    stream = ck.emulator.stream()
    with pytest.raises(KeyError), stream.doing(Work("copy", "w", stream, size=33)):
        raise KeyError
    assert (stream.clock, alone.busy, alone.running) == (0, False, None)


def test_witnesses_are_told_of_work_but_where_it_is_said_not_to_be(alone: order.Order) -> None:
    stream, told = ck.emulator.stream(), []

    class Told(Witness):
        def begin(self, work: Work) -> None:
            told.append((work.name, stream.clock))

        def end(self, work: Work, begun: Any) -> None:
            told.append((work.name, stream.clock))

    with witnessing(Told()):
        for name, is_told in (("a", True), ("b", False), ("c", True)):
            with stream.doing(Work("copy", name, stream, size=16), reported=is_told):
                pass
    assert told == [("a", 0), ("a", 1), ("c", 2), ("c", 3)]
