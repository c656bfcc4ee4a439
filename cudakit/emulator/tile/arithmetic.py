"""Arithmetic of tile kernels: elementwise operations, matrix products, conversions, and tiles made of other tiles.

Floats of less than 32 bits are computed in float32 and rounded once. Products sum in float32, in the order of NumPy's
BLAS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from cudakit.emulator.instructions import rounding
from cudakit.emulator.tile.decode import Block, Form, Step, acts, computes, operation, pure
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

#: Operations whose result is one expression of their operands.
_EXPRESSIONS: Final[dict[str, Callable[..., Any]]] = {
    "mmaf": lambda form, a, b, c: (np.matmul(wide(a), wide(b)) + wide(c)).astype(form.dtype, copy=False),
    "exti": lambda form, a: form.number(a).astype(form.dtype),
    "trunci": lambda form, a: (a & 1).astype(bool) if form.element == "i1" else a.astype(form.dtype),
    "bitcast": lambda form, a: np.ascontiguousarray(a).reshape(-1).view(form.dtype).reshape(form.shape),
    "ptr_to_int": lambda form, a: a.astype(np.uint64).view(np.int64),
    "int_to_ptr": lambda form, a: np.asarray(a).view(np.uint64),
    "ptr_to_ptr": lambda form, a: a,
    "reshape": lambda form, a: np.reshape(a, form.shape),
    "broadcast": lambda form, a: np.broadcast_to(a, form.shape),
    "permute": lambda form, a: np.transpose(a, form.attributes["order"]),
    "cat": lambda form, a, b: np.concatenate((a, b), form.attributes["dim"]),
    "extract": lambda form, whole, *indices: whole[_subtile(indices, form.shape, whole.shape)],
    "fpowi": lambda form, a, b: np.power(a.astype(np.float64), b.astype(np.float64)).astype(form.dtype),
    "cmpi": lambda form, a, b: _COMPARED[form.attributes["predicate"]](form.number(a), form.number(b)),
}
for _name, _expression in _EXPRESSIONS.items():
    computes(_name)(_expression)


@computes("mmaf_scaled")
def _scaled(form: Form, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any) -> Any:
    depth = a.shape[-1]
    left = wide(a) * np.repeat(wide(scale_a), depth // scale_a.shape[-1], -1)
    right = wide(b) * np.repeat(wide(scale_b), depth // scale_b.shape[-2], -2)
    return (np.matmul(left, right) + wide(c)).astype(form.dtype)


@computes("mmai")
def _integer_product(form: Form, a: Any, b: Any, c: Any) -> Any:
    left, right = (
        operand if form.attributes[side] == "signed" else unsigned(operand)
        for side, operand in (("lhs", a), ("rhs", b))
    )
    # Exact in float64, which has a BLAS: 16 bits a product, and no tile is as deep as 2^37.
    product = np.matmul(left.astype(np.float64), right.astype(np.float64))
    return product.astype(np.int64).astype(np.int32) + c


@computes("itof")
def _integer_to_float(form: Form, a: Any) -> Any:
    if form.rounding != "nearest_even":
        raise EmulationError(f"{form.name} with rounding {form.rounding} is not emulated")
    value = np.asarray(form.number(a))
    if form.element in ("f32", "f64"):
        return value.astype(form.dtype)
    return narrowed(_as_float64(value), form.element)


def _as_float64(value: np.ndarray) -> np.ndarray:
    """Return integers as float64, rounded to odd: of more than 53 bits the last bit is set if a lower bit was lost."""
    if value.dtype.itemsize < 8:
        return value.astype(np.float64)
    scalar = value.dtype.type
    high = (value >> scalar(11)) | ((value & scalar(2047)) != 0).astype(value.dtype)
    large = np.abs(value.astype(np.float64)) >= 2.0**53
    return np.where(large, high.astype(np.float64) * 2048, value.astype(np.float64))


@computes("ftoi")
def _float_to_integer(form: Form, a: Any) -> Any:
    dtype = form.dtype
    if form.element == "i1":
        return wide(a) != 0
    range_dtype = dtype if form.is_signed else np.dtype(f"u{dtype.itemsize}")
    low, high = np.iinfo(range_dtype).min, np.iinfo(range_dtype).max
    whole = np.trunc(wide(a).astype(np.float64))
    inside = (whole >= low) & (whole <= float(high)) & (whole < float(high) + 1)
    result = np.where(inside, whole, 0).astype(range_dtype)
    result = np.where(whole >= float(high), high, np.where(whole <= low, low, result))
    return np.where(np.isnan(whole), 0, result).astype(range_dtype).view(dtype)


@computes("ftof")
def _float_to_float(form: Form, a: Any) -> Any:
    mode = form.rounding
    if form.element == "f8E8M0FNU" and mode in ("zero", "positive_inf"):
        return power_of_two(wide(a), mode == "positive_inf")
    return narrowed(wide(a), form.element) if mode == "nearest_even" else directed(wide(a), form.element, mode)


@computes("pack")
def _pack(form: Form, a: Any) -> Any:
    raw = np.ascontiguousarray(a).reshape(-1)
    if raw.size == 2 * int(np.prod(form.shape)):  # of 4 bits each, the first in the low half
        nibbles = raw.view(np.uint8)
        raw = nibbles[::2] & 15 | nibbles[1::2] << 4
    return raw.view(np.int8).reshape(form.shape)


@computes("unpack")
def _unpack(form: Form, a: Any) -> Any:
    raw = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    if int(np.prod(form.shape)) == 2 * raw.size:
        raw = np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1).astype(np.uint8)
    return raw.view(form.dtype).reshape(form.shape)


@operation("constant", "iota")
def _constant(operation: Operation) -> Step:
    (result_type,) = operation.types
    is_iota = operation.name == "iota"
    value = (
        np.arange(shape_of(result_type)[0], dtype=dtype_of(result_type))
        if is_iota
        else constant(operation.attributes["value"], result_type)
    )
    return pure(operation, lambda: value)


@acts("get_tile_block_id", "get_num_tile_blocks")
def _block(form: Form, block: Block) -> Any:
    return [
        np.asarray(coordinate, np.int32)
        for coordinate in (block.index if form.name == "get_tile_block_id" else block.grid)
    ]


def _subtile(indices: tuple[Any, ...], shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[slice, ...]:
    slices = []
    for index, extent, all_of_it in zip(indices, shape, whole, strict=True):
        start = int(index) * extent
        if not 0 <= start < all_of_it:
            raise EmulationError(f"subtile {int(index)} of {all_of_it // extent}")
        slices.append(slice(start, start + extent))
    return tuple(slices)


@computes("insert")
def _insert(form: Form, part: Any, whole: Any, *indices: Any) -> Any:
    result = np.array(whole)
    result[_subtile(indices, part.shape, whole.shape)] = part
    return result


@computes("assume")
def _assume(form: Form, value: Any) -> Any:
    predicate = form.attributes["predicate"]
    if value.size and not holds(predicate, value):
        raise EmulationError(f"a promise is broken: {predicate_text(predicate)}, and it is {_shown(value)}")
    return value


def holds(predicate: Any, value: np.ndarray) -> bool:
    """Return whether a predicate of ``assume`` holds for all of the values; True for a predicate that is not known."""
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


def predicate_text(predicate: Any) -> str:
    """Return a predicate of ``assume`` as text for a message."""
    match predicate:
        case DivisibleBy(divisor, _, _):
            return f"a multiple of {divisor}"
        case Bounded(low, high):
            parts = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            return " and ".join(parts)
    return "the same elements"


def _shown(value: np.ndarray) -> str:
    flat = value.reshape(-1)
    return ", ".join(str(element) for element in flat[:4]) + (" …" if flat.size > 4 else "")


@acts("make_token", "join_tokens", "memory_fence_alias_tko", "gdc_wait_tko", "gdc_launch_dependents_tko")
def _token(form: Form, block: Block, *tokens: Any) -> Any:
    """Do nothing: blocks run one after the other and operations in order, so tokens have nothing to order."""


#: The emulator's names of the rounding modes; modes that are approximate on a GPU round to nearest here.
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


def _narrowed(operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tiles that converts them to float32, calls `function`, and converts the result back.

    For float32 and float64 nothing is converted. With the operation's attribute ``ftz``, subnormal operands and results
    become 0.
    """
    dtype = dtype_of(operation.types[0])
    if operation.attributes.get("ftz"):

        def flushed(*operands: Any) -> Any:
            return rounding.flush(function(*[rounding.flush(wide(operand)) for operand in operands])).astype(dtype)

        return flushed
    if dtype in (np.float32, np.float64):
        return function
    return lambda *operands: function(*[wide(operand) for operand in operands]).astype(dtype)


@operation("addf", "subf", "mulf", "divf", "remf", "fpowf", "atan2")
def _binary(operation: Operation) -> Step:
    function = _BINARY[operation.name]
    mode = operation.attributes.get("rounding", "nearest_even")
    if mode not in _NEAREST:
        function = _directed(operation, mode)
    return pure(operation, _narrowed(operation, function))


def _directed(operation: Operation, mode: str) -> Callable[..., Any]:
    """Return the function of an operation with a rounding mode other than to nearest."""
    if dtype_of(operation.types[0]).itemsize == 2:
        return _in_doubles(operation, mode)
    single = dtype_of(operation.types[0]) == np.float32
    singles, doubles = _ROUNDED[operation.name]
    function, chosen = singles if single else doubles, _MODES[mode]
    if operation.name == "subf":
        return lambda a, b: function(a, -b, chosen)
    return lambda *operands: function(*operands, chosen)


def _in_doubles(operation: Operation, mode: str) -> Callable[..., Any]:
    """Return the function of an operation on floats of 16 bits, computed in float64 and rounded once."""
    (result_type,) = operation.types
    assert isinstance(result_type, Tile)
    element = result_type.element

    def rounded(*operands: Any) -> Any:
        first, *rest = (np.asarray(operand, np.float64) for operand in operands)
        match operation.name, rest:
            case "fma", [second, third]:
                result = _sum(first * second, third, mode)
            case "addf", [second]:
                result = _sum(first, second, mode)
            case "subf", [second]:
                result = _sum(first, -second, mode)
            case name, _:  # of so few bits they lie on no border between two numbers, but for those that are exact
                result = (_UNARY | _BINARY)[name](first, *rest)
        return narrowed(result, element) if mode == "nearest_even" else directed(result, element, mode)

    return rounded


def _sum(a: Any, b: Any, mode: str) -> Any:
    """Return a sum in float64, rounded to odd, so that a second rounding gives the result of a single one."""
    total = a + b
    part = total - a
    lost = (a - (total - part)) + (b - part)
    is_even = total.view(np.int64) & 1 == 0
    odd = np.nextafter(total, np.where(lost > 0, np.inf, -np.inf))
    total = np.where((lost != 0) & is_even & np.isfinite(total) & np.isfinite(lost), odd, total)
    if mode == "negative_inf":  # what cancels is -0
        total = np.where((total == 0) & (np.signbit(a) | np.signbit(b)), -0.0, total)
    return total


@operation("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh")
def _unary(operation: Operation) -> Step:
    function, dtype = _UNARY[operation.name], dtype_of(operation.types[0])
    mode = operation.attributes.get("rounding", "nearest_even")
    if operation.name == "sqrt" and mode not in _NEAREST:
        return pure(operation, _narrowed(operation, _directed(operation, mode)))
    if dtype == np.float64 or operation.name == "sqrt":
        return pure(operation, _narrowed(operation, function))
    # Computed in float64 and rounded once: nearer than a GPU's result, whose last bits the ISA leaves open.
    return pure(operation, _narrowed(operation, lambda value: function(value.astype(np.float64)).astype(np.float32)))


@operation("floor", "ceil", "absf", "negf")
def _exact(operation: Operation) -> Step:
    dtype, function = dtype_of(operation.types[0]), _EXACT[operation.name]
    return pure(operation, lambda value: function(wide(value)).astype(dtype))


@operation("fma")
def _fma(operation: Operation) -> Step:
    mode, dtype = operation.attributes.get("rounding", "nearest_even"), dtype_of(operation.types[0])
    chosen = _MODES.get(mode, "rn")
    if dtype.itemsize == 2:
        return pure(operation, _in_doubles(operation, mode))
    if dtype == np.float64:
        return pure(operation, lambda a, b, c: rounding.fma_f64(a, b, c, chosen))
    return pure(operation, _narrowed(operation, lambda a, b, c: rounding.fma_f32(a, b, c, chosen)))


@operation("maxf", "minf")
def _extremum(operation: Operation) -> Step:
    is_least = operation.name == "minf"
    names = ("maximum", "minimum") if operation.attributes.get("nan") else ("fmax", "fmin")
    function = getattr(np, names[is_least])

    def extremum(a: Any, b: Any) -> Any:
        # +0 is over −0: of two zeros the larger one is their sum.
        zero = -(-a + -b) if is_least else a + b
        return np.where((a == 0) & (b == 0), zero, function(rounding.quieted(a), rounding.quieted(b)))

    return pure(operation, _narrowed(operation, extremum))


@computes("cmpf")
def _compare_floats(form: Form, a: Any, b: Any) -> Any:
    a, b = wide(a), wide(b)
    incomparable, result = np.isnan(a) | np.isnan(b), _COMPARED[form.attributes["predicate"]](a, b)
    return result | incomparable if form.attributes["ordering"] == "unordered" else result & ~incomparable


@operation("select")
def _select(operation: Operation) -> Step:
    return pure(operation, np.where)


# ── integers ──

_INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "negi": np.negative, "absi": np.abs,
}  # fmt: skip


@operation(*_INTEGERS)
def _integers(operation: Operation) -> Step:
    function = _INTEGERS[operation.name]
    if dtype_of(operation.types[0]) == np.bool_:
        if operation.name in ("negi", "absi"):  # of one bit, each is its own negative
            return pure(operation, lambda a: a)
        function = {"addi": np.logical_xor, "subi": np.logical_xor, "muli": np.logical_and}.get(
            operation.name, function
        )
    return pure(operation, function)


def _of_sign(operation: Operation, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` of integers, with operands as signed or unsigned numbers, by the operation's attribute.

    The result has the operation's own dtype.
    """
    dtype = dtype_of(operation.types[0])
    if operation.attributes["signedness"] == "signed":
        if dtype != np.bool_:
            return function
        return lambda a, b: function(signed(a), signed(b)).astype(bool)

    def of_unsigned(a: Any, b: Any) -> Any:
        result = function(unsigned(a), unsigned(b))
        return result.astype(bool) if dtype == np.bool_ else result.view(dtype)

    return of_unsigned


@operation("maxi", "mini")
def _integer_extremum(operation: Operation) -> Step:
    return pure(operation, _of_sign(operation, np.maximum if operation.name == "maxi" else np.minimum))


@operation("divi", "remi")
def _divide(operation: Operation) -> Step:
    mode = operation.attributes.get("rounding", "zero")

    def quotient(a: Any, b: Any) -> Any:
        if not np.all(b):
            if not np.ndim(b) or not np.any(b):
                raise EmulationError(f"{operation.name}: an integer is divided by 0")
            # Undefined where it is 0, which is no mistake in what pads a tile and is not stored.
            b = np.where(b == 0, b.dtype.type(1), b)
        if operation.name == "remi":
            return np.fmod(a, b)
        down = np.floor_divide(a, b)
        inexact = down * b != a
        if mode == "zero":
            return down + (inexact & ((a < 0) != (b < 0))).astype(down.dtype)
        return down + inexact.astype(down.dtype) if mode == "positive_inf" else down

    return pure(operation, _of_sign(operation, quotient))


@computes("shli", "shri")
def _shift(form: Form, value: Any, by: Any) -> Any:
    """Return values with their bits shifted.

    Elementwise amounts from the width of the type up shift all bits out, as on a GPU. A scalar amount outside the width
    is an error.
    """
    bits = 8 * form.dtype.itemsize
    if value.dtype == np.bool_:
        return value
    if not np.ndim(by) and not 0 <= int(by) < bits:
        raise EmulationError(f"{form.name}: {bits} bits are shifted by {int(by)}")
    if form.name == "shri" and not form.is_signed:
        return (unsigned(value) >> unsigned(by)).view(value.dtype)
    return (np.left_shift if form.name == "shli" else np.right_shift)(value, by)


@computes("mulhii")
def _high_half(form: Form, a: Any, b: Any) -> Any:
    bits = 8 * form.dtype.itemsize
    a, b = unsigned(a), unsigned(b)
    if bits < 64:
        return ((a.astype(np.uint64) * b) >> np.uint64(bits)).astype(a.dtype).view(form.dtype)
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    low = (a & mask) * (b & mask)
    first, second = (a >> half) * (b & mask), (a & mask) * (b >> half)
    middle = (low >> half) + (first & mask) + (second & mask)
    return ((a >> half) * (b >> half) + (first >> half) + (second >> half) + (middle >> half)).view(form.dtype)
