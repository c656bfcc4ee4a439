"""What a machine without a compiler needs: no NVRTC, no parser, no headers, no CuPy; on macOS nothing of NVIDIA's."""

from __future__ import annotations

from support.absent import ON_MACOS, PTX, run

BEGIN = """
import warnings, numpy as np, cudakit as ck
warnings.simplefilter("ignore", ck.EmulatorWarning)
"""


def test_ptx_runs_where_nothing_of_nvidia_is_installed() -> None:
    program = f"""{BEGIN}
assert not ck.has_gpu() and ck.device_limits().arch
stream = ck.stream()
twice = ck.Kernel.from_ptx({PTX!r})
x = ck.to_device(np.arange(32, dtype=np.float32), stream)
with ck.Timer(stream), ck.trace():
    twice(stream, ck.config(1, 32), x)
assert (ck.to_host(x, stream) == 2 * np.arange(32)).all()
for use in (lambda: ck.Kernel("__global__ void f() {{}}"), lambda: ck.ops.sum(x, stream=stream)):
    try:
        use()
    except ck.CompileError as error:
        print(error)
from cudakit.jit.compile import nvrtc
try:
    nvrtc.load_library("nvrtc")
except ck.CompileError as error:
    print(error)
missing = ck.show_config("dicts")["missing"]
print([entry["command"] for entry in missing])
"""
    words = run(program, ON_MACOS).splitlines()
    assert len(words) == 4
    assert all("tree_sitter is not installed" in line and "pip install 'cudakit[cu13]'" in line for line in words[:2])
    assert "NVRTC, CUDA's compiler, is not installed: pip install 'cudakit[cu13]'" in words[2]
    assert "cudakit[cu13]" in words[3]


def test_a_broken_parser_is_not_called_missing() -> None:
    program = """
import sys, cudakit as ck
sys.modules["tree_sitter_cuda"] = __import__("types").ModuleType("tree_sitter_cuda")
try:
    ck.Kernel("__global__ void f() {}")
except ImportError as error:
    print(type(error).__name__, error)
"""
    assert run(program, ()).startswith("ImportError cannot import name 'language'")
