"""The generated function of a kernel: Python code with the checks of its call shapes.

A `Dispatcher` owns the generated function of a kernel. The function tries the call shapes so far, newest first. A
shape is a condition over the arguments' types and dtypes, then one call of ``cuda.core.launch``, or the emulator's run.
A call that fits no shape goes to the full check, which raises or adds a shape.

Two things make the common call cheap. With the stream and configuration of the last call, while the process has used
one stream only, nothing is ordered or resolved. CuPy arrays of the last call, and of one before it, are recognized by
identity, through weak references: their dtype, layout and address cannot have changed. If the numbers are the same too,
the launch's parameters are written once, and CuPy calls the driver (`bound`).

Take ``template <typename T> __global__ void saxpy(T a, const T* x, T* y, size_t n)`` on a device. After a call with a
Python float, two CuPy arrays and an int, the function is::

    def call(stream, config, /, a=MISSING, x=MISSING, y=MISSING, n=MISSING, *extra):
        try:
            (
                stream_last, config_last, core, resolved_config, cupy_stream, torch_stream, any_arrays, former,
                x_reference, x_value, y_reference, y_value, a_last, n_last, a_value, bound,
            ) = shape_0.last_launch
            if stream is stream_last and config is config_last and current_cupy_stream(0) is cupy_stream:
                if (
                    x_reference() is x is not None
                    and y_reference() is y is not None
                    and not extra
                ):
                    if (
                        (a is a_last or type(a) is float and a == a_last and a)
                        and (n is n_last or type(n) is int and n == n_last)
                    ):
                        if bound[0] is None:
                            shape_0.bind(
                                bound, core, config, resolved_config,
                                (a_value if a is a_last else a_0_unpack(a_0_pack(a))[0], x_value, y_value, n),
                            )
                        elif bound[1] is None or launch_traits(config) == bound[1]:
                            return bound[0]()
                    if (
                        type(a) is float
                        and type(n) is int and (0 <= n <= 1073741823 or 0 <= n <= 9223372036854775807)
                    ):
                        return launch_0(
                            core, resolved_config, kernel_0,
                            a_value if a is a_last else a_0_unpack(a_0_pack(a))[0],
                            x_value,
                            y_value,
                            n
                        )
                if former is not None:
                    (
                        x_reference, x_value, y_reference, y_value, a_last, n_last, a_value, bound,
                    ) = former
                    if (
                        x_reference() is x is not None
                        and y_reference() is y is not None
                        and not extra
                    ):
                        if (
                            (a is a_last or type(a) is float and a == a_last and a)
                            and (n is n_last or type(n) is int and n == n_last)
                        ):
                            if bound[0] is None:
                                shape_0.bind(
                                    bound, core, config, resolved_config,
                                    (a_value if a is a_last else a_0_unpack(a_0_pack(a))[0], x_value, y_value, n),
                                )
                            elif bound[1] is None or launch_traits(config) == bound[1]:
                                return bound[0]()
                        if (
                            type(a) is float
                            and type(n) is int and (0 <= n <= 1073741823 or 0 <= n <= 9223372036854775807)
                        ):
                            return launch_0(
                                core, resolved_config, kernel_0,
                                a_value if a is a_last else a_0_unpack(a_0_pack(a))[0],
                                x_value,
                                y_value,
                                n
                            )
                if (
                    any_arrays
                    and (a is a_last or type(a) is float)
                    and x.dtype is x_0_dtype and x._c_contiguous
                    and y.dtype is y_0_dtype and y._c_contiguous
                    and (n is n_last or type(n) is int and (0 <= n <= 1073741823 or 0 <= n <= 9223372036854775807))
                    and not extra
                ):
                    if any_arrays is not True:
                        shape_0.renew((a_0_unpack(a_0_pack(a))[0], x.data.ptr, y.data.ptr, n), (a, x, y, n))
                    return launch_0(
                        core, resolved_config, kernel_0,
                        a_value if a is a_last else a_0_unpack(a_0_pack(a))[0],
                        x.data.ptr,
                        y.data.ptr,
                        n
                    )
            repeats = shape_0.repeats
            repeated = repeats.get((id(stream), id(x))) if repeats else None
            if repeated is not None:
                (
                    stream_last, config_last, core, resolved_config, cupy_stream, torch_stream, again, former,
                    x_reference, x_value, y_reference, y_value, a_last, n_last, a_value, bound,
                ) = repeated
                if (
                    config is config_last and current_cupy_stream(0) is cupy_stream
                    and x_reference() is x is not None
                    and y_reference() is y is not None
                    and not extra
                ):
                    bound_launch, traits, _ = bound
                    if not (
                        (a is a_last or type(a) is float and a == a_last and a)
                        and (n is n_last or type(n) is int and n == n_last)
                    ):
                        bound_launch = None
                    elif bound_launch is None:
                        shape_0.bind(
                            bound, core, config, resolved_config,
                            (a_value if a is a_last else a_0_unpack(a_0_pack(a))[0], x_value, y_value, n),
                        )
                    elif traits is not None and launch_traits(config) != traits:
                        bound_launch = None
                    if bound_launch is not None:
                        if again is None:
                            return bound_launch()
                        if again(bound_launch, (a, x, y, n)):
                            return None
                    elif (
                        type(a) is float
                        and type(n) is int and (0 <= n <= 1073741823 or 0 <= n <= 9223372036854775807)
                    ):
                        if again is None:
                            return launch_0(
                                core, resolved_config, kernel_0,
                                a_value if a is a_last else a_0_unpack(a_0_pack(a))[0],
                                x_value,
                                y_value,
                                n
                            )
                        if again(
                            None,
                            (a, x, y, n),
                            (a_value if a is a_last else a_0_unpack(a_0_pack(a))[0], x_value, y_value, n),
                        ):
                            return None
            fitting = None
            if (
                type(a) is float
                and x.dtype is x_0_dtype and x._c_contiguous
                and y.dtype is y_0_dtype and y._c_contiguous
                and type(n) is int and (0 <= n <= 1073741823 or 0 <= n <= 9223372036854775807)
                and not extra
                and (target := shape_0.target(stream)) is not None
            ):
                fitting = shape_0, target, (a_0_unpack(a_0_pack(a))[0], x.data.ptr, y.data.ptr, n), (a, x, y, n)
            reason = None
        except Exception as error:
            fitting, reason = None, error
        try:
            if fitting is None:
                return check(stream, config, (a, x, y, n, *extra,), reason)
            shape, target, values, arguments = fitting
            return shape.launch(target, config, values, arguments)
        except CudakitError as error:
            cut(error)
            raise
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from cudakit.jit.launch.bind import Fragment
from cudakit.jit.launch.launch import CallShape
from cudakit.jit.launch.plan import Plan
from cudakit.jit.load.config import launch_traits
from cudakit.streams import devices
from cudakit.streams.process import fill


class Shape(Protocol):
    """A combination of argument types, bound to a specialization for a place: `CallShape`, or the emulator's.

    Attributes
    ----------
    fragments : tuple of Fragment
        A fragment for each argument.
    families : tuple of str
        Family of each argument, as `describe` names it.
    name : str
        Name expression of the specialization.
    """

    @property
    def name(self) -> str: ...
    @property
    def fragments(self) -> tuple[Fragment, ...]: ...
    @property
    def families(self) -> tuple[str, ...]: ...

    def target(self, stream: Any) -> Any | None:
        """Return the launch target for a stream of the shape's place; None for other streams."""

    def launch(self, target: Any, config: Any, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Launch with checked arguments."""

    def plan(self, target: Any, config: Any, values: Sequence[Any], arguments: tuple[Any, ...]) -> Plan:
        """Make the plan of a launch."""


# In the templates, ``«x»`` is an argument by the name of its parameter. All other names belong to the generated code; a
# name that equals a parameter's is replaced.

_CALL = """\
def call(stream, config, /, $parameters*extra):
    try:
$attempts
        reason = None
    except Exception as error:
        fitting, reason = None, error
    try:
        if fitting is None:
            return check(stream, config, ($positional*extra,), reason)
        shape, target, values, arguments = fitting
        return shape.launch(target, config, values, arguments)
    except CudakitError as error:
        cut(error)
        raise
"""


# With the stream and configuration of the last launch, no order is needed.
_SETTLED = """\
(
    stream_last, config_last, core, resolved_config, cupy_stream, torch_stream, any_arrays, former,
    $memo
) = $shape.last_launch
if stream is stream_last and config is config_last$same_streams:
    $recognize
"""


# Remembered arguments, of which the numbers may be others.
_RECOGNIZE = """\
if (
    $same_arrays
):
    return $remembered_launch
"""


# Where all arguments are arrays and numbers, the driver's parameters are written once for the same ones.
_RECOGNIZE_BOUND = """\
if (
    $same_fixed
):
    if (
        $same_numbers
    ):
        if bound[0] is None:
            $shape.bind(
                bound, core, config, resolved_config,
                $known,
            )
        elif bound[1] is None or launch_traits(config) == bound[1]:
            return bound[0]()
    if (
        $number_guards
    ):
        return $remembered_launch
"""


# Two sets of arrays that take turns are both recognized.
_SETTLED_FOR_ANY = """\
    if former is not None:
        (
            $memo
        ) = former
        $recognize
    if (
        any_arrays
        and $any_arrays
    ):
        if any_arrays is not True:
            $shape.renew($values, $arguments)
        return $passed_launch
"""


# On further streams, and on streams whose launches wait for each other.
_REPEATED = """\
repeats = $shape.repeats
repeated = repeats.get((id(stream), id($first))) if repeats else None
if repeated is not None:
    (
        stream_last, config_last, core, resolved_config, cupy_stream, torch_stream, again, former,
        $memo
    ) = repeated
    if (
        config is config_last$same_streams
        and $same_fixed
    ):
        $bound_launch
        if bound_launch is not None:
            if again is None:
                return bound_launch()
            if again(bound_launch, $arguments):
                return None
        elif (
            $number_guards
        ):
            if again is None:
                return $remembered_launch
            if again(
                None,
                $arguments,
                $known,
            ):
                return None
"""


_BOUND_LAUNCH = """\
bound_launch, traits, _ = bound
if not (
    $same_numbers
):
    bound_launch = None
elif bound_launch is None:
    $shape.bind(
        bound, core, config, resolved_config,
        $known,
    )
elif traits is not None and launch_traits(config) != traits:
    bound_launch = None
"""


_FITTING = """\
${start}if (
    $first_fit$fits
    and (target := $shape.target(stream)) is not None
):
    fitting = $shape, target, $values, $arguments
"""


def function_text(
    shapes: Mapping[int, tuple[Shape, tuple[Any, ...]]],
    parameters: Sequence[str],
    defaults: Mapping[str, str],
    names: dict[str, Any],
) -> str:
    """Return the source of a kernel's function; its global names are added to `names`.

    Parameters
    ----------
    shapes : mapping
        Call shapes by number, the newest first. Each comes with the values of its last arguments, which calls do not
        pass.
    parameters : sequence of str
        Keywords of the function.
    defaults : mapping
        Expressions of default values, by parameter.
    names : dict
        Global names of the function.
    """
    attempts = "".join(
        _attempt(number, shape, left_out, parameters, place == 0, len(shapes) == 1, names)
        for place, (number, (shape, left_out)) in enumerate(shapes.items())
    )
    text = fill(
        _CALL,
        parameters="".join(f"«{name}»={defaults.get(name, 'MISSING')}, " for name in parameters),
        positional="".join(f"«{name}», " for name in parameters),
        attempts=attempts.removesuffix("\n"),
    )
    return _with_own_names(text, parameters, names)


def _attempt(
    number: int,
    shape: Shape,
    left_out: tuple[Any, ...],
    parameters: Sequence[str],
    first: bool,
    alone: bool,
    names: dict[str, Any],
) -> str:
    """Return source lines that launch `shape` if the arguments fit it.

    Parameters
    ----------
    number : int
        Number of the shape, which makes its names in the source unique.
    shape : Shape
        Call shape to try.
    left_out : tuple
        Values of the last arguments, which calls do not pass.
    parameters : sequence of str
        Keywords of the function.
    first : bool
        Whether no other shape is tried before.
    alone : bool
        Whether the function has no other shape.
    names : dict
        Global names of the generated function. The names that the lines use are added.
    """
    surplus = len(shape.fragments) - len(parameters)
    titles = [*parameters[: len(shape.fragments)], *(f"extra_{i}" for i in range(surplus))]
    arguments = [f"«{name}»" for name in titles[: len(parameters)]] + [f"extra[{i}]" for i in range(surplus)]
    if left_out:
        surplus -= len(left_out)
        arguments[-len(left_out) :] = left = [f"left_{i}_{number}" for i in range(len(left_out))]
        names.update(zip(left, left_out, strict=True))
    guards, values = [], []
    for fragment, family, title, argument in zip(shape.fragments, shape.families, titles, arguments, strict=True):
        prefix = f"{title}_{number}_"
        guard, value = fragment.written(argument, prefix, names)
        if not alone and family in ("cupy", "torch"):
            # A guard must not raise if a later shape could fit.
            guard = f"{argument}.__class__ is {prefix}class and {guard}"
        guards.append(guard)
        values.append(value)
    guards.append(f"len(extra) == {surplus}" if surplus > 0 else "not extra")
    names[f"shape_{number}"] = shape
    parts = {
        "shape": f"shape_{number}",
        "fits": "\nand ".join(guards),
        "values": _tuple(values),
        "arguments": _tuple(arguments),
    }
    text = ""
    if isinstance(shape, CallShape):
        text = _straight(number, shape, titles, guards, values, arguments, parts, names)
    start, unless = ("fitting = None\n", "") if first else ("", "fitting is None and ")
    return text + fill(_FITTING, 2, start=start, first_fit=unless, **parts)


def _straight(
    number: int,
    shape: CallShape,
    titles: Sequence[str],
    guards: Sequence[str],
    values: Sequence[str],
    arguments: Sequence[str],
    parts: Mapping[str, str],
    names: dict[str, Any],
) -> str:
    """Return source lines that launch a device's `shape` without ordering streams, if no waits are needed.

    `titles`, `guards`, `values` and `arguments` have a text for each argument: the prefix of its names, its condition,
    its value, its expression. `parts` are texts to fill in. The global names of the lines are added to `names`.
    """
    run, kernel = f"launch_{number}", f"kernel_{number}"
    names.update({run: shape.run, kernel: shape.loaded.kernel})
    same_streams = ""
    if "cupy" in shape.families:
        same_streams += f" and {current_stream_text(shape.device_id, names)} is cupy_stream"
    if "torch" in shape.families:
        names["current_torch_stream"] = sys.modules["torch"]._C._cuda_getCurrentRawStream
        same_streams += f" and current_torch_stream({shape.device_id}) == torch_stream"
    fixed = {position: titles[position] for position in shape.fixed}
    # A dead reference returns None, which is also the argument for a null pointer.
    same = {i: f"{title}_reference() is {arguments[i]} is not None" for i, title in fixed.items()}
    same |= {i: f"{same[i]} and {arguments[i]}.shape == {titles[i]}_shape" for i in shape.shaped}
    checks, current_values = list(guards), list(values)
    for i in shape.numbers:
        checks[i] = f"({arguments[i]} is {titles[i]}_last or {guards[i]})"
    for i in shape.converted:
        current_values[i] = remembered_value_text(f"{titles[i]}_value", arguments[i], f"{titles[i]}_last", values[i])
    remembered = [f"{titles[i]}_value" if i in fixed else value for i, value in enumerate(current_values)]
    all_same = [same.get(i, check) for i, check in enumerate(checks)]
    memo = [f"{title}_reference, {title}_value, " for title in fixed.values()]
    memo += [f"{titles[i]}_last, " for i in shape.numbers] + [f"{titles[i]}_value, " for i in shape.converted]
    memo += [f"{titles[i]}_shape, " for i in shape.shaped] + ["bound, "] * shape.is_bindable
    same_numbers = [_same_number(shape.fragments[i], arguments[i], f"{titles[i]}_last") for i in shape.numbers]
    names["launch_traits"] = launch_traits
    first = ("core", "resolved_config", kernel)
    parts = {
        **parts,
        "same_streams": same_streams,
        "memo": "".join(memo).rstrip(),
        "same_arrays": "\nand ".join(all_same),
        "same_fixed": "\nand ".join([check for i, check in enumerate(all_same) if i not in shape.numbers]),
        "same_numbers": "\nand ".join(same_numbers) or "True",
        "number_guards": "\nand ".join([guards[i] for i in shape.numbers]) or "True",
        "any_arrays": "\nand ".join(checks),
        "known": _tuple(remembered),
        "remembered_launch": launch_text(run, first, remembered),
        "passed_launch": launch_text(run, first, current_values),
    }
    parts["recognize"] = fill(_RECOGNIZE_BOUND if shape.is_bindable else _RECOGNIZE, 0, **parts).rstrip()
    parts["bound_launch"] = fill(_BOUND_LAUNCH, 0, **parts).rstrip() if shape.is_bindable else "bound_launch = None"
    text = fill(_SETTLED, 2, **parts)
    if not fixed:
        return text
    leader = shape.fixed[0]
    text += fill(_SETTLED_FOR_ANY, 2, **parts)
    return text + (fill(_REPEATED, 2, first=arguments[leader], **parts) if shape.is_fixed else "")


def _same_number(fragment: Fragment, argument: str, last: str) -> str:
    """Return the source of the condition that a number is passed to the kernel as the remembered one `last`."""
    for number_type, unlike_zero in (("int", ""), ("float", f" and {argument}")):
        if fragment.guard.startswith(f"type({{a}}) is {number_type}"):
            # The two zeros are equal, and differ.
            return f"({argument} is {last} or type({argument}) is {number_type} and {argument} == {last}{unlike_zero})"
    return f"{argument} is {last}"


# Text for functions of kernels and for replayed calls (`cudakit.arrays.replay`). `Fragment.written` writes guards and
# values of arguments.


def launch_text(run: str, first: Sequence[str], values: Sequence[str]) -> str:
    """Return the source of a call of the function named `run`.

    Its arguments are the expressions `first` (stream, configuration and kernel), then `values`, the kernel's arguments.
    """
    listed = "".join(f",\n    {value}" for value in values)
    return f"{run}(\n    {', '.join(first)}{listed}\n)"


def remembered_value_text(remembered: str, argument: str, last: str, value: str) -> str:
    """Return the source of a conditional expression for a number's value. All parameters are expressions.

    It gives `remembered` if `argument` is the same object as `last`, else `value`.
    """
    return f"{remembered} if {argument} is {last} else {value}"


def current_stream_text(device_id: int, names: dict[str, Any]) -> str:
    """Return the expression of CuPy's current stream; its global name is added to `names`."""
    names["current_cupy_stream"] = sys.modules["cupy"].cuda.get_current_stream
    # With an explicit device CuPy does not ask the runtime. With several devices, the answer must be for this thread's
    # current device, so that a launch with another current device is refused.
    return f"current_cupy_stream({device_id if devices.device_count() == 1 else ''})"


def _tuple(expressions: Sequence[str]) -> str:
    return f"({', '.join(expressions)}{',' * (len(expressions) == 1)})"


def _with_own_names(text: str, parameters: Sequence[str], names: dict[str, Any]) -> str:
    """Return `text` with each ``«argument»`` replaced by the plain name.

    Other names in the source that equal a parameter's name are renamed, and their values added to `names`.
    """

    def name(match: re.Match[str]) -> str:
        own, argument = match[0], match[1]
        if argument is not None or own not in parameters:
            return argument or own
        free = f"own_{own}"
        while free in parameters:
            free += "_"
        if own in names or hasattr(builtins, own):
            names[free] = names.get(own, getattr(builtins, own, None))
        return free

    return re.sub(r"«(\w+)»|(?<![\w.])[A-Za-z_]\w*", name, text)
