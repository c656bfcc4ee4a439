"""What expressions of two stand-ins are traced as.

A line of `FILE` has dtypes of x and y (or classes of Python's numbers), an expression, and what it is traced as: lines
of C++, the result's name and dtype, reductions, views. ``PYTHONPATH=tests python -m support.traces`` traces them anew.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.traced import Trace, Traced

FILE = Path(__file__).parents[1] / "generate" / "traces.txt"


def _stands(trace: Trace, kinds: tuple[str, ...]) -> list[Traced]:
    named: dict[str, Any] = {"int": int, "float": float, "bfloat16": np.dtype(ml_dtypes.bfloat16)}
    stands = []
    for k, (kind, name) in enumerate(zip(kinds, "xy", strict=True)):
        of = named.get(kind) or np.dtype(kind)
        stands.append(Traced(trace, of, f"x{k}", argument=name, is_number=isinstance(of, type)))
        if not isinstance(of, type):
            trace.shapes[f"x{k}"] = (2, 3)
    return stands


def _parts(trace: Trace, value: Any) -> list[str]:
    """What a value comes of, its lines, and its dtype."""
    if not isinstance(value, Traced):
        return [repr(value)]
    kind = value.operand_type if isinstance(value.operand_type, np.dtype) else value.operand_type.__name__
    sources = [fold.x for fold in trace.folds.values()] + [view.x for view in trace.views.values()]
    return [*trace.lines(value.name, *sources), f"{value.name}: {kind}"]


def _context(trace: Trace) -> list[str]:
    sample = np.arange(6).reshape(2, 3)
    found = [
        f"{name} = {fold.fold_name} of {fold.x}, {fold.of}, axis {fold.axis}{', kept' * fold.keepdims}: {fold.dtype}"
        for name, fold in trace.folds.items()
    ]
    for name, view in trace.views.items():
        try:
            seen = view.look(sample).tolist()
        except (IndexError, ValueError) as error:
            seen = type(error).__name__
        found.append(f"{name} of {view.x}, {view.of}{', dense' * view.is_dense}: {seen}")
    found += [f"{stand.argument} becomes {stand.name}" for stand in trace.written]
    found += [f"{name} fits {dtype}" for name, dtype in trace.bounds]
    return found + ["shapes asked"] * trace.asks_shapes


def traced(kinds: str, text: str) -> str:
    """What an expression, or a statement, is traced as; the refusal where it is not."""
    trace = Trace("f", {})
    stands = _stands(trace, tuple(kinds.split()))
    names = {"np": np, "ml_dtypes": ml_dtypes, "x": stands[0], "y": stands[1]}
    try:
        try:
            parts = _parts(trace, eval(text, names))
        except SyntaxError:
            exec(text, names)
            parts = [part for stand in trace.written for part in _parts(trace, stand)]
        parts += _context(trace)
    except (TemplateError, ArgumentError) as error:
        # From the first type on it is NumPy that speaks.
        parts = [re.sub(r"^f: .*?:\d+: ", "refused: ", re.sub(r"( is of \w+): .*", r"\1", str(error)))]
    except AttributeError as error:
        parts = [type(error).__name__]
    return " | ".join(parts).replace("cudakit::ufunc::", "")


def written() -> list[tuple[str, str, str]]:
    """Dtypes, expression, and what it is traced as, of each line of `FILE`."""
    found = [re.fullmatch(r"(.*?): (.*?) -> (.*)", line) for line in FILE.read_text().splitlines()]
    return [(match[1], match[2], match[3]) for match in found if match]


if __name__ == "__main__":
    FILE.write_text("".join(f"{kinds}: {text} -> {traced(kinds, text)}\n" for kinds, text, _ in written()))
