"""Operations on rows beside CuPy and torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import cupy

from cases.case import Case, random_array
from cases.peers import as_torch, torch_module
from cudakit import ops

#: Elements of a row, where there are enough.
LENGTH = 8192


def cases(sizes: tuple[int, ...], quick: bool) -> Iterator[Case]:
    """Each op along the last axis, softmax along the first one and along long and odd rows too."""
    for dtype in ("float32",) if quick else ("float32", "float16", "float64"):
        for size in sizes:
            length = min(LENGTH, size // 4)
            for op in ("softmax", "log_softmax", "logsumexp", "layernorm", "rmsnorm"):
                yield _case(op, dtype, (size // length, length), -1, size > sizes[0])
        if not quick:
            size = sizes[-1]
            yield _case("softmax", dtype, (size // 50257, 50257), -1)
            yield _case("softmax", dtype, (size >> 22, 1 << 22), -1)
            yield _case("softmax", dtype, (256, size // 256), 0)
            yield _case("softmax", dtype, (LENGTH, size // LENGTH), 0)


def _case(op: str, dtype: str, shape: tuple[int, int], axis: int, reuse: bool = True) -> Case:
    size = shape[0] * shape[1]
    x = random_array(size, dtype).reshape(shape)
    out = cupy.empty_like(x) if op != "logsumexp" else cupy.empty(shape[0], dtype)
    weight, bias = random_array(shape[1], dtype, 2), random_array(shape[1], dtype, 3)
    given: dict[str, tuple[Any, ...]] = {"layernorm": (weight, bias), "rmsnorm": (weight,)}
    call = getattr(ops, op)
    peers: dict[str, Callable[[], object]] = {}
    if op in ("softmax", "log_softmax", "logsumexp"):
        import cupyx.scipy.special as special

        peer = getattr(special, op)
        peers["cupy"] = lambda: peer(x, axis=axis)
    if torch := torch_module():
        t, tw, tb = as_torch(x), as_torch(weight), as_torch(bias)
        width = (shape[1],)
        peers["torch"] = {
            "softmax": lambda: torch.softmax(t, axis),
            "log_softmax": lambda: torch.log_softmax(t, axis),
            "logsumexp": lambda: torch.logsumexp(t, axis),
            "layernorm": lambda: torch.nn.functional.layer_norm(t, width, tw, tb),
            "rmsnorm": lambda: torch.nn.functional.rms_norm(t, width, tw),
        }[op]
    parameters = given.get(op, ())
    name = f"{op} {shape[0]}×{shape[1]}" + (" axis 0" if axis == 0 else "")
    moved = x.nbytes + out.nbytes

    def run() -> object:
        return call(x, *parameters, axis=axis, out=out if reuse else None)

    return Case(name, dtype, size, moved, run, peers, "≥ 0.90 × copy" if axis else "")
