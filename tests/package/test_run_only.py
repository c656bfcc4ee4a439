"""What a machine without a compiler needs: no NVRTC, no parser, no headers, no CuPy; on macOS nothing of NVIDIA's."""

from __future__ import annotations

from support.absent import ON_MACOS, run

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x)
{
    .reg .b32 %r<2>; .reg .f32 %f<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f1;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""
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
