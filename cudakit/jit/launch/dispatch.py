"""Generated functions: the checks of a kernel's call shapes, frozen into Python code.

A `Dispatcher` holds one generated function per kernel. The function tries the call shapes seen so far, newest first:
each is a condition over the arguments' types and dtypes, then one call of ``cuda.core.launch``. What fits none goes
to the full check, which raises or adds a shape. This is how `dataclasses` makes ``__init__``, and for the same reason:
what is known once need not be looked up on each call.

Two things make the common call cheap. On the stream and configuration of the last call, while the process has used
one stream only, nothing is ordered or resolved. And CuPy arrays that were given last time are known by identity, held
by weak references: their dtype, layout and address cannot have changed.
"""

from __future__ import annotations

import functools
import keyword
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cudakit.jit.launch.launch import CallShape, launch_ordered, ranges_of
from cudakit.jit.launch.repeat import Repeat, repeating
from cudakit.jit.load.config import as_config, is_empty
from cudakit.streams import devices
from cudakit.streams import witnesses as work
from cudakit.streams.order.order import order
from cudakit.streams.streams import Known, current_streams, known

if TYPE_CHECKING:
    from cuda.core import LaunchConfig

#: Call shapes tried by the generated function; the oldest is dropped from it, and checked in full when it returns.
_MOST_SHAPES = 8
#: How often the remembered arrays of a shape may die and be replaced before identity is no longer tried.
_MOST_RENEWALS = 64
#: How many things are said of a settled shape before its arrays (see `settled_name`): stream and configuration as
#: given, stream and configuration as launched, CuPy's and torch's current stream, and whether any arguments that fit
#: may go straight, or those only that are known by identity.
SETTLED = 7
#: On how many streams, and with how many first arrays, a shape is known to be launched.
_MOST_REPEATS = 32


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING = _Missing()


def settled_name(shape: CallShape) -> str:
    """Where `Dispatcher.names` has what lets a shape go straight to the driver.

    That is a tuple, another one whenever something changes: `SETTLED` things, then a weak reference and the value for
    each argument in `shape.fixed`.
    """
    return f"H{shape.serial}"


def _check_all(stream: Any, config: Any, /, *arguments: Any, **named: Any) -> None:
    """What a dispatcher runs before there is any shape; its globals are the dispatcher's own."""
    return check(stream, config, arguments, None, **named)  # type: ignore[name-defined, no-any-return]  # noqa: F821


class Dispatcher:
    """The generated function of one kernel, and the call shapes in it.

    Parameters
    ----------
    name : str
        Kernel name, for tracebacks.
    parameters : sequence of str
        Names of the kernel's parameters, which become keywords of the function.
    check : callable
        ``check(stream, config, arguments, reason)``: the full check, for calls that fit no shape.

    Attributes
    ----------
    shapes : list of CallShape
        Newest first.
    names : dict
        What the function's global names stand for.
    """

    def __init__(self, name: str, parameters: Sequence[str], check: Callable[..., None]) -> None:
        self.shapes: list[CallShape] = []
        self.parameters = _python_names(parameters)
        self._file = f"<launch of {name}>"
        self._lock = threading.Lock()
        self.names: dict[str, Any] = {
            "MISSING": MISSING,
            "check": check,
            "middle": self.middle,
            "renew": self.renew,
            "_id": id,
        }
        # Code is generated for the first call shape; until then every call is checked in full.
        self.function = FunctionType(_check_all.__code__, self.names, name)
        order().watch(self)
        work.add_shortcut(self)

    def watch(self, watched: bool) -> None:
        """While there are witnesses no launch goes straight to the driver: they would not hear of it."""
        if watched:
            self.unsettle()

    def add(self, shape: CallShape) -> None:
        """Try `shape` first from now on."""
        with self._lock:
            dropped = self.shapes[_MOST_SHAPES - 1 :]
            self.shapes = [shape, *self.shapes[: _MOST_SHAPES - 1]]
            names = self.names
            serial = shape.serial
            for index, fragment in enumerate(shape.fragments):
                names.update({f"k{serial}_{index}_{key}": value for key, value in fragment.constants.items()})
            # Names carry the shape's serial number and are never used again: a thread that is in the middle of the
            # old code cannot pick up another shape's kernel.
            names.update({f"P{serial}": shape, f"L{serial}": shape.run, f"K{serial}": shape.loaded.kernel})
            names[settled_name(shape)] = _unsettled(shape)
            names[f"R{serial}"] = {}
            if "cupy" in shape.families:
                names["current"] = sys.modules["cupy"].cuda.get_current_stream
            if "torch" in shape.families:
                names["torch_current"] = sys.modules["torch"]._C._cuda_getCurrentRawStream
            made: dict[str, Any] = dict(names)
            exec(compile(self._generate(), self._file, "exec"), made)
            # The function object stays: whoever holds it runs the new code from the next call on.
            self.function.__defaults__ = made["call"].__defaults__
            self.function.__code__ = made["call"].__code__
            for old in dropped:
                for key in (f"{letter}{old.serial}" for letter in "PLKHR"):
                    names.pop(key, None)

    def middle(
        self, shape: CallShape, stream: Any, config: Any, values: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        """Launch a known shape on another stream or configuration than the last: ordered, and with limits checked."""
        target = known(stream)
        if target.device_id != shape.device_id or devices.is_forked():
            self.names["check"](stream, config, tuple(arguments), None)
            return
        if devices.device_count() > 1:
            with devices.on_device(shape.device_id):
                self._launch(shape, target, config, values, arguments)
        else:
            self._launch(shape, target, config, values, arguments)

    def _launch(
        self, shape: CallShape, target: Known, config: Any, values: Sequence[Any], arguments: Sequence[Any]
    ) -> None:
        given, launched = shape.config
        if given is not config:
            wanted = as_config(config)
            if is_empty(wanted):
                return
            resolved = shape.loaded.launch_config(wanted, shape.device_id)
            # A LaunchConfig can be changed after the call: the driver is given the user's own, never a stale copy.
            launched = resolved if wanted is config else config
            shape.config = (config, launched)
        ordered = order()
        with ordered.lock:
            use = launch_ordered(shape, target, launched, values, arguments)
            if work.watched() or shape.named:
                return
            if use is not None and use.event is not None:
                self._repeat(shape, target, config, launched, values, arguments, settled=False)
                return
            may_settle = (devices.device_count() == 1 or shape.libraries) and (ordered.single or shape.is_fixed)
            if may_settle and ordered.settle(use, self):
                self._settle(shape, target, config, launched, values, arguments)

    def _settle(
        self,
        shape: CallShape,
        target: Known,
        config: Any,
        launched: LaunchConfig,
        values: Sequence[Any],
        arguments: Sequence[Any],
    ) -> None:
        """Let `shape` go straight to the driver on this stream and configuration, which need no ordering.

        With several streams that holds for these very arrays only.
        """
        single = order().single
        key = settled_name(shape)
        if key in self.names:
            settled = (target.given, config, target.core, launched, *_current(shape), single)
            self.names[key] = settled + _memo(shape, values, arguments)
        if not single:
            self._repeat(shape, target, config, launched, values, arguments, settled=True)

    def _repeat(
        self,
        shape: CallShape,
        target: Known,
        config: Any,
        launched: LaunchConfig,
        values: Sequence[Any],
        arguments: Sequence[Any],
        settled: bool,
    ) -> None:
        """Let `shape` go without a full look on this stream too, once the same arrays have come twice."""
        repeats = self.names.get(f"R{shape.serial}")
        if repeats is None or not shape.fixed or not shape.is_fixed or devices.device_count() > 1:
            return
        key = id(target.given), id(arguments[shape.fixed[0]])
        once = (config, *(id(arguments[i]) for i in shape.fixed))
        if shape.once.get(key) != once:
            if len(shape.once) >= _MOST_REPEATS:
                shape.once.clear()
                repeats.clear()
            shape.once[key] = once
            return
        go = None
        if not settled:
            found = order().repeatable(target, *ranges_of(shape, values, arguments))
            if found is None:
                return
            producers = current_streams(shape.libraries, shape.device_id)
            foreign = tuple(handle for handle in producers if handle != target.handle)
            cool = functools.partial(repeats.pop, key, None)
            given, kernel = (target.given, config), shape.loaded.kernel
            made = Repeat(shape, given, target.core, launched, shape.run, kernel, *found, foreign, self.middle, cool)
            go = repeating(order(), made)
        # The stream as given is kept too, so that no other object can have its identity.
        known_again = (target.given, config, target.core, launched, *_current(shape), go)
        repeats[key] = known_again + _memo(shape, values, arguments)

    def renew(self, shape: CallShape, values: Sequence[Any], arguments: Sequence[Any]) -> None:
        """Remember other arrays, once those remembered are gone; arrays that live for one call only end this soon."""
        shape.renewals += 1
        key = settled_name(shape)
        remembered = _memo(shape, values, arguments) if shape.renewals < _MOST_RENEWALS else _no_memo(shape)
        self.names[key] = self.names[key][:SETTLED] + remembered

    def unsettle(self) -> None:
        """No shape may skip the ordering any more; each settles again at its next launch that needs none."""
        for shape in list(self.shapes):
            self.names[settled_name(shape)] = _unsettled(shape)
            self.names[f"R{shape.serial}"].clear()

    def _generate(self) -> str:
        parameters = "".join(f"{name}=MISSING, " for name in self.parameters)
        lines = [f"def call(stream, config, /, {parameters}*extra):", " try:"]
        for shape in self.shapes:
            lines += self._attempt(shape)
        lines += ["  reason = None", " except Exception as error:", "  reason = error"]
        lines.append(f" return check(stream, config, ({_listed(self.parameters)}*extra,), reason)")
        return "\n".join(lines)

    def _attempt(self, shape: CallShape) -> list[str]:
        """Lines that launch `shape` if the arguments fit it."""
        serial, fixed = shape.serial, shape.fixed
        arguments = [f"extra[{i - len(self.parameters)}]" for i in range(len(shape.fragments))]
        arguments[: len(self.parameters)] = self.parameters[: len(shape.fragments)]
        guards, values = [], []
        for index, (fragment, argument) in enumerate(zip(shape.fragments, arguments, strict=True)):
            prefix = f"k{serial}_{index}_"
            guard = fragment.guard.format(a=argument, k=prefix)
            if len(self.shapes) > 1 and shape.families[index] in ("cupy", "torch"):
                # A guard must not raise where a later shape could fit.
                guard = f"{argument}.__class__ is {prefix}class and {guard}"
            guards.append(guard)
            values.append(fragment.value.format(a=argument, k=prefix))
        surplus = len(shape.fragments) - len(self.parameters)
        count = f"len(extra) == {surplus}" if surplus > 0 else "not extra"
        fits = " and ".join([*guards, count])
        settled = ["config is _c"]
        if "cupy" in shape.families:
            # Naming the device spares CuPy a question to the runtime; where there are several, the answer must be for
            # the device that is current in this thread, so that a launch with another one current is not let through.
            device = shape.device_id if devices.device_count() == 1 else ""
            settled.append(f"current({device}) is _x")
        if "torch" in shape.families:
            settled.append(f"torch_current({shape.device_id}) == _t")
        launch = f"return L{serial}(_o, _r, K{serial}, "
        # Settled stream and configuration and remembered arrays lie in one tuple, which is replaced as a whole: a
        # thread in the middle of a call never sees half of a change.
        lines = [
            f"  _s, _c, _o, _r, _x, _t, _f, {_listed(f'_w{i}, _p{i}' for i in fixed)}= {settled_name(shape)}",
            f"  if stream is _s and {' and '.join(settled)}:",
        ]
        if fixed:
            # The answer of a dead reference is None, which is also what a null pointer is given as.
            same = [f"_w{i}() is {arguments[i]} is not None" if i in fixed else guards[i] for i in range(len(guards))]
            known_values = [f"_p{i}" if i in fixed else values[i] for i in range(len(values))]
            lines += [
                f"   if {' and '.join([*same, count])}:",
                f"    {launch}{_listed(known_values)})",
            ]
        lines.append(f"   if _f and {fits}:")
        if fixed:
            renew = f"renew(P{serial}, ({_listed(values)}), ({_listed(arguments)}))"
            lines += [f"    if _w{fixed[0]}() is None:", f"     {renew}"]
        repeats = []
        if fixed and shape.is_fixed:
            # On the second of several streams, and on those whose launches wait for each other.
            repeats = [
                f"  _l = R{serial}.get((_id(stream), _id({arguments[fixed[0]]}))) if R{serial} else None",
                "  if _l is not None:",
                f"   _s, _c, _o, _r, _x, _t, _g, {_listed(f'_w{i}, _p{i}' for i in fixed)}= _l",
                f"   if {' and '.join([*settled, *same, count])}:",
                "    if _g is None:",
                f"     {launch}{_listed(known_values)})",
                f"    return _g(({_listed(known_values)}), ({_listed(arguments)}))",
            ]
        return [
            *lines,
            f"    {launch}{_listed(values)})",
            *repeats,
            f"  if {fits}:",
            f"   return middle(P{serial}, stream, config, ({_listed(values)}), ({_listed(arguments)}))",
        ]


def _listed(expressions: Iterable[str]) -> str:
    return "".join(f"{expression}, " for expression in expressions)


def _current(shape: CallShape) -> tuple[Any, Any]:
    """CuPy's and torch's current streams, where the shape has arrays of theirs."""
    cupy_stream = sys.modules["cupy"].cuda.get_current_stream() if "cupy" in shape.families else None
    torch_stream = None
    if "torch" in shape.families:
        torch_stream = sys.modules["torch"]._C._cuda_getCurrentRawStream(shape.device_id)
    return cupy_stream, torch_stream


def _memo(shape: CallShape, values: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    """For each argument whose identity says all, a weak reference and what is passed for it."""
    return tuple(item for i in shape.fixed for item in (weakref.ref(arguments[i]), values[i]))


def _no_memo(shape: CallShape) -> tuple[Any, ...]:
    return (_nobody, 0) * len(shape.fixed)


def _nobody() -> object:
    """Where a memo has no array: the answer of a weak reference that no argument can be."""
    return _NOTHING


def _unsettled(shape: CallShape) -> tuple[Any, ...]:
    """What a shape has before it is settled: a stream that nobody gives."""
    return (_NOTHING, *[None] * (SETTLED - 1), *_no_memo(shape))


_NOTHING = object()
_GENERATED = frozenset(
    {"stream", "config", "extra", "reason", "error", "check", "call", "middle", "renew", "current", "torch_current"}
    | {"type", "len", "Exception", "MISSING", "_s", "_c", "_o", "_r", "_x", "_t", "_f", "_g", "_l", "_id"}
)


def _python_names(parameters: Sequence[str]) -> tuple[str, ...]:
    """Parameter names usable as Python's: distinct, no keywords, and none of the generated code's own."""
    result: list[str] = []
    for position, name in enumerate(parameters):
        usable = name if name.isidentifier() and not keyword.iskeyword(name) else f"parameter{position}"
        while usable in _GENERATED or usable in result:
            usable += "_"
        result.append(usable)
    return tuple(result)
