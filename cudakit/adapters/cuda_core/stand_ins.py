"""The table of the stand-ins: the names of cuda.core's modules that the emulator replaces."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cudakit.adapters.cuda_core import (
    devices,
    graphs,
    launching,
    memory,
    programs,
    resources,
    streams,
    systems,
    textures,
    unavailable,
    views,
)
from cudakit.adapters.cuda_core.parts import parts

for _owner, _names in {
    devices: "CONTEXT Device", graphs: "GraphBuilder", resources: "KernelAttributes KernelOccupancy",
    systems: "SystemDevice", textures: "TensorMapDescriptor",
}.items():  # fmt: skip
    for _name in _names.split():
        setattr(parts, _name, getattr(_owner, _name))

_TABLE: dict[str, dict[ModuleType, str]] = {
    "cuda.core": {
        devices: "Context Device",
        launching: "LaunchConfig launch",
        memory: "Buffer DeviceMemoryResource GraphMemoryResource LegacyPinnedMemoryResource ManagedMemoryResource "
        "MemoryResource PinnedMemoryResource",
        programs: "Kernel Linker LinkerOptions ObjectCode Program ProgramOptions",
        resources: "DeviceResources SMResource",
        streams: "Event LEGACY_DEFAULT_STREAM PER_THREAD_DEFAULT_STREAM Stream",
        textures: "TensorMapDescriptor",
        unavailable: "GraphicsResource ManagedBuffer VirtualMemoryResource WorkqueueResource",
    },
    "cuda.core.graph": {graphs: "Graph GraphBuilder GraphCondition", unavailable: "GraphDefinition"},
    "cuda.core.texture": {
        textures: "OpaqueArray ResourceDescriptor SurfaceObject TextureObject",
        unavailable: "MipmappedArray",
    },
    "cuda.core.utils": {
        views: "StridedMemoryView args_viewable_as_strided_memory copy_batch discard_batch discard_prefetch_batch "
        "prefetch_batch"
    },
    "cuda.core.system": {
        systems: "CUDA_BINDINGS_NVML_IS_COMPATIBLE get_driver_branch get_driver_version get_driver_version_full "
        "get_kernel_mode_driver_version get_num_devices get_nvml_version get_p2p_status get_process_name "
        "get_topology_common_ancestor get_user_mode_driver_version register_events"
    },
}


def names() -> dict[str, dict[str, Any]]:
    """Return the stand-ins by module and name. All other names of the modules are cuda.core's own."""
    table = {
        module: {name: getattr(owner, name) for owner, listed in owners.items() for name in listed.split()}
        for module, owners in _TABLE.items()
    }
    table["cuda.core.system"]["Device"] = systems.SystemDevice
    return table
