"""Each rule of advice: a kernel where it speaks, of its line, with its figures, and others near it where none does."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

KERNELS = """
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x
#define PLACE int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y
__global__ void scaled(const float* x, float* y, int n, float by) {
    PLACE;
    y[column * n + row] = by * x[column * n + row];  // swapped
}
__global__ void scaled_by_rows(const float* x, const float* bias, float* y, int n) {
    PLACE;
    y[column * n + row] = bias[column] * x[column * n + row];  // swapped, with bias
}
__global__ void turned(const float* x, float* y, int n) {
    PLACE;
    float value = x[row * n + column];
    y[column * n + row] = value;  // turned
}
__global__ void sums_of_rows(const float* x, float* y, int n) {
    INDEX;
    float sum = 0;
    for (int k = 0; k < n; ++k) sum += x[i * n + k];  // row
    y[i] = sum;
}
struct Point { float x, y, z; };
__global__ void lengths(const Point* points, float* y) {
    INDEX;
    y[i] = points[i].x + points[i].y + points[i].z;  // members
}
__global__ void firsts(const Point* points, float* y) {
    INDEX;
    y[i] = points[i].x;  // one member
}
__global__ void copied(const float* x, float* y) {
    INDEX;
    y[i] = x[i];  // copied
}
__global__ void smoothed(const float* x, float* y) {
    INDEX;
    y[i] = x[i] + x[i + 1] + x[i + 2];  // stencil
}
__global__ void by_rows(const float* x, float* y, int n, int width) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (column < width) y[blockIdx.y * width + column] = x[blockIdx.y * n + column];  // rows
}
__global__ void gathered(const float* x, const int* at, float* y) {
    INDEX;
    y[i] = x[at[i]];  // gathered
}
template <typename T, int PAD> __global__ void columns(T* y) {
    __shared__ T tile[32][32 + PAD];
    tile[threadIdx.y][threadIdx.x] = y[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    y[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];  // column
}
__global__ void all_to_one(const float* x, float* y) {
    INDEX;
    atomicAdd(y, x[i]);  // one address
}
__global__ void warps_to_one(const float* x, float* y) {
    INDEX;
    if (threadIdx.x % 32 == 0) atomicAdd(y, x[i]);  // a lane of each warp
}
__global__ void tickets(int* next, int* y) {
    INDEX;
    y[atomicAdd(next, 1)] = i;  // ticket
}
__global__ void exchanged(int* y) {
    INDEX;
    atomicExch(y, i);  // exchange
}
__global__ void by_parity(float* x) {
    INDEX;
    if (threadIdx.x % 2)  // parity
        for (int k = 0; k < 3; ++k) x[i] = sqrtf(x[i] + k);
    else
        for (int k = 0; k < 5; ++k) x[i] = cosf(x[i] * k);
}
__global__ void by_warp(float* x) {
    INDEX;
    if (threadIdx.x / 32 % 2)  // parity of warps
        for (int k = 0; k < 3; ++k) x[i] = sqrtf(x[i] + k);
    else
        for (int k = 0; k < 5; ++k) x[i] = cosf(x[i] * k);
}
__global__ void by_half(float* x) {
    INDEX;
    if (threadIdx.x % 32 < 16)  // halves of warps
        for (int k = 0; k < 3; ++k) x[i] = sqrtf(x[i] + k);
    else
        for (int k = 0; k < 5; ++k) x[i] = cosf(x[i] * k);
}
__global__ void larger(float* x) {
    float own = x[threadIdx.x], other = __shfl_xor_sync(-1u, own, 1);
    x[threadIdx.x] = threadIdx.x % 2 ? fmaxf(own, other) : fmaxf(other, own);
}
__global__ void tree(float* x) {
    #pragma unroll 1
    for (int step = 1; step < 64; step *= 2) {
        if (threadIdx.x % (2 * step) == 0) x[threadIdx.x] += x[threadIdx.x + step];  // tree
        __syncthreads();
    }
}
__global__ void waits_twice(float* x) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float twice = 2 * threadIdx.x;
    __syncthreads();  // again
    x[threadIdx.x] = held[63 - threadIdx.x] + twice;
}
__global__ void waits_between(float* x) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    float other = held[63 - threadIdx.x];
    __syncthreads();
    held[threadIdx.x] = other;
    __syncthreads();
    x[threadIdx.x] = held[threadIdx.x / 2];
}
__global__ void waits_in_a_loop(float* x, int n) {
    __shared__ float held[64];
    held[threadIdx.x] = x[threadIdx.x];
    #pragma unroll 1
    for (int k = 0; k < n; ++k) {
        __syncthreads();
        if (k == 2) held[threadIdx.x] = k;
        __syncthreads();
    }
    x[threadIdx.x] = held[threadIdx.x / 2];
}
__global__ void in_double(const float* x, float* y) {
    INDEX;
    y[i] = x[i] * 0.1 + 1;  // literal
}
__global__ void in_float(const float* x, float* y) {
    INDEX;
    y[i] = x[i] * 0.1f + 0.5;  // 0.1: exact in either
}
__global__ void meant(const float* x, float* y) {
    INDEX;
    y[i] = (float)((double)x[i] * 0.1);  // asked for
}
__global__ void doubles(const double* x, float* y) {
    INDEX;
    y[i] = x[i] * 0.1 + y[i];  // doubles
}
__global__ void indexed(const int* at, float* y) {
    INDEX;
    float held[16];
    #pragma unroll 1
    for (int k = 0; k < 16; ++k) held[k] = k * i;  // filled
    y[i] = held[at[i]];  // indexed
}
__device__ __noinline__ void swap(float* a) { float b = a[0]; a[0] = a[1]; a[1] = b; }
__global__ void passed_on(float* y) {
    INDEX;
    float held[2] = {y[i], (float)i};
    swap(held);
    y[i] = held[0];
}
extern __shared__ float dynamic[];
__global__ void takes_shared(float* x) {
    INDEX;
    dynamic[threadIdx.x] = x[i];
    x[i] = dynamic[threadIdx.x];
}
"""
MODULE = ck.Module(KERNELS)


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def whole(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


SQUARE, LINE = ck.config((2, 2), (32, 32)), ck.config(4, 64)
POINTS = np.zeros(256, [("x", "f4"), ("y", "f4"), ("z", "f4")])


class Rule(NamedTuple):
    """A launch, and what it is told: the end of the line in the source, and the advice."""

    kernel: str
    config: Any
    arguments: tuple[Any, ...]
    line: str
    text: str


SPEAKS = [
    Rule("scaled", SQUARE, (floats(64, 64), floats(64, 64), 64, 2.0), "// swapped",
         "32 sectors a request where 4 suffice; threadIdx.x runs along the slow axis of x (256 bytes a step): swap the "
         "indices"),
    Rule("scaled_by_rows", SQUARE, (floats(64, 64), floats(64), floats(64, 64), 64), "// swapped, with bias",
         "32 sectors a request where 4 suffice; threadIdx.x runs along the slow axis of x (256 bytes a step): swap the "
         "indices"),
    Rule("turned", SQUARE, (floats(64, 64), floats(64, 64), 64), "// turned",
         "32 sectors a request where 4 suffice; threadIdx.x runs along the slow axis of y (256 bytes a step), and "
         "along the fast one of x: go by a tile in shared memory"),
    Rule("sums_of_rows", LINE, (floats(256, 32), floats(256), 32), "// row",
         "32 sectors a request where 4 suffice; threadIdx.x runs along the slow axis of x (128 bytes a step): let them "
         "access neighbouring elements"),
    Rule("sums_of_rows", LINE, (floats(256 * 16), floats(256), 16), "// row",
         "32 sectors a request where 4 suffice: neighbouring threads access x 64 bytes apart; let them access "
         "neighbouring elements, or each what lies between at once"),
    Rule("lengths", LINE, (POINTS, floats(256)), "// members",
         "12 sectors a request where 4 suffice: points holds 12 bytes together, of which neighbouring threads access a "
         "part at a time; have an array for each part"),
    Rule("firsts", LINE, (POINTS, floats(256)), "// one member",
         "12 sectors a request where 4 suffice: neighbouring threads access points 12 bytes apart; let them access "
         "neighbouring elements, or each what lies between at once"),
    Rule("copied", LINE, (floats(300)[3:], floats(256)), "// copied",
         "5 sectors a request where 4 suffice: x begins 12 bytes into a sector; give an array that begins at a "
         "multiple of 32 bytes"),
    Rule("by_rows", ck.config((2, 32), 32), (floats(32, 67), floats(32, 64), 67, 64), "// rows",
         "4.9 sectors a request where 4 suffice: the rows of x are 268 bytes long; pad them to a multiple of 32"),
    Rule("gathered", LINE, (floats(4096), (np.arange(256, dtype=np.int32) * 997 % 509) * 8, floats(256)), "// gathered",
         "32 sectors a request where 4 suffice: the accesses of a warp are scattered over x"),
    Rule("columns<float, 0>", ck.config(1, (32, 32)), (floats(1024),), "// column",
         "32 wavefronts of shared memory a request where 1 would do: neighbouring threads access one bank, 32 words "
         "apart; pad the rows by one word"),
    Rule("columns<double, 0>", ck.config(1, (32, 32)), (np.zeros(1024),), "// column",
         "32 wavefronts of shared memory a request where 2 would do: neighbouring threads access one bank, 64 words "
         "apart; pad the rows by one element of 8 bytes"),
    Rule("columns<float, 2>", ck.config(1, (32, 32)), (floats(1024),), "// column",
         "2 wavefronts of shared memory a request where 1 would do: neighbouring threads are 34 words apart, which "
         "meets 16 of 32 banks"),
    Rule("all_to_one", LINE, (floats(256), floats(1)), "// one address",
         "all threads of a warp change the same address, one after the other: reduce over the warp first "
         "(__reduce_add_sync, cub::WarpReduce), and let one thread do it"),
    Rule("tickets", LINE, (whole(1), whole(256)), "// ticket",
         "all threads of a warp change the same address, one after the other: let one thread do it for all and give "
         "each its part (cooperative groups' coalesced_threads and exclusive_scan)"),
    Rule("by_parity", LINE, (floats(256),), "// parity",
         "odd and even threads of each warp go different ways, one after the other: let whole warps go one way, by the "
         "number of the warp and not of the thread"),
    Rule("waits_twice", ck.config(1, 64), (floats(64),), "// again",
         "a barrier right behind a barrier, with no access to memory between them: leave one out"),
    Rule("in_double", LINE, (floats(256), floats(256)), "// literal",
         "256 operations in double precision between floats, for 0.1 is a double: write 0.1f"),
    Rule("indexed", LINE, (whole(256), floats(256)), "// filled",
         "512 sectors of local memory: the array is indexed with what is known only when the kernel runs; unroll the "
         "loop over it, or keep it in shared memory"),
    Rule("copied", ck.config(5, 48), (floats(240), floats(240)), "",
         "blocks of 48 threads leave 16 of 32 lanes of their last warp idle: take a multiple of 32"),
    Rule("takes_shared", ck.config(8, 64, shared_bytes=60_000), (floats(512),), "",
         "a block takes 61,024 bytes of shared memory, of which a multiprocessor of sm_90 has 233,472: 3 blocks at "
         "once, 192 of 2,048 threads"),
    Rule("copied", ck.config(40, 32), (floats(1280), floats(1280)), "",
         "a multiprocessor of sm_90 takes 32 blocks at once, which with 32 threads each are 1,024 of 2,048 threads"),
]  # fmt: skip
SILENT = [
    ("copied", LINE, (floats(256), floats(256))),
    ("copied", LINE, (floats(300)[8:], floats(256))),
    ("copied", ck.config(1, 8), (floats(8), floats(8))),
    ("copied", ck.config(20, 32), (floats(640), floats(640))),
    ("smoothed", LINE, (floats(258), floats(256))),
    ("by_rows", ck.config((2, 8), 32), (floats(8, 64), floats(8, 60), 64, 60)),
    ("gathered", LINE, (floats(256), np.arange(256, dtype=np.int32) ^ 3, floats(256))),
    ("columns<float, 1>", ck.config(1, (32, 32)), (floats(1024),)),
    ("columns<double, 1>", ck.config(1, (32, 32)), (np.zeros(1024),)),
    ("warps_to_one", LINE, (floats(256), floats(1))),
    ("exchanged", LINE, (whole(1),)),
    ("by_warp", LINE, (floats(256),)),
    ("by_half", LINE, (floats(256),)),
    ("larger", ck.config(1, 64), (floats(64),)),
    ("tree", ck.config(1, 64), (floats(128),)),
    ("waits_between", ck.config(1, 64), (floats(64),)),
    ("waits_in_a_loop", ck.config(1, 64), (floats(64), 5)),
    ("in_float", LINE, (floats(256), floats(256))),
    ("meant", LINE, (floats(256), floats(256))),
    ("doubles", LINE, (np.zeros(256), floats(256))),
    ("passed_on", LINE, (floats(256),)),
    ("takes_shared", ck.config(8, 64, shared_bytes=20_000), (floats(512),)),
    ("takes_shared", ck.config(3, 64, shared_bytes=60_000), (floats(512),)),
]


def advised(kernel: str, config: Any, *arguments: Any) -> list[Any]:
    stream = ck.emulator.stream(arch="sm_90")
    with ck.emulator.counters(stream) as report:
        MODULE[kernel](stream, config, *arguments)
    return list(report.advice)


@pytest.mark.parametrize("rule", SPEAKS, ids=[f"{each.kernel}-{number}" for number, each in enumerate(SPEAKS)])
def test_a_rule_speaks_of_its_line(rule: Rule) -> None:
    found = next(each for each in advised(rule.kernel, rule.config, *rule.arguments) if each.text == rule.text)
    assert found.kernel.startswith(rule.kernel.partition("<")[0])
    if rule.line:
        assert Path(found.file) == Path(__file__)
        assert Path(__file__).read_text().splitlines()[found.line - 1].endswith(rule.line)
    else:
        assert (found.file, found.line) == ("", 0)


@pytest.mark.parametrize(
    ("kernel", "config", "arguments"), SILENT, ids=[f"{each[0]}-{number}" for number, each in enumerate(SILENT)]
)
def test_near_it_no_rule_speaks(kernel: str, config: Any, arguments: tuple[Any, ...]) -> None:
    assert advised(kernel, config, *arguments) == []


def test_each_thing_is_said_once_a_line() -> None:
    """Three members of one line, and both sides of an assignment."""
    assert len(advised("lengths", LINE, POINTS, floats(256))) == 1
    texts = [each.text for each in advised("scaled", SQUARE, floats(64, 64), floats(64, 64), 64, 2.0)]
    assert len(texts) == 2
    assert all(text.endswith("swap the indices") for text in texts)
