"""Stand-in for ``pycuda.tools``: contexts, memory pools, data of devices, C types, and caches of functions."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

from cudakit.adapters.pycuda import driver
from cudakit.adapters.pycuda.absent import missing
from cudakit.adapters.pycuda.c_types import (
    Argument,
    ScalarArg,
    VectorArg,
    dtype_to_ctype,
    get_arg_type,
    get_or_register_dtype,
    parse_c_arg,
    register_dtype,
)
from cudakit.adapters.pycuda.contexts import Context, Device, init, make_default_context
from cudakit.adapters.pycuda.pools import (
    DeviceMemoryPool,
    PageLockedAllocator,
    PageLockedMemoryPool,
    PooledDeviceAllocation,
    PooledHostAllocation,
    bitlog2,
)

__all__ = [
    "Argument", "DeviceData", "DeviceMemoryPool", "OccupancyRecord", "PageLockedAllocator", "PageLockedMemoryPool",
    "PooledDeviceAllocation", "PooledHostAllocation", "ScalarArg", "VectorArg", "bitlog2", "clear_context_caches",
    "context_dependent_memoize", "dtype_to_ctype", "get_arg_type", "get_default_device", "get_or_register_dtype",
    "init_cuda_context_fixture", "make_default_context", "mark_cuda_test", "parse_c_arg", "register_dtype",
]  # fmt: skip

#: The caches of all functions under `context_dependent_memoize`.
_caches: list[dict[Any, Any]] = []


def context_dependent_memoize(func: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function return its earlier result for the same arguments in the same context."""
    results: dict[Any, Any] = {}
    _caches.append(results)

    @functools.wraps(func)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        key = Context.get_current(), args, frozenset(kwargs.items())
        if key not in results:
            results[key] = func(*args, **kwargs)
        return results[key]

    return remembered


def clear_context_caches() -> None:
    """Forget the results of all functions under `context_dependent_memoize`."""
    for results in _caches:
        results.clear()


def get_default_device(default: int = 0) -> Device:
    """Return device number `default`."""
    warnings.warn("get_default_device: use make_default_context()", DeprecationWarning, stacklevel=2)
    return Device(default)


class DeviceData:
    """Limits of a device.

    Parameters
    ----------
    dev : Device, optional
        Default: the device of the current context.

    Attributes
    ----------
    max_threads, warp_size : int
        Threads of a block at most, and of a warp.
    warps_per_mp, thread_blocks_per_mp : int
        Warps and blocks of a multiprocessor at most.
    registers, shared_memory : int
        Registers, and bytes of shared memory, of a block at most.
    smem_alloc_granularity, smem_granularity : int
        Unit of shared memory in bytes, and threads that access it at once.
    register_allocation_unit : str
        Unit that gets registers: ``"warp"``.
    """

    smem_alloc_granularity: int = 128
    smem_granularity: int = 32
    register_allocation_unit: str = "warp"

    def __init__(self, dev: Device | None = None) -> None:
        ask = (Context.get_device() if dev is None else dev).get_attribute
        self.max_threads: Any = ask(driver.device_attribute.MAX_THREADS_PER_BLOCK)
        self.warp_size: Any = ask(driver.device_attribute.WARP_SIZE)
        self.warps_per_mp: Any = ask(driver.device_attribute.MAX_THREADS_PER_MULTIPROCESSOR) // self.warp_size
        self.thread_blocks_per_mp: Any = ask(driver.device_attribute.MAX_BLOCKS_PER_MULTIPROCESSOR)
        self.registers: Any = ask(driver.device_attribute.MAX_REGISTERS_PER_BLOCK)
        self.shared_memory: Any = ask(driver.device_attribute.MAX_SHARED_MEMORY_PER_BLOCK)

    def align(self, bytes: int, word_size: int = 4) -> int:
        """Return `bytes`, rounded up to a multiple of `align_bytes`."""
        return _round_up(bytes, self.align_bytes(word_size))

    def align_dtype(self, elements: int, dtype_size: int) -> int:
        """Return a number of elements, rounded up to a multiple of `align_words`."""
        return _round_up(elements, self.align_words(dtype_size))

    def align_words(self, word_size: int) -> int:
        """Return `align_bytes` in words."""
        return self.align_bytes(word_size) // word_size

    def align_bytes(self, word_size: int = 4) -> int:
        """Return the distance of addresses at which accesses of words of a size are coalesced.

        Raises
        ------
        ValueError
            The size is not 4, 8 or 16 bytes.
        """
        if word_size not in (4, 8, 16):
            raise ValueError(f"align_bytes: expected words of 4, 8 or 16 bytes, got {word_size}")
        return 64 if word_size == 4 else 128

    def coalesce(self, thread_count: int) -> int:
        """Return a number of threads, rounded up to a multiple of 16."""
        return _round_up(thread_count, 16)

    @staticmethod
    def make_valid_tex_channel_count(size: int) -> int:
        """Return the number of channels of a texture that has at least `size`.

        Raises
        ------
        ValueError
            A texture has 4 channels at most.
        """
        for count in (1, 2, 4):
            if size <= count:
                return count
        raise ValueError(f"make_valid_tex_channel_count: a texture has 4 channels at most, got {size}")


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


class _Limit(NamedTuple):
    blocks: int
    limited_by: str


class OccupancyRecord:
    """The occupancy of a multiprocessor by a kernel.

    Parameters
    ----------
    devdata : DeviceData
        Limits of the device.
    threads : int
        Threads of a block.
    shared_mem : int
        Bytes of shared memory of a block.
    registers : int
        Registers of a thread.

    Attributes
    ----------
    tb_per_mp, warps_per_mp : int
        Blocks and warps that a multiprocessor has at a time.
    limited_by : str
        Resource that limits them: ``"device"``, ``"warps"``, ``"regs"`` or ``"smem"``.
    occupancy : float
        Share of the multiprocessor's warps.

    Raises
    ------
    ValueError
        A block needs more than the device has.
    """

    tb_per_mp: int
    limited_by: str
    tb_per_mp_limits: list[_Limit]

    def __init__(self, devdata: DeviceData, threads: int, shared_mem: int = 0, registers: int = 0) -> None:
        warps = -(-threads // devdata.warp_size)
        bytes_of_block = _round_up(shared_mem, devdata.smem_alloc_granularity)
        registers_of_block = warps * devdata.warp_size * registers
        uses = (
            ("threads", threads, devdata.max_threads),
            ("registers", registers_of_block, devdata.registers),
            ("smem", bytes_of_block, devdata.shared_memory),
        )
        for resource, use, limit in uses:
            if use > limit:
                raise ValueError(f"too many {resource}: a block needs {use}, the device has {limit}")
        self.tb_per_mp_limits = [
            _Limit(devdata.thread_blocks_per_mp, "device"),
            _Limit(devdata.warps_per_mp // warps, "warps"),
        ]
        if registers:
            self.tb_per_mp_limits.append(_Limit(devdata.registers // registers_of_block, "regs"))
        if shared_mem:
            self.tb_per_mp_limits.append(_Limit(devdata.shared_memory // bytes_of_block, "smem"))
        self.tb_per_mp, self.limited_by = min(self.tb_per_mp_limits)
        self.warps_per_mp: Any = self.tb_per_mp * warps
        self.occupancy: Any = self.warps_per_mp / devdata.warps_per_mp


def init_cuda_context_fixture() -> Iterator[None]:
    """Make a context for the time of a test; for ``pytest.fixture``."""
    init()
    context = make_default_context()
    yield
    context.pop()
    clear_context_caches()


def mark_cuda_test(inner_f: Callable[..., Any]) -> Callable[..., None]:
    """Let a test function run with a context."""

    @functools.wraps(inner_f)
    def run(*args: Any, **kwargs: Any) -> None:
        for _ in init_cuda_context_fixture():
            inner_f(*args, **kwargs)

    return run


#: Names of PyCUDA that are not here, and what to use.
ABSENT = {
    "DebugMemoryPool": "DeviceMemoryPool, or ck.memory.report() for what uses memory",
    "context_dependent_memoized_functions": "clear_context_caches() empties the caches",
}
__getattr__: Callable[[str], NoReturn] = missing(__name__, ABSENT)
