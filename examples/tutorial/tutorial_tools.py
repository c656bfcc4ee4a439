"""What several programs need: where a picture or another file goes."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path


def picture_path(name: str) -> Path:
    """Where the program's picture or file goes: ``--picture PATH``, or `name` in one folder for all programs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--picture", type=Path, default=Path(tempfile.gettempdir()) / "cudakit-tutorial" / name)
    path: Path = parser.parse_args().picture
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # what lies there afterwards is new
    return path
