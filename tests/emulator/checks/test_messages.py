"""What findings call what they are about."""

from __future__ import annotations

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator


def told(declared: str, read: str) -> str:
    """What is told of a read of shared memory that nobody wrote."""
    body = f"{declared}\nif (y[0]) (&{read})[n] = 1;\ny[0] = {read};\n"
    text = f"__global__ void kernel(float* y, int n) {{\n{body}}}"
    with ck.check() as report:
        ck.Kernel(text)(ck.emulator.stream(), ck.config(1, 1), np.zeros(1, np.float32), 0)
    assert report.findings[0].kind == "uninitialised"
    return report.findings[0].text


@pytest.mark.parametrize(
    ("declared", "read", "name"),
    [
        ("__shared__ float s[64];", "s[7]", "s[7]"),
        ("__shared__ float tile[8][33];", "tile[3][5]", "tile[3][5]"),
        ("__shared__ float cube[2][3][4];", "cube[1][2][3]", "cube[1][2][3]"),
        ("__shared__ double wide[4][4];", "wide[2][1]", "wide[2][1]"),
        ("__shared__ unsigned char bytes[16];", "bytes[9]", "bytes[9]"),
        ("__shared__ float one;", "one", "one"),
        ("constexpr int SIDE = 16; __shared__ float tile[SIDE][SIDE + 1];", "tile[2][16]", "tile[2][16]"),
        ("__shared__ float4 vectors[8];", "vectors[3].y", "vectors[3]"),
        ("extern __shared__ float every[]; __shared__ float s[4];", "s[1]", "s[1]"),
        ("__shared__ float4 vector;", "vector.z", "byte 8 of vector"),
        ("struct pair { int n; float x; }; __shared__ pair p;", "p.x", "byte 4 of p"),
        ("__shared__ union { float a[4]; int n; } u;", "u.a[2]", "byte 8 of u"),
        ("__shared__ struct { float x, y; } point;", "point.y", "byte 4 of point"),
    ],
)
def test_shared_memory_is_named_by_array_and_indices(declared: str, read: str, name: str) -> None:
    assert f"reads {name} in shared memory" in told(declared, read)


def test_extents_of_template_parameters_leave_the_number_of_the_element() -> None:
    text = """
    template <int SIDE> __global__ void kernel(float* y, int n) {
        __shared__ float tile[SIDE][SIDE];
        if (y[0]) tile[1][2 + n] = 1;
        y[0] = tile[1][2];
    }"""
    with ck.check() as report:
        ck.Kernel(text)[8](ck.emulator.stream(), ck.config(1, 1), np.zeros(1, np.float32), 0)
    (found,) = report.findings
    assert "reads tile[10] in shared memory" in found.text
    assert found.kernel == "kernel<8>"


def test_dynamic_shared_memory_is_named() -> None:
    text = """
    __global__ void kernel(float* y, int n) {
        extern __shared__ float every[];
        if (y[0]) every[5 + n] = 1;
        y[0] = every[5];
    }"""
    with ck.check() as report:
        ck.Kernel(text)(ck.emulator.stream(), ck.config(1, 1, shared_bytes=64), np.zeros(1, np.float32), 0)
    assert "reads every[5] in shared memory" in str(report)


def test_a_read_that_is_meant_is_named_on_its_line() -> None:
    text = """
    __global__ void kernel(float* y, int n) {
        __shared__ float s[4];
        if (y[0]) s[n] = 1;
        float got = s[n + 1];  // cudakit: benign read
        y[0] = got + s[n + 2];
    }"""
    with ck.check() as report:
        ck.Kernel(text)(ck.emulator.stream(), ck.config(1, 1), np.zeros(1, np.float32), 0)
    (found,) = report.findings
    assert "s[2]" in found.text


def test_a_race_that_is_meant_is_named_on_its_line_alone() -> None:
    text = """
    __global__ void kernel(float* y, float* z) {
        if (threadIdx.x == 0) y[0] = blockIdx.x;  // cudakit: benign race
        if (threadIdx.x == 0) z[0] = blockIdx.x;
    }"""
    y, z = np.full(1, 9, np.float32), np.full(1, 9, np.float32)
    with ck.check() as report:
        ck.Kernel(text)(ck.emulator.stream(), ck.config(2, 32), y, z)
    (found,) = report.findings
    assert "z[0]" in found.text


@pytest.mark.slow
def test_storage_of_cub_that_is_used_again_without_a_barrier() -> None:
    text = """
    #include <cub/block/block_reduce.cuh>
    template <bool WAITS> __global__ void kernel(float* y) {
        using Reduce = cub::BlockReduce<float, 64>;
        __shared__ typename Reduce::TempStorage held;
        float a = Reduce(held).Sum(y[threadIdx.x]);
        if (WAITS) __syncthreads();
        a += Reduce(held).Sum(y[threadIdx.x] + 1);
        if (threadIdx.x == 0) y[64] = a;
    }"""
    for waits in (False, True):
        with ck.check() as report:
            ck.Kernel(text)[waits](ck.emulator.stream(), ck.config(1, 64), np.ones(65, np.float32))
        assert [each.kind for each in report.findings] == ([] if waits else ["race"])
        assert waits or "of held in shared memory" in str(report)
