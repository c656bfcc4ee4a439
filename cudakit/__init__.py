"""Write a CUDA C++ template once; call it from Python with any dtype, on any stream, with every argument checked.

>>> import cudakit as ck, numpy as np
>>> scale = ck.Kernel("template <typename T> __global__ void scale(T* x, T by, int n) { … }")
>>> stream = ck.stream()  # of the GPU, or of the emulator if there is no GPU
>>> with ck.using(stream) as xp:  # CuPy, or NumPy on the emulator
...     x = xp.ones(1000, "f4")
...     scale(stream, ck.cover(x.size), x, 2.0, x.size)

This page is a tour. ``help(ck.Kernel)``, ``help(ck.ops)`` and so on explain each part.

- Compile kernels: `Kernel`, `Module` and their `CompileOptions`. Compile them ahead of use: `prewarm`. Ship
  them compiled: `use_bundle`.
- Launch kernels: `config` and `cover` say how many threads run (they make a `Config` or a `Cover`); a `Plan` repeats
  one launch.
- Choose the GPU or the emulator: `stream`, `using`, `has_gpu`, `device_limits`; `emulator` for machines without a GPU.
- Make kernels from expressions and Python functions: `elementwise`, `reduction`, `scan`, `stencil`, `fuse`, all in
  `generate`.
- Call ready-made kernels with NumPy's names: `ops` (sums, moves, histograms, norms), `math` (universal functions) and
  `random`.
- Move and allocate memory: `to_device`, `to_host`, `empty`, `allocated`, more in `memory`. Pass host arrays to kernels:
  `In`, `Out`, `InOut`. Pass textures and tensor maps: `texture`, `surface`, `tensor_map`.
- Use kernels of other libraries: `adapters`. Use kernels inside of other libraries: ops of `torch`, calls of `jax`.
- Process many items on several streams: `Pipeline`, with sources and sinks in `pipeline`. Use many processes, by Dask
  or Ray: `scale`.
- Capture calls once and launch them again: `capture`, which makes a `Graph`.
- Find the fastest variant of a kernel: `tune`, more in `tuning`.
- Measure and trace: `Timer`, `trace`. See and steer the order between streams: `hazards`.
- Test kernels: `check` finds races and other faults on the emulator, `prove` covers all sizes at once, `testing` has
  strategies for hypothesis. A pytest plugin has fixtures.
- Show what is installed, and what is missing: `show_config`.
- Catch errors: `errors`, all of them a `CudakitError`. For programs: `report` makes one document of an error.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudakit import (
        adapters,
        emulator,
        errors,
        generate,
        hazards,
        jax,
        math,
        memory,
        ops,
        pipeline,
        random,
        scale,
        testing,
        torch,
        tuning,
    )
    from cudakit.emulator.face import check
    from cudakit.errors import (
        ArgumentError,
        AxisError,
        BoundsError,
        CacheWarning,
        CompileError,
        CompileWarning,
        CudakitError,
        EmulationError,
        EmulatorWarning,
        FrameError,
        LaunchError,
        PipelineError,
        PipelineWarning,
        RangeError,
        TemplateError,
        UnknownNameError,
    )
    from cudakit.generate.elementwise import elementwise
    from cudakit.generate.fuse import fuse
    from cudakit.generate.reduction import reduction
    from cudakit.generate.scan import scan
    from cudakit.generate.stencil import stencil
    from cudakit.graphs import Graph, capture
    from cudakit.installation import show_config
    from cudakit.jit.bundle.used import use_bundle
    from cudakit.jit.launch.plan import Plan
    from cudakit.jit.load.config import Config, Cover, config, cover
    from cudakit.jit.specialise.options import CompileOptions
    from cudakit.kernel.kernel import Kernel, Module, prewarm
    from cudakit.memory.host_arrays import In, InOut, Out
    from cudakit.memory.memory import allocated, empty, to_device, to_host
    from cudakit.memory.textures import surface, tensor_map, texture
    from cudakit.pipeline import Pipeline
    from cudakit.places import device_limits, using
    from cudakit.profile.trace import Timer, trace
    from cudakit.proof.prove import prove
    from cudakit.reports import report
    from cudakit.start import stream
    from cudakit.streams.devices import has_gpu
    from cudakit.tuning.tune import tune

    __version__: str

__all__ = [
    "ArgumentError", "AxisError", "BoundsError", "CacheWarning", "CompileError", "CompileOptions", "CompileWarning",
    "Config", "Cover", "CudakitError", "EmulationError", "EmulatorWarning", "FrameError", "Graph", "In", "InOut",
    "Kernel", "LaunchError", "Module", "Out", "Pipeline", "PipelineError", "PipelineWarning", "Plan", "RangeError",
    "TemplateError", "Timer", "UnknownNameError", "adapters", "allocated", "capture", "check", "config", "cover",
    "device_limits", "elementwise", "empty", "emulator", "errors", "fuse", "generate", "has_gpu", "hazards", "jax",
    "math", "memory", "ops", "pipeline", "prewarm", "prove", "random", "reduction", "report", "scale", "scan",
    "show_config", "stencil", "stream", "surface", "tensor_map", "testing", "texture", "to_device", "to_host", "torch",
    "trace", "tune", "tuning", "use_bundle", "using",
]  # fmt: skip

_MODULES = (
    "adapters", "emulator", "errors", "generate", "hazards", "jax", "math", "memory", "ops", "pipeline", "random",
    "scale", "testing", "torch", "tuning",
    # Rooms that others import as ``from cudakit import system``: Python asks for the attribute first.
    "foreign_names", "installation", "records", "reports", "system",
)  # fmt: skip
_HOMES = {
    "emulator.checks.check": ("check",),
    "errors": (
        "ArgumentError", "AxisError", "BoundsError", "CacheWarning", "CompileError", "CompileWarning", "CudakitError",
        "EmulationError", "EmulatorWarning", "FrameError", "LaunchError", "PipelineError", "PipelineWarning",
        "RangeError", "TemplateError", "UnknownNameError",
    ),
    "generate": ("elementwise", "fuse", "reduction", "scan", "stencil"),
    "graphs": ("Graph", "capture"),
    "installation": ("show_config",),
    "jit.bundle.used": ("use_bundle",),
    "jit.launch.plan": ("Plan",),
    "jit.load.config": ("Config", "Cover", "config", "cover"),
    "jit.specialise.options": ("CompileOptions",),
    "kernel.kernel": ("Kernel", "Module", "prewarm"),
    "memory": ("allocated", "empty", "to_device", "to_host"),
    "memory.host_arrays": ("In", "InOut", "Out"),
    "memory.textures": ("surface", "tensor_map", "texture"),
    "pipeline": ("Pipeline",),
    "places": ("device_limits", "using"),
    "profile.trace": ("Timer", "trace"),
    "proof.prove": ("prove",),
    "reports": ("report",),
    "start": ("stream",),
    "streams.devices": ("has_gpu",),
    "tuning.tune": ("tune",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Load a public name at its first use (PEP 562): a program starts with the modules that it needs."""
    if name in _MODULE_OF:
        value = globals()[name] = getattr(_loaded(_MODULE_OF[name]), name)
        return value
    if name in _MODULES:
        return _loaded(name)
    if name == "__version__":
        return _version()
    from cudakit.foreign_names import missing_attribute  # late: most programs look up no missing name

    raise missing_attribute("ck", sys.modules[__name__], f"module {__name__!r}", name)


def _loaded(name: str) -> ModuleType:
    from cudakit.collector import without_collector  # `import cudakit` loads no other module

    with without_collector():
        return import_module(f"cudakit.{name}")


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "__all__", "__doc__", "__name__"})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("cudakit")
    except PackageNotFoundError:
        return "0+unknown"
