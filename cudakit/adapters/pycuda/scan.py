"""Stand-in for ``pycuda.scan``: ``ck.scan`` of contiguous arrays, with the arguments of PyCUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import numpy as np

from cudakit.adapters.compiler_options import compile_options
from cudakit.adapters.pycuda import gpuarray
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.allocations import array_at
from cudakit.adapters.pycuda.c_types import complex_header, generated_type
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.streams import stream_of
from cudakit.errors import ArgumentError
from cudakit.generate.scan import scan
from cudakit.jit.launch.tracebacks import raised_from_call


class _ScanKernel:
    """A kernel that combines all elements up to one.

    Parameters
    ----------
    dtype : dtype
        Dtype of the arrays.
    scan_expr : str
        C expression that combines ``a`` with ``b``, which comes after ``a``; associative.
    neutral : str or number, optional
        C expression of the value that changes nothing when combined.
    name_prefix : str
        Name of the kernel.
    options : sequence of str, optional
        Options of the compiler.
    preamble : str
        C++ before the kernel.
    devices : object, optional
        No effect.
    """

    _output: ClassVar[str]
    _needs_neutral = False

    def __init__(
        self,
        dtype: Any,
        scan_expr: str,
        neutral: Any = None,
        name_prefix: str = "scan",
        options: Any = None,
        preamble: str = "",
        devices: Any = None,
    ) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.neutral: Any = neutral
        self.name: str = name_prefix
        if neutral is None and self._needs_neutral:
            raise ValueError(f"{name_prefix}: an exclusive scan needs neutral=, as neutral=0 for a sum")
        c_type = generated_type(dtype)
        header = complex_header(c_type, scan_expr, str(neutral), preamble, str(options))
        self._scan = scan(
            f"{c_type} x", f"{c_type} y", "x", scan_expr, None if neutral is None else str(neutral), self._output,
            name_prefix, acc=c_type, preamble=header + preamble,
            options=compile_options(options or ())[0],
        )  # fmt: skip

    @raised_from_call
    def __call__(
        self, input_ary: gpuarray.GPUArray, output_ary: Any = None, allocator: Any = None, stream: Any = None
    ) -> gpuarray.GPUArray:
        """Return the array of combined elements.

        Parameters
        ----------
        input_ary : GPUArray
            Array of one dimension, contiguous.
        output_ary : GPUArray or "new", optional
            Array for the result. Default: `input_ary`.
        allocator : callable, optional
            Function that allocates a new result. Default: the allocator of `input_ary`.
        stream : Stream, optional
            Stream to run on. Default: the default stream.

        Raises
        ------
        ArgumentError
            An array has another dtype or shape.
        RuntimeError
            An array is not contiguous.
        """
        if isinstance(output_ary, str) and output_ary == "new":
            output_ary = gpuarray.empty(input_ary.shape, self.dtype, allocator=allocator or input_ary.allocator)
        output_ary = input_ary if output_ary is None else output_ary
        for role, array in (("input_ary", input_ary), ("output_ary", output_ary)):
            if array.ndim != 1 or not _fits(array.dtype, self.dtype) or array.shape != input_ary.shape:
                raise ArgumentError(
                    f"{self.name}: {role}: expected {self.dtype} of shape {input_ary.shape}, of one dimension; got "
                    f"{array.dtype} of shape {array.shape}"
                )
            if not array.flags.forc:
                raise RuntimeError(f"{self.name}: {role}: the array is not contiguous; use x.copy()")
        x, y = (array_at(array, array.shape, self.dtype) for array in (input_ary, output_ary))
        with translated():
            self._scan(x, out=y, stream=stream_of(stream))
        result: gpuarray.GPUArray = output_ary
        return result


def _fits(dtype: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Return whether a kernel can take elements of a dtype: integers of one size may differ in sign."""
    return dtype == expected or (dtype.kind + expected.kind in ("iu", "ui") and dtype.itemsize == expected.itemsize)


class InclusiveScanKernel(_ScanKernel):
    """A kernel that combines all elements up to and with element i: ``"a + b"`` gives running sums."""

    _output = "y = item"


class ExclusiveScanKernel(_ScanKernel):
    """A kernel that combines all elements before element i; the first result is the neutral element."""

    _output = "y = prev_item"
    _needs_neutral = True


#: Names of PyCUDA that are not here, and what to use.
ABSENT = dict.fromkeys(
    ("SHARED_PREAMBLE", "SCAN_INTERVALS_SOURCE", "INCLUSIVE_UPDATE_SOURCE", "EXCLUSIVE_UPDATE_SOURCE"),
    "cudakit generates its own kernels",
)
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)
