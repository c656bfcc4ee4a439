"""Arrays as tiles: views, and which elements of memory a tile of one is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.emulator.tile.boxes import Box, box_of
from cudakit.emulator.tile.decode import Block, Decoder, Ended, Step, operation, pure
from cudakit.emulator.tile.values import dtype_of, element_dtype
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, TensorView, View

#: Types of elements of which two lie in a byte, the first one in its low half.
HALF_BYTES: Final = ("f4E2M1FN", "i4")


class Tensor(NamedTuple):
    """An array in memory: its address, extents, and strides in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str


class Tiles(NamedTuple):
    """A view of an array as tiles."""

    view: View
    tensor: Tensor


# ── views ──


@operation("make_tensor_view")
def _tensor_view(given: Operation, decoder: Decoder) -> Step:
    (made,), (result,) = given.types, given.results
    assert isinstance(made, TensorView)
    base, *dynamic = given.operands

    def step(block: Block) -> Ended:
        left = iter([int(block.values[number]) for number in dynamic])
        shape, strides = (
            tuple(next(left) if each is None else each for each in row) for row in (made.shape, made.strides)
        )
        block.values[result] = Tensor(int(block.values[base]), shape, strides, made.element)
        return None

    return step


@operation("make_partition_view", "make_strided_view", "make_gather_scatter_view")
def _tiles(given: Operation, decoder: Decoder) -> Step:
    (made,) = given.types
    assert isinstance(made, View)
    return pure(given, lambda tensor: Tiles(made, tensor))


@operation("get_tensor_shape", "get_index_space_shape")
def _extents(given: Operation, decoder: Decoder) -> Step:
    (source,), results = given.operands, given.results
    dtypes = [dtype_of(each) for each in given.types]

    def step(block: Block) -> Ended:
        found = block.values[source]
        if isinstance(found, Tiles):
            view = found.view
            shape = [
                -(-found.tensor.shape[axis] // step) for axis, step in zip(view.dimensions, view.steps, strict=True)
            ]
        else:
            shape = list(found.shape)
        for result, extent, dtype in zip(results, shape, dtypes, strict=True):
            block.values[result] = np.asarray(extent, dtype)
        return None

    return step


def window(
    block: Block, tiles: Tiles, indices: list[Any], promised: Sequence[int], use: int
) -> tuple[Box, tuple[slice, ...] | None] | None:
    """A tile's elements that are inside the array, as a box, and which part of the tile they are; None for all of it.

    None alone where they have to be found one by one: what is gathered, and what is in no single allocation.

    Raises
    ------
    EmulationError
        For a promise to be inside that does not hold.
    """
    view, tensor = tiles
    if view.sparse is not None or tensor.element in HALF_BYTES:
        return None
    size = element_dtype(tensor.element).itemsize
    address, shape, strides, part, whole = tensor.address, [], [], [], True
    for axis, (extent, index) in enumerate(zip(view.tile, indices, strict=True)):
        dimension = view.dimensions[axis]
        most, stride = tensor.shape[dimension], tensor.strides[dimension] * size
        start = int(index) * view.steps[axis]
        low, high = max(start, 0), min(start + extent, most)
        if low > start or high < start + extent:
            if promised and promised[axis]:
                raise _reaches_over(start, start + extent - 1, dimension, most)
            whole = False
            if high <= low:
                raise _lies_outside(int(index), start, start + extent - 1, dimension, most)
        address += low * stride
        shape.append(high - low)
        strides.append(stride)
        part.append(slice(low - start, high - start))
    box = box_of(block.memory, address, tuple(shape), tuple(strides), size, use)
    if box is None:
        return None
    block.accessed(box, size, use)
    return box, None if whole else tuple(part)


def _reaches_over(low: int, high: int, dimension: int, most: int) -> EmulationError:
    return EmulationError(
        f"the tile's elements {low} to {high} of dimension {dimension}, which has {most}, are not all "
        "inside: load_masked and store_masked are for tiles that reach over the end"
    )


def _lies_outside(index: int, low: int, high: int, dimension: int, most: int) -> EmulationError:
    return EmulationError(
        f"tile {index} has elements {low} to {high} of dimension {dimension}, which has {most}: it lies wholly "
        "outside, which is undefined even for load_masked and store_masked"
    )


def positions(given: Operation, tiles: Tiles, indices: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
    """Addresses of a tile's elements, and which of them are inside the array; None for all.

    Of elements of 4 bits the addresses count these.

    Raises
    ------
    EmulationError
        For a promise to be inside that does not hold.
    """
    view, tensor = tiles
    size, start = element_dtype(tensor.element).itemsize, tensor.address
    if tensor.element in HALF_BYTES:
        start *= 2
    promised = given.attributes.get("inbounds") or (0,) * len(view.tile)
    addresses: Any = np.int64(0)
    inside: Any = None
    for axis, (extent, index) in enumerate(zip(view.tile, indices, strict=True)):
        dimension = view.dimensions[axis]
        if view.sparse == axis:
            position = np.asarray(index, np.int64)
        else:
            position = int(index) * view.steps[axis] + np.arange(extent, dtype=np.int64)
        most = tensor.shape[dimension]
        shape = [1] * len(view.tile)
        shape[axis] = -1
        low, high = (int(position.min()), int(position.max())) if position.size else (0, 0)
        if view.sparse != axis and (high < 0 or low >= most):
            raise _lies_outside(low // extent, low, high, dimension, most)
        if low < 0 or high >= most:
            if promised[axis]:
                raise _reaches_over(low, high, dimension, most)
            within = ((position >= 0) & (position < most)).reshape(shape)
            inside = within if inside is None else inside & within
        addresses = addresses + position.reshape(shape) * (tensor.strides[dimension] * size)
    addresses = np.broadcast_to(addresses + np.int64(start), view.tile).astype(np.int64).view(np.uint64)
    return addresses, None if inside is None else np.broadcast_to(inside, view.tile)
