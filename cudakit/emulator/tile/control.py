"""Loops and branches, and reductions and scans, whose bodies run on whole slices of their tiles."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from cudakit.emulator.tile.decode import Block, Decoded, Decoder, Ended, Step, operation
from cudakit.emulator.tile.machine import run_operations
from cudakit.emulator.tile.values import dtype_of
from cudakit.errors import EmulationError
from cudakit.jit.compile.tile_ir import Operation


@operation("yield", "continue", "break", "return")
def _end(given: Operation, decoder: Decoder) -> Step:
    name, operands = given.name, given.operands

    def step(block: Block) -> Ended:
        return name, [block.values[number] for number in operands]

    return step


@operation("if")
def _if(given: Operation, decoder: Decoder) -> Step:
    (condition,), results = given.operands, given.results
    branches = [decoder.region(region) for region in given.regions]

    def step(block: Block) -> Ended:
        taken = 0 if block.values[condition] else 1
        if taken >= len(branches):
            return None
        ended = run_operations(block, branches[taken])
        if ended is None or ended[0] != "yield":
            return ended
        for number, value in zip(results, ended[1], strict=True):
            block.values[number] = value
        return None

    return step


def _loop_of(
    results: tuple[int, ...], arguments: tuple[int, ...], body: list[Decoded], starts: tuple[int, ...]
) -> Callable[[Block, Iterable[Any]], Ended]:
    """Runs a body once for each of the steps, its values going round."""

    def run(block: Block, steps: Iterable[Any]) -> Ended:
        values = block.values
        current = [values[number] for number in starts]
        carried = arguments[len(arguments) - len(current) :]
        counted = len(arguments) > len(carried)
        for each in steps:
            if counted:
                values[arguments[0]] = each
            for number, value in zip(carried, current, strict=True):
                values[number] = value
            ended = run_operations(block, body)
            if ended is None:
                raise EmulationError("a loop's body has no end")
            how, given = ended
            if how == "return":
                return ended
            current = list(given)
            if how == "break":
                break
        for number, value in zip(results, current, strict=True):
            values[number] = value
        return None

    return run


@operation("for")
def _for(given: Operation, decoder: Decoder) -> Step:
    low, high, by, *starts = given.operands
    (region,) = given.regions
    run = _loop_of(given.results, region.arguments, decoder.region(region), tuple(starts))
    dtype, unsigned = dtype_of(region.types[0]), given.attributes.get("unsigned", False)
    bits = (1 << 8 * dtype.itemsize) - 1

    def step(block: Block) -> Ended:
        first, last, jump = (int(block.values[number]) for number in (low, high, by))
        if unsigned:
            first, last, jump = (number & bits for number in (first, last, jump))
        if jump <= 0:
            raise EmulationError(f"a loop with a step of {jump} does not end")
        held = np.dtype(f"u{dtype.itemsize}")
        numbers = (
            (np.asarray(number, held).view(dtype) if unsigned else np.asarray(number, dtype))
            for number in range(first, last, jump)
        )
        return run(block, numbers)

    return step


@operation("loop")
def _loop(given: Operation, decoder: Decoder) -> Step:
    (region,) = given.regions
    run = _loop_of(given.results, region.arguments, decoder.region(region), given.operands)
    return lambda block: run(block, itertools.repeat(None))


def _combining(given: Operation, decoder: Decoder) -> Callable[[Block, list[Any], list[Any]], list[Any]]:
    """What combines two rows of values, as the region says for two elements."""
    (region,) = given.regions
    body, numbers = decoder.region(region), region.arguments

    def combine(block: Block, first: list[Any], second: list[Any]) -> list[Any]:
        for place, pair in enumerate(zip(first, second, strict=True)):
            block.values[numbers[2 * place]], block.values[numbers[2 * place + 1]] = pair
        ended = run_operations(block, body)
        assert ended is not None
        return list(ended[1])

    return combine


@operation("reduce")
def _reduce(given: Operation, decoder: Decoder) -> Step:
    combine, axis, results = _combining(given, decoder), given.attributes["dim"], given.results

    def step(block: Block) -> Ended:
        rows = [np.moveaxis(block.values[number], axis, 0) for number in given.operands]
        while (count := rows[0].shape[0]) > 1:
            half = count // 2
            rows = combine(block, [row[:half] for row in rows], [row[half:] for row in rows])
        for result, row in zip(results, rows, strict=True):
            block.values[result] = row[0]
        return None

    return step


@operation("scan")
def _scan(given: Operation, decoder: Decoder) -> Step:
    combine, axis, backward = _combining(given, decoder), given.attributes["dim"], given.attributes["reverse"]

    def step(block: Block) -> Ended:
        rows = [np.array(np.moveaxis(block.values[number], axis, 0)) for number in given.operands]
        rows = [row[::-1] if backward else row for row in rows]
        # Each element takes the one before it, then the one two before it, and so on.
        distance = 1
        while distance < rows[0].shape[0]:
            later = combine(block, [row[:-distance] for row in rows], [row[distance:] for row in rows])
            rows = [np.concatenate((row[:distance], new)) for row, new in zip(rows, later, strict=True)]
            distance *= 2
        for result, row in zip(given.results, rows, strict=True):
            block.values[result] = np.moveaxis(row[::-1] if backward else row, 0, axis)
        return None

    return step
