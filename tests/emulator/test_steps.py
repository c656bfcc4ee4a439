"""Steps of instructions by themselves: late copies, accesses as watchers see them, launches by kernels, pieces."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.instructions import words
from cudakit.emulator.instructions.access import accesses_of
from cudakit.emulator.instructions.control import CALLS
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import parse

pytestmark = pytest.mark.emulator

PROGRAM = """.version 8.4
.target sm_90a
.address_size 64
.const .align 4 .u32 fixed = 7;
.visible .entry f(.param .u64 x) {{
    .shared .align 128 .b8 s[2048]; .local .align 16 .b8 l[64];
    .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .b64 %d<6>; .reg .f32 %f<6>; .reg .pred %p<4>;
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [x]; mov.u32 %r9, s;
    {body}
    ret;
}}
"""


def late(body: str, x: np.ndarray, block: int = 32) -> np.ndarray:
    """Run PTX where asynchronous copies land when they are waited for."""
    program, memory = parse(PROGRAM.format(body=body)), Memory()
    loaded, address = Module(program, memory), memory.add(x, "x")
    geometry = emulator.Geometry((1, 1, 1), (block, 1, 1))
    emulator.run(
        emulator.Launch(
            loaded, program.functions["f"], geometry, struct.pack("<Q", address), step_budget=10_000, late=True
        )
    )
    return x


# ── copies that land late ──

COPY = """
    shl.b32 %r1, %r0, 4; add.u32 %r1, %r1, %r9; cvt.u64.u32 %d1, %r0; shl.b64 %d1, %d1, 4; add.u64 %d1, %d1, %d0;
    mov.u64 %d2, 0; st.shared.v2.u64 [%r1], {%d2, %d2};
    """
STORE = "ld.shared.u32 %r2, [%r1]; mad.wide.u32 %d3, %r0, 4, %d0; st.global.u32 [%d3+512], %r2;"


def numbers() -> np.ndarray:
    """A row of four words for each of 32 threads, and words that they write."""
    found = np.zeros(128 + 64, "u4")
    found[:128] = np.arange(1, 129)
    return found


@pytest.mark.parametrize("size", [4, 8, 16])
def test_a_copy_is_not_there_before_it_is_waited_for(size: int) -> None:
    copy = f"{COPY} cp.async.ca.shared.global [%r1], [%d1], {size};"
    assert not late(f"{copy} cp.async.commit_group; {STORE} cp.async.wait_all;", numbers())[128:160].any()
    assert not late(f"{copy} cp.async.commit_group; cp.async.wait_group 1; {STORE}", numbers())[128:160].any()
    for wait in ("cp.async.wait_all;", "cp.async.commit_group; cp.async.wait_group 0;"):
        found = late(f"{copy} {wait} {STORE}", numbers())
        assert found[128:160].tolist() == list(range(1, 129, 4))


def test_what_a_copy_reads_and_where_it_lands_is_known_when_it_is_issued() -> None:
    """The registers of its addresses change before it is waited for."""
    found = late(
        f"{COPY} cp.async.ca.shared.global [%r1], [%d1], 16; mov.u32 %r3, %r1; mov.u32 %r1, 0; mov.u64 %d1, 0;"
        f"cp.async.wait_all; mov.u32 %r1, %r3; {STORE}",
        numbers(),
    )
    assert found[128:160].tolist() == list(range(1, 129, 4))


def test_bytes_past_the_source_are_zero() -> None:
    found = late(
        f"{COPY} mov.u32 %r4, 6; cp.async.ca.shared.global [%r1], [%d1], 8, %r4; cp.async.wait_all;"
        f"add.u32 %r1, %r1, 4; {STORE}",
        numbers() + np.uint32(0x50000),
    )
    assert found[128:160].tolist() == [k & 0xFFFF for k in range(2, 130, 4)]


@pytest.mark.parametrize(
    ("copy", "why"),
    [
        ("cp.async.ca.shared.global [%r9+2048], [%d0], 16;", "outside its 2048 bytes"),
        ("cp.async.ca.shared.global [%r9+2040], [%d0], 16;", "not aligned to 16 bytes"),
        ("cp.async.ca.shared.global [%r9], [%d0+768], 16;", "outside every array"),
        ("cp.async.ca.shared.global [%r9], [%d0+760], 16;", "not aligned to 16 bytes"),
        ("cp.async.ca.shared.global [%r9], [%d0+766], 4;", "not aligned to 4 bytes"),
    ],
)
def test_a_late_copy_that_cannot_be_is_an_error_where_it_is_issued(copy: str, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=rf"cp\.async\.ca.*{why}"):
        late(f"{copy} ret;", numbers())


@pytest.mark.parametrize("modifier", ["noinc.", ""])
def test_an_arrival_of_copies_waits_for_them(modifier: str) -> None:
    """Without ``.noinc`` the thread arrives by itself, too."""
    arrives = "" if modifier else "mbarrier.arrive.shared.b64 %d4, [%r9+1024];"
    found = late(
        f"""{COPY}
        setp.eq.u32 %p0, %r0, 0; @%p0 mbarrier.init.shared.b64 [%r9+1024], 32; bar.sync 0;
        cp.async.ca.shared.global [%r1], [%d1], 16;
        cp.async.mbarrier.arrive.{modifier}shared.b64 [%r9+1024]; {arrives}
        AGAIN: mbarrier.try_wait.parity.shared.b64 %p1, [%r9+1024], 0; @!%p1 bra AGAIN;
        {STORE}""",
        numbers(),
    )
    assert found[128:160].tolist() == list(range(1, 129, 4))


# ── accesses ──


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ld.global.u32 %r1, [%d0];", [("global", 4, "loads")]),
        ("ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%d0];", [("global", 16, "loads")]),
        ("ld.shared.v2.u64 {%d1, %d2}, [%r9];", [("shared", 16, "loads")]),
        ("ldu.global.u8 %h1, [%d0];", [("global", 1, "loads")]),
        ("ld.u16 %h1, [%d0];", [("generic", 2, "loads")]),
        ("ld.const.u32 %r1, [fixed];", []),
        ("ld.param.u64 %d1, [x];", []),
        ("st.local.v2.u32 [l], {%r1, %r2};", [("local", 8, "stores")]),
        ("st.global.u8 [%d0], %h1;", [("global", 1, "stores")]),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r9], %r1, [%r9];", []),
        ("atom.global.add.u32 %r1, [%d0], %r2;", [("global", 4, "atomics")]),
        ("atom.shared.cas.b64 %d1, [%r9], %d2, %d3;", [("shared", 8, "atomics")]),
        ("red.global.add.u64 [%d0], %d1;", [("global", 8, "atomics")]),
        ("red.async.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r9], %r1, [%r9];", []),
        ("cp.async.ca.shared.global [%r9], [%d0], 8;", [("global", 8, "copies"), ("shared", 8, "copies")]),
        ("cp.async.ca.shared.global [%r9], [%d0], 16, %r1;", [("global", 16, "copies"), ("shared", 16, "copies")]),
        ("cp.async.commit_group;", []),
        ("cp.async.wait_group 0;", []),
        ("cp.async.mbarrier.arrive.shared.b64 [%r9];", []),
        ("cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r9], 16;", []),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%d0], [%r9], 16;", []),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r9];", [("shared", 16, "loads")]),
        ("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r9], {%r1};", [("shared", 16, "stores")]),
        ("add.u32 %r1, %r2, %r3;", []),
    ],
)
def test_how_instructions_access_memory(text: str, expected: Any) -> None:
    program = parse(PROGRAM.format(body=text))
    function = program.functions["f"]
    context = Module(program, Memory()).context(function)
    given = function.code[3]
    found = accesses_of(given, context)
    assert [(each.space, each.size, each.use) for each in found] == expected


def test_an_access_that_cannot_be_is_none() -> None:
    program = parse(PROGRAM.format(body=""))
    function = program.functions["f"]
    context = Module(program, Memory()).context(function)
    broken = SimpleNamespace(opcode="ld", modifiers=("global", "u32"), operands=function.code[0].operands)
    assert accesses_of(broken, context) == ()  # type: ignore[arg-type]


# ── launches by kernels ──


def rows(*values: Any) -> np.ndarray:
    """Arguments of lanes as their bytes, filled up to 16."""
    return np.array([list(struct.pack(*value).ljust(16, b"\0")) for value in values], np.uint8)


@pytest.mark.parametrize("prefix", ["cuda", "__cudaCDP2"])
def test_the_device_runtime_asks_the_machine_to_launch(prefix: str) -> None:
    asked: list[Any] = []

    def make(pointer: int, geometry: Any) -> int:
        asked.append((pointer, geometry))
        return 4096 * len(asked)

    machine: Any = SimpleNamespace(make_child=make, launch_child=lambda *given: asked.append(given))
    lanes = np.array([3, 5])
    pointers, shared = rows(("<Q", 2**63), ("<Q", 8)), rows(("<I", 48), ("<I", 2**31))
    grids, blocks = rows(("<3I", 1, 2, 3), ("<3I", 4, 5, 6)), rows(("<3I", 7, 8, 9), ("<3I", 10, 11, 12))
    found = CALLS[f"{prefix}GetParameterBufferV2"](machine, lanes, [pointers, grids, blocks, shared])
    assert found.tolist() == [4096, 8192]
    assert found.dtype == np.uint64
    assert asked == [
        (2**63, emulator.Geometry((1, 2, 3), (7, 8, 9), 48)),
        (8, emulator.Geometry((4, 5, 6), (10, 11, 12), 2**31)),
    ]
    asked.clear()
    found = CALLS[f"{prefix}LaunchDeviceV2"](
        machine, lanes, [rows(("<Q", 4096), ("<Q", 8192)), rows(("<Q", 3), ("<Q", 0))]
    )
    assert found == 0
    assert asked == [(4096, 3), (8192, 0)]


def test_the_device_runtime_makes_streams_and_succeeds() -> None:
    memory = Memory()
    held = np.zeros(4, "u8")
    base = memory.add(held, "streams")
    machine: Any = SimpleNamespace(memory=memory)
    memory.block_of = np.zeros(2, np.int64)
    given = [rows(("<Q", base + 8), ("<Q", base + 24)), rows(("<I", 1), ("<I", 1))]
    assert CALLS["cudaStreamCreateWithFlags"](machine, np.arange(2), given) == 0
    assert held[0] == held[2] == 0
    assert held[1] != held[3]
    assert min(held[1], held[3]) > 3
    for name in ("StreamDestroy", "GetLastError", "PeekAtLastError"):
        assert CALLS[f"cuda{name}"](machine, np.arange(2), []) == 0


# ── pieces ──


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
def test_a_chain_goes_over_lanes_in_pieces(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "PIECE", 10)
    sizes: list[int] = []

    def chain(x: Any, y: Any, z: Any) -> Any:
        sizes.append(np.size(x))
        return (x * y + z).astype(np.int16)

    x, y = np.arange(count), np.arange(count) % 7
    found = words.in_pieces(chain)(x, y, np.int64(3))
    assert found.dtype == np.int16
    assert found.tolist() == (x * y + 3).tolist()
    assert sizes == [10] * (count // 10) + [count % 10] * (count % 10 > 0)
    one = words.in_pieces(chain)(x, np.array([2]), np.array([1]))
    assert one.tolist() == (2 * x + 1).tolist()
