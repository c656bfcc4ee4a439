"""How Python processes that compile and link are started: with the parent's import path, and nothing else on it."""

from __future__ import annotations

import os
import sys

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), *[os.pardir] * 3))


def command(script: str) -> list[str]:
    """What runs a script of the package; neither the working directory nor the script's folder come before the path."""
    return [sys.executable, "-P", script]


def environment() -> dict[str, str]:
    """The parent's environment, with its import path, so that an uninstalled checkout works too.

    The working directory, in which anything may lie, is not on it, unless cudakit itself came from there.
    """
    known = [entry for entry in sys.path if os.path.isabs(entry)]
    if _ROOT not in known:
        known.insert(0, _ROOT)
    return {**os.environ, "PYTHONPATH": os.pathsep.join(known)}
