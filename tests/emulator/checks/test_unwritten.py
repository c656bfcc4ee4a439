"""Reads of memory that was allocated on the device and never written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator.resources.allocations import MARKS

pytestmark = pytest.mark.emulator

#: The line that reads what nobody wrote has the comment "unwritten".
FAULTS = """
__global__ void copied(const float* x, float* y) {
    y[threadIdx.x] = x[threadIdx.x];  // unwritten
}
__global__ void summed(float* x, float* y) {
    for (int k = 0; k < 4; ++k)
        x[threadIdx.x] += k;  // unwritten
}
__global__ void counted(float* x, float* y) {
    atomicAdd(&x[threadIdx.x % 8], 1.0f);  // unwritten
}
__global__ void half_written(float* x, float* y) {
    if (threadIdx.x % 2) x[threadIdx.x] = 1;
    y[threadIdx.x] = x[threadIdx.x];  // unwritten
}
__global__ void bytes(float* x, float* y) {
    char* held = (char*)x;
    held[4 * threadIdx.x] = 1;
    __syncthreads();
    held[4 * threadIdx.x + 1] = held[4 * threadIdx.x + 2];  // unwritten
}
__global__ void one_too_many(float* x, float* y) {
    if (threadIdx.x < 63) x[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = x[63 - threadIdx.x];  // unwritten
}
"""
NAMES = re.findall(r"void (\w+)\(", FAULTS)


def line_of(name: str) -> int:
    text = FAULTS.splitlines()
    begin = next(k for k, line in enumerate(text) if f" {name}(" in line)
    return next(k for k in range(begin, len(text)) if "// unwritten" in text[k])


def first_line() -> int:
    with open(__file__, encoding="utf-8") as file:
        return file.read().splitlines().index('FAULTS = """') + 1


def run(text: str, name: str, x: np.ndarray) -> None:
    y = np.zeros(64, np.float32)
    ck.Kernel(text, name)(ck.emulator.stream(check="raise"), ck.config(1, 64), x, y)


@pytest.mark.parametrize("name", NAMES)
def test_a_read_of_what_nobody_wrote_is_found_on_its_line(name: str) -> None:
    with ck.check() as report:
        stream = ck.emulator.stream()
        x = ck.empty((64,), np.float32, stream=stream)
        ck.Kernel(FAULTS, name)(stream, ck.config(1, 64), x, np.zeros(64, np.float32))
    assert [(each.kind, each.line - first_line()) for each in report.findings] == [("uninitialised", line_of(name))], (
        report
    )
    assert re.search(r"block 0, thread \d+ reads x\[\d+\], which was allocated and never written", str(report))


def by_host(x: np.ndarray, stream: Any) -> None:
    x[:] = 0


def by_copy(x: np.ndarray, stream: Any) -> None:
    ck.to_device(np.ones(64, np.float32), stream=stream, out=x)


def by_copy_of_the_unwritten(x: np.ndarray, stream: Any) -> None:
    x[:] = ck.empty((64,), np.float32, stream=stream)


def by_unchecked_kernel(x: np.ndarray, stream: Any) -> None:
    fill = ck.Kernel("__global__ void fill(float* x) { x[threadIdx.x] = 1; }")
    fill(ck.emulator.stream(machine="auto"), ck.config(1, 64), x)


def by_graph(x: np.ndarray, stream: Any) -> None:
    fill = ck.Kernel("__global__ void fill(float* x) { x[threadIdx.x] = 1; }")
    with ck.capture(stream) as graph:
        fill(stream, ck.config(1, 64), x)
    graph.launch(stream)


def by_bulk_copy(x: np.ndarray, stream: Any) -> None:
    text = """
    #include <cuda/barrier>
    __global__ void store(float* x) {
        __shared__ alignas(16) float held[64];
        held[threadIdx.x] = threadIdx.x;
        cuda::device::experimental::fence_proxy_async_shared_cta();
        __syncthreads();
        if (threadIdx.x == 0) {
            cuda::device::experimental::cp_async_bulk_shared_to_global(x, held, sizeof held);
            cuda::device::experimental::cp_async_bulk_commit_group();
            cuda::device::experimental::cp_async_bulk_wait_group_read<0>();
        }
    }"""
    ck.Kernel(text)(stream, ck.config(1, 64), x)


@pytest.mark.parametrize(
    "write", [by_host, by_copy, by_copy_of_the_unwritten, by_unchecked_kernel, by_graph, by_bulk_copy]
)
def test_whoever_writes_is_seen(write: Callable[[np.ndarray, Any], None]) -> None:
    stream = ck.emulator.stream(check="raise")
    x = ck.empty((64,), np.float32, stream=stream)
    write(x, stream)
    y = np.zeros(64, np.float32)
    ck.Kernel(FAULTS, "copied")(stream, ck.config(1, 64), x, y)


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 56])
def test_what_is_written_in_part_is_known_by_its_bytes(count: int) -> None:
    stream = ck.emulator.stream(check="raise")
    x = ck.empty((64,), np.uint8, stream=stream)
    read = ck.Kernel("__global__ void read(const char* x, char* y, int k) { y[0] = x[k]; }")
    x[:count] = 7
    for at in range(count):
        read(stream, ck.config(1, 1), x, np.zeros(1, np.uint8), at)
    with pytest.raises(ck.EmulationError, match="never written"):
        read(stream, ck.config(1, 1), x, np.zeros(1, np.uint8), -(-count // 8) * 8)


def test_no_byte_is_filled_with_what_programs_write_alone() -> None:
    stream = ck.emulator.stream(check="raise")
    x = ck.empty((4096,), np.uint8, stream=stream)
    assert set(np.unique(x).tolist()) == set(range(129, 192, 2))


@pytest.mark.parametrize("by_host", [0, 3])
def test_what_is_left_of_a_word_is_told_while_that_is_sure(by_host: int) -> None:
    stream = ck.emulator.stream(check="raise")
    x = ck.empty((8,), np.uint8, stream=stream)
    write = ck.Kernel("__global__ void write(char* x) { x[threadIdx.x] = 1; }")
    read = ck.Kernel("__global__ void read(const char* x, char* y, int k) { y[0] = x[k]; }")
    write(stream, ck.config(1, 4), x)
    if by_host:
        x[by_host + 2] = 0
        read(stream, ck.config(1, 1), x, np.zeros(1, np.uint8), 7)
    else:
        with pytest.raises(ck.EmulationError, match=r"x\[7\]"):
            read(stream, ck.config(1, 1), x, np.zeros(1, np.uint8), 7)
        write(stream, ck.config(1, 5), x)
        read(stream, ck.config(1, 1), x, np.zeros(1, np.uint8), 7)


def test_memory_of_before_the_checks_counts_as_written() -> None:
    asked = MARKS.watchers  # by streams of other tests: the traceback of one that failed keeps its stream
    MARKS.watch(-asked)
    x = ck.empty((64,), np.float32, stream=ck.emulator.stream())
    MARKS.watch(asked)
    run(FAULTS, "copied", x)
