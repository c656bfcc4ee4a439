"""Random programs leave the same bytes, and end with the same error, on both machines."""

from __future__ import annotations

import re
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.random_programs import IN, OUT, Program

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.compiled import machine as compiled_machine

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

HEAD = "__global__ void f(const unsigned* in, unsigned* out, unsigned* sums, unsigned number);"


def words() -> np.ndarray:
    """Words that are numbers of many sizes, of whole numbers and of floats, and special ones."""
    drawn = np.random.default_rng(1)
    found = drawn.integers(0, 1 << 32, IN // 4, dtype=np.uint32)
    floats = drawn.normal(size=len(found[::3])) * 10.0 ** drawn.integers(-3, 6, len(found[::3]))
    found[::3] = floats.astype(np.float32).view(np.uint32)
    found[1::6] = drawn.integers(0, 64, len(found[1::6]))
    singles = [0, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 0x80000001, 0x00800000]
    found[5::40] = np.resize(np.array(singles, np.uint32), len(found[5::40]))
    doubles = [0x7FF00000, 0xFFF80000, 0x3FF00000, 0x41F00000]
    found[6::50] = np.resize(np.array(doubles, np.uint32), len(found[6::50]))
    return found


WORDS = words()


def ran(program: Program, number: int, machine: str) -> tuple[bytes, bytes, str]:
    """What a program leaves in memory, or the error that it ends with, without the addresses."""
    kernel = ck.Kernel.from_ptx(program.text, signature=HEAD)
    sums, out = np.zeros(256, np.uint32), np.zeros(program.block * program.blocks * OUT // 4, np.uint32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ck.EmulatorWarning)
            kernel(
                emulator.stream(machine=machine),  # type: ignore[arg-type]
                ck.config(program.blocks, program.block),
                WORDS.copy(),
                out,
                sums,
                np.uint32(number),
            )
    except ck.EmulationError as error:
        return b"", b"", re.sub("0x[0-9a-f]+|byte -?[0-9]+", "…", str(error))
    return out.tobytes(), sums.tobytes(), ""


def check(program: Program, number: int) -> None:
    assert ran(program, number, "compiled") == ran(program, number, "numpy"), program.text


@pytest.mark.slow
@pytest.mark.parametrize("count", [6, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_random_programs(count: int) -> None:
    @settings(
        max_examples=count,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    @given(st.randoms(use_true_random=False), st.sampled_from((4, 10, 20, 30)), st.integers(0, 4))
    def agree(draw: Random, size: int, number: int) -> None:
        check(Program(draw, size, fault=draw.random() < 0.15), number)

    agree()


@pytest.mark.parametrize("code", ["best"], indirect=True)  # the seed decides
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(2, 6)))])
def test_long_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_machine, "_SHORT", 0 if seed % 2 else 1 << 30)
    check(Program(Random(seed), size=80), seed)


def module(body: str) -> str:
    """A module whose kernel has a thread's own words at ``%own``."""
    return f"""
.version 8.6
.target sm_90
.address_size 64
.visible .entry f(.param .u64 in, .param .u64 out, .param .u64 sums, .param .u32 number)
{{
    .shared .align 16 .b8 sh[4096];
    .reg .b32 %r<8>;
    .reg .b64 %in, %out, %own;
    .reg .f32 %f<3>;
    .reg .pred %p<3>;
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %r0, %tid.x;
    mad.wide.u32 %own, %r0, {OUT}, %out;
    mad.wide.u32 %in, %r0, 4, %in;
{body}
    ret;
}}
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            """
    ld.global.u32 %r1, [%in];
    setp.lt.u32 %p0, %r0, %r1;
    st.global.u32 [%own], %r1;
    @%p0 bra END;
END:""",
            id="both ways of a branch are the same",
        ),
        pytest.param(
            """
    .reg .b16 %h<2>;
    mov.b32 {%h0, %h1}, 33;
    st.global.b16 [%own], %h1;
    st.global.b16 [%own+2], %h0;""",
            id="halves of a number are no floats",
        ),
        pytest.param(
            """
    ld.global.f32 %f0, [%in+20];
    ld.global.f32 %f1, [%in+1440];
    setp.lt.u32 %p0, %r0, 16;
    @%p0 sub.f32 %f0, %f1, %f0;
    mov.b32 %f2, 0f7FC00000;
    fma.rn.f32 %f2, %f2, %f0, %f1;
    st.global.f32 [%own], %f0;
    st.global.f32 [%own+4], %f2;""",
            id="a register that is loaded and computed is no number in one form",
        ),
        pytest.param(
            """
    mov.u32 %r1, 0;
    ld.global.u32 %r2, [%in];
    and.b32 %r3, %r2, 1;
    setp.eq.u32 %p0, %r3, 0;
TURN:
    @%p0 add.u32 %r2, %r2, 41;
    bar.sync 0;
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %r1, 4;
    @%p1 bra TURN;
    st.global.u32 [%own], %r2;""",
            id="what is written under a guard is kept over a barrier",
        ),
        pytest.param(
            """
    and.b32 %r1, %r0, 16;
    mov.u32 %r2, 65535;
    shl.b32 %r2, %r2, %r1;
    redux.sync.add.u32 %r3, %r0, %r2;
    shr.u32 %r4, %r0, 1;
    match.any.sync.b32 %r5, %r4, %r2;
    setp.gt.u32 %p0, %r0, 9;
    vote.sync.ballot.b32 %r6, %p0, %r2;
    shfl.sync.down.b32 %r7, %r0, 3, 31, %r2;
    st.global.v4.u32 [%own], {%r3, %r5, %r6, %r7};
    match.all.sync.b32 %r3|%p1, %r1, %r2;
    vote.sync.all.pred %p2, %p0, %r2;
    selp.u32 %r4, 1, 0, %p1;
    selp.u32 %r5, 1, 0, %p2;
    st.global.v4.u32 [%own+16], {%r3, %r4, %r5, %r0};""",
            id="halves of a warp name themselves",
        ),
        pytest.param(
            """
    ld.global.f32 %f0, [%in+20];
    setp.lt.u32 %p0, %r0, 16;
    mov.b32 %f2, 0f7F800000;
    sub.f32 %f2, %f2, %f2;
    fma.rn.f32 %f2, %f0, 0f00000000, %f2;
    @%p0 ld.global.f32 %f1, [%in+40];
    @!%p0 mov.f32 %f1, %f2;
    st.global.f32 [%own], %f1;
    mov.f32 %f0, %f2;
    st.global.f32 [%own+4], %f0;""",
            id="a number that is loaded or moved is no NaN in another form",
        ),
        pytest.param(
            """
    ld.global.u32 %r1, [%in];
    ld.global.u32 %r2, [%in+256];
    ld.global.u32 %r3, [%in+512];
    mad.lo.cc.s32 %r4, %r1, %r2, %r3;
    madc.hi.cc.s32 %r5, %r1, %r2, %r3;
    madc.hi.s32 %r6, %r2, %r3, %r1;
    mad.hi.cc.u32 %r7, %r1, %r2, %r3;
    st.global.v4.u32 [%own], {%r4, %r5, %r6, %r7};
    mad.hi.cc.s32 %r4, %r1, %r2, %r3;
    madc.lo.cc.u32 %r5, %r1, %r2, %r3;
    addc.cc.u32 %r6, %r1, %r2;
    subc.cc.u32 %r7, %r1, %r2;
    st.global.v4.u32 [%own+16], {%r4, %r5, %r6, %r7};
    sub.cc.u32 %r4, %r1, %r2;
    subc.u32 %r5, %r2, %r3;
    add.cc.s32 %r6, %r3, %r3;
    addc.u32 %r7, %r1, %r2;
    st.global.v4.u32 [%own+32], {%r4, %r5, %r6, %r7};""",
            id="products and sums have their carries",
        ),
        pytest.param(
            """
    mov.u32 %r1, %nwarpid;
    mov.u32 %r2, %warpid;
    mov.u32 %r3, %laneid;
    mov.u32 %r4, %lanemask_eq;
    st.global.v4.u32 [%own], {%r1, %r2, %r3, %r4};
    mov.u32 %r1, %lanemask_lt;
    mov.u32 %r2, %lanemask_le;
    mov.u32 %r3, %lanemask_gt;
    mov.u32 %r4, %lanemask_ge;
    st.global.v4.u32 [%own+16], {%r1, %r2, %r3, %r4};
    mov.u32 %r1, %ntid.x;
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, %tid.y;
    mov.u32 %r4, %ntid.z;
    st.global.v4.u32 [%own+32], {%r1, %r2, %r3, %r4};""",
            id="special registers of a lane, its warp and its block",
        ),
    ],
)
def test_what_random_programs_found(body: str) -> None:
    program = Program(Random(0), size=2)
    program.text, program.block, program.blocks = module(body), 64, 1
    check(program, 0)
