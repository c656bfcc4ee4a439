"""Products of matrices by tile kernels, in turns with torch (cuBLAS), in one run.

The kernels need CUDA's tile compiler, which a machine with a GPU may lack: ``--make FILE`` makes all of them where it
is (no GPU is needed there), and ``--kernels FILE`` takes them in, into a cache of the run's own. ``--all`` measures
other tiles than the table of `cudakit.ops.matmul` has, too; that is what the table is made from.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import table_head, table_row

TITLE = "Tile kernels"
TURNS = 5
ARCH = "sm_90"
#: Products of fewer TFLOP are launched by graphs, many at once: a call would take longer than the kernel.
LITTLE, MANY = 0.06, 30
#: Attention: heads, queries, keys, the length of rows, and whether it is causal.
ATTENTION = (
    (16, 8192, 8192, 128, False),
    (16, 8192, 8192, 128, True),
    (16, 8192, 8192, 64, False),
    (16, 8192, 8192, 64, True),
    (16, 8190, 8190, 128, False),
    (32, 2048, 2048, 128, False),
    (128, 1024, 1024, 128, False),
    (64, 1024, 1024, 64, True),
)
#: Rows, and their length, of softmax and layernorm.
ROWS, LENGTH = 32_768, 4096
#: Tiles to be tried beside the table's, by its rows.
OTHERS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "half": ((256, 128, 64, 8, 1, True), (256, 128, 64, 4, 2, True), (64, 256, 64), (128, 64, 64), (64, 64, 64)),
    "fp8": ((128, 128, 128, 8), (256, 128, 128, 8, 2), (64, 64, 256)),
    "TF32": ((256, 256, 32, 8, 2, True), (128, 256, 32, 8)),
    "TF32, rows of B": ((256, 128, 32, 8), (128, 256, 32, 8)),
    "TF32, columns of A": ((128, 256, 64, 8),),
}


class Case(NamedTuple):
    """A row: what is multiplied, how it lies, and what follows the product."""

    name: str
    dtype: str
    sizes: tuple[int, int, int, int]
    #: Whether A lies with its columns contiguous, as k × m, and B, as n × k.
    a_turned: bool = False
    b_turned: bool = False
    made: str = ""
    gelu: bool = False
    #: Whether torch's side is one kernel of cuBLAS's, too.
    is_one: bool = False
    #: Elements that a row of A and B is longer in memory than what is taken of it.
    more: int = 0


def _half(name: str, *sizes: int) -> Case:
    return Case(f"bfloat16 {name}", "bfloat16", (1, *sizes))


CASES = (
    *(_half(f"{size}³", size, size, size) for size in (256, 512, 1024, 1536, 2048, 3072, 4096, 8192, 16384)),
    Case("bfloat16 8192³, bias + GELU", "bfloat16", (1, 8192, 8192, 8192), gelu=True),
    Case("bfloat16 8192³, bias + GELU, one kernel", "bfloat16", (1, 8192, 8192, 8192), gelu=True, is_one=True),
    Case("bfloat16 8192³, B turned", "bfloat16", (1, 8192, 8192, 8192), b_turned=True),
    Case("bfloat16 8190³ of 8192³", "bfloat16", (1, 8190, 8190, 8190), more=2),
    *(_half(f"{rows} × 8192 × 8192", rows, 8192, 8192) for rows in (1, 16, 64, 128, 256, 1024)),
    Case("float16 8190³ of 8192³", "float16", (1, 8190, 8190, 8190), more=2),
    _half("8192 × 64 × 8192", 8192, 64, 8192),
    _half("8192 × 8192 × 512", 8192, 8192, 512),
    Case("bfloat16 64 of 1024³", "bfloat16", (64, 1024, 1024, 1024)),
    Case("float16 512³", "float16", (1, 512, 512, 512)),
    Case("float16 8192³", "float16", (1, 8192, 8192, 8192)),
    *(Case(f"TF32 {size}³", "float32", (1, size, size, size)) for size in (1024, 8192)),
    *(Case(f"TF32 {size}³, B turned", "float32", (1, size, size, size), b_turned=True) for size in (1024, 8192)),
    Case("TF32 8192³, both turned", "float32", (1, 8192, 8192, 8192), a_turned=True, b_turned=True),
    *(
        Case(f"fp8 e4m3 {size}³, B turned", "float8_e4m3fn", (1, size, size, size), b_turned=True, made="bfloat16")
        for size in (1024, 4096, 8192)
    ),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this family."""
    parser.add_argument("--make", type=Path, metavar="FILE", help="make the kernels and write them; measure nothing")
    parser.add_argument("--kernels", type=Path, metavar="FILE", help="kernels that --make wrote")
    parser.add_argument("--all", action="store_true", help="other tiles than the table's too")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")
    parser.add_argument("--arch", default=ARCH, help="what --make is for")


def product_of(case: Case, tiles: Any, device: int | str) -> Any:
    """The launch of a case by given tiles."""
    import ml_dtypes

    from cudakit.ops.epilogue import activation_of
    from cudakit.ops.matmul_tiles import MatrixLayout, product

    def dtype(name: str) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, name, name))

    batches, m, n, k = case.sizes
    stored, made = dtype(case.dtype), dtype(case.made or case.dtype)
    a, b = (m if case.a_turned else k) + case.more, (k if case.b_turned else n) + case.more
    steps = (
        (k * a if case.a_turned else m * a, k * b if not case.b_turned else n * b, m * n) if batches > 1 else (0, 0, 0)
    )
    sides = (
        MatrixLayout(case.a_turned, a, steps[0]),
        MatrixLayout(case.b_turned, b, steps[1]),
        MatrixLayout(False, n, steps[2]),
    )
    activation = activation_of("matmul", "gelu" if case.gelu else None, np.dtype("f4"))
    return product(stored, made, activation, sides, case.sizes, (16, 16), (case.gelu, False), tiles, device)


def tiles_of(case: Case, device: int | str, all_of_them: bool) -> list[Any]:
    """The tiles that the library takes, first, and others."""
    from cudakit.ops.matmul_tiles import TABLE, Tiles, choose, table_row

    row = table_row({"float32": 4, "float8_e4m3fn": 1}.get(case.dtype, 2), case.a_turned, case.b_turned)
    every = (*TABLE[row], *(Tiles(*each) for each in OTHERS[row]))
    if isinstance(device, str):
        return [*every] if all_of_them else [*TABLE[row]]
    first = choose(row, *case.sizes, device).tiles
    return [first, *(each for each in every if each != first)] if all_of_them else [first]


def make(options: argparse.Namespace, cases: list[Case]) -> Iterator[str]:
    """Make all kernels and write them into a file."""
    from cudakit.errors import CompileError
    from cudakit.jit.cache.cache import default_cache

    taken = []
    for case in cases:
        for tiles in tiles_of(case, options.arch, options.all):
            start = time.perf_counter()
            try:
                product_of(case, tiles, options.arch).kernel.compile(arch=options.arch, target="cubin")
            except CompileError as error:
                yield f"- {case.name}, {tiles[:6]}: {str(error).splitlines()[0]}"
            taken.append(time.perf_counter() - start)
    new = [each for each in taken if each > 0.02]
    yield f"Compiled once (NVRTC and tileiras, 2 cores): {statistics.median(new):.2f} s, {max(new):.2f} s at most."
    if not options.only:
        for case_of_attention in ATTENTION:
            for kernel in attention_kernels(case_of_attention):
                kernel.compile(arch=options.arch, target="cubin")
        for choice in attention_choices((8, 256, 256, 64, False), options.arch):
            attention_launch((8, 256, 256, 64, False), choice, "float16").kernel.compile(
                arch=options.arch, target="cubin"
            )
        for name in ("softmax", "layernorm"):
            rows_kernel(name).compile(arch=options.arch, target="cubin")
    if cases[0] == CASES[0]:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            yield f"From disk, in a process of its own: {pool.apply(from_disk_ms, (options.arch,)):.1f} ms."
    count, alone = default_cache().export_to(options.make)
    yield f"{count} kernels in {options.make}; {len(alone)} left out."


def operands(case: Case) -> tuple[Any, Any, Any, Any, Callable[[], Any]]:
    """A, B, the bias and C as torch tensors, and torch's own call of the product."""
    import torch

    batches, m, n, k = case.sizes
    dtype, made = getattr(torch, case.dtype), getattr(torch, case.made or case.dtype)

    def numbers(rows: int, columns: int) -> Any:
        around = (batches,) if batches > 1 else ()
        return (torch.randn(*around, rows, columns + case.more, device="cuda") / 2).to(dtype)

    a = numbers(k, m) if case.a_turned else numbers(m, k)
    b = numbers(n, k) if case.b_turned else numbers(k, n)
    left, right = a[..., :m].mT if case.a_turned else a[..., :k], b[..., :k].mT if case.b_turned else b[..., :n]
    bias = torch.randn(n, device="cuda").to(made)
    c = torch.empty(*((batches,) if batches > 1 else ()), m, n, device="cuda", dtype=made)
    if case.dtype.startswith("float8"):
        one = torch.ones((), device="cuda")
        return a, b, bias, c, lambda: torch._scaled_mm(left, right, one, one, out_dtype=made)
    if case.is_one:
        return a, b, bias, c, lambda: torch._addmm_activation(bias, left, right, use_gelu=True)
    if case.gelu:
        gelu = functools.partial(torch.nn.functional.gelu, approximate="tanh")
        return a, b, bias, c, lambda: gelu(torch.addmm(bias, left, right))
    return a, b, bias, c, lambda: torch.matmul(left, right)


def measure(case: Case, options: argparse.Namespace, stream: Any) -> Iterator[list[str]]:
    """Rows of one case."""
    import torch

    batches, m, n, k = case.sizes
    a, b, bias, c, peer = operands(case)
    work = 2e-9 * batches * m * n * k
    for tiles in tiles_of(case, 0, options.all):
        shape = (
            f"{tiles.extents}, {tiles.warps} w, {tiles.ctas} c"
            f"{', p' if tiles.persistent else ''}{', s' if tiles.swapped else ''}"
        )
        try:
            found = product_of(case, tiles, 0)

            def run(found: Any = found) -> None:
                found.kernel(stream, found.config, a, b, bias, c, c, 1.0, *found.numbers)

            yield [case.name, shape, *timed(run, peer, lambda: c, work, is_little=work < 1e3 * LITTLE)]
        except Exception as error:  # a row that fails is a result
            torch.cuda.synchronize()
            yield [case.name, shape, str(error).splitlines()[0][:80], "", "", ""]


def from_disk_ms(arch: str) -> float:
    """Milliseconds of finding a kernel's machine code on disk, after another instance's."""
    first, *others = tiles_of(CASES[0], arch, False)
    product_of(CASES[0], first, arch).kernel.compile(arch=arch, target="cubin")
    found = []
    for tiles in others:
        kernel = product_of(CASES[0], tiles, arch).kernel
        start = time.perf_counter()
        kernel.compile(arch=arch, target="cubin")
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def timed(
    run: Callable[[], Any],
    peer: Callable[[], Any],
    result: Callable[[], Any],
    work: float,
    is_little: bool = False,
) -> list[str]:
    """TFLOP/s of both, in turns, torch's time over ours, and the greatest error; `work` is in GFLOP."""
    from cases.timing import device_ms

    run()
    want = peer().float()
    off = float((result().float() - want).abs().max() / want.abs().max())
    calls = [each if not is_little else many_of(each) for each in (run, peer)]
    taken = [tuple(device_ms(each, 3) / (MANY if is_little else 1) for each in calls) for _ in range(TURNS)]
    own, others = (statistics.median(each) for each in zip(*taken, strict=True))
    ratio = statistics.median(other / mine for mine, other in taken)
    return [f"{work / own:.0f}", f"{work / others:.0f}", f"{ratio:.3f}", f"{off:.1e}"]


def many_of(call: Callable[[], Any]) -> Callable[[], Any]:
    """A graph of many of the call."""
    import torch

    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(MANY):
            call()
    return graph.replay


def attention_choices(case: tuple[int, int, int, int, bool], device: int | str) -> list[Any]:
    """What the library takes, or all it could take, where there is no device."""
    from cudakit.ops.attention import TABLE, Choice, choose, width_of

    heads, queries, keys, d, causal = case
    if not isinstance(device, str):
        return [choose(d, causal, (heads, 1, queries, keys), device)]
    return [Choice(tiles, first, "") for tiles in TABLE[width_of(d)] for first in {False, causal}]


def attention_launch(case: tuple[int, int, int, int, bool], choice: Any, dtype: str = "bfloat16") -> Any:
    """The launch of one choice."""
    import ml_dtypes

    from cudakit.ops.attention import attention_of

    heads, queries, keys, d, causal = case
    of = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return attention_of(of, d, causal, d**-0.5, (heads, 1, queries, keys), choice)


def attention_kernels(case: tuple[int, int, int, int, bool]) -> list[Any]:
    """All kernels that a device could ask for."""
    return [attention_launch(case, choice).kernel for choice in attention_choices(case, ARCH)]


def attention(stream: Any, case: tuple[int, int, int, int, bool]) -> list[str]:
    """A row of attention."""
    import torch

    heads, queries, keys, d, causal = case
    q = torch.randn(1, heads, queries, d, device="cuda").bfloat16()
    k, v = (torch.randn(1, heads, keys, d, device="cuda").bfloat16() for _ in range(2))
    o, choice = torch.empty_like(q), attention_choices(case, 0)[0]
    found, tiles = attention_launch(case, choice), choice.tiles
    rates = timed(
        lambda: found.kernel(stream, found.config, q, k, v, o, *found.numbers),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda: o,
        4e-9 * heads * queries * keys * d / (2 if causal else 1),
    )
    name = f"attention, {heads} × {queries} × {d}{', causal' if causal else ''}"
    how = f"{', b' if tiles.behind else ''}{', h' if choice.heads_first else ''}"
    return [name, f"{tiles.queries} × {tiles.keys}, {tiles.warps} w, {tiles.blocks} o{how}", *rates]


def rows_kernel(name: str) -> Any:
    """Rows by a tile kernel."""
    import cudakit as ck

    kernel = ck.Kernel.from_template(f"tile/rows/{name}")
    return kernel["float", LENGTH, 1, 4, 16, False]


def rows(stream: Any, name: str) -> list[str]:
    """Rows as tiles, by `ck.ops` and by torch: GB/s read and written."""
    import cupy
    import torch

    import cudakit as ck
    from cases.timing import device_ms

    x = torch.randn(ROWS, LENGTH, device="cuda")
    y, mine, kernel = torch.empty_like(x), cupy.from_dlpack(x), rows_kernel(name)
    into = cupy.empty_like(mine)
    given = (x, x, y, 1.0) if name == "softmax" else (x, x, x, y, 1e-5)
    op = ck.ops.softmax if name == "softmax" else ck.ops.layernorm
    calls: list[Callable[[], Any]] = [
        lambda: kernel(stream, ck.config(ROWS), *given, ROWS, LENGTH, LENGTH),
        lambda: op(mine, axis=-1, out=into),
        lambda: torch.softmax(x, -1) if name == "softmax" else torch.nn.functional.layer_norm(x, (LENGTH,)),
    ]
    taken = [[device_ms(call, 3) for call in calls] for _ in range(TURNS)]
    off = float((y - calls[2]()).abs().max())
    return [
        name,
        *(f"{8e-6 * ROWS * LENGTH / statistics.median(each):.0f}" for each in zip(*taken, strict=True)),
        f"{off:.1e}",
    ]


def ragged() -> list[str]:
    """A row of a product whose operands `ck.ops.matmul` copies first, as TMA cannot read them."""
    import cupy
    import torch

    import cudakit as ck

    size = 8190
    a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    left, right, c = cupy.from_dlpack(a), cupy.from_dlpack(b), cupy.empty((size, size), "f2")
    rates = timed(
        lambda: ck.ops.matmul(left, right, out=c),
        lambda: torch.matmul(a, b),
        lambda: torch.from_dlpack(c),
        2e-9 * size**3,
    )
    return [f"float16 {size}³, both copied first", "ck.ops.matmul", *rates]


def calls(stream: Any) -> Iterator[str]:
    """What a call of an op costs the host, beside torch's."""
    import cupy
    import torch

    import cudakit as ck
    from cases.timing import calls_ms

    a = cupy.random.rand(512, 512).astype("f2")
    q = cupy.random.rand(1, 8, 256, 64).astype("f2")
    c, o, same, asked = cupy.empty_like(a), cupy.empty_like(q), torch.from_dlpack(a), torch.from_dlpack(q)
    into, attend = torch.empty_like(same), torch.nn.functional.scaled_dot_product_attention
    for name, own, peer in (
        ("matmul, float16 512³", lambda: ck.ops.matmul(a, a, out=c), lambda: torch.matmul(same, same, out=into)),
        ("attention, 8 × 256 × 64", lambda: ck.ops.attention(q, q, q, out=o), lambda: attend(asked, asked, asked)),
    ):
        found = calls_ms({"ck": own, "torch": peer}, 20)
        yield ""
        yield f"{name}, launch included: ck.ops {found['ck'] * 1e3:.1f} µs, torch {found['torch'] * 1e3:.1f} µs."
    off = float((torch.from_dlpack(o) - attend(asked, asked, asked)).abs().max())
    yield f"The greatest difference of attention, of values of at most 1: {off:.1e}."


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The page."""
    cases = [case for case in CASES if options.only in case.name]
    with tempfile.TemporaryDirectory(prefix="cudakit-tiles-") as folder:
        # A cache of its own: nothing of other programs is written, and nothing of them is used.
        os.environ["CUDAKIT_CACHE_DIR"] = folder
        if options.make:
            yield from make(options, cases)
            return
        yield from measured(options, cases)


def measured(options: argparse.Namespace, cases: list[Case]) -> Iterator[str]:
    """The table, and a line on calls."""
    import torch

    import cudakit as ck
    from cudakit.jit.cache.cache import default_cache

    if options.kernels:
        default_cache().import_from(options.kernels)
    torch.backends.cuda.matmul.allow_tf32 = True
    stream: Any = ck.stream()
    yield f"torch {torch.__version__}. TFLOP/s, medians of {TURNS} turns; ratio: torch's time over ours of a turn."
    yield "Tiles: extents of C and of the sum, w warps, c CTAs, p persistent, s swapped; of attention queries × keys, o"
    yield "blocks on a multiprocessor, b values a tile later, h heads first. Error: the greatest, over the greatest"
    yield f"value. What takes less than {1e3 * LITTLE:.0f} GFLOP is launched by graphs on both sides. The peer of bias"
    yield "and GELU is addmm, then gelu; `one kernel` is beside cuBLAS's own fused one."
    yield ""
    yield from table_head(("product", "tiles", "TFLOP/s", "torch", "ratio", "error"))
    with ck.using(stream), torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
        for case in cases:
            for row in measure(case, options, stream):
                yield table_row(row)
        if not options.only:
            yield table_row(ragged())
            yield from (table_row(attention(stream, each)) for each in ATTENTION)
            yield ""
            yield f"Rows, {ROWS} of {LENGTH} float32, GB/s read and written:"
            yield ""
            yield from table_head(("rows", "tiles", "ck.ops (threads)", "torch", "error"))
            yield from (table_row(rows(stream, name)) for name in ("softmax", "layernorm"))
            yield from calls(stream)
