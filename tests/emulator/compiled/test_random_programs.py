"""Random programs leave the same bytes, and end with the same error, on both machines."""

from __future__ import annotations

import re
import warnings
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support.random_programs import IN, OUT, Program

import cudakit as ck
from cudakit import emulator
from cudakit.emulator.compiled import machine as compiled_machine

pytest.importorskip("llvmlite", reason="the compiled machine needs llvmlite: pip install 'cudakit[cpu]'")
pytestmark = pytest.mark.emulator

HEAD = "__global__ void f(const unsigned* in, unsigned* out, unsigned* sums, unsigned number);"


def words() -> np.ndarray:
    """Words that are numbers of many sizes, of whole numbers and of floats, and special ones."""
    drawn = np.random.default_rng(1)
    found = drawn.integers(0, 1 << 32, IN // 4, dtype=np.uint32)
    floats = drawn.normal(size=len(found[::3])) * 10.0 ** drawn.integers(-3, 6, len(found[::3]))
    found[::3] = floats.astype(np.float32).view(np.uint32)
    found[1::6] = drawn.integers(0, 64, len(found[1::6]))
    singles = [0, 0x80000000, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 0x80000001, 0x00800000]
    found[5::40] = np.resize(np.array(singles, np.uint32), len(found[5::40]))
    doubles = [0x7FF00000, 0xFFF80000, 0x3FF00000, 0x41F00000]
    found[6::50] = np.resize(np.array(doubles, np.uint32), len(found[6::50]))
    return found


WORDS = words()


def ran(program: Program, number: int, machine: str) -> tuple[bytes, bytes, str]:
    """What a program leaves in memory, or the error that it ends with, without the addresses."""
    kernel = ck.Kernel.from_ptx(program.text, signature=HEAD)
    sums, out = np.zeros(256, np.uint32), np.zeros(program.block * program.blocks * OUT // 4, np.uint32)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", ck.EmulatorWarning)
            kernel(
                emulator.stream(machine=machine),  # type: ignore[arg-type]
                ck.config(program.blocks, program.block),
                WORDS.copy(),
                out,
                sums,
                np.uint32(number),
            )
    except ck.EmulationError as error:
        return b"", b"", re.sub("0x[0-9a-f]+|byte -?[0-9]+", "…", str(error))
    return out.tobytes(), sums.tobytes(), ""


def check(program: Program, number: int) -> None:
    assert ran(program, number, "compiled") == ran(program, number, "numpy"), program.text


@pytest.mark.slow
@settings(
    max_examples=40,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.randoms(use_true_random=False), st.sampled_from((4, 10, 20, 30)), st.integers(0, 4))
def test_random_programs(draw: Random, size: int, number: int) -> None:
    check(Program(draw, size, fault=draw.random() < 0.15), number)


@pytest.mark.parametrize("seed", range(6))
def test_long_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_machine, "_SHORT", 0 if seed % 2 else 1 << 30)
    check(Program(Random(seed), size=80), seed)
