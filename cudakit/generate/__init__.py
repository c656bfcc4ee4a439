"""Kernels from expressions: elementwise, reduction, scan and stencil generators, and traced Python functions."""

from cudakit.generate.elementwise import Elementwise, elementwise
from cudakit.generate.fuse import Fused, fuse
from cudakit.generate.reduction import Reduction, reduction
from cudakit.generate.scan import Scan, scan
from cudakit.generate.stencil import Stencil, stencil

__all__ = [
    "Elementwise",
    "Fused",
    "Reduction",
    "Scan",
    "Stencil",
    "elementwise",
    "fuse",
    "reduction",
    "scan",
    "stencil",
]


def __dir__() -> list[str]:
    return __all__
