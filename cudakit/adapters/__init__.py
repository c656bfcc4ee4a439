"""Kernels of other libraries as cudakit's: on the emulator with its counters, and on a GPU.

`from_cupy` takes CuPy's kernels, `from_numba` those of Numba-CUDA, `from_triton` what Triton compiled. PTX from
anywhere else is `cudakit.Kernel.from_ptx`.
"""

from cudakit.adapters.cupy_kernels import from_cupy
from cudakit.adapters.numba_kernels import from_numba
from cudakit.adapters.triton_kernels import from_triton

__all__ = ["from_cupy", "from_numba", "from_triton"]


def __dir__() -> list[str]:
    return __all__
