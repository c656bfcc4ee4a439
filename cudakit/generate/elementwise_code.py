"""Elementwise kernels: the form that a call needs, its CUDA C++, and the launch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np

from cudakit.arrays.layout import is_row_major, merged, record, row_major, span, steps_of, view_of
from cudakit.arrays.plans import Job, views_or_none
from cudakit.generate.call import Layout
from cudakit.generate.declarations import (
    GIVEN_NAMES,
    NAMESPACES,
    Declared,
    Parameter,
    is_set_first,
    names_in,
    numbered,
    placed,
    seen_type,
    statement,
    template_arguments,
    template_head,
)
from cudakit.jit.load.config import Config, config
from cudakit.types.cpp import NARROW

#: Threads of a block, by the kind of kernel.
BLOCKS = {"flat": 128, "strided": 256, "tiled": 256}
#: Names that generated code has beside the arguments'.
RESERVED = (*GIVEN_NAMES, "where", "COUNT", "Layout", *NAMESPACES)


class Role(NamedTuple):
    """Way in which an argument of a call reaches the expression.

    Attributes
    ----------
    mode : str
        How elements are accessed:

        - ``value``: a number.
        - ``one``: an array of one element.
        - ``dense``: an array with the layout in which the result's elements are counted.
        - ``steps``: an array of any strides.
        - ``second``: every second element along a row, of 1 or 2 bytes.
        - ``across``: an array whose neighbouring elements are along the dimension before the last.
        - ``pointer``, ``view``: a raw array, contiguous or not.
    converts : bool
        Whether the array's elements have another type than the declared argument.
    rank : int
        Number of dimensions of a view.
    """

    mode: Literal["value", "dense", "one", "steps", "second", "across", "pointer", "view"]
    converts: bool = False
    rank: int = 1


class Form(NamedTuple):
    """Everything that decides the source of a kernel, besides the declarations.

    Attributes
    ----------
    walk : str
        Order in which threads visit elements: ``flat``, ``strided`` or ``tiled``; see
        <cudakit/elementwise/elements.cuh>.
    inputs, outputs : tuple of Role
        Role of each input and of each output.
    where : Role or None
        Role of the mask, or None.
    keeps : tuple of bool
        Whether masked-out elements of each output keep their value; otherwise they become 0.
    loads : tuple of bool
        Whether each output is read before the expression.
    apart : bool
        Whether no input overlaps an output.
    rank, counter : int, str
        Number of dimensions of a strided or tiled kernel, and C++ type that counts its elements.
    side : int
        Side of a tile in elements.
    reordered : bool
        Whether the dimensions are not in the result's order. `i` is then computed from the coordinates.
    ndim : int
        Number of dimensions of the result, for `_ind`.
    single : bool
        Whether a thread computes one element: if the results are not neighbours, or the expression loops.
    narrow : tuple of str
        Type variables that stand for half or bfloat16, with which expressions compute as float.
    block : int
        Threads of a block.
    """

    walk: Literal["flat", "strided", "tiled"]
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    where: Role | None = None
    keeps: tuple[bool, ...] = ()
    loads: tuple[bool, ...] = ()
    apart: bool = True
    rank: int = 1
    counter: str = "int"
    side: int = 32
    reordered: bool = False
    ndim: int = 1
    single: bool = False
    narrow: tuple[str, ...] = ()
    block: int = 128

    def type_of(self, name: str) -> str:
        """Return the type that an expression sees for an argument of type `name`."""
        return f"cudakit::narrow<{name}>" if name in self.narrow else seen_type(name)


@dataclass(frozen=True)
class ElementwiseRecipe(Declared):
    """The declarations of an elementwise function."""

    body: str

    def uses(self, name: str) -> bool:
        """Return whether the expression, or a macro of the preamble, may use a name."""
        return self.may_use(self.body, name)

    @property
    def loops(self) -> bool:
        """True if the expression has a loop."""
        return not {"for", "while", "do", "goto"}.isdisjoint(names_in(self.body))


def needs_layout(recipe: ElementwiseRecipe, form: Form) -> bool:
    """Return whether the kernel has a parameter ``layout_``, which holds extents and steps of the arrays."""
    views = any(role.mode == "view" for role in (*form.inputs, *form.outputs))
    return form.walk != "flat" or views or recipe.uses("_ind") or recipe.uses("_shape")


def kernel_text(recipe: ElementwiseRecipe, form: Form) -> str:
    """Return the source of the kernel ``recipe.name``."""
    heads = [recipe.includes("cudakit/elementwise/elements.cuh", [recipe.body]), recipe.placed_preamble]
    parts = [*filter(None, heads), _function(recipe, form), _kernel(recipe, form)]
    return numbered("\n".join(parts), f"<{recipe.name}>")


def _function(recipe: ElementwiseRecipe, form: Form) -> str:
    """Return C++ of the device function that contains the user's expression. The kernel calls it for each element."""
    parameters = []
    for p, role in zip(recipe.inputs, form.inputs, strict=True):
        parameters.append(_raw(p, role, "const ") if p.raw else f"const {seen_type(p.type)} {p.name}")
    for p, role in zip(recipe.outputs, form.outputs, strict=True):
        parameters.append(_raw(p, role, "") if p.raw else f"{seen_type(p.type)}& {p.name}")
    parameters += [text for name, text, _ in _expression_names(recipe, form) if recipe.uses(name)]
    written = recipe.body and statement(recipe.name, "expression", recipe.body)
    body = placed(written, f"<{recipe.name} expression>")
    head = f"{template_head(recipe.variables)}__device__ __forceinline__ void {recipe.name}_("
    return f"{_wrapped(head, parameters)} {{\n{body}}}\n"


def _raw(p: Parameter, role: Role, const: str) -> str:
    cpp_type = seen_type(p.stored if const else p.type)
    if role.mode == "view":
        return f"const cudakit::raw<{const}{cpp_type}, {role.rank}>& {p.name}"
    return f"{const}{cpp_type}* {p.name}"


def _expression_names(recipe: ElementwiseRecipe, form: Form) -> list[tuple[str, str, str]]:
    """Return the names that an expression has beside its arguments: ``i``, ``n``, ``_ind`` and ``_shape``.

    For each: the name, its C++ declaration as a parameter, and C++ of the value that the kernel passes.
    """
    counted = "k_"
    if form.walk == "tiled" or form.reordered:
        counted += ", layout_.steps_i"
    index = f"run_.index({counted})"
    return [
        ("i", "const long long i", index),
        ("n", "const long long n", "size_"),
        (
            "_ind",
            f"const cudakit::coordinates<{form.ndim}> _ind",
            f"cudakit::coordinates<{form.ndim}>({index}, layout_.extents, size_)",
        ),
        ("_shape", "const long long* _shape", "layout_.extents"),
    ]


def _kernel(recipe: ElementwiseRecipe, form: Form) -> str:
    """Return the kernel: arguments loaded by their roles, the function called for each element, results stored."""
    types = [*recipe.variables]
    parameters, sizes, tiles, loads, calls, stores = [], [], [], [], [], []
    pairs = [*zip(recipe.inputs, form.inputs, strict=True)]
    if form.where is not None:
        pairs.append((Parameter("where", "bool"), form.where))
    for p, role in pairs:
        stored = f"{p.name}_type_" if role.converts else p.type
        types += [stored] * role.converts
        parameters.append(f"{p.type} {p.name}" if role.mode == "value" else f"const {stored}* {p.name}")
        sizes += [stored] if role.mode in ("dense", "steps", "second", "across") else []
        if role.mode == "across":
            tiles.append((p.name, stored))
        loads += _loading(p, role, form)
        if p.name != "where":
            calls.append(_element(p, role, form))
    for p, role, reads, keeps in zip(recipe.outputs, form.outputs, form.loads, form.keeps, strict=True):
        stored = f"{p.name}_type_" if role.converts else p.type
        types += [stored] * role.converts
        parameters.append(f"{stored}* {p.name}")
        calls.append(_element(p, role, form, ""))
        if p.raw:
            loads += _loading(p, role, form, "")
            continue
        sizes.append(stored)
        cpp_type = form.type_of(p.type)
        loads += _loading(p, role, form) if reads else [f"cudakit::few<{cpp_type}, COUNT> {p.name}_few_{{}};"]
        place, of = (p.name, "") if role.mode == "dense" else (f"{p.name} + layout_.from_{p.name}", p.name)
        more = ", where_few_" if form.where is not None and keeps else ""
        stores.append(f"run_.store({place}, {p.name}_few_{more}{f', layout_.steps_{of}' if of else ''});")
    calls += [value for name, _, value in _expression_names(recipe, form) if recipe.uses(name)]
    parameters.append("long long size_")
    if needs_layout(recipe, form):
        types.append("Layout")
        parameters.append("Layout layout_")
    arguments = template_arguments(map(form.type_of, recipe.variables))
    holds = "run_.has(k_)" + (" && where_few_.values[k_]" if form.where is not None else "")
    widths = ", ".join(f"sizeof({name})" for name in dict.fromkeys(sizes))
    steps = [
        *loads,
        "#pragma unroll",
        "for (int k_ = 0; k_ < COUNT; ++k_)",
        f"    if ({holds}) {recipe.name}_{arguments}({', '.join(calls)});",
        *stores,
    ]
    lines = [
        f"constexpr int COUNT = {1 if form.single or not widths else f'cudakit::count_of<{widths}>'};",
        *_run(form, tiles, steps),
    ]
    text = "".join(f"{line}\n" if line.startswith("#") else f"    {line}\n" for line in lines)
    head = f"{template_head(types)}__global__ void __launch_bounds__({form.block}) {recipe.name}("
    return f"{_wrapped(head, parameters)} {{\n{text}}}"


def _run(form: Form, tiles: Sequence[tuple[str, str]], steps: Sequence[str]) -> list[str]:
    """Return C++ lines of a kernel that run the lines `steps` for the elements of a thread.

    `tiles` has name and C++ type of each array that is read by way of a tile in shared memory.
    """
    apart = "true" if form.apart else "false"
    if form.walk == "tiled":
        return [
            f"cudakit::tiled_run<COUNT, {apart}, {form.rank}, {form.side}> run_(layout_.shape);",
            *(f"__shared__ cudakit::tile<{stored}, {form.side}> {name}_tile_;" for name, stored in tiles),
            *(f"run_.fetch({name}_tile_, {name} + layout_.from_{name}, layout_.steps_{name});" for name, _ in tiles),
            "__syncthreads();",
            "#pragma unroll 4",
            "for (int turn_ = 0; turn_ < run_.TURNS; ++turn_) {",
            "    if (!run_.begin(turn_)) continue;",
            *(step if step.startswith("#") else f"    {step}" for step in steps),
            "}",
        ]
    if form.walk == "flat":
        run = f"const cudakit::flat_run<COUNT, {apart}> run_(size_);"
    else:
        run = f"const cudakit::strided_run<COUNT, {apart}, {form.rank}, {form.counter}> run_(size_, layout_.shape);"
    return [run, "if (run_.is_empty()) return;", *steps]


def _loading(p: Parameter, role: Role, form: Form, const: str = "const ") -> list[str]:
    """Return C++ lines with which the kernel loads an argument's elements; none for a number or a plain pointer.

    `const` is ``"const "`` for an input, and empty for an output.
    """
    name, cpp_type = p.name, form.type_of(p.type)
    match role.mode:
        case "dense":
            return [f"auto {name}_few_ = run_.template load<{cpp_type}>({name});"]
        case "one":
            element = f"cudakit::as<{cpp_type}>(*cudakit::stored({name}))"
            return [f"const auto {name}_few_ = cudakit::repeated<COUNT>({element});"]
        case "steps":
            loaded = f"run_.template load<{cpp_type}>({name} + layout_.from_{name}, layout_.steps_{name})"
            return [f"auto {name}_few_ = {loaded};"]
        case "second":
            source = f"{name} + layout_.from_{name}, layout_.steps_{name}"
            return [f"auto {name}_few_ = run_.template load_second<{cpp_type}>({source});"]
        case "across":
            return [f"auto {name}_few_ = run_.template load<{cpp_type}>({name}_tile_);"]
        case "view":
            data = _pointer(p, form, const, f"{name} + layout_.from_{name}")
            of = f"{data}, layout_.extents_{name}, layout_.steps_{name}"
            cpp_type = f"cudakit::stored_t<{cpp_type}>" if const else cpp_type
            return [f"const cudakit::raw<{const}{cpp_type}, {role.rank}> {name}_view_{{{of}}};"]
    return []


def _pointer(p: Parameter, form: Form, const: str, pointer: str) -> str:
    """Return C++ that converts `pointer`, C++ of a raw argument's address, to the pointer that the expression sees.

    `const` is ``"const "`` for an input, and empty for an output.
    """
    cpp_type = form.type_of(p.type)
    if cpp_type != p.type:
        return f"reinterpret_cast<{const}{cpp_type}*>({pointer})"
    return f"cudakit::stored({pointer})" if const else pointer


def _element(p: Parameter, role: Role, form: Form, const: str = "const ") -> str:
    """Return C++ that the kernel passes to the device function for a parameter: an element, a number, a pointer or a
    view.
    """
    if role.mode == "pointer":
        return _pointer(p, form, const, p.name)
    if role.mode == "value":
        return p.name
    return f"{p.name}_view_" if role.mode == "view" else f"{p.name}_few_.values[k_]"


def _wrapped(head: str, parameters: Sequence[str]) -> str:
    """Return C++ `head` with the parameters and ``)``.

    The parameters are on a line of their own if one line would be too long.
    """
    listed = ", ".join(parameters)
    if len(head.rpartition("\n")[2]) + len(listed) <= 116:
        return f"{head}{listed})"
    return re.sub(r"\n +$", "", f"{head}\n    {listed})")


# The plan of a call: dimensions in order and merged, a form chosen.

_PACK = 16
#: Fewest elements across a tile for which a tile is worth its while, and shared memory that tiles may take.
_NARROWEST, _MOST_SHARED = 8, 40 << 10
_MANY = 1 << 22


class _Array:
    """An array that is read or written element by element, while its launch is planned.

    It holds the access mode (see `Role`) and the steps in elements along the dimensions of the result.
    """

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


def plan(
    recipe: ElementwiseRecipe,
    inputs: Sequence[Layout | None],
    where: Layout | None,
    outputs: Sequence[Layout],
    is_given: Sequence[bool],
    shape: tuple[int, ...],
    types: dict[str, np.dtype],
    apart: bool,
    block: int | None = None,
) -> tuple[Form, Job]:
    """Return the form of the kernel for a call with elements, and its job.

    Parameters
    ----------
    recipe : ElementwiseRecipe
        Declarations of the function.
    inputs : sequence of Layout or None
        Layout of each input. None: a number.
    where : Layout or None
        Layout of the mask, or None.
    outputs : sequence of Layout
        Layout of each output.
    is_given : sequence of bool
        Whether each output is the caller's own array, which may be read.
    shape : tuple of int
        Shape of the result.
    types : dict
        Dtypes of type variables.
    apart : bool
        Whether no input overlaps an output.
    block : int, optional
        Threads of a block. Tiled kernels ignore it.
    """
    op = recipe.name
    mask = Parameter("where", "bool", np.dtype("?"))
    readers = [_Array(op, p, at, shape) for p, at in zip(recipe.inputs, inputs, strict=True) if at and not p.raw]
    if where is not None:
        readers.append(_Array(op, mask, where, shape))
    writers = [_Array(op, p, at, shape) for p, at in zip(recipe.outputs, outputs, strict=True) if not p.raw]
    counts = recipe.uses("i") or recipe.uses("_ind")
    walk, extents, steps_i = _arranged(shape, readers, writers, counts)
    size = prod(shape)
    widest = max((a.layout.dtype.itemsize for a in (*readers, *writers)), default=_PACK)
    side = 0
    if walk == "strided":
        walk, extents, steps_i, side = _tiled(extents, readers, writers, steps_i, widest)
    if walk == "strided":
        for a in readers:
            if a.mode == "steps" and a.steps[-1] == 2 and a.layout.dtype.itemsize == widest <= 2:
                a.mode = "second"
    raws = {p.name: _Raw(op, p, at, recipe.body) for p, at in _pairs(recipe, inputs, outputs) if at and p.raw}
    arrays = {a.p.name: a for a in (*readers, *writers)}

    def role(p: Parameter, at: Layout | None) -> Role:
        if at is None:
            return Role("value")
        return raws[p.name].role() if p.raw else arrays[p.name].role(types)

    loads = tuple(
        mine and not is_set_first(recipe.body, p.name) for p, mine in zip(recipe.outputs, is_given, strict=True)
    )
    form = Form(
        walk=walk,
        inputs=tuple(role(p, at) for p, at in zip(recipe.inputs, inputs, strict=True)),
        outputs=tuple(role(p, at) for p, at in zip(recipe.outputs, outputs, strict=True)),
        where=None if where is None else role(mask, where),
        keeps=tuple(is_given),
        loads=loads,
        apart=apart and not any(loads),
        rank=len(extents),
        counter="int" if size < 2**31 - _PACK else "long long",
        side=side,
        reordered=counts and steps_i != row_major(extents),
        ndim=len(shape),
        single=recipe.loops or any(a.steps[-1] not in (0, 1) for a in writers),
        narrow=tuple(name for name in recipe.variables if types[name].name in NARROW),
        block=block if block and walk != "tiled" else BLOCKS[walk],
    )
    fields: dict[str, Any] = {}
    if walk != "flat":
        fields["shape"] = extents
    if walk == "tiled" or form.reordered:
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
    names = [p.name for p in recipe.inputs] + ["where"] * (where is not None) + [p.name for p in recipe.outputs]
    views = [array.view if (array := arrays.get(name) or raws.get(name)) else None for name in names]
    return form, Job(shape, (), None, _config(form, extents, size, widest), numbers=numbers, views=views_or_none(views))


def _pairs(
    recipe: ElementwiseRecipe, inputs: Sequence[Layout | None], outputs: Sequence[Layout]
) -> list[tuple[Parameter, Layout | None]]:
    return [*zip(recipe.inputs, inputs, strict=True), *zip(recipe.outputs, outputs, strict=True)]


class _Raw:
    """A raw array: a pointer if it is contiguous and only indexed by one number, else a view."""

    def __init__(self, op: str, p: Parameter, layout: Layout, body: str) -> None:
        own = steps_of(op, layout.dtype, layout.strides)
        self.below = span(layout.shape, own)[0]
        contiguous = is_row_major(layout.shape, own)
        self.view = view_of(layout.shape, own, layout.dtype)
        self.mode: Any = "view" if not contiguous or _needs_view(p.name, body) else "pointer"
        self.shape, self.steps = (layout.shape, own) if layout.shape else ((1,), (1,))

    def role(self) -> Role:
        return Role(self.mode, rank=len(self.shape))


def _needs_view(name: str, body: str) -> bool:
    """Return whether the body uses more of a raw argument than ``name[number]``: its shape, or coordinates."""
    if re.search(rf"\b{name}\s*[.(]", body) is not None:
        return True
    for at in re.findall(rf"\b{name}\s*\[\s*(\w+|_ind\.get\(\))\s*\]", body):
        if "." in at or re.search(rf"\b{at}\s*\[|\*\s*(?:const\s+)?{at}\s*[=;]", body):
            return True  # an array of coordinates
    return False


def _arranged(
    shape: tuple[int, ...], readers: Sequence[_Array], writers: Sequence[_Array], counts: bool
) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Merge dimensions as far as possible, and set steps and mode of each array for the merged dimensions.

    Return ``"flat"`` or ``"strided"``, the merged extents, and the steps of the element's row-major number. `counts`:
    the kernel needs this number. Dimensions are in the order in which the first output is stored.
    """
    arrays = [*readers, *writers]
    leading = arrays[len(readers) % max(1, len(arrays))].steps if arrays else (0,) * len(shape)
    order = sorted(range(len(shape)), key=lambda d: -abs(leading[d]))
    counted = [tuple(row_major(shape)[d] for d in order)] if counts else []
    steps = [tuple(a.steps[d] for d in order) for a in arrays]
    extents, *merged_steps = merged([shape[d] for d in order], *steps, *counted)
    if not extents:
        extents, merged_steps = (1,), [(1,)] * len(merged_steps)
    own = row_major(extents)
    for a, its in zip(arrays, merged_steps, strict=False):
        a.steps = its
        a.mode = "dense" if its == own else "one" if not any(its) and a not in writers else "steps"
    steps_i = merged_steps[-1] if counts else own
    flat = steps_i == own and all(a.mode != "steps" for a in arrays)
    return ("flat" if flat else "strided"), extents, steps_i


def _tiled(
    extents: tuple[int, ...],
    readers: Sequence[_Array],
    writers: Sequence[_Array],
    steps_i: tuple[int, ...],
    widest: int,
) -> tuple[Any, tuple[int, ...], tuple[int, ...], int]:
    """Choose whether a strided kernel uses tiles: for inputs that are contiguous in another dimension than the result.

    Return ``"tiled"`` or ``"strided"``, extents, steps of the element's number, and the side of a tile (0 without
    tiles). `widest` is the size of the widest element in bytes.
    """
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
    """Return the side of a square tile in elements: 16, 32, 64 or 128.

    `widest` is the size of the widest element in bytes. `rows` and `columns` are the extents that the tiles cover,
    `size` is the number of all elements.
    """
    large = size >= _MANY and min(rows, columns) > 32
    if widest == 1 and large and min(rows, columns) >= 128:
        return 128
    return 64 if widest <= 2 or (widest == 4 and large) else 32 if widest <= 8 else 16


def _nearest(steps: tuple[int, ...], extents: tuple[int, ...]) -> int | None:
    """Return the dimension along which an array has the smallest step, if this is smaller than the last one's.

    The result is the dimension's number. It is None if no dimension is worth a tile.
    """
    *others, last = steps
    if abs(last) <= 1:
        return None
    near = [d for d, step in enumerate(others) if 0 < abs(step) < abs(last) and extents[d] >= _NARROWEST]
    return min(near, key=lambda d: abs(steps[d]), default=None)


def _config(form: Form, extents: tuple[int, ...], size: int, widest: int) -> Config:
    block = form.block
    if form.walk == "tiled":
        blocks = -(-extents[-1] // form.side) * -(-extents[-2] // form.side) * prod(extents[:-2])
        return config(blocks, block)
    is_word = widest <= _PACK and widest & (widest - 1) == 0
    count = 1 if form.single or not is_word else _PACK // widest
    return config(-(-size // (count * block)), block)
