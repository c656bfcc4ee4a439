"""Stencils from an expression of neighbours: windows in registers, borders by mode, several steps in a call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Self, overload

import numpy as np

from cudakit.arrays.function import ArrayFunction
from cudakit.arrays.place import ArrayPlace, array_place, check_apart, output, overlaps
from cudakit.errors import ArgumentError, CompileError, TemplateError
from cudakit.generate.declarations import Parameter, parse
from cudakit.generate.elementwise_call import is_array, split
from cudakit.generate.expression import check_set, explained
from cudakit.generate.promotion import can_convert, deduce_types, dtype_of
from cudakit.generate.stencil_code import (
    BORDERS,
    RESERVED,
    STEPS,
    StencilRecipe,
    called_with_offsets,
    kernel_text,
    offsets_of,
)
from cudakit.generate.stencil_traced import PREAMBLE, traced
from cudakit.generate.ufuncs import OPTIONS
from cudakit.jit.load.config import Config, config
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, options_of
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.types.checked import whole

#: Cells of a thread along the two slow axes, and threads of a block, by the rank.
_SHAPES = {1: ((1, 1), (128, 1)), 2: ((1, 8), (32, 4)), 3: ((4, 2), (32, 4))}
_FURTHEST = 16
#: Where steps are fused: rows and columns of a block's tile by the rank, and its threads.
_TILES, _TILE_THREADS = {1: (1, 1024), 2: (32, 64)}, 256
#: The most steps of a launch, how many times a tile's cells it may hold with what lies around, and in how many bytes.
_MOST_FUSED, _MOST_HELD, _SHARED_BYTES = 4, 1.5, 48 << 10


class _Job(NamedTuple):
    """The launch for arrays of one kind."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


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
    """A function of arrays from a C++ expression of neighbours: ``out[y, x] = 0.25 (u[y, x + 1] + u[y, x − 1] + …)``.

    Parameters
    ----------
    outputs : str
        ``"type name, …"``, as `elementwise` has them: dtypes, C++ types, type variables. Or a Python function of
        ``u(dy, dx)`` and numbers, which is traced as `fuse` does it, once for each signature of types, with NumPy's
        dtypes; then there is neither body nor inputs. Left out, a decorator for such a function.
    body : str
        The one output's value, or C++ statements that set the outputs. ``u(dx)``, ``u(dy, dx)`` or ``u(dz, dy, dx)`` is
        the element of an array so far from the one that is worked out; offsets are constant integers. half and bfloat16
        are read as float, and rounded where they are set.
    inputs : str, optional
        As `outputs`. Those that the body calls are arrays, others numbers. Left out: what the body calls with integers,
        in that order, of the first output's type.
    name : str
        Of the kernel, in messages and profilers.
    mode : str or sequence of str
        What lies beyond the borders, as SciPy has it; a sequence is for each axis. ``reflect``: d c b a | a b c d | d c
        b a; ``mirror``: d c b | a b c d | c b a; ``nearest``: a a | a b c d | d d; ``wrap``: c d | a b c d | a b;
        ``constant``: `cval`.
    cval : float
        Beyond the borders of mode ``constant``.
    radius : int or sequence of int, optional
        How far neighbours lie at most, for bodies whose offsets are not written as integers (loops); a sequence is for
        each axis. Left out: found in the body.
    preamble : str
        C++ before the kernel.
    options : CompileOptions, optional

    Returns
    -------
    Stencil or TracedStencil
        Called as ``f(*inputs, out=None, stream=None, steps=1)``.

    Raises
    ------
    TemplateError
        For declarations and bodies that cannot be read.

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
    _check_name(name)
    made = parse(name, outputs, RESERVED, preamble)
    if not made:
        raise TemplateError(f"{name}: it has no output; declare one, as in 'float out'")
    if not isinstance(body, str) or not body.strip():
        raise TemplateError(f"{name}: the expression must be C++ text, got {body!r}")
    if inputs is None:
        found = [each for each in called_with_offsets(body) if each not in [p.name for p in made]]
        given = tuple(made[0]._replace(name=each) for each in found)
    else:
        given = parse(name, inputs, RESERVED, preamble)
    both = {p.name for p in given} & {p.name for p in made}
    if both or any(p.raw for p in (*given, *made)):
        raise TemplateError(f"{name}: inputs and outputs have names of their own, and none of them is raw")
    if len(made) > 1:
        check_set(name, "expression", body, [p.name for p in made], preamble)
    return Stencil(_recipe(name, given, made, body, preamble, mode, cval, radius), options)


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name.isidentifier() or name.endswith("_"):
        raise TemplateError(f"the name of a stencil must be a C++ identifier, got {name!r}")


def _name_of(function: Any) -> str:
    name = str(getattr(function, "__name__", "stencil")).strip("_")
    return name if name.isidentifier() else "stencil"


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
    halos, rank = _halos(name, inputs, body, preamble, radius)
    modes = _per_axis(name, "mode", mode, rank, "nearest")
    for each in modes:
        if each not in BORDERS:
            raise TemplateError(f"{name}: mode {each!r} is none of {', '.join(BORDERS)}")
    try:
        beyond = float(cval)
    except (TypeError, ValueError):
        raise TemplateError(f"{name}: cval is a number, got {cval!r}") from None
    return StencilRecipe(name, inputs, outputs, body, preamble, halos, rank, modes, beyond)


def _per_axis(op: str, what: str, given: Any, rank: int, filler: Any) -> tuple[Any, Any, Any]:
    """One of a kind for each of three axes, the last `rank` of which are the arrays'."""
    each = [given] * rank if isinstance(given, str | int) else list(given)
    if len(each) != rank:
        raise TemplateError(f"{op}: {what} has {len(each)} entries, and the expression {rank} axes")
    first, second, third = [filler] * (3 - rank) + each
    return first, second, third


def _halos(
    op: str, inputs: Sequence[Parameter], body: str, preamble: str, radius: Any
) -> tuple[tuple[tuple[int, int, int] | None, ...], int]:
    """How far each input's neighbours lie, and how many axes there are."""
    text = f"{body}\n{preamble}" if "#define" in preamble else body
    offsets = [offsets_of(op, p.name, text, radius is not None) for p in inputs]
    ranks = {len(each) for of in offsets for each in of}
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
        reach = [0] * (3 - rank) + [max(abs(each[d]) for each in of) for d in range(rank)]
        halo = tuple(max(a, whole(f"{op}: radius", b)) for a, b in zip(reach, least, strict=True))
        if max(halo) > _FURTHEST:
            raise TemplateError(f"{op}: {p.name} is looked at {max(halo)} away; {_FURTHEST} is the most")
        halos.append((halo[0], halo[1], halo[2]))
    return tuple(halos), rank


class Stencil(ArrayFunction):
    """A function of arrays, made by `stencil`.

    Called as ``f(*inputs, out=None, stream=None, steps=1)``.

    Parameters
    ----------
    *inputs : array or number
        Arrays of one shape, with as many dimensions as the expression has offsets; those that are not C-contiguous are
        copied first. Numbers where the expression names an input without offsets.
    out : array or tuple, optional
        Where the outputs go: of the inputs' shape and the outputs' dtypes, overlapping no input.
    stream : stream, optional
        Left out: CuPy's current stream, or the emulator for NumPy arrays.
    steps : int
        How often it is done; from the second time on its output takes the place of the first array among the inputs.
        Of a line or a plane with one array, up to 4 steps are one launch, in shared memory.

    Returns
    -------
    array or tuple of array
        The outputs.

    Raises
    ------
    ArgumentError
        Naming the argument: shapes that differ, sizes smaller than what the mode repeats, an `out` that overlaps, types
        that cannot be deduced or would lose.
    CompileError
        Placed in the expression.
    """

    _OPTIONS = MappingProxyType({"steps": 1})

    recipe: StencilRecipe
    options: CompileOptions
    _kernel: Kernel
    _steps_kernel: Kernel | None

    def __new__(cls, recipe: StencilRecipe, options: CompileOptions | None = None) -> Self:
        options = options_of(recipe.name, options)
        source = Source(kernel_text(recipe), f"<{recipe.name}>")
        kernel = of_source(source, recipe.name, options)
        steps = of_source(source, recipe.name + STEPS, options) if recipe.can_fuse_steps else None
        own = {"recipe": recipe, "options": options, "_kernel": kernel, "_steps_kernel": steps}
        inputs, outputs = ([p.name for p in group] for group in (recipe.inputs, recipe.outputs))
        return super().__new__(cls, recipe.name, inputs, outputs, **own)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.recipe, self.options)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, group)) for group in (self.recipe.inputs, self.recipe.outputs))
        return f"<cudakit.stencil {self.recipe.name}: {inputs} → {outputs}>"

    @property
    def source(self) -> str:
        """CUDA C++ of the kernel."""
        return kernel_text(self.recipe)

    def _ordinary(self, args: tuple[Any, ...], out: Any, stream: Any, steps: int = 1) -> Any:
        """What a call does that is not frozen."""
        recipe, op = self.recipe, self.recipe.name
        args, outs = split(recipe, args, out)
        times = whole(f"{op}: steps", steps, 1)
        named = self._arrays(args)
        given = [(p.name, value) for p, value in zip(recipe.outputs, outs, strict=True) if value is not None]
        place, arrays = array_place(op, stream, *named, *((f"out ({each})", value) for each, value in given))
        found = dict(zip([each for each, _ in (*named, *given)], arrays, strict=True))
        kinds = [dtype_of(op, p.name, found.get(p.name, value)) for p, value in zip(recipe.inputs, args, strict=True)]
        of_outs = [found[p.name].dtype if p.name in found else None for p in recipe.outputs]
        types = deduce_types(op, recipe.inputs, kinds, recipe.outputs, of_outs)
        shape = self._shape(named, found)
        results = []
        check_apart(op, outs)
        for p in recipe.outputs:
            dtype = types.get(p.type, p.dtype)
            assert dtype is not None  # deduced, or declared
            results.append(output(f"{op}, output {p.name}", place, found.get(p.name), shape, dtype))
        for p, value in zip(recipe.outputs, outs, strict=True):
            for each, _ in named if value is not None else ():
                if overlaps(found[p.name], found[each]):
                    raise ArgumentError(f"{op}: out ({p.name}) overlaps {each}, which is read; give another array")
        if 0 not in shape:
            for name, _ in named:
                if not found[name].flags.c_contiguous:
                    found[name] = place.copied(found[name])
            values = [found.get(p.name, value) for p, value in zip(recipe.inputs, args, strict=True)]
            self._steps(place, values, results, types, times)
        mine = [made if value is None else value for made, value in zip(results, outs, strict=True)]
        return mine[0] if len(mine) == 1 else tuple(mine)

    def _arrays(self, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
        """The arrays among the inputs, by name."""
        op, named = self.recipe.name, []
        for p, halo, value in zip(self.recipe.inputs, self.recipe.halos, args, strict=True):
            if is_array(op, p, value) == (halo is None):
                kind = type(value).__name__
                wanted = "a number, for the expression has no neighbours of it" if halo is None else "an array"
                raise ArgumentError(f"{op}: {p.name} must be {wanted}, got {kind}")
            if halo is not None:
                named.append((p.name, value))
        return named

    def _shape(self, named: list[tuple[str, Any]], found: dict[str, Any]) -> tuple[int, ...]:
        """The shape that all arrays have."""
        recipe, op = self.recipe, self.recipe.name
        first = named[0][0]
        shape: tuple[int, ...] = found[first].shape
        if len(shape) != recipe.rank:
            raise ArgumentError(f"{op}: {first} has shape {shape}; the expression has {recipe.rank} axes")
        for name, _ in named[1:]:
            if found[name].shape != shape:
                raise ArgumentError(f"{op}: {first} has shape {shape} and {name} {found[name].shape}; give one shape")
        first_axis = 3 - recipe.rank
        for p, halo in zip(recipe.inputs, recipe.halos, strict=True):
            if halo is None or 0 in shape:
                continue
            for axis, n in enumerate(shape):
                reach, mode = halo[first_axis + axis], recipe.borders[first_axis + axis]
                least = {"MIRROR": reach + 1, "REFLECT": reach, "WRAP": reach}.get(BORDERS[mode], 1)
                if n < least:
                    raise ArgumentError(
                        f"{op}: axis {axis} of {p.name} has {n} elements, and mode {mode!r} needs {least} for "
                        f"neighbours {reach} away; give a larger array, or mode 'nearest' or 'constant'"
                    )
        return shape

    def _steps(
        self, place: ArrayPlace, values: list[Any], results: list[Any], types: dict[str, np.dtype], times: int
    ) -> None:
        """Each step's launch, to the results and to memory of its own by turns."""
        recipe, op = self.recipe, self.recipe.name
        evolves = next(k for k, halo in enumerate(recipe.halos) if halo is not None)
        if times > 1:
            own = recipe.inputs[evolves]
            into = types.get(own.type, own.dtype)
            assert into is not None  # deduced, or declared
            if len(results) > 1 or not can_convert(results[0].dtype, into):
                raise ArgumentError(
                    f"{op}: with steps the one output takes the place of {own.name}; {own} cannot be it"
                )
        targets = [made if made.flags.c_contiguous else place.empty(made.shape, made.dtype) for made in results]
        launches = self._groups(values[evolves], targets[0], times)
        others = [place.empty(each.shape, each.dtype) for each in targets] if len(launches) > 1 else targets
        for k, steps in enumerate(launches):
            to = targets if (len(launches) - k) % 2 else others
            self._launch(place, values, to, types, steps)
            values = [*values[:evolves], to[0], *values[evolves + 1 :]]
        for made, target in zip(results, targets, strict=True):
            if target is not made:
                place.copy(target, made)

    def _groups(self, read: Any, made: Any, times: int) -> list[int]:
        """How many steps each launch does."""
        most = 1
        if self._steps_kernel is not None and read.dtype == made.dtype:
            (rows, columns), halo = _TILES[self.recipe.rank], next(each for each in self.recipe.halos if each)
            for steps in range(2, _MOST_FUSED + 1):
                cells = (rows + 2 * halo[1] * steps) * (columns + 2 * halo[2] * steps)
                if cells <= _MOST_HELD * rows * columns and 2 * cells * made.itemsize <= _SHARED_BYTES:
                    most = steps
        return [most] * (times // most) + ([times % most] if times % most else [])

    def _launch(
        self, place: ArrayPlace, values: list[Any], outs: list[Any], types: dict[str, np.dtype], steps: int
    ) -> None:
        halos = self.recipe.halos
        arrays = [value for value, halo in zip(values, halos, strict=True) if halo is not None]
        dtypes = tuple(array.dtype for array in arrays)
        widest = max(array.itemsize for array in (*arrays, *outs))
        aligned = place.alignment(*arrays, *outs) == 16 and widest in (1, 2, 4, 8)
        shape = outs[0].shape
        key = dtypes, shape, tuple(types.items()), aligned, steps
        job: _Job = self._job_of(key, dtypes, shape, types, widest, aligned, steps)
        try:
            place.launch(job.kernel, job.config, *values, *outs, *job.numbers)
        except CompileError as error:
            raise explained(error, tuple(p.name for p in (*self.recipe.inputs, *self.recipe.outputs))) from None

    def _job(
        self,
        dtypes: tuple[np.dtype, ...],
        shape: tuple[int, ...],
        types: dict[str, np.dtype],
        widest: int,
        aligned: bool,
        steps: int,
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
        (planes, rows), block = _SHAPES[recipe.rank]
        read = [p for p, halo in zip(recipe.inputs, recipe.halos, strict=True) if halo is not None]
        kernel = self._kernel[
            {
                **variables,
                **{f"{p.name}_type_": dtype for p, dtype in zip(read, dtypes, strict=True)},
                "Index_": index,
                "COUNT_": count,
                "ROWS_": rows,
                "DEPTH_": planes,
            }
        ]
        across, down = block[0] * count, block[1] * rows
        blocks = -(-width // across) * -(-height // down) * -(-depth // planes)
        return _Job(kernel, config(blocks, block), (recipe.constant, depth, height, width))


class TracedStencil:
    """A stencil that a Python function says, made by `stencil`: called as a `Stencil` is.

    Attributes
    ----------
    function : callable
    """

    def __init__(self, function: Callable[..., Any], name: str, mode: str | Sequence[str], cval: float) -> None:
        _check_name(name)
        self.function, self.name = function, name
        self._mode, self._cval = mode, cval
        self._names = tuple(inspect.signature(function).parameters)
        self._made: dict[Any, Stencil] = {}
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<cudakit.stencil {self.name}({', '.join(self._names)})>"

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, steps: int = 1) -> Any:
        """As a `Stencil`; arrays are those arguments that are no Python numbers."""
        if len(args) != len(self._names):
            raise ArgumentError(
                f"{self.name} takes {len(self._names)} arguments: {', '.join(self._names)}; got {len(args)}"
            )
        kinds = tuple([dtype_of(self.name, name, value) for name, value in zip(self._names, args, strict=True)])
        return self.specialized(kinds)(*args, out=out, stream=stream, steps=steps)

    def specialized(self, kinds: tuple[Any, ...]) -> Stencil:
        """The stencil for arrays of these dtypes, and Python's numbers by their classes."""
        made = self._made.get(kinds)
        if made is None:
            of = traced(self.name, self.function, self._names, kinds)
            recipe = _recipe(self.name, of.inputs, of.outputs, of.body, PREAMBLE, self._mode, self._cval)
            made = self._made[kinds] = Stencil(recipe, OPTIONS)
        return made
