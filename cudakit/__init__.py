"""Write a CUDA C++ template once; call it from Python with any dtype, on any stream, at the driver's launch cost."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cudakit.config import Config, Cover, config, cover
from cudakit.devices import has_gpu
from cudakit.errors import (
    ArgumentError,
    CacheWarning,
    CompileError,
    CudakitError,
    EmulationError,
    EmulatorWarning,
    LaunchError,
    TemplateError,
)
from cudakit.kernel import Kernel, Plan
from cudakit.options import CompileOptions
from cudakit.streams import stream, using
from cudakit.tensormaps import tensor_map
from cudakit.textures import texture

if TYPE_CHECKING:
    from cudakit import emulator, ops
    from cudakit.ahead import prewarm

    __version__: str

__all__ = [
    "ArgumentError",
    "CacheWarning",
    "CompileError",
    "CompileOptions",
    "Config",
    "Cover",
    "CudakitError",
    "EmulationError",
    "EmulatorWarning",
    "Kernel",
    "LaunchError",
    "Plan",
    "TemplateError",
    "config",
    "cover",
    "emulator",
    "errors",
    "has_gpu",
    "ops",
    "prewarm",
    "stream",
    "tensor_map",
    "texture",
    "using",
]


def __getattr__(name: str) -> object:
    """What a program that only launches kernels never asks for, and should not wait for (PEP 562)."""
    if name == "prewarm":
        from cudakit.ahead import prewarm

        return prewarm
    if name in ("emulator", "ops"):
        return import_module(f"cudakit.{name}")
    if name == "__version__":
        return _version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cudakit")
    except PackageNotFoundError:
        return "0+unknown"
