"""Words as LLVM IR: operations on one value, or on a vector of the lanes' values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from cudakit.emulator.compiled.builder import Builder, X, constant, lanes_of, like
from cudakit.emulator.compiled.emit.table import flushed, intrinsic, named, nan_kept
from cudakit.emulator.isa.words import BITS, Word
from cudakit.errors import EmulationError

# ── half precision ──

HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})


def widened(b: Builder, bits: X, type_name: str) -> X:
    """Convert bits of halves to float32."""
    text = b.text
    if type_name[0] == "b":
        wide = text.binary("shl", text.cast("zext", bits, "i32"), 16)
        return text.cast("bitcast", wide, "float")
    return text.cast("fpext", text.cast("bitcast", bits, "half"), "float")


def narrowed(b: Builder, x: X, type_name: str) -> X:
    """Round float32 to bits of halves, to nearest, NaN canonical."""
    text = b.text
    nan = text.compare("uno", x, x)
    if type_name[0] == "b":
        bits = text.cast("bitcast", x, "i32")
        tie = text.binary("and", text.binary("lshr", bits, 16), 1)
        up = text.binary("add", text.binary("add", bits, 0x7FFF), tie)
        half_bits = text.cast("trunc", text.binary("lshr", up, 16), "i16")
    else:
        half_bits = text.cast("bitcast", text.cast("fptrunc", x, "half"), "i16")
    return text.select(nan, constant(half_bits.type, 0x7FFF), half_bits)


def odd_float(b: Builder, x: X) -> X:
    """Round float64 to float32, to odd where it is normal, so that rounding again rounds correctly."""
    text = b.text
    bits = text.cast("bitcast", x, "i64")
    low = (1 << 29) - 1
    rest = text.compare("ne", text.binary("and", bits, low), 0)
    cut = text.binary("and", bits, ~low)
    odd = text.select(rest, text.binary("or", cut, low + 1), cut)
    odd = text.select(text.compare("uno", x, x), bits, odd)
    return text.cast("fptrunc", text.cast("bitcast", odd, "double"), "float")


#: LLVM's types of floats; half precision is an integer of its bits.
_FLOATS: Final = {"f32": "float", "f64": "double"}
_INTEGER: Final = re.compile(r"(?:splat \(i\d+ )?(-?\d+)\)?")
_TRUTHS: Final = {"true": 1, "false": 0}


class LaneWord(Word):
    """A word in IR.

    Attributes
    ----------
    x : X
        One value where it is the same in all lanes, or a vector; for pieces, a vector of all pieces.
    raw : bool
        Whether the builder makes NaN canonical later, where needed.
    """

    __slots__ = ("b", "lanes", "raw", "x")

    def __init__(self, b: Builder, x: X, type_name: str, lanes: int, raw: bool = False) -> None:
        super().__init__(type_name)
        self.b, self.x, self.lanes, self.raw = b, x, lanes, raw

    @property
    def constant_value(self) -> int | None:
        number = _INTEGER.fullmatch(self.x.name)
        return (
            int(number[1]) & (1 << self.bits) - 1 if number and self.type_name[0] in "us" else _TRUTHS.get(self.x.name)
        )

    def constant(self, value: int, type_name: str) -> LaneWord:
        return self._word(constant(like(self.x, _element(type_name)), value), type_name)

    def _word(self, x: X, type_name: str) -> LaneWord:
        """Return another word with the same lanes."""
        return LaneWord(self.b, x, type_name, self.lanes, self.raw)

    def do(self, name: str, type_name: str, *others: Any) -> LaneWord:
        operation = _OPERATIONS.get(name)
        if operation is None:
            raise EmulationError(f"machine code has no operation {name} of {self.type_name}")
        result = operation(self, type_name, *others)
        return result if isinstance(result, LaneWord) else self._word(result, type_name)


def _element(type_name: str) -> str:
    """Return the LLVM type of a word."""
    return _FLOATS.get(type_name) or f"i{BITS[type_name]}"


def _binary(whole: str, real: str = "") -> Callable[..., X]:
    """Return an operation that writes the LLVM instruction `whole` for integers, and `real` for floats.

    ``{}`` in `whole` becomes ``s`` or ``u`` by the word's sign.
    """

    def do(a: LaneWord, type_name: str, other: LaneWord) -> X:
        opcode = real if a.type_name in _FLOATS else whole.format("s" if a.signed else "u")
        return a.b.text.binary(opcode, a.x, other.x)

    return do


def _named(whole: str, real: str = "") -> Callable[..., X]:
    """Return an operation that calls the LLVM intrinsic `whole` for integers, and `real` for floats.

    ``{}`` in `whole` becomes ``s`` or ``u`` by the word's sign.
    """

    def do(a: LaneWord, type_name: str, *others: LaneWord) -> X:
        name = real if a.type_name in _FLOATS else whole.format("s" if a.signed else "u")
        return intrinsic(a.b, name, a.x, *(other.x for other in others))

    return do


def _compared(test: str) -> Callable[..., X]:
    """Return an operation that writes the comparison `test`, such as ``lt``, of integers or floats."""

    def do(a: LaneWord, type_name: str, other: LaneWord) -> X:
        sign = "" if test in ("eq", "ne") else "s" if a.signed else "u"
        how = ("une" if test == "ne" else f"o{test}") if a.type_name in _FLOATS else f"{sign}{test}"
        return a.b.text.compare(how, a.x, other.x)

    return do


def _not(a: LaneWord, type_name: str) -> X:
    return a.b.text.binary("xor", a.x, -1)


def _neg(a: LaneWord, type_name: str) -> X:
    if a.type_name in _FLOATS:
        return a.b.text.make(f"fneg {a.x}", a.x.type)
    return a.b.text.binary("sub", constant(a.x.type, 0), a.x)


def _abs(a: LaneWord, type_name: str) -> X:
    if a.type_name in _FLOATS:
        return intrinsic(a.b, "fabs", a.x)
    return a.b.text.call(named("llvm.abs", a.x), a.x.type, a.x, X("i1", "false"))


def _shift(name: str) -> Callable[..., X]:
    """Return an operation that writes the shift `name`, ``shl`` or ``shr``, for any amount."""

    def do(a: LaneWord, type_name: str, by: LaneWord) -> X:
        text = a.b.text
        opcode = "shl" if name == "shl" else "ashr" if a.signed else "lshr"
        if by.constant_value is not None:
            return text.binary(opcode, a.x, by.constant_value)
        if opcode == "ashr":
            return text.binary(opcode, a.x, _resized(a, intrinsic(a.b, "umin", by.x, constant(by.x.type, a.bits - 1))))
        amount = _resized(a, intrinsic(a.b, "umin", by.x, constant(by.x.type, a.bits)))
        far = text.compare("eq", amount, a.bits)
        moved = text.binary(opcode, a.x, text.select(far, constant(amount.type, 0), amount))
        return text.select(far, constant(a.x.type, 0), moved)

    return do


def _resized(a: LaneWord, amount: X) -> X:
    """Return the unsigned shift amount `amount` with the width of the word `a`."""
    has = int(amount.element[1:])
    return a.b.text.cast("trunc" if has > a.bits else "zext", amount, f"i{a.bits}")


def _choose(a: LaneWord, type_name: str, first: LaneWord, second: LaneWord) -> LaneWord | X:
    if a.constant_value is not None:
        return first if a.constant_value else second
    return a.b.text.select(a.x, first.x, second.x)


def _to(a: LaneWord, type_name: str) -> X:
    """Write the cast of a word to another type, by the two types; return its value."""
    text, element = a.b.text, _element(type_name)
    if a.type_name == "f16":
        return text.cast("fpext", text.cast("bitcast", a.x, "half"), element)
    if type_name == "f16":
        x = odd_float(a.b, a.x) if a.type_name == "f64" else a.x
        return text.cast("bitcast", text.cast("fptrunc", x, "half"), "i16")
    if a.type_name in _FLOATS and type_name in _FLOATS:
        return text.cast("fpext" if type_name == "f64" else "fptrunc", a.x, element)
    if a.type_name in _FLOATS:
        count = f"v{lanes_of(a.x.type)}" if a.x.is_vector else ""
        sign = "s" if type_name[0] == "s" else "u"
        return text.call(f"llvm.fpto{sign}i.sat.{count}{element}.{count}{a.type_name}", like(a.x, element), a.x)
    if type_name in _FLOATS:
        return text.cast("sitofp" if a.signed else "uitofp", a.x, element)
    return text.cast("trunc" if BITS[type_name] < a.bits else "sext" if a.signed else "zext", a.x, element)


def _canonical(a: LaneWord, type_name: str) -> X:
    if a.raw:
        return a.x
    return a.b.text.select(a.b.text.compare("uno", a.x, a.x), constant(a.x.type, 0x7FFF_FFFF), a.x)


def _view(a: LaneWord, type_name: str) -> X:
    return a.b.text.cast("bitcast", a.x, _element(type_name))


# ── bits ──


def _counted(name: str, *arguments: X) -> Callable[..., X]:
    """Return an operation that calls the bit-counting intrinsic ``llvm.<name>``, with `arguments` behind the word.

    The operation's result has 32 bits.
    """

    def do(a: LaneWord, type_name: str) -> X:
        result = a.b.text.call(named(f"llvm.{name}", a.x), a.x.type, a.x, *arguments)
        return a.b.text.cast("trunc" if a.bits > 32 else "zext", result, "i32")

    return do


def _high_product(a: LaneWord, type_name: str, other: LaneWord) -> X:
    """Return the upper half of a product."""
    text, extend, wide = a.b.text, "sext" if a.signed else "zext", f"i{2 * a.bits}"
    whole = text.binary("mul", text.cast(extend, a.x, wide), text.cast(extend, other.x, wide))
    return text.cast("trunc", text.binary("lshr", whole, a.bits), f"i{a.bits}")


def _divided(operation: str) -> Callable[..., X]:
    """Return an operation that writes ``div`` or ``rem``; a divisor of 0 does not trap."""

    def do(a: LaneWord, type_name: str, other: LaneWord) -> X:
        text, x, y = a.b.text, a.x, other.x
        if a.type_name in _FLOATS:
            return text.binary("fdiv", x, y)
        y = text.select(text.compare("eq", y, 0), constant(y.type, 1), y)
        if not a.signed:
            return text.binary(f"u{operation}", x, y)
        # The lowest number divided by -1 wraps around in PTX, and traps on the CPU.
        negates = text.compare("eq", y, -1)
        result = text.binary(f"s{operation}", x, text.select(negates, constant(y.type, 1), y))
        return (
            text.select(negates, text.binary("sub", constant(x.type, 0), x), result) if operation == "div" else result
        )

    return do


# ── floats ──


def _nan_from(a: LaneWord, type_name: str, *sources: LaneWord) -> X:
    return nan_kept(a.b, a.x, *(source.x for source in sources))


# ── pieces ──


def _split(a: LaneWord, type_name: str, count: int) -> X:
    type_ = f"<{a.lanes * count} x {_element(type_name)}>"
    return a.b.text.make(f"bitcast {a.x} to {type_}", type_)


def _join(a: LaneWord, type_name: str, count: int) -> X:
    type_ = f"<{a.lanes} x {_element(type_name)}>" if a.lanes > 1 else _element(type_name)
    return a.b.text.make(f"bitcast {a.x} to {type_}", type_)


def _part(a: LaneWord, type_name: str, number: int, count: int) -> X:
    if a.lanes == 1:
        return a.b.text.make(f"extractelement {a.x}, i64 {number}", a.x.element)
    return a.b.text.shuffled(a.x, [lane * count + number for lane in range(a.lanes)])


def _pick(a: LaneWord, type_name: str, other: LaneWord, places: tuple[int, ...]) -> X:
    count = lanes_of(a.x.type) // a.lanes
    whole = a.lanes * count
    chosen = [place if place < count else whole - count + place for place in places]
    return a.b.text.shuffled(a.x, [lane * count + place for lane in range(a.lanes) for place in chosen], other.x)


def _repeat(a: LaneWord, type_name: str, count: int) -> X:
    if a.lanes == 1:
        type_ = f"<{count} x {a.x.type}>"
        inserted = a.b.text.make(f"insertelement {type_} poison, {a.x}, i64 0", type_)
        return a.b.text.make(f"shufflevector {inserted}, {type_} poison, <{count} x i32> zeroinitializer", type_)
    return a.b.text.shuffled(a.x, [lane for lane in range(a.lanes) for _ in range(count)])


_OPERATIONS: Final[dict[str, Callable[..., LaneWord | X]]] = {
    "add": _binary("add", "fadd"), "sub": _binary("sub", "fsub"), "mul": _binary("mul", "fmul"),
    "and": _binary("and"), "or": _binary("or"), "xor": _binary("xor"), "not": _not, "neg": _neg, "abs": _abs,
    "min": _named("{}min"), "max": _named("{}max"), "shl": _shift("shl"), "shr": _shift("shr"),
    **{test: _compared(test) for test in ("eq", "ne", "lt", "le", "gt", "ge")},
    "choose": _choose, "to": _to, "view": _view, "clz": _counted("ctlz", X("i1", "false")), "popc": _counted("ctpop"),
    "brev": _named("bitreverse"), "fshl": _named("fshl"), "fshr": _named("fshr"), "mulhi": _high_product,
    "flush": lambda a, type_name: flushed(a.b, a.x), "canonical": _canonical,
    **{whole: _named("", whole) for whole in ("rint", "trunc", "floor", "ceil")},
    "div": _divided("div"), "rem": _divided("rem"),
    "fma": _named("", "fma"), "sqrt": _named("", "sqrt"), "nan_from": _nan_from,
    "split": _split, "join": _join, "part": _part, "pick": _pick, "repeat": _repeat,
}  # fmt: skip
