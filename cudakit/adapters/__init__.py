"""Kernels and programs of other libraries, on a GPU and on the emulator.

`run` runs a program of PyCUDA, CuPy, cuda.core, Numba-CUDA or Triton as it stands, and `pycuda.install` puts cudakit's
modules in PyCUDA's place. Kernels of these libraries become kernels of cudakit, with its counters and checks:
`from_cupy` accepts CuPy's kernels, `from_numba` those of Numba-CUDA, `from_triton` kernels that Triton has compiled.
PTX from any other compiler is accepted by `cudakit.Kernel.from_ptx`.
"""

from cudakit.adapters import pycuda
from cudakit.adapters.cupy_kernels import from_cupy
from cudakit.adapters.numba_kernels import from_numba
from cudakit.adapters.program import run
from cudakit.adapters.triton_kernels import from_triton

__all__ = ["from_cupy", "from_numba", "from_triton", "pycuda", "run"]


def __dir__() -> list[str]:
    return __all__
