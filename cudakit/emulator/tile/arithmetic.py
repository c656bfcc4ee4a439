"""Operations that compute tiles: element by element, products of matrices, conversions, and tiles made of other tiles.

Floats of less than 32 bits are computed in float32 and rounded once. Products sum in float32, in the order of a BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cudakit.emulator.instructions import rounding
from cudakit.emulator.tile.decode import Block, Decoder, Ended, Step, operation, pure
from cudakit.emulator.tile.values import (
    constant,
    directed,
    dtype_of,
    narrowed,
    power_of_two,
    shape_of,
    signed,
    unsigned,
    wide,
)
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Bounded, DivisibleBy, Operation, SameElements, Tile


@operation("mmaf")
def _floats(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])

    def product(a: Any, b: Any, c: Any) -> Any:
        return (np.matmul(wide(a), wide(b)) + wide(c)).astype(dtype, copy=False)

    return pure(given, product)


@operation("mmaf_scaled")
def _scaled(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])

    def product(a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
        depth = a.shape[-1]
        left = wide(a) * np.repeat(wide(scale_a), depth // scale_a.shape[-1], -1)
        right = wide(b) * np.repeat(wide(scale_b), depth // scale_b.shape[-2], -2)
        return (np.matmul(left, right) + wide(c)).astype(dtype)

    return pure(given, product)


@operation("mmai")
def _integer_product(given: Operation, decoder: Decoder) -> Step:
    lhs, rhs = (given.attributes[side] == "signed" for side in ("lhs", "rhs"))

    def product(a: Any, b: Any, c: Any) -> Any:
        left, right = (a if lhs else unsigned(a)), (b if rhs else unsigned(b))
        # Exact in float64, which has a BLAS: 16 bits a product, and no tile is as deep as 2^37.
        found = np.matmul(left.astype(np.float64), right.astype(np.float64))
        return found.astype(np.int64).astype(np.int32) + c

    return pure(given, product)


@operation("exti")
def _extend(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if given.attributes["signedness"] == "signed":
        return pure(given, lambda a: signed(a).astype(dtype))
    return pure(given, lambda a: unsigned(a).astype(dtype))


@operation("trunci")
def _truncate(given: Operation, decoder: Decoder) -> Step:
    dtype = dtype_of(given.types[0])
    if dtype == np.bool_:
        return pure(given, lambda a: (a & 1).astype(bool))
    return pure(given, lambda a: a.astype(dtype))


@operation("itof")
def _integer_to_float(given: Operation, decoder: Decoder) -> Step:
    (result,) = given.types
    assert isinstance(result, Tile)
    view = signed if given.attributes["signedness"] == "signed" else unsigned
    element, dtype = result.element, dtype_of(result)
    _nearest_only(given)
    if dtype in (np.float32, np.float64) and element != "tf32":
        return pure(given, lambda a: np.asarray(view(a)).astype(dtype))
    return pure(given, lambda a: narrowed(_as_float64(np.asarray(view(a))), element))


def _as_float64(value: np.ndarray) -> np.ndarray:
    """Integers as float64; of those of more than 53 bits the last bit says whether anything was lost after it."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    kind = value.dtype.type
    high = (value >> kind(11)) | ((value & kind(2047)) != 0).astype(value.dtype)
    large = np.abs(value.astype(np.float64)) >= 2.0**53
    return np.where(large, high.astype(np.float64) * 2048, value.astype(np.float64))


@operation("ftoi")
def _float_to_integer(given: Operation, decoder: Decoder) -> Step:
    dtype, has_sign = dtype_of(given.types[0]), given.attributes["signedness"] == "signed"
    held = dtype if has_sign or dtype == np.bool_ else np.dtype(f"u{dtype.itemsize}")
    if dtype == np.bool_:
        return pure(given, lambda a: wide(a) != 0)
    low, high = np.iinfo(held).min, np.iinfo(held).max

    def convert(a: Any) -> Any:
        whole = np.trunc(wide(a).astype(np.float64))
        inside = (whole >= low) & (whole <= float(high)) & (whole < float(high) + 1)
        found = np.where(inside, whole, 0).astype(held)
        found = np.where(whole >= float(high), high, np.where(whole <= low, low, found))
        return np.where(np.isnan(whole), 0, found).astype(held).view(dtype)

    return pure(given, convert)


@operation("ftof")
def _float_to_float(given: Operation, decoder: Decoder) -> Step:
    (result,) = given.types
    assert isinstance(result, Tile)
    element, mode = result.element, given.attributes.get("rounding", "nearest_even")
    if element == "f8E8M0FNU" and mode in ("zero", "positive_inf"):
        return pure(given, lambda a: power_of_two(wide(a), mode == "positive_inf"))
    if mode == "nearest_even":
        return pure(given, lambda a: narrowed(wide(a), element))
    return pure(given, lambda a: directed(wide(a), element, mode))


def _nearest_only(given: Operation) -> None:
    mode = given.attributes.get("rounding", "nearest_even")
    if mode != "nearest_even":
        raise EmulationError(f"{given.name} with rounding {mode} is not emulated")


@operation("bitcast")
def _bitcast(given: Operation, decoder: Decoder) -> Step:
    dtype, shape = dtype_of(given.types[0]), shape_of(given.types[0])
    return pure(given, lambda a: np.ascontiguousarray(a).reshape(-1).view(dtype).reshape(shape))


@operation("pack")
def _pack(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])

    def pack(a: Any) -> Any:
        raw = np.ascontiguousarray(a).reshape(-1)
        if raw.size == 2 * int(np.prod(shape)):  # of 4 bits each, the first in the low half
            nibbles = raw.view(np.uint8)
            return (nibbles[::2] & 15 | nibbles[1::2] << 4).view(np.int8).reshape(shape)
        return raw.view(np.int8).reshape(shape)

    return pure(given, pack)


@operation("unpack")
def _unpack(given: Operation, decoder: Decoder) -> Step:
    dtype, shape = dtype_of(given.types[0]), shape_of(given.types[0])

    def unpack(a: Any) -> Any:
        raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
        if int(np.prod(shape)) == 2 * raw.size:
            nibbles = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1).astype(np.uint8)
            return nibbles.view(dtype).reshape(shape)
        return raw.view(dtype).reshape(shape)

    return pure(given, unpack)


@operation("ptr_to_int")
def _pointer_to_integer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: a.astype(np.uint64).view(np.int64))


@operation("int_to_ptr")
def _integer_to_pointer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: np.asarray(a).view(np.uint64))


@operation("ptr_to_ptr")
def _pointer_to_pointer(given: Operation, decoder: Decoder) -> Step:
    return pure(given, lambda a: a)


@operation("constant")
def _constant(given: Operation, decoder: Decoder) -> Step:
    (result,), value = given.results, constant(given.attributes["value"], given.types[0])

    def step(block: Block) -> Ended:
        block.values[result] = value
        return None

    return step


@operation("iota")
def _iota(given: Operation, decoder: Decoder) -> Step:
    (result,), value = given.results, np.arange(shape_of(given.types[0])[0], dtype=dtype_of(given.types[0]))

    def step(block: Block) -> Ended:
        block.values[result] = value
        return None

    return step


@operation("get_tile_block_id", "get_num_tile_blocks")
def _block(given: Operation, decoder: Decoder) -> Step:
    results, count = given.results, given.name == "get_num_tile_blocks"

    def step(block: Block) -> Ended:
        for result, value in zip(results, block.grid if count else block.index, strict=True):
            block.values[result] = np.asarray(value, np.int32)
        return None

    return step


@operation("reshape")
def _reshape(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda a: np.reshape(a, shape))


@operation("broadcast")
def _broadcast(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda a: np.broadcast_to(a, shape))


@operation("permute")
def _permute(given: Operation, decoder: Decoder) -> Step:
    order = given.attributes["order"]
    return pure(given, lambda a: np.transpose(a, order))


@operation("cat")
def _cat(given: Operation, decoder: Decoder) -> Step:
    dim = given.attributes["dim"]
    return pure(given, lambda a, b: np.concatenate((a, b), dim))


def _subtile(indices: tuple[Any, ...], shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[slice, ...]:
    found = []
    for index, extent, all_of_it in zip(indices, shape, whole, strict=True):
        start = int(index) * extent
        if not 0 <= start < all_of_it:
            raise EmulationError(f"subtile {int(index)} of {all_of_it // extent}")
        found.append(slice(start, start + extent))
    return tuple(found)


@operation("extract")
def _extract(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda whole, *indices: whole[_subtile(indices, shape, whole.shape)])


@operation("insert")
def _insert(given: Operation, decoder: Decoder) -> Step:
    def insert(part: Any, whole: Any, *indices: Any) -> Any:
        made = np.array(whole)
        made[_subtile(indices, part.shape, whole.shape)] = part
        return made

    return pure(given, insert)


@operation("assume")
def _assume(given: Operation, decoder: Decoder) -> Step:
    predicate = given.attributes["predicate"]

    def check(value: Any) -> Any:
        if value.size and not holds(predicate, value):
            raise EmulationError(f"a promise is broken: {told(predicate)}, and it is {_shown(value)}")
        return value

    return pure(given, check)


def holds(predicate: Any, value: np.ndarray) -> bool:
    """Whether values are as a predicate says."""
    match predicate:
        case DivisibleBy(divisor, every, along):
            number = value.astype(np.int64) if value.dtype != np.uint64 else value
            if every is not None and along is not None and value.ndim:
                picked = [slice(None)] * value.ndim
                picked[along] = slice(None, None, every)
                number = number[tuple(picked)]
            return not np.any(number % number.dtype.type(divisor))
        case Bounded(low, high):
            return (low is None or bool(np.all(value >= low))) and (high is None or bool(np.all(value <= high)))
        case SameElements(groups) if value.ndim:
            firsts = value[tuple(slice(None, None, max(1, size)) for size in groups)]
            for axis, size in enumerate(groups):
                firsts = np.repeat(firsts, max(1, size), axis)
            return bool(np.all(firsts == value))
    return True


def told(predicate: Any) -> str:
    """A predicate in words."""
    match predicate:
        case DivisibleBy(divisor, _, _):
            return f"a multiple of {divisor}"
        case Bounded(low, high):
            parts = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            return " and ".join(parts)
    return "the same elements"


def _shown(value: np.ndarray) -> str:
    flat = value.reshape(-1)
    return ", ".join(str(each) for each in flat[:4]) + (" …" if flat.size > 4 else "")


@operation("make_token", "join_tokens", "memory_fence_alias_tko", "gdc_wait_tko", "gdc_launch_dependents_tko")
def _token(given: Operation, decoder: Decoder) -> Step:
    # Blocks run one after the other, and operations in their order: what tokens order is in order.
    def step(block: Block) -> Ended:
        for result in given.results:
            block.values[result] = None
        return None

    return step


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
