"""Conversions: PTX ISA 9.7.9.21 and 9.7.9.22."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from support.instructions.forms import Form

WHOLE = [f"{sign}{bits}" for bits in (8, 16, 32, 64) for sign in "us"]
FLOATS = ("f16", "bf16", "f32", "f64")
PRECISION = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
RANGE = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def _form(name: str, source: str, result: str) -> Form:
    return Form(name, "conversion", f"{name} {{d}}, {{0}}", (source,), (result,))


def _bits(kind: str) -> str:
    # Registers have 16 bits at least, and a byte in one is stored with what extends it.
    return f"b{max(16, int(kind[1:]))}"


def _float_source(kind: str) -> str:
    return f"tie_{kind}" if kind in ("f32", "f64") else kind


def whole() -> Iterator[Form]:
    """Between integers."""
    for out, kind in product(WHOLE, WHOLE):
        yield _form(f"cvt.{out}.{kind}", _bits(kind), _bits(out))
        narrows = int(out[1:]) < int(kind[1:]) or (out != kind and int(out[1:]) == int(kind[1:]))
        if narrows or (kind[0] == "s" and out[0] == "u"):
            yield _form(f"cvt.sat.{out}.{kind}", _bits(kind), _bits(out))


def mixed() -> Iterator[Form]:
    """Between integers and floats."""
    for number, kind in product(FLOATS, WHOLE):
        if number == "bf16" and kind[1:] == "8":
            continue
        for mode in ("rn", "rz", "rm", "rp"):
            yield _form(f"cvt.{mode}.{number}.{kind}", _bits(kind), number)
            # Into integers: the same modes, to whole numbers.
            yield _form(f"cvt.{mode}i.{kind}.{number}", _float_source(number), _bits(kind))
        if number != "bf16":
            yield _form(f"cvt.rn.sat.{number}.{kind}", _bits(kind), number)
            yield _form(f"cvt.rni.sat.{kind}.{number}", _float_source(number), _bits(kind))
        if number == "f32":
            yield _form(f"cvt.rmi.ftz.{kind}.f32", "tie_f32", _bits(kind))


def floats() -> Iterator[Form]:
    """Between floats, and floats made whole."""
    for out, kind in product(FLOATS, FLOATS):
        source = _float_source(kind)
        narrows = PRECISION[out] < PRECISION[kind] or RANGE[out] < RANGE[kind]
        for mode in ("rn", "rz", "rm", "rp") if narrows else ("",):
            dot = f".{mode}" if mode else ""
            if out == kind:
                break
            yield _form(f"cvt{dot}.{out}.{kind}", source, out)
            if "bf16" not in (out, kind):
                yield _form(f"cvt{dot}.sat.{out}.{kind}", source, out)
            if "f32" in (out, kind) and "bf16" not in (out, kind):
                yield _form(f"cvt{dot}.ftz.{out}.{kind}", source, out)
    for kind in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            for end in (".relu", ".satfinite", ".relu.satfinite"):
                yield _form(f"cvt.{mode}{end}.{kind}.f32", "tie_f32", kind)
    for kind in FLOATS:
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield _form(f"cvt.{mode}.{kind}.{kind}", _float_source(kind), kind)
        if kind != "bf16":
            yield _form(f"cvt.rni.sat.{kind}.{kind}", _float_source(kind), kind)
            yield _form(f"cvt.sat.{kind}.{kind}", _float_source(kind), kind)
    yield _form("cvt.rpi.ftz.f32.f32", "tie_f32", "f32")
    yield _form("cvt.ftz.f32.f32", "tie_f32", "f32")
    yield _form("cvt.ftz.sat.f32.f32", "tie_f32", "f32")
    yield _form("cvt.f32.f32", "tie_f32", "f32")
    yield _form("cvt.f64.f64", "tie_f64", "f64")
    yield _form("cvt.f16.f16", "f16", "f16")


def packed() -> Iterator[Form]:
    """Pairs, tf32, 8-bit floats, saturated integers."""
    for kind in ("f16x2", "bf16x2"):
        for mode in ("rn", "rz"):
            for end in ("", ".relu", ".satfinite"):
                name = f"cvt.{mode}{end}.{kind}.f32"
                yield Form(name, "conversion", f"{name} {{d}}, {{0}}, {{1}}", ("tie_f32", "tie_f32"), (kind,))
    for name in ("cvt.rna.tf32.f32", "cvt.rn.tf32.f32", "cvt.rz.tf32.f32", "cvt.rn.relu.tf32.f32",
                 "cvt.rz.relu.tf32.f32", "cvt.rna.satfinite.tf32.f32"):  # fmt: skip
        yield _form(name, "tie_f32", "b32")
    for eighth in ("e4m3x2", "e5m2x2"):
        for end in ("", ".relu"):
            name = f"cvt.rn.satfinite{end}.{eighth}.f32"
            yield Form(name, "conversion", f"{name} {{d}}, {{0}}, {{1}}", ("tie_f32", "tie_f32"), ("b16",))
            yield _form(f"cvt.rn.satfinite{end}.{eighth}.f16x2", "f16x2", "b16")
            yield _form(f"cvt.rn{end}.f16x2.{eighth}", "b16", "f16x2")
    for out in ("u16", "s16"):
        name = f"cvt.pack.sat.{out}.s32"
        yield Form(name, "conversion", f"{name} {{d}}, {{0}}, {{1}}", ("b32",) * 2, ("b32",))
    for out in ("u8", "s8", "u4", "s4", "u2", "s2"):
        name = f"cvt.pack.sat.{out}.s32.b32"
        yield Form(name, "conversion", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", ("b32",) * 3, ("b32",))


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (whole, mixed, floats, packed):
        yield from family()
