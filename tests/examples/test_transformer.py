"""``examples/transformer_block.py``: the program that a user reads runs, both ways, and is right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from support.tiles import needs_tiles

from cudakit.emulator import EmulatedStream

PROGRAM = Path(__file__).parents[2] / "examples" / "transformer_block.py"


@pytest.mark.parametrize("by", ["tiles", "threads"])
def test_the_block_is_right(stream: Any, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    emulated = isinstance(stream, EmulatedStream)
    if by == "tiles":
        needs_tiles(on_gpu=not emulated)
    sizes = ["--tokens", "33", "--width", "48", "--heads", "3"] if emulated else []
    off = runpy.run_path(str(PROGRAM))["main"]([*sizes, "--by", by, *(["--emulator"] if emulated else [])])
    # Numbers of some units, rounded to 11 bits eight times.
    assert 0 < off < 0.03
    said = capsys.readouterr().out
    assert f"by {'tile kernels' if by == 'tiles' else 'threads: they are asked for'}" in said
    assert (" ms\n" in said) != emulated


def test_heads_must_fit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runpy.run_path(str(PROGRAM))["main"](["--width", "40", "--heads", "3", "--emulator"])
    assert "is not 3 heads of a multiple of 8" in capsys.readouterr().err
