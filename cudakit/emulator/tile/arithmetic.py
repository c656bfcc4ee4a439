"""Arithmetic of tiles, element by element; floats of less than 32 bits are computed in float32 and rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cudakit.emulator.instructions import rounding
from cudakit.emulator.tile.decode import Decoder, Step, operation, pure
from cudakit.emulator.tile.values import directed, dtype_of, narrowed, signed, unsigned, wide
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, Tile

#: The emulator's names of the rounding modes; what is approximate on a GPU is to nearest here.
_MODES: Final = {"nearest_even": "rn", "zero": "rz", "negative_inf": "rm", "positive_inf": "rp"}
_NEAREST: Final = ("nearest_even", "approx", "full")
_BINARY: Final[dict[str, Callable[..., Any]]] = {
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide,
    "remf": np.fmod, "fpowf": np.power, "atan2": np.arctan2,
}  # fmt: skip
_UNARY: Final[dict[str, Callable[..., Any]]] = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "rsqrt": lambda value: 1 / np.sqrt(value),
}  # fmt: skip
_ROUNDED: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {
    "addf": (rounding.add_f32, rounding.add_f64), "subf": (rounding.add_f32, rounding.add_f64),
    "mulf": (rounding.multiply_f32, rounding.multiply_f64), "divf": (rounding.divide_f32, rounding.divide_f64),
    "sqrt": (rounding.sqrt_f32, rounding.sqrt_f64),
}  # fmt: skip
_EXACT: Final[dict[str, Callable[..., Any]]] = {
    "floor": np.floor, "ceil": np.ceil, "absf": np.abs, "negf": np.negative,
}  # fmt: skip
_COMPARED: Final[dict[str, Callable[..., Any]]] = {
    "equal": np.equal, "not_equal": np.not_equal, "less_than": np.less, "less_than_or_equal": np.less_equal,
    "greater_than": np.greater, "greater_than_or_equal": np.greater_equal,
}  # fmt: skip


def _narrowed(given: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of wide tiles as one of tiles as they are held, with subnormal numbers flushed where that is asked."""
    dtype = dtype_of(given.types[0])
    if given.attributes.get("ftz"):

        def flushed(*operands: Any) -> Any:
            return rounding.flush(function(*[rounding.flush(wide(each)) for each in operands])).astype(dtype)

        return flushed
    if dtype in (np.float32, np.float64):
        return function
    return lambda *operands: function(*[wide(each) for each in operands]).astype(dtype)


@operation("addf", "subf", "mulf", "divf", "remf", "fpowf", "atan2")
def _binary(given: Operation, decoder: Decoder) -> Step:
    function = _BINARY[given.name]
    mode = given.attributes.get("rounding", "nearest_even")
    if mode not in _NEAREST:
        function = _directed(given, mode)
    return pure(given, _narrowed(given, function))


def _directed(given: Operation, mode: str) -> Callable[..., Any]:
    """The operation with another rounding than to nearest."""
    if dtype_of(given.types[0]).itemsize == 2:
        return _in_doubles(given, mode)
    single = dtype_of(given.types[0]) == np.float32
    singles, doubles = _ROUNDED[given.name]
    function, chosen = singles if single else doubles, _MODES[mode]
    if given.name == "subf":
        return lambda a, b: function(a, -b, chosen)
    return lambda *operands: function(*operands, chosen)


def _in_doubles(given: Operation, mode: str) -> Callable[..., Any]:
    """An operation of floats of 16 bits, in float64 and rounded once."""
    (made,) = given.types
    assert isinstance(made, Tile)
    element = made.element

    def rounded(*operands: Any) -> Any:
        first, *rest = (np.asarray(each, np.float64) for each in operands)
        match given.name, rest:
            case "fma", [second, third]:
                found = _sum(first * second, third, mode)
            case "addf", [second]:
                found = _sum(first, second, mode)
            case "subf", [second]:
                found = _sum(first, -second, mode)
            case name, _:  # of so few bits they lie on no border between two numbers, but for those that are exact
                found = (_UNARY | _BINARY)[name](first, *rest)
        return narrowed(found, element) if mode == "nearest_even" else directed(found, element, mode)

    return rounded


def _sum(a: Any, b: Any, mode: str) -> Any:
    """A sum in float64, rounded to odd: what rounds it again rounds it as if it were exact."""
    found = a + b
    part = found - a
    lost = (a - (found - part)) + (b - part)
    is_even = found.view(np.int64) & 1 == 0
    odd = np.nextafter(found, np.where(lost > 0, np.inf, -np.inf))
    found = np.where((lost != 0) & is_even & np.isfinite(found) & np.isfinite(lost), odd, found)
    if mode == "negative_inf":  # what cancels is -0
        found = np.where((found == 0) & (np.signbit(a) | np.signbit(b)), -0.0, found)
    return found


@operation("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
def _unary(given: Operation, decoder: Decoder) -> Step:
    function, dtype = _UNARY[given.name], dtype_of(given.types[0])
    mode = given.attributes.get("rounding", "nearest_even")
    if given.name == "sqrt" and mode not in _NEAREST:
        return pure(given, _narrowed(given, _directed(given, mode)))
    if dtype == np.float64 or given.name == "sqrt":
        return pure(given, _narrowed(given, function))
    # Of float64 rounded once: nearer than a GPU's, whose last bits the ISA leaves open.
    return pure(given, _narrowed(given, lambda value: function(value.astype(np.float64)).astype(np.float32)))


@operation("floor", "ceil", "absf", "negf")
def _exact(given: Operation, decoder: Decoder) -> Step:
    dtype, function = dtype_of(given.types[0]), _EXACT[given.name]
    return pure(given, lambda value: function(wide(value)).astype(dtype))


@operation("fma")
def _fma(given: Operation, decoder: Decoder) -> Step:
    mode, dtype = given.attributes.get("rounding", "nearest_even"), dtype_of(given.types[0])
    chosen = _MODES.get(mode, "rn")
    if dtype.itemsize == 2:
        return pure(given, _in_doubles(given, mode))
    if dtype == np.float64:
        return pure(given, lambda a, b, c: rounding.fma_f64(a, b, c, chosen))
    return pure(given, _narrowed(given, lambda a, b, c: rounding.fma_f32(a, b, c, chosen)))


@operation("maxf", "minf")
def _extremum(given: Operation, decoder: Decoder) -> Step:
    is_least = given.name == "minf"
    names = ("maximum", "minimum") if given.attributes.get("nan") else ("fmax", "fmin")
    function = getattr(np, names[is_least])

    def extremum(a: Any, b: Any) -> Any:
        # +0 is over −0: of two zeros the larger one is their sum.
        zero = -(-a + -b) if is_least else a + b
        return np.where((a == 0) & (b == 0), zero, function(rounding.quieted(a), rounding.quieted(b)))

    return pure(given, _narrowed(given, extremum))


@operation("cmpf")
def _compare_floats(given: Operation, decoder: Decoder) -> Step:
    function, unordered = _COMPARED[given.attributes["predicate"]], given.attributes["ordering"] == "unordered"

    def compare(a: Any, b: Any) -> Any:
        a, b = wide(a), wide(b)
        incomparable = np.isnan(a) | np.isnan(b)
        found = function(a, b)
        return found | incomparable if unordered else found & ~incomparable

    return pure(given, compare)


@operation("select")
def _select(given: Operation, decoder: Decoder) -> Step:
    return pure(given, np.where)


@operation("fpowi")
def _power_of_integer(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    return pure(given, lambda a, b: np.power(a.astype(np.float64), b.astype(np.float64)).astype(dtype))


# ── integers ──

_INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "negi": np.negative, "absi": np.abs,
}  # fmt: skip


@operation(*_INTEGERS)
def _integers(given: Operation, decoder: Decoder) -> Step:
    function = _INTEGERS[given.name]
    if dtype_of(given.types[0]) == np.bool_:
        if given.name in ("negi", "absi"):  # of one bit, each is its own negative
            return pure(given, lambda a: a)
        function = {"addi": np.logical_xor, "subi": np.logical_xor, "muli": np.logical_and}.get(given.name, function)
    return pure(given, function)


def _of_sign(given: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of integers that an operation takes as signed or unsigned."""
    dtype = dtype_of(given.types[0])
    if given.attributes["signedness"] == "signed":
        if dtype != np.bool_:
            return function
        return lambda a, b: function(signed(a), signed(b)).astype(bool)

    def of_unsigned(a: Any, b: Any) -> Any:
        found = function(unsigned(a), unsigned(b))
        return found.astype(bool) if dtype == np.bool_ else found.view(dtype)

    return of_unsigned


@operation("maxi", "mini")
def _integer_extremum(given: Operation, decoder: Decoder) -> Step:
    return pure(given, _of_sign(given, np.maximum if given.name == "maxi" else np.minimum))


@operation("cmpi")
def _compare_integers(given: Operation, decoder: Decoder) -> Step:
    function = _COMPARED[given.attributes["predicate"]]
    if given.attributes["signedness"] == "signed":
        return pure(given, lambda a, b: function(signed(a), signed(b)))
    return pure(given, lambda a, b: function(unsigned(a), unsigned(b)))


@operation("divi", "remi")
def _divide(given: Operation, decoder: Decoder) -> Step:
    mode = given.attributes.get("rounding", "zero")

    def quotient(a: Any, b: Any) -> Any:
        if not np.all(b):
            if not np.ndim(b) or not np.any(b):
                raise EmulationError(f"{given.name}: an integer is divided by 0")
            # Undefined where it is 0, which is no mistake in what pads a tile and is not stored.
            b = np.where(b == 0, b.dtype.type(1), b)
        if given.name == "remi":
            return np.fmod(a, b)
        down = np.floor_divide(a, b)
        inexact = down * b != a
        if mode == "zero":
            return down + (inexact & ((a < 0) != (b < 0))).astype(down.dtype)
        return down + inexact.astype(down.dtype) if mode == "positive_inf" else down

    return pure(given, _of_sign(given, quotient))


@operation("shli")
def _shift_left(given: Operation, decoder: Decoder) -> Step:
    return pure(given, _shifted(given, np.left_shift))


@operation("shri")
def _shift_right(given: Operation, decoder: Decoder) -> Step:
    function = np.right_shift if given.attributes["signedness"] == "signed" else _logical_right
    return pure(given, _shifted(given, function))


def _logical_right(value: Any, by: Any) -> Any:
    return (unsigned(value) >> unsigned(by)).view(value.dtype)


def _shifted(given: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
    """A shift; of bits that a type does not have it gives what is left, as a GPU does."""
    bits = 8 * dtype_of(given.types[0]).itemsize

    def shift(value: Any, by: Any) -> Any:
        if value.dtype == np.bool_:
            return value
        if not np.ndim(by) and not 0 <= int(by) < bits:
            raise EmulationError(f"{given.name}: {bits} bits are shifted by {int(by)}")
        return function(value, by)

    return shift


@operation("mulhii")
def _high_half(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    bits = 8 * dtype.itemsize

    def high(a: Any, b: Any) -> Any:
        a, b = unsigned(a), unsigned(b)
        if bits < 64:
            return ((a.astype(np.uint64) * b) >> np.uint64(bits)).astype(a.dtype).view(dtype)
        half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
        low = (a & mask) * (b & mask)
        first, second = (a >> half) * (b & mask), (a & mask) * (b >> half)
        middle = (low >> half) + (first & mask) + (second & mask)
        return ((a >> half) * (b >> half) + (first >> half) + (second >> half) + (middle >> half)).view(dtype)

    return pure(given, high)
