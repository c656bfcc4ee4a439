"""The tutorial's programs turn red when one thing in them is broken: a sample of all mutants, on the emulator.

All of them: ``PYTHONPATH=tests python -m support.mutant_runs``.
"""

from __future__ import annotations

import random

import pytest
from support import mutant_runs
from support.mutants import is_like, mutants

pytestmark = pytest.mark.emulator

TEXT = '''
import numpy as np
scale = ck.Kernel("""
template <int BLOCK>
__global__ void scale(float* x, int n) {
    int i = threadIdx.x;
    __syncthreads();
    if (i < n) x[i] *= -2.5f;
}
""")
total = ck.reduction("T x", "T y", map="x * x", reduce="a + b", name="total")
size = 8 if ck.has_gpu() else 4
scale(stream, config, x, size)
stream.sync()
assert x[0] == 3
print(f"{1 + 1}")
'''


def broken(text: str) -> list[tuple[str, str]]:
    return [(mutant.kind, mutant.line) for mutant in mutants(text)]


def test_one_thing_is_broken_at_a_time() -> None:
    assert sorted(broken(TEXT)) == sorted(
        [
            ("constant", "size = 8 if ck.has_gpu() else 5"),
            ("statement", "- scale(stream, config, x, size)"),
            ("wait", "- stream.sync()"),
            ("wait", "- __syncthreads();"),
            ("condition", "if (true) x[i] *= -2.5f;"),
            ("comparison", "if (i <= n) x[i] *= -2.5f;"),
            ("operator", "if (i < n) x[i] += -2.5f;"),
            ("constant", "if (i < n) x[i] *= -3.5f;"),
            ("statement", "if (i < n) ;"),
            ("operator", "x + x"),
            ("operator", "a - b"),
        ]
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("y = (a + b) * c", "y = (a - b) * c"),
        ("y = a < b <= c", "y = a < b < c"),
        ("y = not x", "y = x"),
        ("y = a and b", "y = a or b"),
        ("y -= 1", "- y -= 1"),
        ("x[0] = 1", "- x[0] = 1"),
        ("half(), whole()", "half(), None"),
        ("f(True)", "f(False)"),
    ],
)
def test_python_is_broken(text: str, line: str) -> None:
    lines = [mutant.line for mutant in mutants(text)]
    assert line in lines


def test_each_mutant_is_python_that_differs() -> None:
    for program in mutant_runs.programs():
        texts = [mutant.text for mutant in mutant_runs.mutants_of(program)]
        assert (mutant_runs.FOLDER / f"{program}.py").read_text() not in texts
        for text in texts[::9]:
            compile(text, program, "exec")


def test_equivalents_are_mutants_with_a_reason() -> None:
    for pattern in mutant_runs.listed():
        programs = mutant_runs.programs() if pattern[0] == "*" else [pattern[0]]
        assert any(
            is_like(pattern, program, mutant.line) for program in programs for mutant in mutant_runs.mutants_of(program)
        ), pattern
        assert pattern[2]


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, pytest.param(120, marks=pytest.mark.exhaustive)])
def test_mutants_die(count: int) -> None:
    every = [
        mutant_runs.Job(program, place)
        for program in mutant_runs.programs()
        for place in range(len(mutant_runs.mutants_of(program)))
    ]
    chosen = random.Random(120).sample(every, 120)[:count]
    # What is too slow, or broken, as it is, would kill each mutant.
    plain = {mutant_runs.Job(program) for program in ["mandelbrot", "n_body", *(job.program for job in chosen)]}
    found = mutant_runs.outcomes([*chosen, *plain])
    assert {job.program: found[job] for job in plain if found[job] not in ("survives", "lacks")} == {}
    assert len([job for job in plain if found[job] == "survives"]) >= len(plain) // 2
    assert mutant_runs.unlisted(found) == []
