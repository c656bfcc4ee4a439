"""NumPy's universal functions as elementwise kernels: the expression of each, and NumPy's rules for types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise import Elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.generate.promotion import check_dtype
from cudakit.jit.specialise.options import CompileOptions

#: Type variables and names of a function's inputs, and of its outputs.
_INPUTS, _OUTPUTS = (("A", "x"), ("B", "y")), (("R", "z"), ("S", "w"))
_PREAMBLE = "#include <cudakit/ufunc/all.cuh>"
#: What is rounded once must not become part of a fused multiply-add.
OPTIONS = CompileOptions(extra={"fma": False})


class Entry(NamedTuple):
    """How a function is computed.

    Attributes
    ----------
    expression : str
        C++ of the functions of <cudakit/ufunc/all.cuh>.
    single, double : float
        Most ulps between the result and the exact value, in float32 and float64; 0.5 is correctly rounded, with the
        same bits as NumPy's. logaddexp and logaddexp2: ulps of the larger input, where that is larger.
    """

    expression: str
    single: float = 0.5
    double: float = 0.5


def _calls(*names: str, single: float = 0.5, double: float = 0.5) -> dict[str, Entry]:
    """Entries of functions that are called by their own names."""
    return {
        name: Entry(f"z = cudakit::ufunc::{name}({'x, y' if getattr(np, name).nin == 2 else 'x'})", single, double)
        for name in names
    }


#: Every function, by NumPy's name.
TABLE: dict[str, Entry] = {
    **_calls("add", "subtract", "multiply", "divide", "negative", "positive", "conjugate", "square", "reciprocal"),
    **_calls("absolute", "fabs", "sign", "fmod", "remainder", "floor_divide", "sqrt", "copysign", "heaviside"),
    **_calls("floor", "ceil", "trunc", "rint", "nextafter", "spacing", "ldexp", "degrees", "radians"),
    **_calls("bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift", "bitwise_count"),
    **_calls("gcd", "lcm", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
    **_calls("logical_and", "logical_or", "logical_xor", "logical_not"),
    **_calls("maximum", "minimum", "fmax", "fmin", "isnan", "isinf", "isfinite", "signbit"),
    **_calls("sin", "cos", "exp", "exp2", "log10", single=2, double=2),
    **_calls("expm1", "log", "log2", "log1p", "cbrt", single=1.5, double=1.5),
    **_calls("tan", "power", single=4, double=2),
    **_calls("float_power", single=2, double=2),
    **_calls("arcsin", "arccos", "arctan", "tanh", "cosh", "hypot", single=3, double=2),
    **_calls("sinh", "arctan2", "arcsinh", "arccosh", "arctanh", single=4, double=3),
    **_calls("logaddexp", "logaddexp2", single=3, double=3),
    "rad2deg": Entry("z = cudakit::ufunc::degrees(x)"),
    "deg2rad": Entry("z = cudakit::ufunc::radians(x)"),
    "divmod": Entry("z = cudakit::ufunc::floor_divide(x, y); w = cudakit::ufunc::remainder(x, y)"),
    "frexp": Entry("z = x; w = 0; cudakit::ufunc::frexp(x, z, w)"),
    "modf": Entry("z = x; w = x; cudakit::ufunc::modf(x, z, w)"),
}

#: NumPy's functions that have no kernel here, and why.
MISSING: dict[str, str] = {
    "isnat": "of dates only, which are no type of C++",
    "matmul": "sums over an axis: no function of single elements",
    "matvec": "sums over an axis: no function of single elements",
    "vecmat": "sums over an axis: no function of single elements",
    "vecdot": "sums over an axis: ck.ops.dot, or ck.reduction",
}


class Ufunc(Elementwise):
    """One of NumPy's universal functions, with its rules for types."""

    ufunc: np.ufunc
    _casting = "same_kind"

    def __new__(cls, name: str) -> Self:
        ufunc = getattr(np, name)
        inputs = tuple(Parameter(label, variable) for variable, label in _INPUTS[: ufunc.nin])
        outputs = tuple(Parameter(label, variable) for variable, label in _OUTPUTS[: ufunc.nout])
        recipe = ElementwiseRecipe(name, inputs, outputs, TABLE[name].expression, _PREAMBLE)
        self = super().__new__(cls, recipe, OPTIONS)
        self.__dict__["ufunc"] = ufunc
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe.name,)

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        found = resolved(self.ufunc, [(p.name, kind) for p, kind in zip(self.recipe.inputs, kinds, strict=True)])
        if self.recipe.name.startswith("logical"):
            # Each by itself: 0.5 holds, and is no bool.
            found = (*(np.dtype(kind) for kind in kinds), *found[len(kinds) :])
        parameters = (*self.recipe.inputs, *self.recipe.outputs)
        return {p.type: dtype for p, dtype in zip(parameters, found, strict=True)}


def resolved(ufunc: np.ufunc, kinds: Sequence[tuple[str, np.dtype | type]]) -> tuple[np.dtype, ...]:
    """The dtypes that a function computes in: of each input, then of each output.

    Parameters
    ----------
    ufunc : numpy.ufunc
    kinds : sequence of (str, dtype or class)
        Name of each argument, and its dtype or, of a Python number, its class.

    Raises
    ------
    ArgumentError
    """
    given = [np.dtype("?") if kind is bool else kind for _, kind in kinds]
    try:
        found: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout))
    except TypeError as error:
        named = ", ".join(
            f"{name} is of {kind if isinstance(kind, np.dtype) else kind.__name__}" for name, kind in kinds
        )
        raise ArgumentError(f"{ufunc.__name__}: {named}: {error}") from None
    for dtype in found:
        check_dtype(ufunc.__name__, next((name for name, kind in kinds if kind == dtype), "it"), dtype)
    return found
