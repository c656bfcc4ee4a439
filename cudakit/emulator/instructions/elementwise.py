"""Steps of instructions that compute each lane's result from the same lane's operands, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from cudakit.emulator.machine.context import CARRY, Context
from cudakit.emulator.machine.decode import Step
from cudakit.emulator.machine.memory import Index
from cudakit.emulator.machine.state import Frame, Machine
from cudakit.emulator.ptx.program import Instruction, Operand


def elementwise(given: Instruction, context: Context, kind: str, function: Callable[..., Any], out: str = "") -> Step:
    """A step that writes ``function(*sources)``, all of type `kind`, to the first operand (of type `out`)."""
    target, *sources = given.operands
    return compute(context, function, [(target, out or kind)], zip(sources, [kind] * len(sources), strict=True))


#: Lanes that are chosen as fast as they are computed for.
_FEW = 256
#: Lanes whose float64 intermediates stay in a core's cache, and below the size at which malloc asks the system.
PIECE = 16_384


def in_pieces(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, a long chain of NumPy operations over lanes, on `PIECE` lanes at a time: several times faster."""

    def pieces(*sources: Any) -> Any:
        count = max(np.size(source) for source in sources)
        if count <= PIECE:
            return function(*sources)
        result: Any = None
        for start in range(0, count, PIECE):
            part = slice(start, start + PIECE)
            values = function(*(source[part] if np.size(source) > 1 else source for source in sources))
            if result is None:
                result = np.empty(count, values.dtype)
            result[part] = values
        return result

    return pieces


def compute(
    context: Context,
    function: Callable[..., Any],
    targets: Sequence[tuple[Operand, str]],
    sources: Iterable[tuple[Operand, str]],
) -> Step:
    """A step that writes ``function(*sources)`` to a target, or each of its results to one; each has its own type.

    A source that is the same in all lanes may come as one element. `function` gives a source, or an array of its own.
    """
    writes = [context.write(target, kind, adopts=len(targets) == 1) for target, kind in targets]
    sources = list(sources)
    reads = [context.read(source, type_, compact=True) for source, type_ in sources]
    write = writes[0]

    def step(frame: Frame, index: Index, machine: Machine) -> None:
        where = chosen = index
        if index is not None and index.size > _FEW:
            # To choose lanes costs more than to compute for some too many; of those that have exited nothing is seen.
            if index.size == machine.alive:
                where = chosen = None
            elif 4 * index.size > machine.lanes:
                where, chosen = machine.mask(index), None
        results = function(*[read(frame, chosen, machine) for read in reads])
        if len(writes) == 1:
            write(frame, where, results)
            return
        for to, values in zip(writes, results, strict=True):
            to(frame, where, values)

    if CARRY not in [operand for operand, _ in (*targets, *sources)]:
        context.elementwise.add(step)
    return step
