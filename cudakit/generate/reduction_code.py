"""CUDA C++ of a reduction: the user's expressions as functions, and the kernel that runs a template with them."""

from __future__ import annotations

from typing import NamedTuple

from cudakit.generate.declarations import numbered, placed, statement
from cudakit.generate.fold import (
    INITIAL,
    SIZE_PROBE,
    Declared,
    includes,
    initial_parameter,
    kernel_inputs,
    mapped_text,
    returned,
    template_arguments,
    template_head,
)


class ReductionRecipe(NamedTuple):
    """A reduction as it was declared; `acc` is None for the type that the map's values add up in."""

    of: Declared
    map: str
    reduce: str
    identity: str | None
    post: str
    acc: str | None

    @property
    def adds_values(self) -> bool:
        """Whether it is the sum of its one input, for which there are ways shorter than an addition for each."""
        is_sum = "".join(self.reduce.split()) in ("a+b", "b+a") and "#define" not in self.of.preamble
        return is_sum and [(p.name, p.raw) for p in self.of.inputs] == [(self.map, False)]


def kernel_text(recipe: ReductionRecipe, numbers: frozenset[str]) -> str:
    """The whole source; `numbers` are the inputs that are given as numbers rather than as arrays."""
    of = recipe.of
    texts = recipe.map, recipe.reduce, recipe.identity, recipe.post
    parts = [
        includes(of, "cudakit/reduce/expression.cuh", recipe.acc, *texts),
        fold_text(recipe),
        _kernel(recipe, numbers),
    ]
    return numbered("\n".join(parts), f"<{of.name}>")


def fold_text(recipe: ReductionRecipe) -> str:
    """The expressions as what <cudakit/reduce/expression.cuh> calls."""
    of = recipe.of
    mapped, state = mapped_text(of, recipe.map, recipe.acc, ("const long long i",))
    head, arguments = template_head(of.variables), template_arguments(of.variables)
    outputs = ", ".join(f"{p.type}& {p.name}" for p in of.outputs)
    lines = [
        mapped,
        f"{head}struct cudakit_fold : cudakit_mapped{arguments} {{\n    using cudakit_state = {state};\n",
        f"    static constexpr bool CUDAKIT_HAS_IDENTITY = {'false' if recipe.identity is None else 'true'};\n",
        f"    static constexpr bool CUDAKIT_ADDS_VALUES = {'true' if recipe.adds_values else 'false'};\n",
    ]
    if recipe.identity is not None:
        lines.append(
            f"    static __device__ cudakit_state cudakit_identity(){returned(of, 'identity', recipe.identity)}"
        )
    lines += [
        "    static __device__ cudakit_state cudakit_reduce(const cudakit_state& a, const cudakit_state& b)",
        returned(of, "reduce", recipe.reduce),
        f"    static __device__ void cudakit_post(const cudakit_state& a, const long long n, {outputs}) {{\n",
        f"{placed(statement(of.name, 'post', recipe.post), f'<{of.name} post>')}    }}\n}};\n",
    ]
    return "".join(lines)


def _kernel(recipe: ReductionRecipe, numbers: frozenset[str]) -> str:
    of = recipe.of
    types, parameters, several = kernel_inputs(of, numbers)
    fold = f"cudakit_fold{template_arguments(of.variables)}"
    reducer = f"cudakit::expressed<{fold}>"
    parameters += [f"{p.type}* {p.name}" for p in of.outputs]
    names = f"cudakit::several_of({', '.join(p.name for p in of.outputs)})"
    if INITIAL in numbers:
        more, first = initial_parameter(of, recipe.acc)
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
