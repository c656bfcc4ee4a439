"""The forms of instructions that random programs compute with, by family."""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    """The forms of a line each: a name, with alternatives in brackets, and the kinds of its operands."""
    found = [""]
    for line in text.strip().splitlines():
        forms = [""]
        for number, part in enumerate(line.strip().replace("{", "}").split("}")):
            forms = [form + each for form in forms for each in (part.split("|") if number % 2 else (part,))]
        found += forms
    return tuple(found[1:])


#: r: 32 bits, d: 64, h: 16, f and g: float32 and float64, p: predicates, #: amounts; the first is written.
FORMS = {
    "words": _listed("""
        {add|sub|mul.lo|mul.hi|min|max|div|rem}.{u32|s32} r r r
        {and|or|xor}.b32 r r r
        {and|or|xor}.pred p p p
        {shl.b32|shr.u32|shr.s32|shr.b32} r r #
        {shl.b32|shr.u32|shr.s32} r r r
        {not.b32|neg.s32|abs.s32|popc.b32|clz.b32|brev.b32|bfind.u32|bfind.s32|bfind.shiftamt.s32} r r
        {mad.lo.s32|mad.lo.u32|mad.hi.s32|mad.hi.u32} r r r r
        {prmt.b32|shf.l.wrap.b32|shf.r.wrap.b32|shf.l.clamp.b32|shf.r.clamp.b32} r r r r
        {shf.l.wrap.b32|shf.r.wrap.b32|shf.l.clamp.b32|shf.r.clamp.b32|bfe.u32|bfe.s32} r r r #
        bfe.{u32|s32} r r # #
        bfe.{u32|s32} r r r r
        bfi.b32 r r r # #
        bfi.b32 r r r r r
        lop3.b32 r r r r !
        prmt.b32 r r r !
        {prmt.b32.f4e|prmt.b32.b4e|prmt.b32.rc8|prmt.b32.ecl|prmt.b32.ecr|prmt.b32.rc16} r r r r
        {szext.wrap.s32|szext.clamp.u32|szext.clamp.s32|bmsk.wrap.b32|bmsk.clamp.b32} r r r
        {dp4a.u32.u32|dp4a.s32.u32|dp4a.s32.s32|dp2a.lo.u32.s32|dp2a.hi.s32.s32} r r r r
        {selp.b32|selp.s32} r r r p
        not.pred p p
        setp.{eq|ne|lt|le|gt|ge}.{s32|u32} p r r
        setp.{lo|ls|hi|hs}.u32 p r r
        setp.{eq|lt}.and.s32 p r r p
        set.{eq|lt}.{u32.s32|s32.u32} r r r
        {min|max}.s32 r r r
        {add.sat|sub.sat}.s32 r r r
        {cnot.b32 r r|sad.u32 r r r r|sad.s32 r r r r|mad24.lo.s32 r r r r}
        {mul24.lo.u32|mul24.hi.s32|add.u16x2|min.s16x2|max.u16x2} r r r
        {slct.u32.s32 r r r r|slct.u32.f32 r r r f|fns.b32 r r r 1}
        {add.cc|sub.cc|addc|subc|addc.cc}.u32 r r r
        {mad.lo.cc|madc.hi.cc|madc.lo}.u32 r r r r
    """),
    "halfwords": _listed("""
        {add|sub|mul.lo|mul.hi|min|max}.{u16|s16} h h h
        {and|or|xor}.b16 h h h
        {shl.b16|shr.u16|shr.s16} h h #
        {shl.b16|shr.u16|shr.s16} h h r
        {neg.s16|abs.s16|not.b16} h h
        mad.lo.u16 h h h h
        mul.wide.{u16|s16} r h h
        {div|rem}.{u16|s16} h h h
        setp.{lt|ge|eq}.{u16|s16} p h h
        selp.b16 h h h p
    """),
    "doublewords": _listed("""
        {add|sub|mul.lo|mul.hi|min|max|div|rem}.{u64|s64} d d d
        {and|or|xor}.b64 d d d
        {shl.b64|shr.u64|shr.s64} d d #
        {shl.b64|shr.u64|shr.s64} d d r
        {not.b64|neg.s64|abs.s64|brev.b64} d d
        {popc.b64|clz.b64|bfind.u64|bfind.s64} r d
        mad.lo.{s64|u64} d d d d
        mul.wide.{u32|s32} d r r
        mad.wide.{u32|s32} d r r d
        bfe.{u64|s64} d d # #
        bfi.b64 d d d # #
        bfe.{u64|s64} d d r r
        bfi.b64 d d d r r
        setp.{eq|ne|lt|le|gt|ge}.{s64|u64} p d d
        selp.b64 d d d p
    """),
    "floats": _listed("""
        {add|sub|mul}.{rn|rz|rm|rp|rn.ftz}{|.sat}.f32 f f f
        {add|sub|mul}{|.ftz}.f32 f f f
        fma.{rn|rz|rm|rp|rn.ftz}{|.sat}.f32 f f f f
        {div.rn|div.approx|div.full|div.rn.ftz|div.approx.ftz}.f32 f f f
        {sqrt|rcp}.{rn|rn.ftz|approx|approx.ftz}.f32 f f
        {rsqrt|ex2|lg2|sin|cos}.approx{|.ftz}.f32 f f
        tanh.approx.f32 f f
        {min|max}{|.ftz}{|.NaN}.f32 f f f
        {abs|neg}{|.ftz}.f32 f f
        copysign.f32 f f f
        testp.{finite|infinite|number|notanumber}.f32 p f
        setp.{eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan}{|.ftz}.f32 p f f
        set.{eq|lt|geu}.{u32|f32}.f32 * f f
        selp.f32 f f f p
        div.{rz|rm|rp}.f32 f f f
        {sqrt|rcp}.{rz|rm|rp}.f32 f f
        testp.{normal|subnormal}.f32 p f
        slct.f32.s32 f f f r
        slct.f32.f32 f f f f
    """),
    "doubles": _listed("""
        {add|sub|mul}{|.rn}.f64 g g g
        fma.rn.f64 g g g g
        div.rn.f64 g g g
        {sqrt|rcp}.rn.f64 g g
        {min|max}.f64 g g g
        {abs|neg}.f64 g g
        copysign.f64 g g g
        setp.{eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan}.f64 p g g
        testp.{finite|number|notanumber|normal|subnormal}.f64 p g
        selp.f64 g g g p
    """),
    "halves": _listed("""
        {add|sub|mul}{|.rn}{|.sat}.f16 h h h
        fma.rn{|.sat|.relu}.f16 h h h h
        {add|sub|mul}.{f16x2|bf16x2} r r r
        fma.rn{|.relu}.f16x2 r r r r
        fma.rn{|.relu}.bf16x2 r r r r
        fma.rn{|.relu}.bf16 h h h h
        {add|sub|mul}.bf16 h h h
        {min|max}{|.NaN}.{f16|bf16} h h h
        {min|max}{|.NaN}.{f16x2|bf16x2} r r r
        {neg|abs}.{f16|bf16} h h
        {neg|abs}.{f16x2|bf16x2} r r
        setp.{eq|lt|ge|neu|num|nan}.{f16|bf16} p h h
    """),
    "conversions": _listed("""
        cvt.{rni|rzi|rmi|rpi}{|.ftz}{|.sat}.{u32|s32}.f32 r f
        cvt.{rni|rzi|rmi|rpi}{|.sat}.{u64|s64}.f32 d f
        cvt.{rni|rzi|rmi|rpi}.{u16|s16}.f32 h f
        cvt.{rni|rzi|rmi|rpi}{|.sat}.{u32|s32}.f64 r g
        cvt.{rni|rzi|rmi|rpi}.{u64|s64}.f64 d g
        cvt.{rn|rz|rm|rp}.f32.{u32|s32} f r
        cvt.rn.f32.{u64|s64} f d
        cvt.rn.f64.{u64|s64} g d
        cvt.rn.f64.{u32|s32} g r
        cvt.rn{|.ftz}.f32.f64 f g
        cvt.{rz|rm|rp}.f32.f64 f g
        cvt{|.ftz}.f64.f32 g f
        cvt.{rni|rzi|rmi|rpi}{|.ftz|.sat}.f32.f32 f f
        cvt.{rni|rzi|rmi|rpi}{|.sat}.f64.f64 g g
        cvt.rn.f16.f32 h f
        cvt{|.ftz}.f32.f16 f h
        cvt.{rni|rzi|rpi}.{u32|s32}.f16 r h
        cvt.rn.f16.{u32|s32} h r
        cvt.rn.f16.f64 h g
        cvt.f64.f16 g h
        cvt.f32.bf16 f h
        cvt.rn.bf16.f32 h f
        cvt.rn.{f16x2|bf16x2}.f32 r f f
        cvt{|.sat}.{u16|s16|u8|s8}.{u32|s32} ~h r
        cvt{|.sat}.{u16|s16}.{s16|u16} h h
        cvt{|.sat}.{u32|s32}.{u64|s64} r d
        cvt{|.sat}.{u32|s32}.{s32|u32} r r
        cvt.{u32|s32}.{u8|s8} r r
        cvt.{u64|s64}.{u32|s32} d r
        cvt.{u32|s32}.{u16|s16} r h
        cvt.{u64|s64}.{u16|s16} d h
        mov.b32 r f
        mov.b32 f r
        mov.b64 g d
        mov.b64 d g
        mov.b64 d (rr
        mov.b64 (rr d
        mov.b32 r (hh
        mov.b32 (hh r
    """),
}
