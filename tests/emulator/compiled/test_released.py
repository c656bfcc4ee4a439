"""Machine code goes when the program that it was made of is let go of, and comes again."""

from __future__ import annotations

import gc
from itertools import count

import numpy as np
import pytest

import cudakit as ck
from cudakit import emulator
from cudakit.emulator import ready
from cudakit.emulator.machine import module

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")

from cudakit.emulator.compiled.native import Compiled
from cudakit.emulator.ptx.program import Instruction

NUMBERS = count()
ADDING = "template <int N> __global__ void adding(float* x) { atomicAdd(x, float(N)); }"


@pytest.fixture
def adding(monkeypatch: pytest.MonkeyPatch) -> ck.Kernel:
    """A kernel that no other test has used; programs are let go of but for the last."""
    monkeypatch.setattr(ready, "PROGRAMS", module.Programs(0))
    return ck.Kernel(f"// {next(NUMBERS)}, to be let go of\n{ADDING}")


def held() -> int:
    """What there is of machine code, and of what it was made of."""
    return sum(type(each) in (Compiled, Instruction) for each in gc.get_objects())


def test_code_goes_at_once(adding: ck.Kernel) -> None:
    """Without a garbage collection; it comes again where it is asked for."""

    def run(number: int) -> None:
        x = np.zeros(1, np.float32)
        adding[number](emulator.stream(machine="compiled"), ck.config(1, 32), x)
        assert x[0] == 32 * number

    run(1)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for number in (*range(2, 8), 1):
            run(number)
        assert held() <= before
    finally:
        gc.enable()


def test_what_was_code_is_code_again(adding: ck.Kernel) -> None:
    """A sum of floats goes on in the order that it has begun with, however little there is to do."""
    stream, x = emulator.stream(machine="auto"), np.zeros(1, np.float32)
    for number, blocks in ((1, 1 << 14), (2, 1), (1, 1)):
        adding[number](stream, ck.config(blocks, 256), x)
        assert adding[number].attributes().machine == ("numpy" if number == 2 else "compiled")
