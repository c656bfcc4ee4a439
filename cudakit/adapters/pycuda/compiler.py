"""PyCUDA's compiler module: kernels from CUDA C++ source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cudakit.adapters.cupy_kernels import compile_options
from cudakit.adapters.pycuda.errors import translated
from cudakit.adapters.pycuda.functions import Function, Module
from cudakit.jit.source.source import from_text
from cudakit.kernel.kernel import module_of_source


class SourceModule:
    """A module of CUDA C++ source.

    Parameters
    ----------
    source : str
        CUDA C++ source.
    options : list of str
        Options of nvcc.
    no_extern_c : bool
        Whether the source's names are C++'s; they are found either way.
    arch : str, optional
        Arch to compile for. Default: the device's.
    include_dirs : list of str
        Folders of headers.
    nvcc, keep, code, cache_dir : optional
        Accepted: NVRTC compiles, and cudakit's cache keeps the code.
    """

    def __init__(
        self,
        source: str,
        nvcc: str = "nvcc",
        options: Iterable[str] | None = None,
        keep: bool = False,
        no_extern_c: bool = False,
        arch: str | None = None,
        code: str | None = None,
        cache_dir: Any = None,
        include_dirs: Iterable[str] = (),
    ) -> None:
        with translated():
            flags = [*(options or ()), *(f"-I{folder}" for folder in include_dirs or ())]
            self.module = Module(module_of_source(from_text(source, depth=2), compile_options(flags)))

    def get_function(self, name: str) -> Function:
        """Return the kernel with this name."""
        return self.module.get_function(name)
