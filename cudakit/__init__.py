"""Write a CUDA C++ template once; call it from Python with any dtype, on any stream, at the driver's launch cost."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

from cudakit.config import Config, Cover, config, cover
from cudakit.device import device_limits
from cudakit.devices import has_gpu
from cudakit.errors import (
    ArgumentError,
    CacheWarning,
    CompileError,
    CudakitError,
    EmulationError,
    EmulatorWarning,
    FrameError,
    LaunchError,
    PipelineError,
    TemplateError,
)
from cudakit.hostarrays import In, InOut, Out
from cudakit.kernel import Kernel
from cudakit.options import CompileOptions
from cudakit.plan import Plan
from cudakit.streams import stream, using
from cudakit.tensormaps import tensor_map
from cudakit.textures import texture

if TYPE_CHECKING:
    from cudakit import emulator, generate, hazards, math, memory, ops, pipeline
    from cudakit.ahead import prewarm
    from cudakit.generate.elementwise import elementwise
    from cudakit.generate.fuse import fuse
    from cudakit.generate.reduction import reduction
    from cudakit.generate.scan import scan
    from cudakit.graphs import Graph, capture
    from cudakit.memory import allocated, empty, to_device, to_host
    from cudakit.pipeline import Pipeline
    from cudakit.timer import Timer
    from cudakit.tracing import trace

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
    "FrameError",
    "Graph",
    "In",
    "InOut",
    "Kernel",
    "LaunchError",
    "Out",
    "Pipeline",
    "PipelineError",
    "Plan",
    "TemplateError",
    "Timer",
    "allocated",
    "capture",
    "config",
    "cover",
    "device_limits",
    "elementwise",
    "emulator",
    "empty",
    "errors",
    "fuse",
    "generate",
    "has_gpu",
    "hazards",
    "math",
    "memory",
    "ops",
    "pipeline",
    "prewarm",
    "reduction",
    "scan",
    "stream",
    "tensor_map",
    "texture",
    "to_device",
    "to_host",
    "trace",
    "using",
]


def __getattr__(name: str) -> object:
    """What a program that only launches kernels never asks for, and should not wait for (PEP 562)."""
    if name == "prewarm":
        from cudakit.ahead import prewarm

        return prewarm
    if name == "Pipeline":
        from cudakit.pipeline import Pipeline

        return Pipeline
    if name == "Timer":
        from cudakit.timer import Timer

        return Timer
    if name == "trace":
        from cudakit.tracing import trace

        return trace
    if name in ("elementwise", "fuse", "reduction", "scan"):
        return getattr(import_module("cudakit.generate"), name)
    if name in ("Graph", "capture"):
        return getattr(import_module("cudakit.graphs"), name)
    if name in ("allocated", "empty", "to_device", "to_host"):
        return getattr(import_module("cudakit.memory"), name)
    if name in ("emulator", "generate", "hazards", "math", "memory", "ops", "pipeline"):
        return import_module(f"cudakit.{name}")
    if name == "__version__":
        return _version()
    # With both of these Python's traceback asks "Did you mean …?"
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "__all__", "__doc__", "__name__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cudakit")
    except PackageNotFoundError:
        return "0+unknown"
