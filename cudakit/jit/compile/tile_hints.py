"""What to do about the compiler's errors of tile code, which speak of its headers' templates."""

from __future__ import annotations

import re
from math import prod
from typing import Final

_SHAPES: Final = "a tile's extents are powers of two, and have at most 2^24 elements together"
#: What the message says (or the lines under it, after a space), and what to do.
_TILE_HINTS: Final = (
    (r"no instance of .*tiles::(?:\w+::)?(?:zeros|ones|full|iota|tile)\b", _SHAPES),
    (
        r"no instance of .*tiles::(?:\w+::)?irange\b",
        "irange takes numbers of one type: cast one, as in irange((int)cuda::tiles::bid().x, n)",
    ),
    (
        r"no instance of .*tiles::(?:\w+::)?(?:mma|matmul)\b",
        "a product takes two tiles of one type, and sums of: float or half (half), float (bfloat16, tf32, float), half "
        "or float (fp8 of one kind), double (double), int (integers of 8 bits); cast with cuda::tiles::element_cast",
    ),
    (
        r"no instance of .*tiles::(?:\w+::)?assume_",
        "assume_aligned takes a pointer to numbers, assume_divisible and assume_bounded take integers, and what is "
        "promised is a constant, as in 16_ic",
    ),
    (
        r"no operator .* matches these operands[\s\S]*cuda::tiles|no instance of .*::(?:store|store_masked)\b",
        "element types are not mixed: cast a tile with cuda::tiles::element_cast<T>(x), and write a number of its "
        "type, as in 2.0f",
    ),
    (
        'unsupported type "cudakit::tensor<',
        "cudakit::tensor must stand in the kernel's head as it is: no alias, macro, #if or pack",
    ),
    (
        "for __tile_global__ function parameter",
        "a tile kernel takes numbers, pointers and cudakit::tensor<T, RANK>: give the fields one by one, or a pointer",
    ),
    (
        "accessing gridDim/blockDim|unknown tile builtin function: __sync",
        "tile code has no threads: cuda::tiles::bid() says which block it is, num_blocks() how many there are, and "
        "iota numbers the elements of a tile",
    ),
    ("cannot access __shared__", "a tile is a variable; what lies in shared memory is the compiler's choice"),
    (r"calling a __\w+__ function\(.*from a __tile", "tile code calls __tile__ functions: put __tile__ before it"),
    ("a non-__tile__ variable", "variables of tile code have __tile__ before them; or take it as a parameter"),
    ("non-inlined", "functions of tile code are part of the kernel that calls them: none may call itself"),
    ("needs C\\+\\+20 features", "tile kernels are C++20: leave CompileOptions(std=…) out"),
    (
        r'must be a class or namespace name[\s\S]*\b(?:tiles|ct)::|namespace "cuda" has no member "tiles"',
        'tile code begins with #include "cuda_tile.h"',
    ),
    (
        "__launch_bounds__ is only allowed|__cluster_dims__ is only allowed",
        "tile kernels have hints in its place: [[cutile::hint(0, num_worker_warps_per_cta=8, num_cta_in_cga=2)]]",
    ),
)
_SHAPE: Final = re.compile(r"extents<cuda::tiles::\w+::uint32_t((?:, \d+UL)+)>")
_MOST_ELEMENTS: Final = 2**24
#: The number that stands for an extent which is known at run time only.
_DYNAMIC: Final = 2**64 - 1


def tile_hints(message: str, context: str) -> list[str]:
    """Hints for a message of the compiler, with the lines under it."""
    whole = f"{message}\n{context}"
    if re.search("no instance of|constraint", message) and "cuda::tiles" in whole and (found := _extents(whole)):
        return [f"hint: {_SHAPES}; here they are {found}"]
    return next(([f"hint: {told}"] for pattern, told in _TILE_HINTS if re.search(pattern, whole)), [])


def _extents(text: str) -> str:
    """The first extents that no tile can have."""
    for match in _SHAPE.finditer(text):
        extents = [int(each) for each in re.findall(r"\d+", match[1])]
        if _DYNAMIC not in extents and (any(n < 1 or n & (n - 1) for n in extents) or prod(extents) > _MOST_ELEMENTS):
            return " × ".join(map(str, extents))
    return ""
