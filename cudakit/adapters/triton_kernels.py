"""An adapter for kernels that Triton compiled: their PTX, with Triton's launch parameters.

In programs under ``cudakit check``, ``inspect`` and ``debug``, Triton compiles for an H100, and the kernels run on the
emulator. Tensors are torch's on the host. A program gets the tensors' device as in Triton's tutorials, by
``triton.runtime.driver.active.get_active_torch_device()``.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from cudakit.adapters import emulated_device, torch_tensors
from cudakit.emulator.face import EmulatorPlace
from cudakit.errors import ArgumentError
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.types.cpp import Pointer


class TritonKernel:
    """A compiled kernel of Triton's, called with its grid.

    Attributes
    ----------
    kernel : Kernel
        Kernel made of Triton's PTX.
    threads : int
        Threads of a block: 32 for each of Triton's warps.
    shared_bytes : int
        Shared memory of a block, in bytes.
    """

    threads: int
    shared_bytes: int
    kernel: Kernel

    def __init__(self, kernel: Kernel, threads: int, shared_bytes: int) -> None:
        self.kernel, self.threads, self.shared_bytes = kernel, threads, shared_bytes
        self._pointers = [isinstance(parameter.type, Pointer) for parameter in kernel.signature.parameters or ()]

    def __repr__(self) -> str:
        return f"<TritonKernel {self.kernel.name}, {self.threads} threads>"

    def __call__(self, stream: Any, grid: int | tuple[int, ...], *arguments: Any) -> None:
        """Launch the kernel.

        Parameters
        ----------
        stream : stream
            Stream to launch on.
        grid : int or tuple of int
            Number of programs.
        *arguments : array or NumPy scalar
            Arguments that are no constants, of exactly the types that Triton compiled for.
        """
        # Newer Tritons add pointers to scratch memory, which kernels without scratch memory ignore.
        scratch = [None if pointer else np.uint64(0) for pointer in self._pointers[len(arguments) :]]
        launch = config(grid, self.threads, shared_bytes=self.shared_bytes)
        self.kernel(stream, launch, *arguments, *scratch)


def from_triton(compiled: Any) -> TritonKernel:
    """Convert a compiled kernel of Triton's to cudakit's.

    Parameters
    ----------
    compiled : triton.compiler.CompiledKernel
        Result of ``triton.compile``, with ``GPUTarget("cuda", 90, 32)`` if there is no GPU, or of a launch.

    Returns
    -------
    TritonKernel
        The kernel, called as ``kernel(stream, grid, *arguments)``.

    Raises
    ------
    ArgumentError
        For an object without PTX.
    """
    text = getattr(compiled, "asm", {}).get("ptx")
    if text is None:
        raise ArgumentError(
            f"from_triton takes a kernel that triton.compile made for CUDA, got {type(compiled).__name__}"
        )
    metadata = compiled.metadata
    kernel = Kernel.from_ptx(text, metadata.name)
    if getattr(metadata, "global_scratch_size", 0):
        raise ArgumentError(f"{metadata.name} needs scratch memory that only Triton allocates: launch it with Triton")
    return TritonKernel(kernel, 32 * metadata.num_warps, metadata.shared)


_SCALARS = {"i1": np.int8, "fp32": np.float32, "fp64": np.float64, "f32": np.float32, "f64": np.float64} | {
    f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}").type for sign in "iu" for bits in (8, 16, 32, 64)
}


def _tune(call: Callable[[], Any], *arguments: Any, quantiles: Sequence[float] = (), **keywords: Any) -> list[float]:
    """Run a configuration once for the autotuner, and return 0 for each of `quantiles`: it is a choice, not a time."""
    call()
    return [0.0] * len(quantiles)


def _do_bench(
    fn: Callable[[], Any],
    *arguments: Any,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
    **keywords: Any,
) -> float | list[float]:
    """Run the measured function once, and return NaN for its time, or for each of `quantiles`."""
    fn()
    if quantiles is not None:
        return [math.nan] * len(quantiles)
    return [math.nan] if return_mode == "all" else math.nan


def _first_fitting(bench: Callable[..., list[float]]) -> Callable[..., list[float]]:
    """Wrap the autotuner's measurement so that only configurations up to the first that fits run."""

    @functools.wraps(bench)
    def measure(self: Any, *arguments: Any, **keywords: Any) -> list[float]:
        if self.__dict__.get("cudakit_tuned") is self.nargs:
            return [math.inf] * 3
        times = bench(self, *arguments, **keywords)
        if times[0] != math.inf:
            self.cudakit_tuned = self.nargs
        return times

    return measure


def _first_row(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the run of one report so that it has the row of the first x value only."""

    @functools.wraps(run)
    def run_first(self: Any, bench: Any, *arguments: Any, **keywords: Any) -> Any:
        first = copy.copy(bench)
        first.x_vals = list(bench.x_vals)[:1]
        return run(self, first, *arguments, **keywords)

    return run_first


def _torch_device() -> Any:
    import torch

    return torch.device("cpu")


def _device_interface() -> Any:
    import torch

    return torch.cuda


def _driver(target: Any) -> SimpleNamespace:
    """Return a stand-in for Triton's GPU driver, with one device and its default stream.

    The stand-in makes no launcher: `_launch` launches compiled kernels.
    """
    facts = emulated_device.numbers()
    properties = {
        "max_shared_mem": facts["max_shared_memory_per_block_optin"], "mem_bus_width": facts["global_memory_bus_width"],
        "multiprocessor_count": facts["multiprocessor_count"], "max_num_regs": facts["max_registers_per_block"],
        "warpSize": facts["warp_size"], "sm_clock_rate": facts["clock_rate"],
        "mem_clock_rate": facts["memory_clock_rate"],
    }  # fmt: skip
    return SimpleNamespace(
        utils=SimpleNamespace(
            get_device_properties=lambda device: dict(properties),
            load_binary=lambda name, code, shared_bytes, device: (None, 0, 0, 0, 1024),
        ),
        launcher_cls=lambda source, metadata: None,
        get_current_device=lambda: 0,
        set_current_device=lambda device: None,
        get_current_stream=lambda device: 0,
        get_device_capability=lambda device=0: divmod(int(target.arch), 10),
        get_current_target=lambda: target,
        get_active_torch_device=_torch_device,
        get_benchmarker=lambda: _tune,
        get_device_interface=_device_interface,
        get_empty_cache_for_benchmark=lambda: None,
        clear_cache=lambda cache: None,
    )


def _array(value: Any) -> Any:
    """Return the memory of a host tensor as a NumPy array, from the tensor's first element on."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if not hasattr(value, "numpy"):
        raise ArgumentError(f"a kernel of Triton takes tensors of the host here, got {type(value).__name__}")
    if value.is_contiguous():
        tensor = value.detach() if hasattr(value, "detach") else value
    else:
        tensor = value.detach().as_strided((value.untyped_storage().nbytes() // value.element_size(),), (1,), 0)
        tensor = tensor[value.storage_offset() :]
    try:
        return tensor.numpy()
    except TypeError:  # NumPy lacks bfloat16 and similar types; a kernel takes their address
        import torch

        return tensor.view(torch.int16 if tensor.element_size() == 2 else torch.int8).numpy()


def _launch(compiled: Any, x: int, y: int, z: int, *parameters: Any) -> None:
    """Run a compiled kernel of Triton's on a grid; `parameters` are six values of Triton's, then the arguments."""
    types, values = compiled.src.signature.values(), parameters[6:]
    arguments: list[Any] = []
    for type_name, value in zip(types, values, strict=True):
        if type_name == "constexpr":
            continue
        if type_name.startswith("*"):
            arguments.append(_array(value))
        elif type_name in _SCALARS:
            arguments.append(_SCALARS[type_name](value))
        else:
            raise ArgumentError(f"a kernel of Triton with an argument of type {type_name} does not run on the emulator")
    kernel = compiled.__dict__.get("cudakit_kernel")
    if kernel is None:
        kernel = compiled.cudakit_kernel = from_triton(compiled)
    kernel(EmulatorPlace().current(), (x, y, z), *arguments)


def replace(module: Any, put: Callable[[Any, str, Any], None]) -> None:
    """Replace the parts of ``triton`` that need a GPU. Triton's own interpreter is left alone.

    `put` is called as ``put(owner, name, value)`` for each part.
    """
    from triton.backends.compiler import GPUTarget

    put(module.runtime.driver, "_active", _driver(GPUTarget("cuda", 90, 32)))
    put(module.compiler.CompiledKernel, "run", property(lambda compiled: functools.partial(_launch, compiled)))
    for name in ("do_bench", "do_bench_cudagraph", "do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(module.testing, name):
            put(module.testing, name, _do_bench)
    put(module.testing.Mark, "_run", _first_row(vars(module.testing.Mark)["_run"]))
    tuner = module.runtime.Autotuner
    put(tuner, "_bench", _first_fitting(vars(tuner)["_bench"]))
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch_tensors.replace(torch, put)
