"""Ops of torch and calls of JAX around a kernel, beside a bare op of torch's and JAX's own: host time of a call.

On a GPU; without one on the emulator, by grids of no blocks, so that the overheads alone are seen. What the op adds to
the checked launch of its kernel stands beside a call of ``torch.library.custom_op`` with an empty body, of the same
arguments. What makes a result makes a new one, in each of them. All take turns in one process. Of JAX compiled calls
are timed, to the end of their work.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Iterator
from typing import Any

from tables import table

from cases.timing import host_time

TITLE = "Kernels inside of torch and JAX"
SOURCE = """
template <typename T>
__global__ void axpy(T a, const T* __restrict__ x, const T* __restrict__ y, T* __restrict__ z, size_t n) {
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i] + y[i];
}
template <typename T>
__global__ void add(T a, const T* __restrict__ x, T* __restrict__ y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
SIZES = (1 << 10, 1 << 26)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=31, help="measurements whose median is taken")


def lines(options: argparse.Namespace) -> Iterator[str]:
    """A table for each library that is installed."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    for name, rows in (("torch", torch_rows), ("jax", jax_rows)):
        if importlib.util.find_spec(name) is None:
            yield from ("", f"{name} is not installed.")
            continue
        yield ""
        yield from rows(options.repeats)


def torch_rows(repeats: int) -> Iterator[str]:
    """What ops add to launches."""
    import torch

    import cudakit as ck

    on_gpu = ck.has_gpu() and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    size = SIZES[0] if on_gpu else 32
    stream: Any = torch.cuda.current_stream() if on_gpu else ck.emulator.stream()
    into, onto = ck.Kernel(SOURCE, "axpy"), ck.Kernel(SOURCE, "add")
    x, y = torch.randn(size, device=device), torch.randn(size, device=device)
    needy = x.clone().requires_grad_()

    schema, library = "(Scalar a, Tensor x, Tensor{} y) -> {}", torch.library.custom_op
    empty_ = library(
        "cudakit_bench::empty_",
        lambda a, x, y: None,
        mutates_args=("y",),
        device_types=device,
        schema=schema.format("(a!)", "()"),
    )
    empty = library(
        "cudakit_bench::empty",
        lambda a, x, y: torch.empty_like(x),
        mutates_args=(),
        device_types=device,
        schema=schema.format("", "Tensor"),
    )
    empty.register_autograd(lambda ctx, dz: (None, dz, dz), setup_context=lambda ctx, inputs, output: None)

    def config(z: Any) -> Any:
        return ck.cover(z.numel()) if on_gpu else ck.config(0, 32)

    changes = ck.torch.op("cudakit_bench::add_", onto, values={"n": lambda x: x.numel()}, config=lambda y: config(y))
    makes = ck.torch.op(
        "cudakit_bench::axpy",
        into,
        out=lambda x: torch.empty_like(x),
        config=config,
        backward=lambda a, dz: (a * dz, dz),
    )
    expression = ck.elementwise("T a, T x, T y", "T z", "z = a * x + y", "axpy_expression")
    derived = ck.torch.op("cudakit_bench::expression", expression, numbers=["a"])

    def wait() -> None:
        if not on_gpu:
            stream.sync()  # as the op does on the host

    def changed() -> None:
        onto(stream, config(y), 2.0, x, y, size)
        wait()

    def made() -> None:
        z = torch.empty_like(x)
        into(stream, config(z), 2.0, x, y, z, size)
        wait()

    def expressed() -> None:
        expression(2.0, own_x, own_y, stream=stream)
        wait()

    if on_gpu:
        import cupy

        own_x, own_y = map(cupy.asarray, (x, y))
    else:
        own_x, own_y = x.numpy(), y.numpy()
    calls = {
        "empty_": lambda: empty_(2.0, x, y),
        "launch_": changed,
        "op_": lambda: changes(2.0, x, y),
        "empty": lambda: empty(2.0, x, y),
        "launch": made,
        "op": lambda: makes(2.0, x, y),
        "empty, grad": lambda: empty(2.0, needy, y),
        "op, grad": lambda: makes(2.0, needy, y),
        "expression": expressed,
        "op of expression": lambda: derived(2.0, x, y),
        "torch": lambda: torch.add(y, x, alpha=2.0),
    }
    found = host_time(calls, torch.cuda.synchronize if on_gpu else wait, repeats, 200 if on_gpu else 5)
    yield f"torch {torch.__version__}, {size} elements on {'a GPU' if on_gpu else 'the emulator'}; µs a call."
    yield f"torch's own `torch.add(y, x, alpha=2.0)`: {found['torch'] / 1e3:.2f} µs."
    yield ""
    rows = []
    for what, op, launch, bare in (
        ("changes y", "op_", "launch_", "empty_"),
        ("makes z", "op", "launch", "empty"),
        ("makes z, which requires a gradient", "op, grad", "launch", "empty, grad"),
        ("an expression", "op of expression", "expression", "empty"),
    )[: 4 if on_gpu else 3]:
        added, ratio = found[op] - found[launch], (found[op] - found[launch]) / found[bare]
        times = [f"{each / 1e3:.2f}" for each in (found[op], found[launch], added, found[bare])]
        rows.append([what, *times, f"{ratio:.2f}", "≤ 1.5"])
    yield from table(("op", "ck.torch.op", "checked call", "added", "empty custom_op", "added / empty", "aim"), rows)


def jax_rows(repeats: int) -> Iterator[str]:
    """Compiled calls beside JAX's own."""
    import jax

    import cudakit as ck

    on_gpu = ck.has_gpu() and jax.default_backend() == "gpu"
    axpy = ck.jax.call(ck.Kernel(SOURCE, "axpy"), lambda x: x, None if on_gpu else ck.config(0, 32))
    expression = ck.jax.call(ck.elementwise("T a, T x, T y", "T z", "z = a * x + y", "axpy_jax"), numbers=["a"])
    of_kernel, theirs = jax.jit(lambda x, y: axpy(2.0, x, y)), jax.jit(lambda x, y: 2.0 * x + y)
    of_expression = jax.jit(lambda x, y: expression(2.0, x, y))
    yield f"JAX {jax.__version__}, on {'a GPU' if on_gpu else 'the emulator'}; µs a compiled call, with its work."
    yield ""
    rows = []
    for size in SIZES if on_gpu else (32,):
        x, y = jax.random.normal(jax.random.key(0), (2, size))
        calls = {
            "a kernel": lambda x=x, y=y: of_kernel(x, y).block_until_ready(),
            "an expression": lambda x=x, y=y: of_expression(x, y).block_until_ready(),
            "theirs": lambda x=x, y=y: theirs(x, y).block_until_ready(),
        }
        found = host_time(calls, lambda: None, repeats, 20 if on_gpu else 5)
        for what in ("a kernel", "an expression")[: 2 if on_gpu else 1]:
            times = [f"{found[name] / 1e3:.1f}" for name in (what, "theirs")]
            rows.append([what, f"{size:,}", *times, f"{found[what] / found['theirs']:.2f}"])
    yield from table(("call of", "elements", "ck.jax.call", "2.0 * x + y of JAX", "ratio"), rows)
