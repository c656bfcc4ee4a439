"""An adapter for kernels that Triton compiled: their PTX, with Triton's launch parameters.

In programs under ``cudakit check``, ``inspect`` and ``debug``, Triton compiles for an H100, and the kernels run on the
emulator. Tensors are torch's on the host. A program gets the tensors' device as in Triton's tutorials, by
``triton.runtime.driver.active.get_active_torch_device()``.
"""

from __future__ import annotations

import copy
import functools
import importlib
import importlib.util
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from cudakit.adapters import emulated_device, torch_tensors
from cudakit.emulator.face import EmulatedTensorMap, EmulatorPlace
from cudakit.errors import ArgumentError
from cudakit.jit.compile import elf
from cudakit.jit.load.config import config
from cudakit.kernel.kernel import Kernel
from cudakit.memory.memory import empty
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
    cluster : int
        Blocks of a program: Triton's ``num_ctas``.
    scratch_bytes : int
        Scratch memory of a block in global memory, in bytes.
    cooperative : bool
        Whether all blocks run at once.
    """

    def __init__(
        self, kernel: Kernel, threads: int, shared_bytes: int, cluster: int = 1, scratch_bytes: int = 0,
        cooperative: bool = False,
    ) -> None:  # fmt: skip
        self.kernel: Kernel = kernel
        self.threads: int = threads
        self.shared_bytes: int = shared_bytes
        self.cluster: int = cluster
        self.scratch_bytes: int = scratch_bytes
        self.cooperative: bool = cooperative
        self._pointers = [isinstance(parameter.type, Pointer) for parameter in kernel.signature.parameters or ()]

    def __repr__(self) -> str:
        return f"<TritonKernel {self.kernel.name}, {self.threads} threads>"

    def __call__(self, stream: Any, grid: int | tuple[int, ...], *arguments: Any, scratch: Any = None) -> None:
        """Launch the kernel.

        Parameters
        ----------
        stream : stream
            Stream to launch on.
        grid : int or tuple of int
            Number of programs.
        *arguments : array or NumPy scalar
            Arguments that are no constants, of exactly the types that Triton compiled for.
        scratch : array, optional
            Scratch memory, of `scratch_bytes` for each block. Default: new memory.
        """
        x, *others = grid if isinstance(grid, tuple) else (grid,)
        x *= self.cluster
        size = math.prod((x, *others)) * self.scratch_bytes
        if size and scratch is None:
            scratch = empty(size, np.uint8, stream=stream)
        # Newer Tritons add pointers to scratch memory: for all kernels, then for profilers.
        absent = [None if pointer else np.uint64(0) for pointer in self._pointers[len(arguments) :]]
        if size:
            absent[0] = scratch
        launch = config(
            (x, *others), self.threads, shared_bytes=self.shared_bytes, cooperative=self.cooperative,
            cluster=self.cluster if self.cluster > 1 else None,
        )  # fmt: skip
        self.kernel(stream, launch, *arguments, *absent)


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
    # The number of warps in the PTX counts those that Triton adds for kernels with specialized warps.
    threads = re.search(r"^\.reqntid (\d+)", text, re.MULTILINE)
    return TritonKernel(
        Kernel.from_ptx(text, metadata.name),
        int(threads[1]) if threads else 32 * metadata.num_warps,
        metadata.shared,
        getattr(metadata, "num_ctas", 1),
        getattr(metadata, "global_scratch_size", 0),
        getattr(metadata, "launch_cooperative_grid", False),
    )


_SCALARS = {
    "i1": np.int8, "u1": np.uint8, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32,
    "fp64": np.float64, "f32": np.float32, "f64": np.float64,
} | {f"{sign}{bits}": np.dtype(f"{sign}{bits // 8}").type for sign in "iu" for bits in (8, 16, 32, 64)}  # fmt: skip
#: Element types of tensor maps, by Triton's numbers.
_ELEMENTS = (
    np.uint8, np.uint16, np.uint32, np.int32, np.uint64, np.int64, np.float16, np.float32, None, np.float64,
    ml_dtypes.bfloat16,
)  # fmt: skip
_SWIZZLES = ("none", "32B", "64B", "128B")


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


def _loaded(name: str, code: bytes, shared_bytes: int, device: int) -> tuple[None, int, int, int, int]:
    """Return what Triton asks of a loaded kernel: module, handle, registers, spilled registers, most threads."""
    used = elf.resources(code, name)
    granule = -(-max(used.registers, 1) // 8) * 8
    return None, 0, used.registers, used.stack_bytes // 4, min(1024, 65536 // granule // 32 * 32)


def _torch_device() -> Any:
    import torch

    return torch.device("cuda", 0)


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
            load_binary=_loaded,
            unload_module=lambda module: None,
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
        if hasattr(value, "base"):  # a tensor that triton.reinterpret gives another dtype
            return _array(value.base)
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


def _tensor_map(descriptor: Any, layout: Mapping[str, Any]) -> EmulatedTensorMap:
    """Return the tensor map of a tensor descriptor, with the box and swizzle that Triton's compiler has chosen.

    Raises
    ------
    ArgumentError
        For a form of tensor maps that the emulator lacks, and for a descriptor that is larger than its tensor.
    """
    number = int(layout["elem_type"])
    dtype = _ELEMENTS[number] if number < len(_ELEMENTS) else None
    lacks = {
        "im2col": layout.get("is_im2col"), "padded float4": layout["fp4_padded"],
        f"element type {number}": dtype is None,
    }  # fmt: skip
    for name, is_lacking in lacks.items():
        if is_lacking:
            raise ArgumentError(f"tensor descriptors with {name} are not emulated")
    memory, size = _array(descriptor.base).reshape(-1), np.dtype(dtype).itemsize
    shape, strides = tuple(map(int, descriptor.shape)), tuple(int(stride) * size for stride in descriptor.strides)
    end = sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + size
    if end > memory.nbytes:
        raise ArgumentError(
            f"a tensor descriptor of shape {shape} and strides {tuple(descriptor.strides)} needs {end} bytes, but its "
            f"tensor has {memory.nbytes}"
        )
    array = np.lib.stride_tricks.as_strided(memory.view(np.uint8)[:size].view(dtype), shape, strides)
    nan, precision = (
        descriptor.padding == "nan",
        "tf32" if descriptor.round_f32_to_tf32 and dtype is np.float32 else None,
    )
    steps = (1,) * len(shape)
    return EmulatedTensorMap(array, layout["block_size"], steps, _SWIZZLES[layout["swizzle"]], nan, precision)


def _flat(type_name: Any, value: Any, layouts: Iterator[Mapping[str, Any] | None]) -> Iterator[Any]:
    """Yield the arguments that a value of Triton's becomes: none for a constant, several for a tuple or a descriptor.

    `type_name` is the value's type in Triton's signature, and `layouts` has the layouts of tensor descriptors.
    """
    if isinstance(type_name, tuple):
        for part, item in zip(type_name, value, strict=True):
            yield from _flat(part, item, layouts)
    elif type_name.startswith("tensordesc"):
        layout = next(layouts, None)
        if layout is not None:
            yield _tensor_map(value, layout)
        else:
            yield _array(value.base)
            yield from map(np.int64, (*value.shape, *value.strides))
            yield from map(np.int8, (value.padding == "nan", value.round_f32_to_tf32))
        yield from map(np.int32, value.shape)
        yield from map(np.int64, value.strides)
    elif type_name.startswith("*"):
        yield _array(value)
    elif type_name in _SCALARS:
        yield _SCALARS[type_name](value)
    elif type_name != "constexpr":
        raise ArgumentError(f"a kernel of Triton with an argument of type {type_name} does not run on the emulator")


def _launch(
    compiled: Any, x: int, y: int, z: int, stream: Any, function: Any, packed: Any, launch_metadata: Any, enter: Any,
    leave: Any, *values: Any,
) -> None:  # fmt: skip
    """Run a compiled kernel of Triton's on a grid, with Triton's hooks. `values` are the kernel's arguments."""
    kernel = compiled.__dict__.get("cudakit_kernel")
    if kernel is None:
        kernel = compiled.cudakit_kernel = from_triton(compiled)
    if not (blocks := x * y * z * kernel.cluster):
        return
    types = compiled.src.signature.values()
    layouts = iter(getattr(compiled.metadata, "tensordesc_meta", None) or ())
    arguments = [
        part for type_name, value in zip(types, values, strict=True) for part in _flat(type_name, value, layouts)
    ]
    scratch = None
    if kernel.scratch_bytes:
        allocator = vars(importlib.import_module("triton.runtime._allocation"))["_allocator"].get()
        scratch = _array(allocator(blocks * kernel.scratch_bytes, compiled.metadata.global_scratch_align, stream))
    if enter is not None:
        enter(launch_metadata)
    kernel(EmulatorPlace().current(), (x, y, z), *arguments, scratch=scratch)
    if leave is not None:
        leave(launch_metadata)


class _CublasLt:
    """A stand-in for Triton's own face of cuBLAS, which its tutorials compare with: torch's product on the host."""

    def __init__(self, workspace: Any) -> None:
        pass

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """Store the product of `a` and the transposed `b` in `c`."""
        c.copy_(a.float() @ b.float().T)

    def gemm(self, a: Any, b: Any, c: Any, d: Any, alpha: float, beta: float) -> None:
        """Store ``alpha * a @ b.T + beta * c`` in `d`."""
        d.copy_(alpha * (a.float() @ b.float().T) + beta * c.float())


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
    libraries = getattr(importlib.import_module("triton._C.libtriton"), "nvidia", None)
    if (cublas := getattr(libraries, "cublas", None)) is not None:
        put(cublas, "CublasLt", _CublasLt)
    tuner = module.runtime.Autotuner
    put(tuner, "_bench", _first_fitting(vars(tuner)["_bench"]))
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch_tensors.replace(torch, put)
