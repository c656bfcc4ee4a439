"""What a call of an elementwise function launches: shapes broadcast, dimensions in order and merged, a form chosen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from cudakit.arrays.job import Job, views_or_none
from cudakit.arrays.layout import integers, merged
from cudakit.arrays.views import is_row_major, record, row_major, span, steps_of, view_of
from cudakit.errors import ArgumentError, shortened
from cudakit.generate.declarations import Parameter, is_set_first
from cudakit.generate.elementwise_code import BLOCKS, ElementwiseRecipe, Form, Role, needs_layout
from cudakit.jit.load.config import Config, config

_PACK = 16
#: Fewest elements across a tile for which a tile is worth its while, and shared memory that tiles may take.
_NARROWEST, _MOST_SHARED = 8, 40 << 10
_MANY = 1 << 22


class Layout(NamedTuple):
    """An array of a call: dtype, shape, strides in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Array:
    """An element array while its launch is worked out."""

    def __init__(self, op: str, p: Parameter, layout: Layout, shape: tuple[int, ...]) -> None:
        self.p, self.layout = p, layout
        own = steps_of(op, layout.dtype, layout.strides)
        self.below = span(layout.shape, own)[0]
        self.view = view_of(layout.shape, own, layout.dtype)
        new = len(shape) - len(own)
        self.steps = (0,) * new + tuple(0 if n == 1 else step for n, step in zip(layout.shape, own, strict=True))
        self.mode: Any = "steps"

    def role(self, types: dict[str, np.dtype]) -> Role:
        return Role(self.mode, self.layout.dtype != types.get(self.p.type, self.p.dtype))


def broadcast(op: str, named: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """The shape of several arrays together.

    Raises
    ------
    ArgumentError
        Naming each argument with its shape.
    """
    try:
        return np.broadcast_shapes(*(shape for _, shape in named))
    except ValueError:
        given = ", ".join(f"{name} has shape {shape}" for name, shape in named)
        raise ArgumentError(f"{op}: {given}, which cannot be broadcast together") from None


def common_shape(
    op: str, arrays: Sequence[tuple[Parameter, tuple[int, ...]]], size: int | tuple[int, ...] | None
) -> tuple[int, ...]:
    """The shape of a call's elements: that of its arrays together, of raw ones where there are no others, or `size`.

    Raises
    ------
    ArgumentError
        For shapes that do not fit together, and a `size` beside arrays that tell.
    """
    named = [(p.name, shape) for p, shape in arrays if not p.raw]
    if named:
        if size is not None:
            raise ArgumentError(f"{op}: size= is for calls whose arrays are all raw; {named[0][0]} is not")
        return broadcast(op, named)
    if size is not None:
        found = integers(op, "size", size)
        extents = (found,) if isinstance(found, int) else tuple(found or ())
        if min(extents, default=0) < 0:
            raise ArgumentError(f"{op}: size {shortened(size)} is negative")
        return extents
    if len({shape for _, shape in arrays}) > 1:
        given = ", ".join(f"{p.name} has shape {shape}" for p, shape in arrays)
        raise ArgumentError(f"{op}: all its arrays are raw, and {given}; say how many elements: size=")
    return arrays[0][1] if arrays else ()


def plan(
    recipe: ElementwiseRecipe,
    inputs: Sequence[Layout | None],
    where: Layout | None,
    outputs: Sequence[Layout],
    given: Sequence[bool],
    shape: tuple[int, ...],
    types: dict[str, np.dtype],
    apart: bool,
    block: int | None = None,
) -> tuple[Form, Job]:
    """The form of the kernel for a call that has elements, and the job that wants it.

    Parameters
    ----------
    recipe : ElementwiseRecipe
    inputs : sequence of Layout or None
        None for a number.
    where : Layout or None
    outputs : sequence of Layout
    given : sequence of bool
        Whether each output is the caller's own array, which may be read.
    shape : tuple of int
        Of the result.
    types : dict
        Dtypes of type variables.
    apart : bool
        Whether no input lies where an output does.
    block : int, optional
        Threads of a block; tiles have theirs.
    """
    op = recipe.name
    mask = Parameter("where", "bool", np.dtype("?"))
    readers = [_Array(op, p, at, shape) for p, at in zip(recipe.inputs, inputs, strict=True) if at and not p.raw]
    if where is not None:
        readers.append(_Array(op, mask, where, shape))
    writers = [_Array(op, p, at, shape) for p, at in zip(recipe.outputs, outputs, strict=True) if not p.raw]
    counts = recipe.uses("i") or recipe.uses("_ind")
    kind, extents, steps_i = _arranged(shape, readers, writers, counts)
    size = prod(shape)
    widest = max((a.layout.dtype.itemsize for a in (*readers, *writers)), default=_PACK)
    side = 0
    if kind == "strided":
        kind, extents, steps_i, side = _tiled(extents, readers, writers, steps_i, widest)
    if kind == "strided":
        for a in readers:
            if a.mode == "steps" and a.steps[-1] == 2 and a.layout.dtype.itemsize == widest <= 2:
                a.mode = "second"
    raws = {p.name: _Raw(op, p, at, recipe.body) for p, at in _pairs(recipe, inputs, outputs) if at and p.raw}
    arrays = {a.p.name: a for a in (*readers, *writers)}

    def role(p: Parameter, at: Layout | None) -> Role:
        if at is None:
            return Role("value")
        return raws[p.name].role() if p.raw else arrays[p.name].role(types)

    loads = tuple(mine and not is_set_first(recipe.body, p.name) for p, mine in zip(recipe.outputs, given, strict=True))
    form = Form(
        kind=kind,
        inputs=tuple(role(p, at) for p, at in zip(recipe.inputs, inputs, strict=True)),
        outputs=tuple(role(p, at) for p, at in zip(recipe.outputs, outputs, strict=True)),
        where=None if where is None else role(mask, where),
        keeps=tuple(given),
        loads=loads,
        apart=apart and not any(loads),
        rank=len(extents),
        counter="int" if size < 2**31 - _PACK else "long long",
        side=side,
        reordered=counts and steps_i != row_major(extents),
        ndim=len(shape),
        single=recipe.loops or any(a.steps[-1] not in (0, 1) for a in writers),
        narrow=tuple(name for name in recipe.variables if types[name].name in ("float16", "bfloat16")),
        block=block if block and kind != "tiled" else BLOCKS[kind],
    )
    fields: dict[str, Any] = {}
    if kind != "flat":
        fields["shape"] = extents
    if kind == "tiled" or form.reordered:
        fields["steps_i"] = steps_i
    if recipe.uses("_ind") or recipe.uses("_shape"):
        fields["extents"] = shape or (1,)
    for name, a in arrays.items():
        if a.mode in ("steps", "second", "across"):
            fields |= {f"from_{name}": a.below, f"steps_{name}": a.steps}
    for name, raw in raws.items():
        if raw.mode == "view":
            fields |= {f"from_{name}": raw.below, f"extents_{name}": raw.shape, f"steps_{name}": raw.steps}
    numbers = (size, record(**fields)) if needs_layout(recipe, form) else (size,)
    named = [p.name for p in recipe.inputs] + ["where"] * (where is not None) + [p.name for p in recipe.outputs]
    views = [found.view if (found := arrays.get(name) or raws.get(name)) else None for name in named]
    return form, Job(shape, (), None, _config(form, extents, size, widest), numbers=numbers, views=views_or_none(views))


def _pairs(
    recipe: ElementwiseRecipe, inputs: Sequence[Layout | None], outputs: Sequence[Layout]
) -> list[tuple[Parameter, Layout | None]]:
    return [*zip(recipe.inputs, inputs, strict=True), *zip(recipe.outputs, outputs, strict=True)]


class _Raw:
    """A raw array: by its pointer where it is contiguous and only indexed, else as a view."""

    def __init__(self, op: str, p: Parameter, layout: Layout, body: str) -> None:
        own = steps_of(op, layout.dtype, layout.strides)
        self.below = span(layout.shape, own)[0]
        contiguous = is_row_major(layout.shape, own)
        self.view = view_of(layout.shape, own, layout.dtype)
        self.mode: Any = "view" if not contiguous or _is_asked(p.name, body) else "pointer"
        self.shape, self.steps = (layout.shape, own) if layout.shape else ((1,), (1,))

    def role(self) -> Role:
        return Role(self.mode, rank=len(self.shape))


def _is_asked(name: str, body: str) -> bool:
    """Whether the body takes more of a raw argument than ``name[number]``: its shape, an element by its coordinates."""
    if re.search(rf"\b{name}\s*[.(]", body) is not None:
        return True
    for at in re.findall(rf"\b{name}\s*\[\s*(\w+|_ind\.get\(\))\s*\]", body):
        if "." in at or re.search(rf"\b{at}\s*\[|\*\s*(?:const\s+)?{at}\s*[=;]", body):
            return True  # an array of coordinates
    return False


def _arranged(
    shape: tuple[int, ...], readers: Sequence[_Array], writers: Sequence[_Array], counts: bool
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Kind of kernel, extents and steps of the element's number, with fewest dimensions in the order of the result."""
    arrays = [*readers, *writers]
    leading = arrays[len(readers) % max(1, len(arrays))].steps if arrays else (0,) * len(shape)
    order = sorted(range(len(shape)), key=lambda d: -abs(leading[d]))
    counted = [tuple(row_major(shape)[d] for d in order)] if counts else []
    steps = [tuple(a.steps[d] for d in order) for a in arrays]
    extents, *found = merged([shape[d] for d in order], *steps, *counted)
    if not extents:
        extents, found = (1,), [(1,)] * len(found)
    own = row_major(extents)
    for a, its in zip(arrays, found, strict=False):
        a.steps = its
        a.mode = "dense" if its == own else "one" if not any(its) and a not in writers else "steps"
    steps_i = found[-1] if counts else own
    flat = steps_i == own and all(a.mode != "steps" for a in arrays)
    return ("flat" if flat else "strided"), extents, steps_i


def _tiled(
    extents: tuple[int, ...],
    readers: Sequence[_Array],
    writers: Sequence[_Array],
    steps_i: tuple[int, ...],
    widest: int,
) -> tuple[Any, tuple[int, ...], tuple[int, ...], int]:
    """As `_arranged`, by tiles where inputs have their neighbours in another dimension; then the tiles' side."""
    last = len(extents) - 1
    strided = "strided", extents, steps_i, 0
    if not writers or writers[0].steps[last] != 1 or extents[last] < _NARROWEST:
        return strided
    votes: dict[int, int] = {}
    for a in readers:
        if a.mode == "steps" and (d := _nearest(a.steps, extents)) is not None:
            votes[d] = votes.get(d, 0) + a.layout.dtype.itemsize
    if not votes:
        return strided
    across = max(votes, key=lambda d: votes[d])
    order = [*(d for d in range(last) if d != across), across, last]
    side = _side(widest, extents[across], extents[last], prod(extents))
    tiles = -(-extents[across] // side) * -(-extents[last] // side) * prod(extents[d] for d in order[:-2])
    if tiles >= 2**31:
        return strided
    shared = 0
    for a in (*readers, *writers):
        need = side * (side * a.layout.dtype.itemsize + max(4, a.layout.dtype.itemsize))
        if (
            a.mode == "steps"
            and a in readers
            and _nearest(a.steps, extents) == across
            and shared + need <= _MOST_SHARED
        ):
            a.mode, shared = "across", shared + need
        elif a.mode == "dense":
            a.mode = "steps"
        a.steps = tuple(a.steps[d] for d in order)
    return "tiled", tuple(extents[d] for d in order), tuple(steps_i[d] for d in order), side


def _side(widest: int, rows: int, columns: int, size: int) -> int:
    """Elements along a tile, of this many in all; more of one and of four bytes where there are enough of them."""
    large = size >= _MANY and min(rows, columns) > 32
    if widest == 1 and large and min(rows, columns) >= 128:
        return 128
    return 64 if widest <= 2 or (widest == 4 and large) else 32 if widest <= 8 else 16


def _nearest(steps: tuple[int, ...], extents: tuple[int, ...]) -> int | None:
    """The dimension in which an array's elements lie closer together than in the last; None where none is worth it."""
    *others, last = steps
    if abs(last) <= 1:
        return None
    near = [d for d, step in enumerate(others) if 0 < abs(step) < abs(last) and extents[d] >= _NARROWEST]
    return min(near, key=lambda d: abs(steps[d]), default=None)


def _config(form: Form, extents: tuple[int, ...], size: int, widest: int) -> Config:
    block = form.block
    if form.kind == "tiled":
        blocks = -(-extents[-1] // form.side) * -(-extents[-2] // form.side) * prod(extents[:-2])
        return config(blocks, block)
    is_word = widest <= _PACK and widest & (widest - 1) == 0
    count = 1 if form.single or not is_word else _PACK // widest
    return config(-(-size // (count * block)), block)
