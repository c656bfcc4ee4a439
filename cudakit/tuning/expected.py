"""Expected results of tuned launches, and whether a candidate's results are right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cudakit.errors import ArgumentError
from cudakit.tuning.arrays import Difference, Outputs


class Expected:
    """The expected contents of the arrays that a kernel writes.

    Each candidate runs twice: on the caller's contents, and on poison, which holds no result of a run before.

    Parameters
    ----------
    outputs : Outputs
        Copies of the arrays that the kernel writes.
    check : callable, array, sequence of array or None
        Expected outputs, or a function of host copies of the arguments that returns them. None: those of the first run.
    reference : callable, optional
        Launches another kernel on the arguments of `outputs`, whose results are expected.
    tolerance : float, optional
        Relative error that is right for floating-point numbers.
    """

    def __init__(
        self, outputs: Outputs, check: Any, reference: Callable[[], None] | None, tolerance: float | None
    ) -> None:
        self._outputs, self._check, self._tolerance = outputs, check, tolerance
        self._original: dict[int, Any] | None = None
        #: Expected contents after a run on poison; None if the results depend on the original contents.
        self._poisoned: dict[int, Any] | None = None
        self._is_known = False
        if reference is not None:
            self._original, self._poisoned = self._results(reference)
            self._is_known = True
        elif check is not None:
            self._original = self._of_caller()

    def difference(self, run: Callable[[], None]) -> Difference | None:
        """Run a candidate and return the first element that is wrong, or None."""
        original, poisoned = self._results(run)
        if self._original is None:
            self._original, self._poisoned, self._is_known = original, poisoned, True
            return None
        if difference := self._first(self._original, original):
            return difference
        if not self._is_known:
            self._learn(poisoned)
        return None if self._poisoned is None else self._first(self._poisoned, poisoned)

    def _learn(self, poisoned: dict[int, Any]) -> None:
        """Find out by a right candidate whether results depend on the original contents of the outputs."""
        assert self._original is not None
        self._is_known = True
        if self._first(self._original, poisoned) is None:
            self._poisoned = self._original
        elif self._outputs.first_difference(self._original, None, self._tolerance) is None:
            raise ArgumentError(
                "the arrays hold the expected results before the launch, so that a kernel that writes nothing would be "
                "right: pass arrays with other contents"
            )

    def _results(self, run: Callable[[], None]) -> tuple[dict[int, Any], dict[int, Any]]:
        pair = []
        for prepare in (self._outputs.restore, self._outputs.poison):
            prepare()
            run()
            pair.append(self._outputs.results())
        return pair[0], pair[1]

    def _first(self, expected: dict[int, Any], results: dict[int, Any]) -> Difference | None:
        return self._outputs.first_difference(expected, results, self._tolerance)

    def _of_caller(self) -> dict[int, Any]:
        """Return the caller's expected outputs by the number of the argument, checked."""
        arrays = self._check
        if callable(arrays):
            try:
                arrays = arrays(*self._outputs.host_arguments())
            except Exception as error:
                error.add_note("This comes from check=, called with host copies of all arguments.")
                raise
        arrays = list(arrays) if isinstance(arrays, tuple | list) else [arrays]
        names = self._outputs.names
        if any(array is None for array in arrays):
            raise ArgumentError(f"check returned None: return the expected contents of {', '.join(names.values())}")
        if len(arrays) != len(names):
            raise ArgumentError(
                f"check: expected {len(names)} arrays, for {', '.join(names.values())}; got {len(arrays)}"
            )
        return {number: self._outputs.like(number, array) for number, array in zip(names, arrays, strict=True)}
