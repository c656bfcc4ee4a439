"""Scalar and SIMD video instructions: PTX ISA 9.7.18."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from support.instructions.forms import Form

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _form(name: str, rest: str = "{0}, {1}", sources: int = 2, mask: str = "") -> Form:
    title = f"{name} {mask}".strip()
    return Form(title, "video", f"{name} {{d}}{mask}, {rest}", ("b32",) * sources, ("b32",))


def scalar() -> Iterator[Form]:
    """One value, a part of a register chosen."""
    kinds = ("u32", "s32")
    for opcode in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for out, a, b in product(kinds, kinds, kinds):
            for sat in ("", ".sat"):
                yield _form(f"{opcode}.{out}.{a}.{b}{sat}")
        name = f"{opcode}.s32.u32.s32"
        yield Form(f"{name} b1 h1", "video", f"{name} {{d}}, {{0}}.b1, {{1}}.h1", ("b32",) * 2, ("b32",))
        yield Form(f"{name}.sat b3 b0", "video", f"{name}.sat {{d}}, {{0}}.b3, {{1}}.b0", ("b32",) * 2, ("b32",))
        for second in ("add", "min", "max"):
            name = f"{opcode}.s32.s32.u32.{second}"
            yield Form(name, "video", f"{name} {{d}}, {{0}}, {{1}}.h0, {{2}}", ("b32",) * 3, ("b32",))
            name = f"{opcode}.u32.u32.u32.sat.{second}"
            yield Form(name, "video", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", ("b32",) * 3, ("b32",))
        for part in ("b0", "b1", "b2", "b3", "h0", "h1"):
            name = f"{opcode}.s32.s32.s32"
            yield Form(f"{name} to {part}", "video", f"{name} {{d}}.{part}, {{0}}, {{1}}, {{2}}", ("b32",) * 3,
                       ("b32",))  # fmt: skip
    for opcode in ("vshl", "vshr"):
        for out, a in product(kinds, kinds):
            for mode in (".clamp", ".wrap", ".sat.clamp"):
                name = f"{opcode}.{out}.{a}.u32{mode}"
                yield Form(name, "video", f"{name} {{d}}, {{0}}, {{1}}", ("b32", "count"), ("b32",))
        name = f"{opcode}.s32.s32.u32.wrap.add"
        yield Form(name, "video", f"{name} {{d}}, {{0}}.h1, {{1}}.b0, {{2}}", ("b32", "count", "b32"), ("b32",))
    for out, a, b in product(kinds, kinds, kinds):
        for end in ("", ".sat", ".shr7", ".shr15", ".sat.shr15"):
            if out == "u32" and (a, b) != ("u32", "u32"):
                continue
            yield _form(f"vmad.{out}.{a}.{b}{end}", "{0}, {1}, {2}", 3)
    body = "vmad.s32.s32.s32 {d}, -{0}, {1}, {2}"
    yield Form("vmad.s32.s32.s32 minus", "video", body, ("b32",) * 3, ("b32",))
    yield _form("vmad.u32.u32.u32.po", "{0}, {1}, {2}", 3)
    for a, b, compare in product(kinds, kinds, COMPARISONS):
        yield _form(f"vset.{a}.{b}.{compare}")
    yield _form("vset.u32.s32.lt.add", "{0}.h0, {1}.b2, {2}", 3)


def simd() -> Iterator[Form]:
    """Two halves or four bytes of a register."""
    kinds = ("u32", "s32")
    for count in (2, 4):
        for opcode in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"):
            for out, a, b in product(kinds, kinds, kinds):
                for end in ("", ".sat", ".add"):
                    yield _form(f"{opcode}{count}.{out}.{a}.{b}{end}", "{0}, {1}, {2}", 3)
            mask = ".h10" if count == 2 else ".b3210"
            name = f"{opcode}{count}.s32.s32.s32"
            yield _form(f"{name}", "{0}, {1}, {2}", 3, mask)
            low = ".h0" if count == 2 else ".b20"
            yield _form(f"{name}", "{0}, {1}, {2}", 3, low)
            choice = ("{0}.h12, {1}.h30" if count == 2 else "{0}.b7531, {1}.b0246") + ", {2}"
            yield Form(f"{name} chosen", "video", f"{name} {{d}}, {choice}", ("b32",) * 3, ("b32",))
        for a, b, compare in product(kinds, kinds, COMPARISONS):
            for end in ("", ".add"):
                yield _form(f"vset{count}.{a}.{b}.{compare}{end}", "{0}, {1}, {2}", 3)


def forms() -> Iterator[Form]:
    """All of them, each name once."""
    for family in (scalar, simd):
        yield from family()
