"""Arrays that a tile kernel takes whole: what the compiler is told of how they lie, and the bytes that are passed.

Tile C++ passes no structs, so a ``cudakit::tensor`` parameter is flattened:

- The reader notes where such parameters stand in the source (``signature.TensorHead``).
- ``specialise.edits_of`` replaces each by an address, extents and strides, and makes the array where the body begins.
  `Specialization.own_text` is the result.
- The layout of an array (`layout_of`) is part of its ``Evidence``, so each layout is a specialization.
- In calls ``bind.WholeArray`` compares the layout. An array of another layout goes to another shape of the call, or to
  the full check.
- Compiled code has `BoundParameter.parts` parameters for one array.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: Bytes that addresses and pitches must be multiples of for the card's engine for tiles, TMA.
ALIGN: Final = 16
#: Elements up to which an array's are looked at one by one.
_MOST_COUNTED: Final = 1 << 16
#: What a 32-bit index holds.
MOST: Final = 2**31 - 1


class TensorLayout(NamedTuple):
    """What is known of an array's layout when it is compiled for: ``cudakit::tensor_layout``.

    Attributes
    ----------
    unit : int
        The axis whose elements lie side by side; -1 for none.
    align : int
        Bytes that the address and all other strides are multiples of, or 1.
    whole : bool
        Whether the bytes along `unit` are a multiple of that too.
    wide : bool
        Whether strides are beyond 32 bits.
    """

    unit: int = -1
    align: int = 1
    whole: bool = False
    wide: bool = False

    @property
    def stride_type(self) -> str:
        """The C++ type of strides."""
        return "long long" if self.wide else "int"

    @property
    def cpp(self) -> str:
        return f"::cudakit::tensor_layout<{self.unit}, {self.align}, {str(self.whole).lower()}, {self.stride_type}>"

    @property
    def shown(self) -> str:
        """In words, for errors."""
        rows = f"elements side by side along {'no axis' if self.unit < 0 else f'axis {self.unit}'}"
        aligned = f", address and pitches multiples of {self.align} bytes" if self.align > 1 else ""
        return f"{rows}{aligned}{', as are its rows' if self.whole else ''}"

    def sizes(self, rank: int) -> tuple[int, ...]:
        """Bytes of what is passed: the address, the extents, the strides."""
        return (8, *[4] * rank, *[8 if self.wide else 4] * rank)

    def size(self, rank: int) -> int:
        """Bytes of the whole."""
        return self.offsets(rank)[-1] + (8 if self.wide else 4)

    def offsets(self, rank: int) -> tuple[int, ...]:
        """Where each of them lies in the bytes of the whole."""
        strides = 8 + 4 * rank
        strides += -strides % 8 if self.wide else 0
        size = 8 if self.wide else 4
        return (0, *(8 + 4 * axis for axis in range(rank)), *(strides + size * axis for axis in range(rank)))


def plain_layout(rank: int) -> TensorLayout:
    """That of most arrays: contiguous, with rows of multiples of 16 bytes."""
    return TensorLayout(rank - 1, ALIGN, True)


def layout_of(shape: Sequence[int], strides: Sequence[int], address: int, itemsize: int) -> TensorLayout:
    """The layout of an array, as the compiler can use most of it.

    Parameters
    ----------
    shape, strides : sequence of int
        In elements.
    address : int
    itemsize : int
        Bytes of an element.
    """
    if 0 in shape:
        return TensorLayout()  # TMA takes no empty arrays
    counted = sorted((stride, extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1)
    # Positions are 64 bits all the same, as the compiler multiplies; with strides of so many it takes no TMA.
    wide = any(stride > MOST for stride, _ in counted)
    # No element lies where another does, nor before the first.
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
    """Whether two elements of an array may be one; sure for arrays whose axes nest, and for those of few elements.

    Parameters
    ----------
    shape, strides : sequence of int
        In elements.
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
    """Whether code for a layout is right for an array."""
    own = layout_of(shape, strides, address, itemsize)
    if own.wide > layout.wide or own.align < layout.align or own.whole < layout.whole:
        return False
    return layout.unit in (-1, own.unit) or (layout.align == 1 and strides[layout.unit] == 1)


def passed_strides(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Sequence[int]:
    """The strides that are passed: of a single element they mean nothing, and are such as all code takes."""
    if min(shape) > 1:
        return strides
    if 0 in shape:
        return [0] * len(shape)
    part = max(1, ALIGN // max(1, itemsize))
    span = 1 + sum(stride * (extent - 1) for stride, extent in zip(strides, shape, strict=True))
    beyond = -(-min(span, MOST - ALIGN) // part) * part
    return [stride if extent > 1 else beyond for stride, extent in zip(strides, shape, strict=True)]


def packer(rank: int, layout: TensorLayout) -> Callable[..., bytes]:
    """A function from address, extents and strides, those that are passed, to their bytes."""
    padding = "4x" if layout.wide and rank % 2 else ""
    return struct.Struct(f"<Q{rank}i{padding}{rank}{'q' if layout.wide else 'i'}").pack
