"""What an op of another library does: a kernel, an elementwise function or any function, on that library's arrays."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cudakit.arrays.plans import Job
from cudakit.errors import ArgumentError, CudakitError, LaunchError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.jit.load.config import Config, Cover, cover
from cudakit.kernel.kernel import Kernel
from cudakit.places import DEVICES, place_of, using
from cudakit.streams.process import make_function
from cudakit.streams.streams import as_stream, cupy_stream
from cudakit.types.cpp import CppType, Named, Opaque, Pointer, scalar, without_const

# The roles of a kernel's parameters in an op.

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
    return Picked(function, places_of(op, what, names_of(op, what, function), names))


def places_of(op: str, what: str, wanted: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """The places among `names` of those that a function takes.

    Raises
    ------
    ArgumentError
        For one that is none of them.
    """
    if unknown := [name for name in wanted if name not in names]:
        raise ArgumentError(f"{op}: {what} takes {', '.join(unknown)}; there are {', '.join(names)}")
    return tuple(names.index(name) for name in wanted)


def refuse_options(op: str, function: Any, options: Mapping[str, Any]) -> None:
    """Raise where an option has a value that a function of its type has no use for.

    Raises
    ------
    ArgumentError
    """
    for name, value in options.items():
        if value:
            raise ArgumentError(f"{op}: {name}= is not for {type(function).__name__}")


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
    types = frozenset(p.name for p in signature.template_parameters if p.category == "type")
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


#: Kinds of arguments whose launches are kept.
_MOST_KINDS = 1024


class Work(NamedTuple):
    """What an op does.

    Attributes
    ----------
    takes : tuple of Role
        Its arguments.
    outputs : tuple of str
        What it makes.
    run : callable
        ``run(stream, *arguments, *outputs)`` writes the outputs, and the arguments that it changes.
    """

    takes: tuple[Role, ...]
    outputs: tuple[str, ...]
    run: Callable[..., None]

    @property
    def names(self) -> tuple[str, ...]:
        """Arguments, then outputs."""
        return (*(role.name for role in self.takes), *self.outputs)

    @property
    def arrays(self) -> tuple[int, ...]:
        """Which of the arguments are arrays."""
        return tuple(k for k, role in enumerate(self.takes) if role.kind != "number")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arguments that are arrays."""
        return tuple(self.takes[k].name for k in self.arrays)


def of_kernel(
    op: str,
    kernel: Kernel,
    outputs: Sequence[str],
    config: Any = None,
    values: Mapping[str, Any] | None = None,
    named: Sequence[str] = (),
) -> Work:
    """A launch of a kernel; see `arranged`. `config` is a configuration, or a function of arguments and outputs.

    Raises
    ------
    ArgumentError
    """
    found = arranged(op, kernel, outputs, values or {}, named)
    arrays = [k for k, role in enumerate(found.takes) if role.kind != "number"]
    first = len(found.takes) if outputs else arrays[0] if arrays else None
    if config is not None:
        chosen = config if isinstance(config, Config | Cover) else picked(op, "config", config, found.names)
    elif first is None:
        raise ArgumentError(f"{op}: no argument is an array; give config=")
    else:
        chosen = Picked(_covered, (first,))
    return Work(found.takes, found.outputs, found.launcher(kernel, chosen))


def _covered(array: Any) -> Cover:
    return cover(size_of(array))


def of_elementwise(
    op: str,
    function: Elementwise,
    numbers: Sequence[str],
    seen: Callable[[Any], Any],
    told: Callable[[Any], Any],
) -> Work:
    """A call of an elementwise function.

    Parameters
    ----------
    op : str
    function : Elementwise
    numbers : sequence of str
        Arguments that are no arrays.
    seen : callable
        CuPy's or NumPy's array of the library's.

    Raises
    ------
    ArgumentError
    """
    if raw := [p.name for p in function.recipe.outputs if p.raw]:
        raise ArgumentError(
            f"{op}: the output {raw[0]} is raw, which no op makes; let the body set it element by element"
        )
    takes = taken(op, [p.name for p in function.recipe.inputs], numbers)
    count = len(takes)
    kinds: dict[Any, tuple[Callable[..., None], Job | None]] = {}

    def run(stream: Any, *every: Any) -> None:
        kind = tuple([told(each) for each in every])
        found = kinds.get(kind)
        if found is None:
            arrays = [seen(each) for each in every]
            launch, job = function.prepared(arrays[:count], arrays[count:])
            if len(kinds) >= _MOST_KINDS:
                kinds.clear()
            found = kinds[kind] = launch, job if job.views is not None else None
        launch, viewed = found
        if viewed is None:
            launch(stream, *every)
        else:
            with _current(stream):
                launch(stream, *viewed.operands([seen(each) for each in every]))

    return Work(takes, tuple(p.name for p in function.recipe.outputs), run)


def of_function(
    op: str,
    function: Callable[..., Any],
    outputs: Sequence[str],
    numbers: Sequence[str],
    mutates: Sequence[str],
    seen: Callable[[Any], Any],
) -> Work:
    """A call of a function of arrays, which may take ``out=`` and ``stream=``; the others as for `of_elementwise`.

    Arguments that have a default keep it, unless they are among `numbers` or `mutates`.

    Raises
    ------
    ArgumentError
    """
    found = parameters_of(op, "the function", function)
    keywords = [each for each in ("out", "stream") if each in found]
    asked = {*numbers, *mutates}
    names = [p.name for p in found.values() if p.name not in keywords and (p.default is p.empty or p.name in asked)]
    takes = taken(op, names, numbers, mutates)
    count, unnamed = len(takes), sum(found[each].kind is inspect.Parameter.POSITIONAL_ONLY for each in names)

    def run(stream: Any, *every: Any) -> None:
        arrays = [seen(each) for each in every]
        results = arrays[count:]
        named = dict(zip(names[unnamed:], arrays[unnamed:count], strict=True))
        if "stream" in keywords:
            named["stream"] = stream
        if "out" in keywords:
            named["out"] = results[0] if len(results) == 1 else tuple(results)
        elif place_of(stream).is_capturing(stream):
            raise LaunchError(
                f"{op} cannot be captured: its function makes arrays of its own, which a graph does not keep; give it "
                "a parameter out, and let it write there"
            )
        with _current(stream):
            found = function(*arrays[:unnamed], **named)
            if results and "out" not in keywords:
                _copy(op, found if isinstance(found, tuple | list) else (found,), results)

    return Work(takes, tuple(outputs), run)


def _current(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """A block in which CuPy works on a stream that the other library works on, and knows to be in order."""
    return cupy_stream(as_stream(stream)) if place_of(stream) is DEVICES else using(stream)


def _copy(op: str, found: Sequence[Any], results: Sequence[Any]) -> None:
    """Copy what a function returned to where the op's outputs are."""
    if len(found) != len(results):
        raise ArgumentError(f"{op}: the function returned {len(found)} arrays, the op has {len(results)} outputs")
    for given, result in zip(found, results, strict=True):
        shape, dtype = getattr(given, "shape", None), getattr(given, "dtype", None)
        if shape != result.shape or dtype != result.dtype:
            raise ArgumentError(
                f"{op}: the function returned {dtype} with shape {shape}; out says {result.dtype} with shape "
                f"{result.shape}"
            )
        result[...] = given


def check_gradients(op: str, outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raise where a kernel or an elementwise function writes what is no gradient of an argument.

    Raises
    ------
    ArgumentError
    """
    if unknown := [each for each in outputs if each[:1] != "d" or each[1:] not in inputs]:
        raise ArgumentError(
            f"{op}: {unknown[0]} is no gradient of an argument; it writes {', '.join(f'd{each}' for each in inputs)}"
        )


def gradient_kernel(op: str, kernel: Kernel) -> tuple[Work, list[int]]:
    """The work of a kernel that writes gradients ``dx``, and which of its arguments each is like.

    Where x is no argument, dx is as the first array is, which then is a gradient.
    """
    written = [role.name for role in roles(op, kernel) if role.kind == "written"]
    work = of_kernel(op, kernel, written)
    names = [role.name for role in work.takes]
    return work, [names.index(name[1:]) if name[1:] in names else work.arrays[0] for name in written]


def gradients_in_order(
    op: str, result: Any, inputs: Sequence[str], written: Sequence[str], needed: Sequence[bool]
) -> Sequence[Any]:
    """A gradient, or None, for each of `inputs`, from what a backward function gave.

    Parameters
    ----------
    written : sequence of str
        Names of its results; none where they come in the order of the inputs.
    needed : sequence of bool
        Which gradients are asked for.

    Raises
    ------
    ArgumentError
        For a gradient that is asked for and not written, and for another number of results.
    """
    several = result if isinstance(result, tuple | list) else (result,)
    if written:
        by_name = dict(zip(written, several, strict=True))
        for name, is_needed in zip(inputs, needed, strict=True):
            if is_needed and f"d{name}" not in by_name:
                raise ArgumentError(
                    f"{op}: backward writes no d{name}; where there is none, give a function that returns None for it"
                )
        return [by_name.get(f"d{name}") for name in inputs]
    if len(several) != len(inputs):
        raise ArgumentError(
            f"{op}: backward returned {len(several)} gradients; it is one for each of {', '.join(inputs)}, None where "
            "there is none"
        )
    return several


def taken(op: str, names: Sequence[str], numbers: Sequence[str], mutates: Sequence[str] = ()) -> tuple[Role, ...]:
    """The arguments of an op that is no kernel's.

    Raises
    ------
    ArgumentError
        For `numbers` and `mutates` that are none of them.
    """
    for what, given in (("numbers", numbers), ("mutates", mutates)):
        if isinstance(given, str) or set(given) - set(names):
            raise ArgumentError(
                f"{op}: {what}= names some of {', '.join(names)}, as in {what}=['x']; got {shortened(given)}"
            )
    return tuple(
        Role(name, "number" if name in numbers else "written" if name in mutates else "array") for name in names
    )
