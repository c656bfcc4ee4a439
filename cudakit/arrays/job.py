"""What calls of one kind do, decided at the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.layout import flat
from cudakit.arrays.place import ArrayPlace
from cudakit.jit.load.config import Config
from cudakit.kernel.kernel import Kernel


class Launch(NamedTuple):
    """A launch of a kernel that goes through its arrays in one of several ways.

    Attributes
    ----------
    how : str
        The way, a type of the templates'.
    config : Config
    scratch_bytes : int
        Memory that the kernel works with, beside its arrays.
    layout : numpy.void
        The kernel's argument of that name.
    """

    how: str
    config: Config
    scratch_bytes: int
    layout: Any


class Job(NamedTuple):
    """Results of a shape and dtypes and, where they have elements, the launch that makes them.

    Attributes
    ----------
    shape : tuple of int
    dtypes : tuple of numpy.dtype
    kernel, config
        None where there is nothing to launch.
    scratch_bytes : int
        Memory that the kernel works with, beside its arrays.
    numbers : tuple
        The kernel's last arguments, the same for all calls of the kind.
    views : tuple or None
        Of each array what `flat` needs; None where all are given as they are.
    first : Kernel or None
        What is launched before, with the same arguments.
    kept_bytes : int
        What the first one leaves for the other.
    most : int or None
        Of indices, the greatest there may be.
    """

    shape: tuple[int, ...]
    dtypes: tuple[np.dtype, ...] = ()
    kernel: Kernel | None = None
    config: Config | None = None
    scratch_bytes: int = 0
    numbers: tuple[Any, ...] = ()
    views: tuple[tuple[int, int] | None, ...] | None = None
    first: Kernel | None = None
    kept_bytes: int = 0
    most: int | None = None

    def run(self, place: ArrayPlace, *arrays: Any) -> None:
        """Launch on arrays alone, if there is anything to launch."""
        if self.kernel is not None:
            seen = arrays if self.views is None else self.seen(arrays)
            place.launch(self.kernel, self.config, *seen, *self.numbers)

    def seen(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The arrays as the kernel takes them."""
        if self.views is None:
            return arrays
        return [x if view is None else flat(x, *view) for x, view in zip(arrays, self.views, strict=True)]


def views_or_none(views: Sequence[tuple[int, int] | None]) -> tuple[tuple[int, int] | None, ...] | None:
    """`Job.views` of arrays."""
    return tuple(views) if any(view is not None for view in views) else None
