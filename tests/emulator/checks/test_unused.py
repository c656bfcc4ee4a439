"""Loads of whose value a thread uses nothing, as the redundant threads of Triton's programs have them."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

#: 128 threads load ``x[0]``, of which the first stores ``x``. ``%mine`` is thread 0, ``%some`` the first 64.
BODIES = {
    "stored_by_one_right": "add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w;",
    "masked_right": "@%some ld.global.f32 %v, [%x]; mul.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w;",
    "added_by_one_right": "@%mine red.global.add.f32 [%x], %v; @%mine st.global.f32 [%x], %v;",
    "in_a_loop_right": """
        mov.u32 %k, 0;
        AGAIN:
        ld.global.f32 %v, [%x]; add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w;
        add.u32 %k, %k, 1; setp.lt.u32 %more, %k, 3; @%more bra AGAIN;""",
    "shuffled_right": """
        shfl.sync.bfly.b32 %w, %v, 1, 31, -1; add.f32 %w, %w, %v; bar.warp.sync -1; @%mine st.global.f32 [%x], %w;""",
    "added_with_carry_right": """
        add.cc.u32 %k, %v, %v; addc.u32 %w, %v, 0; vadd.u32.u32.u32 %w, %w, %v; @%mine st.global.u32 [%x], %w;""",
    "carries_to_all": """
        add.cc.u32 %w, %v, %v; addc.u32 %k, %lane, 0; st.global.u32 [%own], %k; @%mine st.global.u32 [%x], %w;""",
    "never_used_right": "mov.f32 %w, 0f3F800000; @%mine st.global.f32 [%x], %w;",
    "stored_by_all": "add.f32 %w, %v, %v; st.global.f32 [%own], %v; @%mine st.global.f32 [%x], %w;",
    "stored_by_some_before": "@%some st.global.f32 [%own], %v; add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w;",
    "stored_by_some_after": "add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w; @%some st.global.f32 [%own], %v;",
    "computed_and_stored_after": """
        add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w; cvt.rzi.s32.f32 %k, %w; cvt.rn.f32.s32 %w, %k;
        @%some st.global.f32 [%own], %w;""",
    "added_by_some": "add.f32 %w, %v, %v; @%some red.global.add.f32 [%own], %v; @%mine st.global.f32 [%x], %w;",
    "decides_who_stores": """
        setp.lt.f32 %more, %v, 0f00000000; @%more st.global.f32 [%own], %v; add.f32 %w, %v, %v;
        @%mine st.global.f32 [%x], %w;""",
    "branches": """
        setp.gt.f32 %more, %v, 0f00000000; add.f32 %w, %v, %v; @%mine st.global.f32 [%x], %w; @%more bra END;
        mov.u32 %k, 0;""",
    "is_an_address": """
        cvt.rzi.u32.f32 %k, %v; mul.wide.u32 %at, %k, 4; add.u64 %at, %at, %x; ld.global.f32 %w, [%at];
        @%mine st.global.f32 [%x], %w;""",
    "shuffled_to_another": """
        shfl.sync.idx.b32 %w, %v, 0, 31, -1; @%lead st.global.f32 [%own], %w; @%mine st.global.f32 [%x], %v;""",
    "loaded_by_one_of_a_warp": """
        setp.eq.u32 %more, %lane, 1; @%more ld.global.f32 %v, [%x]; shfl.sync.idx.b32 %w, %v, 1, 31, -1;
        @%lead st.global.f32 [%own], %w; @%mine st.global.f32 [%x], %w;""",
    "used_in_a_loop": """
        mov.u32 %k, 0; mov.f32 %w, 0f00000000;
        AGAIN:
        ld.global.f32 %v, [%x]; add.f32 %w, %w, %v; @%mine st.global.f32 [%x], %w;
        add.u32 %k, %k, 1; setp.lt.u32 %more, %k, 3; @%more bra AGAIN;
        @%some st.global.f32 [%own], %w;""",
}
ENTRY = """
.visible .entry {name}(.param .u64 {name}_0)
{{
    .reg .pred %mine, %some, %lead, %more;
    .reg .b32 %v, %w;
    .reg .u32 %tid, %lane, %k;
    .reg .u64 %x, %own, %at;
    ld.param.u64 %x, [{name}_0];
    mov.u32 %tid, %tid.x;
    and.b32 %lane, %tid, 31;
    mul.wide.u32 %own, %tid, 4;
    add.u64 %own, %own, %x;
    add.u64 %own, %own, 1024;
    setp.eq.u32 %mine, %tid, 0;
    setp.lt.u32 %some, %tid, 64;
    setp.eq.u32 %lead, %lane, 0;
    mov.b32 %v, 0;
    {load}
    {body}
END:
    ret;
}}
"""


def entry(name: str) -> str:
    body = BODIES[name]
    return ENTRY.format(name=name, load="" if "ld.global.f32 %v" in body else "ld.global.f32 %v, [%x];", body=body)


MODULE = ".version 8.0\n.target sm_90\n.address_size 64\n" + "".join(map(entry, BODIES))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("schedule", [None, 1])
def test_what_a_thread_does_not_use_is_no_race(name: str, schedule: int | None) -> None:
    x = np.ones(512, np.float32)
    with ck.check() as report:
        ck.Kernel.from_ptx(MODULE, name)(ck.emulator.stream(schedule=schedule), ck.config(1, 128), x)
    kinds = {each.kind for each in report.findings}
    if name.endswith("_right"):
        assert not report, report
    elif schedule is None:
        assert kinds == {"race"}
