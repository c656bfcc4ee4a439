"""The work of another library's op: a kernel, an elementwise function or any function, on that library's arrays."""

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

#: Names of parameters that count elements by default.
_COUNTS = ("n", "size")


class Role(NamedTuple):
    """A parameter of an op.

    Attributes
    ----------
    name : str
        Name of the parameter.
    category : {"array", "written", "number", "other"}
        ``array``: an array that is only read. ``written``: an array that is written too. ``number``: a number.
        ``other``: a type that no call of an op can pass.
    number : str
        Type of a number: ``float``, ``int``, ``bool``, ``complex``, or ``any`` if the arrays decide.
    """

    name: str
    category: Literal["array", "written", "number", "other"]
    number: str = "any"


@dataclass(frozen=True, slots=True)
class Picked:
    """A user's function that takes some of an op's arguments and outputs, by its parameters' names.

    `places` has the index of each parameter among the op's arguments, then outputs.
    """

    function: Callable[..., Any]
    places: tuple[int, ...]

    def text(self, name: str) -> str:
        """Return the source of a call, ``f(a0, a2)`` for `name` f; argument or output k is ``a<k>``."""
        return f"{name}({', '.join(f'a{k}' for k in self.places)})"


class Arrangement(NamedTuple):
    """The correspondence between an op and the kernel that it calls.

    Attributes
    ----------
    takes : tuple of Role
        Arguments of the op, in order.
    outputs : tuple of str
        Names of the op's outputs.
    order : tuple
        For each parameter of the kernel, its index among arguments and outputs, or its value. A computed value is a
        `Picked`, a constant a tuple of one.
    """

    takes: tuple[Role, ...]
    outputs: tuple[str, ...]
    order: tuple[int | Picked | tuple[Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, then of the outputs."""
        return (*(role.name for role in self.takes), *self.outputs)

    def launcher(self, kernel: Kernel, config: Any) -> Callable[..., None]:
        """Generate ``launch(stream, *arguments, *outputs)``, which launches the kernel at each call of the op.

        `config` is a configuration, or a `Picked` that computes it.
        """
        names: dict[str, Any] = {"kernel": kernel}
        texts = []
        for k, entry in enumerate(((config,) if not isinstance(config, Picked) else config, *self.order)):
            if isinstance(entry, int):
                texts.append(f"a{entry}")
                continue
            names[f"f{k}"] = entry.function if isinstance(entry, Picked) else entry[0]
            texts.append(entry.text(f"f{k}") if isinstance(entry, Picked) else f"f{k}")
        parameters = ", ".join(f"a{k}" for k in range(len(self.names)))
        text = f"def launch(stream, {parameters}):\n    kernel(stream, {', '.join(texts)})\n"
        return make_function(text, "op", names)


def taking(chosen: Picked, count: int) -> Callable[..., Any]:
    """Make a function of `count` arguments that calls ``chosen.function`` with those at indices ``chosen.places``."""
    parameters = ", ".join(f"a{k}" for k in range(count))
    text = f"def taking({parameters}):\n    return {chosen.text('f')}\n"
    return make_function(text, "op", {"f": chosen.function})


def library(name: str, purpose: str, command: str) -> Any:
    """Import and return a library that cudakit does not depend on.

    Errors name the `purpose` of the import.

    Raises
    ------
    CudakitError
        If the library is not installed. The message has the `command` that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        if error.name != name.partition(".")[0]:
            raise
        raise CudakitError(f"{purpose} needs {name}, which is not installed: {command}") from error


def names_of(op: str, role: str, function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters of a function that is called by keyword.

    Raises
    ------
    ArgumentError
        For a function with ``*args``, and for an object that is no function.
    """
    return tuple(parameters_of(op, role, function))


def parameters_of(op: str, role: str, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name, and check them as `names_of` does."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ArgumentError(f"{op}: {role} is a function such as lambda x, y: …, got {shortened(function)}") from None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        raise ArgumentError(
            f"{op}: {role} takes arguments by their names, and has {', '.join(map(str, parameters.values()))}; write "
            "it as lambda x, y: …, with the names of the op"
        )
    return parameters


def pick(op: str, role: str, function: Callable[..., Any], names: Sequence[str]) -> Picked:
    """Make a `Picked` of `function`, whose parameters are among `names`.

    Raises
    ------
    ArgumentError
        For a parameter with another name.
    """
    return Picked(function, places_of(op, role, names_of(op, role, function), names))


def places_of(op: str, role: str, parameters: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the index among `names` of each of a function's parameters.

    `role` names the function in the error, such as "backward".

    Raises
    ------
    ArgumentError
        For a parameter that is not among `names`.
    """
    if unknown := [name for name in parameters if name not in names]:
        raise ArgumentError(f"{op}: {role} takes {', '.join(unknown)}; there are {', '.join(names)}")
    return tuple(names.index(name) for name in parameters)


def refuse_options(op: str, function: Any, options: Mapping[str, Any]) -> None:
    """Raise if any of `options` has a true value. The caller passes the options that `function` cannot use.

    Raises
    ------
    ArgumentError
        For the first of these options.
    """
    for name, value in options.items():
        if value:
            raise ArgumentError(f"{op}: {name}= is not for {type(function).__name__}")


def roles(op: str, kernel: Kernel) -> tuple[Role, ...]:
    """Return the role of each parameter of a kernel.

    Raises
    ------
    ArgumentError
        For a kernel whose parameters are unknown, or that has a parameter pack.
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
    numbers = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
    return Role(name, "number", numbers.get(dtype.kind, "float"))


def _is_const(cpp: Any) -> bool:
    return isinstance(cpp, Named | Opaque | Pointer) and cpp.const


def arrangement_of(
    op: str, kernel: Kernel, outputs: Sequence[str], values: Mapping[str, Any], named_arguments: Sequence[str] = ()
) -> Arrangement:
    """Return the correspondence between an op and `kernel`.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    kernel : Kernel
        Kernel to call.
    outputs : sequence of str
        Names of the op's outputs.
    values : mapping
        Values of parameters that no call passes: constants, or functions of arguments and outputs. An integer called n
        or size that is not in `named_arguments` is the number of elements of the first output.
    named_arguments : sequence of str
        Names that are arguments of the op, n and size included.

    Raises
    ------
    ArgumentError
    """
    parameters = roles(op, kernel)
    if unknown := set(values) - {role.name for role in parameters}:
        raise ArgumentError(f"{op}: values has {', '.join(sorted(unknown))}, which {kernel.name} does not take")
    left = [role for role in parameters if role.name not in (*outputs, *values)]
    counts = [
        role.name for role in left if role.name in _COUNTS and role.number == "int" and role.name not in named_arguments
    ]
    if outputs:
        left = [role for role in left if role.name not in counts]
    for role in left:
        if role.category == "other":
            raise ArgumentError(
                f"{op}: {role.name} is neither an array nor a number; give it in values={{{role.name!r}: …}}"
            )
    names = [*(role.name for role in left), *outputs]
    order: list[int | Picked | tuple[Any]] = []
    for role in parameters:
        if role.name in names:
            order.append(names.index(role.name))
        elif role.name not in values:
            order.append(Picked(size_of, (names.index(outputs[0]),)))
        elif callable(values[role.name]):
            order.append(pick(op, f"values[{shortened(role.name)}]", values[role.name], names))
        else:
            order.append((values[role.name],))
    return Arrangement(tuple(left), tuple(outputs), tuple(order))


def size_of(array: Any) -> int:
    """Return the number of elements of an array of torch, NumPy or a similar library."""
    return int(array.numel()) if hasattr(array, "numel") else int(array.size)


#: Maximum of cached launches.
_MOST_LAUNCHES = 1024


class Work(NamedTuple):
    """The work of an op.

    Attributes
    ----------
    takes : tuple of Role
        Arguments of the op.
    outputs : tuple of str
        Names of the op's outputs.
    run : callable
        ``run(stream, *arguments, *outputs)`` writes the outputs, and the arguments that the op changes.
    """

    takes: tuple[Role, ...]
    outputs: tuple[str, ...]
    run: Callable[..., None]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arguments, then of the outputs."""
        return (*(role.name for role in self.takes), *self.outputs)

    @property
    def arrays(self) -> tuple[int, ...]:
        """Indices of the arguments that are arrays."""
        return tuple(k for k, role in enumerate(self.takes) if role.category != "number")

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
    named_arguments: Sequence[str] = (),
) -> Work:
    """Make the work of a kernel; see `arrangement_of`.

    `config` is a configuration, or a function of arguments and outputs.

    Raises
    ------
    ArgumentError
    """
    arrangement = arrangement_of(op, kernel, outputs, values or {}, named_arguments)
    arrays = [k for k, role in enumerate(arrangement.takes) if role.category != "number"]
    first = len(arrangement.takes) if outputs else arrays[0] if arrays else None
    if config is not None:
        chosen = config if isinstance(config, Config | Cover) else pick(op, "config", config, arrangement.names)
    elif first is None:
        raise ArgumentError(f"{op}: no argument is an array; give config=")
    else:
        chosen = Picked(_covered, (first,))
    return Work(arrangement.takes, arrangement.outputs, arrangement.launcher(kernel, chosen))


def _covered(array: Any) -> Cover:
    return cover(size_of(array))


def of_elementwise(
    op: str,
    function: Elementwise,
    numbers: Sequence[str],
    array_of: Callable[[Any], Any],
    layout_of: Callable[[Any], Any],
) -> Work:
    """Make the work of an elementwise function.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    function : Elementwise
        The function.
    numbers : sequence of str
        Arguments that are no arrays.
    array_of : callable
        Converts the library's array to CuPy's or NumPy's.
    layout_of : callable
        Returns a key of an array's dtype and layout, or the class of a number.

    Raises
    ------
    ArgumentError
    """
    if raw := [p.name for p in function.recipe.outputs if p.raw]:
        raise ArgumentError(
            f"{op}: the output {raw[0]} is raw, which no op makes; let the body set it element by element"
        )
    takes = roles_of(op, [p.name for p in function.recipe.inputs], numbers)
    count = len(takes)
    launches: dict[Any, tuple[Callable[..., None], Job | None]] = {}

    def run(stream: Any, *operands: Any) -> None:
        key = tuple([layout_of(value) for value in operands])
        entry = launches.get(key)
        if entry is None:
            arrays = [array_of(value) for value in operands]
            launch, job = function.prepared(arrays[:count], arrays[count:])
            if len(launches) >= _MOST_LAUNCHES:
                launches.clear()
            entry = launches[key] = launch, job if job.views is not None else None
        launch, viewed = entry
        if viewed is None:
            launch(stream, *operands)
        else:
            with _current(stream):
                launch(stream, *viewed.operands([array_of(value) for value in operands]))

    return Work(takes, tuple(p.name for p in function.recipe.outputs), run)


def of_function(
    op: str,
    function: Callable[..., Any],
    outputs: Sequence[str],
    numbers: Sequence[str],
    mutates: Sequence[str],
    array_of: Callable[[Any], Any],
) -> Work:
    """Make the work of a function of arrays, which may take ``out=`` and ``stream=``.

    Arguments with a default keep it, unless they are among `numbers` or `mutates`. `of_elementwise` explains the other
    parameters.

    Raises
    ------
    ArgumentError
    """
    parameters = parameters_of(op, "the function", function)
    keywords = [keyword for keyword in ("out", "stream") if keyword in parameters]
    options = {*numbers, *mutates}
    names = [
        p.name for p in parameters.values() if p.name not in keywords and (p.default is p.empty or p.name in options)
    ]
    takes = roles_of(op, names, numbers, mutates)
    count, unnamed = len(takes), sum(parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY for name in names)

    def run(stream: Any, *operands: Any) -> None:
        arrays = [array_of(value) for value in operands]
        results = arrays[count:]
        arguments = dict(zip(names[unnamed:], arrays[unnamed:count], strict=True))
        if "stream" in keywords:
            arguments["stream"] = stream
        if "out" in keywords:
            arguments["out"] = results[0] if len(results) == 1 else tuple(results)
        elif place_of(stream).is_capturing(stream):
            raise LaunchError(
                f"{op} cannot be captured: its function makes arrays of its own, which a graph does not keep; give it "
                "a parameter out, and let it write there"
            )
        with _current(stream):
            returned = function(*arrays[:unnamed], **arguments)
            if results and "out" not in keywords:
                _copy(op, returned if isinstance(returned, tuple | list) else (returned,), results)

    return Work(takes, tuple(outputs), run)


def _current(stream: Any) -> contextlib.AbstractContextManager[Any]:
    """Return a context manager in which CuPy works on the other library's stream."""
    return cupy_stream(as_stream(stream)) if place_of(stream) is DEVICES else using(stream)


def _copy(op: str, returned: Sequence[Any], results: Sequence[Any]) -> None:
    """Copy each array that a function returned to the op's output at the same index in `results`.

    Raises
    ------
    ArgumentError
        If the number of arrays, a shape or a dtype differs.
    """
    if len(returned) != len(results):
        raise ArgumentError(f"{op}: the function returned {len(returned)} arrays, the op has {len(results)} outputs")
    for array, result in zip(returned, results, strict=True):
        shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
        if shape != result.shape or dtype != result.dtype:
            raise ArgumentError(
                f"{op}: the function returned {dtype} with shape {shape}; out says {result.dtype} with shape "
                f"{result.shape}"
            )
        result[...] = array


def check_gradients(op: str, outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Raise if a kernel or an elementwise function for gradients has an output that is no ``d<argument>``.

    Raises
    ------
    ArgumentError
    """
    if unknown := [output for output in outputs if output[:1] != "d" or output[1:] not in inputs]:
        raise ArgumentError(
            f"{op}: {unknown[0]} is no gradient of an argument; it writes {', '.join(f'd{name}' for name in inputs)}"
        )


def gradient_kernel(op: str, kernel: Kernel) -> tuple[Work, list[int]]:
    """Return the work of a kernel that writes gradients, and for each gradient the index of an argument.

    That argument has the gradient's shape and dtype: x for ``dx``, or the kernel's first array if there is no
    argument x.
    """
    written = [role.name for role in roles(op, kernel) if role.category == "written"]
    work = of_kernel(op, kernel, written)
    names = [role.name for role in work.takes]
    return work, [names.index(name[1:]) if name[1:] in names else work.arrays[0] for name in written]


def gradients_in_order(
    op: str, result: Any, inputs: Sequence[str], written: Sequence[str], needed: Sequence[bool]
) -> Sequence[Any]:
    """Return a gradient, or None, for each of `inputs`, from the result of a backward function.

    Parameters
    ----------
    op : str
        Name of the op, for messages.
    result : object
        Result of the backward function.
    inputs : sequence of str
        Names of the inputs.
    written : sequence of str
        Names of the gradients in `result`; empty if they are in the order of the inputs.
    needed : sequence of bool
        Whether the gradient of each input is requested.

    Raises
    ------
    ArgumentError
        For a requested gradient that is not written, and for another number of results.
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


def roles_of(op: str, names: Sequence[str], numbers: Sequence[str], mutates: Sequence[str] = ()) -> tuple[Role, ...]:
    """Return the roles of an op's arguments, for a function that is no kernel.

    Raises
    ------
    ArgumentError
        For `numbers` and `mutates` that are no arguments.
    """
    for option, selected in (("numbers", numbers), ("mutates", mutates)):
        if isinstance(selected, str) or set(selected) - set(names):
            raise ArgumentError(
                f"{op}: {option}= names some of {', '.join(names)}, as in {option}=['x']; got {shortened(selected)}"
            )
    return tuple(
        Role(name, "number" if name in numbers else "written" if name in mutates else "array") for name in names
    )
