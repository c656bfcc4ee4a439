"""New CuPy arrays whose memory belongs to a stream."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import cupy
import numpy as np

from cudakit.memory import accounting
from cudakit.memory.spare_buffers import spares
from cudakit.streams import streams
from cudakit.streams.streams import Known


def device_array(shape: tuple[int, ...], dtype: np.dtype, target: Known) -> Any:
    """A new CuPy array whose memory belongs to a stream.

    Raises
    ------
    LaunchError
        Where there is not that much memory.
    """
    is_current = cupy.cuda.get_current_stream(target.device_id).ptr == target.handle
    with contextlib.nullcontext() if is_current else streams.cupy_stream(target.core):
        try:
            return cupy.ndarray(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError:
            spares().drop()
        try:
            return cupy.ndarray(shape, dtype)
        except cupy.cuda.memory.OutOfMemoryError as error:
            size = math.prod(shape) * dtype.itemsize
            raise accounting.out_of_device_memory(size, target.device_id) from error
