"""Mistakes that cuda.core reports, caught as its documentation says."""

import io

from cuda.core import Device, EventOptions, LaunchConfig, Program, ProgramOptions, launch

device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(arch=f"sm_{device.arch}")


def refused(error, call, *arguments, **keywords):
    try:
        call(*arguments, **keywords)
    except error as caught:
        return str(caught)
    raise AssertionError(f"{call} was not refused")


broken = Program('extern "C" __global__ void f(int* x) { *x = unknown; }', "c++", options=options)
assert "unknown" in refused(Exception, broken.compile, "cubin")
fine = Program("__global__ void f() { int unused; }", "c++", options=options)
log = io.StringIO()
module = fine.compile("cubin", name_expressions=("f",), logs=log)
assert "unused" in log.getvalue()
refused(Exception, module.get_kernel, "g")
refused(ValueError, fine.compile, "no format")
refused(RuntimeError, Program, "x", "fortran")
refused(ValueError, LaunchConfig, grid=0, block=1)
refused(ValueError, LaunchConfig, grid=(1, 1, 1, 1), block=1)
kernel, config = module.get_kernel("f"), LaunchConfig(grid=1, block=1)
refused(TypeError, launch, None, config, kernel)
refused(TypeError, launch, stream, None, kernel)
refused(TypeError, launch, stream, config, None)
buffer, other = device.allocate(16, stream=stream), device.allocate(32, stream=stream)
refused(ValueError, buffer.copy_to, other, stream=stream)
refused(ValueError, buffer.fill, b"123", stream=stream)
refused(OverflowError, buffer.fill, 300, stream=stream)
refused(ValueError, Device, -1)
timed, untimed = stream.record(options=EventOptions(timing_enabled=True)), stream.record()
refused(RuntimeError, lambda: untimed - timed)
launch(stream, config, kernel)
stream.sync()
print("done!")
