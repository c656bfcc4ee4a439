"""Stand-ins for classes of cuda.core that need a GPU's driver: making one raises, and says what to use."""

from __future__ import annotations

from typing import Any

from cudakit.adapters.cuda_core.faults import unavailable

_OPENGL = "memory is shared with OpenGL, which needs a GPU"
GraphDefinition: Any = unavailable(
    "GraphDefinition", "a graph of nodes needs a GPU's driver; without one use device.create_graph_builder()"
)
GraphicsResource: Any = unavailable("GraphicsResource", _OPENGL, "from_gl_buffer", "from_gl_image")
ManagedBuffer: Any = unavailable(
    "ManagedBuffer",
    "needs a GPU's driver; without one ManagedMemoryResource().allocate(size, stream=stream) gives a Buffer",
    "from_handle",
)
MipmappedArray: Any = unavailable("MipmappedArray", "the emulator has no mipmaps; use OpaqueArray")
VirtualMemoryResource: Any = unavailable(
    "VirtualMemoryResource", "needs a GPU's driver; without one use DeviceMemoryResource(device)"
)
WorkqueueResource: Any = unavailable("WorkqueueResource", "the emulator has no work queues")
