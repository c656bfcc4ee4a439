"""Which header declares a name that nvcc's own includes declare, or that programs get with others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

#: Names, and the header to include for NVRTC, which includes nothing by itself.
_DECLARED_IN: Final = (
    (r"INFINITY|NAN|HUGE_VALF?|M_[A-Z0-9_]+", "cmath"),
    (r"(?:FLT|DBL)_[A-Z0-9_]+", "cfloat"),
    (r"U?(?:CHAR|SHRT|INT|LONG|LLONG)_(?:MAX|MIN)|CHAR_BIT", "climits"),
    (r"u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:ptr|max)_t|U?INT(?:8|16|32|64)_(?:MAX|MIN|C)", "cstdint"),
    (r"uint|ushort|ulong", "cstdlib"),
    (r"(?:__)?half[24]?|__half_raw", "cuda_fp16.h"),
    (r"(?:__)?nv_bfloat162?", "cuda_bf16.h"),
    (r"__nv_fp8\w+", "cuda_fp8.h"),
    (r"cooperative_groups|this_thread_block|this_grid|this_cluster|coalesced_threads", "cooperative_groups.h"),
    (r"curand\w+", "curand_kernel.h"),
    (r"cudaGridDependencySynchronize|cudaTriggerProgrammaticLaunchCompletion", "cuda_device_runtime_api.h"),
    (r"nvcuda", "mma.h"),
    (r"cu(?:Float|Double)?Complex|make_cu(?:Float|Double)?Complex|cuC(?:abs|add|div|fma|imag|mul|onj|real|sub)f?"
     r"|cuComplex(?:Double|Float)To(?:Float|Double)", "cuComplex.h"),
    (r"cufft(?:Double)?(?:Real|Complex)|CUFFT_(?:FORWARD|INVERSE)", "cufft.h"),
    (r"cufftCallback(?:Load|Store)[RDCZ]", "cufftXt.h"),
    (r"cudaDataType(?:_t)?|CUDA_[RC]_\w+", "library_types.h"),
    (r"std::(?:min|max|clamp|swap)", "algorithm"),
    (r"std::numeric_limits", "limits"),
    (r"std::(?:is_\w+|enable_if\w*|conditional\w*|(?:add|remove)_\w+|decay\w*|(?:true|false)_type|void_t|common_type\w*"
     r"|underlying_type\w*|make_(?:un)?signed\w*|(?:integral|bool)_constant|alig\w+_(?:of|storage)\w*|invoke_result\w*"
     r"|rank|extent|conjunction\w*|disjunction\w*|negation\w*)", "type_traits"),
    (r"std::(?:pair|move|forward|index_sequence|make_pair|declval)", "utility"),
    (r"std::u?int(?:8|16|32|64)_t", "cstdint"),
    (r"std::(?:a?(?:sin|cos|tan)h?|sqrt|pow|exp2?|log(?:2|10|1p)?|abs|fabs|floor|ceil|round|fma|fmod|is(?:nan|inf))",
     "cmath"),
)  # fmt: skip
#: Names that NVRTC has too, but not all that nvcc has of them.
_ENLARGED_IN: Final = (
    (r"(?:a?(?:sin|cos|tan)h?|atan2|sqrt|cbrt|pow|exp2?|log(?:2|10|1p)?|fabs|floor|ceil|l?l?round|l?l?rint|trunc|fmod"
     r"|hypot|fmax|fmin|copysign|isnan|isinf|isfinite|signbit|erfc?|[lt]gamma)", "cmath"),
    (r"mem(?:cmp|move|chr)|str(?:len|n?cmp|n?cpy|chr)", "cstring"),
    (r"offsetof|max_align_t", "cstddef"),
    (r"assert", "cassert"),
)  # fmt: skip


def header_of(name: str) -> str | None:
    """The header that declares `name`, or None."""
    return next((header for pattern, header in _DECLARED_IN if re.fullmatch(pattern, name)), None)


def headers_of(names: Iterable[str]) -> list[str]:
    """The headers that declare `names`, or more of what they mean."""
    pattern, headers = _together()
    return sorted(
        {headers[match.lastgroup] for name in names if (match := pattern.fullmatch(name)) and match.lastgroup}
    )


@cache
def _together() -> tuple[re.Pattern[str], dict[str, str]]:
    """One pattern for all names, and the header for each of its groups."""
    both = (*_DECLARED_IN, *_ENLARGED_IN)
    pattern = "|".join(f"(?P<g{number}>{names})" for number, (names, _) in enumerate(both))
    return re.compile(pattern), {f"g{number}": header for number, (_, header) in enumerate(both)}
