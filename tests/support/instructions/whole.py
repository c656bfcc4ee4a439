"""Integer arithmetic, logic, shifts and bit fields: PTX ISA 9.7.1, 9.7.2, 9.7.8 and 9.7.9.7."""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Form

WORDS = [f"{sign}{bits}" for bits in (16, 32, 64) for sign in "us"]
TABLES = [0x00, 0x01, 0x17, 0x1E, 0x2A, 0x3C, 0x40, 0x55, 0x69, 0x80, 0x96, 0x9C, 0xAA, 0xB8, 0xCA, 0xCC, 0xD8, 0xE8,
          0xF0, 0xF8, 0xFE, 0xFF]  # fmt: skip


def _of(kind: str) -> str:
    return f"b{kind[1:].removesuffix('x2')}" if not kind.endswith("x2") else "b32"


def _plain(opcode: str, kind: str, sources: int) -> Form:
    places = ", ".join(f"{{{n}}}" for n in range(sources))
    name = f"{opcode}.{kind}"
    return Form(name, "integer", f"{name} {{d}}, {places}", (_of(kind),) * sources, (_of(kind),))


def arithmetic() -> Iterator[Form]:
    """Sums, products, quotients, extrema."""
    for kind in WORDS:
        for opcode in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield _plain(opcode, kind, 2)
        for opcode in ("mad.lo", "mad.hi", "sad"):
            yield _plain(opcode, kind, 3)
        if kind[0] == "s":
            yield _plain("abs", kind, 1)
            yield _plain("neg", kind, 1)
        if kind[1:] != "64":
            twice, name = f"b{2 * int(kind[1:])}", f"mul.wide.{kind}"
            yield Form(name, "integer", f"{name} {{d}}, {{0}}, {{1}}", (_of(kind),) * 2, (twice,))
            name = f"mad.wide.{kind}"
            yield Form(name, "integer", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", (_of(kind), _of(kind), twice), (twice,))
    for opcode in ("add.sat", "sub.sat"):
        yield _plain(opcode, "s32", 2)
    yield _plain("mad.hi.sat", "s32", 3)
    for kind in ("u16x2", "s16x2"):
        yield _plain("add", kind, 2)
        yield _plain("min", kind, 2)
        yield _plain("max", kind, 2)
    yield _plain("min.relu", "s16x2", 2)
    yield _plain("max.relu", "s16x2", 2)
    yield _plain("min.relu", "s32", 2)
    yield _plain("max.relu", "s32", 2)
    for kind in ("u32", "s32"):
        for half in ("lo", "hi"):
            yield _plain(f"mul24.{half}", kind, 2)
            yield _plain(f"mad24.{half}", kind, 3)
    yield _plain("mad24.hi.sat", "s32", 3)


def extended() -> Iterator[Form]:
    """Chains with a carry flag."""
    for bits in ("32", "64"):
        wide = f"b{bits}"
        for sign in "us":
            kind = f"{sign}{bits}"
            for first, then in (("add", "addc"), ("sub", "subc")):
                body = (
                    f"{first}.cc.{kind} {{d0}}, {{0}}, {{1}}; {then}.cc.{kind} {{d1}}, {{1}}, {{2}};"
                    f" {then}.{kind} {{d2}}, {{0}}, {{2}}"
                )
                yield Form(f"{first}.cc {then}.cc.{kind}", "integer", body, (wide,) * 3, (wide,) * 3)
            body = (
                f"mad.lo.cc.{kind} {{d0}}, {{0}}, {{1}}, {{2}}; madc.hi.cc.{kind} {{d1}}, {{0}}, {{1}}, {{2}};"
                f" madc.lo.{kind} {{d2}}, {{1}}, {{2}}, {{0}}"
            )
            yield Form(f"mad.lo.cc madc.hi.cc.{kind}", "integer", body, (wide,) * 3, (wide,) * 3)
            body = f"mad.hi.cc.{kind} {{d0}}, {{0}}, {{1}}, {{2}}; madc.hi.{kind} {{d1}}, {{0}}, {{1}}, {{2}}"
            yield Form(f"mad.hi.cc madc.hi.{kind}", "integer", body, (wide,) * 3, (wide,) * 2)


def dots() -> Iterator[Form]:
    """Dot products of bytes."""
    for first in ("u32", "s32"):
        for second in ("u32", "s32"):
            for opcode in ("dp4a", "dp2a.lo", "dp2a.hi"):
                name = f"{opcode}.{first}.{second}"
                yield Form(name, "integer", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", ("b32",) * 3, ("b32",))


def logic() -> Iterator[Form]:
    """Logic and shifts."""
    for bits in (16, 32, 64):
        kind = f"b{bits}"
        for opcode in ("and", "or", "xor"):
            yield Form(f"{opcode}.{kind}", "bits", f"{opcode}.{kind} {{d}}, {{0}}, {{1}}", (kind, kind), (kind,))
        for opcode in ("not", "cnot"):
            yield Form(f"{opcode}.{kind}", "bits", f"{opcode}.{kind} {{d}}, {{0}}", (kind,), (kind,))
        count = "count64" if bits == 64 else "count"
        for opcode in (f"shl.b{bits}", f"shr.b{bits}", f"shr.u{bits}", f"shr.s{bits}"):
            yield Form(opcode, "bits", f"{opcode} {{d}}, {{0}}, {{1}}", (kind, count), (kind,))
            for by in (0, 5, bits - 1, bits, bits + 1, 200):
                yield Form(f"{opcode} by {by}", "bits", f"{opcode} {{d}}, {{0}}, {by}", (kind,), (kind,))
    for opcode in ("and", "or", "xor"):
        body = f"setp.lt.s32 %p0, {{0}}, 0; setp.lt.s32 %p1, {{1}}, 7; {opcode}.pred {{d}}, %p0, %p1"
        yield Form(f"{opcode}.pred", "bits", body, ("b32", "b32"), ("pred",))
    yield Form("not.pred", "bits", "setp.lt.s32 %p0, {0}, 7; not.pred {d}, %p0", ("b32",), ("pred",))
    for table in TABLES:
        body = f"lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {table:#x}"
        yield Form(f"lop3.b32 {table:#04x}", "bits", body, ("b32",) * 3, ("b32",))
    for combine in ("and", "or"):
        body = f"setp.lt.s32 %p0, {{2}}, 0; lop3.{combine}.b32 {{d0}}|{{d1}}, {{0}}, {{1}}, {{2}}, 0x80, %p0"
        yield Form(f"lop3.{combine}.b32", "bits", body, ("b32",) * 3, ("b32", "pred"))
    for way in "lr":
        for past in ("wrap", "clamp"):
            name = f"shf.{way}.{past}.b32"
            yield Form(name, "bits", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", ("b32", "b32", "count"), ("b32",))


def fields() -> Iterator[Form]:
    """Counts of bits, bit fields, bytes chosen."""
    for bits in (32, 64):
        kind, count = f"b{bits}", "count" if bits == 32 else "count64"
        for opcode in ("popc", "clz"):
            yield Form(f"{opcode}.{kind}", "bits", f"{opcode}.{kind} {{d}}, {{0}}", (kind,), ("b32",))
        yield Form(f"brev.{kind}", "bits", f"brev.{kind} {{d}}, {{0}}", (kind,), (kind,))
        for sign in "us":
            for amount in ("", ".shiftamt"):
                name = f"bfind{amount}.{sign}{bits}"
                yield Form(name, "bits", f"{name} {{d}}, {{0}}", (kind,), ("b32",))
            name = f"bfe.{sign}{bits}"
            yield Form(name, "bits", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", (kind, count, count), (kind,))
        name = f"bfi.{kind}"
        body = f"{name} {{d}}, {{0}}, {{1}}, {{2}}, {{3}}"
        yield Form(name, "bits", body, (kind, kind, count, count), (kind,))
    yield Form("fns.b32", "bits", "fns.b32 {d}, {0}, {1}, {2}", ("b32", "lane", "offset"), ("b32",))
    for past in ("wrap", "clamp"):
        for kind in ("u32", "s32"):
            name = f"szext.{past}.{kind}"
            yield Form(name, "bits", f"{name} {{d}}, {{0}}, {{1}}", ("b32", "count"), ("b32",))
        name = f"bmsk.{past}.b32"
        yield Form(name, "bits", f"{name} {{d}}, {{0}}, {{1}}", ("count", "count"), ("b32",))
    yield Form("prmt.b32", "bits", "prmt.b32 {d}, {0}, {1}, {2}", ("b32",) * 3, ("b32",))
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        name = f"prmt.b32.{mode}"
        yield Form(name, "bits", f"{name} {{d}}, {{0}}, {{1}}, {{2}}", ("b32", "b32", "count"), ("b32",))
    for selector in (0x3210, 0x7531, 0x0123, 0x4444, 0x8A9B, 0xFEDC, 0x5410, 0x9180):
        body = f"prmt.b32 {{d}}, {{0}}, {{1}}, {selector:#x}"
        yield Form(f"prmt.b32 {selector:#06x}", "bits", body, ("b32", "b32"), ("b32",))


def moves() -> Iterator[Form]:
    """Packing and unpacking, selection by constant, special registers."""
    yield Form("mov.b32 pack", "bits", "mov.b32 {d}, { {0}, {1} }", ("b16", "b16"), ("b32",))
    yield Form("mov.b32 unpack", "bits", "mov.b32 { {d0}, {d1} }, {0}", ("b32",), ("b16", "b16"))
    yield Form("mov.b64 pack", "bits", "mov.b64 {d}, { {0}, {1} }", ("b32", "b32"), ("b64",))
    yield Form("mov.b64 unpack", "bits", "mov.b64 { {d0}, {d1} }, {0}", ("b64",), ("b32", "b32"))
    yield Form("mov.b64 pack 4", "bits", "mov.b64 {d}, { {0}, {1}, {2}, {3} }", ("b16",) * 4, ("b64",))
    yield Form("mov.b64 unpack 4", "bits", "mov.b64 { {d0}, {d1}, {d2}, {d3} }, {0}", ("b64",), ("b16",) * 4)
    yield Form("mov.b32 unpack high", "bits", "mov.b32 { _, {d0} }, {0}", ("b32",), ("b16",))
    for name in ("laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "ntid.x",
                 "nctaid.x", "tid.y", "ctaid.z"):  # fmt: skip
        yield Form(f"mov.u32 %{name}", "bits", f"mov.u32 {{d}}, %{name}", (), ("b32",))


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (arithmetic, extended, dots, logic, fields, moves):
        yield from family()
