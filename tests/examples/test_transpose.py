"""``examples/optimise/transpose``: the program that a student reads runs, and its three kernels transpose."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.emulator import EmulatedStream

PROGRAM = Path(__file__).parents[2] / "examples" / "optimise" / "transpose" / "transpose.py"


def test_the_program_runs(stream: Any, capsys: pytest.CaptureFixture[str]) -> None:
    emulated = isinstance(stream, EmulatedStream)
    main = runpy.run_path(str(PROGRAM))["main"]
    results = main(["--side", "128", *(["--emulator"] if emulated else [])])
    assert results == {"naive": True, "coalesced": True, "fast": True}
    shown = capsys.readouterr().out
    assert ("GB/s\n" in shown) != emulated
    assert ("time: needs a GPU" in shown) == emulated
    assert [line.strip() for line in shown.splitlines() if "are enough;" in line] == [
        "4 sectors a load, 32 a store, 4 are enough; 0 bank conflicts",
        "4 sectors a load, 4 a store, 4 are enough; 15,872 bank conflicts",
        "16 sectors a load, 16 a store, 16 are enough; 0 bank conflicts",
    ]


def test_the_program_says_which_sides_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runpy.run_path(str(PROGRAM))["main"](["--side", "100"])
    assert "multiple of 64" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(64, 64), (64, 192), (192, 128)], ids=str)
def test_each_step_transposes(stream: Any, xp: Any, shape: tuple[int, int]) -> None:
    program = runpy.run_path(str(PROGRAM))
    x = np.random.default_rng(0).random(shape, np.float32)
    for name, config in program["configurations"](*shape).items():
        out = xp.zeros(shape[::-1], np.float32)
        program["launcher"](ck.Kernel.from_file(program["SOURCE"], name), stream, config, xp.asarray(x), out)()
        assert (to_host(out) == x.T).all()
