"""A graph with two branches, launched three times."""

import cupy as cp
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
from cuda.core.graph import GraphBuilder

code = """
extern "C" __global__ void add(int* x, int by) { x[threadIdx.x] += by; }
extern "C" __global__ void sum(const int* x, const int* y, int* z) { z[threadIdx.x] = x[threadIdx.x] + y[threadIdx.x]; }
"""
device = Device()
device.set_current()
stream = device.create_stream()
module = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin")
add, total = module.get_kernel("add"), module.get_kernel("sum")
x, y, z = (cp.zeros(32, dtype=cp.int32) for _ in range(3))
device.sync()
config = LaunchConfig(grid=1, block=32)

builder = device.create_graph_builder().begin_building()
launch(builder, config, add, x.data.ptr, np.int32(1))
left, right = builder.split(2)
launch(left, config, add, x.data.ptr, np.int32(1))
launch(right, config, add, y.data.ptr, np.int32(10))
builder = GraphBuilder.join(left, right)
launch(builder, config, total, x.data.ptr, y.data.ptr, z.data.ptr)
graph = builder.end_building().complete()
graph.upload(stream)
for _ in range(3):
    graph.launch(stream)
stream.sync()
assert (cp.asnumpy(z) == 36).all()
print("done!")
