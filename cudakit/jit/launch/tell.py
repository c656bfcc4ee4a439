"""A launch, told to whoever watches: which of its arguments it reads, and which it may write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cudakit.jit.specialise.parameters import BoundParameter
from cudakit.streams.witnesses import Call, doing, watched
from cudakit.types.arguments import texture_handle


def tell_launch(run: Callable[..., Any], stream: Any, call: Call, *given: Any) -> Any:
    """``run(*given)``, told as the launch of a kernel on `stream`."""
    if not watched():
        return run(*given)
    reads, writes = accesses(call.target.parameters, call.arguments)
    with doing("kernel", call.target.specialization.name_expression, stream, reads, writes, 0, call):
        return run(*given)


def accesses(parameters: Sequence[BoundParameter], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The arguments that a kernel reads, and those that it may write: a ``T*`` is both, a ``const T*`` read."""
    reads, writes = [], []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None or parameter.kind in ("vector", "struct", "functor"):
            continue
        if parameter.kind == "scalar":
            if texture_handle(argument) is not None:
                reads.append(argument)
                if type(argument).__name__ == "SurfaceObject":
                    writes.append(argument)
            continue
        reads.append(argument)
        if not parameter.const:
            writes.append(argument)
    return tuple(reads), tuple(writes)
