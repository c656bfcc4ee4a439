"""Folders of a cache, the user's alone."""

from __future__ import annotations

import os


def make_folder(folder: str) -> None:
    """Make a folder of a cache, and the one above it, for the user alone."""
    for path in (os.path.dirname(folder), folder):
        os.makedirs(path, mode=0o700, exist_ok=True)
