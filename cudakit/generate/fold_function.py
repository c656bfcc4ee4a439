"""What functions made by `reduction` and `scan` have in common: kernels, and what calls of one kind do."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Self

from cudakit.arrays.function import ArrayFunction
from cudakit.arrays.output import Target
from cudakit.errors import CompileError
from cudakit.generate.call import Given
from cudakit.generate.fold_arguments import Kernels, misread
from cudakit.jit.specialise.options import CompileOptions, options_of


class Folded(ArrayFunction):
    """A function of arrays that combines their elements.

    Who derives from it has an `_ordinary` way, which asks `_done`; that plans by `_job` what calls of a new kind do,
    and does it by `_run`.
    """

    #: What it is called.
    _KIND: ClassVar[str]

    recipe: Any
    options: CompileOptions
    _kernels: Kernels

    def __new__(cls, recipe: Any, options: CompileOptions | None = None) -> Self:
        options = options_of(recipe.of.name, options)
        kernels = Kernels(recipe.of, functools.partial(cls._text, recipe), options)
        return super().__new__(
            cls, recipe.of.name, [p.name for p in recipe.of.inputs], recipe=recipe, options=options, _kernels=kernels
        )

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

    def _done(self, key: Any, given: Given, outs: Any, *options: Any) -> list[Target]:
        """Do what calls like this one do, which is decided where `key` is new; where the outputs went.

        Raises
        ------
        CompileError
            Placed in the expression.
        """
        try:
            job = self._job_of(key, given, *options)
            return self._run(job, given, outs)
        except CompileError as error:
            raise misread(self.recipe.of, error, self._names()) from None

    @staticmethod
    def _text(recipe: Any, numbers: frozenset[str]) -> str:
        """CUDA C++ of the kernel, where those inputs are numbers."""
        raise NotImplementedError

    def _run(self, job: Any, given: Given, outs: Any) -> list[Target]:
        raise NotImplementedError

    def _names(self) -> dict[str, tuple[str, ...]]:
        """The names that each part of the expression has."""
        raise NotImplementedError
