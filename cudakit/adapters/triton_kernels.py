"""Kernels that Triton compiled: their PTX, and what Triton launches it with."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.errors import ArgumentError
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.types.cpp import Pointer


class TritonKernel:
    """What Triton compiled of a kernel, called with its grid.

    Attributes
    ----------
    kernel : Kernel
    threads : int
        Of a block: 32 for each of Triton's warps.
    shared_bytes : int
    """

    def __init__(self, kernel: Kernel, threads: int, shared_bytes: int) -> None:
        self.kernel, self.threads, self.shared_bytes = kernel, threads, shared_bytes
        self._pointers = [isinstance(each.type, Pointer) for each in kernel.signature.parameters or ()]

    def __repr__(self) -> str:
        return f"<TritonKernel {self.kernel.name}, {self.threads} threads>"

    def __call__(self, stream: Any, grid: int | tuple[int, ...], *arguments: Any) -> None:
        """Launch it.

        Parameters
        ----------
        stream : stream
        grid : int or tuple of int
            Programs.
        *arguments : array or NumPy scalar
            Those of the kernel that are no constants, of exactly the types that Triton compiled it for.
        """
        # Newer Tritons add pointers to scratch memory of their own, which kernels that need none leave alone.
        scratch = [None if pointer else np.uint64(0) for pointer in self._pointers[len(arguments) :]]
        launch = config(grid, self.threads, shared_bytes=self.shared_bytes)
        self.kernel(stream, launch, *arguments, *scratch)


def from_triton(compiled: Any) -> TritonKernel:
    """A kernel that Triton compiled, as cudakit's.

    Parameters
    ----------
    compiled : triton.compiler.CompiledKernel
        Of ``triton.compile``, with ``GPUTarget("cuda", 90, 32)`` where there is no GPU; or what a launch gave.

    Returns
    -------
    TritonKernel
        Called as ``kernel(stream, grid, *arguments)``.

    Raises
    ------
    ArgumentError
        For what holds no PTX.
    """
    text = getattr(compiled, "asm", {}).get("ptx")
    if text is None:
        raise ArgumentError(f"from_triton takes what triton.compile gives for CUDA, got {type(compiled).__name__}")
    metadata = compiled.metadata
    kernel = Kernel.from_ptx(text, metadata.name)
    if getattr(metadata, "global_scratch_size", 0):
        raise ArgumentError(f"{metadata.name} needs scratch memory of Triton's own, which only Triton gives it")
    return TritonKernel(kernel, 32 * metadata.num_warps, metadata.shared)
