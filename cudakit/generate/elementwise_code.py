"""CUDA C++ of an elementwise kernel: the user's expression in a function, and a kernel that loads, calls and stores."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from cudakit.generate.declarations import (
    Parameter,
    complex_header,
    names_in,
    numbered,
    placed,
    statement,
    structs_in,
    type_variables,
)
from cudakit.types.cpp import HEADER

#: Threads of a block, by the kind of kernel.
BLOCKS = {"flat": 128, "strided": 256, "tiled": 256}
#: Names that generated code has beside the arguments'.
RESERVED = ("i", "n", "_ind", "_shape", "where", "COUNT", "Layout", "cudakit", "cuda")


class Role(NamedTuple):
    """How one argument of a call reaches the expression.

    Attributes
    ----------
    mode : str
        ``value``: a number. ``dense``: an array that lies as the result is counted. ``one``: an array of one element.
        ``steps``: any strides. ``second``: two apart along a row, elements of 1 or 2 bytes. ``across``: strides, its
        neighbours in the dimension before the last. ``pointer``, ``view``: raw, contiguous or not.
    converts : bool
        Whether its elements are of another type than the argument.
    rank : int
        Dimensions of a view.
    """

    mode: Literal["value", "dense", "one", "steps", "second", "across", "pointer", "view"]
    converts: bool = False
    rank: int = 1


class Form(NamedTuple):
    """Everything that decides the text of a kernel, beside the declarations.

    Attributes
    ----------
    kind : str
        ``flat``, ``strided`` or ``tiled``; see <cudakit/elementwise/elements.cuh>.
    inputs, outputs : tuple of Role
    where : Role or None
        Of the mask.
    keeps : tuple of bool
        Whether elements of each output that the mask leaves out stay as they are, rather than become zero.
    loads : tuple of bool
        Whether each output is read before the expression.
    apart : bool
        Whether no input lies where an output does.
    rank, counter : int, str
        Dimensions of a strided or tiled kernel, and the type that counts its elements.
    side : int
        Of a tile.
    reordered : bool
        Whether the dimensions are not in the result's order, so that `i` is worked out.
    ndim : int
        Dimensions of the result, for `_ind`.
    single : bool
        Whether a thread does one element: of results that are not neighbours, and where the expression loops.
    narrow : tuple of str
        Type variables that stand for half or bfloat16, with which expressions compute as float.
    block : int
        Threads of a block.
    """

    kind: Literal["flat", "strided", "tiled"]
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
        """The type that an expression sees of an argument of type `name`."""
        return f"cudakit::narrow<{name}>" if name in (*self.narrow, "__half", "__nv_bfloat16") else name


class ElementwiseRecipe(NamedTuple):
    """An elementwise function as it was declared."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    body: str
    preamble: str

    @property
    def variables(self) -> tuple[str, ...]:
        """Type variables, which are the kernel's template parameters."""
        structs = structs_in(self.preamble)
        return tuple(name for name in type_variables(*self.inputs, *self.outputs) if name not in structs)

    def uses(self, name: str) -> bool:
        """Whether the expression, or a macro of the preamble, may mean one of the names that are given to it."""
        return name in names_in(self.body) or ("#define" in self.preamble and name in names_in(self.preamble))

    @property
    def loops(self) -> bool:
        """Whether the expression has a loop."""
        return not {"for", "while", "do", "goto"}.isdisjoint(names_in(self.body))


def needs_layout(recipe: ElementwiseRecipe, form: Form) -> bool:
    """Whether the kernel takes a record of extents and steps."""
    views = any(role.mode == "view" for role in (*form.inputs, *form.outputs))
    return form.kind != "flat" or views or recipe.uses("_ind") or recipe.uses("_shape")


def kernel_text(recipe: ElementwiseRecipe, form: Form) -> str:
    """The whole source of the kernel ``recipe.name``."""
    name = recipe.name
    parts = [_includes(recipe)]
    if recipe.preamble.strip():
        parts.append(placed(recipe.preamble, f"<{name} preamble>"))
    parts += [_function(recipe, form), _kernel(recipe, form)]
    return numbered("\n".join(parts), f"<{name}>")


def _includes(recipe: ElementwiseRecipe) -> str:
    types = {p.type.partition("<")[0] for p in (*recipe.inputs, *recipe.outputs) if p.dtype is not None}
    headers = sorted({HEADER[name] for name in types if name in HEADER})
    text = "".join(f"#include <{header}>\n" for header in (*headers, "cudakit/elementwise/elements.cuh"))
    return text + complex_header([recipe.body], recipe.preamble)


def _head(types: Sequence[str]) -> str:
    return f"template <{', '.join(f'typename {name}' for name in types)}>\n" if types else ""


def _function(recipe: ElementwiseRecipe, form: Form) -> str:
    """The device function that holds the expression."""
    parameters = []
    for p, role in zip(recipe.inputs, form.inputs, strict=True):
        parameters.append(_raw(p, role, "const ") if p.raw else f"const {_seen(p.type)} {p.name}")
    for p, role in zip(recipe.outputs, form.outputs, strict=True):
        parameters.append(_raw(p, role, "") if p.raw else f"{_seen(p.type)}& {p.name}")
    parameters += [text for name, text, _ in _given(recipe, form) if recipe.uses(name)]
    written = recipe.body and statement(recipe.name, "expression", recipe.body)
    body = placed(written, f"<{recipe.name} expression>")
    head = f"{_head(recipe.variables)}__device__ __forceinline__ void {recipe.name}_("
    return f"{_wrapped(head, parameters)} {{\n{body}}}\n"


def _raw(p: Parameter, role: Role, const: str) -> str:
    kind = _seen(p.stored if const else p.type)
    if role.mode == "view":
        return f"const cudakit::raw<{const}{kind}, {role.rank}>& {p.name}"
    return f"{const}{kind}* {p.name}"


def _seen(name: str) -> str:
    """The type that the function has: its own type variables are what the kernel makes of them."""
    return f"cudakit::narrow<{name}>" if name in ("__half", "__nv_bfloat16") else name


def _given(recipe: ElementwiseRecipe, form: Form) -> list[tuple[str, str, str]]:
    """The names that an expression has beside its arguments: name, parameter, and what the kernel gives for it."""
    counted = "k_"
    if form.kind == "tiled" or form.reordered:
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
    """The kernel: every argument loaded as its role says, the function called for each element, the results stored."""
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
        kind = form.type_of(p.type)
        loads += _loading(p, role, form) if reads else [f"cudakit::few<{kind}, COUNT> {p.name}_few_{{}};"]
        place, of = (p.name, "") if role.mode == "dense" else (f"{p.name} + layout_.from_{p.name}", p.name)
        more = ", where_few_" if form.where is not None and keeps else ""
        stores.append(f"run_.store({place}, {p.name}_few_{more}{f', layout_.steps_{of}' if of else ''});")
    calls += [given for name, _, given in _given(recipe, form) if recipe.uses(name)]
    parameters.append("long long size_")
    if needs_layout(recipe, form):
        types.append("Layout")
        parameters.append("Layout layout_")
    arguments = f"<{', '.join(map(form.type_of, recipe.variables))}>" if recipe.variables else ""
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
    head = f"{_head(types)}__global__ void __launch_bounds__({form.block}) {recipe.name}("
    return f"{_wrapped(head, parameters)} {{\n{text}}}"


def _run(form: Form, tiles: Sequence[tuple[str, str]], steps: Sequence[str]) -> list[str]:
    """Lines that do `steps` for the elements of a thread."""
    apart = "true" if form.apart else "false"
    if form.kind == "tiled":
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
    if form.kind == "flat":
        run = f"const cudakit::flat_run<COUNT, {apart}> run_(size_);"
    else:
        run = f"const cudakit::strided_run<COUNT, {apart}, {form.rank}, {form.counter}> run_(size_, layout_.shape);"
    return [run, "if (run_.is_empty()) return;", *steps]


def _loading(p: Parameter, role: Role, form: Form, const: str = "const ") -> list[str]:
    """Lines that make an argument's elements; none where it is taken as it is."""
    name, kind = p.name, form.type_of(p.type)
    match role.mode:
        case "dense":
            return [f"auto {name}_few_ = run_.template load<{kind}>({name});"]
        case "one":
            one = f"cudakit::as<{kind}>(*cudakit::stored({name}))"
            return [f"const auto {name}_few_ = cudakit::repeated<COUNT>({one});"]
        case "steps":
            return [
                f"auto {name}_few_ = run_.template load<{kind}>({name} + layout_.from_{name}, layout_.steps_{name});"
            ]
        case "second":
            source = f"{name} + layout_.from_{name}, layout_.steps_{name}"
            return [f"auto {name}_few_ = run_.template load_second<{kind}>({source});"]
        case "across":
            return [f"auto {name}_few_ = run_.template load<{kind}>({name}_tile_);"]
        case "view":
            data = _pointer(p, form, const, f"{name} + layout_.from_{name}")
            of = f"{data}, layout_.extents_{name}, layout_.steps_{name}"
            kind = f"cudakit::stored_t<{kind}>" if const else kind
            return [f"const cudakit::raw<{const}{kind}, {role.rank}> {name}_view_{{{of}}};"]
    return []


def _pointer(p: Parameter, form: Form, const: str, pointer: str) -> str:
    """A raw argument's memory as what the expression sees."""
    kind = form.type_of(p.type)
    if kind != p.type:
        return f"reinterpret_cast<{const}{kind}*>({pointer})"
    return f"cudakit::stored({pointer})" if const else pointer


def _element(p: Parameter, role: Role, form: Form, const: str = "const ") -> str:
    """What the function is given for an argument."""
    if role.mode == "pointer":
        return _pointer(p, form, const, p.name)
    if role.mode == "value":
        return p.name
    return f"{p.name}_view_" if role.mode == "view" else f"{p.name}_few_.values[k_]"


def _wrapped(head: str, parameters: Sequence[str]) -> str:
    """A function's head, its parameters on a line of their own where one line would be too long."""
    listed = ", ".join(parameters)
    if len(head.rpartition("\n")[2]) + len(listed) <= 116:
        return f"{head}{listed})"
    return re.sub(r"\n +$", "", f"{head}\n    {listed})")
