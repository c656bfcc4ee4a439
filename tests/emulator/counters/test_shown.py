"""How counts are added up and shown: totals, annotated lines, rooflines, and rules of a launch and its accesses."""

from __future__ import annotations

import re
from math import log10
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cudakit.emulator.counters.advice import _names, on_accesses, on_launch
from cudakit.emulator.counters.cards import CARDS, Card, Roof, card_of
from cudakit.emulator.counters.counts import (
    Atomics,
    Counts,
    Line,
    Memory,
    Requests,
    Shared,
    SharedRequests,
    counts_of,
    lines_of,
)
from cudakit.emulator.counters.page import annotated, listing, memory_of, page
from cudakit.emulator.counters.report import Report
from cudakit.emulator.counters.requests import Group, Pattern
from cudakit.emulator.counters.tally import Kernel, Record, Space, Tally
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.ptx.program import Address, Function, Instruction, Program, Register, Symbol, Variable
from cudakit.emulator.ptx.program import Group as Parts
from cudakit.errors import ArgumentError

pytestmark = pytest.mark.emulator


def given(text: str, *operands: Any) -> Instruction:
    opcode, *modifiers = text.split(".")
    return Instruction(opcode, tuple(modifiers), operands, None, 1, None)


def record(code: str = "ld.global.f32", line: int = 1, **parts: Any) -> Record:
    made = Record(given(code, Register("%r1")), "load", None, 0, ("k.cu", line), f"line {line}")
    for name, value in parts.items():
        setattr(made, name, value)
    return made


def space(requests: int, lanes: int, taken: int, least: int, size: int = 4) -> Space:
    return Space(requests, lanes, size * lanes, taken, least)


# ── counts ──


def test_nothing_counts_nothing() -> None:
    assert counts_of([]) == Counts()
    nothing = Counts()
    assert (nothing.instructions, nothing.branches, nothing.divergent_branches, nothing.barrier_waits) == (0, 0, 0, 0)
    assert (nothing.active_lanes, nothing.global_.coalescing, nothing.atomics.contention) == (32, 1, 1)
    assert (nothing.shared.bank_conflicts, nothing.shared.requests, nothing.global_.bytes) == (0, 0, 0)


def test_counts_are_sums_over_instructions() -> None:
    loads, stores = space(2, 64, 16, 8), space(1, 32, 4, 4)
    records = [
        record(warps=2, lanes=64, spaces={("global", "loads"): loads, ("shared", "loads"): space(2, 64, 6, 2)}),
        record("st.global.f32", warps=1, lanes=30, category="store", spaces={("global", "stores"): stores}),
        record("ld.local.f32", warps=1, lanes=2, spaces={("local", "loads"): space(1, 2, 3, 1)}),
        record("cp.async", warps=1, lanes=32, spaces={("global", "copies"): space(1, 32, 9, 5)}, unseen=True),
        record("cp.async", warps=3, lanes=96, unseen=True),
        record("fma.rn.f32", warps=4, lanes=100, category="single", precision="single", operations=2),
        record("add.f32", warps=1, lanes=32, category="single", precision="single", operations=1),
        record("bra", warps=5, lanes=150, category="branch", divergent=2),
        record("bar.sync", warps=6, lanes=192, category="barrier"),
        record("bar.warp.sync", warps=7, lanes=224, category="barrier"),
        record("barrier.cluster.arrive", warps=8, lanes=256, category="barrier"),
        record(
            "atom.global.add.u32", warps=2, lanes=40, category="atomic", addresses=3, rounds=50,
            spaces={("global", "atomics"): space(2, 40, 7, 0), ("shared", "atomics"): space(1, 5, 0, 0)},
        ),
    ]  # fmt: skip
    counts = counts_of(records)
    assert counts.instructions == 41
    assert counts.thread_instructions == 64 + 30 + 2 + 32 + 96 + 100 + 32 + 150 + 192 + 224 + 256 + 40
    assert counts.active_lanes == counts.thread_instructions / 41
    assert counts.flops == {"single": 232}
    assert counts.kinds["single"] == 5
    assert sum(counts.kinds.values()) == 41
    assert counts.global_.loads == Requests(2, 64, 256, 16, 8)
    assert counts.global_.stores == Requests(1, 32, 128, 4, 4)
    assert counts.global_.all == Requests(4, 128, 512, 29, 17)
    assert (counts.global_.all.bytes_moved, counts.global_.coalescing) == (29 * 32, 29 / 17)
    assert (counts.global_.requests, counts.global_.bytes, counts.global_.sectors) == (4, 512, 29)
    assert counts.local.loads == Requests(1, 2, 8, 3, 1)
    assert counts.shared.loads == SharedRequests(2, 64, 256, 6, 2)
    assert (counts.shared.requests, counts.shared.wavefronts, counts.shared.bank_conflicts) == (2, 6, 4)
    assert counts.atomics == Atomics(3, 45, 7, 3, 50)
    assert counts.atomics.contention == 50 / 3
    assert (counts.barrier_waits, counts.branches, counts.divergent_branches) == (6, 5, 2)
    assert counts.not_counted == {"cp.async": 4}
    plain = counts.to_dict()
    assert "global_" not in plain
    assert (plain["global"]["coalescing"], plain["local"]["coalescing"]) == (29 / 17, 3)
    assert (plain["shared"]["bank_conflicts"], plain["atomics"]["contention"]) == (4, 50 / 3)
    assert plain["active_lanes"] == counts.active_lanes


def test_lines_are_in_order_and_have_their_instructions_counts() -> None:
    found = lines_of([record(line=3, warps=1), record(line=2, warps=2), record(line=3, warps=4)])
    assert [(each.file, each.line, each.text, each.counts.instructions) for each in found] == [
        ("k.cu", 2, "line 2", 2),
        ("k.cu", 3, "line 3", 5),
    ]
    (bare,) = lines_of([record(text="", warps=1), record("st.f32", text="", warps=1), record(text="", warps=1)])
    assert bare.text == "ld.global.f32, st.f32"


def test_a_report_of_kernels() -> None:
    tally = Tally()
    for name, launches in (("first", 1), ("s" * 60, 2)):
        tally.kernels[name] = Kernel(name, launches, records={0: record(warps=launches, lanes=32 * launches)})
    tally.kernels["first"].records[1] = record("tex.2d", warps=3, lanes=96, unseen=True)
    text = str(Report(tally))
    head, first, second, whole, missing = text.splitlines()
    assert head.split()[:4] == ["kernel", "launches", "instructions", "lanes"]
    assert first.split()[:4] == ["first", "1", "4", "32.0"]
    assert second.split()[:4] == ["s" * 47 + "…", "2", "2", "32.0"]
    assert whole.split()[:4] == ["all", "3", "6", "32.0"]
    assert missing == "not in the counts of memory: tex.2d (3)"
    assert repr(Report(tally)) == "<Report of 2 kernels, 6 instructions>"
    assert repr(Report(tally).kernels["first"]) == "<first: 1 launch, 4 instructions>"
    del tally.kernels["s" * 60]
    assert len(str(Report(tally)).splitlines()) == 3


# ── lines ──


def line(number: int, instructions: int, file: str = "k.cu", **counts: Any) -> Line:
    return Line(file, number, f"text {number}", Counts(instructions=instructions, **counts))


def test_what_a_line_asked_of_memory() -> None:
    counts: dict[str, Any] = {
        "global_": Memory(Requests(1, 32, 128, 1234, 4), Requests(1, 32, 128, 4, 4)),
        "local": Memory(Requests(1, 32, 128, 7, 4)),
        "shared": Shared(SharedRequests(1, 32, 128, 5, 2)),
        "atomics": Atomics(2, 64, 1, 1, 3),
        "barrier_waits": 8,
        "branches": 9,
        "divergent_branches": 6,
    }
    words = [
        "1,238 sectors, least 8", "7 local sectors", "5 wavefronts, 3 conflicts", "64 atomics, 1.5 turns", "8 waits",
        "6 of 9 branches diverge",
    ]  # fmt: skip
    assert memory_of(line(1, 1, **counts)) == "; ".join(words)
    for (name, value), word in zip(
        {key: counts[key] for key in counts if key != "branches"}.items(), words, strict=True
    ):
        more: dict[str, Any] = {"branches": 9} if name == "divergent_branches" else {}
        assert memory_of(line(1, 1, **{name: value}, **more)) == word
    assert memory_of(line(1, 1, global_=Memory(Requests(1, 32, 128, 4, 4)))) == "4 sectors"
    assert memory_of(line(1, 1, shared=Shared(SharedRequests(1, 32, 128, 2, 2)))) == "2 wavefronts"
    assert memory_of(line(1, 1, branches=3)) == ""


def test_lines_are_shown_with_those_around(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text("".join(f"code {number}\n" for number in range(1, 21)))
    found = [line(number, count, str(file)) for number, count in ((1, 25), (5, 10), (10, 9), (20, 56))]
    ((name, shown),) = listing(found)
    assert name == str(file)
    assert [each.number for each in shown] == [1, 2, 3, 4, 5, 6, 0, 9, 10, 11, 0, 19, 20]
    assert [each.text for each in shown[:2]] == ["code 1", "code 2"]
    heats = {each.number: each.heat for each in shown if each.line is not None}
    assert heats == {1: 2, 5: 1, 10: 0, 20: 2}
    assert [round(each.share, 2) for each in shown if each.line is not None] == [0.25, 0.10, 0.09, 0.56]
    text = annotated(found, False).splitlines()
    assert text[:3] == [str(file), "     1  25.0 %    code 1", "     2            code 2"]
    assert text[7] == "     …"
    tinted = annotated(found, True).splitlines()
    assert tinted[1] == "\x1b[31m     1  25.0 %    code 1\x1b[0m"
    assert tinted[2] == "\x1b[2m     2            code 2\x1b[0m"
    assert tinted[5] == "\x1b[33m     5  10.0 %    code 5\x1b[0m"
    assert tinted[9] == "    10   9.0 %    code 10"


def test_lines_of_what_stands_in_no_file() -> None:
    ((_, shown),) = listing([line(3, 1, "nowhere.cu"), line(6, 1, "nowhere.cu")])
    assert [(each.number, each.text) for each in shown] == [(3, "text 3"), (4, ""), (5, ""), (6, "text 6")]
    assert all(each.share == 0.5 for each in shown if each.line)
    files = [name for name, _ in listing([line(3, 1, "a.cu"), line(1, 3, "b.cu")])]
    assert files == ["a.cu", "b.cu"]


@pytest.mark.parametrize(
    ("counts", "heat"),
    [
        ({"global_": Memory(Requests(1, 32, 128, 16, 4))}, 2),
        ({"global_": Memory(Requests(1, 32, 128, 15, 4))}, 0),
        ({"shared": Shared(SharedRequests(1, 32, 128, 5, 2))}, 2),
        ({"shared": Shared(SharedRequests(1, 32, 128, 4, 2))}, 0),
    ],
)
def test_lines_that_waste_are_hot(counts: dict[str, Any], heat: int) -> None:
    ((_, shown),) = listing([line(1, 1, **counts), line(50, 99)])
    assert shown[0].heat == heat


# ── rooflines ──


def test_cards() -> None:
    assert {name: card.gigabytes_per_s for name, card in CARDS.items()} == {
        "H200": 4800, "H100": 3350, "A100": 2039, "L40S": 864, "L4": 300, "T4": 320, "RTX 4090": 1008, "RTX 3090": 936
    }  # fmt: skip
    assert card_of("a100") is CARDS["A100"]
    assert (CARDS["A100"].teraflops("tensor"), CARDS["A100"].teraflops("double")) == (312, 9.7)
    assert CARDS["H200"].ridge("single") == 67_000 / 4800
    for card in CARDS.values():
        assert card.double < card.single <= card.half < card.tensor
        assert card.source
    with pytest.raises(ArgumentError, match="unknown card 'none'; expected one of H200, H100"):
        card_of("none")


CARD = Card("test", 1000, 100, 50, 200, 400, "nowhere")


@pytest.mark.parametrize(
    ("intensity", "best", "share", "limit"),
    [
        (1, 50, 0.5, "memory"),
        (1, 99.5, 0.995, "memory"),
        (1, 100, 1, "memory or arithmetic, as the caches have it"),
        (99, 200, 1, "memory or arithmetic, as the caches have it"),
        (100, 200, 1, "arithmetic"),
    ],
)
def test_what_limits(intensity: float, best: float, share: float, limit: str) -> None:
    roof = Roof(CARD, "single", intensity, best)
    assert (roof.share, roof.limit) == (share, limit)
    between = f"{intensity:.3g} to {best:.3g} flop/byte (single)"
    assert str(roof) == f"{between}; test needs 100 for all of its 100 Tflop/s: limited by {limit}"


def test_the_roofline_is_drawn_to_its_axes() -> None:
    roof = Roof(CARD, "single", 1.0, 1000.0)
    text = page([], Counts(flops={"single": 1}), roof, [], [])
    drawn = re.search(r'<svg role="img" aria-label="roofline".*?</svg>', text)
    assert drawn is not None
    numbers = r'points="([\d.]+),([\d.]+) ([\d.]+),([\d.]+) ([\d.]+),([\d.]+)"'
    line = re.search(numbers, drawn[0])
    assert line is not None
    x0, y0, x1, y1, x2, y2 = map(float, line.groups())
    # From 0.01 flop/byte, where memory allows 0.01 Tflop/s, to the ridge at 100, and level to 10,000.
    low, high, top, bottom = -2, 4, 8, 208
    floor, ceiling = -2.0, log10(100) + 0.4
    assert (x0, x2) == (44, 344)
    assert x1 == pytest.approx(44 + 300 * (log10(100) - low) / (high - low), abs=0.06)
    assert y0 == pytest.approx(bottom, abs=0.06)
    assert y1 == y2 == pytest.approx(top + 200 * (1 - (log10(100) - floor) / (ceiling - floor)), abs=0.06)
    marks = [
        tuple(map(float, each)) for each in re.findall(r'<circle class="mark" cx="([\d.]+)" cy="([\d.]+)"', drawn[0])
    ]
    assert len(marks) == 2
    assert marks[0] == pytest.approx((44 + 300 * 2 / 6, top + 200 * (1 - 2 / (ceiling - floor))), abs=0.06)
    assert marks[1] == pytest.approx((44 + 300 * 5 / 6, y1), abs=0.06)
    assert re.findall(r'text-anchor="middle">([\d.e+-]+)<', drawn[0]) == [
        "0.01",
        "0.1",
        "1",
        "10",
        "100",
        "1000",
        "10000",
    ]
    assert re.findall(r'text-anchor="end">([\d.e+-]+)<', drawn[0]) == ["0.01", "0.1", "1", "10", "100"]


# ── rules ──


def kernel(target: str, threads: int, blocks: int, shared: int = 0, **sizes: int) -> Kernel:
    variables = {name: Variable(name, "shared", "b8", size, 4) for name, size in sizes.items()}
    function = Function(
        "k", True, code=[given("mov.u32", Register("%r1"), *map(Symbol, variables))], variables=variables
    )
    made = Kernel("k", 1, blocks, blocks * threads)
    made.geometry = Geometry((blocks, 1, 1), (threads, 1, 1), shared_bytes=shared)
    made.program, made.entry = Program(target, {}, {"k": function}), "k"
    return made


@pytest.mark.parametrize(
    ("number", "threads", "blocks", "shared"),
    [
        (75, 1024, 16, 64),
        (80, 2048, 32, 164),
        (86, 1536, 16, 100),
        (87, 1536, 16, 164),
        (89, 1536, 24, 100),
        (90, 2048, 32, 228),
        (100, 2048, 32, 228),
        (103, 2048, 32, 228),
    ],
)
def test_what_fits_a_multiprocessor(number: int, threads: int, blocks: int, shared: int) -> None:
    few = threads // (2 * blocks) // 32 * 32
    assert list(on_launch(kernel(f"sm_{number}a", few, blocks + 1))) == [
        f"a multiprocessor of sm_{number}a takes {blocks} blocks at once, which with {few} threads each are "
        f"{blocks * few:,} of {threads:,} threads"
    ]
    assert list(on_launch(kernel(f"sm_{number}", few, blocks))) == []
    assert list(on_launch(kernel(f"sm_{number}", few + 32, blocks + 1))) == []
    size = shared * 512 - 1024  # two blocks just fit, with what is reserved of each
    wanted = f"a block takes {size + 1024:,} bytes of shared memory, of which a multiprocessor of sm_{number} has "
    (words,) = on_launch(kernel(f"sm_{number}", 64, 3, size - 100, tile=100))
    assert words == f"{wanted}{shared * 1024:,}: 2 blocks at once, 128 of {threads:,} threads"
    (words,) = on_launch(kernel(f"sm_{number}", 64, 3, size + 1))
    assert words.endswith(f": 1 block at once, 64 of {threads:,} threads")
    assert list(on_launch(kernel(f"sm_{number}", 64, 2, size))) == []
    assert list(on_launch(kernel(f"sm_{number}", threads // 8, 3, size))) != []
    assert list(on_launch(kernel(f"sm_{number}", threads // 8 + 32, 3, size))) == []


def test_blocks_of_threads_that_are_no_whole_warps() -> None:
    (words,) = on_launch(kernel("sm_70", 33, 1))
    assert words == "blocks of 33 threads leave 31 of 32 lanes of their last warp idle: take a multiple of 32"
    assert len(list(on_launch(kernel("sm_70", 31, 2)))) == 1
    for threads, blocks in ((31, 1), (32, 2), (64, 1)):
        assert list(on_launch(kernel("sm_70", threads, blocks))) == []


def advice(found: Record, block: tuple[int, int, int] = (32, 1, 1), *others: Record) -> list[str]:
    made = Kernel("k", 1, records=dict(enumerate([found, *others])))
    made.geometry = Geometry((1, 1, 1), block)
    return [text for each, text in on_accesses(made) if each is found]


def loads(taken: int, least: int = 4, lanes: int = 32, **pattern: Any) -> Record:
    spaces = {("global", "loads"): space(1, lanes, taken, least)}
    return record(spaces=spaces, patterns={"global": Pattern(array="x", **pattern)})


def test_accesses_that_are_scattered() -> None:
    assert advice(loads(16, steady=False)) == [
        "16 sectors a request where 4 suffice: the accesses of a warp are scattered over x"
    ]
    assert advice(loads(15, steady=False)) == []
    assert advice(loads(16)) != []  # without a stride
    assert advice(loads(4, steady=False)) == []


def test_accesses_that_are_not_aligned() -> None:
    begins = "; give an array that begins at a multiple of 32 bytes"
    assert advice(loads(5, stride=4, begins=8)) == [
        f"5 sectors a request where 4 suffice: x begins 8 bytes into a sector{begins}"
    ]
    assert advice(loads(5, stride=-4, begins=8)) != []
    for other in ({"begins": 8, "is_aligned": False}, {"begins": 0}, {"begins": 8, "lanes": 15}):
        assert advice(loads(5, stride=4, **other)) == []
    assert advice(loads(5, stride=4, begins=8, lanes=16)) != []
    rows = "the rows of x are 1,000 bytes long; pad them to a multiple of 32"
    assert advice(loads(5, stride=4, pitch=1000)) == [f"5 sectors a request where 4 suffice: {rows}"]
    for other in (
        {"pitch": 1024},
        {"pitch": 1000, "rows_aligned": False},
        {"pitch": 1000, "begins": 4, "is_aligned": False},
    ):
        assert advice(loads(5, stride=4, **other)) == []
    few = record(
        spaces={("global", "loads"): space(10, 320, 47, 40)}, patterns={"global": Pattern("x", stride=4, begins=8)}
    )
    assert advice(few) == []
    few.spaces["global", "loads"].used = 48
    assert advice(few) != []


def test_accesses_that_are_far_apart() -> None:
    assert advice(loads(32, stride=64)) == [
        "32 sectors a request where 4 suffice: neighbouring threads access x 64 bytes apart; let them access "
        "neighbouring elements, or each what lies between at once"
    ]
    (words,) = advice(loads(32, stride=2048, pitch=1024), (32, 8, 1))
    assert words.endswith("; threadIdx.x runs along the slow axis of x (2,048 bytes a step): swap the indices")
    (words,) = advice(loads(32, stride=2048, pitch=1024), (8, 8, 1))
    assert "; neighbouring threads run along the slow axis of x" in words
    (words,) = advice(loads(32, stride=2048, pitch=1024))
    assert words.endswith("(2,048 bytes a step): let them access neighbouring elements")
    along = record(spaces={("global", "stores"): space(1, 32, 4, 4)}, patterns={"global": Pattern("y", pitch=256)})
    (words,) = advice(loads(32, stride=2048, pitch=1024), (32, 8, 1), along)
    assert words.endswith(", and along the fast one of y: go by a tile in shared memory")
    (words,) = advice(loads(8, stride=12, pitch=12))
    assert "x holds 12 bytes together, of which neighbouring threads access a part at a time" in words
    (words,) = advice(loads(8, stride=20, pitch=20))
    assert "together" not in words
    parts = [loads(8, stride=32, is_struct=True, members={first}) for first in (0, 4)]
    assert "x holds 32 bytes together" in advice(parts[0], (32, 1, 1), parts[1])[0]
    assert "together" not in advice(parts[0])[0]


def shared(taken: int, stride: int | None, size: int = 4, least: int = 1, steady: bool = True) -> Record:
    spaces = {("shared", "loads"): space(1, 32, taken, least, size)}
    return record(spaces=spaces, patterns={"shared": Pattern(stride=stride, steady=steady)})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (shared(32, 128), "neighbouring threads access one bank, 32 words apart; pad the rows by one word"),
        (shared(32, -256), "neighbouring threads access one bank, 64 words apart; pad the rows by one word"),
        (
            shared(32, 128, 8),
            "neighbouring threads access one bank, 32 words apart; pad the rows by one element of 8 bytes",
        ),
        (shared(32, 128, 2), "neighbouring threads are 32 words apart, which meets 1 of 32 banks"),
        (shared(2, 8), "neighbouring threads are 2 words apart, which meets 16 of 32 banks"),
        (shared(4, None), "bank conflicts"),
        (shared(4, 6), "bank conflicts"),
        (shared(4, 128, steady=False), "bank conflicts"),
        (shared(3, None), ""),
        (shared(1, 128), ""),
    ],
)
def test_bank_conflicts(found: Record, words: str) -> None:
    taken = next(iter(found.spaces.values())).used
    wanted = [f"{taken} wavefronts of shared memory a request where 1 would do: {words}"] if words else []
    assert advice(found) == wanted


def test_averages_are_shown_with_one_decimal() -> None:
    found = record(spaces={("global", "loads"): space(2, 64, 33, 3)}, patterns={"global": Pattern("x", stride=64)})
    assert advice(found)[0].startswith("16.5 sectors a request where 1.5 suffice: ")
    one = record(spaces={("global", "loads"): space(2, 64, 8, 2)}, patterns={"global": Pattern("x", stride=64)})
    assert advice(one)[0].startswith("4 sectors a request where 1 suffices: ")


def test_registers_that_an_operand_names() -> None:
    register = Register("%r1")
    for operand, names in (
        (register, True),
        (Register("%r2"), False),
        (Address(register, 4), True),
        (Parts("vector", (Register("%r2"), register)), True),
        (Parts("vector", (Register("%r2"), Address(Register("%r3"), 0))), False),
    ):
        assert _names(operand, register) is names


# ── patterns and groups ──


def machine(blocks: int, threads: int) -> Any:
    warps = -(-threads // 32)
    lanes = np.arange(blocks * threads)
    return SimpleNamespace(
        blocks=blocks,
        threads=threads,
        lanes=lanes.size,
        lane_id=(lanes % threads % 32).astype(np.uint32),
        warp_of=lanes // threads * warps + lanes % threads // 32,
    )


def test_patterns_of_requests() -> None:
    group, lanes = Group(machine(1, 64), None), np.arange(64, dtype=np.uint64)
    array = np.zeros((4, 25), np.float32)
    piece: Any = SimpleNamespace(name="x", address=1024 + 8, end=1024 + 8 + 400, owner=array)
    pattern = Pattern()
    pattern.begin_launch(piece, 0, 1)
    assert (pattern.array, pattern.begins, pattern.pitch, pattern.is_struct) == ("x", 8, 100, False)
    pattern.add(group, 1032 + 4 * lanes)
    assert (pattern.stride, pattern.steady, pattern.members, pattern.is_aligned) == (4, True, {0}, True)
    assert not pattern.rows_aligned  # the second warp begins 28 bytes into a row
    pattern.begin_launch(piece, 0, 2)
    assert pattern.steady
    pattern.add(group, 1034 + 4 * lanes)
    assert (pattern.members, pattern.is_aligned) == ({0, 2}, False)
    pattern.add(group, 1032 + 3 * lanes)
    assert (pattern.steady, pattern.stride) == (False, None)
    outside = Pattern()
    outside.begin_launch(piece, 0, 1)
    outside.add(group, 1432 + 4 * lanes)
    assert not outside.steady
    moved = Pattern()
    moved.begin_launch(piece, 0, 1)
    moved.begin_launch(SimpleNamespace(name="x", address=1024, end=2048, owner=array), 0, 2)  # type: ignore[arg-type]
    assert not moved.steady
    struct = Pattern()
    struct.begin_launch(SimpleNamespace(name="s", address=64, end=128, owner=np.zeros(3, "i4, f4")), 0, 1)  # type: ignore[arg-type]
    assert (struct.is_struct, struct.pitch, struct.begins) == (True, 0, 0)


@pytest.mark.parametrize(
    ("blocks", "threads", "index", "lanes"),
    [
        (2, 64, None, 64),
        (1, 64, None, None),
        (2, 64, [1, 3, 65, 67], 2),
        (2, 64, [1, 3, 65, 68], None),
        (2, 64, [1, 3, 65], None),
        (2, 33, None, 33),
    ],
)
def test_lanes_of_the_first_block_where_all_have_the_same(
    blocks: int, threads: int, index: list[int] | None, lanes: int | None
) -> None:
    first = Group(machine(blocks, threads), None if index is None else np.array(index)).of_first_block
    assert (None if first is None else first.lanes) == lanes


@pytest.mark.parametrize(("threads", "warps", "sizes"), [(64, 2, [32, 32]), (33, 2, [32, 1]), (70, 3, [32, 32, 6])])
def test_lanes_by_warps(threads: int, warps: int, sizes: list[int]) -> None:
    group = Group(machine(1, threads), None)
    assert (group.warps, group.lanes, group.is_full) == (warps, threads, threads % 32 == 0)
    assert group.sizes[1].tolist() == sizes
    rows = [*group.pieces(np.arange(threads), 1)]
    assert len(rows) == warps
    last, there = rows[-1]
    first = 32 * (warps - 1)
    assert last[0, : sizes[-1]].tolist() == list(range(first, threads))
    assert set(last[0, sizes[-1] :].tolist()) <= {first}
    assert (there is None) == group.is_full
    assert there is None or there[0].tolist() == [True] * sizes[-1] + [False] * (32 - sizes[-1])
