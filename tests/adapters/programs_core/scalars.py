"""Numbers of Python, NumPy and ctypes as arguments."""

import ctypes

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

code = """
template <typename T> __global__ void put(T* x, T value) { *x = value; }
"""
values = {
    "bool": (True, np.bool_(True), ctypes.c_bool(True)),
    "double": (2.5, np.float64(2.5), ctypes.c_double(2.5)),
    "float": (np.float32(1.25), ctypes.c_float(1.25)),
    "int": (np.int32(-5), ctypes.c_int32(-5)),
    "short": (np.int16(-300), ctypes.c_int16(-300)),
    "unsigned char": (np.uint8(200), ctypes.c_uint8(200)),
    "long long": (np.int64(-(2**40)), ctypes.c_int64(-(2**40)), -(2**40)),
    "unsigned long long": (np.uint64(2**63), ctypes.c_uint64(2**63), 77),
}
device = Device()
device.set_current()
stream = device.create_stream()
program = Program(code, "c++", options=ProgramOptions(arch=f"sm_{device.arch}"))
module = program.compile("cubin", name_expressions=[f"put<{name}>" for name in values])
buffer = LegacyPinnedMemoryResource().allocate(8, stream=stream)
memory = np.from_dlpack(buffer)
for name, numbers in values.items():
    kernel = module.get_kernel(f"put<{name}>")
    for number in numbers:
        launch(stream, LaunchConfig(grid=1, block=1), kernel, buffer, number)
        stream.sync()
        plain = number.value if hasattr(number, "value") else number
        dtype = np.asarray(numbers[-1].value if hasattr(numbers[-1], "value") else numbers[0]).dtype
        size = {"int": 4, "short": 2, "unsigned char": 1, "bool": 1, "float": 4}.get(name, 8)
        typed = {"bool": np.bool_, "double": np.float64, "float": np.float32}.get(name)
        typed = typed or np.dtype(f"{'u' if 'unsigned' in name else 'i'}{size}").type
        assert memory[:size].view(typed)[0] == plain, (name, number)
print("done!")
