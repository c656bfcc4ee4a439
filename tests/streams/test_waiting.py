"""What waiting for a stream raises where a kernel has failed."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.streams import streams

TRAPPED = """
import cudakit as ck, numpy as np
stream, other = ck.stream(), ck.stream()
x = ck.to_device(np.full(32, 5, "f4"), stream)
stream.sync()
kernel = ck.Kernel('__global__ void check(float* x) { if (x[threadIdx.x] == 5) asm("trap;"); }')
kernel(stream, ck.config(1, 32), x)
for waits in (stream, other, stream):
    try:
        waits.sync()
        print("nothing")
    except ck.CudakitError as error:
        print(type(error).__name__, "context is lost" in str(error), type(error.__cause__).__name__)
"""


def test_cuda_core_still_adopts_streams_into_a_class_of_ours() -> None:
    class Foreign:
        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, 4096)

    class Device:
        def create_stream(self) -> Foreign:
            return Foreign()

    from cuda.core import Stream

    made = streams.create(Device())
    assert isinstance(made, Stream)
    assert type(made) is not Stream
    assert streams.handle_of(made) == 4096


@pytest.mark.gpu
def test_a_kernel_that_fails_is_told_of_by_sync() -> None:
    done = subprocess.run([sys.executable, "-c", TRAPPED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines() == ["LaunchError True CUDAError"] * 3, done.stderr


def test_sync_in_a_capture(stream: Any) -> None:
    with pytest.raises(ck.LaunchError), ck.capture(stream):
        stream.sync()
    stream.sync()


@pytest.mark.gpu
def test_it_is_a_stream_as_cuda_core_makes_them(stream: Any, xp: Any) -> None:
    made = ck.stream()
    assert made.is_nonblocking
    assert made.priority == stream.device.create_stream().priority
    assert made.device == stream.device
    gc.collect()  # nothing but `made` holds the driver's stream
    scale = ck.Kernel("__global__ void scale(float* x) { x[threadIdx.x] *= 2; }")
    x = xp.ones(32, "f4")
    scale(made, ck.config(1, 32), x)
    event = made.record()
    stream.wait(event)
    made.sync()
    assert np.array_equal(to_host(x), np.full(32, 2, "f4"))
    assert made == made
    assert made != ck.stream()
    assert len({made, made, ck.stream()}) == 2
    builder = made.create_graph_builder()
    builder.begin_building().end_building()
    made.close()
    assert made.is_closed
