"""Arithmetic of float32 and float64: PTX ISA 9.7.3."""

from __future__ import annotations

from typing import Final

from cudakit.emulator.isa.meanings.reals import (
    INFINITY,
    SIGN,
    canonical,
    clamped,
    flush_rounded,
    flushed,
    quieted,
    round_to,
    rounded,
    two_sum,
)
from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word

#: Of several sources that are NaN, the one that float64 results take after: the hardware's order of looking.
_NAN_ORDER: Final = {"add": (1, 0), "sub": (1, 0), "mul": (1, 0), "fma": (1, 2, 0), "mad": (1, 2, 0), "div": (0, 1)}
#: Operations whose results may be inexact and subnormal.
_SMALL: Final = ("mul", "fma", "mad", "div")


def _nearest(opcode: str, a: Word, *more: Word) -> Word:
    """The result of an operation, rounded to nearest."""
    if opcode in ("fma", "mad"):
        return a.do("fma", a.kind, *more)
    return a.do(opcode, a.kind, *more)


def _exact(opcode: str, *sources: Word) -> Word:
    """The result of an operation on float32 in float64: of a product exact, of others with bits to spare."""
    a, *more = (source.to("f64") for source in sources)
    return a * more[0] + more[1] if opcode in ("fma", "mad") else _nearest(opcode, a, *more)


def _directed(opcode: str, mode: str, *sources: Word) -> Word:
    """The result in float32 of an operation, rounded in a direction."""
    if opcode not in ("add", "sub", "fma", "mad"):
        return rounded(_exact(opcode, *sources), mode)
    a, b, *more = (source.to("f64") for source in sources)
    first, last = (a * b, more[0]) if more else (a, -b if opcode == "sub" else b)
    total, lost = two_sum(first, last)
    near = total.to("f32")
    off = (total - near.to("f64")) + lost
    result = round_to(near, off < 0, off > 0, mode)
    if mode != "rm":
        return result
    # A sum that is exactly zero is -0 when rounding down, unless every term is +0.
    negative = (first.view("s64") | last.view("s64")) < 0
    return (total.eq(0) & negative).choose(SIGN["f32"], result)


def _computed(form: Form, opcode: str, *sources: Word) -> Word:
    """The result of an operation, with ``.ftz``, ``.sat`` and the right NaN."""
    mode, ftz = form.mode, form.has("ftz")
    first, *more = sources
    if first.kind == "f64":
        result = _nearest(opcode, *sources) if mode == "rn" else first.do("directed", "f64", *more, opcode, mode)
        return result.nan_from(*(sources[place] for place in _NAN_ORDER.get(opcode, (0,))))
    result = _nearest(opcode, *sources) if mode == "rn" else _directed(opcode, mode, *sources)
    return _finished(form, result, opcode, sources, ftz)


def _finished(form: Form, result: Word, opcode: str, sources: tuple[Word, ...], ftz: bool) -> Word:
    if ftz:
        small = opcode in _SMALL
        result = flush_rounded(result, _exact(opcode, *sources), form.mode) if small else flushed(result)
    return clamped(result) if form.has("sat") else canonical(result)


def _ready(form: Form, *sources: Word) -> tuple[Word, ...]:
    return tuple(flushed(source) if form.has("ftz") else source for source in sources)


@means(
    "add 9.7.3.3", "sub 9.7.3.4", "mul 9.7.3.5", "fma 9.7.3.6", "mad 9.7.3.7", sources="T T T", families="float",
    nans="gives",
)  # fmt: skip
def arithmetic(form: Form, *sources: Word) -> Word:
    return _computed(form, form.opcode, *_ready(form, *sources))


@means("div 9.7.3.8", sources="T T", families="float", nans="gives")
def div(form: Form, a: Word, b: Word) -> Word:
    """The quotient; ``.full`` allows 2 ulp, and to nearest is within them."""
    a, b = _ready(form, a, b)
    if not form.has("approx"):
        return _computed(form, "div", a, b)
    # Zero for divisors above 2¹²⁶, whose reciprocal is subnormal.
    size, bits = abs(b), b.view("u32")
    huge = (size > (127 + 126) << 23) & (size < INFINITY["f32"])
    quotient = huge.choose(a * (bits & SIGN["f32"]).view("f32"), a.do("div", "f32", b))
    return _finished(form, quotient, "div", (a, b), form.has("ftz"))


@means("rcp 9.7.3.13", sources="T", families="float", nans="gives")
def rcp(form: Form, a: Word) -> Word:
    if form.name == "f64" and form.has("approx"):
        upper = _upper(a)
        return _upper(a.constant_of(1.0).do("div", "f64", upper).nan_from(upper))
    (a,) = _ready(form, a)
    result = _computed(form, "div", a.constant_of(1.0), a)
    return result


@means("sqrt 9.7.3.15", sources="T", families="float", nans="gives")
def sqrt(form: Form, a: Word) -> Word:
    return _computed(form, "sqrt", *_ready(form, a))


def _upper(a: Word) -> Word:
    """``.approx.ftz.f64`` works on the upper 32 bits alone, and takes subnormal values for zeros."""
    bits = a.view("u64")
    small = (bits & INFINITY["f64"]).eq(0)
    return small.choose(bits & SIGN["f64"], bits & 0xFFFF_FFFF_0000_0000).view("f64")


# ── approximations: computed in float64, far within the error that the ISA allows ──


@means(
    "sin 9.7.3.18", "cos 9.7.3.19", "lg2 9.7.3.20", "ex2 9.7.3.21", "tanh 9.7.3.22", sources="T", families="float",
    nans="gives",
)  # fmt: skip
def approximate(form: Form, a: Word) -> Word:
    (a,) = _ready(form, a)
    return _finished(form, a.to("f64").do(form.opcode, "f64").to("f32"), form.opcode, (a,), form.has("ftz"))


@means("rsqrt 9.7.3.16", sources="T", families="float", nans="gives")
def rsqrt(form: Form, a: Word) -> Word:
    ftz = form.has("ftz")
    if form.name == "f64":
        a = _upper(a) if ftz else a
        root = a.constant_of(1.0).do("div", "f64", a.do("sqrt", "f64")).nan_from(a)
        return _upper(root) if ftz else root
    (a,) = _ready(form, a)
    wide = a.to("f64").do("sqrt", "f64")
    return _finished(form, wide.constant_of(1.0).do("div", "f64", wide).to("f32"), "rsqrt", (a,), ftz)


# ── signs and extrema ──


@means("neg 9.7.3.10", "abs 9.7.3.9", sources="T", families="float", nans="gives")
def signed(form: Form, a: Word) -> Word:
    (a,) = _ready(form, a)
    result = -a if form.opcode == "neg" else abs(a)
    return canonical(result) if a.kind == "f32" else result.nan_from(a)


@means("copysign 9.7.3.2", sources="U U", families="float")
def copysign(form: Form, a: Word, b: Word) -> Word:
    """The second source with the sign of the first."""
    sign = SIGN[form.name]
    return (a & sign) | (b & sign - 1)


@means("min 9.7.3.11", "max 9.7.3.12", sources="T T T", families="float")
def extremum(form: Form, *sources: Word) -> Word:
    a, *others = _ready(form, *sources)
    for b in others:
        a = _extreme(form, a, b)
    return a


def _extreme(form: Form, a: Word, b: Word) -> Word:
    """The smaller or larger of two: -0 is below +0; NaN gives the other one, or with ``.NaN`` itself."""
    least, bits = form.opcode == "min", f"u{a.bits}"
    sign = (a.view(bits) ^ b.view(bits)) & SIGN[a.kind]
    if form.has("xorsign"):
        a, b = abs(a), abs(b)
    x, y = a.view(bits), b.view(bits)
    result = ((a < b) if least else (a > b)).choose(a, b)  # b where a is NaN
    result = b.eq(b).choose(result, a)
    result = a.eq(b).choose((x | y if least else x & y).view(a.kind), result)
    if form.has("NaN"):
        result = (a.eq(a) & b.eq(b)).choose(result, INFINITY[a.kind] | 1)
    if form.has("xorsign"):
        result = (result.view(bits) | sign).view(a.kind)
    return canonical(result) if a.kind == "f32" else result.eq(result).choose(result, quieted(b))
