"""A `GraphBuilder` of cuda.core in a stream's place: what is written for a stream is recorded, and launched as a graph.

The builder is cuda.core's, of a stream that nothing else uses meanwhile; `ck.capture` (graph_capture.py) does more: it
holds the arrays, takes others at a launch, and works on the emulator, which has no builders: there a stream it is.

Prints::

    on the stream: 3 15
    as a graph: needs a GPU, and there is none here
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


def two_steps(where: Any) -> None:
    """Twice x = 2 x + 1: on a stream, or into a graph."""
    for _ in range(2):
        step(where, ck.cover(size), x, 2.0, size)


def values(times: int, put: Any) -> list[int]:
    """What all elements are after each time."""
    found = []
    for _ in range(times):
        put(stream)
        array = ck.to_host(x, stream)
        assert (array == array[0]).all()
        found.append(int(array[0]))
    return found


on_stream = values(2, two_steps)
assert on_stream == [3, 15]
print("on the stream:", *on_stream)

if ck.has_gpu():
    ck.to_device(np.zeros(size, np.float32), stream, out=x)
    stream.sync()
    with ck.using(stream):  # or x, which is CuPy's, were that library's current stream's, of which no graph can wait
        builder = stream.create_graph_builder().begin_building()
        two_steps(builder)
        graph = builder.end_building().complete()
    assert (ck.to_host(x, stream) == 0).all()  # recorded, not run
    assert values(3, graph.launch) == [3, 15, 63]
    print("as a graph, launched three times: 3 15 63")
else:
    print("as a graph: needs a GPU, and there is none here")
