"""Functions of arrays that remember how they were called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter
from typing import Any, ClassVar, Self

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.repeated import Repeats
from cudakit.jit.launch.dispatch import MISSING
from cudakit.types.parameters_shown import ShownSignature, keywords


class ArrayFunction(Function):
    """A function of arrays: ``f(*inputs, out=None, stream=None, **options)``, whose calls are frozen.

    Who derives from it has an `_ordinary` way for calls that are not, and a `_job` that plans what calls of a new kind
    do.

    Parameters
    ----------
    name : str
    takes : sequence of str
        Names of the arrays that it takes.
    outputs : sequence of str
        Names of those that may be given after them.
    **own : object
        Attributes.
    """

    #: Its keywords beside `out` and `stream`, with their defaults.
    _OPTIONS: ClassVar[Mapping[str, Any]]

    __signature__: ShownSignature = ShownSignature(lambda self: self._shown_parameters())
    __name__: str
    _jobs: dict[Any, Any]
    _takes: tuple[str, ...]
    _outputs: tuple[str, ...]
    _MOST_JOBS: ClassVar[int] = 4096

    def __new__(cls, name: str, takes: Sequence[str], outputs: Sequence[str] = (), **own: Any) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
            if args and args[-1] is MISSING:
                args = tuple([value for value in args if value is not MISSING])

            def run(stream: Any) -> Any:
                return self._ordinary(args, out, stream, *options)

            if len(args) != count:
                return run(stream)
            named = {**dict(zip(inputs, args, strict=True)), "out": out}
            return repeats.call(named | dict(zip(cls._OPTIONS, options, strict=True)), stream, run, inputs)

        count = len(takes)
        inputs = tuple([f"a{k}" for k in range(count)])
        repeats = Repeats(Frozen(count, ordinary, cls._OPTIONS))
        self = super().__new__(cls, repeats.frozen.function)
        self.__dict__.update(_jobs={}, __name__=name, _takes=tuple(takes), _outputs=tuple(outputs), **own)
        return self

    def _shown_parameters(self) -> Iterable[Parameter]:
        for name in self._takes:
            yield Parameter(name, Parameter.POSITIONAL_ONLY)
        for name in self._outputs:
            yield Parameter(name, Parameter.POSITIONAL_ONLY, default=None)
        yield from keywords({"out": None, "stream": None, **self._OPTIONS})

    def _ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
        """What a call does that is not frozen, all in its `ArrayPlace`; inputs are the kernels' first arguments."""
        raise NotImplementedError

    def _job(self, *of: Any) -> Any:
        """What calls of one kind do."""
        raise NotImplementedError

    def _job_of(self, key: Any, *of: Any) -> Any:
        """The job of calls that are alike in `key`, made of `of` where that is new."""
        job = self._jobs.get(key)
        if job is None:
            if len(self._jobs) >= self._MOST_JOBS:
                self._jobs.clear()
            job = self._jobs[key] = self._job(*of)
        return job
