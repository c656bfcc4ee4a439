"""Pipelines: stages of the host and of the device over a stream of items; what items come from, and go to."""

from cudakit.pipeline.pipeline import Pipeline
from cudakit.pipeline.run import Counters, Run
from cudakit.pipeline.sinks import Sink, to_array, to_images, to_npy, to_socket, to_zarr, write_image
from cudakit.pipeline.sources import ahead, from_array, from_images, from_npy, from_socket, from_zarr, named
from cudakit.pipeline.stages import Stage, device, host

__all__ = [
    "Counters", "Pipeline", "Run", "Sink", "Stage", "ahead", "device", "from_array", "from_images", "from_npy",
    "from_socket", "from_zarr", "host", "named", "to_array", "to_images", "to_npy", "to_socket", "to_zarr",
    "write_image",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
