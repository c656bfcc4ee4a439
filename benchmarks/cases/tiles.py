"""Products of matrices by tile kernels, in turns with torch (cuBLAS), in one run.

The kernels need CUDA's tile compiler, which a machine with a GPU may lack: ``--make FILE`` makes all of them where it
is (no GPU is needed there), and ``--kernels FILE`` takes them in, into a cache of the run's own. ``--all`` measures
other tiles than the table of `cudakit.ops.matmul` has, too; that is what the table is made from.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tables import table_head, table_row

TITLE = "Tile kernels"
TURNS = 5
ARCH = "sm_90"
#: Attention: heads, their length, queries of a block (and keys of a tile); extents of a row, and whether it is causal.
HEADS, LENGTH, QUERIES = 16, 8192, 128
ATTENTION = ((128, False), (128, True), (64, False))
#: Tiles to be tried beside the table's, by the bytes of an element.
OTHERS: dict[int, tuple[tuple[Any, ...], ...]] = {
    2: (
        (256, 256, 64, 8, 2),
        (128, 256, 64, 8, 1, True),
        (128, 256, 64, 8),
        (128, 256, 32, 8),
        (256, 128, 64, 8),
        (128, 128, 64),
        (64, 256, 64),
        (64, 64, 128),
    ),
    1: ((128, 128, 128, 8, 1, True), (256, 128, 128, 8, 2), (128, 64, 128)),
    4: ((128, 256, 32, 8, 1, True), (128, 128, 32, 8)),
}


class Case(NamedTuple):
    """A row: what is multiplied, how it lies, and what follows the product."""

    name: str
    dtype: str
    sizes: tuple[int, int, int, int]
    #: Whether B lies with its columns contiguous, as n × k.
    b_turned: bool = False
    made: str = ""
    gelu: bool = False
    #: Elements that a row of A and B is longer in memory than what is taken of it.
    more: int = 0


CASES = (
    *(Case(f"bfloat16 {size}³", "bfloat16", (1, size, size, size)) for size in (512, 2048, 4096, 8192, 16384)),
    Case("bfloat16 8192³, bias + GELU", "bfloat16", (1, 8192, 8192, 8192), gelu=True),
    Case("bfloat16 8192³, B turned", "bfloat16", (1, 8192, 8192, 8192), b_turned=True),
    Case("bfloat16 8190³ of 8192³", "bfloat16", (1, 8190, 8190, 8190), more=2),
    Case("bfloat16 64 × 8192 × 8192", "bfloat16", (1, 64, 8192, 8192)),
    Case("bfloat16 64 of 1024³", "bfloat16", (64, 1024, 1024, 1024)),
    Case("float16 512³", "float16", (1, 512, 512, 512)),
    Case("float16 8192³", "float16", (1, 8192, 8192, 8192)),
    Case("TF32 8192³", "float32", (1, 8192, 8192, 8192)),
    Case("TF32 8192³, B turned", "float32", (1, 8192, 8192, 8192), b_turned=True),
    Case("fp8 e4m3 8192³, B turned", "float8_e4m3fn", (1, 8192, 8192, 8192), b_turned=True, made="bfloat16"),
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

    from cudakit.ops.matmul_plan import Lying, product

    def dtype(name: str) -> np.dtype:
        return np.dtype(getattr(ml_dtypes, name, name))

    batches, m, n, k = case.sizes
    stored, made = dtype(case.dtype), dtype(case.made or case.dtype)
    a, b = k + case.more, (k if case.b_turned else n) + case.more
    steps = (m * a, k * b if not case.b_turned else n * b, m * n) if batches > 1 else (0, 0, 0)
    sides = Lying(False, a, steps[0]), Lying(case.b_turned, b, steps[1]), Lying(False, n, steps[2])
    activation = "gelu" if case.gelu else None
    return product(stored, made, activation, sides, case.sizes, (16, 16), (case.gelu, False), tiles, device)


def tiles_of(case: Case, device: int | str, all_of_them: bool) -> list[Any]:
    """The tiles that the library takes, first, and others."""
    from cudakit.ops.matmul_plan import TABLE, Tiles, choose

    itemsize = {"float32": 4, "float8_e4m3fn": 1}.get(case.dtype, 2)
    batches, m, n, _ = case.sizes
    every = (*TABLE[itemsize], *(Tiles(*each) for each in OTHERS[itemsize]))
    if isinstance(device, str):
        return [*every] if all_of_them else [*TABLE[itemsize]]
    first = choose(itemsize, batches, m, n, device).tiles
    return [first, *(each for each in every if each[:6] != first[:6])] if all_of_them else [first]


def make(options: argparse.Namespace, cases: list[Case]) -> Iterator[str]:
    """Make all kernels and write them into a file."""
    from cudakit.errors import CompileError
    from cudakit.jit.cache.cache import default_cache

    for case in cases:
        for tiles in tiles_of(case, options.arch, options.all):
            try:
                product_of(case, tiles, options.arch).kernel.compile(arch=options.arch, target="cubin")
            except CompileError as error:
                yield f"- {case.name}, {tiles[:6]}: {str(error).splitlines()[0]}"
    if not options.only:
        for d, causal in ATTENTION:
            attention_kernel(d, causal).compile(arch=options.arch, target="cubin")
    count, alone = default_cache().give_out(options.make)
    yield f"{count} kernels in {options.make}; {len(alone)} left out."


def operands(case: Case) -> tuple[Any, Any, Any, Any, Callable[[], Any]]:
    """A, B, the bias and C as torch tensors, and torch's own call of the product."""
    import torch

    batches, m, n, k = case.sizes
    dtype, made = getattr(torch, case.dtype), getattr(torch, case.made or case.dtype)

    def numbers(rows: int, columns: int) -> Any:
        around = (batches,) if batches > 1 else ()
        return (torch.randn(*around, rows, columns + case.more, device="cuda") / 2).to(dtype)

    a, b = numbers(m, k), numbers(n, k) if case.b_turned else numbers(k, n)
    left, right = a[..., :k], b[..., :k].mT if case.b_turned else b[..., :n]
    bias = torch.randn(n, device="cuda").to(made)
    c = torch.empty(*((batches,) if batches > 1 else ()), m, n, device="cuda", dtype=made)
    if case.dtype.startswith("float8"):
        one = torch.ones((), device="cuda")
        return a, b, bias, c, lambda: torch._scaled_mm(left, right, one, one, out_dtype=made)
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
            " × ".join(map(str, tiles[:3])) + f", {tiles.warps} w, {tiles.ctas} c{', p' if tiles.persistent else ''}"
        )
        try:
            found = product_of(case, tiles, 0)

            def run(found: Any = found) -> None:
                found.kernel(stream, found.config, a, b, bias, c, c, 1.0, *found.numbers)

            yield [case.name, shape, *timed(run, peer, lambda: c, work)]
        except Exception as error:  # a row that fails is a result
            torch.cuda.synchronize()
            yield [case.name, shape, str(error).splitlines()[0][:80], "", "", ""]


def timed(run: Callable[[], Any], peer: Callable[[], Any], result: Callable[[], Any], work: float) -> list[str]:
    """TFLOP/s of both, in turns, torch's time over ours, and the greatest error; `work` is in GFLOP."""
    from cases.timing import device_ms

    run()
    want = peer().float()
    off = float((result().float() - want).abs().max() / want.abs().max())
    taken = [(device_ms(run, 3), device_ms(peer, 3)) for _ in range(TURNS)]
    own, others = (statistics.median(each) for each in zip(*taken, strict=True))
    ratio = statistics.median(other / mine for mine, other in taken)
    return [f"{work / own:.0f}", f"{work / others:.0f}", f"{ratio:.3f}", f"{off:.1e}"]


def attention_kernel(d: int, causal: bool) -> Any:
    """The instance of the template that is measured."""
    import ml_dtypes

    import cudakit as ck

    kernel = ck.Kernel.from_template("tile/attention/attention")
    return kernel[np.dtype(ml_dtypes.bfloat16), d, QUERIES, QUERIES, 8, causal]


def attention(stream: Any, d: int, causal: bool) -> list[str]:
    """A row of attention."""
    import torch

    import cudakit as ck

    q, k, v = (torch.randn(1, HEADS, LENGTH, d, device="cuda").bfloat16() for _ in range(3))
    o, kernel, scale = torch.empty_like(q), attention_kernel(d, causal), 1.4426950408889634 / d**0.5
    grid = ck.config((-(-LENGTH // QUERIES), HEADS))
    rates = timed(
        lambda: kernel(stream, grid, q, k, v, o, scale, HEADS, 1, LENGTH),
        lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
        lambda: o,
        4e-9 * HEADS * LENGTH**2 * d / (2 if causal else 1),
    )
    name = f"attention, {HEADS} × {LENGTH} × {d}{', causal' if causal else ''}"
    return [name, f"{QUERIES} × {QUERIES}, 8 w", *rates]


def calls(stream: Any) -> Iterator[str]:
    """What a call of the op costs the host, beside torch's."""
    import cupy
    import torch

    import cudakit as ck
    from cases.timing import calls_ms

    a = cupy.random.rand(512, 512).astype("f2")
    c, same = cupy.empty_like(a), torch.from_dlpack(a)
    into = torch.empty_like(same)
    found = calls_ms(
        {"ck": lambda: ck.ops.matmul(a, a, out=c), "torch": lambda: torch.matmul(same, same, out=into)}, 20
    )
    yield ""
    own, others = (f"{found[name] * 1e3:.1f} µs" for name in ("ck", "torch"))
    yield f"float16 512³, launch included: ck.ops.matmul {own}, torch {others}."


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
        default_cache().take_in(options.kernels)
    torch.backends.cuda.matmul.allow_tf32 = True
    stream: Any = ck.stream()
    yield f"torch {torch.__version__}. TFLOP/s, medians of {TURNS} turns; ratio: torch's time over ours of a turn."
    yield "Tiles: extents of C and of the sum, w warps, c CTAs, p persistent. Error: the greatest, over the greatest"
    yield "value."
    yield ""
    yield from table_head(("product", "tiles", "TFLOP/s", "torch", "ratio", "error"))
    with ck.using(stream), torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
        for case in cases:
            for row in measure(case, options, stream):
                yield table_row(row)
        if not options.only:
            yield from (table_row(attention(stream, *each)) for each in ATTENTION)
            yield from calls(stream)
