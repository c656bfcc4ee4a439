"""Errors of a launch: most are raised before anything reaches the driver.

Wrong arguments and wrong block sizes raise at the call, and the stream is as good as before. Look at the last line: a
kernel that fails while it runs is reported by the next call that waits for it. On a GPU the process cannot use the GPU
after that, so a second process shows it. On the emulator the call itself raises.

Prints::

    too few arguments:  scale takes 3 arguments (x, by, n) after stream and config, got 2: n is missing
    wrong dtype:        scale: parameter x (float*) takes elements of float32, got numpy array of float64 with shape
        ↳ (100,); convert it with x.astype('float32'), or give other template arguments
    block too large:    scale: block.x is 2048, over the limit 1024 of the emulator's sm_90
    right arguments:    every element is 2.0
    fails as it runs:   EmulationError: scale: call.uni (PTX line 70, launch_errors.py:28): launch_errors.py:28: void
        ↳ scale(float *, float, int): block 0, thread 0: assertion `by != 0` failed
"""

import subprocess
import sys

import numpy as np

import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(by != 0);
    if (i < n) x[i] *= by;
}
""")


def fail_while_running() -> None:
    """Launch a kernel that fails an assertion while it runs."""
    stream = ck.stream()
    x = ck.to_device(np.ones(100, np.float32), stream)
    scale(stream, ck.cover(100), x, 1.0, 100)
    ck.to_host(x, stream)  # waits: no error so far
    try:
        scale(stream, ck.cover(100), x, 0.0, 100)
        ck.to_host(x, stream)  # waits, and raises; so would the next launch
    except ck.CudakitError as error:
        print(f"{type(error).__name__}: {error}")


if sys.argv[1:] == ["fail"]:
    fail_while_running()
    sys.exit()

stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.ones(100, dtype=xp.float32)
    for label, config, arguments, error_class, part in (
        ("too few arguments: ", ck.cover(100), (x, 2.0), ck.ArgumentError, "n is missing"),
        ("wrong dtype:       ", ck.cover(100), (x.astype(xp.float64), 2.0, 100), ck.ArgumentError, "float64"),
        ("block too large:   ", ck.config(1, 2048), (x, 2.0, 100), ck.LaunchError, "1024"),
    ):
        raised: ck.CudakitError | None = None
        try:
            scale(stream, config, *arguments)
        except ck.CudakitError as error:
            raised = error
        assert type(raised) is error_class
        assert part in str(raised)
        print(f"{label} {raised}")
    scale(stream, ck.cover(100), x, 2.0, 100)  # the stream still works
    np.testing.assert_array_equal(ck.to_host(x, stream), np.full(100, 2, np.float32))
    print("right arguments:    every element is", float(x[0]))

child = subprocess.run([sys.executable, __file__, "fail"], capture_output=True, text=True, check=True)
assert child.stdout.startswith("LaunchError" if ck.has_gpu() else "EmulationError"), child.stdout + child.stderr
print(f"fails as it runs:   {child.stdout.splitlines()[0]}")
