"""Elementwise kernels from an expression: types deduced, shapes broadcast, any strides read in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Self, TypeAlias

import numpy as np

from cudakit.arrays.function import ArrayFunction
from cudakit.arrays.job import Job
from cudakit.arrays.output import Casting, check_apart, checked_output, overlaps
from cudakit.arrays.place import ArrayPlace, address_of
from cudakit.errors import ArgumentError, CompileError, TemplateError, shortened
from cudakit.generate.declarations import Parameter, check_kernel_name, parse
from cudakit.generate.elementwise_call import is_array, layout_of, new_result, place_for, results_of, split
from cudakit.generate.elementwise_code import RESERVED, ElementwiseRecipe, Form, Role, kernel_text
from cudakit.generate.elementwise_plan import Layout, common_shape, plan
from cudakit.generate.expression import check_set, explained, statement
from cudakit.generate.promotion import deduce_types, dtype_of
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, options_of
from cudakit.kernel.kernel import Kernel, of_source

_MOST_SEEN = 4096
#: What is passed by value, or is no array, and is not looked at again where its class was seen before.
_PLAIN = frozenset((int, float, complex, bool, type(None)))

#: A kernel's form, and the job that it does.
_Formed: TypeAlias = tuple[Form, Job]


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
        C++ statements that set the outputs; ``""`` for none. They have the arguments by their names and the type
        variables; ``i``, the element's row-major number, and ``n``, how many there are; ``_ind[d]``, its coordinates,
        and ``_shape[d]``. half and bfloat16 are read as float, and rounded where they are set (``x.value`` is the half
        itself, for intrinsics). Numbers beside complex ones are made complex: ``T(2) * x``.
    name : str
        Of the kernel, in messages and profilers.
    preamble : str
        C++ before the kernel: functions, structs, includes.
    options : CompileOptions, optional

    Returns
    -------
    Elementwise
        Called as ``f(*inputs, out=None, where=None, stream=None, size=None, block_size=None)``.

    Raises
    ------
    TemplateError
        For declarations that cannot be read, and an output that the body never names.

    Examples
    --------
    >>> axpby = elementwise("T a, T x, T b, T y", "T z", "z = a * x + b * y", name="axpby")
    >>> z = axpby(2.0, x, 3.0, y)
    """
    check_kernel_name("an elementwise kernel", name)
    declared = parse(name, inputs, RESERVED, preamble), parse(name, outputs, RESERVED, preamble)
    if not declared[1]:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'T z'")
    both = {p.name for p in declared[0]} & {p.name for p in declared[1]}
    if both:
        raise TemplateError(f"{name}: {', '.join(sorted(both))} is an input and an output; give the array as out= too")
    if not isinstance(body, str) or body != "":
        statement(name, "expression", body)
        check_set(name, "expression", body, [p.name for p in declared[1]], preamble)
    return Elementwise(ElementwiseRecipe(name, *declared, body, preamble), options)


class Elementwise(ArrayFunction):
    """A function of arrays, made by `elementwise`.

    Called as ``f(*inputs, out=None, where=None, stream=None, size=None, block_size=None)``. It may be called from
    several threads.

    Parameters
    ----------
    *inputs : array, number or struct
        The inputs, then, if all of them are given here rather than as `out`, the outputs. Arrays are CuPy's, NumPy's on
        the emulator, or of any library with DLPack; of shapes that can be broadcast together and any strides, which are
        read as they are. Python numbers are weak, as NumPy 2 has it, and go by value.
    out : array or tuple, optional
        Where the outputs go, None for a new array. Of the broadcast shape, any strides, and a dtype that loses nothing.
        It may be an input itself; inputs that it overlaps otherwise are copied first. What the body does not set stays
        as it was; in a new array it is 0.
    where : array of bool, optional
        Which elements are worked out. The others stay as they were, in a new array 0.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.
    size : int or tuple of int, optional
        How many elements there are, where no argument but raw ones tells. Left out: as many as the raw arrays have, if
        they have the same shape. A raw output that is not given has as many too, if `size` or other arrays tell.

    block_size : int, optional
        Threads of a block. Tiles, by which inputs go that lie across the result, keep their own.

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

    _OPTIONS = MappingProxyType({"where": None, "size": None, "block_size": None})
    #: What an `out` of another dtype must be to take a result.
    _casting: Casting = "safe"

    recipe: ElementwiseRecipe
    options: CompileOptions
    _kernels: dict[Form, Kernel]
    _seen: dict[Any, tuple[tuple[int, ...], tuple[np.dtype, ...], dict[bool, _Formed]]]
    _latest: Form | None

    def __new__(cls, recipe: ElementwiseRecipe, options: CompileOptions | None = None) -> Self:
        options = options_of(recipe.name, options)
        own = {"recipe": recipe, "options": options, "_kernels": {}, "_seen": {}, "_latest": None}
        inputs, outputs = ([p.name for p in group] for group in (recipe.inputs, recipe.outputs))
        return super().__new__(cls, recipe.name, inputs, outputs, **own)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe, self.options)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, group)) for group in (self.recipe.inputs, self.recipe.outputs))
        return f"<cudakit.elementwise {self.recipe.name}: {inputs} → {outputs}>"

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel launched last; before a call, of that for contiguous arrays."""
        return kernel_text(self.recipe, self._latest or self._plain_form())

    def result_dtypes(self, *kinds: np.dtype | type) -> tuple[np.dtype, ...]:
        """The dtypes of new outputs, for inputs of these dtypes; of a Python number its class is given.

        Raises
        ------
        ArgumentError
            As a call does.
        """
        types = self._types(kinds, [None] * len(self.recipe.outputs))
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
        """What a call does that is not frozen."""
        args, outs = split(self.recipe, args, out)
        key = self._key(args, outs) if where is None and size is None and block_size is None else None
        found = self._seen.get(key) if key is not None else None
        if found is None:
            results = self._work(args, outs, where, stream, size, key, self._block(block_size))
        else:
            results = self._repeat(args, outs, stream, key, found)
        # The caller's own objects, which may be another library's.
        results = [result if mine is None else mine for result, mine in zip(results, outs, strict=True)]
        return results[0] if len(results) == 1 else tuple(results)

    def _key(self, args: tuple[Any, ...], outs: tuple[Any, ...]) -> Any:
        """What tells CuPy's arrays and Python's numbers from those of another kind; None where there is more to see."""
        cupy = sys.modules.get("cupy")
        if cupy is None:
            return None
        array = cupy.ndarray
        found: list[Any] = []
        for value in (*args, *outs):
            kind = type(value)
            if kind is array:
                found.append((value.dtype, value.shape, value.strides))
            elif kind in _PLAIN or isinstance(value, np.number | np.bool_):
                found.append(kind)
            else:
                return None
        return tuple(found)

    def _repeat(self, args: tuple[Any, ...], outs: tuple[Any, ...], stream: Any, key: Any, found: Any) -> list[Any]:
        """A call of a kind that was made before: its checks but for what depends on addresses are known to pass."""
        shape, dtypes, jobs = found
        recipe = self.recipe
        array = sys.modules["cupy"].ndarray
        named = [(p.name, value) for p, value in zip(recipe.inputs, args, strict=True) if type(value) is array]
        place = place_for(recipe.name, stream, named)[0]
        inputs = [value for _, value in named]
        results, apart = [], True
        check_apart(recipe.name, outs)
        for p, value, dtype in zip(recipe.outputs, outs, dtypes, strict=True):
            if value is None:
                results.append(new_result(place, p, shape, dtype))
                continue
            if overlaps(value, *inputs, in_place=True):
                return self._work(args, outs, None, stream, None, None)
            results.append(checked_output(self._shown(p), place, value, value.shape, None))
            apart = apart and address_of(value) not in [address_of(each) for each in inputs]
        job = jobs.get(apart)
        if job is None:
            return self._work(args, outs, None, stream, None, key)
        self._run(place, job, [*args, *results])
        return results

    def _work(
        self,
        args: tuple[Any, ...],
        outs: tuple[Any, ...],
        where: Any,
        stream: Any,
        size: Any,
        key: Any,
        block: int | None = None,
    ) -> list[Any]:
        """A call of a new kind: everything is looked at."""
        recipe = self.recipe
        named = [
            (p.name, value) for p, value in zip(recipe.inputs, args, strict=True) if is_array(recipe.name, p, value)
        ]
        given = [(p.name, value) for p, value in zip(recipe.outputs, outs, strict=True) if value is not None]
        masks = [] if where is None else [("where", where)]
        outputs = [(f"out ({name})", value) for name, value in given]
        place, arrays = place_for(recipe.name, stream, [*named, *masks, *outputs])
        found = dict(zip([name for name, _ in (*named, *masks, *given)], arrays, strict=True))
        mask = found.get("where")
        if mask is not None and mask.dtype != np.bool_:
            raise ArgumentError(f"{recipe.name}: where is of {mask.dtype}; it must be of bool, as x > 0 is")
        kinds = [
            dtype_of(recipe.name, p.name, found.get(p.name, value))
            for p, value in zip(recipe.inputs, args, strict=True)
        ]
        of_outs = [None if value is None else found[p.name] for p, value in zip(recipe.outputs, outs, strict=True)]
        types = self._types(kinds, of_outs)
        declared = (*recipe.inputs, Parameter("where", "bool"), *recipe.outputs)
        shapes = [(p, found[p.name].shape) for p in declared if p.name in found]
        shape = common_shape(recipe.name, shapes, size)
        is_told = size is not None or any(not p.raw for p, _ in shapes)
        results = results_of(recipe, place, of_outs, shape, types, is_told, self._casting)
        if 0 in shape:
            return results
        given_outs = [out for out in of_outs if out is not None]
        for name, _ in (*named, *masks) if given_outs else ():
            if any(overlaps(out, found[name], in_place=True) for out in given_outs):
                found[name], key = place.copied(found[name]), None
        values = [found.get(p.name, value) for p, value in zip(recipe.inputs, args, strict=True)]
        mask = found.get("where")
        inputs = [found[name] for name, _ in (*named, *masks)]
        starts = {address_of(array) for array in inputs}
        apart = starts.isdisjoint(address_of(array) for array in of_outs if array is not None)
        mine = tuple(out is not None for out in outs)
        job = self._planned(values, found, mask, results, mine, shape, types, apart, block)
        self._run(place, job, [*values, *([] if mask is None else [mask]), *results])
        if key is not None:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            jobs = self._seen.setdefault(key, (shape, tuple(array.dtype for array in results), {}))[2]
            jobs[apart] = job
        return results

    def _types(self, kinds: Sequence[np.dtype | type], outs: Sequence[Any]) -> dict[str, np.dtype]:
        """The dtype of each type variable, for inputs of `kinds` and the output arrays that were given."""
        recipe = self.recipe
        given = [None if out is None else out.dtype for out in outs]
        return deduce_types(recipe.name, recipe.inputs, kinds, recipe.outputs, given)

    def prepared(self, values: Sequence[Any], results: Sequence[Any]) -> tuple[Callable[..., None], Job]:
        """A launch for new results, which no input overlaps, and the job that it does.

        Parameters
        ----------
        values, results : sequence
            Inputs and outputs, CuPy's or NumPy's arrays, and numbers.

        Returns
        -------
        launch : callable
            ``launch(stream, *arrays)``: inputs, then outputs, which lie as those do. Where the job has no views, they
            may be of any library whose arrays a kernel takes; else they are what `Job.seen` makes of arrays.
        job : Job

        Raises
        ------
        ArgumentError
            As a call does.
        """
        recipe = self.recipe
        pairs = [*zip(recipe.inputs, values, strict=True)]
        found = {p.name: value for p, value in pairs if is_array(recipe.name, p, value)}
        types = self._types([dtype_of(recipe.name, p.name, value) for p, value in pairs], list(results))
        shapes = [(p, found[p.name].shape) for p in recipe.inputs if p.name in found]
        told = [(p, result.shape) for p, result in zip(recipe.outputs, results, strict=True)]
        shape = common_shape(recipe.name, [*shapes, *told], None)
        for p, result in zip(recipe.outputs, results, strict=True):
            if p.raw or result.shape != shape or result.dtype != types.get(p.type, p.dtype):
                raise ArgumentError(
                    f"{self._shown(p)}: it is {p} of shape {shape} and dtype {types.get(p.type, p.dtype)}; got one of "
                    f"shape {result.shape} and dtype {result.dtype}"
                )
        if 0 in shape:
            return (lambda stream, *arrays: None), Job(shape)
        new = (False,) * len(results)
        form, job = self._planned(list(values), found, None, list(results), new, shape, types, True, None)
        self._latest, kernel, config, numbers = form, job.kernel, job.config, job.numbers
        assert kernel is not None  # there are elements

        def launch(stream: Any, *arrays: Any) -> None:
            try:
                kernel(stream, config, *arrays, *numbers)
            except CompileError as error:
                raise explained(error, self._names()) from None

        return launch, job

    def _planned(
        self,
        values: list[Any],
        found: dict[str, Any],
        mask: Any,
        results: list[Any],
        given: tuple[bool, ...],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
        apart: bool,
        block: int | None,
    ) -> _Formed:
        """The kernel and launch of a call."""
        recipe = self.recipe
        inputs = tuple(
            layout_of(value) if p.name in found else None for p, value in zip(recipe.inputs, values, strict=True)
        )
        to = tuple(layout_of(result) for result in results)
        masked = None if mask is None else layout_of(mask)
        key = inputs, to, masked, given, shape, tuple(types.items()), apart, block
        job: _Formed = self._job_of(key, *key[:-3], types, apart, block)
        return job

    def _job(
        self,
        inputs: tuple[Layout | None, ...],
        outputs: tuple[Layout, ...],
        mask: Layout | None,
        given: tuple[bool, ...],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
        apart: bool,
        block: int | None,
    ) -> _Formed:
        form, job = plan(self.recipe, inputs, mask, outputs, given, shape, types, apart, block)
        return form, job._replace(kernel=self._bound(form, inputs, outputs, types))

    def _run(self, place: ArrayPlace, job: _Formed, arrays: list[Any]) -> None:
        self._latest, found = job
        try:
            found.run(place, *arrays)
        except CompileError as error:
            raise explained(error, self._names()) from None

    def _bound(
        self, form: Form, inputs: tuple[Layout | None, ...], outputs: tuple[Layout, ...], types: dict[str, np.dtype]
    ) -> Kernel:
        """The kernel of a form, with its type variables given."""
        recipe = self.recipe
        kernel = self._kernels.get(form)
        if kernel is None:
            source = Source(kernel_text(recipe, form), f"<{recipe.name}>")
            kernel = self._kernels[form] = of_source(source, recipe.name, self.options)
        named: dict[str, Any] = {variable: types[variable] for variable in recipe.variables}
        for p, role, at in (
            *zip(recipe.inputs, form.inputs, inputs, strict=True),
            *zip(recipe.outputs, form.outputs, outputs, strict=True),
        ):
            if role.converts and at is not None:
                named[f"{p.name}_type_"] = at.dtype
        return kernel[named] if named else kernel

    def _block(self, size: Any) -> int | None:
        """A block's threads, where the call says how many."""
        if size is None or (isinstance(size, int | np.integer) and 0 < size <= 1024):
            return size if size is None else int(size)
        raise ArgumentError(f"{self.recipe.name}: block_size must be an int, 1 to 1024 threads, got {shortened(size)}")

    def _shown(self, p: Parameter) -> str:
        """What messages call an output."""
        return f"{self.recipe.name}, output {p.name}"

    def _names(self) -> tuple[str, ...]:
        recipe = self.recipe
        return (*(p.name for p in (*recipe.inputs, *recipe.outputs)), "i", "n", "_ind", "_shape", *recipe.variables)
