"""What callables take, as `inspect.signature` and `help` are told it: worked out when they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from typing import Any


class ShownSignature:
    """The ``__signature__`` of the instances of a class; the class itself has none but that of its constructor.

    Parameters
    ----------
    of : callable
        Gives an instance's parameters.
    """

    def __init__(self, of: Callable[[Any], Iterable[Parameter]]) -> None:
        self._of = of

    def __get__(self, instance: Any, owner: type | None = None) -> Signature:
        if instance is None:
            raise AttributeError("__signature__")
        return Signature(apart(self._of(instance)))


def apart(parameters: Iterable[Parameter]) -> list[Parameter]:
    """The same parameters; of two of one name that which cannot be given by it has ``_`` after it."""
    given = list(parameters)
    found: dict[str, Parameter] = {}
    for parameter in sorted(given, key=lambda p: p.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)):
        name = parameter.name
        while name in found:
            name += "_"
        found[name] = parameter
    names = {id(parameter): name for name, parameter in found.items()}
    return [parameter.replace(name=names[id(parameter)]) for parameter in given]


def keywords(options: dict[str, Any]) -> Iterable[Parameter]:
    """Parameters that are given by name, with their defaults."""
    return (Parameter(name, Parameter.KEYWORD_ONLY, default=default) for name, default in options.items())
