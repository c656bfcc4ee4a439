"""Gradients that are derived from an elementwise function's expression: their values, and their C++."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import cudakit as ck
from cudakit.bridges.derivative import Derivatives, _printer, derivatives

sympy = pytest.importorskip("sympy")
AT, STEP = (0.7, 0.4), 1e-5
#: Expression of x and y → its value.
PLAIN: dict[str, Callable[[float, float], float]] = {
    "x * sin(y) + 2": lambda x, y: x * math.sin(y) + 2,
    "cos(x) * tan(y)": lambda x, y: math.cos(x) * math.tan(y),
    "asin(x) * arccos(y) + arctan(x)": lambda x, y: math.asin(x) * math.acos(y) + math.atan(x),
    "sinh(x) * coshf(y) - tanh(x * y)": lambda x, y: math.sinh(x) * math.cosh(y) - math.tanh(x * y),
    "arcsinh(x) * arctanh(y) * acosh(x + 1)": lambda x, y: math.asinh(x) * math.atanh(y) * math.acosh(x + 1),
    "erf(x) * erfc(y)": lambda x, y: math.erf(x) * math.erfc(y),
    "arctan2(x, y) * atan2(y, 3 * x)": lambda x, y: math.atan2(x, y) * math.atan2(y, 3 * x),
    "power(x, y) + pow(y, x) * float_power(x, 3)": lambda x, y: x**y + y**x * x**3,
    "exp2(x) * exp10(y)": lambda x, y: 2**x * 10**y,
    "expm1(x) * log1p(y)": lambda x, y: math.expm1(x) * math.log1p(y),
    "log2(x) * log10(y) * log(x + y)": lambda x, y: math.log2(x) * math.log10(y) * math.log(x + y),
    "cbrt(x * x) * cbrt(y)": lambda x, y: math.cbrt(x * x) * math.cbrt(y),
    "rsqrt(x) * hypot(x, y)": lambda x, y: math.hypot(x, y) / math.sqrt(x),
    "std::fmaf(x, y, x) * __expf(y)": lambda x, y: (x * y + x) * math.exp(y),
    "square(x) * reciprocal(y) + negative(x) * positive(y)": lambda x, y: x * x / y - x * y,
    "add(x, y) * subtract(x, y) / multiply(x, y) - divide(x, y)": lambda x, y: (x + y) * (x - y) / (x * y) - x / y,
    "logaddexp(x, 2 * y)": lambda x, y: math.log(math.exp(x) + math.exp(2 * y)),
    "fabs(x - 1) * absolute(y) * abs(y - x)": lambda x, y: abs(x - 1) * abs(y) * abs(y - x),
    "fmin(x, y) * min(3 * y, x) + minimum(x, 1) * fmax(x, y) * max(y, 0) * maximum(x, y)": lambda x, y: (
        min(x, y) * min(3 * y, x) + min(x, 1) * max(x, y) * max(y, 0) * max(x, y)
    ),
    "0x1F * x + 010 * y * y": lambda x, y: 31 * x + 8 * y * y,
    "1'000 * x * x + 2u * y * y - 12UL * x * y": lambda x, y: 1000 * x * x + 2 * y * y - 12 * x * y,
    "0b101 * x * x * -3 - -0x11 * y * y * -01l": lambda x, y: -15 * x * x - 17 * y * y,
    "-2.5e-1 * x * x + -1.e+1f * y * y": lambda x, y: -0.25 * x * x - 10 * y * y,
    "1.5f * x * x + 1e1 * y * y + .25 * x * y": lambda x, y: 1.5 * x * x + 10 * y * y + 0.25 * x * y,
    "+x * -y - -(x * x)": lambda x, y: -x * y + x * x,
    "(float)x * static_cast<T>(y) * T(x) * double(y)": lambda x, y: x * y * x * y,
    "x < y ? x : x * y": lambda x, y: x if x < y else x * y,
    "x <= y ? x : x * y": lambda x, y: x if x <= y else x * y,
    "x > y ? x * x : x * y": lambda x, y: x * x if x > y else x * y,
    "x >= y ? x * x : x * y": lambda x, y: x * x if x >= y else x * y,
    "x == y ? x : x * y": lambda x, y: x * y,
    "x != y ? x * x : x * y": lambda x, y: x * x,
    "x ? x * x : x * y": lambda x, y: x * x,
    "x > y && y > 1 ? x : x * y": lambda x, y: x * y,
    "x > y || y > 1 ? x * x : x * y": lambda x, y: x * x,
    "!(x > y) ? x : x * y": lambda x, y: x * y,
    "true ? x * y : x": lambda x, y: x * y,
    "false ? x : x * y": lambda x, y: x * y,
}
#: Body → the value of z.
BODIES: dict[str, Callable[[float, float], float]] = {
    "z = x; z -= y; z /= x; z += y; z *= x": lambda x, y: ((x - y) / x + y) * x,
    "z = x * x, z *= y": lambda x, y: x * x * y,
    "T t = exp(-x * x); z = y > 0 ? t * y : x": lambda x, y: math.exp(-x * x) * y,
    "auto t = x * y, u = x * x; z = t * u": lambda x, y: x * y * x * x,
    "T t; t = x * x; { z = t * y; } // the end": lambda x, y: x * x * y,
    "if (x < y) z = tanh(x); else z = x * y; z *= y": lambda x, y: x * y * y,
    "z = x * y; if (x > y) { z = x * x; } ;": lambda x, y: x * x,
    "T t = x; if (x > y) z = x * t; else { t = y; z = y; }": lambda x, y: x * x,
    "T t = x; if (x > y) { t = y; z = y; } else z = y; z *= t": lambda x, y: y * y,
}


def derived(body: str, inputs: str = "T x, T y", outputs: str = "T z", names: tuple[str, ...] = ("x", "y")) -> Any:
    return derivatives(ck.elementwise(inputs, outputs, body, "made"), names)


def check(found: Derivatives, value: Callable[[float, float], float]) -> None:
    """Compare gradients with differences of values."""
    (x, y), dz = AT, 3.0
    expected = {
        "x": (value(x + STEP, y) - value(x - STEP, y)) / (2 * STEP),
        "y": (value(x, y + STEP) - value(x, y - STEP)) / (2 * STEP),
    }
    for name, gradient in found.gradients.items():
        at = {sympy.Symbol(each, real=True): number for each, number in (("x", x), ("y", y), ("dz", dz))}
        slope = sympy.lambdify([*at], gradient, [{"cbrt": math.cbrt}, "math"])(*at.values())
        assert slope == pytest.approx(dz * expected[name], rel=1e-7, abs=1e-7), name


@pytest.mark.parametrize("expression", PLAIN)
def test_functions_and_operators(expression: str) -> None:
    check(derived(f"z = {expression}"), PLAIN[expression])


@pytest.mark.parametrize("body", BODIES)
def test_statements(body: str) -> None:
    check(derived(body), BODIES[body])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("z = x + ", "the expression 'z = x \\+ ' is not understood"),
        ("z = 0x1p3 * x", "the number 0x1p3 is not understood"),
        ("z = 2.5_km * x", "2.5_km.* is not understood"),
        ("z = (int)x * y", "a value is cut to int"),
        ("z = static_cast<unsigned char>(x)", "a value is cut to unsigned char"),
        ("int t = x; z = t", "a value is cut to int"),
        ("z = foo(x)", "the function foo is not known"),
        ("z = sin(x, y)", "sin takes other arguments"),
        ("z = ~x", "the operator ~ is not understood"),
        ("z = x % y", "the operator % is not understood"),
        ("z = (x > y) * x", "a truth value is counted with"),
        ("z = x - (x > y)", "a truth value is counted with"),
        ("z = (3 / 2) * x", "integers are divided"),
        ("int t = 3 + 2; z = x * (t / 2)", "integers are divided"),
        ("z = x * ((3 - 1) / (2 * 2))", "integers are divided"),
        ("z = x * (-3 / +2)", "integers are divided"),
        ("z = x * ((x > y ? 3 : 4) / 2)", "integers are divided"),
        ("int t = 1; if (x > y) t = 2; z = x * (t / 2)", "integers are divided"),
        ("z = x * (int(3) / 2)", "integers are divided"),
        ("for (int k = 0; k < 3; ++k) z = x", "is no assignment"),
        ("++z", "'\\+\\+z' is no assignment"),
        ("z[0] = x", "'z\\[0\\] = x' is no assignment"),
        ("z = q", "q is no input, and no variable that is set before"),
        ("z += x", "z is no input, and no variable that is set before"),
        ("if (x > 0) z = x", "z is not always set"),
        ("z = 'c' * x", "\"'c'\" is not understood"),
        ("z = x * tgamma(y)", "the derivative by y of 'z = x \\* tgamma\\(y\\)' is not known"),
        ("z = lgamma(x)", "the derivative by x of 'z = lgamma\\(x\\)' is not known"),
    ],
)
def test_what_is_not_understood_is_refused(body: str, reason: str) -> None:
    with pytest.raises(ck.TemplateError, match=f"^made: the gradient cannot be derived: .*{reason}.*; give backward=$"):
        derived(body)


def test_whole_numbers_are_not_divided() -> None:
    for dtype in ("int k", "bool k", "unsigned k"):
        with pytest.raises(ck.TemplateError, match="integers are divided"):
            derived("z = x * (k / 2)", f"T x, {dtype}", names=("x",))
    for body in ("z = x * (k / 2)", "z = x * (k / y)", "z = x * (2 / k)", "z = x * (float(3) / 2)"):
        assert derived(body, "T x, float k, T y", names=("x",)).gradients["x"] != 0
    for body in ("z = x * ((x > y ? 3 : y) / 2)", "z = x * ((1 + y) / 2)", "T t = 3; z = x * (t / 2)"):
        derived(body)
    with pytest.raises(ck.TemplateError, match="it has raw arguments"):
        derived("z = x[0]", "raw T x", names=("x",))


def test_what_is_asked_for_is_derived_and_what_it_needs_is_named() -> None:
    found = derived("z = a * x * x * k; w = sin(y)", "T a, T x, T y, int k, T unused", "T z, T w", ("y", "x"))
    assert [*found.gradients] == ["y", "x"]
    assert found.uses == ("a", "x", "y", "k")
    assert derived("z = x + y").uses == ()
    made = found.function(["y", "x"])
    assert (made.recipe.name, made.recipe.preamble) == ("made_gradient", "")
    assert [str(p) for p in made.recipe.inputs] == ["T a", "T x", "T y", "int k", "T dz", "T dw"]
    assert [str(p) for p in made.recipe.outputs] == ["T dy", "T dx"]
    assert made.recipe.body == "dy = dw*cos(y);\ndx = 2*a*dz*k*x;"
    assert found.function(["x"]).recipe.body == "dx = 2*a*dz*k*x;"


def test_common_parts_are_worked_out_once() -> None:
    found = derived("z = exp(x * y)").function(["x", "y"])
    assert found.recipe.body == "const auto s0_ = dz*exp(x*y);\ndx = s0_*y;\ndy = s0_*x;"


def test_functions_of_steps_have_no_slope() -> None:
    for name in ("floor", "ceil", "trunc", "rint", "round"):
        found = derived(f"z = x * {name}(y)")
        assert found.gradients["y"] == 0
        assert found.function(["x", "y"]).recipe.body == f"dx = dz*{name}(y);\ndy = 0;"
    found = derived("z = x * sign(y)")
    assert found.gradients["y"] == 0
    assert found.function(["x"]).recipe.body == "dx = dz*((y > 0) - (y < 0));"


def test_numbers_and_powers_in_cpp() -> None:
    x, y = (sympy.Symbol(name, real=True) for name in "xy")
    half, like = sympy.Rational(1, 2), "decltype(0.0f + dz)"
    texts = {
        half: "0.5f",
        sympy.Rational(-3, 8): "-0.375f",
        sympy.Rational(1, 3): f"{like}(1.0 / 3.0)",
        sympy.Rational((1 << 24) - 1, 2): "8388607.5f",
        sympy.Rational((1 << 24) + 1, 2): f"{like}(16777217.0 / 2.0)",
        sympy.Rational(1, 1 << 23): f"{2.0**-23!r}f",
        sympy.Rational(1, 1 << 24): f"{like}(1.0 / 16777216.0)",
        sympy.Float(0.1): f"{like}(0.1)",
        sympy.pi: f"{like}({math.pi!r})",
        sympy.log(2): f"{like}({math.log(2)!r})",
        sympy.log(x): "log(x)",
        sympy.sign(x): "((x > 0) - (x < 0))",
        sympy.Heaviside(x): "(x > 0 ? 1.0f : x < 0 ? 0.0f : 0.5f)",
        x**2: "((x)*(x))",
        x**4: "((x)*(x)*(x)*(x))",
        x**5: f"pow(x, {like}(5.0))",
        (x + y) ** 2: "((x + y)*(x + y))",
        x**-1: "(1.0f/(x))",
        (x + y) ** -1: "(1.0f/(x + y))",
        x**-2: "(1.0f/((x)*(x)))",
        x**-4: "(1.0f/((x)*(x)*(x)*(x)))",
        x**-5: f"pow(x, {like}(-5.0))",
        x**half: "sqrt(x)",
        x**-half: "(1.0f/sqrt(x))",
        x ** sympy.Rational(3, 2): f"pow(x, {like}(1.5))",
        x**y: "pow(x, y)",
    }
    assert {value: _printer("dz")._print(value) for value in texts} == texts
