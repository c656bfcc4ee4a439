"""What to do about the compiler's errors of what CUDA has no more, and of what NVRTC lacks of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

#: What CUB had of its own, and what CUDA has in its place.
_CUB: Final = {
    "Sum": "cuda::std::plus<> of <cuda/std/functional>",
    "Difference": "cuda::std::minus<> of <cuda/std/functional>",
    "Division": "cuda::std::divides<> of <cuda/std/functional>",
    "Max": "cuda::maximum<> of <cuda/functional>",
    "Min": "cuda::minimum<> of <cuda/functional>",
    "Equality": "cuda::std::equal_to<> of <cuda/std/functional>",
    "Inequality": "cuda::std::not_equal_to<> of <cuda/std/functional>",
    "CountingInputIterator": "thrust::counting_iterator of <thrust/iterator/counting_iterator.h>",
    "ConstantInputIterator": "thrust::constant_iterator of <thrust/iterator/constant_iterator.h>",
    "TransformInputIterator": "thrust::transform_iterator of <thrust/iterator/transform_iterator.h>",
    "DiscardOutputIterator": "thrust::discard_iterator of <thrust/iterator/discard_iterator.h>",
}
_THRUST: Final = (
    "hint: thrust's algorithms and containers are host code to NVRTC: take CUB's block and warp primitives, or "
    "cuda::std's functions (<cuda/std/algorithm>, <cuda/std/functional>), or a loop"
)


def _atomic(match: re.Match[str]) -> str:
    name, signed = match["function"], match["sign"] is None
    cpp = "long long" if name in ("atomicMin", "atomicMax") and signed else "unsigned long long"
    wraps = ", which adds signed numbers too" if name == "atomicAdd" and signed else ""
    return f"hint: {name} of 64 bits takes {cpp}: cast the address, as in {name}(({cpp}*)p, ({cpp})v){wraps}"


#: What the message and the lines under it say, and what to do.
_GONE_HINTS: Final[tuple[tuple[str, Callable[[re.Match[str]], str]], ...]] = (
    (
        r"^(?:texture|surface) is not a template",
        lambda match: (
            "hint: CUDA 12 took texture and surface references away: take a cudaTextureObject_t as a parameter"
        ),
    ),
    (
        r'^identifier "(__shfl(?:_up|_down|_xor)?|__any|__all|__ballot)" is undefined',
        lambda match: (
            f"hint: {match[1]} is gone since Volta: write {match[1]}_sync(mask, …) with the mask of the lanes that "
            "take part, 0xffffffff for all of a warp"
        ),
    ),
    (
        rf'^namespace "[\w:]*\bcub\b[\w:]*" has no member(?: class)? "({"|".join(_CUB)})"',
        lambda match: f"hint: cub::{match[1]} is gone since CCCL 3: take {_CUB[match[1]]}",
    ),
    (
        r'^namespace "[\w:]*\bthrust\b[\w:]*" has no member(?: class)? "((?:unary|binary)_function)"',
        lambda match: f"hint: thrust::{match[1]} is gone since CCCL 3: leave the base class out",
    ),
    (r'^namespace "[\w:]*\bthrust\b[\w:]*" has no member', lambda match: _THRUST),
    (r'^name followed by "::" must be a class or namespace name\n.*\bthrust\s*::', lambda match: _THRUST),
    (
        r'^no instance of overloaded function "(?P<function>atomic\w+)" matches[\s\S]*?argument types are: '
        r"\((?P<sign>unsigned |u(?=int64_t)|(?=size_t))?(?:long(?: long)?(?: int)?|int64_t|size_t) \*",
        _atomic,
    ),
)


def gone_hints(message: str, context: str) -> list[str]:
    """What to do about an error.

    Parameters
    ----------
    message : str
    context : str
        The lines under it.
    """
    matches = ((re.search(pattern, f"{message}\n{context}"), hint) for pattern, hint in _GONE_HINTS)
    return next(([hint(match)] for match, hint in matches if match), [])
