"""Constants and counts, and tiles made of others by where their elements stand; promises about values."""

from __future__ import annotations

from typing import Any

import numpy as np

from cudakit.emulator.tile.decode import Block, Decoder, Ended, Step, operation, pure
from cudakit.emulator.tile.values import constant, dtype_of, shape_of
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Bounded, DivisibleBy, Operation, SameElements


@operation("constant")
def _constant(given: Operation, decoder: Decoder) -> Step:
    (result,), value = given.results, constant(given.attributes["value"], given.types[0])

    def step(block: Block) -> Ended:
        block.values[result] = value
        return None

    return step


@operation("iota")
def _iota(given: Operation, decoder: Decoder) -> Step:
    (result,), value = given.results, np.arange(shape_of(given.types[0])[0], dtype=dtype_of(given.types[0]))

    def step(block: Block) -> Ended:
        block.values[result] = value
        return None

    return step


@operation("get_tile_block_id", "get_num_tile_blocks")
def _block(given: Operation, decoder: Decoder) -> Step:
    results, count = given.results, given.name == "get_num_tile_blocks"

    def step(block: Block) -> Ended:
        for result, value in zip(results, block.grid if count else block.index, strict=True):
            block.values[result] = np.asarray(value, np.int32)
        return None

    return step


@operation("reshape")
def _reshape(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda a: np.reshape(a, shape))


@operation("broadcast")
def _broadcast(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda a: np.broadcast_to(a, shape))


@operation("permute")
def _permute(given: Operation, decoder: Decoder) -> Step:
    order = given.attributes["order"]
    return pure(given, lambda a: np.transpose(a, order))


@operation("cat")
def _cat(given: Operation, decoder: Decoder) -> Step:
    dim = given.attributes["dim"]
    return pure(given, lambda a, b: np.concatenate((a, b), dim))


def _subtile(indices: tuple[Any, ...], shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[slice, ...]:
    found = []
    for index, extent, all_of_it in zip(indices, shape, whole, strict=True):
        start = int(index) * extent
        if not 0 <= start < all_of_it:
            raise EmulationError(f"subtile {int(index)} of {all_of_it // extent}")
        found.append(slice(start, start + extent))
    return tuple(found)


@operation("extract")
def _extract(given: Operation, decoder: Decoder) -> Step:
    shape = shape_of(given.types[0])
    return pure(given, lambda whole, *indices: whole[_subtile(indices, shape, whole.shape)])


@operation("insert")
def _insert(given: Operation, decoder: Decoder) -> Step:
    def insert(part: Any, whole: Any, *indices: Any) -> Any:
        made = np.array(whole)
        made[_subtile(indices, part.shape, whole.shape)] = part
        return made

    return pure(given, insert)


@operation("assume")
def _assume(given: Operation, decoder: Decoder) -> Step:
    predicate = given.attributes["predicate"]

    def check(value: Any) -> Any:
        if value.size and not holds(predicate, value):
            raise EmulationError(f"a promise is broken: {told(predicate)}, and it is {_shown(value)}")
        return value

    return pure(given, check)


def holds(predicate: Any, value: np.ndarray) -> bool:
    """Whether values are as a predicate says."""
    match predicate:
        case DivisibleBy(divisor, every, along):
            number = value.astype(np.int64) if value.dtype != np.uint64 else value
            if every is not None and along is not None and value.ndim:
                picked = [slice(None)] * value.ndim
                picked[along] = slice(None, None, every)
                number = number[tuple(picked)]
            return not np.any(number % number.dtype.type(divisor))
        case Bounded(low, high):
            return (low is None or bool(np.all(value >= low))) and (high is None or bool(np.all(value <= high)))
        case SameElements(groups) if value.ndim:
            firsts = value[tuple(slice(None, None, max(1, size)) for size in groups)]
            for axis, size in enumerate(groups):
                firsts = np.repeat(firsts, max(1, size), axis)
            return bool(np.all(firsts == value))
    return True


def told(predicate: Any) -> str:
    """A predicate in words."""
    match predicate:
        case DivisibleBy(divisor, _, _):
            return f"a multiple of {divisor}"
        case Bounded(low, high):
            parts = [f"at least {low}"] * (low is not None) + [f"at most {high}"] * (high is not None)
            return " and ".join(parts)
    return "the same elements"


def _shown(value: np.ndarray) -> str:
    flat = value.reshape(-1)
    return ", ".join(str(each) for each in flat[:4]) + (" …" if flat.size > 4 else "")


@operation("make_token", "join_tokens", "memory_fence_alias_tko", "gdc_wait_tko", "gdc_launch_dependents_tko")
def _token(given: Operation, decoder: Decoder) -> Step:
    # Blocks run one after the other, and operations in their order: what tokens order is in order.
    def step(block: Block) -> Ended:
        for result in given.results:
            block.values[result] = None
        return None

    return step
