"""What a kernel and a device tell of themselves."""

from cuda.core import Device, LaunchConfig, ObjectCode, Program, ProgramOptions, system

code = """
extern "C" __global__ void saxpy(float a, const float* x, float* y, size_t n) {
    __shared__ float s[32];
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x % 32] = a;
    if (i < n) y[i] = s[threadIdx.x % 32] * x[i] + y[i];
}
"""
device = Device(0)
device.set_current()
assert Device.get_all_devices()[0] == device
assert system.get_num_devices() >= 1
assert device.properties.warp_size == 32
assert device.properties.max_threads_per_block == 1024
assert device.arch == "".join(map(str, device.compute_capability))
program = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}", name="facts"))
ptx = program.compile("ptx")
assert b".entry saxpy" in (ptx.code.encode() if isinstance(ptx.code, str) else ptx.code)
code = program.compile("cubin")
assert code.code_type == "cubin"
assert code.name == "facts"
loaded = ObjectCode.from_cubin(code.code, symbol_mapping=code.symbol_mapping)
for kernel in (code.get_kernel("saxpy"), loaded.get_kernel("saxpy")):
    assert kernel.num_arguments == 4
    assert [(info.offset, info.size) for info in kernel.arguments_info] == [(0, 4), (8, 8), (16, 8), (24, 8)]
    assert kernel.attributes.shared_size_bytes == 128
    assert kernel.attributes.num_regs > 0
    assert kernel.attributes.max_threads_per_block == 1024
    assert kernel.occupancy.max_active_blocks_per_multiprocessor(256, 0) >= 1
assert LaunchConfig(grid=(2, 3), block=32).grid == (2, 3, 1)
print("done!")
