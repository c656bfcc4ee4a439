"""The command ``cudakit bundle``: compiled kernels in one file, for machines without a compiler."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cudakit.cli.parsers import command
from cudakit.types.shown import byte_size, counted


def add(commands: Any) -> None:
    """Add the command and its actions."""
    bundle = commands.add_parser("bundle", help="compile kernels into one file, for machines without a compiler")
    actions = bundle.add_commands("actions", "ACTION")

    build = command(actions, "build", _build, "compile the kernels that a SPEC lists into one file")
    build.epilog = f"example: {build.prog} kernels.toml -o kernels.ckb"
    build.add_argument("spec", type=Path, metavar="SPEC", help="TOML or Python file that lists kernels and archs")
    build.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write; default: SPEC's name with .ckb, beside it"
    )


def _build(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no compiler.
    from cudakit.bundles.build import build

    output = options.output or options.spec.with_suffix(".ckb")
    count = build(options.spec, output)
    print(f"Wrote {counted(count, 'kernel')} to {output}, {byte_size(output.stat().st_size)}.")
    return 0
