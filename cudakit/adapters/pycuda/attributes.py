"""Attributes of devices: the driver's, or of the emulator those of an H100."""

from __future__ import annotations

from typing import Any

from cudakit.adapters.pycuda.enums import compute_mode, device_attribute
from cudakit.adapters.pycuda.errors import LogicError, call
from cudakit.places import device_limits
from cudakit.streams import devices

#: What the emulator answers, beside its limits: an H100's numbers.
_EMULATED = {
    "ASYNC_ENGINE_COUNT": 3, "CAN_MAP_HOST_MEMORY": 1, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM": 1,
    "CLOCK_RATE": 1_980_000, "COMPUTE_MODE": 0, "COMPUTE_PREEMPTION_SUPPORTED": 1, "CONCURRENT_KERNELS": 1,
    "CONCURRENT_MANAGED_ACCESS": 1, "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST": 0, "ECC_ENABLED": 0,
    "GENERIC_COMPRESSION_SUPPORTED": 0, "GLOBAL_L1_CACHE_SUPPORTED": 1, "GLOBAL_MEMORY_BUS_WIDTH": 5120,
    "GPU_OVERLAP": 1, "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED": 0, "HANDLE_TYPE_WIN32_HANDLE_SUPPORTED": 0,
    "HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED": 0, "HOST_NATIVE_ATOMIC_SUPPORTED": 0, "INTEGRATED": 0,
    "KERNEL_EXEC_TIMEOUT": 0, "L2_CACHE_SIZE": 52_428_800, "LOCAL_L1_CACHE_SUPPORTED": 1, "MANAGED_MEMORY": 1,
    "MAXIMUM_SURFACE1D_LAYERED_LAYERS": 2048, "MAXIMUM_SURFACE1D_LAYERED_WIDTH": 32_768,
    "MAXIMUM_SURFACE1D_WIDTH": 32_768, "MAXIMUM_SURFACE2D_HEIGHT": 65_536,
    "MAXIMUM_SURFACE2D_LAYERED_HEIGHT": 32_768, "MAXIMUM_SURFACE2D_LAYERED_LAYERS": 2048,
    "MAXIMUM_SURFACE2D_LAYERED_WIDTH": 32_768, "MAXIMUM_SURFACE2D_WIDTH": 131_072, "MAXIMUM_SURFACE3D_DEPTH": 16_384,
    "MAXIMUM_SURFACE3D_HEIGHT": 16_384, "MAXIMUM_SURFACE3D_WIDTH": 16_384, "MAXIMUM_SURFACECUBEMAP_WIDTH": 32_768,
    "MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS": 2046, "MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH": 32_768,
    "MAXIMUM_TEXTURE1D_LAYERED_LAYERS": 2048, "MAXIMUM_TEXTURE1D_LAYERED_WIDTH": 32_768,
    "MAXIMUM_TEXTURE1D_LINEAR_WIDTH": 268_435_456, "MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH": 32_768,
    "MAXIMUM_TEXTURE1D_WIDTH": 131_072, "MAXIMUM_TEXTURE2D_GATHER_HEIGHT": 32_768,
    "MAXIMUM_TEXTURE2D_GATHER_WIDTH": 32_768, "MAXIMUM_TEXTURE2D_HEIGHT": 65_536,
    "MAXIMUM_TEXTURE2D_LAYERED_HEIGHT": 32_768, "MAXIMUM_TEXTURE2D_LAYERED_LAYERS": 2048,
    "MAXIMUM_TEXTURE2D_LAYERED_WIDTH": 32_768, "MAXIMUM_TEXTURE2D_LINEAR_HEIGHT": 65_000,
    "MAXIMUM_TEXTURE2D_LINEAR_PITCH": 2_097_120, "MAXIMUM_TEXTURE2D_LINEAR_WIDTH": 131_072,
    "MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT": 32_768, "MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH": 32_768,
    "MAXIMUM_TEXTURE2D_WIDTH": 131_072, "MAXIMUM_TEXTURE3D_DEPTH": 16_384,
    "MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE": 32_768, "MAXIMUM_TEXTURE3D_HEIGHT": 16_384,
    "MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE": 8192, "MAXIMUM_TEXTURE3D_WIDTH": 16_384,
    "MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE": 8192, "MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS": 2046,
    "MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH": 32_768, "MAXIMUM_TEXTURECUBEMAP_WIDTH": 32_768,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32, "MAX_PERSISTING_L2_CACHE_SIZE": 32_768_000, "MAX_PITCH": 2_147_483_647,
    "MAX_REGISTERS_PER_BLOCK": 65_536, "MAX_REGISTERS_PER_MULTIPROCESSOR": 65_536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49_152, "MAX_THREADS_PER_MULTIPROCESSOR": 2048, "MEMORY_CLOCK_RATE": 2_619_000,
    "MEMORY_POOLS_SUPPORTED": 1, "MULTI_GPU_BOARD": 0, "MULTI_GPU_BOARD_GROUP_ID": 0, "PAGEABLE_MEMORY_ACCESS": 0,
    "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES": 0, "PCI_BUS_ID": 0, "PCI_DEVICE_ID": 0, "PCI_DOMAIN_ID": 0,
    "READ_ONLY_HOST_REGISTER_SUPPORTED": 1, "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2, "STREAM_PRIORITIES_SUPPORTED": 1, "SURFACE_ALIGNMENT": 512,
    "TCC_DRIVER": 0, "TEXTURE_ALIGNMENT": 512, "TEXTURE_PITCH_ALIGNMENT": 32, "TOTAL_CONSTANT_MEMORY": 65_536,
    "UNIFIED_ADDRESSING": 1, "WARP_SIZE": 32,
}  # fmt: skip


def _of_limits() -> dict[str, int]:
    """Return the attributes that the emulated device's limits say."""
    limits = device_limits()
    axes = dict(zip((f"MAX_BLOCK_DIM_{axis}" for axis in "XYZ"), limits.block, strict=True))
    axes |= dict(zip((f"MAX_GRID_DIM_{axis}" for axis in "XYZ"), limits.grid, strict=True))
    major, minor = limits.compute_capability
    return axes | {
        "COMPUTE_CAPABILITY_MAJOR": major, "COMPUTE_CAPABILITY_MINOR": minor,
        "MAX_THREADS_PER_BLOCK": limits.threads_per_block, "MULTIPROCESSOR_COUNT": limits.multiprocessors,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": limits.shared_bytes,
        "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": limits.shared_bytes + 1024,
        "COOPERATIVE_LAUNCH": int(limits.cooperative),
    }  # fmt: skip


def attribute_of(number: int, attribute: Any) -> Any:
    """Return an attribute of the device with a number.

    Raises
    ------
    LogicError
        If the driver, or the emulator, has no such attribute.
    """
    member = device_attribute(int(attribute))
    if devices.has_gpu():
        from cuda.bindings import driver

        value = int(call("cuDeviceGetAttribute", driver.CUdevice_attribute(int(member)), number))
    else:
        emulated = _of_limits() | _EMULATED
        if member.name not in emulated:
            raise LogicError(f"cuDeviceGetAttribute failed: invalid value: the emulator has no {member.name}")
        value = emulated[member.name]
    return compute_mode(value) if member.name == "COMPUTE_MODE" else value
