"""What the parameters of a kernel are to an op: what a call gives, what the op makes, and what is worked out."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cudakit.errors import ArgumentError, CudakitError, shortened
from cudakit.kernel.kernel import Kernel
from cudakit.streams.generated import make_function
from cudakit.types.cpp import CppType, Named, Opaque, Pointer, scalar, without_const

#: Parameters that count elements, where nothing else is said of them.
_COUNTS = ("n", "size")


class Role(NamedTuple):
    """One parameter of an op.

    Attributes
    ----------
    name : str
    kind : {"array", "written", "number", "other"}
        An array that is only read, one that is written too, a number, or what no call of an op can give.
    number : str
        Of a number: ``float``, ``int``, ``bool``, ``complex``, or ``any`` where the arrays decide.
    """

    name: str
    kind: Literal["array", "written", "number", "other"]
    number: str = "any"


@dataclass(frozen=True, slots=True)
class Picked:
    """A function of some of an op's arguments and outputs, which it takes by its own parameters' names."""

    function: Callable[..., Any]
    places: tuple[int, ...]

    def text(self, name: str) -> str:
        """A call of it under a name, where arguments and outputs are ``a0``, ``a1`` and so on."""
        return f"{name}({', '.join(f'a{k}' for k in self.places)})"


class Arrangement(NamedTuple):
    """How an op calls a kernel.

    Attributes
    ----------
    takes : tuple of Role
        The op's arguments, in order.
    outputs : tuple of str
        What the op makes.
    order : tuple
        Of each parameter of the kernel: its place among arguments and outputs, or what it is given in their place, a
        `Picked` or a constant in a tuple of one.
    """

    takes: tuple[Role, ...]
    outputs: tuple[str, ...]
    order: tuple[int | Picked | tuple[Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Arguments, then outputs."""
        return (*(role.name for role in self.takes), *self.outputs)

    def launcher(self, kernel: Kernel, config: Any) -> Callable[..., None]:
        """``launch(stream, *arguments, *outputs)``, in one expression, as it is run at each call.

        `config` is a `Picked`, or what the kernel takes.
        """
        known: dict[str, Any] = {"kernel": kernel}
        texts = []
        for k, each in enumerate(((config,) if not isinstance(config, Picked) else config, *self.order)):
            if isinstance(each, int):
                texts.append(f"a{each}")
                continue
            known[f"f{k}"] = each.function if isinstance(each, Picked) else each[0]
            texts.append(each.text(f"f{k}") if isinstance(each, Picked) else f"f{k}")
        given = ", ".join(f"a{k}" for k in range(len(self.names)))
        text = f"def launch(stream, {given}):\n    kernel(stream, {', '.join(texts)})\n"
        return make_function(text, "op", known)


def taking(chosen: Picked, count: int) -> Callable[..., Any]:
    """`chosen` as a function of all `count` arguments."""
    given = ", ".join(f"a{k}" for k in range(count))
    text = f"def taking({given}):\n    return {chosen.text('f')}\n"
    return make_function(text, "op", {"f": chosen.function})


def library(name: str, what: str, command: str) -> Any:
    """A library that cudakit does not depend on, for `what`.

    Raises
    ------
    CudakitError
        If it is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise CudakitError(f"{what} needs {name}, which is not here: {command}") from error


def names_of(op: str, what: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the parameters of a function that is called by them.

    Raises
    ------
    ArgumentError
        For a function that has ``*args``, and what is none.
    """
    return tuple(parameters_of(op, what, function))


def parameters_of(op: str, what: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function, as `names_of` takes them, by name."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ArgumentError(f"{op}: {what} is a function such as lambda x, y: …, got {shortened(function)}") from None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found.values()):
        raise ArgumentError(
            f"{op}: {what} takes arguments by their names, and has {', '.join(map(str, found.values()))}; write it as "
            "lambda x, y: …, with the names of the op"
        )
    return found


def picked(op: str, what: str, function: Callable[..., Any], names: Sequence[str]) -> Picked:
    """`function`, given those of `names` that its parameters are called by.

    Raises
    ------
    ArgumentError
        For a parameter that is called otherwise.
    """
    wanted = names_of(op, what, function)
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ArgumentError(f"{op}: {what} takes {', '.join(unknown)}; there are {', '.join(names)}")
    return Picked(function, tuple(names.index(name) for name in wanted))


def roles(op: str, kernel: Kernel) -> tuple[Role, ...]:
    """What each parameter of a kernel is.

    Raises
    ------
    ArgumentError
        For a kernel whose parameters are not known, or that takes any number of them.
    """
    signature = kernel.signature
    if signature.overloads or signature.parameters is None or any(p.pack for p in signature.parameters):
        raise ArgumentError(
            f"{op}: the parameters of {signature.name} are not known; name one kernel, whose head stands in its source "
            "and takes a certain number of parameters"
        )
    types = frozenset(p.name for p in signature.template_parameters if p.kind == "type")
    return tuple(_role(p.name, p.type, types) for p in signature.parameters)


def _role(name: str, cpp: CppType, type_variables: frozenset[str]) -> Role:
    plain = without_const(cpp)
    if isinstance(plain, Pointer):
        return Role(name, "array" if _is_const(plain.target) else "written")
    if isinstance(plain, Named) and plain.name.split("::")[-1] == "strided" and plain.arguments:
        return Role(name, "array" if _is_const(plain.arguments[0]) else "written")
    if isinstance(plain, Named) and plain.arguments is None and plain.name in type_variables:
        return Role(name, "number")
    dtype = scalar(str(plain)) if isinstance(plain, Named) else None
    if dtype is None:
        return Role(name, "other")
    kinds = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
    return Role(name, "number", kinds.get(dtype.kind, "float"))


def _is_const(cpp: Any) -> bool:
    return isinstance(cpp, Named | Opaque | Pointer) and cpp.const


def arranged(
    op: str, kernel: Kernel, outputs: Sequence[str], values: Mapping[str, Any], named: Sequence[str] = ()
) -> Arrangement:
    """How an op calls `kernel`.

    Parameters
    ----------
    op : str
        For messages.
    kernel : Kernel
    outputs : sequence of str
        What the op makes.
    values : mapping
        What parameters are given that no call gives: constants, or functions of arguments and outputs. An integer
        that is called n or size, and that is not `named`, is how many elements the first output has.
    named : sequence of str
        Arguments that the op takes, whatever they are called.

    Raises
    ------
    ArgumentError
    """
    found = roles(op, kernel)
    if unknown := set(values) - {role.name for role in found}:
        raise ArgumentError(f"{op}: values has {', '.join(sorted(unknown))}, which {kernel.name} does not take")
    left = [role for role in found if role.name not in (*outputs, *values)]
    counts = [role.name for role in left if role.name in _COUNTS and role.number == "int" and role.name not in named]
    if outputs:
        left = [role for role in left if role.name not in counts]
    for role in left:
        if role.kind == "other":
            raise ArgumentError(
                f"{op}: {role.name} is neither an array nor a number; give it in values={{{role.name!r}: …}}"
            )
    names = [*(role.name for role in left), *outputs]
    order: list[int | Picked | tuple[Any]] = []
    for role in found:
        if role.name in names:
            order.append(names.index(role.name))
        elif role.name not in values:
            order.append(Picked(size_of, (names.index(outputs[0]),)))
        elif callable(values[role.name]):
            order.append(picked(op, f"values[{shortened(role.name)}]", values[role.name], names))
        else:
            order.append((values[role.name],))
    return Arrangement(tuple(left), tuple(outputs), tuple(order))


def size_of(array: Any) -> int:
    """How many elements an array has, of torch or of NumPy and its kin."""
    return int(array.numel()) if hasattr(array, "numel") else int(array.size)
