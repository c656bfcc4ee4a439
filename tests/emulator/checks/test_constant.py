"""Which parameter the addresses of stores come from."""

from __future__ import annotations

import pytest

from cudakit.emulator.checks.plans import origins
from cudakit.emulator.ptx.parser import parse

pytestmark = pytest.mark.emulator

TEXT = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 x, .param .u64 y, .param .u32 n) {{
    .reg .b64 %a<9>;
    .reg .b32 %r<3>;
    .reg .pred %p;
    ld.param.u64 %a1, [x];
    ld.param.u64 %a2, [y];
    ld.param.u32 %r1, [n];
    cvta.to.global.u64 %a3, %a1;
    cvta.to.global.u64 %a4, %a2;
    setp.eq.u32 %p, %r1, 0;
    {code}
    ret;
}}
"""


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("mad.wide.s32 %a5, %r1, 4, %a3; st.global.u32 [%a5], %r1;", ["x"]),
        ("add.s64 %a5, %a3, 16; sub.s64 %a6, %a5, 4; st.global.u32 [%a6+8], %r1;", ["x"]),
        ("mov.u64 %a5, %a3; red.global.add.u32 [%a5], %r1;", ["x"]),
        ("atom.global.add.u32 %r2, [%a3], %r1;", ["x"]),
        ("mad.wide.s32 %a5, %r1, 4, %a4; st.global.u32 [%a5], %r1;", []),
        ("selp.b64 %a5, %a3, %a4, %p; st.global.u32 [%a5], %r1;", []),
        ("ld.global.u64 %a5, [%a3]; st.global.u32 [%a5], %r1;", []),
        ("st.global.u64 [%a4], %a3;", []),
    ],
)
def test_a_store_is_known_by_the_parameter_of_its_address(code: str, found: list[str]) -> None:
    function = parse(TEXT.format(code=code)).functions["kernel"]
    assert list(origins(function, {"x": True, "y": False}).values()) == found
