"""Stencils from an expression or a function of neighbours: declarations, and how far neighbours reach."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Self, overload

import numpy as np

from cudakit.arrays.output import as_number, can_cast, check_apart, overlaps
from cudakit.arrays.place import ArrayPlace
from cudakit.arrays.tunable import Choice
from cudakit.errors import ArgumentError, CompileError, TemplateError, shortened
from cudakit.generate.call import (
    CallArguments,
    GeneratedFunction,
    checked,
    deduce_types,
    delivered,
    dtype_of,
    dtypes_of,
    gather_all,
)
from cudakit.generate.declarations import (
    CPP_WORDS,
    NAMESPACES,
    Declared,
    Parameter,
    check_kernel_name,
    check_name,
    check_set,
    code_of,
    cpp_text,
    numbered,
    parse,
    placed,
    seen_type,
    statement,
    template_arguments,
    template_head,
    type_variables,
)
from cudakit.generate.outside import Outside
from cudakit.generate.traced import OWN, Trace, Traced
from cudakit.generate.ufuncs import OPTIONS, PREAMBLE
from cudakit.jit.load.config import Config, config
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, options_of
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.types.checked import is_one_of, listed, whole
from cudakit.types.cpp import spelling

#: What ends the name of the kernel that does several steps.
STEPS = "_steps"
#: What ends the name of the kernel whose planes come through shared memory.
STAGED = "_staged"
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
_FUNCTIONS = frozenset(("min", "max", "abs", "pow", "fma", "ldexp"))
_OFFSET = re.compile(r"\s*[+-]?\s*\d+\s*")


@dataclass(frozen=True)
class StencilRecipe(Declared):
    """The declarations of a stencil.

    Attributes
    ----------
    halos : tuple of (tuple of int or None)
        Greatest offsets of each input along each of three axes. None for an input that is a number.
    rank : int
        Number of dimensions.
    points : int
        Greatest number of neighbours of one input.
    borders : tuple of str
        Border mode of each of three axes.
    constant : float
        Value beyond borders of mode constant.
    """

    body: str
    halos: tuple[tuple[int, int, int] | None, ...]
    rank: int
    points: int
    borders: tuple[str, str, str]
    constant: float

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Type variables and structs of the preamble, which are the kernel's first template parameters."""
        return type_variables(*self.inputs, *self.outputs)

    @property
    def can_fuse_steps(self) -> bool:
        """True if several steps can be one launch: one array of one or two dimensions, replaced by the output."""
        arrays = [p for p, halo in zip(self.inputs, self.halos, strict=True) if halo is not None]
        return len(arrays) == len(self.outputs) == 1 and self.rank < 3 and arrays[0].type == self.outputs[0].type

    @property
    def can_stage_planes(self) -> bool:
        """True if planes can come through shared memory: one array of three dimensions, with neighbours 1 away."""
        halos = [halo for halo in self.halos if halo is not None]
        return len(halos) == 1 and halos[0][0] == 1 and max(halos[0]) == 1


def called_with_offsets(body: str) -> tuple[str, ...]:
    """Return the names that an expression calls with constant integers, such as u in ``u(0, -1)``, in order.

    They are the inputs of a stencil without declared inputs.
    """
    calls = re.findall(r"(?<![\w.:])([A-Za-z_]\w*)\s*\(([^()]*)\)", code_of(body))
    names = [name for name, arguments in calls if all(map(_OFFSET.fullmatch, arguments.split(",")))]
    return tuple(name for name in dict.fromkeys(names) if name not in _FUNCTIONS)


def offsets_of(op: str, name: str, body: str, is_open: bool) -> list[tuple[int, ...]]:
    """Return the offsets at which an expression reads an input; none if the input is a number.

    Parameters
    ----------
    is_open : bool
        Whether the expression may also have offsets that are known only when the kernel runs.

    Raises
    ------
    TemplateError
        The offsets cannot be read from the expression.
    """
    code = code_of(body)
    begins = len(re.findall(rf"(?<![\w.]){name}\s*\(", code))
    calls = re.findall(rf"(?<![\w.]){name}\s*\(([^()]*)\)", code)
    offsets = [tuple(arguments.split(",")) for arguments in calls]
    constants = [offset for offset in offsets if all(map(_OFFSET.fullmatch, offset))]
    if len(constants) < begins and not is_open:
        shown = next((",".join(offset) for offset in offsets if offset not in constants), "…")
        raise TemplateError(
            f"{op}: {name}({shown.strip()}) is not at constant integers, as {name}(0, -1) is; give radius=, how far "
            "the neighbours lie at most"
        )
    if begins and len(re.findall(rf"(?<![\w.]){name}\b", code)) > begins:
        raise TemplateError(
            f"{op}: {name} is an array; the element itself is {name}({', '.join('0' * len(offsets[0]))})"
        )
    if begins and not constants:
        return [(0,) * len(offsets[0])] if offsets else []
    return [tuple(int("".join(number.split())) for number in offsets) for offsets in constants]


def kernel_text(recipe: StencilRecipe) -> str:
    """Return the source of the kernel ``recipe.name``."""
    parts = [recipe.includes("cudakit/stencil/tile.cuh", [recipe.body]), recipe.placed_preamble]
    parts += [_function(recipe), _kernel(recipe), _steps_kernel(recipe) if recipe.can_fuse_steps else ""]
    parts += [_staged_kernel(recipe) if recipe.can_stage_planes else ""]
    return numbered("\n".join(filter(None, parts)), f"<{recipe.name}>")


def as_statements(op: str, body: str, outputs: Sequence[Parameter]) -> str:
    """Return C++ statements from the user's `body`, with line directives.

    A body that does not name the one output is an expression. It is assigned to the output.
    """
    code = code_of(body)
    if len(outputs) == 1 and not re.search(rf"(?<![\w.]){outputs[0].name}\b", code):
        return f"{outputs[0].name} =\n{placed(statement(op, 'expression', body), f'<{op} expression>')}"
    return placed(statement(op, "expression", body), f"<{op} expression>")


def _function(recipe: StencilRecipe) -> str:
    """Return the device function that contains the expression."""
    types = [*recipe.variables]
    parameters = []
    for p, halo in zip(recipe.inputs, recipe.halos, strict=True):
        if halo is None:
            parameters.append(f"const {seen_type(p.type)} {p.name}")
        else:
            types.append(f"{p.name}_cell_")
            parameters.append(f"const {p.name}_cell_& {p.name}")
    parameters += [f"{seen_type(p.type)}& {p.name}" for p in recipe.outputs]
    body = as_statements(recipe.name, recipe.body, recipe.outputs)
    return (
        f"{template_head(types)}__device__ __forceinline__ void {recipe.name}_({', '.join(parameters)}) {{\n{body}}}\n"
    )


def _kernel(recipe: StencilRecipe) -> str:
    """Return the kernel: each input's window, the function for each cell, results stored."""
    types = [f"typename {variable}" for variable in recipe.variables]
    parameters, windows, calls = [], [], []
    borders = ", ".join(f"cudakit::{BORDERS[mode]}_BORDER" for mode in recipe.borders)
    for p, halo in zip(recipe.inputs, recipe.halos, strict=True):
        if halo is None:
            parameters.append(f"{p.type} {p.name}")
            calls.append(p.name)
            continue
        types.append(f"typename {p.name}_type_")
        parameters.append(f"const {p.name}_type_* {p.name}")
        cell_type = f"cudakit::seen_t<{p.type}>"
        reach = ", ".join(map(str, halo))
        window = f"cudakit::stencil_window<{cell_type}, {borders}, {reach}, COUNT_, ROWS_, PLANES_, Index_>"
        outside = f"cudakit::as<{cell_type}>(constant_)"
        windows.append(f"{window} {p.name}_window_({p.name}, cells_, {outside});")
        calls.append(f"{p.name}_window_.at(plane_, row_, column_)")
    parameters += [f"{p.type}* {p.name}" for p in recipe.outputs]
    calls += [f"{p.name}_few_.values[column_]" for p in recipe.outputs]
    types += ["typename Index_", "int COUNT_", "int ROWS_", "int PLANES_", "int BLOCK_"]
    parameters += ["double constant_", "Index_ depth_", "Index_ height_", "Index_ width_"]
    of = template_arguments(f"cudakit::seen_t<{name}>" for name in recipe.variables)
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
        f"            {recipe.name}_{of}({', '.join(calls)});",
        *(f"        cells_.store({p.name}, {p.name}_few_, plane_, row_);" for p in recipe.outputs),
        "    }",
        "}",
    ]
    text = "".join(f"{line}\n" if line.startswith("#") else f"    {line}\n" for line in lines)
    return (
        f"template <{', '.join(types)}>\n__global__ void __launch_bounds__(BLOCK_) {recipe.name}(\n"
        f"    {', '.join(parameters)}) {{\n{text}}}"
    )


def _staged_kernel(recipe: StencilRecipe) -> str:
    """Return the kernel whose planes of the one array come through shared memory."""
    types = [f"typename {variable}" for variable in recipe.variables]
    parameters, calls, read, halo = [], [], recipe.inputs[0], (0, 0, 0)
    for p, own in zip(recipe.inputs, recipe.halos, strict=True):
        parameters.append(f"{p.type} {p.name}" if own is None else f"const {p.name}_type_* {p.name}")
        calls.append(p.name if own is None else "window_.at(turn_, row_, column_)")
        if own is not None:
            read, halo = p, own
    parameters += [f"{p.type}* {p.name}" for p in recipe.outputs]
    calls += [f"{p.name}_few_.values[column_]" for p in recipe.outputs]
    types += [f"typename {read.name}_type_", "typename Index_", "int COUNT_", "int ROWS_", "int PLANES_"]
    types += ["int ACROSS_", "int DOWN_"]
    parameters += ["double constant_", "Index_ depth_", "Index_ height_", "Index_ width_"]
    of = template_arguments(f"cudakit::seen_t<{name}>" for name in recipe.variables)
    cell_type = f"cudakit::seen_t<{read.type}>"
    borders = ", ".join(f"cudakit::{BORDERS[mode]}_BORDER" for mode in recipe.borders)
    few = "".join(
        f"                cudakit::few<cudakit::seen_t<{p.type}>, COUNT_> {p.name}_few_;\n" for p in recipe.outputs
    )
    stores = "".join(
        f"                cells_.store_if(cells_.has(plane_ + turn_, row_), {p.name} + row_ * width_, {p.name}_few_);\n"
        for p in recipe.outputs
    )
    firsts = "".join(f"    {p.name} = cells_.first({p.name});\n" for p in recipe.outputs)
    steps = "".join(f"            {p.name} += height_ * width_;\n" for p in recipe.outputs)
    return f"""
template <{", ".join(types)}>
__global__ void __launch_bounds__(ACROSS_ * DOWN_) {recipe.name}{STAGED}(
    {", ".join(parameters)}) {{
    const cudakit::stencil_cells<Index_, COUNT_, ROWS_, PLANES_> cells_(depth_, height_, width_);
    using window_type_ = cudakit::staged_window<
        {cell_type}, {read.name}_type_, {borders}, {halo[1]}, {halo[2]},
        COUNT_, ROWS_, PLANES_, ACROSS_, DOWN_, Index_>;
    __shared__ typename window_type_::planes planes_;
    const {cell_type} outside_ = cudakit::as<{cell_type}>(constant_);
    window_type_ window_(planes_, {read.name}, cells_, outside_);
{firsts}#pragma unroll 1
    for (int plane_ = 0; plane_ < PLANES_ && cells_.z + plane_ < depth_; plane_ += 3) {{
#pragma unroll
        for (int turn_ = 0; turn_ < 3; ++turn_) {{
            window_.move(planes_, {read.name}, cells_, plane_ + turn_, turn_, outside_);
#pragma unroll
            for (int row_ = 0; row_ < ROWS_; ++row_) {{
{few}#pragma unroll
                for (int column_ = 0; column_ < COUNT_; ++column_)
                    {recipe.name}_{of}({", ".join(calls)});
{stores}            }}
{steps}        }}
    }}
}}"""


def _steps_kernel(recipe: StencilRecipe) -> str:
    """Return the kernel that runs several steps of one array in shared memory."""
    types = [f"typename {variable}" for variable in recipe.variables]
    types += ["typename Index_", "int ROWS_", "int COLUMNS_", "int STEPS_"]
    parameters, calls, halo, read = [], [], (0, 0, 0), ""
    for p, own in zip(recipe.inputs, recipe.halos, strict=True):
        parameters.append(f"{p.type} {p.name}" if own is None else f"const {p.type}* {p.name}")
        calls.append(p.name if own is None else "cell_")
        if own is not None:
            halo, read = own, p.name
    out = recipe.outputs[0]
    parameters += [f"{out.type}* {out.name}", "double constant_", "Index_ height_", "Index_ width_"]
    cell_type = f"cudakit::seen_t<{out.type}>"
    borders = ", ".join(f"cudakit::{BORDERS[mode]}_BORDER" for mode in recipe.borders[1:])
    of = template_arguments(f"cudakit::seen_t<{name}>" for name in recipe.variables)
    fixed = [p for p in recipe.inputs if p.name in calls]
    # A function object with a name: NVRTC 13.0 takes a generic lambda for a function of the host.
    head, function = template_head(recipe.variables), f"{recipe.name}_next_{template_arguments(recipe.variables)}"
    return (
        f"\n{head}struct {recipe.name}_next_ {{\n"
        + "".join(f"    {p.type} {p.name};\n" for p in fixed)
        + "    template <typename Cell_>\n"
        f"    __device__ void operator()(const Cell_& cell_, {cell_type}& next_) const {{\n"
        f"        {recipe.name}_{of}({', '.join([*calls, 'next_'])});\n    }}\n}};\n"
        f"template <{', '.join(types)}>\n__global__ void __launch_bounds__(256) {recipe.name}{STEPS}(\n"
        f"    {', '.join(parameters)}) {{\n"
        f"    using tile_type_ = cudakit::stencil_tile<\n"
        f"        {cell_type}, {borders}, {halo[1]}, {halo[2]}, ROWS_, COLUMNS_, STEPS_>;\n"
        f"    __shared__ tile_type_ tile_;\n"
        f"    tile_.run({read}, {out.name}, height_, width_, cudakit::as<{cell_type}>(constant_),\n"
        f"        {function}{{{', '.join(p.name for p in fixed)}}});\n}}"
    )


# A Python function of neighbours, run once on stand-ins, as the declarations and the body of a stencil.

_INSIDE = re.compile(r"(?:[tx]|fold|view|out)\d*")


class Written(NamedTuple):
    """A traced function as arguments of `stencil`: inputs, outputs and C++. `several`: the function returns a tuple."""

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    body: str
    several: bool


class Neighbours(np.lib.mixins.NDArrayOperatorsMixin):
    """A stand-in for an array in a traced stencil function. A call with integer offsets returns a neighbour element.

    Only elements have operators. An operator or a NumPy function on the stand-in itself is refused.
    """

    def __init__(self, trace: Trace, dtype: np.dtype, name: str, shown: str) -> None:
        self._trace, self._dtype, self._name, self._shown = trace, dtype, name, shown
        trace.origins[name] = frozenset([name])

    def __call__(self, *offsets: int) -> Traced:
        if not offsets or not all(isinstance(offset, int | np.integer) for offset in offsets):
            self._trace.refuse(f"{self._shown}{offsets} is not at constant integers, as {self._shown}(0, -1) is")
        return self._trace.new(self._dtype, f"{self._name}({', '.join(str(int(offset)) for offset in offsets)})")

    def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
        self._trace.refuse(f"{self._shown} is an array; the element itself is {self._shown}(0, 0)")


def traced(op: str, function: Callable[..., Any], names: Sequence[str], types: Sequence[Any]) -> Written:
    """Return the C++ of a function of arguments with `names` and `types`: dtypes of arrays, classes of Python numbers.

    Raises
    ------
    TemplateError
        The function cannot be traced. The message gives the place in the function.
    """
    trace = Trace(op, {})
    stands: list[Any] = []
    inputs = []
    for k, (name, operand_type) in enumerate(zip(names, types, strict=True)):
        inside, is_array = f"x{k}", isinstance(operand_type, np.dtype)
        dtype = operand_type if is_array else OWN[operand_type]
        if not _INSIDE.fullmatch(name):
            check_name(op, name)
        cpp = spelling(dtype)
        if cpp is None:
            raise TemplateError(f"{op}: {name} is of {dtype}, which has no C++ equivalent")
        inputs.append(Parameter(inside if _INSIDE.fullmatch(name) else name, cpp, dtype))
        stand = Neighbours(trace, dtype, inside, name) if is_array else None
        stands.append(stand or Traced(trace, operand_type, inside, argument=name, is_number=True))
    results = function(*stands)
    several = isinstance(results, tuple | list)
    values = list(results) if several else [results]
    if not values or not all(isinstance(value, Traced) for value in values) or trace.folds or trace.views:
        raise TemplateError(f"{op}: it returns what is made of neighbours, element by element, or a tuple of such")
    outputs = []
    for k, value in enumerate(values):
        cpp = spelling(value.dtype)
        assert cpp is not None  # as was checked when the value was made
        outputs.append(Parameter(f"out{k}" if several else "out", cpp, value.dtype))
    lines = trace.lines(*(value.name for value in values))
    lines += [f"{p.name} = {value.name};" for p, value in zip(outputs, values, strict=True)]
    body = re.sub(r"\bx(\d+)\b", lambda match: inputs[int(match[1])].name, "\n".join(lines))
    return Written(tuple(inputs), tuple(outputs), body, several)


# Calls of a stencil: arrays checked, and the launches that its steps take.

#: Planes and rows of a thread's cells, and threads of a block, by the rank.
_SHAPES = {1: ((1, 1), (128, 1)), 2: ((1, 8), (32, 4)), 3: ((4, 2), (32, 4))}
_CELLS = Choice(
    "stencil",
    {"planes": (1, 2, 3, 4, 8), "rows": (1, 2, 4, 8, 16), "across": (32, 64, 128, 256), "down": (1, 2, 4, 8)},
    where=lambda across, down: 64 <= across * down <= 512,
)
#: Where planes come through shared memory: from how many neighbours on. By the bytes of an element: planes and rows of
#: a thread, the bytes that it copies at a time, and the threads of a block.
_MANY_POINTS, _STAGED = 10, {2: (24, 4, 8, 32, 4), 4: (24, 8, 8, 32, 2), 8: (24, 8, 8, 64, 2)}
_PLANES = Choice(
    "stencil of planes",
    {"planes": (12, 24, 48), "rows": (1, 2, 4, 8), "bytes": (8, 16), "across": (32, 64), "down": (2, 4, 8)},
    where=lambda rows, across, down: across * (rows * down + 2) <= 640,
)
#: Of a call.
_MOST_STEPS = 2**24
#: Where steps are fused: rows and columns of a block's tile by the rank, and its threads.
_TILES, _TILE_THREADS = {1: (1, 1024), 2: (32, 64)}, 256
#: The most steps of a launch, how many times a tile's cells it may hold with what lies around, and in how many bytes.
_MOST_FUSED, _MOST_HELD, _SHARED_BYTES = 4, 1.5, 48 << 10
#: Bytes of an element from which several steps in a launch pay, and from which two do, on an H200.
_LEAST_FUSED, _WIDE = 4, 8


class _Job(NamedTuple):
    """The launch for arrays of one layout."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


class Stencil(GeneratedFunction):
    """A function of arrays, made by `stencil`.

    Called as ``f(*inputs, out=None, stream=None, steps=1)``.

    Parameters
    ----------
    *inputs : array or number
        Arrays of one shape, with as many dimensions as the expression has offsets. Inputs that the expression uses
        without offsets are numbers. Arrays that are not C-contiguous are copied first.
    out : array or tuple, optional
        Output arrays of the inputs' shape and the outputs' dtypes, which overlap no input. Default: new arrays.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.
    steps : int
        Number of repetitions. From the second step on, the output takes the place of the first array among the inputs.
        For one array of one or two dimensions, up to 4 steps are one launch, in shared memory.

    Returns
    -------
    array or tuple of array
        Outputs of the inputs' shape.

    Raises
    ------
    ArgumentError
        The message names the argument:

        - Shapes differ, or a size is smaller than the halo that the mode repeats.
        - `out` overlaps an input.
        - Types cannot be deduced, or would lose values.
    CompileError
        The expression does not compile. The message gives the place in the expression.
    """

    _FAMILY, _OPTIONS = "stencil", MappingProxyType({"steps": 1})

    recipe: StencilRecipe
    _kernel: Kernel
    _steps_kernel: Kernel | None
    _staged_kernel: Kernel | None

    def __new__(cls, recipe: StencilRecipe, options: CompileOptions | None = None) -> Self:
        options = options_of(recipe.name, options)
        source = Source(kernel_text(recipe), f"<{recipe.name}>")
        kernel = of_source(source, recipe.name, options)
        steps = of_source(source, recipe.name + STEPS, options) if recipe.can_fuse_steps else None
        staged = of_source(source, recipe.name + STAGED, options) if recipe.can_stage_planes else None
        return super().__new__(cls, recipe, options, _kernel=kernel, _steps_kernel=steps, _staged_kernel=staged)

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel."""
        return kernel_text(self.recipe)

    def _ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, steps: int = 1) -> Any:
        """Run a call that is not replayed."""
        recipe, op = self.recipe, self.recipe.name
        times = whole(f"{op}: steps", steps, 1)
        if times > _MOST_STEPS:
            raise ArgumentError(f"{op}: steps is {_MOST_STEPS} at most, got {shortened(steps)}; call it several times")
        call, outs, mine = gather_all(recipe, args, out, stream)
        place, values = call.place, list(call.values)
        self._check_arrays(call)
        of_outs = [None if out is None else out.dtype for out in mine]
        types = deduce_types(op, recipe.inputs, dtypes_of(call.layouts), recipe.outputs, of_outs)
        arrays = [
            (p, value) for p, value, halo in zip(recipe.inputs, values, recipe.halos, strict=True) if halo is not None
        ]
        shape = self._shape(arrays)
        results = []
        check_apart(op, outs)
        for p, out in zip(recipe.outputs, mine, strict=True):
            dtype, shown = types.get(p.type, p.dtype), f"{op}, output {p.name}"
            assert dtype is not None  # deduced, or declared
            results.append(
                place.empty(shape, dtype) if out is None else checked(shown, p, place, out, shape, dtype, "no")
            )
        for p, out in zip(recipe.outputs, mine, strict=True):
            for other, array in arrays if out is not None else ():
                if overlaps(out, array):
                    raise ArgumentError(
                        f"{op}: out ({p.name}) overlaps {other.name}, which is read; give another array"
                    )
        if 0 not in shape:
            for k, halo in enumerate(recipe.halos):
                if halo is not None and not values[k].flags.c_contiguous:
                    values[k] = place.copied(values[k])
            self._steps(place, values, results, types, times)
        return delivered(outs, results)

    def _check_arrays(self, call: CallArguments) -> None:
        """Raise if an array is passed for a number, or a number for an array."""
        for p, halo, value, layout in zip(
            self.recipe.inputs, self.recipe.halos, call.values, call.layouts, strict=True
        ):
            if (type(layout) is tuple) == (halo is None):
                expected = "a number, for the expression has no neighbours of it" if halo is None else "an array"
                raise ArgumentError(f"{self.recipe.name}: {p.name} must be {expected}, got {type(value).__name__}")

    def _shape(self, arrays: list[tuple[Parameter, Any]]) -> tuple[int, ...]:
        """Return the common shape of all arrays.

        Raises
        ------
        ArgumentError
            The shapes differ, the number of axes is wrong, or an axis is shorter than its border mode needs.
        """
        recipe, op = self.recipe, self.recipe.name
        first = arrays[0][0].name
        shape: tuple[int, ...] = arrays[0][1].shape
        if len(shape) != recipe.rank:
            raise ArgumentError(f"{op}: {first} has shape {shape}; the expression has {recipe.rank} axes")
        for p, array in arrays[1:]:
            if array.shape != shape:
                raise ArgumentError(f"{op}: {first} has shape {shape} and {p.name} {array.shape}; give one shape")
        first_axis = 3 - recipe.rank
        for (p, array), halo in zip(arrays, [halo for halo in recipe.halos if halo is not None], strict=True):
            if 0 in shape:
                continue
            constant = recipe.constant
            if "constant" in recipe.borders[first_axis:]:
                whole_one = array.dtype.kind in "biu" and constant.is_integer()
                as_number(op, "cval", int(constant) if whole_one else constant, array.dtype)
            for axis, n in enumerate(shape):
                reach, mode = halo[first_axis + axis], recipe.borders[first_axis + axis]
                least = {"MIRROR": reach + 1, "REFLECT": reach, "WRAP": reach}.get(BORDERS[mode], 1)
                if n < least:
                    raise ArgumentError(
                        f"{op}: axis {axis} of {p.name} has {n} elements, and mode {shortened(mode)} needs {least} for "
                        f"neighbours {reach} away; give a larger array, or mode 'nearest' or 'constant'"
                    )
        return shape

    def _steps(
        self, place: ArrayPlace, values: list[Any], results: list[Any], types: dict[str, np.dtype], times: int
    ) -> None:
        """Launch each step, alternating between the results and temporary memory."""
        recipe, op = self.recipe, self.recipe.name
        evolves = next(k for k, halo in enumerate(recipe.halos) if halo is not None)
        if times > 1:
            own = recipe.inputs[evolves]
            into = types.get(own.type, own.dtype)
            assert into is not None  # deduced, or declared
            if len(results) > 1 or not can_cast(results[0].dtype, into):
                raise ArgumentError(
                    f"{op}: with steps the one output takes the place of {own.name}; {own} cannot be it"
                )
        targets = [
            result if result.flags.c_contiguous else place.empty(result.shape, result.dtype) for result in results
        ]
        launches = self._groups(values[evolves], targets[0], times)
        others = [place.empty(target.shape, target.dtype) for target in targets] if len(launches) > 1 else targets
        for k, steps in enumerate(launches):
            to = targets if (len(launches) - k) % 2 else others
            self._launch(place, values, to, types, steps)
            values = [*values[:evolves], to[0], *values[evolves + 1 :]]
        for result, target in zip(results, targets, strict=True):
            if target is not result:
                place.copy(target, result)

    def _groups(self, read: Any, written: Any, times: int) -> list[int]:
        """Return how `times` steps are divided among launches: the number of steps of each launch.

        `read` and `written` are the arrays that a step reads and writes. Their dtypes decide how many steps fit a
        launch.
        """
        most = 1
        # Two to a launch pay for wide elements alone, and narrow ones are faster step by step.
        if self._steps_kernel is not None and read.dtype == written.dtype and written.itemsize >= _LEAST_FUSED:
            (rows, columns), halo = _TILES[self.recipe.rank], next(halo for halo in self.recipe.halos if halo)
            for steps in range(2, _MOST_FUSED + 1):
                cells = (rows + 2 * halo[1] * steps) * (columns + 2 * halo[2] * steps)
                if cells <= _MOST_HELD * rows * columns and 2 * cells * written.itemsize <= _SHARED_BYTES:
                    most = steps
        rest = times % most
        few = [1, 1] if rest == 2 and written.itemsize < _WIDE else [rest] * bool(rest)
        return [most] * (times // most) + few

    def _launch(
        self, place: ArrayPlace, values: list[Any], outs: list[Any], types: dict[str, np.dtype], steps: int
    ) -> None:
        halos = self.recipe.halos
        arrays = [value for value, halo in zip(values, halos, strict=True) if halo is not None]
        dtypes = tuple(array.dtype for array in arrays)
        widest = max(array.itemsize for array in (*arrays, *outs))
        aligned = place.alignment(*arrays, *outs) == 16 and widest in (1, 2, 4, 8)
        shape = outs[0].shape
        key = dtypes, shape, tuple(types.items()), aligned, steps, place.device
        job: _Job = self._job_of(key, dtypes, shape, types, widest, aligned, steps, place.device)
        try:
            place.launch(job.kernel, job.config, *values, *outs, *job.numbers)
        except CompileError as error:
            raise self._explained(error) from None

    def _job(
        self,
        dtypes: tuple[np.dtype, ...],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
        widest: int,
        aligned: bool,
        steps: int,
        device: int | str,
    ) -> _Job:
        recipe = self.recipe
        index = "int" if prod(shape) < 2**30 else "long long"
        variables: dict[str, Any] = {variable: types[variable] for variable in recipe.variables}
        depth, height, width = (*[1] * (3 - recipe.rank), *shape)
        if steps > 1 and self._steps_kernel is not None:
            high, wide = _TILES[recipe.rank]
            fused = self._steps_kernel[{**variables, "Index_": index, "ROWS_": high, "COLUMNS_": wide, "STEPS_": steps}]
            tiles = -(-height // high) * -(-width // wide)
            return _Job(fused, config(tiles, _TILE_THREADS), (recipe.constant, height, width))
        count = 16 // widest if aligned and width % (16 // widest) == 0 else 1
        rank, kernel = recipe.rank, self._kernel
        form = f"{rank} dimensions, {widest} bytes, {recipe.points} points"
        if self._staged_kernel is not None and widest in _STAGED and recipe.points >= _MANY_POINTS:
            planes, rows, word, *block = _PLANES.point(form, prod(shape), device, _STAGED[widest])
            kernel, threads = self._staged_kernel, {"ACROSS_": block[0], "DOWN_": block[1]}
            # What is copied is a word of the hardware's at least.
            count = min(count, max(word // widest, 4 // dtypes[0].itemsize))
        else:
            (planes, rows), block = _SHAPES[rank]
            planes, rows, *block = _CELLS.point(
                form,
                prod(shape),
                device,
                (planes, rows, *block),
                fits=lambda planes, rows: (planes == 1 or rank == 3) and (rows == 1 or rank > 1),
            )
            threads = {"BLOCK_": prod(block)}
        read = [p for p, halo in zip(recipe.inputs, recipe.halos, strict=True) if halo is not None]
        specialized = kernel[
            {
                **variables,
                **{f"{p.name}_type_": dtype for p, dtype in zip(read, dtypes, strict=True)},
                "Index_": index,
                "COUNT_": count,
                "ROWS_": rows,
                "PLANES_": planes,
                **threads,
            }
        ]
        across, down = block[0] * count, block[1] * rows
        blocks = -(-width // across) * -(-height // down) * -(-depth // planes)
        return _Job(specialized, config(blocks, tuple(block)), (recipe.constant, depth, height, width))


#: How far away an expression may look.
_FURTHEST = 16


@overload
def stencil(
    outputs: str,
    body: str,
    inputs: str | None = None,
    name: str | None = None,
    *,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    radius: int | Sequence[int] | None = None,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Stencil: ...
@overload
def stencil(
    outputs: Callable[..., Any],
    *,
    name: str | None = None,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
) -> TracedStencil: ...
@overload
def stencil(
    outputs: None = None, *, name: str | None = None, mode: str | Sequence[str] = "reflect", cval: float = 0.0
) -> Callable[[Callable[..., Any]], TracedStencil]: ...
def stencil(
    outputs: Any = None,
    body: str | None = None,
    inputs: str | None = None,
    name: str | None = None,
    *,
    mode: str | Sequence[str] = "reflect",
    cval: float = 0.0,
    radius: int | Sequence[int] | None = None,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Any:
    """Return a function of arrays from C++ of neighbours: ``out[y, x] = 0.25 (u[y, x + 1] + u[y, x − 1] + …)``.

    Parameters
    ----------
    outputs : str
        Declarations ``"type name, …"``, as for `elementwise`: dtypes, C++ types, type variables. Or a Python
        function of ``u(dy, dx)`` and numbers, which is traced as by `fuse`, once for each signature of types, with
        NumPy's dtypes. With a function, leave out `body` and `inputs`. Without `outputs`, `stencil` returns a
        decorator for such a function.
    body : str
        Value of the one output, or C++ statements that set the outputs. ``u(dx)``, ``u(dy, dx)`` or ``u(dz, dy, dx)``
        is an array's element at this offset from the computed element. Offsets are constant integers. half and bfloat16
        are read as float, and rounded when they are set.
    inputs : str, optional
        Declarations, as for `outputs`. Inputs that the body calls are arrays, other inputs are numbers. Default:
        the names that the body calls with integers, in this order, of the first output's type.
    name : str
        Name of the kernel, in messages and profilers.
    mode : str or sequence of str
        Border mode, by SciPy's name, or a sequence with a mode for each axis:

        - ``reflect``: d c b a | a b c d | d c b a.
        - ``mirror``: d c b | a b c d | c b a.
        - ``nearest``: a a | a b c d | d d.
        - ``wrap``: c d | a b c d | a b.
        - ``constant``: `cval`.
    cval : float
        Value outside the array for mode ``constant``.
    radius : int or sequence of int, optional
        Greatest offset, or a sequence with one for each axis. It is needed if offsets are no integer constants
        (loops). Default: read from the body. A greater constant offset is refused. A kernel that computes a greater
        offset traps.
    preamble : str
        C++ before the kernel.
    options : CompileOptions, optional
        Options of the compiler.

    Returns
    -------
    Stencil or TracedStencil
        Function, called as ``f(*inputs, out=None, stream=None, steps=1)``.

    Raises
    ------
    TemplateError
        A declaration or the body cannot be read.

    Examples
    --------
    >>> average = stencil("float out", "0.25f * (u(0,1) + u(0,-1) + u(1,0) + u(-1,0))", mode="nearest")
    >>> v = average(u, steps=10)
    """
    if outputs is None and body is None:
        return functools.partial(stencil, name=name, mode=mode, cval=cval)
    if callable(outputs):
        if body is not None or inputs is not None or radius is not None or preamble or options is not None:
            raise TemplateError(
                f"{name or 'stencil'}: a function is traced, and takes name=, mode= and cval= beside it"
            )
        return TracedStencil(outputs, name or _name_of(outputs), mode, cval)
    name = "stencil_kernel" if name is None else name
    check_kernel_name("a stencil", name)
    parameters = parse(name, outputs, NAMESPACES, preamble)
    if not parameters:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'float out'")
    body = cpp_text(name, "expression", body)
    if inputs is None:
        called = [
            called_name for called_name in called_with_offsets(body) if called_name not in [p.name for p in parameters]
        ]
        arrays = tuple(parameters[0]._replace(name=array_name) for array_name in called)
    else:
        arrays = parse(name, inputs, NAMESPACES, preamble)
    both = {p.name for p in arrays} & {p.name for p in parameters}
    if both or any(p.raw for p in (*arrays, *parameters)):
        raise TemplateError(f"{name}: inputs and outputs have names of their own, and none of them is raw")
    if len(parameters) > 1:
        check_set(name, "expression", body, [p.name for p in parameters], preamble)
    return Stencil(_recipe(name, arrays, parameters, body, preamble, mode, cval, radius), options)


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", "stencil")).strip("_")
    return name if name.isidentifier() and name not in CPP_WORDS else "stencil"


def _recipe(
    name: str,
    inputs: tuple[Parameter, ...],
    outputs: tuple[Parameter, ...],
    body: str,
    preamble: str,
    mode: str | Sequence[str],
    cval: float,
    radius: int | Sequence[int] | None = None,
) -> StencilRecipe:
    halos, rank, points = _halos(name, inputs, body, preamble, radius)
    modes = _per_axis(name, "mode", mode, rank, "nearest")
    for axis_mode in modes:
        if not is_one_of(axis_mode, BORDERS):
            raise TemplateError(f"{name}: mode {shortened(axis_mode)} is none of {', '.join(BORDERS)}")
    try:
        beyond = float(as_number(name, "cval", cval, np.dtype(np.float64)))
    except ArgumentError as error:
        raise TemplateError(str(error)) from None
    return StencilRecipe(name, inputs, outputs, preamble, body, halos, rank, points, modes, beyond)


def _per_axis(op: str, name: str, value: Any, rank: int, filler: Any) -> tuple[Any, Any, Any]:
    """Return three values, one for each of three axes. The last `rank` axes are the axes of the arrays.

    `value` is one value for all these axes, or a sequence with one for each. Axes before them get `filler`.
    """
    values = (
        [value] * rank if isinstance(value, str | int) else listed(f"{op}: {name} is one, or one for each axis", value)
    )
    if len(values) != rank:
        raise TemplateError(f"{op}: {name} has {len(values)} entries, and the expression {rank} axes")
    first, second, third = [filler] * (3 - rank) + values
    return first, second, third


def _halos(
    op: str, inputs: Sequence[Parameter], body: str, preamble: str, radius: Any
) -> tuple[tuple[tuple[int, int, int] | None, ...], int, int]:
    """Return the halo of each input, the number of axes, and the greatest number of neighbours of one input.

    A halo is the greatest offset along each of three axes; None for an input that is a number. `radius` is the caller's
    argument, or None.
    """
    text = f"{body}\n{preamble}" if "#define" in preamble else body
    offsets = [offsets_of(op, p.name, text, radius is not None) for p in inputs]
    ranks = {len(offset) for of in offsets for offset in of}
    if len(ranks) != 1 or not ranks <= {1, 2, 3}:
        shown = "no neighbours" if not ranks else f"offsets of {' and '.join(map(str, sorted(ranks)))} axes"
        raise TemplateError(f"{op}: the expression has {shown}; write u(0, -1) and the like, with 1, 2 or 3 for all")
    rank = ranks.pop()
    least = (0,) * 3 if radius is None else _per_axis(op, "radius", radius, rank, 0)
    halos: list[tuple[int, int, int] | None] = []
    for p, of in zip(inputs, offsets, strict=True):
        if not of:
            halos.append(None)
            continue
        reach = [0] * (3 - rank) + [max(abs(offset[d]) for offset in of) for d in range(rank)]
        halo = tuple(max(a, whole(f"{op}: radius", b)) for a, b in zip(reach, least, strict=True))
        if radius is not None and halo != tuple(least):
            raise TemplateError(
                f"{op}: {p.name} is looked at {reach[3 - rank :]} away, beyond radius={shortened(radius)}; give a "
                "greater radius"
            )
        if max(halo) > _FURTHEST:
            raise TemplateError(f"{op}: {p.name} is looked at {max(halo)} away; {_FURTHEST} is the most")
        halos.append((halo[0], halo[1], halo[2]))
    boxes = [prod(2 * reach + 1 for reach in halo) for halo in halos if halo is not None]
    return tuple(halos), rank, max(boxes if radius is not None else (len(set(of)) for of in offsets))


class TracedStencil:
    """A stencil from a Python function, made by `stencil`. It is called like a `Stencil`.

    Attributes
    ----------
    function : callable
        Python function that the stencil is traced from.
    """

    name: str

    def __init__(self, function: Callable[..., Any], name: str, mode: str | Sequence[str], cval: float) -> None:
        check_kernel_name("a stencil", name)
        self.function, self.name = function, name
        self._mode, self._cval = mode, cval
        self._names = tuple(inspect.signature(function).parameters)
        self._stencils: dict[Any, Stencil] = {}
        self._outside = Outside(function)
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<cudakit.stencil {self.name}({', '.join(self._names)})>"

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, steps: int = 1) -> Any:
        """Call it like a `Stencil`. Arguments that are no Python numbers are arrays."""
        if len(args) != len(self._names):
            raise ArgumentError(
                f"{self.name} takes {len(self._names)} arguments: {', '.join(self._names)}; got {len(args)}"
            )
        types = tuple([dtype_of(self.name, name, value) for name, value in zip(self._names, args, strict=True)])
        return self.specialized(types)(*args, out=out, stream=stream, steps=steps)

    def specialized(self, types: tuple[Any, ...]) -> Stencil:
        """Return the stencil for arrays of these dtypes, and Python numbers by their classes."""
        entry = self._stencils.get((types, self._outside()))
        if entry is None:
            before = self._outside.values()
            of = traced(self.name, self.function, self._names, types)
            self._outside.traced(before)
            recipe = _recipe(self.name, of.inputs, of.outputs, of.body, PREAMBLE, self._mode, self._cval)
            entry = self._stencils[types, self._outside()] = Stencil(recipe, OPTIONS)
        return entry
