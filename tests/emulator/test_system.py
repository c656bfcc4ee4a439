"""Traps, the stack, special registers, and forms that ordinary code rarely has."""

from __future__ import annotations

import numpy as np
import pytest
from support.emulated import apply, run

import cudakit as ck
from cudakit import emulator

#: What only the emulator has, or decides for itself: its clocks and registers, where its stack grows to.
pytestmark = pytest.mark.emulator

RANDOM = np.random.default_rng(3)


def ptx(body: str, registers: str = "") -> str:
    """A kernel that runs `body` with its first argument in %out, advanced by 8 bytes a thread."""
    return f""".version 8.6
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 p)
    {{
        .reg .b64 %out, %rd<9>; .reg .b32 %r<9>; .reg .b32 %i; .reg .pred %p<4>; {registers}
        ld.param.u64 %out, [p];
        mov.u32 %i, %tid.x;
        mad.wide.u32 %out, %i, 8, %out;
        {body}
        ret;
    }}"""


# ── traps ──


def test_a_trap_names_thread_kernel_and_line() -> None:
    kernel = ck.Kernel(
        "__device__ void check(int x) { if (x == 5) __trap(); }\n__global__ void f() { check(threadIdx.x); }",
        options=ck.CompileOptions(lineinfo=True),
    )
    with pytest.raises(
        ck.EmulationError, match=r"^f: .*trap.*kernel text> of .*:1, inlined.*block 0, thread 5 trapped"
    ):
        kernel(emulator.stream(), ck.config(1, 32))
    kernel(emulator.stream(), ck.config(1, 5))


def test_a_trap_names_the_grid_s_own_block() -> None:
    kernel = ck.Kernel("__global__ void f() { if (blockIdx.x == 300 && threadIdx.y == 1) __trap(); }")
    with pytest.raises(ck.EmulationError, match=r"block 300, thread \(0, 1, 0\) trapped"):
        kernel(emulator.stream(), ck.config(400, (512, 2)))


def test_a_breakpoint_and_an_exit() -> None:
    kernel = ck.Kernel("__global__ void f(int* x) { x[threadIdx.x] = 1; if (x[1]) __brkpt(); x[1] = 2; }")
    with pytest.raises(ck.EmulationError, match=r"brkpt.*block 0, thread 0 trapped"):
        kernel(emulator.stream(), ck.config(1, 2), np.zeros(2, "i4"))
    leave = ck.Kernel("""
        __device__ __noinline__ void quit(int i) { if (i % 2) asm volatile("exit;"); }
        __global__ void f(int* x) { quit(threadIdx.x); x[threadIdx.x] = 1; }""")
    out = np.zeros(6, "i4")
    leave(emulator.stream(), ck.config(1, 6), out)
    assert out.tolist() == [1, 0] * 3


# ── the stack ──


def test_memory_on_the_stack() -> None:
    out = np.zeros(40, np.uint64)
    body = """
        stacksave.u64 %rd1;
        add.u32 %r1, %i, 1;
        mul.wide.u32 %rd2, %r1, 8;
        alloca.u64 %rd3, %rd2, 16;           // 8 (i + 1) bytes
        alloca.u64 %rd4, %rd2, 16;           // a second piece, behind it
        add.u64 %rd5, %rd3, %rd2;
        st.local.u64 [%rd5+-8], 7;           // the last word of the first
        st.local.u64 [%rd4], %rd2;
        ld.local.u64 %rd6, [%rd5+-8];
        ld.local.u64 %rd7, [%rd4];
        add.u64 %rd6, %rd6, %rd7;
        and.b64 %rd8, %rd4, 15;
        add.u64 %rd6, %rd6, %rd8;            // nothing: it is aligned
        stackrestore.u64 %rd1;
        alloca.u64 %rd4, 16, 16;
        sub.u64 %rd4, %rd4, %rd3;            // nothing: the first piece's place is free again
        add.u64 %rd6, %rd6, %rd4;
        st.global.u64 [%out], %rd6;"""
    run(ptx(body), out, block=40)
    assert out.tolist() == [7 + 8 * (i + 1) for i in range(40)]


def test_a_function_frees_its_stack() -> None:
    text = """.version 8.6
    .target sm_90
    .address_size 64
    .func take() { .reg .b64 %rd<3>; alloca.u64 %rd1, 100000, 8; st.local.u64 [%rd1], 1; ret; }
    .visible .entry k(.param .u64 p)
    { .reg .b32 %r<3>; .reg .pred %p; mov.u32 %r1, 0;
      loop: call take; add.u32 %r1, %r1, 1; setp.lt.u32 %p, %r1, 50; @%p bra loop; ret; }"""
    run(text, np.zeros(1, np.uint64), block=2)


# ── special registers ──


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tid.x", range(40)), ("tid.y", [0] * 40), ("ntid.x", [40] * 40), ("ctaid.x", [0] * 40), ("nctaid.z", [1] * 40),
        ("laneid", [i % 32 for i in range(40)]), ("warpid", [i // 32 for i in range(40)]), ("nwarpid", [2] * 40),
        ("smid", [0] * 40), ("nsmid", [132] * 40), ("lanemask_eq", [1 << i % 32 for i in range(40)]),
        ("lanemask_lt", [(1 << i % 32) - 1 for i in range(40)]),
        ("lanemask_le", [(2 << i % 32) - 1 for i in range(40)]),
        ("lanemask_gt", [2**32 - (2 << i % 32) for i in range(40)]),
        ("lanemask_ge", [2**32 - (1 << i % 32) for i in range(40)]), ("dynamic_smem_size", [100] * 40),
        ("total_smem_size", [128] * 40), ("aggr_smem_size", [128 + 1024] * 40), ("pm0", [0] * 40), ("pm7", [0] * 40),
        ("envreg7", [0] * 40), ("envreg31", [0] * 40), ("clock_hi", [0] * 40), ("globaltimer_hi", [0] * 40),
        ("clusterid.x", [0] * 40), ("nclusterid.x", [1] * 40), ("cluster_ctaid.x", [0] * 40),
        ("cluster_nctaid.x", [1] * 40), ("cluster_ctarank", [0] * 40), ("cluster_nctarank", [1] * 40),
        ("reserved_smem_offset_cap", [1024] * 40),
    ],
)  # fmt: skip
def test_special_registers(name: str, expected: list[int]) -> None:
    out = np.full(40, 2**64 - 1, np.uint64)
    run(ptx(f"mov.u32 %r1, %{name}; cvt.u64.u32 %rd1, %r1; st.global.u64 [%out], %rd1;"), out, block=40, shared=100)
    assert out.tolist() == list(expected)


@pytest.mark.parametrize(("name", "expected"), [("gridid", 1), ("pm3_64", 0), ("current_graph_exec", 0)])
def test_wide_special_registers(name: str, expected: int) -> None:
    out = np.full(1, 2**64 - 1, np.uint64)
    run(ptx(f"mov.u64 %rd1, %{name}; st.global.u64 [%out], %rd1;"), out, block=1)
    assert out.tolist() == [expected]


@pytest.mark.parametrize("name", ["clock64", "globaltimer"])
def test_clocks_grow(name: str) -> None:
    out = np.zeros(1, np.uint64)
    body = f"mov.u64 %rd1, %{name}; nanosleep.u32 100; mov.u64 %rd2, %{name}; sub.u64 %rd1, %rd2, %rd1;"
    run(ptx(f"{body} st.global.u64 [%out], %rd1;"), out, block=1)
    assert 0 < out[0] < 10


def test_reserved_shared_memory_lies_behind_the_block_s_own() -> None:
    out = np.zeros(1, np.uint64)
    body = """mov.u32 %r1, %reserved_smem_offset_begin; mov.u32 %r2, %reserved_smem_offset_end;
        mov.u32 %r3, %reserved_smem_offset_1; mov.u32 %r4, %reserved_smem_offset_0;
        sub.u32 %r2, %r2, %r1; sub.u32 %r3, %r3, %r4; mul.lo.u32 %r3, %r3, 65536; add.u32 %r2, %r2, %r3;
        setp.ge.u32 %p1, %r1, 100; selp.u32 %r2, %r2, 0, %p1; cvt.u64.u32 %rd1, %r2; st.global.u64 [%out], %rd1;"""
    run(ptx(body), out, block=1, shared=100)
    assert out.tolist() == [512 * 65536 + 1024]


def test_an_unknown_special_register_is_named() -> None:
    with pytest.raises(ck.EmulationError, match="%pm9 is not emulated"):
        run(ptx("mov.u32 %r1, %pm9;"), np.zeros(1, np.uint64))


# ── forms that ordinary code rarely has ──


def test_shuffles_and_votes_of_older_targets() -> None:
    out = np.zeros(32, np.uint64)
    body = """setp.lt.u32 %p1, %i, 5;
        shfl.down.b32 %r1, %i, 3, 31;
        vote.ballot.b32 %r2, %p1; vote.any.pred %p2, %p1; vote.all.pred %p3, %p1;
        selp.u32 %r3, 100, 0, %p2; selp.u32 %r4, 1000, 0, %p3;
        add.u32 %r1, %r1, %r2; add.u32 %r1, %r1, %r3; add.u32 %r1, %r1, %r4;
        cvt.u64.u32 %rd1, %r1; st.global.u64 [%out], %rd1;"""
    run(ptx(body), out, block=32)
    assert out.tolist() == [(i + 3 if i < 29 else i) + 31 + 100 for i in range(32)]


@pytest.mark.parametrize("operation", ["min", "max", "min.abs", "max.NaN", "min.abs.NaN"])
def test_redux_of_floats(operation: str) -> None:
    values = RANDOM.standard_normal(32).astype(np.float32)
    values[[3, 9]] = -5, np.nan
    got = apply(f"redux.sync.{operation}.f32 {{d}}, {{0}}, 0xffffffff", values).view(np.float32)
    plain = np.abs(values) if "abs" in operation else values
    reduce = np.nanmin if operation.startswith("min") else np.nanmax
    assert np.isnan(got).all() if "NaN" in operation else (got == reduce(plain)).all()
    values.view(np.uint32)[9] = 0x7F800001  # a signalling one counts for no more
    assert (apply(f"redux.sync.{operation}.f32 {{d}}, {{0}}, 0xffffffff", values).view(np.float32) == got).all() or (
        "NaN" in operation
    )


@pytest.mark.parametrize("operation", ["and", "or", "xor"])
def test_redux_of_bits(operation: str) -> None:
    values = RANDOM.integers(0, 2**32, 32).astype(np.uint32)
    got = apply(f"redux.sync.{operation}.b32 {{d}}, {{0}}, 0xffffffff", values)
    assert set(got.tolist()) == {int(getattr(np, f"bitwise_{operation}").reduce(values))}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_out_of_bounds_fma_ignores_the_marked_value(kind: str) -> None:
    # The mark is the NaN that tensor copies fill with, of either sign, in both types: so an H200 has it.
    one, marked, other, two = 0x3C00 if kind == "f16" else 0x3F80, 0x7FF7, 0xFFF7, 0x4000
    a = np.array([one, marked, one, other], np.uint16)
    b = np.array([one, one, marked, marked], np.uint16)
    c = np.full(4, one, np.uint16)
    # It makes the result 0 before anything is added; ISA 9.7.4.4.
    assert apply(f"fma.rn.oob.{kind} {{d}}, {{0}}, {{1}}, {{2}}", a, b, c, out=16).tolist() == [two, 0, 0, 0]
    plain = np.array([0x7FFF, 0xFFFF, 0x7FF6, 0x7FF8], np.uint16)
    got = apply(f"fma.rn.oob.{kind} {{d}}, {{0}}, {{1}}, {{2}}", plain, b[:1].repeat(4), c, out=16)
    assert (got == 0x7FFF).all()


def test_halves_collide_in_atomics() -> None:
    """Minimum, maximum and sum of pairs of halves and brains by 64 threads, in every vector length."""
    text = """.version 8.6
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 p, .param .u64 q)
    {{ .reg .b64 %a, %b; .reg .b32 %i, %r<5>; .reg .b16 %h<9>;
      ld.param.u64 %a, [p]; ld.param.u64 %b, [q]; mov.u32 %i, %tid.x; mad.wide.u32 %b, %i, 16, %b;
      {} ret; }}"""
    halves = RANDOM.integers(-8, 8, (64, 8)).astype(np.float16)
    brains = (halves.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    load = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%b];"
    split = " ".join(f"mov.b32 {{%h{2 * n - 1}, %h{2 * n}}}, %r{n};" for n in range(1, 5))
    for kind, given in (("f16", halves.view(np.uint16)), ("bf16", brains)):
        for operation, reduce in (("min", np.min), ("max", np.max), ("add", np.sum)):
            bodies = [
                f"red.global.{operation}.noftz.v4.{kind}x2 [%a], {{%r1, %r2, %r3, %r4}};",
                f"{split} red.global.{operation}.noftz.v8.{kind} [%a], {{%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}};",
                " ".join(f"red.global.{operation}.noftz.{kind}x2 [%a+{4 * n}], %r{n + 1};" for n in range(4)),
            ]
            expected = reduce(np.concatenate((np.zeros((1, 8)), halves.astype(float))), axis=0)
            for body in bodies:
                memory = np.zeros(8, np.uint16)
                run(text.format(load + body), memory, np.ascontiguousarray(given), block=64)
                wide = memory.view(np.float16) if kind == "f16" else (memory.astype(np.uint32) << 16).view(np.float32)
                assert wide.astype(float).tolist() == expected.tolist(), (kind, body)


def test_vector_atomics_give_what_was_there() -> None:
    text = """.version 8.6
    .target sm_90
    .address_size 64
    .visible .entry k(.param .u64 p, .param .u64 q)
    { .reg .b64 %a, %b; .reg .b32 %i; .reg .f32 %f<5>;
      ld.param.u64 %a, [p]; ld.param.u64 %b, [q]; mov.u32 %i, %tid.x; mad.wide.u32 %b, %i, 8, %b;
      atom.global.v2.f32.add {%f1, %f2}, [%a], {0f3F800000, 0f40000000};
      st.global.v2.f32 [%b], {%f1, %f2}; ret; }"""
    memory, old = np.array([10, 20], np.float32), np.zeros((8, 2), np.float32)
    run(text, memory, old, block=8)
    assert memory.tolist() == [18, 36]
    assert old.tolist() == [[10 + i, 20 + 2 * i] for i in range(8)]


def test_saturated_conversions_to_floats() -> None:
    x = np.array([-2, -0.0, 0.25, 1, 1.5, np.inf, -np.inf, np.nan], np.float32)
    expected = np.array([0, 0, 0.25, 1, 1, 1, 0, 0], np.float32)
    assert apply("cvt.sat.f32.f32 {d}, {0}", x).view(np.float32).tolist() == expected.tolist()
    assert apply("cvt.rn.sat.f16.f32 {d}, {0}", x, out=16).view(np.float16).tolist() == expected.tolist()
    whole = np.array([-3, 0, 1, 7, 2**31 - 1, -(2**31)], np.int32)
    assert apply("cvt.rn.sat.f32.s32 {d}, {0}", whole).view(np.float32).tolist() == [0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
def test_tf32_roundings(mode: str) -> None:
    bits = RANDOM.integers(0, 0x7F000000, 200).astype(np.uint32)
    bits[:4] = 0x3F801000, 0x3F803000, 0x3F800FFF, 0x3F801001
    low = bits.astype(np.int64) & 0x1FFF
    down = bits.astype(np.int64) - low
    up = {"rz": low < 0, "rna": low >= 0x1000, "rn": (low > 0x1000) | ((low == 0x1000) & (down >> 13 & 1 == 1))}[mode]
    assert (apply(f"cvt.{mode}.tf32.f32 {{d}}, {{0}}", bits) == down + 0x2000 * up).all()
    edge = np.array([0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000], np.uint32)
    finite = apply(f"cvt.{mode}.satfinite.tf32.f32 {{d}}, {{0}}", edge)
    assert finite.tolist() == [0x7F7FE000, 0xFF7FE000, 0x7F7FE000]


@pytest.mark.parametrize(("kind", "low", "high"), [("u16", 0, 65535), ("s16", -32768, 32767), ("u8", 0, 255),
                         ("s8", -128, 127), ("u4", 0, 15), ("s4", -8, 7), ("u2", 0, 3), ("s2", -2, 1)])  # fmt: skip
def test_packing_conversions(kind: str, low: int, high: int) -> None:
    bits = int(kind[1:])
    a, b = (RANDOM.integers(-2 * high - 3, 2 * high + 3, 100).astype(np.int32) for _ in range(2))
    c = RANDOM.integers(0, 2**32, 100).astype(np.uint32)
    mask = (1 << bits) - 1
    first, second = (np.clip(v.astype(np.int64), low, high) & mask for v in (a, b))
    if bits == 16:
        got, rest = apply(f"cvt.pack.sat.{kind}.s32 {{d}}, {{0}}, {{1}}", a, b), 0
    else:
        got = apply(f"cvt.pack.sat.{kind}.s32.b32 {{d}}, {{0}}, {{1}}, {{2}}", a, b, c)
        rest = c.astype(np.int64) << 2 * bits
    assert (got == ((rest | first << bits | second) & 0xFFFFFFFF)).all()


def test_forms_that_would_be_taken_for_others_are_refused() -> None:
    x = np.zeros(1, np.float32)
    for text in ("cvt.rs.f16x2.f32 {d}, {0}, {0}, 5",
                 "cvt.rn.satfinite.e2m3x2.f32 {d}, {0}, {0}",
                 "cvt.rn.satfinite.ue8m0x2.f32 {d}, {0}, {0}",
                 "cvt.rn.bf16x2.e4m3x2 {d}, {0}", "add.f32.f16 {d}, {0}, {0}"):  # fmt: skip
        with pytest.raises(ck.EmulationError, match="emulated"):
            apply(text, x)


def test_hints_to_caches_change_nothing() -> None:
    out = np.zeros(4, np.uint64)
    body = """createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F000000;
        createpolicy.range.global.L2::evict_last.L2::evict_unchanged.b64 %rd2, [%out], 8, 16;
        prefetch.global.L2 [%out]; prefetchu.L1 [%out]; applypriority.global.L2::evict_normal [%out], 128;
        cvt.u64.u32 %rd3, %i;
        st.global.L2::cache_hint.u64 [%out], %rd3, %rd1;
        ld.global.L1::no_allocate.L2::cache_hint.L2::128B.u64 %rd4, [%out], %rd1;
        atom.global.add.L2::cache_hint.u64 %rd5, [%out], %rd4, %rd1;
        red.global.add.L2::cache_hint.u64 [%out], %rd5, %rd1;"""
    run(ptx(body), out, block=4)
    assert out.tolist() == [3 * i for i in range(4)]


def test_atomics_of_sixteen_bytes() -> None:
    kernel = ck.Kernel("""
        struct alignas(16) Two { unsigned long long a, b; };
        __global__ void f(Two* p, Two* old) {
            unsigned long long i = threadIdx.x;
            old[2 * i] = atomicExch(p, Two{i, ~i});
            old[2 * i + 1] = atomicCAS(p + 1, Two{i, 7}, Two{i + 1, i < 20 ? 7 : 8});
        }""")
    memory, old = np.zeros((2, 2), np.uint64), np.zeros((32, 2, 2), np.uint64)
    memory[:] = [[5, 6], [0, 7]]
    kernel(emulator.stream(), ck.config(1, 32), memory.view("u1"), old.view("u1"))
    threads = np.arange(32, dtype=np.uint64)
    assert memory[0].tolist() == [31, 2**64 - 32]
    assert old[0, 0].tolist() == [5, 6]
    np.testing.assert_array_equal(old[1:, 0], np.stack((threads, ~threads), -1)[:-1])
    # The 21st leaves what no later one expects: its low half is theirs, its high half is not.
    assert memory[1].tolist() == [21, 8]
    np.testing.assert_array_equal(old[:21, 1, 0], threads[:21])
    assert (old[21:, 1] == [21, 8]).all()
