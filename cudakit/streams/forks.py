"""What a forked process has to do first: a lock that another thread held at the fork would stay locked for ever."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(call: Callable[[], object]) -> None:
    """Have `call` called in each process that is forked from this one, where the system can fork at all."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=call)
