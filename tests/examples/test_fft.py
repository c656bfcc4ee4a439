"""``examples/fft_filter.py``: the program runs, and is right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.places import to_host

import cudakit as ck
from cudakit.emulator import EmulatedStream

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "fft_filter.py")


def test_the_filter_is_numpys_within_a_grey_level(stream: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--height", "60", "--width", "91", "--sigma", "2"]
    emulated = isinstance(stream, EmulatedStream)
    assert runpy.run_path(EXAMPLE)["main"]([*given, *(["--emulator"] if emulated else [])]) <= 1
    assert "60 × 91 pixels, σ = 2: at most" in capsys.readouterr().out


def test_it_takes_away_what_is_fine_and_keeps_what_is_not(stream: Any) -> None:
    names = runpy.run_path(EXAMPLE)
    image = names["picture"](64, 96)
    found = to_host(names["filtered"](stream, ck.to_device(image, stream), 2.5))
    assert found.dtype == np.uint8
    assert names["fine_detail"](found) < names["fine_detail"](image) / 20
    inner = found[16:-16, 24:-24].astype(float)
    y, x = np.mgrid[16:48, 24:72]
    hills = 60 * np.sin(3 * np.pi * y / 64) * np.cos(4 * np.pi * x / 96)
    assert np.corrcoef(inner.reshape(-1), hills.reshape(-1))[0, 1] > 0.98
