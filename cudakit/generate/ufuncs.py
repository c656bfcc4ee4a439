"""NumPy's universal functions as elementwise kernels: the expression of each, and NumPy's rules for types."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, axis_of, without
from cudakit.arrays.log import current_log
from cudakit.arrays.output import Casting, as_number, can_cast, checked_output
from cudakit.arrays.place import ArrayPlace, array_place, as_array
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.call import check_dtype, dtype_of
from cudakit.generate.declarations import Parameter, cpp_of, declared_name
from cudakit.generate.elementwise import Elementwise
from cudakit.generate.elementwise_code import ElementwiseRecipe
from cudakit.generate.reduction import Reduction, reduction
from cudakit.generate.scan import Scan, scan
from cudakit.jit.specialise.options import CompileOptions
from cudakit.types.checked import CASTINGS, array_of, dtype_or_none, flag, is_one_of
from cudakit.types.cpp import HEADER, NARROW, spelling

# The methods of universal functions: reduce, accumulate, reduceat, outer, at. Sums and their like run as reductions and
# scans from expressions do, all of the device on each result. Other functions, in which the order matters, go through
# each line in one thread, from its first element to its last.

NAMESPACE = "cudakit::ufunc::"
#: What is rounded once must not become part of a fused multiply-add.
OPTIONS = CompileOptions(extra={"fma": False})
#: Of functions whose order does not matter: what combines a and b, and what changes nothing, of type A.
_COMBINED = {
    "add": ("a + b", "static_cast<A>(0)"),
    "multiply": ("a * b", "static_cast<A>(1)"),
    "maximum": ("cudakit::maximum()(a, b)", "cudakit::maximum::identity<A>()"),
    "minimum": ("cudakit::minimum()(a, b)", "cudakit::minimum::identity<A>()"),
    "logical_and": ("a && b", "true"),
    "logical_or": ("a || b", "false"),
    "logical_xor": ("a != b", "false"),
    "bitwise_and": ("a & b", "static_cast<A>(~static_cast<A>(0))"),
    "bitwise_or": ("a | b", "static_cast<A>(0)"),
    "bitwise_xor": ("a ^ b", "static_cast<A>(0)"),
    "logaddexp": ("cudakit::ufunc::logaddexp(a, b)", "-cudakit::minimum::identity<A>()"),
    "logaddexp2": ("cudakit::ufunc::logaddexp2(a, b)", "-cudakit::minimum::identity<A>()"),
}
#: Those that go through lines, and may all the same meet elements in any order.
_REORDERABLE = ("hypot", "gcd", "lcm", "fmax", "fmin")


def types_of(ufunc: np.ufunc, method: str, x: np.dtype, dtype: Any, out: Any = None) -> np.dtype:
    """Return the dtype in which a function of two arguments combines elements of dtype `x`. Its result has it, too.

    `method`, such as ``reduce``, is for messages. `dtype` is the caller's argument or None. `out` is the caller's
    output array or None; its dtype may decide the dtype of sums and products.

    Raises
    ------
    ArgumentError
        The function has no such method, or none for elements of this dtype.
    """
    op = f"{ufunc.__name__}.{method}"
    if ufunc.nin != 2 or ufunc.nout != 1:
        raise ArgumentError(f"{op}: only functions of two arrays with one result have it")
    requested_dtype = dtype_or_none(f"{op}: dtype", dtype)
    if requested_dtype is None and ufunc.__name__ in ("add", "multiply"):
        # As wide as a sum of them, in NumPy: bool and integers of less than 64 bits.
        of = getattr(out, "dtype", None)
        requested_dtype = (
            of if of is not None and x.kind in "biu" and of.kind in "biu" else sum_dtype(x) if of is None else None
        )
    first = (
        np.dtype(bool) if ufunc.__name__.startswith("logical") else x if requested_dtype is None else requested_dtype
    )
    try:
        dtypes = ufunc.resolve_dtypes((first, first, None))
    except TypeError as error:
        raise ArgumentError(f"{op}: x is of {x}: {error}") from None
    if requested_dtype is not None and dtypes[2] != requested_dtype and not ufunc.__name__.startswith("logical"):
        raise ArgumentError(f"{op}: dtype is {requested_dtype}; of {x} it gives {dtypes[2]}")
    if dtypes[0] != dtypes[2]:
        raise ArgumentError(f"{op}: its results are of {dtypes[2]}, and are no arguments for it, of {dtypes[0]}")
    return dtypes[2]


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """Return NumPy's dtype of a sum: 64 bits for bool and integers."""
    if dtype.kind in "bi":
        return np.dtype(np.int64)
    return np.dtype(np.uint64) if dtype.kind == "u" else dtype


def _delivered(op: str, place: ArrayPlace, result: Any, out: Any) -> Any:
    """Return the result, copied to `out` if there is one."""
    if out is None:
        return result
    assign(result, out=checked_output(op, place, out, result.shape, result.dtype, "same_kind"), stream=place.stream)
    return out


def _mask(op: str, place: ArrayPlace, where: Any, x: Any) -> Any:
    if where.dtype != np.bool_:
        raise ArgumentError(f"{op}: where is of {where.dtype}; it must be of bool, as x > 0 is")
    try:
        with place.inside():
            return place.xp.broadcast_to(where, x.shape)
    except ValueError:
        raise ArgumentError(f"{op}: where has shape {where.shape}, which is not broadcast to x's {x.shape}") from None


def _indices(op: str, place: ArrayPlace, indices: Any) -> Any:
    if isinstance(indices, int | list | np.integer) and not isinstance(indices, bool):
        indices = place.upload(array_of(f"{op}: indices", indices))
    result = as_array(op, "indices", indices)[0]
    if result.dtype.kind not in "iu":
        raise ArgumentError(f"{op}: indices are of {result.dtype}; give integers")
    return result


def _is_part(index: Any) -> bool:
    """Return True for an index that is a slice, None, ``...``, a bool or a mask.

    Return False for integers and arrays of integers.
    """
    if index is None or index is ... or isinstance(index, slice | bool | np.bool_):
        return True
    if isinstance(index, list):
        index = array_of("at: indices", index)
    return getattr(index, "dtype", None) == np.bool_


def _numbers_of(op: str, place: ArrayPlace, x: Any, parts: tuple[Any, ...]) -> list[Any]:
    """Return the indices of the elements that ``x[parts]`` selects: an array of int for each dimension of x.

    Raises
    ------
    ArgumentError
        The indices do not fit x.
    """
    ranges = []
    for part in parts:
        if isinstance(part, list | np.ndarray):
            part = place.upload(np.asarray(part))
        # A copy is made in the stream's order, after whatever makes the index.
        part = place.copied(as_array(op, "indices", part)[0]) if hasattr(part, "dtype") and part.shape else part
        if getattr(part, "dtype", np.dtype(int)).kind not in "biu":
            raise ArgumentError(f"{op}: indices are of {part.dtype}; give integers, slices or a mask")
        ranges.append(part)
    # NumPy says what fits: CuPy takes masks and numbers that do not. Integers could choose any number of elements: one.
    as_host = tuple(
        np.zeros(part.shape if part.dtype == np.bool_ else (1,) * part.ndim, part.dtype)
        if getattr(part, "shape", ())
        else part
        for part in ranges
    )
    try:
        np.broadcast_to(np.int8(0), x.shape)[as_host]
        with place.inside():
            numbers = place.xp.arange(x.size).reshape(x.shape)[tuple(ranges)]
            return [*place.xp.unravel_index(numbers, x.shape)] if x.size else [numbers] * x.ndim
    except (IndexError, ValueError, TypeError, NotImplementedError) as error:
        raise ArgumentError(f"{op}: indices do not fit an array of shape {x.shape}: {error}") from None


def _preamble(*dtypes: np.dtype) -> str:
    spelled = [spelling(dtype) or "" for dtype in dtypes]
    headers = sorted({HEADER[name.partition("<")[0]] for name in spelled if name.partition("<")[0] in HEADER})
    return "".join(f"#include <{header}>\n" for header in (*headers, "cudakit/monoid.cuh", "cudakit/ufunc/all.cuh"))


def accumulated(dtype: np.dtype) -> str:
    """Return the C++ type in which elements are combined: float for half and bfloat16."""
    name = spelling(dtype)
    if name is None:
        raise ArgumentError(f"{dtype} has no C++ equivalent")
    return "float" if name in NARROW.values() else name


def _combination(name: str, dtype: np.dtype) -> tuple[str, str] | None:
    """Return two C++ expressions: the function `name` of ``a`` and ``b``, and its identity in `dtype`.

    Return None if the order of the elements matters.
    """
    entry = _COMBINED.get(name)
    if name in ("fmax", "fmin") and dtype.kind != "c":
        nothing = _COMBINED["maximum" if name == "fmax" else "minimum"][1]
        entry = (
            f"{NAMESPACE}{name}(a, b)",
            nothing if dtype.kind in "biu" else "static_cast<A>(__int_as_float(0x7fc00000))",
        )
    if entry is None:
        return None
    return entry[0], entry[1].replace("A", accumulated(dtype))


def _folding(name: str, method: str, dtype: np.dtype, masked: bool = False) -> dict[str, Any]:
    """Return keyword arguments of `reduction` or `scan` that compute a function's `method` in `dtype`.

    `masked`: a second input ``w`` selects the elements that count.
    """
    combination, sum_type = _combination(name, dtype), accumulated(dtype)
    assert combination is not None  # those that have none go through lines
    combine, identity = combination
    value = f"cudakit::as<{sum_type}>(x)"
    return {
        "inputs": "X x" + ", bool w" * masked,
        "outputs": f"{declared_name(dtype)} y",
        "map": f"w ? {value} : static_cast<{sum_type}>({identity})" if masked else value,
        "reduce": combine,
        "identity": identity,
        "name": f"{name}_{method}",
        "acc": sum_type,
        "preamble": _preamble(dtype),
        "options": OPTIONS,
    }


@functools.cache
def _reduction(name: str, dtype: np.dtype, masked: bool) -> Reduction:
    return reduction(**_folding(name, "reduce", dtype, masked))


@functools.cache
def _scan(name: str, dtype: np.dtype) -> Scan:
    return scan(**_folding(name, "accumulate", dtype))


def _function(name: str, inputs: Sequence[Parameter], output: Parameter, body: str, preamble: str) -> Elementwise:
    return Elementwise(ElementwiseRecipe(name, tuple(inputs), (output,), preamble, body), OPTIONS)


_LENGTH = Parameter("length", "long long", np.dtype(np.int64))


@functools.cache
def _line_reduce(name: str, outer_rank: int, masked: bool, started: bool) -> Elementwise:
    """Return the kernel y[…] = x[…, 0] ∘ x[…, 1] ∘ …, where ∘ is the function `name`. A thread computes each result.

    `outer_rank` is the number of dimensions of y. `masked`: only elements count where the mask `w` is true.
    `started`: the result begins with the input `first`.
    """
    at = "".join(f"_ind[{d}], " for d in range(outer_rank)) + "k"
    inputs = [
        Parameter("x", "X", raw=True),
        *[Parameter("w", "bool", np.dtype("?"), raw=True)] * masked,
        *[Parameter("first", "R")] * started,
        _LENGTH,
    ]
    body = f"""
R a = {"first" if started else "cudakit::as<R>(0)"};
bool begins = {"false" if started else "true"};
for (long long k = 0; k < length; ++k) {{
    {f"if (!w({at})) continue;" if masked else ""}
    const R value = cudakit::as<R>(x({at}));
    if (begins) a = value;
    else a = {NAMESPACE}{name}(a, value);
    begins = false;
}}
y = a"""
    return _function(f"{name}_reduce", inputs, Parameter("y", "R"), body, _preamble())


@functools.cache
def _line_accumulate(name: str, outer_rank: int) -> Elementwise:
    """Return the kernel y[…, k] = x[…, 0] ∘ … ∘ x[…, k], where ∘ is the function `name`. A thread computes each line.

    `outer_rank` is the number of dimensions before the last.
    """
    at = "".join(f"_ind[{d}], " for d in range(outer_rank)) + "k"
    body = f"""
R a = cudakit::as<R>(0);
for (long long k = 0; k < length; ++k) {{
    const R value = cudakit::as<R>(x({at}));
    if (k == 0) a = value;
    else a = {NAMESPACE}{name}(a, value);
    y({at}) = a;
}}"""
    inputs = [Parameter("x", "X", raw=True), _LENGTH]
    return _function(f"{name}_accumulate", inputs, Parameter("y", "R", raw=True), body, _preamble())


@functools.cache
def _line_reduceat(name: str, outer_rank: int) -> Elementwise:
    """Return the kernel y[…, j] = x[…, at[j]] ∘ … ∘ x[…, at[j + 1] − 1], where ∘ is the function `name`.

    A thread computes each result. The result is x[…, at[j]] if at[j + 1] is not greater than at[j].
    """
    at = "".join(f"_ind[{d}], " for d in range(outer_rank)) + "k"
    body = f"""
const long long j = _ind[{outer_rank}];
const long long end = j + 1 < at.size() ? min(static_cast<long long>(at[j + 1]), length) : length;
long long k = max(min(static_cast<long long>(at[j]), length - 1), 0ll);
R a = cudakit::as<R>(x({at}));
for (++k; k < end; ++k) a = {NAMESPACE}{name}(a, cudakit::as<R>(x({at})));
y = a"""
    inputs = [Parameter("x", "X", raw=True), Parameter("at", "J", raw=True), _LENGTH]
    return _function(f"{name}_reduceat", inputs, Parameter("y", "R"), body, _preamble())


@functools.cache
def _update_each(
    name: str, ndim: int, chosen: int, counted: int, types: tuple[np.dtype, ...], of: np.dtype
) -> Elementwise:
    """Return the kernel x[i0, i1, …] = x[i0, i1, …] ∘ y for each index, where ∘ is the function `name`.

    Repeated indices each take effect, in no fixed order: an element is updated atomically. Negative indices count from
    the end. A function of one argument has no y.

    Parameters
    ----------
    ndim : int
        Number of dimensions of x.
    chosen : int
        Number of x's first dimensions that are indexed.
    counted : int
        Number of dimensions of the index arrays.
    types : tuple of dtype
        Dtypes in which the function computes: inputs, then the result.
    of : dtype
        Dtype of x.
    """
    indices = [Parameter(f"i{d}", f"J{d}") for d in range(chosen)]
    values = [Parameter("y", "V")] * (len(types) - 2)
    lines = []
    for d in range(chosen):
        lines.append(f"const long long extent{d} = x.shape({d}), rest{d} = static_cast<long long>(i{d}) % extent{d};")
        lines.append(f"const long long at{d} = rest{d} < 0 ? rest{d} + extent{d} : rest{d};")
    at = ", ".join([f"at{d}" for d in range(chosen)] + [f"_ind[{counted + d}]" for d in range(ndim - chosen)])
    operands = f"cudakit::as<{cpp_of(types[0])}>(cudakit::as<{cpp_of(of)}>(old))"
    if values:
        operands += f", cudakit::as<{cpp_of(types[1])}>(y)"
    result = f"cudakit::as<{cpp_of(types[-1])}>({NAMESPACE}{name}({operands}))"
    changed = f"cudakit::as<T>(cudakit::as<{cpp_of(of)}>({result}))"
    lines.append(f"cudakit::ufunc::change(&x({at}), [&](T old) {{ return {changed}; }})")
    preamble = _preamble(of, *types) + "#include <cudakit/ufunc/at.cuh>\n"
    return _function(f"{name}_at", [*indices, *values], Parameter("x", "T", raw=True), "\n".join(lines), preamble)


#: y = x, of any dtypes.
assign: Elementwise = _function(
    "assign", [Parameter("x", "X")], Parameter("y", "Y"), "y = cudakit::as<Y>(x)", _preamble()
)


#: Type variables and names of a function's inputs, and of its outputs.
_INPUTS, _OUTPUTS = (("A", "x"), ("B", "y")), (("R", "z"), ("S", "w"))
PREAMBLE = "#include <cudakit/ufunc/all.cuh>"
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
#: What any floating point holds.
_HALF_MOST = 65504


class Entry(NamedTuple):
    """Computation of a function: its C++ and its accuracy.

    Attributes
    ----------
    expression : str
        C++ expression, with the functions of <cudakit/ufunc/all.cuh>.
    single, double : float
        Greatest error in ulps of the exact value, in float32 and float64. An error of 0.5 means correctly rounded,
        with the same bits as NumPy's. For logaddexp and logaddexp2: ulps of the larger input, if it is larger than
        the result.
    """

    expression: str
    single: float = 0.5
    double: float = 0.5


def _calls(*names: str, single: float = 0.5, double: float = 0.5) -> dict[str, Entry]:
    """Return entries of functions that are called by their own names."""
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
    """A NumPy universal function, with NumPy's rules for types.

    Called as ``f(*inputs, out=None, where=None, stream=None, dtype=None, casting="same_kind")``; see `Elementwise`.

    Parameters
    ----------
    dtype : dtype, optional
        Dtype of the results. It selects NumPy's loop.
    casting : {"no", "equiv", "safe", "same_kind", "unsafe"}
        Casts that are allowed from inputs to this loop, and from results to `out`.
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
        recipe = ElementwiseRecipe(name, inputs, outputs, PREAMBLE, TABLE[name].expression)
        self = super().__new__(cls, recipe, OPTIONS)
        self.__dict__.update(ufunc=ufunc, dtype=dtype, _casting=casting, _others={}, __doc__=_docstring(name, ufunc))
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
        """Run a call that is not replayed."""
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
        """Reduce x along `axis`, as ``numpy.ufunc.reduce``.

        Parameters
        ----------
        x : array
            Input of any shape and strides.
        axis : int, several, or None
            Axes to reduce. None: all axes. Functions whose order matters, such as subtract, take a single axis.
        dtype : dtype, optional
            Dtype of NumPy's loop and of the result.
        out : array, optional
            Output array: shape of the result, any strides; dtype of the result, or another of the same kind (then
            the result is cast).
        keepdims : bool
            Whether reduced axes stay, with length 1.
        initial : number, optional
            First value of the reduction. Needed if there may be no elements and the function has no identity.
        where : array of bool, optional
            Mask of the elements that count, broadcast to x's shape.
        stream : stream, optional
            Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

        Raises
        ------
        ArgumentError
            The axis is out of range, the function cannot reduce elements of this dtype, or `out` does not fit.
        """
        ufunc = self.ufunc
        op = f"{ufunc.__name__}.reduce"
        where, keepdims = None if where is True else where, flag(f"{op}: keepdims", keepdims)
        place, (x, *masks) = array_place(op, stream, ("x", x), *([] if where is None else [("where", where)]))
        loop_dtype = types_of(ufunc, "reduce", x.dtype, dtype, out)
        axes = axes_of(op, axis, x.ndim)
        is_ordered = _combination(ufunc.__name__, loop_dtype) is None
        if is_ordered and len(axes) != 1 and ufunc.__name__ not in _REORDERABLE:
            raise ArgumentError(f"{op}: the order of its elements matters, so that it takes one axis, not {axes}")
        if ufunc.identity is None and initial is None and (masks or any(x.shape[d] == 0 for d in axes)):
            raise ArgumentError(f"{op}: there may be no elements, for which it has no result; give initial=")
        masks = [_mask(op, place, mask, x) for mask in masks]
        first = () if initial is None else (as_number(op, "initial", initial, loop_dtype),)
        result = place.empty(without(x.shape, axes, keepdims), loop_dtype)
        if is_ordered:
            order = [*(d for d in range(x.ndim) if d not in axes), *axes]
            # Where there is an identity NumPy begins with it.
            start = first or (() if ufunc.identity is None else (loop_dtype.type(ufunc.identity),))
            lines = [array.transpose(order) for array in (x, *masks)]
            outer_shape, length = without(x.shape, axes, False), prod(x.shape[d] for d in axes)
            if len(axes) != 1:
                lines = [place.copied(array).reshape((*outer_shape, length)) for array in lines]
            line = _line_reduce(ufunc.__name__, len(outer_shape), bool(masks), bool(start))
            line(*lines, *start, length, out=result.reshape(outer_shape), stream=place.stream)
        else:
            _reduction(ufunc.__name__, loop_dtype, bool(masks))(
                x, *masks, axis=axes, keepdims=keepdims, out=result, stream=place.stream
            )
            if first:
                self(first[0], result, out=result, stream=place.stream)
        return _delivered(op, place, result, out)

    def accumulate(self, x: Any, axis: int = 0, dtype: Any = None, out: Any = None, *, stream: Any = None) -> Any:
        """out[k] = x[0] ∘ … ∘ x[k] along `axis`, as ``numpy.ufunc.accumulate``.

        Parameters are as for `reduce`.
        """
        ufunc = self.ufunc
        op = f"{ufunc.__name__}.accumulate"
        place, (x,) = array_place(op, stream, ("x", x))
        loop_dtype = types_of(ufunc, "accumulate", x.dtype, dtype, out)
        along = axis_of(op, axis, x.ndim)
        result = place.empty(x.shape, loop_dtype)
        if _combination(ufunc.__name__, loop_dtype) is not None:
            _scan(ufunc.__name__, loop_dtype)(x, axis=along, out=result, stream=place.stream)
        elif result.size:
            order = [*(d for d in range(x.ndim) if d != along), along]
            lines = without(x.shape, (along,), False)
            line = _line_accumulate(ufunc.__name__, x.ndim - 1)
            line(x.transpose(order), x.shape[along], out=result.transpose(order), stream=place.stream, size=lines)
        return _delivered(op, place, result, out)

    def reduceat(
        self, x: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None, *, stream: Any = None
    ) -> Any:
        """out[j] = x[indices[j]] ∘ … ∘ x[indices[j + 1] − 1], as ``numpy.ufunc.reduceat``.

        Parameters are as for `reduce`. One thread computes each result, so long segments take long. Indices in
        device memory are not checked before the launch: indices out of range are clipped.
        """
        ufunc = self.ufunc
        op = f"{ufunc.__name__}.reduceat"
        place, (x,) = array_place(op, stream, ("x", x))
        loop_dtype = types_of(ufunc, "reduceat", x.dtype, dtype, out)
        along = axis_of(op, axis, x.ndim)
        bounds = _indices(op, place, indices)
        if bounds.ndim != 1:
            raise ArgumentError(f"{op}: indices has shape {bounds.shape}; it has one dimension")
        if isinstance(indices, list | tuple) and any(not 0 <= index < x.shape[along] for index in indices):
            raise ArgumentError(f"{op}: indices {indices} are not all from 0 to {x.shape[along] - 1}")
        result = place.empty((*x.shape[:along], bounds.size, *x.shape[along + 1 :]), loop_dtype)
        if result.size:
            order = [*(d for d in range(x.ndim) if d != along), along]
            line = _line_reduceat(ufunc.__name__, x.ndim - 1)
            line(x.transpose(order), bounds, x.shape[along], out=result.transpose(order), stream=place.stream)
        return _delivered(op, place, result, out)

    def outer(self, x: Any, y: Any, **keywords: Any) -> Any:
        """out[i…, j…] = f(x[i…], y[j…]), as ``numpy.ufunc.outer``, with the keywords of a call."""
        op = f"{self.recipe.name}.outer"
        if self.ufunc.nin != 2:
            raise ArgumentError(f"{op}: only functions of two arrays have it")
        operands: list[Any] = [
            value if isinstance(value, bool | int | float | complex) else as_array(op, name, value)[0]
            for name, value in (("x", x), ("y", y))
        ]
        dimensions = getattr(operands[1], "ndim", 0)
        if hasattr(operands[0], "reshape"):
            operands[0] = operands[0].reshape((*operands[0].shape, *(1,) * dimensions))
        return self(*operands, **keywords)

    def at(self, x: Any, indices: Any, y: Any = None, *, stream: Any = None) -> None:
        """x[indices] = f(x[indices], y) for each index, repeated indices included, as ``numpy.ufunc.at``.

        Parameters
        ----------
        x : array
            Array that is changed in place.
        indices : array of int, or a tuple of arrays of int
            Indices of x's first dimensions, broadcast together; modulo its extents, so that −1 is the last. Or
            NumPy's other indices: slices, masks, ``...``, ``None`` and tuples of them with integers. For these, a
            number is computed for each element of x. The host waits for the number of elements that a mask selects.
        y : array or number, optional
            Second argument of functions of two arguments; broadcast to the shape of ``x[indices]``.
        stream : stream, optional
            Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.

        Raises
        ------
        ArgumentError
            The number or the shapes of the arguments do not fit, an index is into an empty axis, or x's dtype would
            lose values of the result.

        Notes
        -----
        The order of the changes is not defined: floating-point sums may differ in their last bits from run to run.
        Elements of 16 bytes need compute capability 9.0.
        """
        ufunc = self.ufunc
        op = f"{ufunc.__name__}.at"
        if ufunc.nout != 1 or (ufunc.nin == 2) is (y is None):
            raise ArgumentError(f"{op}: give x, indices" + ", y" * (ufunc.nin - 1))
        arguments = list(zip("xy", (x,) if ufunc.nin == 1 else (x, y), strict=False))
        types = resolved(ufunc, [(name, dtype_of(op, name, value)) for name, value in arguments])
        numbers = isinstance(y, bool | int | float | complex) or y is None
        place, (x, *values) = array_place(op, stream, ("x", x), *([] if numbers else [("y", y)]))
        if not can_cast(types[-1], x.dtype, "same_kind"):
            raise ArgumentError(f"{op}: the result is of {types[-1]}, which x of {x.dtype} would lose")
        parts = indices if isinstance(indices, tuple) else (indices,)
        if any(_is_part(index) for index in parts) or not parts:
            x = x.reshape(1) if x.ndim == 0 else x
            chosen = _numbers_of(op, place, x, parts)
        else:
            chosen = [_indices(op, place, index) for index in parts]
        if not 0 < len(chosen) <= x.ndim:
            raise ArgumentError(f"{op}: {len(chosen)} indices for an array of {x.ndim} dimensions")
        try:
            shape = np.broadcast_shapes(*(index.shape for index in chosen))
        except ValueError:
            shapes = ", ".join(str(index.shape) for index in chosen)
            raise ArgumentError(f"{op}: indices of shapes {shapes} cannot be broadcast together") from None
        rest = x.shape[len(chosen) :]
        full = (*shape, *rest)
        if 0 in full:
            return
        if any(n == 0 for n in x.shape[: len(chosen)]):
            raise ArgumentError(f"{op}: there is nothing at any index of an empty axis")
        with place.inside():
            chosen = [place.xp.broadcast_to(index.reshape((*index.shape, *(1,) * len(rest))), full) for index in chosen]
        second = values or ([] if y is None else [y])
        size = x.dtype.itemsize
        target = x
        if size == 1:
            target = place.empty(x.shape, np.int32)
            assign(x, out=target, stream=place.stream)
        change = _update_each(ufunc.__name__, x.ndim, len(chosen), len(shape), tuple(types), x.dtype)
        change(*chosen, *second, out=target, stream=place.stream)
        if target is not x:
            assign(target, out=x, stream=place.stream)

    def _other(self, dtype: Any, casting: str) -> Ufunc:
        """Return this function with `dtype` for its results and another casting rule. The function is made once.

        Raises
        ------
        ArgumentError
            The casting rule is unknown.
        """
        if not is_one_of(casting, CASTINGS):
            raise ArgumentError(
                f"{self.recipe.name}: casting is {shortened(casting)}; expected one of {', '.join(CASTINGS)}"
            )
        key = dtype_or_none(f"{self.recipe.name}: dtype", dtype), casting
        entry = self._others.get(key)
        if entry is None:
            entry = self._others[key] = type(self)(self.recipe.name, *key)
        return entry

    def _weak(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments of a call.

        Python numbers that an array's dtype may not hold are converted as in NumPy.
        """
        for value in args:
            value_type = value.__class__
            if value_type is int and not 0 <= value < 128:
                break
            if (value_type is float or value_type is complex) and not abs(value) <= _HALF_MOST:
                break
        else:
            return args
        types = [dtype_of(self.recipe.name, p.name, value) for p, value in zip(self.recipe.inputs, args, strict=False)]
        if len(types) < self.ufunc.nin or not any(isinstance(operand_type, np.dtype) for operand_type in types):
            return args
        named_types = tuple([(p.name, operand_type) for p, operand_type in zip(self.recipe.inputs, types, strict=True)])
        dtypes = _resolved(self.ufunc, named_types, self.dtype, self._casting)
        values = [converted_number(self.ufunc, value, dtype) for value, dtype in zip(args, dtypes, strict=False)]
        log = current_log()
        if log is not None and any(new is not old for new, old in zip(values, args, strict=False)):
            log.is_whole = False  # another number might need no such thing
        return (*values, *args[len(values) :])

    def _types(self, types: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        named_types = [(p.name, operand_type) for p, operand_type in zip(self.recipe.inputs, types, strict=True)]
        dtypes = resolved(self.ufunc, named_types, self.dtype, self._casting)
        if self.recipe.name.startswith("logical"):
            # Each by itself: 0.5 holds, and is no bool.
            dtypes = (*(np.dtype(operand_type) for operand_type in types), *dtypes[len(types) :])
        parameters = (*self.recipe.inputs, *self.recipe.outputs)
        return {p.type: dtype for p, dtype in zip(parameters, dtypes, strict=True)}


def _docstring(name: str, ufunc: np.ufunc) -> str:
    """Return the docstring of a function."""
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


def converted_number(ufunc: np.ufunc, value: Any, dtype: np.dtype) -> Any:
    """Return a Python number as the argument of a function that computes in `dtype`.

    A number beyond the range of floating point becomes infinite. An int beyond the range of an integer dtype
    compares as beyond all its numbers. Other functions refuse such an int when it is passed.
    """
    value_type = value.__class__
    if value_type is int and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if ufunc.__name__ not in _COMPARISONS or limits.min <= value <= limits.max:
            return value
        return np.float64(np.inf if value > 0 else -np.inf)
    if value_type not in (int, float, complex) or dtype.kind in "biu":
        return value
    try:
        wide = complex(value) if value_type is complex else float(value)
    except OverflowError:
        return value
    with np.errstate(over="ignore"):
        number = dtype.type(wide)
    return (
        value
        if np.isfinite(number) or not np.isfinite(wide)
        else number.item()
        if dtype.kind in "fc"
        else float(number)
    )


@functools.lru_cache(1024)
def _resolved(
    ufunc: np.ufunc, named_types: tuple[tuple[str, np.dtype | type], ...], dtype: np.dtype | None, casting: str
) -> tuple[np.dtype, ...]:
    return resolved(ufunc, named_types, dtype, casting)


def resolved(
    ufunc: np.ufunc,
    named_types: Sequence[tuple[str, np.dtype | type]],
    dtype: np.dtype | None = None,
    casting: Any = "same_kind",
) -> tuple[np.dtype, ...]:
    """Return the dtypes in which a function computes: of each input, then of each output.

    Parameters
    ----------
    ufunc : numpy.ufunc
        NumPy's function.
    named_types : sequence of (str, dtype or class)
        Name of each argument, and its dtype or the class of a Python number.
    dtype : dtype, optional
        Dtype of the outputs.
    casting : str
        Casts that are allowed for the inputs.

    Raises
    ------
    ArgumentError
        The function has no loop for these types, or a cast is not allowed.
    """
    operand_types = [np.dtype("?") if operand_type is bool else operand_type for _, operand_type in named_types]
    # Left out where it says nothing: ml_dtypes' loops are found without it.
    options: dict[str, Any] = {} if dtype is None else {"signature": ((None,) * ufunc.nin + (dtype,) * ufunc.nout)}
    if casting != "same_kind":
        options["casting"] = casting
    try:
        dtypes: tuple[np.dtype, ...] = ufunc.resolve_dtypes((*operand_types, *(None,) * ufunc.nout), **options)
    except TypeError as error:
        listing = ", ".join(
            f"{name} is of {operand_type if isinstance(operand_type, np.dtype) else operand_type.__name__}"
            for name, operand_type in named_types
        )
        raise ArgumentError(f"{ufunc.__name__}: {listing}: {error}") from None
    for dtype in dtypes:
        check_dtype(
            ufunc.__name__, next((name for name, operand_type in named_types if operand_type == dtype), "it"), dtype
        )
    return dtypes
