"""An adapter for CuPy's kernels, which contain CUDA C++.

The stand-in for CuPy on a machine without a GPU is `cudakit.adapters.cupy`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cudakit.adapters.compiler_options import compile_options
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.reduction import Reduction, reduction
from cudakit.jit.source.source import from_text
from cudakit.kernel.kernel import Kernel, Module, of_source


def from_cupy(kernel: Any) -> Kernel | Module | Elementwise | Reduction:
    """Convert a kernel of CuPy's to cudakit's.

    Parameters
    ----------
    kernel : cupy.RawKernel, cupy.RawModule, cupy.ElementwiseKernel or cupy.ReductionKernel
        Kernel or module of CuPy.

    Returns
    -------
    Kernel, Module, Elementwise or Reduction
        The kernel, called as cudakit's are: ``kernel(stream, ck.config(grid, block), *arguments)``.

    Raises
    ------
    ArgumentError
        For another object, and for compiler options without a counterpart here.

    Examples
    --------
    >>> scale = ck.adapters.from_cupy(cupy.RawKernel(text, "scale"))
    >>> scale(ck.emulator.stream(), ck.config(4, 256), x, np.float32(2), x.size)
    """
    class_name = type(kernel).__name__ if type(kernel).__module__.partition(".")[0] == "cupy" else ""
    if class_name == "RawKernel":
        options = compile_options(kernel.options)[0]
        if kernel.code is None:
            return Kernel.from_file(kernel.file_path, kernel.name, options=options)
        return of_source(from_text(kernel.code, 2), kernel.name, options)
    if class_name == "RawModule":
        options = compile_options(kernel.options)[0]
        if kernel.code is None:
            return Module.from_file(kernel.file_path, options=options)
        return Module(kernel.code, options=options)
    if class_name == "ElementwiseKernel":
        inputs, outputs = _declared(kernel.in_params), _declared(kernel.out_params)
        return elementwise(inputs, outputs, kernel.operation, kernel.name, preamble=kernel.preamble)
    if class_name == "ReductionKernel":
        return reduction(
            _declared(kernel.in_params), _declared(kernel.out_params), kernel.map_expr, kernel.reduce_expr,
            kernel.identity or None, kernel.post_map_expr, kernel.name, preamble=kernel.preamble,
        )  # fmt: skip
    raise ArgumentError(
        "from_cupy takes a RawKernel, RawModule, ElementwiseKernel or ReductionKernel of CuPy, got "
        f"{type(kernel).__name__}: {shortened(kernel)}"
    )


def _declared(parameters: Iterable[Any]) -> str:
    """Return the declaration of parameters as CuPy writes it: ``raw float x, int n``."""
    return ", ".join(f"{'raw ' * parameter.raw}{parameter.ctype} {parameter.name}" for parameter in parameters)
