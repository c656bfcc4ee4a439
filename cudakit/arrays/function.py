"""Functions of arrays that remember how they were called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.repeated import Repeats
from cudakit.jit.launch.dispatch import MISSING


class ArrayFunction(Function):
    """A function of arrays: ``f(*inputs, out=None, stream=None, **options)``, whose calls are frozen.

    Who derives from it has an `ordinary` way for calls that are not, and a `_job` that plans what calls of a new kind
    do.

    Parameters
    ----------
    count : int
        How many arrays it takes.
    **own : object
        Attributes.
    """

    #: Its keywords beside `out` and `stream`, with their defaults.
    _OPTIONS: ClassVar[Mapping[str, Any]]

    _jobs: dict[Any, Any]
    _MOST_JOBS: ClassVar[int] = 4096

    def __new__(cls, count: int, **own: Any) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
            if args and args[-1] is MISSING:
                args = tuple([value for value in args if value is not MISSING])

            def run(stream: Any) -> Any:
                return self.ordinary(args, out, stream, *options)

            if len(args) != count:
                return run(stream)
            named = {**dict(zip(inputs, args, strict=True)), "out": out}
            return repeats.call(named | dict(zip(cls._OPTIONS, options, strict=True)), stream, run, inputs)

        inputs = tuple([f"a{k}" for k in range(count)])
        repeats = Repeats(Frozen(count, ordinary, cls._OPTIONS))
        self = super().__new__(cls, repeats.frozen.function)
        self.__dict__.update(_jobs={}, **own)
        return self

    def ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, *options: Any) -> Any:
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
