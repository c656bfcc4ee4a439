"""``examples/optimise/reduce``: the program that a student reads runs, and its three sums are the sum."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator import EmulatedStream

PROGRAM = Path(__file__).parents[2] / "examples" / "optimise" / "reduce" / "reduce.py"


@pytest.mark.parametrize("size", [1, 70_001])
def test_the_program_runs(stream: Any, capsys: pytest.CaptureFixture[str], size: int) -> None:
    emulated = isinstance(stream, EmulatedStream)
    main = runpy.run_path(str(PROGRAM))["main"]
    results = main(["--size", str(size), *(["--emulator"] if emulated else [])])
    x = ((np.arange(size, dtype=np.uint32) * np.uint32(2654435761)) >> np.uint32(29)) + 1
    assert list(results) == ["naive", "coalesced", "fast"]
    for found in results.values():
        assert found == pytest.approx(int(x.sum()), rel=1e-5)
    shown = capsys.readouterr().out
    assert ("GB/s\n" in shown) != emulated
    assert ("time: needs a GPU" in shown) == emulated
    assert [line.strip() for line in shown.splitlines() if "are enough;" in line] == [
        "32 sectors a load, 4 are enough; 0 bank conflicts, 2048 atomic operations",
        "4 sectors a load, 4 are enough; 0 bank conflicts, 4 atomic operations",
        "16 sectors a load, 16 are enough; 0 bank conflicts, 4 atomic operations",
    ]


def test_the_fast_sum_is_the_librarys(stream: Any, xp: Any) -> None:
    launches = runpy.run_path(str(PROGRAM))["launches"]
    x = xp.asarray(np.random.default_rng(0).random(40_000, np.float32))
    total = launches(stream, xp, x, 4)["fast"]()
    assert float(total[0]) == pytest.approx(float(ck.ops.sum(x)), rel=1e-6)
