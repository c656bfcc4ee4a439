"""Stand-ins for a kernel's attributes and occupancy, and for the resources of the device."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, NamedTuple

from cudakit.adapters.cuda_core.faults import CoreError, MadeByOthers, raising
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.programs import Kernel, parsed
from cudakit.emulator.face import EmulatorPlace
from cudakit.errors import CudakitError
from cudakit.jit.compile import elf

_REGISTERS, _WARP = 65536, 32
_THREADS, _BLOCKS = 2048, 32
_SHARED, _RESERVED = 228 * 1024, 1024


class KernelAttributes(MadeByOthers):
    """A stand-in for a kernel's attributes: those of its machine code, which is assembled at the first question."""

    preferred_shared_memory_carveout = -1
    cluster_scheduling_policy_preference = 0
    cache_mode_ca = non_portable_cluster_size_allowed = False

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getitem__(self, device: Any) -> KernelAttributes:
        parts.Device(device)
        return self

    @cached_property
    def _resources(self) -> elf.Resources:
        kernel, arch = self._kernel, EmulatorPlace().limits().arch
        try:
            if kernel.code.code_type == "cubin" and not kernel.code.is_ptx:
                return elf.resources(kernel.code.content(), kernel.symbol)
            explained = kernel.checked.explain(arch=arch)
        except CudakitError as error:
            raise CoreError(f"{kernel.name}: its registers are known once it is machine code: {error}") from error
        return elf.Resources(explained.registers, explained.spill_bytes, explained.shared_bytes)

    @property
    def num_regs(self) -> int:
        """Registers of a thread."""
        return int(self._resources.registers)

    @property
    def local_size_bytes(self) -> int:
        """Local memory of a thread, in bytes."""
        return int(self._resources.stack_bytes)

    @property
    def shared_size_bytes(self) -> int:
        """Static shared memory of a block, in bytes."""
        return int(self._resources.shared_bytes)

    @property
    def const_size_bytes(self) -> int:
        """Constant memory of the code, in bytes."""
        variables = parsed(self._kernel.code.ptx).variables.values()
        return sum(variable.size for variable in variables if variable.space == "const")

    @property
    def max_threads_per_block(self) -> int:
        """Most threads in a block."""
        bound = self._kernel.function.directives.get("maxntid")
        limit = EmulatorPlace().limits().threads_per_block
        if bound:
            threads = 1
            for side in bound:
                threads *= side
            return min(limit, threads)
        return min(limit, _REGISTERS // max(1, self.num_regs) // _WARP * _WARP)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        """Most dynamic shared memory of a block that needs no opt-in, in bytes."""
        return 48 * 1024 - self.shared_size_bytes

    @property
    def binary_version(self) -> int:
        """Arch of the machine code, and of the PTX: 90 for sm_90."""
        return int(re.sub(r"\D", "", EmulatorPlace().limits().arch))

    ptx_version = binary_version

    def _cluster(self, axis: int) -> int:
        sides = self._kernel.function.directives.get("reqnctapercluster", ())
        return int(sides[axis]) if axis < len(sides) else 0

    @property
    def cluster_size_must_be_set(self) -> bool:
        """Whether the launch must set a cluster."""
        return "explicitcluster" in self._kernel.function.directives and not self._cluster(0)

    @property
    def required_cluster_width(self) -> int:
        """Blocks of the source's cluster along x; 0 if it sets none."""
        return self._cluster(0)

    @property
    def required_cluster_height(self) -> int:
        """Blocks of the source's cluster along y; 0 if it sets none."""
        return self._cluster(1)

    @property
    def required_cluster_depth(self) -> int:
        """Blocks of the source's cluster along z; 0 if it sets none."""
        return self._cluster(2)


class MaxPotentialBlockSizeOccupancyResult(NamedTuple):
    """Fewest blocks for a full device, and the block size that fills it."""

    min_grid_size: int
    max_block_size: int


class KernelOccupancy(MadeByOthers):
    """A stand-in for a kernel's occupancy, by the limits of a multiprocessor of compute capability 9.0."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel, self._attributes = kernel, KernelAttributes(kernel)

    def max_active_blocks_per_multiprocessor(self, block_size: int, dynamic_shared_memory_size: int) -> int:
        """Return the blocks that a multiprocessor holds at once."""
        if block_size > self._attributes.max_threads_per_block:
            return 0
        warps = -(-block_size // _WARP)
        registers = -(-max(1, self._attributes.num_regs) * _WARP // 256) * 256 * warps
        shared = self._attributes.shared_size_bytes + dynamic_shared_memory_size
        if shared + _RESERVED > _SHARED - _RESERVED + _RESERVED:
            return 0
        return min(_BLOCKS, _THREADS // (warps * _WARP), _REGISTERS // registers, _SHARED // (shared + _RESERVED))

    def max_potential_block_size(
        self, dynamic_shared_memory_needed: Any, block_size_limit: int
    ) -> MaxPotentialBlockSizeOccupancyResult:
        """Return the block size with the most resident threads."""
        most = min(self._attributes.max_threads_per_block, block_size_limit or _THREADS)
        best, size, blocks = 0, _WARP, 1
        for threads in range(most // _WARP * _WARP, 0, -_WARP):
            needs = dynamic_shared_memory_needed
            needs = needs(threads) if callable(needs) else int(needs)
            count = self.max_active_blocks_per_multiprocessor(threads, needs)
            if count * threads > best:
                best, size, blocks = count * threads, threads, count
        return MaxPotentialBlockSizeOccupancyResult(blocks * EmulatorPlace().limits().multiprocessors, size)

    def available_dynamic_shared_memory_per_block(self, num_blocks_per_multiprocessor: int, block_size: int) -> int:
        """Return the dynamic shared memory of a block, if a multiprocessor holds that many blocks."""
        share = _SHARED // max(1, num_blocks_per_multiprocessor) - _RESERVED - self._attributes.shared_size_bytes
        return max(0, min(share, self._attributes.max_dynamic_shared_size_bytes))

    def max_potential_cluster_size(self, config: Any, *, stream: Any) -> int:
        """Return the largest cluster that every device has: 8 blocks."""
        return 8

    def max_active_clusters(self, config: Any, *, stream: Any) -> int:
        """Return the clusters that the device holds at once."""
        width, height, depth = config.cluster or (1, 1, 1)
        x, y, z = config.block
        blocks = self.max_active_blocks_per_multiprocessor(x * y * z, config.shmem_size)
        return blocks * EmulatorPlace().limits().multiprocessors // (width * height * depth)


class DeviceResources(MadeByOthers):
    """A stand-in for ``Device.resources``."""

    @property
    def sm(self) -> SMResource:
        """Multiprocessors of the device."""
        resource: SMResource = SMResource()
        return resource

    workqueue: Any = property(raising("DeviceResources.workqueue: the emulator has no work queues"))


class SMResource(MadeByOthers):
    """A stand-in for ``cuda.core.SMResource``: the multiprocessors of the device, which the emulator cannot divide."""

    min_partition_size = coscheduled_alignment = 8
    flags = 0

    @property
    def sm_count(self) -> int:
        """Number of multiprocessors."""
        return EmulatorPlace().limits().multiprocessors

    @property
    def handle(self) -> int:
        """Number of the resource."""
        return id(self)

    split = raising("SMResource.split divides a GPU's multiprocessors, and needs a GPU")
