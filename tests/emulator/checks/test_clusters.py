"""Races between the blocks of a cluster, each told on its line, and what their barrier orders."""

from __future__ import annotations

import re

import numpy as np
import pytest

import cudakit as ck

pytestmark = pytest.mark.emulator

BEGIN = """
#include "cudakit/cluster.cuh"
using namespace cudakit;
__device__ inline void sync() { cluster_arrive(); cluster_wait(); }
__device__ inline unsigned next() { return (cluster_rank() + 1) % 4; }
"""

#: The line of each fault has a comment with the word "race", the other one "other".
FAULTS = """
__global__ void barrier_of_the_block(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];  // other
    __syncthreads();
    y[blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());  // race
    sync();
}
__global__ void read_before_the_wait(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];  // other
    cluster_arrive();
    float seen = *cluster_shared(&s[threadIdx.x], next());  // race
    cluster_wait();
    y[blockIdx.x * 64 + threadIdx.x] = seen;
    sync();
}
__global__ void written_after_arrival(float* y) {
    __shared__ float s[64];
    cluster_arrive();
    s[threadIdx.x] = y[threadIdx.x];  // other
    cluster_wait();
    y[blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());  // race
    sync();
}
__global__ void no_second_barrier(float* y) {
    __shared__ float s[64];
    for (int k = 0; k < 3; ++k) {
        s[threadIdx.x] = y[threadIdx.x] + k;  // race, other
        sync();
        y[blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());  // race, other
    }
    sync();
}
__global__ void relaxed_arrival(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];  // other
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    cluster_wait();
    y[blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());  // race
    sync();
}
__global__ void all_store_to_one(float* y) {
    __shared__ float s[64];
    sync();
    *cluster_shared(&s[threadIdx.x], 0) = blockIdx.x;  // race, other
    sync();
    if (cluster_rank() == 0) y[threadIdx.x] = s[threadIdx.x];
}
__global__ void zeroed_too_late(float* y) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;  // other
    __syncthreads();
    atomicAdd(cluster_shared(&total, 0), y[threadIdx.x]);  // race
    sync();
    y[blockIdx.x] = total;
}
__global__ void by_global_memory(float* y) {
    y[64 + blockIdx.x * 64 + threadIdx.x] = y[threadIdx.x];  // other
    __syncthreads();
    y[512 + blockIdx.x * 64 + threadIdx.x] = y[64 + next() * 64 + threadIdx.x];  // race
}
__global__ void of_another_cluster(float* y) {
    y[64 + blockIdx.x * 64 + threadIdx.x] = y[threadIdx.x];  // other
    sync();
    y[1024 + blockIdx.x * 64 + threadIdx.x] = y[64 + (blockIdx.x + 4) % 8 * 64 + threadIdx.x];  // race
}
__global__ void in_the_own_block(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];  // other
    y[blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];  // race
    sync();
}
"""

CLEAN = """
__global__ void neighbours(float* y) {
    __shared__ float s[64];
    for (int k = 0; k < 3; ++k) {
        s[threadIdx.x] = y[threadIdx.x] + k;
        sync();
        float seen = *cluster_shared(&s[63 - threadIdx.x], next());
        sync();
        y[256 + blockIdx.x * 64 + threadIdx.x] = seen;
    }
}
__global__ void between_arrival_and_wait(float* y) {
    __shared__ float s[64], own[64];
    s[threadIdx.x] = y[threadIdx.x];
    cluster_arrive();
    own[threadIdx.x] = s[threadIdx.x] + 1;
    cluster_wait();
    y[256 + blockIdx.x * 64 + threadIdx.x] = own[threadIdx.x] + *cluster_shared(&s[threadIdx.x], next());
    cluster_arrive();
    y[512 + blockIdx.x * 64 + threadIdx.x] = own[threadIdx.x];
    cluster_wait();
}
__global__ void relaxed_after_a_fence(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];
    asm volatile("fence.acq_rel.cluster;" ::: "memory");
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    cluster_wait();
    y[256 + blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());
    sync();
}
__global__ void total(float* y) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0;
    sync();
    atomicAdd(cluster_shared(&total, 0), y[threadIdx.x]);
    sync();
    y[256 + blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&total, 0);
    sync();
}
__global__ void pushed(float* y) {
    __shared__ float s[64];
    sync();
    *cluster_shared(&s[threadIdx.x], next()) = y[threadIdx.x];
    sync();
    y[256 + blockIdx.x * 64 + threadIdx.x] = s[63 - threadIdx.x];
}
__global__ void through_one_thread(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];
    cluster_arrive();
    if (threadIdx.x < 32) cluster_wait();
    __syncthreads();
    y[256 + blockIdx.x * 64 + threadIdx.x] = *cluster_shared(&s[threadIdx.x], next());
    if (threadIdx.x >= 32) cluster_wait();
    sync();
}
__global__ void by_global_memory_in_order(float* y) {
    y[64 + blockIdx.x * 64 + threadIdx.x] = y[threadIdx.x];
    sync();
    y[576 + blockIdx.x % 4 * 64 + threadIdx.x] = y[64 + (blockIdx.x - cluster_rank() + next()) * 64 + threadIdx.x];
}
__global__ void gone_before_the_barrier(float* y) {
    y[64 + blockIdx.x * 64 + threadIdx.x] = y[threadIdx.x];
    if (cluster_rank() == 3) return;
    sync();
    y[576 + blockIdx.x % 4 * 64 + threadIdx.x] = y[64 + 3 * 64 + threadIdx.x];
}
__global__ void one_block_exits(float* y) {
    __shared__ float s[64];
    s[threadIdx.x] = y[threadIdx.x];
    sync();
    float seen = *cluster_shared(&s[threadIdx.x], next());
    cluster_arrive();
    if (cluster_rank() == 3) { cluster_wait(); return; }
    y[256 + blockIdx.x * 64 + threadIdx.x] = seen;
    cluster_wait();
    s[threadIdx.x] = seen;
}
"""
NAMES = re.findall(r"void (\w+)\(", FAULTS)


def lines(kernel: str, word: str) -> set[int]:
    text = FAULTS.splitlines()
    begin = next(k for k, line in enumerate(text) if f" {kernel}(" in line)
    end = next(k for k in range(begin, len(text)) if text[k] == "}")
    return {k for k in range(begin, end) if re.search(rf"//.*\b{word}\b", text[k])}


def launch(text: str, name: str, blocks: int, schedule: int | None = None) -> str:
    stream = ck.emulator.stream(schedule=schedule)
    with ck.check() as report:
        ck.Kernel(BEGIN + text, name)(stream, ck.config(blocks, 64, cluster=4), np.ones(2048, np.float32))
    return str(report) if report else ""


@pytest.mark.parametrize("name", NAMES)
def test_a_race_is_found_on_its_line(name: str) -> None:
    with ck.check() as report:
        stream = ck.emulator.stream()
        blocks = 8 if name == "of_another_cluster" else 4
        ck.Kernel(BEGIN + FAULTS, name)(stream, ck.config(blocks, 64, cluster=4), np.ones(2048, np.float32))
    assert {each.kind for each in report.findings} == {"race"}, report
    before = BEGIN.count("\n")
    for each in report.findings:
        assert each.line - before - 1 in lines(name, "race"), report
        assert int(each.other.rpartition(":")[2]) - before - 1 in lines(name, "other"), report


@pytest.mark.parametrize("name", re.findall(r"void (\w+)\(", CLEAN))
@pytest.mark.parametrize("schedule", [None, 1, 2])
def test_what_the_barrier_orders_is_no_race(name: str, schedule: int | None) -> None:
    assert not launch(CLEAN, name, 4, schedule)


def test_messages_name_the_block_whose_memory_it_is() -> None:
    text = launch(FAULTS, "barrier_of_the_block", 4)
    assert re.search(
        r"race: block 0, thread 0 reads s\[0\] in shared memory of block 1, which block 1, thread 0 writes", text
    )
