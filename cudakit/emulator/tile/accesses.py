"""Memory of tile kernels: loads, stores, views, atomic operations, variables, and what a kernel prints and asserts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from cudakit.emulator.machine.memory import READ, STRONG_READ, STRONG_WRITE, WRITE
from cudakit.emulator.tile.decode import Block, Decoder, Ended, Step, operation, pure
from cudakit.emulator.tile.values import Box, box_of, dtype_of, element_dtype, padding, unsigned, wide
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation, TensorView, Tile, View

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


_PRINTED: Final = re.compile(r"%[-+ #0]*\d*(?:\.\d+)?(?:hh|h|ll|l|L|z|t|j)?[diouxXeEfFgGaAcsp%]")


def _stored(dtype: np.dtype) -> np.dtype:
    """What elements lie in memory as."""
    return np.dtype(np.uint8) if dtype == np.bool_ else dtype


def _get(
    block: Block, addresses: np.ndarray, dtype: np.dtype, mask: np.ndarray | None, pad: Any, strong: bool
) -> np.ndarray:
    """Elements at addresses; where `mask` is false, what pads them."""
    chosen = addresses.reshape(-1) if mask is None else addresses[mask]
    stored = _stored(dtype)
    found = block.memory.load("global", chosen.copy(), stored, None, strong) if chosen.size else np.empty(0, stored)
    if mask is None:
        return found.reshape(addresses.shape).astype(dtype, copy=False)
    made = np.array(np.broadcast_to(pad, addresses.shape), dtype)
    made[mask] = found
    return made


def _put(block: Block, addresses: np.ndarray, value: np.ndarray, mask: np.ndarray | None, strong: bool) -> None:
    value = np.broadcast_to(value, addresses.shape)
    value = value.astype(np.uint8) if value.dtype == np.bool_ else value
    chosen, given = (addresses.reshape(-1), value.reshape(-1)) if mask is None else (addresses[mask], value[mask])
    if chosen.size:
        block.memory.store("global", chosen.copy(), np.ascontiguousarray(given), None, strong)


def _get_halves(
    block: Block, halves: np.ndarray, dtype: np.dtype, mask: np.ndarray | None, pad: Any, strong: bool
) -> np.ndarray:
    """Elements of 4 bits, two in a byte."""
    raw = _get(block, halves >> np.uint64(1), np.dtype(np.uint8), mask, 0, strong)
    found = (np.where(halves & np.uint64(1), raw >> 4, raw) & np.uint8(15)).view(dtype)
    return found if mask is None else np.where(mask, found, pad)


def _put_halves(block: Block, halves: np.ndarray, value: np.ndarray, mask: np.ndarray | None, strong: bool) -> None:
    raw = np.ascontiguousarray(np.broadcast_to(value, halves.shape)).view(np.uint8) & np.uint8(15)
    for is_high in (False, True):
        chosen = (halves & np.uint64(1) == is_high) & (True if mask is None else mask)
        held = _get(block, halves >> np.uint64(1), np.dtype(np.uint8), chosen, 0, strong)
        made = (held & 0x0F) | (raw << 4) if is_high else (held & 0xF0) | raw
        _put(block, halves >> np.uint64(1), made, chosen, strong)


def _is_strong(given: Operation) -> bool:
    """Whether it is one that other blocks may meet."""
    return bool(given.attributes["memory"] != "weak" and given.attributes.get("scope") != "tl_blk")


def _acquires(given: Operation) -> bool:
    return _is_strong(given) and given.attributes["memory"] in ("acquire", "acq_rel")


def _releases(given: Operation) -> bool:
    return _is_strong(given) and given.attributes["memory"] in ("release", "acq_rel")


@operation("load_view_tko")
def _load_view(given: Operation, decoder: Decoder) -> Step:
    source, *indices = given.operands
    result, *tokens = given.results
    strong, dtype, promised = _is_strong(given), dtype_of(given.types[0]), given.attributes.get("inbounds") or ()
    stored, use, acquires = _stored(dtype), STRONG_READ if strong else READ, _acquires(given)

    def step(block: Block) -> Ended:
        values = block.values
        tiles: Tiles = values[source]
        at = [values[number] for number in indices]
        found = None if acquires else window(block, tiles, at, promised, use)
        if found is not None:
            box, part = found
            held = box.array(stored)
            if part is None:
                made = held.copy()
            else:
                made = np.full(tiles.view.tile, padding(tiles.view.padding or "zero", dtype), stored)
                made[part] = held
            values[result] = made.astype(dtype, copy=False)
        else:
            addresses, inside = positions(given, tiles, at)
            pad = 0 if inside is None else padding(tiles.view.padding or "zero", dtype)
            get = _get_halves if tiles.tensor.element in HALF_BYTES else _get
            values[result] = get(block, addresses, dtype, inside, pad, strong)
            if acquires:
                block.acquired(addresses)
        for token in tokens:
            values[token] = None
        return None

    return step


@operation("store_view_tko")
def _store_view(given: Operation, decoder: Decoder) -> Step:
    source, target, *indices = given.operands
    strong, promised = _is_strong(given), given.attributes.get("inbounds") or ()
    use, releases = STRONG_WRITE if strong else WRITE, _releases(given)

    def step(block: Block) -> Ended:
        values = block.values
        tiles, at = values[target], [values[number] for number in indices]
        found = None if releases else window(block, tiles, at, promised, use)
        if found is not None:
            box, part = found
            value = np.broadcast_to(values[source], tiles.view.tile)
            stored = _stored(value.dtype)
            box.array(stored)[...] = value if part is None else value[part]
        else:
            addresses, inside = positions(given, tiles, at)
            if releases:
                block.released(addresses)
            put = _put_halves if tiles.tensor.element in HALF_BYTES else _put
            put(block, addresses, values[source], inside, strong)
        for token in given.results:
            values[token] = None
        return None

    return step


@operation("load_ptr_tko")
def _load(given: Operation, decoder: Decoder) -> Step:
    (source,), (result, token) = given.operands, given.results
    strong, dtype, acquires = _is_strong(given), dtype_of(given.types[0]), _acquires(given)
    mask, pad = given.optional.get("mask"), given.optional.get("padding")

    def step(block: Block) -> Ended:
        values = block.values
        addresses = values[source]
        chosen = None if mask is None else np.broadcast_to(values[mask], addresses.shape)
        values[result] = _get(block, addresses, dtype, chosen, 0 if pad is None else values[pad], strong)
        if acquires:
            block.acquired(addresses if chosen is None else addresses[chosen])
        values[token] = None
        return None

    return step


@operation("store_ptr_tko")
def _store(given: Operation, decoder: Decoder) -> Step:
    target, source = given.operands
    strong, mask, releases = _is_strong(given), given.optional.get("mask"), _releases(given)

    def step(block: Block) -> Ended:
        values = block.values
        addresses = values[target]
        chosen = None if mask is None else np.broadcast_to(values[mask], addresses.shape)
        if releases:
            block.released(addresses if chosen is None else addresses[chosen])
        _put(block, addresses, values[source], chosen, strong)
        for token in given.results:
            values[token] = None
        return None

    return step


@operation("offset")
def _offset(given: Operation, decoder: Decoder) -> Step:
    (made,) = given.types
    assert isinstance(made, Tile)
    size = element_dtype(made.element).itemsize
    return pure(given, lambda base, by: (base.view(np.int64) + by.astype(np.int64) * size).view(np.uint64))


# ── atomic operations ──

_ATOMIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add, "addf": np.add,
    "max": np.maximum, "min": np.minimum, "xchg": lambda old, new: new,
}  # fmt: skip


def _combined(mode: str) -> Callable[[Any, Any], Any]:
    if mode in ("umax", "umin"):
        function = np.maximum if mode == "umax" else np.minimum
        return lambda old, new: function(unsigned(old), unsigned(new)).view(old.dtype)
    if mode == "addf":
        return lambda old, new: (wide(old) + wide(new)).astype(old.dtype)
    return _ATOMIC[mode]


def _atomically(
    block: Block,
    given: Operation,
    addresses: np.ndarray,
    mask: Any,
    dtype: np.dtype,
    change: Callable[[np.ndarray, Any], np.ndarray],
) -> np.ndarray:
    """Change elements one access after the other, in the order of the tile; what they were before.

    `change` gives new values of old ones and of the positions that they are at.
    """
    shape = addresses.shape
    flat = addresses.reshape(-1)
    old = np.zeros(flat.size, dtype)
    left = np.arange(flat.size) if mask is None else np.flatnonzero(np.broadcast_to(mask, shape))
    strong, touched = _is_strong(given), flat[left]
    if _releases(given):
        block.released(touched)
    if _acquires(given):
        block.acquired(touched)
    while left.size:
        # Those that name an address first, then those that name it again.
        _, first = np.unique(flat[left], return_index=True)
        now = np.sort(left[first])
        old[now] = block.memory.load("global", flat[now].copy(), dtype, None, strong)
        block.memory.store("global", flat[now].copy(), np.ascontiguousarray(change(old[now], now)), None, strong)
        left = np.setdiff1d(left, now, assume_unique=True)
    return old.reshape(shape)


@operation("atomic_rmw_tko")
def _rmw(given: Operation, decoder: Decoder) -> Step:
    target, source = given.operands
    (result, token), mask = given.results, given.optional.get("mask")
    combine, dtype = _combined(given.attributes["mode"]), dtype_of(given.types[0])

    def step(block: Block) -> Ended:
        values = block.values
        addresses = values[target]
        new = np.broadcast_to(values[source], addresses.shape).reshape(-1)
        chosen = None if mask is None else values[mask]
        values[result] = _atomically(block, given, addresses, chosen, dtype, lambda old, at: combine(old, new[at]))
        values[token] = None
        return None

    return step


@operation("atomic_cas_tko")
def _cas(given: Operation, decoder: Decoder) -> Step:
    target, compared, swapped = given.operands
    (result, token), mask = given.results, given.optional.get("mask")
    dtype = dtype_of(given.types[0])
    bits = np.dtype(f"u{dtype.itemsize}")

    def step(block: Block) -> Ended:
        values = block.values
        addresses = values[target]
        wanted, new = (np.broadcast_to(values[each], addresses.shape).reshape(-1) for each in (compared, swapped))
        chosen = None if mask is None else values[mask]

        def change(old: np.ndarray, at: Any) -> np.ndarray:
            same = old.view(bits) == np.ascontiguousarray(wanted[at]).view(bits)
            return np.where(same, new[at], old)

        values[result] = _atomically(block, given, addresses, chosen, dtype, change)
        values[token] = None
        return None

    return step


@operation("atomic_red_view_tko")
def _reduce_view(given: Operation, decoder: Decoder) -> Step:
    target, *indices, source = given.operands
    combine = _combined(given.attributes["mode"])

    def step(block: Block) -> Ended:
        values = block.values
        tiles: Tiles = values[target]
        addresses, inside = positions(given, tiles, [values[number] for number in indices])
        new = np.broadcast_to(values[source], addresses.shape).reshape(-1)
        dtype = element_dtype(tiles.tensor.element)
        _atomically(block, given, addresses, inside, dtype, lambda old, at: combine(old, new[at]))
        for token in given.results:
            values[token] = None
        return None

    return step


@operation("multimem_load_reduce_view_tko", "multimem_reduce_view_tko", "multimem_store_view_tko")
def _of_several_devices(given: Operation, decoder: Decoder) -> Step:
    raise EmulationError(
        f"{given.name} accesses memory that several GPUs share under one address, and there is one device here: it "
        "runs on GPUs alone"
    )


# ── variables, and memory of a block's own ──


@operation("get_global")
def _global(given: Operation, decoder: Decoder) -> Step:
    (result,), symbol = given.results, given.attributes["symbol"]

    def step(block: Block) -> Ended:
        block.values[result] = np.asarray(block.address_of(symbol), np.uint64)
        return None

    return step


@operation("alloca")
def _alloca(given: Operation, decoder: Decoder) -> Step:
    (result,), (made,) = given.results, given.types
    assert isinstance(made, Tile)
    size = given.attributes["count"] * element_dtype(made.element).itemsize

    def step(block: Block) -> Ended:
        block.values[result] = np.asarray(block.reserve(size), np.uint64)
        return None

    return step


# ── words ──


@operation("assert")
def _assert(given: Operation, decoder: Decoder) -> Step:
    (condition,), message = given.operands, given.attributes["message"]

    def step(block: Block) -> Ended:
        if not np.all(block.values[condition]):
            raise EmulationError(f"assertion failed: {message}")
        return None

    return step


@operation("print_tko")
def _print(given: Operation, decoder: Decoder) -> Step:
    text = given.attributes["format"].rstrip("\0")  # C's end of a text may stand in it

    def step(block: Block) -> Ended:
        left = iter([block.values[number] for number in given.operands])

        def shown(match: re.Match[str]) -> str:
            if match[0] == "%%":
                return "%"
            if (value := next(left, None)) is None:
                raise EmulationError(f"{match[0]} has no value")
            return match[0] % _text_at(block, int(value)) if match[0][-1] == "s" else _shown(match[0], value)

        block.output(_PRINTED.sub(shown, text))
        for token in given.results:
            block.values[token] = None
        return None

    return step


def _text_at(block: Block, address: int) -> str:
    """A text of C: all before its 0."""
    found = bytearray()
    while byte := int(
        _get(block, np.asarray([address + len(found)], np.uint64), np.dtype(np.uint8), None, 0, False)[0]
    ):
        found.append(byte)
    return found.decode(errors="replace")


def _shown(spec: str, value: np.ndarray) -> str:
    """A number by C's conversion; of a tile each, in brackets."""
    if np.ndim(value):
        return f"[{', '.join(_shown(spec, each) for each in value)}]"
    if spec[-1] in "pP":
        return hex(int(value))
    plain = re.sub(r"(?:hh|h|ll|l|L|z|t|j)(?=[a-zA-Z]$)", "", spec)
    if spec[-1] in "uoxX":
        return plain.replace("u", "d") % int(unsigned(np.asarray(value)))
    return plain % (int(value) if spec[-1] in "dic" else float(value))
