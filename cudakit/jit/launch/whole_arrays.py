"""An array that a tile kernel takes whole: whether its code is right for it, and the bytes that are passed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cudakit.jit.specialise.parameters import BoundParameter, PartPromise
from cudakit.types.tensors import ALIGN, MOST, TensorLayout, fits, layout_of, overlaps_itself, packer, passed_strides

#: How many shapes and strides are known of one parameter.
_MOST_KNOWN: Final = 64


class WholeArray:
    """What one parameter of one specialization takes.

    Parameters
    ----------
    parameter : BoundParameter
        A tensor.
    itemsize : int
        Bytes of an element.
    step : int
        What strides are counted in where they are given to `pack`: 1 for elements, `itemsize` for bytes.
    """

    def __init__(self, parameter: BoundParameter, itemsize: int, step: int) -> None:
        self._parameter, self._itemsize, self._step = parameter, itemsize, step
        self._layout: TensorLayout = parameter.layout or TensorLayout()
        self._packed = packer(parameter.count, self._layout)
        self._promises = [promise for promise in parameter.promises if not self._is_known(promise)]
        self._modulus: int = math.lcm(ALIGN, *(promise.divisor for promise in self._promises if promise.part == 0))
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], tuple[int, ...] | None] = {}

    def refusal(self, address: int, shape: Sequence[int], strides: Sequence[int]) -> str:
        """Why an array cannot be given, in words; empty where it can."""
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
                kind, axis = divmod(part - 1, len(shape))
                what = f"{('extent', 'stride')[kind]} along axis {axis}" if part else "address"
                return f"its {what} is {number}: the kernel takes for granted that it is {wrong}"
        return ""

    def _is_known(self, promise: PartPromise) -> bool:
        """Whether it holds for all arrays of the layout, and all that are not refused."""
        part, divisor, low, high = promise
        if high is not None or (low or 0) > 0:
            return False
        layout, (kind, axis) = self._layout, divmod(part - 1, self._parameter.count)
        if part == 0:
            return divisor <= layout.align
        is_multiple = axis != layout.unit if kind else axis == layout.unit and layout.whole
        return divisor <= (max(1, layout.align // self._itemsize) if is_multiple else 1)

    def pack(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes | None:
        """What is passed for an array of just this layout; None for others, and for what is refused."""
        key = address % self._modulus, shape, strides
        try:
            numbers = self._known[key]
        except KeyError:
            numbers = self._numbers(address, shape, [stride // self._step for stride in strides])
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = numbers
        return None if numbers is None else self._packed(address, *numbers)

    def _numbers(self, address: int, shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...] | None:
        """What is passed after the address; the same for all arrays that differ in nothing but that."""
        if layout_of(shape, strides, address, self._itemsize) != self._layout or self._refusal(address, shape, strides):
            return None
        return *shape, *passed_strides(shape, strides, self._itemsize)
