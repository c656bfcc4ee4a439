"""cuda.core without a driver: programs as its documentation writes them, and what the stand-ins refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudakit.adapters import program

pytestmark = pytest.mark.filterwarnings("ignore::cudakit.errors.EmulatorWarning")

VECTOR_ADD = '''
import cupy as cp
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

code = """
template<typename T>
__global__ void vector_add(const T* A, const T* B, T* C, size_t N) {
    const unsigned int tid = threadIdx.x + blockIdx.x * blockDim.x;
    for (size_t i = tid; i < N; i += gridDim.x * blockDim.x) { C[i] = A[i] + B[i]; }
}
"""
dev = Device()
dev.set_current()
s = dev.create_stream()
prog = Program(code, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{dev.arch}"))
ker = prog.compile("cubin", name_expressions=("vector_add<float>",)).get_kernel("vector_add<float>")
size = 5000
rng = cp.random.default_rng()
a, b = rng.random(size, dtype=cp.float32), rng.random(size, dtype=cp.float32)
c = cp.empty_like(a)
dev.sync()
launch(s, LaunchConfig(grid=20, block=256), ker, a.data.ptr, b.data.ptr, c.data.ptr, cp.uint64(size))
s.sync()
assert cp.allclose(c, a + b)
print("done!")
'''


def test_a_program_of_bare_cuda_core_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "vector_add.py"
    path.write_text(VECTOR_ADD)
    program.run(path)
    assert capsys.readouterr().out == "done!\n"
