"""Kernels from expressions: elementwise, reduction and scan generators, and traced Python functions."""

from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.fuse import Fused, fuse
from cudakit.generate.reduction import Reduction, reduction
from cudakit.generate.scan import Scan, scan

__all__ = ["Elementwise", "Fused", "Reduction", "Scan", "elementwise", "fuse", "reduction", "scan"]


def __dir__() -> list[str]:
    return __all__
