"""Stand-in for ``pycuda.characterize``: facts about the device and its compiler."""

from __future__ import annotations

import sys

import numpy as np

from cudakit.adapters.pycuda import gpuarray
from cudakit.adapters.pycuda.compiler import SourceModule
from cudakit.adapters.pycuda.tools import context_dependent_memoize

_SIZE = 'extern "C" __global__ void write_size(size_t *output) {{ *output = sizeof({name}); }}'


def platform_bits() -> int:
    """Return the bits of an address on the host."""
    return 64 if sys.maxsize > 2**32 else 32


def has_stack() -> bool:
    """Return whether threads have a stack: every device that CUDA 12 supports has one."""
    return True


def has_double_support() -> bool:
    """Return whether the device has double precision: every device that CUDA 12 supports has it."""
    return True


@context_dependent_memoize
def sizeof(type_name: str, preamble: str = "") -> int:
    """Return the bytes of a C++ type in device code.

    Parameters
    ----------
    type_name : str
        Type, such as ``"float3"``.
    preamble : str
        C++ that declares the type.
    """
    module = SourceModule(f"{preamble}\n{_SIZE.format(name=type_name)}", no_extern_c=True)
    output = gpuarray.empty((), np.uintp)
    module.get_function("write_size")(output, block=(1, 1, 1), grid=(1, 1))
    return int(output.get())
