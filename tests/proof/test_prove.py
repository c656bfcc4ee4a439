"""Proofs: what holds is proved, what does not is shown on the emulator, and all else is refused by its line."""

from __future__ import annotations

import itertools
import random
import re
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.provable import FAULTY, PROVED, Case
from support.tiers import slow, thinned

import cudakit as ck
from cudakit.emulator.checks.findings import Finding as CheckFinding
from cudakit.emulator.launch import EmulatedCode
from cudakit.emulator.ptx.parser import parse
from cudakit.errors import ArgumentError, CudakitError
from cudakit.jit.cache.stages import compiled_of
from cudakit.proof import confirm
from cudakit.proof.confirm import ExpectedFault, example, run_example, small
from cudakit.proof.problem import Problem
from cudakit.proof.prove import Proof
from cudakit.proof.solver import STEPS_PER_S, Solver, lemmas
from cudakit.proof.terms import Renaming, Symbol, at_least, equal, polynomial

pytestmark = pytest.mark.emulator
pytest.importorskip("z3", reason="the extra prove is not installed")

#: Cases whose proofs take long: the whole suite has their last change. Of other cases the quick tests have the first.
_SLOW = ("matmul", "guarded_matmul", "double_buffer", "window", "rows", "three_dimensions", "transpose",
         "tiled_transpose", "local_array", "reduction")  # fmt: skip
_LARGE = ("guarded_matmul", "tiled_transpose", "window", "rows")  # faults of these kinds are found in smaller kernels
_LONG = ("strides_that_meet", "nested_too_far", "own_rounds", "two_at_a_time", "endless", "before_a_loop", "last_round")


def _marks(case: Case, change: int) -> tuple[pytest.MarkDecorator, ...]:
    is_slow = case.name in _SLOW
    is_beyond = is_slow and (change < len(case.changes) - 1 or case.name in _LARGE)
    return (*[pytest.mark.slow] * (is_slow or change > 0), *[pytest.mark.exhaustive] * is_beyond)


_CASES = [pytest.param(case, marks=pytest.mark.slow if case.name in _SLOW else ()) for case in PROVED]
_FAULTY = [pytest.param(case, marks=pytest.mark.slow if case.name in _LONG else ()) for case in FAULTY]
_CHANGED = [
    pytest.param(
        case, change, id=f"{case.name}: {change[1] or 'without'} {change[0]}".replace("\n", ""), marks=_marks(case, k)
    )
    for case in PROVED
    for k, change in enumerate(case.changes)
]  # fmt: skip
#: For each question: on a busy machine, too, what is decided is decided.
PATIENT_S = 60.0


@pytest.mark.parametrize("case", _CASES, ids=repr)
@pytest.mark.usefixtures("kept_outcomes")
def test_what_holds_is_proved(case: Case) -> None:
    proof = ck.prove(ck.Kernel(case.text, case.name), *case.statements, **case.launch, timeout_s=PATIENT_S)
    assert proof, proof
    assert proof.checked > 0


@pytest.mark.parametrize(("case", "change"), _CHANGED)
@pytest.mark.usefixtures("kept_outcomes")
def test_a_fault_is_found_and_shown_on_the_emulator(case: Case, change: tuple[str, str, str]) -> None:
    before, after, kind = change
    assert before in case.text
    kernel = ck.Kernel(case.text.replace(before, after, 1), case.name)
    proof = ck.prove(kernel, *case.statements, **case.launch, timeout_s=PATIENT_S)
    assert proof.verdict == "refuted", proof
    found = [each for each in proof.findings if each.kind == kind and each.verdict == "refuted"]
    assert found, proof
    assert found[0].example is not None
    assert case.name in found[0].example.fault
    assert found[0].line > 0


@pytest.mark.parametrize("case", _FAULTY, ids=repr)
@pytest.mark.usefixtures("kept_outcomes")
def test_no_kernel_with_a_fault_is_proved(case: Case) -> None:
    text = "__constant__ float table[16]; __device__ float variable[16];\n" + case.text
    # Steps of questions about products take many times as long as others.
    limit = 0.1 if case.name == "strides_that_meet" else 2.0
    proof = ck.prove(ck.Kernel(text, case.name), *case.statements, **case.launch, timeout_s=limit)
    assert not proof
    assert proof.findings


@pytest.mark.slow
@pytest.mark.parametrize("case", PROVED, ids=repr)
@pytest.mark.usefixtures("kept_outcomes")
def test_what_is_proved_never_faults_at_sizes_that_are_stated(case: Case) -> None:
    kernel = ck.Kernel(case.text, case.name)
    wanted = EmulatedCode("sm_90").adapted(kernel.specialization(arch="sm_90", target="ptx"))
    compiled = compiled_of(wanted)
    program = parse(compiled.code.decode())
    entry = program.functions[compiled.lowered[wanted.name_expression]]
    launch = {"block": None, "grid": None, "shared_bytes": 0} | case.launch
    problem = Problem.of("it", program, entry, wanted.parameters or (), case.statements, **launch)
    solver, draw = Solver(5.0), random.Random(case.name)
    runs = 0
    for _ in range(6):
        chosen = [equal(symbol, draw.randint(-2, 70)) for symbol in problem.scalars.values()]
        answer = solver.answer([*problem.premises, *chosen], small(problem))
        if answer.verdict == "yes":
            shown = run_example(example(problem, answer.values), problem, kernel, "sm_90")
            assert not shown.fault, shown
            runs += shown.was_run
    assert runs or not problem.premises


REFUSED = {
    "a gather": (
        "__global__ void k(int n, const int* at, const float* x, float* y) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[at[i]];\n}",
        3,
        "read from memory in line 3",
    ),
    "a scatter": (
        "__global__ void k(int n, const int* at, float* y, float* x) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n)\n"
        "        y[at[i]] = 1;\n}",
        4,
        "read from memory in line 4",
    ),
    "a pointer that is read": (
        "__global__ void k(int n, float** x) {\n    x[0][threadIdx.x] = n;\n}",
        2,
        "not known to lie in one array",
    ),
    "a choice of arrays": (
        "__global__ void k(int n, float* x, float* y) {\n    float* p = n > 3 ? x : y;\n    p[threadIdx.x] = 1;\n}",
        3,
        "one array or in another",
    ),
    "a read by a warp": (
        "__global__ void k(int n, int* y) {\n    __shared__ __align__(16) int s[32]; s[threadIdx.x] = n; int r;\n"
        "    unsigned a = (unsigned)__cvta_generic_to_shared(s) + threadIdx.x % 8 * 16;\n"
        '    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r) : "r"(a) : "memory");\n'
        "    if (threadIdx.x < n) y[threadIdx.x] = r;\n}",
        4,
        "ldmatrix",
    ),
    "a call": ('extern "C" __device__ void f(int);\n__global__ void k(int n) {\n    printf("%d", n);\n}', 3, "call"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_followed_is_refused_by_its_line(name: str) -> None:
    text, line, why = REFUSED[name]
    kernel = ck.Kernel(text, "k")
    at_least = [f"len({each.name}) >= n" for each in kernel.signature.parameters or () if "*" in str(each.type)]
    proof = ck.prove(kernel, *at_least, "n <= 100000", block=32, grid="(n + 31) // 32" if "blockIdx" in text else 1)
    assert proof.verdict in ("not supported", "refuted")
    found = [each for each in proof.findings if each.verdict == "not supported"]
    assert found, proof
    assert found[0].line == line
    assert why in str(proof)


def test_an_index_that_overflows_is_not_proved() -> None:
    text = """__global__ void k(int n, const float* x, float* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[4 * i];
    }"""
    kernel = ck.Kernel(text, "k")
    stated = ("n <= len(y)", "4 * n <= len(x)")
    proof = ck.prove(kernel, *stated, block=256, grid="(n + 255) // 256")
    assert proof.verdict == "not decided"
    assert proof.findings[0].example is not None
    assert proof.findings[0].example.arguments["n"] > 1 << 29
    assert "too large" in proof.findings[0].text
    assert ck.prove(kernel, *stated, "n <= 1 << 29", block=256, grid="(n + 255) // 256")


def test_template_arguments_are_given_in_brackets() -> None:
    text = """template <typename T> __global__ void fill(T* x, T value, unsigned n) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] = value;
    }"""
    kernel = ck.Kernel(text)
    for dtype in (np.float32, np.float64, np.uint8):
        assert ck.prove(kernel[dtype], "n <= len(x)", block=64, grid="(n + 63) // 64")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("n <= len(z)", "len(z) is not known"),
        ("n", "not a comparison"),
        ("n <= len(x", "not an expression"),
        ("n ** 2 <= len(x)", "another operator"),
        ("__import__('os').abort() == 0", "is not known"),
        ("n // 0 == 0", "above 0"),
        ("n in 3", "another comparison"),
    ],
)
def test_a_statement_that_cannot_be_read_is_refused(statement: str, why: str) -> None:
    kernel = ck.Kernel("__global__ void k(int n, float* x) { x[n] = 1; }")
    with pytest.raises(ArgumentError, match=why.replace("(", r"\(").replace(")", r"\)")):
        ck.prove(kernel, statement)


def test_types_that_only_the_compiler_knows() -> None:
    text = """namespace own { typedef float real; }
    template <int N> struct chosen { using type = int; };
    __global__ void k(own::real* x, chosen<3>::type n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) x[i] = 1;
    }"""
    assert ck.prove(ck.Kernel(text), "n <= len(x)", block=32, grid="(n + 31) // 32")


@pytest.mark.parametrize("value", ["erff(x[i])", *slow("sinf(x[i])", "powf(x[i], 3.f)", "cosf(y[i])")])
@pytest.mark.usefixtures("kept_outcomes")
def test_a_strided_loop_is_followed_through_functions_with_branches_and_arrays(value: str) -> None:
    text = f"""__global__ void k(const float* x, float* y, int n) {{
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = {value};
    }}"""
    stated: Any = ("0 <= n <= 1 << 30", "n <= len(x)", "n <= len(y)", "gridDim.x <= 4096")
    assert ck.prove(ck.Kernel(text), *stated, block=256)
    if "erff" in value:
        assert not ck.prove(ck.Kernel(text.replace("i < n", "i <= n")), *stated, block=256)


@pytest.mark.parametrize(
    "change", ["", *slow("p[i].w = 1|p[i + 1].w = 1", "q[i].c[2]|q[i].c[3]", "r[i].b|(&r[i].b)[1]")]
)
def test_pointers_to_structs_have_lengths(change: str) -> None:
    text = """struct Particle { float x, y, z; int id; double w; };
    struct Hidden;
    namespace own { struct Q { char c[3]; }; template <typename T> struct Pair { T a, b; }; }
    __global__ void k(Particle* p, const own::Q* q, const own::Pair<double>* r, Hidden* h, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n && q[i].c[2] + r[i].b > 0) p[i].w = 1;
    }"""
    before, _, after = change.partition("|")
    kernel = ck.Kernel(text.replace(before, after))
    lengths = "n <= len(p)", "n <= len(q)", "n <= len(r)", "len(h) == 0", "n <= 1 << 20"
    proof = ck.prove(kernel, *lengths, block=64, grid="(n + 63) // 64")
    assert proof.verdict == ("refuted" if change else "proved"), proof
    if not change:
        assert not ck.prove(kernel, lengths[0], "n <= len(q) + 1", *lengths[2:], block=64, grid="(n + 63) // 64")


def test_a_struct_as_a_template_argument_has_a_length() -> None:
    text = "struct Two { int a, b; }; template <typename T> __global__ void k(T* p) { p[threadIdx.x].b = 1; }"
    assert ck.prove(ck.Kernel(text)["Two"], "len(p) >= 32", block=32, grid=1)
    assert ck.prove(ck.Kernel(text)["Two"], "len(p) >= 31", block=32, grid=1).verdict == "refuted"


#: What is read from an array, what is stated of its elements, and the verdict.
CONTENTS = [
    ("ids[i]", ("0 <= ids < len(t)",), "proved"),
    ("ids[i]", ("0 <= ids", "len(t) > ids"), "proved"),
    ("ids[i] + 3", ("0 <= ids < len(t)", "ids % 4 == 0", "len(t) % 4 == 0"), "proved"),
    ("ids[i] * 2", ("0 <= ids < len(t)", "len(t) <= 1"), "proved"),
    ("ids[i]", ("0 <= ids <= len(t)",), "refuted"),
    ("ids[i]", ("ids < len(t)",), "refuted"),
    ("ids[i] + 1", ("0 <= ids < len(t)",), "refuted"),
    ("ids[i] + 3", ("0 <= ids < len(t)", "ids % 4 == 0"), "refuted"),
    ("ids[i] + len(ids)", ("0 <= ids < len(t)",), "refuted"),
    ("i", ("ids >= 10", "len(t) >= 10"), "refuted"),
]


@pytest.mark.parametrize(
    ("index", "stated", "verdict"),
    thinned(CONTENTS, 4, several=True),
)
def test_the_elements_of_an_array_are_as_stated(index: str, stated: tuple[str, ...], verdict: str) -> None:
    text = f"""__global__ void k(int n, const int* ids, const float* t, float* y) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = t[{index.replace("len(ids)", "n")}];
    }}"""
    lengths = "n <= len(ids)", "n <= len(y)", "0 <= n <= 1 << 20"
    proof = ck.prove(ck.Kernel(text), *lengths, *stated, block=64, grid="(n + 63) // 64")
    assert proof.verdict == verdict, proof
    if verdict == "proved":
        assert proof.checked == 3
        return
    example = proof.findings[0].example
    assert example is not None
    sizes = {name: example.arguments[name] for name in ("n", "len(ids)", "len(t)")}
    for ids in example.contents["ids"]:
        for each in stated:
            names = {"n": sizes["n"], "ids": ids, "len": lambda _, each=each: sizes["len(t)"]}
            assert eval(each, {**names, "t": None}), (each, example)
    assert "ids with elements " in str(example)


def test_two_threads_may_read_the_same_number() -> None:
    text = """__global__ void k(int n, const int* ids, int* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) WRITE;
    }"""
    stated: Any = ("n <= len(ids)", "0 <= n <= 1 << 20", "0 <= ids < len(y)")
    launch: Any = {"block": 64, "grid": "(n + 63) // 64"}
    assert ck.prove(ck.Kernel(text.replace("WRITE", "atomicAdd(&y[ids[i]], 1)")), *stated, **launch)
    (found,) = ck.prove(ck.Kernel(text.replace("WRITE", "y[ids[i]] = i")), *stated, **launch).findings
    assert (found.kind, found.verdict) == ("race", "refuted")
    (found,) = ck.prove(ck.Kernel(text.replace("const", "").replace("WRITE", "ids[i] = 0")), *stated, **launch).findings
    assert "elements of ids, of which something is stated, are written" in found.text
    with pytest.raises(ArgumentError, match="elements of two arrays, ids and y; state one array's by themselves"):
        ck.prove(ck.Kernel(text.replace("WRITE", "y[i] = 1")), "ids <= y", **launch)


@pytest.mark.parametrize(("more", "verdict"), [("", "proved"), pytest.param(" + 1", "refuted", marks=pytest.mark.slow)])
@pytest.mark.usefixtures("kept_outcomes")
def test_rows_whose_bounds_are_read_are_followed(more: str, verdict: str) -> None:
    text = """__global__ void k(int n, const int* first, const int* column, const float* x, float* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        float sum = 0;
        for (int j = first[i]; j < first[i + 1]; ++j) sum += x[column[j]];
        y[i] = sum;
    }"""
    sizes = "n + 1 <= len(first)", "n <= len(y)", "0 <= n <= 1 << 20"
    contents = f"0 <= first <= len(column){more}", "0 <= column < len(x)"
    proof = ck.prove(ck.Kernel(text), *sizes, *contents, block=64, grid="(n + 63) // 64")
    assert proof.verdict == verdict, proof


#: An index, and the verdict. The emulator, too, has both arrays in one piece of memory, and shows no fault in it.
PAST_AN_ARRAY = [
    ("n & 3", "proved"),
    ("n & 7", "not decided"),
    ("(n & 3) - 1", "not decided"),
    ("(n & 3) + 4", "not decided"),
]


@pytest.mark.parametrize(("index", "verdict"), thinned(PAST_AN_ARRAY, 2, several=True))
def test_an_index_past_one_array_of_a_thread_into_the_next_is_seen(index: str, verdict: str) -> None:
    text = f"""__global__ void k(int* x, int n) {{
        int a[4], b[4];
        for (int j = 0; j < 4; ++j) {{ a[j] = j + x[j]; b[j] = 100 + x[j]; }}
        b[{index}] = -1;
        x[4] = a[n & 3] * 1000 + b[n & 3];
        if (n & 1) x[4] = a[n & 2];
    }}"""
    proof = ck.prove(ck.Kernel(text), "len(x) >= 5", block=1, grid=1)
    assert proof.verdict == verdict, proof
    assert proof or "a thread's own array of 16 bytes" in proof.findings[0].text


#: Kernels with one array in a thread's own memory, whose addresses the compiler takes in several ways.
ONE_ARRAY = (
    "for (int k = 0; k < 8; ++k) h[k] = x[8 * i + k]; for (int k = 0; k < 8; ++k) y[i] += h[7 - k] * k + h[n & 7];",
    "h[0] = 1;\n#pragma unroll 1\nfor (int k = 0; k < 7; ++k) h[k + 1] = x[k]; y[i] = h[n & 7] + h[3];",
    "for (int k = 0; k < 8; ++k) h[k] = sinf(x[i + k]); y[i] = h[n & 7];",
)


@pytest.mark.parametrize("body", slow(*ONE_ARRAY))
@pytest.mark.usefixtures("kept_outcomes")
def test_an_array_of_a_thread_is_not_taken_for_several(body: str) -> None:
    text = f"__global__ void k(const float* x, float* y, int n) {{ int i = threadIdx.x; float h[8]; {body} }}"
    assert ck.prove(ck.Kernel(text), "len(x) >= 1000", "len(y) >= 64", block=64, grid=1)


ASSUMED = """struct Pair { float a, b; };
__global__ void k(const float* x, float* y, Pair* p, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = 0;
    for (int k = 0; k < n; ++k) s[threadIdx.x] += k;
    __syncthreads();
    if (4 * i + 3 < n) ((float4*)y)[i] = ((const float4*)x)[i];
    if (i < n) p[i].a = s[63 - threadIdx.x];
}"""


def test_a_proof_says_what_it_takes_for_granted() -> None:
    stated: Any = ("n <= len(x)", "n <= len(y)", "n <= len(p)", "n <= 1 << 20", "gridDim.x <= 1 << 15")
    proof = ck.prove(ck.Kernel(ASSUMED), *stated, block=64)
    assert proof, proof
    assert proof.assumed[0].startswith("the code is what the compiler of CUDA 1")
    assert proof.assumed[1:] == (
        "x, y and p do not overlap",
        "x begins at a multiple of 16 bytes",
        "y begins at a multiple of 16 bytes",
        "gridDim.y == 1 and gridDim.z == 1: the kernel never reads these axes",
        "nothing else writes x, y or p, or reads y or p, while the kernel runs",
        "the loop of line 6 ends",
    )
    assert str(proof).count("\n  taken for granted: ") == 7
    assert proof.to_json()["assumed"] == list(proof.assumed)


def test_a_proof_takes_nothing_for_granted_that_does_not_apply() -> None:
    kernel = ck.Kernel.from_ptx(PTX, signature="void k(int n, int* x)")
    proof = ck.prove(kernel, "n <= len(x)", block=64, grid=1, arch="sm_80")
    assert proof.assumed == ("nothing else writes x, or reads x, while the kernel runs",)
    text = "__global__ void k(const float4* x, const double* y, int n) { if (threadIdx.x < n) __ldg(&x[0]); }"
    proof = ck.prove(ck.Kernel(text), block=32, grid=1)
    assert proof.assumed[1:] == ("nothing else writes x while the kernel runs",)


PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n, .param .u64 x)
{
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %d<5>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %d1, [x];
    mov.u32 %r2, %tid.x;
    setp.lt.s32 %p1, %r2, %r1;
    mul.wide.s32 %d2, %r2, 4;
    add.s64 %d3, %d1, %d2;
    @%p1 st.global.u32 [%d3], %r2;
    ret;
}
"""


def test_what_follows_a_trap_that_no_thread_comes_to() -> None:
    """A trap under a predicate that never holds ends no basic block: the store behind it is judged."""
    text = PTX.replace("setp.lt.s32 %p1, %r2, %r1", "setp.ge.s32 %p1, %r2, 64").replace("@%p1 st", "@%p1 trap; st")
    kernel = ck.Kernel.from_ptx(text, signature="void k(int n, int* x)")
    proof = ck.prove(kernel, "n <= len(x)", block=64, grid=1, arch="sm_80")
    assert not proof
    assert "writes 4 bytes outside of x" in str(proof)


def test_instructions_with_a_predicate() -> None:
    def proved(text: str) -> Proof:
        kernel = ck.Kernel.from_ptx(text, signature="void k(int n, int* x)")
        return ck.prove(kernel, "n <= len(x)", block=64, grid=1, arch="sm_80")

    assert proved(PTX)
    assert proved(PTX.replace("setp.lt", "setp.ge").replace("@%p1", "@!%p1"))
    for change in (("setp.lt", "setp.le"), ("@%p1 st", "st"), ("@%p1", "@!%p1")):
        found = proved(PTX.replace(*change))
        assert found.verdict == "refuted"
        assert found.findings[0].text.startswith("PTX line 14: writes 4 bytes")


COUNTDOWN = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n, .param .u64 x)
{
    .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %d<4>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %d1, [x];
    setp.eq.s32 %p1, %r1, 0;
    @%p1 ret;
$again:
    mul.wide.s32 %d2, %r1, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3+-4], %r1;
    add.s32 %r1, %r1, -1;
    setp.ne.s32 %p2, %r1, 0;
    @%p2 bra $again;
    ret;
}
"""


@pytest.mark.parametrize(("step", "stop", "statements", "verdict"), [
    (1, 0, ("n >= 0",), "proved"),
    (1, 0, (), "refuted"),  # a negative n: the first round is out of bounds
    (2, 0, ("n >= 0",), "refuted"),  # an odd n: from 1 a round steps over 0
    (1, 7, ("n >= 7",), "proved"),  # the range of a register does not say it
    (1, 7, ("n >= 6",), "refuted"),  # at n = 6 alone, of all that the invariant allows
])  # fmt: skip
def test_an_invariant_holds_in_the_first_round_and_the_next(
    step: int, stop: int, statements: tuple[str, ...], verdict: str
) -> None:
    text = COUNTDOWN.replace("%r1, -1", f"%r1, -{step}").replace("%r1, 0", f"%r1, {stop}")
    kernel = ck.Kernel.from_ptx(text.replace("%d3+-4", f"%d3+{-4 * (stop + 1)}"), signature="void k(int n, int* x)")
    proof = ck.prove(kernel, "n <= len(x)", *statements, block=1, grid=1, arch="sm_80", timeout_s=PATIENT_S)
    assert proof.verdict == verdict, proof


def test_an_example_is_the_same_whatever_was_asked_before() -> None:
    given = [Symbol("x", 0, varies=frozenset({"thread"})) for _ in range(12)]
    formulas = [at_least(sum(map(polynomial, given), polynomial(0)), 30), *(at_least(9, each) for each in given)]
    found = []
    for count in range(8):
        others = [Symbol("other") for _ in range(37 * count)]
        solver = Solver(PATIENT_S)
        assert not solver.impossible([at_least(polynomial(each), count) for each in others])
        solver.answer([at_least(polynomial(each), count) for each in others])
        copies = Renaming({"thread"})  # the same symbols at other places in memory, with other numbers
        asked = [copies.formula(each) for each in formulas] if count else formulas
        found.append(list(solver.answer(asked).values.values()))
    assert found == found[:1] * 8


def test_steps_of_a_question_are_those_of_no_other() -> None:
    solver, steps = Solver(PATIENT_S), [0]
    for number in range(12):
        x, y = (polynomial(Symbol(name, 0, 1 << 20)) for name in "xy")
        odd = [at_least(x * 6 - y * 4, 2 * number + 1), at_least(2 * number + 1, x * 6 - y * 4)]
        assert solver.impossible(odd)
        steps.append(solver.steps)
    taken = [after - before for before, after in itertools.pairwise(steps)]
    assert 0 < max(taken) <= min(taken) + 100


@pytest.mark.parametrize(
    "more", ["if (n > 1) __trap();", *slow("for (int j = 0; j < 100000; ++j) x[i] = x[i] * 5 + j;", "")]
)
def test_another_error_confirms_nothing(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads store the same value, which the emulator lets pass; what stops the kernel is no race."""
    monkeypatch.setattr(confirm, "_STEPS", confirm._STEPS // 10)
    text = f"""
    __global__ void k(int* x, int* flag, int n) {{
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) flag[0] = 1;
        {more if "for" not in more else ""}
        if (i < n) {{ {more if "for" in more else "x[i] = i;"} }}
    }}"""
    stated = ("0 <= n <= len(x)", "1 <= len(flag)", "n <= 1 << 20")
    proof = ck.prove(ck.Kernel(text), *stated, block=64, grid="(n + 63) // 64", timeout_s=PATIENT_S)
    assert [(each.kind, each.verdict) for each in proof.findings] == [("race", "not decided")]


def test_a_fault_is_confirmed_by_its_own_line() -> None:
    bounds, race = (
        ExpectedFault(kind, frozenset({7, 9}), frozenset({"a.cu:3", "a.cu:5"})) for kind in ("bounds", "race")
    )
    assert bounds.of_error("k: st.global.u32 (PTX line 9, a.cu:3): 4 bytes at 0x1 are outside every array")
    assert bounds.of_error("k: st.global.u32 (PTX line 7): 4 bytes at 0x1 are outside every array")
    assert not bounds.of_error("k: st.global.u32 (PTX line 79): 4 bytes at 0x1 are outside every array")
    assert not bounds.of_error("k: 9 steps are not enough")
    assert not race.of_error("k: st.global.u32 (PTX line 9, a.cu:3): 4 bytes at 0x1 are outside every array")
    barrier = ExpectedFault("barrier", frozenset({7}), frozenset({"a.cu:3"}))
    assert barrier.of_error("k: bar.sync (PTX line 8): deadlock: 3 threads wait at a barrier")
    assert not barrier.of_error("k: trap (PTX line 7): trapped")
    found = CheckFinding("race", "k", "a.cu", 3, "a.cu:8", "")
    assert race.of_finding(found)
    assert race.of_finding(replace(found, line=4, other="a.cu:5"))
    assert not race.of_finding(replace(found, line=4))
    assert not race.of_finding(replace(found, kind="uninitialised"))
    assert not bounds.of_finding(found)


def test_a_pointer_of_an_array_without_elements_may_be_null() -> None:
    text = """
    __global__ void k(float* x, const float* gain, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n + (gain == nullptr)) x[i] = 1;
    }"""
    launch: Any = {"block": 64, "grid": "(n + 63) // 64", "timeout_s": PATIENT_S}
    stated = ("1 <= n <= len(x)", "n <= 1 << 20")
    (found,) = ck.prove(ck.Kernel(text), *stated, **launch).findings
    assert found.verdict == "refuted"
    assert found.example is not None
    assert found.example.null == ("gain",)
    assert "len(gain) = 0" in str(found.example)
    assert "gain = None" in str(found.example)
    assert ck.prove(ck.Kernel(text), *stated, "len(gain) >= 1", **launch)
    assert ck.prove(ck.Kernel(text.replace("== nullptr", "== nullptr && n < 0")), *stated, **launch)


def test_arguments_may_be_words_of_python() -> None:
    kernel = ck.Kernel(
        "__global__ void k(const float* in, float* out, int from, int in_) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < from && i < in_) out[i] = in[i];\n}"
    )
    assert ck.prove(kernel, "from <= len(in)", "in_ <= len(out)", "from <= 1 << 30", block=64, grid="(from + 63) // 64")
    with pytest.raises(ArgumentError, match=r"len\(inn\) is not known.*len\(in\), len\(out\), from, in_, such"):
        ck.prove(kernel, "from <= len(inn)")
    with pytest.raises(ArgumentError, match="it is not an expression"):
        ck.prove(kernel, "lambda <= len(in)")


@pytest.mark.parametrize("axis", ["x", *slow("y", "z")])
def test_a_grid_that_is_not_given_is_1_where_the_kernel_does_not_look(axis: str) -> None:
    text = f"__global__ void k(float* x, int n) {{ int i = blockIdx.{axis}; if (i < n && !threadIdx.x) x[i] = 1; }}"
    kernel = ck.Kernel(text)
    assert ck.prove(kernel, "n <= len(x)", block=64)
    other = (1, 2, 1) if axis == "x" else (2, "n", 1)
    assert not ck.prove(kernel, "1 <= n <= len(x)", "n <= 100", block=64, grid=other)
    # What nobody reads and somebody gives is as it is given.
    reads_both = ck.Kernel(text.replace("&& !", f"&& gridDim.{'y' if axis == 'x' else 'x'} && !"))
    assert not ck.prove(reads_both, "1 <= n <= len(x)", "n <= 100", block=64)


COUNT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n, .param .u64 x)
{
    .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %d<4>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %d1, [x];
    mov.u32 %r2, START;
$again:
    mul.wide.s32 %d2, %r2, 4;
    add.s64 %d3, %d1, %d2;
    st.global.u32 [%d3], %r2;
    add.s32 %r2, %r2, 1;
    setp.lt.s32 %p1, %r2, %r1;
    @%p1 bra $again;
    ret;
}
"""


@pytest.mark.parametrize(("start", "statements", "verdict"), [
    (0, ("n <= len(x)", "n >= 1"), "proved"),
    (-1, ("n <= len(x)", "n >= 1"), "refuted"),  # only the first round is out of bounds
    (0, ("n <= len(x)", "n >= 0"), "refuted"),  # there is a first round where n is 0, too
    (3, ("n <= len(x)", "n >= 4"), "proved"),
    (0, ("n <= 2", "len(x) >= 2"), "proved"),
    (0, ("n <= 2", "len(x) >= 1"), "refuted"),  # only the second round is out of bounds
])  # fmt: skip
def test_the_first_rounds_of_a_loop_are_judged_too(start: int, statements: tuple[str, ...], verdict: str) -> None:
    kernel = ck.Kernel.from_ptx(COUNT.replace("START", str(start)), signature="void k(int n, int* x)")
    proof = ck.prove(kernel, *statements, block=1, grid=1, arch="sm_80", timeout_s=PATIENT_S)
    assert proof.verdict == verdict, proof


@pytest.mark.parametrize(("kind", "offset", "verdict"), [
    ("u8", 0, "proved"), ("u8", -1, "refuted"), ("u8", 1, "refuted"), ("u16", 0, "proved"), ("u16", 1, "refuted"),
])  # fmt: skip
def test_one_byte_beside_an_array_or_an_element_is_a_fault(kind: str, offset: int, verdict: str) -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x)
{
    .reg .b16 %h<2>; .reg .b32 %r<2>; .reg .b64 %d<4>;
    ld.param.u64 %d1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %d2, %r1, BYTES;
    add.s64 %d3, %d1, %d2;
    mov.u16 %h1, 1;
    st.global.KIND [%d3+OFFSET], %h1;
    ret;
}
"""
    size = int(kind[1:]) // 8
    text = text.replace("KIND", kind).replace("OFFSET", str(offset)).replace("BYTES", str(size))
    kernel = ck.Kernel.from_ptx(text, signature="void k(unsigned char* x)")
    proof = ck.prove(kernel, f"len(x) == {32 * size + size - 1}", block=32, grid=1, arch="sm_80")
    assert proof.verdict == verdict, proof


def test_arguments_that_are_one_array() -> None:
    text = """__global__ void k(int n, const float* x, float* y) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[AT];
    }"""
    launch = {"block": 32, "grid": "(n + 31) // 32"}
    for at, apart, together in (("i", True, True), ("n - 1 - i", True, False)):
        kernel = ck.Kernel(text.replace("AT", at))
        assert bool(ck.prove(kernel, "n <= len(x)", "n <= len(y)", **launch)) is apart
        proof = ck.prove(kernel, "x is y", "n <= len(x)", **launch)
        assert bool(proof) is together
        assert together or proof.findings[0].kind == "race"
        assert together or proof.verdict == "refuted"
    with pytest.raises(ArgumentError, match="not arrays of one type"):
        ck.prove(kernel, "x is n", **launch)


def test_a_part_of_a_number_is_read() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u32 n, .param .u64 x)
{
 .reg .b16 %h<3>; .reg .b32 %r<8>; .reg .b64 %d<5>;
 ld.param.u8 %h1, [n];
 ld.param.u64 %d1, [x];
 cvt.u32.u16 %r2, %h1;
 mul.wide.s32 %d2, %r2, 4;
 add.s64 %d3, %d1, %d2;
 st.global.u32 [%d3+AT], %r2;
 ret;
}
"""
    launch = {"block": 1, "grid": 1, "arch": "sm_80"}
    kernel = ck.Kernel.from_ptx(text.replace("AT", "0"), signature="void k(int n, int* x)")
    assert ck.prove(kernel, "len(x) >= 256", **launch)
    kernel = ck.Kernel.from_ptx(text.replace("AT", "-1024"), signature="void k(int n, int* x)")
    found = ck.prove(kernel, "len(x) >= 256", "256 <= n <= 300", **launch)
    assert found.verdict == "refuted", found


@pytest.mark.slow
@pytest.mark.usefixtures("kept_outcomes")
def test_what_takes_long_is_not_decided() -> None:
    text = """__global__ void k(int n, const float* x, float* y) {
        __shared__ float s[256];
        #pragma unroll 1
        for (int k = 0; k < 200; ++k) s[(threadIdx.x * 7 + k) % 256] = s[(threadIdx.x * 5 + k) % 256] + x[k % n];
        y[threadIdx.x] = s[threadIdx.x];
    }"""
    proof = ck.prove(ck.Kernel(text), "len(x) >= n", "n >= 1", "len(y) >= 256", block=256, grid=1, timeout_s=0.05)
    assert not proof
    assert "not all was decided in 30 times the steps of timeout_s=0.05" in str(proof)


def test_a_slow_machine_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ck.Kernel("__global__ void k(int n, float* x) { if (threadIdx.x < n) x[threadIdx.x] = 1; }")
    proof = ck.prove(kernel, "0 <= n <= len(x)", block=32, grid=1, timeout_s=1.0)
    clock = itertools.count(0, 1000)  # each look at the clock is a thousand seconds later
    for name in ("monotonic", "time", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: float(next(clock)))
    assert proof
    assert ck.prove(kernel, "0 <= n <= len(x)", block=32, grid=1, timeout_s=1.0) == proof


@pytest.mark.parametrize("timeout_s", [0.001, 0.005, 0.05])
def test_a_question_ends_after_so_many_steps_in_each_run(timeout_s: float) -> None:
    steps, verdicts = set(), set()
    for _ in range(3):
        a, b, c = (Symbol(name, 2, 1 << 40) for name in "abc")
        product = polynomial(a) * polynomial(b) * polynomial(c)
        solver = Solver(timeout_s)
        verdicts.add(solver.answer([equal(product, 1_000_003 * 998_244_353 * 7919)]).verdict)
        steps.add(solver.steps)
    assert len(verdicts) == len(steps) == 1
    assert steps.pop() <= 5 * timeout_s * STEPS_PER_S + 10_000


def test_the_order_of_lemmas_is_that_of_the_terms() -> None:
    orders = set()
    for _ in range(5):
        symbols = [Symbol(f"v{number}", 0) for number in range(12)]
        pairs = (polynomial(one) * polynomial(other) for one, other in itertools.pairwise(symbols))
        made = lemmas([at_least(sum(pairs, polynomial(0)), 1)], False)
        orders.add(tuple(re.findall(r"v\d+", repr(made))))
    assert len(orders) == 1


def test_a_kernel_of_tiles_is_refused() -> None:
    kernel = ck.Kernel("__tile_global__ void k(float* x) { }")
    assert ck.prove(kernel).verdict == "not supported"


def test_statements_that_nothing_meets_prove_nothing() -> None:
    kernel = ck.Kernel("__global__ void k(int n, float* x) { x[n] = 1; }")
    with pytest.raises(ArgumentError, match="no sizes meet"):
        ck.prove(kernel, "n < len(x)", "n > len(x)", block=1, grid=1)


def test_a_proof_as_json() -> None:
    kernel = ck.Kernel("__global__ void k(int n, float* x) { if (threadIdx.x <= n) x[threadIdx.x] = 1; }")
    found = ck.prove(kernel, "n <= len(x)", block=32, grid=1).to_json()
    assert found["verdict"] == "refuted"
    assert found["findings"][0]["kind"] == "bounds"
    assert found["findings"][0]["example"]["block"] == (32, 1, 1)


def test_without_the_solver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "z3", None)
    kernel = ck.Kernel("__global__ void k(int n, float* x) { x[n] = 1; }")
    with pytest.raises(CudakitError, match=r"cudakit\[prove\]"):
        ck.prove(kernel)


@pytest.mark.parametrize(("index", "verdict"), [("b ? 0 : 1", "refuted"), ("b ? 1 : 0", "refuted"), ("0", "proved")])
def test_a_bool_is_true_or_false(index: str, verdict: str) -> None:
    kernel = ck.Kernel(f"__global__ void k(bool b, int* x) {{ x[{index}] = 1; }}")
    assert ck.prove(kernel, "len(x) >= 1", block=1, grid=1, timeout_s=PATIENT_S).verdict == verdict


@pytest.mark.parametrize(("bound", "length", "verdict"), [(64, 64, "proved"), (64, 63, "refuted"), (96, 64, "refuted")])
def test_the_bound_of_a_launch_holds_for_any_block(bound: int, length: int, verdict: str) -> None:
    kernel = ck.Kernel(f"__global__ void __launch_bounds__({bound}) k(int* x) {{ x[threadIdx.x] = 1; }}")
    proof = ck.prove(kernel, f"len(x) >= {length}", "blockDim.y == 1", "blockDim.z == 1", grid=1, timeout_s=PATIENT_S)
    assert proof.verdict == verdict, proof
