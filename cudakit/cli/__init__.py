"""The command ``cudakit``: one module a subject. `entry` reads the command line, `parsers` has what commands share."""

from cudakit.cli.entry import main, parser

__all__ = ["main", "parser"]
