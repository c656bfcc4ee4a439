"""Parts of the NumPy machine by themselves: memory, copies under way, drawn orders, launches of kernels, the heap."""

from __future__ import annotations

import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.machine import decode as symbols_of
from cudakit.emulator.machine import machine as children_of
from cudakit.emulator.machine.heap import DeviceLimits, Heap
from cudakit.emulator.machine.late import Copies, Late
from cudakit.emulator.machine.machine import Children, Drawn
from cudakit.emulator.machine.memory import (
    LOCAL_WINDOW,
    PARAM_WINDOW,
    RANK_SHIFT,
    READ,
    SHARED_WINDOW,
    STRONG_WRITE,
    WRITE,
    AccessError,
    Memory,
    check_aligned,
    plain,
)
from cudakit.emulator.machine.module import MOST_BYTES, MOST_LANES, USUAL_BYTES, Module, blocks_at_once
from cudakit.emulator.machine.state import LOCAL_BYTES, RUNNING, Geometry
from cudakit.emulator.ptx.parser import parse

U4, U1 = np.dtype("u4"), np.dtype("u1")
HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"


def module(text: str, memory: Memory | None = None) -> Module:
    return Module(parse(HEAD + text), memory or Memory())


def at(*addresses: int) -> np.ndarray:
    return np.array(addresses, np.uint64)


# ── memory ──


@pytest.fixture
def memory() -> Memory:
    """Four lanes in two blocks, with 40 bytes of shared memory each, 16 of local memory, and parameters."""
    made = Memory()
    made.set_shared(2, 40)
    made.local = np.arange(64, dtype=np.uint8).reshape(4, 16)
    made.set_parameters(bytes(range(100, 120)))
    made.block_of = np.array([0, 0, 1, 1])
    return made


def test_shared_memory_begins_unset_in_rows_of_sixteen_bytes(memory: Memory) -> None:
    assert memory.shared.shape == (2, 48)
    assert memory.shared_bytes == 40
    assert (memory.shared == 0xA5).all()
    memory.set_shared(3, 32)
    assert memory.shared.shape == (3, 32)


def test_parameters_are_filled_up_with_zeros(memory: Memory) -> None:
    assert memory.parameters.shape == (1, 64)
    assert memory.parameters[0, :20].tolist() == list(range(100, 120))
    assert not memory.parameters[0, 20:].any()
    memory.set_parameters(bytes(64))
    assert memory.parameters.shape == (1, 64)


def test_lanes_may_name_all_spaces_at_once(memory: Memory) -> None:
    """One load of each window and of global memory, and each lane has its own block's or its own bytes."""
    x = np.array([7, 8, 9], "u4")
    base = memory.add(x, "x")
    memory.store("shared", at(8, 8, 8, 8), np.array([1, 2, 3, 4], "u4"), None)
    addresses = at(base + 8, SHARED_WINDOW + 8, LOCAL_WINDOW + 4, PARAM_WINDOW + 12)
    found = memory.load("generic", addresses, U4, None)
    local = memory.local.view("u4")[2, 1]
    assert found.tolist() == [9, 2, local, memory.parameters.view("u4")[0, 3]]
    some = np.array([1, 3])
    found = memory.load("generic", at(SHARED_WINDOW + 8, LOCAL_WINDOW + 8), U4, some)
    assert found.tolist() == [2, memory.local.view("u4")[3, 2]]
    found = memory.load("generic", at(SHARED_WINDOW + 8, LOCAL_WINDOW + 8), U4, np.array([2, 0]))
    assert found.tolist() == [4, memory.local.view("u4")[0, 2]]


def test_each_lane_has_its_own_bytes_of_local_memory(memory: Memory) -> None:
    found = memory.load("local", at(0, 4, 8, 12), U4, None)
    assert found.tolist() == memory.local.view("u4")[np.arange(4), np.arange(4)].tolist()
    assert memory.load("shared", at(0, 4, 8, 12), U4, None).tolist() == [0xA5A5A5A5] * 4
    memory.clear_lanes()
    assert memory.shared_bytes == 0
    assert memory.cluster == 1
    assert not memory.exited(np.array([0, 1])).any()


def test_the_nearest_array_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, held, far = Memory(), bytearray(4096), 1 << 14
    # Nearer than what other tests have left in this process.
    monkeypatch.setattr("cudakit.emulator.machine.memory._FAR", far)
    skip = -np.frombuffer(held, "u1").ctypes.data % 16
    base = memory.add(np.frombuffer(held, "u4", 16, skip), "low")  # no view of an array, which would be in reach
    memory.add(np.frombuffer(held, "u4", 16, skip + 2048), "high")
    for address, why in (
        (base + 64, "nearest is low with 16 elements: element 16 is past the end"),
        (base + 1000, "nearest is low with 16 elements: element 250 is past the end"),
        (base + 2000, "nearest is high with 16 elements: element -12 is before the beginning"),
        (base + 2112, "nearest is high with 16 elements: element 16 is past the end"),
        (base + 2112 + far - 16, "nearest is high"),
        (base + 2112 + far, "is in no allocation"),
        (base - far, "nearest is low"),
        (base - far - 16, "is in no allocation"),
    ):
        with pytest.raises(AccessError, match=why):
            memory.load("global", at(address), U4, np.array([0]))


def test_stores_to_several_spaces_at_once(memory: Memory) -> None:
    x = np.zeros(3, "u4")
    base = memory.add(x, "x")
    addresses = at(SHARED_WINDOW + 16, base, LOCAL_WINDOW, base + 4)
    memory.store("generic", addresses, np.array([5, 6, 7, 8], "u4"), None)
    assert x.tolist() == [6, 8, 0]
    assert memory.shared.view("u4")[0, 4] == 5
    assert memory.local.view("u4")[2, 0] == 7
    memory.store("global", at(base + 8, base + 8), np.uint32(4), np.array([0, 1]))
    assert x.tolist() == [6, 8, 4]


def test_one_space_of_all_lanes_is_a_window(memory: Memory) -> None:
    found = memory.load("generic", at(*[PARAM_WINDOW + 4] * 4), U4, None)
    assert found.tolist() == [memory.parameters.view("u4")[0, 1]] * 4
    assert memory.load("generic", at(), U4, np.zeros(0, int)).size == 0


@pytest.mark.parametrize(
    ("space", "address", "why"),
    [
        ("param", 64, r"the kernel's parameters: byte 64 … 67 is outside its 64 bytes"),
        ("local", 16, r"local memory: byte 16 … 19 is outside its 16 bytes"),
        ("shared", 40, r"shared memory: byte 40 … 43 is outside its 40 bytes$"),
        ("shared", 1 << RANK_SHIFT, r"shared memory of another block, which \.shared::cta does not reach"),
        ("shared", 2**32 - 4, r"shared memory: byte -4 … -1 is outside"),
        ("shared", 2**64 - 8, r"shared memory: byte -8 … -5 is outside"),
        ("shared", 2, r"address 0x2 is not aligned to 4 bytes"),
        ("global", 0, "4 bytes at 0x0: a null pointer"),
        ("global", 4092, "a null pointer"),
        ("global", 0x1234_5678_9000, "address 0x123456789000 is in no allocation"),
    ],
)
def test_what_lies_outside_is_named(memory: Memory, space: str, address: int, why: str) -> None:
    with pytest.raises(AccessError, match=why):
        memory.load(space, at(address), U4, np.array([0]))


@pytest.mark.parametrize(("space", "last"), [("param", 60), ("local", 12), ("shared", 36), ("cluster", 36)])
def test_the_last_element_is_inside(memory: Memory, space: str, last: int) -> None:
    assert memory.load(space, at(last), U4, np.array([1])).size == 1


def test_the_nearest_variable_of_shared_memory_is_named(memory: Memory) -> None:
    memory.shared_offsets = {"first": 0, "_ZZ1fvE1s": 16}
    with pytest.raises(AccessError, match="nearest is s with 6 elements: element 6 is past the end"):
        memory.load("shared", at(40), U4, np.array([0]))
    with pytest.raises(AccessError, match="nearest is first with 10 elements: element -1 is before the beginning"):
        memory.load("shared", at(2**32 - 4), U4, np.array([0]))


def test_names_of_variables_are_those_in_their_functions() -> None:
    assert plain("buffer") == "buffer"
    assert plain("_ZZ1fvE1s") == "s"
    assert plain("_Znonsense") == "_Znonsense"


def test_parameters_are_not_written(memory: Memory) -> None:
    for use in (WRITE, STRONG_WRITE):
        with pytest.raises(AccessError, match="parameters are read-only"):
            memory.views("param", at(0), U4, np.array([0]), use)


def test_blocks_of_a_cluster_name_each_others_shared_memory(memory: Memory) -> None:
    memory.cluster = 2
    memory.set_shared(4, 16)
    memory.block_of = np.array([0, 1, 2, 3])
    memory.shared.view("u4")[:, 0] = [10, 11, 12, 13]
    first, second = 1 << RANK_SHIFT, 2 << RANK_SHIFT
    assert memory.load("cluster", at(first, first, first, first), U4, None).tolist() == [10, 10, 12, 12]
    assert memory.load("cluster", at(second, second, second, second), U4, None).tolist() == [11, 11, 13, 13]
    assert memory.load("cluster", at(0, first, 0, second), U4, None).tolist() == [10, 10, 12, 13]
    assert memory.blocks_at(at(0, 0), np.array([3, 1])).tolist() == [3, 1]
    with pytest.raises(AccessError, match="block 2 of a cluster, which has 2 blocks"):
        memory.load("cluster", at(3 << RANK_SHIFT), U4, np.array([0]))
    memory.exited = lambda blocks: blocks == 3
    assert memory.load("cluster", at(first), U4, np.array([3])).tolist() == [12]
    with pytest.raises(AccessError, match="block 1 of the cluster, which has exited"):
        memory.load("cluster", at(second), U4, np.array([2]))


def test_addresses_are_multiples_of_what_is_accessed() -> None:
    check_aligned(at(0, 8, 16), 8)
    check_aligned(at(3), 1)
    with pytest.raises(AccessError, match="address 0xc is not aligned to 8 bytes"):
        check_aligned(at(8, 12, 20), 8)


def test_pieces_are_what_may_be_accessed_in_one_go(memory: Memory) -> None:
    x, frozen = np.zeros(8, "u4"), np.zeros(4, "u4")
    base, other = memory.add(x, "x"), memory.add(frozen, "frozen", readonly=True)
    found = memory.piece(base + 4, 28, WRITE)
    assert found is not None
    assert found.name == "x"
    assert memory.piece(base + 4, 29, READ) is None
    assert memory.piece(other, 16, READ) is not None
    assert memory.piece(other, 16, WRITE) is None
    assert memory.piece(other, 16, STRONG_WRITE) is None
    heap = Heap(256)
    memory.add_heap(heap)
    assert memory.piece(heap.address, 4, READ) is None


def test_what_a_launch_may_write_is_listed() -> None:
    held, beside = np.zeros(10, "u4"), np.zeros(5, "u1")
    frozen, objects = np.zeros(3, "u4"), np.array([None])
    frozen.flags.writeable = False
    memory = Memory(lambda: [beside, frozen, objects, np.zeros(0)])
    memory.add(held[2:4], "part")
    memory.add(np.zeros(3, "u4"), "read only", readonly=True)
    found = [(each.ctypes.data, each.nbytes) for each in memory.writable()]
    assert (held.ctypes.data + 8, 8) in found
    assert (held.ctypes.data, 40) in found
    assert (beside.ctypes.data, 5) in found
    assert len(found) == 3


def test_an_allocation_is_known_until_it_is_removed() -> None:
    memory, x, empty = Memory(), np.arange(64, dtype="u1"), np.zeros(0, "u4")
    assert memory.add(empty, "empty") == empty.ctypes.data
    assert list(memory.table) == []
    base = memory.add(x, "x")
    assert list(memory.table) == [base, base + 64, 0, 0]
    other = np.zeros(16, "u4")
    second = memory.add(other[::-1], "reversed", readonly=True)
    assert second == other.ctypes.data
    rows = [list(memory.table[row : row + 4]) for row in range(0, len(memory.table), 4)]
    assert rows == sorted(([base, base + 64, 0, 0], [second, second + 64, 1, 0]))
    flagged = memory.flagged(lambda piece: piece.address + 5)
    assert list(flagged[3::4]) == [5, 5]
    assert list(memory.table[3::4]) == [0, 0]
    memory.remove(base)
    memory.remove(base)
    assert list(memory.table) == [second, second + 64, 1, 0]
    with pytest.raises(AccessError, match=r"outside every array|is in x of an earlier launch"):
        memory.load("global", at(base), U1, np.array([0]))
    with pytest.raises(AccessError, match="reversed is read-only"):
        memory.store("global", at(second), np.zeros(1, "u4"), np.array([0]))


def test_the_longer_of_two_at_one_address_counts() -> None:
    for order in (1, -1):
        memory, x = Memory(), np.arange(16, dtype="u4")
        parts = [(x[:4], "short", False), (x, "long", True)][::order]
        for part, name, readonly in parts:
            base = memory.add(part, name, readonly)
        found = memory.piece(base, 64, WRITE)
        assert found is not None
        assert found.name == "short"
        assert found.data.view("u4").tolist() == x.tolist()


def test_global_loads_go_over_several_arrays() -> None:
    memory, arrays = Memory(), [np.arange(4, dtype="u4") + 10 * k for k in range(3)]
    bases = [memory.add(x, f"x{k}") for k, x in enumerate(arrays)]
    addresses = at(bases[2] + 4, bases[0], bases[1] + 12, bases[0] + 8, bases[2])
    assert memory.load("global", addresses, U4, None).tolist() == [21, 0, 13, 2, 20]


# ── the heap ──


def test_blocks_of_the_heap_lie_apart_and_come_again() -> None:
    heap = Heap(512)
    assert heap.address % 16 == 0
    assert not heap.is_used
    first, second = heap.allocate(1), heap.allocate(40)
    assert heap.is_used
    assert (first % 16, second % 16) == (0, 0)
    assert second - first == 32
    third = heap.allocate(16)
    assert third - second == 64
    heap.free(second)
    assert heap.allocate(33) == second
    assert heap.allocate(8, 128) % 128 == 0
    heap.free(0)
    for address in (first, second, third):
        heap.free(address)
    with pytest.raises(ck.EmulationError, match="was freed before, and cannot be freed"):
        heap.free(first)
    for address in (first + 1, heap.address - 16, heap.address + 512):
        with pytest.raises(ck.EmulationError, match="is no block that malloc or new gave"):
            heap.free(address)


def test_a_full_heap_has_the_room_between_blocks() -> None:
    heap = Heap(256)
    blocks = [heap.allocate(16) for _ in range(5)]
    assert blocks == [heap.address + 48 * k for k in range(5)]
    assert heap.allocate(16) == 0
    assert heap.allocate(0) == 0
    heap.free(blocks[1])
    heap.free(blocks[2])
    assert heap.allocate(64) == blocks[1]
    assert heap.allocate(1) == 0
    heap.free(blocks[4])
    assert heap.allocate(33) == blocks[4]


def test_accesses_outside_of_blocks_are_told() -> None:
    heap = Heap(256)
    nothing = heap.explain(0, 4)
    assert nothing == f"4 bytes at {heap.address:#x} are in no block of the device's heap"
    first, second = heap.allocate(10) - heap.address, heap.allocate(8) - heap.address
    assert heap.first_invalid(at(first, first + 6, second + 4), 4) is None
    assert heap.first_invalid(at(first, first + 7, second + 6), 4) == first + 7
    assert heap.first_invalid(at(first + 10), 1) == first + 10
    assert heap.explain(first + 12, 4).endswith(
        "the nearest is one of 10 bytes: byte 12 is past the end (valid: 0 to 9)"
    )
    assert heap.explain(second, 4).endswith("the nearest is one of 8 bytes: byte 0 is past the end (valid: 0 to 7)")
    heap.free(second + heap.address)
    assert heap.explain(second + 4, 4).endswith(": it was freed")


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (20, "the nearest is one of 16 bytes: byte 20 is past the end"),
        (1088, "the nearest is x"),
        (1020, "the nearest is x"),
    ],
)
def test_an_array_that_is_nearer_than_the_heaps_blocks_is_named(offset: int, words: str) -> None:
    heap, memory = Heap(4096), Memory()
    assert heap.allocate(16) == heap.address
    memory.add(heap.data[1024:1088].view(np.int32), "x")
    memory.add_heap(heap)
    with pytest.raises(AccessError, match=words):
        memory.store("global", np.array([heap.address + offset], np.uint64), np.zeros(1, np.int32), slice(None))


def test_a_heap_s_blocks_are_saved_and_had_again() -> None:
    heap = Heap(256)
    kept = heap.allocate(16)
    saved = heap.saved()
    heap.data[0] = 77
    heap.free(kept)
    later = heap.allocate(48)
    heap.restore(saved)
    assert heap.data[0] == 77
    assert heap.allocate(48) == later
    heap.free(kept)
    heap.restore(saved)
    heap.free(kept)
    with pytest.raises(ck.EmulationError, match="was freed before"):
        heap.free(kept)


def test_limits_of_a_device() -> None:
    limits = DeviceLimits()
    assert (limits.stack_bytes, limits.heap_bytes) == (1024, 8 << 20)
    assert (limits.default_of("stack"), limits.default_of("heap")) == (1024, 8 << 20)
    limits.set_heap_bytes(512)
    assert not limits.has_heap
    assert limits.heap.data.size == 512
    assert limits.has_heap
    block = limits.heap.allocate(8)
    with pytest.raises(ck.LaunchError, match="the heap's size cannot change while kernels hold memory of it"):
        limits.set_heap_bytes(1024)
    limits.heap.free(block)
    limits.set_heap_bytes(1024)
    assert limits.heap.data.size == 1024


# ── copies under way ──


class Heard:
    """Keeps what it is told of copies."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def issued(self, copies: Copies) -> None:
        self.told.append(("issued", copies.instr))

    def landed(self, copies: Copies, positions: np.ndarray, awaited: str) -> None:
        self.told.append(("landed", copies.instr, positions.tolist(), awaited))

    def abandoned(self, copies: Copies, positions: np.ndarray) -> None:
        self.told.append(("left", copies.instr, positions.tolist()))


@pytest.fixture
def late() -> tuple[Late, Heard, Callable[..., None]]:
    """Copies of eight lanes, who is told of them, and a way to issue some."""
    made, heard = Late(8), Heard()
    made.listeners.append(heard)

    def issue(name: Any, awaited: Any, lanes: list[int], barriers: Any = None) -> None:
        def land(positions: np.ndarray) -> None:
            heard.told.append(("copied", name, np.array(lanes)[positions].tolist()))

        given = None if barriers is None else np.array(barriers)
        made.issue(Copies(name, awaited, np.array(lanes), land, barriers=given))

    return made, heard, issue


def told(heard: Heard) -> list[tuple[Any, ...]]:
    """What was told since it was last asked."""
    found, heard.told = heard.told, []
    return found


def test_copies_land_with_the_groups_that_are_waited_for(late: Any) -> None:
    made, heard, issue = late
    issue("a", "group", [1, 3, 5])
    made.commit("group", np.array([1, 3]))
    issue("b", "group", [1, 5])
    made.commit("group", np.array([1]))
    assert told(heard) == [("issued", "a"), ("issued", "b")]
    made.wait("bulk", np.arange(8), None)
    made.wait("group", np.array([0, 2]), 0)
    assert told(heard) == []
    made.wait("group", np.array([1]), 1)
    assert told(heard) == [("copied", "a", [1]), ("landed", "a", [0], "group")]
    made.wait("group", np.array([1, 3, 5]), 0)
    assert told(heard) == [
        ("copied", "a", [3]), ("landed", "a", [1], "group"), ("copied", "b", [1]), ("landed", "b", [0], "group"),
    ]  # fmt: skip
    made.wait("group", np.array([5]), None)
    assert told(heard) == [
        ("copied", "a", [5]), ("landed", "a", [2], "group"), ("copied", "b", [5]), ("landed", "b", [1], "group"),
    ]  # fmt: skip
    made.wait("group", np.arange(8), None)
    made.finish()
    assert told(heard) == []
    assert made.listeners == []


def test_copies_land_when_their_barrier_is_looked_at(late: Any) -> None:
    made, heard, issue = late
    issue("a", "mbarrier", [0, 1, 2], [4, 9, 4])
    issue("b", "group", [0])
    told(heard)
    made.reached(np.array([7]))
    assert told(heard) == []
    made.reached(np.array([4, 5]))
    assert told(heard) == [("copied", "a", [0, 2]), ("landed", "a", [0, 2], "mbarrier")]
    made.reached(np.array([9]))
    assert told(heard) == [("copied", "a", [1]), ("landed", "a", [1], "mbarrier")]


def test_copies_that_an_arrival_awaits_are_those_under_way_then(late: Any) -> None:
    made, heard, issue = late
    issue("a", "group", [2, 4, 6])
    issue("bulk", "bulk", [4])
    lanes = np.array([4, 6, 7])
    land = made.before(lanes)
    issue("b", "group", [4])
    told(heard)
    land(np.array([2]))
    assert told(heard) == []
    land(np.array([0, 2]))
    assert told(heard) == [("copied", "a", [4]), ("landed", "a", [1], "mbarrier")]


def test_what_nobody_waited_for_is_left_and_bulk_copies_land(late: Any) -> None:
    made, heard, issue = late
    issue("a", "group", [1, 2])
    made.commit("group", np.array([2]))
    made.wait("group", np.array([2]), 0)
    issue("b", "bulk", [5, 6])
    told(heard)
    made.finish()
    assert told(heard) == [
        ("left", "a", [0]), ("left", "b", [0, 1]), ("copied", "b", [5, 6]), ("landed", "b", [0, 1], "bulk"),
    ]  # fmt: skip


# ── drawn orders ──


def machine(places: list[int], running: list[bool] | None = None) -> Any:
    """What an order looks at of a machine with warps of four lanes."""
    lanes = len(places)
    status = np.where(np.array([True] * lanes if running is None else running), RUNNING, RUNNING + 1)
    return SimpleNamespace(place=np.array(places), status=status, warp_of=np.arange(lanes) // 4, lanes=lanes)


def choices(drawn: Drawn, given: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        chosen = drawn.choose(given)
        assert chosen is not None
        place, group, others = chosen
        found.append((place, None if group is None else tuple(group.tolist()), others))
    return found


def test_a_seed_draws_the_same_order_again() -> None:
    given = machine([3] * 8 + [5] * 8)
    first, second, other = (choices(Drawn(seed, 7, 0), given, 40) for seed in (5, 5, 6))
    assert first == second
    assert first != other
    assert first != choices(Drawn(5, 8, 0), given, 40)
    # A switch is the same by its number, whatever came before.
    assert first[10:] == choices(Drawn(5, 7, 10), given, 30)
    drawn = Drawn(5, 7, 10)
    choices(drawn, given, 3)
    assert drawn.switches == 13


def test_what_runs_next_is_warps_of_one_place() -> None:
    given = machine([3] * 8 + [5] * 8, [True] * 12 + [False] * 4)
    drawn = choices(Drawn(1, 0, 0), given, 200)
    whole = {3: tuple(range(8)), 5: tuple(range(8, 12))}
    for place, group, others in drawn:
        assert others
        assert group is not None
        assert set(group) <= set(whole[place])
        assert len(group) % 4 == 0
        assert group
    threes = [group for place, group, _ in drawn if place == 3]
    # Two thirds of the running lanes are there; all warps go together half of the time, and when both are drawn.
    assert 110 < len(threes) < 155
    assert 0.5 < sum(group == whole[3] for group in threes) / len(threes) < 0.9
    assert set(threes) == {whole[3], whole[3][:4], whole[3][4:]}


def test_all_lanes_at_once_are_no_choice() -> None:
    found = choices(Drawn(2, 0, 0), machine([4] * 4), 5)
    assert found == [(4, None, False)] * 5


def test_of_named_switches_only_those_are_made() -> None:
    given = machine([3] * 8 + [5] * 8)
    free = choices(Drawn(9, 0, 0), given, 10)
    drawn = Drawn((9, 4), 0, 0)
    assert drawn.choose(given) is None
    drawn = Drawn((9, 0, 4), 0, 0)
    found = choices(drawn, given, 4)
    assert found == [free[0]] * 4
    assert choices(drawn, given, 1) == [free[4]]
    # The lanes that were drawn go on where the first of them are, and until none of them runs.
    lanes = list(free[4][1])
    given.place[lanes[-1]] = 1
    assert choices(drawn, given, 1) == [(1, (lanes[-1],), True)]
    given.status[lanes[-1]] = RUNNING + 1
    assert choices(drawn, given, 1) == [(free[4][0], tuple(lanes[:-1]), True)]
    given.status[lanes] = RUNNING + 1
    assert drawn.choose(given) is None


def test_a_group_stops_before_one_instruction_in_ten() -> None:
    drawn = Drawn(3, 0, 0)
    assert 60 < sum(code in drawn for code in range(1000)) < 140


# ── kernels that launch kernels ──

TWO = """
.func device() { ret; }
.entry child(.param .u32 a, .param .u64 b) { ret; }
.entry bare() { ret; }
"""


def pointer(held: Module, name: str) -> int:
    found = held.symbols.address_of(name)
    assert found is not None
    return found


def test_a_child_s_parameters_are_memory_of_the_launch() -> None:
    held = module(TWO)
    children = Children(held)
    geometry = Geometry((2, 1, 1), (1024, 1, 1), 0)
    address = children.make(pointer(held, "child"), geometry)
    assert address % 64 == 0
    found = held.memory.piece(address, 16, WRITE)
    assert found is not None
    assert (found.name, found.size) == ("the parameters of child", 16)
    bare = children.make(pointer(held, "bare"), geometry)
    assert held.memory.piece(bare, 1, WRITE) is not None
    assert held.memory.piece(bare, 2, WRITE) is None
    held.memory.store("global", at(address), np.array([77], "u4"), np.array([0]))
    children.launch(bare, 3)
    children.launch(address, 0)
    children.launch(address, 1)
    taken = []
    for child in children.take():
        assert held.memory.piece(address, 16, WRITE) is not None
        taken.append(child.entry.name)
    assert taken == ["child", "child", "bare"]
    assert child.geometry is geometry
    assert held.memory.piece(address, 16, WRITE) is None
    assert held.memory.piece(bare, 1, WRITE) is None


@pytest.mark.parametrize(
    ("name", "grid", "block", "depth", "why"),
    [
        ("device", (1, 1, 1), (1, 1, 1), 0, "device is no kernel, and cannot be launched"),
        ("child", (0, 1, 1), (1, 1, 1), 0, r"child is launched with a grid of \(0, 1, 1\) and blocks of \(1, 1, 1\)"),
        ("child", (1, 1, 1), (0, 1, 1), 0, r"a block has 1 to 1024 threads, and a grid a block at least"),
        ("child", (1, 1, 1), (1025, 1, 1), 0, "1 to 1024 threads"),
        ("child", (1, 1, 1), (1, 1, 1), 24, "child is launched more than 24 kernels deep"),
    ],
)
def test_what_no_device_launches_is_refused(name: str, grid: Any, block: Any, depth: int, why: str) -> None:
    held = module(TWO)
    with pytest.raises(ck.EmulationError, match=why):
        Children(held, depth).make(pointer(held, name), Geometry(grid, block, 0))
    assert Children(held, 23).make(pointer(held, "child"), Geometry((1, 1, 1), (1, 1, 1), 0))


def test_a_child_has_the_cluster_of_its_source() -> None:
    held = module(".entry pair() .explicitcluster .reqnctapercluster 2 { ret; }")
    children = Children(held)
    address = children.make(pointer(held, "pair"), Geometry((4, 1, 1), (32, 1, 1), 16))
    children.launch(address, 0)
    (child,) = children.take()
    assert child.geometry == Geometry((4, 1, 1), (32, 1, 1), 16, (2, 1, 1), has_cluster=True)
    with pytest.raises(ck.EmulationError, match=r"pair: grid \(3, 1, 1\) is no multiple of the kernel's own cluster"):
        children.make(pointer(held, "pair"), Geometry((3, 1, 1), (32, 1, 1)))


def test_launches_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children_of, "_MOST_PENDING", 3)
    held = module(TWO)
    children = Children(held)
    address = children.make(pointer(held, "child"), Geometry((1, 1, 1), (1, 1, 1), 0))
    with pytest.raises(ck.EmulationError, match="0x10 is not where the parameters of a kernel were to be written"):
        children.launch(16, 0)
    for stream in (3, 0, 3):
        children.launch(address, stream)
    with pytest.raises(ck.EmulationError, match="more than 3 launches wait for their kernel to end"):
        children.launch(address, 0)


# ── programs ──


CALLS = """
.extern .func (.param .b32 r) outside(.param .b32 a);
.func last() { ret; }
.func middle() { call last, (); call outside, (); ret; }
.func alone() { ret; }
.entry some() { call middle, (); call middle, (); ret; }
.entry none() { ret; }
.entry itself() { call back, (); ret; }
.func back() { call itself_too, (); ret; }
.func itself_too() { call back, (); ret; }
.entry pointed(.param .u64 p) {
    .reg .b64 %p; ld.param.u64 %p, [p]; call %p, (), proto; proto: .callprototype _ (); ret; }
.entry launches() { .reg .b64 %p; mov.u64 %p, none; mov.u64 %p, taken; ret; }
.func taken() { call last, (); ret; }
"""


def test_functions_that_a_kernel_may_come_to() -> None:
    held = module(CALLS.replace("call outside, ();", ""))
    functions = held.program.functions
    names = {name: [each.name for each in held.reachable(functions[name])] for name in ("some", "none", "itself")}
    assert names == {
        "some": ["some", "middle", "last"],
        "none": ["none"],
        "itself": ["itself", "back", "itself_too"],
    }
    assert [each.name for each in held.reachable(functions["pointed"])] == ["pointed", "taken", "last"]
    recursive = [name for name, function in functions.items() if function.is_entry and held.recurses(function)]
    assert recursive == ["itself", "pointed"]


def test_pointers_stand_for_functions() -> None:
    held = module(TWO)
    symbols = held.symbols
    assert symbols.function_at(pointer(held, "child")) == "child"
    assert pointer(held, "bare") != pointer(held, "child")
    assert symbols.address_of("nothing") is None
    with pytest.raises(ck.EmulationError, match="a call to 0x5, which is no function"):
        symbols.function_at(5)
    other = Module(parse(f"{HEAD}.func elsewhere() {{ ret; }}"), held.memory, None, symbols.linked)
    with pytest.raises(ck.EmulationError, match="a pointer to elsewhere, which another kernel's code has"):
        symbols.function_at(pointer(other, "elsewhere"))


def shared_by(text: str) -> dict[str, tuple[int, dict[str, int]]]:
    """Static bytes and offsets of each kernel of a text."""
    held = module(text)
    layouts = {f.name: held.shared(f.name) for f in held.program.functions.values() if f.is_entry}
    return {name: (layout.static_bytes, layout.offsets) for name, layout in layouts.items()}


def code(*names: str, own: str = "") -> str:
    """A body that declares variables and stores to some."""
    stores = " ".join(f"st.shared.b8 [{name}], %r;" for name in names)
    return f"{{ .reg .b32 %r; .reg .b64 %p; {own} mov.u32 %r, %tid.x; {stores} ret; }}"


def test_shared_variables_lie_by_their_alignment() -> None:
    held = module(f"""
        .shared .align 1 .b8 one[3];
        .shared .align 8 .b8 two[8];
        .extern .shared .align 32 .b8 dynamic[];
        .entry g() {code("one", "two", "dynamic", "three", own=".shared .align 2 .b8 three[6];")}
        .entry h() {code("dynamic")}""")
    layout = held.shared("g")
    assert layout == ({"three": 0, "one": 6, "two": 16, "dynamic": 32}, 24, 32)
    assert (layout.total_bytes(0), layout.total_bytes(100)) == (24, 132)
    assert held.shared("h") == ({"dynamic": 0}, 0, 0)


def test_a_kernel_has_the_shared_variables_that_it_may_come_to() -> None:
    # The bytes are what ptxas 13.5 tells of these kernels with -v.
    of_program = ".shared .align 4 .b8 m[401]; .shared .align 1 .b8 n[3];"
    callees = f".func g() {code('m')} .func f() {code('fa', own='.shared .align 4 .b8 fa[300];')}"
    indirect = "proto: .callprototype _ (); call %p, (), proto;"
    assert shared_by(f"""{of_program} {callees} .global .u64 table[1] = {{g}};
        .entry none() {code()}
        .entry called() {code(own="call g, (); call f, ();")}
        .entry own() {code("n", "a", own=".shared .align 16 .b8 a[32]; .shared .b8 unused[5]; call g, ();")}
        .entry by_table() {code(own="ld.global.u64 %p, [table];")}
        .entry by_address() {code(own="mov.u64 %p, f;")}
        .entry of_an_address() {code(own="mov.u64 %p, n;")}
        .entry of_a_kernel() {code(own="mov.u64 %p, own;")}
        .entry through_a_pointer() {code(own=f"mov.u64 %p, %clock64; {indirect}")}
    """) == {
        "none": (0, {}),
        "called": (704, {"m": 0, "fa": 404}),
        "own": (441, {"a": 0, "m": 32, "n": 433, "unused": 436}),
        "by_table": (704, {"m": 0, "fa": 404}),
        "by_address": (704, {"m": 0, "fa": 404}),
        "of_an_address": (3, {"n": 0}),
        "of_a_kernel": (0, {}),
        "through_a_pointer": (704, {"m": 0, "fa": 404}),
    }


def test_shared_variables_of_functions_that_have_one_name() -> None:
    found = shared_by(f"""
        .shared .align 4 .b8 a[7];
        .func f() {code("a", own=".shared .align 4 .b8 a[5];")}
        .entry j() {code("a", own="call f, ();")}
        .entry k() {code("a", own=".shared .align 4 .b8 a[9]; call f, ();")}
        .entry inner() {code("a", own="{ .shared .align 4 .b8 a[2]; st.shared.b8 [a], 1; } call f, ();")}
    """)
    assert found == {
        "j": (13, {"a": 0, "a$f": 8}),
        "k": (17, {"a$k": 0, "a$f": 12}),
        "inner": (17, {"a#1": 0, "a": 4, "a$f": 12}),
    }


def test_dynamic_shared_memory_of_any_kernel_rounds_up_the_static_one() -> None:
    text = f".shared .b8 m[5]; .entry k() {code('m')} .entry j() {code()}"
    assert shared_by(text)["k"] == (5, {"m": 0})
    for align, start in ((1, 16), (64, 64)):
        found = shared_by(f"{text} .extern .shared .align {align} .b8 d[];")
        assert found == {"k": (start, {"m": 0}), "j": (0, {})}


def test_a_function_that_another_code_s_pointer_names_has_no_shared_memory() -> None:
    memory = Memory()
    memory.shared_offsets = {"_ZZ1fvE4mine": 8}
    assert memory.shared_offset("_ZZ1fvE4mine") == 8
    with pytest.raises(AccessError, match="theirs is in shared memory, and the kernel's blocks have none for it"):
        memory.shared_offset("_ZZ1gvE6theirs")


def test_programs_of_one_text_share_their_variables() -> None:
    text = ".visible .global .u32 seen = 5; .global .align 4 .b8 none[0]; .global .u32 _ZN4cuda3own = 1;"
    first = module(text)
    symbols = first.symbols
    symbols.storage["seen"].view("u4")[0] = 6
    again = Module(parse(HEAD + text), first.memory, None, symbols.linked).symbols
    assert again.addresses["seen"] == symbols.addresses["seen"]
    assert again.storage["seen"].view("u4")[0] == 6
    assert again.addresses["_ZN4cuda3own"] != symbols.addresses["_ZN4cuda3own"]
    assert set(symbols.linked.variables) == {"seen", "none"}
    assert symbols.storage["none"].size == 1
    larger = Module(parse(f"{HEAD}.visible .global .u64 seen = 7;"), first.memory, None, symbols.linked).symbols
    assert larger.addresses["seen"] != symbols.addresses["seen"]
    assert larger.storage["seen"].view("u8")[0] == 7
    assert symbols.linked.variables["seen"][1] == larger.addresses["seen"]
    alone = module(text).symbols
    assert alone.storage["seen"].view("u4")[0] == 5


def test_a_variable_that_points_to_nothing_is_named() -> None:
    with pytest.raises(ck.EmulationError, match="PTX line 4: no variable in memory and no function is named nothing"):
        module(".global .u64 to = nothing;")
    held = module(".func g() { ret; } .global .u64 to[2] = {g, 3};")
    assert held.symbols.storage["to"].view("u8").tolist() == [pointer(held, "g"), 3]


def test_variables_have_memory_of_their_alignment() -> None:
    held = module("""
        .global .align 64 .b8 wide[3] = {1, 2, 3};
        .const .align 4 .u32 fixed = 9;
        .global .align 8 .u64 to = wide;""")
    symbols = held.symbols
    assert symbols.addresses["wide"] % 64 == 0
    assert symbols.storage["wide"].tolist() == [1, 2, 3]
    assert symbols.constants == [(symbols.addresses["fixed"], 4)]
    assert int(symbols.storage["to"].view("u8")[0]) == symbols.addresses["wide"]
    found = held.memory.piece(symbols.addresses["fixed"], 4, READ)
    assert found is not None
    assert found.name == "variable fixed"
    assert found.readonly
    assert held.memory.piece(symbols.addresses["wide"], 3, WRITE) is not None


def test_a_variable_for_which_there_is_no_memory_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> None:
        assert size == 107
        raise MemoryError

    monkeypatch.setattr(symbols_of, "bytearray", full, raising=False)
    with pytest.raises(ck.EmulationError, match="no memory for the 99 bytes of variable large"):
        module(".global .align 8 .b8 large[99];")


# ── how many blocks run at once ──


def blocks(text: str, geometry: Geometry) -> int:
    held = module(text)
    entry = next(each for each in held.program.functions.values() if each.is_entry)
    return blocks_at_once(held, entry, geometry, "title")


def test_blocks_at_once_are_bounded_by_lanes_and_memory() -> None:
    one = ".entry f() { ret; }"
    assert blocks(one, Geometry((5000, 1, 1), (256, 1, 1), 0)) == MOST_LANES // 256
    assert blocks(one, Geometry((5000, 1, 1), (300, 1, 1), 0)) == MOST_LANES // 300
    assert blocks(one, Geometry((5000, 1, 1), (256, 1, 1), 0, (4, 1, 1))) == MOST_LANES // 1024 * 4
    size = 100 << 20
    assert blocks(one, Geometry((5000, 1, 1), (1, 1, 1), size)) == USUAL_BYTES // size
    assert blocks(one, Geometry((5000, 1, 1), (1, 1, 1), size, (3, 1, 1))) == USUAL_BYTES // (3 * size) * 3
    assert blocks(one, Geometry((5000, 1, 1), (1, 1, 1), 3 << 30)) == 1
    assert blocks(one, Geometry((17, 1, 1), (256, 1, 1), 0, cooperative=True)) == 17
    again = ".func g() { call g, (); ret; } .entry f() { call g, (); ret; }"
    assert blocks(again, Geometry((5000, 1, 1), (256, 1, 1), 0)) == MOST_LANES // 16 // 256


def test_blocks_that_must_run_at_once_have_to_fit() -> None:
    one = ".entry f() { ret; }"
    # A thread has a byte at least.
    assert blocks(one, Geometry((4, 1, 1), (1, 1, 1), MOST_BYTES // 4 - 1, cooperative=True)) == 4
    with pytest.raises(ck.EmulationError, match=f"title: 4 blocks that must run at once take {MOST_BYTES + 4} bytes"):
        blocks(one, Geometry((4, 1, 1), (1, 1, 1), MOST_BYTES // 4, cooperative=True))
    with pytest.raises(ck.EmulationError, match="2 blocks that must run at once"):
        blocks(one, Geometry((4, 1, 1), (1, 1, 1), MOST_BYTES // 2 + 1, (2, 1, 1)))
    static = f".entry f() {{ .shared .align 16 .b8 s[{MOST_BYTES // 2 + 16}]; ret; }}"
    with pytest.raises(ck.EmulationError, match=f"take {MOST_BYTES + 34} bytes"):
        blocks(static, Geometry((4, 1, 1), (1, 1, 1), 0, (2, 1, 1)))
    registers = ".entry f() { .reg .b64 %a<3>; .reg .b32 %b; mov.u64 %a0, 1; ret; }"
    held = module(registers)
    context = held.context(held.program.functions["f"])
    assert context.lane_bytes == context.local_bytes + 3 * 8 + 4 + 1  # and a byte
    with pytest.raises(ck.EmulationError, match=f"take {2 * (MOST_BYTES // 2 + 10 * context.lane_bytes)} bytes"):
        blocks(registers, Geometry((2, 1, 1), (10, 1, 1), MOST_BYTES // 2, cooperative=True))


def test_variables_of_a_thread_have_a_limit() -> None:
    def local(size: int) -> str:
        return f".entry f() {{ .local .align 1 .b8 v[{size}]; ret; }}"

    assert blocks(local(LOCAL_BYTES), Geometry((1, 1, 1), (1, 1, 1), 0)) >= 1
    with pytest.raises(ck.EmulationError, match=f"are {LOCAL_BYTES + 16} bytes, over the limit of {LOCAL_BYTES}"):
        blocks(local(LOCAL_BYTES + 1), Geometry((1, 1, 1), (1, 1, 1), 0))


@pytest.mark.parametrize(
    ("text", "local", "taken"),
    [
        ("mov.u32 %a, 1; ret;", 12, 12),
        # The place to return to, and nothing that is needed later; all is rounded up to eight bytes.
        ("call g, (); ret;", 0, 16),
        ("call g, (); ret;", 4, 16),
        ("call g, (); ret;", 8, 24),
        ("mov.u64 %d, 1; call g, (); st.global.u64 [0], %d; ret;", 0, 24),
        ("mov.u64 %d, 1; call g, (); st.global.u64 [%d], 5; ret;", 0, 24),
        ("mov.u64 %d, 1; call g, (); prefetch.global.L1 [%d]; ret;", 0, 24),
        ("mov.u64 %d, 1; st.global.u64 [0], %d; call g, (); ret;", 0, 16),
        ("mov.u64 %d, 1; call g, (); mov.u64 %d, 2; st.global.u64 [0], %d; ret;", 0, 16),
        ("mov.u64 %d, 1; call g, (); @%p mov.u64 %d, 2; st.global.u64 [0], %d; ret;", 0, 24),
        ("mov.u64 %d, 1; call g, (); ld.global.u64 %d, [%d]; st.global.u64 [0], %d; ret;", 0, 24),
        ("mov.u64 %d, 1; call g, (); bra DONE; st.global.u64 [%d], %d; DONE: ret;", 0, 16),
        ("mov.u64 %d, 1; call g, (); @%p bra DONE; st.global.u64 [%d], %d; DONE: ret;", 0, 24),
        ("mov.u64 %d, 1; call g, (); exit; st.global.u64 [%d], %d; ret;", 0, 16),
        ("mov.u64 %d, 1; call g, (); @%p ret; st.global.u64 [%d], %d; ret;", 0, 24),
        ("mov.u64 %d, 1; TURN: call g, (); add.u64 %d, %d, 1; bra TURN;", 0, 24),
        ("mov.u64 %d, 1; T: .branchtargets A, B; call g, (); brx.idx %a, T; A: ret; B: st.u64 [0], %d; ret;", 0, 24),
        ("mov.u64 %d, 1; mov.u64 %e, 2; call g, (); st.global.v2.u64 [0], {%d, %e}; ret;", 0, 32),
        ("mov.u64 %d, 1; mov.u64 %e, 2; call g, (); st.u64 [0], %d; call g, (); st.u64 [0], %e; ret;", 0, 32),
        ("mov.u64 %SP, 1; call g, (); st.global.u64 [%SP], %SP; ret;", 0, 16),
        ("mov.b16 %h, 1; call g, (); st.global.b16 [0], %h; ret;", 4, 24),
        ("setp.eq.u32 %p, %a, 1; call g, (); @%p st.global.u32 [0], 5; ret;", 4, 16),
    ],
)  # fmt: skip
def test_frames_hold_what_is_needed_after_a_call(text: str, local: int, taken: int) -> None:
    from cudakit.emulator.machine.kernel_memory import frame_bytes

    registers = ".reg .b16 %h; .reg .b32 %a; .reg .b64 %d, %e, %SP; .reg .pred %p;"
    program = parse(f"{HEAD}.func g() {{ ret; }} .func f() {{ {registers} {text} }}")
    assert frame_bytes(program.functions["f"], local) == taken


def test_nothing_keeps_a_heap_s_block_of_a_memory_that_is_gone() -> None:
    memory, heap = Memory(), Heap(64)
    memory.add_heap(heap)
    memory.add_heap(heap)
    assert list(memory.table) == []
    memory.clear_lanes()
    gc.collect()
    assert memory.piece(heap.address, 1, READ) is None
