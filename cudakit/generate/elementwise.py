"""Elementwise kernels from an expression: types deduced, shapes broadcast, any strides read in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np

from cudakit.arrays.layout import integers, row_major
from cudakit.arrays.output import Casting, check_apart, checked_output
from cudakit.arrays.place import ArrayPlace, address_of
from cudakit.arrays.plans import Job
from cudakit.errors import ArgumentError, CompileError, TemplateError, shortened
from cudakit.generate.call import (
    CallArguments,
    GeneratedFunction,
    Layout,
    checked,
    common_shape,
    deduce_types,
    delivered,
    dtype_of,
    dtypes_of,
    gather_all,
    is_array,
    layout_of,
    new_result,
)
from cudakit.generate.declarations import (
    GIVEN_NAMES,
    Parameter,
    check_distinct,
    check_kernel_name,
    check_set,
    parse,
    statement,
)
from cudakit.generate.elementwise_code import RESERVED, ElementwiseRecipe, Form, Role, kernel_text, plan
from cudakit.jit.launch.tracebacks import raised_from_call
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions
from cudakit.kernel.kernel import Kernel, of_source

#: A kernel's form, None where there are no elements, and the job that it does.
_Formed: TypeAlias = tuple[Form | None, Job]


@raised_from_call
def elementwise(
    inputs: str,
    outputs: str,
    body: str,
    name: str = "elementwise_kernel",
    *,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Elementwise:
    """Return a function of arrays from C++ of their elements, such as ``z[k] = a[k] * x[k] + b[k] * y[k]``.

    Parameters
    ----------
    inputs, outputs : str
        Declarations ``"type name, …"``. A type is a dtype's name, a C++ type, a struct of `preamble` or a type
        variable (one letter, or a capital first), which each call decides. ``raw`` before the type (or ``*`` after
        it) marks an array that the body indexes: ``x[j]`` by row-major number and ``x(j, k)`` by coordinates. Raw
        arrays have ``x.shape(d)`` and ``x.size()``.
    body : str
        C++ statements that set the outputs; ``""`` for none. They can use these names:

        - the arguments and the type variables;
        - ``i``, the element's row-major number, and ``n``, the number of elements;
        - ``_ind[d]``, the element's coordinates, and ``_shape[d]``.

        half and bfloat16 are read as float and rounded when they are set (``x.value`` is the half itself, for
        intrinsics). Numbers beside complex ones must be complex: ``T(2) * x``.
    name : str
        Name of the kernel, in messages and profilers.
    preamble : str
        C++ before the kernel: functions, structs, includes.
    options : CompileOptions, optional
        Options of the compiler.

    Returns
    -------
    Elementwise
        Function, called as ``f(*inputs, out=None, where=None, stream=None, size=None, block_size=None)``.

    Raises
    ------
    TemplateError
        A declaration cannot be read, or the body never names an output.

    Examples
    --------
    >>> axpby = elementwise("T a, T x, T b, T y", "T z", "z = a * x + b * y", name="axpby")
    >>> z = axpby(2.0, x, 3.0, y)
    """
    check_kernel_name("an elementwise kernel", name)
    declared = parse(name, inputs, RESERVED, preamble), parse(name, outputs, RESERVED, preamble)
    if not declared[1]:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'T z'")
    check_distinct(name, *declared)
    if not isinstance(body, str) or body != "":
        statement(name, "expression", body)
        check_set(name, "expression", body, [p.name for p in declared[1]], preamble)
    return Elementwise(ElementwiseRecipe(name, *declared, preamble, body), options)


class Elementwise(GeneratedFunction):
    """A function of arrays, made by `elementwise`.

    Called as ``f(*inputs, out=None, where=None, stream=None, size=None, block_size=None)``. It may be called from
    several threads.

    Parameters
    ----------
    *inputs : array, number or struct
        Inputs of shapes that can be broadcast together; any strides. Arrays are CuPy's, NumPy's on the emulator, or
        of any library with DLPack. Strided arrays are not copied. Python numbers are weak, as in NumPy 2, and are
        passed by value. All outputs may follow the inputs here, instead of `out`.
    out : array or tuple, optional
        Output arrays, or None for a new array: the broadcast shape, any strides, and a dtype that loses no values.
        An output may be an input itself. Inputs that overlap an output in another way are copied first. Elements
        that the body does not set keep their value; in a new array they are 0.
    where : array of bool, optional
        Mask of the elements to compute. Other elements keep their value; in a new array they are 0.
    stream : stream, optional
        Stream to run on. Default: CuPy's current stream, or the emulator's for NumPy arrays.
    size : int or tuple of int, optional
        Number of elements, if all arrays are raw. Default: the number of elements of the raw arrays, if they have one
        shape. A new raw output has this size, too, or the size of other arrays.

    block_size : int, optional
        Threads of a block. Kernels that transpose by tiles ignore it.

    Returns
    -------
    array or tuple of array
        Outputs of the broadcast shape; new outputs are C-contiguous.

    Raises
    ------
    ArgumentError
        Shapes cannot be broadcast, types cannot be deduced, or an output would lose values. The message names the
        argument.
    CompileError
        The expression does not compile. The message gives the place in the expression.
    """

    _OPTIONS = MappingProxyType({"where": None, "size": None, "block_size": None})
    #: What an `out` of another dtype must be to take a result.
    _casting: Casting = "safe"

    _FAMILY = "elementwise"

    recipe: ElementwiseRecipe
    _kernels: dict[Form, Kernel]
    _latest: Form | None

    def __new__(cls, recipe: ElementwiseRecipe, options: CompileOptions | None = None) -> Self:
        return super().__new__(cls, recipe, options, _kernels={}, _latest=None)

    @property
    def source(self) -> str:
        """CUDA C++ of the last launched kernel. Before a call: of the kernel for contiguous arrays."""
        return kernel_text(self.recipe, self._latest or self._plain_form())

    def result_dtypes(self, *input_types: np.dtype | type) -> tuple[np.dtype, ...]:
        """Return the dtypes of new outputs for inputs of these dtypes (or classes of Python numbers).

        Raises
        ------
        ArgumentError
            As for a call.
        """
        types = self._types(input_types, [None] * len(self.recipe.outputs))
        return tuple(p.dtype if p.dtype is not None else types[p.type] for p in self.recipe.outputs)

    def _plain_form(self) -> Form:
        inputs, outputs = (
            tuple(Role("pointer" if p.raw else "dense") for p in group)
            for group in (self.recipe.inputs, self.recipe.outputs)
        )
        never = (False,) * len(outputs)
        return Form("flat", inputs, outputs, keeps=never, loads=never, single=self.recipe.loops)

    def _ordinary(
        self,
        args: tuple[Any, ...],
        out: Any,
        stream: Any,
        where: Any = None,
        size: Any = None,
        block_size: int | None = None,
    ) -> Any:
        """Run a call that is not replayed."""
        recipe = self.recipe
        block = self._block(block_size)
        if size is not None and size.__class__ is not int:
            size = integers(recipe.name, "size", size)
        call, outs, mine = gather_all(recipe, args, out, stream, () if where is None else (("where", where),))
        of_outs = tuple([None if out is None else (out.dtype, out.shape, out.strides) for out in mine])
        apart = True
        if where is not None or any(out is not None for out in outs):
            check_apart(recipe.name, outs)
            call = call.apart(recipe, mine, lambda k, p: True)
            starts = {address_of(array) for array in call.arrays}
            apart = starts.isdisjoint([address_of(out) for out in mine if out is not None])
        key = call.layouts, of_outs, size, apart, block
        job: _Formed = self._job_of(key, call, mine, size, apart, block)
        results = [
            new_result(call.place, p, job[1].shape, dtype)
            if out is None
            else checked_output(self._shown(p), call.place, out, out.shape, None)
            for p, out, dtype in zip(recipe.outputs, mine, job[1].dtypes, strict=True)
        ]
        self._run(call.place, job, [*call.values, *results])
        return delivered(outs, results)

    def _types(self, types: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        """Return the dtype of each type variable, for types of the inputs and the output arrays of the call."""
        recipe = self.recipe
        out_dtypes = [None if out is None else out.dtype for out in outs]
        return deduce_types(recipe.name, recipe.inputs, types, recipe.outputs, out_dtypes)

    def prepared(self, values: Sequence[Any], results: Sequence[Any]) -> tuple[Callable[..., None], Job]:
        """Return a launch for new results that no input overlaps, and its job.

        Parameters
        ----------
        values, results : sequence
            Inputs and outputs: arrays of CuPy or NumPy, and numbers.

        Returns
        -------
        launch : callable
            Function ``launch(stream, *arrays)`` of inputs, then outputs, with the layouts of `values` and
            `results`. If the job has no views, the arrays may be of any library whose arrays a kernel takes.
            Otherwise they are the results of `Job.operands`.
        job : Job
            Job of the launch.

        Raises
        ------
        ArgumentError
            As for a call.
        """
        recipe = self.recipe
        pairs = [*zip(recipe.inputs, values, strict=True)]
        raws = {p.name: value for p, value in pairs if is_array(recipe.name, p, value)}
        types = self._types([dtype_of(recipe.name, p.name, value) for p, value in pairs], list(results))
        shapes = [(p, raws[p.name].shape) for p in recipe.inputs if p.name in raws]
        result_shapes = [(p, result.shape) for p, result in zip(recipe.outputs, results, strict=True)]
        shape = common_shape(recipe.name, [*shapes, *result_shapes], None)
        for p, result in zip(recipe.outputs, results, strict=True):
            if p.raw or result.shape != shape or result.dtype != types.get(p.type, p.dtype):
                raise ArgumentError(
                    f"{self._shown(p)}: it is {p} of shape {shape} and dtype {types.get(p.type, p.dtype)}; got one of "
                    f"shape {result.shape} and dtype {result.dtype}"
                )
        if 0 in shape:
            return (lambda stream, *arrays: None), Job(shape)
        inputs = tuple(layout_of(value) if p.name in raws else None for p, value in pairs)
        to, new = tuple(map(layout_of, results)), (False,) * len(results)
        form, job = self._planned(inputs, None, to, new, shape, types, True, None)
        self._latest, kernel, config, numbers = form, job.kernel, job.config, job.numbers
        assert kernel is not None  # there are elements

        def launch(stream: Any, *arrays: Any) -> None:
            try:
                kernel(stream, config, *arrays, *numbers)
            except CompileError as error:
                raise self._explained(error) from None

        return launch, job

    def _job(self, call: CallArguments, outs: Sequence[Any], size: Any, apart: bool, block: int | None) -> _Formed:
        """Return form and job for calls with these layouts.

        `outs` are the caller's output arrays as arrays of the place, or None. `apart`: no input overlaps an output.
        `block` is the number of threads of a block, or None.
        """
        recipe, inputs = self.recipe, len(self.recipe.inputs)
        inputs_, masks = call.layouts[:inputs], call.layouts[inputs:]
        for dtype, _, _ in masks:
            if dtype != np.bool_:
                raise ArgumentError(f"{recipe.name}: where is of {dtype}; it must be of bool, as x > 0 is")
        types = self._types(dtypes_of(inputs_), outs)
        declared = (*recipe.inputs, *[Parameter("where", "bool")] * len(masks))
        shapes = [(p, layout[1]) for p, layout in zip(declared, call.layouts, strict=True) if type(layout) is tuple]
        shapes += [(p, out.shape) for p, out in zip(recipe.outputs, outs, strict=True) if out is not None]
        shape = common_shape(recipe.name, shapes, size)
        is_told = size is not None or any(not p.raw for p, _ in shapes)
        layouts = []
        for p, out in zip(recipe.outputs, outs, strict=True):
            dtype = types.get(p.type, p.dtype)
            assert dtype is not None  # deduced, or declared
            if out is not None:
                layouts.append(layout_of(checked(self._shown(p), p, call.place, out, shape, dtype, self._casting)))
            elif p.raw and not is_told:
                raise ArgumentError(f"{self._shown(p)}: it is raw, so its size is not known; give out=, or size=")
            else:
                strides = tuple([step * dtype.itemsize for step in row_major(shape)])
                layouts.append(Layout(dtype, shape, strides))
        dtypes = tuple([layout.dtype for layout in layouts])
        if 0 in shape:
            return None, Job(shape, dtypes)
        of_inputs = tuple([Layout(*layout) if type(layout) is tuple else None for layout in inputs_])
        mask = Layout(*masks[0]) if masks else None
        mine = tuple([out is not None for out in outs])
        form, job = self._planned(of_inputs, mask, tuple(layouts), mine, shape, types, apart, block)
        return form, job._replace(shape=shape, dtypes=dtypes)

    def _planned(
        self,
        inputs: tuple[Layout | None, ...],
        mask: Layout | None,
        outputs: tuple[Layout, ...],
        mine: tuple[bool, ...],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
        apart: bool,
        block: int | None,
    ) -> tuple[Form, Job]:
        """Return the form and the job of a call with at least one element. The job has its kernel.

        An input is None if it is a number. `mask` is the layout of `where`. `mine` says which outputs are the caller's.
        `apart`: no input overlaps an output.
        """
        form, job = plan(self.recipe, inputs, mask, outputs, mine, shape, types, apart, block)
        return form, job._replace(kernel=self._bound(form, inputs, outputs, types))

    def _run(self, place: ArrayPlace, job: _Formed, arrays: list[Any]) -> None:
        form, launch = job
        if form is None:
            return
        self._latest = form
        try:
            launch.run(place, *arrays)
        except CompileError as error:
            raise self._explained(error) from None

    def _bound(
        self, form: Form, inputs: tuple[Layout | None, ...], outputs: tuple[Layout, ...], types: dict[str, np.dtype]
    ) -> Kernel:
        """Return the kernel of a form, with its type variables set."""
        recipe = self.recipe
        kernel = self._kernels.get(form)
        if kernel is None:
            source = Source(kernel_text(recipe, form), f"<{recipe.name}>")
            kernel = self._kernels[form] = of_source(source, recipe.name, self.options)
        arguments: dict[str, Any] = {variable: types[variable] for variable in recipe.variables}
        for p, role, at in (
            *zip(recipe.inputs, form.inputs, inputs, strict=True),
            *zip(recipe.outputs, form.outputs, outputs, strict=True),
        ):
            if role.converts and at is not None:
                arguments[f"{p.name}_type_"] = at.dtype
        return kernel[arguments] if arguments else kernel

    def _block(self, size: Any) -> int | None:
        """Return the call's `block_size` as an int, or None for the default.

        Raises
        ------
        ArgumentError
            The value is no int from 1 to 1024.
        """
        if size is None or (isinstance(size, int | np.integer) and 0 < size <= 1024):
            return size if size is None else int(size)
        raise ArgumentError(f"{self.recipe.name}: block_size must be an int, 1 to 1024 threads, got {shortened(size)}")

    def _shown(self, p: Parameter) -> str:
        """Return the name of an output in messages."""
        return f"{self.recipe.name}, output {p.name}"

    def _names(self) -> dict[str, tuple[str, ...]]:
        return {"expression": (*super()._names()["expression"], *GIVEN_NAMES)}
