"""CuPy's kernels: they hold CUDA C++, of which a kernel is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cudakit.errors import ArgumentError, shortened
from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.reduction import Reduction, reduction
from cudakit.jit.source.source import from_text
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel, Module, of_source


def from_cupy(kernel: Any) -> Kernel | Module | Elementwise | Reduction:
    """A kernel of CuPy's as cudakit's.

    Parameters
    ----------
    kernel : cupy.RawKernel, cupy.RawModule, cupy.ElementwiseKernel or cupy.ReductionKernel

    Returns
    -------
    Kernel, Module, Elementwise or Reduction
        Called as cudakit's are: ``kernel(stream, ck.config(grid, block), *arguments)``.

    Raises
    ------
    ArgumentError
        For what is none of these, and for options that mean nothing here.

    Examples
    --------
    >>> scale = ck.adapters.from_cupy(cupy.RawKernel(text, "scale"))
    >>> scale(ck.emulator.stream(), ck.config(4, 256), x, np.float32(2), x.size)
    """
    kind = type(kernel).__name__ if type(kernel).__module__.partition(".")[0] == "cupy" else ""
    if kind == "RawKernel":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Kernel.from_file(kernel.file_path, kernel.name, options=options)
        return of_source(from_text(kernel.code, 2), kernel.name, options)
    if kind == "RawModule":
        options = compile_options(kernel.options)
        if kernel.code is None:
            return Module.from_file(kernel.file_path, options=options)
        return Module(kernel.code, options=options)
    if kind == "ElementwiseKernel":
        inputs, outputs = _declared(kernel.in_params), _declared(kernel.out_params)
        return elementwise(inputs, outputs, kernel.operation, kernel.name, preamble=kernel.preamble)
    if kind == "ReductionKernel":
        return reduction(
            _declared(kernel.in_params), _declared(kernel.out_params), kernel.map_expr, kernel.reduce_expr,
            kernel.identity or None, kernel.post_map_expr, kernel.name, preamble=kernel.preamble,
        )  # fmt: skip
    raise ArgumentError(
        "from_cupy takes a RawKernel, RawModule, ElementwiseKernel or ReductionKernel of CuPy, got "
        f"{type(kernel).__name__}: {shortened(kernel)}"
    )


def _declared(parameters: Iterable[Any]) -> str:
    """Parameters as they were written."""
    return ", ".join(f"{'raw ' * each.raw}{each.ctype} {each.name}" for each in parameters)


def compile_options(given: Iterable[str]) -> CompileOptions:
    """What options of a compiler's command line mean.

    Raises
    ------
    ArgumentError
        For one that is not known here.
    """
    found: dict[str, Any] = {}
    defines: list[str | tuple[str, str]] = []
    folders: list[str] = []
    for option in given:
        name, _, value = option.lstrip("-").partition("=")
        if name == "std":
            found["std"] = value
        elif option.startswith("-D"):
            name, equals, value = option.removeprefix("-D").partition("=")
            defines.append((name, value) if equals else name)
        elif option.startswith("-I"):
            folders.append(option.removeprefix("-I"))
        elif name in ("include-path", "define-macro"):
            (folders if name == "include-path" else defines).append(value)
        elif name == "use_fast_math":
            found["fast_math"] = True
        elif name in ("maxrregcount", "lineinfo", "generate-line-info"):
            found |= {"max_registers": int(value)} if name == "maxrregcount" else {"lineinfo": True}
        else:
            raise ArgumentError(f"the compiler's option {shortened(option)} has no counterpart in CompileOptions")
    return CompileOptions(defines=defines, include_paths=folders, **found)
