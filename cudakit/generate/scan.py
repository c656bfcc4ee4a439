"""Scans from expressions: map each element, combine it with all before, and set outputs from the result."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from cudakit.arrays.layout import axis_of, one_axis, row_major
from cudakit.arrays.output import Target, check_apart
from cudakit.arrays.place import ArrayPlace
from cudakit.arrays.plans import DIRECT, PACKED, RAW, Job, ScanTask, Writer, array_of, plan_scan, views_or_none
from cudakit.errors import ArgumentError, TemplateError
from cudakit.generate.call import CallArguments, deduce_types, dtypes_of, gather, outs_of
from cudakit.generate.declarations import (
    Declared,
    Parameter,
    check_set,
    is_set_first,
    names_in,
    numbered,
    placed,
    statement,
    template_arguments,
    template_head,
)
from cudakit.generate.fold import (
    INITIAL,
    SIZE_PROBE,
    Folded,
    FoldRecipe,
    combination,
    declared,
    expression,
    initial_parameter,
    kernel_inputs,
    mapped_text,
    new_target,
    output_dtypes,
    returned,
    seen_inputs,
    shape_of,
    target,
)
from cudakit.jit.launch.tracebacks import raised_from_call
from cudakit.jit.specialise.options import CompileOptions
from cudakit.streams.witnesses import doing

#: Combinations of two numbers that do not depend on their order.
_COMMUTING = frozenset(("a+b", "b+a", "a*b", "b*a", "a|b", "a&b", "a^b", "max(a,b)", "min(a,b)"))
_IDENTITY = "    static __device__ cudakit_state cudakit_identity()"
_INDEX = ("const long long i", "const long long n")


@dataclass(frozen=True)
class ScanRecipe(FoldRecipe):
    """The declarations of a scan."""

    output: str
    segments: str | None

    @property
    def adds_values(self) -> bool:
        """True for sums of the one input itself, for which 0 is neutral."""
        return self.identity == "0" and self.segments is None and super().adds_values

    @property
    def takes_last(self) -> bool:
        """True if the output statements use ``last_item``. The inputs are then read twice."""
        return self.may_use(self.output, "last_item")

    @property
    def gives_item(self) -> bool:
        """True if the output statement only assigns ``item`` or ``prev_item`` to the one output."""
        statement = "".join(self.output.split()).rstrip(";")
        statements = [f"{p.name}={item}" for p in self.outputs for item in ("item", "prev_item")]
        return statement in statements and len(self.outputs) == 1 and "#define" not in self.preamble

    @property
    def sees_inputs(self) -> bool:
        """True if outputs use the inputs."""
        return any(self.may_use(self.output, p.name) for p in self.inputs)


def kernel_text(recipe: ScanRecipe, numbers: frozenset[str]) -> str:
    """Return the source. `numbers` are the inputs that are numbers and not arrays."""
    heads = recipe.heads("cudakit/scan/expression.cuh", recipe.output, recipe.segments)
    return numbered("\n".join([heads, _scan(recipe), _kernel(recipe, numbers)]), f"<{recipe.name}>")


def _scan(of: ScanRecipe) -> str:
    """Return the expressions as the functions that <cudakit/scan/expression.cuh> calls."""
    mapped, state = mapped_text(of, _INDEX)
    head, arguments = template_head(of.variables), template_arguments(of.variables)
    parameters = ", ".join([*seen_inputs(of), *_INDEX])
    lines = [
        mapped,
        f"{head}struct cudakit_scan : cudakit_mapped{arguments} {{\n    using cudakit_state = {state};\n",
        f"    static constexpr bool CUDAKIT_IS_SEGMENTED = {_bool(of.segments is not None)};\n",
        f"    static constexpr bool CUDAKIT_OUTPUT_SEES_INPUTS = {_bool(of.sees_inputs)};\n",
        f"    static constexpr bool CUDAKIT_COMMUTES = {_commutes(of)};\n",
        f"    static constexpr bool CUDAKIT_HAS_NEUTRAL = {_bool(of.adds_values)};\n",
        f"    static constexpr bool CUDAKIT_OUTPUT_IS_ITEM = {_bool(of.gives_item)};\n",
        "    template <typename T_>\n    static __device__ T_ cudakit_neutral() { return T_(0); }\n",
        *([] if of.identity is None else [f"{_IDENTITY}{returned(of, 'identity', of.identity)}"]),
        "    static __device__ cudakit_state cudakit_reduce(const cudakit_state& a, const cudakit_state& b)",
        returned(of, "reduce", of.reduce),
    ]
    if of.segments is not None:
        lines.append(f"    static __device__ bool cudakit_head({parameters}){returned(of, 'segments', of.segments)}")
    own = [_member(p, "values_" + ".others" * k + ".first", of.inputs) for k, p in enumerate(of.inputs)]
    own += [_member(p, "results_" + ".others" * k + ".first", of.inputs) for k, p in enumerate(of.outputs)]
    lines += [
        "    template <typename Values_, typename Results_>\n",
        "    static __device__ void cudakit_output(\n",
        "        const cudakit_state& item, const cudakit_state& prev_item, const cudakit_state& last_item,\n",
        f"        {', '.join(_INDEX)}, const Values_& values_, const Results_& results_) {{\n",
        *own,
        f"{placed(statement(of.name, 'output', of.output), f'<{of.name} output>')}    }}\n}};\n",
    ]
    return "".join(lines)


def _member(p: Parameter, place: str, inputs: tuple[Parameter, ...]) -> str:
    const = "const " if p in inputs else ""
    if p.raw:
        return f"        {const}{p.stored if const else p.type}* const {p.name} = {place};\n"
    return f"        {const}{p.type}& {p.name} = {'' if const else '*'}{place};\n"


def _commutes(recipe: ScanRecipe) -> str:
    """Return C++ for whether the combination commutes; unknown for structs and complex numbers."""
    # A function of the preamble may be called as one of CUDA's is.
    is_commuting = "".join(recipe.reduce.split()) in _COMMUTING and not {"max", "min"} & names_in(recipe.preamble)
    return "cudakit::commutes<cudakit_state>" if is_commuting else "false"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _kernel(of: ScanRecipe, numbers: frozenset[str]) -> str:
    types, parameters, several = kernel_inputs(of, numbers)
    scan = f"cudakit_scan{template_arguments(of.variables)}"
    if of.identity is None:
        scan = f"cudakit::without_identity<{scan}>"
    parameters += [f"{p.type}* {p.name}" for p in of.outputs]
    ends = "last_"
    if INITIAL in numbers:
        more, first = initial_parameter(of)
        types, parameters, ends = [*types, *more], [*parameters, first], f"last_, {INITIAL}"
    parameters += ["unsigned char* last_", "unsigned char* status_", "Layout_ layout_"]
    names = ", ".join(p.name for p in of.outputs)
    return (
        f"{template_head([*of.variables, 'How_', *types, 'Layout_'])}"
        f"__global__ void __launch_bounds__(How_::BLOCK, cudakit::SCAN_RESIDENT<How_, {scan}>) {of.name}(\n"
        f"    {', '.join(parameters)}) {{\n"
        f"    How_::template run<{scan}>(\n"
        f"        cudakit::several_of({', '.join(several)}),\n"
        f"        cudakit::several_of({names}), cudakit::ends_of<{scan}>({ends}), status_, layout_);\n}}\n\n"
        f"{template_head(of.variables)}"
        f"__global__ void {SIZE_PROBE}(cudakit::bytes<sizeof(cudakit::item_of<{scan}>)>) {{}}"
    )


_GIVEN = ("item", "prev_item", "last_item", "i", "n")


@raised_from_call
def scan(
    inputs: str,
    outputs: str,
    map: str,
    reduce: str,
    identity: str | None = None,
    output: str | None = None,
    name: str = "scan_kernel",
    *,
    segments: str | None = None,
    preamble: str = "",
    acc: str | None = None,
    options: CompileOptions | None = None,
) -> Scan:
    """Return a function that scans arrays: out[i] combines elements 0 … i, in one pass over its inputs.

    Parameters
    ----------
    inputs, outputs : str
        Declarations ``"type name, …"``. A type is a dtype's name, a C++ type, a struct of `preamble` or a type
        variable (one letter, or a capital first), which each call decides. ``raw`` before the type marks an array
        that is indexed (``x[i - 1]``): an input, or an output that is not written element by element.
    map : str
        C++ expression of the inputs by their names, of ``i``, the element's number along the axis, and ``n``, the
        number of elements.
    reduce : str
        C++ expression that combines ``a`` with ``b``, where ``b`` comes after ``a``. It must be associative; it
        need not be commutative.
    identity : str, optional
        C++ expression of the value that changes nothing when combined. Without it there is no `prev_item`.
    output : str, optional
        C++ statements that set the outputs. Default: the one output is ``item``. Names are ``i``, ``n``, the inputs,
        and

        - ``item``: the combination of the elements up to this one;
        - ``prev_item``: the combination of the elements before this one, for an exclusive scan. It is the identity at
          the beginning, and at the beginning of a segment;
        - ``last_item``: the item of the last element. The inputs are then read twice, by an additional launch.
    name : str
        Name of the kernel, in messages and profilers.
    segments : str, optional
        C++ expression of the inputs, ``i`` and ``n``: whether a segment begins at the element. Elements before a
        segment do not count in it.
    preamble : str
        C++ before the kernel: functions, structs, includes.
    acc : str, optional
        Type of the accumulator: a dtype's name, a C++ type, or a struct of `preamble` for several numbers at once.
        The map is then written as ``"{x, y}"``. Default: the map's type; 64-bit integers for integers; float for
        half and bfloat16.
    options : CompileOptions, optional
        Options of the compiler.

    Returns
    -------
    Scan
        Function, called as ``f(*inputs, axis=None, out=None, stream=None, size=None, initial=None,
        block_size=None)``.

    Raises
    ------
    TemplateError
        A declaration cannot be read, or `last_item` is used together with `segments`.

    Examples
    --------
    >>> cumsum = scan("T x", "T y", map="x", reduce="a + b", identity="0", output="y = item", name="cumsum")
    >>> compact = scan(
    ...     "float x", "raw int64 where, raw int64 count", map="x > 0", reduce="a + b", identity="0",
    ...     output="if (prev_item != item) where[prev_item] = i; if (i == n - 1) count[0] = item", name="compact")
    """
    declaration = declared(name, inputs, outputs, preamble, ("i", "n"), _GIVEN)
    if reserved := {p.name for p in declaration.inputs} & set(_GIVEN):
        raise TemplateError(f"{name}: an input cannot be called {', '.join(reserved)}, which the output has already")
    if output is None:
        if len(declaration.outputs) > 1 or declaration.outputs[0].raw:
            raise TemplateError(f"{name} has several outputs, or a raw one: say how they come of item, in output=")
        output = f"{declaration.outputs[0].name} = item"
    statement(name, "output", output)
    check_set(name, "output", output, [p.name for p in declaration.outputs], preamble)
    combined = combination(name, map, reduce, identity, acc)
    begins = None if segments is None else expression(name, "segments", segments)
    recipe = ScanRecipe(name, declaration.inputs, declaration.outputs, preamble, *combined, output, begins)
    if segments is not None and recipe.takes_last:
        raise TemplateError(f"{name}: of a scan with segments there is no one last_item; leave it out")
    if identity is None and recipe.may_use(output, "prev_item"):
        raise TemplateError(f"{name}: the first element has no prev_item, unless there is an identity; give one")
    return Scan(recipe, options)


class Scan(Folded):
    """A function that scans arrays along an axis, made by `scan`.

    Called as ``f(*inputs, axis=None, out=None, stream=None, size=None, initial=None, block_size=None)``. It may be
    called from several threads.

    Parameters
    ----------
    *inputs : array or number
        Inputs of shapes that can be broadcast together; any strides; raw inputs are C-contiguous. Arrays are
        CuPy's, NumPy's on the emulator, or of any library with DLPack. Python numbers are weak, as in NumPy 2, and
        are passed by value.
    axis : int or None
        Axis of the scan. None: all elements in row-major order; the result then has one dimension. Inputs of
        several dimensions that are not C-contiguous are then copied first.
    out : array or tuple, optional
        Output arrays, or None for a new array: the result's shape, any strides, and a dtype that loses no values.
        An output of another dtype is copied from new memory. An output may be an input itself, unless the input is
        raw. Inputs that overlap an output in another way are copied first. Raw outputs must be passed. Elements
        that the output statements do not set keep their value; in a new array they are 0.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.
    size : int, optional
        Number of elements, if all inputs are raw or numbers. Default: the number of elements of the raw inputs.
    initial : number or struct, optional
        Value that is combined before the first element of each line and of each segment, in the accumulator's type.
        It is the `prev_item` there.
    block_size : int, optional
        Threads of a block, whole warps. Default: 256 to 1024 by the shape. A scan of one line needs at least 128.

    Returns
    -------
    array or tuple of array
        Outputs. The order in which elements are combined depends only on shapes, strides and the device. Every run
        on every stream gives the same bits.

    Raises
    ------
    ArgumentError
        One of these:

        - Types cannot be deduced, or shapes cannot be broadcast.
        - The axis is out of range.
        - `out` or `block_size` does not fit.
    CompileError
        The expression does not compile. The message gives the place in the expression.
    """

    recipe: ScanRecipe
    _FAMILY = "scan"
    _OPTIONS = MappingProxyType({"axis": None, "size": None, "initial": None, "block_size": None})
    _text = staticmethod(kernel_text)
    _sets: tuple[bool, ...]

    def __new__(cls, recipe: ScanRecipe, options: CompileOptions | None = None) -> Self:
        self = super().__new__(cls, recipe, options)
        # An output that a statement may leave out keeps what was there; whole words would overwrite it.
        self.__dict__.update(_sets=tuple(is_set_first(recipe.output, p.name) for p in recipe.outputs))
        return self

    def _ordinary(
        self,
        args: tuple[Any, ...],
        out: Any,
        stream: Any,
        axis: int | None,
        size: int | None,
        initial: Any = None,
        block_size: int | None = None,
    ) -> Any:
        """Run a call that is not replayed."""
        of = self.recipe
        outs = (None,) * len(of.outputs) if out is None else outs_of(of, out)
        call = gather(of, args, stream)
        axis = one_axis(of.name, axis)
        if axis is None:
            call = _flattened(of, call)
        if out is not None:
            call = call.apart(of, outs, self._may_be)
        dtypes = tuple([None if out is None else getattr(out, "dtype", None) for out in outs])
        steps = tuple([None if out is None else getattr(out, "strides", None) for out in outs])
        call, options = self._options_of(call, size, initial, block_size)
        return self._run_planned(
            (call.layouts, axis, dtypes, steps, *options), call, outs, axis, outs, options[0], options[2]
        )

    def _may_be(self, k: int, p: Parameter) -> bool:
        """Return whether output p may be exactly the memory of input k. It may unless one of them is raw."""
        return not (p.raw or self.recipe.inputs[k].raw)

    def _run(self, job: Job, call: CallArguments, outs: tuple[Any, ...]) -> list[Target]:
        """Launch, and return the targets of the outputs."""
        place = call.place
        check_apart(self.recipe.name, outs)
        targets = [
            self._target(k, place, out, job.shape, dtype)
            for k, (out, dtype) in enumerate(zip(outs, job.dtypes, strict=True))
        ]
        if job.kernel is not None:
            operands = job.operands([*call.values, *(target.written for target in targets)])
            first = () if call.initial is None else (call.initial,)
            last = place.empty((job.kept_bytes,), np.uint8) if job.kept_bytes else None
            for kernel in (job.first, job.kernel):
                if kernel is not None:
                    status = place.status(job.scratch_bytes) if job.scratch_bytes else None
                    place.launch(kernel, job.config, *operands, *first, last, status, *job.numbers)
        return targets

    def _target(self, k: int, place: ArrayPlace, out: Any, shape: tuple[int, ...], dtype: np.dtype) -> Target:
        """Return the target of output k."""
        of, p = self.recipe, self.recipe.outputs[k]
        if out is not None:
            if not p.raw and not self._sets[k] and getattr(out, "dtype", dtype) != dtype:
                raise ArgumentError(
                    f"{of.name}, output {p.name}: the result is of {dtype}, and what it leaves out stays: give out of "
                    f"that dtype, not of {out.dtype}"
                )
            return target(of, p, place, out, shape, dtype, any_strides=not p.raw)
        if p.raw:
            raise ArgumentError(f"{of.name}, output {p.name}: it is raw, so its size is not known; give out=")
        result = new_target(place, shape, dtype)
        if not self._sets[k]:
            with doing("fill", of.name, place.stream, (), (result.written,), result.written.nbytes), place.inside():
                if place.xp is np:
                    place.clear(result.written)
                else:
                    result.written[...] = np.zeros((), dtype)
        return result

    def _names(self) -> dict[str, tuple[str, ...]]:
        """Return the names in the expressions."""
        inputs, outputs = (tuple(p.name for p in group) for group in (self.recipe.inputs, self.recipe.outputs))
        names = (*inputs, "i", "n")
        return {"map": names, "segments": names, "reduce": ("a", "b"), "output": (*outputs, *names, *_GIVEN[:3])}

    def _job(
        self, call: CallArguments, axis: int | None, outs: tuple[Any, ...], size: int | None, block: int | None
    ) -> Job:
        of = self.recipe
        out_dtypes = tuple([None if out is None else getattr(out, "dtype", None) for out in outs])
        types = deduce_types(of.name, of.inputs, dtypes_of(call.layouts), of.outputs, out_dtypes)
        dtypes = output_dtypes(of, types)
        shape = shape_of(of, call.layouts, size)
        if axis is None and len(shape) > 1:
            shape = (prod(shape),)
        along = 0 if axis is None else axis_of(of.name, axis, len(shape))
        if 0 in shape:
            return Job(shape, dtypes)
        readers = [
            array_of(of.name, layout, shape) if type(layout) is tuple and not p.raw else None
            for p, layout in zip(of.inputs, call.layouts, strict=True)
        ]
        writers = []
        for k, (p, out, dtype) in enumerate(zip(of.outputs, outs, dtypes, strict=True)):
            if p.raw:
                writers.append(Writer(None, RAW))
                continue
            strides = tuple(step * dtype.itemsize for step in row_major(shape))
            if out is not None and getattr(out, "dtype", None) == dtype and len(out.strides) == len(shape):
                strides = out.strides
            word = dtype.names is None and dtype.itemsize <= 16
            packed = PACKED if self._sets[k] and word else DIRECT
            writers.append(Writer(array_of(of.name, (dtype, shape, strides), shape), packed))
        arguments: dict[str, Any] = {variable: types[variable] for variable in of.variables}
        item_bytes = self._state_bytes(arguments, int(of.segments is not None) + int(of.identity is None))
        task = ScanTask(readers, writers, item_bytes, call.place.device, block=block)
        launch = plan_scan(of.name, task, shape, along)
        kernel, arguments = self._kernel(call, types, arguments)
        views = views_or_none(
            [array.view if array else None for array in (*readers, *(writer.array for writer in writers))]
        )
        job = Job(shape, dtypes, None, launch.config, launch.scratch_bytes, (launch.layout,), views)
        if not of.takes_last:
            return job._replace(kernel=kernel[{**arguments, "How_": launch.how.format("results")}])
        return job._replace(
            kernel=kernel[{**arguments, "How_": launch.how.format("results_with_last")}],
            first=kernel[{**arguments, "How_": launch.how.format("last")}],
            kept_bytes=int(launch.layout["lines"]) * item_bytes,
        )


def _flattened(of: Declared, call: CallArguments) -> CallArguments:
    """Return the call with its input arrays as one dimension each, broadcast to their common shape, in row-major order.

    Numbers and raw inputs stay as they are.
    """
    if all(
        type(layout) is not tuple or p.raw or len(layout[1]) <= 1
        for p, layout in zip(of.inputs, call.layouts, strict=True)
    ):
        return call
    shape = shape_of(of, call.layouts, None)
    values, layouts = [], []
    for p, value, layout in zip(of.inputs, call.values, call.layouts, strict=True):
        if type(layout) is tuple and not p.raw:
            value = _in_one_dimension(of, call.place, value, shape)
            layout = value.dtype, value.shape, value.strides
        values.append(value)
        layouts.append(layout)
    return CallArguments(call.place, values, tuple(layouts))


def _in_one_dimension(of: Declared, place: ArrayPlace, x: Any, shape: tuple[int, ...]) -> Any:
    size = prod(shape)
    if x.size == 1:
        return place.xp.broadcast_to(x.reshape(-1), (size,))
    if x.shape == shape and x.flags.c_contiguous:
        return x.reshape(-1)
    flat = place.empty(shape, x.dtype)
    with doing("copy", of.name, place.stream, (x,), (flat,), flat.nbytes):
        place.copy(x, flat)
    return flat.reshape(-1)
