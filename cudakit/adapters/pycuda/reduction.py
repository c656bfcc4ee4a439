"""Stand-in for ``pycuda.reduction``: ``ck.reduction`` of contiguous arrays, with the arguments of PyCUDA."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from cudakit.adapters.compiler_options import compile_options
from cudakit.adapters.pycuda import gpuarray
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.allocations import array_at
from cudakit.adapters.pycuda.c_types import (
    ScalarArg,
    VectorArg,
    complex_header,
    dtype_to_ctype,
    generated_type,
    parse_c_arg,
)
from cudakit.adapters.pycuda.elementwise import checked
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import stream_of
from cudakit.adapters.pycuda.tools import context_dependent_memoize
from cudakit.errors import ArgumentError
from cudakit.generate.reduction import reduction
from cudakit.jit.launch.tracebacks import raised_from_call


class ReductionKernel:
    """A kernel that combines an expression of all elements ``i`` of its first array into one element.

    The elements are combined in an order that depends on their number only. Arrays are read, never written.

    Parameters
    ----------
    dtype_out : dtype
        Dtype of the result, in which elements are combined.
    neutral : str or number
        C expression of the value that changes nothing when combined.
    reduce_expr : str
        C expression that combines ``a`` and ``b``; associative and commutative.
    map_expr : str, optional
        C expression of the arrays, ``i`` and ``n``. Default: ``in[i]``.
    arguments : str
        C declarations, such as ``"float *x, float *y"``.
    name : str
        Name of the kernel.
    keep : bool
        No effect.
    options : sequence of str, optional
        Options of the compiler.
    preamble : str
        C++ before the kernel.
    """

    arguments: list[VectorArg | ScalarArg]

    def __init__(
        self,
        dtype_out: Any,
        neutral: Any,
        reduce_expr: str,
        map_expr: str | None = None,
        arguments: str | None = None,
        name: str = "reduce_kernel",
        keep: bool = False,
        options: Any = None,
        preamble: str = "",
    ) -> None:
        self.dtype_out: np.dtype[Any] = np.dtype(dtype_out)
        self.name: str = name
        self.arguments = [parse_c_arg(declaration) for declaration in (arguments or "").split(",") if declaration]
        if not any(isinstance(argument, VectorArg) for argument in self.arguments):
            raise ArgumentError(f"{name}: expected an array among the arguments, as in 'float *x'; got {arguments!r}")
        map_expr = "in[i]" if map_expr is None else map_expr
        names = {argument.name: argument.name for argument in self.arguments}
        # The name of an argument of a Python function is no keyword, as PyCUDA's own `in` is.
        names.update({name: f"array_{name}" for name in names if keyword.iskeyword(name)})
        for word, other in names.items():
            map_expr = re.sub(rf"\b{word}\b", other, map_expr) if word != other else map_expr
        declared = [
            f"{generated_type(argument.dtype)}{'*' * isinstance(argument, VectorArg)} {names[argument.name]}"
            for argument in self.arguments
        ]
        self._takes_size = "n" not in names and re.search(r"\bn\b", map_expr) is not None
        if self._takes_size:
            map_expr = re.sub(r"\bn\b", "element_count", map_expr)
            declared.append("uint64 element_count")
        result = generated_type(dtype_out)
        header = complex_header(*declared, result, map_expr, reduce_expr, str(neutral), preamble, str(options))
        self._reduce = reduction(
            ", ".join(declared), f"{result} combined", map_expr, reduce_expr, str(neutral), name=name, acc=result,
            preamble=header + preamble, options=compile_options(options or ())[0],
        )  # fmt: skip

    @raised_from_call
    def __call__(self, *args: Any, stream: Any = None, out: Any = None, allocator: Any = None) -> gpuarray.GPUArray:
        """Return the combined element as an array of no dimensions.

        Parameters
        ----------
        *args : GPUArray or number
            Arguments of the kernel. Arrays are contiguous.
        stream : Stream, optional
            Stream to run on. Default: the default stream.
        out : GPUArray, optional
            Array for the result, of one element.
        allocator : callable, optional
            Function that allocates the result. Default: the allocator of the first array.

        Raises
        ------
        ArgumentError
            An argument or `out` does not fit.
        RuntimeError
            An array is not contiguous.
        """
        values, first = checked(self.name, self.arguments, args)
        if out is None:
            out = gpuarray.empty((), self.dtype_out, allocator=allocator or first.allocator)
        elif out.dtype != self.dtype_out or out.size != 1:
            raise ArgumentError(
                f"{self.name}: out: expected one element of {self.dtype_out}, got {out.size} of {out.dtype}"
            )
        operands = [
            array_at(value, (value.size,), argument.dtype) if isinstance(argument, VectorArg) else value
            for argument, value in zip(self.arguments, values, strict=True)
        ]
        operands += [first.size] * self._takes_size
        with translated():
            self._reduce(*operands, size=first.size, out=array_at(out, (), self.dtype_out), stream=stream_of(stream))
        result: gpuarray.GPUArray = out
        return result


def _combined(
    out: Any, arrays: dict[str, Any], neutral: str, reduce_expr: str, map_expr: str, name: str
) -> ReductionKernel:
    """Return a kernel of arrays of dtypes, by name. `out` None: the dtype of the first after the table."""
    declared = ", ".join(f"const {dtype_to_ctype(dtype)} *{array}" for array, dtype in arrays.items())
    default = next(dtype for array, dtype in arrays.items() if array != "lookup_tbl")
    return ReductionKernel(default if out is None else out, neutral, reduce_expr, map_expr, declared, name=name)


@context_dependent_memoize
def get_sum_kernel(dtype_out: Any, dtype_in: Any) -> ReductionKernel:
    """Return the kernel that adds the elements of an array. `dtype_out` None: in the array's dtype."""
    return _combined(dtype_out, {"in": dtype_in}, "0", "a + b", "in[i]", "sum")


@context_dependent_memoize
def get_any_kernel(dtype_out: Any, dtype_in: Any) -> ReductionKernel:
    """Return the kernel that says whether an element of an array is not 0. `dtype_out` None: in the array's dtype."""
    return _combined(dtype_out, {"in": dtype_in}, "0", "a != 0 || b != 0", "in[i] != 0", "any")


@context_dependent_memoize
def get_all_kernel(dtype_out: Any, dtype_in: Any) -> ReductionKernel:
    """Return the kernel that says whether no element of an array is 0. `dtype_out` None: in the array's dtype."""
    return _combined(dtype_out, {"in": dtype_in}, "1", "a != 0 && b != 0", "in[i] != 0", "all")


@context_dependent_memoize
def get_subset_sum_kernel(dtype_out: Any, dtype_subset: Any, dtype_in: Any) -> ReductionKernel:
    """Return the kernel that adds the elements of an array that a table of indices selects; the table comes first."""
    arrays = {"lookup_tbl": dtype_subset, "in": dtype_in}
    return _combined(dtype_out, arrays, "0", "a + b", "in[lookup_tbl[i]]", "subset_sum")


@context_dependent_memoize
def get_dot_kernel(dtype_out: Any, dtype_a: Any, dtype_b: Any) -> ReductionKernel:
    """Return the kernel that adds the products of two arrays' elements. `dtype_out` None: in the first one's dtype."""
    return _combined(dtype_out, {"x": dtype_a, "y": dtype_b}, "0", "a + b", "x[i] * y[i]", "dot")


@context_dependent_memoize
def get_subset_dot_kernel(
    dtype_out: Any, dtype_subset: Any, dtype_a: Any = None, dtype_b: Any = None
) -> ReductionKernel:
    """Return the kernel that adds products of the elements that a table of indices selects; the table comes first."""
    a = dtype_out if dtype_a is None else dtype_a
    arrays = {"lookup_tbl": dtype_subset, "x": a, "y": a if dtype_b is None else dtype_b}
    return _combined(dtype_out, arrays, "0", "a + b", "x[lookup_tbl[i]] * y[lookup_tbl[i]]", "subset_dot")


def get_minmax_neutral(extreme: str, dtype: Any) -> str:
    """Return the C expression that changes nothing in the least (``"min"``) or greatest (``"max"``) element.

    Raises
    ------
    ValueError
        For another text.
    """
    dtype = np.dtype(dtype)
    if extreme not in ("min", "max"):
        raise ValueError(f"get_minmax_neutral: expected 'min' or 'max', got {extreme!r}")
    if dtype.kind in "fc":
        return "MY_INFINITY" if extreme == "min" else "-MY_INFINITY"
    limits = np.iinfo(dtype)
    least = f"(-{limits.max}LL - 1)" if dtype.kind == "i" else "0"
    return f"{limits.max}{'ULL' if dtype.kind == 'u' else 'LL'}" if extreme == "min" else least


def _minmax(extreme: str, dtype: Any, index: Any = None) -> ReductionKernel:
    dtype = np.dtype(dtype)
    if dtype.kind not in "iuf":
        raise TypeError(f"the {extreme} of {dtype} has no kernel: expected integers or floating point")
    function = extreme if dtype.kind in "iu" else f"f{extreme}" + "f" * (dtype != np.float64)
    table = "" if index is None else f"const {dtype_to_ctype(index)} *lookup_tbl, "
    return ReductionKernel(
        dtype,
        get_minmax_neutral(extreme, dtype),
        f"{function}(a, b)",
        "in[i]" if index is None else "in[lookup_tbl[i]]",
        f"{table}const {dtype_to_ctype(dtype)} *in",
        name=extreme,
        preamble="#define MY_INFINITY (1. / 0)",
    )


@context_dependent_memoize
def get_minmax_kernel(extreme: str, dtype: Any) -> ReductionKernel:
    """Return the kernel of the least (``"min"``) or greatest (``"max"``) element of an array."""
    return _minmax(extreme, dtype)


@context_dependent_memoize
def get_subset_minmax_kernel(extreme: str, dtype: Any, dtype_subset: Any) -> ReductionKernel:
    """Return the kernel of the least or greatest element that a table of indices selects; the table comes first."""
    return _minmax(extreme, dtype, dtype_subset)


#: Names of PyCUDA that are not here, and what to use.
ABSENT = {
    "get_reduction_module": "ReductionKernel is the whole of it",
    "get_reduction_kernel_and_types": "ReductionKernel is the whole of it",
}
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)
