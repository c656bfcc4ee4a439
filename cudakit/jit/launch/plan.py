"""A launch with everything decided."""

from __future__ import annotations

import functools
from typing import Any

from cudakit.jit.launch import launch


class Plan(functools.partial[None]):
    """A launch with everything decided: stream, configuration and arguments. Calling it launches.

    The arguments are kept alive, and checked and ordered once, when the plan is made: work that touches them on
    another stream afterwards is the caller's to order. An empty grid makes a plan that does nothing.
    """

    arguments: tuple[Any, ...]
    #: What calling it does while nobody watches, kept so that a call under way in another thread stays whole.
    _short: tuple[Any, ...]

    def watch(self, watched: bool) -> None:
        """Tell the witnesses of each launch while there are any; see `cudakit.streams.witnesses`."""
        run, call, given = self._short
        route = (launch.tell_launch, (run, given[0], call, *given)) if watched else (run, given)
        self.__setstate__((*route, {}, self.__dict__))  # type: ignore[attr-defined]


def nothing() -> None:
    """What the plan of an empty grid does."""
