"""Process many items with stages on the host and on the device, while copies and computations overlap.

>>> import cudakit as ck, numpy as np
>>> rows = ck.Pipeline([lambda x, stream: ck.ops.sum(x, axis=1, stream=stream)])  # a stage of the device
>>> for total in rows(np.full((2, 3), k, "f4") for k in range(3)):
...     print(total)
[0. 0.]
[3. 3.]
[6. 6.]
>>> x, out = np.arange(12, dtype="f4").reshape(6, 2), np.empty(6, "f4")
>>> chunks = rows.run(ck.pipeline.from_array(x, rows=2), ck.pipeline.to_array(out))
>>> print(chunks, out)
3 [ 1.  5.  9. 13. 17. 21.]

This page is a tour. ``help(ck.Pipeline)`` explains stages, streams, errors and devices.

- Stages: a function is a stage of the device, ``function(item, stream)``. `host` makes a stage of the host,
  ``function(item)``, with threads. `device` gives a stage of the device a name.
- Sources: any iterable of items, `from_array`, `from_npy`, `from_images`, `from_zarr`, `from_socket`. `ahead` reads a
  slow source on a thread. `named` gives items names.
- Sinks for ``Pipeline.run``: `to_array`, `to_npy`, `to_images`, `to_zarr`, `to_socket`. `write_image` is for stages.
- A `Run` is the iterator over the results. Its `Counters` say how many items are done.
"""

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
