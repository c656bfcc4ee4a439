"""Where a system cannot fork, and lacks what else POSIX has, the package still runs kernels on the emulator."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
import multiprocessing.context, random, subprocess, tempfile  # these look at the system they are on
for name in "register_at_fork fork geteuid getegid getgid sched_getaffinity".split():
    delattr(os, name)
import numpy as np
import cudakit as ck
stream = ck.emulator.stream("sm_80")
x = np.arange(4, dtype=np.int32)
ck.Kernel("__global__ void twice(int* x) { x[threadIdx.x] *= 2; }")(stream, ck.config(1, 4), x)
assert x.tolist() == [0, 2, 4, 6] and ck.ops.sum(x, stream=stream) == 12
"""


def test_nothing_asks_for_what_only_posix_has() -> None:
    """What is only seen by reading on a machine that is no Windows: `docs/support.md`."""
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
