"""Stand-ins for a kernel's attributes and occupancy, and for the resources of the device."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

from cudakit.adapters import emulated_device
from cudakit.adapters.cuda_core.faults import CoreError, MadeByOthers, raising
from cudakit.adapters.cuda_core.parts import parts
from cudakit.adapters.cuda_core.programs import Kernel
from cudakit.adapters.emulated_device import resident_blocks, resources_of
from cudakit.emulator.face import EmulatorPlace
from cudakit.errors import CudakitError
from cudakit.jit.compile import elf

_WARP = 32


def _resource(name: str) -> Any:
    """Return the property of a resource of a kernel's machine code."""
    return property(lambda attributes: attributes._resources[name])


def _side(axis: int) -> Any:
    """Return the property of the blocks along an axis of the source's cluster; 0 if it sets none."""
    return property(lambda attributes: attributes._cluster(axis))


class KernelAttributes(MadeByOthers):
    """A stand-in for a kernel's attributes: those of its machine code, which is assembled at the first question."""

    cluster_scheduling_policy_preference = 0
    cache_mode_ca = non_portable_cluster_size_allowed = False
    num_regs: int = _resource("num_regs")
    local_size_bytes: int = _resource("local_size_bytes")
    shared_size_bytes: int = _resource("shared_size_bytes")
    const_size_bytes: int = _resource("const_size_bytes")
    max_threads_per_block: int = _resource("max_threads_per_block")
    max_dynamic_shared_size_bytes: int = _resource("max_dynamic_shared_size_bytes")
    preferred_shared_memory_carveout: int = _resource("preferred_shared_memory_carveout")
    ptx_version: int = _resource("ptx_version")
    binary_version: int = _resource("binary_version")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def __getitem__(self, device: Any) -> KernelAttributes:
        parts.Device(device)
        return self

    @cached_property
    def _resources(self) -> dict[str, int]:
        kernel = self._kernel
        try:
            result = resources_of(kernel.checked)
            if kernel.code.code_type == "cubin" and not kernel.code.is_ptx:
                used = elf.resources(kernel.code.content(), kernel.symbol)
                names = ("num_regs", "local_size_bytes", "shared_size_bytes")
                result |= dict(zip(names, used, strict=True))
        except CudakitError as error:
            raise CoreError(f"{kernel.name}: its registers are known once it is machine code: {error}") from error
        if bound := kernel.function.directives.get("maxntid"):
            result["max_threads_per_block"] = min(EmulatorPlace().limits().threads_per_block, math.prod(bound))
        return result

    def _cluster(self, axis: int) -> int:
        sides = self._kernel.function.directives.get("reqnctapercluster", ())
        return int(sides[axis]) if axis < len(sides) else 0

    @property
    def cluster_size_must_be_set(self) -> bool:
        """Whether the launch must set a cluster."""
        return "explicitcluster" in self._kernel.function.directives and not self._cluster(0)

    required_cluster_width: int = _side(0)
    required_cluster_height: int = _side(1)
    required_cluster_depth: int = _side(2)


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
        shared = self._attributes.shared_size_bytes + dynamic_shared_memory_size
        return resident_blocks(block_size, self._attributes.num_regs, shared)

    def max_potential_block_size(
        self, dynamic_shared_memory_needed: Any, block_size_limit: int
    ) -> MaxPotentialBlockSizeOccupancyResult:
        """Return the block size with the most resident threads."""
        most = min(self._attributes.max_threads_per_block, block_size_limit or self._attributes.max_threads_per_block)
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
        facts = emulated_device.numbers()
        share = facts["max_shared_memory_per_multiprocessor"] // max(1, num_blocks_per_multiprocessor)
        share -= facts["reserved_shared_memory_per_block"] + self._attributes.shared_size_bytes
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

    split: Any = raising("SMResource.split divides a GPU's multiprocessors, and needs a GPU")
