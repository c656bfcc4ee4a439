"""What several programs need: the median time of a launch, and where a picture goes."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cudakit as ck


def median_ms(stream: Any, launch: Callable[[], object], repeats: int = 7) -> float:
    """Median time of a launch on the stream in ms, after one that warms up; the emulator's steps count as µs."""
    launch()
    times = []
    for _ in range(repeats):
        with ck.Timer(stream) as timer:
            launch()
        times.append(timer.elapsed_ms)
    return statistics.median(times)


def picture_path(name: str) -> Path:
    """Where the program's picture or file goes: ``--picture PATH``, or `name` in one folder for all programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, default=Path(tempfile.gettempdir()) / "cudakit-tutorial" / name)
    path: Path = parser.parse_args().picture
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
