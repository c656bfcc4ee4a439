"""The PTX parser: every directive, constant and operand of the grammar, by what comes out of it."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from support.emulated import run

import cudakit as ck
from cudakit.emulator.machine.memory import Memory
from cudakit.emulator.machine.module import Module
from cudakit.emulator.ptx.parser import modules_in, parse
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


# ── several modules ──

FIRST = """.version 8.4
.target sm_90
.address_size 64
.global .align 4 .u32 own = 1;
.visible .global .align 4 .u32 seen = 2;
.func helper() { ret; }
.visible .entry first() { .reg .u32 %own; mov.u32 %own, own; call helper, (); ret; }
"""
SECOND = """.version 8.4
.target sm_90
.address_size 64
.extern .global .align 4 .u32 seen;
.global .align 4 .u32 own = 3;
.global .align 4 .u32 own_too[2] = {own, 4};
.const .align 4 .b8 alone[4] = {1, 2, 3, 4};
.func (.param .b32 r) helper(.param .b32 a) { ret; }
.visible .entry second() { .reg .u32 %own; mov.u32 %own, own; mov.u32 %own, seen; helper: ret; }
"""


def test_one_module_is_as_it_stands() -> None:
    assert list(modules_in(FIRST)) == [(FIRST, 1)]
    assert list(modules_in("garbage")) == [("garbage", 1)]


def test_names_that_modules_keep_to_themselves_are_made_different() -> None:
    (first, begin), (second, then) = modules_in(FIRST + SECOND)
    assert first == FIRST
    assert (begin, then) == (1, 8)
    assert "own$1 = 3" in second
    assert "mov.u32 %own, own$1;" in second
    assert "own_too[2] = {own$1, 4}" in second
    assert "alone[4]" in second
    assert "helper$1(.param .b32 a)" in second
    assert ".extern .global .align 4 .u32 seen;" in second
    assert second.replace("$1", "") == SECOND


def test_what_others_see_keeps_its_name_and_the_first_gives_way() -> None:
    own = ".version 8.4\n.target sm_90\n.func twice() { ret; }\n.global .u32 x;\n"
    seen = ".version 8.4\n.target sm_90\n.visible .func twice() { ret; }\n.global .u32 x[4];\n"
    (first, _), (second, begin), (third, last) = modules_in(f"{own}{seen}{own}")
    assert ".func twice$0()" in first
    assert ".global .u32 x;" in first
    assert ".visible .func twice()" in second
    assert ".global .u32 x$1[4];" in second
    assert ".func twice$2()" in third
    assert ".global .u32 x$2;" in third
    assert (begin, last) == (5, 9)


def test_what_stands_before_the_first_module_is_its_own() -> None:
    texts = list(modules_in("\n\n" + FIRST + "  .version 8.4\n.target sm_90\n"))
    assert texts[0] == ("\n\n" + FIRST, 1)
    assert texts[1] == ("  .version 8.4\n.target sm_90\n", 10)


def test_a_function_declared_here_and_defined_there_is_one() -> None:
    declared = """.version 8.4
.target sm_90
.address_size 64
.extern .func shared_one (.param .b32 a);
.visible .entry f() { .param .b32 p; call shared_one, (p); ret; }
"""
    defined = declared.replace(".extern", ".visible").replace("(.param .b32 a);", "(.param .b32 a) { ret; }")
    defined = defined.replace("entry f", "entry g").replace(" call shared_one, (p);", "")
    for text in (declared + defined, defined + declared):
        program = parse(text)
        assert not program.functions["shared_one"].is_declaration
        assert {"f", "g"} <= set(program.functions)
    program = parse(FIRST + SECOND)
    assert program.variables["own"].data[0][1] == (1).to_bytes(4, "little")
    assert program.variables["own$1"].data[0][1] == (3).to_bytes(4, "little")
    assert not program.variables["seen"].extern
    assert not parse(SECOND + FIRST).variables["seen"].extern
    with pytest.raises(ck.EmulationError, match="seen"):
        parse(FIRST + FIRST.replace("first", "other"))


def test_of_what_is_weak_the_first_counts() -> None:
    one = ".version 8.4\n.target sm_90\n.weak .global .u32 v = 1;\n.weak .func f() { ret; }\n"
    two = ".version 8.4\n.target sm_90\n.weak .global .u32 v = 2;\n.weak .func f() { trap; ret; }\n"
    program = parse(one + two)
    assert program.variables["v"].data[0][1] == (1).to_bytes(4, "little")
    assert len(program.functions["f"].code) == 1
    program = parse(two + one)
    assert program.variables["v"].data[0][1] == (2).to_bytes(4, "little")
    assert len(program.functions["f"].code) == 2
    with pytest.raises(ck.EmulationError, match=r"PTX line 7: variable v is defined twice"):
        parse(f"{one}.version 8.4\n.target sm_90\n.visible .global .u32 v = 3;\n")
    with pytest.raises(ck.EmulationError, match=r"PTX line 7: function f is defined twice"):
        parse(f"{one}.version 8.4\n.target sm_90\n.visible .func f() {{ ret; }}\n")
    with pytest.raises(ck.EmulationError, match="function f is defined twice"):
        parse(f"{one}.weak .func f() {{ ret; }}\n")


def test_a_variable_may_be_declared_before_it_is_defined() -> None:
    declared, defined = ".extern .global .u32 v;\n", ".visible .global .u32 v = 5;\n"
    for text in (declared + defined, declared + declared + defined):
        program = parse(HEAD + text)
        assert not program.variables["v"].extern
        assert program.variables["v"].data[0][1] == (5).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (".version 8.4\n.target sm_90\n.address_size 32\n", "line 3: only addresses of 64 bits are emulated"),
        (".version 8.4\n.target compute_90\n", r"line 2: target 'compute_90' is not emulated"),
        (".version x\n", r"line 1: PTX version x is not emulated; versions"),
        (".version\n", "PTX version nothing is not emulated"),
        (".target sm_90\n", r"line 1: PTX begins with \.version, found '\.target'"),
        ("", r"PTX begins with \.version, found 'nothing'"),
        (HEAD + '.file 1 name "x"\n', "expected the name of a file in quotes"),
        (HEAD + ".section .debug { 1\n", "the section does not end"),
        (HEAD + ".section .debug 1 }\n", "the section does not end"),
        (HEAD + ".nothing\n", r"unknown directive '\.nothing'"),
        (HEAD + ".visible .entry f() nothing { ret; }\n", "expected a directive or the body of f, found 'nothing'"),
        (HEAD + ".visible .entry f()", "expected a directive or the body of f, found 'the end'"),
        (HEAD + ".alias a, b;\n", "a is an alias of b, which is no function defined before"),
        (HEAD + ".func b();\n.alias a, b;\n", "a is an alias of b, which is no function defined before"),
    ],
)
def test_what_is_no_module_is_named_with_its_line(text: str, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=why):
        parse(text)


def test_directives_of_functions_are_kept_or_passed_over() -> None:
    program = parse(f"""{HEAD}
        .visible .entry f() .maxntid 128, 2, 1 .minnctapersm 2 .pragma "nounroll"; .attribute(.unified(1, 2)) {{ ret; }}
        .func .attribute(.unified(3, 4)) (.param .b32 r, .param .b64 s) g(.param .b32 a, .param .b64 b)
            .noreturn {{ ret; }}
        """)
    assert program.functions["f"].directives == {"maxntid": (128, 2, 1), "minnctapersm": (2,)}
    given = program.functions["g"]
    assert given.directives == {"noreturn": ()}
    assert [each.name for each in given.returns] == ["r", "s"]
    assert [each.name for each in given.parameters] == ["a", "b"]
    assert not given.is_entry


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (".u32 v = 1.5 % 2", "% takes no float"),
        (".u32 v = 2 << 1.5", "<< takes no float"),
        (".u32 v = ~1.5", "~ takes no float"),
        (".u32 v = 0fzz", "0fzz"),
        (".u32 v = 09", "09"),
        (".f32 v = 1 / 0", "constant"),
        (".u64 w = 7; .global .u64 v = 0(w)", "the mask of an address must be a whole number above 0"),
        (".u64 w = 7; .global .u64 v = 1.5(w)", "the mask of an address must be a whole number above 0"),
        (".u64 w = 7; .global .u64 v = w + 1.5", "an offset must be a whole number"),
        (".u64 v = 1 +", "found"),
        (".u64 v = {1", "found"),
    ],
)
def test_constants_that_cannot_be_are_named(text: str, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=f"PTX line 4: .*{why}"):
        parse(f"{HEAD}.global {text};")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7.0 / 2", 3.5), ("7 / 2.0", 3.5), ("1.0 + 2 * 3", 7.0), ("-(1.5)", -1.5), ("!0 + 1.25", 2.25),
        ("1.5 < 2 ? 4.5 : 8.0", 4.5), ("1.5 > 2 ? 4.5 : 8.0", 8.0),
    ],
)  # fmt: skip
def test_constants_of_floats(text: str, expected: float) -> None:
    assert struct.unpack("<d", initial(f".global .f64 v = {text};")) == (expected,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2 + 3 * 4", 14), ("2 * 3 + 4", 10), ("20 / 3 * 2", 12), ("20 - 3 - 2", 15), ("17 % 5 * 2", 4),
        ("1 << 2 + 3", 32), ("1 + 2 << 3", 24), ("64 >> 1 << 2", 128), ("64 >> 2 >> 1", 8),
        ("1 < 1 << 1", 1), ("1 << 1 < 1", 0), ("3 > 2 > 1", 0), ("2 >= 2 << 1", 0), ("5 <= 4 + 1", 1),
        ("2 < 3 == 1", 1), ("1 == 2 < 3", 1), ("3 != 3 > 2", 1), ("2 == 2 != 0", 1),
        ("6 & 3 == 3", 0), ("4 == 4 & 1", 1), ("3 ^ 6 & 4", 7), ("6 & 4 ^ 3", 7), ("1 | 6 ^ 3", 5), ("6 ^ 3 | 1", 5),
        ("8 | 1 && 0", 0), ("0 && 1 | 8", 0), ("1 || 0 && 0", 1), ("0 && 0 || 1", 1), ("2 && 4", 1), ("0 || 0", 0),
        ("1 || 0 ? 5 : 6", 5), ("0 ? 1 : 0 ? 2 : 3", 3), ("1 ? 0 ? 4 : 5 : 6", 5),
        ("-2 * -3", 6), ("- -5", 5), ("~5 & 7", 2), ("!5 + 1", 1), ("+5 - -5", 10), ("-(2 + 3)", -5),
        ("-7 / 2", -3), ("7 / -2", -3), ("-7 / -2", 3), ("-7 % 3", -1), ("7 % -3", 1),
        ("1 << 64", 1), ("1 << 65", 2), ("-8 >> 1", -4), ("0x8000000000000000 >> 63", 1), ("-1 >> 63", -1),
        ("0x7FFFFFFFFFFFFFFF >> 62", 1), ("0x7FFFFFFFFFFFFFFF > -1", 1), ("0x8000000000000000 > -1", 0),
        ("1 > -1", 1), ("1U > -1", 0), ("1 > -1U", 0), ("(.u64)1 > -1", 0), ("(.s64)1U > -1", 1), ("(.s64)2.75", 2),
        ("-1 >> 60U", -1), ("-1U >> 60", 15), ("0x7FFFFFFFFFFFFFFF + 1 < 0", 1), ("-1 + 0U > 0", 1),
        ("0b110 + 0x10 + 010", 30), ("0B11 + 0X1f", 34), ("WARP_SZ / 5", 6), ("2 * (3 + (4 - 1))", 12),
        ("(1 < 2) - 3 < 0", 1), ("1.5 < 2", 1), ("2.5 == 2.5", 1), ("1.5 != 1.5", 0),
    ],
)  # fmt: skip
def test_constant_expressions_are_those_of_c(text: str, expected: int) -> None:
    assert initial(f".global .s64 x = {text};") == struct.pack("<q", expected)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("18446744073709551616", "18446744073709551616 does not fit 64 bits"),
        ("0x10000000000000000", "does not fit 64 bits"),
        ("1 / 0", "the constant expression has no value"),
        ("5 % 0", "the constant expression has no value"),
        ("(.s64)1e400", "an infinity has no whole number"),
        ("1.5 | 2", r"\| takes no float"),
        ("2 && 1.5", "&& takes no float"),
        ("8.0 >> 1", ">> takes no float"),
        ("1 + 0f3F800000", "'0f3F800000' is no number that may stand here"),
        ("1 + 0d3FF0000000000000", "'0d3FF0000000000000' is no number that may stand here"),
        ("08", "'08' is no number that may stand here"),
        ("1 ? 2", "expected ':'"),
        ("(1", r"expected '\)'"),
        ("(" * 200 + "1" + ")" * 200, "nested too deeply"),
    ],
)
def test_constant_expressions_without_a_value_are_named(text: str, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=why):
        Module(parse(f"{HEAD}.global .s64 x = {text};"), Memory())


def test_the_largest_number_has_64_bits() -> None:
    assert initial(".global .u64 x = 18446744073709551615;") == b"\xff" * 8
    assert initial(".global .u64 x = 0xFFFFFFFFFFFFFFFF;") == b"\xff" * 8
    assert body(".reg .b32 %r<8>; mov.u32 %r7, 4294967295; ret;").code[0].operands[1] == Immediate(4294967295)


@pytest.mark.parametrize(
    ("plain", "spelled"),
    [
        (".global .align 8 .b8 a[16];", ".global .align 0x8 .b8 a[0x10];"),
        (".const .f64 a[3];", ".const .f64 a[3U];"),
        (".shared .align 2 .u16 a;", ".shared .align 0x2 .u16 a;"),
        (".global .align 1 .u8 a[2][3];", ".global .align 0x1 .u8 a[0x2][0x3];"),
        (".global .u32 a[3] = {1, 2};", ".global .u32 a[0x3] = {1, 2};"),
        (".global .u32 a [3] = {1, 2};", ".global .u32 a[3]={1, 2};"),
        (".global .u32 a=5;", ".global .u32 a = 5;"),
        (".global .align 16 .v4 .f32 a;", ".global .align 0x10 .v4 .f32 a;"),
    ],
)
def test_declarations_that_are_read_at_once_are_those_of_other_spellings(plain: str, spelled: str) -> None:
    found = [parse(HEAD + text) for text in (plain, spelled)]
    assert found[0].variables["a"] == found[1].variables["a"]


@pytest.mark.parametrize(
    "text", [".global .align 3 .b8 a[4];", ".global .u31 a;", ".global .b8 a[9999999999999];", ".global .b8 a[1;"]
)
def test_declarations_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ck.EmulationError, match="PTX line 4: "):
        parse(HEAD + text)
