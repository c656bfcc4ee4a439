"""What Tile IR says of a kernel that the compiler does not: promises about its arguments, and calls that would trap."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudakit.jit.compile.compiled import Promise
from cudakit.jit.compile.tile_ir import Bounded, DivisibleBy, Function, Operation, Place, Tile, TileModule

_TRAP = "Cannot invoke non-tile function"
#: Where the compiler's own headers lie, in which no user's line is.
_HEADERS = ("cuda_tile.h", "/cuda/std/")


def promises(module: TileModule) -> tuple[Promise, ...]:
    """What the kernels take for granted of their arguments, before anything is decided."""
    return tuple(promise for function in module.functions.values() for promise in _of(function))


def _of(function: Function) -> Iterator[Promise]:
    origin = {number: number for number in range(len(function.parameters))}
    found: dict[int, Promise] = {}
    for operation in function.operations:
        if operation.regions:
            break  # what is promised behind a decision need not hold for every call
        if operation.name != "assume" or (position := origin.get(operation.operands[0])) is None:
            continue
        origin[operation.results[0]] = position
        is_pointer = isinstance(given := function.parameters[position], Tile) and given.is_pointer
        known = found.get(position, Promise(function.name, position))
        match operation.attributes["predicate"]:
            case DivisibleBy(divisor, None, None):
                found[position] = known._replace(divisor=math.lcm(known.divisor, divisor))
            case Bounded(low, high) if not is_pointer:
                lows, highs = (
                    [each for each in pair if each is not None] for pair in ((known.low, low), (known.high, high))
                )
                found[position] = known._replace(low=max(lows, default=None), high=min(highs, default=None))
    yield from (promise for promise in found.values() if promise[2:] != (1, None, None))


def traps(module: TileModule) -> Iterator[tuple[Operation, Place | None]]:
    """Calls of functions that tile code cannot call: they compile, and end the kernel when it comes to them."""
    for function in module.functions.values():
        for operation in function.walk():
            if operation.name == "assert" and operation.attributes["message"].startswith(_TRAP):
                yield operation, source_place(operation.place)


def source_place(place: Place | None) -> Place | None:
    """The user's own line: the innermost call that is not in the compiler's headers."""
    found = place
    while place is not None and any(header in place.file for header in _HEADERS):
        place = place.caller
    return place or found
