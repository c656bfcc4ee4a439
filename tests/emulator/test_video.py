"""Video instructions against the ISA's pseudo-code, followed one value at a time.

An H200 departs from it in the scalar ones, which are sequences there; the answers it gave are stored, and this
reference follows them: `finish`, `test_scalar_shifts` and `test_scalar_multiply_add` say how at each place.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable

import numpy as np
import pytest
from support.emulated import apply

RANDOM = np.random.default_rng(11)
EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80FF7F01)
VALUES = np.array([*EDGES, *RANDOM.integers(0, 2**32, 3)], np.uint32)
X, Y = (np.array(a, np.uint32) for a in zip(*itertools.product(VALUES, VALUES), strict=True))
Z = RANDOM.permutation(np.resize(VALUES, X.size)).astype(np.uint32)
TYPES = list(itertools.product(("u32", "s32"), repeat=3))

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "vadd": operator.add, "vsub": operator.sub, "vabsdiff": lambda a, b: abs(a - b), "vmin": min, "vmax": max,
    "vavrg": lambda a, b: (a + b + 1) >> 1 if a + b >= 0 else (a + b) >> 1,
}  # fmt: skip
COMPARISONS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt,
               "ge": operator.ge}  # fmt: skip
SECOND = {"add": operator.add, "min": min, "max": max}


def part(value: int, kind: str, which: str) -> int:
    """A byte, half or all of a register, sign- or zero-extended."""
    bits = {"b": 8, "h": 16, "w": 32}[which[0]]
    found = int(value) >> bits * int(which[1]) & (1 << bits) - 1
    return found - (1 << bits) if kind == "s32" and found >> bits - 1 else found


def clamp(value: int, kind: str, bits: int) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def finish(opcode: str, value: int, third: int, out: str, saturates: bool, second: str, into: str) -> int:
    """Saturation, the second operation, and merging, as scalar video instructions end."""
    bits = {"b": 8, "h": 16, "w": 32}[into[0]]
    if saturates:
        # An unsigned sum or difference is only kept from falling below 0, and wraps past 32 bits.
        wraps = opcode in ("vadd", "vsub", "vabsdiff") and out == "u32" and bits == 32
        value = max(value, 0) if wraps else clamp(value, out, bits)
    if second:
        other = part(third, out, "w0")
        if opcode in ("vadd", "vsub"):
            # What is compared is cut to 32 bits, of which the top one beats every unsigned number after `.sat`.
            value = part(value & 0xFFFFFFFF, out, "w0")
            if saturates and out == "u32" and second != "add" and value >> 31:
                return value if second == "max" else other
        value = SECOND[second](value, other)
    if bits < 32:
        if into == "h1" and not saturates:
            # The upper half of the result, not its lower one.
            value >>= 16
        mask = (1 << bits) - 1
        shift = bits * int(into[1])
        value = (value & mask) << shift | int(third) & ~(mask << shift)
    return value & 0xFFFFFFFF


def forms() -> list[tuple[str, str, str, bool, str]]:
    """(part of a, part of b, part of d, saturates, second operation): each part and each ending once or more."""
    parts = ["w0", "b0", "b1", "b2", "b3", "h0", "h1"]
    found = [(a, b, "w0", sat, "") for a, b, sat in zip(parts, parts[::-1], (True, False) * 4, strict=False)]
    found += [("w0", "w0", "w0", sat, second) for second in SECOND for sat in (False, True)]
    return found + [("w0", "h1", into, sat, "") for into in parts[1:] for sat in (False, True)]


def operands(a: str, b: str, into: str, third: bool) -> str:
    d, first, second = (
        name if which == "w0" else f"{name}.{which}" for name, which in (("{d}", into), ("{0}", a), ("{1}", b))
    )
    return f"{d}, {first}, {second}" + ", {2}" * third


def check_scalar(name: str, types: tuple[str, str, str], function: Callable[[int, int], int], a: str = "w0",
                 b: str = "w0", into: str = "w0", saturates: bool = False, second: str = "") -> None:  # fmt: skip
    third = bool(second) or into != "w0"
    text = f"{name} {operands(a, b, into, third)}"
    expected = [
        finish(
            name.partition(".")[0],
            function(part(x, types[1], a), part(y, types[2], b)),
            *(z, types[0], saturates, second, into),
        )
        for x, y, z in zip(X, Y, Z, strict=True)
    ]
    assert apply(text, X, Y, Z).tolist() == expected, text


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
@pytest.mark.parametrize("types", TYPES, ids=".".join)
def test_scalar_arithmetic(opcode: str, types: tuple[str, str, str]) -> None:
    for a, b, into, saturates, second in forms():
        name = ".".join((opcode, *types, *["sat"] * saturates, *[second] * bool(second)))
        check_scalar(name, types, OPERATIONS[opcode], a, b, into, saturates, second)


@pytest.mark.parametrize("types", list(itertools.product(("u32", "s32"), repeat=2)), ids=".".join)
def test_scalar_comparison(types: tuple[str, str]) -> None:
    for (compare, function), (a, b, into, _, second) in zip(
        itertools.cycle(COMPARISONS.items()), forms(), strict=False
    ):
        name = ".".join(("vset", *types, compare, *[second] * bool(second)))
        check_scalar(name, ("u32", *types), lambda x, y, f=function: int(f(x, y)), a, b, into, False, second)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ["vshl", "vshr"])
@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("types", list(itertools.product(("u32", "s32"), repeat=2)), ids=".".join)
def test_scalar_shifts(opcode: str, mode: str, types: tuple[str, str]) -> None:
    def shift(value: int, by: int) -> int:
        by = min(by, 32) if mode == "clamp" else by & 31
        if opcode == "vshr":
            return value >> by
        # 34 bits are kept, signed, and saturated.
        kept = value << by & 0x3FFFFFFFF
        return kept - (kept >> 33 << 34)

    for a, b, into, saturates, second in forms():
        name = ".".join((opcode, *types, "u32", *["sat"] * saturates, mode, *[second] * bool(second)))
        check_scalar(name, (*types, "u32"), shift, a, b, into, saturates, second)


@pytest.mark.parametrize("types", list(itertools.product(("u32", "s32"), repeat=2)), ids=".".join)
@pytest.mark.parametrize("saturates", [False, True])
def test_scalar_multiply_add(types: tuple[str, str], saturates: bool) -> None:
    for (scale, (sign_a, sign_b, sign_c), plus), which in itertools.product([
        (0, ("", "", ""), 0), (7, ("-", "", ""), 0), (15, ("", "", "-"), 0), (0, ("", "-", ""), 0),
        (15, ("", "", ""), 0), (15, ("", "", ""), 1), (0, ("-", "-", ""), 0),
    ], ("h1", "w0")):  # fmt: skip
        negative = sign_a != sign_b
        signed = "s32" in types or negative or bool(sign_c)
        # Whole words are multiplied and added as signed ones, and what is unsigned is then shifted as 64 bits.
        whole = which == "w0"
        kinds = ("s32", "s32") if whole else types
        name = ".".join(("vmad", "s32", *types, *["po"] * plus, *["sat"] * saturates, *[f"shr{scale}"] * bool(scale)))
        expected = []
        for x, y, z in zip(X, Y, Z, strict=True):
            product = part(x, kinds[0], which) * part(y, kinds[1], "w0")
            third = part(z, "s32" if signed or whole else "u32", "w0")
            value = (-product if negative else product) + (-third if sign_c else third) + plus
            value = (value if signed or not scale else value % 2**64) >> scale
            expected.append((clamp(value, "s32" if signed else "u32", 32) if saturates else value) & 0xFFFFFFFF)
        source = "{0}" if whole else "{0}.h1"
        text = f"{name} {{d}}, {sign_a}{source}, {sign_b}{{1}}, {sign_c}{{2}}"
        assert apply(text, X, Y, Z).tolist() == expected, text


def simd(x: int, y: int, z: int, count: int, types: tuple[str, str, str], function: Callable[[int, int], int],
         saturates: bool, adds: bool, chosen: tuple[str, str], mask: str) -> int:  # fmt: skip
    letter, bits = ("h", 16) if count == 2 else ("b", 8)
    both = int(y) << 32 | int(x)

    def piece(which: str, kind: str) -> int:
        place = int(which)
        return part(both >> 32 * (place // count) & 0xFFFFFFFF, kind, f"{letter}{place % count}")

    result, total = 0, int(z)
    for place in range(count):
        first, second = (piece(selector[-1 - place], kind) for selector, kind in zip(chosen, types[1:], strict=True))
        value = function(first, second)
        if saturates:
            value = clamp(value, types[0], bits)
        kept = str(place) in mask
        total += value if kept else 0
        merged = value if kept else int(z) >> bits * place
        result |= (merged & (1 << bits) - 1) << bits * place
    return (total if adds else result) & 0xFFFFFFFF


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("types", TYPES, ids=".".join)
@pytest.mark.parametrize("opcode", [*OPERATIONS, "vset"])
def test_simd(opcode: str, types: tuple[str, str, str], count: int) -> None:
    letter, usual = ("h", ("10", "32")) if count == 2 else ("b", ("3210", "7654"))
    mixed, some = (("31", "02"), "1") if count == 2 else (("7031", "2266"), "31")
    compare = "lt" if types[0] == "u32" else "ge"
    function = OPERATIONS.get(opcode) or (lambda a, b: int(COMPARISONS[compare](a, b)))
    endings = ["", "add"] if opcode == "vset" else ["", "sat", "add"]
    for ending, (chosen, mask, named) in itertools.product(endings, [(usual, usual[0], False), (mixed, some, True)]):
        given = (*types[1:], compare) if opcode == "vset" else types
        out = "u32" if opcode == "vset" else types[0]
        name = ".".join((f"{opcode}{count}", *given, *[ending] * bool(ending)))
        selectors = [f".{letter}{selector}" if named else "" for selector in (mask, *chosen)]
        text = "{} {{d}}{}, {{0}}{}, {{1}}{}, {{2}}".format(name, *selectors)
        expected = [
            simd(x, y, z, count, (out, *types[1:]), function, ending == "sat", ending == "add", chosen, mask)
            for x, y, z in zip(X, Y, Z, strict=True)
        ]
        assert apply(text, X, Y, Z).tolist() == expected, text


def test_sources_that_are_constants() -> None:
    assert (apply("vsub.u32.u32.u32.sat {d}, {0}, 4294967295", X) == 0).all()
    expected = [simd(x, 0x01020304, 5, 4, TYPES[0], operator.add, False, False, ("3210", "7654"), "3210") for x in X]
    assert apply("vadd4.u32.u32.u32 {d}, {0}, 0x01020304, 5", X).tolist() == expected
