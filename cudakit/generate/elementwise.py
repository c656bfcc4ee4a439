"""Elementwise kernels from an expression: types deduced, shapes broadcast, any strides read in place."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cudakit import devices, structs
from cudakit.dispatch import MISSING
from cudakit.errors import ArgumentError, CompileError, TemplateError
from cudakit.generate.deduction import can_convert, check_dtype, deduce_types, dtype_of
from cudakit.generate.elementwise_plan import Launch, Layout, broadcast, plan
from cudakit.generate.elementwise_text import RESERVED, Form, Recipe, Role, kernel_text
from cudakit.generate.expression import explained, statement
from cudakit.generate.frozen import Frozen, Made, sources
from cudakit.generate.parameters import Parameter, parse
from cudakit.kernel import Kernel
from cudakit.ops.moving import flat
from cudakit.ops.place import Place, _address, output, place_of
from cudakit.options import CompileOptions
from cudakit.source import Source
from cudakit.streams import is_emulated

_MOST_JOBS = 4096


def elementwise(
    inputs: str,
    outputs: str,
    body: str,
    name: str = "elementwise_kernel",
    *,
    preamble: str = "",
    options: CompileOptions | None = None,
) -> Elementwise:
    """A function of arrays from a C++ expression of their elements: ``z[k] = a[k] * x[k] + b[k] * y[k]`` and the like.

    Parameters
    ----------
    inputs, outputs : str
        ``"type name, …"``. A type is a dtype's name, a C++ type, a struct of `preamble` or a type variable (one letter,
        or a capital first), which each call decides. ``raw`` before the type (or ``*`` after it) is for an array that
        the body indexes, ``x[j]`` by row-major number and ``x(j, k)`` by coordinates; ``x.shape(d)`` and ``x.size()``
        are there too.
    body : str
        C++ statements that set the outputs. They have the arguments by their names and the type variables; ``i``, the
        element's row-major number, and ``n``, how many there are; ``_ind[d]``, its coordinates, and ``_shape[d]``.
    name : str
        Of the kernel, in messages and profilers.
    preamble : str
        C++ before the kernel: functions, structs, includes.
    options : CompileOptions, optional

    Returns
    -------
    Elementwise
        Called as ``f(*inputs, out=None, where=None, stream=None, size=None)``.

    Raises
    ------
    TemplateError
        For declarations that cannot be read.

    Examples
    --------
    >>> axpby = elementwise("T a, T x, T b, T y", "T z", "z = a * x + b * y", name="axpby")
    >>> z = axpby(2.0, x, 3.0, y)
    """
    if not isinstance(name, str) or not name.isidentifier() or name.endswith("_"):
        raise TemplateError(f"the name of an elementwise kernel must be a C++ identifier, got {name!r}")
    declared = parse(name, inputs, RESERVED, preamble), parse(name, outputs, RESERVED, preamble)
    if not declared[1]:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'T z'")
    both = {p.name for p in declared[0]} & {p.name for p in declared[1]}
    if both:
        raise TemplateError(f"{name}: {', '.join(sorted(both))} is an input and an output; give the array as out= too")
    statement(name, "expression", body)
    return Elementwise(Recipe(name, *declared, body, preamble), options)


class Elementwise(functools.partial[Any]):
    """A function of arrays, made by `elementwise`: ``f(*inputs, out=None, where=None, stream=None, size=None)``.

    It may be called from several threads. Why it is a `functools.partial`: see `cudakit.kernel.Kernel`.

    Parameters
    ----------
    *inputs : array, number or struct
        The inputs, then, if all of them are given here rather than as `out`, the outputs. Arrays are CuPy's, NumPy's on
        the emulator, or of any library with DLPack; of shapes that can be broadcast together and any strides, which are
        read as they are. Python numbers are weak, as NumPy 2 has it, and go by value.
    out : array or tuple, optional
        Where the outputs go, None for a new array. Of the broadcast shape, any strides, and a dtype that loses nothing.
        It may be an input itself, and must not otherwise overlap one. What the body does not set stays as it was; in a
        new array it is 0.
    where : array of bool, optional
        Which elements are worked out. The others stay as they were, in a new array 0.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.
    size : int or tuple of int, optional
        How many elements there are, where no argument but raw ones tells. Left out: as many as the raw arrays have, if
        they have the same shape.

    Returns
    -------
    array or tuple of array
        The outputs, of the broadcast shape, C-contiguous where they are new.

    Raises
    ------
    ArgumentError
        Naming the argument: shapes that do not broadcast, types that cannot be deduced or would lose, and the like.
    CompileError
        Placed in the expression.
    """

    recipe: Recipe
    options: CompileOptions
    _kernels: dict[Form, Kernel]
    _jobs: dict[Any, tuple[Kernel, Launch]]
    _latest: Form | None
    _frozen: Frozen

    def __new__(cls, recipe: Recipe, options: CompileOptions | None = None) -> Elementwise:
        def ordinary(args: tuple[Any, ...], out: Any, where: Any, stream: Any, size: Any) -> Any:
            return self._call(args, out, where, stream, size)

        frozen = Frozen(len(recipe.inputs), len(recipe.outputs), ordinary)
        self = super().__new__(cls, frozen.function)
        self.__dict__.update(
            recipe=recipe,
            options=options or CompileOptions(),
            _kernels={},
            _jobs={},
            _latest=None,
            _frozen=frozen,
        )
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Elementwise, (self.recipe, self.options)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, group)) for group in (self.recipe.inputs, self.recipe.outputs))
        return f"<cudakit.elementwise {self.recipe.name}: {inputs} → {outputs}>"

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel launched last; before a call, of that for contiguous arrays."""
        return kernel_text(self.recipe, self._latest or self._plain_form())

    def _plain_form(self) -> Form:
        inputs, outputs = (
            tuple(Role("pointer" if p.raw else "dense") for p in group)
            for group in (self.recipe.inputs, self.recipe.outputs)
        )
        return Form("flat", inputs, outputs, loads=(False,) * len(outputs), single=self.recipe.loops)

    def _call(self, args: tuple[Any, ...], out: Any, where: Any, stream: Any, size: Any) -> Any:
        """What a call does that is not frozen: everything."""
        recipe = self.recipe
        args, outs = self._split(tuple(value for value in args if value is not MISSING), out)
        named = [(p.name, value) for p, value in zip(recipe.inputs, args, strict=True) if self._is_array(p, value)]
        given = [(p.name, value) for p, value in zip(recipe.outputs, outs, strict=True) if value is not None]
        masks = [] if where is None else [("where", where)]
        place, arrays = _place(recipe.name, stream, [*named, *masks, *given])
        found = dict(zip([name for name, _ in (*named, *masks, *given)], arrays, strict=True))
        values = [found.get(p.name, value) for p, value in zip(recipe.inputs, args, strict=True)]
        mask = found.get("where")
        if mask is not None and mask.dtype != np.bool_:
            raise ArgumentError(f"{recipe.name}: where is of {mask.dtype}; it must be of bool, as x > 0 is")
        kinds = [dtype_of(recipe.name, p.name, value) for p, value in zip(recipe.inputs, values, strict=True)]
        of_outs = [None if value is None else found[p.name] for p, value in zip(recipe.outputs, outs, strict=True)]
        types = self._types(kinds, of_outs)
        shape = self._shape(found, size)
        results = self._results(place, of_outs, shape, types, list(found.values())[: len(named) + len(masks)])
        if 0 not in shape:
            key, job, passed = self._launch(place, values, found, mask, results, of_outs, shape, types)
            whole = len({out is None for out in outs}) == 1
            plain = whole and stream is None and where is None and size is None and place.xp is not np
            if plain and all(value is given for value, given in zip(values, args, strict=True)):
                self._frozen.saw(self._made(place, key, job, passed, args, results, outs))
        return results[0] if len(results) == 1 else tuple(results)

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        """The dtype of each type variable, for inputs of `kinds` and the output arrays that were given."""
        recipe = self.recipe
        given = [None if out is None else out.dtype for out in outs]
        return deduce_types(recipe.name, recipe.inputs, kinds, recipe.outputs, given)

    def _made(
        self,
        place: Place,
        key: Any,
        job: tuple[Kernel, Launch],
        passed: tuple[Any, ...],
        args: tuple[Any, ...],
        results: list[Any],
        outs: tuple[Any, ...],
    ) -> Made:
        """The record of a launch that `Frozen` is told of."""
        kernel, launch = job
        owners = (*args, *results)
        below = [
            view[0] * owner.itemsize if view is not None else 0
            for view, owner in zip(launch.views, owners, strict=True)
        ]
        named = zip(sources(args, len(results), outs), below, strict=True)
        given = (*named, *((None, 0),) * len(launch.numbers))
        nobody = (None,) * len(launch.numbers)
        kinds = tuple(type(value) for value in args)
        all_outs = outs if outs[0] is not None else None
        return Made((key, kinds), kernel, place.stream, launch.config, passed, given, (*owners, *nobody), all_outs)

    def _split(self, args: tuple[Any, ...], out: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Inputs, and an array or None for each output."""
        recipe = self.recipe
        inputs, outputs = len(recipe.inputs), len(recipe.outputs)
        if len(args) == inputs + outputs and out is None:
            return args[:inputs], args[inputs:]
        if len(args) != inputs:
            names = ", ".join(p.name for p in recipe.inputs)
            more = f" (or {inputs + outputs}, with the outputs)" if out is None else ""
            raise ArgumentError(f"{recipe.name} takes {inputs} inputs{more}: {names}; got {len(args)}")
        if out is None:
            return args, (None,) * outputs
        if not isinstance(out, tuple):
            out = (out,)
        if len(out) != outputs:
            names = ", ".join(p.name for p in recipe.outputs)
            raise ArgumentError(f"{recipe.name} has {outputs} outputs ({names}); out has {len(out)}")
        return args, out

    def _is_array(self, p: Parameter, value: Any) -> bool:
        kind: Any = type(value)
        is_value = isinstance(value, bool | int | float | complex | np.generic) or structs.is_struct_type(kind)
        if is_value or kind.__module__ == "ml_dtypes" or (isinstance(value, np.ndarray) and _is_record(value)):
            if p.raw:
                raise ArgumentError(f"{self.recipe.name}: {p.name} is raw and takes an array, got {kind.__name__}")
            return False
        return True

    def _shape(self, found: dict[str, Any], size: int | tuple[int, ...] | None) -> tuple[int, ...]:
        """The shape that the arrays have together."""
        recipe = self.recipe
        raws = {p.name for p in (*recipe.inputs, *recipe.outputs) if p.raw}
        named = [(name, array.shape) for name, array in found.items() if name not in raws]
        if named:
            if size is not None:
                raise ArgumentError(f"{recipe.name}: size= is for calls whose arrays are all raw; {named[0][0]} is not")
            return broadcast(recipe.name, named)
        if size is not None:
            return (size,) if isinstance(size, int) else tuple(size)
        shapes = {found[name].shape for name in raws if name in found}
        if len(shapes) > 1:
            given = ", ".join(f"{name} has shape {found[name].shape}" for name in found)
            raise ArgumentError(f"{recipe.name}: all its arrays are raw, and {given}; say how many elements: size=")
        return shapes.pop() if shapes else ()

    def _results(
        self, place: Place, outs: list[Any], shape: tuple[int, ...], types: dict[str, np.dtype], inputs: list[Any]
    ) -> list[Any]:
        """The output arrays: those given, once checked, or new ones."""
        results: list[Any] = []
        for p, out in zip(self.recipe.outputs, outs, strict=True):
            op = f"{self.recipe.name}, output {p.name}"
            dtype = types.get(p.type, p.dtype)
            assert dtype is not None  # deduced, or declared
            if out is None:
                if p.raw:
                    raise ArgumentError(f"{op}: it is raw, so its size is not known; give out=")
                results.append(place.empty(shape, dtype))
                continue
            if out.dtype != dtype:
                check_dtype(op, "out", out.dtype)
                if p.raw or not can_convert(dtype, out.dtype):
                    raise ArgumentError(f"{op}: the result is of {dtype}, which out of {out.dtype} would lose")
            wanted = out.shape if p.raw else shape
            if out.size and any(step == 0 and n > 1 for n, step in zip(out.shape, out.strides, strict=True)):
                raise ArgumentError(f"{op}: out repeats elements (strides {out.strides}); give an array that does not")
            output(
                op, place, out, wanted, out.dtype, *(other for other in outs if other is not None and other is not out)
            )
            results.append(output(op, place, out, wanted, out.dtype, *inputs, in_place=True))
        if len({id(out) for out in outs if out is not None}) < sum(out is not None for out in outs):
            raise ArgumentError(f"{self.recipe.name}: one array is given for two outputs")
        return results

    def _launch(
        self,
        place: Place,
        values: list[Any],
        found: dict[str, Any],
        mask: Any,
        results: list[Any],
        outs: list[Any],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
    ) -> tuple[Any, tuple[Kernel, Launch], tuple[Any, ...]]:
        """Launch; what tells calls of this kind, the job that they have, and what the kernel was given."""
        recipe = self.recipe
        inputs = tuple(
            _layout(value) if p.name in found else None for p, value in zip(recipe.inputs, values, strict=True)
        )
        apart = True
        if any(out is not None for out in outs):
            starts = {_address(found[p.name]) for p in recipe.inputs if p.name in found}
            apart = starts.isdisjoint(_address(result) for result in results)
        given = tuple(out is not None for out in outs)
        to = tuple(_layout(result) for result in results)
        masked = None if mask is None else _layout(mask)
        key = inputs, to, masked, given, shape, tuple(types.items()), apart
        job = self._jobs.get(key)
        if job is None:
            made = plan(recipe, inputs, masked, to, given, shape, types, apart)
            job = self._bound(made.form, inputs, to, types), made
            if len(self._jobs) >= _MOST_JOBS:
                self._jobs.clear()
            self._jobs[key] = job
        kernel, launch = job
        self._latest = launch.form
        arrays = [*values, *([] if mask is None else [mask]), *results]
        seen = [a if view is None else flat(a, *view) for a, view in zip(arrays, launch.views, strict=True)]
        try:
            kernel(place.stream, launch.config, *seen, *launch.numbers)
        except CompileError as error:
            raise explained(error, self._names()) from None
        return key, job, (*seen, *launch.numbers)

    def _bound(
        self, form: Form, inputs: tuple[Layout | None, ...], outputs: tuple[Layout, ...], types: dict[str, np.dtype]
    ) -> Kernel:
        """The kernel of a form, with its type variables given."""
        recipe = self.recipe
        kernel = self._kernels.get(form)
        if kernel is None:
            source = Source(kernel_text(recipe, form), f"<{recipe.name}>")
            kernel = self._kernels[form] = Kernel._make(source, recipe.name, self.options, None)
        named: dict[str, Any] = {variable: types[variable] for variable in recipe.variables}
        for p, role, at in (
            *zip(recipe.inputs, form.inputs, inputs, strict=True),
            *zip(recipe.outputs, form.outputs, outputs, strict=True),
        ):
            if role.converts and at is not None:
                named[f"{p.name}_type_"] = at.dtype
        return kernel[named] if named else kernel

    def _names(self) -> tuple[str, ...]:
        recipe = self.recipe
        return (*(p.name for p in (*recipe.inputs, *recipe.outputs)), "i", "n", "_ind", "_shape", *recipe.variables)


def _is_record(value: np.ndarray) -> bool:
    """Whether a NumPy array is a struct by value."""
    return value.shape == () and value.dtype.names is not None


def _layout(array: Any) -> Layout:
    return Layout(array.dtype, array.shape, array.strides)


def _place(op: str, stream: Any, named: list[tuple[str, Any]]) -> tuple[Place, list[Any]]:
    """Where a call runs; without any array, where its stream is."""
    if named:
        return place_of(op, stream, *named)
    if is_emulated(stream) or (stream is None and not devices.has_gpu()):
        return place_of(op, stream, ("", np.empty(0)))[0], []
    import cupy

    return place_of(op, stream, ("", cupy.empty(0)))[0], []
