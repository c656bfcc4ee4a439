"""A call on the same arrays as the last one, which was checked in full: for ops that are as short as a launch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from cudakit.arrays.place import Place


class Again:
    """The last call of an op, known by its arrays: CuPy lets nobody rebind an array's memory or dtype.

    What may change, their shapes and the current stream, is looked at. Other arrays take the full way.
    """

    def __init__(self) -> None:
        self._seen: tuple[Any, ...] | None = None

    def run(self, *arrays: Any) -> bool:
        """Launch as the last time, if these are its arrays; whether they are."""
        seen = self._seen
        if seen is None:
            return False
        known, current, stream, kernel, config, numbers = seen
        if len(known) != len(arrays) or current() is not stream:
            return False
        for array, (reference, shape, strides) in zip(arrays, known, strict=True):
            if reference() is not array or array.shape != shape or array.strides != strides:
                return False
        kernel(stream, config, *arrays, *numbers)
        return True

    def remember(
        self, place: Place, kernel: Callable[..., None], config: Any, numbers: tuple[Any, ...], *arrays: Any
    ) -> None:
        """Take note of a launch on C-contiguous arrays, on CuPy's current stream."""
        if not place.current or any(type(array).__module__.partition(".")[0] != "cupy" for array in arrays):
            return
        known = tuple((weakref.ref(array), array.shape, array.strides) for array in arrays)
        self._seen = known, place.xp.cuda.get_current_stream, place.stream, kernel, config, numbers
