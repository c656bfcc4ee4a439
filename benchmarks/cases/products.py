"""Products of matrices and vectors, and attention, by kernels of threads, in turns with torch and CuPy, in one run."""

from __future__ import annotations

import argparse
import functools
import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tables import table_head, table_row

TITLE = "Products by kernels of threads"
TURNS = 5
SIDE = 8192
#: Attention: heads, queries and keys, the length of rows, and whether it is causal.
ATTENTION = ((16, 8192, 128, False), (16, 8192, 128, True), (16, 8192, 64, False), (32, 2048, 128, False))


class Case(NamedTuple):
    """A product of matrices: dtype, m = n = k, whether A and B lie turned, and what is asked."""

    name: str
    dtype: str
    size: int
    a_turned: bool = False
    b_turned: bool = False
    tf32: bool = False
    gelu: bool = False


CASES = (
    *(Case(f"float32 {size}³", "float32", size) for size in (1024, 2048, 4096, 8192)),
    Case("float32 8192³, A turned", "float32", SIDE, a_turned=True),
    Case("float32 8192³, B turned", "float32", SIDE, b_turned=True),
    Case("float32 8190³", "float32", 8190),
    Case("float32 8192³, bias + GELU", "float32", SIDE, gelu=True),
    *(Case(f"TF32 {size}³", "float32", size, tf32=True) for size in (2048, 4096, 8192)),
    *(Case(f"TF32 {size}³, B turned", "float32", size, b_turned=True, tf32=True) for size in (2048, 4096, 8192)),
    *(Case(f"float64 {size}³", "float64", size) for size in (2048, 8192)),
    *(Case(f"float16 {size}³", "float16", size) for size in (1024, 1536, 2048, 3072, 4096, 8192)),
    *(Case(f"bfloat16 {size}³", "bfloat16", size) for size in (1024, 1536, 2048, 3072, 4096, 8192)),
    Case("float16 8192³, B turned", "float16", SIDE, b_turned=True),
    Case("float16 8192³, bias + GELU", "float16", SIDE, gelu=True),
    Case("int8 8192³", "int8", SIDE),
    Case("int8 8192³, B turned", "int8", SIDE, b_turned=True),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this family."""
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name has this")


def in_turns(calls: list[Callable[[], Any]]) -> list[float]:
    """Milliseconds of each, medians of turns."""
    from cases.timing import device_ms

    for call in calls:
        call()
    taken = [[device_ms(call, 3) for call in calls] for _ in range(TURNS)]
    return [statistics.median(each) for each in zip(*taken, strict=True)]


def product(case: Case) -> list[str]:
    """A row of a product of matrices."""
    import cupy
    import torch

    import cudakit as ck

    def numbers() -> Any:
        if case.dtype == "int8":
            return torch.randint(-9, 10, (case.size, case.size), device="cuda", dtype=torch.int8)
        return torch.randn(case.size, case.size, device="cuda", dtype=getattr(torch, case.dtype))

    a, b = (numbers().mT if turned else numbers() for turned in (case.a_turned, case.b_turned))
    left, right = cupy.from_dlpack(a), cupy.from_dlpack(b)
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    named = {"precision": "tf32"} if case.tf32 else {}
    made = torch.int32 if case.dtype == "int8" else a.dtype
    out = cupy.from_dlpack(torch.empty((case.size, case.size), device="cuda", dtype=made))
    bias = cupy.random.rand(case.size).astype(case.dtype) if case.gelu else None
    same = torch.from_dlpack(bias) if case.gelu else None

    def own() -> Any:
        activation = "gelu" if case.gelu else None
        return ck.ops.matmul(left, right, bias=bias, activation=activation, by="threads", out=out, **named)

    def peer() -> Any:
        if case.dtype == "int8":
            return torch._int_mm(a, b)
        if case.gelu:
            return torch.nn.functional.gelu(torch.addmm(same, a, b), approximate="tanh")
        return torch.matmul(a, b)

    mine, other = in_turns([own, peer])
    work, want = 2e-9 * case.size**3, peer().double()
    off = float((torch.from_dlpack(out).double() - want).abs().max() / want.abs().max())
    told = vars(ck.ops.matmul)["explain"](left, right, by="threads", **named).splitlines()[0].partition(":")[0]
    return [case.name, told, f"{work / mine:.1f}", f"{work / other:.1f}", f"{other / mine:.3f}", f"{off:.1e}"]


def attention(heads: int, length: int, d: int, causal: bool) -> list[str]:
    """A row of attention."""
    import cupy
    import torch

    import cudakit as ck

    q, k, v = (torch.randn(1, heads, length, d, device="cuda", dtype=torch.float16) for _ in range(3))
    given, out = [cupy.from_dlpack(each) for each in (q, k, v)], cupy.empty(q.shape, "f2")
    attend = functools.partial(torch.nn.functional.scaled_dot_product_attention, is_causal=causal)
    mine, other = in_turns(
        [lambda: ck.ops.attention(*given, causal=causal, by="threads", out=out), lambda: attend(q, k, v)]
    )
    work = 4e-9 * heads * length * length * d / (2 if causal else 1)
    off = float((torch.from_dlpack(out) - attend(q, k, v)).abs().max())
    explain = vars(ck.ops.attention)["explain"]
    told = explain(*given, causal=causal, by="threads").partition(":")[0]
    name = f"attention float16, {heads} × {length} × {d}{', causal' if causal else ''}"
    return [name, told, f"{work / mine:.0f}", f"{work / other:.0f}", f"{other / mine:.3f}", f"{off:.1e}"]


def vectors(dtype: str, rows: int, columns: int, turned: bool) -> list[str]:
    """A row of `matvec`: GB/s of the matrix, beside a copy of as many bytes, and CuPy's product."""
    import cupy

    import cudakit as ck

    def numbers(*shape: int) -> Any:
        return cupy.random.randint(-1, 2, shape).astype(dtype)

    a, v = numbers(columns, rows).T if turned else numbers(rows, columns), numbers(columns)
    out, half = cupy.empty(rows, dtype), cupy.empty(a.nbytes // 2, "i1")
    source = cupy.zeros_like(half)
    mine, copy, other = in_turns(
        [
            lambda: ck.ops.matvec(a, v, out=out),
            lambda: cupy.copyto(half, source),
            lambda: cupy.matmul(a, v),
        ]
    )
    want = cupy.matmul(a[:64].astype("f8"), v.astype("f8")).astype("i8").astype(dtype)
    off = float(abs(out[:64].astype("f8") - want.astype("f8")).max())
    moved = a.nbytes * 1e-6
    name = f"matvec {dtype} {rows} × {columns}{', turned' if turned else ''}"
    return [name, *(f"{moved / each:.0f}" for each in (mine, copy, other)), f"{copy / mine:.3f}", f"{off:.0e}"]


def outer(dtype: str) -> list[str]:
    """A row of `outer`: GB/s written, beside a fill of as many bytes, and CuPy's own."""
    import cupy

    import cudakit as ck

    x, y = (cupy.random.randint(-9, 10, 2 * SIDE).astype(dtype) for _ in range(2))
    out = cupy.empty((2 * SIDE, 2 * SIDE), dtype)
    mine, fill, other = in_turns(
        [
            lambda: ck.ops.outer(x, y, out=out),
            lambda: out.data.memset_async(0, out.nbytes),
            lambda: cupy.multiply(x[:, None], y, out=out),
        ]
    )
    ck.ops.outer(x, y, out=out)
    off = float(abs(out[::97] - x[::97, None] * y).max())
    moved = out.nbytes * 1e-6
    name = f"outer {dtype} {2 * SIDE}²"
    return [name, *(f"{moved / each:.0f}" for each in (mine, fill, other)), f"{fill / mine:.3f}", f"{off:.0e}"]


def lines(options: argparse.Namespace) -> Iterator[str]:
    """The page."""
    import torch

    import cudakit as ck

    stream: Any = ck.stream()
    yield f"torch {torch.__version__}. TFLOP/s, medians of {TURNS} turns; ratio: torch's time over ours. Kernels are"
    yield "named as `explain` has them: extents of C and of the sum, warps, what multiplies. Error: the greatest, over"
    yield "the greatest value (of attention, absolute). The peer of bias and GELU is addmm, then gelu."
    yield ""
    yield from table_head(("product", "kernel", "TFLOP/s", "torch", "ratio", "error"))
    with ck.using(stream), torch.cuda.stream(torch.cuda.ExternalStream(int(stream.handle))):
        for case in CASES:
            if options.only in case.name:
                yield table_row(product(case))
        for each in ATTENTION:
            if options.only in f"attention {each[2]}":
                yield table_row(attention(*each))
        yield ""
        yield "GB/s of the matrix that is read or written; ratio: to a copy of as many bytes (half read, half written),"
        yield "or to a fill of them."
        yield ""
        yield from table_head(("product", "GB/s", "copy or fill", "CuPy", "ratio", "error"))
        for shape in ((2 * SIDE, 2 * SIDE, False), (2 * SIDE, 2 * SIDE, True)):
            for dtype in ("float32", "float16", "float64", "int8"):
                if options.only in f"matvec {dtype}":
                    yield table_row(vectors(dtype, *shape))
        if options.only in "matvec float32":
            yield table_row(vectors("float32", 1 << 22, 64, False))
            yield table_row(vectors("float32", 64, 1 << 22, False))
        for dtype in ("float32", "float16", "float64", "int8"):
            if options.only in f"outer {dtype}":
                yield table_row(outer(dtype))
