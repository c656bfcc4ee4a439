"""The command ``cudakit info``."""

from __future__ import annotations

import argparse
from typing import Any

from cudakit import reports
from cudakit.cli.parsers import command
from cudakit.errors import Details


def add(commands: Any) -> None:
    """Add the command."""
    text = "show versions, GPU or emulator, compiler, extras, cache, and what is missing"
    command(commands, "info", _info, text, "", "--json")


def _info(options: argparse.Namespace) -> int:
    # Imported here: the other commands need no compiler.
    from cudakit import installation

    config = installation.show_config("dicts")
    options.result = config
    if not options.json:
        print(installation.as_text(config))
    for entry in config["missing"]:
        details = Details(expected=entry["what"], advice=entry["command"])
        options.problems.append(reports.problem_of("missing", f"{entry['what']} is missing", details))
    return reports.status_of(options.problems)
