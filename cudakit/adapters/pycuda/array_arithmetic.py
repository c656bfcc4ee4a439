"""Arithmetic of GPUArrays: CuPy's on a GPU, NumPy's on the emulator, with PyCUDA's dtypes and refusals."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

import numpy as np

from cudakit.adapters.pycuda.array_layout import ArrayFlags
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import stream_of
from cudakit.errors import ArgumentError, shortened
from cudakit.places import using

#: A GPUArray that takes a result.
Out = TypeVar("Out", bound="Arithmetic")


class LayoutError(ArgumentError, RuntimeError):
    """An array is not contiguous, or arrays of one operation differ in memory order. Also a `RuntimeError`."""


@contextlib.contextmanager
def work_on(stream: Any) -> Iterator[Any]:
    """Yield CuPy, or NumPy on the emulator, for work on a stream of PyCUDA's; None is the default stream.

    NumPy does not warn of infinities and NaNs inside the block, as no GPU does.
    """
    with translated(), using(stream_of(stream)) as xp, np.errstate(all="ignore"):
        yield xp


def common_dtype(*operands: Any) -> np.dtype:
    """Return the dtype of a result by NumPy's rules; an operand is an array or a number."""
    return np.result_type(*(getattr(operand, "dtype", operand) for operand in operands))


def scalar_of(operation: str, value: Any, dtype: np.dtype) -> Any:
    """Return a number as a NumPy scalar of `dtype`.

    Raises
    ------
    ArgumentError
        The dtype is of integers and the number is none, or it is real and the number is complex.
    """
    if dtype.kind == "V":
        return np.asarray(value, dtype)[()]
    number = value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
    fits = {"i": int, "u": int, "b": int, "f": int | float, "c": int | float | complex}.get(dtype.kind, object)
    if not isinstance(number, fits):
        raise ArgumentError(
            f"{operation}: a value for {dtype} is expected, got {type(value).__name__} {shortened(value)}; "
            f"convert the array with astype, or the value with np.{dtype.name}"
        )
    return dtype.type(number)


def check_contiguous(operation: str, *arrays: Any) -> None:
    """Refuse arrays that PyCUDA's kernels cannot take: they pair elements by their position in memory.

    Raises
    ------
    LayoutError
        An array has gaps, or one is in C order and another in Fortran order.
    """
    for array in arrays:
        if not array.flags.forc:
            raise LayoutError(
                f"{operation}: only contiguous arrays may be used, got shape {array.shape} with strides "
                f"{array.strides}; call gpuarray.to_gpu(x.get()) for a contiguous copy"
            )
    if all(array.flags.c_contiguous for array in arrays):
        return
    if not any(all(getattr(array.flags, order) for array in arrays) for order in ("c_contiguous", "f_contiguous")):
        strides = ", ".join(str(array.strides) for array in arrays)
        raise LayoutError(
            f"{operation}: the arrays have different memory orders (strides {strides}), and PyCUDA would pair elements "
            'by their position in memory; copy one: gpuarray.to_gpu(np.asarray(x.get(), order="C"))'
        )


def calculate(operation: str, function: str | Callable[..., Any], operands: Any, out: Out, stream: Any = None) -> Out:
    """Store a function of operands in the GPUArray `out` and return it. The result is converted as in C.

    Parameters
    ----------
    operation : str
        Name of the operation, for messages.
    function : str or callable
        Name of a universal function, or a function of the array module and the operands.
    operands : sequence of GPUArray or scalar
        Operands; each GPUArray is contiguous, and has the shape of `out` or no axis.

    Raises
    ------
    ArgumentError
        An operand does not fit `out`.
    """
    arrays = [operand for operand in (*operands, out) if isinstance(operand, Arithmetic)]
    check_contiguous(operation, *(array for array in arrays if array.shape or not array.size))
    for array in arrays[:-1]:
        if array.shape not in ((), out.shape):
            raise ArgumentError(f"{operation}: an operand has the shape {array.shape}, and the result {out.shape}")
    with work_on(stream) as xp:
        values = [operand.device_array() if isinstance(operand, Arithmetic) else operand for operand in operands]
        if isinstance(function, str):
            if function not in _TRUTHS and out.dtype.kind != "c":
                _check_real(operation, common_dtype(*values), out)
            getattr(xp, function)(*values, out=out.device_array(), casting="unsafe")
        else:
            store(operation, xp, function(xp, *values), out)
    return out


def _check_real(operation: str, dtype: np.dtype, out: Any) -> None:
    """Refuse a complex result for a real array."""
    if dtype.kind == "c" and out.dtype.kind != "c":
        raise ArgumentError(f"{operation}: the result is {dtype}, and its array {out.dtype}: take .real or abs")


def store(operation: str, xp: Any, result: Any, out: Any) -> None:
    """Copy a device array into the GPUArray `out`, converted as in C.

    Raises
    ------
    ArgumentError
        The result is complex and `out` is real.
    """
    _check_real(operation, result.dtype, out)
    target = out.device_array()
    if target.shape != result.shape:
        result = xp.broadcast_to(result, target.shape)
    target[...] = result.astype(target.dtype, copy=False)


def _quotient(xp: Any, left: Any, right: Any) -> Any:
    """Return the quotient of integers, an integer, rounded toward zero as in C."""
    floor = xp.floor_divide(left, right)
    return floor + ((floor * right != left) & ((right < 0) != (left < 0)))


def _power(xp: Any, left: Any, right: Any) -> Any:
    """Return the power of integers, in double precision as in C."""
    return xp.power(left, right.astype(np.float64))


_FUNCTIONS: dict[str, str | Callable[..., Any]] = {
    "+": "add", "-": "subtract", "*": "multiply", "/": _quotient, "**": _power,
    "==": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
}  # fmt: skip
#: Functions of operands that are no integers.
_OF_FLOATS = {"/": "true_divide", "**": "power"}
#: Functions whose results are truth values, of complex operands too.
_TRUTHS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
#: Numbers beside which an operation returns a copy of the array, with the array's dtype.
_NEUTRAL = {"+": 0, "-": 0, "/": 1}


def _function_of(symbol: str, *operands: Any) -> str | Callable[..., Any]:
    """Return the function of a symbol for operands. NumPy's function writes to the result without a copy."""
    if symbol in _OF_FLOATS and common_dtype(*operands).kind not in "iub":
        return _OF_FLOATS[symbol]
    return _FUNCTIONS[symbol]


def larger_of(symbol: str, left: Any, right: Any) -> Any:
    """Return the operand that has the shape of the result.

    Raises
    ------
    NotImplementedError
        The shapes differ, and neither is ``()``.
    """
    if left.shape == right.shape or right.shape == ():
        return left
    if left.shape == ():
        return right
    raise NotImplementedError(f"GPUArray {symbol} GPUArray: the shapes {left.shape} and {right.shape} differ")


_Operator: TypeAlias = Callable[["Arithmetic", Any], Any]


def _binary(symbol: str) -> _Operator:
    """Return the method of ``array ∘ other``."""

    def method(self: Arithmetic, other: Any) -> Any:
        if isinstance(other, Arithmetic):
            out = larger_of(symbol, self, other).new_like_me(common_dtype(self, other))
        elif not np.isscalar(other):
            return _unless_host(symbol, other)
        elif symbol in _NEUTRAL and other == _NEUTRAL[symbol]:
            return self.copy()
        else:
            out = self.new_like_me(common_dtype(self, other))
            _refuse_integer_quotient(symbol, out, other)
            other = scalar_of(f"GPUArray {symbol} number", other, out.dtype)
        return calculate(
            f"GPUArray {symbol} {type(other).__name__}", _function_of(symbol, self, other), (self, other), out
        )

    return method


def _reflected(symbol: str) -> _Operator:
    """Return the method of ``number ∘ array``."""

    def method(self: Arithmetic, other: Any) -> Any:
        if not np.isscalar(other):
            return _unless_host(symbol, other)
        out = self.new_like_me(common_dtype(self, other))
        number = scalar_of(f"number {symbol} GPUArray", other, out.dtype)
        return calculate(
            f"{type(other).__name__} {symbol} GPUArray", _function_of(symbol, number, self), (number, self), out
        )

    return method


def _unless_host(symbol: str, other: Any) -> Any:
    """Return NotImplemented, so that Python asks the other operand.

    Raises
    ------
    ArgumentError
        If that is an array in host memory.
    """
    if isinstance(other, np.ndarray | list | tuple):
        raise ArgumentError(
            f"GPUArray {symbol} {type(other).__name__}: the other operand is in host memory; give gpuarray.to_gpu(a)"
        )
    return NotImplemented


def _in_place(symbol: str) -> _Operator:
    """Return the method of ``array ∘= other``; the array keeps its dtype."""

    def method(self: Arithmetic, other: Any) -> Arithmetic:
        if not isinstance(other, Arithmetic):
            if symbol == "/" and np.isscalar(other) and other == _NEUTRAL[symbol]:
                return self
            _refuse_integer_quotient(symbol, self, other)
            other = scalar_of(f"GPUArray {symbol}= number", other, self.dtype)
        calculate(f"GPUArray {symbol}= {type(other).__name__}", _function_of(symbol, self, other), (self, other), self)
        return self

    return method


def _refuse_integer_quotient(symbol: str, out: Arithmetic, other: Any) -> None:
    if symbol == "/" and out.dtype.kind in "iub":
        raise ArgumentError(
            f"GPUArray / {type(other).__name__}: PyCUDA cannot divide {out.dtype} by a number; convert the array: "
            "x.astype(np.float32) / n, or divide by another array of integers"
        )


def _comparison(symbol: str) -> _Operator:
    """Return the method of a comparison, whose result has elements 0 and 1 of the operands' dtype."""

    def method(self: Arithmetic, other: Any) -> Arithmetic:
        out: Arithmetic
        if isinstance(other, Arithmetic):
            out = larger_of(symbol, self, other).new_like_me(common_dtype(self, other))
        elif np.isscalar(other):
            out = self.new_like_me()
        else:
            raise ArgumentError(
                f"GPUArray {symbol} {type(other).__name__}: an array is compared with a GPUArray or a number"
            )
        return calculate(f"GPUArray {symbol} {type(other).__name__}", _FUNCTIONS[symbol], (self, other), out)

    return method


class Arithmetic:
    """The operators of a GPUArray, and what they need of it.

    Attributes
    ----------
    shape, strides : tuple of int
        Shape, and strides in bytes.
    dtype : dtype
        Dtype of the elements.
    size : int
        Number of elements.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    size: int

    @functools.cached_property
    def flags(self) -> ArrayFlags:
        """Memory order: ``c_contiguous``, ``f_contiguous``, ``forc``."""
        return ArrayFlags(self.shape, self.strides, self.dtype.itemsize)

    def device_array(self) -> Any:
        """Return the elements as an array of CuPy or NumPy."""
        raise NotImplementedError

    def new_like_me(self, dtype: Any = None) -> Self:
        """Return a new array with this shape and memory order."""
        raise NotImplementedError

    def copy(self) -> Self:
        """Return a copy."""
        raise NotImplementedError

    def fill(self, value: Any, stream: Any = None) -> Self:
        """Set all elements to a number."""
        raise NotImplementedError

    def mul_add(
        self,
        selffac: Any,
        other: Arithmetic,
        otherfac: Any,
        add_timer: Any = None,
        stream: Any = None,
        out: Self | None = None,
    ) -> Self:
        """Return ``selffac * self + otherfac * other``; `add_timer` is not supported."""
        if add_timer is not None:
            raise ArgumentError("mul_add: add_timer is not supported; record events before and after the call")
        if out is None:
            out = larger_of("mul_add", self, other).new_like_me(common_dtype(self, other))
        factors = scalar_of("mul_add", selffac, self.dtype), scalar_of("mul_add", otherfac, other.dtype)

        def combine(xp: Any, left: Any, right: Any) -> Any:
            return xp.multiply(left, factors[0]) + xp.multiply(right, factors[1])

        return calculate("mul_add", combine, (self, other), out, stream)

    __add__: ClassVar[_Operator] = _binary("+")
    __radd__: ClassVar[_Operator] = _binary("+")
    __iadd__: ClassVar[_Operator] = _in_place("+")
    __sub__: ClassVar[_Operator] = _binary("-")
    __rsub__: ClassVar[_Operator] = _reflected("-")
    __isub__: ClassVar[_Operator] = _in_place("-")
    __mul__: ClassVar[_Operator] = _binary("*")
    __rmul__: ClassVar[_Operator] = _reflected("*")
    __imul__: ClassVar[_Operator] = _in_place("*")
    __pow__: ClassVar[_Operator] = _binary("**")
    __rpow__: ClassVar[_Operator] = _reflected("**")
    __ipow__: ClassVar[_Operator] = _in_place("**")
    __truediv__: ClassVar[_Operator] = _binary("/")
    __rtruediv__: ClassVar[_Operator] = _reflected("/")
    __itruediv__: ClassVar[_Operator] = _in_place("/")
    __div__ = __truediv__
    __rdiv__ = __rtruediv__
    __idiv__ = __itruediv__
    __eq__: ClassVar[_Operator] = _comparison("==")
    __ne__: ClassVar[_Operator] = _comparison("!=")
    __lt__: ClassVar[_Operator] = _comparison("<")
    __le__: ClassVar[_Operator] = _comparison("<=")
    __gt__: ClassVar[_Operator] = _comparison(">")
    __ge__: ClassVar[_Operator] = _comparison(">=")

    def __pos__(self) -> Self:
        return self

    def __neg__(self) -> Self:
        return calculate("-GPUArray", "negative", (self,), self.new_like_me())

    def __abs__(self) -> Self:
        return calculate("abs", lambda xp, array: xp.abs(array), (self,), self.new_like_me(self._real_dtype()))

    def _real_dtype(self) -> np.dtype:
        """Return the dtype of the real parts."""
        return np.zeros((), self.dtype).real.dtype

    @property
    def real(self) -> Self:
        """Real parts, in new memory if the array is complex."""
        if self.dtype.kind != "c":
            return self
        return calculate("real", lambda xp, array: array.real, (self,), self.new_like_me(self._real_dtype()))

    @property
    def imag(self) -> Self:
        """Imaginary parts, in new memory."""
        if self.dtype.kind != "c":
            return self.new_like_me().fill(0)
        return calculate("imag", lambda xp, array: array.imag, (self,), self.new_like_me(self._real_dtype()))

    def conj(self, out: Self | None = None) -> Self:
        """Return the conjugates of complex elements, in new memory or in `out`."""
        if self.dtype.kind != "c":
            return self
        return calculate("conj", "conj", (self,), self.new_like_me() if out is None else out)

    conjugate = conj
