"""What is wrong ends cleanly and says where: PTX that is none, kernels that err, launches that are too large."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.emulated import of_numpy

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.machine import module
from cudakit.emulator.machine.machine import Launch, run
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.machine.state import Geometry
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Function

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .shared .b32 tile[8];\n"

SOURCE = """
    __constant__ int table[3] = {10, 20, 30};
    __device__ int counter = 7;
    struct S { const int* p; int a; int (*f)(int); };
    __device__ __noinline__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
    __device__ S things = {&counter, 5, factorial};
    __global__ __launch_bounds__(128) void f(int* out, long long n) {
        __shared__ int tile[4];
        int local[8], k = (int)n;
        for (int i = 0; i < 8; ++i) local[i] = out[i];
        tile[threadIdx.x] = threadIdx.x + things.f(k);
        __syncthreads();
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %0, 0; @p bra done; st.global.u32 [%1], %0; done: }"
                     :: "r"(k), "l"(out));
        switch (k) { case 0: out[5] = 3; break; case 1: out[6] = clock(); break; case 2: out[9] = 7; break;
                     case 3: out[k * 4] = 8; break; case 4: atomicAdd(out, 1); break; case 5: __trap(); }
        out[threadIdx.x] = tile[3 - threadIdx.x] + table[threadIdx.x % 3] + local[k] + __shfl_xor_sync(15, k, 1);
    }"""
_WORD = re.compile(r'"[^"]*"|[.%$\w:]+|[^\s]')


@cache
def ptx(lineinfo: bool) -> str:
    return ck.Kernel(SOURCE, options=ck.CompileOptions(lineinfo=lineinfo))[()].ptx(arch="sm_90")


def execute(text: str, budget: int | None = 2_000) -> np.ndarray:
    """Run the kernel in `text` on 16 integers and a 3, by four threads."""
    program = parse(text)
    memory = Memory()
    module = Module(program, memory)
    out = np.arange(16, dtype="i4")
    entry = next((f for f in program.functions.values() if f.is_entry and not f.is_declaration), None)
    if entry is not None:
        given = np.array([memory.add(out, "out"), 3], "i8").tobytes()
        run(Launch(module, entry, Geometry((1, 1, 1), (4, 1, 1)), given, lambda text: None, step_budget=budget))
    return out


def broken(instruction: str, registers: str = REGISTERS) -> str:
    """The message of a kernel whose fifth line is `instruction`."""
    with pytest.raises(ck.EmulationError) as caught:
        execute(f"{HEAD}.entry f(.param .u64 p, .param .u64 n) {{ {registers}{instruction}\nret; }}")
    return str(caught.value)


# ── PTX that is none ──


@pytest.mark.slow
@pytest.mark.parametrize("lineinfo", [False, True])
def test_ptx_cut_off_anywhere_names_a_line(lineinfo: bool) -> None:
    text = ptx(lineinfo)
    complete, wrong, lines = 0, 0, 0
    for end in range(0, len(text), 7):
        try:
            parse(text[:end])
            complete += 1
        except ck.EmulationError as error:
            named = re.match(r"PTX line (\d+): ", str(error))
            lines += int(named[1]) <= text[:end].count("\n") + 1 if named else 0
            wrong += 1
    # Only between two functions or variables is the text whole.
    assert complete < 100
    assert lines == wrong


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_ptx_with_a_word_lost_or_replaced_runs_or_names_a_line(seed: int) -> None:
    rng, text = random.Random(seed), ptx(False)
    spans = [found.span() for found in _WORD.finditer(text)]
    words = [text[start:end] for start, end in spans]
    words += ["((((", "{", "[", "\0", "é", "9" * 20, "0x", "%", "-", '"', "/*", "_", "0", "-1"]
    assert execute(text)[:4].tolist() != [0, 1, 2, 3]
    wrong, unplaced = 0, list[str]()
    for start, end in rng.sample(spans, 150):
        word = rng.choice(["", rng.choice(words)])
        began = time.monotonic()
        try:
            execute(text[:start] + word + text[end:])
        except ck.EmulationError as error:
            wrong += 1
            unplaced += [] if re.search(r"PTX line \d+", str(error)) else [str(error)]
        assert time.monotonic() - began < 10, (text[start:end], word)
    assert wrong > 75
    assert unplaced == []


@pytest.mark.parametrize(
    "text",
    [
        ".global .u32 x = " + "(" * 100_000,
        ".global .u32 x = " + "-" * 100_000 + "1;",
        ".global .u32 x[4] = " + "{" * 100_000,
        ".global .u32 x = 1" + "?1" * 10_000 + ";",
        ".global .u32 x[" + "9" * 5_000 + "];",
        ".global .u32 x[-1];",
        ".global .u32 x = 1 / (2 - 2);",
        ".global .u32 x[1] = {1, 2};",
        ".global .u32 x[1] = {{{1}}};",
        ".global .u32 x = 1.5;",
        ".global .u32 x = 0x1FFFFFFFFFFFFFFFFF;",
        ".global .u32 x = 08;",
        ".global .u32 x = 1",
        ".global .f32 x = (.s64)1e999;",
        ".global .align 3 .u32 x;",
        ".global .b32 x[1099511627775];",
        ".global .b7 x;",
        ".global .align 4 x;",
        ".func f() {" + "{" * 100_000,
        ".func f() { mov.u32 %r1, " + "{" * 100_000 + "1; }",
        ".func f() { mov.u32 %r1, " + "[" * 100_000 + "1; }",
        ".func f() { add" + " " * 100_000 + ". }",
        ".func f() { .reg .b32 r<999999999999>; }",
        ".func f() { .loc 1 " + "9" * 5_000 + " 1 ret; }",
        ".func f() { add.u32 %r1,, 2; }",
        ".func f() { add.u32 1 2; }",
        ".func f() { .entry g(); }",
        ".func f() { ret; } .func f() { ret; }",
        ".func f() { A: A: ret; }",
        ".func f(.param .b32) { ret; }",
        ".alias a, b;",
        ".file 1" + "9" * 5_000 + ' "x"',
        '.file 1 "',
        ".section .debug {",
        "/* no end",
        ".nonsense",
        "é",
        '"' + "\\" * 100_001,
    ],
    ids=lambda text: text[:30],
)
def test_nonsense_is_named_at_once(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(ck.EmulationError, match=r"^PTX line 4: "):
        parse(HEAD + text)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with .version"),
        (".target sm_90", "begins with .version"),
        (".version 99.0 .target sm_90", "version 99.0 is not emulated; versions 3.0 to 9.x are"),
        (".version 1.4 .target sm_13", "version 1.4 is not emulated"),
        (".version 8.0 .target gfx942", "target 'gfx942' is not emulated"),
        (".version 8.0 .target sm_90 .address_size 32", "only addresses of 64 bits"),
    ],
)
def test_other_versions_and_targets_are_refused(text: str, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=why):
        parse(text)


# ── instructions that are wrong ──


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("frobnicate.u32 %r1, %r2;", "frobnicate.u32 .*not emulated"),
        ("add.u7 %r1, %r2, %r3;", "add.u7 .*none that are emulated"),
        ("add.u32 %r1, %r2;", "add.u32 "),
        ("add.u32 %r1;", "add.u32 "),
        ("add.u32;", "add.u32 "),
        ("ld.global.u32 %r1;", "ld.global.u32 "),
        ("ld.global.u32 %r1, %rd1;", "ld.global.u32 .*is no address"),
        ("ld.shared.v4.u32 {%r1, %r2}, [0];", "ld.shared.v4.u32 .*2 elements"),
        ("st.shared.v4.u32 [0], %r1;", "st.shared.v4.u32 .*1 elements"),
        ("setp.lt.u32 %p1, %r1;", "setp.lt.u32 "),
        ("bra;", "bra "),
        ("bra 7;", "bra "),
        ("call;", "call "),
        ("mov.u32 5, %r1;", "mov.u32 .*cannot be written"),
        ("mov.u32 %r99, 1;", "mov.u32 .*%r99.*cannot be written"),
        ("mov.u32 %r1, %r99;", "mov.u32 .*special register %r99 is not emulated"),
        ("mov.u32 %r1, %nosuch.x;", "mov.u32 .*special register %nosuch.x is not emulated"),
        ("mov.u64 %rd1, nowhere;", "mov.u64 .*no variable or function nowhere"),
        ("call.uni nowhere;", "call.uni .*a call to nowhere, which the module does not define"),
        ("ld.param.u32 %r1, [nowhere];", "ld.param.u32 .*nowhere"),
        ("shfl.sync.idx.b32 %r1, %r2;", "shfl.sync.idx.b32 "),
        ("atom.global.frob.u32 %r1, [%rd1], 1;", "atom.global.frob.u32 "),
        ("cvt.u32.nonsense %r1, %f1;", "cvt.u32.nonsense "),
    ],
)
def test_a_wrong_instruction_is_named_with_its_line(instruction: str, why: str) -> None:
    message = broken(instruction)
    assert re.search(r"PTX line 5\b", message), message
    assert re.search(why, message), message


@pytest.mark.parametrize(
    ("instruction", "why"),
    [
        ("bra NOWHERE;", "no label NOWHERE is in function f"),
        ("@%p9 mov.u32 %r1, 1;", "no register %p9 is declared"),
        ("@%r1 mov.u32 %r1, 1;", "register %r1 is no predicate"),
        ("mov.u32 %r1, [%rd1;", "brackets in .* do not match"),
        ("mov.u32 %r1 %r2;", "'%r2' cannot follow"),
        ("mov.u32 %r1, %r2", "'ret' cannot follow"),
        ("mov.u32 %r1, [%rd1 + 1.5];", "an offset must be a whole number"),
        ("mov.u32 %r1, [{%r1}];", "expected a number"),
        (".reg .b31 %x;", "is no type of a register"),
        (".reg .b32 5;", "expected a name"),
        (".maxntid 5;", "directive .maxntid cannot stand here"),
    ],
)
def test_a_wrong_statement_is_named_when_it_is_read(instruction: str, why: str) -> None:
    message = broken(instruction)
    assert re.search(rf"^PTX line [56]: .*{why}", message), message


def test_an_instruction_that_is_not_reached_does_not_matter() -> None:
    execute(f"{HEAD}.entry f() {{ ret; frobnicate.u32 %r1; }}")


def test_unknown_addresses_in_initialisers_are_named() -> None:
    with pytest.raises(ck.EmulationError, match="PTX line 5: no variable in memory and no function is named nowhere"):
        execute(f"{HEAD}\n.global .u64 x = generic(nowhere);")


def test_source_lines_are_named_without_asking_for_them() -> None:
    kernel = ck.Kernel("""
        __global__ void f(int* x) {
            asm volatile("frobnicate.u32 %0;" : "=r"(*x));
        }""")
    here = f"{re.escape(__file__)}:{line_of('frobnicate.u32 %0')}"
    with pytest.raises(ck.EmulationError, match=rf"^f: frobnicate.u32 \(PTX line \d+, {here}\): .*not emulated"):
        kernel(emulator.stream(), ck.config(1, 1), np.zeros(1, "i4"))


def line_of(words: str) -> int:
    """Number of this file's first line that has `words`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if words in line)


_REFUSED = ck.Kernel("""
    __global__ void refused(int* x) {
        x[0] = unknown_here;
    }""")


def test_errors_of_the_compiler_and_of_the_emulator_name_lines_of_the_python_file() -> None:
    with pytest.raises(ck.CompileError, match=rf"{re.escape(__file__)}:{line_of('unknown_here;')}: error"):
        _REFUSED(emulator.stream(), ck.config(1, 1), np.zeros(1, "i4"))
    kernel = ck.Kernel("""
    __device__ __forceinline__ void put(int* x, int i) {
        x[i] = 200;
    }
    __global__ void placed(int* x, int n) {
        assert(n < 7);
        put(x, n);
    }""")
    x = np.zeros(4, "i4")
    inner, outer = (f"{re.escape(__file__)}:{line_of(words)}" for words in ("x[i] = 200;", "put(x, n);"))
    with pytest.raises(
        ck.EmulationError, match=rf"\(PTX line \d+, {inner}, inlined at {outer}\): .*element 5 is past the end"
    ):
        kernel(emulator.stream(), ck.config(1, 1), x, 5)
    asserted = f"{re.escape(__file__)}:{line_of('assert(n < 7);')}"
    with pytest.raises(ck.EmulationError, match=rf"{asserted}\): {asserted}: .*assertion `n < 7` failed"):
        kernel(emulator.stream(), ck.config(1, 1), x, 8)


def test_lines_of_a_text_that_is_put_together_name_the_call_that_gave_it() -> None:
    kernel = ck.Kernel("__global__ void f(int* x) {\n" + "\n" * 3 + "x[5] = 1; }")
    call = f"<kernel text> of {re.escape(__file__)}:{line_of('* 3 + ')}"
    with pytest.raises(ck.EmulationError, match=rf"PTX line \d+, {call}:5\)"):
        kernel(emulator.stream(), ck.config(1, 1), np.zeros(4, "i4"))


def test_lines_of_a_file_are_named_as_its_user_named_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "#include <cstdint>\ntemplate <typename T>\n__global__ void f(T* x) {\n    x[5] = T{};\n}"
    (tmp_path / "kernels.cu").write_text(text)
    record = np.dtype([("first", "f4"), ("second", "f4")])
    for path, options in product(["kernels.cu", tmp_path / "kernels.cu"], [{}, {"pch": True}]):
        # A struct of Python's stands before the source, in lines that are not the user's.
        kernel = ck.Kernel.from_file(path, options=ck.CompileOptions(**options))
        with pytest.raises(ck.EmulationError, match=rf"PTX line \d+, {re.escape(str(path))}:4\)"):
            kernel(emulator.stream(), ck.config(1, 1), np.zeros(4, record))


# ── accesses ──


def _raises(text: str, *arrays: np.ndarray, block: int = 1, match: str) -> None:
    """`text` on `arrays` raises, naming its line 3."""
    with pytest.raises(ck.EmulationError, match=rf"\(PTX line \d+, .*kernel text> of .*:3\).*{match}"):
        ck.Kernel(text)(emulator.stream(), ck.config(1, block), *arrays)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("x[64] = 1", "outside every array; the nearest is x with 64 elements: element 64 is past the end"),
        ("x[-1] = 1", "element -1 is before the beginning"),
        ("y[0] = x[100]", "the nearest is x with 64 elements: element 100 is past the end"),
        ("y[0] = *(const int*)((const char*)x + 2)", "not aligned to 4 bytes"),
        ("y[0] = *(volatile int*)(y[1] + 0ll)", "null pointer"),
        ("((int*)(x[0] + (long long)table))[1] = 5", "variable table is read-only"),
        ("*(volatile int*)0x600000000000 = 1", "0x600000000000 is in no allocation"),
    ],
)
def test_accesses_name_array_element_and_source_line(statement: str, match: str) -> None:
    # In the middle of memory that is no array's, so that nothing else lies near.
    x = np.ndarray(64, "i4", bytearray(4 * 192), 4 * 64)
    text = f"""__constant__ int table[3] = {{1, 2, 3}};
        __global__ void f(int* x, int* y) {{
            {statement};
        }}"""
    _raises(text, x, np.zeros(64, "i4"), match=match)


def test_a_freed_array_is_named() -> None:
    keep = ck.Kernel("""__device__ int* kept;
        __global__ void keep(int* x, int first) {
            if (first) kept = x; else *kept = 1;
        }""")
    stream, x, y = emulator.stream(), np.zeros(100_000, "i4"), np.zeros(4, "i4")
    keep(stream, ck.config(1, 1), x, 1)
    with pytest.raises(
        ck.EmulationError, match=rf"py:{line_of('else *kept')}\).* is in x of an earlier launch, which no longer exists"
    ):
        keep(stream, ck.config(1, 1), y, 0)


def test_shared_memory_may_be_read_before_it_is_written() -> None:
    out = np.ones(4, "i4")
    kernel = ck.Kernel("__global__ void f(int* x) { __shared__ volatile int s[4]; x[threadIdx.x] = s[threadIdx.x]; }")
    kernel(emulator.stream(), ck.config(1, 4), out)


def test_shared_memory_is_not_zero_at_first() -> None:
    """A sum that is never set to zero is wrong, as it may be on a GPU; in every block, of those that run later too."""
    sums = np.zeros(3000, "i4")
    kernel = ck.Kernel("""__global__ void f(int* x) {
        __shared__ int sum;
        atomicAdd(&sum, 1);
        __syncthreads();
        x[blockIdx.x] = sum;
    }""")
    kernel(emulator.stream(), ck.config(3000, 32), sums)
    assert (sums != 32).all()


# ── launches that are too large ──

_NOTHING = "__global__ void f() {}"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"grid": 2**31, "block": 1}, "grid.x is 2147483648, over the limit 2147483647"),
        ({"grid": (1, 65_536), "block": 1}, "grid.y is 65536, over the limit 65535"),
        ({"grid": (1, 1, 65_536), "block": 1}, "grid.z is 65536, over the limit 65535"),
        ({"grid": 1, "block": 1025}, "block.x is 1025, over the limit 1024"),
        ({"grid": 1, "block": (1, 1, 65)}, "block.z is 65, over the limit 64"),
        ({"grid": 1, "block": (64, 32)}, "2048 .* over the limit 1024"),
        ({"grid": 1, "block": 1, "shared_bytes": 228 * 1024}, "shared memory a block is 233472 bytes"),
        ({"grid": 32, "block": 1, "cluster": 32}, "cluster of 32 blocks .* over the limit"),
        ({"grid": 10**6, "block": 1024, "cooperative": True}, "a cooperative grid is 1000000 blocks, over the limit"),
    ],
)
def test_launches_over_the_limits_are_refused(config: dict[str, object], why: str) -> None:
    with pytest.raises(ck.LaunchError, match=why):
        ck.Kernel(_NOTHING)(emulator.stream(), ck.config(**config))  # type: ignore[arg-type]


def test_a_cluster_must_divide_the_grid() -> None:
    with pytest.raises(ck.LaunchError, match=r"cluster \(4, 1, 1\) does not divide grid \(6, 1, 1\)"):
        ck.config(6, 1, cluster=4)


@pytest.mark.parametrize("grid", [2**31 - 1, (2**31 - 1, 65_535, 65_535)])
def test_the_largest_grid_takes_no_memory_and_is_stopped_by_the_budget(grid: object) -> None:
    began = time.monotonic()
    with pytest.raises(ck.EmulationError, match="budget of 20 steps"):
        ck.Kernel(_NOTHING)(emulator.stream(step_budget=20), ck.config(grid, 1024))  # type: ignore[arg-type]
    assert time.monotonic() - began < 10


@of_numpy
def test_fewer_blocks_run_at_once_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel("""__global__ void f(int* x) {
        extern __shared__ int s[]; s[threadIdx.x] = threadIdx.x;
        x[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
    }""")
    out = np.zeros(64 * 32, "i4")
    blocks: list[int] = []

    def watch(held: Module, entry: Function, geometry: Geometry, title: str) -> int:
        blocks.append(blocks_at_once(held, entry, geometry, title))
        return blocks[-1]

    blocks_at_once = module.blocks_at_once
    monkeypatch.setattr("cudakit.emulator.machine.machine.blocks_at_once", watch)
    monkeypatch.setattr(module, "USUAL_BYTES", 1 << 20)
    kernel(emulator.stream(), ck.config(64, 32, shared_bytes=200 << 10), out)
    np.testing.assert_array_equal(out, np.tile(np.arange(32), 64))
    assert blocks == [5]


def test_what_cannot_fit_says_how_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)
    with pytest.raises(ck.EmulationError, match=r"^f: 8 blocks that must .* take \d{7} bytes .* 1048576 are available"):
        ck.Kernel(_NOTHING)(emulator.stream(), ck.config(8, 32, shared_bytes=200 << 10, cluster=8))


def test_local_memory_has_a_limit() -> None:
    kernel = ck.Kernel("""__global__ void f(int* x) {
        int big[200000]; for (int i = 0; i < 200000; ++i) big[i] = x[i % 4]; x[0] = big[x[1]];
    }""")
    with pytest.raises(ck.EmulationError, match="local memory are 800000 bytes, over the limit of 524288"):
        kernel(emulator.stream(), ck.config(1, 1), np.zeros(4, "i4"))


# ── kernels that do not end ──


@pytest.mark.parametrize("loop", ["while (true) { x[0] += 1; }", 'for (;;) asm volatile("");', "while (x[0] == 0) {}"])
def test_an_endless_kernel_is_stopped_and_named(loop: str) -> None:
    kernel = ck.Kernel(f"""template <typename T> __global__ void endless(volatile T* x) {{

            {loop}
        }}""")
    why = r"^endless<int>: .*kernel text> of .*:3\): the budget of 500 steps is used up; .*give more steps"
    with pytest.raises(ck.EmulationError, match=why):
        kernel(emulator.stream(step_budget=500), ck.config(2, 64), np.zeros(1, "i4"))


def test_a_deadlock_names_the_barrier_and_a_thread() -> None:
    kernel = ck.Kernel("""__global__ void f(int* x) {
        if (threadIdx.x == 5)
            asm volatile("barrier.sync 1, 64;");
    }""")
    why = rf"py:{line_of('barrier.sync 1, 64')}\): deadlock: .*1 at a barrier.* block 0, thread 5"
    with pytest.raises(ck.EmulationError, match=why):
        kernel(emulator.stream(), ck.config(1, 32), np.zeros(1, "i4"))


_RECURSION = """__device__ __noinline__ int down(int n, volatile int* x) {
            int here[32]; for (int i = 0; i < 32; ++i) here[i] = x[i % 4];
            return n == x[0] ? 0 : here[n & 31] ^ 3 * down(n + 1, x);
        }
        __global__ void f(int* x) { x[1] = down(1, x); }"""


@pytest.mark.slow
def test_a_recursion_without_end_overflows_its_stack() -> None:
    why = rf"^f, in \w*down\w*: call.*py:{line_of('3 * down(n + 1, x)')}\): .*(stack overflow|deep)"
    with pytest.raises(ck.EmulationError, match=why):
        ck.Kernel(_RECURSION)(emulator.stream(step_budget=100_000), ck.config(1, 64), np.zeros(4, "i4"))


@pytest.mark.emulator
def test_local_memory_of_calls_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudakit.emulator.machine.state.LOCAL_BYTES", 8192)
    why = r"stack overflow: .* takes \d{4,5} bytes of stack, over the limit of 8192"
    with ck.memory.limit(1 << 20, "stack"), pytest.raises(ck.EmulationError, match=why):
        ck.Kernel(_RECURSION)(emulator.stream(step_budget=100_000), ck.config(1, 64), np.zeros(4, "i4"))


@pytest.mark.emulator
def test_a_deep_stack_of_many_threads_names_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudakit.emulator.machine.machine.MOST_BYTES", 4 << 20)
    # Of a recursion fewer lanes run at once than of other kernels.
    why = r"stack overflow: \d+ calls deep, the registers of 4096 threads take"
    with ck.memory.limit(1 << 18, "stack"), pytest.raises(ck.EmulationError, match=why):
        ck.Kernel(_RECURSION)(emulator.stream(step_budget=100_000), ck.config(64, 1024), np.zeros(4, "i4"))


def test_after_an_error_the_same_kernel_runs() -> None:
    kernel = ck.Kernel(
        "__global__ void f(volatile int* x, int n) { for (int i = 0; i != n; ++i) x[threadIdx.x] += 1; }"
    )
    x = np.zeros(40, "i4")
    with pytest.raises(ck.EmulationError, match="budget"):
        kernel(emulator.stream(step_budget=300), ck.config(1, 32), x, -1)
    x[:] = 0
    kernel(emulator.stream(), ck.config(1, 40), x, 3)
    assert x.tolist() == [3] * 40


_INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs start with it ignored
import sys, threading, time
import numpy as np
import cudakit as ck
kernel = ck.Kernel(
    "__device__ int seen = 2;"
    "__global__ void f(volatile int* x, int n) { x[0] = seen; seen = 5; for (int i = 0; i != n; ++i) x[1] += 1; }"
)
stream, x = ck.emulator.stream(), np.zeros(2, "i4")
kernel(stream, ck.config(1, 1), x, 1)
def tell():
    while x[1] < 10:
        time.sleep(0.01)
    print("running", flush=True)
threading.Thread(target=tell).start()
try:
    kernel(stream, ck.config(1, 32), x, -1)
except KeyboardInterrupt:
    print("stopped", flush=True)
y = np.zeros(2, "i4")
kernel(stream, ck.config(1, 1), y, 7)
print(*y)
"""


@pytest.mark.slow
def test_ctrl_c_stops_at_once_and_leaves_the_machine_usable(tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(_INTERRUPTED)
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as child:
        assert child.stdout
        assert child.stderr
        try:
            assert child.stdout.readline() == "running\n"
            began = time.monotonic()
            child.send_signal(signal.SIGINT)
            assert child.stdout.readline() == "stopped\n"
            assert time.monotonic() - began < 5
            # Not communicate(), which does not see what readline() has read ahead.
            answer, errors = child.stdout.read(), child.stderr.read()
        finally:
            child.kill()
    assert (answer, errors) == ("5 7\n", "")
