"""Kernels that share a name: the one that a call's arguments fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from cudakit.errors import ArgumentError, CompileError, TemplateError, shortened
from cudakit.jit.signature.signature import Signature, listed

_T = TypeVar("_T")


def choose(overloads: Iterable[Signature], attempt: Callable[[Signature], _T], count: int) -> _T:
    """What `attempt` gives for the only one of `overloads` that it takes with `count` arguments.

    Raises
    ------
    ArgumentError
        If it takes none of them, or several.
    """
    overloads = tuple(overloads)
    found: list[tuple[Signature, _T]] = []
    refused: list[str] = []
    for kernel in overloads:
        try:
            found.append((kernel, attempt(kernel)))
        except (ArgumentError, TemplateError, CompileError) as error:
            refused.append(f"{kernel.full_name}: {str(error).partition(chr(10))[0]}")
    if len(found) == 1:
        return found[0][1]
    name = overloads[0].name
    if found:
        raise ArgumentError(
            f"{name} has several kernels that these arguments fit: {listed(kernel for kernel, _ in found)}; name one "
            f"with the types of its parameters, as in Kernel(source, {shortened(found[0][0].full_name)})"
        )
    raise ArgumentError(f"no kernel {name} takes these {count} arguments:\n" + "\n".join(refused))
