"""CUDA C++ of a stencil: which neighbours the expression looks at, and the kernel that has them in registers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from cudakit.errors import TemplateError
from cudakit.generate.declarations import (
    Parameter,
    code_of,
    complex_header,
    numbered,
    placed,
    statement,
    type_variables,
)
from cudakit.types.cpp import HEADER

#: What ends the name of the kernel that does several steps.
STEPS = "_steps"
#: Names of <cudakit/stencil/window.cuh>, by SciPy's names; the last ones are others of the same.
BORDERS = {
    "constant": "CONSTANT",
    "nearest": "NEAREST",
    "reflect": "REFLECT",
    "mirror": "MIRROR",
    "wrap": "WRAP",
    "grid-constant": "CONSTANT",
    "grid-mirror": "REFLECT",
    "grid-wrap": "WRAP",
}
#: Names that generated code has beside the arguments'.
RESERVED = ("cudakit", "cuda")
_FUNCTIONS = frozenset(("min", "max", "abs", "pow", "fma", "ldexp"))
_OFFSET = re.compile(r"\s*[+-]?\s*\d+\s*")


class StencilRecipe(NamedTuple):
    """A stencil as it was declared.

    Attributes
    ----------
    halos : tuple of (tuple of int or None)
        Of each input, how far its neighbours lie along each of three axes; None for one that is a number.
    rank : int
    points : int
        The most neighbours of one input.
    borders : tuple of str
        Of each of three axes.
    constant : float
        Beyond borders that are constant.
    """

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    body: str
    preamble: str
    halos: tuple[tuple[int, int, int] | None, ...]
    rank: int
    points: int
    borders: tuple[str, str, str]
    constant: float

    @property
    def variables(self) -> tuple[str, ...]:
        """Type variables, which are the kernel's first template parameters."""
        return type_variables(*self.inputs, *self.outputs)

    @property
    def can_fuse_steps(self) -> bool:
        """Whether several steps can be one launch: of a line or a plane, whose output takes its one array's place."""
        arrays = [p for p, halo in zip(self.inputs, self.halos, strict=True) if halo is not None]
        return len(arrays) == len(self.outputs) == 1 and self.rank < 3 and arrays[0].type == self.outputs[0].type


def called_with_offsets(body: str) -> tuple[str, ...]:
    """Names that an expression calls with constant integers: its inputs, where none are declared."""
    calls = re.findall(r"(?<![\w.:])([A-Za-z_]\w*)\s*\(([^()]*)\)", code_of(body))
    found = [name for name, given in calls if all(map(_OFFSET.fullmatch, given.split(",")))]
    return tuple(name for name in dict.fromkeys(found) if name not in _FUNCTIONS)


def offsets_of(op: str, name: str, body: str, is_open: bool) -> list[tuple[int, ...]]:
    """Where an expression looks at an input; none where it is a number.

    Parameters
    ----------
    is_open : bool
        Whether it may also look where only the kernel knows.

    Raises
    ------
    TemplateError
    """
    code = code_of(body)
    begins = len(re.findall(rf"(?<![\w.]){name}\s*\(", code))
    calls = re.findall(rf"(?<![\w.]){name}\s*\(([^()]*)\)", code)
    found = [tuple(given.split(",")) for given in calls]
    known = [each for each in found if all(map(_OFFSET.fullmatch, each))]
    if len(known) < begins and not is_open:
        shown = next((",".join(each) for each in found if each not in known), "…")
        raise TemplateError(
            f"{op}: {name}({shown.strip()}) is not at constant integers, as {name}(0, -1) is; give radius=, how far "
            "the neighbours lie at most"
        )
    if begins and len(re.findall(rf"(?<![\w.]){name}\b", code)) > begins:
        raise TemplateError(f"{op}: {name} is an array; the element itself is {name}({', '.join('0' * len(found[0]))})")
    if begins and not known:
        return [(0,) * len(found[0])] if found else []
    return [tuple(int("".join(each.split())) for each in offsets) for offsets in known]


def kernel_text(recipe: StencilRecipe) -> str:
    """The whole source of the kernel ``recipe.name``."""
    types = {p.type.partition("<")[0] for p in (*recipe.inputs, *recipe.outputs) if p.dtype is not None}
    headers = [*sorted({HEADER[name] for name in types if name in HEADER}), "cudakit/stencil/tile.cuh"]
    parts = ["".join(f"#include <{each}>\n" for each in headers) + complex_header([recipe.body], recipe.preamble)]
    if recipe.preamble.strip():
        parts.append(placed(recipe.preamble, f"<{recipe.name} preamble>"))
    parts += [_function(recipe), _kernel(recipe), *([_steps_kernel(recipe)] if recipe.can_fuse_steps else [])]
    return numbered("\n".join(parts), f"<{recipe.name}>")


def as_statements(op: str, body: str, outputs: Sequence[Parameter]) -> str:
    """The user's text as statements; an expression alone is the one output's."""
    code = code_of(body)
    if len(outputs) == 1 and not re.search(rf"(?<![\w.]){outputs[0].name}\b", code):
        return f"{outputs[0].name} =\n{placed(statement(op, 'expression', body), f'<{op} expression>')}"
    return placed(statement(op, "expression", body), f"<{op} expression>")


def _seen(name: str) -> str:
    """What an expression sees of a type: its type variables are what the kernel makes of them."""
    return f"cudakit::narrow<{name}>" if name in ("__half", "__nv_bfloat16") else name


def _function(recipe: StencilRecipe) -> str:
    """The device function that holds the expression."""
    types = [*recipe.variables]
    parameters = []
    for p, halo in zip(recipe.inputs, recipe.halos, strict=True):
        if halo is None:
            parameters.append(f"const {_seen(p.type)} {p.name}")
        else:
            types.append(f"{p.name}_cell_")
            parameters.append(f"const {p.name}_cell_& {p.name}")
    parameters += [f"{_seen(p.type)}& {p.name}" for p in recipe.outputs]
    head = f"template <{', '.join(f'typename {each}' for each in types)}>\n" if types else ""
    body = as_statements(recipe.name, recipe.body, recipe.outputs)
    return f"{head}__device__ __forceinline__ void {recipe.name}_({', '.join(parameters)}) {{\n{body}}}\n"


def _kernel(recipe: StencilRecipe) -> str:
    """The kernel: each input's window, the function for each cell, the results stored."""
    types = [f"typename {each}" for each in recipe.variables]
    parameters, windows, calls = [], [], []
    borders = ", ".join(f"cudakit::{BORDERS[mode]}_BORDER" for mode in recipe.borders)
    for p, halo in zip(recipe.inputs, recipe.halos, strict=True):
        if halo is None:
            parameters.append(f"{p.type} {p.name}")
            calls.append(p.name)
            continue
        types.append(f"typename {p.name}_type_")
        parameters.append(f"const {p.name}_type_* {p.name}")
        seen = f"cudakit::seen_t<{p.type}>"
        window = (
            f"cudakit::stencil_window<{seen}, {borders}, {', '.join(map(str, halo))}, COUNT_, ROWS_, PLANES_, Index_>"
        )
        windows.append(f"const {window} {p.name}_window_({p.name}, cells_, cudakit::as<{seen}>(constant_));")
        calls.append(f"{p.name}_window_.at(plane_, row_, column_)")
    parameters += [f"{p.type}* {p.name}" for p in recipe.outputs]
    calls += [f"{p.name}_few_.values[column_]" for p in recipe.outputs]
    types += ["typename Index_", "int COUNT_", "int ROWS_", "int PLANES_", "int BLOCK_"]
    parameters += ["double constant_", "Index_ depth_", "Index_ height_", "Index_ width_"]
    of = ", ".join(f"cudakit::seen_t<{name}>" for name in recipe.variables)
    lines = [
        "const cudakit::stencil_cells<Index_, COUNT_, ROWS_, PLANES_> cells_(depth_, height_, width_);",
        "if (cells_.is_empty()) return;",
        *windows,
        "#pragma unroll",
        "for (int plane_ = 0; plane_ < PLANES_; ++plane_) {",
        "#pragma unroll",
        "    for (int row_ = 0; row_ < ROWS_; ++row_) {",
        "        if (!cells_.has(plane_, row_)) continue;",
        *(f"        cudakit::few<cudakit::seen_t<{p.type}>, COUNT_> {p.name}_few_;" for p in recipe.outputs),
        "#pragma unroll",
        "        for (int column_ = 0; column_ < COUNT_; ++column_)",
        f"            {recipe.name}_{f'<{of}>' if of else ''}({', '.join(calls)});",
        *(f"        cells_.store({p.name}, {p.name}_few_, plane_, row_);" for p in recipe.outputs),
        "    }",
        "}",
    ]
    text = "".join(f"{line}\n" if line.startswith("#") else f"    {line}\n" for line in lines)
    return (
        f"template <{', '.join(types)}>\n__global__ void __launch_bounds__(BLOCK_) {recipe.name}(\n"
        f"    {', '.join(parameters)}) {{\n{text}}}"
    )


def _steps_kernel(recipe: StencilRecipe) -> str:
    """The kernel that does several steps of one array in shared memory."""
    types = [f"typename {each}" for each in recipe.variables]
    types += ["typename Index_", "int ROWS_", "int COLUMNS_", "int STEPS_"]
    parameters, calls, halo, read = [], [], (0, 0, 0), ""
    for p, own in zip(recipe.inputs, recipe.halos, strict=True):
        parameters.append(f"{p.type} {p.name}" if own is None else f"const {p.type}* {p.name}")
        calls.append(p.name if own is None else "cell_")
        if own is not None:
            halo, read = own, p.name
    out = recipe.outputs[0]
    parameters += [f"{out.type}* {out.name}", "double constant_", "Index_ height_", "Index_ width_"]
    seen = f"cudakit::seen_t<{out.type}>"
    borders = ", ".join(f"cudakit::{BORDERS[mode]}_BORDER" for mode in recipe.borders[1:])
    of = ", ".join(f"cudakit::seen_t<{name}>" for name in recipe.variables)
    fixed = [p for p in recipe.inputs if p.name in calls]
    variables = ", ".join(recipe.variables)
    # A function object with a name: NVRTC 13.0 takes a generic lambda for a function of the host.
    head = f"template <{', '.join(f'typename {name}' for name in recipe.variables)}>\n" if variables else ""
    function = f"{recipe.name}_next_{f'<{variables}>' if variables else ''}"
    return (
        f"\n{head}struct {recipe.name}_next_ {{\n"
        + "".join(f"    {p.type} {p.name};\n" for p in fixed)
        + f"    template <typename Cell_>\n    __device__ void operator()(const Cell_& cell_, {seen}& next_) const {{\n"
        f"        {recipe.name}_{f'<{of}>' if of else ''}({', '.join([*calls, 'next_'])});\n    }}\n}};\n"
        f"template <{', '.join(types)}>\n__global__ void __launch_bounds__(256) {recipe.name}{STEPS}(\n"
        f"    {', '.join(parameters)}) {{\n"
        f"    using tile_type_ = cudakit::stencil_tile<\n"
        f"        {seen}, {borders}, {halo[1]}, {halo[2]}, ROWS_, COLUMNS_, STEPS_>;\n"
        f"    __shared__ tile_type_ tile_;\n"
        f"    tile_.run({read}, {out.name}, height_, width_, cudakit::as<{seen}>(constant_),\n"
        f"        {function}{{{', '.join(p.name for p in fixed)}}});\n}}"
    )
