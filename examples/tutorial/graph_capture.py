"""A graph: 100 launches captured once, then launched as one.

`ck.capture` records the calls and runs nothing. Look at the last line: `x=x` names an array, and a launch of the graph
may replace it by another one.

Prints::

    captured, not run:  [0. 0. 0.]
    launched:           [100. 100. 100.]
    launched again:     [200. 200. 200.]
    with another array: [100. 100. 100.]
"""

import cudakit as ck

increment = ck.Kernel("""
__global__ void increment(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    x, other = xp.zeros(3, dtype=xp.float32), xp.zeros(3, dtype=xp.float32)
    with ck.capture(stream, x=x) as graph:
        for _ in range(100):
            increment(stream, ck.cover(3), x, 3)
    print(f"captured, not run:  {x}")
    graph.launch(stream)
    print(f"launched:           {x}")
    graph.launch(stream)
    print(f"launched again:     {x}")
    graph(stream, x=other)
    print(f"with another array: {other}")
    assert float(x[0]) == 200
    assert float(other[2]) == 100
