"""Calls of a stencil: arrays checked, and the launches that its steps take."""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np

from cudakit.arrays.elements import as_number
from cudakit.arrays.function import ArrayFunction
from cudakit.arrays.output import can_cast, check_apart, overlaps
from cudakit.arrays.place import ArrayPlace
from cudakit.errors import ArgumentError, CompileError, shortened
from cudakit.generate.call import Given, checked, deduce_types, dtypes_of, gather, split
from cudakit.generate.declarations import Parameter, explained
from cudakit.generate.stencil_code import BORDERS, STEPS, StencilRecipe, kernel_text
from cudakit.jit.load.config import Config, config
from cudakit.jit.source.source import Source
from cudakit.jit.specialise.options import CompileOptions, options_of
from cudakit.kernel.kernel import Kernel, of_source
from cudakit.types.checked import whole

#: Planes and rows of a thread's cells, and threads of a block, by the rank.
_SHAPES = {1: ((1, 1), (128, 1)), 2: ((1, 8), (32, 4)), 3: ((4, 2), (32, 4))}
#: Of a call.
_MOST_STEPS = 2**24
#: Where steps are fused: rows and columns of a block's tile by the rank, and its threads.
_TILES, _TILE_THREADS = {1: (1, 1024), 2: (32, 64)}, 256
#: The most steps of a launch, how many times a tile's cells it may hold with what lies around, and in how many bytes.
_MOST_FUSED, _MOST_HELD, _SHARED_BYTES = 4, 1.5, 48 << 10
#: Bytes of an element from which several steps in a launch pay, and from which two do, on an H200.
_LEAST_FUSED, _WIDE = 4, 8


class _Job(NamedTuple):
    """The launch for arrays of one kind."""

    kernel: Kernel
    config: Config
    numbers: tuple[Any, ...]


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
        if times > _MOST_STEPS:
            raise ArgumentError(f"{op}: steps is {_MOST_STEPS} at most, got {shortened(steps)}; call it several times")
        more = [(f"out ({p.name})", out) for p, out in zip(recipe.outputs, outs, strict=True) if out is not None]
        call = gather(recipe, args, stream, more)
        inputs, place, values = len(args), call.place, list(call.values[: len(args)])
        self._check_arrays(call)
        own = iter(call.values[inputs:])
        mine = [None if out is None else next(own) for out in outs]
        of_outs = [None if out is None else out.dtype for out in mine]
        types = deduce_types(op, recipe.inputs, dtypes_of(call.kinds[:inputs]), recipe.outputs, of_outs)
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
        made = [result if out is None else out for result, out in zip(results, outs, strict=True)]
        return made[0] if len(made) == 1 else tuple(made)

    def _check_arrays(self, call: Given) -> None:
        """Raise where an array stands for a number, or a number for an array."""
        for p, halo, value, layout in zip(self.recipe.inputs, self.recipe.halos, call.values, call.kinds, strict=False):
            if (type(layout) is tuple) == (halo is None):
                wanted = "a number, for the expression has no neighbours of it" if halo is None else "an array"
                raise ArgumentError(f"{self.recipe.name}: {p.name} must be {wanted}, got {type(value).__name__}")

    def _shape(self, arrays: list[tuple[Parameter, Any]]) -> tuple[int, ...]:
        """The shape that all arrays have."""
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
        """Each step's launch, to the results and to memory of its own by turns."""
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
        # Two to a launch pay for wide elements alone, and narrow ones are faster step by step.
        if self._steps_kernel is not None and read.dtype == made.dtype and made.itemsize >= _LEAST_FUSED:
            (rows, columns), halo = _TILES[self.recipe.rank], next(each for each in self.recipe.halos if each)
            for steps in range(2, _MOST_FUSED + 1):
                cells = (rows + 2 * halo[1] * steps) * (columns + 2 * halo[2] * steps)
                if cells <= _MOST_HELD * rows * columns and 2 * cells * made.itemsize <= _SHARED_BYTES:
                    most = steps
        rest = times % most
        few = [1, 1] if rest == 2 and made.itemsize < _WIDE else [rest] * bool(rest)
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
        # Of many neighbours of 8 bytes a plane fewer: its registers are those of one more block.
        planes -= recipe.rank == 3 and widest == 8 and recipe.points > 9
        read = [p for p, halo in zip(recipe.inputs, recipe.halos, strict=True) if halo is not None]
        kernel = self._kernel[
            {
                **variables,
                **{f"{p.name}_type_": dtype for p, dtype in zip(read, dtypes, strict=True)},
                "Index_": index,
                "COUNT_": count,
                "ROWS_": rows,
                "PLANES_": planes,
                "BLOCK_": prod(block),
            }
        ]
        across, down = block[0] * count, block[1] * rows
        blocks = -(-width // across) * -(-height // down) * -(-depth // planes)
        return _Job(kernel, config(blocks, block), (recipe.constant, depth, height, width))
