"""What the compiled machine does not take."""

from __future__ import annotations


class Refusal(Exception):
    """Why a kernel is not compiled, in words that end a sentence: "… runs on the NumPy machine: it has {this}"."""
