"""Pipelines in processes of their own, which end otherwise than by themselves."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from support.emulated import place
from support.tiers import in_tiers

INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background programs start with it ignored
import sys, threading, time
import numpy as np
import cudakit as ck
from cudakit import pipeline as lines

stream = ck.stream() if sys.argv[1] == "gpu" else ck.emulator.stream()
started = threading.Event()

def slow(x):
    time.sleep(0.01)
    return x

def source():
    try:
        while True:
            yield np.ones(8, np.float32)
    finally:
        print("source closed", flush=True)

stages = [lambda x, _: x + 1]
options = {}
if sys.argv[2] == "yields":
    def several(x):
        while True:
            yield slow(x)
    stages, options = [lines.host(several, threads=2), *stages, lines.host(slow)], {"on_error": "skip"}
if sys.argv[2] == "host":
    stages = [lines.host(slow), *stages, lines.host(slow, threads=2)]
try:
    for number, result in enumerate(ck.Pipeline(stages, stream=stream, **options)(source())):
        if number == 3:
            print("running", flush=True)
except KeyboardInterrupt:
    time.sleep(0.05)
    print("left", [t.name for t in threading.enumerate() if t.name.startswith("cudakit pipeline")], flush=True)
    stream.sync()
    print(float(next(iter(ck.Pipeline([lambda x, _: x + 1], stream=stream)([np.ones(2)])))[0]), flush=True)
    sys.exit(3)
"""


@in_tiers("kind", ["host", "device", "yields"], quick=lambda kind: kind == "device", strength=None)
def test_ctrl_c(kind: str) -> None:
    where = "gpu" if place.is_gpu else "emulator"
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, where, kind], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "running\n"
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert said.splitlines() == ["source closed", "left []", "2.0"]
    assert child.returncode == 3


TRAPPED = """
import numpy as np
import cudakit as ck
from cudakit import pipeline as lines

stream = ck.stream()
kernel = ck.Kernel('__global__ void check(float* x) { if (x[0] == 5) asm("trap;"); x[0] += 1; }')
spare = ck.empty(4, np.float32, stream=stream)

def check(x, stream):
    kernel(stream, ck.config(1, 1), x)
    return x

delivered = []
try:
    stages = [lines.host(lambda n: np.full(4, n, np.float32)), check]
    for result in ck.Pipeline(stages, stream=stream, depth=2)(range(9)):
        delivered.append(float(result[0]))
except ck.PipelineError as error:
    print(type(error.__cause__).__name__, "context is lost" in str(error.__cause__), error.item <= 5)
print(delivered == [number + 1.0 for number in range(len(delivered))], len(delivered))
for _ in range(2):
    try:
        kernel(stream, ck.config(1, 1), spare)
        print("went on")
    except ck.LaunchError as error:
        print("context is lost" in str(error), "start a new process" in str(error))
"""


@pytest.mark.gpu
def test_a_kernel_that_traps() -> None:
    """The loss of the context is reported for what it is, every later call fails, and a new process works."""
    done = subprocess.run([sys.executable, "-c", TRAPPED], capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout.splitlines()
    assert said[0] == "LaunchError True True", (said, done.stderr)
    assert said[1] in [f"True {count}" for count in range(6)]
    assert said[2:] == ["True True"] * 2, (said, done.stderr)
    fine = TRAPPED.replace("x[0] == 5", "x[0] == 50")
    again = subprocess.run([sys.executable, "-c", fine], capture_output=True, text=True, timeout=120, check=False)
    assert again.stdout.splitlines() == ["True 9", "went on", "went on"], again.stderr
