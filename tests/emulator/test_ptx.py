"""The PTX parser: every directive, constant and operand of the grammar, by what comes out of it."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from support.emulated import run

import cudakit as ck
from cudakit.emulator.ptx.parser import parse
from cudakit.emulator.ptx.program import Address, Function, Group, Immediate, Pointer, Register, Symbol

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"


def body(text: str) -> Function:
    return parse(f"{HEAD}.visible .entry f() {{\n{text}\n}}").functions["f"]


def initial(text: str) -> bytes:
    """The bytes of the one variable in `text`, gaps as zeros."""
    (variable,) = parse(HEAD + text).variables.values()
    data = bytearray(variable.size)
    for offset, item in variable.data:
        assert isinstance(item, bytes)
        data[offset : offset + len(item)] = item
    return bytes(data)


# ── modules ──


def test_header_and_linking_directives() -> None:
    program = parse("""// a comment at the top
        .version 7.8 /* and one
        over lines */ .target sm_80, texmode_independent, debug
        .address_size 64
        .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b) ;
        .extern .shared .align 16 .b8 dynamic[];
        .visible .global .attribute(.managed) .align 8 .b8 managed[24];
        .weak .const .f32 pi = 3.25;
        .common .global .u32 shared_by_files;
        .global .attribute(.unified(19, 95)) .f32 unified;
        .global .texref old; .global .samplerref s = { addr_mode_0 = wrap, filter_mode = nearest };
        .pragma "nounroll";
        .section .debug_str { label: .b8 1,2,3 .b64 label }
        .file 1 "a // name.cu", 1234, 567
        .visible .entry f(.param .u64 .ptr .global .align 128 p) { ret; }
        """)
    assert program.target == "sm_80"
    assert set(program.functions) == {"vprintf", "f"}
    assert program.functions["vprintf"].is_declaration
    assert program.variables["dynamic"].extern
    assert program.variables["dynamic"].size == 0
    assert (program.variables["managed"].size, program.variables["managed"].align) == (24, 8)
    # The alignment after .ptr is that of what the parameter points to.
    (parameter,) = program.functions["f"].parameters
    assert (parameter.size, parameter.align, parameter.type) == (8, 8, "u64")


def test_performance_directives() -> None:
    function = parse(
        HEAD
        + """.entry f() .maxntid 16, 4 .reqntid 16,4,1 .minnctapersm 2 .maxnctapersm 4 .maxnreg 32
        .pragma "used_bytes_mask 0xfff", "nounroll"; .explicitcluster .reqnctapercluster 2, 1, 1 .maxclusterrank 8
        .blocksareclusters { ret; }
        .func .attribute(.unified(0xAB, 2)) g() .noreturn .abi_preserve 16 .abi_preserve_control 4 { trap; }"""
    ).functions
    assert function["f"].directives == {
        "maxntid": (16, 4), "reqntid": (16, 4, 1), "minnctapersm": (2,), "maxnctapersm": (4,), "maxnreg": (32,),
        "explicitcluster": (), "reqnctapercluster": (2, 1, 1), "maxclusterrank": (8,), "blocksareclusters": (),
    }  # fmt: skip
    assert function["g"].directives == {"noreturn": (), "abi_preserve": (16,), "abi_preserve_control": (4,)}


def test_alias_is_the_function_itself() -> None:
    out = np.zeros(32, "i4")
    run(
        HEAD
        + """.func (.param .b32 r) real () { st.param.b32 [r], 41; ret; }
        .func (.param .b32 r) other ();
        .alias other, real;
        .entry f(.param .u64 p) {
            .reg .b64 %rd<2>; .reg .b32 %r<2>;
            ld.param.u64 %rd1, [p];
            { .param .b32 back; call.uni (back), other; ld.param.b32 %r1, [back]; }
            st.global.u32 [%rd1], %r1;
            ret;
        }""",
        out,
    )
    assert out[0] == 41


# ── variables and their initialisers ──


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".global .u32 x = 7;", struct.pack("<I", 7)),
        (".global .s16 x[3] = {-1, +2};", struct.pack("<3h", -1, 2, 0)),
        (".global .u8 x[] = {1, 0x0A, 017, 0b101, 0XffU, 3U};", bytes([1, 10, 15, 5, 255, 3])),
        (".global .f32 x[4] = {1.5, -0f3F800000, 0d4000000000000000, 1e-1};", struct.pack("<4f", 1.5, -1, 2, 0.1)),
        (".global .f64 x[3] = {-2.5, 3, 0fC0000000};", struct.pack("<3d", -2.5, 3, -2)),
        (".global .f32 x = 1e300;", struct.pack("<f", float("inf"))),
        (".global .s32 x[2][3] = {{1}, {4, 5, 6}};", struct.pack("<6i", 1, 0, 0, 4, 5, 6)),
        (".global .s32 x[2][3] = {1, {4, 5, 6}};", struct.pack("<6i", 1, 0, 0, 4, 5, 6)),
        (".global .s32 x[2][3] = {1, 2, 3, 4};", struct.pack("<6i", 1, 2, 3, 4, 0, 0)),
        (".global .v2 .f32 x[2] = {{1.0, 2.0}, {3.0, 4.0}};", struct.pack("<4f", 1, 2, 3, 4)),
        (".global .v4 .u8 x = {1, 2, 3, 4};", bytes([1, 2, 3, 4])),
        (".global .b128 x = 5;", (5).to_bytes(16, "little")),
        (".global .u32 x = (1+2)*3;", struct.pack("<I", 9)),
        (".global .s32 x[5] = {-7/2, -7 % 2, 1<<4|1, ~0, !3};", struct.pack("<5i", -3, -1, 17, -1, 0)),
        (".global .s32 x[3] = {2>1 ? 10 : 20, 1==2 || 3>=3, 5&6^1};", struct.pack("<3i", 10, 1, 5)),
        (".global .u64 x[2] = {-1 > 0U, (.s64)-1 >> 60};", struct.pack("<2q", 1, -1)),
        (".global .u32 x = WARP_SZ*2;", struct.pack("<I", 64)),
        (".global .f64 x = 1.5 * 4 - 2;", struct.pack("<d", 4.0)),
        (".global .u64 x = 0xFFFFFFFFFFFFFFFF;", b"\xff" * 8),
    ],
)
def test_initialisers(text: str, expected: bytes) -> None:
    assert initial(text) == expected


def test_addresses_in_initialisers() -> None:
    variables = parse(
        HEAD
        + """.global .u32 table[4];
        .func g() { ret; }
        .global .u64 p[4] = {table, generic(table)+8, table - 4, g};
        .global .u8 bytes[3] = {0xFF(table), 0xFF00(generic(table)), 1};
        """
    ).variables
    assert [item for _, item in variables["p"].data] == [
        Pointer(Symbol("table", offset), 8, 6) for offset in (0, 8, -4)
    ] + [Pointer(Symbol("g"), 8, 6)]
    pointers = [item for _, item in variables["bytes"].data if isinstance(item, Pointer)]
    assert b"".join(pointer.to_bytes(0x123456) for pointer in pointers) == b"\x56\x34"


def test_structs_of_pointers_run() -> None:
    kernel = """
        __device__ int values[3] = {5, 6, 7};
        __device__ int twice(int x) { return 2 * x; }
        struct Entry { char tag; const int* value; int (*apply)(int); };
        __device__ Entry entries[2] = {{'a', &values[1], twice}, {'b', values + 2, twice}};
        __global__ void f(long long* out) {
            const Entry& e = entries[threadIdx.x % 2];
            out[threadIdx.x] = e.apply(*e.value) * 1000 + e.tag;
        }"""
    out = np.zeros(32, "i8")
    run(kernel, out)
    assert out.tolist() == [12_097, 14_098] * 16


# ── bodies ──


def test_instructions_share_lines_and_guards() -> None:
    function = body(""".reg .pred %p<2>; .reg .b32 %r<4>; mov.u32 %r1, %tid.x; add.s32 %r2, %r1, -3; // comment ;
        @%p1 mov .b32 %r3 , 0x10U ;@!%p1 bra.uni END;
        END: ret;""")
    assert [str(given) for given in function.code] == ["mov.u32", "add.s32", "mov.b32", "bra.uni", "ret"]
    assert [given.line for given in function.code] == [5, 5, 6, 6, 7]
    assert [given.guard for given in function.code] == [
        None, None, (Register("%p1"), False), (Register("%p1"), True), None,
    ]  # fmt: skip
    assert function.code[1].operands == (Register("%r2"), Register("%r1"), Immediate(-3))
    assert function.code[2].operands[1] == Immediate(16)
    assert function.labels == {"END": 4}


def test_accesses_of_vectors_of_one_element() -> None:
    store, load, mma = body(
        ".reg .b32 %r<8>; .reg .b64 %a; .reg .f64 %d<6>; st.global.b32 [%a], {%r1}; ld.global.b32 {%r2}, [%a]; "
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0, %d1}, {%d2}, {%d3}, {%d4, %d5}; ret;"
    ).code[:3]
    assert (store.operands[1], load.operands[0]) == (Register("%r1"), Register("%r2"))
    assert mma.operands[1] == Group("vector", (Register("%d2"),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%r1", Register("%r1")),
        ("_", Register("_")),
        ("%tid.x", Register("%tid.x")),
        ("0f3f800000", Immediate(0x3F800000, 32)),
        ("-0d3FF0000000000000", Immediate(0xBFF0000000000000, 64)),
        ("(1 + 2) * -3", Immediate(-9)),
        ("$va$r_1", Symbol("$va$r_1")),
        ("var+4*2", Symbol("var", 8)),
        ("var - 4", Symbol("var", -4)),
        ("[%r1+-8]", Address(Register("%r1"), -8)),
        ("[ %r1 + 16 ]", Address(Register("%r1"), 16)),
        ("[var-4]", Address(Symbol("var"), -4)),
        ("[1024]", Address(Immediate(1024))),
        ("{%r1, _}", Group("vector", (Register("%r1"), Register("_")))),
        ("{1, -2.0}", Group("vector", (Immediate(1), Immediate(0xC000000000000000, 64)))),
        ("%p1|%p2", Group("pair", (Register("%p1"), Register("%p2")))),
        ("!%p1", Group("not", (Register("%p1"),))),
        (
            "[%r1, {%r2, 3}]",
            Address(Register("%r1"), 0, (Group("vector", (Register("%r2"), Immediate(3))),)),
        ),
        ("%v", Group("vector", (Register("%v.x"), Register("%v.y")))),
        ("%v.g", Register("%v.y")),
    ],
)
def test_operands(text: str, expected: object) -> None:
    function = body(f".reg .pred %p<3>; .reg .b32 %r<4>; .reg .v2 .f32 %v; op.x %r3, {text} , 1;")
    assert function.code[0].operands == (Register("%r3"), expected, Immediate(1))


def test_scopes_rename_what_they_declare() -> None:
    function = body("""
        .reg .b32 t; .shared .b32 s;
        bra again;
        { .reg .b64 t; .shared .b64 s; again: mov.b64 t, s; @p bra again; { again: bra.uni again; } .reg .pred p; }
        again: mov.b32 t, s; bra again;""")
    jump, inner, back, innermost, outer, last = function.code
    targets = [given.operands[0] for given in (jump, back, innermost, last)]
    assert [function.labels[target.name] for target in targets if isinstance(target, Symbol)] == [4, 1, 3, 4]
    assert [function.registers[given.operands[0].name] for given in (inner, outer)] == ["b64", "b32"]  # type: ignore[union-attr]
    assert [function.variables[given.operands[1].name].size for given in (inner, outer)] == [8, 4]  # type: ignore[union-attr]


def test_tables_and_prototypes_of_branches_and_calls() -> None:
    function = body("""
        .reg .b32 %r<2>; .reg .b64 %rd<2>;
        table: .branchtargets A, B;
        brx.idx.uni %r1, table;
        A: proto : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]);
        callees: .calltargets f, g;
        { .param .b32 r; .param .b64 a; call (r), %rd1, (a), proto; }
        B: call f; ret;""")
    assert function.branch_targets["table"] == ("A", "B")
    assert function.code[1].operands == (
        Group("arguments", (Symbol("r#1"),)), Register("%rd1"), Group("arguments", (Symbol("a#1"),)), Symbol("proto"),
    )  # fmt: skip


def test_a_body_ends_like_a_return() -> None:
    for text in ("", ".reg .b32 r; mov.b32 r, 1;", ".reg .pred p; @p ret;", "bra END; END:"):
        assert str(body(text).code[-1]) == "ret"
    assert len(body("ret;").code) == 1


def test_lines_of_inlined_code_name_the_line_that_they_were_inlined_at() -> None:
    function = body("""
        .loc 1 10 3
        nop;
        .loc 2 5 1, function_name $L__info0, inlined_at 1 10 3
        nop;
        .loc 3 7 2, function_name $L__info0 + 14 , inlined_at 2 5 1
        nop; nop;
        .loc 1 0 0
        nop; }
        .file 1 "user.cu" .file 2 "lib.cuh" .file 3 "deep.cuh"
        .func g() {""")
    assert [str(given.source) if given.source else None for given in function.code] == [
        "user.cu:10", "lib.cuh:5, inlined at user.cu:10", "deep.cuh:7, inlined at user.cu:10",
        "deep.cuh:7, inlined at user.cu:10", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"lineinfo": True}, {"debug": True}], ids=["plain", "lineinfo", "debug"])
def test_what_the_compiler_writes_parses(options: dict[str, bool]) -> None:
    kernel = ck.Kernel(
        """
        template <int N> __device__ __noinline__ int power(int x) { return N ? x * power<N - 1>(x) : 1; }
        template <> __device__ __noinline__ int power<0>(int) { return 1; }
        __global__ void __launch_bounds__(64, 2) f(int* out, int k) {
            __shared__ int tile[64];
            tile[threadIdx.x] = power<3>(k);
            __syncthreads();
            switch (k) { case 0: out[5] = 3; break; case 1: out[6] = 4; break; case 2: out[9] = 7; break;
                         case 3: out[k * 4] = 8; break; case 4: out[1] = 1; break; case 5: __trap(); }
            out[threadIdx.x] = tile[63 - threadIdx.x];
        }""",
        options=ck.CompileOptions(**options),
    )
    program = parse(kernel[()].ptx(arch="sm_90"))
    (entry,) = (function for function in program.functions.values() if function.is_entry)
    assert entry.directives["maxntid"][0] == 64
    assert entry.directives["minnctapersm"] == (2,)
    assert any(given.source for given in entry.code) == bool(options)
    assert sum(variable.size for variable in entry.variables.values() if variable.space == "shared") == 256
