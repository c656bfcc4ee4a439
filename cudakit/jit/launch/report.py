"""Reports of launches to witnesses: which arguments a kernel reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.streams.witnesses import Call, doing, watched
from cudakit.types.arguments import texture_handle


def report_launch(run: Callable[..., Any], stream: Any, call: Call, *arguments: Any) -> Any:
    """Call ``run(*arguments)``, and return its result. Report the call to the witnesses, if any are registered.

    The report is a kernel launch on `stream`, with the arguments that the kernel of `call` reads and writes.
    """
    if not watched():
        return run(*arguments)
    reads, writes = accesses(call.target.parameters, call.arguments)
    with doing("kernel", call.target.specialization.name_expression, stream, reads, writes, 0, call):
        return run(*arguments)


def accesses(parameters: Sequence[BoundParameter], arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the arguments that a kernel reads, and the arguments that it may write.

    A ``T*`` is both, a ``const T*`` is read.
    """
    reads, writes = [], []
    for parameter, argument in zip(parameters, arguments, strict=True):
        if argument is None or parameter.category in ("vector", "struct", "functor"):
            continue
        if parameter.category == "scalar":
            if texture_handle(argument) is not None:
                reads.append(argument)
                if type(argument).__name__ == "SurfaceObject":
                    writes.append(argument)
            continue
        reads.append(argument)
        if not parameter.const:
            writes.append(argument)
    return tuple(reads), tuple(writes)
