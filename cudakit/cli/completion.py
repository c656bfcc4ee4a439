"""The command ``cudakit completion``: scripts that complete commands in a shell."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, Final

from cudakit.cli.parsers import Parser, command
from cudakit.errors import CudakitError

_SHELLS: Final = ("bash", "zsh", "fish")


def add(commands: Any) -> None:
    """Add the command."""
    text = "write a script that completes commands, options and files in a shell"
    completion = command(
        commands, "completion", _completion, text, "bash > ~/.local/share/bash-completion/completions/cudakit"
    )
    completion.add_argument("shell", choices=_SHELLS, metavar="SHELL", help=" or ".join(_SHELLS))


def _completion(options: argparse.Namespace) -> int:
    try:
        import shtab
    except ImportError as error:
        raise CudakitError("cudakit completion: shtab makes the scripts: pip install shtab") from error
    whole: Parser = options.root
    for action in whole.actions():
        if action.metavar == "FOLDER":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.type is Path or action.metavar in ("FILE", "FILE[:LINE]"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(whole, options.shell)
    options.result = {"script": script}
    if not options.json:
        print(script)
    return 0
