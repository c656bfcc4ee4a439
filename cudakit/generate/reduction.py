"""Reductions from expressions: a map of each element, a combination of two, and statements for the result."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from cudakit.arrays.layout import Axis, axes_of, integers, row_major, view_of, without
from cudakit.arrays.output import Target, check_apart
from cudakit.arrays.place import multiprocessors_of
from cudakit.arrays.plans import Job, ReductionTask, array_of, plan_reduction, plan_segments, views_or_none
from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.call import CallArguments, deduce_types, dtypes_of, gather, outs_of
from cudakit.generate.declarations import check_set, numbered, placed, statement, template_arguments, template_head
from cudakit.generate.fold import (
    INITIAL,
    SIZE_PROBE,
    Folded,
    FoldRecipe,
    combination,
    declared,
    initial_parameter,
    kernel_inputs,
    mapped_text,
    new_target,
    output_dtypes,
    returned,
    shape_of,
    target,
)
from cudakit.jit.launch.tracebacks import raised_from_call
from cudakit.jit.specialise.options import CompileOptions
from cudakit.types.checked import flag


@dataclass(frozen=True)
class ReductionRecipe(FoldRecipe):
    """The declarations of a reduction."""

    post: str


def kernel_text(recipe: ReductionRecipe, numbers: frozenset[str]) -> str:
    """Return the source. `numbers` are the inputs that are numbers and not arrays."""
    heads = recipe.heads("cudakit/reduce/expression.cuh", recipe.post)
    return numbered("\n".join([heads, _fold(recipe), _kernel(recipe, numbers)]), f"<{recipe.name}>")


def _fold(of: ReductionRecipe) -> str:
    """Return the expressions as the functions that <cudakit/reduce/expression.cuh> calls."""
    mapped, state = mapped_text(of, ("const long long i",))
    head, arguments = template_head(of.variables), template_arguments(of.variables)
    outputs = ", ".join(f"{p.type}& {p.name}" for p in of.outputs)
    lines = [
        mapped,
        f"{head}struct cudakit_fold : cudakit_mapped{arguments} {{\n    using cudakit_state = {state};\n",
        f"    static constexpr bool CUDAKIT_HAS_IDENTITY = {'false' if of.identity is None else 'true'};\n",
        f"    static constexpr bool CUDAKIT_ADDS_VALUES = {'true' if of.adds_values else 'false'};\n",
    ]
    if of.identity is not None:
        lines.append(f"    static __device__ cudakit_state cudakit_identity(){returned(of, 'identity', of.identity)}")
    lines += [
        "    static __device__ cudakit_state cudakit_reduce(const cudakit_state& a, const cudakit_state& b)",
        returned(of, "reduce", of.reduce),
        f"    static __device__ void cudakit_post(const cudakit_state& a, const long long n, {outputs}) {{\n",
        f"{placed(statement(of.name, 'post', of.post), f'<{of.name} post>')}    }}\n}};\n",
    ]
    return "".join(lines)


def _kernel(of: ReductionRecipe, numbers: frozenset[str]) -> str:
    types, parameters, several = kernel_inputs(of, numbers)
    fold = f"cudakit_fold{template_arguments(of.variables)}"
    reducer = f"cudakit::expressed<{fold}>"
    parameters += [f"{p.type}* {p.name}" for p in of.outputs]
    names = f"cudakit::several_of({', '.join(p.name for p in of.outputs)})"
    if INITIAL in numbers:
        more, first = initial_parameter(of)
        types, parameters, names = [*types, *more], [*parameters, first], f"{names}, {INITIAL}"
    parameters += ["const Offset_* offsets_", "unsigned char* workspace_", "Layout_ layout_"]
    return (
        f"{template_head([*of.variables, 'How_', *types, 'Offset_', 'Layout_'])}"
        f"__global__ void __launch_bounds__(How_::BLOCK, cudakit::RESIDENT<How_, {reducer}>) {of.name}(\n"
        f"    {', '.join(parameters)}) {{\n"
        f"    How_::template run<{reducer}>(\n"
        f"        cudakit::several_of({', '.join(several)}),\n"
        f"        cudakit::posted_to<{fold}>({names}), offsets_, workspace_, layout_);\n}}\n\n"
        f"{template_head(of.variables)}"
        f"__global__ void {SIZE_PROBE}(cudakit::bytes<sizeof(cudakit::state_of<{fold}>)>) {{}}"
    )


@raised_from_call
def reduction(
    inputs: str,
    outputs: str,
    map: str,
    reduce: str,
    identity: str | None = None,
    post: str | None = None,
    name: str = "reduction_kernel",
    *,
    preamble: str = "",
    acc: str | None = None,
    options: CompileOptions | None = None,
) -> Reduction:
    """Return a function that reduces arrays: post(reduce(map(x₀), map(x₁), …)), in one pass over its inputs.

    Parameters
    ----------
    inputs, outputs : str
        Declarations ``"type name, …"``. A type is a dtype's name, a C++ type, a struct of `preamble` or a type
        variable (one letter, or a capital first), which each call decides. ``raw`` before an input's type marks an
        array that the map indexes.
    map : str
        C++ expression of the inputs by their names, and of ``i``: the element's number among the elements of its
        result, in row-major order.
    reduce : str
        C++ expression that combines ``a`` and ``b``, of the accumulator's type. It must be associative and commutative:
        the launch chooses the order of the elements, the same on every run.
    identity : str, optional
        C++ expression of the value that changes nothing when combined. Without it a reduction of no elements is an
        error.
    post : str, optional
        C++ statements that set the outputs from ``a`` (all elements combined) and ``n`` (their number). Default:
        the one output is ``a``.
    name : str
        Name of the kernel, in messages and profilers.
    preamble : str
        C++ before the kernel: functions, structs, includes.
    acc : str, optional
        Type of the accumulator: a dtype's name, a C++ type, or a struct of `preamble` for several numbers at once.
        The map is then written as ``"{x, i}"``. Default: the map's type; 64-bit integers for integers; float for
        half and bfloat16.
    options : CompileOptions, optional
        Options of the compiler.

    Returns
    -------
    Reduction
        Function, called as ``f(*inputs, axis=None, keepdims=False, out=None, stream=None, segments=None, size=None,
        initial=None, block_size=None)``.

    Raises
    ------
    TemplateError
        A declaration cannot be read, or `post` never names an output.

    Examples
    --------
    >>> dot = reduction("T x, T y", "T out", map="x * y", reduce="a + b", identity="0", name="dot")
    >>> largest = reduction(
    ...     "float x", "float value, int64 where", map="{x, i}",
    ...     reduce="a.x > b.x || (a.x == b.x && a.i < b.i) ? a : b",
    ...     post="value = a.x; where = a.i", acc="best", preamble="struct best { float x; long long i; };",
    ... )
    """
    recipe = declared(name, inputs, outputs, preamble, ("i",), ("a", "n"))
    if any(p.raw for p in recipe.outputs):
        raise TemplateError(f"{name}: an output of a reduction is one element of each result; leave raw out")
    if post is None:
        if len(recipe.outputs) > 1:
            raise TemplateError(f"{name} has several outputs: say how they come of a, in post=")
        post = f"{recipe.outputs[0].name} = a"
    combined = combination(name, map, reduce, identity, acc)
    statement(name, "post", post)
    check_set(name, "post", post, [p.name for p in recipe.outputs], preamble)
    return Reduction(ReductionRecipe(name, recipe.inputs, recipe.outputs, preamble, *combined, post), options)


class Reduction(Folded):
    """A function that reduces arrays along axes, made by `reduction`.

    Called as ``f(*inputs, axis=None, keepdims=False, out=None, stream=None, segments=None, size=None, initial=None,
    block_size=None)``. It may be called from several threads.

    Parameters
    ----------
    *inputs : array or number
        Inputs of shapes that can be broadcast together; any strides. Arrays are CuPy's, NumPy's on the emulator, or
        of any library with DLPack. Strided arrays are not copied. Python numbers are weak, as in NumPy 2, and are
        passed by value.
    axis : int, several, or None
        Axes to reduce. None: all axes.
    keepdims : bool
        Whether reduced axes stay, with length 1.
    out : array or tuple, optional
        Output arrays of the result's shape, and a dtype that loses no values. Outputs of another dtype, or not
        C-contiguous, are copied from new memory. Inputs that overlap an output are copied first.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.
    segments : array of int, optional
        Offsets, as for CUB's segmented reductions: result k combines elements ``segments[k]`` to
        ``segments[k + 1]`` − 1 of one-dimensional inputs. Offsets are clipped to the inputs' length. A segment that
        ends before it begins is empty, which needs an identity. `i` and `n` count within the segment. If lengths differ
        much, the longest segments decide the time.
    size : int, optional
        Number of elements, if all inputs are raw or numbers. Default: the number of elements of the raw inputs.
    initial : number or struct, optional
        First value of each result, converted to the accumulator's type. It is the result of no elements. `n` does not
        count it.
    block_size : int, optional
        Threads of a block, whole warps. Default: 128 to 512 by the shape.

    Returns
    -------
    array or tuple of array
        Outputs. The order in which elements are combined depends only on shapes, strides and the number of
        multiprocessors. Every run on every stream of a device gives the same bits.

    Raises
    ------
    ArgumentError
        One of these:

        - Types cannot be deduced, or shapes cannot be broadcast.
        - The axis is out of range.
        - There are no elements, and no identity.
        - `out` does not fit.
    CompileError
        The expression does not compile. The message gives the place in the expression.
    """

    recipe: ReductionRecipe
    _FAMILY = "reduction"
    _OPTIONS = MappingProxyType(
        {"axis": None, "keepdims": False, "segments": None, "size": None, "initial": None, "block_size": None}
    )
    _text = staticmethod(kernel_text)

    def _ordinary(
        self,
        args: tuple[Any, ...],
        out: Any,
        stream: Any,
        axis: Axis = None,
        keepdims: bool = False,
        segments: Any = None,
        size: int | None = None,
        initial: Any = None,
        block_size: int | None = None,
    ) -> Any:
        """Run a call that is not replayed."""
        of = self.recipe
        outs = types = None
        if out is not None:
            outs = outs_of(of, out)
            types = tuple([getattr(out, "dtype", None) for out in outs])
        call = gather(of, args, stream, () if segments is None else (("segments", segments),))
        if outs is not None:
            call = call.apart(of, outs, lambda k, p: False)
        if axis is not None and axis.__class__ is not int:
            axis = integers(of.name, "axis", axis)
        if keepdims.__class__ is not bool:
            keepdims = flag(f"{of.name}: keepdims", keepdims)
        call, options = self._options_of(call, size, initial, block_size)
        key = call.layouts, axis, keepdims, types, *options
        return self._run_planned(key, call, outs, axis, keepdims, types, options[0], options[2])

    def _run(self, job: Job, call: CallArguments, outs: tuple[Any, ...] | None) -> list[Target]:
        """Launch, and return the targets of the outputs."""
        of, place = self.recipe, call.place
        if outs is None:
            targets = [new_target(place, job.shape, dtype) for dtype in job.dtypes]
        else:
            check_apart(of.name, outs)
            targets = [
                target(of, p, place, out, job.shape, dtype)
                for p, out, dtype in zip(of.outputs, outs, job.dtypes, strict=True)
            ]
        if job.kernel is not None:
            values = job.operands([*call.values, *(target.written for target in targets)])
            inputs, written = len(of.inputs), len(values) - len(targets)
            offsets = values[inputs] if written > inputs else None
            workspace = place.workspace(job.scratch_bytes) if job.scratch_bytes else None
            first = () if call.initial is None else (call.initial,)
            arguments = (*values[:inputs], *values[written:], *first, offsets, workspace, *job.numbers)
            place.launch(job.kernel, job.config, *arguments)
        return targets

    def _names(self) -> dict[str, tuple[str, ...]]:
        """Return the names in the expressions."""
        inputs, outputs = (tuple(p.name for p in group) for group in (self.recipe.inputs, self.recipe.outputs))
        return {"map": (*inputs, "i"), "reduce": ("a", "b"), "post": (*outputs, "a", "n")}

    def _job(
        self,
        call: CallArguments,
        axis: Axis,
        keepdims: bool,
        outs: tuple[np.dtype | None, ...] | None,
        size: int | None,
        block: int | None,
    ) -> Job:
        of = self.recipe
        inputs = len(of.inputs)
        types = deduce_types(of.name, of.inputs, dtypes_of(call.layouts[:inputs]), of.outputs, outs or ())
        dtypes = output_dtypes(of, types)
        shape = shape_of(of, call.layouts, size)
        arrays = [
            array_of(of.name, layout, shape) if type(layout) is tuple and not p.raw else None
            for p, layout in zip(of.inputs, call.layouts, strict=False)
        ]
        offsets = call.layouts[inputs] if len(call.layouts) > inputs else None
        if offsets is not None:
            results = self._segmented(offsets, shape, axis, keepdims, call.initial)
        else:
            axes = axes_of(of.name, axis, len(shape))
            results = without(shape, axes, keepdims)
            if of.identity is None and call.initial is None and any(shape[d] == 0 for d in axes):
                raise ArgumentError(
                    f"{of.name}: its inputs have shape {shape}: no elements along axis {axis}, and it has no identity"
                )
        if 0 in results:
            return Job(results, dtypes)
        arguments: dict[str, Any] = {variable: types[variable] for variable in of.variables}
        state_bytes = self._state_bytes(arguments, int(of.identity is None))
        task = ReductionTask(arrays, state_bytes, multiprocessors_of(call.place.device), block=block)
        if offsets is not None:
            launch = plan_segments(task, results[0], shape[0])
        else:
            launch = plan_reduction(task, shape, axes, of.may_use(of.map, "i"))
            arguments["Offset_"] = np.int64
        kernel, arguments = self._kernel(call, types, arguments)
        views = [None if array is None else array.view for array in arrays]
        own = [view_of(results, row_major(results), dtype) for dtype in dtypes]
        operand_views = views_or_none([*views, *[None] * (offsets is not None), *own])
        return Job(
            results,
            dtypes,
            kernel[{**arguments, "How_": launch.how}],
            launch.config,
            launch.scratch_bytes,
            (launch.layout,),
            operand_views,
        )

    def _segmented(
        self, offsets: Any, shape: tuple[int, ...], axis: Axis, keepdims: bool, initial: Any
    ) -> tuple[int, ...]:
        """Return the shape of the results of a segmented reduction.

        Raises
        ------
        ArgumentError
        """
        name = self.recipe.name
        dtype, extents, _ = offsets
        if axis is not None or keepdims:
            raise ArgumentError(f"{name}: segments= is for inputs of one dimension; leave axis and keepdims out")
        if len(shape) != 1:
            raise ArgumentError(f"{name}: segments= is for inputs of one dimension, they have shape {shape}")
        if dtype.kind not in "iu" or len(extents) != 1 or extents[0] == 0:
            raise ArgumentError(
                f"{name}: segments must be offsets: integers of shape (segments + 1,), got {dtype} of shape {extents}"
            )
        if self.recipe.identity is None and initial is None:
            raise ArgumentError(f"{name}: segments may be empty, and it has no identity; give one")
        return (extents[0] - 1,)
