"""A graph builder of cuda.core: calls are recorded when the builder takes the place of the stream.

The same function launches on a stream or is recorded into a graph. Look at the values: recording runs nothing. The
emulator has no builders. `ck.capture` (graph_capture.py) does more: it keeps arrays alive, takes other arrays at a
launch, and works on the emulator.

Prints::

    on the stream: 3 15
    as a graph: needs a GPU
"""

from typing import Any

import numpy as np

import cudakit as ck

step = ck.Kernel("""
template <typename T>
__global__ void step(T* x, T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = factor * x[i] + 1;
}
""")
stream = ck.stream()
size = 1000
x = ck.to_device(np.zeros(size, np.float32), stream)


def two_steps(target: Any) -> None:
    """Compute x = 2 x + 1 twice: on a stream, or in a graph."""
    for _ in range(2):
        step(target, ck.cover(size), x, 2.0, size)


def values(count: int, launch: Any) -> list[int]:
    """Launch `count` times; return the value of all elements after each launch."""
    results = []
    for _ in range(count):
        launch(stream)
        host_x = ck.to_host(x, stream)
        assert (host_x == host_x[0]).all()
        results.append(int(host_x[0]))
    return results


on_stream = values(2, two_steps)
assert on_stream == [3, 15]
print("on the stream:", *on_stream)

if ck.has_gpu():
    ck.to_device(np.zeros(size, np.float32), stream, out=x)
    stream.sync()
    with ck.using(stream):  # makes it CuPy's current stream: a graph cannot wait for another stream's work on x
        builder = stream.create_graph_builder().begin_building()
        two_steps(builder)
        graph = builder.end_building().complete()
    assert (ck.to_host(x, stream) == 0).all()  # recorded, and not run
    assert values(3, graph.launch) == [3, 15, 63]
    print("as a graph: 3 15 63")
else:
    print("as a graph: needs a GPU")
