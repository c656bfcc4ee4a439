"""NumPy's universal functions as elementwise kernels: the expression of each, and NumPy's rules for types."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import Axis
from cudakit.arrays.log import current_log
from cudakit.arrays.output import Casting
from cudakit.errors import ArgumentError, shortened
from cudakit.generate import ufunc_methods
from cudakit.generate.call import check_dtype, dtype_of
from cudakit.generate.declarations import Parameter
from cudakit.generate.elementwise import Elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.jit.specialise.options import CompileOptions
from cudakit.types.checked import CASTINGS, dtype_or_none, is_one_of

#: Type variables and names of a function's inputs, and of its outputs.
_INPUTS, _OUTPUTS = (("A", "x"), ("B", "y")), (("R", "z"), ("S", "w"))
_PREAMBLE = "#include <cudakit/ufunc/all.cuh>"
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
#: What any floating point holds.
_HALF_MOST = 65504
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
    """One of NumPy's universal functions, with its rules for types.

    Called as ``f(*inputs, out=None, where=None, stream=None, dtype=None, casting="same_kind")``; see `Elementwise`.

    Parameters
    ----------
    dtype : dtype, optional
        Of the results; the loop of NumPy's that has them is the one that is computed.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        How inputs may be cast to that loop, and results to an `out` of another dtype.
    """

    ufunc: np.ufunc
    dtype: np.dtype | None
    _casting: Casting
    _others: dict[Any, Ufunc]
    _OPTIONS = MappingProxyType({**Elementwise._OPTIONS, "dtype": None, "casting": "same_kind"})

    def __new__(cls, name: str, dtype: np.dtype | None = None, casting: str = "same_kind") -> Self:
        ufunc = getattr(np, name)
        inputs = tuple(Parameter(label, variable) for variable, label in _INPUTS[: ufunc.nin])
        outputs = tuple(Parameter(label, variable) for variable, label in _OUTPUTS[: ufunc.nout])
        recipe = ElementwiseRecipe(name, inputs, outputs, TABLE[name].expression, _PREAMBLE)
        self = super().__new__(cls, recipe, OPTIONS)
        self.__dict__.update(ufunc=ufunc, dtype=dtype, _casting=casting, _others={}, __doc__=_told(name, ufunc))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe.name, self.dtype, self._casting)

    def _ordinary(
        self,
        args: tuple[Any, ...],
        out: Any,
        stream: Any,
        where: Any = None,
        size: Any = None,
        block_size: int | None = None,
        dtype: Any = None,
        casting: str = "same_kind",
    ) -> Any:
        """What a call does that is not frozen."""
        if where is True:
            where = None
        if dtype is not None or casting.__class__ is not str or casting != "same_kind":
            return self._other(dtype, casting)._ordinary(args, out, stream, where, size, block_size)
        return super()._ordinary(self._weak(args), out, stream, where, size, block_size)

    def reduce(
        self,
        x: Any,
        axis: Axis = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
        *,
        stream: Any = None,
    ) -> Any:
        """What x's elements along `axis` come to, as `numpy.ufunc.reduce` has it.

        Parameters
        ----------
        x : array
            Any shape and strides.
        axis : int, several, or None
            One alone for functions whose order matters, as subtract.
        dtype : dtype, optional
            Of the loop that is computed and of the result.
        out : array, optional
            Of the result's shape; of another dtype of the same kind the result is cast to it.
        keepdims : bool
            Whether reduced axes stay, with length 1.
        initial : number, optional
            What it begins with; needed where there may be no elements and the function has no identity.
        where : array of bool, optional
            Broadcast to x: which elements count.
        stream : stream, optional

        Raises
        ------
        ArgumentError
        """
        return ufunc_methods.reduce(self, x, axis, dtype, out, keepdims, initial, where, stream)

    def accumulate(self, x: Any, axis: int = 0, dtype: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """out[k] = what x[0] … x[k] come to along `axis`, as `numpy.ufunc.accumulate` has it.

        Parameters are those of `reduce`.
        """
        return ufunc_methods.accumulate(self.ufunc, x, axis, dtype, out, stream)

    def reduceat(
        self, x: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None, *, stream: Any = None
    ) -> Any:
        """out[j] = what x[indices[j]] … x[indices[j + 1] − 1] come to, as `numpy.ufunc.reduceat` has it.

        Parameters are those of `reduce`. A thread does a stretch, so that long ones take their time. Indices in device
        memory are not looked at before: what is out of range is cut to it.
        """
        return ufunc_methods.reduceat(self.ufunc, x, indices, axis, dtype, out, stream)

    def outer(self, x: Any, y: Any, **named: Any) -> Any:
        """out[i…, j…] = f(x[i…], y[j…]), as `numpy.ufunc.outer` has it, with the keywords of a call."""
        return ufunc_methods.outer(self, x, y, named)

    def at(self, x: Any, indices: Any, y: Any = None, *, stream: Any = None) -> None:
        """x[indices] = f(x[indices], y) for each index, those that come again too, as `numpy.ufunc.at` has it.

        Parameters
        ----------
        x : array
            Is changed.
        indices : array of int, or a tuple of such
            Of x's first dimensions, broadcast together; modulo its extents, so that −1 is the last. Or whatever else
            NumPy indexes by: slices, masks, ``...``, ``None`` and tuples of these with integers, for which a number is
            worked out for each element of x. How many a mask chooses the host waits for.
        y : array or number, optional
            The second argument of functions of two; broadcast to the shape of ``x[indices]``.
        stream : stream, optional

        Raises
        ------
        ArgumentError

        Notes
        -----
        Elements are changed one after the other in no order that is said: floating-point sums may differ in their last
        bits from run to run. 16 bytes an element take compute capability 9.0.
        """
        values = () if self.ufunc.nin == 1 else (y,)
        if self.ufunc.nout != 1 or (self.ufunc.nin == 2) is (y is None):
            raise ArgumentError(f"{self.recipe.name}.at: give x, indices" + ", y" * (self.ufunc.nin - 1))
        kinds = [
            dtype_of(f"{self.recipe.name}.at", name, value) for name, value in zip("xy", (x, *values), strict=False)
        ]
        types = resolved(self.ufunc, list(zip("xy", kinds, strict=False)))
        ufunc_methods.at(self.ufunc, types, x, indices, y, stream)

    def _other(self, dtype: Any, casting: str) -> Ufunc:
        """The same with another dtype of results, or another rule of casting."""
        if not is_one_of(casting, CASTINGS):
            raise ArgumentError(f"{self.recipe.name}: casting is {shortened(casting)}; there are {', '.join(CASTINGS)}")
        key = dtype_or_none(f"{self.recipe.name}: dtype", dtype), casting
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = type(self)(self.recipe.name, *key)
            found.__dict__["_casting"] = casting
        return found

    def _weak(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, Python numbers that an array's dtype cannot hold as what NumPy takes them for."""
        for value in args:
            kind = value.__class__
            if kind is int and not 0 <= value < 128:
                break
            if (kind is float or kind is complex) and not abs(value) <= _HALF_MOST:
                break
        else:
            return args
        kinds = [dtype_of(self.recipe.name, p.name, value) for p, value in zip(self.recipe.inputs, args, strict=False)]
        if len(kinds) < self.ufunc.nin or not any(isinstance(kind, np.dtype) for kind in kinds):
            return args
        named = tuple([(p.name, kind) for p, kind in zip(self.recipe.inputs, kinds, strict=True)])
        dtypes = _resolved(self.ufunc, named, self.dtype, self._casting)
        found = [held(self.ufunc, value, dtype) for value, dtype in zip(args, dtypes, strict=False)]
        log = current_log()
        if log is not None and any(new is not old for new, old in zip(found, args, strict=False)):
            log.is_whole = False  # another number might need no such thing
        return (*found, *args[len(found) :])

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        named = [(p.name, kind) for p, kind in zip(self.recipe.inputs, kinds, strict=True)]
        found = resolved(self.ufunc, named, self.dtype, self._casting)
        if self.recipe.name.startswith("logical"):
            # Each by itself: 0.5 holds, and is no bool.
            found = (*(np.dtype(kind) for kind in kinds), *found[len(kinds) :])
        parameters = (*self.recipe.inputs, *self.recipe.outputs)
        return {p.type: dtype for p, dtype in zip(parameters, found, strict=True)}


def _told(name: str, ufunc: np.ufunc) -> str:
    """What ``help`` says of a function."""
    entry = TABLE[name]
    inputs, outputs = (
        ", ".join(label for _, label in group) for group in (_INPUTS[: ufunc.nin], _OUTPUTS[: ufunc.nout])
    )
    exact = entry.single == entry.double == 0.5
    ulps = "correctly rounded" if exact else f"within {entry.single:g} ulps in float32, {entry.double:g} in float64"
    return (
        f"{outputs} = {name}({inputs}) of each element, with NumPy's types and broadcasting.\n\n"
        f"Results in floating point are {ulps}. ``out``, ``where``, ``dtype`` and ``casting`` are as NumPy has them;\n"
        f"``stream`` is CuPy's current one unless given, the emulator for NumPy arrays. All parameters:\n"
        f"``help(type(ck.math.{name}))``."
    )


def held(ufunc: np.ufunc, value: Any, dtype: np.dtype) -> Any:
    """A Python number as the argument of a function that computes in `dtype`.

    What is beyond the range of floating point is infinite. An int beyond that of integers is, to comparisons, beyond
    all of them; for other functions it is left as it is, and refused where it is passed.
    """
    kind = value.__class__
    if kind is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if ufunc.__name__ not in _COMPARISONS or limits.min <= value <= limits.max:
            return value
        return np.float64(np.inf if value > 0 else -np.inf)
    if kind not in (int, float, complex) or dtype.kind in "biu":
        return value
    try:
        wide = complex(value) if kind is complex else float(value)
    except OverflowError:
        return value
    with np.errstate(over="ignore"):
        found = dtype.type(wide)
    return (
        value if np.isfinite(found) or not np.isfinite(wide) else found.item() if dtype.kind in "fc" else float(found)
    )


@functools.lru_cache(1024)
def _resolved(
    ufunc: np.ufunc, kinds: tuple[tuple[str, np.dtype | type], ...], dtype: np.dtype | None, casting: str
) -> tuple[np.dtype, ...]:
    return resolved(ufunc, kinds, dtype, casting)


def resolved(
    ufunc: np.ufunc,
    kinds: Sequence[tuple[str, np.dtype | type]],
    dtype: np.dtype | None = None,
    casting: Any = "same_kind",
) -> tuple[np.dtype, ...]:
    """The dtypes that a function computes in: of each input, then of each output.

    Parameters
    ----------
    ufunc : numpy.ufunc
    kinds : sequence of (str, dtype or class)
        Name of each argument, and its dtype or, of a Python number, its class.
    dtype : dtype, optional
        Of the outputs.
    casting : str
        How inputs may be cast.

    Raises
    ------
    ArgumentError
    """
    given = [np.dtype("?") if kind is bool else kind for _, kind in kinds]
    # Left out where it says nothing: ml_dtypes' loops are found without it.
    asked: dict[str, Any] = {} if dtype is None else {"signature": ((None,) * ufunc.nin + (dtype,) * ufunc.nout)}
    if casting != "same_kind":
        asked["casting"] = casting
    try:
        found: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*given, *(None,) * ufunc.nout), **asked)
    except TypeError as error:
        named = ", ".join(
            f"{name} is of {kind if isinstance(kind, np.dtype) else kind.__name__}" for name, kind in kinds
        )
        raise ArgumentError(f"{ufunc.__name__}: {named}: {error}") from None
    for dtype in found:
        check_dtype(ufunc.__name__, next((name for name, kind in kinds if kind == dtype), "it"), dtype)
    return found
