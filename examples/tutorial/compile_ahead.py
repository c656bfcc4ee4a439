"""Compile ahead: `Kernel.prepare` compiles before the first call, which then only loads the code.

A kernel is compiled at its first call for each dtype. `prepare` does so earlier, such as at the start of a program, and
for another arch, such as where a package is built. Compiled code is kept in a cache on disk, here in a folder of its
own. Look at how many entries the calls add: none.

Prints::

    prepare(np.float32):                 1 new file
    prepare(np.float32, arch='sm_80'):   1 new file
    a call with float32 arrays:          0 new files, nothing is compiled
"""

import tempfile
from pathlib import Path

import numpy as np

import cudakit as ck

with tempfile.TemporaryDirectory() as folder:
    scale = ck.Kernel(
        """
        template <typename T>
        __global__ void scale(T* x, T factor, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] *= factor;
        }
        """,
        options=ck.CompileOptions(cache=folder),
    )

    def files() -> set[Path]:
        """Return the files of the cache."""
        return {path for path in Path(folder).rglob("*") if path.is_file()}

    before = files()
    scale.prepare(np.float32)
    here = files() - before
    print(f"prepare(np.float32):                 {len(here)} new file")
    scale.prepare(np.float32, arch="sm_80")
    elsewhere = files() - before - here
    print(f"prepare(np.float32, arch='sm_80'):   {len(elsewhere)} new file")
    assert len(here) == len(elsewhere) == 1

    stream = ck.stream()
    host_x = np.arange(1000, dtype=np.float32)
    x = ck.to_device(host_x, stream)
    scale(stream, ck.cover(x.size), x, 2.0, x.size)
    np.testing.assert_array_equal(ck.to_host(x, stream), host_x + host_x)
    added = files() - before - here - elsewhere
    assert not added
    print(f"a call with float32 arrays:          {len(added)} new files, nothing is compiled")
