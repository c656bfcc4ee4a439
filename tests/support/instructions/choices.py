"""Comparison and selection: PTX ISA 9.7.6 and 9.7.7."""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Form

SIGNED = ("eq", "ne", "lt", "le", "gt", "ge")
UNSIGNED = (*SIGNED, "lo", "ls", "hi", "hs")
FLOATS = (*SIGNED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")


def _comparisons() -> Iterator[tuple[str, str, str]]:
    """Comparison, modifier, type."""
    for bits in (16, 32, 64):
        yield from ((compare, "", f"b{bits}") for compare in ("eq", "ne"))
        yield from ((compare, "", f"u{bits}") for compare in UNSIGNED)
        yield from ((compare, "", f"s{bits}") for compare in SIGNED)
    for compare in FLOATS:
        yield from ((compare, "", kind) for kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"))
        yield from ((compare, ".ftz", kind) for kind in ("f32", "f16", "f16x2"))


def _source(kind: str) -> str:
    return f"b{kind[1:]}" if kind[0] in "us" else kind


def setp() -> Iterator[Form]:
    """Comparisons into predicates."""
    for compare, end, kind in _comparisons():
        name, of = f"setp.{compare}{end}.{kind}", _source(kind)
        if kind.endswith("x2"):
            yield Form(name, "comparison", f"{name} {{d0}}|{{d1}}, {{0}}, {{1}}", (of, of), ("pred", "pred"))
        else:
            yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", (of, of), ("pred",))
    for combine in ("and", "or", "xor"):
        for kind, compare in (("s32", "lt"), ("u64", "hs"), ("f32", "ltu"), ("f64", "ne"), ("f16", "ge")):
            of = _source(kind)
            name = f"setp.{compare}.{combine}.{kind}"
            # Of float16 there is no second answer.
            pair = "{d0}" if kind == "f16" else "{d0}|{d1}"
            body = f"setp.lt.s32 %p0, {{2}}, 3; {name} {pair}, {{0}}, {{1}}, %p0"
            yield Form(name, "comparison", body, (of, of, "b32"), ("pred",) * (1 if kind == "f16" else 2))
            body = f"setp.lt.s32 %p0, {{2}}, 3; {name} {{d0}}, {{0}}, {{1}}, !%p0"
            yield Form(f"{name} not", "comparison", body, (of, of, "b32"), ("pred",))


def set_() -> Iterator[Form]:
    """Comparisons into numbers."""
    for out in ("u32", "s32", "f32"):
        result = "f32" if out == "f32" else "b32"
        for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64", "f32", "f64"):
            for compare in ("eq", "ne") if kind[0] == "b" else ("lt", "ge", "ne"):
                name, of = f"set.{compare}.{out}.{kind}", _source(kind)
                yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", (of, of), (result,))
        for compare in FLOATS:
            name = f"set.{compare}.ftz.{out}.f32"
            yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", ("f32", "f32"), (result,))
        for combine in ("and", "or", "xor"):
            name = f"set.gt.{combine}.{out}.f32"
            body = f"setp.lt.s32 %p0, {{2}}, 3; {name} {{d}}, {{0}}, {{1}}, %p0"
            yield Form(name, "comparison", body, ("f32", "f32", "b32"), (result,))
    for kind in ("f16", "bf16"):
        for compare in ("eq", "ne", "lt", "geu", "num"):
            for out in (kind, "u16", "s16", "u32", "s32"):
                name = f"set.{compare}.{out}.{kind}"
                yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", (kind, kind),
                           ("b32" if out[1:] == "32" else "b16",))  # fmt: skip
            name = f"set.{compare}.{kind}x2.{kind}x2"
            yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", (f"{kind}x2",) * 2, ("b32",))
    for out, kind in (("f16", "u16"), ("f16", "s32"), ("f16", "u64")):
        name, of = f"set.lt.{out}.{kind}", _source(kind)
        yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}", (of, of), ("b16",))


def selections() -> Iterator[Form]:
    """One operand or the other."""
    for bits in (16, 32, 64):
        for sign in "busf" if bits > 16 else "bus":
            kind, of = f"{sign}{bits}", f"b{bits}"
            body = f"setp.lt.s32 %p0, {{2}}, 3; selp.{kind} {{d}}, {{0}}, {{1}}, %p0"
            yield Form(f"selp.{kind}", "comparison", body, (of, of, "b32"), (of,))
            for sign_of in ("s32", "f32", "ftz.f32"):
                name = f"slct.{kind}.{sign_of}" if "ftz" not in sign_of else f"slct.ftz.{kind}.f32"
                third = "b32" if sign_of == "s32" else "f32"
                yield Form(name, "comparison", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", (of, of, third), (of,))


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (setp, set_, selections):
        yield from family()
