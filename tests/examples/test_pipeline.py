"""``video_pipeline.py``, ``image_pipeline.py`` and ``out_of_core.py``: programs for users run, and are right."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cudakit as ck
from cudakit.emulator import EmulatedStream

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_clip_becomes_pictures(stream: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image", reason="the examples extra is not installed")
    pytest.importorskip("matplotlib", reason="the examples extra is not installed")
    emulated = isinstance(stream, EmulatedStream)
    count, size = (4, 40) if emulated else (60, 256)
    given = ["--frames", str(count), "--size", str(size), "--out", str(tmp_path / "video")]
    video = runpy.run_path(str(EXAMPLES / "video_pipeline.py"))
    frames = video["main"]([*given, *(["--emulator"] if emulated else [])])
    assert [frame.number for frame in frames] == list(range(count))
    assert "bit for bit" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "video").iterdir())
    assert names == [f"{number:04d}.png" for number in range(count)]
    for number in (0, count - 1):
        pixels = np.asarray(image.open(tmp_path / "video" / names[number]))
        np.testing.assert_array_equal(pixels[:size], frames[number].image)
        assert pixels.shape == (size + 64, size)
        assert {32, 255} == set(np.unique(pixels[size:]))
    assert not np.array_equal(frames[0].image, frames[1].image)
    photo = video["read_photo"](None)
    with pytest.raises(AssertionError, match="the edges are not NumPy's"):
        video["check"](photo[:size, :size][::-1], frames[0])


def test_batches_of_images_become_thumbnails(stream: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the examples extra is not installed")
    emulated = isinstance(stream, EmulatedStream)
    program = runpy.run_path(str(EXAMPLES / "image_pipeline.py"))
    found = program["main"](
        ["--batches", "3", "--size", "36" if emulated else "512", *(["--emulator"] if emulated else [])]
    )
    assert [each.shape for each in found] == [(2, 18, 18)] * 3 if emulated else [(16, 256, 256)] * 3
    assert "bit for bit" in capsys.readouterr().out
    photo = program["read_photo"](None)
    first = next(program["batches"](photo, 1, len(found[0]), 2 * found[0].shape[1]))
    with pytest.raises(AssertionError, match="the thumbnails are not NumPy's"):
        program["check"](first[:, ::-1], found[0])


@pytest.mark.slow
def test_a_file_larger_than_the_memory_allowed(stream: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    emulated = isinstance(stream, EmulatedStream)
    path = tmp_path / "values.npy"
    program = runpy.run_path(str(EXAMPLES / "out_of_core.py"))
    gc.collect()
    ck.memory.trim()
    sizes = ["--mib", "0.0625", "--allowed-mib", "0.03125"]
    if not emulated:  # the limit is of all that the process holds
        import cupy

        held = cupy.get_default_memory_pool().used_bytes() >> 20
        sizes = ["--mib", "512", "--allowed-mib", str(64 + held)]
    found = program["main"]([*sizes, "--file", str(path), *(["--emulator"] if emulated else [])])
    assert found.mean == pytest.approx(1.5, abs=0.05)
    assert found.variance == pytest.approx(1 + 1.5**2, abs=0.1)
    assert "checked against NumPy" in capsys.readouterr().out
    program["check"](path, found)
    for wrong in ({"mean": found.mean + 1e-4}, {"histogram": np.roll(found.histogram, 1)}, {"count": 3}):
        with pytest.raises(AssertionError):
            program["check"](path, found._replace(**wrong))
