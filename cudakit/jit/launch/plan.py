"""A launch with everything decided."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from cudakit.errors import ArgumentError
from cudakit.jit.launch.tell import tell_launch
from cudakit.streams.witnesses import Call, add_shortcut
from cudakit.types.shown import Table, html, words


class Recipe(NamedTuple):
    """What makes a plan of a stream and arguments; it can be pickled, where the plan stays in its process.

    Attributes
    ----------
    kernel : Kernel
    config : Config, Cover or cuda.core.LaunchConfig
    """

    kernel: Any
    config: Any

    def plan(self, stream: Any, *arguments: Any) -> Plan:
        """The plan for these."""
        made: Plan = self.kernel.plan(stream, self.config, *arguments)
        return made


class Plan(functools.partial[None]):
    """A launch with everything decided: stream, configuration and arguments. Calling it launches.

    The arguments are kept alive by the plan, which is to be kept until its work is done. They are checked and ordered
    once, when it is made: work that touches them on another stream afterwards is the caller's to order. An empty grid
    makes a plan that does nothing.
    """

    #: The specialization's; none of an empty grid.
    name: str = ""
    arguments: tuple[Any, ...] = ()
    #: What makes the same plan for other arguments, in another process too.
    recipe: Recipe | None = None
    #: What calling it does while nobody watches, kept so that a call under way in another thread stays whole.
    _unseen: tuple[Callable[..., None], Call, tuple[Any, ...]]

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of, as partials are from Python 3.14 on

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            f"the plan of {self.name or 'an empty grid'} cannot be pickled: its stream, arrays and loaded code are of "
            "this process. Pickle plan.recipe, and make a plan where it comes to: recipe.plan(stream, *arguments)"
        )

    def __repr__(self) -> str:
        what = f"{self.name}; arguments: {len(self.arguments)}" if self.name else "of an empty grid"
        return f"<cudakit.Plan {what}>"

    def _repr_html_(self) -> str:
        """What it launches and with what, in a notebook."""
        rows = [(number, words(argument)) for number, argument in enumerate(self.arguments)]
        return html(repr(self), Table(("", "argument"), rows, (0,)))

    def watch(self, watched: bool) -> None:
        """Tell the witnesses of each launch while there are any; see `cudakit.streams.witnesses`.

        A partial is given another function as unpickling gives it one, all at once. An object whose ``__call__`` looks
        its function up takes 1.34 times as long around one that does nothing (92 ns and 69, CPython 3.11).
        """
        run, call, given = self._unseen
        route = (tell_launch, (run, given[0], call, *given)) if watched else (run, given)
        self.__setstate__((*route, {}, self.__dict__))  # type: ignore[attr-defined]


def plan_of(run: Callable[..., None], call: Call, *given: Any) -> Plan:
    """The plan of ``run(stream, *given)``, of which the witnesses are told while there are any."""
    made = Plan(run, *given)
    made.arguments, made._unseen = call.arguments, (run, call, given)
    add_shortcut(made)
    return made


def nothing() -> None:
    """What the plan of an empty grid does."""
