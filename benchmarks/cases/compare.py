"""What changed since another checkout: every case of `kernels` and `generate`, old and new in turns, on a GPU.

``run.py compare --baseline FOLDER``: FOLDER is a checkout of cudakit, such as ``git worktree add`` makes. The cases are
this checkout's, and use cudakit's public names only.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from cases import turns

TITLE = "This version beside a former one"
GROUPS = (
    "kernels.elementwise", "kernels.reduce", "kernels.scan", "kernels.move", "kernels.count", "kernels.rows",
    "generate.elementwise", "generate.folds",
)  # fmt: skip


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baseline", type=Path, required=True, help="the other checkout")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by commas: %(default)s")
    parser.add_argument("--quick", action="store_true", help="float32 only")


def lines(options: argparse.Namespace) -> Iterator[str]:
    chosen = options.only.split(",")
    groups = [group for group in GROUPS if group in chosen or group.partition(".")[0] in chosen]
    return turns.compared(groups, options.baseline, options.quick)
