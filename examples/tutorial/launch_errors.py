"""What goes wrong in a launch, and how it is said: before anything reaches the driver, with the parameter's name.

Prints::

    too few:     scale takes 3 arguments (x, by, n) after stream and config, got 2: n is missing
    wrong dtype: ...x...float64...
    too large:   ...1024...
    ...
"""

import cudakit as ck

scale = ck.Kernel("""
__global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
""")

stream = ck.stream()
with ck.using(stream) as xp:
    x = xp.ones(100, dtype=xp.float32)
    try:
        scale(stream, ck.cover(100), x, 2.0)
    except ck.ArgumentError as error:
        print(f"too few:     {error}")
    try:
        scale(stream, ck.cover(100), x.astype(xp.float64), 2.0, 100)
    except ck.ArgumentError as error:
        print(f"wrong dtype: {error}")
    try:
        scale(stream, ck.config(1, 2048), x, 2.0, 100)
    except ck.LaunchError as error:
        print(f"too large:   {error}")
    scale(stream, ck.cover(100), x, 2.0, 100)  # after all that the stream is as good as before
    assert float(x[99]) == 2.0
    print("right:       every element is", float(x[0]))
