"""Names of PyCUDA, CuPy, Numba and cuda.core that cudakit lacks, each with its replacement.

Only an attribute lookup that has failed reads this table. ``hasattr``, ``dir``, ``copy`` and ``pickle`` behave as for
any missing attribute.

>>> ck.SourceModule
AttributeError: module 'cudakit' has no attribute 'SourceModule'. Use ck.Module(source).
"""

from __future__ import annotations

from typing import Literal

Owner = Literal["ck", "kernel", "module", "stream"]

_ARRAYS = "CuPy's or NumPy's function inside `with ck.using(stream) as xp:`"
_FILL = "x.fill(value) inside `with ck.using(stream):`"
_PINNED = 'ck.empty(shape, dtype, kind="pinned", stream=stream)'
_MANAGED = 'ck.empty(shape, dtype, kind="managed", stream=stream)'
_TO_DEVICE, _TO_HOST = "ck.to_device(array, stream)", "ck.to_host(x, stream)"
_LINK = "ck.Module(source, options=ck.CompileOptions(link=[...]))"
_ATTRIBUTES = "kernel.attributes()"

#: The object that lacks the name → name → the replacement, as a reader writes it.
REPLACEMENTS: dict[Owner, dict[str, str]] = {
    "ck": {
        # PyCUDA: compile and launch
        "SourceModule": "ck.Module(source)",
        "DynamicSourceModule": _LINK,
        "DynamicModule": _LINK,
        "module_from_file": 'ck.Kernel.from_file(path, "name")',
        "module_from_buffer": 'ck.Kernel.from_ptx(text, "name")',
        "autoinit": "ck.stream(), which needs no initialisation",
        "init": "ck.stream(), which needs no initialisation",
        "make_default_context": "ck.stream(), which uses the primary context",
        "Context": "ck.stream(), which uses the primary context",
        "matrix_to_texref": "ck.texture(array)",
        # PyCUDA: memory
        "mem_alloc": "ck.empty(shape, dtype, stream=stream)",
        "mem_alloc_pitch": "ck.memory.empty_pitched(shape, dtype, stream=stream)",
        "mem_get_info": "cupy.cuda.Device().mem_info, or ck.memory.report() for the memory of this program",
        "memcpy_htod": "ck.to_device(array, stream, out=x)",
        "memcpy_htod_async": "ck.to_device(array, stream, out=x)",
        "memcpy_dtoh": "ck.to_host(x, stream, out=array)",
        "memcpy_dtoh_async": "ck.to_host(x, stream, out=array, wait=False)",
        "memcpy_dtod": "ck.memory.copy(target, source, stream)",
        "memcpy_dtod_async": "ck.memory.copy(target, source, stream)",
        "Memcpy2D": "ck.memory.copy(target[a:b, c:d], source, stream)",
        "Memcpy3D": "ck.memory.copy(target[a:b, c:d, e:f], source, stream)",
        "memset_d8": _FILL,
        "memset_d16": _FILL,
        "memset_d32": _FILL,
        "from_device": _TO_HOST,
        "to_gpu": _TO_DEVICE,
        "pagelocked_empty": _PINNED,
        "pagelocked_zeros": _PINNED,
        "managed_empty": _MANAGED,
        "managed_zeros": _MANAGED,
        "register_host_memory": "ck.memory.register(array)",
        "DeviceMemoryPool": "ck.empty(shape, dtype, stream=stream), which has a pool; ck.memory.trim() empties it",
        "PageLockedMemoryPool": _PINNED,
        # PyCUDA: arrays and generated kernels
        "gpuarray": _ARRAYS,
        "GPUArray": _ARRAYS,
        "cumath": "ck.math",
        "curandom": "ck.random.default_rng(seed)",
        # PyCUDA and CuPy
        "ElementwiseKernel": 'ck.elementwise("T x", "T z", "z = 2 * x")',
        "ReductionKernel": 'ck.reduction("T x", "T out", map="x", reduce="a + b", identity="0")',
        "InclusiveScanKernel": 'ck.scan("T x", "T y", map="x", reduce="a + b")',
        "ExclusiveScanKernel": 'ck.scan("T x", "T y", map="x", reduce="a + b")',
        "Stream": "ck.stream()",
        "Event": "stream.record(), or ck.Timer(stream) to measure time",
        "LogicError": "ck.LaunchError",
        "Device": "ck.device_limits(stream) for queries, cuda.core.Device(n).set_current() to select a device",
        "device_attribute": "ck.device_limits(stream)",
        "DeviceData": "ck.device_limits(stream)",
        "synchronize": "stream.sync()",
        # CuPy
        "RawKernel": 'ck.Kernel(source, "name")',
        "RawModule": "ck.Module(source)",
        "ndarray": _ARRAYS,
        "array": _TO_DEVICE,
        "asarray": _TO_DEVICE,
        "asnumpy": _TO_HOST,
        "zeros": _ARRAYS,
        "zeros_like": _ARRAYS,
        "ones": _ARRAYS,
        "full": _ARRAYS,
        "arange": _ARRAYS,
        "get_array_module": "ck.using(stream), which gives cupy or numpy",
        "get_default_memory_pool": "ck.memory.report(), ck.memory.limit(nbytes) and ck.memory.trim()",
        "alloc_pinned_memory": _PINNED,
        "benchmark": "ck.Timer(stream)",
        **{name: f"ck.ops.{name}(x, stream=stream)" for name in ("sum", "mean", "max", "min", "sort", "cumsum")},
        **{name: f"ck.ops.{name}(x, y, stream=stream)" for name in ("dot", "matmul")},
        **{name: f"ck.math.{name}(x, stream=stream)" for name in ("sqrt", "exp", "log", "sin")},
        # Numba
        "device_array": "ck.empty(shape, dtype, stream=stream)",
        "pinned_array": _PINNED,
        "managed_array": _MANAGED,
        # cuda.core
        "Program": "ck.Kernel(source)",
        "ProgramOptions": "ck.CompileOptions(...)",
        "LaunchConfig": "ck.config(grid, block)",
        "launch": "kernel(stream, ck.config(grid, block), *arguments)",
        "Linker": _LINK,
        "ObjectCode": 'ck.Kernel.from_file(path, "name")',
    },
    "kernel": {
        # PyCUDA
        "prepared_call": "kernel.plan(stream, ck.config(grid, block), *arguments)",
        "prepared_async_call": "kernel.plan(stream, ck.config(grid, block), *arguments)",
        "prepared_timed_call": "ck.Timer(stream)",
        "num_regs": _ATTRIBUTES,
        "shared_size_bytes": _ATTRIBUTES,
        "const_size_bytes": _ATTRIBUTES,
        "local_size_bytes": _ATTRIBUTES,
        "max_threads_per_block": _ATTRIBUTES,
        # CuPy
        "max_dynamic_shared_size_bytes": "ck.config(grid, block, shared_bytes=nbytes)",
        "enable_cooperative_groups": "ck.config(grid, block, cooperative=True)",
        "get_function": "the kernel itself, or kernel.module[name] for another",
        # Numba and cuda.core
        "forall": "ck.cover(n) as the configuration",
        "inspect_asm": 'kernel.ptx(arch="sm_90")',
        "inspect_sass": "kernel.sass()",
        "occupancy": "ck.cover(n), which chooses a block by occupancy",
    },
    "module": {
        "get_function": 'module["name"]',
        "get_kernel": 'module["name"]',
        "get_global": 'module.globals["name"]',
        "get_texref": "ck.texture(array) as an argument of the kernel",
        "get_surfref": "ck.surface(array) as an argument of the kernel",
        "compile": "module.prepare()",
    },
    "stream": {
        "synchronize": "stream.sync()",
        "is_done": "stream.record().is_done",
        "done": "stream.record().is_done",
        "query": "stream.record().is_done",
        "wait_event": "stream.wait(event)",
        "wait_for_event": "stream.wait(event)",
        "use": "ck.using(stream)",
        "ptr": "stream.handle",
        "begin_capture": "ck.capture(stream)",
        "end_capture": "ck.capture(stream)",
    },
}


def missing_attribute(owner: Owner, holder: object, description: str, name: str) -> AttributeError:
    """Return the AttributeError for a failed lookup, with the replacement where the table has one.

    Parameters
    ----------
    owner : {"ck", "kernel", "module", "stream"}
        The part of the table.
    holder : object
        The object without the attribute.
    description : str
        The object in Python's words, as in ``"'Kernel' object"``.
    name : str
        The attribute.
    """
    replacement = REPLACEMENTS[owner].get(name)
    advice = "" if replacement is None else f". Use {replacement}."
    # With `name` and `obj` Python's traceback asks "Did you mean …?".
    return AttributeError(f"{description} has no attribute {name!r}{advice}", name=name, obj=holder)
