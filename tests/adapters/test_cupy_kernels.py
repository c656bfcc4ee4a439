"""CuPy's kernels as cudakit's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.adapters.compiler_options import compile_options

cupy = pytest.importorskip("cupy")
pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore")]

TEXT = """
extern "C" __global__ void scale(float* x, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by + EXTRA;
}
template <typename T> __global__ void plus(T* x) { x[threadIdx.x] += 1; }
"""


@pytest.fixture
def stream() -> Any:
    return ck.emulator.stream()


def test_a_raw_kernel(stream: Any) -> None:
    kernel: Any = ck.adapters.from_cupy(cupy.RawKernel(TEXT, "scale", options=("--std=c++20", "-DEXTRA=1")))
    x = np.ones(100, np.float32)
    with ck.emulator.counters(stream) as report:
        kernel(stream, ck.cover(x.size), x, np.float32(2), x.size)
    assert (x == 3).all()
    assert Path(report.lines[0].file) == Path(__file__)


def test_a_raw_module(stream: Any) -> None:
    module: Any = ck.adapters.from_cupy(cupy.RawModule(code=TEXT, options=("-DEXTRA=0",)))
    x = np.ones(32, np.int64)
    module["plus<long long>"](stream, ck.config(1, 32), x)
    assert (x == 2).all()


def test_files(stream: Any, tmp_path: Path) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text(TEXT)
    module: Any = ck.adapters.from_cupy(cupy.RawModule(path=str(path), options=("-DEXTRA=0",)))
    assert module.kernels == ("scale", "plus")


def test_a_raw_kernel_of_a_file(stream: Any, tmp_path: Path) -> None:
    path = tmp_path / "kernels.cu"
    path.write_text(TEXT)
    kind = type("RawKernel", (), {"__module__": "cupy", "code": None, "name": "scale", "file_path": str(path)})
    kind.options = ("-DEXTRA=0",)  # type: ignore[attr-defined]
    kernel: Any = ck.adapters.from_cupy(kind())
    assert (kernel.name, kernel.source.name, kernel.options.defines) == ("scale", str(path), (("EXTRA", "0"),))


def test_an_elementwise_kernel_and_a_reduction() -> None:
    square: Any = ck.adapters.from_cupy(cupy.ElementwiseKernel("T x, raw T y", "T z", "z = x * y[0]", "product"))
    norm: Any = ck.adapters.from_cupy(cupy.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm"))
    with ck.using(ck.emulator.stream()):
        assert (square(np.arange(4.0), np.full(1, 3.0)) == [0, 3, 6, 9]).all()
        assert norm(np.ones(16, np.float32)) == 4


def test_options_of_the_command_line() -> None:
    given = ("-std=c++20", "-I/opt/include", "--use_fast_math", "-DA", "-DB=2", "--maxrregcount=32", "-lineinfo")
    found = compile_options(given)[0]
    assert (found.std, found.fast_math, found.max_registers, found.lineinfo) == ("c++20", True, 32, True)
    assert found == ck.CompileOptions(
        std="c++20", fast_math=True, max_registers=32, lineinfo=True, include_paths=["/opt/include"],
        defines=["A", ("B", "2")],
    )  # fmt: skip
    long = compile_options(("--include-path=/a", "--define-macro=A", "-generate-line-info", "-DB"))[0]
    assert long == ck.CompileOptions(include_paths=["/a"], defines=["A", "B"], lineinfo=True)
    with pytest.raises(ck.ArgumentError, match="option 'device-c' has no counterpart"):
        compile_options(["--device-c"])


def test_what_is_no_kernel_of_cupys() -> None:
    with pytest.raises(ck.ArgumentError, match="from_cupy takes a RawKernel"):
        ck.adapters.from_cupy(print)
