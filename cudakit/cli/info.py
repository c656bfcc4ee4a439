"""The command ``cudakit info``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from cudakit.cli.parsers import command


def add(commands: Any) -> None:
    """Add the command."""
    text = "show versions, GPU or emulator, compiler, extras, cache, and what is missing"
    info = command(commands, "info", _info, text)
    info.add_argument("--json", action="store_true", help="write JSON: the sections of ck.show_config")


def _info(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no compiler.
    from cudakit import installation

    config = installation.show_config("dicts")
    print(json.dumps(config, indent=2) if options.json else installation.as_text(config))
    return 1 if config["missing"] else 0
