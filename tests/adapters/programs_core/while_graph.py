"""A graph with a loop that a kernel ends."""

import cupy as cp
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

code = """
extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(
    cudaGraphConditionalHandle handle, unsigned int value);
extern "C" __global__ void count(cudaGraphConditionalHandle handle, int* left, int* rounds) {
    *rounds += 1;
    cudaGraphSetConditional(handle, --*left > 0);
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
count = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}")).compile("cubin").get_kernel("count")
left, rounds = cp.full(1, 5, dtype=cp.int32), cp.zeros(1, dtype=cp.int32)
device.sync()
builder = device.create_graph_builder().begin_building()
condition = builder.create_condition(default_value=1)
body = builder.while_loop(condition).begin_building()
launch(body, LaunchConfig(grid=1, block=1), count, condition, left.data.ptr, rounds.data.ptr)
body.end_building()
graph = builder.end_building().complete()
graph.launch(stream)
stream.sync()
assert int(left[0]) == 0
assert int(rounds[0]) == 5
print("done!")
