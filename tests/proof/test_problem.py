"""Statements about a launch, and the symbols and bounds that they make of a kernel's indices, arguments and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.formulas import all_values, number, truth

from cudakit.emulator.ptx.program import Function, Instruction, Program, Register, Variable
from cudakit.errors import ArgumentError
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.proof.instructions import Opaque, Unsupported
from cudakit.proof.problem import Problem, Statements, element_bytes
from cudakit.proof.terms import Polynomial, Symbol, cone, everything, polynomial

INT, BYTE = np.dtype("i4"), np.dtype("u1")
N, M = Symbol("n", -3, 6), Symbol("m", -3, 6)

# ── statements ──


def reader() -> Statements:
    return Statements("k", {"n": polynomial(N), "m": polynomial(M), "len(x)": polynomial(M)})


@pytest.mark.parametrize(
    "text",
    [
        *(f"n {operator} m" for operator in ("<", "<=", ">", ">=", "==", "!=")),
        "0 <= n < m",
        "n == 2 or m > 3",
        "n == 2 and m > 3",
        "not n == 2",
        "not (n == 2 and m > 1) or n < 0",
        "-n < m * 2 - 1",
        "n + 2 ** 2 == m + (1 << 2)",
        "n - 1 == len(x)",
    ],
)
def test_statements_are_true_as_in_python(text: str) -> None:
    formula = reader().truth(text)
    for values in all_values([N, M], range(-3, 7)):
        wanted = eval(text.replace("len(x)", "m"), {"n": values[N], "m": values[M]})
        assert truth(formula, values) == wanted


@pytest.mark.parametrize("text", ["n // 4", "n % 4", "(n + 9) // 2 * 3 - m % 3", "n // 1", "5 // 5", "2 ** 3 << 2"])
def test_sizes_are_those_of_python(text: str) -> None:
    read = reader()
    value = read.number(text)
    symbols, definitions = cone([*read.implied, *(each for symbol in value.symbols for each in symbol.definition)])
    new = [symbol for symbol in symbols if symbol not in (N, M)]
    for values in all_values([N, M], (-3, 0, 1, 4, 6)):
        wanted = eval(text, {"n": values[N], "m": values[M]})
        found = {
            number(value, {**values, **more})
            for more in all_values(new, range(-3, 8))
            if all(truth(each, {**values, **more}) for each in (*definitions, *read.implied))
        }
        assert found == {wanted}
        low, high = value.range
        assert low is not None
        assert high is not None
        assert low <= wanted <= high


def test_a_divisor_that_is_no_number_is_above_0() -> None:
    read = reader()
    value = read.number("n // m")
    assert [truth(each, {M: 0}) for each in read.implied] == [False]
    assert [truth(each, {M: 1}) for each in read.implied] == [True]
    (quotient,) = value.symbols
    _, definitions = cone(quotient.definition)
    rest = next(symbol for symbol in cone(quotient.definition)[0] if symbol.name == "rest")
    assert truth(everything(definitions), {N: 5, M: 2, quotient: 2, rest: 1})
    assert not truth(everything(definitions), {N: 5, M: 2, quotient: 1, rest: 3})
    assert truth(everything(definitions), {N: 5, M: 0, quotient: 9, rest: 9})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n +", "it is not an expression"),
        ("n + 1", "it is not a comparison"),
        ("n in m", "it has another comparison than"),
        ("q < 1", "q is not known"),
        ("len(y) < 1", r"len\(y\) is not known"),
        ("n < 1.5", "1.5 is not a number"),
        ("n < True", "True is not a number"),
        ("+n < 1", r"\+n is not a number"),
        ("n / 2 < 1", r"it has another operator than \+ - \* // %"),
        ("n // 0 < 1", "a divisor must be above 0"),
        ("n % (0 - 2) < 1", "a divisor must be above 0"),
        ("1 << 65 > n", "a shift or a power is from 0 to 64"),
        ("2 ** (0 - 1) > n", "a shift or a power is from 0 to 64"),
        ("n << 2 > m", r"it has another operator than"),
    ],
)
def test_statements_that_cannot_be_read(text: str, why: str) -> None:
    with pytest.raises(ArgumentError, match=f"k: cannot read '.*': {why}.* over whole numbers and n, m, len"):
        reader().truth(text)


# ── problems ──


PARAMETERS = (
    BoundParameter("x", "float*", "pointer", np.dtype("f4")),
    BoundParameter("y", "float*", "pointer", np.dtype("f4")),
    BoundParameter("z", "int2*", "pointer", INT, count=2),
    BoundParameter("raw", "void*", "pointer"),
    BoundParameter("n", "int", "scalar", INT),
    BoundParameter("b", "bool", "scalar", np.dtype("?")),
    BoundParameter("a", "float", "scalar", np.dtype("f4")),
    BoundParameter("part", "Part", "struct", np.dtype("i4, u2")),
)
VARIABLES = {
    "held": Variable("held", "shared", "b32", 256, 4),
    "more": Variable("more", "shared", "b8", 0, 16, extern=True),
    "others": Variable("others", "shared", "b8", 0, 16, extern=True),
    "own": Variable("own", "local", "b8", 24, 8),
    "place": Variable("place", "param", "b8", 24, 8),
}


def problem(
    *statements: str, block: Any = 32, grid: Any = 2, shared: int | str = 0, axes: str = "xyz", **directives: Any
) -> Problem:
    """The problem of a kernel that looks at its block's index on some axes."""
    parameters = tuple(Variable(f"k_{each.name}", "param", "b64", 8, 8) for each in PARAMETERS)
    operands = ((Register("r"), Register(f"%ctaid.{axis}")) for axis in axes)
    code = [Instruction("mov", ("u32",), each, None, 1, None) for each in operands]
    entry = Function("k", True, parameters, variables=VARIABLES, code=code, directives=directives)
    program = Program("sm_90", {"table": Variable("table", "const", "b32", 40, 4)}, {"k": entry})
    return Problem.of("k", program, entry, PARAMETERS, statements, block, grid, shared)


def bounds(value: Polynomial) -> tuple[int | None, int | None]:
    (symbol,) = value.symbols
    return symbol.low, symbol.high


def holds(made: Problem, values: dict[Symbol, int]) -> bool:
    """Whether values of some symbols meet what is given of these alone."""
    whole = everything(made.premises)
    items = whole.items if hasattr(whole, "items") else (whole,)
    return all(truth(each, values) for each in items if cone([each])[0].keys() <= values.keys())


def test_arguments_have_the_bounds_of_their_types() -> None:
    made = problem()
    assert made.scalars.keys() == {"n", "b"}
    assert (made.scalars["n"].low, made.scalars["n"].high) == (-(2**31), 2**31 - 1)
    assert (made.scalars["b"].low, made.scalars["b"].high) == (0, 1)
    assert {name: length.high for name, length in made.lengths.items()} == {
        "x": 2**45, "y": 2**45, "z": 2**44, "raw": 2**47
    }  # fmt: skip
    assert all(length.low == 0 for length in made.lengths.values())
    assert [element_bytes(each) for each in PARAMETERS[:4]] == [4, 4, 8, 1]
    arrays = {array.name: array for array in made.arrays.values()}
    assert arrays["x"].bytes == polynomial(made.lengths["x"]) * 4
    assert arrays["z"].bytes == polynomial(made.lengths["z"]) * 8
    for base, array in made.arrays.items():
        assert array.base is base
        assert (base.name, base.low, base.high, base.is_base) == (f"&{array.name}", 0, 2**47, True)
        assert (array.space, array.align) == ("global", 256)


@pytest.mark.parametrize(
    ("statement", "low", "high"),
    [
        ("n >= 5", 5, 2**31 - 1),
        ("n > 5", 6, 2**31 - 1),
        ("n <= 5", -(2**31), 5),
        ("n < 5", -(2**31), 4),
        ("3 * n >= 7", 3, 2**31 - 1),
        ("3 * n <= 7", -(2**31), 2),
        ("2 <= n <= 9", 2, 9),
        ("n >= 2 and n >= 4 and n <= 9 and n <= 8", 4, 8),
        ("n == 5", -(2**31), 2**31 - 1),
        ("n * n <= 9", -(2**31), 2**31 - 1),
        ("n <= len(x)", -(2**31), 2**31 - 1),
        ("n > 5 or n < 2", -(2**31), 2**31 - 1),
    ],
)
def test_statements_narrow_what_they_are_of(statement: str, low: int, high: int) -> None:
    made = problem(statement)
    assert (made.scalars["n"].low, made.scalars["n"].high) == (low, high)


def test_extents_that_are_numbers() -> None:
    made = problem(block=(8, 4), grid=3)
    assert [each.constant for each in (*made.block, *made.grid)] == [8, 4, 1, 3, 1, 1]
    assert [bounds(each) for each in made.threads[:2]] == [(0, 7), (0, 3)]
    assert made.threads[2] == made.blocks[1] == made.blocks[2] == polynomial(0)
    assert bounds(made.blocks[0]) == (0, 2)
    assert made.threads[0].symbols[0].varies == {"thread"}
    assert made.blocks[0].symbols[0].varies == {"block"}
    assert made.special("%tid.x") == made.threads[0]
    assert made.special("%tid.y") == made.threads[1]
    assert made.special("%ntid.y") == polynomial(4)
    assert made.special("%ctaid.x") == made.blocks[0]
    assert made.special("%nctaid.x") == polynomial(3)
    assert isinstance(made.special("%laneid"), Opaque)
    assert isinstance(made.special("%tid.w"), Opaque)


def test_extents_that_are_not_stated() -> None:
    made = problem(block=None, grid=None)
    assert [bounds(each) for each in made.block] == [(1, 1024), (1, 1024), (1, 64)]
    assert [bounds(each) for each in made.grid] == [(1, 2**31 - 1), (1, 65535), (1, 65535)]
    assert [bounds(each) for each in made.threads] == [(0, 1023), (0, 1023), (0, 63)]
    block, thread = made.block[0].symbols[0], made.threads[0].symbols[0]
    assert truth(everything(thread.definition), {block: 4, thread: 3})
    assert not truth(everything(thread.definition), {block: 4, thread: 4})
    sizes = [each.symbols[0] for each in made.block]
    assert holds(made, dict(zip(sizes, (16, 8, 8), strict=True)))
    assert not holds(made, dict(zip(sizes, (16, 8, 9), strict=True)))
    for axes in ("x", "y", "zx", ""):
        constants = [each.constant for each in problem(block=None, grid=None, axes=axes).grid]
        assert constants == [None if axis in axes else 1 for axis in "xyz"]


def test_extents_that_are_expressions() -> None:
    made = problem("0 <= n <= 7", block="n + 1", grid=("2 * n", "len(x)"))
    n, length = made.scalars["n"], made.lengths["x"]
    (size,), (across,), (down,) = (each.symbols for each in (made.block[0], made.grid[0], made.grid[1]))
    assert (size.low, size.high) == (1, 8)
    assert (across.low, across.high) == (1, 14)
    assert (down.low, down.high) == (1, 65535)
    assert holds(made, {n: 3, size: 4, across: 6, length: 9, down: 9})
    assert not holds(made, {n: 3, size: 3, across: 6, length: 9, down: 9})
    assert not holds(made, {n: 3, size: 5, across: 6, length: 9, down: 9})
    assert not holds(made, {n: 3, size: 4, across: 6, length: 9, down: 8})
    assert (made.grid[2].constant, made.block[1].constant) == (1, 1)
    narrow = problem("n <= 0", block="n").block[0].symbols[0]
    assert (narrow.low, narrow.high) == (1, 1)
    (late,) = problem("blockDim.x <= 48", "gridDim.x >= 4", block=None, grid="n").block[0].symbols
    assert late.high == 48


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"block": ()}, r"block has one to three extents, got \(\)"),
        ({"grid": (1, 1, 1, 1)}, "grid has one to three extents"),
        ({"block": 0}, "an extent of a block is from 1 to 1024, got 0"),
        ({"block": 1025}, "an extent of a block is from 1 to 1024, got 1025"),
        ({"block": (1, 1, 65)}, "an extent of a block is from 1 to 64, got 65"),
        ({"grid": (1, 65536)}, "an extent of a grid is from 1 to 65535, got 65536"),
        ({"block": (32, 33)}, "a block has 1 to 1024 threads, got 1056"),
    ],
)
def test_extents_that_no_launch_has(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ArgumentError, match=f"k: {why}"):
        problem(**given)
    assert problem(block=(1024, 1, 1)).block[0].constant == 1024
    assert problem(block=(1, 1, 64), grid=(1, 65535, 1)).grid[1].constant == 65535


def test_what_the_compiler_was_told_of_the_block() -> None:
    made = problem(block=None, reqntid=(8, 4))
    sizes = [each.symbols[0] for each in made.block]
    assert holds(made, dict(zip(sizes, (8, 4, 1), strict=True)))
    for wrong in ((7, 4, 1), (9, 4, 1), (8, 3, 1), (8, 5, 1), (8, 4, 2)):
        assert not holds(made, dict(zip(sizes, wrong, strict=True)))
    made = problem(block=None, maxntid=(16, 4, 1))
    sizes = [each.symbols[0] for each in made.block]
    assert holds(made, dict(zip(sizes, (32, 2, 1), strict=True)))
    assert not holds(made, dict(zip(sizes, (33, 2, 1), strict=True)))


def test_shared_memory_of_a_launch() -> None:
    made = problem("0 <= n <= 9", shared="4 * n")
    assert made.shared_bytes == polynomial(made.scalars["n"]) * 4
    n = made.scalars["n"]
    wide = problem(shared="n")
    n = wide.scalars["n"]
    assert [holds(wide, {n: value}) for value in (-1, 0, 1 << 20, (1 << 20) + 1)] == [False, True, True, False]
    base = made.base_of("more")
    assert made.base_of("others") == made.base_of("more") == base
    (symbol,) = base.symbols
    assert (symbol.low, symbol.high) == (0, 1 << 20)
    array = made.arrays[symbol]
    assert (array.name, array.space, array.align) == ("dynamic shared memory", "shared", 16)
    assert array.bytes == made.shared_bytes


def test_variables_are_arrays() -> None:
    made = problem()
    found = {}
    for name in ("held", "own", "table"):
        (symbol,) = made.base_of(name).symbols
        assert made.base_of(name) == polynomial(symbol)
        array = made.arrays[symbol]
        found[name] = array.name, array.bytes.constant, array.space, array.align, symbol.low, symbol.high
    assert found == {
        "held": ("held", 256, "shared", 4, 0, 1 << 20),
        "own": ("a thread's own memory", 24, "local", 8, 0, 1 << 47),
        "table": ("table", 40, "const", 4, 0, 1 << 47),
    }
    for name in ("nowhere", "place"):
        with pytest.raises(Unsupported, match=f"the address of {name}"):
            made.base_of(name)


def test_arguments_that_are_one_array() -> None:
    made = problem(" x is y ", "n <= len(y)")
    assert made.same == {"y": "x"}
    assert made.lengths.keys() == {"x", "z", "raw"}
    assert [array.name for array in made.arrays.values()] == ["x", "z", "raw"]
    assert made.parameter("k_y", 0, "u64") == made.parameter("k_x", 0, "u64")
    assert not holds(made, {made.scalars["n"]: 5, made.lengths["x"]: 4})
    for statements in (("x is z",), ("x is n",), ("x is x",), ("x is y", "y is x"), ("x is nothing",)):
        with pytest.raises(ArgumentError, match="names two things that are not arrays of one type"):
            problem(*statements)


def test_arguments_that_are_one_array_by_way_of_another() -> None:
    parameters = tuple(each._replace(category="pointer", dtype=INT, count=1) for each in PARAMETERS[:4])
    entry = Function("k", True, tuple(Variable(f"k_{each.name}", "param", "b64", 8, 8) for each in parameters))
    program = Program("sm_90", {}, {"k": entry})
    made = Problem.of("k", program, entry, parameters, ["x is y", "z is x", "len(y) == 3"], 32, 1, 0)
    assert made.same == {"y": "z", "x": "z"}
    assert [array.name for array in made.arrays.values()] == ["z", "raw"]
    assert made.parameter("k_y", 0, "u64") == made.parameter("k_x", 0, "u64") == made.parameter("k_z", 0, "u64")
    assert not holds(made, {made.lengths["z"]: 4})


def test_what_is_read_of_parameters() -> None:
    made = problem()
    assert made.parameter("k_n", 0, "s32") == polynomial(made.scalars["n"])
    (base,) = made.parameter("k_z", 0, "u64").symbols  # type: ignore[union-attr]
    assert made.arrays[base].name == "z"
    assert made.parameter("k_a", 0, "f32") == Opaque("it depends on the argument a")
    assert made.parameter("k_a", 0, "b32") == Opaque("it depends on the argument a")
    assert made.parameter("k_part", 4, "f32") == Opaque("it depends on the argument part")
    for kind, low, high in (("s32", -(2**31), 2**31 - 1), ("u16", 0, 2**16 - 1), ("b8", 0, 255)):
        part = made.parameter("k_part", 4, kind)
        assert isinstance(part, Polynomial)
        (symbol,) = part.symbols
        assert (symbol.name, symbol.low, symbol.high, symbol.varies) == ("part", low, high, frozenset())
        assert symbol.reason == "it depends on a part of the parameter part, which is no integer and no pointer"
        assert made.parameter("k_part", 4, kind) is part
        assert made.parameter("k_part", 0, kind) != part
    for name in ("nothing", "k_nothing"):
        with pytest.raises(Unsupported, match=f"the parameter {name}"):
            made.parameter(name, 0, "u32")
