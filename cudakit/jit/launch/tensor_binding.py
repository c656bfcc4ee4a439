"""Tensor parameters of tile kernels: whether the code is correct for an array, and the passed bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cudakit.jit.specialise.specialise import BoundParameter, PartPromise
from cudakit.types.tensors import ALIGN, MOST, TensorLayout, fits, layout_of, overlaps_itself, packer, passed_strides

#: Maximum of cached layouts of a parameter.
_MOST_LAYOUTS: Final = 64


class TensorBinding:
    """The arrays that a tensor parameter of a specialization accepts.

    Parameters
    ----------
    parameter : BoundParameter
        The tensor parameter.
    itemsize : int
        Bytes of an element.
    step : int
        Unit of the strides for `pack`: 1 for elements, `itemsize` for bytes.
    """

    def __init__(self, parameter: BoundParameter, itemsize: int, step: int) -> None:
        self._parameter, self._itemsize, self._step = parameter, itemsize, step
        self._layout: TensorLayout = parameter.layout or TensorLayout()
        self._packed = packer(parameter.count, self._layout)
        self._promises = [promise for promise in parameter.promises if not self._is_known(promise)]
        self._modulus: int = math.lcm(ALIGN, *(promise.divisor for promise in self._promises if promise.part == 0))
        self._numbers_by_layout: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}

    def refusal(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> str:
        """Return the reason why an array is refused, or an empty text. The strides are in elements."""
        own = self._refusal(address, shape, strides)
        if own or fits(self._layout, shape, strides, address, self._itemsize):
            return own
        return f"the launch is for arrays that lie in another way, {self._layout.shown}"

    def _refusal(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> str:
        for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
            if extent > MOST:
                return f"its extent along axis {axis} is {extent}, and a tile kernel takes at most {MOST}"
            if extent > 1 and stride < 0:
                return f"its stride along axis {axis} is {stride}, and a tile kernel takes no reversed axes: copy it"
            if extent > 1 and stride == 0 and not self._parameter.const:
                return f"it may be written, and its stride along axis {axis} is 0: copy it, or take const T"
        if not self._parameter.const and overlaps_itself(shape, strides):
            return f"it may be written, and its elements overlap (strides {tuple(strides)}): copy it, or take const T"
        for part, divisor, low, high in self._promises:
            number = (address, *shape, *passed_strides(shape, strides, self._itemsize))[part]
            wrong = f"a multiple of {divisor}" if number % divisor else ""
            wrong = wrong or (f"at least {low}" if low is not None and number < low else "")
            wrong = wrong or (f"at most {high}" if high is not None and number > high else "")
            if wrong:
                group, axis = divmod(part - 1, len(shape))
                part_name = f"{('extent', 'stride')[group]} along axis {axis}" if part else "address"
                return f"its {part_name} is {number}: the kernel assumes that it is {wrong}"
        return ""

    def _is_known(self, promise: PartPromise) -> bool:
        """Return whether tile code's assumption holds for every array of this layout. It then needs no check."""
        part, divisor, low, high = promise
        if high is not None or (low or 0) > 0:
            return False
        layout, (group, axis) = self._layout, divmod(part - 1, self._parameter.count)
        if part == 0:
            return divisor <= layout.align
        is_multiple = axis != layout.unit if group else axis == layout.unit and layout.whole
        return divisor <= (max(1, layout.align // self._itemsize) if is_multiple else 1)

    def pack(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes | None:
        """Return the bytes passed to the kernel for an array: its address, extents and strides.

        Return None if the array has another `TensorLayout` than the kernel was compiled for (which axis is contiguous,
        alignment), or is refused. Any shape and strides with this layout are accepted. `strides` are in the unit of
        `step`.
        """
        key = address % self._modulus, shape, strides
        try:
            numbers = self._numbers_by_layout[key]
        except KeyError:
            numbers = self._numbers(address, shape, [stride // self._step for stride in strides])
            if len(self._numbers_by_layout) >= _MOST_LAYOUTS:
                self._numbers_by_layout.clear()
            self._numbers_by_layout[key] = numbers
        return None if numbers is None else self._packed(address, *numbers)

    def _numbers(self, address: int, shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...] | None:
        """Return the extents and strides that are passed for an array; None for another layout, and for refused arrays.

        `strides` are in elements. Arrays that differ only in the address share these numbers.
        """
        if layout_of(shape, strides, address, self._itemsize) != self._layout or self._refusal(address, shape, strides):
            return None
        return *shape, *passed_strides(shape, strides, self._itemsize)
