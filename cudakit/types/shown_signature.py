"""The signature of callables for `inspect.signature` and ``help``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any


class ShownSignature:
    """The ``__signature__`` of a class's instances; the class itself shows the signature of its constructor.

    Parameters
    ----------
    of : callable
        Function that returns the parameters of an instance.
    """

    def __init__(self, of: Callable[[Any], Iterable[Parameter]]) -> None:
        self._of = of

    def __get__(self, instance: Any, owner: type | None = None) -> Signature:
        if instance is None:
            raise AttributeError("__signature__")
        return Signature(apart(self._of(instance)))


def apart(parameters: Iterable[Parameter]) -> list[Parameter]:
    """Return the parameters, in order, with different names: ``_`` is appended to a name that is taken.

    Parameters that can be passed by keyword keep their names if possible.
    """
    originals = list(parameters)
    by_name: dict[str, Parameter] = {}
    for parameter in sorted(originals, key=lambda p: p.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)):
        name = parameter.name
        while name in by_name:
            name += "_"
        by_name[name] = parameter
    names = {id(parameter): name for name, parameter in by_name.items()}
    return [parameter.replace(name=names[id(parameter)]) for parameter in originals]


def keywords(options: dict[str, Any]) -> Iterable[Parameter]:
    """Return keyword-only parameters with their defaults."""
    return (Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in options.items())
