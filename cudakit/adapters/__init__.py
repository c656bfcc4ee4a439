"""Kernels of other libraries as kernels of cudakit: on the emulator with its counters, and on a GPU.

`from_cupy` accepts CuPy's kernels, `from_numba` those of Numba-CUDA, `from_triton` kernels that Triton has compiled.
PTX from any other compiler is accepted by `cudakit.Kernel.from_ptx`.
"""

from cudakit.adapters.cupy_kernels import from_cupy
from cudakit.adapters.numba_kernels import from_numba
from cudakit.adapters.triton_kernels import from_triton

__all__ = ["from_cupy", "from_numba", "from_triton"]


def __dir__() -> list[str]:
    return __all__
