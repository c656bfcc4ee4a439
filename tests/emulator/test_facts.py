"""The table of facts has a row for each instruction that runs, and is asked by all that ask about instructions."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
from support.syntax import MODULES, PACKAGE, nodes_of

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.isa.facts import FACTS, UNKNOWN, facts_of, is_strong, polls, sources, targets, touches
from cudakit.emulator.machine.decode import CONTROLS, INSTRUCTIONS
from cudakit.emulator.machine.kernel_memory import frame_bytes
from cudakit.emulator.ptx.program import Instruction

pytestmark = pytest.mark.emulator


def instruction(text: str) -> Instruction:
    """An instruction as it is parsed."""
    registers = ".reg .pred %p<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .b32 place;"
    program = emulator.parse(
        f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f() {{ {registers} END: {text}; ret; }}"
    )
    return program.functions["f"].code[0]


def named(name: str) -> Instruction:
    opcode, *modifiers = name.split(".")
    return Instruction(opcode, tuple(modifiers), (), None, 0, None)


def test_each_instruction_that_runs_has_a_row() -> None:
    makers = {**INSTRUCTIONS, **CONTROLS}
    assert not INSTRUCTIONS.keys() & CONTROLS.keys()
    for name in makers:
        assert facts_of(named(name)) is not UNKNOWN, f"{name} has no row in facts.py"


def test_each_row_is_of_an_instruction_that_runs() -> None:
    makers = {**INSTRUCTIONS, **CONTROLS}
    for name in FACTS:
        parts = name.split(".")
        names = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
        assert names & makers.keys(), f"{name} in facts.py is no instruction that runs"


def test_the_row_with_the_most_modifiers_is_taken() -> None:
    for name, text in {
        "bar": "bar.sync 0",
        "bar.red": "bar.cta.red.popc.u32 %r1, 0, %p1",
        "barrier.cluster.arrive": "barrier.cluster.arrive.release.aligned",
        "cp.async.bulk.prefetch.tensor": "cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%d1, {%r1}]",
        "mbarrier.try_wait": "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2",
    }.items():
        assert facts_of(instruction(text)) is FACTS[name]
    assert facts_of(named("tcgen05.shift.down")) is UNKNOWN


@pytest.mark.parametrize(
    ("text", "written", "read"),
    [
        ("add.s32 %r1, %r1, %r2", ["%r1"], ["%r1", "%r2"]),
        ("@%p1 shfl.sync.bfly.b32 %r1|%p2, %r2, 1, 31, %r3", ["%r1", "%p2"], ["%r2", "%r3", "%p1"]),
        ("st.global.v2.b32 [%d1], {%r1, %r2}", [], ["%d1", "%r1", "%r2"]),
        ("bar.sync %r1, %r2", [], ["%r1", "%r2"]),
        ("bar.red.popc.u32 %r1, 0, %p1", ["%r1"], ["%p1"]),
        ("barrier.cta.red.and.pred %p1, %r2, %p2", ["%p1"], ["%r2", "%p2"]),
        ("stackrestore.u64 %d1", [], ["%d1"]),
        ("nanosleep.u32 %r1", [], ["%r1"]),
        ("call %d1, (), proto", [], ["%d1"]),
        ("mbarrier.arrive.shared.b64 _, [%r1]", [], ["%r1"]),
        ("mbarrier.expect_tx.shared.b64 [%r1], %r2", [], ["%r1", "%r2"]),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r1, %r2}, %d1, %d2, %p1, 1, 1, 0, 0",
         ["%r1", "%r2"], ["%r1", "%r2", "%d1", "%d2", "%p1"]),
    ],
)  # fmt: skip
def test_what_an_instruction_writes_and_reads(text: str, written: list[str], read: list[str]) -> None:
    assert (targets(instruction(text)), sources(instruction(text))) == (written, read)


@pytest.mark.parametrize(
    ("text", "strong", "asks"),
    [
        ("ld.global.b32 %r1, [%d1]", False, False),
        ("ld.weak.global.b32 %r1, [%d1]", False, False),
        ("ld.volatile.global.b32 %r1, [%d1]", True, True),
        ("ld.acquire.cta.global.b32 %r1, [%d1]", True, True),
        ("st.release.gpu.global.b32 [%d1], %r1", True, False),
        ("atom.global.add.u32 %r1, [%d1], %r2", True, True),
        ("red.global.add.u32 [%d1], %r2", True, False),
        ("nanosleep.u32 %r1", False, True),
        ("mbarrier.init.shared.b64 [%r1], %r2", False, False),
        ("mbarrier.test_wait.shared.b64 %p1, [%r1], %d1", False, True),
    ],
)
def test_what_is_strong_and_what_polls(text: str, strong: bool, asks: bool) -> None:
    assert (is_strong(instruction(text)), polls(instruction(text))) == (strong, asks)


def test_a_function_is_called_by_the_pointer_that_an_exchange_gave() -> None:
    """An exchange whose result nobody reads leaves its register; a call through a pointer reads it."""
    kernel = ck.Kernel("""
        __device__ int seen;
        __device__ __noinline__ void one() { seen = 1; }
        __device__ __noinline__ void two() { seen = 2; }
        __global__ void f(unsigned long long* slot, int* out, int which) {
            *slot = (unsigned long long)(which ? &two : &one);
            auto take = (void (*)())atomicExch(slot, 0ull);
            take();
            out[0] = seen;
        }""")
    slot, out = np.ones(1, "u8"), np.zeros(1, "i4")
    kernel(emulator.stream(), ck.config(1, 1), slot, out, 1)
    assert (out[0], slot[0]) == (2, 0)


def test_a_frame_keeps_no_result_of_a_barrier() -> None:
    """Registers that `bar.red` writes hold nothing that a call before it would have to keep."""
    program = emulator.parse("""
        .version 8.0
        .target sm_90
        .address_size 64
        .func g() { ret; }
        .visible .entry f(.param .u64 f_0) {
            .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %d<2>;
            ld.param.u64 %d1, [f_0];
            call g, ();
            setp.ne.s64 %p1, %d1, 0;
            bar.red.popc.u32 %r1, 0, %p1;
            bar.red.popc.u32 %r2, 0, %p1;
            st.global.v2.u32 [%d1], {%r1, %r2};
            ret;
        }""")
    assert frame_bytes(program.functions["f"], 0) == 24  # five words: the way back, and %d1


#: Names of operations, which stand behind the opcodes of atomic operations, reductions and comparisons.
OPERATIONS = {"add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas", "popc"}
#: What the parser, which stands below the table, has by itself: how a body ends, and what moves vectors.
ENDS, ACCESSES = ("ret", "exit", "bra", "trap"), ("ld", "ldu", "st", "atom", "red")
#: What one maker tells apart of its own opcodes, by file.
KNOWN = {
    "emulator/compiled/emit/bits.py": {("clz", "popc", "brev")},
    "emulator/compiled/emit/rounding.py": {("mul", "fma", "mad", "div")},
    "emulator/instructions/floating.py": {("add", "sub", "mul", "fma", "mad", "div")},
    "emulator/instructions/video.py": {("vadd", "vsub", "vabsdiff")},
    "emulator/ptx/body.py": {ENDS, ACCESSES},
}


def sets_of_opcodes(nodes: Iterable[ast.AST]) -> list[tuple[str, ...]]:
    """Containers of three or more strings that are all opcodes; a dict of functions is no set, but what is done."""
    opcodes = {name.partition(".")[0] for name in FACTS}
    sets = []
    for node in nodes:
        parts: Sequence[ast.AST | None] = ()
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = node.elts
        elif isinstance(node, ast.Dict) and all(isinstance(value, ast.Constant | ast.Tuple) for value in node.values):
            parts = node.keys
        elif isinstance(node, ast.MatchOr):
            parts = [each.value for each in node.patterns if isinstance(each, ast.MatchValue)]
        names = [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = node.value.split()
        if len(names) >= max(3, len(parts)) and opcodes.issuperset(names) and not OPERATIONS.issuperset(names):
            sets.append(tuple(names))
    return sets


@pytest.mark.parametrize(
    "text",
    ["x = {'ld', 'st', 'bra'}", "x in ('ld', 'st', 'bra')", "x = {'ld': 0, 'st': 1, 'bra': 1}",
     "x = 'ld st bra'.split()", "match x:\n    case 'ld' | 'st' | 'bra': pass"],
)  # fmt: skip
def test_a_set_of_opcodes_is_seen(text: str) -> None:
    assert sets_of_opcodes(ast.walk(ast.parse(text))) == [("ld", "st", "bra")]
    assert not sets_of_opcodes(ast.walk(ast.parse(text.replace("st", "stop"))))


def test_sets_of_opcodes_stand_in_the_table_alone() -> None:
    rooms = ("emulator/", "proof/")
    names = {path.relative_to(PACKAGE).as_posix(): path for path in MODULES}
    for name, path in names.items():
        if name.startswith(rooms) and not name.startswith("emulator/isa/"):
            others = set(sets_of_opcodes(nodes_of(path))) - KNOWN.get(name, set())
            assert not others, f"{name}: ask cudakit/emulator/isa/facts.py instead of {others}"


def test_the_parser_s_opcodes_are_what_the_table_says() -> None:
    assert all(FACTS[name].does in ("branches", "leaves", "stops") for name in ENDS)
    assert all(touches(named(name)) for name in ACCESSES)
