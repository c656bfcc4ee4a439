"""Approximate functions, by the recipes that the NumPy machine computes them by."""

from __future__ import annotations

import struct

from cudakit.emulator.compiled.builder import Builder
from cudakit.emulator.compiled.emit.common import intrinsic
from cudakit.emulator.compiled.text import X, constant, like


class Vectors:
    """The operations on values of the IR, of float64."""

    def __init__(self, b: Builder) -> None:
        self._b, self._text = b, b.text

    def constant(self, like: X, value: float) -> X:
        return constant(like.type, int.from_bytes(struct.pack("<d", value), "little"))

    def add(self, a: X, b: X) -> X:
        return self._text.binary("fadd", a, b)

    def subtract(self, a: X, b: X) -> X:
        return self._text.binary("fsub", a, b)

    def multiply(self, a: X, b: X) -> X:
        return self._text.binary("fmul", a, b)

    def divide(self, a: X, b: X) -> X:
        return self._text.binary("fdiv", a, b)

    def whole(self, a: X) -> X:
        return intrinsic(self._b, "rint", a)

    def size(self, a: X) -> X:
        return intrinsic(self._b, "fabs", a)

    def signed(self, a: X, like: X) -> X:
        return intrinsic(self._b, "copysign", a, like)

    def less(self, a: X, b: X) -> X:
        return self._text.compare("olt", a, b)

    def choose(self, held: X, a: X, b: X) -> X:
        return self._text.select(held, a, b)

    def _number(self, n: X) -> X:
        """A whole number, 0 for NaN."""
        count = f"v{n.type[1 : n.type.index(' ')]}" if n.is_vector else ""
        return self._text.call(f"llvm.fptosi.sat.{count}i64.{count}f64", like(n, "i64"), n)

    def scale(self, a: X, n: X) -> X:
        text = self._text
        biased = text.binary("add", self._number(n), constant(like(n, "i64"), 1023))
        power = text.cast("bitcast", text.binary("shl", biased, constant(biased.type, 52)), "double")
        found = self.multiply(a, power)
        # What is no number stays so.
        return text.select(text.compare("uno", n, n), n, found)

    def parts(self, a: X) -> tuple[X, X]:
        text = self._text
        bits = text.cast("bitcast", a, "i64")
        mantissa = text.binary("and", bits, constant(bits.type, (1 << 52) - 1))
        mantissa = text.binary("or", mantissa, constant(bits.type, 1023 << 52))
        exponent = text.binary("and", text.binary("lshr", bits, constant(bits.type, 52)), constant(bits.type, 2047))
        number = text.cast("sitofp", text.binary("sub", exponent, constant(bits.type, 1023)), "double")
        return text.cast("bitcast", mantissa, "double"), number

    def odd(self, n: X, bit: int) -> X:
        text, number = self._text, self._number(n)
        part = text.binary("and", text.binary("lshr", number, constant(number.type, bit)), constant(number.type, 1))
        return text.compare("ne", part, constant(number.type, 0))
