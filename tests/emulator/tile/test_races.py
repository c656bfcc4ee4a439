"""Races between the blocks of a tile kernel, and blocks in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.tiers import thinned
from support.tiles import Together, needs_tiles

import cudakit as ck
from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE, Memory
from cudakit.emulator.tile.races import Races
from cudakit.emulator.tile.values import box_of
from cudakit.jit.compile.tile_ir import Operation

VIEWS = "auto v = tiles_of<64>(x, n); int i = ct::bid().x;\n"
ADD = "ct::atomic_add(x{at}, {by}, ct::memory_order_{order}_t{{}}, ct::thread_scope_{scope}_t{{}})"


def add(at: int, by: int, order: str, scope: str = "device") -> str:
    return ADD.format(at=f" + {at}" if at else "", by=by, order=order, scope=scope)


@pytest.fixture(autouse=True)
def _tiles() -> None:
    needs_tiles()


together = Together()


def declared(body: str) -> str:
    """Declare the kernel of a body, which `run` takes."""
    together.declare(body, "int* x, int n")
    return body


def run(body: str, blocks: int = 3, seed: int | None = None, n: int = 200) -> np.ndarray:
    x = np.zeros(n, "i4")
    together(body, "int* x, int n")(ck.emulator.stream(block_order=seed), ck.config(blocks), x, n)
    return x


RACES = [
    ("x[5] = 1;", "writes element 5 of x, which block .* writes .store_ptr_tko"),
    ("int i = ct::bid().x;\nif (i == 0) x[3] = 1; else x[3 + i] = x[3];", "element 3 of x, which block"),
    (VIEWS + "v.store_masked(v.load_masked(i) + 1, 0);", "element 0 of x, which block"),
    (VIEWS + "auto t = v.load_masked(1); v.store_masked(t, i);", "element 64 of x, which block"),
    (VIEWS + f"{add(70, 1, 'relaxed')}; v.store_masked(v.load_masked(i), i);", "element 70 of x, which block"),
    ("int i = ct::bid().x; if (i) x[i] = x[9]; else { " + add(9, 1, "relaxed") + "; }", "element 9 of x"),
    ("int i = ct::bid().x; if (!i) x[i] = x[9]; else { " + add(9, 1, "relaxed") + "; }", "element 9 of x"),
    ("x[9] = x[9] + " + add(0, 1, "relaxed") + ";", "element 9 of x"),
    (add(0, 1, "relaxed", "block") + ";", "element 0 of x"),
    (
        "auto p = x + ct::iota<ct::tile<int, ct::shape<8>>>() * 7; ct::store(p, ct::load(p) + 1);",
        "element 0 of x",
    ),
]
for one in RACES:
    declared(one[0])


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize(("body", "message"), thinned(RACES, 3, several=True))
def test_a_race_is_an_error(body: str, message: str, seed: int | None) -> None:
    with pytest.raises(ck.EmulationError, match=f"a race between blocks: .*{message}"):
        run(body, seed=seed)


NO_RACES = [
    VIEWS + "v.store_masked(v.load_masked(i) + 1, i);",
    add(0, 1, "relaxed") + ";",
    "x[1 + ct::bid().x] = x[0];",
    VIEWS + "v.store_masked(v.load_masked(i) + v.load_masked(i), i); v.store_masked(v.load_masked(i) * 2, i);",
    "float a[4] = {}; a[n & 3] = ct::bid().x; x[ct::bid().x] = a[n & 3];",
]
for body in NO_RACES:
    declared(body)


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("body", NO_RACES)
def test_what_is_no_race(body: str, seed: int | None) -> None:
    run(body, seed=seed)


READS = [
    *(f"int i = ct::bid().x; if (i == {index}) x[5] = 1; else y[i] = x[5];" for index in (0, 1)),
    "int i = ct::bid().x; if (i == 2) x[5] = 1; else if (i == 0) y[i] = x[4]; else y[i] = x[6];",
]
for body in READS:
    together.declare(body, "int* x, int* y")


def test_reads_of_what_was_not_written_yet() -> None:
    x, y = np.zeros(8, "i4"), np.zeros(8, "i4")
    for body in READS[:2]:  # whichever block is first
        with pytest.raises(ck.EmulationError, match=r"element 5 of x, which block"):
            together(body, "int* x, int* y")(ck.emulator.stream(), ck.config(2), x, y)
        x[:] = y[:] = 0
    together(READS[2], "int* x, int* y")(ck.emulator.stream(), ck.config(3), x, y)


TWICE = declared("x[0] = 1; x[0] = x[0] + 1;")


def test_one_block_races_with_none() -> None:
    assert run(TWICE, blocks=1)[0] == 2


ORDERS = [(("release", "acquire"), True), (("acq_rel", "acq_rel"), True), (("relaxed",) * 2, False)]
#: Whoever comes last adds up what all have written.
LAST = {
    order: declared(f"""
    int i = ct::bid().x;
    x[10 + i] = i + 1;
    if ({add(0, 1, order)} == 3) x[1] = x[10] + x[11] + x[12] + x[13];""")
    for order in ("acq_rel", "relaxed")
}
TOLD = {
    order: declared(f"""
    if (ct::bid().x == 0) {{ x[2] = 7; {add(0, 1, order[0])}; }}
    else if ({add(0, 0, order[1])} == 1) x[1] = x[2];""")
    for order, _ in ORDERS
}


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize(("order", "ordered"), ORDERS)
def test_a_release_that_is_acquired_orders(order: tuple[str, str], ordered: bool, seed: int | None) -> None:
    if ordered:
        assert run(LAST["acq_rel"], 4, seed)[1] == 10
        assert run(TOLD[order], 2)[1] == 7
    else:
        with pytest.raises(ck.EmulationError, match="a race between blocks"):
            run(LAST["relaxed"], 4, seed)
        with pytest.raises(ck.EmulationError, match="a race between blocks"):
            run(TOLD[order], 2)


AFTER = declared(f"""
    if (ct::bid().x == 0) {{ {add(0, 1, "release")}; x[2] = 7; }}
    else if ({add(0, 0, "acquire")} == 1) x[1] = x[2];""")


def test_what_comes_after_the_release_is_not_ordered() -> None:
    with pytest.raises(ck.EmulationError, match="a race between blocks"):
        run(AFTER, 2)


BYTES = {
    byte: declared(f"""
    int i = ct::bid().x;
    if (i == 0) x[1] = 1;
    else reinterpret_cast<unsigned char*>(x)[{byte}] = 2;""")
    for byte in range(4, 9)
}


def test_elements_of_several_sizes() -> None:
    run(BYTES[8], 2)
    for byte in range(4, 8):
        with pytest.raises(ck.EmulationError, match="element 1 of x"):
            run(BYTES[byte], 2)


ANY_ORDER = declared(f"x[1 + {add(0, 1, 'relaxed')}] = ct::bid().x;")


def test_blocks_in_any_order() -> None:
    by_number = run(ANY_ORDER, 50)[1:51].tolist()
    assert by_number == list(range(50))
    orders = [run(ANY_ORDER, 50, seed)[1:51].tolist() for seed in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]
    assert all(sorted(each) == by_number != each for each in orders)


@pytest.mark.parametrize("wrong", [-1, 1.5, "x"])
def test_a_seed_is_a_number(wrong: Any) -> None:
    with pytest.raises(ck.ArgumentError, match="block_order"):
        ck.emulator.stream(block_order=wrong)


def test_what_tiles_touch_is_compared_between_streams() -> None:
    given, x = together(NO_RACES[0], "int* x, int n"), np.zeros(200, "i4")
    first, second = ck.emulator.stream(), ck.emulator.stream()
    with ck.hazards.manual():
        given(first, ck.config(3), x, x.size)
        with pytest.raises(ck.EmulationError, match="race"):
            given(second, ck.config(4), x, x.size)
        second.wait(first.record())
        given(second, ck.config(4), x, x.size)


@pytest.mark.parametrize("seed", range(40))
def test_accesses_by_chance(seed: int) -> None:
    """A race is told of at the access that makes it, and only there: beside each byte's accesses, one by one."""
    rng, data = np.random.default_rng(seed), np.zeros(256, np.uint8)
    memory = Memory()
    address = memory.add(data, "x")
    piece = memory.piece(address, 1, READ)
    assert piece is not None
    races = Races(None, lambda operation: operation.name)
    races.operation = Operation("op", (), (), (), {}, {}, (), None)
    before: list[set[tuple[int, int]]] = [set() for _ in data]
    weights = rng.dirichlet(np.ones(4))
    for block in range(60):
        races.enter((block, 0, 0))
        for _ in range(3):
            size, use = int(rng.choice([1, 2, 4])), int(rng.choice([READ, STRONG_READ, WRITE, STRONG_WRITE], p=weights))
            start, kind = 4 * block if seed % 2 else int(rng.integers(0, 240)) // size * size, rng.integers(3)
            start += -(address + start) % size
            if kind == 0:
                box = box_of(memory, address + start, (2, 2), (size * int(rng.choice([1, 2])), size), size, use)
                assert box is not None
                numbers = box.elements(size)
                access = lambda box=box, size=size, use=use: races.note_box(box, size, use)  # noqa: E731
            else:
                first = (start - -address % size) // size
                count = 4 if kind == 1 else 3
                numbers = first + (np.arange(count) if kind == 1 else rng.permutation(6)[:count])
                access = lambda numbers=numbers, size=size, use=use: races.note(piece, numbers, size, use)  # noqa: E731
            skip = -address % size
            touched = [skip + int(each) * size + byte for each in numbers for byte in range(size)]
            touched = [each for each in touched if each < data.size]
            is_race = any(
                other != block and (WRITE in (use, how) or {use, how} == {READ, STRONG_WRITE})
                for each in touched
                for other, how in before[each]
            )
            if is_race:
                with pytest.raises(ck.EmulationError, match="a race"):
                    access()
                return
            access()
            for each in touched:
                before[each].add((block, use))
