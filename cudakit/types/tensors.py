"""Arrays that a tile kernel takes as tensors: the layout that the compiler knows, and the bytes that are passed."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Final

from cudakit.records import NamedTuple

#: Alignment in bytes of addresses and pitches that TMA needs, the GPU's copy engine for tiles.
ALIGN: Final = 16
#: Largest number of elements that are compared one by one.
_MOST_COUNTED: Final = 1 << 16
#: Greatest 32-bit index.
MOST: Final = 2**31 - 1


class TensorLayout(NamedTuple):
    """The part of an array's layout that code is compiled for: ``cudakit::tensor_layout``.

    Attributes
    ----------
    unit : int
        Axis of stride 1; -1 for none.
    align : int
        Divisor, in bytes, of the address and all other strides, or 1.
    whole : bool
        Whether the bytes along `unit` are a multiple of `align` too.
    wide : bool
        Whether strides need more than 32 bits.
    """

    unit: int = -1
    align: int = 1
    whole: bool = False
    wide: bool = False

    @property
    def stride_type(self) -> str:
        """C++ type of the strides, ``int`` or ``long long``."""
        return "long long" if self.wide else "int"

    @property
    def cpp(self) -> str:
        return f"::cudakit::tensor_layout<{self.unit}, {self.align}, {str(self.whole).lower()}, {self.stride_type}>"

    @property
    def shown(self) -> str:
        """Description of the layout, for errors."""
        rows = f"elements side by side along {'no axis' if self.unit < 0 else f'axis {self.unit}'}"
        aligned = f", address and pitches multiples of {self.align} bytes" if self.align > 1 else ""
        return f"{rows}{aligned}{', as are its rows' if self.whole else ''}"

    def sizes(self, rank: int) -> tuple[int, ...]:
        """Return the bytes of each number in the kernel argument: the address, `rank` extents, `rank` strides."""
        return (8, *[4] * rank, *[8 if self.wide else 4] * rank)

    def size(self, rank: int) -> int:
        """Return the bytes of the kernel argument for a tensor of `rank` axes, padding included."""
        return self.offsets(rank)[-1] + (8 if self.wide else 4)

    def offsets(self, rank: int) -> tuple[int, ...]:
        """Return the byte offsets of the passed numbers in the kernel argument.

        Order of the numbers: the address, the extents, the strides.
        """
        strides = 8 + 4 * rank
        strides += -strides % 8 if self.wide else 0
        size = 8 if self.wide else 4
        return (0, *(8 + 4 * axis for axis in range(rank)), *(strides + size * axis for axis in range(rank)))


def plain_layout(rank: int) -> TensorLayout:
    """Return the layout of most arrays: the last axis contiguous, rows of multiples of 16 bytes, 32-bit strides."""
    return TensorLayout(rank - 1, ALIGN, True)


def layout_of(shape: Sequence[int], strides: Sequence[int], address: int, itemsize: int) -> TensorLayout:
    """Return the layout of an array that lets the compiler optimize most.

    Parameters
    ----------
    shape, strides : sequence of int
        Shape and strides, in elements.
    address : int
        Address of the first element.
    itemsize : int
        Bytes of an element.
    """
    if 0 in shape:
        return TensorLayout()  # TMA takes no empty arrays
    counted = sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    # The compiler computes positions in 64 bits anyway; with 64-bit strides it uses no TMA.
    wide = any(stride > MOST for stride, _ in counted)
    # No two elements share memory, and none lies before the first.
    apart = all(stride > 0 for stride, _ in counted) and all(
        after >= stride * extent for (stride, extent), (after, _) in itertools.pairwise(counted)
    )
    axes = [axis for axis in reversed(range(len(shape))) if strides[axis] == 1 or shape[axis] == 1]
    if apart and address % ALIGN == 0:
        for axis in axes:
            pitches = (strides[k] * itemsize for k in range(len(shape)) if k != axis and shape[k] > 1)
            if not any(pitch % ALIGN for pitch in pitches):
                return TensorLayout(axis, ALIGN, shape[axis] * itemsize % ALIGN == 0, wide)
    return TensorLayout(axes[0] if axes else -1, wide=wide)


def overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements of an array may share memory.

    The answer is exact for arrays whose axes nest, and for arrays of few elements.

    Parameters
    ----------
    shape, strides : sequence of int
        Shape and strides, in elements.
    """
    if 0 in shape:
        return False
    span = 0
    counted = sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    for stride, extent in counted:
        if stride <= span:
            break
        span += stride * (extent - 1)
    else:
        return False
    count = math.prod(shape)
    if count > _MOST_COUNTED:
        return True
    places = itertools.product(
        *(range(0, stride * extent, stride) if stride else [0] * extent for stride, extent in counted)
    )
    return len({sum(place) for place in places}) < count


def fits(layout: TensorLayout, shape: Sequence[int], strides: Sequence[int], address: int, itemsize: int) -> bool:
    """Return whether code compiled for `layout` is correct for an array.

    Parameters
    ----------
    layout : TensorLayout
        Layout that the code assumes.
    shape, strides : sequence of int
        Shape of the array, and its strides in elements.
    address : int
        Address of the first element.
    itemsize : int
        Bytes of an element.
    """
    own = layout_of(shape, strides, address, itemsize)
    if own.wide > layout.wide or own.align < layout.align or own.whole < layout.whole:
        return False
    return layout.unit in (-1, own.unit) or (layout.align == 1 and strides[layout.unit] == 1)


def passed_strides(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Sequence[int]:
    """Return the strides that are passed for an array.

    The stride of an axis of extent 1 has no meaning. It is replaced by a stride that all code accepts.
    """
    if min(shape) > 1:
        return strides
    if 0 in shape:
        return [0] * len(shape)
    part = max(1, ALIGN // max(1, itemsize))
    span = 1 + sum(stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True))
    beyond = -(-min(span, MOST - ALIGN) // part) * part
    return [stride if extent > 1 else beyond for stride, extent in zip(strides, shape, strict=True)]


def packer(rank: int, layout: TensorLayout) -> Callable[..., bytes]:
    """Return a function ``pack(address, *extents, *strides)`` that returns the bytes of the kernel argument."""
    padding = "4x" if layout.wide and rank % 2 else ""
    return struct.Struct(f"<Q{rank}i{padding}{rank}{'q' if layout.wide else 'i'}").pack
