"""The command ``cudakit demo``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cudakit.cli.parsers import command


def add(commands: Any) -> None:
    """Add the command."""
    demo = command(
        commands,
        "demo",
        _demo,
        "run three kernels on a photograph: gray, blur, histogram",
        "",
        "photo.jpg --output blur.png",
    )
    demo.add_argument("photo", nargs="?", type=Path, metavar="PHOTO", help="image file; default: a portrait")
    demo.add_argument("--arch", help="arch to compile the kernels for too, such as sm_90")
    demo.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="folder of the picture, or its file, as in blur.png; default: cudakit-demo.png in the current folder",
    )


def _demo(options: argparse.Namespace) -> int:
    from cudakit.demo import main as run_demo

    return run_demo(options.photo, options.arch, options.output)
