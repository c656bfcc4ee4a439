"""The command ``cudakit tune``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from cudakit.cli import supervised
from cudakit.cli.parsers import command


def add(commands: Any) -> None:
    """Add the command."""
    text = "find the fastest variant of a kernel, and keep it"
    tune = command(commands, "tune", _tune, text, "app.py:scale --sizes 1000,1000000", "ops sort sum", "--list")
    supervised.add(tune, names_kernels=False)  # a watched launch takes longer
    tune.add_argument(
        "kernel",
        nargs="?",
        metavar="FILE:NAME",
        help="Python file, and the name of its kernel.tuned(…) to tune; or the word ops, for this card's ck.ops",
    )
    tune.add_argument("ops", nargs="*", metavar="OP", help="after the word ops: ops to tune; default: all")
    tune.add_argument("--dtype", default="", metavar="LIST", help="of ops: dtypes to tune for, such as float32,float16")
    tune.add_argument(
        "--sizes", default="", metavar="LIST", help="sizes to tune for, such as 1000,1000000 or 64x64; default: its own"
    )
    tune.add_argument("--budget", type=int, metavar="N", help="most candidates; default: the whole space")
    tune.add_argument("--strategy", metavar="NAME", help="order in which candidates are tried")
    tune.add_argument(
        "--objective",
        metavar="NAME,…",
        help="what is least: time or energy; on the emulator a counter; the first leads the search",
    )
    tune.add_argument("--seed", type=int, metavar="N", help="seed of the strategy; default: 0")
    tune.add_argument(
        "--candidates",
        type=Path,
        metavar="FILE",
        help="write each candidate as it is measured, a line of JSON each; /dev/stdout shows them at once",
    )
    tune.add_argument("--list", action="store_true", help="list the kept results")
    tune.add_argument("--export", dest="export_to", type=Path, metavar="FILE", help="write the kept results to a file")
    tune.add_argument("--import", dest="import_from", type=Path, metavar="FILE", help="merge results of a file")


def _tune(options: argparse.Namespace) -> int:
    if options.kernel == "ops":
        from cudakit.ops.tuning_command import run as run_ops

        return run_ops(options)
    from cudakit.tuning.command import run

    return run(options)
