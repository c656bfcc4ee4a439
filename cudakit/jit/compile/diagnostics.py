"""NVRTC's log with places in the user's source (file, line, source line and caret), and hints about errors.

Hints cover features that CUDA has dropped, features that NVRTC lacks, and tile code, whose errors name templates of its
headers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Final

from cudakit.errors import CompileError, Details, named
from cudakit.jit.source import headers, host_headers
from cudakit.jit.source.headers import header_of
from cudakit.jit.source.preprocessor import conditions_around
from cudakit.jit.source.source import Source

#: CUB's former classes, and their replacements in CUDA.
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
    "thrust's algorithms and containers are host code to NVRTC: take CUB's block and warp primitives, or "
    "cuda::std's functions (<cuda/std/algorithm>, <cuda/std/functional>), or a loop"
)


def _atomic(match: re.Match[str]) -> str:
    name, signed = match["function"], match["sign"] is None
    cpp = "long long" if name in ("atomicMin", "atomicMax") and signed else "unsigned long long"
    wraps = ", which adds signed numbers too" if name == "atomicAdd" and signed else ""
    return f"{name} of 64 bits takes {cpp}: cast the address, as in {name}(({cpp}*)p, ({cpp})v){wraps}"


_SHAPES: Final = "a tile's extents are powers of two, and have at most 2^24 elements together"
#: Pattern of the message and its context, and the hint: a template for the match, or a function of the match.
_KNOWN: Final[tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]] = (
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
    (
        r"^(?:texture|surface) is not a template",
        "CUDA 12 took texture and surface references away: take a cudaTextureObject_t as a parameter",
    ),
    (
        r"^dynamic initialization is not supported for a \S+ variable",
        "NVRTC computes a variable from constexpr values only: make each constant of its initialiser constexpr",
    ),
    (
        r'^identifier "(__shfl(?:_up|_down|_xor)?|__any|__all|__ballot)" is undefined',
        r"\1 is gone since Volta: write \1_sync(mask, …) with the mask of the lanes that take part, 0xffffffff for all "
        "of a warp",
    ),
    (
        rf'^namespace "[\w:]*\bcub\b[\w:]*" has no member(?: class)? "({"|".join(_CUB)})"',
        lambda match: f"cub::{match[1]} is gone since CCCL 3: take {_CUB[match[1]]}",
    ),
    (
        r'^namespace "[\w:]*\bthrust\b[\w:]*" has no member(?: class)? "((?:unary|binary)_function)"',
        r"thrust::\1 is gone since CCCL 3: leave the base class out",
    ),
    (r'^namespace "[\w:]*\bthrust\b[\w:]*" has no member', _THRUST),
    (r'^name followed by "::" must be a class or namespace name\n.*\bthrust\s*::', _THRUST),
    (
        r'^no instance of overloaded function "(?P<function>atomic\w+)" matches[\s\S]*?argument types are: '
        r"\((?P<sign>unsigned |u(?=int64_t)|(?=size_t))?(?:long(?: long)?(?: int)?|int64_t|size_t) \*",
        _atomic,
    ),
)
_SHAPE: Final = re.compile(r"extents<cuda::tiles::\w+::uint32_t((?:, \d+UL)+)>")
_MOST_ELEMENTS: Final = 2**24
#: Stands for an extent that is known at run time only.
_DYNAMIC: Final = 2**64 - 1


def _error_hint(d: Diagnostic) -> str | None:
    """Return a hint for an error, or None.

    Hints cover tile code, features that CUDA has dropped, and features that NVRTC lacks.
    """
    whole = "\n".join((d.message, *d.context))
    if re.search("no instance of|constraint", d.message) and "cuda::tiles" in whole and (extents := _extents(whole)):
        return f"{_SHAPES}; here they are {extents}"
    for pattern, hint in _KNOWN:
        if match := re.search(pattern, whole):
            return match.expand(hint) if isinstance(hint, str) else hint(match)
    return None


def _extents(text: str) -> str:
    """Return the first extents in a compiler's message that no tile can have, as ``3 × 8``; ``""`` without any."""
    for match in _SHAPE.finditer(text):
        extents = [int(digits) for digits in re.findall(r"\d+", match[1])]
        if _DYNAMIC not in extents and (any(n < 1 or n & (n - 1) for n in extents) or prod(extents) > _MOST_ELEMENTS):
            return " × ".join(map(str, extents))
    return ""


_HEAD = re.compile(
    r"^(?P<file>.+?)\((?P<line>\d+)\): (?P<severity>error|catastrophic error|warning|note|remark)"
    r"(?: #(?P<number>[\w-]+))?: (?P<message>.*)$"
)
_END = re.compile(r"^At end of source: (?P<severity>error): (?P<message>.*)$")
_END_OF_SOURCE = "the end of the source"
_NAME_MAP = "__nv_name_map"
_NOT_DECLARED = re.compile("is undefined|has no member|must be a class or namespace name")
_ERROR_DIRECTIVE = "#error directive: "
#: Text in the error about a missing header of an nvcc program.
_NOT_FOUND = " is not found, and "
_MOST_SHOWN = 20
_DESIGNATOR = re.compile(r"[{,]\s*\.\w+\s*=")
#: Text in the parts of tensor parameters of tile kernels.
_EDITED = " __restrict__ cudakit_"
_HOST_CODE = "not allowed in JIT mode"
_MISSING_HEADER = re.compile(r'could not open source file "([^"]+)"|cannot open source file "([^"]+)"')
_UNDECLARED = re.compile(
    r'incomplete type "(?P<type>\w+)"|identifier "(?P<name>\w+)" is undefined'
    r'|namespace "(?P<scope>std|cuda|::cuda)" has no member "(?P<member>\w+)"'
)
#: File names of parts of generated kernels, as in ``<name expression>``.
_EXPRESSION = re.compile(r"<(?!kernel text|linked text|template argument)[^<>]* [a-z]+>")
_DEVICE_RUNTIME = re.compile(
    r'identifier "(?:cudaDeviceSynchronize|cudaMalloc|cudaFree|cudaGetLastError|cudaPeekAtLastError|cuda(?:Stream|Event'
    r'|Memcpy|Memset|Launch|GetDevice)\w*)" is undefined'
)


@dataclass(frozen=True)
class Diagnostic:
    """A message of the compiler.

    Attributes
    ----------
    file, line : str, int
        File of the user's source, and line in it.
    severity : str
        ``error``, ``warning``, ``note`` …
    message : str
        Text of the message.
    context : tuple of str
        The source line and the caret under it, then notes such as the instantiation.
    """

    file: str
    line: int
    severity: str
    message: str
    context: tuple[str, ...]

    @property
    def column(self) -> int:
        """Column of the caret under the source line, from 1; 0 without a caret."""
        return next((line.index("^") + 1 for line in self.context if line.strip() == "^"), 0)

    def __str__(self) -> str:
        head = f"{self.file}:{self.line}: {self.severity}: {self.message}"
        return "\n".join([head, *(f"    {line}" for line in self.context)])


def read_log(log: str) -> list[Diagnostic]:
    """Parse the diagnostics in NVRTC's `log`, in order, with the compiler's places."""
    entries: list[tuple[re.Match[str], list[str]]] = []
    for line in log.replace("\0", "").splitlines():
        match = _HEAD.match(line) or _END.match(line)
        if match:
            entries.append((match, []))
        elif re.match(r"^\d+ (?:catastrophic )?errors? detected|^Compilation terminated|^$", line.strip()):
            continue
        elif entries:
            entries[-1][1].append(line)
    read = []
    for position, (match, context) in enumerate(entries):
        file, line, message = (match["file"], match["line"], match["message"]) if match.re is _HEAD else ("", "0", "")
        if match.re is _END:
            file, message = _END_OF_SOURCE, match["message"]
            following, shown = entries[position + 1] if position + 1 < len(entries) else (match, context)
            if "to match this" in following["message"]:
                file, line, context = following["file"], following["line"], shown
                message += ", which is missing at the end; here it was opened"
        if message.startswith(_ERROR_DIRECTIVE):
            message, context = message.removeprefix(_ERROR_DIRECTIVE), []
        read.append(Diagnostic(file, int(line), match["severity"], message, _dedent(context)))
    return read


def _dedent(lines: list[str]) -> tuple[str, ...]:
    """Remove NVRTC's indentation of two columns, so that the caret keeps its place."""
    return tuple(line[2:] if line.startswith("  ") else line for line in lines)


def placed_log(source: Source, log: str, lines_before: int = 0) -> list[Diagnostic]:
    """Parse the diagnostics in NVRTC's `log`, with places in the user's source.

    `lines_before`: number of generated lines that the compiler counts to the source.
    """
    shift, file = line_of_text(source)
    return [_placed(diagnostic, source, file, shift - lines_before, "", lines_before) for diagnostic in read_log(log)]


def compile_error(
    source: Source, name_expression: str, options: tuple[str, ...], text: str, failure: str, lines_before: int = 0
) -> CompileError:
    """Make the `CompileError` for NVRTC's `failure` (the text of its exception, which holds the log).

    `lines_before`: number of generated lines that the compiler counts to the source.
    """
    log = failure.split("compilation log:", 1)[-1].strip("\0\n ")
    diagnostics = read_log(log)
    errors = [d for d in diagnostics if "error" in d.severity]
    shift, file = line_of_text(source)
    shift -= lines_before
    # Warnings mostly come from headers and precede the errors; they stay in the log.
    placed = [_placed(d, source, file, shift, name_expression, lines_before) for d in errors or diagnostics]
    shown = [str(d) for d in placed[:_MOST_SHOWN]]
    if len(errors) > _MOST_SHOWN:
        shown.append(f"… and {len(errors) - _MOST_SHOWN} more, in .log")
    # An unknown type makes the compiler take a kernel's signature for a host variable.
    misread = any(re.search("does not apply here|is not a template", d.message) for d in errors)
    hints = [hint for d in errors if not (misread and _HOST_CODE in d.message) for hint in _hints(d)]
    if any(d.file == _NAME_MAP and _NOT_DECLARED.search(d.message) for d in errors):
        hints += _hidden_kernel_hint(source, shift, name_expression)
    if not any(_NOT_FOUND in d.message for d in errors):
        hints += _left_out(source)
    count = f"{len(errors)} error{'s' if len(errors) != 1 else ''}" if errors else "an error"
    message = "\n".join(
        [
            f"NVRTC found {count} compiling {name_expression}",
            *(shown or [log or failure]),
            *dict.fromkeys(hints),
            f"options: {' '.join(options)}",
        ]
    )
    error = CompileError(message, log=log, source=text, options=options, template_arguments=name_expression)
    error.diagnostics = tuple(
        Details(
            file=d.file,
            line=d.line,
            column=d.column,
            text=d.message,
            advice=" ".join(_hints(d)),
        )
        for d in placed
    )
    return error.detailed(**named(name_expression), advice=" ".join(dict.fromkeys(hints)))


def _hidden_kernel_hint(source: Source, shift: int, name_expression: str) -> list[str]:
    """Return a list of one hint for a kernel that preprocessor conditions hide from the compiler; else an empty list.

    `shift` is added to the lines of the source in the hint.
    """
    name = re.sub(r"^\(.*?\)(?=\w)", "", name_expression).partition("<")[0].rpartition("::")[2]
    heads = re.finditer(rf"__global__[^;{{}}]*?\b{re.escape(name)}\s*\(", source.text)
    conditions = [conditions_around(source.text, head.end()) for head in heads]
    if not conditions or not all(conditions):
        return []
    lines = " and ".join(f"{condition} on line {line + shift}" for line, condition in conditions[0])
    return [
        f"hint: {name} stands under {lines}, which the macros do not make true; give those of the build with "
        "options=CompileOptions(defines=[…])"
    ]


def _left_out(source: Source) -> list[str]:
    """Return a list of one hint for removed headers that may not be for host code; else an empty list.

    These are missing headers that no list of host headers names, and headers of host libraries that no wheel carries.
    """
    names = [
        header
        for header in source.left_out
        if not host_headers.is_host_header(header)
        or (host_headers.is_host_library(header) and headers.wheel_for(header) is None)
    ]
    if not names:
        return []
    shown = ", ".join(f"<{name}>" for name in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return [
        f"hint: {shown} was left out as host code; if device code needs it, give its folder with "
        "options=CompileOptions(include_paths=[…])"
    ]


def _as_written(d: Diagnostic, source: Source, lines_before: int) -> Iterator[str]:
    """Yield the lines of the diagnostic's context, with the user's own line in place of a line that cudakit edited.

    The caret under such a line is left out. `lines_before` is the number of generated lines before the source.
    """
    lines = source.text.splitlines()
    was_edited = False
    for line in d.context:
        if not (was_edited and line.strip() == "^"):
            was_edited = _EDITED in line and 0 < d.line - lines_before <= len(lines)
            yield lines[d.line - lines_before - 1] if was_edited else line


def _placed(
    d: Diagnostic, source: Source, file: str, shift: int, name_expression: str, lines_before: int
) -> Diagnostic:
    if d.file == _END_OF_SOURCE:
        return replace(d, file=file, line=source.text.count("\n") + 1 + shift)
    if d.file == source.name:
        return Diagnostic(file, d.line + shift, d.severity, d.message, tuple(_as_written(d, source, lines_before)))
    if d.file == _NAME_MAP:
        context = tuple(line for line in d.context if "#pragma" not in line and line.strip() != "^")
        return Diagnostic(f"{file}, template arguments of {name_expression}", 1, d.severity, d.message, context)
    return d


def line_of_text(source: Source) -> tuple[int, str]:
    """Return the number to add to a string's lines for lines of its Python file, and the name of the Python file.

    For a source that is no string, or if the string is not found in the file, the number is 0.
    """
    source = source.whole or source
    if source.origin is None:
        return 0, source.name
    path, call_line = source.origin
    try:
        python = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return 0, source.name
    places, place = [], python.find(source.text)
    while place >= 0:
        places.append(place)
        place = python.find(source.text, place + max(1, len(source.text)))
    if not places:
        return 0, f"{source.name} of {path}:{call_line}"
    lines = [python.count("\n", 0, place) for place in places]
    return min(lines, key=lambda line: abs(line + 1 - call_line)), path


def _hints(d: Diagnostic) -> list[str]:
    if match := _MISSING_HEADER.search(d.message):
        return [_header_hint(match[1] or match[2])]
    if "device-side kernel launch" in d.message or _DEVICE_RUNTIME.search(d.message):
        return [
            "hint: CUDA's device runtime (kernels that launch kernels, cudaMalloc, cudaMemsetAsync …) is for "
            "relocatable code: give options=CompileOptions(rdc=True), unless <<<…>>> stands in the text itself. "
            "cudaDeviceSynchronize is the host's alone since CUDA 12"
        ]
    if match := _UNDECLARED.search(d.message):
        name = match["name"] or match["type"] or f"{match['scope']}::{match['member']}"
        header = header_of(name)
        if header and _EXPRESSION.fullmatch(d.file):
            return [f"hint: {name} needs preamble='#include <{header}>' beside the expression"]
        if header:
            return [f"hint: {name} needs #include <{header}>; NVRTC includes nothing by itself"]
    if "class or namespace" in d.message and any(_EDITED in line for line in d.context):
        return ["hint: cudakit::tensor needs #include <cudakit/tensor.cuh>"]
    if hint := _error_hint(d):
        return [f"hint: {hint}"]
    if d.message == "expected an expression" and _DESIGNATOR.search(" ".join(d.context)):
        return ['hint: designated initializers ({.x = 1}) are C++20: give options=CompileOptions(std="c++20")']
    if _HOST_CODE in d.message:
        return [
            "hint: NVRTC takes device code only: put __device__ before it, or #ifndef __CUDACC_RTC__ around what the "
            "host alone needs, or take all such code as the device's with "
            'options=CompileOptions(extra={"device_as_default_execution_space": True})'
        ]
    return []


def _header_hint(header: str) -> str:
    if wheel := headers.wheel_for(header):
        return (
            f"hint: <{header}> comes with the wheel {wheel}: pip install 'cudakit[cu13]' (or [cu12]), "
            f"or pip install {wheel}"
        )
    if host_headers.is_host_header(header):
        return (
            f"hint: <{header}> is the host's, and NVRTC takes device code only: leave it out, or put "
            "#ifndef __CUDACC_RTC__ around it"
        )
    return f'hint: add the folder that holds "{header}" with options=CompileOptions(include_paths=[…])'
