"""Matrices by a warp: ldmatrix, stmatrix, movmatrix, mma: PTX ISA 9.7.15.

Whole numbers as small as these add up without rounding in any order, so that only the layout is at question.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Form


def _list(mark: str, start: int, count: int) -> str:
    return "{ " + ", ".join(f"{{{mark}{start + n}}}" for n in range(count)) + " }"


def _mma(name: str, a: tuple[str, int], b: tuple[str, int], c: tuple[str, int], out: tuple[str, int]) -> Form:
    """Kinds and numbers of the registers of A, B, C and D."""
    sources = (a[0],) * a[1] + (b[0],) * b[1] + (c[0],) * c[1]
    body = (
        f"{name} {_list('d', 0, out[1])}, {_list('', 0, a[1])}, {_list('', a[1], b[1])}, {_list('', a[1] + b[1], c[1])}"
    )
    return Form(name, "tensor", body, sources, (out[0],) * out[1])


def mma() -> Iterator[Form]:
    """Products of matrices."""
    for shape, count in (("m16n8k8", 1), ("m16n8k16", 2)):
        for kind in ("f16", "bf16"):
            half = f"small_{kind}x2"
            yield _mma(f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32", (half, 2 * count), (half, count),
                       ("small_f32", 4), ("f32", 4))  # fmt: skip
        half = "small_f16x2"
        yield _mma(f"mma.sync.aligned.{shape}.row.col.f16.f16.f16.f16", (half, 2 * count), (half, count), (half, 2),
                   ("f16x2", 2))  # fmt: skip
    for shape, count in (("m16n8k4", 1), ("m16n8k8", 2)):
        yield _mma(f"mma.sync.aligned.{shape}.row.col.f32.tf32.tf32.f32", ("small_f32", 2 * count),
                   ("small_f32", count), ("small_f32", 4), ("f32", 4))  # fmt: skip
    for shape, a, b, c in (("m8n8k4", 1, 1, 2), ("m16n8k4", 2, 1, 4), ("m16n8k8", 4, 2, 4), ("m16n8k16", 8, 4, 4)):
        yield _mma(f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64", ("small_f64", a), ("small_f64", b),
                   ("small_f64", c), ("f64", c))  # fmt: skip
    for left in ("s8", "u8", "s4", "u4"):
        for right in ("s8", "u8") if left[1:] == "8" else ("s4", "u4"):
            shapes = (("m8n8k16", 1, 1, 2), ("m16n8k16", 2, 1, 4), ("m16n8k32", 4, 2, 4))
            if left[1:] == "4":
                shapes = (("m8n8k32", 1, 1, 2), ("m16n8k32", 2, 1, 4), ("m16n8k64", 4, 2, 4))
            for shape, a, b, c in shapes:
                for sat in ("", ".satfinite"):
                    name = f"mma.sync.aligned.{shape}.row.col{sat}.s32.{left}.{right}.s32"
                    yield _mma(name, ("b32", a), ("b32", b), ("b32", c), ("b32", c))
    for left, right in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2")):
        name = f"mma.sync.aligned.m16n8k32.row.col.f32.{left}.{right}.f32"
        yield _mma(name, (f"small_{left}x4", 4), (f"small_{right}x4", 2), ("small_f32", 4), ("f32", 4))
    for operation in ("and.popc", "xor.popc"):
        for shape, a, b, c in (("m8n8k128", 1, 1, 2), ("m16n8k128", 2, 1, 4), ("m16n8k256", 4, 2, 4)):
            name = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}"
            yield _mma(name, ("b32", a), ("b32", b), ("b32", c), ("b32", c))


def matrices() -> Iterator[Form]:
    """8 × 8 matrices of 16 bits between shared memory and registers; each lane's own 16 bytes are a row."""
    store = "st.shared.v4.b32 [{s}], { {0}, {1}, {2}, {3} }; bar.warp.sync -1;"
    for turned in ("", ".trans"):
        for count in (1, 2, 4):
            name = f"ldmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            yield Form(name, "tensor", f"{store} {name} {_list('d', 0, count)}, [{{s}}]", ("b32",) * 4,
                       ("b32",) * count)  # fmt: skip
            name = f"stmatrix.sync.aligned.m8n8.x{count}{turned}.shared.b16"
            body = (
                f"{store} {name} [{{s}}], {_list('', 4, count)}; bar.warp.sync -1;"
                " ld.shared.v4.b32 { {d0}, {d1}, {d2}, {d3} }, [{s}]"
            )
            yield Form(name, "tensor", body, ("b32",) * (4 + count), ("b32",) * 4)
    name = "movmatrix.sync.aligned.m8n8.trans.b16"
    yield Form(name, "tensor", f"{name} {{d}}, {{0}}", ("b32",), ("b32",))


def fragments() -> Iterator[Form]:
    """wmma, whose fragments no one sees: the 512 bytes of a warp are A, B and C at once, and are made D."""
    for a, b, d in (("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row")):
        regs = [f"%{name}<{count}>" for name, count in (("fa", 8), ("fb", 8), ("fc", 4), ("fd", 4))]
        lists = {r[1:3]: "{" + ", ".join(f"%{r[1:3]}{n}" for n in range(int(r[4]))) + "}" for r in regs}
        body = (
            "st.shared.v4.b32 [{s}], { {0}, {1}, {2}, {3} }; bar.warp.sync -1;"
            f" .reg .b32 {', '.join(regs)}; and.b32 %t0, %lane, -32; mad.lo.u32 %t0, %t0, 16, {{t}};"
            f" wmma.load.a.sync.aligned.{a}.m16n16k16.shared.f16 {lists['fa']}, [%t0], 16;"
            f" wmma.load.b.sync.aligned.{b}.m16n16k16.shared.f16 {lists['fb']}, [%t0], 16;"
            f" wmma.load.c.sync.aligned.{d}.m16n16k16.shared.f16 {lists['fc']}, [%t0], 16;"
            f" wmma.mma.sync.aligned.{a}.{b}.m16n16k16.f16.f16"
            f" {lists['fd']}, {lists['fa']}, {lists['fb']}, {lists['fc']};"
            f" bar.warp.sync -1; wmma.store.d.sync.aligned.{d}.m16n16k16.shared.f16 [%t0], {lists['fd']}, 16;"
            " bar.warp.sync -1; ld.shared.v4.b32 { {d0}, {d1}, {d2}, {d3} }, [{s}]"
        )
        name = f"wmma.mma.sync.aligned.{a}.{b}.m16n16k16.f16.f16 {d}"
        yield Form(name, "tensor", body, ("small_f16x2",) * 4, ("f16x2",) * 4)


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (mma, matrices, fragments):
        yield from family()
