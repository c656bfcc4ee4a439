"""Folders of a cache: made for the user alone, and refused where others could have written there."""

from __future__ import annotations

import os
import stat


def make_folder(folder: str) -> None:
    """Make a folder of a cache, and the one above it, for the user alone."""
    for path in (os.path.dirname(folder), folder):
        os.makedirs(path, mode=0o700, exist_ok=True)


def not_ours(path: str, found: os.stat_result, writable: int = stat.S_IWGRP | stat.S_IWOTH) -> str | None:
    """Why others than the user, and the superuser, could have written a file or folder; None if they could not."""
    if not hasattr(os, "geteuid"):
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user (number {found.st_uid})"
    if found.st_mode & writable:
        return f"{path} can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None
