"""Memory operations of tile kernels: loads, stores, views, atomic operations, variables, printf and assert."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE
from cudakit.emulator.tile.decode import Block, Form, acts, computes
from cudakit.emulator.tile.values import Box, box_of, dtype_of, element_dtype, padding, unsigned, wide
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import TensorView, View

#: Element types with two elements in a byte, the first one in its low half.
HALF_BYTES: Final = ("f4E2M1FN", "i4")


class Tensor(NamedTuple):
    """An array in memory: its address, its extents, its strides in elements, and its element type."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element: str


class Tiles(NamedTuple):
    """A view of an array as tiles: the view's type, and the array."""

    view: View
    tensor: Tensor


# ── views ──


@acts("make_tensor_view")
def _tensor_view(form: Form, block: Block, base: Any, *dynamic: Any) -> Tensor:
    (result_type,), left = form.types, iter(map(int, dynamic))
    assert isinstance(result_type, TensorView)
    shape, strides = (
        tuple(next(left) if extent is None else extent for extent in row)
        for row in (result_type.shape, result_type.strides)
    )
    return Tensor(int(base), shape, strides, result_type.element)


@computes("make_partition_view", "make_strided_view", "make_gather_scatter_view")
def _tiles(form: Form, tensor: Tensor) -> Tiles:
    (result_type,) = form.types
    assert isinstance(result_type, View)
    return Tiles(result_type, tensor)


@acts("get_tensor_shape", "get_index_space_shape")
def _extents(form: Form, block: Block, source: Tensor | Tiles) -> list[np.ndarray]:
    shape: Sequence[int]
    if isinstance(source, Tiles):
        view = source.view
        shape = [-(-source.tensor.shape[axis] // by) for axis, by in zip(view.dimensions, view.steps, strict=True)]
    else:
        shape = source.shape
    return [np.asarray(extent, dtype_of(of)) for extent, of in zip(shape, form.types, strict=True)]


def window(
    block: Block, tiles: Tiles, indices: Sequence[Any], promised: Sequence[int], use: int
) -> tuple[Box, tuple[slice, ...] | None] | None:
    """Return the part of a tile that is inside the array, as a box of memory and the slices of this part in the tile.

    `indices` is the tile's position in the view. `promised` has a truth for each axis: whether the kernel promises that
    the tile is inside; empty: none. `use` is the kind of access, which is recorded. The slices are None if the whole
    tile is inside. The result is None if each element needs an address of its own: for gathers, for elements of 4 bits,
    and for arrays in no single allocation.

    Raises
    ------
    EmulationError
        For a tile that is promised to be inside and is not, or that is wholly outside.
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


def positions(tiles: Tiles, indices: Sequence[Any], promised: Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the addresses of a tile's elements, and a flag for each: whether it is inside the array; None if all are.

    `indices` is the tile's position in the view. `promised` has a truth for each axis: whether the kernel promises that
    the tile is inside; empty: none. For elements of 4 bits the addresses count half bytes.

    Raises
    ------
    EmulationError
        For a tile that is promised to be inside and is not, or that is wholly outside.
    """
    view, tensor = tiles
    size, start = element_dtype(tensor.element).itemsize, tensor.address
    if tensor.element in HALF_BYTES:
        start *= 2
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
            if promised and promised[axis]:
                raise _reaches_over(low, high, dimension, most)
            within = ((position >= 0) & (position < most)).reshape(shape)
            inside = within if inside is None else inside & within
        addresses = addresses + position.reshape(shape) * (tensor.strides[dimension] * size)
    addresses = np.broadcast_to(addresses + np.int64(start), view.tile).astype(np.int64).view(np.uint64)
    return addresses, None if inside is None else np.broadcast_to(inside, view.tile)


_PRINTED: Final = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|t|j)?[diouxXeEfFgGaAcsp%]")


def _stored(dtype: np.dtype) -> np.dtype:
    """Return the dtype that elements of a dtype have in memory: uint8 for bool, any other dtype unchanged."""
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def _get(
    block: Block, addresses: np.ndarray, dtype: np.dtype, mask: np.ndarray | None, pad: Any, strong: bool
) -> np.ndarray:
    """Load elements at addresses; an element whose `mask` is false becomes `pad`."""
    chosen = addresses.reshape(-1) if mask is None else addresses[mask]
    stored = _stored(dtype)
    elements = block.memory.load("global", chosen.copy(), stored, None, strong) if chosen.size else np.empty(0, stored)
    if mask is None:
        return elements.reshape(addresses.shape).astype(dtype, copy=False)
    result = np.array(np.broadcast_to(pad, addresses.shape), dtype)
    result[mask] = elements
    return result


def _put(block: Block, addresses: np.ndarray, value: np.ndarray, mask: np.ndarray | None, strong: bool) -> None:
    value = np.broadcast_to(value, addresses.shape)
    value = value.astype(np.uint8) if value.dtype == np.bool_ else value
    chosen, elements = (addresses.reshape(-1), value.reshape(-1)) if mask is None else (addresses[mask], value[mask])
    if chosen.size:
        block.memory.store("global", chosen.copy(), np.ascontiguousarray(elements), None, strong)


def _get_halves(
    block: Block, halves: np.ndarray, dtype: np.dtype, mask: np.ndarray | None, pad: Any, strong: bool
) -> np.ndarray:
    """Load elements of 4 bits, two in a byte, at addresses in half bytes."""
    raw = _get(block, halves >> np.uint64(1), np.dtype(np.uint8), mask, 0, strong)
    elements = (np.where(halves & np.uint64(1), raw >> 4, raw) & np.uint8(15)).view(dtype)
    return elements if mask is None else np.where(mask, elements, pad)


def _put_halves(block: Block, halves: np.ndarray, value: np.ndarray, mask: np.ndarray | None, strong: bool) -> None:
    raw = np.ascontiguousarray(np.broadcast_to(value, halves.shape)).view(np.uint8) & np.uint8(15)
    for is_high in (False, True):
        chosen = (halves & np.uint64(1) == is_high) & (True if mask is None else mask)
        old = _get(block, halves >> np.uint64(1), np.dtype(np.uint8), chosen, 0, strong)
        merged = (old & 0x0F) | (raw << 4) if is_high else (old & 0xF0) | raw
        _put(block, halves >> np.uint64(1), merged, chosen, strong)


@acts("load_view_tko")
def _load_view(form: Form, block: Block, tiles: Tiles, *indices: Any) -> np.ndarray:
    dtype, stored, use = form.dtype, _stored(form.dtype), STRONG_READ if form.is_strong else READ
    box = None if form.acquires else window(block, tiles, indices, form.promised, use)
    if box is not None:
        elements, part = box[0].array(stored), box[1]
        if part is None:
            return elements.copy().astype(dtype, copy=False)
        result = np.full(tiles.view.tile, padding(tiles.view.padding or "zero", dtype), stored)
        result[part] = elements
        return result.astype(dtype, copy=False)
    addresses, inside = positions(tiles, indices, form.promised)
    pad = 0 if inside is None else padding(tiles.view.padding or "zero", dtype)
    get = _get_halves if tiles.tensor.element in HALF_BYTES else _get
    result = get(block, addresses, dtype, inside, pad, form.is_strong)
    if form.acquires:
        block.acquired(addresses)
    return result


@acts("store_view_tko")
def _store_view(form: Form, block: Block, value: np.ndarray, tiles: Tiles, *indices: Any) -> None:
    use = STRONG_WRITE if form.is_strong else WRITE
    box = None if form.releases else window(block, tiles, indices, form.promised, use)
    if box is not None:
        value, part = np.broadcast_to(value, tiles.view.tile), box[1]
        box[0].array(_stored(value.dtype))[...] = value if part is None else value[part]
        return
    addresses, inside = positions(tiles, indices, form.promised)
    if form.releases:
        block.released(addresses)
    put = _put_halves if tiles.tensor.element in HALF_BYTES else _put
    put(block, addresses, value, inside, form.is_strong)


def _mask(form: Form, block: Block, addresses: np.ndarray) -> np.ndarray | None:
    """Return the operation's mask: a flag for each of the addresses; None if it accesses all."""
    mask = form.optional(block, "mask")
    return None if mask is None else np.broadcast_to(mask, addresses.shape)


@acts("load_ptr_tko")
def _load(form: Form, block: Block, addresses: np.ndarray) -> np.ndarray:
    mask = _mask(form, block, addresses)
    result = _get(block, addresses, form.dtype, mask, form.optional(block, "padding", 0), form.is_strong)
    if form.acquires:
        block.acquired(addresses if mask is None else addresses[mask])
    return result


@acts("store_ptr_tko")
def _store(form: Form, block: Block, addresses: np.ndarray, value: np.ndarray) -> None:
    mask = _mask(form, block, addresses)
    if form.releases:
        block.released(addresses if mask is None else addresses[mask])
    _put(block, addresses, value, mask, form.is_strong)


@computes("offset")
def _offset(form: Form, base: Any, by: Any) -> Any:
    return (base.view(np.int64) + by.astype(np.int64) * element_dtype(form.element).itemsize).view(np.uint64)


# ── atomic operations ──

#: Function of old and new values of each mode of an atomic operation.
COMBINED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add,
    "addf": lambda old, new: (wide(old) + wide(new)).astype(old.dtype),
    "max": np.maximum, "umax": lambda old, new: np.maximum(unsigned(old), unsigned(new)).view(old.dtype),
    "min": np.minimum, "umin": lambda old, new: np.minimum(unsigned(old), unsigned(new)).view(old.dtype),
    "xchg": lambda old, new: new,
}  # fmt: skip


def _atomically(
    form: Form, block: Block, addresses: np.ndarray, mask: np.ndarray | None, dtype: np.dtype,
    change: Callable[[np.ndarray, Any], np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Change the elements whose mask is true one after the other, in the order of the tile; return their old values.

    `change` takes old values and their flat positions in the tile, and returns the new values. The result has the shape
    of `addresses`, and 0 where the mask is false.
    """
    flat = addresses.reshape(-1)
    old = np.zeros(flat.size, dtype)
    left = np.arange(flat.size) if mask is None else np.flatnonzero(mask)
    if form.releases:
        block.released(flat[left])
    if form.acquires:
        block.acquired(flat[left])
    while left.size:
        # One element per address at a time, the first of them first.
        _, first = np.unique(flat[left], return_index=True)
        now = np.sort(left[first])
        old[now] = block.memory.load("global", flat[now].copy(), dtype, None, form.is_strong)
        new = np.ascontiguousarray(change(old[now], now))
        block.memory.store("global", flat[now].copy(), new, None, form.is_strong)
        left = np.setdiff1d(left, now, assume_unique=True)
    return old.reshape(addresses.shape)


def _flat(value: np.ndarray, addresses: np.ndarray) -> np.ndarray:
    """Return `value` broadcast to the shape of `addresses`, as an array of one dimension."""
    return np.broadcast_to(value, addresses.shape).reshape(-1)


@acts("atomic_rmw_tko")
def _rmw(form: Form, block: Block, addresses: np.ndarray, value: np.ndarray) -> np.ndarray:
    combine, new = COMBINED[form.attributes["mode"]], _flat(value, addresses)
    mask = _mask(form, block, addresses)
    return _atomically(form, block, addresses, mask, form.dtype, lambda old, at: combine(old, new[at]))


@acts("atomic_cas_tko")
def _cas(form: Form, block: Block, addresses: np.ndarray, compared: np.ndarray, swapped: np.ndarray) -> np.ndarray:
    bits = np.dtype(f"u{form.dtype.itemsize}")
    expected, new = _flat(compared, addresses), _flat(swapped, addresses)

    def change(old: np.ndarray, at: Any) -> np.ndarray:
        same = old.view(bits) == np.ascontiguousarray(expected[at]).view(bits)
        return np.where(same, new[at], old)

    return _atomically(form, block, addresses, _mask(form, block, addresses), form.dtype, change)


@acts("atomic_red_view_tko")
def _reduce_view(form: Form, block: Block, tiles: Tiles, *operands: Any) -> None:
    *indices, value = operands
    addresses, inside = positions(tiles, indices, form.promised)
    combine, new = COMBINED[form.attributes["mode"]], _flat(value, addresses)
    dtype = element_dtype(tiles.tensor.element)
    _atomically(form, block, addresses, inside, dtype, lambda old, at: combine(old, new[at]))


@acts("multimem_load_reduce_view_tko", "multimem_reduce_view_tko", "multimem_store_view_tko")
def _of_several_devices(form: Form, block: Block, *operands: Any) -> None:
    raise EmulationError(
        f"{form.name} accesses memory that several GPUs share under one address, and there is one device here: it "
        "runs on GPUs alone"
    )


# ── variables, and memory of a block's own ──


@acts("get_global")
def _global(form: Form, block: Block) -> np.ndarray:
    return np.asarray(block.address_of(form.attributes["symbol"]), np.uint64)


@acts("alloca")
def _alloca(form: Form, block: Block) -> np.ndarray:
    return np.asarray(block.reserve(form.attributes["count"] * element_dtype(form.element).itemsize), np.uint64)


# ── words ──


@acts("assert")
def _assert(form: Form, block: Block, condition: np.ndarray) -> None:
    if not np.all(condition):
        raise EmulationError(f"assertion failed: {form.attributes['message']}")


@acts("print_tko")
def _print(form: Form, block: Block, *operands: Any) -> None:
    left = iter(operands)

    def shown(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        if (value := next(left, None)) is None:
            raise EmulationError(f"{match[0]} has no value")
        return match[0] % _text_at(block, int(value)) if match[0][-1] == "s" else _shown(match[0], value)

    # The format may include the 0 that ends a C string.
    block.output(_PRINTED.sub(shown, form.attributes["format"].rstrip("\0")))


def _text_at(block: Block, address: int) -> str:
    """Return a C string in memory: the bytes before its 0."""
    content = bytearray()
    while byte := int(
        _get(block, np.asarray([address + len(content)], np.uint64), np.dtype(np.uint8), None, 0, False)[0]
    ):
        content.append(byte)
    return content.decode(errors="replace")


def _shown(spec: str, value: np.ndarray) -> str:
    """Return a number as text by a conversion of C's printf; of a tile, all elements in brackets."""
    if np.ndim(value):
        return f"[{', '.join(_shown(spec, element) for element in value)}]"
    if spec[-1] in "pP":
        return hex(int(value))
    plain = re.sub(r"(?:hh|h|ll|l|L|z|t|j)(?=[a-zA-Z]$)", "", spec)
    if spec[-1] in "uoxX":
        return plain.replace("u", "d") % int(unsigned(np.asarray(value)))
    return plain % (int(value) if spec[-1] in "dic" else float(value))
