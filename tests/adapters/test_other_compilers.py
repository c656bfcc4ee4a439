"""Kernels that Numba-CUDA and Triton compile, neither of which needs a GPU for that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cudakit as ck

pytestmark = [pytest.mark.emulator, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def stream() -> Any:
    return ck.emulator.stream()


@pytest.mark.bridges
def test_kernels_of_numba(stream: Any) -> None:
    pytest.importorskip("numba")
    cuda = pytest.importorskip("numba.cuda")

    @cuda.jit
    def axpy(a: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)
        if i < y.size:
            y[i] += a * x[i]

    @cuda.jit
    def transpose(x: Any, y: Any) -> None:
        tile = cuda.shared.array((32, 32), "f4")
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[cuda.threadIdx.y, cuda.threadIdx.x]
        cuda.syncthreads()
        y[cuda.threadIdx.y, cuda.threadIdx.x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]

    x, y = np.arange(100, dtype=np.float32), np.ones(100, np.float32)
    kernel = ck.adapters.from_numba(axpy)
    for a in (2.0, np.float32(2), 2):
        y[:] = 1
        kernel(stream, ck.config(1, 128), a, x, y)
        assert (y == 2 * x + 1).all()
    assert len(kernel.kernels) == 3
    kernel(stream, ck.config(1, 128), 3.0, y=y, x=x)
    assert (y == 5 * x + 1).all()

    @cuda.jit
    def fill(x: Any, config: Any, value: Any = 7.0) -> None:
        x[cuda.grid(1)] = value + config

    ck.adapters.from_numba(fill)(stream, ck.config(1, 32), config=1, x=x)
    assert x[:33].tolist() == [8] * 32 + [32]
    with pytest.raises(ck.ArgumentError, match="contiguous"):
        kernel(stream, ck.config(1, 128), 1, x[::2], y[:50])
    square, turned = np.arange(1024, dtype=np.float32).reshape(32, 32), np.zeros((32, 32), np.float32)
    with ck.emulator.counters(stream) as report:
        ck.adapters.from_numba(transpose)(stream, ck.config(1, (32, 32)), square, turned)
    assert (turned == square.T).all()
    assert report.shared.bank_conflicts == 31 * 32
    assert "tile[cuda.threadIdx.x, cuda.threadIdx.y]" in report.annotated(colour=False)


@pytest.mark.bridges
def test_kernels_of_triton(stream: Any) -> None:
    triton = pytest.importorskip("triton")
    from support import triton_kernels

    from cudakit.adapters import from_triton

    kernel = from_triton(triton_kernels.compiled(triton))
    x, y, z = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32), np.zeros(1000, np.float32)
    kernel(stream, 4, x, y, z, np.int32(1000))
    assert (z == x + 1).all()
    assert kernel.threads == 128


def test_what_is_taken() -> None:
    with pytest.raises(ck.ArgumentError, match=r"from_numba takes a function, .*, got 3"):
        ck.adapters.from_numba(3)
    with pytest.raises(
        ck.ArgumentError, match=r"from_triton takes a kernel that triton.compile made for CUDA, got int"
    ):
        ck.adapters.from_triton(3)


def test_names_of_arguments(stream: Any) -> None:
    """Without Numba: they are compared with the function's before it compiles."""

    def scale(x: Any, by: Any, plus: float = 1.0) -> None: ...

    kernel, x = ck.adapters.from_numba(scale), np.zeros(4)
    for arguments, named, message in (
        ((x,), {"factor": 2}, "scale has no parameter 'factor'; it has x, by, plus$"),
        ((x,), {"grid": 2}, "scale has no parameter 'grid'; .*a call is kernel.stream"),
        ((x, 2), {"x": x}, "scale: argument x is given twice"),
        ((), {"plus": 2}, r"scale takes 3 arguments \(x, by, plus\) after stream and config, got 1: missing x, by"),
        ((x, 1, 2, 3), {}, r"scale takes 3 arguments \(x, by, plus\) after stream and config, got 4$"),
    ):
        with pytest.raises(ck.ArgumentError, match=message):
            kernel(stream, ck.config(1, 4), *arguments, **named)


def test_what_triton_gives_is_read(stream: Any) -> None:
    """Without Triton: an object as its compiler gives it."""
    text = ck.Kernel("""
    extern "C" __global__ void f(float* x, char* a, void* b) {
        x[threadIdx.x] += blockIdx.x;
        if (a) x[threadIdx.x] = a[blockIdx.x * 128 + 4 * threadIdx.x] = 3;
    }""").ptx(arch="sm_90")

    class Metadata:
        name, num_warps, shared, global_scratch_size, num_ctas = "f", 1, 0, 0, 1

    class Compiled:
        asm, metadata = (
            {"ptx": text.replace(".param .u64 f_param_1", ".param .u64 .ptr .global .align 1 f_param_1")},
            Metadata,
        )

    x = np.zeros(32, np.float32)
    ck.adapters.from_triton(Compiled)(stream, 1, x)
    kernel = ck.adapters.from_triton(Compiled)
    assert (repr(kernel), kernel.shared_bytes) == ("<TritonKernel f, 32 threads>", 0)
    Metadata.global_scratch_size = 128
    ck.adapters.from_triton(Compiled)(stream, 1, x)
    assert (x == 3).all()
    Metadata.num_ctas = 2
    kernel = ck.adapters.from_triton(Compiled)
    kernel(stream, (2, 1), x, scratch=np.zeros(512, np.uint8))
    assert (kernel.cluster, kernel.scratch_bytes, kernel.cooperative) == (2, 128, False)
    with pytest.raises(ck.EmulationError, match="past the end"):
        kernel(stream, (2, 1), x, scratch=np.zeros(511 - 3, np.uint8))
