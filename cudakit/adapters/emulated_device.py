"""Facts of the emulated device for programs of all libraries: an H100 SXM's numbers, and the emulator's limits."""

from __future__ import annotations

from cudakit.emulator.face import EmulatorPlace
from cudakit.kernel.kernel import Kernel

NAME = "cudakit's emulator"
TOTAL_BYTES = 80 << 30
#: Attributes by the driver's names, as CUDA's deviceQuery and programming guide have them. Flags follow; others are 0.
_TABLE = """
max_pitch 2147483647, warp_size 32, total_constant_memory 65536, max_shared_memory_per_block 49152
max_registers_per_block 65536, max_registers_per_multiprocessor 65536, reserved_shared_memory_per_block 1024
max_threads_per_multiprocessor 2048, max_blocks_per_multiprocessor 32, single_to_double_precision_perf_ratio 2
clock_rate 1980000, memory_clock_rate 2619000, global_memory_bus_width 5120, l2_cache_size 52428800
async_engine_count 3, texture_alignment 512, texture_pitch_alignment 32, surface_alignment 512
mem_sync_domain_count 4, numa_id -1, host_numa_id -1, pci_bus_id 1, pci_device_id 0, pci_domain_id 0
compute_mode 0, multi_gpu_board_group_id 0, gpu_pci_device_id 0, gpu_pci_subsystem_id 0, numa_config 0
max_persisting_l2_cache_size 0, max_access_policy_window_size 0, mempool_supported_handle_types 0
gpu_direct_rdma_flush_writes_options 0, gpu_direct_rdma_writes_ordering 0, mem_decompress_algorithm_mask 0
mem_decompress_maximum_length 0, maximum_texture1d_width 131072, maximum_texture1d_linear_width 268435456
maximum_texture1d_mipmapped_width 32768, maximum_texture1d_layered_width 32768, maximum_texture1d_layered_layers 2048
maximum_texture2d_width 131072, maximum_texture2d_height 65536, maximum_texture2d_linear_width 131072
maximum_texture2d_linear_height 65000, maximum_texture2d_linear_pitch 2097120, maximum_texture2d_gather_width 32768
maximum_texture2d_gather_height 32768, maximum_texture2d_mipmapped_width 32768
maximum_texture2d_mipmapped_height 32768, maximum_texture2d_layered_width 32768
maximum_texture2d_layered_height 32768, maximum_texture2d_layered_layers 2048, maximum_texture3d_width 16384
maximum_texture3d_height 16384, maximum_texture3d_depth 16384, maximum_texture3d_width_alternate 8192
maximum_texture3d_height_alternate 8192, maximum_texture3d_depth_alternate 32768, maximum_texturecubemap_width 32768
maximum_texturecubemap_layered_width 32768, maximum_texturecubemap_layered_layers 2046
maximum_surface1d_width 32768, maximum_surface1d_layered_width 32768, maximum_surface1d_layered_layers 2048
maximum_surface2d_width 131072, maximum_surface2d_height 65536, maximum_surface2d_layered_width 32768
maximum_surface2d_layered_height 32768, maximum_surface2d_layered_layers 2048, maximum_surface3d_width 16384
maximum_surface3d_height 16384, maximum_surface3d_depth 16384, maximum_surfacecubemap_width 32768
maximum_surfacecubemap_layered_width 32768, maximum_surfacecubemap_layered_layers 2046
"""
#: Attributes that are true.
_TRUE = """
can_map_host_memory can_tex2d_gather can_use_host_pointer_for_registered_mem cluster_launch
compute_preemption_supported concurrent_kernels concurrent_managed_access cooperative_launch ecc_enabled
global_l1_cache_supported gpu_overlap host_register_supported local_l1_cache_supported managed_memory
memory_pools_supported read_only_host_register_supported stream_priorities_supported tensor_map_access_supported
unified_addressing unified_function_pointers
"""
FLAGS = frozenset(_TRUE.split())
_NUMBERS = {name: int(number) for name, number in map(str.split, _TABLE.strip().replace("\n", ",").split(","))}


def numbers() -> dict[str, int]:
    """Return the attributes of the device that are numbers, by the driver's names in lower case."""
    limits = EmulatorPlace().limits()
    major, minor = limits.compute_capability
    axes = {f"max_{noun}_dim_{axis}": extent for noun in ("block", "grid")
            for axis, extent in zip("xyz", getattr(limits, noun), strict=True)}  # fmt: skip
    return _NUMBERS | axes | {
        "compute_capability_major": major, "compute_capability_minor": minor,
        "max_threads_per_block": limits.threads_per_block, "multiprocessor_count": limits.multiprocessors,
        "max_shared_memory_per_block_optin": limits.shared_bytes,
        "max_shared_memory_per_multiprocessor": limits.shared_bytes + _NUMBERS["reserved_shared_memory_per_block"],
    }  # fmt: skip


def attributes() -> dict[str, int]:
    """Return the attributes of the device by the driver's names in lower case, flags as 1. Others are 0."""
    return numbers() | dict.fromkeys(FLAGS, 1)


def resources_of(kernel: Kernel) -> dict[str, int]:
    """Return the resources of a kernel's machine code, by the driver's names of attributes in lower case."""
    limits, variables = EmulatorPlace().limits(), kernel.module.globals
    used = kernel.explain(arch=limits.arch)
    major, minor = limits.compute_capability
    # A warp takes a multiple of 256 registers.
    warps = _NUMBERS["max_registers_per_block"] // max(256, -(-used.registers * 32 // 256) * 256)
    return {
        "num_regs": used.registers, "local_size_bytes": used.spill_bytes, "shared_size_bytes": used.shared_bytes,
        "const_size_bytes": sum(variables.address(name)[1] for name in variables if variables.is_constant(name)),
        "max_threads_per_block": min(limits.threads_per_block, warps * 32), "ptx_version": 10 * major + minor,
        "binary_version": 10 * major + minor, "cache_mode_ca": 0, "preferred_shared_memory_carveout": -1,
        "max_dynamic_shared_size_bytes": _NUMBERS["max_shared_memory_per_block"] - used.shared_bytes,
    }  # fmt: skip


def resident_blocks(threads: int, registers: int, shared_bytes: int) -> int:
    """Return the blocks that a multiprocessor holds at once: of so many threads, registers a thread, and bytes."""
    warps, facts = -(-threads // 32), _NUMBERS
    registers_of_block = -(-max(1, registers) * 32 // 256) * 256 * warps
    reserved = facts["reserved_shared_memory_per_block"]
    return min(
        facts["max_blocks_per_multiprocessor"], facts["max_threads_per_multiprocessor"] // (warps * 32),
        facts["max_registers_per_multiprocessor"] // registers_of_block,
        (EmulatorPlace().limits().shared_bytes + reserved) // (shared_bytes + reserved),
    )  # fmt: skip
