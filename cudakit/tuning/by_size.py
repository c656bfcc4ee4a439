"""``kernel.tuned(…)``: a kernel that is tuned at its first call of a size class, and keeps the result."""

from __future__ import annotations

import contextlib
import operator
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cudakit.errors import ArgumentError, CacheWarning, CompileError, LaunchError, shortened
from cudakit.jit.bundle.used import in_use
from cudakit.jit.cache import settings
from cudakit.jit.load.config import Config, Cover
from cudakit.memory.host_arrays import HostArray
from cudakit.places import is_capturing
from cudakit.places import stream as default_stream
from cudakit.streams import devices, process
from cudakit.tuning import kept
from cudakit.tuning.arrays import on_place
from cudakit.tuning.objectives import card_name, units_of
from cudakit.tuning.space import Restrictions, Space, space_of
from cudakit.tuning.tune import Progress, arguments_of, check_options, neighbours, tune
from cudakit.tuning.tuned import Tuned
from cudakit.tuning.variants import Configured, Variants
from cudakit.types.cpp import Pointer

#: Calls that are remembered, each by dtypes and numbers.
_MOST_READY = 4096


class TunedKernel:
    """A kernel that finds its best variant for each size class: ``scale(stream, x, y, 2.0, n)``.

    The first call of a size class takes the kept result, or searches. Later calls launch the best variant. A size class
    has the types of the arguments, the stream's card, and the power of two of each number in `by`.

    `Kernel.tuned` makes it.

    Attributes
    ----------
    results : dict
        Size class → `Tuned`.
    """

    def __init__(
        self,
        kernel: Any,
        space: Mapping[str, Sequence[Any]] | Space,
        by: Sequence[str] = (),
        config: Configured = None,
        where: Restrictions = None,
        arguments: Callable[..., Sequence[Any]] | None = None,
        sizes: Sequence[Any] = (),
        **search: Any,
    ) -> None:
        names = [parameter.name for parameter in kernel.signature.parameters or ()]
        by = (by,) if isinstance(by, str) or not isinstance(by, Sequence) else tuple(by)
        check_options(**search)
        if arguments is not None and not callable(arguments):
            raise ArgumentError(f"arguments is a function of the stream and a size, got {shortened(arguments)}")
        if not isinstance(sizes, Iterable) or isinstance(sizes, str):
            raise ArgumentError(f"sizes is a list of numbers, or of tuples of them; got {shortened(sizes)}")
        if unknown := [name for name in by if name not in names]:
            raise ArgumentError(f"by: {kernel.name} has no parameter {unknown[0]!r}; it has {', '.join(names)}")
        self.kernel, self.by = kernel, by
        self._arguments, self.sizes = arguments, tuple(sizes)
        self._points = space_of(space, where)
        self._variants = Variants(kernel, self._points, config)
        self._search = {"space": space, "config": config, "where": where, **search}
        self._functions = (config, *(getattr(part, "text", part) for part in self._points.where))
        self._numbers = [names.index(name) for name in by]
        parameters = kernel.signature.parameters or ()
        arrays = [number for number, parameter in enumerate(parameters) if isinstance(parameter.type, Pointer)]
        of_config = {*self._numbers, *(names.index(name) for name in self._variants.of_call)}
        shapes, numbers = sorted(of_config & {*arrays}), sorted(of_config - {*arrays})
        #: Returns what decides variant and configuration of a call: dtypes and shapes of arrays, and some numbers.
        self._key: Callable[[Sequence[Any]], Any] = eval(
            f"lambda a: ({''.join(f'a[{n}].dtype, ' for n in arrays)}{''.join(f'a[{n}].shape, ' for n in shapes)}"
            f"{''.join(f'a[{n}], ' for n in numbers)})"
        )
        self._ready: dict[Any, tuple[Any, Config | Cover]] = {}
        self.results: dict[tuple[Any, ...], Tuned] = {}
        #: Size classes whose kept result cannot be launched.
        self._refused: set[tuple[Any, ...]] = set()
        self._lock: Any = process.renewed(self, "_lock", threading.RLock)

    def __repr__(self) -> str:
        return f"<TunedKernel {self.kernel.name}, by {', '.join(self.by) or 'type'}: {len(self.results)} size classes>"

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that pickle refuses, such as a lambda in `config`, it names.
        fixed = {"by": self.by, "arguments": self._arguments, "sizes": self.sizes, **self._search}
        return _tuned_kernel, (self.kernel, fixed)

    def __call__(self, stream: Any, *arguments: Any) -> None:
        try:
            kernel, config = self._ready[type(stream), self._key(arguments)]
        except (KeyError, TypeError, AttributeError, IndexError):
            kernel, config = self._prepared(stream, arguments)
            try:
                kernel(stream, config, *arguments)
                return
            except (LaunchError, CompileError) as error:
                if not self._is_dropped(stream, arguments, error):
                    raise
            kernel, config = self._prepared(stream, arguments)
        kernel(stream, config, *arguments)

    def _is_dropped(self, stream: Any, arguments: Sequence[Any], error: Exception) -> bool:
        """Give up a kept result whose best point cannot be launched. Return whether there was one."""
        size_class = (card_name(stream), *self.size_class(arguments))
        with self._lock:
            result = self.results.get(size_class)
            if result is None or result.ended != "kept":
                return False
            warnings.warn(
                f"{self.kernel.name}: the kept result for {size_class} is not used, since its best point cannot be "
                f"launched here: {error}",
                CacheWarning,
                stacklevel=3,
            )
            self._refused.add(size_class)
            del self.results[size_class]
            self._ready.clear()
        return True

    def size_class(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the size class of a call's arguments: dtypes, and the power of two of each number in `by`."""
        arrays = [value.array if isinstance(value, HostArray) else value for value in arguments]
        types = [str(value.dtype) for value in arrays if getattr(value, "shape", None)]
        return (
            *types,
            *(self._power(name, number, arguments) for name, number in zip(self.by, self._numbers, strict=True)),
        )

    def _power(self, name: str, number: int, arguments: Sequence[Any]) -> int:
        if number >= len(arguments):
            raise ArgumentError(
                f"{self.kernel.name}: by takes {name!r}, which the call leaves out: pass it in the call"
            )
        try:
            return int(operator.index(arguments[number])).bit_length()
        except TypeError:
            value = shortened(arguments[number])
            raise ArgumentError(f"{self.kernel.name}: by takes {name!r}, a whole number; got {value}") from None

    def result(self, stream: Any, *arguments: Any) -> Tuned:
        """Return the result for a call's size class: of this process, kept, or of a search now."""
        size_class = (card_name(stream), *self.size_class(arguments))
        with self._lock:
            if size_class not in self.results:
                self.results[size_class] = self._of_class(stream, arguments, size_class)
            return self.results[size_class]

    def search(
        self,
        stream: Any = None,
        sizes: Sequence[Any] = (),
        progress: Callable[[Progress], None] | None = None,
        **changes: Any,
    ) -> dict[Any, Tuned]:
        """Tune for sizes now, and keep the results.

        Parameters
        ----------
        stream : stream, optional
            Stream of the launches. Default: as for `ck.tune`.
        sizes : sequence
            Sizes, each a number, or a tuple of numbers for several parameters in `by`. Default: those of the kernel.
        progress : callable, optional
            Function that is called after each candidate.
        **changes : object
            Other values of parameters of `ck.tune`, such as ``budget``.

        Raises
        ------
        ArgumentError
            The kernel was made without ``arguments``.
        """
        if self._arguments is None:
            raise ArgumentError(
                f"{self.kernel.name}: there are no arguments to tune with; pass arguments= to tuned, a function of the "
                f"stream{''.join(f' and {name}' for name in self.by)} that returns them"
            )
        stream = default_stream() if stream is None else stream
        results = {}
        for size in sizes or self.sizes or ((),):
            arguments = arguments_of(self._arguments, stream, size)
            others = neighbours(self._arguments, stream, size)
            tuned = self._searched(stream, arguments, progress=progress, others=others, **changes)
            results[size] = self.results[card_name(stream), *self.size_class(arguments)] = tuned
        self._ready.clear()
        return results

    def _prepared(self, stream: Any, arguments: Sequence[Any]) -> tuple[Any, Config | Cover]:
        tuned = self.result(stream, *arguments)
        pair = tuned.kernel, tuned.config(*arguments)
        is_plain = not any(isinstance(value, HostArray) for value in arguments)
        if is_plain and devices.device_count() < 2:
            if len(self._ready) >= _MOST_READY:
                self._ready.clear()
            # An argument that the kernel refuses has no key.
            with contextlib.suppress(TypeError, AttributeError, IndexError):
                self._ready[type(stream), self._key(arguments)] = pair
        return pair

    def _of_class(self, stream: Any, arguments: Sequence[Any], size_class: Sequence[Any]) -> Tuned:
        chosen = settings.tuning()
        first = self._points.first
        if chosen == "off":
            return Tuned.of_point(self._variants, first, "CUDAKIT_TUNE is off")
        is_usable = tuple(size_class) not in self._refused
        keys = self._keys_of_record(stream, arguments)
        candidates = kept.read(keys, self.kernel, self._points) if is_usable else None
        if candidates:
            return Tuned(self._variants, candidates, units_of(self._search.get("objective"), stream), "kept", {}, {})
        never = in_use(self.kernel.options.bundle).never
        if never or chosen == "kept" or is_capturing(stream):
            reason = "CUDAKIT_TUNE is kept" if chosen == "kept" else "the stream is being captured"
            reason = "a bundle with compile='never' is in use" if never else reason
            warnings.warn(
                f"{self.kernel.name} has no kept result for {size_class} and {reason}: the first point of the space is "
                "used",
                CacheWarning,
                stacklevel=4,
            )
            return Tuned.of_point(self._variants, first, reason)
        return self._searched(stream, arguments)

    def _searched(self, stream: Any, arguments: Sequence[Any], **changes: Any) -> Tuned:
        """Search, and keep the result."""
        tuned: Tuned = tune(self.kernel, arguments, stream=stream, **{**self._search, **changes})
        best = tuned.kernel.specialization_of(stream, *on_place(arguments, stream)[0])
        keys = self._keys_of_record(stream, arguments)
        record = kept.record_of(tuned, self._points, best, stream, keys.portable)
        # A winner that was not confirmed, as after Ctrl-C, is good for this process only.
        if record is not None and tuned.confirmed:
            kept.records_of(self.kernel).merge(keys.here, record)
        return tuned

    def _keys_of_record(self, stream: Any, arguments: Sequence[Any]) -> kept.Keys:
        name = ", ".join(units_of(self._search.get("objective"), stream))
        here = on_place(arguments, stream)[0]
        specialization = self._variants.kernel(self._points.first).specialization_of(stream, *here)
        return kept.Keys(specialization, self._points, self._functions, self.size_class(arguments), name, stream)


def _tuned_kernel(kernel: Any, fixed: Mapping[str, Any]) -> TunedKernel:
    """Make a tuned kernel again, in another process."""
    return TunedKernel(kernel, **fixed)
