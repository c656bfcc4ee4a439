"""The emulator's counters beside those of Nsight Compute, kernel by kernel, on one GPU.

Each kernel is launched once on the emulator under `ck.emulator.counters`, and once on the GPU under one call of
``ncu``. Requests, sectors, wavefronts and bank conflicts are compared; numbers of instructions are not, for PTX is not
machine code. Without a GPU the emulator's numbers alone are shown.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cudakit as ck

TITLE = "Counters of the emulator beside Nsight Compute's"

KERNELS = r"""
#include <cuda_fp16.h>
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x

template <typename T> __global__ void case_copy(const T* x, T* y) { INDEX; y[i] = x[i]; }
template <typename T> __global__ void case_gather(const T* x, const int* at, T* y) { INDEX; y[i] = x[at[i]]; }
template <typename T> __global__ void case_scatter(const T* x, const int* at, T* y) { INDEX; y[at[i]] = x[i]; }

// What is read from shared memory is decided by `at`; it is filled without conflicts.
template <typename T> __global__ void case_shared_load(const T* x, const int* at, T* y) {
    __shared__ T held[1024];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) held[k] = x[k];
    __syncthreads();
    INDEX;
    y[i] = held[at[i]];
}
// Only lanes whose `at` is not negative load.
template <typename T> __global__ void case_shared_some(const T* x, const int* at, T* y) {
    __shared__ T held[1024];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) held[k] = x[k];
    __syncthreads();
    INDEX;
    int from = at[i];
    if (from >= 0) y[i] = held[from];
}
template <typename T> __global__ void case_shared_store(const T* x, const int* at, T* y) {
    __shared__ T held[1024];
    INDEX;
    held[at[i]] = x[i];
    __syncthreads();
    y[i] = held[threadIdx.x];
}
__global__ void case_transpose_naive(const float* x, float* y, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}
template <int PAD> __global__ void case_transpose(const float* x, float* y, int n) {
    __shared__ float tile[32][32 + PAD];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    column = blockIdx.y * 32 + threadIdx.x, row = blockIdx.x * 32 + threadIdx.y;
    y[row * n + column] = tile[threadIdx.x][threadIdx.y];
}
__global__ void case_half2(const __half2* x, const __half2* y, __half2* z) { INDEX; z[i] = __hadd2(x[i], y[i]); }
__global__ void case_structs(const float* x, float* y) { INDEX; y[i] = x[3 * i] + x[3 * i + 1] + x[3 * i + 2]; }
__global__ void case_some_lanes(const float* x, float* y) { INDEX; if (i % 4 == 0) y[i] = x[i]; }
__global__ void case_stencil(const float* x, float* y) { INDEX; y[i] = x[i] + x[i + 1] + x[i + 2]; }
__global__ void case_histogram(const int* x, int* bins) { INDEX; atomicAdd(&bins[x[i]], 1); }
__global__ void case_shared_histogram(const int* x, int* bins) {
    __shared__ int held[256];
    held[threadIdx.x] = 0;
    __syncthreads();
    INDEX;
    atomicAdd(&held[x[i]], 1);
    __syncthreads();
    if (held[threadIdx.x]) atomicAdd(&bins[threadIdx.x], held[threadIdx.x]);
}
__global__ void case_reduce(const float* x, float* y) {
    __shared__ float held[256];
    INDEX;
    held[threadIdx.x] = x[i];
    __syncthreads();
    #pragma unroll 1
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) held[threadIdx.x] += held[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = held[0];
}
__global__ void case_reduce_interleaved(const float* x, float* y) {
    __shared__ float held[256];
    INDEX;
    held[threadIdx.x] = x[i];
    __syncthreads();
    #pragma unroll 1
    for (int step = 1; step < 256; step *= 2) {
        int k = 2 * step * threadIdx.x;
        if (k < 256) held[k] += held[k + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = held[0];
}
__global__ void case_matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    #pragma unroll 1
    for (int k = 0; k < n; k += 16) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        #pragma unroll 1
        for (int i = 0; i < 16; ++i) sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
__global__ void case_async_copy(const float4* x, const int* at, float4* y) {
    __shared__ float4 held[256];
    INDEX;
    unsigned to = __cvta_generic_to_shared(&held[at[i]]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(x + i) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    y[i] = held[threadIdx.x];
}
__global__ void case_ldmatrix(const int* at, int* y) {
    __shared__ uint4 held[256];
    INDEX;
    held[threadIdx.x] = make_uint4(i, i, i, i);
    __syncthreads();
    unsigned from = __cvta_generic_to_shared(&held[at[i]]);
    int a, b, c, d;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(from));
    y[i] = a + b + c + d;
}
__global__ void case_local(const int* at, float* y) {
    float held[64];
    INDEX;
    #pragma unroll 1
    for (int k = 0; k < 64; ++k) held[(k * 7 + at[i]) & 63] = k;
    y[i] = held[at[i]];
}
"""


def _read(report: Any) -> Any:
    """Loads of global memory as ncu has them: with those of ``cp.async``."""
    return report.global_.loads + report.global_.copies


#: What is compared, the metrics that it is for Nsight Compute, and the field of the emulator's report.
METRICS: dict[str, tuple[str, Callable[[Any], int]]] = {
    "global load requests": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_ld", lambda report: _read(report).requests),
    "global load sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld", lambda report: _read(report).sectors),
    "global store requests": (
        "l1tex__t_requests_pipe_lsu_mem_global_op_st", lambda report: report.global_.stores.requests),
    "global store sectors": (
        "l1tex__t_sectors_pipe_lsu_mem_global_op_st", lambda report: report.global_.stores.sectors),
    "shared load wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld", lambda report: report.shared.loads.wavefronts),
    "shared load conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld", lambda report: report.shared.loads.bank_conflicts),
    "shared store wavefronts": (
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st", lambda report: report.shared.stores.wavefronts),
    "shared store conflicts": (
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st", lambda report: report.shared.stores.bank_conflicts),
    "local load sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld", lambda report: report.local.loads.sectors),
    "local store sectors": ("l1tex__t_sectors_pipe_lsu_mem_local_op_st", lambda report: report.local.stores.sectors),
    "sectors of reductions": ("l1tex__t_sectors_pipe_lsu_mem_global_op_red", lambda report: report.atomics.sectors),
}  # fmt: skip
#: Read too, and shown where they tell what a difference comes from.
OTHERS = (
    "smsp__inst_executed", "smsp__thread_inst_executed", "smsp__inst_executed_op_shared_ld",
    "smsp__inst_executed_op_shared_st", "smsp__inst_executed_op_ldsm", "l1tex__data_pipe_lsu_wavefronts_mem_shared",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red",
    "l1tex__t_requests_pipe_lsu_mem_global_op_atom", "l1tex__t_sectors_pipe_lsu_mem_global_op_atom",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_atom", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_atom",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ldsm",
    "l1tex__t_requests_pipe_lsu_mem_local_op_ld", "l1tex__t_requests_pipe_lsu_mem_local_op_st",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts", "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts_cache_bypass",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ldgsts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ld",
)  # fmt: skip
_THREADS, _BLOCKS = 256, 4
_COUNT = _THREADS * _BLOCKS


class Case(NamedTuple):
    """One launch."""

    name: str
    kernel: str
    config: ck.Config
    arguments: tuple[Any, ...]


def cases() -> Iterator[Case]:
    """All of them, with host arrays; the order is that of the rows."""
    random = np.random.default_rng(0)
    lane = np.arange(_COUNT) % _THREADS
    line = ck.config(_BLOCKS, _THREADS)

    def new(dtype: str, count: int = 64 * 1024, width: int = 1) -> np.ndarray:
        return random.integers(0, 100, count * width).astype(dtype)

    def at(values: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(values), _COUNT).astype(np.int32)

    for cpp, dtype, width in (("char", "i1", 1), ("short", "i2", 1), ("float", "f4", 1), ("double", "f8", 1),
                              ("float2", "f4", 2), ("float4", "f4", 4)):  # fmt: skip
        x, y = new(dtype, 8192, width), new(dtype, 8192, width)
        yield Case(f"copy {cpp}", f"case_copy<{cpp}>", line, (x, y))
    x, y = new("f4"), new("f4")
    yield Case("copy float, misaligned by 1", "case_copy<float>", line, (x[1:], y))
    yield Case("copy float, misaligned by 8", "case_copy<float>", line, (x[8:], y))
    yield Case("copy float, to misaligned by 3", "case_copy<float>", line, (x, y[3:]))
    number = np.arange(_COUNT)
    patterns = {
        "stride 2": number * 2, "stride 8": number * 8, "stride 32": number * 32, "reversed": number[::-1],
        "one element": 0, "pairs": number // 2, "two elements": number % 2,
        "random in 16 Ki": random.integers(0, 16384, _COUNT), "random in 128": random.integers(0, 128, _COUNT),
    }  # fmt: skip
    for cpp, dtype, width in (("float", "f4", 1), ("double", "f8", 1), ("float4", "f4", 4)):
        x, y = new(dtype, 32768, width), new(dtype, 32768, width)
        for name, values in patterns.items():
            yield Case(f"gather {cpp}, {name}", f"case_gather<{cpp}>", line, (x, at(values), y))
    x, y = new("f4"), new("f4")
    for name in ("stride 2", "stride 32", "random in 16 Ki", "one element"):
        yield Case(f"scatter float, {name}", "case_scatter<float>", line, (x, at(patterns[name]), y))
    in_shared = {
        "stride 1": lane, "stride 2": lane * 2, "stride 3": lane * 3, "stride 4": lane * 4, "one element": 0,
        "pairs": lane // 2, "fours": lane // 4, "halves alike": lane % 16, "quarters alike": lane % 8,
        "neighbours swapped": lane ^ 1, "pairs of pairs": lane // 2 * 16, "random": random.integers(0, 1024, _COUNT),
        "even lanes one element": np.where(lane % 2, lane, 0), "two elements": lane % 2 * 32,
        "next but one alike": lane // 4 * 2 + lane % 2, "next but two alike": lane // 8 * 4 + lane % 4,
        "first half pairs": np.where(lane % 32 < 16, lane // 2, lane),
        "first half one, second strided": np.where(lane % 32 < 16, 0, lane * 2),
    }  # fmt: skip
    in_shared = {name: np.asarray(values) % 1024 for name, values in in_shared.items()}
    for cpp, dtype, width in (("char", "i1", 1), ("short", "i2", 1), ("float", "f4", 1), ("double", "f8", 1),
                              ("float4", "f4", 4)):  # fmt: skip
        x, y = new(dtype, 1024, width), new(dtype, 1024, width)
        for name, values in in_shared.items():
            if width * y.itemsize >= 4 or name in ("stride 1", "stride 2", "stride 4", "one element", "random"):
                yield Case(f"shared load {cpp}, {name}", f"case_shared_load<{cpp}>", line, (x, at(values), y))
    half = random.random(_COUNT) < 0.5
    some = {
        "even lanes": np.where(lane % 2, -1, lane), "odd lanes, all one": np.where(lane % 2, 5, -1),
        "first half warps": np.where(lane % 32 < 16, lane, -1), "two quarters": np.where(lane % 16 < 8, lane, -1),
        "first quarter, one element": np.where(lane % 32 < 8, 3, -1),
        "every fourth lane": np.where(lane % 4, -1, lane * 2),
        "pairs, some lanes": np.where(half, lane // 2, -1),
        "random, some lanes": np.where(half, in_shared["random"], -1),
    }  # fmt: skip
    for cpp, dtype, width in (("float", "f4", 1), ("double", "f8", 1), ("float4", "f4", 4)):
        x, y = new(dtype, 1024, width), new(dtype, 1024, width)
        for name, values in some.items():
            yield Case(f"shared load {cpp}, {name}", f"case_shared_some<{cpp}>", line, (x, at(values), y))
    for cpp, dtype, width in (("short", "i2", 1), ("float", "f4", 1), ("double", "f8", 1), ("float4", "f4", 4)):
        x, y = new(dtype, 1024, width), new(dtype, 1024, width)
        for name in ("stride 1", "stride 2", "stride 4", "one element", "pairs", "fours", "random", "halves alike"):
            yield Case(f"shared store {cpp}, {name}", f"case_shared_store<{cpp}>", line, (x, at(in_shared[name]), y))
    x, y = new("f4", 64 * 64), new("f4", 64 * 64)
    square = ck.config((2, 2), (32, 32))
    yield Case("transpose, naive", "case_transpose_naive", square, (x, y, 64))
    yield Case("transpose, by a tile", "case_transpose<0>", square, (x, y, 64))
    yield Case("transpose, by a padded tile", "case_transpose<1>", square, (x, y, 64))
    halves = [np.zeros(2 * _COUNT, np.float16) for _ in range(3)]
    yield Case("half2 add", "case_half2", line, tuple(halves))
    yield Case("array of structs of 3", "case_structs", line, (x, y))
    yield Case("every fourth lane", "case_some_lanes", line, (x, y))
    yield Case("stencil of 3", "case_stencil", line, (x, y))
    bins = random.integers(0, 64, _COUNT).astype(np.int32)
    yield Case("histogram", "case_histogram", line, (bins, np.zeros(256, np.int32)))
    yield Case("histogram in shared memory", "case_shared_histogram", line, (bins, np.zeros(256, np.int32)))
    yield Case("reduction, sequential", "case_reduce", line, (x, y))
    yield Case("reduction, interleaved", "case_reduce_interleaved", line, (x, y))
    yield Case("matmul, 64³, tiles of 16", "case_matmul", ck.config((4, 4), (16, 16)), (x, new("f4", 4096), y, 64))
    x, y = new("f4", 4 * _COUNT), new("f4", 4 * _COUNT)
    yield Case("cp.async", "case_async_copy", line, (x, at(lane), y))
    yield Case("cp.async, stride 2", "case_async_copy", line, (x, at(lane * 2 % 256 + lane // 128), y))
    yield Case("cp.async, neighbours swapped", "case_async_copy", line, (x, at(lane ^ 1), y))
    yield Case("cp.async, shifted by one", "case_async_copy", line, (x, at((lane + 1) % 256), y))
    yield Case("cp.async, halves swapped", "case_async_copy", line, (x, at(lane ^ 16), y))
    yield Case("ldmatrix, one row", "case_ldmatrix", line, (at(0), new("i4", _COUNT)))
    yield Case("ldmatrix, pairs", "case_ldmatrix", line, (at(lane // 2), new("i4", _COUNT)))
    yield Case("ldmatrix", "case_ldmatrix", line, (at(lane), new("i4", _COUNT)))
    yield Case("ldmatrix, stride 4", "case_ldmatrix", line, (at(lane * 4 % 256), new("i4", _COUNT)))
    yield Case("local array", "case_local", line, (at(lane % 5), y))


def launch_all(stream: Any) -> None:
    """Each case once on a GPU."""
    module = ck.Module(KERNELS)
    module.prepare(*dict.fromkeys(case.kernel for case in cases()))
    with ck.using(stream) as xp:
        for case in cases():
            arguments = [_moved(xp, each) for each in case.arguments]
            _kernel(module, case)(stream, case.config, *arguments)
    stream.sync()


def _moved(xp: Any, value: Any) -> Any:
    """An array on the device, as far from the beginning of its memory as on the host."""
    if not isinstance(value, np.ndarray) or value.base is None:
        return xp.asarray(value) if isinstance(value, np.ndarray) else value
    skipped = (value.__array_interface__["data"][0] - value.base.__array_interface__["data"][0]) // value.itemsize
    return xp.asarray(value.base)[skipped : skipped + value.size]


def _kernel(module: Any, case: Case) -> Any:
    return module[case.kernel]


def emulated() -> list[Any]:
    """The report of each case."""
    module, found = ck.Module(KERNELS), []
    stream = ck.emulator.stream()
    for case in cases():
        with ck.emulator.counters(stream) as report:
            _kernel(module, case)(stream, case.config, *case.arguments)
        found.append(report)
    return found


def profiled(names: list[str]) -> list[dict[str, int]]:
    """What ``ncu`` counts of each launch, by metric.

    Raises
    ------
    SystemExit
        Where it cannot be run.
    """
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    listed = subprocess.run([ncu, "--query-metrics", "--chip", "gh100"], capture_output=True, text=True).stdout
    known = set(re.findall(r"^(\w+)", listed, re.MULTILINE))
    wanted = [name for name in names if name in known or name.startswith("smsp__sass")]
    command = [
        ncu, "--csv", "--clock-control", "none", "--kernel-name", "regex:case_", "--metrics",
        ",".join(f"{name}.sum" for name in wanted), sys.executable, str(Path(__file__)), "--launch",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    text = "\n".join(line for line in done.stdout.splitlines() if line.startswith('"'))
    found: dict[int, dict[str, int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        value = re.sub(r"[^0-9.]", "", row["Metric Value"])
        if value:
            found.setdefault(int(row["ID"]), {})[row["Metric Name"].removesuffix(".sum")] = round(float(value))
    if not found:
        raise SystemExit(f"ncu found nothing: {done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return [found[number] for number in sorted(found)]


def overhead(repeats: int = 9) -> Iterator[str]:
    """How much longer kernels of the emulator's own benchmark take with counters, in turns in one process."""
    from tables import table_head

    from cases.emulator import cases as kernels

    yield from table_head(("kernel", "without counters, ms", "with them, ms", "ratio"))
    named = [
        (case.name, ck.Kernel(case.source), ck.config(case.grid, case.block),
         (*case.inputs, np.zeros_like(case.expected)))
        for case in kernels()
    ]  # fmt: skip
    module = ck.Module(KERNELS)
    named += [(case.name, _kernel(module, case), case.config, case.arguments) for case in costly()]
    stream = ck.emulator.stream(machine="numpy")
    for name, kernel, config, arguments in named:
        plain, counting = [], []
        for _ in range(repeats + 1):
            plain.append(_seconds(kernel, stream, config, *arguments))
            with ck.emulator.counters(stream):
                counting.append(_seconds(kernel, stream, config, *arguments))
        off, on = statistics.median(plain[1:]), statistics.median(counting[1:])
        yield f"| {name} | {1000 * off:.1f} | {1000 * on:.1f} | {on / off:.2f} |"
    yield ""
    yield (
        "From the fourth on kernels do little but access memory, in fifteen to thirty instructions. What is over 2 "
        "there is how distinct sectors, and units of a bank, are told apart: a dozen passes over the addresses of each "
        "warp, sorted."
    )


def costly() -> Iterator[Case]:
    """Kernels that do little but access memory, in the ways that take the most to count: 256 Ki threads each."""
    random = np.random.default_rng(0)
    threads = 1 << 18
    line = ck.config(threads // _THREADS, _THREADS)
    x, y = (random.random(threads, np.float32) for _ in range(2))
    at = random.permutation(threads).astype(np.int32)
    shared = (at % 1024).astype(np.int32)
    bins = random.integers(0, 64, threads).astype(np.int32)
    counted = np.zeros(256, np.int32)
    yield Case("gather, random", "case_gather<float>", line, (x, at, y))
    yield Case("scatter, random", "case_scatter<float>", line, (x, at, y))
    yield Case("array of structs of 3", "case_structs", line, (np.zeros(3 * threads, np.float32), y))
    yield Case("every fourth lane", "case_some_lanes", line, (x, y))
    yield Case("transpose, naive", "case_transpose_naive", ck.config((16, 16), (32, 32)), (x, y, 512))
    yield Case("shared loads, random", "case_shared_load<float>", line, (x, shared, y))
    yield Case("shared loads of some lanes, random", "case_shared_some<float>", line,
               (x, np.where(at % 2, shared, -1).astype(np.int32), y))  # fmt: skip
    yield Case("shared stores, random", "case_shared_store<float>", line, (x, shared, y))
    yield Case("atomics to 64 bins", "case_histogram", line, (bins, counted))
    yield Case("atomics to 64 bins in shared memory", "case_shared_histogram", line, (bins, counted))
    yield Case("reduction, interleaved", "case_reduce_interleaved", line, (x, y))
    yield Case("local array", "case_local", line, ((bins % 5).astype(np.int32), y))


def _seconds(kernel: Any, *arguments: Any) -> float:
    start = time.perf_counter()
    kernel(*arguments)
    return time.perf_counter() - start


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--overhead", action="store_true", help="what counters cost the emulator, in place of the rest")
    parser.add_argument("--raw", type=Path, help="write all that ncu counted here, as JSON")


def lines(options: argparse.Namespace) -> Iterator[str]:
    if options.overhead:
        yield from overhead()
        return
    listed, reports = list(cases()), emulated()
    counted: list[dict[str, int]] = []
    if ck.has_gpu():
        counted = profiled([name for name, _ in METRICS.values()] + list(OTHERS))
        if len(counted) != len(listed):
            raise SystemExit(f"{len(listed)} launches, of which ncu counted {len(counted)}")
    if options.raw:
        import json

        options.raw.write_text(
            json.dumps({case.name: row for case, row in zip(listed, counted, strict=False)}, indent=1)
        )
    yield "A cell: what both count; where they differ, the emulator's and then ncu's. `–`: neither counts any."
    yield ""
    yield f"| kernel | {' | '.join(METRICS)} |"
    yield f"|---|{'---|' * len(METRICS)}"
    same = all_of_them = 0
    for number, (case, report) in enumerate(zip(listed, reports, strict=True)):
        cells = []
        for metric, field in METRICS.values():
            ours, theirs = field(report), counted[number].get(metric) if counted else None
            cells.append(
                "–" if not ours and not theirs else f"{ours}" if theirs in (None, ours) else f"**{ours} / {theirs}**"
            )
            all_of_them += theirs is not None and bool(ours or theirs)
            same += theirs is not None and ours == theirs and bool(ours)
        yield f"| {case.name} | {' | '.join(cells)} |"
    if counted:
        yield ""
        yield f"{same} of {all_of_them} numbers are equal."


if __name__ == "__main__":
    if sys.argv[1:] == ["--launch"]:
        launch_all(ck.stream())
