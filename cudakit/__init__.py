"""Write a CUDA C++ template once; call it from Python with any dtype, on any stream, at the driver's launch cost."""

from importlib.metadata import PackageNotFoundError as _PackageNotFoundError
from importlib.metadata import version as _version

from cudakit.config import Config, Cover, config, cover
from cudakit.devices import has_gpu
from cudakit.errors import (
    ArgumentError,
    CacheWarning,
    CompileError,
    CudakitError,
    EmulationError,
    LaunchError,
    TemplateError,
)
from cudakit.kernel import Kernel, Plan
from cudakit.options import CompileOptions
from cudakit.prewarm import prewarm
from cudakit.streams import stream, using

try:
    __version__ = _version("cudakit")
except _PackageNotFoundError:
    __version__ = "0+unknown"

__all__ = [
    "ArgumentError",
    "CacheWarning",
    "CompileError",
    "CompileOptions",
    "Config",
    "Cover",
    "CudakitError",
    "EmulationError",
    "Kernel",
    "LaunchError",
    "Plan",
    "TemplateError",
    "config",
    "cover",
    "errors",
    "has_gpu",
    "prewarm",
    "stream",
    "using",
]
