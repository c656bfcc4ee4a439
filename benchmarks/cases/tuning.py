"""Searches beside Kernel Tuner: the same source, the same space, the time of the search and the time of the winner.

On a GPU, with Kernel Tuner 1.5 (its CuPy back-end). Both tools pass points as macros and compare each candidate with
the same answer. All winners are measured in one loop at the end, by events, with the L2 cache flushed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from tables import table

import cudakit as ck
from cudakit.tuning.objectives import Time

TITLE = "Searches beside Kernel Tuner"

GEMM = """
#define BM (block_size_y * TM)
#define BN (block_size_x * TN)
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float sa[BK][BM + 1], sb[BK][BN];
    const int tx = threadIdx.x, ty = threadIdx.y, t = ty * block_size_x + tx, threads = block_size_x * block_size_y;
    const int row = blockIdx.y * BM, column = blockIdx.x * BN;
    float sum[TM][TN] = {};
    for (int from = 0; from < k; from += BK) {
        for (int i = t; i < BM * BK; i += threads) sa[i % BK][i / BK] = a[(row + i / BK) * k + from + i % BK];
        for (int i = t; i < BN * BK; i += threads) sb[i / BN][i % BN] = b[(from + i / BN) * n + column + i % BN];
        __syncthreads();
#pragma unroll
        for (int p = 0; p < BK; p++) {
            float left[TM], right[TN];
#pragma unroll
            for (int i = 0; i < TM; i++) left[i] = sa[p][ty * TM + i];
#pragma unroll
            for (int j = 0; j < TN; j++) right[j] = sb[p][tx + j * block_size_x];
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; i++)
        for (int j = 0; j < TN; j++) c[(row + ty * TM + i) * n + column + tx + j * block_size_x] = sum[i][j];
}"""

STENCIL = """
extern "C" __global__ void stencil(const float* x, float* y, int width, int height) {
    const int column = (blockIdx.x * block_size_x + threadIdx.x) * VEC + 1;
    const int first = (blockIdx.y * block_size_y + threadIdx.y) * ROWS + 1;
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int v = 0; v < VEC; v++) {
            const int i = (first + r) * width + column + v;
            if (first + r < height - 1 && column + v < width - 1)
                y[i] = 0.5f * x[i] + 0.125f * (x[i - 1] + x[i + 1] + x[i - width] + x[i + width]);
        }
}"""

REDUCE = """
extern "C" __global__ void reduce(const float* x, float* sums, int n) {
    __shared__ float warps[32];
    float sum = 0;
    const int step = gridDim.x * block_size_x * VEC;
    for (int i = (blockIdx.x * block_size_x + threadIdx.x) * VEC; i < n; i += step) {
#if VEC == 4
        const float4 v = *(const float4*)(x + i);
        sum += (v.x + v.y) + (v.z + v.w);
#elif VEC == 2
        const float2 v = *(const float2*)(x + i);
        sum += v.x + v.y;
#else
        sum += x[i];
#endif
    }
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < block_size_x / 32 ? warps[threadIdx.x] : 0;
        for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
        if (threadIdx.x == 0) atomicAdd(sums, sum);
    }
}"""


class Case(NamedTuple):
    """A kernel, its space, and how both tools launch it."""

    name: str
    text: str
    arguments: tuple[Any, ...]
    answer: tuple[Any, ...]
    space: dict[str, list[int]]
    restriction: str
    grid: Callable[..., tuple[int, ...]]
    peer: dict[str, Any]


def cases() -> Iterator[Case]:
    rng = np.random.default_rng(0)
    n = 1024
    a, b = (rng.random((n, n), np.float32) - 0.5 for _ in range(2))
    yield Case(
        "gemm", GEMM, (a, b, np.zeros((n, n), np.float32), np.int32(n), np.int32(n), np.int32(n)),
        (None, None, a @ b, None, None, None),
        {
            "block_size_x": [8, 16, 32], "block_size_y": [4, 8, 16, 32], "TM": [1, 2, 4, 8], "TN": [1, 2, 4, 8],
            "BK": [16, 32],
        },
        "block_size_x * block_size_y >= 64 and block_size_x * TN <= 128 and block_size_y * TM <= 128 and TM * TN >= 4",
        lambda block_size_x, block_size_y, TM, TN: (n // (block_size_x * TN), n // (block_size_y * TM)),
        {"problem_size": (n, n), "grid_div_x": ["block_size_x", "TN"], "grid_div_y": ["block_size_y", "TM"]},
    )  # fmt: skip
    width = height = 4096
    x = rng.random((height, width), np.float32)
    y = np.zeros_like(x)
    y[1:-1, 1:-1] = 0.5 * x[1:-1, 1:-1] + 0.125 * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])
    yield Case(
        "stencil", STENCIL, (x, np.zeros_like(x), np.int32(width), np.int32(height)), (None, y, None, None),
        {
            "block_size_x": [32, 64, 128, 256], "block_size_y": [1, 2, 4, 8, 16], "ROWS": [1, 2, 4, 8],
            "VEC": [1, 2, 4],
        },
        "64 <= block_size_x * block_size_y <= 1024",
        lambda block_size_x, block_size_y, ROWS, VEC: (
            -(-width // (block_size_x * VEC)), -(-height // (block_size_y * ROWS)),
        ),
        {
            "problem_size": (width, height), "grid_div_x": ["block_size_x", "VEC"],
            "grid_div_y": ["block_size_y", "ROWS"],
        },
    )  # fmt: skip
    size = 1 << 25
    x = rng.random(size, np.float32) - np.float32(0.5)
    yield Case(
        "reduce", REDUCE, (x, np.zeros(1, np.float32), np.int32(size)),
        (None, x.sum(dtype=np.float64, keepdims=True).astype(np.float32), None),
        {"block_size_x": [64, 128, 256, 512, 1024], "VEC": [1, 2, 4], "blocks": [132, 264, 528, 1056, 2112, 4224]},
        "",
        lambda blocks: (blocks,),
        {"problem_size": ("blocks",), "grid_div_x": []},
    )  # fmt: skip


class Outcome(NamedTuple):
    """The end of a search."""

    tool: str
    strategy: str
    evaluated: int
    wall: float
    waited: float
    point: dict[str, int]


def config_of(case: Case, point: dict[str, int]) -> ck.Config:
    names = case.grid.__code__.co_varnames[: case.grid.__code__.co_argcount]
    block = point["block_size_x"], point.get("block_size_y", 1)
    return ck.config(case.grid(**{name: point[name] for name in names}), block)


def on_device(case: Case, stream: Any) -> list[Any]:
    return [ck.to_device(value, stream) if isinstance(value, np.ndarray) else int(value) for value in case.arguments]


def apart(function: Callable[..., Outcome], name: str, *arguments: Any) -> Outcome:
    """Run a search in a process of its own: neither tool finds what a search before has compiled or loaded."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUPY_CACHE_DIR"] = folder
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, context) as pool:
            return pool.submit(function, name, *arguments).result()


def case_of(name: str) -> Case:
    return next(case for case in cases() if case.name == name)


def ours(name: str, strategy: str, budget: int | None, workers: int | None) -> Outcome:
    case = case_of(name)
    first = {key: values[1:2] for key, values in case.space.items()}
    search(case._replace(space=first, restriction=""), "exhaustive", 1, 0)  # the libraries are loaded
    return search(case, strategy, budget, workers)


def search(case: Case, strategy: str, budget: int | None, workers: int | None) -> Outcome:
    stream = ck.stream()
    arguments = [
        ck.to_device(value, stream) if isinstance(value, np.ndarray) else int(value) for value in case.arguments
    ]
    arguments = [
        ck.InOut(case.arguments[1]) if case.name == "reduce" and k == 1 else v for k, v in enumerate(arguments)
    ]
    expected = [value for value in case.answer if value is not None]
    names = case.grid.__code__.co_varnames[: case.grid.__code__.co_argcount]

    def config(**point: int) -> Any:
        return ck.config(
            case.grid(**{name: point[name] for name in names}), (point["block_size_x"], point.get("block_size_y", 1))
        )

    where = eval(f"lambda {', '.join(case.space)}: {case.restriction}") if case.restriction else None
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        tuned = ck.tune(
            ck.Kernel(case.text, options=ck.CompileOptions(cache=folder)), arguments, case.space, config=config,
            where=where, stream=stream, check=expected, strategy=strategy, budget=budget, workers=workers,
            tolerance=1e-3,
        )  # fmt: skip
        wall = time.perf_counter() - begun
    label = strategy if workers else f"{strategy}, compiled when needed"
    waited = tuned.seconds["compile"] + tuned.seconds["load"]
    return Outcome("cudakit", label, len(tuned.table), wall, waited, tuned.best)


def theirs(name: str, strategy: str, budget: int | None) -> Outcome:
    import kernel_tuner

    case = case_of(name)
    cp.RawModule(code='extern "C" __global__ void f() {}').get_function("f")  # the compiler is loaded
    begun = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = kernel_tuner.tune_kernel(
            case.name, case.text, arguments=list(case.arguments), tune_params=case.space,
            restrictions=[case.restriction] if case.restriction else None, answer=list(case.answer),
            atol=1e-2 if case.name != "reduce" else 1e3,
            lang="cupy", strategy=strategy, strategy_options={"max_fevals": budget} if budget else {}, **case.peer,
        )  # fmt: skip
    wall = time.perf_counter() - begun
    right = [row for row in results if isinstance(row["time"], float)]
    best = min(right, key=lambda row: row["time"])
    waited = sum(row.get("compile_time", 0) for row in results) / 1000
    return Outcome("Kernel Tuner", strategy, len(results), wall, waited, {name: best[name] for name in case.space})


def winner_time(case: Case, outcome: Outcome) -> float:
    """The time of a winner in µs: the median of 100 launches."""
    stream = ck.stream()
    arguments = [
        ck.to_device(value, stream) if isinstance(value, np.ndarray) else int(value) for value in case.arguments
    ]
    names = case.grid.__code__.co_varnames[: case.grid.__code__.co_argcount]
    point = outcome.point
    config = ck.config(
        case.grid(**{name: point[name] for name in names}), (point["block_size_x"], point.get("block_size_y", 1))
    )
    macros = {name: value for name, value in point.items() if name in case.text}
    plan = ck.Kernel(case.text, options=ck.CompileOptions(defines=macros)).plan(stream, config, *arguments)
    return float(np.median(Time(stream).measure(plan, float("inf"))))


def rows(options: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    for case in cases():
        if options.only and case.name not in options.only:
            continue
        outcomes = [
            apart(theirs, case.name, "brute_force", None),
            apart(ours, case.name, "exhaustive", None, 0),
            apart(ours, case.name, "exhaustive", None, options.workers),
            apart(theirs, case.name, options.peer, options.budget),
            apart(ours, case.name, "model", options.budget, options.workers),
        ]
        times = [winner_time(case, outcome) for outcome in outcomes]
        for number, (outcome, elapsed) in enumerate(zip(outcomes, times, strict=True)):
            peer = 3 * (number // 3)
            yield (
                case.name, f"{outcome.tool}, {outcome.strategy}", f"{outcome.evaluated}", f"{outcome.wall:.1f} s",
                f"{outcome.wall / outcomes[peer].wall:.2f}", f"{outcome.waited:.1f} s",
                f"{elapsed:.1f} µs", f"{elapsed / times[peer]:.3f}",
                ", ".join(f"{name}={value}" for name, value in outcome.point.items()),
            )  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", type=int, default=50, help="candidates of the searches that are not exhaustive")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile ahead")
    parser.add_argument("--peer", default="adaptive_tabu_greywolf", help="strategy of Kernel Tuner")
    parser.add_argument("--only", nargs="*", default=[], help="kernels")


def lines(options: argparse.Namespace) -> Iterator[str]:
    heads = ("kernel", "search", "candidates", "wall", "ratio", "compiling", "winner", "ratio", "point")
    return table(heads, rows(options))
