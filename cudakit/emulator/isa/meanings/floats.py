"""Arithmetic of floats: PTX ISA 9.7.3, and 9.7.4 of half precision, one value or two in a register."""

from __future__ import annotations

from typing import Final

from cudakit.emulator.isa.meanings.approximate import FUNCTIONS
from cudakit.emulator.isa.words import Form, Word, means
from cudakit.errors import EmulationError

# ── from bits, to bits, without subnormal numbers ──

#: Bits of infinity in each type, which are the bits of the exponent.
INFINITY: Final = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F80_0000, "f64": 0x7FF0_0000_0000_0000}
SIGN: Final = {"f16": 0x8000, "bf16": 0x8000, "f32": 0x8000_0000, "f64": 1 << 63}
ONE: Final = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F80_0000, "f64": 0x3FF0_0000_0000_0000}


def halves(word: Word, name: str) -> Word:
    """Return a half's 16 bits unchanged; if the type `name` is a pair, split the word into both halves."""
    return word.split("u16") if name.endswith("x2") else word


def together(bits: Word, name: str) -> Word:
    """Join two halves' bits to a 32-bit word if the type `name` is a pair; return other bits unchanged."""
    return bits.join("u32") if name.endswith("x2") else bits


def widened(bits: Word, name: str) -> Word:
    """Convert bits of float16, or of bfloat16 by the type `name`, to float32."""
    return (bits.to("u32") << 16).view("f32") if name[0] == "b" else bits.view("f16").to("f32")


def flushed_bits(bits: Word, name: str) -> Word:
    """Replace subnormal floats of the type `name`, given as bits, by zeros of their sign."""
    name = name.removesuffix("x2")
    return (bits & INFINITY[name]).eq(0).choose(bits & SIGN[name], bits)


def flushed(value: Word) -> Word:
    """Replace subnormal float32 by zeros of their sign (``.ftz``)."""
    return value.do("flush", value.type_name)


def number(word: Word, name: str, ftz: bool = False) -> Word:
    """Return an operand of the type `name` as the float that arithmetic uses: halves as float32, others as they are.

    A pair becomes both floats. With `ftz`, subnormal values become zeros.
    """
    if name in ("f32", "f64"):
        return flushed(word) if ftz else word
    bits = halves(word, name)
    return widened(flushed_bits(bits, name) if ftz else bits, name)


def canonical(value: Word) -> Word:
    """Replace every float32 NaN by the hardware's, 0x7fffffff."""
    return value.do("canonical", value.type_name)


def quieted(value: Word) -> Word:
    """Set the quiet bit, bit 51, of float64 values that must all be NaN; sign and payload stay.

    Other values would change: the caller picks the result only where the value is NaN.
    """
    return (value.view("u64") | 1 << 51).view("f64")


def clamped(value: Word) -> Word:
    """Clamp values to [0, 1], NaN and -0 to +0 (``.sat``)."""
    # As integers: some processors' minimum and maximum, which LLVM takes for comparisons, pass a signalling NaN on.
    bits = value.view(f"s{value.bits}")
    inside = (bits > 0) & (bits <= INFINITY[value.type_name])
    return inside.choose(bits.min(ONE[value.type_name]), 0).view(value.type_name)


# ── rounding ──


def round_to(value: Word, too_high: Word, too_low: Word, mode: str) -> Word:
    """Move a value rounded to nearest to its neighbour where a rounding mode asks for it.

    Parameters
    ----------
    value : Word
        A float; an infinity here is an overflow.
    too_high, too_low : Word
        Whether the value is above, or below, the exact value.
    mode : str
        ``rn``, ``rz``, ``rm``, ``rp``, or ``odd``. With ``odd`` the last bit of an inexact value is odd, so that the
        value can be rounded again.
    """
    if mode == "rn":
        return value
    bits = value.view(f"u{value.bits}")
    negative = bits.view(f"s{value.bits}") < 0
    if mode in ("rz", "odd"):
        moved = bits - negative.choose(too_low, too_high).to(bits.type_name)
        moved = moved | (too_high | too_low).to(bits.type_name) if mode == "odd" else moved
    else:
        wrong, out = (too_high, negative) if mode == "rm" else (too_low, ~negative)
        moved = wrong.choose(out.choose(bits + 1, bits - 1), bits)
    return moved.view(value.type_name)


def rounded(value: Word, mode: str) -> Word:
    """Round float64 to float32 in a rounding mode."""
    near = value.to("f32")
    if mode == "rn":
        return near
    back = near.to("f64")
    return round_to(near, back > value, back < value, mode)


def narrowed(value: Word, name: str, mode: str) -> Word:
    """Round float32 or float64 to bits of the half-precision type `name` in a rounding mode; NaN becomes 0x7fff."""
    if name[0] == "f":
        near = value.to("f16")
        back = near.to(value.type_name)
        bits = round_to(near, back > value, back < value, mode).view("u16")
    else:
        whole = (rounded(value, "odd") if value.type_name == "f64" else value).view("u32")
        if mode == "rn":
            up = (whole >> 16 & 1) + 0x7FFF
        else:
            # Cut off, then one place outward where something was cut and the mode rounds outward for this sign.
            negative = whole > 0x7FFF_FFFF
            outward = negative if mode == "rm" else ~negative
            cut = (whole & 0xFFFF).ne(0)
            up = (cut & outward).to("u32") << 16 if mode != "rz" else whole.of(0)
        bits = (whole + up >> 16).to("u16")
    return value.eq(value).choose(bits, 0x7FFF)


def two_sum(a: Word, b: Word) -> tuple[Word, Word]:
    """``s, e`` with s = a + b rounded to nearest and s + e = a + b exactly (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def odd_sum(a: Word, b: Word) -> Word:
    """``a + b`` in float64, rounded to odd (Boldo and Melquiond, 2008), so that rounding it again is safe."""
    total, rounding_error = two_sum(a, b)
    bits = total.view("u64")
    even_inexact = (bits & 1).eq(0) & ((rounding_error < 0) | (rounding_error > 0))
    moved = ((rounding_error > 0) ^ (total > 0)).choose(bits - 1, bits + 1)
    return even_inexact.choose(moved, bits).view("f64")


def flush_rounded(result: Word, exact: Word, mode: str) -> Word:
    """Flush float32 results that would be below the least normal number if exponents had no end.

    `exact` has the results in float64. A result that was rounded up to the least normal number is flushed by how it
    rounds with all 24 bits, as the hardware does.
    """
    if mode == "rz":
        return flushed(result)
    size = abs(exact)
    below = (
        size < size.constant_of(2.0**-126 - 2.0**-151)
        if mode == "rn"
        else size <= size.constant_of(2.0**-126 - 2.0**-150)
    )
    zero = (result.view("u32") & SIGN["f32"]).view("f32")
    return (abs(result).eq(0x0080_0000) & below).choose(zero, flushed(result))


# ── arithmetic ──

#: Of several sources that are NaN, the one that float64 results take after: the hardware's order of looking.
_NAN_ORDER: Final = {"add": (1, 0), "sub": (1, 0), "mul": (1, 0), "fma": (1, 2, 0), "mad": (1, 2, 0), "div": (0, 1)}
#: Operations whose results may be inexact and subnormal.
_SMALL: Final = ("mul", "fma", "mad", "div")


def _nearest(opcode: str, a: Word, *more: Word) -> Word:
    """Compute the operation `opcode` on `a` and the words `more`, rounded to nearest."""
    return a.do("fma" if opcode == "mad" else opcode, a.type_name, *more)


def _exact(opcode: str, *sources: Word) -> Word:
    """Compute an operation on float32 in float64: exact for a product, with spare bits for others."""
    a, *more = (source.to("f64") for source in sources)
    return a * more[0] + more[1] if opcode in ("fma", "mad") else _nearest(opcode, a, *more)


def _directed(opcode: str, mode: str, *sources: Word) -> Word:
    """Compute the operation `opcode` on float32 sources, and round in the mode `mode`: ``rz``, ``rm`` or ``rp``."""
    if opcode not in ("add", "sub", "fma", "mad"):
        return rounded(_exact(opcode, *sources), mode)
    a, b, *more = (source.to("f64") for source in sources)
    first, last = (a * b, more[0]) if more else (a, -b if opcode == "sub" else b)
    total, rounding_error = two_sum(first, last)
    near = total.to("f32")
    error = (total - near.to("f64")) + rounding_error
    result = round_to(near, error < 0, error > 0, mode)
    if mode != "rm":
        return result
    # A sum that is exactly zero is -0 when rounding down, unless every term is +0.
    negative = (first.view("s64") | last.view("s64")) < 0
    return (total.eq(0) & negative).choose(SIGN["f32"], result)


def _computed(form: Form, opcode: str, *sources: Word) -> Word:
    """Compute an operation, with ``.ftz``, ``.sat`` and the hardware's NaN."""
    mode, ftz = form.mode, form.has("ftz")
    first, *more = sources
    if first.type_name == "f64":
        result = _nearest(opcode, *sources) if mode == "rn" else first.do("directed", "f64", *more, opcode, mode)
        return result.nan_from(*(sources[place] for place in _NAN_ORDER.get(opcode, (0,))))
    result = _nearest(opcode, *sources) if mode == "rn" else _directed(opcode, mode, *sources)
    return _finished(form, result, opcode, sources, ftz)


def _finished(form: Form, result: Word, opcode: str, sources: tuple[Word, ...], ftz: bool) -> Word:
    """Apply ``.ftz``, then ``.sat`` or the canonical NaN, to a float32 result."""
    if ftz:
        small = opcode in _SMALL
        result = flush_rounded(result, _exact(opcode, *sources), form.mode) if small else flushed(result)
    return clamped(result) if form.has("sat") else canonical(result)


def _ready(form: Form, *sources: Word) -> tuple[Word, ...]:
    """Return float32 sources, flushed with ``.ftz``."""
    return tuple(flushed(source) if form.has("ftz") else source for source in sources)


@means("add", "sub", "mul", "fma", "mad", sources="T T T", families="float", nans="gives")
def arithmetic(form: Form, *sources: Word) -> Word:
    return _computed(form, form.opcode, *_ready(form, *sources))


@means("div", sources="T T", families="float", nans="gives")
def div(form: Form, a: Word, b: Word) -> Word:
    """Divide; ``.full`` allows 2 ulp, and rounding to nearest is within them."""
    a, b = _ready(form, a, b)
    if not form.has("approx"):
        return _computed(form, "div", a, b)
    # Zero for divisors above 2¹²⁶, whose reciprocal is subnormal.
    size, bits = abs(b), b.view("u32")
    huge = (size > (127 + 126) << 23) & (size < INFINITY["f32"])
    quotient = huge.choose(a * (bits & SIGN["f32"]).view("f32"), a.do("div", "f32", b))
    return _finished(form, quotient, "div", (a, b), form.has("ftz"))


@means("rcp", sources="T", families="float", nans="gives")
def rcp(form: Form, a: Word) -> Word:
    if form.name == "f64" and form.has("approx"):
        upper = _upper(a)
        return _upper(a.constant_of(1.0).do("div", "f64", upper).nan_from(upper))
    (a,) = _ready(form, a)
    return _computed(form, "div", a.constant_of(1.0), a)


@means("sqrt", sources="T", families="float", nans="gives")
def sqrt(form: Form, a: Word) -> Word:
    return _computed(form, "sqrt", *_ready(form, a))


def _upper(a: Word) -> Word:
    """Keep the upper 32 bits, with subnormal values as zeros, as ``.approx.ftz.f64`` does."""
    bits = a.view("u64")
    small = (bits & INFINITY["f64"]).eq(0)
    return small.choose(bits & SIGN["f64"], bits & 0xFFFF_FFFF_0000_0000).view("f64")


# ── approximations: computed in float64, far within the error that the ISA allows ──


@means(*FUNCTIONS, sources="T", families="float", nans="gives")
def approximate(form: Form, a: Word) -> Word:
    (a,) = _ready(form, a)
    return _finished(form, FUNCTIONS[form.opcode](a.to("f64")).to("f32"), form.opcode, (a,), form.has("ftz"))


@means("rsqrt", sources="T", families="float", nans="gives")
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


@means("neg", "abs", sources="T", families="float", nans="gives")
def signed(form: Form, a: Word) -> Word:
    (a,) = _ready(form, a)
    result = -a if form.opcode == "neg" else abs(a)
    return canonical(result) if a.type_name == "f32" else result.nan_from(a)


@means("copysign", sources="U U", families="float")
def copysign(form: Form, a: Word, b: Word) -> Word:
    """Return the second source with the sign of the first."""
    sign = SIGN[form.name]
    return (a & sign) | (b & sign - 1)


@means("min", "max", sources="T T T", families="float")
def extremum(form: Form, *sources: Word) -> Word:
    a, *others = _ready(form, *sources)
    for b in others:
        a = _extreme(form, a, b)
    return a


def _extreme(form: Form, a: Word, b: Word) -> Word:
    """Return the smaller of two floats for ``min``, else the larger; -0 is below +0.

    If one is NaN, return the other; with ``.NaN`` return NaN. With ``.xorsign`` compare absolute values, and give the
    result the product's sign.
    """
    least, bits = form.opcode == "min", f"u{a.bits}"
    sign = (a.view(bits) ^ b.view(bits)) & SIGN[a.type_name]
    if form.has("xorsign"):
        a, b = abs(a), abs(b)
    x, y = a.view(bits), b.view(bits)
    result = ((a < b) if least else (a > b)).choose(a, b)  # b where a is NaN
    result = b.eq(b).choose(result, a)
    result = a.eq(b).choose((x | y if least else x & y).view(a.type_name), result)
    if form.has("NaN"):
        result = (a.eq(a) & b.eq(b)).choose(result, INFINITY[a.type_name] | 1)
    if form.has("xorsign"):
        result = (result.view(bits) | sign).view(a.type_name)
    return canonical(result) if a.type_name == "f32" else result.eq(result).choose(result, quieted(b))


# ── half precision ──
# A sum, product or fma is computed in float32 or float64, exactly or with so many bits to spare that the one rounding
# at the end is the only one seen.

_MAGNITUDE: Final = 0x7FFF
#: The NaN that tensor copies fill with, whatever the type, and that ``fma.oob`` takes as such with either sign.
OUT_OF_BOUNDS: Final = 0x7FF7


def _half_bits(form: Form, *sources: Word) -> list[Word]:
    """Return the bits of each source's half, or of both halves for pairs, flushed with ``.ftz``.

    Raises
    ------
    EmulationError
        If the form mixes half precision with float32.
    """
    if "f32" in form.types:
        raise EmulationError(f"{form.opcode} of mixed precision")
    words = [halves(source, form.name) for source in sources]
    return [flushed_bits(bits, form.name) if form.has("ftz") else bits for bits in words]


def _rounded_half(form: Form, value: Word) -> Word:
    """Round a float to bits of the form's half-precision type, with the form's ``.sat``, ``.relu`` and ``.ftz``."""
    if form.has("sat"):
        value = clamped(value)
    if form.has("relu"):
        # NaN stays, to become the canonical one; -0 becomes +0.
        value = (value <= 0).choose(0, value)
    bits = narrowed(value, form.name, "rn")
    return flushed_bits(bits, form.name) if form.has("ftz") else bits


@means("add", "sub", "mul", sources="T T", families="half")
def half_arithmetic(form: Form, a: Word, b: Word) -> Word:
    # Exact in float32, but for products of bfloat16 so far below its least subnormal that they are zero either way.
    x, y = (widened(bits, form.name) for bits in _half_bits(form, a, b))
    return together(_rounded_half(form, x.do(form.opcode, "f32", y)), form.name)


@means("fma", sources="T T T", families="half")
def fma(form: Form, *sources: Word) -> Word:
    bits = _half_bits(form, *sources)
    a, b, c = (widened(word, form.name).to("f64") for word in bits)
    # Of float16 exact, but for an addend so much larger that the sum is nowhere near halfway between two halves.
    result = _rounded_half(form, a * b + c if form.name[0] == "f" else odd_sum(a * b, c))
    if form.has("oob"):
        # Zero where a factor is the mark of an element that is not there.
        marked = [(word & _MAGNITUDE).eq(OUT_OF_BOUNDS) for word in bits[:2]]
        result = (marked[0] | marked[1]).choose(0, result)
    return together(result, form.name)


@means("ex2", "tanh", sources="T", families="half")
def half_approximate(form: Form, a: Word) -> Word:
    (bits,) = _half_bits(form, a)
    value = FUNCTIONS[form.opcode](widened(bits, form.name).to("f64"))
    if form.opcode == "ex2" and form.name[0] == "f":
        # Results below the least normal number are cut off, not rounded.
        cut = (value * value.constant_of(2.0**24)).do("floor", "f64") * value.constant_of(2.0**-24)
        value = (value < value.constant_of(2.0**-14)).choose(cut, value)
    return together(_rounded_half(form, value), form.name)


def _infinity(form: Form) -> int:
    """Return the bits of infinity in the form's half-precision type."""
    return INFINITY[form.name.removesuffix("x2")]


@means("neg", "abs", sources="T", families="half")
def half_signed(form: Form, a: Word) -> Word:
    (bits,) = _half_bits(form, a)
    bits = bits ^ 0x8000 if form.opcode == "neg" else bits & _MAGNITUDE
    return together(((bits & _MAGNITUDE) > _infinity(form)).choose(_MAGNITUDE, bits), form.name)


@means("min", "max", sources="T T T", families="half")
def half_extremum(form: Form, *sources: Word) -> Word:
    a, *others = _half_bits(form, *sources)
    for b in others:
        a = _half_extreme(form, a, b)
    return together(a, form.name)


def _key(bits: Word) -> Word:
    """Map bits of halves to signed 16-bit integers in the floats' order; applied twice, it gives the bits back."""
    key = bits.view("s16")
    return (key < 0).choose(key ^ _MAGNITUDE, key)


def _half_extreme(form: Form, a: Word, b: Word) -> Word:
    """Return the bits of the smaller of two halves for ``min``, else of the larger; -0 is below +0.

    If one is NaN, return the other; with ``.NaN`` return NaN. With ``.xorsign`` compare absolute values, and give the
    result the product's sign.
    """
    sign, infinity = (a ^ b) & 0x8000, _infinity(form)
    if form.has("xorsign"):
        a, b = a & _MAGNITUDE, b & _MAGNITUDE
    a_nan, b_nan = ((bits & _MAGNITUDE) > infinity for bits in (a, b))
    result = _key(_key(a).min(_key(b)) if form.opcode == "min" else _key(a).max(_key(b))).view("u16")
    result = a_nan.choose(b, b_nan.choose(a, result))
    result = result | sign if form.has("xorsign") else result
    return (a_nan | b_nan if form.has("NaN") else a_nan & b_nan).choose(_MAGNITUDE, result)
