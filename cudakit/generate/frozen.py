"""Calls that were made before, frozen into Python code that goes straight to the driver.

A call that is made again with the same kinds of arguments needs no deduction, broadcasting or planning: what is left of
it is a condition over its arguments and one launch, which `dispatch` does for kernels, and this module for functions of
arrays that are made of one kernel. Frozen calls rest on what the kernel's own dispatcher has settled, its stream, its
configuration and that nothing need be ordered: they end with it.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from types import FunctionType
from typing import Any, NamedTuple

from cudakit import devices
from cudakit.dispatch import _SETTLED, MISSING, evaluate
from cudakit.kernel import Kernel
from cudakit.launch import CallShape

#: Frozen calls that are tried, newest first; how often a call is made before it is frozen, and again where it could not
#: be; and calls frozen in all.
_MOST_FROZEN, _SEEN_BEFORE, _LATER, _MOST_MADE = 4, 2, 64, 64
_MOST_SEEN = 1024
_serials = count()


class Made(NamedTuple):
    """A call that was made: what it launched, and with which of the caller's arguments.

    Attributes
    ----------
    key : object
        Tells calls of one kind from others; where outputs were given, the same arrays from others.
    kernel, stream, config : object
        As they were launched.
    passed : tuple
        Arguments of the kernel.
    given : tuple of (str or None, int)
        For each of them what it was made from: the caller's argument (an expression of the generated function, None for
        a constant, ``"new"`` for a new array) and how many bytes before its first element the kernel's memory begins.
    owners : tuple
        The caller's arguments themselves; None for a constant.
    outs : tuple
        The arrays given for outputs, or None.
    """

    key: Any
    kernel: Kernel
    stream: Any
    config: Any
    passed: tuple[Any, ...]
    given: tuple[tuple[str | None, int], ...]
    owners: tuple[Any, ...]
    outs: tuple[Any, ...] | None


class Frozen:
    """The generated function of a function of arrays.

    Parameters
    ----------
    inputs : int
        How many positional arguments it takes.
    outputs : int
    ordinary : callable
        ``ordinary(arguments, out, where, stream, size)``: what a call does that is not frozen.
    """

    def __init__(self, inputs: int, outputs: int, ordinary: Callable[..., Any]) -> None:
        self.inputs, self.outputs = inputs, outputs
        self._seen: dict[Any, int] = {}
        self._attempts: list[tuple[Any, list[str]]] = []
        self._made = 0
        self._lock = threading.Lock()
        self._names: dict[str, Any] = {"MISSING": MISSING, "ordinary": ordinary}
        self.function = self._compiled()

    def is_due(self, key: Any) -> bool:
        """Take note of a call; whether it has come often enough to be frozen."""
        if key is None or self._made >= _MOST_MADE:
            return False
        seen = self._seen[key] = self._seen.get(key, 0) + 1
        if seen > _SEEN_BEFORE:
            self._seen[key] = 0
            return True
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return False

    def freeze(self, made: Made) -> None:
        """Take the short way for calls like this one from now on, if it is settled."""
        found = _settled(made)
        if found is None:
            self._seen[made.key] = -_LATER
            return
        with self._lock:
            self._made += 1
            lines = self._attempt(made, *found)
            others = [entry for entry in self._attempts if entry[0] != made.key]
            self._attempts = [(made.key, lines), *others[: _MOST_FROZEN - 1]]
            function = self._compiled()
            self.function.__defaults__, self.function.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
            self.function.__code__ = function.__code__

    def _compiled(self) -> FunctionType:
        arguments = ", ".join(f"a{k}=MISSING" for k in range(self.inputs))
        listed = "".join(f"a{k}, " for k in range(self.inputs))
        head = f"{arguments}, /, " if arguments else ""
        lines = [f"def call({head}*more, out=None, where=None, stream=None, size=None):"]
        if self._attempts:
            lines += [" if stream is None and where is None and size is None and not more:", "  try:"]
            lines += [f"   {line}" for _, attempt in self._attempts for line in attempt]
            # Whatever an argument lacks, the ordinary way says it better.
            lines += ["  except Exception:", "   pass"]
        lines.append(f" return ordinary(({listed}*more,), out, where, stream, size)")
        made: dict[str, Any] = {}
        exec(compile("\n".join(lines), "<call of an elementwise function>", "exec"), self._names, made)
        function: FunctionType = made["call"]
        return function

    def _attempt(self, made: Made, shape: CallShape, settled: tuple[Any, ...]) -> list[str]:
        """Lines that make the call if the arguments fit it."""
        serial, names = next(_serials), self._names
        cupy = sys.modules["cupy"]
        names["current"] = cupy.cuda.get_current_stream
        names[f"D{serial}"] = made.kernel._dispatcher._namespace.get
        names[f"S{serial}"] = settled
        names[f"L{serial}"], names[f"K{serial}"] = shape.run, shape.loaded.kernel
        names[f"O{serial}"], names[f"R{serial}"], names[f"X{serial}"] = settled[2], settled[3], settled[4]
        device = shape.device_id if devices.device_count() == 1 else ""
        settled_still = f'D{serial}("H{shape.serial}") is S{serial} and current({device}) is X{serial}'
        several = self.outputs > 1
        if made.outs is not None:
            given = f"out.__class__ is tuple and len(out) == {self.outputs}" if several else "out is not None"
            guards, values, _ = self._arguments(made, shape, serial, known=True)
            return [
                f"if {' and '.join([given, settled_still, *guards])}:",
                f" L{serial}(O{serial}, R{serial}, K{serial}, {', '.join(values)})",
                " return out",
            ]
        lines = [f"if out is None and {settled_still}:"]
        # With several streams only arrays that the dispatcher knows need no ordering, and a new one is not known.
        for known in (True, False):
            guards, values, news = self._arguments(made, shape, serial, known)
            found = ", ".join(line.partition(" ")[0] for line in news)
            lines += [
                f" if {' and '.join(guards) or 'True'}:",
                *(f"  {line}" for line in news),
                f"  L{serial}(O{serial}, R{serial}, K{serial}, {', '.join(values)})",
                f"  return {f'({found})' if several else found}",
            ]
        return lines

    def _arguments(
        self, made: Made, shape: CallShape, serial: int, known: bool
    ) -> tuple[list[str], list[str], list[str]]:
        """Conditions on the arguments, what the kernel is given for them, and lines that make new arrays.

        `known`: the arrays are those of `made` themselves; else they are like those.
        """
        names, guards, values, news = self._names, [], [], []
        for k, (fragment, value, (source, below), owner) in enumerate(
            zip(shape.fragments, made.passed, made.given, made.owners, strict=True)
        ):
            prefix = f"k{serial}_{k}_"
            if source is None:
                names[f"{prefix}value"] = evaluate(fragment, value)
                values.append(f"{prefix}value")
            elif source == "new":
                names[f"{prefix}shape"], names[f"{prefix}dtype"] = owner.shape, owner.dtype
                names["empty"] = sys.modules["cupy"].ndarray
                news.append(f"n{k} = empty({prefix}shape, {prefix}dtype)")
                values.append(f"n{k}.data.ptr")
            elif not isinstance(owner, sys.modules["cupy"].ndarray):
                names.update({f"{prefix}{key}": constant for key, constant in fragment.constants.items()})
                guards.append(fragment.guard.format(a=source, k=prefix))
                text = fragment.value.format(a=source, k=prefix)
                if owner.__class__ is float and text != source:
                    # The same float object, as a constant of a loop is: its bits are known.
                    names[f"{prefix}last"], names[f"{prefix}bits"] = owner, evaluate(fragment, owner)
                    text = f"{prefix}bits if {source} is {prefix}last else {text}"
                values.append(text)
            else:
                guards += _array_guards(names, prefix, source, owner, known)
                if known:
                    names[f"{prefix}value"] = owner.data.ptr - below
                    values.append(f"{prefix}value")
                else:
                    values.append(f"{source}.data.ptr" + (f" - {below}" if below else ""))
        return guards, values, news


def _array_guards(names: dict[str, Any], prefix: str, source: str, owner: Any, known: bool) -> list[str]:
    """Conditions under which an argument is the array `owner`, or (not `known`) one like it.

    CuPy lets nobody rebind an array's memory or dtype. Its shape may be set, which leaves every element with its
    row-major number where it is: where the shape is the same, so are the strides.
    """
    guards = []
    if known:
        names[f"{prefix}same"] = weakref.ref(owner)
        # The answer of a dead reference is None.
        guards.append(f"{prefix}same() is {source} is not None")
    else:
        names[f"{prefix}dtype"], names[f"{prefix}class"] = owner.dtype, type(owner)
        # A structured dtype may be equal and another object.
        same = "is" if owner.dtype.names is None else "=="
        guards += [f"{source}.__class__ is {prefix}class", f"{source}.dtype {same} {prefix}dtype"]
        if devices.device_count() > 1:
            guards.append(f"{source}.data.device_id == {owner.data.device_id}")
    if owner.ndim == 1:
        guards.append(f"{source}.size == {owner.size} and {source}.ndim == 1")
    else:
        names[f"{prefix}shape"] = owner.shape
        guards.append(f"{source}.shape == {prefix}shape")
    if not known and owner.flags.c_contiguous:
        guards.append(f"{source}._c_contiguous")
    elif not known:
        names[f"{prefix}strides"] = owner.strides
        guards.append(f"{source}.strides == {prefix}strides")
    return guards


def _settled(made: Made) -> tuple[CallShape, tuple[Any, ...]] | None:
    """The shape that a call was launched with, and what it is settled with; None where it is not settled."""
    dispatcher = made.kernel._dispatcher
    for shape in dispatcher.shapes:
        settled = dispatcher._namespace.get(f"H{shape.serial}")
        if settled is None or settled[0] is not made.stream or settled[1] is not made.config:
            continue
        if len(shape.fragments) != len(made.passed) or set(shape.families) - {"cupy", "number", "struct"}:
            continue
        if not all(_fits(fragment, value) for fragment, value in zip(shape.fragments, made.passed, strict=True)):
            continue
        if settled[_SETTLED - 1]:
            return shape, settled
        # With several streams only arrays that the dispatcher knows by identity need no ordering.
        remembered = [reference() for reference in settled[_SETTLED::2]]
        if made.outs is not None and all(
            any(value is other for other in remembered)
            for value, family in zip(made.passed, shape.families, strict=True)
            if family == "cupy"
        ):
            return shape, settled
    return None


def _fits(fragment: Any, value: Any) -> bool:
    names = {f"k_{key}": constant for key, constant in fragment.constants.items()}
    try:
        return bool(eval(fragment.guard.format(a="a", k="k_"), {**names, "a": value}))
    except (AttributeError, TypeError):
        return False


def sources(inputs: Sequence[Any], outputs: int, outs: Sequence[Any]) -> list[str]:
    """The expressions by which the generated function has its arguments: inputs, then outputs."""
    named = [f"a{k}" for k in range(len(inputs))]
    if all(out is None for out in outs):
        return [*named, *["new"] * outputs]
    return [*named, *(["out"] if outputs == 1 else [f"out[{k}]" for k in range(outputs)])]
