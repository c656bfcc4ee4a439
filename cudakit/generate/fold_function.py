"""What functions made by `reduction` and `scan` have in common: kernels, and what calls of one kind do."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from cudakit.arrays.frozen import Frozen, Function
from cudakit.arrays.made import Launched
from cudakit.errors import CompileError
from cudakit.generate.fold_arguments import Given, Kernels, Target, misread
from cudakit.jit.launch.dispatch import MISSING
from cudakit.jit.specialise.options import CompileOptions

_MOST_JOBS = 4096


class Folded(Function):
    """A function of arrays that combines their elements.

    Who derives from it has a `_call`, which a call comes to that is not frozen, and which asks `_done`; that plans by
    `_job` what calls of a new kind do, and does it by `_run`.
    """

    #: What it is called, and its keywords beside `out` and `stream`.
    _KIND: ClassVar[str]
    _OPTIONS: ClassVar[Mapping[str, Any]]

    recipe: Any
    options: CompileOptions
    _kernels: Kernels
    _jobs: dict[Any, Any]

    def __new__(cls, recipe: Any, options: CompileOptions | None = None) -> Self:
        def ordinary(args: tuple[Any, ...], out: Any, stream: Any, *rest: Any) -> Any:
            if args and args[-1] is MISSING:
                args = tuple([value for value in args if value is not MISSING])
            return self._call(args, out, stream, frozen, *rest)

        frozen = Frozen(len(recipe.of.inputs), ordinary, cls._OPTIONS)
        self = super().__new__(cls, frozen.function)
        options = options or CompileOptions()
        kernels = Kernels(recipe.of, functools.partial(cls._text, recipe), options)
        self.__dict__.update(recipe=recipe, options=options, _kernels=kernels, _jobs={})
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe, self.options)

    def __repr__(self) -> str:
        of = self.recipe.of
        inputs, outputs = (", ".join(map(str, each)) for each in (of.inputs, of.outputs))
        return f"<cudakit.{self._KIND} {of.name}: {inputs} → {outputs}>"

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel, for inputs that are arrays."""
        return self._text(self.recipe, frozenset())

    def _done(self, key: Any, given: Given, outs: Any, *options: Any) -> tuple[Any, list[Target], Launched | None]:
        """The job of calls like this one, made where `key` is new; where the outputs went; and what was launched.

        Raises
        ------
        CompileError
            Placed in the expression.
        """
        job = self._jobs.get(key)
        try:
            if job is None:
                job = self._job(given, *options)
                if len(self._jobs) >= _MOST_JOBS:
                    self._jobs.clear()
                self._jobs[key] = job
            return job, *self._run(job, given, outs)
        except CompileError as error:
            raise misread(self.recipe.of, error, self._names()) from None

    @staticmethod
    def _text(recipe: Any, numbers: frozenset[str]) -> str:
        """CUDA C++ of the kernel, where those inputs are numbers."""
        raise NotImplementedError

    def _call(self, args: tuple[Any, ...], out: Any, stream: Any, calls: Frozen, *options: Any) -> Any:
        raise NotImplementedError

    def _job(self, given: Given, *options: Any) -> Any:
        raise NotImplementedError

    def _run(self, job: Any, given: Given, outs: Any) -> tuple[list[Target], Launched | None]:
        raise NotImplementedError

    def _names(self) -> dict[str, tuple[str, ...]]:
        """The names that each part of the expression has."""
        raise NotImplementedError
