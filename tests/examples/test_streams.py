"""``examples/heat.py`` and ``examples/torch_interop.py``: the programs that a user reads run, and are right."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cudakit.emulator import EmulatedStream

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_heat_is_captured_and_animated(stream: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="the examples extra is not installed")
    emulated = isinstance(stream, EmulatedStream)
    size, frames, steps = (16, 4, 2) if emulated else (200, 10, 20)
    given = ["--size", str(size), "--frames", str(frames), "--steps", str(steps), "--out", str(tmp_path / "heat.gif")]
    error = runpy.run_path(str(EXAMPLES / "heat.py"))["main"]([*given, *(["--emulator"] if emulated else [])])
    assert 0 < error < 1e-4
    with image.open(tmp_path / "heat.gif") as picture:
        assert picture.format == "GIF"
        assert picture.n_frames == frames
        shown = []
        for frame in range(frames):
            picture.seek(frame)
            shown.append(np.asarray(picture.convert("RGB")).astype(int))
    assert any(np.abs(one - shown[0]).max() > 20 for one in shown[1:])
    said = capsys.readouterr().out
    assert f"{(frames - 1) * steps} steps: within" in said
    assert ("a step in a graph of 100" in said) != emulated


def test_heat_keeps_the_rim_and_loses_none_inside(stream: Any) -> None:
    heat = runpy.run_path(str(EXAMPLES / "heat.py"))
    start = heat["hot_spots"](16)
    start[:, 0] = 0
    (end,) = heat["simulate"](stream, start, 1, 4)
    assert (end[0] == start[0]).all()
    assert (end[:, -1] == 0).all()
    # As long as the heat has not come to the rim, there is as much of it as there was.
    lonely = np.zeros((16, 16), np.float32)
    lonely[8, 8] = 1
    (spread,) = heat["simulate"](stream, lonely, 1, 4)
    assert spread.sum() == pytest.approx(1, abs=1e-6)
    # A step goes to the four neighbours: four go to all cells within four of them.
    assert np.count_nonzero(spread) == 1 + 4 * (1 + 2 + 3 + 4)


def test_an_odd_number_of_steps_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runpy.run_path(str(EXAMPLES / "heat.py"))["main"](["--steps", "3", "--emulator"])
    assert "--steps is even" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # of torch's compiler
def test_torch_tensors_go_through_kernels_and_back(stream: Any) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    found = runpy.run_path(str(EXAMPLES / "torch_interop.py"))["main"]()
    assert sorted(found) == ["compiled", "gradient", "kernel", "op", "stream"]
    assert max(found.values()) < 1e-4


@pytest.mark.emulator
def test_without_torch_or_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert runpy.run_path(str(EXAMPLES / "torch_interop.py"))["main"]() is None
    assert "This example needs" in capsys.readouterr().out
