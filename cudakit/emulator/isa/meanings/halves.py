"""Half precision, one value or two in a register: PTX ISA 9.7.4.

A sum, product or fma is computed in float32 or float64, exactly or with so many bits to spare that the one rounding at
the end is the only one seen.
"""

from __future__ import annotations

from typing import Final

from cudakit.emulator.isa.meanings.reals import (
    INFINITY,
    clamped,
    flushed_bits,
    halves,
    narrowed,
    odd_sum,
    together,
    widened,
)
from cudakit.emulator.isa.meanings.table import Form, means
from cudakit.emulator.isa.words import Word
from cudakit.errors import EmulationError

_MAGNITUDE: Final = 0x7FFF
#: The NaN that tensor copies fill with, whatever the type, and that ``fma.oob`` takes as such with either sign.
OUT_OF_BOUNDS: Final = 0x7FF7


def _bits(form: Form, *sources: Word) -> list[Word]:
    """The bits of halves, of both where there are two."""
    if "f32" in form.types:
        raise EmulationError(f"{form.opcode} of mixed precision")
    found = [halves(source, form.name) for source in sources]
    return [flushed_bits(bits, form.name) if form.has("ftz") else bits for bits in found]


def _rounded(form: Form, value: Word) -> Word:
    if form.has("sat"):
        value = clamped(value)
    if form.has("relu"):
        # NaN stays, to become the canonical one; -0 becomes +0.
        value = (value <= 0).choose(0, value)
    bits = narrowed(value, form.name, "rn")
    return flushed_bits(bits, form.name) if form.has("ftz") else bits


@means("add 9.7.4.1", "sub 9.7.4.2", "mul 9.7.4.3", sources="T T", families="half")
def arithmetic(form: Form, a: Word, b: Word) -> Word:
    # Exact in float32, but for products of bfloat16 so far below its least subnormal that they are zero either way.
    x, y = (widened(bits, form.name) for bits in _bits(form, a, b))
    return together(_rounded(form, x.do(form.opcode, "f32", y)), form.name)


@means("fma 9.7.4.4", sources="T T T", families="half")
def fma(form: Form, *sources: Word) -> Word:
    bits = _bits(form, *sources)
    a, b, c = (widened(each, form.name).to("f64") for each in bits)
    # Of float16 exact, but for an addend so much larger that the sum is nowhere near halfway between two halves.
    result = _rounded(form, a * b + c if form.name[0] == "f" else odd_sum(a * b, c))
    if form.has("oob"):
        # Zero where a factor is the mark of an element that is not there.
        marked = [(each & _MAGNITUDE).eq(OUT_OF_BOUNDS) for each in bits[:2]]
        result = (marked[0] | marked[1]).choose(0, result)
    return together(result, form.name)


@means("ex2 9.7.4.10", "tanh 9.7.4.9", sources="T", families="half")
def approximate(form: Form, a: Word) -> Word:
    (bits,) = _bits(form, a)
    value = widened(bits, form.name).to("f64").do(form.opcode, "f64")
    if form.opcode == "ex2" and form.name[0] == "f":
        # Results below the least normal number are cut off, not rounded.
        cut = (value * value.constant_of(2.0**24)).do("floor", "f64") * value.constant_of(2.0**-24)
        value = (value < value.constant_of(2.0**-14)).choose(cut, value)
    return together(_rounded(form, value), form.name)


def _infinity(form: Form) -> int:
    return INFINITY[form.name.removesuffix("x2")]


@means("neg 9.7.4.5", "abs 9.7.4.6", sources="T", families="half")
def signed(form: Form, a: Word) -> Word:
    (bits,) = _bits(form, a)
    bits = bits ^ 0x8000 if form.opcode == "neg" else bits & _MAGNITUDE
    return together(((bits & _MAGNITUDE) > _infinity(form)).choose(_MAGNITUDE, bits), form.name)


@means("min 9.7.4.7", "max 9.7.4.8", sources="T T T", families="half")
def extremum(form: Form, *sources: Word) -> Word:
    a, *others = _bits(form, *sources)
    for b in others:
        a = _extreme(form, a, b)
    return together(a, form.name)


def _key(bits: Word) -> Word:
    """Signed integers in the order of the floats whose bits they are; done twice, the bits."""
    key = bits.view("s16")
    return (key < 0).choose(key ^ _MAGNITUDE, key)


def _extreme(form: Form, a: Word, b: Word) -> Word:
    """The smaller or larger of two: -0 is below +0; NaN gives the other one, or with ``.NaN`` itself."""
    sign, infinity = (a ^ b) & 0x8000, _infinity(form)
    if form.has("xorsign"):
        a, b = a & _MAGNITUDE, b & _MAGNITUDE
    a_nan, b_nan = ((bits & _MAGNITUDE) > infinity for bits in (a, b))
    result = _key(_key(a).min(_key(b)) if form.opcode == "min" else _key(a).max(_key(b))).view("u16")
    result = a_nan.choose(b, b_nan.choose(a, result))
    result = result | sign if form.has("xorsign") else result
    return (a_nan | b_nan if form.has("NaN") else a_nan & b_nan).choose(_MAGNITUDE, result)
