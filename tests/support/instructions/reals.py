"""Floating-point arithmetic in every type and rounding: PTX ISA 9.7.3 and 9.7.4."""

from __future__ import annotations

from collections.abc import Iterator

from support.instructions.forms import Bound, Form

MODES = ("rn", "rz", "rm", "rp")

#: Largest errors of the approximate float32 functions by the PTX ISA, 9.7.3.
APPROXIMATE = {
    "rcp": Bound(ulp=1), "sqrt": Bound(relative=2.0**-23), "rsqrt": Bound(relative=2.0**-22.9),
    "lg2": Bound(absolute=2.0**-22, relative=2.0**-22), "ex2": Bound(ulp=2), "tanh": Bound(relative=2.0**-11),
}  # fmt: skip
#: sin and cos: on [-2π, 2π] 2^-20.5 by the ISA; an H200's cosine of 4.82569 (0x409a6c0e) is 2^-20.47 off.
ANGLE = Bound(absolute=2.0**-20.4)


def _form(name: str, sources: int, kind: str, bound: Bound | None = None, family: str = "floating") -> Form:
    places = ", ".join(f"{{{n}}}" for n in range(sources))
    return Form(name, family, f"{name} {{d}}, {places}", (kind,) * sources, (kind,), bound)


def exact() -> Iterator[Form]:
    """Rounded operations of float32 and float64."""
    for kind in ("f32", "f64"):
        ends = [""] if kind == "f64" else ["", ".ftz", ".sat", ".ftz.sat"]
        for mode in MODES:
            for end in ends:
                for opcode in ("add", "sub", "mul"):
                    yield _form(f"{opcode}.{mode}{end}.{kind}", 2, kind)
                yield _form(f"fma.{mode}{end}.{kind}", 3, kind)
            for end in ends[:2]:
                yield _form(f"div.{mode}{end}.{kind}", 2, kind)
                yield _form(f"rcp.{mode}{end}.{kind}", 1, kind)
                yield _form(f"sqrt.{mode}{end}.{kind}", 1, kind)
        for end in ends[:2]:
            yield _form(f"add{end}.{kind}", 2, kind)
            yield _form(f"abs{end}.{kind}", 1, kind)
            yield _form(f"neg{end}.{kind}", 1, kind)
            for opcode in ("min", "max"):
                yield _form(f"{opcode}{end}.{kind}", 2, kind)
                if kind == "f32":
                    yield _form(f"{opcode}{end}.NaN.{kind}", 2, kind)
                    yield _form(f"{opcode}{end}.xorsign.abs.{kind}", 2, kind)
                    yield _form(f"{opcode}{end}.NaN.xorsign.abs.{kind}", 2, kind)
        yield _form(f"mad.rn.{kind}", 3, kind)
        yield _form(f"copysign.{kind}", 2, kind)
        for test in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
            name = f"testp.{test}.{kind}"
            yield Form(name, "floating", f"{name} {{d}}, {{0}}", (kind,), ("pred",))


def approximate() -> Iterator[Form]:
    """Functions whose error the ISA bounds."""
    for opcode, bound in APPROXIMATE.items():
        ends = [""] if opcode == "tanh" else ["", ".ftz"]
        for end in ends:
            yield _form(f"{opcode}.approx{end}.f32", 1, "f32", bound)
    for opcode in ("sin", "cos"):
        for end in ("", ".ftz"):
            name = f"{opcode}.approx{end}.f32"
            yield Form(name, "floating", f"{name} {{d}}, {{0}}", ("angle",), ("f32",), ANGLE)
    for way in ("approx", "full"):
        for end in ("", ".ftz"):
            yield _form(f"div.{way}{end}.f32", 2, "f32", Bound(ulp=2))
    # The ISA calls these gross: of the 52 bits of the fraction, the upper 20 are there.
    yield _form("rcp.approx.ftz.f64", 1, "f64", Bound(relative=2.0**-20))
    yield _form("rsqrt.approx.ftz.f64", 1, "f64", Bound(relative=2.0**-20))
    yield _form("rsqrt.approx.f64", 1, "f64", Bound(ulp=2))


def halves() -> Iterator[Form]:
    """float16 and bfloat16, alone and in pairs."""
    for kind in ("f16", "f16x2", "bf16", "bf16x2"):
        ends = ["", ".ftz", ".sat", ".ftz.sat"] if kind[0] == "f" else [""]
        for opcode in ("add", "sub", "mul"):
            for end in ends:
                yield _form(f"{opcode}.rn{end}.{kind}", 2, kind, family="half")
            yield _form(f"{opcode}.{kind}", 2, kind, family="half")
        for end in (*ends, ".relu", *([".ftz.relu"] if kind[0] == "f" else [])):
            yield _form(f"fma.rn{end}.{kind}", 3, kind, family="half")
        for end in ends[:2]:
            yield _form(f"neg{end}.{kind}", 1, kind, family="half")
            yield _form(f"abs{end}.{kind}", 1, kind, family="half")
            for opcode in ("min", "max"):
                for rest in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"):
                    yield _form(f"{opcode}{end}{rest}.{kind}", 2, kind, family="half")
        yield _form(f"fma.rn.oob.{kind}", 3, kind, family="half")
        yield _form(f"fma.rn.oob.relu.{kind}", 3, kind, family="half")
        # float16: largest absolute error of tanh 2^-10.987, relative one of ex2 2^-9.9; bfloat16: 2^-8 and 2^-7.
        tanh = Bound(absolute=2.0**-10.987) if kind[0] == "f" else Bound(absolute=2.0**-8)
        yield _form(f"tanh.approx.{kind}", 1, kind, tanh, family="half")
        ex2 = Bound(relative=2.0**-9.9) if kind[0] == "f" else Bound(relative=2.0**-7)
        yield _form(f"ex2.approx{'' if kind[0] == 'f' else '.ftz'}.{kind}", 1, kind, ex2, family="half")


def forms() -> Iterator[Form]:
    """All of them."""
    for family in (exact, approximate, halves):
        yield from family()
