"""Plans: launches whose stream, configuration and arguments are fixed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Self

from cudakit.errors import ArgumentError
from cudakit.jit.launch.report import report_launch
from cudakit.jit.specialise.specialise import BoundParameter
from cudakit.records import NamedTuple
from cudakit.streams.witnesses import Call, add_shortcut
from cudakit.types.shown import Table, html, words


class Recipe(NamedTuple):
    """A kernel and configuration, from which plans are made. A recipe can be pickled; a plan stays in its process.

    Attributes
    ----------
    kernel : Kernel
        Kernel to launch.
    config : Config, Cover or cuda.core.LaunchConfig
        Launch configuration.
    """

    kernel: Any
    config: Any

    def plan(self, stream: Any, *arguments: Any) -> Plan:
        """Make the plan for a stream and arguments."""
        result: Plan = self.kernel.plan(stream, self.config, *arguments)
        return result


class Plan(functools.partial[None]):
    """A launch with fixed stream, configuration and arguments. Calling the plan launches.

    The plan keeps its arguments alive: keep the plan until its work is done. Arguments are checked and ordered once,
    when the plan is made. If work on another stream uses the arguments later, the caller must order it. The plan of an
    empty grid does nothing.
    """

    #: Name expression of the specialization; empty for an empty grid.
    name: str = ""
    arguments: tuple[Any, ...] = ()
    #: Parameters of the specialization, one for each argument.
    parameters: Sequence[BoundParameter] = ()
    #: Makes the same plan for other arguments, also in another process.
    recipe: Recipe | None = None
    #: The function while there are no witnesses, kept so that a call in another thread is never cut short.
    _unwatched: tuple[Callable[..., None], Call, tuple[Any, ...]]

    def __get__(self, instance: object, owner: type | None = None) -> Self:
        return self  # no method of a class that it is an attribute of, as partials are from Python 3.14 on

    def __reduce__(self) -> tuple[Any, ...]:
        raise ArgumentError(
            f"the plan of {self.name or 'an empty grid'} cannot be pickled: its stream, arrays and loaded code are of "
            "this process. Pickle plan.recipe, and make a plan where it comes to: recipe.plan(stream, *arguments)"
        )

    def __repr__(self) -> str:
        contents = f"{self.name}; arguments: {len(self.arguments)}" if self.name else "of an empty grid"
        return f"<cudakit.Plan {contents}>"

    def _repr_html_(self) -> str:
        """Return the kernel and the arguments, for a notebook."""
        rows = [(number, words(argument)) for number, argument in enumerate(self.arguments)]
        return html(repr(self), Table(("", "argument"), rows, (0,)))

    def watch(self, watched: bool) -> None:
        """Report each launch to witnesses while there are any; see `cudakit.streams.witnesses`.

        The plan's function is replaced as unpickling does it, in one step. A ``__call__`` that looks up its function
        would take 1.34 times as long around an empty function (92 ns in place of 69, CPython 3.11).
        """
        run, call, arguments = self._unwatched
        route = (report_launch, (run, arguments[0], call, *arguments)) if watched else (run, arguments)
        self.__setstate__((*route, {}, self.__dict__))  # type: ignore[attr-defined]


def plan_of(run: Callable[..., None], call: Call, *arguments: Any) -> Plan:
    """Make the plan of ``run(*arguments)``, where `call` describes the launch for reports.

    Its launches are reported to witnesses while there are any.
    """
    plan = Plan(run, *arguments)
    plan.arguments, plan.parameters = call.arguments, call.target.parameters
    plan._unwatched = run, call, arguments
    add_shortcut(plan)
    return plan


def nothing() -> None:
    """Do nothing: the function of an empty grid's plan."""
