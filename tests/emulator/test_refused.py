"""Instructions that cannot be as they stand, or as they are run: each is named, and none gives a wrong result."""

from __future__ import annotations

import re

import numpy as np
import pytest
from support.emulated import run

import cudakit as ck

pytestmark = pytest.mark.emulator

PROGRAM = """.version 8.4
.target sm_90a
.address_size 64
.const .align 4 .u32 fixed = 7;
.visible .entry f(.param .u64 x) {{
    .shared .align 128 .b8 s[2048];
    .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .b64 %d<6>; .reg .f32 %f<6>; .reg .pred %p<4>;
    mov.u32 %r0, %tid.x; ld.param.u64 %d0, [x]; mov.u32 %r9, s;
    {body}
    ret;
}}
"""


def step(body: str, x: np.ndarray, block: int = 32, cluster: int = 1) -> np.ndarray:
    """Run PTX by each thread, in which ``%d0`` is the address of `x`, ``%r9`` that of shared memory."""
    run(PROGRAM.format(body=body), x, block=block, cluster=cluster, grid=cluster)
    return x


WGMMA = "wgmma.mma_async.sync.aligned."


@pytest.mark.parametrize(
    ("body", "block", "why"),
    [
        ("cp.async.ca.shared.global [%r9], [%d0], %r0;", 32, "the size of cp.async is no constant"),
        ("mov.u32 %r1, 17; cp.async.ca.shared.global [%r9], [%d0], 16, %r1;", 32, "16 bytes from a source of 17"),
        ("cp.async.wait_group %r0;", 32, "the number of groups is no constant"),
        ("cp.async.ca.shared.global [%r9], [%d0+8], 16;", 32, "is not aligned to 16 bytes"),
        ("cp.async.ca.shared.global [%r9+4], [%d0], 8;", 32, "is not aligned to 8 bytes"),
        ("mbarrier.init.shared.b64 [%r9], 0;", 1, "an mbarrier for 0 arrivals; 1 … 1048575 are possible"),
        ("mbarrier.init.shared.b64 [%r9], 1048576;", 1, "an mbarrier for 1048576 arrivals"),
        ("mbarrier.init.shared.b64 [%r9], 3; mbarrier.arrive.shared.b64 %d1, [%r9], 4;", 1, "more arrivals"),
        ("mbarrier.arrive.shared.b64 %d1, [%r9];", 32, "that mbarrier.init has not made"),
        ("mov.u64 %d1, 0; mbarrier.test_wait.shared.b64 %p0, [%r9], %d1;", 32, "that mbarrier.init has not made"),
        ("bar.sync 16;", 32, "barrier 16 of 16"),
        ("bar.sync 1, 33;", 32, "a barrier for 33 threads: the number must be a multiple of 32"),
        ("barrier.cluster.wait;", 32, "waits at the cluster's barrier where it has not arrived"),
        ("setp.lt.u32 %p0, %r0, 16; @%p0 barrier.cluster.arrive; @%p0 barrier.cluster.arrive;", 32, "arrives twice"),
        ("getctarank.u64 %r1, %d0;", 32, "a generic address that is not in shared memory"),
        ("mov.u32 %r1, 2; T: .branchtargets A, B; A: brx.idx %r1, T; B: ret;", 32, "branch 2 is outside the table"),
        ("mov.u64 %d1, fixed; st.const.u32 [%d1], %r0;", 32, "constant memory cannot be stored to"),
        ("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d0+8];", 32, "is not aligned to 16 bytes"),
        ("st.global.v2.u64 [%d0+8], {%d1, %d2};", 32, "is not aligned to 16 bytes"),
        ("vadd2.u32.u32.u32 %r1, %r0, %r0;", 32, "SIMD video instructions take three sources"),
        ("vadd4.u32.u32.u32 %r1, %r0, %r0;", 32, "SIMD video instructions take three sources"),
        ("vadd2.u32.u32.u32 %r1, %r0.b3210, %r0, %r0;", 32, "vadd2"),
        ("vadd2.u32.u32.u32 %r1, %r0.h1, %r0, %r0;", 32, "a selector names 2 pieces"),
        ("movmatrix.sync.aligned.m8n8.b16 %r1, %r0;", 32, "movmatrix.sync.aligned.m8n8.b16"),
        ("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [fixed, {%f4, %f5}];", 32, "named by an object in a register"),
        ("tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%d0, %d1, {%f4, %f5}];", 32, "a sampler of its own"),
        ("mbarrier.nothing.shared.b64 %d1, [%r9];", 32, "mbarrier.nothing"),
        ("cp.async.bulk.shared::cta.shared::cta [%r9], [%r9], 16;", 32, "cp.async.bulk"),
        (f"{WGMMA}m64n8k16.f32.f16.bf16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "f32.f16.bf16"),
        (f"{WGMMA}m64n8k16.f16.bf16.bf16 {{%r0, %r1}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "f16.bf16.bf16"),
        (f"{WGMMA}m64n8k32.f32.e4m3.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1;", 128, "f32.e4m3.f16"),
        (f"{WGMMA}m64n8k8.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "m64n8k8"),
        (f"{WGMMA}m32n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "m32n8k16"),
        (f"{WGMMA}m64n12k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "m64n12k16"),
        (f"{WGMMA}m64n264k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "m64n264k16"),
        (f"{WGMMA}m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 2, 1, 0, 0;", 128, r"not by \[2, 1\]"),
        (f"{WGMMA}m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, %r0, 0, 0;", 128, "is no constant"),
        (f"{WGMMA}m64n8k8.f32.tf32.tf32 {{%f0, %f1, %f2, %f3}}, %d1, %d1, %p0, 1, 1, 1, 0;", 128, "be transposed"),
        (f"{WGMMA}m64n8k16.f32.f16.f16 {{%f0, %f1}}, %d1, %d1, %p0, 1, 1, 0, 0;", 128, "2 registers for D"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named(body: str, block: int, why: str) -> None:
    with pytest.raises(ck.EmulationError, match=why if "\\" in why else re.escape(why)):
        step(body, np.zeros(64, "u4"), block)


def test_a_warp_that_comes_again_before_the_others_is_told() -> None:
    """By NumPy's machine, which a budget of steps asks for; machine code counts the warp twice."""
    text = PROGRAM.format(body="bar.arrive 1, 64; bar.arrive 1, 64;")
    with pytest.raises(ck.EmulationError, match="reaches a barrier a second time before the other"):
        run(text, np.zeros(64, "u4"), budget=1000)


def test_reserved_shared_memory_is_behind_the_own_and_ends() -> None:
    body = """
        mov.u32 %r1, %reserved_smem_offset_end; mov.u32 %r2, %reserved_smem_offset_cap;
        mov.u32 %r3, %reserved_smem_offset_0;
        st.shared.u32 [%r9+2044], 5; st.shared.u32 [%r3], 6; st.shared.u32 [%r1+-4], 7;
        ld.shared.u32 %r4, [%r9+2044]; ld.shared.u32 %r5, [%r3]; ld.shared.u32 %r6, [%r1+-4];
        st.global.v4.u32 [%d0], {%r2, %r4, %r5, %r6};"""
    assert step(body, np.zeros(4, "u4"), 1).tolist() == [1024, 5, 6, 7]
    with pytest.raises(ck.EmulationError, match="byte 3072 … 3075 is outside its 3072 bytes"):
        step("mov.u32 %r1, %reserved_smem_offset_end; st.shared.u32 [%r1], %r0;", np.zeros(4, "u4"), 1)


@pytest.mark.parametrize("count", [1, 1048575])
def test_an_mbarrier_s_count_goes_from_one_to_twenty_bits(count: int) -> None:
    found = step(
        f"mbarrier.init.shared.b64 [%r9], {count}; mbarrier.pending_count.b64 %r1, %d1;"
        f"mbarrier.arrive.shared.b64 %d1, [%r9]; mbarrier.pending_count.b64 %r1, %d1; st.global.u32 [%d0], %r1;",
        np.zeros(2, "u4"),
        1,
    )
    assert found[0] == count


def test_a_matrix_is_loaded_by_a_generic_address_too() -> None:
    body = """
        mad.lo.u32 %r1, %r0, 4, %r9; st.shared.u32 [%r1], %r0;
        cvt.u64.u32 %d1, %r9; cvta.shared.u64 %d1, %d1;
        and.b32 %r2, %r0, 7; shl.b32 %r2, %r2, 4; cvt.u64.u32 %d2, %r2; add.u64 %d1, %d1, %d2;
        ldmatrix.sync.aligned.m8n8.x1.b16 {%r3}, [%d1];
        mad.wide.u32 %d3, %r0, 4, %d0; st.global.u32 [%d3], %r3;"""
    assert step(body, np.zeros(32, "u4")).tolist() == list(range(32))


def test_lanes_of_a_warp_meet_by_their_masks() -> None:
    """Each quarter of the warp names itself, and comes by a way of its own."""
    body = """
        and.b32 %r1, %r0, 24; mov.u32 %r2, 255; shl.b32 %r2, %r2, %r1;
        shfl.sync.idx.b32 %r3, %r0, 3, 31, %r2;
        add.u32 %r4, %r1, 1; shfl.sync.idx.b32 %r4, %r0, %r4, 31, %r2;
        mad.wide.u32 %d1, %r0, 8, %d0; st.global.v2.u32 [%d1], {%r2, %r4};"""
    found = step(body, np.zeros(64, "u4")).reshape(32, 2)
    lanes = np.arange(32)
    assert found[:, 0].tolist() == (np.uint64(255) << (lanes & 24).astype("u8")).tolist()
    assert found[:, 1].tolist() == ((lanes & 24) + 1).tolist()


@pytest.mark.parametrize(("lane", "clamp", "within"), [(31, 31, True), (7, 7, True), (8, 7, False), (0, 31, True)])
def test_a_shuffle_says_whether_its_source_is_within(lane: int, clamp: int, within: bool) -> None:
    body = f"""
        mov.u32 %r1, {lane}; sub.u32 %r1, %r1, %r0;
        shfl.sync.down.b32 %r2|%p0, %r0, %r1, {clamp}, -1;
        selp.u32 %r3, 1, 0, %p0; mad.wide.u32 %d1, %r0, 8, %d0; st.global.v2.u32 [%d1], {{%r2, %r3}};"""
    found = step(body, np.zeros(64, "u4")).reshape(32, 2)
    assert found[0].tolist() == [lane if within else 0, within]


def test_some_of_a_block_wait_for_as_many_as_they_say() -> None:
    """Of three warps two meet at barrier 1, and the exited one counts at none of a whole block's."""
    body = """
        setp.ge.u32 %p0, %r0, 64; @%p0 bra END;
        setp.lt.u32 %p1, %r0, 32;
        mad.lo.u32 %r1, %r0, 4, %r9;
        st.shared.u32 [%r1], %r0;
        @%p1 bar.arrive 1, 64;
        @!%p1 bar.sync 1, 64;
        xor.b32 %r2, %r0, 32; mad.lo.u32 %r2, %r2, 4, %r9;
        bar.sync 0;
        ld.shared.u32 %r3, [%r2];
        mad.wide.u32 %d1, %r0, 4, %d0; st.global.u32 [%d1], %r3;
        END:"""
    found = step(body, np.zeros(96, "u4"), 96)
    assert found.tolist() == [*range(32, 64), *range(32), *[0] * 32]


def test_a_number_that_would_be_subnormal_but_for_its_rounding_is_flushed() -> None:
    """With no end of exponents it would be rounded to something below the least normal float32."""
    least = 2.0**-126
    x = np.array([least * (1 - 2**-24), least, -least * (1 - 2**-24), least * (1 + 2**-20)])
    body = """
        mad.wide.u32 %d1, %r0, 8, %d0; ld.global.b64 %d2, [%d1]; cvt.rn.ftz.f32.f64 %f0, %d2;
        mov.u64 %d3, 0; st.global.u64 [%d1], %d3; st.global.f32 [%d1], %f0;"""
    found = step(body, x, 4).view("f4")[::2]
    assert found.tolist() == [0, least, 0, np.float32(least * (1 + 2**-20))]
