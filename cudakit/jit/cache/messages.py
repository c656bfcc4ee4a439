"""What the cache tells the standard library's ``logging``, under the name ``cudakit``; nothing unless asked."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from cudakit.jit.cache.keys import Keyed


def tell(level: Literal["DEBUG", "INFO"], keyed: Keyed, message: str, *values: object) -> None:
    """Log that something was done about the code of a key: its label, then `message` with `values` in it.

    Whoever listens has loaded ``logging``; nobody else should wait for it.
    """
    if "logging" not in sys.modules:
        return
    import logging

    logger, number = logging.getLogger("cudakit"), getattr(logging, level)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    if logger.isEnabledFor(number):
        logger.log(number, f"%s: {message}", keyed.label, *values)
