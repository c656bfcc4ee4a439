"""What a proof takes for granted of a kernel's launches, as far as it applies to the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cudakit.proof.execution import Access, Barrier, Execution
from cudakit.proof.problem import Array, Problem, element_bytes


def assumptions(execution: Execution, problem: Problem) -> tuple[str, ...]:
    """Sentences about what is not looked at, after an execution."""
    return tuple(_assumptions(execution, problem))


def _assumptions(execution: Execution, problem: Problem) -> Iterator[str]:
    accesses = [event for event in execution.events if isinstance(event, Access)]
    arrays = _global(accesses, problem)
    written = _global((each for each in accesses if each.is_write), problem)
    arguments = [array.name for base, array in problem.arrays.items() if base in problem.pointers.values()]
    reached = [name for name in arguments if name in arrays]
    if len(reached) > 1 and not written.keys().isdisjoint(reached):
        yield f"{_listed(reached)} do not overlap"
    for name in reached:
        parameter = next(each for each in problem.parameters if each.name == name)
        own = parameter.alignment if parameter.alignment > 1 else element_bytes(parameter) // parameter.count
        most = max(access.size for access in arrays[name])
        if most > own:
            yield f"{name} begins at a multiple of {most} bytes"
    if problem.axes_of_1:
        axes = _listed(f"gridDim.{axis} == 1" for axis in problem.axes_of_1)
        yield f"{axes}: the kernel never reads {'these axes' if len(problem.axes_of_1) > 1 else 'this axis'}"
    if arrays:
        uses = f", or reads {_listed(written, 'or')}," if written else ""
        yield f"nothing else writes {_listed(arrays, 'or')}{uses} while the kernel runs"
    has_barrier = any(isinstance(event, Barrier) for event in execution.events)
    if has_barrier and (lines := sorted({loop.line for loop in execution.passed if loop.line})):
        yield f"the loop{'s' * (len(lines) > 1)} of line {_listed(map(str, lines))} end{'s' * (len(lines) == 1)}"


def _global(accesses: Iterable[Access], problem: Problem) -> dict[str, list[Access]]:
    """Accesses of global memory, by the array's name."""
    result: dict[str, list[Access]] = {}
    for access in accesses:
        for base in access.address.bases().symbols:
            array: Array = problem.arrays[base]
            if array.space == "global":
                result.setdefault(array.name, []).append(access)
    return result


def _listed(names: Iterable[str], word: str = "and") -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last
