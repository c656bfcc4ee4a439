"""A `GraphBuilder` of cuda.core in a stream's place: launches are recorded into its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck

SIZE = 1000
step = ck.Kernel("""
template <typename T>
__global__ void step(T* x, const T* y, T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = factor * x[i] + y[i];
}
""")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_launches_are_recorded_and_not_run(stream: Any, xp: Any, dtype: type) -> None:
    x, y = xp.zeros(SIZE, dtype), xp.ones(SIZE, dtype)
    step(stream, ck.cover(SIZE), x, y, 2, SIZE)  # both arrays are the stream's now
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    for _ in range(3):
        step(builder, ck.cover(SIZE), x, y, 2, SIZE)
    graph = builder.end_building().complete()
    assert (to_host(x) == 1).all()
    for expected in (15, 127):
        graph.launch(stream)
        stream.sync()
        assert (to_host(x) == expected).all()
    step(stream, ck.cover(SIZE), x, y, 2, SIZE)  # the stream launches as before
    stream.sync()
    assert (to_host(x) == 255).all()


@pytest.mark.gpu
def test_wrong_arguments_are_refused_while_it_builds(stream: Any, xp: Any) -> None:
    x, other = xp.zeros(SIZE, np.float32), xp.zeros(SIZE, np.float64)
    step(stream, ck.cover(SIZE), x, x, 1, SIZE)  # the stream is known before its graph is built
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    with pytest.raises(ck.TemplateError, match="from y"):
        step(builder, ck.cover(SIZE), x, other, 2, SIZE)
    step(builder, ck.cover(SIZE), x, x, 1, SIZE)
    graph = builder.end_building().complete()
    graph.launch(stream)
    stream.sync()
    assert (to_host(x) == 0).all()


@pytest.mark.gpu
def test_no_event_of_the_order_gets_into_a_graph_that_others_build(stream: Any, xp: Any) -> None:
    x, y = xp.zeros(SIZE, np.float32), xp.ones(SIZE, np.float32)
    other = ck.stream()
    for _ in range(80):  # the array goes to and fro, so that each launch has an event
        step(other, ck.cover(SIZE), x, y, 0, SIZE)
        step(stream, ck.cover(SIZE), x, y, 0, SIZE)
    other.sync()
    stream.sync()
    builder = stream.create_graph_builder().begin_building()
    for _ in range(200):  # at times it is looked which events are done
        step(builder, ck.cover(SIZE), x, y, 1, SIZE)
    with pytest.raises(ck.LaunchError, match="others capture"):
        step(other, ck.cover(SIZE), x, y, 1, SIZE)
    graph = builder.end_building().complete()
    assert (to_host(x) == 1).all()
    step(other, ck.cover(SIZE), x, y, 1, SIZE)
    step(stream, ck.cover(SIZE), x, y, 1, SIZE)
    stream.sync()
    assert (to_host(x) == 3).all()
    graph.launch(stream)
    stream.sync()
    assert (to_host(x) == 203).all()
