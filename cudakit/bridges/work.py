"""What an op of another library does: a kernel, an elementwise function or any function, on that library's arrays."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cudakit.arrays.job import Job
from cudakit.bridges.parameters import Picked, Role, arranged, parameters_of, picked, size_of
from cudakit.errors import ArgumentError, LaunchError, shortened
from cudakit.generate.elementwise import Elementwise
from cudakit.jit.load.config import Config, Cover, cover
from cudakit.kernel.kernel import Kernel
from cudakit.places import DEVICES, place_of, using
from cudakit.streams.streams import as_stream, cupy_stream

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
                launch(stream, *viewed.seen([seen(each) for each in every]))

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


def missing_gradient(op: str, name: str) -> ArgumentError:
    """What to raise where a gradient is asked for that a kernel does not write."""
    return ArgumentError(
        f"{op}: backward writes no d{name}; where there is none, give a function that returns None for it"
    )


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
